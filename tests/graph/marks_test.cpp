// Marks of a session: the host waits for a part of the work, while the device has more.
#include <cstddef>
#include <cstring>
#include <numeric>

#include "../values.h"
#include "loaded_program.h"
#include "programs.h"

namespace husk::test {
namespace {

// y = x / 2 + 1, for four numbers.
constexpr char kStep[] = R"(
function step {
  input x tensor f32 [4]
  output y tensor f32 rank 1
  variant gpu {
    buffer x of input bytes 16
    buffer y of output bytes 16
    launch shift grid (1, 1, 1) (read x, write y, 1, 4)
    return (tensor y f32 [4] [1])
  }
}
)";

bool says(const husk_error& error, const char* words) {
  return std::strstr(error.text, words) != nullptr;
}

class MarksTest : public FakeTest {
 protected:
  // Runs that give the numbers of one to the next one, and copies them to `seen`.
  struct Chain {
    explicit Chain(LoadedProgram& program) : m(program) {
      for (void*& memory : numbers) memory = m.alloc(16);
      const float zeros[4] = {};
      EXPECT_EQ(m.upload(numbers[0], zeros, sizeof zeros), HUSK_OK) << m.error.text;
      for (float*& block : seen) {
        void* memory = nullptr;
        EXPECT_EQ(husk_engine_alloc_host(m.engine, 16, &memory, &m.error), HUSK_OK) << m.error.text;
        EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % 256, 0u);
        block = static_cast<float*>(memory);
      }
    }
    ~Chain() {
      husk_session_wait(m.session, nullptr);
      for (float* block : seen) husk_engine_free_host(m.engine, block);
    }
    husk_status enqueue() {
      DeviceTensor x = device_vector(numbers[runs % 2], 4);
      DeviceTensor y = device_vector(numbers[++runs % 2], 4);
      const husk_value input = x.value();
      husk_value output = y.value();
      const uint32_t block = runs % 2;
      if (const husk_status status = husk_session_run(m.session, 0, m.stream, &input, 1, &output, 1,
                                                      &m.error))
        return status;
      if (const husk_status status = husk_engine_copy(m.engine, m.stream, seen[block],
                                                      numbers[block], 16, &m.error))
        return status;
      return husk_session_mark(m.session, block, &m.error);
    }
    husk_status wait(uint32_t run) { return husk_session_wait_mark(m.session, run % 2, &m.error); }

    LoadedProgram& m;
    void* numbers[2] = {};
    float* seen[2] = {};
    uint32_t runs = 0;
  };
  // The value that the output of run number `run` has.
  static float right(uint32_t run) { return run ? right(run - 1) * 0.5f + 1 : 0; }
};

TEST_F(MarksTest, TheHostReadsARunWhileTheDeviceHasTheNextOne) {
  LoadedProgram m(kStep);
  ASSERT_NE(m.session, nullptr) << m.error.text;
  Chain chain(m);
  ASSERT_EQ(chain.enqueue(), HUSK_OK) << m.error.text;
  const uint64_t idle = fake.fake_idle_waits(), events = fake.fake_calls("cuEventCreate");
  for (uint32_t run = 1; run < 20; ++run) {
    ASSERT_EQ(chain.enqueue(), HUSK_OK) << m.error.text;
    ASSERT_EQ(chain.wait(run), HUSK_OK) << m.error.text;
    EXPECT_EQ(chain.seen[run % 2][3], right(run));
    EXPECT_GT(fake.fake_pending(), 0u);
  }
  EXPECT_EQ(fake.fake_idle_waits(), idle);
  ASSERT_EQ(chain.wait(20), HUSK_OK) << m.error.text;
  EXPECT_EQ(fake.fake_idle_waits(), idle + 1);
  EXPECT_EQ(chain.seen[0][0], right(20));
  EXPECT_EQ(fake.fake_calls("cuEventCreate"), events + 1);  // the second mark's
}

TEST_F(MarksTest, ReleasingTheSessionWaitsForCopiesBehindItsRuns) {
  LoadedProgram m(kStep);
  ASSERT_NE(m.session, nullptr) << m.error.text;
  husk_session* other = nullptr;
  ASSERT_EQ(husk_session_create(m.program, nullptr, &other, &m.error), HUSK_OK);
  std::swap(m.session, other);
  {
    Chain chain(m);
    ASSERT_EQ(chain.enqueue(), HUSK_OK) << m.error.text;
    // The session has waited; the copy and the mark come later.
    ASSERT_EQ(husk_session_wait(m.session, &m.error), HUSK_OK);
    ASSERT_EQ(husk_engine_copy(m.engine, m.stream, chain.seen[0], chain.numbers[1], 16, &m.error),
              HUSK_OK);
    ASSERT_EQ(husk_session_mark(m.session, 3, &m.error), HUSK_OK);
    EXPECT_GT(fake.fake_pending(), 0u);
    std::swap(m.session, other);
    husk_session_release(other);
    EXPECT_EQ(fake.fake_pending(), 0u);
    EXPECT_EQ(chain.seen[0][0], 1.0f);
  }
}

