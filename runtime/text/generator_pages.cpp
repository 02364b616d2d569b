// The part of a generator that shares out pages, if the file has them.
//
// A sequence gets the pages of its prompt with its slot, and waits until they can be had; then one
// page more whenever its text needs one. Slots without a sequence keep their pages for prompts that
// begin alike, as long as nobody else needs them. If there is none left, the youngest sequence
// gives its pages away and waits: it keeps its slot, and its tokens are taken again later. The
// oldest one never waits, since the pages suffice for a sequence of the largest length.
#include "text/generator.h"

namespace husk::text {

namespace {

bool is_younger(const Sequence& one, const Sequence& other) {
  return one.request->number != other.request->number ? one.request->number > other.request->number
                                                      : one.sample > other.sample;
}

}  // namespace

// Lets go of the pages that a slot without a sequence has kept the longest. Returns false if there
// are none.
bool Generator::evict(size_t except) {
  size_t oldest = slots_.size();
  for (size_t slot = 0; slot < slots_.size(); ++slot) {
    if (slots_[slot] || slot == except || !pages_.count_of(slot)) continue;
    if (oldest == slots_.size() || ended_at_[slot] < ended_at_[oldest]) oldest = slot;
  }
  if (oldest == slots_.size()) return false;
  pages_.keep(oldest, 0);
  cached_counts_[oldest] = 0;
  return true;
}

// Gives a slot pages for so many positions, of those that no sequence has. Returns false if these
// do not suffice; the slot has some of them then.
bool Generator::take_pages(size_t slot, int64_t positions) {
  while (pages_.room(slot) < positions) {
    if (!pages_.add(slot) && !evict(slot)) return false;
  }
  return true;
}

// Gives a sequence pages for so many positions, if necessary those of younger ones. Returns false
// if the sequence waits for pages now.
bool Generator::reserve(Sequence& sequence, int64_t positions) {
  while (!take_pages(static_cast<size_t>(sequence.slot), positions)) {
    Sequence* youngest = &sequence;
    for (size_t slot = 0; slot < slots_.size(); ++slot) {
      Sequence* other = slots_[slot];
      if (other && pages_.count_of(slot) && is_younger(*other, *youngest)) youngest = other;
    }
    pause(*youngest);
    if (youngest == &sequence) return false;
  }
  return true;
}

// Takes the pages of a sequence, whose tokens are taken again when there are some.
void Generator::pause(Sequence& sequence) {
  const auto slot = static_cast<size_t>(sequence.slot);
  pages_.keep(slot, 0);
  cached_counts_[slot] = 0;
  sequence.taken = 0;
  sequence.is_paused = true;
  sequence.is_behind = sequence.count > 0;
}

// Gives a slot the pages for a sequence. The slot keeps those of the first `*reused` tokens, or
// shares more of them, which sets `*reused`. Returns false if they cannot be had now.
bool Generator::seat(const Sequence& sequence, size_t slot, int64_t* reused) {
  const Request& request = *sequence.request;
  // A page that another slot has too is not written.
  const int64_t part = *reused % pages_.size();
  if (part && pages_.is_shared(slot, *reused)) *reused -= part;
  size_t source = slot;
  for (size_t other = 0; reuses_prefixes_ && other < slots_.size(); ++other) {
    if (other == slot || model_.has_states) continue;  // pages without the states are of no use
    const int64_t cached = cached_part(request, other), whole = cached - cached % pages_.size();
    if (whole <= *reused) continue;
    *reused = whole;
    source = other;
  }
  // A sample whose prompt another one takes gets it with its pages.
  bool is_led = false;
  for (const Sequence* other : slots_) {
    is_led |= other && other != &sequence && other->request == &request && !other->count &&
              !other->is_paused;
  }
  int64_t positions = sequence.length() + 1;
  if (positions > model_.max_tokens) positions = model_.max_tokens;
  if (is_led && model_.copies() && !sequence.count) positions = *reused;
  // The other pages are those of sequences that go on.
  const int64_t kept = pages_.pages_of(*reused);
  pages_.begin_count();
  int64_t used = pages_.count_first(source, kept);
  for (size_t other = 0; other < slots_.size(); ++other) {
    if (slots_[other] && other != slot) used += pages_.count_first(other, pages_.count_of(other));
  }
  if (pages_.pages_of(positions) - kept > pages_.count() - used) return false;

  if (source == slot) {
    pages_.keep(slot, *reused);
  } else {
    pages_.share(source, slot, kept);
    pages_.keep(slot, *reused);
    memcpy(cached_.data() + slot * width(), request.prompt.data(),
           static_cast<size_t>(*reused) * sizeof(int32_t));
    counts_.shared_tokens += static_cast<uint64_t>(*reused);
  }
  cached_counts_[slot] = *reused;
  return take_pages(slot, positions);
}

// Gives pages to the sequences that wait for them, the oldest one first. Returns whether none waits
// any more.
bool Generator::resume() {
  for (;;) {
    Sequence* oldest = nullptr;
    for (Sequence* sequence : slots_) {
      if (!sequence || !sequence->is_paused) continue;
      if (!oldest || is_younger(*oldest, *sequence)) oldest = sequence;
    }
    if (!oldest) return true;
    int64_t reused = 0;
    // The tokens of a text are those of the slot, which stay.
    if (!seat(*oldest, static_cast<size_t>(oldest->slot), &reused)) return false;
    oldest->taken = reused;
    oldest->is_paused = false;
  }
}

// Gives the texts the pages of their next tokens.
void Generator::reserve_next() {
  for (Sequence* sequence : slots_) {
    if (sequence && sequence->decodes()) (void)reserve(*sequence, sequence->length());
  }
}

// How many tokens of a draft have pages, at most `most`. No other sequence gives pages for a draft.
int64_t Generator::reserve_drafts(const Sequence& sequence, int64_t most) {
  const auto slot = static_cast<size_t>(sequence.slot);
  (void)take_pages(slot, sequence.length() + most);
  const int64_t room = pages_.room(slot) - sequence.length();
  return room < most ? room : most;
}

// Gives a sequence the first `count` tokens of its prompt from another slot: whole pages are
// shared, and the rest is copied if it has `least_copied` tokens or more and a page is free. Rows
// that slots have beside pages belong to all of the tokens, so without that page nothing is given.
Status Generator::share(size_t source, Sequence& to, int64_t count, int64_t least_copied,
                        husk_error* error) {
  const auto slot = static_cast<size_t>(to.slot);
  const bool has_rows = model_.has_rows();
  if (has_rows && !model_.copies()) return Status::ok;
  const int64_t rest = count % pages_.size(), whole = count - rest, before = to.taken;
  const int32_t last = rest ? pages_.of(source)[count / pages_.size()] : 0;
  if (whole > to.taken) {
    pages_.share(source, slot, whole / pages_.size());
    remember(to, to.request->prompt.data() + to.taken, whole - to.taken, to.taken);
    counts_.shared_tokens += static_cast<uint64_t>(whole - to.taken);
    to.taken = whole;
  }
  const bool copies = rest && model_.copies() && (has_rows || count - to.taken >= least_copied) &&
                      take_pages(slot, count);
  if (copies || (has_rows && !rest)) {
    const int32_t page = rest ? pages_.of(slot)[count / pages_.size()] : 0;
    HUSK_TRY(model_.copy_page(last, page, static_cast<int64_t>(source), to.slot, error));
    remember(to, to.request->prompt.data() + to.taken, count - to.taken, to.taken);
    counts_.copied_tokens += static_cast<uint64_t>(count - to.taken);
    to.taken = count;
  } else if (has_rows) {
    pages_.keep(slot, 0);
    cached_counts_[slot] = 0;
    to.taken = 0;
  }
  if (to.taken <= before) return Status::ok;
  to.reused += to.taken - before;
  counts_.reused_tokens += static_cast<uint64_t>(to.taken - before);
  return Status::ok;
}

}  // namespace husk::text
