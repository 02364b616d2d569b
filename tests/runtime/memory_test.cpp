// Host memory: every failed allocation is a clean error without a leak, and a run allocates
// nothing.
#include "base/memory.h"

#include <cstring>

#include "counting_malloc.h"
#include "fixture.h"

namespace husk::test {
namespace {

const char* const kThreeSteps = R"(
constant w f32 [4, 4] bytes "00000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000"
state ticks i64 [] fill 0
function f {
  input x tensor f32 [1..16, 4]
  output y tensor f32 rank 2
  variant cpu {
    let n = size(x, 0)
    buffer x of input bytes mul(n, 16)
    buffer y of output bytes mul(n, 16)
    buffer t bytes mul(n, 16) align 64
    launch count grid (1, 1, 1) (both ticks)
    launch scale grid (1, 1, 1) (read x, write t, 2.0, mul(n, 4))
    extern "aten::mm.out" (read tensor t f32 [n, 4] [4, 1], read tensor w f32 [4, 4] [4, 1],
                           write tensor y f32 [n, 4] [4, 1])
    return (tensor y f32 [n, 4] [4, 1])
  }
}
)";

// Counts allocations, and refuses the n-th one.
struct Counter {
  int64_t live = 0, calls = 0, refuse = -1;

  static void* allocate(void* user, size_t size, size_t align) {
    auto* counter = static_cast<Counter*>(user);
    if (counter->calls++ == counter->refuse) return nullptr;
    ++counter->live;
    return default_allocator()->allocate(nullptr, size, align);
  }
  static void release(void* user, void* pointer) {
    if (!pointer) return;
    --static_cast<Counter*>(user)->live;
    default_allocator()->release(nullptr, pointer);
  }
  husk_allocator allocator() { return {this, allocate, release}; }
};

// A program with two segments, an op with a contract, a buffer on demand and the session's outputs.
const char* const kSegments = R"(
constant w f32 [4] bytes "0000803f000000400000404000008040"
state ticks i64 [] fill 0
state sum f32 [4] constant w
function f {
  input x tensor f32 [2..16]
  input flag tensor i64 []
  output y tensor f32 rank 1
  output found tensor f32 rank 1
  variant cpu {
    let n = size(x, 0)
    buffer x of input bytes mul(n, 4)
    buffer flag of input bytes 8
    buffer y of output bytes mul(n, 4)
    buffer t bytes mul(n, 4) align 64
    launch count grid (1, 1, 1) (both ticks)
    launch scale grid (1, 1, 1) (read x, write t, 2.0, n)
    extern "test::none" (read tensor t f32 [1] [1], write tensor t f32 [1] [1] offset 1, [n, n])
    copy (write y, read t)
    read i64 (read flag)
    let p = result(0)
    buffer d bytes mul(p, 4) align 64
    buffer found of output bytes mul(p, 4)
    fill f32 (write d, 1.5)
    copy (write found, read d)
    buffer left bytes 8 align 64
    fill i64 (write left, 1)
    loop {
      read i64 (read left)
      let now = result(0)
      while lt(0, now)
      fill i64 (write left, sub(now, 1))
    }
    buffer list bytes 20 align 64
    extern "test::lists" (tensors [write tensor list f32 [1] [1],
      write tensor list f32 [1] [1] offset 1, write tensor list f32 [1] [1] offset 2,
      write tensor list f32 [1] [1] offset 3, write tensor list f32 [1] [1] offset 4])
    return (tensor y f32 [n] [1], tensor found f32 [p] [1])
  }
}
)";

// Refuses each allocation once: the call fails with HUSK_OUT_OF_MEMORY, and succeeds when it is
// repeated.
TEST(Memory, EveryRefusedAllocationIsAnErrorWithoutALeak) {
  husk_op op = HUSK_OP_INIT;
  op.name = "test::none";
  op.call = [](const husk_op_context*, const husk_op_arg*, uint32_t, husk_error*) {
    return husk_status(HUSK_OK);
  };
  op.contract = "a out:w sizes";
  husk_op lists = op;
  lists.name = "test::lists";
  lists.contract = "items:w";
  int64_t refused = 0;
  for (int64_t n = 0;; ++n) {
    Counter counter;
    counter.refuse = n;
    const husk_allocator allocator = counter.allocator();
    bool done = false;
    {
      husk_engine_options options = Machine::defaults();
      options.allocator = &allocator;
      const Aligned file(artifact(kSegments));
      husk_engine* engine = nullptr;
      husk_program* program = nullptr;
      husk_session* session = nullptr;
      husk_error error = {};
      const auto expect = [&](const char* what, const auto& call) {
        const int64_t before = counter.calls;
        const husk_status status = call();
        if (before > n || counter.calls <= n) {
          ASSERT_EQ(status, HUSK_OK) << what << ": " << error.text;
          return;
        }
        ++refused;
        EXPECT_EQ(status, HUSK_OUT_OF_MEMORY) << what << ", allocation " << n << ": " << error.text;
        EXPECT_NE(std::strstr(error.text, "memory"), nullptr) << what << ": " << error.text;
        if (status == HUSK_OK) return;
        ASSERT_EQ(call(), HUSK_OK) << what << ", again: " << error.text;
      };
      expect("engine", [&] { return husk_engine_create(&options, &engine, &error); });
      for (const husk_op* each : {&op, &lists})
        expect("op", [&] { return husk_engine_add_op(engine, each, &error); });
      expect("load", [&] {
        return husk_program_load(engine, file.data(), file.size(), nullptr, nullptr, &program,
                                 &error);
      });
      expect("session", [&] { return husk_session_create(program, nullptr, &session, &error); });
      ASSERT_NE(session, nullptr);
      expect("range", [&] { return husk_session_set_range(session, 0, 0, 0, 2, 8, &error); });
      Tensor x(HUSK_F32, {3}), flag(HUSK_I64, {});
      *flag.as<int64_t>() = 5;
      const husk_value in[] = {x.value(), flag.value()};
      expect("resize", [&] { return husk_session_resize(session, 0, in, 2, &error); });
      husk_value out[2];
      const auto run = [&] {
        out[0] = out[1] = none();
        return husk_session_run(session, 0, nullptr, in, 2, out, 2, &error);
      };
      expect("run", run);
      const float values[4] = {};
      const husk_constant_update update = {0, 0, values};
      for (int i = 0; i < 2; ++i)
        expect("update",
               [&] { return husk_program_update_constants(program, &update, 1, &error); });
      *flag.as<int64_t>() = 50;
      expect("run", run);
      EXPECT_EQ(out[1].as.tensor->shape[0], 50);
      EXPECT_EQ(static_cast<float*>(out[1].as.tensor->data)[49], 1.5f);
      done = counter.calls <= n;
      husk_session_release(session);
      husk_program_release(program);
      husk_engine_release(engine);
      ASSERT_FALSE(HasFailure()) << "allocation " << n;
    }
    EXPECT_EQ(counter.live, 0) << "after refusing allocation " << n;
    if (done) break;
    ASSERT_LT(n, 1000);
  }
  EXPECT_GT(refused, 50);  // The sweep reached the allocations.
}

