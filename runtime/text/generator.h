// Texts of several requests that are generated together.
#pragma once

#include <husk/generate.h>

#include "base/sync.h"
#include "text/adapters.h"
#include "text/pages.h"
#include "text/request.h"

namespace husk::text {

// The texts of all requests. The thread that steps owns the sequences that have a slot; the lock
// guards what other threads reach: the list of requests, the queue, and the published counts.
class Generator {
 public:
  Generator() = default;
  Generator(const Generator&) = delete;
  ~Generator();

  Status open(husk_engine* engine, husk_program* program, const husk_generator_options& options,
              husk_error* error);
  Status submit(const husk_text_request& from, uint64_t* number, husk_error* error);
  Status cancel(uint64_t number, husk_error* error);
  Status step(int32_t* more, husk_error* error);
  Status embed(const int32_t* tokens, size_t size, int32_t pooling, float* to, size_t capacity,
               size_t* count, husk_error* error);
  Status image(const float* pixels, size_t pixel_count, float* rows, size_t capacity,
               husk_error* error);
  const ImageKind& images() const { return model_.images; }
  const EncoderKind& encoder() const { return model_.encoder; }
  Adapters& adapters() { return adapters_; }
  const Adapters& adapters() const { return adapters_; }
  husk_generator_stats stats();
  Status chat(husk_chat** chat, husk_error* error) const;
  const husk_tokenizer* tokenizer() const { return tokenizer_; }
  const Sampling& recommended() const { return model_.recommended; }

 private:
  Status begin_step(husk_error* error);
  void end_cancelled();
  void admit();
  int32_t free_slot(const Request& request, int64_t* reused) const;
  const Sequence* leader(const Sequence& sequence) const;
  int64_t cached_part(const Request& request, size_t slot) const;
  Status copy(size_t source, Sequence& to, int64_t count, husk_error* error);
  Status copy_prefix(Sequence& sequence, husk_error* error);
  // With pages (generator_pages.cpp):
  bool evict(size_t except);
  bool take_pages(size_t slot, int64_t positions);
  bool reserve(Sequence& sequence, int64_t positions);
  void pause(Sequence& sequence);
  bool seat(const Sequence& sequence, size_t slot, int64_t* reused);
  bool resume();
  Status share(size_t source, Sequence& to, int64_t count, int64_t least_copied, husk_error* error);
  void reserve_next();
  int64_t reserve_drafts(const Sequence& sequence, int64_t most);
  Status take_prompts(husk_error* error);
  Status take_chunk(Sequence& sequence, husk_error* error);
  Status begin_texts(Sequence& first, int64_t row, husk_error* error);
  // Runs of `decode` whose tokens are read together.
  struct Batch {
    int64_t first = 0, runs = 0;  // the numbers of its runs; 0 runs: there is no batch
    int64_t rows = 0;
    bool is_alone = false;  // a text, by the function for a single one
    bool is_ahead = false;  // enqueued before the batch in front of it was taken
    Wanted wanted;
  };
  int64_t most_runs(int64_t ahead);
  Batch next_batch(const Batch& before);
  Status enqueue(const Batch& batch, const Batch& before, husk_error* error);
  Status take(const Batch& batch, husk_error* error);
  Status take_pending(husk_error* error);
  bool must_decide();
  Status decode(bool has_taken, husk_error* error);
  template <typename Use>
  void for_each_row(bool is_alone, Use use);
  int64_t find_drafts();
  Status verify(int64_t tried, husk_error* error);
  void take_drafts(Sequence& sequence, int64_t slot, int64_t tried);
  void remember(const Sequence& sequence, const int32_t* tokens, int64_t count, int64_t position);
  void set_pages(const Sequence& sequence);
  void set_row(int64_t row, const Sequence& sequence, int64_t ahead = 0);
  bool allow(Sequence& sequence, int64_t row);
  int32_t* tokens_of(const Sequence& sequence) {
    return cached_.data() + static_cast<size_t>(sequence.slot) * width();
  }
  size_t width() const { return static_cast<size_t>(model_.max_tokens) + 1; }
  bool add_token(Sequence& sequence, int64_t row, int64_t run = 0);
  void end(Sequence& sequence, const Chosen& chosen, int32_t reason, const husk_error* why);
  void end_all(const husk_error& why);
  void remove(Request* request);

  Model model_;
  Adapters adapters_;
  husk_tokenizer* tokenizer_ = nullptr;
  List<char> roles_;
  bool has_template_ = false;
  int64_t chunk_ = 0;
  // The batch that the device has got, and whose tokens the texts have not. All texts that decode
  // are in it; those of its rows whose text has ended count no more. None joins before it is taken.
  Batch pending_;
  bool goes_ahead_ = false;  // whether a batch may be enqueued behind one that is not taken yet
  List<Sequence*> slots_;
  bool reuses_prefixes_ = false;
  // The tokens of each slot, `width` of them. The cache has the keys and values of the first
  // cached_counts_; a text has one token more.
  List<int32_t> cached_;
  List<int64_t> cached_counts_;
  Pages pages_;
  List<uint64_t> ended_at_;         // when the sequence of each slot ended: how many had before
  List<uint64_t> cached_versions_;  // of the adapters that the tokens of each slot were taken with
  husk_generator_stats counts_ = HUSK_GENERATOR_STATS_INIT;  // of the thread that steps

  Mutex mutex_;
  Request *first_ = nullptr, *last_ = nullptr;             // all requests
  Sequence *waiting_ = nullptr, *last_waiting_ = nullptr;  // those without a slot
  uint32_t waiting_count_ = 0;
  uint64_t submitted_ = 0;
  bool is_stepping_ = false;
  bool has_cancelled_ = false;
  husk_generator_stats published_ = HUSK_GENERATOR_STATS_INIT;
};

}  // namespace husk::text
