// A language model that `python -m husk llm` has exported: what its metadata say, a session, and
// the runs of its functions.
#pragma once

#include <husk/generate.h>

#include "text/json.h"

namespace husk::text {

// How the next token of a row is drawn.
struct Sampling {
  float temperature = 0, top_p = 1;
  int64_t top_k = 0, seed = 0;
};

uint64_t nanoseconds_now();

// An entry `name` of the metadata of a file; null if there is none.
const char* metadata(const husk_program* program, const char* name);

class Model {
 public:
  Model() = default;
  Model(const Model&) = delete;
  ~Model();

  Status open(husk_engine* engine, husk_program* program, const husk_session_options* options,
              husk_error* error);

  // These fields are those of the artifact's metadata.
  int64_t max_tokens = 0, slots = 0, chunk = 0, vocabulary = 0;
  List<int32_t> ends;        // the tokens that end a text
  Sampling recommended;      // by the model's author
  uint64_t nanoseconds = 0;  // of all runs

  // The rows of the next run: row number i is the sequence in slot i, or the only one of `prefill`.
  // `clear` makes all rows such that take no part.
  void clear();
  void set_token(int64_t row, int64_t token, int64_t position);
  // The row gets a token that is drawn, at a position of its random numbers.
  void set_sampling(int64_t row, const Sampling& sampling, int64_t position);

  // Takes tokens of a prompt, of which the first is at `position` of the slot.
  Status prefill(const int32_t* tokens, int64_t count, int64_t slot, int64_t position,
                 husk_error* error);
  // Takes a token of each of the first `rows` slots. `end` is one more than the largest position.
  Status decode(int64_t rows, int64_t end, husk_error* error);
  // Reads the tokens that follow the last run, for its rows; with `samples`, those that are drawn,
  // and their log-probabilities.
  Status finish(int64_t rows, bool samples, husk_error* error);
  int32_t token(int64_t row) const;
  float logprob(int64_t row) const;
  // Whether the caches may have changed in the call that failed last.
  bool is_damaged() const { return is_damaged_; }

 private:
  // The columns of the rows lie one after the other in one block of memory, so that one copy brings
  // them to the device.
  enum Column { kTokens, kPositions, kTopK, kSeeds, kDraws, kTemperature, kTopP, kColumns };
  // Likewise what comes back.
  enum Found { kNext, kLogprobs, kFounds };

  Status describe(const husk_program* program, husk_error* error);
  Status find_functions(const husk_program* program, husk_error* error);
  Status allocate(husk_error* error);
  Status run(uint32_t function, const husk_value* inputs, uint32_t count, husk_value* outputs,
             husk_error* error);
  Status upload(void* to, const void* from, size_t bytes, husk_error* error);
  Status upload_rows(husk_error* error);
  husk_value tensor(DLTensor& tensor, void* memory, int64_t* size, DLDataType type) const;
  husk_value column(DLTensor& tensor, Column which, int64_t* rows) const;
  husk_value span(int64_t end) const;
  char* host(Column which) const { return rows_ + static_cast<size_t>(which) * column_bytes_; }

  husk_engine* engine_ = nullptr;
  husk_session* session_ = nullptr;
  void* stream_ = nullptr;
  DLDevice device_ = {};
  uint32_t prefill_ = 0, decode_ = 0, sample_ = 0;
  size_t column_bytes_ = 0;
  char* rows_ = nullptr;       // the columns, in host memory
  char* found_ = nullptr;      // what has come back
  int64_t* prompt_ = nullptr;  // the tokens of a chunk
  void *device_rows_ = nullptr, *device_found_ = nullptr, *device_prompt_ = nullptr;
  DLTensor* logits_ = nullptr;  // of the last run, in memory of the session
  bool has_rows_ = false;       // the device has the columns
  bool is_damaged_ = false;
};

}  // namespace husk::text
