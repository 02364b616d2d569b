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
  int32_t slot = -1;                     // while it has one
  int32_t token = -1;                    // the last one
  int64_t taken = 0;                     // how many tokens of the prompt the cache has
  int64_t reused = 0;                    // how many of them it had before
  int64_t count = 0;                     // how many tokens there are after the prompt
  husk_text_decoder* decoder = nullptr;  // null without a tokenizer
  HeldText held;

  int64_t length() const;  // of the prompt and what follows

  // Takes the next token, which may end the text: the result is HUSK_TEXT_*.
  Status add(const Model& model, int32_t next_token, int32_t* reason, husk_error* error);
  // Appends what the decoder has of a character that is not complete. A stop text may come of it.
  Status finish(int32_t* reason, husk_error* error);
  // Calls the application with what is certain, which is everything if the text has ended. Returns
  // whether the request goes on.
  bool give(int32_t part_token, float logprob, int32_t reason, const husk_error* why);

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
  bool samples() const { return sampling.temperature > 0 || gives_logprobs; }

  Request *before = nullptr, *after = nullptr;  // in the list of all requests
  Request* next_ending = nullptr;               // among those that a step ends
  uint64_t number = 0;
  bool is_cancelled = false;
  List<int32_t> prompt;
  Stops stops;
  Sampling sampling;
  uint64_t most = 0;  // tokens of a text; 0: no limit
  bool gives_logprobs = false, ignores_end = false;
  Sequence* sequences = nullptr;
  uint32_t count = 0;  // of sequences
  uint32_t left = 0;   // how many of them have not ended

 private:
  friend struct Sequence;
  Status read_prompt(const husk_text_request& from, const Model& model,
                     const husk_tokenizer* tokenizer, husk_error* error);
  Status read_sampling(const husk_text_request& from, husk_error* error);
  Status make_sequences(uint32_t wanted, const husk_tokenizer* tokenizer, husk_error* error);

  int32_t (*part_)(void* user, const husk_text_part* part) = nullptr;
  void* user_ = nullptr;
};

}  // namespace husk::text
