// The times of steps that husk_session_options.trace gets, on the fake driver, in which a kernel
// takes 4 us for each block, other work 1 us and an event nothing.
#include <cstddef>
#include <cstring>

#include "../values.h"
#include "loaded_program.h"
#include "programs.h"

namespace husk::test {
namespace {

struct Event {
  uint32_t step;
  std::string kind, name;
  uint64_t nanoseconds;
  int32_t clock;
};

class TraceTest : public FakeTest {
 protected:
  TraceTest() {
    options.trace_user = this;
    options.trace = [](void* user, const husk_trace_event* e) {
      auto* test = static_cast<TraceTest*>(user);
      test->events.push_back({e->step, e->kind, e->name, e->nanoseconds, e->clock});
      EXPECT_EQ(e->struct_size, sizeof(husk_trace_event));
      EXPECT_EQ(e->reserved2, 0);
    };
  }
  husk_status run(LoadedProgram& m, std::vector<husk_value> inputs,
                  std::vector<husk_value> outputs) {
    events.clear();
    const uint64_t before = fake.fake_calls("cuStreamSynchronize");
    const husk_status status = husk_session_run(
        m.session, 0, m.stream, inputs.data(), static_cast<uint32_t>(inputs.size()), outputs.data(),
        static_cast<uint32_t>(outputs.size()), &m.error);
    waits = fake.fake_calls("cuStreamSynchronize") - before;
    return status;
  }
  // Steps of one kind, each for `blocks` blocks and measured by the device.
  void expect_launches(size_t count, uint64_t blocks) {
    ASSERT_EQ(events.size(), count);
    for (size_t s = 0; s < count; ++s) {
      EXPECT_EQ(events[s].step, s);
      EXPECT_EQ(events[s].kind, "launch");
      EXPECT_EQ(events[s].nanoseconds, 4000 * blocks) << s;
      EXPECT_EQ(events[s].clock, HUSK_CLOCK_DEVICE);
    }
  }

