// Eight sessions of one program on eight threads, with updates of constants meanwhile and releases
// in any order: for ThreadSanitizer, and for values that are those of exactly one update.
#include <atomic>
#include <random>
#include <thread>

#include "fixture.h"

namespace husk::test {
namespace {

constexpr int kThreads = 8;

// y is x with w added to its first row; total grows by the first row of x, ticks by 1. The number
// of rows is unbounded, so each new number of rows needs a new plan.
const char* const kProgram = R"(
constant w f32 [4] bytes "00000000000000000000000000000000"
state total f32 [4] fill 0
state ticks i64 [] fill 0
function f {
  input x tensor f32 [1..inf, 4]
  input rows tensor i64 []
  output y tensor f32 rank 2
  output last tensor f32 rank 1
  variant cpu {
    let n = size(x, 0)
    buffer x of input bytes mul(n, 16)
    buffer rows of input bytes 8
    buffer y of output bytes mul(n, 16)
    buffer t bytes mul(n, 16) align 64
    buffer u bytes mul(n, 16) align 64
    buffer now bytes 16 align 64
    launch scale grid (1, 1, 1) (read x, write t, 1.0, mul(n, 4))
    copy (write now, read w)   # by the port, so that ThreadSanitizer sees it
    launch add grid (1, 1, 1) (read t[0, 16], read now, write u[0, 16], 4)
    copy (write y, read t)
    copy (write y[0, 16], read u[0, 16])
    launch add grid (1, 1, 1) (read total, read x[0, 16], both total, 4)
    launch count grid (1, 1, 1) (both ticks)
    read i64 (read rows)
    let many = result(0)
    buffer v bytes mul(many, 4) align 64
    buffer last of output bytes mul(many, 4)
    fill f32 (write v, 7.0)
    copy (write last, read v)
    return (tensor y f32 [n, 4] [4, 1], tensor last f32 [many] [1])
  }
}
)";

struct Shared {
  husk_engine* engine = nullptr;
  husk_program* program = nullptr;
  std::atomic<int> working{kThreads};
  std::atomic<int> wrong{0};
};

// One thread with sessions of its own. Failures are counted, since GoogleTest's checks are for one
// thread.
void use(Shared* shared, int thread) {
  std::mt19937 random(static_cast<unsigned>(thread));
  husk_error error;
  auto must = [&](bool right) { shared->wrong += !right; };
  for (int life = 0; life < 3; ++life) {
    husk_session *session = nullptr, *copy = nullptr;
    must(husk_session_create(shared->program, nullptr, &session, &error) == HUSK_OK);
    must(husk_session_create(shared->program, nullptr, &copy, &error) == HUSK_OK);
    if (!session || !copy) return;
    float total = 0;
    int64_t ticks = 0;
    for (int turn = 0; turn < 40; ++turn) {
      const int64_t n = 1 + random() % 50;
      int64_t many = 1 + random() % 20;
      Tensor x(HUSK_F32, {n, 4}), y(HUSK_F32, {n, 4}), rows(HUSK_I64, {}, &many);
      for (int64_t i = 0; i < 4 * n; ++i) x.as<float>()[i] = static_cast<float>(thread);
      husk_value in[2] = {x.value(), rows.value()}, out[2] = {y.value(), none()};
      must(husk_session_resize(session, 0, in, 2, &error) == HUSK_OK);
      must(husk_session_run(session, 0, nullptr, in, 2, out, 2, &error) == HUSK_OK);
      total += static_cast<float>(thread);
      ++ticks;
      const float first = y.as<float>()[0];
      // The value is that of one update and not of two.
      for (int i = 1; i < 4; ++i) must(y.as<float>()[i] == first);
      for (int64_t i = 4; i < 4 * n; ++i) must(y.as<float>()[i] == static_cast<float>(thread));
      must(out[1].kind == HUSK_VALUE_TENSOR && out[1].as.tensor->shape[0] == many);
      float sum[4];
      int64_t count = 0;
      must(husk_session_state_get(session, 0, sum, &error) == HUSK_OK && sum[3] == total);
      must(husk_session_state_copy(copy, 1, session, &error) == HUSK_OK);
      must(husk_session_state_get(copy, 1, &count, &error) == HUSK_OK && count == ticks);
      if (turn % 16 == 7) {
        const float set[4] = {5, 5, 5, 5};
        must(husk_session_state_set(session, 0, set, &error) == HUSK_OK);
        total = 5;
      }
      if (turn % 16 == 15) {
        must(husk_session_state_reset(session, 1, &error) == HUSK_OK);
        ticks = 0;
      }
    }
    if (random() % 2) std::swap(session, copy);
    husk_session_release(session);
    husk_session_release(copy);
  }
  --shared->working;
}

TEST(Threads, SessionsRunWhileConstantsChange) {
  const Aligned bytes(artifact(kProgram));
  Shared shared;
  husk_engine_options options = Machine::defaults();
  husk_error error = {};
  ASSERT_EQ(husk_engine_create(&options, &shared.engine, &error), HUSK_OK) << error.text;
  ASSERT_EQ(husk_program_load(shared.engine, bytes.data(), bytes.size(), nullptr, nullptr,
                              &shared.program, &error),
            HUSK_OK)
      << error.text;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) threads.emplace_back(use, &shared, t);
  int updates = 0;
  for (; shared.working > 0 || updates == 0; ++updates) {
    const float w[4] = {static_cast<float>(updates), static_cast<float>(updates),
                        static_cast<float>(updates), static_cast<float>(updates)};
    const husk_constant_update update = {0, 0, w};
    ASSERT_EQ(husk_program_update_constants(shared.program, &update, 1, &error), HUSK_OK)
        << error.text;
    std::this_thread::yield();
    if (shared.wrong > 0) break;
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(shared.wrong, 0);
  husk_program_release(shared.program);
  husk_engine_release(shared.engine);
}

// The last handle may be released on any thread, whichever handle it is.
TEST(Threads, HandlesAreReleasedInAnyOrder) {
  const Aligned bytes(artifact(kProgram));
  for (int round = 0; round < 20; ++round) {
    husk_engine_options options = Machine::defaults();
    husk_engine* engine = nullptr;
    husk_program* program = nullptr;
    husk_session* sessions[kThreads] = {};
    husk_error error = {};
    ASSERT_EQ(husk_engine_create(&options, &engine, &error), HUSK_OK) << error.text;
    std::atomic<int> given_back{0};
    ASSERT_EQ(husk_program_load(
                  engine, bytes.data(), bytes.size(),
                  [](void* user, const void*) { ++*static_cast<std::atomic<int>*>(user); },
                  &given_back, &program, &error),
              HUSK_OK)
        << error.text;
    for (husk_session*& session : sessions)
      ASSERT_EQ(husk_session_create(program, nullptr, &session, &error), HUSK_OK) << error.text;
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t)
      threads.emplace_back([&, t] {
        if (t == round % kThreads) husk_program_release(program);
        if (t == (round + 3) % kThreads) husk_engine_release(engine);
        husk_session_release(sessions[t]);
      });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(given_back, 1);
  }
}

}  // namespace
}  // namespace husk::test