TEST(Memory, ARunAllocatesNothing) {
  Counter counter;
  const husk_allocator allocator = counter.allocator();
  husk_engine_options options = Machine::defaults();
  options.allocator = &allocator;
  Machine m(kThreeSteps, options);
  ASSERT_NE(m.session, nullptr) << m.error.text;
  Tensor x(HUSK_F32, {3, 4}), y(HUSK_F32, {3, 4}), longer(HUSK_F32, {9, 4}), out(HUSK_F32, {9, 4});
  husk_value in = x.value(), to = y.value(), more = longer.value(), there = out.value();
  const int64_t before = counter.calls;
  const uint64_t mallocs = malloc_calls();
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(husk_session_run(m.session, 0, nullptr, &in, 1, &to, 1, &m.error), HUSK_OK)
        << m.error.text;
    ASSERT_EQ(husk_session_run(m.session, 0, nullptr, &more, 1, &there, 1, &m.error), HUSK_OK)
        << m.error.text;
    husk_value wrong = to;
    ASSERT_EQ(husk_session_run(m.session, 0, nullptr, &more, 1, &wrong, 1, &m.error),
              HUSK_INVALID_INPUT);
  }
  EXPECT_EQ(malloc_calls(), mallocs);
  EXPECT_EQ(counter.calls, before);
}

TEST(Memory, BorrowedBytesAreGivenBackOnce) {
  const Aligned bytes(artifact("function f { variant cpu { return () } }"));
  husk_engine_options options = Machine::defaults();
  husk_engine* engine = nullptr;
  husk_error error;
  ASSERT_EQ(husk_engine_create(&options, &engine, &error), HUSK_OK);
  int released = 0;
  auto release = [](void* user, const void*) { ++*static_cast<int*>(user); };
  husk_program* program = nullptr;
  ASSERT_EQ(
      husk_program_load(engine, bytes.data(), bytes.size(), release, &released, &program, &error),
      HUSK_OK);
  husk_session* session = nullptr;
  ASSERT_EQ(husk_session_create(program, nullptr, &session, &error), HUSK_OK);
  husk_program_release(program);
  husk_engine_release(engine);
  EXPECT_EQ(released, 0);  // The session still needs the handles.
  EXPECT_EQ(husk_session_run(session, 0, nullptr, nullptr, 0, nullptr, 0, &error), HUSK_OK);
  husk_session_release(session);
  EXPECT_EQ(released, 1);
  husk_session_release(nullptr);
  husk_program_release(nullptr);
  husk_engine_release(nullptr);
}

TEST(Memory, AFailedLoadDoesNotReleaseBorrowedBytes) {
  std::vector<uint8_t> broken(256, 0);
  const Aligned bytes(broken);
  husk_engine_options options = Machine::defaults();
  husk_engine* engine = nullptr;
  husk_error error;
  ASSERT_EQ(husk_engine_create(&options, &engine, &error), HUSK_OK);
  int released = 0;
  husk_program* program = nullptr;
  EXPECT_EQ(
      husk_program_load(
          engine, bytes.data(), bytes.size(),
          [](void* user, const void*) { ++*static_cast<int*>(user); }, &released, &program, &error),
      HUSK_INVALID_FILE);
  EXPECT_EQ(program, nullptr);
  EXPECT_EQ(released, 0);
  EXPECT_EQ(husk_program_load(engine, static_cast<const char*>(bytes.data()) + 8, 64, nullptr,
                              nullptr, &program, &error),
            HUSK_INVALID_ARGUMENT);
  husk_engine_release(engine);
}

}  // namespace
}  // namespace husk::test
