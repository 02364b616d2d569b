#include "text/pattern.h"

namespace husk::text {

namespace {

Status append_literal(List<char>& to, const char* text, husk_error* error) {
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
        if (!is_class) HUSK_TRY(append_literal(to, next == 's' ? "[" : "[^", error));
        HUSK_TRY(append_literal(to, kSpace, error));
        if (!is_class) HUSK_TRY(append_literal(to, "]", error));
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

Status compile(Span text, uint32_t options, pcre2_code_8** code, husk_error* error) {
  // Patterns come from JSON, which is UTF-8.
  options |= PCRE2_UTF | PCRE2_NO_UTF_CHECK;
  int number;
  PCRE2_SIZE place;
  *code = pcre2_compile_8(reinterpret_cast<PCRE2_SPTR8>(text.data), text.size, options, &number,
                          &place, nullptr);
  if (!*code) {
    char reason[120] = "";
    pcre2_get_error_message_8(number, reinterpret_cast<PCRE2_UCHAR8*>(reason), sizeof reason);
    return fail(error, HUSK_UNSUPPORTED, "the tokenizer splits by a pattern that PCRE2 refuses: %s",
                reason);
  }
  // Without JIT, as where memory must not become executable, the pattern is interpreted.
  (void)pcre2_jit_compile_8(*code, PCRE2_JIT_COMPLETE);
  return Status::ok;
}

}  // namespace

Status compile_pattern(Span pattern, pcre2_code_8** code, husk_error* error) {
  List<char> text;
  HUSK_TRY(translated(pattern, text, error));
  // \C would match a part of a character.
  return compile({text.data(), text.size()}, PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, code, error);
}

Status compile_literal(Span text, pcre2_code_8** code, husk_error* error) {
  return compile(text, PCRE2_LITERAL, code, error);
}

}  // namespace husk::text
