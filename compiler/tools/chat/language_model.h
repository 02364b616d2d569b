// One sequence of a language model that `python -m husk llm` has exported.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "run/handles.h"
#include "run/machine.h"

namespace husk::chat {

struct Sampling {
  double temperature = 0;
  int64_t top_k = 0;
  double top_p = 1;
  int64_t seed = 0;
};

// The model, as the metadata of the file describe it.
struct Description {
  int64_t max_tokens = 0, slots = 0, chunk = 0;
  std::vector<int32_t> ends;  // the tokens that end a text
  // The settings that the model's author recommends.
  Sampling sampling;
};

class LanguageModel {
 public:
  // Throws RunError if the file is no language model.
  LanguageModel(run::Machine& machine, const std::string& path);

  const Description& description() const { return description_; }
  // An entry husk.text.NAME of the metadata; nullptr if there is none.
  const char* text(const std::string& name) const;

  // Replaces the sequence by `tokens`, of which the model takes those that are new. Returns the
  // next token.
  int32_t begin(const std::vector<int32_t>& tokens, const Sampling& sampling);
  // Appends the token that was returned last, and returns the next one. Empty if the sequence has
  // no room for it.
  std::optional<int32_t> next(const Sampling& sampling);
  // How many tokens of the last `begin` the cache had already.
  size_t reused() const { return reused_; }

 private:
  struct Array;

  uint32_t function(const char* name) const;
  int64_t span(int64_t end) const;
  void call(uint32_t function, std::vector<husk_value>& inputs, std::vector<husk_value>& outputs);
  int32_t token_of(std::vector<husk_value>& outputs, const Sampling& sampling);
  int32_t download(const DLTensor& tensor);

  run::Machine& machine_;
  std::string path_;
  run::Program program_;
  run::Session session_;
  uint32_t prefill_, decode_, sample_;
  Description description_;
  std::vector<int32_t> sequence_;  // the tokens whose keys and values the cache has
  int32_t last_ = 0;               // the token that was returned last
  size_t reused_ = 0;
  void *tokens_, *positions_, *settings_;  // memory of the device for inputs
};

}  // namespace husk::chat
