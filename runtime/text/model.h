// A language model that `python -m husk llm` has exported: what its metadata say, a session, and
// the runs of its functions.
#pragma once

#include <husk/generate.h>

#include "text/encoder.h"
#include "text/images.h"
#include "text/json.h"

namespace husk::text {

// How the next token of a row is drawn.
struct Sampling {
  float temperature = 0, top_p = 1, min_p = 0;
  int64_t top_k = 0, seed = 0;
};

// These settings change the logits of a row before a token is drawn.
struct Controls {
  float repetition = 1, presence = 0, frequency = 0;
};

// The token of a row, and the most likely ones.
struct Chosen {
  int32_t token = -1;
  float logprob = 0;
  uint32_t top_count = 0;
  const int32_t* top_tokens = nullptr;
  const float* top_logprobs = nullptr;
};

// `Model::finish` computes these from logits, beside the most likely token.
struct Wanted {
  bool samples = false, adjusts = false, ranks = false;

  void add(const Wanted& other) {
    samples |= other.samples;
    adjusts |= other.adjusts;
    ranks |= other.ranks;
  }
};

uint64_t nanoseconds_now();

// An entry `name` of the metadata of a file; null if there is none.
const char* metadata(const husk_program* program, const char* name);

// The error of a file that lacks something that each language model has.
Status no_model(husk_error* error, const char* lack);

class Model {
 public:
  Model() = default;
  Model(const Model&) = delete;
  ~Model();

  // `most_runs` is how many runs a batch may have; 0: as the device needs.
  Status open(husk_engine* engine, husk_program* program, const husk_session_options* options,
              int64_t most_runs, husk_error* error);

  // These fields are those of the artifact's metadata.
  int64_t max_tokens = 0, slots = 0, chunk = 0, vocabulary = 0;
  int64_t verified = 0;  // tokens of a slot that `verify` takes; 0: the file has no such function
  int64_t adapter_count = 0, adapter_rank = 0;  // 0: the file has none
  int64_t ranked = 0;  // the most likely tokens that `rank` gives; 0: the file has no such function
  // The most likely tokens from which `sample_few` draws; 0: the file has no such function.
  int64_t candidates = 0;
  // Whether slots have states, which belong to the number of tokens that a slot has taken: a cache
  // is of use for a prompt that begins with all its tokens, and not for one that begins with some.
  bool has_states = false;
  // The keys and values of sequences are in so many pages, of so many positions each; 0: each slot
  // has a cache of its own.
  int64_t pages = 0, page = 0;
  // Whether slots have rows of their own beside pages, which `copy_page` copies.
  bool has_rows() const { return has_states || encoder.exists(); }
  // How many pages the longest sequence has.
  int64_t columns() const { return (max_tokens + page - 1) / page; }
  ImageKind images;
  EncoderKind encoder;
  // How many runs of `decode` a batch may have, whose tokens are read together.
  int64_t most_runs = 1;
  // Whether the tokens of a batch can be read while the device computes the next one. There are two
  // blocks of rows then: runs from 0 on, and from `most_runs` on.
  bool has_marks = false;
  List<int32_t> ends;        // the tokens that end a text
  Sampling recommended;      // by the model's author
  uint64_t nanoseconds = 0;  // of all runs

  // Refuses numbers that no token has.
  Status check_tokens(const int32_t* tokens, size_t count, husk_error* error) const;

