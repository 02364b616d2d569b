#include "text/generator.h"

#include "text/drafts.h"

namespace husk::text {

namespace {

// A copy of fewer tokens than this takes longer than to compute them with the rest of a prompt.
constexpr int64_t kLeastCopied = 8;

}  // namespace

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
  HUSK_TRY(model_.open(engine, program, options.session, options.runs, error));
  const auto slots = static_cast<size_t>(model_.slots);
  chunk_ = options.chunk && options.chunk < model_.chunk ? options.chunk : model_.chunk;
  // Tokens of an image that see one another are in one chunk.
  if (model_.images.two_way && chunk_ < model_.images.rows) chunk_ = model_.images.rows;
  HUSK_TRY(slots_.resize(slots, error));
  HUSK_TRY(cached_counts_.resize(slots, error));
  HUSK_TRY(cached_versions_.resize(slots, error));
  HUSK_TRY(adapters_.open(program, model_.adapter_count, model_.adapter_rank, error));
  reuses_prefixes_ = options.reuse_prefixes != 0;
  // The states of a slot belong to all tokens that it has taken. Those of a batch behind the end of
  // a text would make them useless for a prompt that goes on.
  goes_ahead_ = model_.has_marks && !(model_.has_states && reuses_prefixes_);
  HUSK_TRY(cached_.resize(slots * width(), error));
  HUSK_TRY(ended_at_.resize(slots, error));
  if (model_.pages) {
    HUSK_TRY(pages_.open(model_.pages, model_.page, model_.slots, model_.columns(), error));
  }
  counts_.pages = static_cast<uint64_t>(model_.pages);
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
  Status status = request->read(from, model_, tokenizer_, error);
  if (!failed(status)) status = adapters_.take(request->adapter, &request->version, error);
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
  adapters_.give_back(request->adapter);
  destroy(request);
}

// Ends a text, whose last part the application gets, and frees its slot.
void Generator::end(Sequence& sequence, const Chosen& chosen, int32_t reason,
                    const husk_error* why) {
  Request* request = sequence.request;
  sequence.has_ended = true;
  ++counts_.ended;
  if (sequence.slot >= 0) {
    const auto slot = static_cast<size_t>(sequence.slot);
    slots_[slot] = nullptr;
    ended_at_[slot] = counts_.ended;
    if (pages_.exist()) {
      if (!reuses_prefixes_) cached_counts_[slot] = 0;
      pages_.keep(slot, cached_counts_[slot]);
    }
  }
  const bool goes_on = sequence.give(chosen, reason, why);
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
      end(sequence, {}, HUSK_TEXT_CANCELLED, nullptr);
    }
  }
}

// How many tokens of a prompt the cache of a slot begins with, taken with the same adapter. The
// last token does not count, since it is taken for its logits, and neither do tokens of images,
// since equal ones may be those of other images. States are those after all tokens of the slot: if
// the prompt does not begin with all of them, none counts. The tokens of a decoder belong to the
// input of its encoder.
int64_t Generator::cached_part(const Request& request, size_t slot) const {
  if (cached_versions_[slot] != request.version || model_.encoder.exists()) return 0;
  const int32_t* cached = cached_.data() + slot * width();
  const auto most = static_cast<int64_t>(request.prompt.size()) - 1;
  int64_t count = 0;
  while (count < most && count < cached_counts_[slot] &&
         cached[count] == request.prompt[static_cast<size_t>(count)] &&
         !(model_.images.exists() && cached[count] == model_.images.token)) {
    ++count;
  }
  return model_.has_states && count < cached_counts_[slot] ? 0 : count;
}

// A free slot for a prompt: one whose cache begins with most of it, or else the first one; -1 if
// there is none.
int32_t Generator::free_slot(const Request& request, int64_t* reused) const {
  int32_t best = -1;
  for (size_t slot = 0; slot < slots_.size(); ++slot) {
    if (slots_[slot]) continue;
    const int64_t equal_tokens = reuses_prefixes_ ? cached_part(request, slot) : 0;
    if (best >= 0 && equal_tokens <= *reused &&
        !(equal_tokens == *reused && pages_.exist() &&
          pages_.count_of(slot) < pages_.count_of(static_cast<size_t>(best)))) {
      continue;
    }
    best = static_cast<int32_t>(slot);
    *reused = equal_tokens;
  }
  return best;
}

