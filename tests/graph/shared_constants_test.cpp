// Programs of one engine share constants with equal bytes on the device, and an update affects only
// the program that makes it.
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>

#include "loaded_program.h"

namespace husk::test {
namespace {

const std::vector<float> kMinusOnes = {-1, -1, -1, -1}, kMinusTwos = {-2, -2, -2, -2};

// A program with a session in an engine of the caller.
struct OpenedProgram {
  OpenedProgram(husk_engine* engine, const std::string& functions) {
    const std::vector<uint8_t>& file = artifact(functions);
    bytes = std::aligned_alloc(4096, (file.size() + 4095) / 4096 * 4096);
    std::memcpy(bytes, file.data(), file.size());
    if (husk_program_load(engine, bytes, file.size(), nullptr, nullptr, &program, &error) !=
        HUSK_OK)
      program = nullptr;
  }
  void create_session(int mode) {
    husk_session_options options = HUSK_SESSION_OPTIONS_INIT;
    options.mode = mode;
    EXPECT_EQ(husk_session_create(program, &options, &session, &error), HUSK_OK) << error.text;
  }
  OpenedProgram(const OpenedProgram&) = delete;
  ~OpenedProgram() {
    husk_session_release(session);
    husk_program_release(program);
    std::memset(bytes, 0xEE, 64);  // other programs must not read the file of a released one
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

class SharedConstantsTest : public FakeTest {
 protected:
  // The device allocations and uploads that opening a program caused.
  struct Uploads {
    uint64_t allocations, copies;
    bool operator==(const Uploads& other) const {
      return allocations == other.allocations && copies == other.copies;
    }
  };
  std::unique_ptr<OpenedProgram> open(husk_engine* engine, const std::string& functions,
                                      Uploads expected, int mode = HUSK_MODE_LIST) {
    const uint64_t allocations = fake.fake_calls("cuMemAlloc"),
                   copies = fake.fake_calls("cuMemcpyHtoDAsync");
    auto opened = std::make_unique<OpenedProgram>(engine, functions);
    EXPECT_NE(opened->program, nullptr) << opened->error.text;
    const Uploads uploads = {fake.fake_calls("cuMemAlloc") - allocations,
                             fake.fake_calls("cuMemcpyHtoDAsync") - copies};
    EXPECT_EQ(uploads, expected) << uploads.allocations << " allocations, " << uploads.copies
                                 << " copies";
    opened->create_session(mode);
    return opened;
  }
};

TEST_F(SharedConstantsTest, EqualConstantsAreUploadedOnce) {
  LoadedProgram m(affine(kCount, kOnes));
  ASSERT_NE(m.session, nullptr) << m.error.text;
  auto one = open(m.engine, affine(kCount, kOnes), {0, 0});
  EXPECT_EQ(run_affine(m, one->session), kMinusOnes);
  EXPECT_EQ(run_affine(m, m.session), kMinusOnes);
  // The same bytes under exchanged names, at other offsets of the file.
  std::string exchanged = affine(kOnes, kCount);
  auto two = open(m.engine, exchanged, {0, 0});
  EXPECT_EQ(run_affine(m, two->session), (std::vector<float>{-1, -3, -5, -7}));
}

TEST_F(SharedConstantsTest, ConstantsStayWhileAProgramUsesThem) {
  LoadedProgram m(
      affine(kTwos, kTwos, "constant c f32 [4] bytes \"00000000000000000000000000000001\"\n"));
  ASSERT_NE(m.session, nullptr) << m.error.text;
  auto one = open(m.engine, affine(kCount, kOnes), {1, 2});
  auto two = open(m.engine, affine(kCount, kOnes), {0, 0});
  one.reset();
  EXPECT_EQ(run_affine(m, two->session), kMinusOnes);
  auto three = open(m.engine, affine(kCount, kOnes), {0, 0});
  two.reset();
  EXPECT_EQ(run_affine(m, three->session), kMinusOnes);
  three.reset();
  one = open(m.engine, affine(kCount, kOnes), {1, 2});
}

TEST_F(SharedConstantsTest, OtherConstantsAreUploaded) {
  LoadedProgram m(affine(kCount, kOnes));
  ASSERT_NE(m.session, nullptr) << m.error.text;
  auto one = open(m.engine, affine(kCount, kTwos), {1, 1});
  EXPECT_EQ(run_affine(m, one->session), kMinusTwos);
  EXPECT_EQ(run_affine(m, m.session), kMinusOnes);
  // The only constant in common is one that `one` does not share with others.
  auto two = open(m.engine, affine(kTwos, kTwos), {1, 1});
  // Programs share only if the common constants are at least half of the constants of each.
  const std::string much = "constant c f32 [256] bytes \"" + std::string(2048, '0') + "\"\n";
  auto three = open(m.engine, affine(kOnes, kTwos, much), {1, 3});
}

// Two rows name the same bytes, which are on the device once; an update changes one of the rows.
TEST_F(SharedConstantsTest, ConstantsThatShareBytesAreUploadedOnce) {
  for (const int mode : {HUSK_MODE_LIST, HUSK_MODE_GRAPH}) {
    LoadedProgram m(affine(kCount, kOnes));
    ASSERT_NE(m.session, nullptr) << m.error.text;
    auto one = open(m.engine, affine(kTwos, kTwos), {1, 1}, mode);
    EXPECT_EQ(run_affine(m, one->session), (std::vector<float>{-1, -2, -3, -4}));
    ASSERT_EQ(one->update("b", 3), HUSK_OK) << one->error.text;
    EXPECT_EQ(run_affine(m, one->session), (std::vector<float>{-2, -3, -4, -5}));
    ASSERT_EQ(one->update("a", 5), HUSK_OK) << one->error.text;
    EXPECT_EQ(run_affine(m, one->session), (std::vector<float>{1, 0, -1, -2}));
    ASSERT_EQ(one->update("b", 1), HUSK_OK) << one->error.text;
    EXPECT_EQ(run_affine(m, one->session), (std::vector<float>{3, 2, 1, 0}));
  }
}

TEST_F(SharedConstantsTest, AnUpdateAffectsOneProgram) {
  for (const int mode : {HUSK_MODE_LIST, HUSK_MODE_GRAPH}) {
    LoadedProgram m(affine(kCount, kOnes));
    ASSERT_NE(m.session, nullptr) << m.error.text;
    auto a = open(m.engine, affine(kCount, kOnes), {0, 0}, mode),
         b = open(m.engine, affine(kCount, kOnes), {0, 0}, mode);
    EXPECT_EQ(run_affine(m, a->session), kMinusOnes);
    EXPECT_EQ(run_affine(m, b->session), kMinusOnes);
    ASSERT_EQ(a->update("b", 2), HUSK_OK) << a->error.text;
    EXPECT_EQ(run_affine(m, a->session), kMinusTwos);
    EXPECT_EQ(run_affine(m, b->session), kMinusOnes);
    EXPECT_EQ(run_affine(m, m.session), kMinusOnes);
    const float values[] = {2, 2, 2, 2};
    husk_constant_update first = {1, 0, values};
    ASSERT_EQ(husk_program_update_constants(m.program, &first, 1, &m.error), HUSK_OK)
        << m.error.text;
    ASSERT_EQ(a->update("b", 1), HUSK_OK) << a->error.text;
    EXPECT_EQ(run_affine(m, m.session), kMinusTwos);
    EXPECT_EQ(run_affine(m, a->session), kMinusOnes);
    EXPECT_EQ(run_affine(m, b->session), kMinusOnes);
    // A program that is opened later has the file's values, which it shares with `b`.
    auto late = open(m.engine, affine(kCount, kOnes), {0, 0}, mode);
    EXPECT_EQ(run_affine(m, late->session), kMinusOnes);
  }
}

TEST_F(SharedConstantsTest, AnUpdateOfUnsharedConstantsIsInPlaceAndEndsSharing) {
  LoadedProgram m(affine(kTwos, kTwos));
  ASSERT_NE(m.session, nullptr) << m.error.text;
  auto one = open(m.engine, affine(kCount, kOnes), {1, 2});
  ASSERT_EQ(one->update("b", 2), HUSK_OK) << one->error.text;
  EXPECT_EQ(run_affine(m, one->session), kMinusTwos);
  auto two = open(m.engine, affine(kCount, kOnes), {1, 2});
  EXPECT_EQ(run_affine(m, two->session), kMinusOnes);
  EXPECT_EQ(run_affine(m, one->session), kMinusTwos);
}

TEST_F(SharedConstantsTest, AFailureReleasesSharedConstants) {
  LoadedProgram m(affine(kCount, kOnes));
  ASSERT_NE(m.session, nullptr) << m.error.text;
  fake.fake_fail_call("cuMemAlloc", 1, 2);
  {
    OpenedProgram failed(m.engine, affine(kCount, kTwos));
    EXPECT_EQ(failed.program, nullptr);
    EXPECT_NE(std::string(failed.error.text).find("the constants, 256 bytes"), std::string::npos)
        << failed.error.text;
  }
  EXPECT_EQ(run_affine(m, m.session), kMinusOnes);
  const float values[] = {2, 2, 2, 2};
  const husk_constant_update update = {1, 0, values};
  const uint64_t allocations = fake.fake_calls("cuMemAlloc"), frees = fake.fake_calls("cuMemFree");
  ASSERT_EQ(husk_program_update_constants(m.program, &update, 1, &m.error), HUSK_OK)
      << m.error.text;
  EXPECT_EQ(fake.fake_calls("cuMemAlloc") - allocations,
            fake.fake_calls("cuMemFree") - frees);  // not shared any more, so updated in place
  EXPECT_EQ(run_affine(m, m.session), kMinusTwos);
}

// Constants that another program has on the device, and those that share bytes, take no memory.
TEST_F(SharedConstantsTest, TheMemoryOfAProgramHasALimit) {
  husk_engine_options options = HUSK_ENGINE_OPTIONS_INIT;
  options.port = husk_port_cuda();
  options.max_program_bytes = 1;
  husk_engine* engine = nullptr;
  husk_error error = {};
  ASSERT_EQ(husk_engine_create(&options, &engine, &error), HUSK_OK) << error.text;
  std::string needs;
  {
    const OpenedProgram refused(engine, affine(kTwos, kTwos));
    EXPECT_EQ(refused.program, nullptr);
    EXPECT_EQ(refused.error.code, HUSK_LIMIT);
    needs = refused.error.text;
    EXPECT_EQ(needs.find("the program takes at least "), 0u) << needs;
    EXPECT_NE(needs.find("husk_engine_options.max_program_bytes is 1"), std::string::npos);
  }
  husk_engine_release(engine);
  const uint64_t images = std::stoull(needs.substr(needs.find("least ") + 6));
  for (const uint64_t more : {255u, 256u}) {
    options.max_program_bytes = images + more;
    ASSERT_EQ(husk_engine_create(&options, &engine, &error), HUSK_OK) << error.text;
    {
      const uint64_t allocations = fake.fake_calls("cuMemAlloc");
      const OpenedProgram one(engine, affine(kTwos, kTwos));
      EXPECT_EQ(one.program != nullptr, more == 256) << one.error.text;
      EXPECT_EQ(fake.fake_calls("cuMemAlloc") - allocations, more == 256);
      const OpenedProgram other(engine, affine(kTwos, kTwos));
      EXPECT_EQ(other.program != nullptr, more == 256) << other.error.text;
      const OpenedProgram larger(engine, affine(kCount, kOnes));
      EXPECT_EQ(larger.program, nullptr);
      EXPECT_EQ(larger.error.code, HUSK_LIMIT);
    }
    husk_engine_release(engine);
  }
}

TEST_F(SharedConstantsTest, ProgramsComeAndGoOnThreads) {
  LoadedProgram m(affine(kTwos, kTwos));
  ASSERT_NE(m.session, nullptr) << m.error.text;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&m, t] {
      for (int turn = 0; turn < 30; ++turn) {
        OpenedProgram opened(m.engine, affine(kCount, t % 2 ? kOnes : kTwos));
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
