// Each driver call between opening and releasing a program fails once: the error is returned,
// nothing leaks, and the handles that exist stay usable.
#include <cstring>

#include "../values.h"
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

}  // namespace
}  // namespace husk::test