// Gives the free slots to those that wait, the first one first.
void Generator::admit() {
  if (pages_.exist() && !resume()) return;
  const Lock lock(mutex_);
  while (Sequence* sequence = waiting_) {
    int64_t reused = 0;
    const int32_t slot = free_slot(*sequence->request, &reused);
    if (slot < 0) return;
    if (pages_.exist() && !seat(*sequence, static_cast<size_t>(slot), &reused)) return;
    waiting_ = sequence->next;
    if (!waiting_) last_waiting_ = nullptr;
    --waiting_count_;
    sequence->next = nullptr;
    sequence->slot = slot;
    sequence->taken = sequence->reused = reused;
    counts_.reused_tokens += static_cast<uint64_t>(reused);
    slots_[static_cast<size_t>(slot)] = sequence;
    uint64_t& version = cached_versions_[static_cast<size_t>(slot)];
    if (version != sequence->request->version) cached_counts_[static_cast<size_t>(slot)] = 0;
    version = sequence->request->version;
  }
}

// Notes that the cache has these tokens of a sequence.
void Generator::remember(const Sequence& sequence, const int32_t* tokens, int64_t count,
                         int64_t position) {
  int32_t* to = tokens_of(sequence) + position;
  if (to != tokens) memcpy(to, tokens, static_cast<size_t>(count) * sizeof(int32_t));
  cached_counts_[static_cast<size_t>(sequence.slot)] = position + count;
}

// Gives the next run the pages of a sequence.
void Generator::set_pages(const Sequence& sequence) {
  if (!pages_.exist()) return;
  const auto slot = static_cast<size_t>(sequence.slot);
  model_.set_pages(sequence.slot, pages_.of(slot), pages_.count_of(slot));
}

// Says how the next token of a sequence is drawn at a row of logits, or the one after so many
// further ones.
void Generator::set_row(int64_t row, const Sequence& sequence, int64_t ahead) {
  const Request& request = *sequence.request;
  const int64_t length = sequence.length() + ahead;
  model_.set_sampling(row, request.sampling_of(sequence), length);
  model_.set_adapter(row, request.adapter);
  model_.set_shift(row, request.images.shift(length - 1));
  model_.set_source(request.source);
  if (!request.adjusts()) return;
  model_.set_controls(row, request.controls, tokens_of(sequence), length,
                      static_cast<int64_t>(request.prompt.size()));
}

// Asks the application which tokens may come next. Returns false if the text has ended.
bool Generator::allow(Sequence& sequence, int64_t row) {
  const Request& request = *sequence.request;
  if (!request.has_mask()) return true;
  if (!request.ask(sequence, tokens_of(sequence) + request.prompt.size(), model_.allowed(row),
                   model_.allowed_words())) {
    (void)cancel(request.number, nullptr);
    int32_t reason = HUSK_TEXT_CANCELLED;
    (void)sequence.finish(&reason, nullptr);
    end(sequence, {}, HUSK_TEXT_CANCELLED, nullptr);
    return false;
  }
  if (model_.allows_any(row)) return true;
  husk_error error;
  (void)fail(&error, HUSK_INVALID_ARGUMENT,
             "the mask of request %llu allows no token after %lld: let it allow the end of the "
             "text",
             static_cast<unsigned long long>(request.number),
             static_cast<long long>(sequence.count));
  end(sequence, {}, HUSK_TEXT_FAILED, &error);
  return false;
}

// Gives a sequence the token of a row of the last run. Returns whether it goes on.
bool Generator::add_token(Sequence& sequence, int64_t row, int64_t run) {
  const Chosen chosen = model_.chosen(row, sequence.request->top, run);
  tokens_of(sequence)[sequence.length()] = chosen.token;
  int32_t reason;
  husk_error error;
  const Status status = sequence.add(model_, chosen.token, &reason, &error);
  ++counts_.new_tokens;
  if (failed(status)) {
    end(sequence, chosen, HUSK_TEXT_FAILED, &error);
    return false;
  }
  if (reason != HUSK_TEXT_GOES_ON) {
    end(sequence, chosen, reason, nullptr);
    return false;
  }
  if (sequence.give(chosen, reason, nullptr)) return true;
  (void)cancel(sequence.request->number, nullptr);
  return false;
}

