// WordPiece: a word becomes the longest token that it begins with, and so on for the rest.
#pragma once

#include "text/vocabulary.h"

namespace husk::text {

class WordPiece {
 public:
  // `prefix` is before tokens that are not the first of a word. A word that is no row of tokens, or
  // has more than `most` characters, is `unknown`.
  Status set(Span prefix, size_t most, int32_t unknown, husk_error* error);
  // Appends the tokens of a word. `scratch` is for the call.
  Status encode(const Vocabulary& vocabulary, Span word, List<char>& scratch, List<int32_t>& tokens,
                husk_error* error) const;

 private:
  List<char> prefix_;
  size_t most_ = 0;
  int32_t unknown_ = -1;
};

}  // namespace husk::text
