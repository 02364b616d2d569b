#include <husk/detail/struct_size.h>
#include <husk/generate.h>

#include "base/sync.h"
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
  husk_generator_stats stats();
  Status chat(husk_chat** chat, husk_error* error) const;
  const husk_tokenizer* tokenizer() const { return tokenizer_; }
  const Sampling& recommended() const { return model_.recommended; }

 private:
  void end_cancelled();
  void admit();
  int32_t free_slot(const Request& request, int64_t* reused) const;
  Status take_prompts(husk_error* error);
  Status take_chunk(Sequence& sequence, husk_error* error);
  Status decode(husk_error* error);
  void remember(const Sequence& sequence, const int32_t* tokens, int64_t count, int64_t position);
  void add_token(Sequence& sequence, int64_t row);
  void end(Sequence& sequence, int32_t token, float logprob, int32_t reason, const husk_error* why);
  void end_all(const husk_error& why);
  void remove(Request* request);

  Model model_;
  husk_tokenizer* tokenizer_ = nullptr;
  List<char> roles_;
  bool has_template_ = false;
  int64_t chunk_ = 0;
  List<Sequence*> slots_;
  // With reuse_prefixes: the tokens whose keys and values a slot has, `max_tokens` for each slot.
  List<int32_t> cached_;
  List<int64_t> cached_counts_;
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

Generator::~Generator() {
  while (Request* request = first_) {
    first_ = request->after;
    destroy(request);
  }
  husk_tokenizer_release(tokenizer_);
}

Status Generator::open(husk_engine* engine, husk_program* program,
                       const husk_generator_options& options, husk_error* error) {
  if (const char* json = metadata(program, "husk.text.tokenizer")) {
    HUSK_TRY(to_status(husk_tokenizer_create(json, strlen(json), &tokenizer_, error)));
  }
  if (const char* json = metadata(program, "husk.text.roles")) {
    HUSK_TRY(roles_.append(json, strlen(json), error));
  }
  has_template_ = metadata(program, "husk.text.chat_template") != nullptr;
  HUSK_TRY(model_.open(engine, program, options.session, error));
  const auto slots = static_cast<size_t>(model_.slots);
  chunk_ = options.chunk && options.chunk < model_.chunk ? options.chunk : model_.chunk;
  HUSK_TRY(slots_.resize(slots, error));
  HUSK_TRY(cached_counts_.resize(slots, error));
  if (options.reuse_prefixes) {
    HUSK_TRY(cached_.resize(slots * static_cast<size_t>(model_.max_tokens), error));
  }
  counts_.slots = static_cast<uint32_t>(slots);
  counts_.max_tokens = static_cast<uint64_t>(model_.max_tokens);
  counts_.vocabulary = static_cast<uint64_t>(model_.vocabulary);
  published_ = counts_;
  return Status::ok;
}

Status Generator::chat(husk_chat** chat, husk_error* error) const {
  if (roles_.empty()) {
    return fail(error, HUSK_UNSUPPORTED, "the file has %s",
                has_template_
                    ? "a chat template of a form that only Jinja fills in: husk.text.load "
                      "does it in Python"
                    : "no chat template");
  }
  return to_status(husk_chat_create(roles_.data(), roles_.size(), chat, error));
}

Status Generator::submit(const husk_text_request& from, uint64_t* number, husk_error* error) {
  auto* request = create<Request>(error);
  if (!request) return to_status(HUSK_OUT_OF_MEMORY);
  const Status status = request->read(from, model_, tokenizer_, error);
  if (failed(status)) {
    destroy(request);
    return status;
  }
  const Lock lock(mutex_);
  request->number = ++submitted_;
  if (number) *number = request->number;
  request->before = last_;
  (last_ ? last_->after : first_) = request;
  last_ = request;
  for (uint32_t i = 0; i < request->count; ++i) {
    Sequence* sequence = request->sequences + i;
    (last_waiting_ ? last_waiting_->next : waiting_) = sequence;
    last_waiting_ = sequence;
  }
  waiting_count_ += request->count;
  return Status::ok;
}

Status Generator::cancel(uint64_t number, husk_error* error) {
  const Lock lock(mutex_);
  for (Request* request = first_; request; request = request->after) {
    if (request->number != number) continue;
    request->is_cancelled = true;
    has_cancelled_ = true;
    return Status::ok;
  }
  return fail(error, HUSK_NOT_FOUND, "no request has the number %llu, or it is done",
              static_cast<unsigned long long>(number));
}

