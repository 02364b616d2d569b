/** @file
 * Texts of language models for C++17: the functions of <husk/generate.h> and <husk/text.h> with
 * strings, functions of the application and exceptions. Header only; needs libhusk_text and
 * libhusk.
 *
 * @code
 * husk::Generator generator(engine, program);
 * std::string text = generator.generate("The capital of France is");
 * @endcode
 *
 * The rules about threads and lifetimes are those of generate.h. Each member function that calls
 * Husk throws Error if the call fails. */
#ifndef HUSK_GENERATE_HPP
#define HUSK_GENERATE_HPP

#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <husk/generate.h>
#include <husk/husk.hpp>

namespace husk {

/** How a text is generated, and who gets it. The fields that are numbers have the meaning and the
 * initial values of husk_text_request. */
struct TextRequest {
  std::string text;                         /**< The prompt, if there are no tokens. */
  std::vector<int32_t> tokens;              /**< The prompt as tokens. */
  uint32_t options = HUSK_TEXT_ADD_SPECIAL; /**< Those of husk_tokenizer_encode, for a text. */
  uint64_t max_new_tokens = 0;              /**< husk_text_request.max_new_tokens. */
  uint32_t samples = 1;                     /**< husk_text_request.samples. */
  float temperature = 0;                    /**< husk_text_request.temperature. */
  int64_t top_k = 0;                        /**< husk_text_request.top_k. */
  float top_p = 0;                          /**< husk_text_request.top_p. */
  float min_p = 0;                          /**< husk_text_request.min_p. */
  int64_t seed = 0;                         /**< husk_text_request.seed. */
  float repetition_penalty = 0;             /**< husk_text_request.repetition_penalty. */
  float presence_penalty = 0;               /**< husk_text_request.presence_penalty. */
  float frequency_penalty = 0;              /**< husk_text_request.frequency_penalty. */
  bool logprobs = false;                    /**< husk_text_request.logprobs. */
  uint32_t top_logprobs = 0;                /**< husk_text_request.top_logprobs. */
  uint32_t speculate = 0;                   /**< husk_text_request.speculate. */
  uint32_t adapter = 0;                     /**< husk_text_request.adapter. */
  std::vector<float> embeddings;            /**< The rows of images, as `image` gives them. */
  std::vector<float> features;              /**< husk_text_request.features. */
  std::vector<int32_t> decoder_tokens;      /**< husk_text_request.decoder_tokens. */
  bool ignore_end = false;                  /**< husk_text_request.ignore_end. */
  std::vector<std::string> stops;           /**< husk_text_request.stops. */
  /** Called for each part of each text; false cancels the request. An exception cancels it too, and
   * comes out of Generator::step. */
  std::function<bool(const husk_text_part&)> part;
  /** Called before each token, if it is set; false cancels the request. */
  std::function<bool(const husk_text_choice&)> allow;
};

/** Texts of one program. It cannot be moved, since requests refer to it. */
class Generator {
 public:
  /** husk_generator_create. The engine must outlive the generator. */
  Generator(const Engine& engine, const Program& program,
            const husk_generator_options& options = HUSK_GENERATOR_OPTIONS_INIT) {
    husk_generator* generator = nullptr;
    detail::check([&](husk_error* error) {
      return husk_generator_create(engine.get(), program.get(), &options, &generator, error);
    });
    handle_.reset(generator);
  }
  Generator(const Generator&) = delete;
  Generator& operator=(const Generator&) = delete;