// The sample of a request that takes its prompt, which the others get from it: the one of which the
// cache has most, and with pages one that has them.
const Sequence* Generator::leader(const Sequence& sequence) const {
  const Sequence* first = &sequence;
  if (!model_.copies()) return first;
  for (const Sequence* other : slots_) {
    if (!other || other->request != sequence.request || other->count || other->is_paused) continue;
    const int64_t more_tokens = other->taken - first->taken,
                  more_pages = pages_.exist()
                                   ? pages_.count_of(static_cast<size_t>(other->slot)) -
                                         pages_.count_of(static_cast<size_t>(first->slot))
                                   : 0;
    const int64_t more = more_tokens ? more_tokens : more_pages;
    if (more > 0 || (more == 0 && other->slot < first->slot)) first = other;
  }
  return first;
}

// Gives a sequence the first `count` tokens of its prompt from another slot.
Status Generator::copy(size_t source, Sequence& to, int64_t count, husk_error* error) {
  const int64_t added = count - to.taken;
  if (added <= 0) return Status::ok;
  if (pages_.exist()) return share(source, to, count, 1, error);
  HUSK_TRY(model_.copy(static_cast<int64_t>(source), to.slot, to.taken, added, error));
  remember(to, to.request->prompt.data() + to.taken, added, to.taken);
  to.taken = count;
  to.reused += added;
  counts_.reused_tokens += static_cast<uint64_t>(added);
  counts_.copied_tokens += static_cast<uint64_t>(added);
  return Status::ok;
}

// Looks for a slot that has more of a prompt than the sequence has. Two prompts that begin alike
// and are taken in chunks copy from each other, so that each chunk is computed once.
Status Generator::copy_prefix(Sequence& sequence, husk_error* error) {
  if (!reuses_prefixes_ || !(model_.copies() || pages_.exist())) return Status::ok;
  int64_t most = sequence.taken + kLeastCopied - 1;
  size_t source = slots_.size();
  for (size_t slot = 0; slot < slots_.size(); ++slot) {
    if (slot == static_cast<size_t>(sequence.slot)) continue;
    const int64_t count = cached_part(*sequence.request, slot);
    if (count <= most) continue;
    most = count;
    source = slot;
  }
  if (source == slots_.size()) return Status::ok;
  if (pages_.exist()) return share(source, sequence, most, kLeastCopied, error);
  return copy(source, sequence, most, error);
}

// Gives the first token to a sequence whose prompt the last run has completed, at a row of its
// logits, and to the other samples of the request that wait for this prompt.
Status Generator::begin_texts(Sequence& first, int64_t row, husk_error* error) {
  Request* const request = first.request;
  const auto total = static_cast<int64_t>(request->prompt.size());
  const auto source = static_cast<size_t>(first.slot);
  const Wanted wanted = request->wanted();
  const auto waits = [&](const Sequence* other) {
    return other && other != &first && other->request == request && !other->count;
  };
  if (model_.copies()) {
    for (Sequence* other : slots_) {
      if (waits(other)) HUSK_TRY(copy(source, *other, total, error));
    }
  }
  if (allow(first, row)) {
    HUSK_TRY(model_.finish(row + 1, wanted, error));
    (void)add_token(first, row);
  }
  if (!model_.copies()) return Status::ok;
  for (Sequence* other : slots_) {
    if (!waits(other) || other->taken < total) continue;  // without a page, it takes the rest
    model_.clear();
    set_row(row, *other);
    if (!allow(*other, row)) continue;
    HUSK_TRY(model_.finish(row + 1, wanted, error));
    (void)add_token(*other, row);
  }
  return Status::ok;
}

