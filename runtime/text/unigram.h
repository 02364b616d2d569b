// Unigram: a word becomes the tokens whose scores have the largest sum.
#pragma once

#include "text/vocabulary.h"

namespace husk::text {

class Unigram {
 public:
  // The best way to the characters that end at a place of a word.
  struct Place {
    double score;
    int32_t begin;  // of its last token; -1: there is no way yet
    int32_t token;
  };
  struct Scratch {
    List<Place> places;
    List<Span> pieces;
  };

  // Adds the score of the next token.
  Status add(double score, husk_error* error) { return scores_.push(score, error); }
  // Prepares to encode. `unknown` is a token, or -1: a character without a token is left out then.
  Status finish(const Vocabulary& vocabulary, int32_t unknown, bool has_byte_tokens,
                husk_error* error);
  // Appends the tokens of a word.
  Status encode(const Vocabulary& vocabulary, Span word, Scratch& scratch, List<int32_t>& tokens,
                husk_error* error) const;

 private:
  void visit(const Vocabulary& vocabulary, Span word, size_t begin, List<Place>& places) const;
  Status append(const Vocabulary& vocabulary, Span piece, List<int32_t>& tokens,
                husk_error* error) const;

  List<double> scores_;
  List<int32_t> order_;  // tokens in the order of their bytes
  int32_t bytes_[256] = {};
  int32_t unknown_ = -1;
  bool has_byte_tokens_ = false;
  double unknown_score_ = 0;
};

}  // namespace husk::text
