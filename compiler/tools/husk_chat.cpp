// husk-chat: a chat with a language model in the terminal.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <memory>
#include <random>

#include <husk/generate.h>

#include "adapter_folder.h"
#include "command_line.h"
#include "run/handles.h"
#include "run/machine.h"
#include "run/run_error.h"

namespace husk::chat {
namespace {

using run::check;
using run::exit_load;
using run::exit_run;
using run::fail;

struct Options {
  std::string file, device = "host", system, prompt, weights, adapter;
  std::vector<std::string> stops;
  uint32_t threads = 0, speculate = 0;
  int64_t most = 0;
  std::optional<double> temperature, top_p, min_p, repetition_penalty;
  std::optional<int64_t> top_k, seed;
  bool plain = false, quiet = false;
};

constexpr const char* footer =
    "Without --prompt, each line of the standard input is a message, until its end or /quit;\n"
    "  /new begins a new chat. Settings that are not given are those of the model's author.\n"
    "Security: an artifact contains native code, which runs with your rights. Run only artifacts\n"
    "  that you trust.\n\n"
    "Examples:\n"
    "  python -m husk llm SmolLM2-135M-Instruct.Q4_1.gguf -o smollm2.husk\n"
    "  husk-chat smollm2.husk\n"
    "  husk-chat smollm2.husk --prompt 'What is the capital of France?'\n\n"
    "Exit codes: 0 success; 2 the command line is wrong; 3 the artifact or the device cannot be\n"
    "  used; 4 the run failed.";

std::optional<int> parse(int argc, char** argv, Options& options) {
  CLI::App app("Talks with a language model in a Husk artifact (.husk).", "husk-chat");
  app.add_option("FILE", options.file, "The artifact, model.husk")->required();
  app.add_option("--prompt", options.prompt, "One message, whose answer is printed");
  app.add_option("--system", options.system, "The first message, which says how to answer");
  app.add_flag("--plain", options.plain,
               "Continue texts, instead of answering messages in the form of a chat");
  app.add_option("--max-new-tokens", options.most,
                 "The most tokens of an answer; 0 means as many as there is room for")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option(
         "--temperature", options.temperature,
         "0 takes the most likely token; more draws tokens, the more evenly the larger it is")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--top-k", options.top_k, "Draw from so many tokens; 0 means no limit")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--top-p", options.top_p,
                 "Draw from the most likely tokens that have this probability together")
      ->check(CLI::Range(1e-6, 1.0));
  app.add_option("--min-p", options.min_p,
                 "Draw from the tokens whose probability is this part of the largest one or more")
      ->check(CLI::Range(0.0, 1.0));
  app.add_option("--repetition-penalty", options.repetition_penalty,
                 "More than 1 makes tokens that have come before less likely")
      ->check(CLI::PositiveNumber);
  app.add_option("--speculate", options.speculate,
                 "Try so many tokens together that followed the last ones earlier; answers stay "
                 "what they are")
      ->capture_default_str();
  app.add_option("--seed", options.seed, "Equal seeds give equal answers");
  app.add_option("--stop", options.stops, "A text that ends the answer; may be repeated")
      ->allow_extra_args(false);
  app.add_option("--device", options.device, "The device: " + run::device_names())
      ->capture_default_str();
  app.add_option("--threads", options.threads,
                 "Number of threads on the host; 0 means one for each CPU")
      ->capture_default_str();
  app.add_option("--weights", options.weights,
                 "The folder of weights that lie beside the artifact (default: that of the "
                 "artifact)")
      ->option_text("FOLDER");
  app.add_option("--adapter", options.adapter,
                 "An adapter (LoRA) for all answers: a folder with adapter_config.json and "
                 "adapter_model.safetensors")
      ->option_text("FOLDER");
  app.add_flag("--quiet", options.quiet, "Print no statistics");
  app.footer(footer);
  return tools::parse(app, argc, argv);
}

struct Release {
  void operator()(husk_generator* generator) const { husk_generator_release(generator); }
  void operator()(husk_chat* chat) const { husk_chat_release(chat); }
};

double milliseconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
      .count();
}

