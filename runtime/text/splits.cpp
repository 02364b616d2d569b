#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/splits.h"

#include <pcre2.h>

namespace husk::text {

namespace {

// The words of GPT-2, which the kind ByteLevel has by itself.
constexpr char kWords[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
// The characters of White_Space in Unicode, which \s means in tokenizers. That of PCRE2 has U+180E
// too.
constexpr char kSpace[] =
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}"
    "\\x{205f}\\x{3000}";

Status append(List<char>& to, const char* text, husk_error* error) {
  return to.append(text, strlen(text), error);
}

// The pattern for PCRE2. Tokenizers have those of Oniguruma, which mean the same but for \s, and
// for what is refused here.
Status translated(Span pattern, List<char>& to, husk_error* error) {
  bool is_class = false;
  for (size_t i = 0; i < pattern.size; ++i) {
    const char one = pattern.data[i], next = i + 1 < pattern.size ? pattern.data[i + 1] : '\0';
    if (one == '\\' && next) {
      ++i;
      if (next == 's' || (next == 'S' && !is_class)) {
        if (!is_class) HUSK_TRY(append(to, next == 's' ? "[" : "[^", error));
        HUSK_TRY(append(to, kSpace, error));
        if (!is_class) HUSK_TRY(append(to, "]", error));
        continue;
      }
      if (strchr("ShHKRXkg", next)) {
        return fail(error, HUSK_UNSUPPORTED, "the tokenizer splits by a pattern with \\%c", next);
      }
      const char both[] = {one, next};
      HUSK_TRY(to.append(both, 2, error));
      continue;
    }
    if (is_class && one == '&' && next == '&') {
      return fail(error, HUSK_UNSUPPORTED, "the tokenizer splits by a pattern with && in brackets");
    }
    if (one == '[' && is_class && next != ':') {
      return fail(error, HUSK_UNSUPPORTED, "the tokenizer splits by a pattern with [ in brackets");
    }
    if (one == '[') is_class = true;
    if (one == ']') is_class = false;
    HUSK_TRY(to.push(one, error));
  }
  return Status::ok;
}

Status unsupported(const Json& json, const JsonValue* kind, husk_error* error) {
  const Span name = kind ? json.text(kind) : Span("");
  return fail(error, HUSK_UNSUPPORTED, "the tokenizer splits texts by '%.*s', which Husk lacks",
              static_cast<int>(name.size), name.data);
}

}  // namespace

Splits::~Splits() {
  for (pcre2_code_8* pattern : patterns_) pcre2_code_free_8(pattern);
}

Status Splits::add(Span pattern, husk_error* error) {
  List<char> text;
  HUSK_TRY(translated(pattern, text, error));
  int code;
  PCRE2_SIZE place;
  pcre2_code_8* compiled = pcre2_compile_8(reinterpret_cast<PCRE2_SPTR8>(text.data()), text.size(),
                                           PCRE2_UTF | PCRE2_UCP | PCRE2_NO_UTF_CHECK, &code,
                                           &place, nullptr);
  if (!compiled) {
    char reason[120] = "";
    pcre2_get_error_message_8(code, reinterpret_cast<PCRE2_UCHAR8*>(reason), sizeof reason);
    return fail(error, HUSK_UNSUPPORTED, "the tokenizer splits by a pattern that PCRE2 refuses: %s",
                reason);
  }
  const Status pushed = patterns_.push(compiled, error);
  if (failed(pushed)) {
    pcre2_code_free_8(compiled);
    return pushed;
  }
  // Without JIT, as where memory must not become executable, the pattern is interpreted.
  (void)pcre2_jit_compile_8(compiled, PCRE2_JIT_COMPLETE);
  return Status::ok;
}

Status Splits::add_split(const Json& json, const JsonValue* value, husk_error* error) {
  const JsonValue* pattern = json.member(json.member(value, "pattern"), "Regex");
  if (!pattern || pattern->kind != JsonKind::string) {
    return fail(error, HUSK_UNSUPPORTED, "the tokenizer splits by a text that is no pattern");
  }
  if (!json.has_text(value, "behavior", "Isolated") || json.has_true(value, "invert")) {
    return fail(error, HUSK_UNSUPPORTED,
                "the tokenizer splits with another behavior than Isolated");
  }
  return add(json.text(pattern), error);
}

Status Splits::read(const Json& json, const JsonValue* value, husk_error* error) {
  const JsonValue* kind = json.member(value, "type");
  if (!kind || kind->kind != JsonKind::string) return unsupported(json, nullptr, error);
  const Span name = json.text(kind);
  if (equal(name, "Sequence")) {
    const JsonValue* parts = json.member(value, "pretokenizers");
    if (!parts || parts->kind != JsonKind::array) return unsupported(json, kind, error);
    for (const JsonValue* one = json.first(parts); one != json.end(parts); one = json.after(one)) {
      if (json.has_text(one, "type", "Sequence")) return unsupported(json, kind, error);
      HUSK_TRY(read(json, one, error));
    }
    return Status::ok;
  }
  if (has_bytes_) {  // what follows would see characters that stand for bytes
    return fail(error, HUSK_UNSUPPORTED, "the tokenizer splits texts after ByteLevel");
  }
  if (equal(name, "ByteLevel")) {
    if (json.has_true(value, "add_prefix_space")) {
      return fail(error, HUSK_UNSUPPORTED,
                  "the tokenizer adds a space to texts (add_prefix_space)");
    }
    has_bytes_ = true;
    const JsonValue* regex = json.member(value, "use_regex");
    return regex && !regex->truth ? Status::ok : add(Span(kWords), error);
  }
  if (equal(name, "Split")) return add_split(json, value, error);
  if (equal(name, "Digits")) {
    return add(Span(json.has_true(value, "individual_digits") ? "\\p{N}" : "\\p{N}+"), error);
  }
  return unsupported(json, kind, error);
}

Status Splits::split(List<Span>& words, List<Span>& scratch, husk_error* error) const {
  for (pcre2_code_8* pattern : patterns_) {
    pcre2_match_data_8* found = pcre2_match_data_create_8(1, nullptr);
    if (!found) return fail(error, HUSK_OUT_OF_MEMORY, "no memory for the words of a text");
    scratch.clear();
    Status status = Status::ok;
    for (size_t i = 0; i < words.size() && !failed(status); ++i) {
      const Span word = words[i];
      size_t done = 0, at = 0;
      while (at < word.size && !failed(status)) {
        const int code = pcre2_match_8(pattern, reinterpret_cast<PCRE2_SPTR8>(word.data), word.size,
                                       at, PCRE2_NO_UTF_CHECK, found, nullptr);
        if (code == PCRE2_ERROR_NOMATCH) break;
        if (code < 0) {
          status = fail(error, HUSK_LIMIT,
                        "a part of the text needs too much memory to be split "
                        "(PCRE2's error %d): give a shorter one",
                        code);
          break;
        }
        const PCRE2_SIZE* place = pcre2_get_ovector_pointer_8(found);
        if (place[1] == place[0]) {  // an empty match splits nothing
          for (at = place[0] + 1; at < word.size && (word.data[at] & 0xC0) == 0x80;) ++at;
          continue;
        }
        if (place[0] > done) status = scratch.push(word.slice(done, place[0]), error);
        if (!failed(status)) status = scratch.push(word.slice(place[0], place[1]), error);
        done = at = place[1];
      }
      if (done < word.size && !failed(status)) status = scratch.push(word.from(done), error);
    }
    pcre2_match_data_free_8(found);
    HUSK_TRY(status);
    words.clear();
    HUSK_TRY(words.append(scratch.data(), scratch.size(), error));
  }
  return Status::ok;
}

}  // namespace husk::text
