// The language model for tests as a program, and what it must generate.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <husk/generate.h>

#include "language_model.h"

namespace husk::test {

struct Release {
  void operator()(husk_engine* engine) const { husk_engine_release(engine); }
  void operator()(husk_program* program) const { husk_program_release(program); }
  void operator()(husk_generator* generator) const { husk_generator_release(generator); }
  void operator()(husk_chat* chat) const { husk_chat_release(chat); }
};
using Generator = std::unique_ptr<husk_generator, Release>;

// The parts of the file that a test changes.
struct ModelFile {
  bool has_tokenizer = true, has_roles = true, has_template = true, is_model = true,
       has_copy = true, has_controls = true, has_verify = true, has_single = true, has_few = true,
       has_adapters = false, has_states = false;
  int pages = 0;                        // of the cache; 0: each slot has a row
  int page = LM_PAGE;                   // in the metadata
  int images = 0;                       // LM_PLAIN and others; 0: none
  int encoder = 0;                      // LM_OF_TOKENS or LM_OF_FEATURES; 0: none
  const char* image_entry = nullptr;    // of the metadata, if it is not that of `images`
  const char* encoder_entry = nullptr;  // the same of `encoder`
  bool on_device = false;               // for the CUDA port on the fake driver
};

// The bytes of the file.
std::vector<uint8_t> artifact_of(const ModelFile& file);

class LoadedModel {
 public:
  explicit LoadedModel(const ModelFile& file = {}, const husk_port* port = nullptr);

  Generator generator(const husk_generator_options& options = HUSK_GENERATOR_OPTIONS_INIT) const;
  husk_status create(const husk_generator_options& options, husk_generator** generator,
                     husk_error* error) const {
    return husk_generator_create(engine_.get(), program_.get(), &options, generator, error);
  }

 private:
  std::unique_ptr<void, void (*)(void*)> bytes_;
  std::unique_ptr<husk_engine, Release> engine_;
  std::unique_ptr<husk_program, Release> program_;
};

// What a request gives.
struct Wanted {
  std::vector<int32_t> prompt;
  uint64_t most = 0;
  float temperature = 0, top_p = 0, min_p = 0;
  float repetition = 1, presence = 0, frequency = 0;
  int64_t top_k = 0, seed = 0;
  uint32_t speculate = 0;
  uint32_t mask = 0;  // 0: none
  uint32_t adapter = 0;
  // Of the adapter (lm_salt), of the tokens after images, or of the encoder's input.
  int32_t salt = 0;
  std::vector<int32_t> salts;     // of each token of the prompt, if they differ
  std::vector<float> embeddings;  // of its images
  std::vector<std::string> stops;
};
struct Text {
  std::vector<int32_t> tokens;
  std::vector<float> logits;
  std::string text;
  int32_t reason = HUSK_TEXT_GOES_ON;
  bool operator==(const Text& other) const {
    return tokens == other.tokens && text == other.text && reason == other.reason;
  }
};

// Whether a mask lets a token come after `count` tokens of a text.
inline bool is_allowed(uint32_t mask, size_t count, int32_t token) {
  return (static_cast<uint32_t>(token) * 2654435761u >> 7) % 5 != (mask + count) % 5;
}

// The text of a request, computed without a program, in another way than the library does it.
Text right_text(const Wanted& wanted, uint32_t sample = 0);

}  // namespace husk::test