  // The rows of the next run: row number i is the sequence in slot i, or the only one of `prefill`
  // and `decode_single`.
  // `clear` makes all rows of run number `run` such that take no part.
  void clear(int64_t run = 0);
  void set_token(int64_t row, int64_t token, int64_t position);
  // The row has an adapter; after `clear` it has none.
  void set_adapter(int64_t row, int64_t adapter);
  // This is added to the position of the row that the model sees; after `clear` it is 0.
  void set_shift(int64_t row, int64_t shift);
  // The row reads so many positions of the encoder; after `clear` it reads one.
  void set_source(const Source& source);
  // The slot has these pages; after `clear` it has none.
  void set_pages(int64_t slot, const int32_t* numbers, int64_t count);
  // The row gets a token that is drawn, at a position of its random numbers.
  void set_sampling(int64_t row, const Sampling& sampling, int64_t position);
  // The row has these tokens already, of which the first ones are its prompt. They are read by
  // `finish`.
  void set_controls(int64_t row, const Controls& controls, const int32_t* tokens, int64_t count,
                    int64_t prompt);
  // The bits of the tokens that a row may get; those of all tokens are set after `clear`.
  uint32_t* allowed(int64_t row);
  size_t allowed_words() const { return (static_cast<size_t>(vocabulary) + 31) / 32; }
  bool allows_any(int64_t row);
  // Sets the rows of a batch of so many runs, `most_runs` at most, of which the rows above are the
  // first: each takes the next position of every sequence. The batch is read, or `settle` is
  // called, before rows of the same block are changed.
  void repeat_rows(int64_t runs);

  // Runs the encoder for a slot.
  Status encode(const Source& source, int64_t slot, husk_error* error);
  // Takes tokens of a prompt, of which the first is at `position` of the slot.
  Status prefill(const int32_t* tokens, int64_t count, int64_t slot, int64_t position,
                 int64_t adapter, husk_error* error);
  // Takes tokens of a prompt from `begin` to `end`, of which some are those of images.
  Status prefill_images(const int32_t* tokens, int64_t begin, int64_t end, int64_t slot,
                        const PromptImages& from, husk_error* error);
  // Writes the rows of embeddings of an image.
  Status image(const float* pixels, float* rows, husk_error* error);
  // Takes a token of each of the first `rows` slots, in run number `run`. `end` is one more than
  // the largest position. The tokens are those that run number `from` has chosen, on the device, or
  // those of the rows.
  static constexpr int64_t kRows = -1;
  Status decode(int64_t rows, int64_t end, int64_t run, int64_t from, husk_error* error);
  // The same for the token of one slot, which has row 0, by a function for a single row.
  bool decodes_single() const { return single_ != kNoFunction; }
  Status decode_single(int64_t slot, int64_t end, int64_t run, int64_t from, husk_error* error);
  // Takes `count` tokens (2 and more) of each of the first `rows` slots, of which the first one is
  // at the position of the slot's row. Row number i * count + k is what follows token k of slot i.
  Status verify(int64_t rows, int64_t count, int64_t end, husk_error* error);
  void set_position(int64_t row, int64_t position);
  // Sets token number k of a slot for `verify`.
  void set_token_of(int64_t slot, int64_t k, int64_t count, int64_t token);
  bool embeds() const { return embed_ != kNoFunction; }
  // Writes the mean of the hidden states of a text, or that of its last token.
  Status embed(const int32_t* tokens, int64_t count, bool last, float* to, size_t capacity,
               size_t* size, husk_error* error);
  // Gives `slot` what `source` has at `count` positions from `position` on, if the file can.
  bool copies() const { return copy_ != kNoFunction; }
  Status copy(int64_t source, int64_t slot, int64_t position, int64_t count, husk_error* error);
  // Gives a page what another one has, and `slot` the rows of `from`, in a file with pages.
  Status copy_page(int64_t source, int64_t number, int64_t from, int64_t slot, husk_error* error);
  bool controls() const { return adjust_ != kNoFunction && rank_ != kNoFunction; }
  // Chooses the tokens that follow the last run, for its rows, as run number `run`.
  // Log-probabilities are those of the model's logits, and come with `samples`, if nothing adjusts
  // these, or with `ranks`.
  Status choose(int64_t rows, const Wanted& wanted, int64_t run, husk_error* error);
  // Enqueues that the host gets what the `runs` runs from `first` on have chosen, if the device can
  // go on meanwhile.
  Status send(int64_t rows, const Wanted& wanted, int64_t first, int64_t runs, husk_error* error);
  // Waits until the host has what was sent, while the device computes what comes after it; or reads
  // it, if it was not sent.
  Status receive(int64_t rows, const Wanted& wanted, int64_t first, int64_t runs,
                 husk_error* error);
  // Waits for all runs and copies, whatever becomes of them. A mark makes the session wait for
  // copies that no run has followed.
  void settle() {
    if (has_marks) (void)husk_session_mark(session_, 0, nullptr);
    (void)husk_session_wait(session_, nullptr);
  }
  // Chooses and reads the tokens that follow a run alone.
  Status finish(int64_t rows, const Wanted& wanted, husk_error* error);
  // The choice of a run. Valid until the next call. `top` is how many of the most likely tokens it
  // has, at most `ranked`.
  Chosen chosen(int64_t row, uint32_t top, int64_t run = 0);
  // Whether the caches may have changed in the call that failed last.
  bool is_damaged() const { return is_damaged_; }

