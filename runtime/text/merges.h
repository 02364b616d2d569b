// BPE: the bytes or the characters of a word become tokens, and pairs of tokens one, the first rule
// of the list first.
#pragma once

#include "text/vocabulary.h"

namespace husk::text {

class Merges {
 public:
  struct Symbol {
    int32_t token;          // -1: joined to the one before
    int32_t before, after;  // indices; -1: none
  };
  struct Candidate {
    uint32_t rank;
    int32_t at;  // the left one of the two symbols
    int32_t token;
  };
  // The memory that `encode` needs for a word; a call of the tokenizer keeps it for all words.
  struct Scratch {
    List<Symbol> symbols;
    List<Candidate> heap;
  };

  Merges() = default;
  Merges(const Merges&) = delete;
  ~Merges() { free(slots_); }

  // Prepares for so many rules.
  Status allocate(size_t count, husk_error* error);
  // Adds the next rule. The first of two rules for the same pair counts.
  void add(int32_t left, int32_t right, int32_t joined);
  // Words begin as bytes, each of which is a token. A byte without a token is left out of texts.
  void find_bytes(const Vocabulary& vocabulary);
  // Words begin as characters. One without a token becomes `unknown` (-1: it is left out), several
  // in a row one if `fuses`; or, if `has_byte_tokens`, the tokens <0x00> to <0xFF> of its bytes.
  void find_characters(const Vocabulary& vocabulary, int32_t unknown, bool fuses,
                       bool has_byte_tokens);
  // Whether a word that is a token is that token, whatever the rules say.
  void prefer_words(bool prefer) { prefers_words_ = prefer; }

  // Appends the tokens of a word.
  Status encode(const Vocabulary& vocabulary, Span word, Scratch& scratch, List<int32_t>& tokens,
                husk_error* error) const;

 private:
  struct Rule {
    uint64_t pair;  // the two tokens
    uint32_t rank;
    int32_t joined;
  };
  Status begin_bytes(Span word, List<Symbol>& symbols, husk_error* error) const;
  Status begin_characters(const Vocabulary& vocabulary, Span word, List<Symbol>& symbols,
                          husk_error* error) const;
  const Rule* find(int32_t left, int32_t right) const;
  Rule* place(uint64_t pair) const;
  Status propose(Scratch& scratch, int32_t at, husk_error* error) const;

  Rule* slots_ = nullptr;  // a hash table; `joined` is -1 in an empty slot
  size_t slot_count_ = 0;
  uint32_t count_ = 0;
  int32_t bytes_[256] = {};
  int32_t unknown_ = -1;
  bool has_characters_ = false, fuses_ = false, has_byte_tokens_ = false;
  bool prefers_words_ = false;
};

}  // namespace husk::text
