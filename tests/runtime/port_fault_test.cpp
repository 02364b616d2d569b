// Every call of the port fails once: the error is that of the port, nothing leaks, and the handles
// stay usable.
#include <cstring>
#include <functional>
#include <set>
#include <string>

#include "fault_port.h"
#include "fixture.h"

namespace husk::test {
namespace {

// A program that uses every function of a port: kernels, copies, fills, reads, a loop, a branch, a
// buffer and an output whose sizes depend on data, states of both kinds, constants, and inputs that
// may be misaligned.
const char* const kFaultyProgram = R"(
assert "none of these kernels has one"
constant w f32 [4] bytes "0000803f000000400000404000008040"
constant v f32 [4] bytes "0000803f0000803f0000803f0000803f"
state sum f32 [4] constant w
state ticks i64 [] fill 5
function f {
  input x tensor f32 [1..64]
  input flag tensor i64 []
  output y tensor f32 rank 1
  output found tensor f32 rank 1
  output many int
  variant cpu {
    let n = size(x, 0)
    buffer x of input bytes mul(n, 4) align 64
    buffer flag of input bytes 8
    buffer y of output bytes mul(n, 4)
    buffer t bytes mul(n, 4) align 64
    buffer left bytes 8 align 64
    launch scale grid (1, 1, 1) (read x, write t, 2.0, n)
    copy (write y, read t)
    launch add grid (1, 1, 1) (read sum, read v, both sum, 4)
    fill i64 (write left, 2)
    loop {
      read i64 (read left)
      let now = result(0)
      while lt(0, now)
      launch count grid (1, 1, 1) (both ticks)
      fill i64 (write left, sub(now, 1))
    }
    read i64 (read flag)
    let p = result(0)
    when lt(3, p) {
      launch add grid (1, 1, 1) (read x, read t, write y, n)
    }
    buffer d bytes mul(p, 4) align 64
    buffer found of output bytes mul(p, 4)
    fill f32 (write d, 1.5)
    copy (write found, read d)
    return (tensor y f32 [n] [1], tensor found f32 [p] [1], int p)
  }
}
)";

// Creates all objects, uses them and checks each value. A call that fails must return the port's
// error, and must succeed when it is repeated.
class Scenario {
 public:
  Scenario() : file_(artifact(kFaultyProgram)), bytes_(file_) {}
  ~Scenario() {
    husk_engine_release(engine_);
    husk_session_release(other_);
    husk_program_release(program_);
    husk_session_release(session_);
  }

  void play() {
    husk_engine_options options = Machine::defaults();
    options.port = fault_port();
    step("engine", [&] { return husk_engine_create(&options, &engine_, &error_); });
    if (!engine_) return;  // true if the device is lost
    step("load", [&] {
      return husk_program_load(engine_, bytes_.data(), bytes_.size(), nullptr, nullptr, &program_,
                               &error_);
    });
    husk_session_options session_options = HUSK_SESSION_OPTIONS_INIT;
    session_options.copy_misaligned = 1;
    session_options.poison_memory = 1;
    if (traced) session_options.trace = [](void*, const husk_trace_event*) {};
    if (!program_) return;
    for (husk_session** session : {&session_, &other_})
      step("session",
           [&] { return husk_session_create(program_, &session_options, session, &error_); });
    if (!session_ || !other_) return;
    Tensor shape(HUSK_F32, {20});
    step("resize", [&] {
      return husk_session_resize(session_, 0, std::array{shape.value(), flag_.value()}.data(), 2,
                                 &error_);
    });
    run(20, 2, true);
    run(7, 4, false);
    run(20, 9, true);
    states();
    updates();
    run(20, 4, true);
  }

  // true if the port fails for good: after the first failure no call needs to succeed
  bool dead = false;
  bool traced = false;  // true if each step is waited for

 private:
  void step(
      const char* what, const std::function<husk_status()>& call,
      const std::function<void()>& before_again = [] {}) {
    const int64_t met = faults().met;
    error_ = {};
    husk_status status = call();
    if (faults().met == met) {
      EXPECT_TRUE(status == HUSK_OK || (dead && met > 0)) << what << ": " << error_.text;
      return;
    }
    EXPECT_EQ(status, HUSK_DEVICE) << what;
    EXPECT_EQ(error_.code, HUSK_DEVICE) << what;
    EXPECT_EQ(error_.driver_code, 77) << what;
    EXPECT_NE(std::strstr(error_.text, "injected fault in "), nullptr)
        << what << ": " << error_.text;
    if (dead) return;
    before_again();
    EXPECT_EQ(call(), HUSK_OK) << what << ", again: " << error_.text;
  }

