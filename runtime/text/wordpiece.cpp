#include "text/wordpiece.h"

namespace husk::text {

namespace {

bool begins_character(char byte) { return (byte & 0xC0) != 0x80; }

}  // namespace

Status WordPiece::set(Span prefix, size_t most, int32_t unknown, husk_error* error) {
  most_ = most;
  unknown_ = unknown;
  return prefix_.append(prefix.data, prefix.size, error);
}

Status WordPiece::encode(const Vocabulary& vocabulary, Span word, List<char>& scratch,
                         List<int32_t>& tokens, husk_error* error) const {
  const size_t before = tokens.size();
  size_t characters = 0;
  for (size_t i = 0; i < word.size; ++i) characters += begins_character(word.data[i]);
  if (characters > most_) return tokens.push(unknown_, error);
  scratch.clear();
  HUSK_TRY(scratch.append(prefix_.data(), prefix_.size(), error));
  HUSK_TRY(scratch.append(word.data, word.size, error));
  const size_t prefix = prefix_.size();
  for (size_t begin = 0; begin < word.size;) {
    // The prefix lies before what is left of the word.
    if (begin) memcpy(scratch.data() + begin, prefix_.data(), prefix);
    size_t end = word.size;
    int32_t token = -1;
    while (end > begin) {
      token = vocabulary.find(begin ? Span(scratch.data() + begin, end - begin + prefix)
                                    : word.slice(0, end));
      if (token >= 0) break;
      do --end;
      while (end > begin && !begins_character(word.data[end]));
    }
    if (token < 0) {
      tokens.shrink(before);
      return tokens.push(unknown_, error);
    }
    HUSK_TRY(tokens.push(token, error));
    begin = end;
  }
  return Status::ok;
}

}  // namespace husk::text