  /** husk_generator_submit. Returns the number of the request. */
  uint64_t submit(TextRequest asked) {
    auto call = std::make_unique<Call>();
    call->generator = this;
    call->left = asked.samples ? asked.samples : 1;
    call->part = std::move(asked.part);
    call->allow = std::move(asked.allow);
    std::vector<husk_text_slice> stops;
    for (const std::string& stop : asked.stops) stops.push_back({stop.data(), stop.size()});
    husk_text_request request = HUSK_TEXT_REQUEST_INIT;
    request.options = asked.options;
    const bool has_prompt = asked.features.empty() || !asked.text.empty();
    if (asked.tokens.empty() && has_prompt) request.text = asked.text.data();
    request.bytes = asked.text.size();
    request.tokens = asked.tokens.data();
    request.token_count = asked.tokens.size();
    request.max_new_tokens = asked.max_new_tokens;
    request.samples = asked.samples;
    request.temperature = asked.temperature;
    request.top_k = asked.top_k;
    request.top_p = asked.top_p;
    request.min_p = asked.min_p;
    request.seed = asked.seed;
    request.repetition_penalty = asked.repetition_penalty;
    request.presence_penalty = asked.presence_penalty;
    request.frequency_penalty = asked.frequency_penalty;
    request.logprobs = asked.logprobs;
    request.top_logprobs = asked.top_logprobs;
    request.speculate = asked.speculate;
    request.adapter = asked.adapter;
    request.embeddings = asked.embeddings.data();
    if (!asked.embeddings.empty()) {
      const uint64_t width = images().width;
      request.embedding_count = width ? asked.embeddings.size() / width : asked.embeddings.size();
    }
    request.features = asked.features.data();
    request.feature_count = asked.features.size();
    request.decoder_tokens = asked.decoder_tokens.data();
    request.decoder_token_count = asked.decoder_tokens.size();
    request.ignore_end = asked.ignore_end;
    request.stops = stops.data();
    request.stop_count = stops.size();
    request.part = Call::give;
    if (call->allow) request.allow = Call::choose;
    request.user = call.get();
    Call* const key = call.get();
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      calls_.emplace(key, std::move(call));
    }
    uint64_t number = 0;
    husk_error error = {};
    if (husk_generator_submit(get(), &request, &number, &error) != HUSK_OK) {
      forget(key);
      throw Error(error);
    }
    return number;
  }
  /** husk_generator_images_get. */
  husk_text_images images() const {
    husk_text_images result = HUSK_TEXT_IMAGES_INIT;
    detail::check(
        [&](husk_error* error) { return husk_generator_images_get(get(), &result, error); });
    return result;
  }
  /** husk_generator_encoder_get. */
  husk_text_encoder encoder() const {
    husk_text_encoder result = HUSK_TEXT_ENCODER_INIT;
    detail::check(
        [&](husk_error* error) { return husk_generator_encoder_get(get(), &result, error); });
    return result;
  }
  /** husk_generator_image: the rows of embeddings of an image. */
  std::vector<float> image(const std::vector<float>& pixels) {
    const husk_text_images kind = images();
    std::vector<float> rows(static_cast<size_t>(kind.rows * kind.width) + 1);
    detail::check([&](husk_error* error) {
      return husk_generator_image(get(), pixels.data(), pixels.size(), rows.data(), rows.size(),
                                  error);
    });
    rows.pop_back();
    return rows;
  }
  /** husk_generator_adapter_count. */
  uint32_t adapter_count() const { return husk_generator_adapter_count(get()); }
  /** husk_generator_set_adapter: the content of adapter_model.safetensors and of
   * adapter_config.json. */
  void set_adapter(uint32_t adapter, const std::string& weights, const std::string& config) {
    detail::check([&](husk_error* error) {
      return husk_generator_set_adapter(get(), adapter, weights.data(), weights.size(),
                                        config.data(), config.size(), error);
    });
  }
  /** husk_generator_remove_adapter. */
  void remove_adapter(uint32_t adapter) {
    detail::check(
        [&](husk_error* error) { return husk_generator_remove_adapter(get(), adapter, error); });
  }
  /** husk_generator_cancel. Returns false if there is no such request, since it is done. */
  bool cancel(uint64_t number) { return husk_generator_cancel(get(), number, nullptr) == HUSK_OK; }
  /** husk_generator_step. Returns whether there are texts that have not ended. Throws also what a
   * function of a request has thrown. */
  bool step() {
    int32_t more = 0;
    husk_error error = {};
    const husk_status status = husk_generator_step(get(), &more, &error);
    if (thrown_) std::rethrow_exception(std::exchange(thrown_, nullptr));
    if (status != HUSK_OK) throw Error(error);
    return more != 0;
  }
  /** Finishes all requests. */
  void run() {
    while (step()) {
    }
  }
  /** Generates one text, and works on the other requests meanwhile. Throws Error if it fails. */
  std::string generate(TextRequest asked) {
    std::string text;
    bool is_done = false;
    const auto user = std::move(asked.part);
    asked.samples = 1;
    asked.part = [&](const husk_text_part& part) {
      is_done |= part.reason != HUSK_TEXT_GOES_ON;
      text.append(part.text, part.bytes);
      if (part.why) throw Error(*part.why);
      return !user || user(part);
    };
    const uint64_t number = submit(std::move(asked));
    try {
      while (!is_done) step();
    } catch (...) {
      // Its function must not be called after this one has ended.
      if (!is_done) finish(number, is_done);
      throw;
    }
    return text;
  }
  /** Generates the continuation of a text by the most likely tokens. */
  std::string generate(const std::string& prompt, uint64_t max_new_tokens = 0) {
    TextRequest request;
    request.text = prompt;
    request.max_new_tokens = max_new_tokens;
    return generate(std::move(request));
  }
  /** husk_generator_embed. */
  std::vector<float> embed(const std::vector<int32_t>& tokens, int32_t pooling = HUSK_TEXT_MEAN) {
    size_t count = 0;
    std::vector<float> numbers(4096);
    for (int i = 0; i < 2 && (i == 0 || count > numbers.size()); ++i) {
      if (i) numbers.resize(count);
      detail::check([&](husk_error* error) {
        return husk_generator_embed(get(), tokens.data(), tokens.size(), pooling, numbers.data(),
                                    numbers.size(), &count, error);
      });
    }
    numbers.resize(count);
    return numbers;
  }
  /** husk_tokenizer_encode with the tokenizer of the file. */
  std::vector<int32_t> encode(const std::string& text,
                              uint32_t options = HUSK_TEXT_ADD_SPECIAL) const {
    const husk_tokenizer* tokenizer = husk_generator_tokenizer(get());
    if (!tokenizer) throw Error(HUSK_UNSUPPORTED, "the file has no tokenizer");
    size_t count = 0;
    std::vector<int32_t> tokens(text.size() + 16);
    for (int i = 0; i < 2 && (i == 0 || count > tokens.size()); ++i) {
      if (i) tokens.resize(count);
      detail::check([&](husk_error* error) {
        return husk_tokenizer_encode(tokenizer, text.data(), text.size(), options, tokens.data(),
                                     tokens.size(), &count, error);
      });
    }
    tokens.resize(count);
    return tokens;
  }
  /** The text of a chat up to the beginning of an answer: pairs of a role and a content, by
   * husk_generator_chat. Give it to a request with the options 0. */
  std::string chat(const std::vector<std::pair<std::string, std::string>>& messages) const {
    husk_chat* created = nullptr;
    detail::check([&](husk_error* error) { return husk_generator_chat(get(), &created, error); });
    const std::unique_ptr<husk_chat, void (*)(husk_chat*)> owner(created, husk_chat_release);
    for (const auto& [role, content] : messages) {
      detail::check([&, role = role.c_str(), &text = content](husk_error* error) {
        return husk_chat_add(created, role, text.data(), text.size(), error);
      });
    }
    const char* text = nullptr;
    size_t bytes = 0;
    detail::check([&](husk_error* error) { return husk_chat_text(created, &text, &bytes, error); });
    return {text, bytes};
  }
  /** husk_generator_stats_get. */
  husk_generator_stats stats() {
    husk_generator_stats out = HUSK_GENERATOR_STATS_INIT;
    detail::check([&](husk_error* error) { return husk_generator_stats_get(get(), &out, error); });
    return out;
  }
  /** Returns the handle. */
  husk_generator* get() const { return handle_.get(); }

