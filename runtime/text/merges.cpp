#include "text/merges.h"

#include "text/utf8.h"

namespace husk::text {

namespace {

uint64_t pair_of(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

// Whether `a` is done before `b`: the earlier rule, then the place further left.
bool is_before(const Merges::Candidate& a, const Merges::Candidate& b) {
  return a.rank != b.rank ? a.rank < b.rank : a.at < b.at;
}

// `heap` is one but for its last element.
void sift_up(List<Merges::Candidate>& heap) {
  size_t at = heap.size() - 1;
  const Merges::Candidate moved = heap[at];
  for (; at > 0 && is_before(moved, heap[(at - 1) / 2]); at = (at - 1) / 2) {
    heap[at] = heap[(at - 1) / 2];
  }
  heap[at] = moved;
}

Merges::Candidate pop(List<Merges::Candidate>& heap) {
  const Merges::Candidate top = heap[0], moved = heap[heap.size() - 1];
  heap.shrink(heap.size() - 1);
  size_t at = 0;
  while (2 * at + 1 < heap.size()) {
    size_t child = 2 * at + 1;
    if (child + 1 < heap.size() && is_before(heap[child + 1], heap[child])) ++child;
    if (!is_before(heap[child], moved)) break;
    heap[at] = heap[child];
    at = child;
  }
  if (!heap.empty()) heap[at] = moved;
  return top;
}

}  // namespace

Status Merges::allocate(size_t count, husk_error* error) {
  slot_count_ = 16;
  while (slot_count_ < 2 * count) slot_count_ *= 2;
  slots_ = static_cast<Rule*>(calloc(slot_count_, sizeof(Rule)));
  if (!slots_) return fail(error, HUSK_OUT_OF_MEMORY, "no memory for the rules of the tokenizer");
  for (size_t i = 0; i < slot_count_; ++i) slots_[i].joined = -1;
  return Status::ok;
}

Merges::Rule* Merges::place(uint64_t pair) const {
  uint64_t hash = pair * 0x9E3779B97F4A7C15u;
  for (size_t at = hash ^ hash >> 29;; ++at) {
    Rule* slot = slots_ + (at & (slot_count_ - 1));
    if (slot->joined < 0 || slot->pair == pair) return slot;
  }
}

void Merges::add(int32_t left, int32_t right, int32_t joined) {
  Rule* slot = place(pair_of(left, right));
  if (slot->joined < 0) *slot = {pair_of(left, right), count_, joined};
  ++count_;
}

const Merges::Rule* Merges::find(int32_t left, int32_t right) const {
  const Rule* slot = place(pair_of(left, right));
  return slot->joined < 0 ? nullptr : slot;
}

void Merges::find_bytes(const Vocabulary& vocabulary) {
  for (int byte = 0; byte < 256; ++byte) {
    const char one = static_cast<char>(byte);
    bytes_[byte] = vocabulary.find({&one, 1});
  }
}

void Merges::find_characters(const Vocabulary& vocabulary, int32_t unknown, bool fuses,
                             bool has_byte_tokens) {
  has_characters_ = true;
  unknown_ = unknown;
  fuses_ = fuses;
  has_byte_tokens_ = has_byte_tokens;
  vocabulary.find_byte_tokens(bytes_);
}

Status Merges::propose(Scratch& scratch, int32_t at, husk_error* error) const {
  if (at < 0) return Status::ok;
  const Symbol& left = scratch.symbols[static_cast<size_t>(at)];
  if (left.after < 0) return Status::ok;
  const Rule* rule = find(left.token, scratch.symbols[static_cast<size_t>(left.after)].token);
  if (!rule) return Status::ok;
  HUSK_TRY(scratch.heap.push({rule->rank, at, rule->joined}, error));
  sift_up(scratch.heap);
  return Status::ok;
}

namespace {

Status add_symbol(int32_t token, List<Merges::Symbol>& symbols, husk_error* error) {
  const auto index = static_cast<int32_t>(symbols.size());
  if (index > 0) symbols[static_cast<size_t>(index) - 1].after = index;
  return symbols.push({token, index - 1, -1}, error);
}

}  // namespace

Status Merges::begin_bytes(Span word, List<Symbol>& symbols, husk_error* error) const {
  for (size_t i = 0; i < word.size; ++i) {
    const int32_t token = bytes_[static_cast<uint8_t>(word.data[i])];
    if (token >= 0) HUSK_TRY(add_symbol(token, symbols, error));
  }
  return Status::ok;
}

Status Merges::begin_characters(const Vocabulary& vocabulary, Span word, List<Symbol>& symbols,
                                husk_error* error) const {
  bool has_unknown = false;  // characters without a token came, which are one symbol of the list
  for (size_t at = 0; at < word.size;) {
    const auto length = static_cast<size_t>(character(word.from(at)));
    const Span one = word.slice(at, at + length);
    at += length;
    const int32_t token = vocabulary.find(one);
    if (token >= 0) {
      if (has_unknown) HUSK_TRY(add_symbol(unknown_, symbols, error));
      has_unknown = false;
      HUSK_TRY(add_symbol(token, symbols, error));
      continue;
    }
    bool has_all = has_byte_tokens_;
    for (size_t i = 0; i < one.size; ++i) has_all &= bytes_[static_cast<uint8_t>(one.data[i])] >= 0;
    if (has_all) {
      for (size_t i = 0; i < one.size; ++i) {
        HUSK_TRY(add_symbol(bytes_[static_cast<uint8_t>(one.data[i])], symbols, error));
      }
      continue;
    }
    if (unknown_ < 0) continue;
    if (has_unknown && !fuses_) HUSK_TRY(add_symbol(unknown_, symbols, error));
    has_unknown = true;
  }
  return has_unknown ? add_symbol(unknown_, symbols, error) : Status::ok;
}

Status Merges::encode(const Vocabulary& vocabulary, Span word, Scratch& scratch,
                      List<int32_t>& tokens, husk_error* error) const {
  if (prefers_words_) {
    const int32_t whole = vocabulary.find(word);
    if (whole >= 0) return tokens.push(whole, error);
  }
  List<Symbol>& symbols = scratch.symbols;
  symbols.clear();
  scratch.heap.clear();
  HUSK_TRY(has_characters_ ? begin_characters(vocabulary, word, symbols, error)
                           : begin_bytes(word, symbols, error));
  for (size_t i = 0; i + 1 < symbols.size(); ++i) {
    HUSK_TRY(propose(scratch, static_cast<int32_t>(i), error));
  }
  while (!scratch.heap.empty()) {
    const Candidate next = pop(scratch.heap);
    Symbol& left = symbols[static_cast<size_t>(next.at)];
    if (left.token < 0 || left.after < 0) continue;
    Symbol& right = symbols[static_cast<size_t>(left.after)];
    const Rule* rule = find(left.token, right.token);
    if (!rule || rule->joined != next.token) continue;  // one of the two was joined meanwhile
    left.token = next.token;
    right.token = -1;
    left.after = right.after;
    if (left.after >= 0) symbols[static_cast<size_t>(left.after)].before = next.at;
    HUSK_TRY(propose(scratch, left.before, error));
    HUSK_TRY(propose(scratch, next.at, error));
  }
  for (const Symbol& symbol : symbols) {
    if (symbol.token >= 0) HUSK_TRY(tokens.push(symbol.token, error));
  }
  return Status::ok;
}

}  // namespace husk::text
