// husk-chat: a chat with a language model in the terminal.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <memory>
#include <random>

#include <husk/text.h>

#include "chat/language_model.h"
#include "command_line.h"
#include "run/run_error.h"

namespace husk::chat {
namespace {

using run::check;
using run::exit_load;
using run::exit_run;
using run::fail;

struct Options {
  std::string file, device = "host", system, prompt, weights;
  std::vector<std::string> stops;
  uint32_t threads = 0;
  int64_t most = 0;
  std::optional<double> temperature, top_p;
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
  app.add_flag("--quiet", options.quiet, "Print no statistics");
  app.footer(footer);
  return tools::parse(app, argc, argv);
}

struct Release {
  void operator()(husk_tokenizer* tokenizer) const { husk_tokenizer_release(tokenizer); }
  void operator()(husk_text_decoder* decoder) const { husk_text_decoder_release(decoder); }
  void operator()(husk_chat* chat) const { husk_chat_release(chat); }
};

double milliseconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
      .count();
}

class Chat {
 public:
  Chat(run::Machine& machine, const Options& options)
      : options_(options), model_(machine, options.file) {
    husk_error error;
    const char* tokenizer = model_.text("tokenizer");
    if (!tokenizer) fail(exit_load, "{} has no tokenizer", options.file);
    husk_tokenizer* created = nullptr;
    check(husk_tokenizer_create(tokenizer, std::strlen(tokenizer), &created, &error), error,
          exit_load);
    tokenizer_.reset(created);
    if (!options.plain) open_chat();
    sampling_ = model_.description().sampling;
    if (options.temperature) sampling_.temperature = *options.temperature;
    if (options.top_k) sampling_.top_k = *options.top_k;
    if (options.top_p) sampling_.top_p = *options.top_p;
    sampling_.seed = options.seed ? *options.seed : std::random_device()();
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
    const husk_status status = husk_tokenizer_encode(tokenizer_.get(), message.data(),
                                                     message.size(), HUSK_TEXT_PLAIN, nullptr, 0,
                                                     &count, &error);
    if (status != HUSK_OK) fmt::print(stderr, "husk-chat: {}\n", error.text);
    return status == HUSK_OK;
  }

  // Prints the answer to a message.
  void answer(const std::string& message) {
    const auto begin = std::chrono::steady_clock::now();
    if (chat_) {
      add("user", message);
    } else {
      text_ += message;
    }
    const std::vector<int32_t> prompt = tokens();
    std::string answer;
    const size_t count = generate(prompt, begin, answer);
    if (chat_) {
      add("assistant", answer);
    } else {
      text_ += answer;
    }
    fmt::print("\n");
    std::fflush(stdout);
    if (!options_.quiet) print_statistics(prompt.size(), count);
  }

 private:
  void open_chat() {
    const char* roles = model_.text("roles");
    if (!roles) {
      fail(exit_load, "{} {}: husk.text.load does it in Python, and --plain continues texts",
           options_.file,
           model_.text("chat_template") ? "has a chat template of a form that only Jinja fills in"
                                        : "has no chat template");
    }
    husk_error error;
    husk_chat* created = nullptr;
    check(husk_chat_create(roles, std::strlen(roles), &created, &error), error, exit_load);
    chat_.reset(created);
  }

  void add(const char* role, const std::string& content) {
    husk_error error;
    check(husk_chat_add(chat_.get(), role, content.data(), content.size(), &error), error,
          exit_run);
  }

  std::vector<int32_t> tokens() {
    husk_error error;
    const char* text = text_.data();
    size_t bytes = text_.size(), count = 0;
    if (chat_) check(husk_chat_text(chat_.get(), &text, &bytes, &error), error, exit_run);
    const uint32_t options = chat_ ? 0 : HUSK_TEXT_ADD_SPECIAL;
    std::vector<int32_t> found(bytes + 16);
    check(husk_tokenizer_encode(tokenizer_.get(), text, bytes, options, found.data(), found.size(),
                                &count, &error),
          error, exit_run);
    found.resize(count);
    return found;
  }

  // Generates an answer and prints it as it comes; returns the number of its tokens.
  size_t generate(const std::vector<int32_t>& prompt, std::chrono::steady_clock::time_point begin,
                  std::string& answer) {
    husk_error error;
    husk_text_decoder* created = nullptr;
    check(husk_text_decoder_create(tokenizer_.get(), HUSK_TEXT_SKIP_SPECIAL, &created, &error),
          error, exit_run);
    const std::unique_ptr<husk_text_decoder, Release> decoder(created);
    const std::vector<int32_t>& ends = model_.description().ends;
    size_t count = 0, printed = 0;
    std::optional<int32_t> token = model_.begin(prompt, sampling_);
    first_ = milliseconds_since(begin);
    const auto second = std::chrono::steady_clock::now();
    bool stopped = false;
    while (token && std::find(ends.begin(), ends.end(), *token) == ends.end()) {
      ++count;
      const char* text = nullptr;
      size_t bytes = 0;
      check(husk_text_decoder_push(decoder.get(), *token, &text, &bytes, &error), error, exit_run);
      answer.append(text, bytes);
      stopped = stop(answer, printed);
      if (stopped || (options_.most && static_cast<int64_t>(count) == options_.most)) break;
      token = model_.next(sampling_);
    }
    rest_ = milliseconds_since(second);
    if (!stopped) {
      const char* text = nullptr;
      size_t bytes = 0;
      check(husk_text_decoder_finish(decoder.get(), &text, &bytes, &error), error, exit_run);
      answer.append(text, bytes);
    }
    print(answer, printed, answer.size());
    if (!token) fmt::print(stderr, "\nhusk-chat: the chat has no room for more tokens: /new\n");
    return count;
  }

  // Prints what cannot become a text that ends the answer any more. Cuts the answer at such a text.
  bool stop(std::string& answer, size_t& printed) const {
    size_t safe = answer.size();
    for (const std::string& text : options_.stops) {
      const size_t at = answer.find(text, printed);
      if (at != std::string::npos) {
        answer.resize(at);
        return true;
      }
      for (size_t length = std::min(text.size() - 1, answer.size() - printed); length; --length) {
        if (answer.compare(answer.size() - length, length, text, 0, length) == 0) {
          safe = std::min(safe, answer.size() - length);
          break;
        }
      }
    }
    print(answer, printed, safe);
    return false;
  }

  static void print(const std::string& answer, size_t& printed, size_t end) {
    if (end <= printed) return;
    std::fwrite(answer.data() + printed, 1, end - printed, stdout);
    std::fflush(stdout);
    printed = end;
  }

  void print_statistics(size_t prompt, size_t count) const {
    fmt::print(stderr, "[{} tokens of the prompt, {} of them known; first token after {:.0f} ms",
               prompt, model_.reused(), first_);
    if (count > 1) {
      fmt::print(stderr, "; {} tokens, {:.1f} a second", count,
                 1e3 * static_cast<double>(count - 1) / std::max(rest_, 1e-3));
    }
    fmt::print(stderr, "]\n");
  }

  const Options& options_;
  LanguageModel model_;
  std::unique_ptr<husk_tokenizer, Release> tokenizer_;
  std::unique_ptr<husk_chat, Release> chat_;
  std::string text_;  // with --plain
  Sampling sampling_;
  double first_ = 0, rest_ = 0;  // milliseconds
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
