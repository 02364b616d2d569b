// Constants that several programs of an engine have lie on the device once, and one program's updates are its own.
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>

#include "machine.h"

namespace husk::test {
namespace {

const std::vector<float> kLessOne = {-1, -1, -1, -1}, kLessTwo = {-2, -2, -2, -2};

// A program with a session, opened in somebody's engine.
struct Opened {
  Opened(husk_engine* engine, const std::string& functions) {
    const std::vector<uint8_t>& file = artifact(functions);
    bytes = std::aligned_alloc(4096, (file.size() + 4095) / 4096 * 4096);
    std::memcpy(bytes, file.data(), file.size());
    if (husk_program_load(engine, bytes, file.size(), nullptr, nullptr, &program, &error) != HUSK_OK) program = nullptr;
  }
  void begin(int mode) {
    husk_session_options options = HUSK_SESSION_OPTIONS_INIT;
    options.mode = mode;
    EXPECT_EQ(husk_session_create(program, &options, &session, &error), HUSK_OK) << error.text;
  }
  Opened(const Opened&) = delete;
  ~Opened() {
    husk_session_release(session);
    husk_program_release(program);
    std::memset(bytes, 0xEE, 64);   // nobody reads the file of a program that is gone
    std::free(bytes);
  }
  husk_status update(const char* name, float value) {
    const float values[] = {value, value, value, value};
    husk_constant_update update = {0, 0, values};
    EXPECT_EQ(husk_program_find_constant(program, name, &update.constant, &error), HUSK_OK);
    return husk_program_update_constants(program, &update, 1, &error);
  }
  void* bytes = nullptr;
  husk_program* program = nullptr;
  husk_session* session = nullptr;
  husk_error error = {};
};

class LendingTest : public FakeTest {
 protected:
  // Allocations that opening made, and copies to the device.
  struct Brought {
    uint64_t allocations, copies;
    bool operator==(const Brought& other) const { return allocations == other.allocations && copies == other.copies; }
  };
  std::unique_ptr<Opened> open(husk_engine* engine, const std::string& functions, Brought expected,
                               int mode = HUSK_MODE_LIST) {
    const uint64_t allocations = fake.fake_calls("cuMemAlloc"), copies = fake.fake_calls("cuMemcpyHtoDAsync");
    auto opened = std::make_unique<Opened>(engine, functions);
    EXPECT_NE(opened->program, nullptr) << opened->error.text;
    const Brought brought = {fake.fake_calls("cuMemAlloc") - allocations,
                             fake.fake_calls("cuMemcpyHtoDAsync") - copies};
    EXPECT_EQ(brought, expected) << brought.allocations << " allocations, " << brought.copies << " copies";
    opened->begin(mode);
    return opened;
  }
};

TEST_F(LendingTest, TheSameConstantsAreBroughtOnce) {
  Machine m(affine(kCount, kOnes));
  ASSERT_NE(m.session, nullptr) << m.error.text;
  auto one = open(m.engine, affine(kCount, kOnes), {0, 0});
  EXPECT_EQ(run_affine(m, one->session), kLessOne);
  EXPECT_EQ(run_affine(m, m.session), kLessOne);
  // Other names, other places.
  std::string turned = affine(kOnes, kCount);
  auto two = open(m.engine, turned, {0, 0});
  EXPECT_EQ(run_affine(m, two->session), (std::vector<float>{-1, -3, -5, -7}));
}

TEST_F(LendingTest, TheyStayWhileAnyoneUsesThem) {
  Machine m(affine(kTwos, kTwos, "constant c f32 [4] bytes \"00000000000000000000000000000001\"\n"));   // others
  ASSERT_NE(m.session, nullptr) << m.error.text;
  auto one = open(m.engine, affine(kCount, kOnes), {1, 2});
  auto two = open(m.engine, affine(kCount, kOnes), {0, 0});
  one.reset();
  EXPECT_EQ(run_affine(m, two->session), kLessOne);
  auto three = open(m.engine, affine(kCount, kOnes), {0, 0});
  two.reset();
  EXPECT_EQ(run_affine(m, three->session), kLessOne);
  three.reset();
  one = open(m.engine, affine(kCount, kOnes), {1, 2});
}

TEST_F(LendingTest, WhatIsNotSharedIsBrought) {
  Machine m(affine(kCount, kOnes));
  ASSERT_NE(m.session, nullptr) << m.error.text;
  auto one = open(m.engine, affine(kCount, kTwos), {1, 1});
  EXPECT_EQ(run_affine(m, one->session), kLessTwo);
  EXPECT_EQ(run_affine(m, m.session), kLessOne);
  auto two = open(m.engine, affine(kTwos, kTwos), {1, 2});   // nothing in common but with `one`, and not what it shares
  // Little in common with much would keep it all.
  const std::string much = "constant c f32 [256] bytes \"" + std::string(2048, '0') + "\"\n";
  auto three = open(m.engine, affine(kOnes, kTwos, much), {1, 3});
}

TEST_F(LendingTest, AnUpdateIsOnesOwn) {
  for (const int mode : {HUSK_MODE_LIST, HUSK_MODE_GRAPH}) {
    Machine m(affine(kCount, kOnes));
    ASSERT_NE(m.session, nullptr) << m.error.text;
    auto a = open(m.engine, affine(kCount, kOnes), {0, 0}, mode),
         b = open(m.engine, affine(kCount, kOnes), {0, 0}, mode);
    EXPECT_EQ(run_affine(m, a->session), kLessOne);
    EXPECT_EQ(run_affine(m, b->session), kLessOne);
    ASSERT_EQ(a->update("b", 2), HUSK_OK) << a->error.text;
    EXPECT_EQ(run_affine(m, a->session), kLessTwo);
    EXPECT_EQ(run_affine(m, b->session), kLessOne);
    EXPECT_EQ(run_affine(m, m.session), kLessOne);
    const float values[] = {2, 2, 2, 2};
    husk_constant_update first = {1, 0, values};
    ASSERT_EQ(husk_program_update_constants(m.program, &first, 1, &m.error), HUSK_OK) << m.error.text;
    ASSERT_EQ(a->update("b", 1), HUSK_OK) << a->error.text;
    EXPECT_EQ(run_affine(m, m.session), kLessTwo);
    EXPECT_EQ(run_affine(m, a->session), kLessOne);
    EXPECT_EQ(run_affine(m, b->session), kLessOne);
    // Whoever comes later gets what the file says.
    auto late = open(m.engine, affine(kCount, kOnes), {0, 0}, mode);   // from `b`
    EXPECT_EQ(run_affine(m, late->session), kLessOne);
  }
}

TEST_F(LendingTest, AloneItIsInPlaceAndThenNotLent) {
  Machine m(affine(kTwos, kTwos));
  ASSERT_NE(m.session, nullptr) << m.error.text;
  auto one = open(m.engine, affine(kCount, kOnes), {1, 2});
  ASSERT_EQ(one->update("b", 2), HUSK_OK) << one->error.text;
  EXPECT_EQ(run_affine(m, one->session), kLessTwo);
  auto two = open(m.engine, affine(kCount, kOnes), {1, 2});
  EXPECT_EQ(run_affine(m, two->session), kLessOne);
  EXPECT_EQ(run_affine(m, one->session), kLessTwo);
}

TEST_F(LendingTest, AFailureGivesThemBack) {
  Machine m(affine(kCount, kOnes));
  ASSERT_NE(m.session, nullptr) << m.error.text;
  fake.fake_fail_call("cuMemAlloc", 1, 2);
  {
    Opened failed(m.engine, affine(kCount, kTwos));
    EXPECT_EQ(failed.program, nullptr);
    EXPECT_NE(std::string(failed.error.text).find("the constants, 256 bytes"), std::string::npos) << failed.error.text;
  }
  EXPECT_EQ(run_affine(m, m.session), kLessOne);
  const float values[] = {2, 2, 2, 2};
  const husk_constant_update update = {1, 0, values};
  const uint64_t allocations = fake.fake_calls("cuMemAlloc"), frees = fake.fake_calls("cuMemFree");
  ASSERT_EQ(husk_program_update_constants(m.program, &update, 1, &m.error), HUSK_OK) << m.error.text;
  EXPECT_EQ(fake.fake_calls("cuMemAlloc") - allocations,
            fake.fake_calls("cuMemFree") - frees);   // alone again: in place
  EXPECT_EQ(run_affine(m, m.session), kLessTwo);
}

TEST_F(LendingTest, ProgramsComeAndGoOnThreads) {
  Machine m(affine(kTwos, kTwos));
  ASSERT_NE(m.session, nullptr) << m.error.text;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&m, t] {
      for (int turn = 0; turn < 30; ++turn) {
        Opened opened(m.engine, affine(kCount, t % 2 ? kOnes : kTwos));
        EXPECT_NE(opened.program, nullptr) << opened.error.text;
        if (turn % 3 == t % 3) {
          EXPECT_EQ(opened.update("b", 3), HUSK_OK) << opened.error.text;
        }
      }
    });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace husk::test