  void run(int64_t n, int64_t p, bool misaligned) {
    Tensor y(HUSK_F32, {n});
    std::vector<uint8_t> room(static_cast<size_t>(n) * 4 + 128);
    uint8_t* data = room.data() + (64 - reinterpret_cast<uintptr_t>(room.data()) % 64) % 64 +
                    (misaligned ? 4 : 0);
    Tensor x(HUSK_F32, {n}, data);
    for (int64_t i = 0; i < n; ++i) x.as<float>()[i] = static_cast<float>(i + 1);
    *flag_.as<int64_t>() = p;
    husk_value in[2] = {x.value(), flag_.value()}, out[3];
    auto call = [&] {
      out[0] = y.value();
      out[1] = none();
      out[2] = none();
      return husk_session_run(session_, 0, nullptr, in, 2, out, 3, &error_);
    };
    ++runs_;
    bool done = true;
    step(
        "run",
        [&] {
          const husk_status status = call();
          done = status == HUSK_OK;
          return status;
        },
        [&] {  // The states are undefined after a failed run.
          for (uint32_t s = 0; s < 2; ++s)
            EXPECT_EQ(husk_session_state_reset(session_, s, &error_), HUSK_OK) << error_.text;
          runs_ = 1;
        });
    if (!done || (dead && faults().met > 0)) return;
    for (int64_t i = 0; i < n; ++i)
      ASSERT_EQ(y.as<float>()[i], static_cast<float>(i + 1) * (p > 3 ? 3.0f : 2.0f))
          << i << " of " << n;
    ASSERT_EQ(out[1].kind, HUSK_VALUE_TENSOR);
    ASSERT_EQ(out[1].as.tensor->shape[0], p);
    for (int64_t i = 0; i < p; ++i)
      ASSERT_EQ(static_cast<const float*>(out[1].as.tensor->data)[i], 1.5f);
    EXPECT_EQ(out[2].as.i, p);
    expect_states(session_);
  }

  void expect_states(husk_session* session) {
    float sum[4] = {};
    int64_t ticks = 0;
    auto get = [&](uint32_t state, void* to) {
      step("state_get", [&] { return husk_session_state_get(session, state, to, &error_); });
    };
    get(0, sum);
    get(1, &ticks);
    if (dead && faults().met > 0) return;
    for (int i = 0; i < 4; ++i)
      EXPECT_EQ(sum[i], static_cast<float>(i + 1) + add_ * static_cast<float>(runs_));
    EXPECT_EQ(ticks, 5 + 2 * runs_);
  }

  void states() {
    const float sum[4] = {1, 2, 3, 4};
    const int64_t ticks = 5 + 2 * 3;
    step("state_set", [&] { return husk_session_state_set(other_, 0, sum, &error_); });
    step("state_set", [&] { return husk_session_state_set(other_, 1, &ticks, &error_); });
    for (uint32_t s = 0; s < 2; ++s)
      step("state_copy", [&] { return husk_session_state_copy(other_, s, session_, &error_); });
    expect_states(other_);
    for (uint32_t s = 0; s < 2; ++s)
      step("state_reset", [&] { return husk_session_state_reset(session_, s, &error_); });
    runs_ = 0;
    expect_states(session_);
  }

  void updates() {
    const float v[2][4] = {{2, 2, 2, 2}, {3, 3, 3, 3}};
    for (int i = 0; i < 2; ++i) {
      const husk_constant_update update = {1, 0, v[i]};
      step("update_constants",
           [&] { return husk_program_update_constants(program_, &update, 1, &error_); });
      add_ = v[i][0];
    }
    const float halves[4] = {4, 4, 4, 4};
    const husk_constant_part parts[2] = {{1, 0, halves, 0, 8}, {1, 0, halves, 8, 8}};
    step("update_constant_parts",
         [&] { return husk_program_update_constant_parts(program_, parts, 2, &error_); });
    add_ = halves[0];
  }

