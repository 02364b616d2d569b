// Texts on a device with memory of its own: the fake driver, whose work is queued until the host
// waits for it, and which ends the test if the host touches memory that queued copies use.
#include <dlfcn.h>
#include <fake.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <random>
#include <stdexcept>

#include <husk/port_cuda.h>

#include "requests.h"

namespace {

using namespace husk::test;

// The controls of the fake driver, in the library that the port opens too.
struct Fake {
  Fake() {
    library = dlopen("libcuda.so.1", RTLD_NOW);
    const auto get = [&](auto& control, const char* name) {
      void* const found = library ? dlsym(library, name) : nullptr;
      if (!found) throw std::runtime_error("libcuda.so.1 is not the fake driver");
      memcpy(&control, &found, sizeof found);
    };
    get(reset, "fake_reset");
    get(fail_at, "fake_fail_at");
    get(fail_call, "fake_fail_call");
    get(failed, "fake_failed");
    get(calls, "fake_calls");
    get(idle_waits, "fake_idle_waits");
    get(pending, "fake_pending");
    get(live_objects, "fake_live_objects");
    get(schedule, "fake_schedule");
  }
  void* library = nullptr;
  decltype(&fake_reset) reset = nullptr;
  decltype(&fake_fail_at) fail_at = nullptr;
  decltype(&fake_fail_call) fail_call = nullptr;
  decltype(&fake_failed) failed = nullptr;
  decltype(&fake_calls) calls = nullptr;
  decltype(&fake_idle_waits) idle_waits = nullptr;
  decltype(&fake_pending) pending = nullptr;
  decltype(&fake_live_objects) live_objects = nullptr;
  decltype(&fake_schedule) schedule = nullptr;
};

class DeviceTexts : public testing::Test {
 protected:
  void SetUp() override { fake.reset(); }
  void TearDown() override {
    fake.reset();
    EXPECT_EQ(fake.live_objects(), 0u);
  }
  Fake fake;
};

LoadedModel loaded(ModelFile file = {}, const husk_port* port = husk_port_cuda()) {
  file.on_device = true;
  return LoadedModel(file, port);
}

// A request that draws tokens, and reaches its limit.
Wanted long_request(uint32_t seed, uint64_t most) {
  Wanted wanted;
  std::mt19937 random(seed);
  wanted.prompt = random_prompt(random, 5);
  wanted.most = most;
  wanted.temperature = 2;
  wanted.top_k = 9;
  while (right_text(wanted).tokens.size() < most) ++wanted.seed;
  return wanted;
}

// The driver runs some of the work early, or none.
TEST_F(DeviceTexts, AreThoseOfSingleRuns) {
  uint32_t seed = 0;
  for (const ModelFile& file : kinds_of_files()) {
    const LoadedModel model = loaded(file);
    for (const uint32_t runs : {1u, 0u, 3u, 16u}) {
      ++seed;
      fake.schedule(seed, seed % 3 * 20);
      const Generator generator = model.generator(options_of(runs, seed % 2));
      std::mt19937 random(seed);
      const bool needs_host = runs == 3;  // some steps have one run
      std::vector<Wanted> wanted(16);
      for (Wanted& one : wanted) one = random_request(random, needs_host);
      std::vector<Answer> answers(wanted.size());
      std::vector<uint64_t> numbers(wanted.size());
      for (size_t i = 0; i < wanted.size(); ++i) {
        if (i % 5 == 4) answers[i].most_parts = 1 + static_cast<int>(random() % 9);
        numbers[i] = submit(generator, wanted[i], answers[i], 1 + i % 2, i % 3 == 0,
                            needs_host && i % 5 == 0 ? 2 : 0);
        if (i % 3 == 0) step(generator);
        if (i % 7 == 6) (void)husk_generator_cancel(generator.get(), numbers[i - 3], nullptr);
      }
      run(generator);
      for (size_t i = 0; i < wanted.size(); ++i) {
        for (const auto& [sample, text] : answers[i].texts) {
          const Text right = right_text(wanted[i], sample);
          if (text.reason == HUSK_TEXT_CANCELLED) {
            ASSERT_LE(text.tokens.size(), right.tokens.size());
            EXPECT_TRUE(std::equal(text.tokens.begin(), text.tokens.end(), right.tokens.begin()));
          } else {
            EXPECT_EQ(text, right) << i;
          }
        }
        EXPECT_FALSE(answers[i].is_late);
      }
    }
  }
}

// The host waits with nothing behind it for the prompt and for the last tokens, and never between.
TEST_F(DeviceTexts, ComeWhileTheDeviceHasMoreWork) {
  for (const int pages : {0, LM_COLUMNS + 3}) {
    ModelFile file;
    file.pages = pages;
    const LoadedModel model = loaded(file);
    for (const size_t count : {1u, 2u}) {  // requests: by `single`, and by `decode`
      const Generator generator = model.generator();
      std::vector<Wanted> wanted;
      std::vector<Answer> answers(count);
      for (uint32_t i = 0; i < count; ++i) wanted.push_back(long_request(i, 31));
      for (size_t i = 0; i < count; ++i) submit(generator, wanted[i], answers[i]);
      step(generator);  // the prompts, the first tokens, and the first batch of two
      uint64_t idle = fake.idle_waits();
      EXPECT_GT(fake.pending(), 0u);
      int steps = 1;
      while (step(generator)) {
        ++steps;
        EXPECT_EQ(fake.idle_waits(), idle) << steps;
        EXPECT_GT(fake.pending(), 0u) << steps;
      }
      EXPECT_EQ(steps, 14);  // and the last one: 30 tokens, two with each
      EXPECT_EQ(fake.idle_waits(), idle + 1);
      for (size_t i = 0; i < count; ++i) EXPECT_EQ(answers[i].texts[0], right_text(wanted[i]));
    }
  }
}

// Ports without the functions: each step waits for all work before it gives the next one.
TEST_F(DeviceTexts, ComeOneBatchAfterTheOtherFromOlderPorts) {
  for (const int lacking : {0, 1, 2}) {
    static husk_port port;
    port = *husk_port_cuda();
    if (lacking == 0) port.event_wait = nullptr;
    if (lacking == 1) port.alloc_host = nullptr;
    if (lacking == 2) port.struct_size = offsetof(husk_port, event_wait);
    const LoadedModel model = loaded({}, &port);
    const Generator generator = model.generator();
    const Wanted wanted = long_request(1, 31);
    const uint64_t waits = fake.calls("cuEventSynchronize");
    Answer answer;
    submit(generator, wanted, answer);
    step(generator);
    int steps = 1;
    while (true) {
      EXPECT_EQ(fake.pending(), 0u);
      const uint64_t idle = fake.idle_waits();
      ++steps;
      if (!step(generator)) break;
      EXPECT_GT(fake.idle_waits(), idle);
    }
    EXPECT_EQ(steps, 15);
    EXPECT_EQ(answer.texts[0], right_text(wanted));
    EXPECT_EQ(fake.calls("cuEventSynchronize"), waits);
    EXPECT_GT(stats(generator).runs_ahead, 0u);
  }
}

TEST_F(DeviceTexts, EndWithTheGeneratorWhileTheDeviceHasWork) {
  const LoadedModel model = loaded();
  Generator generator = model.generator();
  const Wanted wanted = long_request(1, 31);
  Answer answer;
  submit(generator, wanted, answer);
  step(generator);
  EXPECT_GT(fake.pending(), 0u);
  generator.reset();
  EXPECT_EQ(fake.pending(), 0u);
}

// A text that turns out to have ended leaves the device with work for nobody. The next request
// begins behind it, in the same slot.
TEST_F(DeviceTexts, BeginAfterWorkThatNobodyWants) {
  for (const ModelFile& file : kinds_of_files()) {
    const LoadedModel model = loaded(file);
    const Generator generator = model.generator(options_of(0, true));
    for (uint32_t i = 0; i < 8; ++i) {
      Wanted wanted = long_request(i, 20);
      wanted.most = 0;
      Answer answer, other;
      const uint64_t number = submit(generator, wanted, answer);
      for (uint32_t k = 0; k < i; ++k) step(generator);
      (void)husk_generator_cancel(generator.get(), number, nullptr);
      // The tokens that the slot has are the beginning of the next prompt.
      const std::vector<int32_t>& tokens = answer.texts[0].tokens;
      wanted.prompt.insert(wanted.prompt.end(), tokens.begin(), tokens.end());
      wanted.most = 9;
      submit(generator, wanted, other);
      run(generator);
      EXPECT_EQ(other.texts[0], right_text(wanted)) << i;
      EXPECT_EQ(answer.texts[0].reason, HUSK_TEXT_CANCELLED);
    }
  }
}

// Each driver call of a request fails once. The texts end, and the next request finds the generator
// as it was.
TEST_F(DeviceTexts, FailWithTheDriver) {
  for (const int pages : {0, LM_COLUMNS + 3}) {
    ModelFile file;
    file.pages = pages;
    const LoadedModel model = loaded(file);
    const Wanted wanted = long_request(1, 9), beside = long_request(2, 7);
    bool reached = true;
    uint64_t failures = 0;
    for (uint64_t n = 1; reached; n += 3) {
      const Generator generator = model.generator();
      Answer answers[2], after;
      submit(generator, wanted, answers[0]);
      submit(generator, beside, answers[1]);
      fake.fail_at(n, 999);
      int32_t more = 1;
      husk_error error;
      while (more) {
        if (husk_generator_step(generator.get(), &more, &error) == HUSK_OK) continue;
        ++failures;
        EXPECT_NE(std::string(error.text).find("cu"), std::string::npos) << error.text;
      }
      reached = fake.failed();
      fake.fail_at(0, 0);
      for (int i = 0; i < 2; ++i) {
        const Text right = right_text(i ? beside : wanted), &text = answers[i].texts[0];
        if (text.reason == HUSK_TEXT_FAILED) {
          ASSERT_LE(text.tokens.size(), right.tokens.size());
          EXPECT_TRUE(std::equal(text.tokens.begin(), text.tokens.end(), right.tokens.begin()));
        } else {
          EXPECT_EQ(text, right) << n;
        }
      }
      submit(generator, wanted, after);
      run(generator);
      EXPECT_EQ(after.texts[0], right_text(wanted)) << n;
    }
    EXPECT_GT(failures, 10u);
  }
}

TEST_F(DeviceTexts, FailWithADeviceThatIsLost) {
  const LoadedModel model = loaded();
  const Generator generator = model.generator();
  const Wanted wanted = long_request(1, 31);
  Wanted bad = wanted;
  bad.prompt[1] = LM_FORBIDDEN;
  Answer answer, failing;
  submit(generator, wanted, answer);
  step(generator);
  submit(generator, bad, failing);
  husk_error error;
  EXPECT_EQ(husk_generator_step(generator.get(), nullptr, &error), HUSK_DEVICE);
  EXPECT_EQ(error.driver_code, 719);
  // The tokens that the device had computed before are given.
  EXPECT_EQ(answer.texts[0].reason, HUSK_TEXT_FAILED);
  EXPECT_EQ(answer.texts[0].tokens.size(), 5u);
  EXPECT_EQ(failing.texts[0].reason, HUSK_TEXT_FAILED);
}

// A generator is not made without the memory and the marks that it wants.
TEST_F(DeviceTexts, NeedMemoryForWhatIsBroughtToTheHost) {
  const LoadedModel model = loaded({.pages = LM_COLUMNS + 3});
  for (const auto& [call, code] : {std::pair("cuMemAllocHost", 2), {"cuEventCreate", 2}}) {
    for (uint64_t n = 1;; ++n) {
      fake.fail_call(call, n, code);
      husk_generator* generator = nullptr;
      husk_error error;
      const husk_status status = model.create(HUSK_GENERATOR_OPTIONS_INIT, &generator, &error);
      if (!fake.failed()) {
        EXPECT_EQ(status, HUSK_OK);
        EXPECT_GT(n, 2u);
        husk_generator_release(generator);
        break;
      }
      EXPECT_EQ(status, HUSK_OUT_OF_MEMORY);
      EXPECT_EQ(generator, nullptr);
      EXPECT_NE(std::string(error.text).find(call), std::string::npos) << error.text;
    }
  }
}

TEST_F(DeviceTexts, AllocateNothing) {
  const LoadedModel model = loaded();
  const Generator generator = model.generator();
  const Wanted plain = long_request(1, 31);
  Answer answer;
  submit(generator, plain, answer);
  step(generator);
  const uint64_t pinned = fake.calls("cuMemAllocHost"), events = fake.calls("cuEventCreate"),
                 memory = fake.calls("cuMemAlloc"), uploads = fake.calls("cuMemcpyHtoDAsync");
  run(generator);
  EXPECT_EQ(fake.calls("cuMemAllocHost"), pinned);
  EXPECT_EQ(fake.calls("cuEventCreate"), events);
  EXPECT_EQ(fake.calls("cuMemAlloc"), memory);
  EXPECT_EQ(fake.calls("cuMemcpyHtoDAsync"), uploads);
  EXPECT_EQ(fake.calls("cuMemcpyDtoHAsync"), 1u);  // of the first token
}

}  // namespace
