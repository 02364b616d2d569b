/* Texts of files in messages. A name in a file may be any bytes: controls that a terminal obeys,
 * marks that turn the direction of writing round, or no UTF-8 at all. */
#ifndef HUSK_DETAIL_PRINTABLE_H
#define HUSK_DETAIL_PRINTABLE_H

#include <stddef.h>
#include <stdint.h>

namespace husk::detail {

// Returns the length of the printable letter of UTF-8 at `text`, 1 to 4 bytes, or 0 if the first
// byte must be escaped. `text` ends with a 0.
[[gnu::noinline]] inline size_t printable_letter(const char* text) {
  const auto* at = reinterpret_cast<const uint8_t*>(text);
  const uint8_t first = at[0];
  if (first < 0x80) return first >= 0x20 && first != 0x7F;
  if (first < 0xC2 || first > 0xF4) return 0;
  const size_t length = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  for (size_t i = 1; i < length; ++i)
    if ((at[i] & 0xC0) != 0x80) return 0;
  const uint8_t second = at[1];
  switch (first) {
    case 0xC2: return second < 0xA0 ? 0 : length;  // controls, U+0080 to U+009F
    case 0xE0: return second < 0xA0 ? 0 : length;  // a longer form than needed
    case 0xED: return second > 0x9F ? 0 : length;  // surrogates
    case 0xF0: return second < 0x90 ? 0 : length;  // a longer form than needed
    case 0xF4: return second > 0x8F ? 0 : length;  // beyond U+10FFFF
    case 0xE2:  // separators of lines and marks of direction: U+2028 to U+202E, U+2066 to U+2069
      if (second == 0x80 && at[2] >= 0xA8 && at[2] <= 0xAE) return 0;
      if (second == 0x81 && at[2] >= 0xA6 && at[2] <= 0xA9) return 0;
      return length;
    default: return length;
  }
}

// Copies a text to `out`, which has room for `room` bytes, and ends it with a 0. A byte that is not
// part of a printable letter becomes \xHH. What does not fit is left out, as a whole letter.
[[gnu::noinline]] inline void write_printable(const char* text, char* out, size_t room) {
  constexpr char kDigits[] = "0123456789abcdef";
  size_t used = 0;
  while (*text) {
    const size_t length = printable_letter(text);
    if (used + (length ? length : 4) >= room) break;
    for (size_t i = 0; i < length; ++i) out[used++] = text[i];
    if (!length) {
      const auto byte = static_cast<uint8_t>(*text);
      const char escape[4] = {'\\', 'x', kDigits[byte >> 4], kDigits[byte & 15]};
      for (char one : escape) out[used++] = one;
    }
    text += length ? length : 1;
  }
  out[used] = 0;
}

}  // namespace husk::detail

#endif