 private:
  // The columns of the rows of a run lie one after the other, and so do those of the runs of a
  // batch, so that one copy brings them to the device.
  enum Column {
    kTokens,
    kPositions,
    kTopK,
    kSeeds,
    kDraws,
    kAdapters,
    kShifts,
    kTemperature,
    kTopP,
    kMinP,
    // These belong to `adjust`.
    kLengths,
    kPrompts,
    kRepetition,
    kPresence,
    kFrequency,
    kColumns
  };
  // Likewise what comes back.
  enum Found { kNext, kLogprobs, kFounds };

  // How many rows of logits a run may have.
  int64_t most_rows() const { return verified ? slots * verified : slots; }
  Status describe(const husk_program* program, husk_error* error);
  Status find_functions(const husk_program* program, husk_error* error);
  Status find_marks(husk_error* error);
  Status allocate(husk_error* error);
  // Host memory, all zeros, that copies use while the host goes on, if `has_marks`.
  Status allocate_on_host(size_t bytes, void** memory, husk_error* error);
  void free_on_host(void* memory);
  Status allocate_controls(husk_error* error);
  Status allocate_images(husk_error* error);
  Status allocate_source(husk_error* error);
  Status allocate_pages(husk_error* error);
  Status upload_pages(int64_t first, int64_t rows, int64_t end, int64_t run, int64_t* sizes,
                      husk_error* error);
  // Waits for all runs and reads what the `runs` ones from `first` on have chosen. Only one run has
  // `ranks`.
  Status read(int64_t rows, const Wanted& wanted, int64_t first, int64_t runs, husk_error* error);
  Status adjust(int64_t rows, DLTensor** logits, husk_error* error);
  Status rank(int64_t rows, int64_t run, husk_error* error);
  bool draws_from_few(int64_t rows) const;
  Status sample(int64_t rows, DLTensor* logits, int64_t run, husk_error* error);
  Status run(uint32_t function, const husk_value* inputs, uint32_t count, husk_value* outputs,
             uint32_t output_count, husk_error* error);
  Status resize(uint32_t function, const husk_value* inputs, uint32_t count, husk_error* error);
  Status upload(void* to, const void* from, size_t bytes, husk_error* error);
  Status upload_rows(husk_error* error);
  Status copy_bytes(void* to, const void* from, size_t bytes, husk_error* error);
  husk_value tensor(DLTensor& tensor, void* memory, int64_t* size, DLDataType type) const;
  husk_value table(DLTensor& tensor, void* memory, int64_t* sizes, DLDataType type) const;
  husk_value column(DLTensor& tensor, Column which, int64_t* rows, int64_t run = 0) const;
  husk_value found(DLTensor& tensor, Found which, int64_t* rows, int64_t run = 0) const;
  // The input that tells a function the positions that it reads: their number, or a table of pages.
  struct Seen {
    DLTensor tensor;
    int64_t sizes[2];
    husk_value value;
  };
  Status see(int64_t first, int64_t rows, int64_t end, int64_t run, Seen& seen, husk_error* error);
  Status see_slot(int64_t slot, int64_t end, Seen& seen, husk_error* error);
  Status take_token(uint32_t function, int64_t slot, int64_t rows, int64_t end, int64_t run,
                    int64_t from, husk_error* error);
  husk_value source_span() const;
  size_t column_count() const { return controls() ? kColumns : kLengths; }
  size_t row_at(Column which, int64_t run) const {
    return static_cast<size_t>(run * kColumns + which) * column_bytes_;
  }
  char* host(Column which, int64_t run) const {
    return rows_[run / most_runs] + row_at(which, run % most_runs);
  }
  // The column of the rows that are being set.
  template <typename Number>
  Number* numbers(Column which) const {
    return reinterpret_cast<Number*>(host(which, first_run_));
  }
  size_t found_at(Found which, int64_t run) const {
    return static_cast<size_t>(run * kFounds + which) * column_bytes_;
  }
  const char* found_on_host(Found which, int64_t run) const {
    return found_[run / most_runs] + found_at(which, run % most_runs);
  }
  // The bytes of what runs have chosen.
  size_t found_bytes(int64_t rows, const Wanted& wanted, int64_t runs) const;

