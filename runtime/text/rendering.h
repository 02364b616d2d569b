// How the tokens of a sequence become a text.
#pragma once

#include "text/json.h"

namespace husk::text {

class Rendering {
 public:
  // Reads the field `decoder`. Fails with HUSK_UNSUPPORTED, naming what the library lacks.
  Status read(const Json& json, const JsonValue* value, husk_error* error);
  // Whether tokens are bytes that need no change.
  bool is_bytes() const { return is_bytes_; }

  // Appends the bytes of a token. `is_first`: no token of the sequence was before it.
  Status append(Span token, bool is_first, List<char>& to, husk_error* error) const;
  // Whether a space at the beginning of the whole text is left out.
  bool strips_space() const { return strips_space_; }

 private:
  Status read_step(const Json& json, const JsonValue* value, husk_error* error);
  Status read_replace(const Json& json, const JsonValue* value, husk_error* error);
  Status append_wordpiece(Span token, bool is_first, List<char>& to, husk_error* error) const;
  Span from() const { return {texts_.data(), from_bytes_}; }
  Span to() const { return {texts_.data() + from_bytes_, texts_.size() - from_bytes_}; }

  bool is_bytes_ = false, has_byte_tokens_ = false, strips_space_ = false;
  bool drops_first_ = false;  // what is replaced is left out of the first token (Metaspace)
  bool is_fused_ = false;
  bool is_wordpiece_ = false, cleans_ = false;  // `texts_` is the prefix of tokens inside of words
  List<char> texts_;                            // what is replaced, and what replaces it
  size_t from_bytes_ = 0;
};

}  // namespace husk::text
