// What splits a text into words, in which alone tokens are joined.
#pragma once

#include "text/json.h"

struct pcre2_real_code_8;

namespace husk::text {

class Splits {
 public:
  Splits() = default;
  Splits(const Splits&) = delete;
  ~Splits();

  // Reads the field `pre_tokenizer`. Fails with HUSK_UNSUPPORTED, naming what the library lacks.
  Status read(const Json& json, const JsonValue* value, husk_error* error);
  // Replaces `words`, the parts of a text, by words. `scratch` is for the call.
  Status split(List<Span>& words, List<Span>& scratch, husk_error* error) const;
  bool has_bytes() const { return has_bytes_; }

 private:
  Status add(Span pattern, husk_error* error);
  Status add_split(const Json& json, const JsonValue* value, husk_error* error);

  List<pcre2_real_code_8*> patterns_;
  bool has_bytes_ = false;
};

}  // namespace husk::text