TEST_F(MarksTest, AMarkThatWasNeverSetIsTheEndOfAllWork) {
  LoadedProgram m(kStep);
  ASSERT_NE(m.session, nullptr) << m.error.text;
  Chain chain(m);
  ASSERT_EQ(husk_session_wait_mark(m.session, 2, &m.error), HUSK_OK);
  ASSERT_EQ(chain.enqueue(), HUSK_OK) << m.error.text;
  ASSERT_EQ(husk_session_wait_mark(m.session, 2, &m.error), HUSK_OK);
  EXPECT_EQ(fake.fake_pending(), 0u);
  EXPECT_EQ(chain.seen[1][0], right(1));
  for (auto* call : {husk_session_mark, husk_session_wait_mark}) {
    EXPECT_EQ(call(m.session, HUSK_SESSION_MARKS, &m.error), HUSK_INVALID_ARGUMENT);
    EXPECT_TRUE(says(m.error, "mark")) << m.error.text;
    EXPECT_EQ(call(nullptr, 0, &m.error), HUSK_INVALID_ARGUMENT);
  }
}

// An assert of a run before the mark fails the wait, once. The work behind the mark goes on.
TEST_F(MarksTest, AWaitReportsAnAssert) {
  LoadedProgram m(kPick);
  ASSERT_NE(m.session, nullptr) << m.error.text;
  void *x = m.alloc(40), *index = m.alloc(8), *y = m.alloc(4), *z = m.alloc(4);
  const int64_t bad = 10;
  const float numbers[10] = {};
  ASSERT_EQ(m.upload(x, numbers, 40), HUSK_OK);
  ASSERT_EQ(m.upload(index, &bad, 8), HUSK_OK);
  DeviceTensor tensors[] = {device_vector(x, 10), device_vector(index, 1), device_vector(y, 1),
                            device_vector(z, 1)};
  tensors[1].dl.dtype = {kDLInt, 64, 1};
  const husk_value inputs[] = {tensors[0].value(), tensors[1].value()};
  husk_value outputs[] = {tensors[2].value(), tensors[3].value()};
  ASSERT_EQ(husk_session_run(m.session, 0, m.stream, inputs, 2, outputs, 2, &m.error), HUSK_OK)
      << m.error.text;
  ASSERT_EQ(husk_session_mark(m.session, 0, &m.error), HUSK_OK) << m.error.text;
  ASSERT_EQ(husk_engine_copy(m.engine, m.stream, y, z, 4, &m.error), HUSK_OK);
  EXPECT_EQ(husk_session_wait_mark(m.session, 0, &m.error), HUSK_KERNEL);
  EXPECT_TRUE(says(m.error, "index out of bounds: index < 10")) << m.error.text;
  EXPECT_EQ(fake.fake_pending(), 1u);
  EXPECT_EQ(husk_session_wait_mark(m.session, 0, &m.error), HUSK_OK);
  EXPECT_EQ(husk_session_wait(m.session, &m.error), HUSK_OK);
}

TEST_F(MarksTest, FailuresOfTheDriverAreThoseOfTheCalls) {
  LoadedProgram m(kStep);
  ASSERT_NE(m.session, nullptr) << m.error.text;
  void* memory = &m;
  fake.fake_fail_call("cuMemAllocHost", 1, 2);
  EXPECT_EQ(husk_engine_alloc_host(m.engine, 100, &memory, &m.error), HUSK_OUT_OF_MEMORY);
  EXPECT_TRUE(says(m.error, "100 bytes of pinned host memory")) << m.error.text;
  EXPECT_EQ(memory, nullptr);
  memory = &m;
  EXPECT_EQ(husk_engine_alloc_host(m.engine, UINT64_MAX, &memory, &m.error), HUSK_OUT_OF_MEMORY);
  EXPECT_EQ(memory, nullptr);
  EXPECT_EQ(husk_engine_alloc_host(nullptr, 1, &memory, &m.error), HUSK_INVALID_ARGUMENT);
  EXPECT_EQ(husk_engine_alloc_host(m.engine, 1, nullptr, &m.error), HUSK_INVALID_ARGUMENT);
  husk_engine_free_host(m.engine, nullptr);
  ASSERT_EQ(husk_engine_alloc_host(m.engine, 0, &memory, &m.error), HUSK_OK);
  EXPECT_NE(memory, nullptr);
  husk_engine_free_host(m.engine, memory);

  Chain chain(m);
  fake.fake_fail_call("cuMemcpyAsync", 1, 999);
  EXPECT_EQ(chain.enqueue(), HUSK_DEVICE);
  EXPECT_TRUE(says(m.error, "copy of 16 bytes")) << m.error.text;
  fake.fake_fail_call("cuEventCreate", 1, 2);
  EXPECT_EQ(husk_session_mark(m.session, 0, &m.error), HUSK_OUT_OF_MEMORY);
  EXPECT_TRUE(says(m.error, "event of device 0")) << m.error.text;
  fake.fake_fail_call("cuEventRecord", 1, 999);
  EXPECT_EQ(husk_session_mark(m.session, 0, &m.error), HUSK_DEVICE);
  EXPECT_TRUE(says(m.error, "event on stream")) << m.error.text;
  ASSERT_EQ(husk_session_mark(m.session, 0, &m.error), HUSK_OK) << m.error.text;
  fake.fake_fail_call("cuEventSynchronize", 1, 719);
  EXPECT_EQ(husk_session_wait_mark(m.session, 0, &m.error), HUSK_DEVICE);
  EXPECT_TRUE(says(m.error, "cuEventSynchronize")) << m.error.text;
  EXPECT_EQ(m.error.driver_code, 719);
  ASSERT_EQ(husk_session_wait_mark(m.session, 0, &m.error), HUSK_OK) << m.error.text;
  EXPECT_EQ(husk_engine_copy(m.engine, m.stream, nullptr, chain.seen[0], 1, &m.error),
            HUSK_INVALID_ARGUMENT);
  EXPECT_EQ(husk_engine_copy(m.engine, m.stream, nullptr, nullptr, 0, &m.error), HUSK_OK);
}