class Chat {
 public:
  Chat(run::Machine& machine, const Options& options)
      : options_(options), program_(machine.program_open(options.file)) {
    husk_generator_options generator_options = HUSK_GENERATOR_OPTIONS_INIT;
    generator_options.reuse_prefixes = 1;  // a message follows those before it
    husk_error error;
    husk_generator* generator = nullptr;
    check(husk_generator_create(machine.engine(), program_.get(), &generator_options, &generator,
                                &error),
          error, exit_load);
    generator_.reset(generator);
    if (!husk_generator_tokenizer(generator)) fail(exit_load, "{} has no tokenizer", options.file);
    if (!options.plain) {
      husk_chat* chat = nullptr;
      if (husk_generator_chat(generator, &chat, &error) != HUSK_OK)
        fail(exit_load, "{}: {}; --plain continues texts", options.file, error.text);
      chat_.reset(chat);
    }
    if (!options.adapter.empty()) {
      request_.adapter = 1;
      tools::set_adapter(generator, request_.adapter, options.adapter);
    }
    husk_generator_recommend(generator, &request_);
    if (options.temperature) request_.temperature = static_cast<float>(*options.temperature);
    if (options.top_k) request_.top_k = *options.top_k;
    if (options.top_p) request_.top_p = static_cast<float>(*options.top_p);
    if (options.min_p) request_.min_p = static_cast<float>(*options.min_p);
    if (options.repetition_penalty) {
      request_.repetition_penalty = static_cast<float>(*options.repetition_penalty);
    }
    request_.speculate = options.speculate;
    request_.seed = options.seed ? *options.seed : std::random_device()();
    request_.max_new_tokens = static_cast<uint64_t>(options.most);
    for (const std::string& stop : options.stops) stops_.push_back({stop.data(), stop.size()});
    request_.stops = stops_.data();
    request_.stop_count = stops_.size();
    request_.options = options.plain ? HUSK_TEXT_ADD_SPECIAL : 0;
    reset();
  }

  void reset() {
    text_.clear();
    if (!chat_) return;
    husk_chat_clear(chat_.get());
    if (!options_.system.empty()) add("system", options_.system);
  }

  // Whether a message is UTF-8; if not, says so.
  bool accepts(const std::string& message) const {
    husk_error error;
    size_t count = 0;
    const husk_status status = husk_tokenizer_encode(husk_generator_tokenizer(generator_.get()),
                                                     message.data(), message.size(),
                                                     HUSK_TEXT_PLAIN, nullptr, 0, &count, &error);
    if (status != HUSK_OK) fmt::print(stderr, "husk-chat: {}\n", error.text);
    return status == HUSK_OK;
  }

  // Prints the answer to a message.
  void answer(const std::string& message) {
    husk_error error;
    Answer answer;
    if (chat_) {
      add("user", message);
      check(husk_chat_text(chat_.get(), &request_.text, &request_.bytes, &error), error, exit_run);
    } else {
      text_ += message;
      request_.text = text_.data();
      request_.bytes = text_.size();
    }
    request_.part = print;
    request_.user = &answer;
    check(husk_generator_submit(generator_.get(), &request_, nullptr, &error), error, exit_run);
    for (int32_t more = 1; more;) {
      check(husk_generator_step(generator_.get(), &more, &error), error, exit_run);
    }
    fmt::print("\n");
    std::fflush(stdout);
    if (!answer.failure.empty()) fail(exit_run, "{}", answer.failure);
    if (answer.reason == HUSK_TEXT_LENGTH && (!options_.most || !answer.has_most(options_.most))) {
      fmt::print(stderr, "husk-chat: the chat has no room for more tokens: /new\n");
    }
    if (chat_) {
      add("assistant", answer.text);
    } else {
      text_ += answer.text;
    }
    if (!options_.quiet) answer.print_statistics();
  }

