// The tokens of a model by number, and by their bytes.
#pragma once

#include "text/list.h"

namespace husk::text {

// Tokenizers of bytes write each byte as a character, so that vocabularies are texts. Appends the
// bytes of such a text, or the text itself if a character of it stands for no byte.
Status append_bytes(Span characters, List<char>& to, husk_error* error);

class Vocabulary {
 public:
  struct Token {
    size_t begin;
    uint32_t bytes;
    bool exists, is_special;
  };

  Vocabulary() = default;
  Vocabulary(const Vocabulary&) = delete;
  ~Vocabulary() { free(slots_); }

  // Adds a token, whose bytes are copied. A number that exists keeps its bytes.
  Status add(int32_t number, Span bytes, husk_error* error);
  void set_special(int32_t number) { tokens_[static_cast<size_t>(number)].is_special = true; }
  // The number of the token with these bytes, or -1.
  int32_t find(Span bytes) const;
  // The tokens <0x00> to <0xFF>, or -1 for those that are not there.
  void find_byte_tokens(int32_t (&tokens)[256]) const;

  size_t size() const { return tokens_.size(); }
  bool has(int32_t number) const {
    return number >= 0 && static_cast<size_t>(number) < tokens_.size() &&
           tokens_[static_cast<size_t>(number)].exists;
  }
  bool is_special(int32_t number) const {
    return has(number) && tokens_[static_cast<size_t>(number)].is_special;
  }
  Span bytes(int32_t number) const {
    const Token& token = tokens_[static_cast<size_t>(number)];
    return {bytes_.data() + token.begin, token.bytes};
  }

 private:
  Status grow(husk_error* error);
  uint32_t* place(Span bytes) const;

  List<Token> tokens_;
  List<char> bytes_;
  uint32_t* slots_ = nullptr;  // a hash table of numbers of tokens, plus 1
  size_t slot_count_ = 0, used_ = 0;
};

}  // namespace husk::text
