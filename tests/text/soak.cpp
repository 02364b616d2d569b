// A soak of the generator, run by name:
//
//   husk_text_soak [SECONDS [SEED [PAGES]]]
//
// Threads submit requests to one generator and cancel some of them, while another thread steps:
// prompts of all lengths, also longer than a sequence, several samples, stop texts, settings of
// sampling, refused requests. Each text is compared with one that is computed without the library.
// From time to time all requests end, and the memory in use is noted. The exit status is 1 if a
// text is wrong or lost, or if the memory grows. With PAGES, the caches are in so many pages.
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <random>
#include <thread>

#include "loaded_model.h"

namespace {

using namespace husk::test;
using Clock = std::chrono::steady_clock;

constexpr int kThreads = 2;

struct Counts {
  std::atomic<uint64_t> submitted{0}, refused{0}, texts{0}, cancelled{0}, wrong{0}, tokens{0};
};

// A request, until its last text has come.
struct Request {
  Wanted wanted;
  uint32_t samples = 1;
  int64_t cancel_after = -1;  // parts, by the result of the callback
  std::vector<Text> texts;
  uint32_t left = 0;
  Counts* counts = nullptr;
};

void report(Request& request, uint32_t sample, const char* what) {
  ++request.counts->wrong;
  std::fprintf(stderr, "text %u of a prompt of %zu tokens: %s\n", sample,
               request.wanted.prompt.size(), what);
}

// A text that was cancelled must be a beginning of the right one.
void compare(Request& request, uint32_t sample) {
  const Text &text = request.texts[sample], right = right_text(request.wanted, sample);
  if (text.reason != HUSK_TEXT_CANCELLED) {
    if (!(text == right)) report(request, sample, "it is wrong");
    return;
  }
  ++request.counts->cancelled;
  const bool is_beginning = text.tokens.size() <= right.tokens.size() &&
                            std::equal(text.tokens.begin(), text.tokens.end(),
                                       right.tokens.begin());
  // What is cut inside of a character ends with U+FFFD.
  std::string begin = text.text;
  if (begin.ends_with("\uFFFD")) begin.resize(begin.size() - 3);
  if (!is_beginning || !right.text.starts_with(begin)) {
    // A stop text that is not complete is no longer held back after a cancellation.
    bool is_held = false;
    for (const std::string& stop : request.wanted.stops) {
      for (size_t length = 1; length < stop.size(); ++length) {
        is_held |= begin.ends_with(stop.substr(0, length));
      }
    }
    if (!is_beginning || !is_held) report(request, sample, "it is no beginning of the right one");
  }
}

int32_t part(void* user, const husk_text_part* part) {
  auto& request = *static_cast<Request*>(user);
  Text& text = request.texts[part->sample];
  if (text.reason != HUSK_TEXT_GOES_ON) report(request, part->sample, "a part after its end");
  text.text.append(part->text, part->bytes);
  if (part->token >= 0) text.tokens.push_back(part->token);
  text.reason = part->reason;
  ++request.counts->tokens;
  if (part->reason == HUSK_TEXT_FAILED) report(request, part->sample, part->why->text);
  if (part->reason != HUSK_TEXT_GOES_ON) {
    ++request.counts->texts;
    compare(request, part->sample);
    if (--request.left == 0) {
      delete &request;
      return 0;
    }
  }
  return request.cancel_after >= 0 && request.cancel_after-- == 0;
}

int32_t allow(void* user, const husk_text_choice* choice) {
  const uint32_t mask = static_cast<Request*>(user)->wanted.mask;
  for (int32_t t = 0; t < LM_VOCABULARY; ++t) {
    if (!is_allowed(mask, choice->token_count, t)) choice->allowed[t / 32] &= ~(1u << t % 32);
  }
  return 0;
}

std::unique_ptr<Request> random_request(std::mt19937_64& random, Counts& counts) {
  auto request = std::make_unique<Request>();
  request->counts = &counts;
  Wanted& wanted = request->wanted;
  const size_t most = random() % 4 ? 20 : LM_MOST + 2;  // some fill the cache, some are too long
  wanted.prompt.resize(random() % (most + 1));
  for (int32_t& token : wanted.prompt) token = static_cast<int32_t>(random() % 256);
  if (random() % 4 == 0) {  // many begin alike, so that prefixes are shared
    for (size_t i = 0; i < wanted.prompt.size(); ++i) wanted.prompt[i] = static_cast<int32_t>(i);
  }
  wanted.most = random() % 3 ? 1 + random() % 30 : 0;
  if (random() % 2) {
    wanted.temperature = static_cast<float>(random() % 5) / 2;
    wanted.top_k = static_cast<int64_t>(random() % 3);
    wanted.top_p = static_cast<float>(random() % 10) / 10;
    wanted.min_p = static_cast<float>(random() % 3) / 10;
    wanted.seed = static_cast<int64_t>(random());
  }
  if (random() % 3 == 0) wanted.speculate = static_cast<uint32_t>(random() % 7);
  if (random() % 4 == 0) {
    wanted.repetition = 1 + static_cast<float>(random() % 3);
    wanted.presence = static_cast<float>(random() % 3);
    wanted.frequency = static_cast<float>(random() % 3);
    wanted.mask = static_cast<uint32_t>(random() % 4);
  }
  for (uint64_t i = random() % 3; i; --i) {
    wanted.stops.emplace_back(1 + random() % 2, static_cast<char>(' ' + random() % 90));
  }
  request->samples = random() % 5 ? 1 : 1 + static_cast<uint32_t>(random() % 4);
  if (random() % 8 == 0) request->cancel_after = static_cast<int64_t>(random() % 10);
  request->texts.resize(request->samples);
  request->left = request->samples;
  return request;
}

void submit(husk_generator* generator, std::mt19937_64& random, Counts& counts) {
  std::unique_ptr<Request> request = random_request(random, counts);
  const Wanted& wanted = request->wanted;
  std::vector<husk_text_slice> stops;
  for (const std::string& one : wanted.stops) stops.push_back({one.data(), one.size()});
  husk_text_request asked = HUSK_TEXT_REQUEST_INIT;
  const int32_t none = 0;
  asked.tokens = wanted.prompt.empty() ? &none : wanted.prompt.data();
  asked.token_count = wanted.prompt.size();
  asked.max_new_tokens = wanted.most;
  asked.samples = request->samples;
  asked.temperature = wanted.temperature;
  asked.top_k = wanted.top_k;
  asked.top_p = wanted.top_p;
  asked.min_p = wanted.min_p;
  asked.seed = wanted.seed;
  asked.stops = stops.data();
  asked.stop_count = stops.size();
  asked.speculate = wanted.speculate;
  asked.repetition_penalty = wanted.repetition;
  asked.presence_penalty = wanted.presence;
  asked.frequency_penalty = wanted.frequency;
  if (wanted.mask) asked.allow = allow;
  asked.part = part;
  asked.user = request.get();
  const bool is_right = !wanted.prompt.empty() && wanted.prompt.size() <= LM_MOST;
  uint64_t number = 0;
  const bool cancels = random() % 10 == 0;
  const uint32_t samples = request->samples;
  husk_error error;
  // From here on the request belongs to the callback.
  if (is_right) request.release();
  const husk_status status = husk_generator_submit(generator, &asked, &number, &error);
  if ((status == HUSK_OK) != is_right) {
    ++counts.wrong;
    std::fprintf(stderr, "submit: %s\n", status == HUSK_OK ? "not refused" : error.text);
  }
  if (status != HUSK_OK) {
    ++counts.refused;
    return;
  }
  counts.submitted += samples;
  if (cancels) (void)husk_generator_cancel(generator, number, nullptr);
}

// Bytes of memory that the process occupies.
int64_t memory_in_use() {
  int64_t all = 0, pages = 0;
  if (FILE* file = std::fopen("/proc/self/statm", "r")) {
    if (std::fscanf(file, "%ld %ld", &all, &pages) != 2) pages = 0;
    std::fclose(file);
  }
  return pages * sysconf(_SC_PAGESIZE);
}

// Runs requests for a while, until all have ended.
void round(husk_generator* generator, double seconds, uint64_t seed, Counts& counts) {
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  std::atomic<int> open{kThreads};
  std::vector<std::thread> threads;
  for (uint64_t thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      std::mt19937_64 random(seed * kThreads + thread);
      while (Clock::now() < end) {
        husk_generator_stats stats = HUSK_GENERATOR_STATS_INIT;
        (void)husk_generator_stats_get(generator, &stats, nullptr);
        if (stats.waiting > 20) {
          std::this_thread::yield();
          continue;
        }
        submit(generator, random, counts);
      }
      --open;
    });
  }
  while (true) {
    const bool is_last = open == 0;
    int32_t more = 0;
    husk_error error;
    if (husk_generator_step(generator, &more, &error) != HUSK_OK) {
      ++counts.wrong;
      std::fprintf(stderr, "step: %s\n", error.text);
    }
    if (is_last && !more) break;
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

int main(int argc, char** argv) {
  const double seconds = argc > 1 ? std::atof(argv[1]) : 60;
  const uint64_t seed = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 0;
  ModelFile file;
  if (argc > 3) file.pages = std::atoi(argv[3]);
  const LoadedModel model(file);
  husk_generator_options options = HUSK_GENERATOR_OPTIONS_INIT;
  options.reuse_prefixes = 1;
  const Generator generator = model.generator(options);
  Counts counts;
  constexpr int kRounds = 10;
  int64_t first = 0, last = 0;
  for (int i = 0; i < kRounds; ++i) {
    round(generator.get(), seconds / kRounds, seed * kRounds + static_cast<uint64_t>(i), counts);
    last = memory_in_use();
    if (i == 2) first = last;
  }
  const uint64_t lost = counts.submitted - counts.texts;
  std::printf(
      "%lu texts with %lu parts, %lu of them cancelled, %lu requests refused; %lu wrong, %lu lost; "
      "%ld KiB of memory, %ld KiB after the third of %d rounds\n",
      counts.texts.load(), counts.tokens.load(), counts.cancelled.load(), counts.refused.load(),
      counts.wrong.load(), lost, last >> 10, first >> 10, kRounds);
  // Sanitizers keep what was freed for a while.
#ifndef HUSK_SANITIZED
  constexpr int64_t kMostGrowth = 2 << 20;
#else
  constexpr int64_t kMostGrowth = 256 << 20;
#endif
  return counts.wrong || lost || last - first > kMostGrowth;
}
