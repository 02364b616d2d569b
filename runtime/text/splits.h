// What splits a text into words, in which alone tokens are joined.
#pragma once

#include "text/json.h"

struct pcre2_real_code_8;

namespace husk::text {

// The words of a text, and the memory for them; a call of the tokenizer keeps it for all parts.
struct Words {
  List<Span> found;
  List<Span> scratch;
  List<char> spaced;  // what a Metaspace has made of the text
};

class Splits {
 public:
  Splits() = default;
  Splits(const Splits&) = delete;
  ~Splits();

  // Reads the field `pre_tokenizer`. Fails with HUSK_UNSUPPORTED, naming what the library lacks.
  Status read(const Json& json, const JsonValue* value, husk_error* error);
  // Splits a part of a text. `at_begin`: it is the first part of the whole text.
  Status split(Span text, bool at_begin, Words& words, husk_error* error) const;
  bool has_bytes() const { return has_bytes_; }

 private:
  enum class Matches : uint8_t { isolated, removed, with_previous, with_next };
  enum class Prefix : uint8_t { never, first, always };
  struct Step {
    pcre2_real_code_8* pattern;  // null for a Metaspace
    Matches matches;
    Prefix prefix;        // of a Metaspace
    bool splits;          // a Metaspace, before each of its characters
    char replacement[4];  // for a space, in a Metaspace
    uint32_t replacement_bytes;
  };

  Status add(Span pattern, bool is_literal, Matches matches, husk_error* error);
  Status add_split(const Json& json, const JsonValue* value, husk_error* error);
  Status add_metaspace(const Json& json, const JsonValue* value, husk_error* error);
  Status apply(const Step& step, Span word, List<Span>& to, husk_error* error) const;
  Status add_spaces(const Step& step, Span text, bool at_begin, Words& words,
                    husk_error* error) const;

  List<Step> steps_;
  bool has_bytes_ = false, has_metaspace_ = false;
};

}  // namespace husk::text