TEST_F(MarksTest, ALostDeviceFailsTheWait) {
  LoadedProgram m(kStep);
  ASSERT_NE(m.session, nullptr) << m.error.text;
  Chain chain(m);
  ASSERT_EQ(chain.enqueue(), HUSK_OK) << m.error.text;
  fake.fake_break(719);
  EXPECT_EQ(chain.wait(1), HUSK_DEVICE);
  EXPECT_EQ(m.error.driver_code, 719);
  EXPECT_EQ(husk_session_mark(m.session, 0, &m.error), HUSK_DEVICE);
  EXPECT_EQ(husk_engine_copy(m.engine, m.stream, chain.seen[0], chain.numbers[0], 16, &m.error),
            HUSK_DEVICE);
}

TEST_F(MarksTest, AStreamThatIsCapturedHasNoMarks) {
  LoadedProgram m(kStep);
  ASSERT_NE(m.session, nullptr) << m.error.text;
  Chain chain(m);
  ASSERT_EQ(chain.enqueue(), HUSK_OK) << m.error.text;
  ASSERT_EQ(chain.wait(1), HUSK_OK) << m.error.text;
  const husk_port* port = husk_port_cuda();
  void* captured = nullptr;
  ASSERT_EQ(port->graphs->capture_begin(m.device(), m.stream, &m.error), HUSK_OK);
  EXPECT_EQ(husk_session_mark(m.session, 0, &m.error), HUSK_UNSUPPORTED);
  EXPECT_TRUE(says(m.error, "the stream is captured")) << m.error.text;
  // The capture stays valid.
  ASSERT_EQ(port->graphs->capture_end(m.device(), m.stream, &captured, &m.error), HUSK_OK)
      << m.error.text;
  port->graphs->captured_destroy(m.device(), captured);
  EXPECT_EQ(husk_session_mark(m.session, 0, &m.error), HUSK_OK) << m.error.text;
}

// A port that lacks a function says so, and what needs it.
TEST_F(MarksTest, NeedFunctionsOfThePort) {
  for (const bool older : {false, true}) {
    static husk_port port;
    port = *husk_port_cuda();
    if (older)
      port.struct_size = offsetof(husk_port, event_wait);
    else
      port.event_wait = nullptr;
    LoadedProgram m(kStep, nullptr, nullptr, {}, &port);
    ASSERT_NE(m.session, nullptr) << m.error.text;
    EXPECT_EQ(husk_session_mark(m.session, 0, &m.error), HUSK_UNSUPPORTED);
    EXPECT_TRUE(says(m.error, "no event_wait: call husk_session_wait")) << m.error.text;
    EXPECT_EQ(husk_session_wait_mark(m.session, 0, &m.error), HUSK_OK) << m.error.text;
  }
  static husk_port port = *husk_port_cuda();
  port.alloc_host = nullptr;
  LoadedProgram m(kStep, nullptr, nullptr, {}, &port);
  ASSERT_NE(m.session, nullptr) << m.error.text;
  void* memory = &m;
  EXPECT_EQ(husk_engine_alloc_host(m.engine, 8, &memory, &m.error), HUSK_UNSUPPORTED);
  EXPECT_TRUE(says(m.error, "no alloc_host: call husk_engine_download")) << m.error.text;
  EXPECT_EQ(memory, nullptr);
}

}  // namespace
}  // namespace husk::test