 private:
  // The functions of one request.
  struct Call {
    Generator* generator = nullptr;
    uint32_t left = 0;  // texts that have not ended
    std::function<bool(const husk_text_part&)> part;
    std::function<bool(const husk_text_choice&)> allow;

    static int32_t give(void* user, const husk_text_part* part) {
      auto* call = static_cast<Call*>(user);
      Generator* const generator = call->generator;
      bool goes_on = false;
      try {
        goes_on = !call->part || call->part(*part);
      } catch (...) {
        if (!generator->thrown_) generator->thrown_ = std::current_exception();
      }
      if (part->reason != HUSK_TEXT_GOES_ON && --call->left == 0) generator->forget(call);
      return goes_on ? 0 : 1;
    }
    static int32_t choose(void* user, const husk_text_choice* choice) {
      auto* call = static_cast<Call*>(user);
      try {
        return call->allow(*choice) ? 0 : 1;
      } catch (...) {
        if (!call->generator->thrown_) call->generator->thrown_ = std::current_exception();
        return 1;
      }
    }
  };
  struct Release {
    void operator()(husk_generator* generator) const { husk_generator_release(generator); }
  };

  void forget(Call* call) {
    const std::lock_guard<std::mutex> lock(mutex_);
    calls_.erase(call);
  }
  // Cancels a request, and steps until its end has come.
  void finish(uint64_t number, const bool& is_done) {
    cancel(number);
    for (int i = 0; i < 3 && !is_done; ++i) {
      (void)husk_generator_step(get(), nullptr, nullptr);
    }
  }

  std::mutex mutex_;
  std::unordered_map<Call*, std::unique_ptr<Call>> calls_;
  std::exception_ptr thrown_;                        // of the thread that steps
  std::unique_ptr<husk_generator, Release> handle_;  // released before what it calls
};

}  // namespace husk

#endif
