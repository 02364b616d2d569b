// A request, and the texts that it asks for.
#pragma once

#include "text/model.h"
#include "text/stops.h"

namespace husk::text {

struct Request;

// One text of a request.
struct Sequence {
  Sequence() = default;
  Sequence(const Sequence&) = delete;
  ~Sequence() { husk_text_decoder_release(decoder); }

  Request* request = nullptr;
  Sequence* next = nullptr;  // the one that waits for a slot after this one
  uint32_t sample = 0;
  bool has_ended = false;
  int32_t slot = -1;   // while it has one
  int32_t token = -1;  // the last one
  int64_t taken = 0;   // how many tokens of the prompt the cache has
  int64_t reused = 0;  // how many of them it had before
  // With pages: whether it waits for some, and whether the cache lacks tokens of a text that has
  // begun. Then `taken` counts all tokens but the last one.
  bool is_paused = false, is_behind = false;
  int64_t count = 0;                     // how many tokens there are after the prompt
  int64_t drafted = 0;                   // how many tokens are tried with the next one
  int64_t most_drafted = 0;              // how many may be, according to those before
  husk_text_decoder* decoder = nullptr;  // null without a tokenizer
  HeldText held;

  int64_t length() const;  // of the prompt and what follows
  // Whether the cache has all tokens but the last one.
  bool decodes() const { return count > 0 && !is_behind; }

  // Takes the next token, which may end the text: the result is HUSK_TEXT_*.
  Status add(const Model& model, int32_t next_token, int32_t* reason, husk_error* error);
  // Appends what the decoder has of a character that is not complete. A stop text may come of it.
  Status finish(int32_t* reason, husk_error* error);
  // Calls the application with what is certain, which is everything if the text has ended. Returns
  // whether the request goes on.
  bool give(const Chosen& chosen, int32_t reason, const husk_error* why);

 private:
  Status append(const char* text, size_t bytes, int32_t* reason, husk_error* error);
};

struct Request {
  Request() = default;
  Request(const Request&) = delete;
  ~Request();

  // Checks and copies what the application asks for.
  Status read(const husk_text_request& from, const Model& model, const husk_tokenizer* tokenizer,
              husk_error* error);
  Sampling sampling_of(const Sequence& sequence) const;
  bool adjusts() const {
    return controls.repetition != 1 || controls.presence != 0 || controls.frequency != 0 ||
           has_mask();
  }
  Wanted wanted() const {
    return {sampling.temperature > 0 || gives_logprobs, adjusts(),
            top > 0 || (gives_logprobs && adjusts())};
  }
  bool has_mask() const { return allow_ != nullptr; }
  // Asks the application for the mask of the next token. Returns whether the request goes on.
  bool ask(const Sequence& sequence, const int32_t* tokens, uint32_t* allowed, size_t words) const;

  Request *before = nullptr, *after = nullptr;  // in the list of all requests
  Request* next_ending = nullptr;               // among those that a step ends
  uint64_t number = 0;
  bool is_cancelled = false;
  List<int32_t> prompt;
  PromptImages images;
  Source source;  // what the encoder takes, which has the prompt then
  Stops stops;
  Sampling sampling;
  Controls controls;
  uint32_t top = 0;        // of the most likely tokens, whose log-probabilities are given
  int64_t speculated = 0;  // tokens that may be tried together
  uint64_t most = 0;       // tokens of a text; 0: no limit
  uint32_t adapter = 0;    // 0: none
  uint64_t version = 0;    // of the adapter; 0: it has none
  bool gives_logprobs = false, ignores_end = false;
  Sequence* sequences = nullptr;
  uint32_t count = 0;  // of sequences
  uint32_t left = 0;   // how many of them have not ended

 private:
  friend struct Sequence;
  Status read_prompt(const husk_text_request& from, const Model& model,
                     const husk_tokenizer* tokenizer, husk_error* error);
  Status read_sampling(const husk_text_request& from, husk_error* error);
  Status read_controls(const husk_text_request& from, const Model& model, husk_error* error);
  Status read_adapter(const husk_text_request& from, const Model& model, husk_error* error);
  Status make_sequences(uint32_t wanted, const husk_tokenizer* tokenizer, husk_error* error);

  int32_t (*part_)(void* user, const husk_text_part* part) = nullptr;
  int32_t (*allow_)(void* user, const husk_text_choice* choice) = nullptr;
  void* user_ = nullptr;
};

}  // namespace husk::text
