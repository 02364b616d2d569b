// husk-text: measures how fast a language model generates texts.
#include <algorithm>
#include <chrono>
#include <fstream>
#include <memory>
#include <random>

#include <husk/generate.h>

#include "adapter_folder.h"
#include "bench/statistics.h"
#include "command_line.h"
#include "run/handles.h"
#include "run/machine.h"
#include "run/run_error.h"

#include <nlohmann/json.hpp>

namespace husk::text_tool {
namespace {

using run::check;
using run::exit_load;
using run::exit_run;
using run::exit_usage;
using run::fail;
using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;

struct Options {
  std::string file, device = "host", weights, json;
  std::vector<uint32_t> requests;
  std::vector<std::string> adapters;
  uint32_t threads = 0, rounds = 3, chunk = 0, speculate = 0, runs = 0;
  int64_t top_k = 0;
  uint64_t prompt = 128, most = 64, seed = 0;
  double temperature = 0;
};

constexpr const char* footer =
    "Security: an artifact contains native code, which runs with your rights. Run only artifacts\n"
    "  that you trust.\n\n"
    "Examples:\n"
    "  husk-text bench smollm2.husk\n"
    "  husk-text bench smollm2.husk --requests 1 --requests 8 --json times.json\n\n"
    "Exit codes: 0 success; 2 the command line is wrong; 3 the artifact or the device cannot be\n"
    "  used; 4 a run failed.";
constexpr const char* bench_footer =
    "Prompts are random tokens, which differ from one another, and texts do not end before they\n"
    "  have their tokens. The first round does not count.\n"
    "Columns: the time from the submission of all requests until the first token of one, median\n"
    "  and largest; tokens of prompts a second, until all requests have a token; tokens of texts\n"
    "  a second after that, of all requests together and of each; the time of a step, and the "
    "part\n"
    "  of it outside of the model's runs.";

std::optional<int> parse(int argc, char** argv, Options& options) {
  CLI::App app("Measures how fast a language model in a Husk artifact (.husk) generates texts.",
               "husk-text");
  app.require_subcommand(1);
  app.footer(footer);
  CLI::App* bench = app.add_subcommand(
      "bench", "Measure the time to the first token and the tokens a second, at several requests");
  bench->add_option("FILE", options.file, "The artifact, model.husk")->required();
  bench
      ->add_option("--requests", options.requests,
                   "How many requests are generated together; may be repeated (default: 1, 2, 4 "
                   "and so on, up to the slots of the artifact)")
      ->check(CLI::Range(1, 65536))
      ->allow_extra_args(false);
  bench->add_option("--prompt-tokens", options.prompt, "How many tokens each prompt has")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  bench->add_option("--new-tokens", options.most, "How many tokens each text gets")
      ->check(CLI::Range(2, 1 << 30))
      ->capture_default_str();
  bench
      ->add_option("--chunk", options.chunk,
                   "The most tokens of a prompt that one step takes; 0 means as many as the "
                   "artifact allows")
      ->capture_default_str();
  bench
      ->add_option("--temperature", options.temperature,
                   "0 takes the most likely tokens; more draws them, which takes time of its own")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  bench
      ->add_option("--top-k", options.top_k,
                   "With a temperature, draw from so many of the most likely tokens; 0: all")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  bench
      ->add_option("--runs", options.runs,
                   "How many runs of the model a step enqueues at most before it reads their "
                   "tokens; 0 means as the device needs")
      ->capture_default_str();
  bench
      ->add_option("--speculate", options.speculate,
                   "Try so many tokens together that followed the last ones earlier")
      ->capture_default_str();
  bench
      ->add_option("--adapter", options.adapters,
                   "An adapter (LoRA): a folder with adapter_config.json and "
                   "adapter_model.safetensors; may be repeated, and the requests take them in turn")
      ->allow_extra_args(false)
      ->option_text("FOLDER");
  bench->add_option("--rounds", options.rounds, "How many rounds are measured")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  bench->add_option("--seed", options.seed, "The seed of the prompts")->capture_default_str();
  bench->add_option("--device", options.device, "The device: " + run::device_names())
      ->capture_default_str();
  bench
      ->add_option("--threads", options.threads,
                   "Number of threads on the host; 0 means one for each CPU")
      ->capture_default_str();
  bench
      ->add_option("--weights", options.weights,
                   "The folder of weights that lie beside the artifact (default: that of the "
                   "artifact)")
      ->option_text("FOLDER");
  bench->add_option("--json", options.json, "A file for all numbers");
  bench->footer(bench_footer);
  return tools::parse(app, argc, argv);
}

double seconds_between(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

double median(std::vector<double> values) {
  return bench_tool::distribution_of(std::move(values)).p50;
}

// One request of a round.
struct Request {
  Clock::time_point first;
  uint64_t tokens = 0;
  std::string failure;

  static int32_t part(void* user, const husk_text_part* part) {
    auto& request = *static_cast<Request*>(user);
    if (part->tokens == 1) request.first = Clock::now();
    request.tokens = part->tokens;
    if (part->why) request.failure = part->why->text;
    return 0;
  }
};

struct Result {
  uint32_t requests = 0;
  std::vector<double> first_ms;  // of all requests of all rounds
  // These lists have a number for each round.
  std::vector<double> prompt_rate, rate, step_us, host_us;
};

class Bench {
 public:
  explicit Bench(const Options& options)
      : options_(options), machine_(machine_options(options)), random_(options.seed) {
    const auto begin = Clock::now();
    program_.reset(machine_.program_open(options.file));
    husk_generator_options generator_options = HUSK_GENERATOR_OPTIONS_INIT;
    generator_options.chunk = options.chunk;
    generator_options.runs = options.runs;
    husk_error error;
    husk_generator* generator = nullptr;
    check(husk_generator_create(machine_.engine(), program_.get(), &generator_options, &generator,
                                &error),
          error, exit_load);
    generator_.reset(generator);
    open_ms_ = 1e3 * seconds_between(begin, Clock::now());
    const husk_generator_stats counts = stats();
    if (options.prompt + options.most > counts.max_tokens + 1)
      fail(exit_usage,
           "--prompt-tokens {} and --new-tokens {}: a sequence of {} has up to {} tokens",
           options.prompt, options.most, options.file, counts.max_tokens);
    for (uint32_t i = 0; i < options.adapters.size(); ++i) {
      tools::set_adapter(generator, i + 1, options.adapters[i]);
    }
    requests_ = options.requests;
    if (!requests_.empty()) return;
    for (uint32_t count = 1; count < counts.slots; count *= 2) requests_.push_back(count);
    requests_.push_back(counts.slots);
  }

  void run();

 private:
  struct Release {
    void operator()(husk_generator* generator) const { husk_generator_release(generator); }
  };

  static run::MachineOptions machine_options(const Options& options) {
    run::MachineOptions machine;
    machine.tool = "husk-text";
    machine.device = options.device;
    machine.threads = options.threads;
    machine.weights = options.weights;
    return machine;
  }

  husk_generator_stats stats() const {
    husk_generator_stats out = HUSK_GENERATOR_STATS_INIT;
    husk_error error;
    check(husk_generator_stats_get(generator_.get(), &out, &error), error, exit_run);
    return out;
  }
  void round(uint32_t count, Result* result);
  void print(const Result& result) const;
  static Json json_of(const Result& result);

  const Options& options_;
  run::Machine machine_;
  run::Program program_;
  std::unique_ptr<husk_generator, Release> generator_;
  std::mt19937_64 random_;
  std::vector<uint32_t> requests_;
  double open_ms_ = 0;
};

// Generates the texts of `count` requests, and adds the times to the result, which may be null.
void Bench::round(uint32_t count, Result* result) {
  const husk_generator_stats before = stats();
  std::vector<int32_t> tokens(options_.prompt);
  std::vector<Request> requests(count);
  husk_error error;
  const auto begin = Clock::now();
  for (Request& request : requests) {
    for (int32_t& token : tokens) token = static_cast<int32_t>(random_() % before.vocabulary);
    husk_text_request asked = HUSK_TEXT_REQUEST_INIT;
    asked.speculate = options_.speculate;
    if (!options_.adapters.empty()) {
      const auto number = static_cast<size_t>(&request - requests.data());
      asked.adapter = static_cast<uint32_t>(number % options_.adapters.size()) + 1;
    }
    asked.tokens = tokens.data();
    asked.token_count = tokens.size();
    asked.max_new_tokens = options_.most;
    asked.temperature = static_cast<float>(options_.temperature);
    asked.top_k = options_.top_k;
    asked.ignore_end = 1;
    asked.part = Request::part;
    asked.user = &request;
    check(husk_generator_submit(generator_.get(), &asked, nullptr, &error), error, exit_run);
  }
  for (int32_t more = 1; more;) {
    check(husk_generator_step(generator_.get(), &more, &error), error, exit_run);
  }
  const auto end = Clock::now();
  for (const Request& request : requests) {
    if (!request.failure.empty()) fail(exit_run, "{}", request.failure);
  }
  if (!result) return;
  const husk_generator_stats after = stats();
  Clock::time_point last = begin;
  for (const Request& request : requests) {
    result->first_ms.push_back(1e3 * seconds_between(begin, request.first));
    last = std::max(last, request.first);
  }
  // A step with several runs counts as so many.
  const double steps = static_cast<double>(after.steps - before.steps + after.runs_ahead -
                                           before.runs_ahead);
  const double step = static_cast<double>(after.step_nanoseconds - before.step_nanoseconds);
  const double model = static_cast<double>(after.model_nanoseconds - before.model_nanoseconds);
  // With more requests than slots, some texts begin when others have ended, so that only the whole
  // time says something.
  const bool waits = count > before.slots;
  const double tokens_of_texts = static_cast<double>((options_.most - !waits) * count);
  result->prompt_rate.push_back(static_cast<double>(options_.prompt * count) /
                                seconds_between(begin, last));
  result->rate.push_back(tokens_of_texts / seconds_between(waits ? begin : last, end));
  result->step_us.push_back(step / steps / 1e3);
  result->host_us.push_back((step - model) / steps / 1e3);
}

void Bench::print(const Result& result) const {
  const bench_tool::Distribution first = bench_tool::distribution_of(result.first_ms);
  const double rate = median(result.rate);
  fmt::print("{:>8} {:>12.2f} {:>12.2f} {:>12.1f} {:>12.1f} {:>12.1f} {:>12.1f} {:>12.2f}\n",
             result.requests, first.p50, first.most, median(result.prompt_rate), rate,
             rate / result.requests, median(result.step_us), median(result.host_us));
  std::fflush(stdout);
}

Json Bench::json_of(const Result& result) {
  const bench_tool::Distribution first = bench_tool::distribution_of(result.first_ms);
  return {{"requests", result.requests},
          {"first_token_ms", {{"median", first.p50}, {"least", first.least}, {"most", first.most}}},
          {"prompt_tokens_per_second", median(result.prompt_rate)},
          {"tokens_per_second", median(result.rate)},
          {"step_us", median(result.step_us)},
          {"host_us_a_step", median(result.host_us)}};
}

void Bench::run() {
  const husk_generator_stats counts = stats();
  fmt::print("{}: {} slots of {} tokens, on {}; opened in {:.1f} ms\n", options_.file, counts.slots,
             counts.max_tokens, machine_.properties().name, open_ms_);
  fmt::print("prompts of {} tokens, texts of {}; median of {} rounds\n\n", options_.prompt,
             options_.most, options_.rounds);
  fmt::print("{:>8} {:>12} {:>12} {:>12} {:>12} {:>12} {:>12} {:>12}\n", "requests", "first, ms",
             "most, ms", "prompt, 1/s", "tokens, 1/s", "each, 1/s", "step, us", "host, us");
  Json results = Json::array();
  for (const uint32_t count : requests_) {
    Result result;
    result.requests = count;
    round(count, nullptr);
    for (uint32_t i = 0; i < options_.rounds; ++i) round(count, &result);
    print(result);
    results.push_back(json_of(result));
  }
  if (options_.json.empty()) return;
  const Json out = {{"file", options_.file},
                    {"device", machine_.properties().name},
                    {"threads", options_.threads},
                    {"version", husk_version()},
                    {"slots", counts.slots},
                    {"max_tokens", counts.max_tokens},
                    {"prompt_tokens", options_.prompt},
                    {"new_tokens", options_.most},
                    {"rounds", options_.rounds},
                    {"adapters", options_.adapters},
                    {"open_ms", open_ms_},
                    {"results", std::move(results)}};
  std::ofstream file(options_.json, std::ios::binary);
  file << out.dump(1, ' ', false, Json::error_handler_t::replace) << "\n";
  if (!file.flush()) fail(exit_usage, "{}: cannot be written", options_.json);
}

}  // namespace
}  // namespace husk::text_tool

int main(int argc, char** argv) {
  return husk::tools::guarded("husk-text", husk::run::exit_run, [&] {
    husk::text_tool::Options options;
    if (const std::optional<int> code = husk::text_tool::parse(argc, argv, options)) return *code;
    try {
      husk::text_tool::Bench(options).run();
      return 0;
    } catch (const husk::run::RunError& error) {
      fmt::print(stderr, "husk-text: {}\n", error.text);
      return static_cast<int>(error.code);
    }
  });
}