// Takes the next chunk of a prompt; with the last one comes the first token of the text.
Status Generator::take_chunk(Sequence& sequence, husk_error* error) {
  const Request& request = *sequence.request;
  HUSK_TRY(copy_prefix(sequence, error));
  const bool is_behind = sequence.is_behind;
  const auto total = is_behind ? sequence.length() - 1
                               : static_cast<int64_t>(request.prompt.size());
  const int64_t position = sequence.taken;
  int64_t count = total - position < chunk_ ? total - position : chunk_;
  // Tokens that must not come as the first one are those of `prefill`, which takes two and more.
  if (model_.encoder.exists() && total - position - count == 1 && count > 1) --count;
  if (!request.images.empty() && position < static_cast<int64_t>(request.prompt.size())) {
    count = request.images.end(position, chunk_) - position;
  }
  const int32_t* tokens = (is_behind ? tokens_of(sequence) : request.prompt.data()) + position;
  int64_t row = 0;
  if (pages_.exist() && !reserve(sequence, position + count)) return Status::ok;
  if (position == 0 && model_.encoder.exists()) {
    HUSK_TRY(model_.encode(request.source, sequence.slot, error));
  }
  model_.clear();
  model_.set_source(request.source);
  if (count == 1) {  // some models take chunks of two tokens and more
    row = model_.decodes_single() ? 0 : sequence.slot;
    model_.set_token(row, *tokens, position);
    model_.set_adapter(row, request.adapter);
    model_.set_shift(row, request.images.shift(position));
  }
  set_pages(sequence);
  if (position + count == total && !is_behind) set_row(row, sequence);
  if (count == 1 && model_.decodes_single()) {
    HUSK_TRY(model_.decode_single(sequence.slot, position + 1, 0, Model::kRows, error));
  } else if (count == 1) {
    HUSK_TRY(model_.decode(row + 1, position + 1, 0, Model::kRows, error));
  } else if (request.images.are_in(position, position + count)) {
    HUSK_TRY(model_.prefill_images(tokens, position, position + count, sequence.slot,
                                   request.images, error));
  } else {
    HUSK_TRY(model_.prefill(tokens, count, sequence.slot, position, request.adapter, error));
  }
  remember(sequence, tokens, count, position);
  (is_behind ? counts_.repeated_tokens : counts_.prompt_tokens) += static_cast<uint64_t>(count);
  ++counts_.prompt_runs;
  sequence.taken += count;
  if (sequence.taken < total) return Status::ok;
  sequence.is_behind = false;
  return is_behind ? Status::ok : begin_texts(sequence, row, error);
}

Status Generator::take_prompts(husk_error* error) {
  for (Sequence* sequence : slots_) {
    if (!sequence || sequence->is_paused || sequence->decodes()) continue;
    if (!sequence->is_behind && leader(*sequence) != sequence) continue;
    const Status status = take_chunk(*sequence, error);
    if (!failed(status)) continue;
    if (model_.is_damaged()) return status;
    // For instance without memory for a prompt of this length, which others do not need.
    end(*sequence, {}, HUSK_TEXT_FAILED, error);
  }
  return Status::ok;
}

// Looks for tokens that sequences may get next, and puts them after those that they have. Returns
// how many tokens a sequence tries at most, with its last one: 1 if none has a draft.
int64_t Generator::find_drafts() {
  int64_t tried = 1;
  for (Sequence* sequence : slots_) {
    if (!sequence || !sequence->decodes()) continue;
    const Request& request = *sequence->request;
    if (request.adjusts() || request.top) return 1;
    sequence->drafted = 0;
    if (request.speculated == 0) continue;
    const int64_t length = sequence->length();
    int64_t most = sequence->most_drafted;
    // Each token needs a position of the cache, and is one of max_new_tokens.
    if (most > model_.max_tokens - length) most = model_.max_tokens - length;
    if (request.most) {
      const auto left = static_cast<int64_t>(request.most) - sequence->count - 1;
      if (most > left) most = left;
    }
    if (pages_.exist()) most = reserve_drafts(*sequence, most);
    sequence->drafted = draft(tokens_of(*sequence), length, most);
    if (sequence->drafted >= tried) tried = sequence->drafted + 1;
  }
  return tried;
}

