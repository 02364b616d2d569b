// Patterns of tokenizers, which are those of Oniguruma, for PCRE2.
#pragma once

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "text/list.h"

namespace husk::text {

// The characters of White_Space in Unicode, which \s means in tokenizers, for brackets of PCRE2.
// That of PCRE2 has U+180E too.
constexpr char kSpace[] =
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}"
    "\\x{205f}\\x{3000}";

// Compiles a pattern, or a text that is to be found as it is. The caller frees the code.
Status compile_pattern(Span pattern, pcre2_code_8** code, husk_error* error);
Status compile_literal(Span text, pcre2_code_8** code, husk_error* error);

// Calls `found(begin, end)` for each match that is not empty; stops at a failure.
template <class F>
Status for_matches(const pcre2_code_8* code, Span text, husk_error* error, F found) {
  pcre2_match_data_8* data = pcre2_match_data_create_8(1, nullptr);
  if (!data) return fail(error, HUSK_OUT_OF_MEMORY, "no memory for the words of a text");
  Status status = Status::ok;
  for (size_t at = 0; at < text.size && !failed(status);) {
    const int result = pcre2_match_8(code, reinterpret_cast<PCRE2_SPTR8>(text.data), text.size, at,
                                     PCRE2_NO_UTF_CHECK, data, nullptr);
    if (result == PCRE2_ERROR_NOMATCH) break;
    if (result < 0) {
      status = fail(error, HUSK_LIMIT,
                    "a part of the text needs too much memory to be split (PCRE2's error %d): give "
                    "a shorter one",
                    result);
      break;
    }
    const PCRE2_SIZE* place = pcre2_get_ovector_pointer_8(data);
    const size_t begin = place[0], end = place[1];
    if (begin == end) {  // an empty match
      for (at = begin + 1; at < text.size && (text.data[at] & 0xC0) == 0x80;) ++at;
      continue;
    }
    status = found(begin, end);
    at = end;
  }
  pcre2_match_data_free_8(data);
  return status;
}

}  // namespace husk::text