void Generator::remove(Request* request) {
  {
    const Lock lock(mutex_);
    (request->before ? request->before->after : first_) = request->after;
    (request->after ? request->after->before : last_) = request->before;
  }
  destroy(request);
}

// Ends a text, whose last part the application gets, and frees its slot.
void Generator::end(Sequence& sequence, int32_t token, float logprob, int32_t reason,
                    const husk_error* why) {
  Request* request = sequence.request;
  sequence.has_ended = true;
  if (sequence.slot >= 0) slots_[static_cast<size_t>(sequence.slot)] = nullptr;
  ++counts_.ended;
  const bool goes_on = sequence.give(token, logprob, reason, why);
  if (--request->left == 0) return remove(request);
  if (!goes_on) (void)cancel(request->number, nullptr);
}

// Ends the texts of the requests that were cancelled since the last step.
void Generator::end_cancelled() {
  Request* ending = nullptr;
  {
    const Lock lock(mutex_);
    if (!has_cancelled_) return;
    has_cancelled_ = false;
    Sequence** place = &waiting_;
    last_waiting_ = nullptr;
    while (Sequence* sequence = *place) {
      if (sequence->request->is_cancelled) {
        *place = sequence->next;
        --waiting_count_;
      } else {
        last_waiting_ = sequence;
        place = &sequence->next;
      }
    }
    for (Request* request = last_; request; request = request->before) {
      if (!request->is_cancelled) continue;
      request->next_ending = ending;
      ending = request;
    }
  }
  while (Request* request = ending) {
    ending = request->next_ending;
    // The end of its last text destroys the request.
    for (uint32_t i = 0, left = request->left; left; ++i) {
      Sequence& sequence = request->sequences[i];
      if (sequence.has_ended) continue;
      --left;
      int32_t reason = HUSK_TEXT_CANCELLED;
      (void)sequence.finish(&reason, nullptr);
      end(sequence, -1, 0, HUSK_TEXT_CANCELLED, nullptr);
    }
  }
}

// A free slot for a prompt: one whose cache begins with most of it, or else the first one; -1 if
// there is none.
int32_t Generator::free_slot(const Request& request, int64_t* reused) const {
  int32_t best = -1;
  for (size_t slot = 0; slot < slots_.size(); ++slot) {
    if (slots_[slot]) continue;
    int64_t equal_tokens = 0;
    if (!cached_.empty()) {
      const int32_t* cached = cached_.data() + slot * static_cast<size_t>(model_.max_tokens);
      // The last token is taken again if the cache has it, since its logits are needed.
      const auto most = static_cast<int64_t>(request.prompt.size()) - 1;
      while (equal_tokens < most && equal_tokens < cached_counts_[slot] &&
             cached[equal_tokens] == request.prompt[static_cast<size_t>(equal_tokens)]) {
        ++equal_tokens;
      }
    }
    if (best >= 0 && equal_tokens <= *reused) continue;
    best = static_cast<int32_t>(slot);
    *reused = equal_tokens;
  }
  return best;
}

// Gives the free slots to those that wait, the first one first.
void Generator::admit() {
  const Lock lock(mutex_);
  while (Sequence* sequence = waiting_) {
    int64_t reused = 0;
    const int32_t slot = free_slot(*sequence->request, &reused);
    if (slot < 0) return;
    waiting_ = sequence->next;
    if (!waiting_) last_waiting_ = nullptr;
    --waiting_count_;
    sequence->next = nullptr;
    sequence->slot = slot;
    sequence->taken = sequence->reused = reused;
    counts_.reused_tokens += static_cast<uint64_t>(reused);
    slots_[static_cast<size_t>(slot)] = sequence;
  }
}

// Notes that the cache has these tokens of a sequence.
void Generator::remember(const Sequence& sequence, const int32_t* tokens, int64_t count,
                         int64_t position) {
  if (cached_.empty()) return;
  const auto slot = static_cast<size_t>(sequence.slot);
  const size_t place = slot * static_cast<size_t>(model_.max_tokens) +
                       static_cast<size_t>(position);
  memcpy(cached_.data() + place, tokens, static_cast<size_t>(count) * sizeof(int32_t));
  cached_counts_[slot] = position + count;
}