// Generates one token and more of each sequence, which the drafts of these show in one run.
Status Generator::verify(int64_t tried, husk_error* error) {
  model_.clear();
  int64_t rows = 0, end = 0;
  Wanted wanted;
  for (size_t slot = 0; slot < slots_.size(); ++slot) {
    const Sequence* sequence = slots_[slot];
    if (!sequence || !sequence->decodes()) continue;
    const auto row = static_cast<int64_t>(slot);
    const int64_t length = sequence->length();
    model_.set_position(row, length - 1);
    set_pages(*sequence);
    model_.set_adapter(row, sequence->request->adapter);
    model_.set_shift(row, sequence->request->images.shift(length - 1));
    for (int64_t k = 0; k <= sequence->drafted; ++k) {
      model_.set_token_of(row, k, tried, tokens_of(*sequence)[length - 1 + k]);
      model_.set_sampling(row * tried + k, sequence->request->sampling_of(*sequence), length + k);
    }
    wanted.add(sequence->request->wanted());
    rows = row + 1;
    if (length + sequence->drafted > end) end = length + sequence->drafted;
  }
  HUSK_TRY(model_.verify(rows, tried, end, error));
  HUSK_TRY(model_.finish(rows * tried, wanted, error));
  for (int64_t row = 0; row < rows; ++row) {
    Sequence* sequence = slots_[static_cast<size_t>(row)];
    if (sequence && sequence->decodes()) take_drafts(*sequence, row, tried);
  }
  return Status::ok;
}

// Gives a sequence the tokens of the last run: those that are equal to its draft, and the one after
// these.
void Generator::take_drafts(Sequence& sequence, int64_t slot, int64_t tried) {
  const int64_t drafted = sequence.drafted, most = sequence.request->speculated;
  counts_.drafted_tokens += static_cast<uint64_t>(drafted);
  for (int64_t k = 0; k <= drafted; ++k) {
    cached_counts_[static_cast<size_t>(slot)] = sequence.length();
    const int32_t next = tokens_of(sequence)[sequence.length()];
    if (!add_token(sequence, slot * tried + k)) return;
    if (k == drafted) {
      sequence.most_drafted = most;
      return;
    }
    if (sequence.token != next) {
      sequence.most_drafted = k + 1 < most ? k + 1 : most;
      return;
    }
    ++counts_.accepted_tokens;
  }
}

// How many runs of `decode` the next batch has, which begins `ahead` tokens after those that the
// texts have. The later runs take tokens from the device, and their positions do not depend on
// these: a text that turns out to have ended drops what came after its end. There is one run alone
// if the host must see each token, for penalties, masks, the most likely tokens or drafts; if a
// prompt goes on or a text waits for pages; or if a text is known to end with the run, so that
// another one may join. No batch is enqueued ahead then: the result is 0.
int64_t Generator::most_runs(int64_t ahead) {
  if (ahead && !goes_ahead_) return 0;
  const int64_t least = ahead ? 0 : 1;
  int64_t runs = model_.most_runs;
  for (const Sequence* sequence : slots_) {
    if (!sequence || runs <= least) continue;
    const Request& request = *sequence->request;
    if (!sequence->decodes() || request.adjusts() || request.top || request.speculated) {
      return least;
    }
    const int64_t room = model_.max_tokens + 1 - sequence->length() - ahead;
    if (room < runs) runs = room;
    const auto left = static_cast<int64_t>(request.most) - sequence->count - ahead;
    if (request.most && left < runs) runs = left;
    if (pages_.exist()) runs = 1 + reserve_drafts(*sequence, ahead + runs - 1) - ahead;
  }
  return runs < 0 ? 0 : runs;
}

// Calls `use` with each sequence that gets tokens in this step, and its row of the runs. A text
// that is alone has row 0.
template <typename Use>
void Generator::for_each_row(bool is_alone, Use use) {
  for (size_t slot = 0; slot < slots_.size(); ++slot) {
    Sequence* sequence = slots_[slot];
    if (sequence && sequence->decodes()) use(*sequence, is_alone ? 0 : static_cast<int64_t>(slot));
  }
}

// The batch that gives each sequence whose prompt is in the cache its next tokens, after those of
// `before`, if that has runs.
Generator::Batch Generator::next_batch(const Batch& before) {
  Batch batch;
  int64_t texts = 0;
  for_each_row(false, [&](const Sequence& sequence, int64_t slot) {
    ++texts;
    batch.rows = slot + 1;
    batch.wanted.add(sequence.request->wanted());
  });
  batch.is_alone = texts == 1 && model_.decodes_single();
  if (batch.is_alone) batch.rows = 1;
  // Tokens that are still on the device are in the rows of `before`.
  if (texts == 0 || (before.runs && batch.is_alone != before.is_alone)) return {};
  batch.is_ahead = before.runs > 0;
  batch.first = batch.is_ahead && before.first == 0 ? model_.most_runs : 0;
  batch.runs = most_runs(before.runs);
  return batch;
}

