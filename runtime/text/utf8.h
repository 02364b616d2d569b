// UTF-8: checked texts, and code points.
#pragma once

#include "text/list.h"

namespace husk::text {

// The bytes of the character at the beginning of `text`, which is not empty: 1 to 4 if it is right;
// 0 if the text ends inside of a character that is right so far; -n if its first n bytes, 1 to 3,
// are wrong.
inline int character(Span text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text.data[i]); };
  const uint8_t first = byte(0);
  if (first < 0x80) return 1;
  const int length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4) return -1;
  for (int i = 1; i < length; ++i) {
    if (static_cast<size_t>(i) == text.size) return 0;
    uint8_t low = 0x80, high = 0xBF;
    if (i == 1 && first == 0xE0) low = 0xA0;   // not the shortest form
    if (i == 1 && first == 0xED) high = 0x9F;  // a surrogate
    if (i == 1 && first == 0xF0) low = 0x90;
    if (i == 1 && first == 0xF4) high = 0x8F;  // above U+10FFFF
    if (byte(i) < low || byte(i) > high) return -i;
  }
  return length;
}

// The code point of the right character at the beginning of `text`.
inline uint32_t code_point(Span text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text.data[i]); };
  if (byte(0) < 0x80) return byte(0);
  if (byte(0) < 0xE0) return (byte(0) & 0x1Fu) << 6 | (byte(1) & 0x3Fu);
  if (byte(0) < 0xF0) return (byte(0) & 0xFu) << 12 | (byte(1) & 0x3Fu) << 6 | (byte(2) & 0x3Fu);
  return (byte(0) & 7u) << 18 | (byte(1) & 0x3Fu) << 12 | (byte(2) & 0x3Fu) << 6 |
         (byte(3) & 0x3Fu);
}

// Writes a code point and returns how many bytes it has.
inline int write_code_point(uint32_t point, char* to) {
  if (point < 0x80) {
    to[0] = static_cast<char>(point);
    return 1;
  }
  const int length = point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
  for (int i = length - 1; i > 0; --i, point >>= 6)
    to[i] = static_cast<char>(0x80 | (point & 0x3F));
  to[0] = static_cast<char>((length == 2 ? 0xC0u : length == 3 ? 0xE0u : 0xF0u) | point);
  return length;
}

// Where the first byte is that is no UTF-8; the size of the text if all of it is.
inline size_t find_no_utf8(Span text) {
  size_t at = 0;
  while (at < text.size) {
    const int length = character(text.from(at));
    if (length <= 0) break;
    at += static_cast<size_t>(length);
  }
  return at;
}

// Fails with HUSK_INVALID_INPUT at the first byte that is no UTF-8.
inline Status check_utf8(Span text, husk_error* error) {
  const size_t at = find_no_utf8(text);
  if (at == text.size) return Status::ok;
  return fail(error, HUSK_INVALID_INPUT, "the text is no UTF-8: byte %zu is 0x%02X", at,
              static_cast<uint8_t>(text.data[at]));
}

// Whether a character is White_Space in Unicode.
inline bool is_space(uint32_t point) {
  return (point >= 9 && point <= 13) || point == 0x20 || point == 0x85 || point == 0xA0 ||
         point == 0x1680 || (point >= 0x2000 && point <= 0x200A) || point == 0x2028 ||
         point == 0x2029 || point == 0x202F || point == 0x205F || point == 0x3000;
}

// Where the white space before `end` begins, not before `least`.
inline size_t space_before(Span text, size_t least, size_t end) {
  while (end > least) {
    size_t at = end - 1;
    while (at > least && (text.data[at] & 0xC0) == 0x80) --at;
    if (!is_space(code_point(text.from(at)))) break;
    end = at;
  }
  return end;
}

// Where the white space from `begin` on ends.
inline size_t space_after(Span text, size_t begin) {
  while (begin < text.size && is_space(code_point(text.from(begin)))) {
    begin += static_cast<size_t>(character(text.from(begin)));
  }
  return begin;
}

}  // namespace husk::text