// Gives a sequence the token of a row of the last run.
void Generator::add_token(Sequence& sequence, int64_t row) {
  const float logprob = sequence.request->gives_logprobs ? model_.logprob(row) : 0;
  int32_t reason;
  husk_error error;
  const Status status = sequence.add(model_, model_.token(row), &reason, &error);
  ++counts_.new_tokens;
  if (failed(status)) {
    end(sequence, sequence.token, logprob, HUSK_TEXT_FAILED, &error);
  } else if (reason != HUSK_TEXT_GOES_ON) {
    end(sequence, sequence.token, logprob, reason, nullptr);
  } else if (!sequence.give(sequence.token, logprob, reason, nullptr)) {
    (void)cancel(sequence.request->number, nullptr);
  }
}

// Takes the next chunk of a prompt; with the last one comes the first token of the text.
Status Generator::take_chunk(Sequence& sequence, husk_error* error) {
  const Request& request = *sequence.request;
  const auto total = static_cast<int64_t>(request.prompt.size());
  const int64_t position = sequence.taken;
  const int64_t count = total - position < chunk_ ? total - position : chunk_;
  const int32_t* tokens = request.prompt.data() + position;
  int64_t row = 0;
  model_.clear();
  if (count == 1) {  // some models take chunks of two tokens and more
    row = sequence.slot;
    model_.set_token(row, *tokens, position);
  }
  if (position + count == total) {
    model_.set_sampling(row, request.sampling_of(sequence), sequence.length());
  }
  HUSK_TRY(count == 1 ? model_.decode(row + 1, position + 1, error)
                      : model_.prefill(tokens, count, sequence.slot, position, error));
  remember(sequence, tokens, count, position);
  counts_.prompt_tokens += static_cast<uint64_t>(count);
  sequence.taken += count;
  if (sequence.taken < total) return Status::ok;
  HUSK_TRY(model_.finish(row + 1, request.samples(), error));
  add_token(sequence, row);
  return Status::ok;
}

Status Generator::take_prompts(husk_error* error) {
  for (Sequence* sequence : slots_) {
    if (!sequence || sequence->count) continue;
    const Status status = take_chunk(*sequence, error);
    if (!failed(status)) continue;
    if (model_.is_damaged()) return status;
    // For instance without memory for a prompt of this length, which others do not need.
    end(*sequence, -1, 0, HUSK_TEXT_FAILED, error);
  }
  return Status::ok;
}

// Generates a token of each sequence whose prompt is in the cache.
Status Generator::decode(husk_error* error) {
  model_.clear();
  int64_t rows = 0, end = 0;
  bool samples = false;
  for (size_t slot = 0; slot < slots_.size(); ++slot) {
    const Sequence* sequence = slots_[slot];
    if (!sequence || !sequence->count) continue;
    const auto row = static_cast<int64_t>(slot);
    const int64_t length = sequence->length();
    model_.set_token(row, sequence->token, length - 1);
    model_.set_sampling(row, sequence->request->sampling_of(*sequence), length);
    samples |= sequence->request->samples();
    rows = row + 1;
    if (length > end) end = length;
  }
  if (rows == 0) return Status::ok;
  HUSK_TRY(model_.decode(rows, end, error));
  HUSK_TRY(model_.finish(rows, samples, error));
  for (int64_t row = 0; row < rows; ++row) {
    Sequence* sequence = slots_[static_cast<size_t>(row)];
    if (!sequence || !sequence->count) continue;
    remember(*sequence, &sequence->token, 1, sequence->length() - 1);
    add_token(*sequence, row);
  }
  return Status::ok;
}

// Ends all texts that have a slot, after a run that may have damaged the caches.
void Generator::end_all(const husk_error& why) {
  for (size_t slot = 0; slot < slots_.size(); ++slot) {
    cached_counts_[slot] = 0;
    if (slots_[slot]) end(*slots_[slot], -1, 0, HUSK_TEXT_FAILED, &why);
  }
}

