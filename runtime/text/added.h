// Tokens that are found in a text before it is split into words, such as those between messages.
#pragma once

#include "text/json.h"
#include "text/normalizer.h"
#include "text/vocabulary.h"

namespace husk::text {

struct AddedToken {
  int32_t number;
  bool is_special;
  bool takes_left, takes_right;  // the white space beside it
  bool is_normalized;            // found after the text was normalized
  size_t begin, bytes;           // its text
};

// A part of a text: a token, or characters (-1).
struct Part {
  Span text;
  int32_t token;
};

class AddedTokens {
 public:
  // Reads the field `added_tokens`, and adds the tokens to the vocabulary.
  Status read(const Json& json, const JsonValue* value, const Normalizer& normalizer,
              Vocabulary& vocabulary, husk_error* error);
  // Appends the parts of a text. `normalized` says which of the tokens are looked for; special ones
  // are left out if `plain`.
  Status split(Span text, bool normalized, bool plain, List<Part>& parts, husk_error* error) const;
  bool has_normalized() const { return has_normalized_; }

 private:
  const AddedToken* longest(Span text, bool normalized, bool plain) const;
  Span text_of(const AddedToken& token) const { return {texts_.data() + token.begin, token.bytes}; }

  List<AddedToken> tokens_;
  List<char> texts_;
  List<uint32_t> order_;      // indices of tokens by their first byte
  uint32_t first_[257] = {};  // where those of a byte begin in `order_`
  bool has_normalized_ = false;
};

}  // namespace husk::text
