// A normalizer changes the characters of a text before it is split into words.
#pragma once

#include "text/charsmap.h"
#include "text/json.h"

struct pcre2_real_code_8;

namespace husk::text {

class Normalizer {
 public:
  Normalizer() = default;
  Normalizer(const Normalizer&) = delete;
  ~Normalizer();

  // Reads the field `normalizer`. Fails with HUSK_UNSUPPORTED, naming what the library lacks.
  Status read(const Json& json, const JsonValue* value, husk_error* error);
  bool is_empty() const { return steps_.empty(); }
  // Changes a text. `scratch` is for the call.
  Status apply(List<char>& text, List<char>& scratch, husk_error* error) const;

 private:
  enum class Kind : uint8_t {
    form,
    prepend,
    replace,
    replace_pattern,
    lowercase,
    strip,
    strip_accents,
    charsmap,
    clean,   // what BERT takes for no text
    spread,  // spaces around Chinese characters
  };
  struct Step {
    Kind kind;
    int32_t form;                // options of utf8proc
    size_t from, from_bytes;     // the text that is replaced, in texts_
    size_t to, to_bytes;         // what replaces it, or is prepended
    pcre2_real_code_8* pattern;  // that is replaced
    bool left, right;            // where white space is stripped
  };

  Status add(Kind kind, husk_error* error);
  Status read_bert(const Json& json, const JsonValue* value, husk_error* error);
  Status read_replace(const Json& json, const JsonValue* value, husk_error* error);
  Status keep(Span text, size_t* place, size_t* bytes, husk_error* error);
  Status run(const Step& step, Span text, List<char>& to, husk_error* error) const;
  Span from(const Step& step) const { return {texts_.data() + step.from, step.from_bytes}; }
  Span to(const Step& step) const { return {texts_.data() + step.to, step.to_bytes}; }

  List<Step> steps_;
  List<char> texts_;
  Charsmap charsmap_;
};

}  // namespace husk::text