  husk_session_options options = HUSK_SESSION_OPTIONS_INIT;
  std::vector<Event> events;
  uint64_t waits = 0;  // of the last run
};

// A chain of `n` launches, for one to 1000 elements.
std::string chain(int n) {
  std::string text = R"(
function chain {
  input x tensor f32 [1..1000]
  output y tensor f32 rank 1
  variant gpu {
    let n = size(x, 0)
    buffer x of input bytes mul(n, 4)
    buffer y of output bytes mul(n, 4)
)";
  for (int i = 0; i < n; ++i)
    text += "    launch shift grid (cdiv(n, 128), 1, 1) (read x, write y, " + std::to_string(i) +
            ", n)\n";
  return text + "    return (tensor y f32 [n] [1])\n  }\n}\n";
}

TEST_F(TraceTest, TheDeviceMeasuresStepsThatFollowOneAnother) {
  for (const int steps : {1, 63, 64, 65, 200}) {
    SCOPED_TRACE(steps);
    LoadedProgram m(chain(steps), &options);
    ASSERT_NE(m.session, nullptr) << m.error.text;
    DeviceTensor x = device_vector(m.alloc(1200), 300), y = device_vector(m.alloc(1200), 300);
    for (int round = 0; round < 2; ++round) {
      fake.fake_schedule(static_cast<uint64_t>(round), 50);
      ASSERT_EQ(run(m, {x.value()}, {y.value()}), HUSK_OK) << m.error.text;
      expect_launches(static_cast<size_t>(steps), 3);
      EXPECT_EQ(waits, static_cast<uint64_t>(steps + 63) / 64);
    }
  }
}

TEST_F(TraceTest, StepsOfEachKind) {
  LoadedProgram m(kPieces, &options);
  ASSERT_NE(m.session, nullptr) << m.error.text;
  DeviceTensor x = device_vector(m.alloc(1200), 300), y = device_vector(m.alloc(1200), 300);
  ASSERT_EQ(run(m, {x.value(), floating(1), integer(1)}, {y.value()}), HUSK_OK) << m.error.text;
  ASSERT_EQ(events.size(), 5u);
  const char* const kinds[] = {"fill", "copy", "launch", "launch", "copy"};
  for (size_t s = 0; s < 5; ++s) {
    EXPECT_EQ(events[s].kind, kinds[s]);
    EXPECT_EQ(events[s].nanoseconds, events[s].kind == "launch" ? 12000u : 1000u);
  }
}

TEST_F(TraceTest, AReadIsMeasuredToo) {
  LoadedProgram m(kRead, &options);
  ASSERT_NE(m.session, nullptr) << m.error.text;
  const std::vector<float> numbers = {1, -1, 2};
  DeviceTensor x = device_vector(m.alloc(12), 3);
  ASSERT_EQ(m.upload(x.dl.data, numbers.data(), 12), HUSK_OK);
  ASSERT_EQ(run(m, {x.value()}, {integer(0)}), HUSK_OK) << m.error.text;
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[1].kind, "read");
  EXPECT_EQ(events[1].nanoseconds, 1000u);
}

// A step with an empty grid does nothing and takes no time.
TEST_F(TraceTest, EmptyStepsTakeNoTime) {
  LoadedProgram m(branches("scale"), &options);
  ASSERT_NE(m.session, nullptr) << m.error.text;
  DeviceTensor x = device_vector(nullptr, 0), y = device_vector(nullptr, 0);
  ASSERT_EQ(run(m, {x.value(), floating(1), integer(1)}, {y.value()}), HUSK_OK) << m.error.text;
  ASSERT_EQ(events.size(), 2u * kSteps + 2);
  for (const Event& event : events)
    EXPECT_EQ(event.nanoseconds, event.name == "count" ? 4000u : 0u);
}

// The host measures its own steps. The device has done the steps before, whose time is not counted.
TEST_F(TraceTest, TheHostMeasuresItsSteps) {
  husk_op square = HUSK_OP_INIT;
  square.name = "test::square";
  square.place = HUSK_OP_ON_HOST;
  square.contract = "in out:w";
  square.call = [](const husk_op_context*, const husk_op_arg* args, uint32_t, husk_error*) {
    square_elements(args);
    return husk_status{HUSK_OK};
  };
  LoadedProgram m(kSquareOnHost, &options, nullptr, {square});
  ASSERT_NE(m.session, nullptr) << m.error.text;
  DeviceTensor x = device_vector(m.alloc(1200), 300), y = device_vector(m.alloc(1200), 300);
  ASSERT_EQ(run(m, {x.value(), integer(1)}, {y.value()}), HUSK_OK) << m.error.text;
  ASSERT_EQ(events.size(), 5u);
  for (uint32_t s = 0; s < 5; ++s) {
    EXPECT_EQ(events[s].step, s);
    EXPECT_EQ(events[s].clock, s == 2 ? HUSK_CLOCK_HOST : HUSK_CLOCK_DEVICE);
    if (s == 0 || s == 4) {
      EXPECT_EQ(events[s].nanoseconds, 12000u);
    }
  }
}

// A port of an earlier version, or without events: the host measures and waits for each step.
TEST_F(TraceTest, WithoutEventsTheHostMeasures) {
  for (const bool older : {false, true}) {
    static husk_port port;
    port = *husk_port_cuda();
    if (older)
      port.struct_size = offsetof(husk_port, event_create);
    else
      port.event_create = nullptr;
    LoadedProgram m(chain(70), &options, nullptr, {}, &port);
    ASSERT_NE(m.session, nullptr) << m.error.text;
    DeviceTensor x = device_vector(m.alloc(1200), 300), y = device_vector(m.alloc(1200), 300);
    const uint64_t created = fake.fake_calls("cuEventCreate");
    ASSERT_EQ(run(m, {x.value()}, {y.value()}), HUSK_OK) << m.error.text;
    EXPECT_EQ(waits, 70u);
    ASSERT_EQ(events.size(), 70u);
    for (const Event& event : events) EXPECT_EQ(event.clock, HUSK_CLOCK_HOST);
    EXPECT_EQ(fake.fake_calls("cuEventCreate"), created);
  }
}

TEST_F(TraceTest, ASessionThatIsNotTracedHasNoEvents) {
  options.trace = nullptr;
  LoadedProgram m(chain(3), &options);
  ASSERT_NE(m.session, nullptr) << m.error.text;
  EXPECT_EQ(fake.fake_calls("cuEventCreate"), 0u);
}

// An error of the device names the steps that it may be from. The steps before a launch that fails
// are reported.
TEST_F(TraceTest, ErrorsNameTheSteps) {
  LoadedProgram m(chain(70), &options), one(chain(1), &options);
  ASSERT_NE(m.session, nullptr) << m.error.text;
  DeviceTensor x = device_vector(m.alloc(1200), 300), y = device_vector(m.alloc(1200), 300);
  auto expect = [&](LoadedProgram& program, const char* call, uint64_t n, const char* text,
                    int32_t step, size_t reported) {
    fake.fake_fail_call(call, n, 999);
    EXPECT_EQ(run(program, {x.value()}, {y.value()}), HUSK_DEVICE);
    EXPECT_EQ(std::strncmp(program.error.text, text, std::strlen(text)), 0) << program.error.text;
    EXPECT_EQ(program.error.step, step);
    EXPECT_EQ(events.size(), reported) << program.error.text;
  };
  expect(m, "cuStreamSynchronize", 1, "function 'chain': one of the steps 0 to 63: stream", -1, 0);
  expect(m, "cuStreamSynchronize", 2, "function 'chain': one of the steps 64 to 69: ", -1, 64);
  expect(m, "cuEventElapsedTime", 66, "function 'chain': one of the steps 64 to 69: ", -1, 65);
  expect(one, "cuStreamSynchronize", 1, "function 'chain': step 0 shift: ", 0, 0);
  expect(m, "cuLaunchKernelEx", 67, "function 'chain': step 66 shift: kernel 'shift'", 66, 66);
  expect(m, "cuEventRecord", 1, "function 'chain': event on stream", -1, 0);
  expect(m, "cuEventRecord", 3, "function 'chain': step 1 shift: event on stream", 1, 1);
  ASSERT_EQ(run(m, {x.value()}, {y.value()}), HUSK_OK) << m.error.text;
  expect_launches(70, 3);
}

TEST_F(TraceTest, ASessionWithoutEventsIsNotCreated) {
  for (const uint64_t n : {1u, 65u}) {
    fake.fake_reset();
    fake.fake_fail_call("cuEventCreate", n, 2);
    LoadedProgram m(chain(3), &options);
    EXPECT_EQ(m.session, nullptr);
    EXPECT_EQ(m.error.code, HUSK_OUT_OF_MEMORY);
  }
}

}  // namespace
}  // namespace husk::test