  const std::vector<uint8_t> file_;
  const Aligned bytes_;
  Tensor flag_{HUSK_I64, {}};
  husk_engine* engine_ = nullptr;
  husk_program* program_ = nullptr;
  husk_session *session_ = nullptr, *other_ = nullptr;
  husk_error error_ = {};
  int64_t runs_ = 0;
  float add_ = 1;
};

// Plays the scenario, traced if the device has memory of its own, while the call with the index
// `refuse` fails. Returns the number of calls.
int64_t play(int64_t refuse, bool for_good, bool device_memory = false) {
  faults() = {};
  faults().device_memory = device_memory;
  faults().inner = husk_port_host();
  faults().refuse = refuse;
  faults().for_good = for_good;
  {
    Scenario scenario;
    scenario.traced = device_memory;
    scenario.dead = for_good;
    scenario.play();
  }
  EXPECT_EQ(faults().live(), 0) << faults().devices << " devices, " << faults().memory
                                << " pieces of memory, " << faults().modules << " modules";
  return faults().calls;
}

TEST(PortFault, EveryCallFailsOnce) {
  std::set<std::string> kinds;
  for (const bool device_memory : {false, true}) {
    const int64_t calls = play(-1, false, device_memory);
    EXPECT_GT(calls, 100);
    for (int64_t n = 0; n < calls; ++n) {
      SCOPED_TRACE("call " + std::to_string(n));
      play(n, false, device_memory);
      kinds.insert(faults().last);
      ASSERT_FALSE(HasFailure()) << faults().last;
    }
  }
  for (const char* kind : {"open", "alloc", "upload", "download", "copy", "fill", "stream_wait",
                           "module_load", "kernel_get", "launch"})
    EXPECT_EQ(kinds.count(kind), 1u) << "the sweep met no " << kind;
}

TEST(PortFault, ADeviceMayDieAtAnyCall) {
  const int64_t calls = play(-1, false);
  for (int64_t n = 0; n < calls; ++n) {
    SCOPED_TRACE("from call " + std::to_string(n) + " on");
    play(n, true);
    ASSERT_FALSE(HasFailure()) << faults().last;
  }
}

TEST(PortFault, ConstantsAreUpdatedTogetherOrNotAtAll) {
  const Aligned bytes(artifact(R"(
constant a f32 [2] bytes "0000803f0000803f"
constant b f32 [2] bytes "0000803f0000803f"
function f {
  output y tensor f32 rank 1
  output z tensor f32 rank 1
  variant cpu {
    buffer y of output bytes 8
    buffer z of output bytes 8
    copy (write y, read a)
    copy (write z, read b)
    return (tensor y f32 [2] [1], tensor z f32 [2] [1])
  }
}
)"));
  for (int64_t refuse = 0, calls = 1; refuse < calls; ++refuse) {
    SCOPED_TRACE("call " + std::to_string(refuse));
    faults() = {};
    faults().inner = husk_port_host();
    husk_engine_options options = Machine::defaults();
    options.port = fault_port();
    husk_engine* engine = nullptr;
    husk_program* program = nullptr;
    husk_session* session = nullptr;
    husk_error error = {};
    ASSERT_EQ(husk_engine_create(&options, &engine, &error), HUSK_OK) << error.text;
    ASSERT_EQ(
        husk_program_load(engine, bytes.data(), bytes.size(), nullptr, nullptr, &program, &error),
        HUSK_OK)
        << error.text;
    ASSERT_EQ(husk_session_create(program, nullptr, &session, &error), HUSK_OK) << error.text;
    Tensor y(HUSK_F32, {2}), z(HUSK_F32, {2});
    husk_value out[2] = {y.value(), z.value()};
    auto expect = [&](float value) {
      ASSERT_EQ(husk_session_run(session, 0, nullptr, nullptr, 0, out, 2, &error), HUSK_OK)
          << error.text;
      for (int i = 0; i < 2; ++i) {
        EXPECT_EQ(y.as<float>()[i], value);
        EXPECT_EQ(z.as<float>()[i], value);
      }
    };
    auto update = [&](float value) {
      const float numbers[2] = {value, value};
      const husk_constant_update updates[2] = {{0, 0, numbers}, {1, 0, numbers}};
      return husk_program_update_constants(program, updates, 2, &error);
    };
    expect(1);
    ASSERT_EQ(update(2), HUSK_OK) << error.text;
    expect(2);
    const int64_t before = faults().calls;
    faults().refuse = before + refuse;
    EXPECT_EQ(update(3), HUSK_DEVICE);
    EXPECT_NE(std::strstr(error.text, "injected fault in "), nullptr) << error.text;
    faults().refuse = -1;
    expect(2);
    const int64_t begin = faults().calls;
    EXPECT_EQ(update(4), HUSK_OK) << error.text;
    calls = faults().calls - begin;
    expect(4);
    husk_session_release(session);
    husk_program_release(program);
    husk_engine_release(engine);
    EXPECT_EQ(faults().live(), 0);
  }
}

}  // namespace
}  // namespace husk::test