Status Generator::step(int32_t* more, husk_error* error) {
  const uint64_t begin = nanoseconds_now();
  {
    const Lock lock(mutex_);
    if (is_stepping_) {
      return fail(error, HUSK_INVALID_ARGUMENT, "a step of this generator is in progress");
    }
    is_stepping_ = true;
  }
  end_cancelled();
  admit();
  const uint64_t before = model_.nanoseconds;
  husk_error scratch;
  if (!error) error = &scratch;
  Status status = take_prompts(error);
  if (!failed(status)) status = decode(error);
  if (failed(status)) end_all(*error);
  counts_.steps += model_.nanoseconds != before;
  counts_.model_nanoseconds = model_.nanoseconds;
  counts_.active = 0;
  for (const Sequence* sequence : slots_) counts_.active += sequence != nullptr;
  counts_.step_nanoseconds += nanoseconds_now() - begin;
  const Lock lock(mutex_);
  if (more) *more = first_ != nullptr;
  published_ = counts_;
  is_stepping_ = false;
  return status;
}

husk_generator_stats Generator::stats() {
  const Lock lock(mutex_);
  husk_generator_stats result = published_;
  result.requests = submitted_;
  result.waiting = waiting_count_;
  return result;
}

}  // namespace husk::text

using husk::failed;
using husk::null_argument;
using husk::Status;

struct husk_generator {
  husk::text::Generator generator;
};

husk_status husk_generator_create(husk_engine* engine, husk_program* program,
                                  const husk_generator_options* options, husk_generator** generator,
                                  husk_error* error) {
  if (!generator) return null_argument(error, "generator_create", ": generator");
  *generator = nullptr;
  if (!engine || !program) return null_argument(error, "generator_create");
  husk_generator_options all = HUSK_GENERATOR_OPTIONS_INIT;
  if (options) {
    HUSK_TRY(HUSK_CHECK_STRUCT(husk_generator_options, options, reuse_prefixes, error));
    husk::detail::read_struct(*options, &all);
  }
  auto* created = husk::text::create<husk_generator>(error);
  if (!created) return HUSK_OUT_OF_MEMORY;
  const Status status = created->generator.open(engine, program, all, error);
  if (failed(status)) {
    husk::text::destroy(created);
    return static_cast<husk_status>(status);
  }
  *generator = created;
  return HUSK_OK;
}

void husk_generator_release(husk_generator* generator) { husk::text::destroy(generator); }

const husk_tokenizer* husk_generator_tokenizer(const husk_generator* generator) {
  return generator ? generator->generator.tokenizer() : nullptr;
}

husk_status husk_generator_chat(const husk_generator* generator, husk_chat** chat,
                                husk_error* error) {
  if (!chat) return null_argument(error, "generator_chat", ": chat");
  *chat = nullptr;
  if (!generator) return null_argument(error, "generator_chat", ": generator");
  return static_cast<husk_status>(generator->generator.chat(chat, error));
}

void husk_generator_recommend(const husk_generator* generator, husk_text_request* request) {
  if (!generator || !request || !HUSK_HAS_FIELD(request, top_p)) return;
  const husk::text::Sampling& sampling = generator->generator.recommended();
  request->temperature = sampling.temperature;
  request->top_k = sampling.top_k;
  request->top_p = sampling.top_p;
}

husk_status husk_generator_submit(husk_generator* generator, const husk_text_request* request,
                                  uint64_t* number, husk_error* error) {
  if (!generator || !request) return null_argument(error, "generator_submit");
  HUSK_TRY(HUSK_CHECK_STRUCT(husk_text_request, request, user, error));
  husk_text_request all = HUSK_TEXT_REQUEST_INIT;
  husk::detail::read_struct(*request, &all);
  return static_cast<husk_status>(generator->generator.submit(all, number, error));
}

husk_status husk_generator_cancel(husk_generator* generator, uint64_t number, husk_error* error) {
  if (!generator) return null_argument(error, "generator_cancel");
  return static_cast<husk_status>(generator->generator.cancel(number, error));
}

husk_status husk_generator_step(husk_generator* generator, int32_t* more, husk_error* error) {
  if (!generator) return null_argument(error, "generator_step");
  return static_cast<husk_status>(generator->generator.step(more, error));
}

husk_status husk_generator_stats_get(husk_generator* generator, husk_generator_stats* out,
                                     husk_error* error) {
  if (!generator || !out) return null_argument(error, "generator_stats_get");
  HUSK_TRY(HUSK_CHECK_STRUCT(husk_generator_stats, out, step_nanoseconds, error));
  husk::detail::write_struct(generator->generator.stats(), out);
  return HUSK_OK;
}