Status Generator::enqueue(const Batch& batch, const Batch& before, husk_error* error) {
  int64_t slot = 0, end = 0;
  model_.clear(batch.first);
  for_each_row(batch.is_alone, [&](const Sequence& sequence, int64_t row) {
    const int64_t position = sequence.length() - 1 + before.runs;
    slot = sequence.slot;
    if (position >= end) end = position + 1;
    model_.set_token(row, sequence.token, position);
    set_pages(sequence);
    set_row(row, sequence, before.runs);
  });
  model_.repeat_rows(batch.runs);
  const int64_t last = batch.first + batch.runs - 1;
  int64_t from = batch.is_ahead ? before.first + before.runs - 1 : Model::kRows;
  for (int64_t run = batch.first; run <= last; from = run++, ++end) {
    HUSK_TRY(batch.is_alone ? model_.decode_single(slot, end, run, from, error)
                            : model_.decode(batch.rows, end, run, from, error));
    if (run < last) HUSK_TRY(model_.choose(batch.rows, batch.wanted, run, error));
  }
  if (!batch.is_ahead) {
    for_each_row(batch.is_alone, [&](Sequence& sequence, int64_t row) {
      remember(sequence, &sequence.token, 1, sequence.length() - 1);
      (void)allow(sequence, row);
    });
  }
  HUSK_TRY(model_.choose(batch.rows, batch.wanted, last, error));
  return model_.send(batch.rows, batch.wanted, batch.first, batch.runs, error);
}

// Gives the sequences the tokens of a batch.
Status Generator::take(const Batch& batch, husk_error* error) {
  HUSK_TRY(model_.receive(batch.rows, batch.wanted, batch.first, batch.runs, error));
  counts_.runs_ahead += static_cast<uint64_t>(batch.is_ahead ? batch.runs : batch.runs - 1);
  counts_.single_runs += batch.is_alone ? static_cast<uint64_t>(batch.runs) : 0;
  // The cache has the tokens with which the runs have begun, also those of texts that end with one
  // of these tokens: states go with all of them.
  for (int64_t run = 0; run < batch.runs; ++run) {
    for_each_row(batch.is_alone, [&](const Sequence& sequence, int64_t row) {
      const int32_t token = run ? model_.chosen(row, 0, batch.first + run - 1).token
                                : sequence.token;
      remember(sequence, &token, 1, sequence.length() - 1 + run);
    });
  }
  for (int64_t run = 0; run < batch.runs; ++run) {
    if (run) end_cancelled();
    for_each_row(batch.is_alone, [&](Sequence& sequence, int64_t row) {
      (void)add_token(sequence, row, batch.first + run);
    });
  }
  return Status::ok;
}

// Whether the host decides about what follows the batch that is pending: a prompt is taken, a text
// waits for pages, or a text that waits for a slot may have one.
bool Generator::must_decide() {
  bool has_free_slot = false;
  for (const Sequence* sequence : slots_) {
    if (sequence && !sequence->decodes()) return true;
    has_free_slot |= !sequence;
  }
  const Lock lock(mutex_);
  return has_free_slot && waiting_;
}

// Generates a token of each sequence whose prompt is in the cache, or one with each of several
// runs. The device gets the batch after these before they are read, so that it has work while the
// host gives them to the application. If this step has given tokens of a batch already, these are
// those of the step, and the next batch is enqueued alone.
Status Generator::decode(bool has_taken, husk_error* error) {
  if (!pending_.runs) {
    if (pages_.exist()) reserve_next();
    const int64_t tried = model_.verified && !has_taken ? find_drafts() : 1;
    if (tried > 1) return verify(tried, error);
    const Batch first = next_batch({});
    if (!first.runs) return Status::ok;
    HUSK_TRY(enqueue(first, {}, error));
    pending_ = first;
    if (has_taken) return Status::ok;
  }
  const Batch next = next_batch(pending_);
  if (next.runs) HUSK_TRY(enqueue(next, pending_, error));
  HUSK_TRY(take(pending_, error));
  pending_ = next;
  return Status::ok;
}

