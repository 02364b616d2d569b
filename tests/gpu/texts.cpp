// Texts of many requests on a GPU that are there at the same time, against the same texts alone.
//   husk_gpu_texts FILE WORDS [SECONDS [SEED]]
// Requests of random prompts below WORDS are greedy or drawn, join and leave, and a fifth of them
// is cancelled. Alone, a text is generated with one run of the model in a step, after which the
// host waits; together, the device has the next runs already while the host reads tokens, as is the
// default. Prints how many texts were compared and how many differ. The exit status is 1 if a text
// differs or is lost, or if the memory of the process has grown by more than 8 MiB meanwhile.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <random>

#include <husk/generate.hpp>
#include <husk/ops.h>
#include <husk/port_cuda.h>

namespace {

constexpr size_t kRequests = 40, kTogether = 12;

using Tokens = std::vector<int32_t>;

struct Text {
  Tokens tokens;
  int32_t reason = HUSK_TEXT_GOES_ON;
};

husk::TextRequest random_request(std::mt19937& random, int32_t words) {
  husk::TextRequest request;
  for (size_t count = 1 + random() % 150; count; --count)
    request.tokens.push_back(static_cast<int32_t>(random() % static_cast<uint32_t>(words)));
  request.max_new_tokens = 1 + random() % 64;
  request.ignore_end = true;
  request.seed = static_cast<int64_t>(random());
  switch (random() % 4) {
    case 0: request.temperature = 1; break;
    case 1: request.temperature = 0.7f, request.top_k = 20; break;
    case 2: request.temperature = 1.3f, request.top_p = 0.9f; break;
    default: break;  // greedy
  }
  return request;
}

// The callback of a request that writes the parts of its text, and cancels it after `most` tokens.
std::function<bool(const husk_text_part&)> into(Text& text, size_t most = SIZE_MAX) {
  return [&text, most](const husk_text_part& part) {
    if (part.token >= 0) text.tokens.push_back(part.token);
    text.reason = part.reason;
    return text.tokens.size() < most;
  };
}

size_t resident_bytes() {
  size_t all = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> all >> resident;
  return resident * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

int compare(const char* path, int32_t words, double seconds, uint32_t seed) {
  husk_engine_options options = HUSK_ENGINE_OPTIONS_INIT;
  options.port = husk_port_cuda();
  options.require_op_contracts = 1;
  const husk::Engine engine(options);
  const husk::Program program(engine, path);

  std::mt19937 random(seed);
  std::vector<husk::TextRequest> requests;
  std::vector<Text> alone(kRequests);
  husk_generator_options one_run = HUSK_GENERATOR_OPTIONS_INIT;
  one_run.runs = 1;
  {
    husk::Generator generator(engine, program, one_run);
    for (Text& text : alone) {
      requests.push_back(random_request(random, words));
      husk::TextRequest request = requests.back();
      request.part = into(text);
      generator.submit(std::move(request));
      generator.run();
    }
  }

  husk::Generator generator(engine, program);
  struct Started {
    size_t which;
    bool is_cut;
    Text text;
  };
  std::vector<std::unique_ptr<Started>> started;
  size_t texts = 0, cut = 0, wrong = 0, lost = 0, tokens = 0, settled = 0;
  const std::clock_t begin = std::clock();
  timespec from = {}, time = {};
  clock_gettime(CLOCK_MONOTONIC, &from);
  for (bool ends = false, more = false; !ends || more;) {
    clock_gettime(CLOCK_MONOTONIC, &time);
    ends = static_cast<double>(time.tv_sec - from.tv_sec) >= seconds;
    while (!ends && started.size() < kTogether && random() % 4) {
      auto next = std::make_unique<Started>();
      next->which = random() % kRequests;
      next->is_cut = random() % 5 == 0;
      husk::TextRequest request = requests[next->which];
      request.part = into(next->text, next->is_cut ? 1 + random() % 9 : SIZE_MAX);
      generator.submit(std::move(request));
      started.push_back(std::move(next));
    }
    more = generator.step();
    std::erase_if(started, [&](const std::unique_ptr<Started>& one) {
      if (one->text.reason == HUSK_TEXT_GOES_ON) return false;
      const Tokens &found = one->text.tokens, &right = alone[one->which].tokens;
      const bool is_part = found.size() <= right.size() &&
                           std::equal(found.begin(), found.end(), right.begin());
      wrong += !is_part || (!one->is_cut && found.size() != right.size());
      ++(one->is_cut ? cut : texts);
      tokens += found.size();
      return true;
    });
    if (!settled && texts > 200) settled = resident_bytes();
  }
  lost = started.size();
  const size_t end = resident_bytes();
  std::printf(
      "%s: %zu texts and %zu cancelled ones, %zu tokens, %zu differ, %zu lost; memory of the "
      "process "
      "%zu KiB after 200 texts, %zu KiB at the end; %.1f s of processor time\n",
      path, texts, cut, tokens, wrong, lost, settled >> 10, end >> 10,
      static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC);
  return wrong || lost || (settled && end > settled + (8 << 20));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fputs("usage: husk_gpu_texts FILE WORDS [SECONDS [SEED]]\n", stderr);
    return 2;
  }
  try {
    return compare(argv[1], std::atoi(argv[2]), argc > 3 ? std::atof(argv[3]) : 10,
                   argc > 4 ? static_cast<uint32_t>(std::atoi(argv[4])) : 1);
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "%s\n", failure.what());
    return 1;
  }
}