 private:
  // An answer as far as it has come, and when its tokens came.
  struct Answer {
    std::string text, failure;
    int32_t reason = HUSK_TEXT_GOES_ON;
    uint64_t tokens = 0, prompt = 0, reused = 0;
    std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now(), second;
    double first_ms = 0, rest_ms = 0;

    bool has_most(int64_t most) const { return tokens == static_cast<uint64_t>(most); }
    void print_statistics() const {
      fmt::print(stderr, "[{} tokens of the prompt, {} of them known; first token after {:.0f} ms",
                 prompt, reused, first_ms);
      const uint64_t count = tokens - (reason == HUSK_TEXT_END);  // the last one has no text
      if (count > 1) {
        fmt::print(stderr, "; {} tokens, {:.1f} a second", count,
                   1e3 * static_cast<double>(tokens - 1) / std::max(rest_ms, 1e-3));
      }
      fmt::print(stderr, "]\n");
    }
  };

  static int32_t print(void* user, const husk_text_part* part) {
    auto& answer = *static_cast<Answer*>(user);
    if (part->tokens == 1) {
      answer.first_ms = milliseconds_since(answer.begin);
      answer.second = std::chrono::steady_clock::now();
    }
    answer.text.append(part->text, part->bytes);
    answer.reason = part->reason;
    answer.tokens = part->tokens;
    answer.prompt = part->prompt;
    answer.reused = part->reused;
    if (part->why) answer.failure = part->why->text;
    answer.rest_ms = milliseconds_since(answer.second);
    if (part->bytes) {
      std::fwrite(part->text, 1, part->bytes, stdout);
      std::fflush(stdout);
    }
    return 0;
  }

  void add(const char* role, const std::string& content) {
    husk_error error;
    check(husk_chat_add(chat_.get(), role, content.data(), content.size(), &error), error,
          exit_run);
  }

  const Options& options_;
  run::Program program_;
  std::unique_ptr<husk_generator, Release> generator_;
  std::unique_ptr<husk_chat, Release> chat_;
  std::string text_;  // with --plain
  std::vector<husk_text_slice> stops_;
  husk_text_request request_ = HUSK_TEXT_REQUEST_INIT;
};

int talk(const Options& options) {
  run::MachineOptions machine_options;
  machine_options.tool = "husk-chat";
  machine_options.device = options.device;
  machine_options.threads = options.threads;
  machine_options.weights = options.weights;
  run::Machine machine(machine_options);
  Chat chat(machine, options);
  if (!options.prompt.empty()) {
    chat.answer(options.prompt);
    return 0;
  }
  const bool is_terminal = isatty(STDIN_FILENO);
  for (std::string line;;) {
    if (is_terminal) fmt::print("> ");
    std::fflush(stdout);
    if (!std::getline(std::cin, line) || line == "/quit") break;
    if (line == "/new") {
      chat.reset();
    } else if (!line.empty() && chat.accepts(line)) {
      chat.answer(line);
    }
  }
  return 0;
}

}  // namespace
}  // namespace husk::chat

int main(int argc, char** argv) {
  return husk::tools::guarded("husk-chat", husk::run::exit_run, [&] {
    husk::chat::Options options;
    if (const std::optional<int> code = husk::chat::parse(argc, argv, options)) return *code;
    if (std::find(options.stops.begin(), options.stops.end(), "") != options.stops.end()) {
      fmt::print(stderr, "husk-chat: --stop: an empty text would end each answer; see --help\n");
      return husk::tools::kUsageError;
    }
    try {
      return husk::chat::talk(options);
    } catch (const husk::run::RunError& error) {
      fmt::print(stderr, "husk-chat: {}\n", error.text);
      return static_cast<int>(error.code);
    }
  });
}