// Takes the batch that is pending, with none behind it.
Status Generator::take_pending(husk_error* error) {
  HUSK_TRY(take(pending_, error));
  pending_ = {};
  end_cancelled();
  return Status::ok;
}

// Ends all texts that have a slot, after a run that may have damaged the caches.
void Generator::end_all(const husk_error& why) {
  model_.settle();
  pending_ = {};
  for (size_t slot = 0; slot < slots_.size(); ++slot) {
    cached_counts_[slot] = 0;
    if (pages_.exist()) pages_.keep(slot, 0);
    if (slots_[slot]) end(*slots_[slot], {}, HUSK_TEXT_FAILED, &why);
  }
}

Status Generator::begin_step(husk_error* error) {
  const Lock lock(mutex_);
  if (is_stepping_) {
    return fail(error, HUSK_INVALID_ARGUMENT, "a step of this generator is in progress");
  }
  is_stepping_ = true;
  return Status::ok;
}

Status Generator::embed(const int32_t* tokens, size_t size, int32_t pooling, float* to,
                        size_t capacity, size_t* count, husk_error* error) {
  if (!model_.embeds()) {
    return fail(error, HUSK_UNSUPPORTED,
                "the file has no function embed: export it with --features embed");
  }
  if (pooling != HUSK_TEXT_MEAN && pooling != HUSK_TEXT_LAST) {
    return fail(error, HUSK_INVALID_ARGUMENT,
                "pooling is %d: give HUSK_TEXT_MEAN or HUSK_TEXT_LAST", pooling);
  }
  if (size < 1 || size > static_cast<size_t>(model_.chunk)) {
    return fail(error, HUSK_INVALID_INPUT,
                "the text has %zu tokens: the function embed of this file takes 1 to %lld", size,
                static_cast<long long>(model_.chunk));
  }
  HUSK_TRY(model_.check_tokens(tokens, size, error));
  HUSK_TRY(begin_step(error));
  size_t found = 0;
  const Status status = model_.embed(tokens, static_cast<int64_t>(size), pooling == HUSK_TEXT_LAST,
                                     to, capacity, &found, error);
  if (count) *count = found;
  const Lock lock(mutex_);
  is_stepping_ = false;
  return status;
}

Status Generator::image(const float* pixels, size_t pixel_count, float* rows, size_t capacity,
                        husk_error* error) {
  const ImageKind& kind = model_.images;
  if (!kind.exists()) {
    return fail(error, HUSK_UNSUPPORTED,
                "the file takes no images: export a model that does, with images among the "
                "--features");
  }
  const auto size = static_cast<size_t>(kind.rows * kind.width);
  if (pixel_count != static_cast<size_t>(kind.pixels)) {
    return fail(error, HUSK_INVALID_INPUT,
                "the image has %zu numbers, but this file takes images of %lld: resize it, or "
                "export the file for another size",
                pixel_count, static_cast<long long>(kind.pixels));
  }
  if (capacity < size) {
    return fail(error, HUSK_INVALID_ARGUMENT,
                "there is memory for %zu numbers, but the rows of an image have %zu", capacity,
                size);
  }
  HUSK_TRY(begin_step(error));
  const Status status = model_.image(pixels, rows, error);
  const Lock lock(mutex_);
  is_stepping_ = false;
  return status;
}

Status Generator::step(int32_t* more, husk_error* error) {
  const uint64_t begin = nanoseconds_now();
  HUSK_TRY(begin_step(error));
  const uint64_t before = model_.nanoseconds;
  husk_error scratch;
  if (!error) error = &scratch;
  end_cancelled();
  const uint64_t tokens = counts_.new_tokens;
  Status status = pending_.runs && must_decide() ? take_pending(error) : Status::ok;
  const bool has_taken = counts_.new_tokens != tokens;
  if (!failed(status) && !pending_.runs) {
    admit();
    status = take_prompts(error);
  }
  if (!failed(status)) status = decode(has_taken, error);
  if (failed(status)) end_all(*error);
  counts_.steps += model_.nanoseconds != before;
  counts_.model_nanoseconds = model_.nanoseconds;
  counts_.used_pages = static_cast<uint64_t>(pages_.used_count());
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