  // How many of the last inputs of prefill are an adapter, or how many positions of the encoder it
  // reads. No file has both.
  uint32_t prefill_inputs() const { return adapter_count || encoder.takes_tokens() ? 1 : 0; }
  // How many of the last inputs of decode and verify are that number of positions, or a number of
  // each row: adapters, or shifts of positions. No file has two of these.
  uint32_t row_inputs() const {
    return adapter_count || images.has_grid() || encoder.takes_tokens() ? 1 : 0;
  }
  Column row_column() const { return images.has_grid() ? kShifts : kAdapters; }

  static constexpr uint32_t kNoFunction = UINT32_MAX;

  husk_engine* engine_ = nullptr;
  husk_session* session_ = nullptr;
  void* stream_ = nullptr;
  DLDevice device_ = {};
  uint32_t prefill_ = 0, decode_ = 0, sample_ = 0, copy_ = kNoFunction;
  uint32_t adjust_ = kNoFunction, rank_ = kNoFunction, verify_ = kNoFunction, embed_ = kNoFunction;
  uint32_t image_ = kNoFunction, prefill_images_ = kNoFunction, encode_ = kNoFunction;
  uint32_t single_ = kNoFunction, sample_few_ = kNoFunction;
  size_t column_bytes_ = 0;
  // The rows that are set: those of `row_runs_` runs from `first_run_` on. `is_batch_`: copies read
  // them, and the table of pages, while the host goes on.
  int64_t first_run_ = 0, row_runs_ = 1;
  bool is_batch_ = false;
  static constexpr int kBlocks = 2;
  char* rows_[kBlocks] = {};   // the columns of each block, in host memory
  char* found_[kBlocks] = {};  // what has come back
  int64_t* prompt_ = nullptr;  // the tokens of a chunk
  void *device_rows_ = nullptr, *device_found_ = nullptr, *device_prompt_ = nullptr;
  // With `controls`: the tokens that each row has, and how many; the masks; the most likely tokens.
  struct Past {
    const int32_t* tokens;
    int64_t count;
  };
  List<Past> past_;
  List<int64_t> history_, top_;
  List<uint32_t> allowed_;
  List<float> top_logprobs_;
  List<int32_t> top_tokens_;  // of the row that was asked for
  void *device_history_ = nullptr, *device_allowed_ = nullptr;
  void *device_top_ = nullptr, *device_top_logprobs_ = nullptr;
  // With images: the row and the extras of each token of a chunk; the embeddings.
  List<int64_t> image_columns_;
  void *device_images_ = nullptr, *device_embeddings_ = nullptr;
  // With pages: those of each slot; the table of a run, and the one that the device has, or gets
  // from what is enqueued. Each run has memory for its table, which a copy may read.
  List<int64_t> slot_pages_, table_, device_has_;
  List<void*> sent_tables_;
  void* device_table_ = nullptr;
  // With an encoder: its tokens, and its input on the device; how many positions a run reads.
  List<int64_t> source_tokens_;
  void* device_source_ = nullptr;
  int64_t source_end_ = 1;
  List<uint8_t> resized_;       // which functions the session was resized for
  DLTensor* logits_ = nullptr;  // of the last run, in memory of the session
  bool has_rows_ = false;       // the device has the columns
  bool is_damaged_ = false;
};

}  // namespace husk::text
