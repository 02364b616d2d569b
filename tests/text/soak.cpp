// A soak of the generator, run by name:
//
//   husk_text_soak [SECONDS [SEED [PAGES [RUNS]]]]
//
// Threads submit requests to one generator and cancel some of them, while another thread steps:
// prompts of all lengths, also longer than a sequence, several samples, stop texts, settings of
// sampling, refused requests. The threads also set, replace and remove adapters, some of them
// damaged, which requests use meanwhile. Each text is compared with one that is computed without
// the library. From time to time all requests end, and the memory in use is noted. The exit status
// is 1 if a text is wrong or lost, if an adapter is replaced while a request uses it, or if the
// memory grows. With PAGES above 0, the caches are in so many pages. A step has up to RUNS runs.
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <random>
#include <shared_mutex>
#include <thread>

#include "adapter_files.h"
#include "loaded_model.h"

namespace {

using namespace husk::test;
using Clock = std::chrono::steady_clock;

constexpr int kThreads = 2;

struct Counts {
  std::atomic<uint64_t> submitted{0}, refused{0}, texts{0}, cancelled{0}, wrong{0}, tokens{0};
  std::atomic<uint64_t> adapted{0};  // texts with an adapter
  // Calls that set an adapter where there was none, replaced one and removed one; that were refused
  // since it was in use; and whose files were damaged.
  std::atomic<uint64_t> set{0}, replaced{0}, removed{0}, in_use{0}, damaged{0};
};

// The adapter that has a number. A thread that submits a request with the number holds the lock
// shared, and one that changes it alone, so that each request is known to use this adapter or none.
struct AdapterState {
  std::shared_mutex lock;
  bool is_set = false;
  int32_t salt = 0;
  std::atomic<int64_t> open{0};  // requests that use it
};

struct Soaked {
  husk_generator* generator = nullptr;
  bool has_adapters = false;
  AdapterState adapters[LM_ADAPTERS];
  Counts counts;
};

// A request, until its last text has come.
struct Request {
  Wanted wanted;
  uint32_t samples = 1;
  int64_t cancel_after = -1;  // parts, by the result of the callback
  std::vector<Text> texts;
  uint32_t left = 0;
  Counts* counts = nullptr;
  AdapterState* adapter = nullptr;  // that it uses
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
    request.counts->adapted += request.adapter != nullptr;
    compare(request, part->sample);
    if (--request.left == 0) {
      if (request.adapter) --request.adapter->open;
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

// Sets, replaces or removes an adapter, or tries to.
void change_adapter(Soaked& soaked, std::mt19937_64& random) {
  Counts& counts = soaked.counts;
  const auto number = 1 + static_cast<uint32_t>(random() % LM_ADAPTERS);
  AdapterState& state = soaked.adapters[number - 1];
  const std::unique_lock<std::shared_mutex> lock(state.lock);
  const uint64_t kind = random() % 6;
  const bool removes = kind == 0, is_damaged = kind == 1;
  husk_error error = {};
  husk_status status;
  int32_t salt = 0;
  if (removes) {
    status = husk_generator_remove_adapter(soaked.generator, number, &error);
  } else {
    const char* types[] = {"F32", "F16", "BF16"};
    const Adapter adapter(static_cast<int>(random() % 1000), 1 + static_cast<int64_t>(random() % 2),
                          types[random() % 3]);
    salt = adapter.salt();
    std::string weights = adapter.weights();
    if (is_damaged) weights.resize(weights.size() - 1 - random() % 20);
    const std::string config = adapter.config.dump();
    status = husk_generator_set_adapter(soaked.generator, number, weights.data(), weights.size(),
                                        config.data(), config.size(), &error);
  }
  const char* what = nullptr;
  if (status == HUSK_OK) {
    if (state.open) what = "it is in use, and was changed";
    if (is_damaged) what = "a damaged file was taken";
    if (removes && !state.is_set) what = "none was removed";
    ++(removes ? counts.removed : state.is_set ? counts.replaced : counts.set);
    state.is_set = !removes;
    state.salt = salt;
  } else if (std::strstr(error.text, "in use")) {
    ++counts.in_use;
  } else if (is_damaged) {
    ++counts.damaged;
  } else if (!removes || state.is_set || status != HUSK_NOT_FOUND) {
    what = error.text;
  }
  if (!what) return;
  ++counts.wrong;
  std::fprintf(stderr, "adapter %u: %s\n", number, what);
}

// `turn` counts the requests of a thread, which prefer an adapter for a while, so that others are
// not in use.
void submit(Soaked& soaked, std::mt19937_64& random, uint64_t turn) {
  husk_generator* const generator = soaked.generator;
  Counts& counts = soaked.counts;
  std::unique_ptr<Request> request = random_request(random, counts);
  Wanted& wanted = request->wanted;
  std::shared_lock<std::shared_mutex> lock;
  if (soaked.has_adapters && random() % 4) {
    wanted.adapter = static_cast<uint32_t>(turn / 40 % (LM_ADAPTERS + 1));
  }
  bool has_adapter = true;
  if (wanted.adapter) {
    AdapterState& state = soaked.adapters[wanted.adapter - 1];
    lock = std::shared_lock<std::shared_mutex>(state.lock);
    has_adapter = state.is_set;
    wanted.salt = state.salt;
    request->adapter = &state;
    ++state.open;
  }
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
  asked.adapter = wanted.adapter;
  if (wanted.mask) asked.allow = allow;
  asked.part = part;
  asked.user = request.get();
  const bool is_right = has_adapter && !wanted.prompt.empty() && wanted.prompt.size() <= LM_MOST;
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
    if (request && request->adapter) --request->adapter->open;
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
void round(Soaked& soaked, double seconds, uint64_t seed) {
  husk_generator* const generator = soaked.generator;
  Counts& counts = soaked.counts;
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  std::atomic<int> open{kThreads};
  std::vector<std::thread> threads;
  for (uint64_t thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      std::mt19937_64 random(seed * kThreads + thread);
      uint64_t turn = 0;
      while (Clock::now() < end) {
        if (soaked.has_adapters && random() % 16 == 0) change_adapter(soaked, random);
        husk_generator_stats stats = HUSK_GENERATOR_STATS_INIT;
        (void)husk_generator_stats_get(generator, &stats, nullptr);
        if (stats.waiting > 20) {
          std::this_thread::yield();
          continue;
        }
        submit(soaked, random, turn++);
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

// AddressSanitizer keeps 256 MB of freed memory by default, which a short soak does not fill before
// the memory is noted.
extern "C" const char* __asan_default_options() { return "quarantine_size_mb=2"; }

int main(int argc, char** argv) {
  const double seconds = argc > 1 ? std::atof(argv[1]) : 60;
  const uint64_t seed = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 0;
  ModelFile file;
  if (argc > 3) file.pages = std::atoi(argv[3]);
  file.has_adapters = true;
  const LoadedModel model(file);
  husk_generator_options options = HUSK_GENERATOR_OPTIONS_INIT;
  options.reuse_prefixes = 1;
  if (argc > 4) options.runs = static_cast<uint32_t>(std::atoi(argv[4]));
  const Generator generator = model.generator(options);
  Soaked soaked;
  soaked.generator = generator.get();
  soaked.has_adapters = file.has_adapters;
  Counts& counts = soaked.counts;
  constexpr int kRounds = 10;
  int64_t first = 0, last = 0;
  for (int i = 0; i < kRounds; ++i) {
    round(soaked, seconds / kRounds, seed * kRounds + static_cast<uint64_t>(i));
    last = memory_in_use();
    if (i == 2) first = last;
  }
  const uint64_t lost = counts.submitted - counts.texts;
  std::printf(
      "%lu texts with %lu parts, %lu of them cancelled, %lu requests refused; %lu wrong, %lu lost; "
      "%ld KiB of memory, %ld KiB after the third of %d rounds\n",
      counts.texts.load(), counts.tokens.load(), counts.cancelled.load(), counts.refused.load(),
      counts.wrong.load(), lost, last >> 10, first >> 10, kRounds);
  std::printf(
      "%lu texts with adapters; %lu adapters set, %lu replaced, %lu removed, %lu in use, "
      "%lu damaged\n",
      counts.adapted.load(), counts.set.load(), counts.replaced.load(), counts.removed.load(),
      counts.in_use.load(), counts.damaged.load());
  // Sanitizers keep what was freed for a while.
#ifndef HUSK_SANITIZED
  constexpr int64_t kMostGrowth = 2 << 20;
#else
  constexpr int64_t kMostGrowth = 16 << 20;
#endif
  return counts.wrong || lost || last - first > kMostGrowth;
}
