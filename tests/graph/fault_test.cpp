// Each driver call between opening and releasing a program fails once: the error is returned,
// nothing leaks, and the handles that exist stay usable.
#include <cstring>

#include "../values.h"
#include "base/memory.h"
#include "loaded_program.h"
#include "programs.h"

namespace husk::test {
namespace {

constexpr int32_t kOutOfMemory = 2;  // CUDA_ERROR_OUT_OF_MEMORY

// Loads a program, runs it and releases it, with a fault in driver call `fail_at` (0: no fault).
// Returns -1 if loading failed, otherwise the status of the run. `calls` is the number of driver
// calls before the release.
int load_and_run(Fake& fake, uint64_t fail_at, const husk_session_options& options,
                 husk_error* error, uint64_t* calls) {
  std::vector<float> x(200, 1.5f), y(200);
  if (fail_at) fake.fake_fail_at(fail_at, kOutOfMemory);
  LoadedProgram m(branches("scale"), &options);
  *error = m.error;
  if (!m.session) return -1;
  auto pass = [&]() -> husk_status {
    void* in = m.alloc(800);
    void* out = in ? m.alloc(800) : nullptr;
    if (!out) return m.error.code;
    if (husk_status status = m.upload(in, x.data(), 800)) return status;
    DeviceTensor from = device_vector(in, 200), to = device_vector(out, 200);
    husk_value inputs[] = {from.value(), floating(0.5), integer(3)}, output = to.value();
    if (husk_status status = husk_session_resize(m.session, 0, inputs, 3, &m.error)) return status;
    for (int run = 0; run < 2; ++run)
      if (husk_status status = husk_session_run(m.session, 0, m.stream, inputs, 3, &output, 1,
                                                &m.error))
        return status;
    if (husk_status status = husk_session_wait(m.session, &m.error)) return status;
    return m.download(y.data(), out, 800);
  };
  husk_status status = pass();
  *error = m.error;
  if (status != HUSK_OK) {
    // The handles are usable, so the next pass must succeed.
    EXPECT_EQ(pass(), HUSK_OK) << "after call " << fail_at << ": " << m.error.text;
  }
  EXPECT_EQ(y, branches_of(x, 0.5f, 3)) << "call " << fail_at;
  *calls = fake.fake_calls(nullptr);
  return status;
}

void sweep(const husk_session_options& options) {
  Fake fake;
  fake.fake_reset();
  husk_error error = {};
  uint64_t calls = 0, ignored = 0;
  ASSERT_EQ(load_and_run(fake, 0, options, &error, &calls), HUSK_OK) << error.text;
  ASSERT_GT(calls, 50u);
  uint64_t failures = 0;
  for (uint64_t n = 1; n <= calls; ++n) {
    fake.fake_reset();
    error = {};
    const int status = load_and_run(fake, n, options, &error, &ignored);
    if (status != HUSK_OK) {
      ++failures;
      EXPECT_GT(std::strlen(error.text), 10u) << "call " << n;
    }
    fake.fake_reset();
    ASSERT_EQ(fake.fake_live_objects(), 0u) << "call " << n << ": " << error.text;
  }
  EXPECT_GT(failures, calls / 4);
}

TEST(Faults, EveryDriverCallOfAGraph) {
  husk_session_options options = HUSK_SESSION_OPTIONS_INIT;
  options.mode = HUSK_MODE_GRAPH;
  sweep(options);
}

TEST(Faults, EveryDriverCallOfAList) {
  husk_session_options options = HUSK_SESSION_OPTIONS_INIT;
  options.mode = HUSK_MODE_LIST;
  sweep(options);
}

// Refuses one allocation of host memory.
struct Refusal {
  int64_t refuse = -1, calls = 0, live = 0;
  husk_allocator allocator() {
    return {this,
            [](void* user, size_t size, size_t align) -> void* {
              auto* self = static_cast<Refusal*>(user);
              if (self->calls++ == self->refuse) return nullptr;
              ++self->live;
              return default_allocator()->allocate(nullptr, size, align);
            },
            [](void* user, void* memory) {
              if (!memory) return;
              --static_cast<Refusal*>(user)->live;
              default_allocator()->release(nullptr, memory);
            }};
  }
};

// Each allocation of host memory fails once: the call says so, and succeeds when it is repeated.
TEST(Faults, EveryAllocationOfAGraph) {
  Fake fake;
  fake.fake_reset();
  const std::string text = affine(kCount, kOnes) + branches("scale");
  const std::vector<float> x(200, 1.5f);
  int64_t refused = 0;
  for (int64_t n = 0, calls = 1; n < calls; ++n) {
    Refusal refusal;
    refusal.refuse = n;
    const husk_allocator allocator = refusal.allocator();
    {
      LoadedProgram m(text, nullptr, &allocator);
      const auto expect = [&](const char* what, const auto& call) {
        const int64_t before = refusal.calls;
        const husk_status status = call();
        if (before > n || refusal.calls <= n) {
          ASSERT_EQ(status, HUSK_OK) << what << ": " << m.error.text;
          return;
        }
        ++refused;
        EXPECT_EQ(status, HUSK_OUT_OF_MEMORY) << what << ", allocation " << n;
        if (status != HUSK_OK) ASSERT_EQ(call(), HUSK_OK) << what << ", again: " << m.error.text;
      };
      if (refusal.calls > n) {
        ++refused;
        EXPECT_EQ(m.session, nullptr) << "allocation " << n;
        EXPECT_EQ(m.error.code, HUSK_OUT_OF_MEMORY) << "allocation " << n << m.error.text;
      }
      if (!m.session) {
        calls = refusal.calls + 1;
        continue;
      }
      void *in = m.alloc(800), *out = m.alloc(800);
      ASSERT_EQ(m.upload(in, x.data(), 800), HUSK_OK);
      DeviceTensor from = device_vector(in, 200), to = device_vector(out, 200);
      const husk_value inputs[] = {from.value(), floating(0.5), integer(3)};
      husk_value output = to.value();
      const auto resize = [&] { return husk_session_resize(m.session, 1, inputs, 3, &m.error); };
      expect("resize", resize);
      expect("range", [&] { return husk_session_set_range(m.session, 1, 0, 0, 1, 300, &m.error); });
      expect("resize", resize);
      expect("run", [&] {
        return husk_session_run(m.session, 1, m.stream, inputs, 3, &output, 1, &m.error);
      });
      const husk_constant_update update = {0, 0, x.data()};
      expect("update",
             [&] { return husk_program_update_constants(m.program, &update, 1, &m.error); });
      std::vector<float> y(200);
      ASSERT_EQ(m.download(y.data(), out, 800), HUSK_OK);
      EXPECT_EQ(y, branches_of(x, 0.5f, 3));
      EXPECT_EQ(m.stats(m.session, 1).runs_as_graph, 1u) << "allocation " << n;
      calls = refusal.calls;
    }
    EXPECT_EQ(refusal.live, 0) << "allocation " << n;
    ASSERT_FALSE(testing::Test::HasFailure()) << "allocation " << n;
  }
  EXPECT_GT(refused, 50);
}

}  // namespace
}  // namespace husk::test
