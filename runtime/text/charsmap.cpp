#include "text/charsmap.h"

#include <utf8proc.h>

#include "text/utf8.h"

namespace husk::text {

namespace {

int base64_digit(char digit) {
  if (digit >= 'A' && digit <= 'Z') return digit - 'A';
  if (digit >= 'a' && digit <= 'z') return digit - 'a' + 26;
  if (digit >= '0' && digit <= '9') return digit - '0' + 52;
  return digit == '+' ? 62 : digit == '/' ? 63 : -1;
}

Status append_base64(Span text, List<char>& to, husk_error* error) {
  while (text.size && text.data[text.size - 1] == '=') --text.size;
  uint32_t bits = 0;
  int count = 0;
  for (size_t i = 0; i < text.size; ++i) {
    const int digit = base64_digit(text.data[i]);
    if (digit < 0) {
      return fail(error, HUSK_INVALID_FILE, "the tokenizer's map of characters is no base64");
    }
    bits = bits << 6 | static_cast<uint32_t>(digit);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    HUSK_TRY(to.push(static_cast<char>(bits >> count), error));
  }
  return Status::ok;
}

// The parts of a unit of the double array.
bool has_leaf(uint32_t unit) { return unit >> 8 & 1; }
uint32_t value_of(uint32_t unit) { return unit & 0x7FFFFFFF; }
uint32_t label_of(uint32_t unit) { return unit & 0x800000FF; }
uint32_t offset_of(uint32_t unit) { return unit >> 10 << ((unit & 1 << 9) >> 6); }

}  // namespace

Status Charsmap::read(Span base64, husk_error* error) {
  List<char> bytes;
  HUSK_TRY(append_base64(base64, bytes, error));
  uint32_t size = 0;
  if (bytes.size() >= 4) memcpy(&size, bytes.data(), 4);
  if (bytes.size() < 8 || size > bytes.size() - 4 || size % 4 || size == 0) {
    return fail(error, HUSK_INVALID_FILE, "the tokenizer's map of characters is cut off");
  }
  HUSK_TRY(units_.resize(size / 4, error));
  memcpy(units_.data(), bytes.data() + 4, size);
  HUSK_TRY(texts_.append(bytes.data() + 4 + size, bytes.size() - 4 - size, error));
  HUSK_TRY(texts_.push('\0', error));
  // Replacements are UTF-8, so that no text becomes something else.
  if (failed(check_utf8({texts_.data(), texts_.size()}, nullptr))) {
    return fail(error, HUSK_INVALID_FILE, "the tokenizer's map of characters is no UTF-8");
  }
  return Status::ok;
}

// Finds the replacement of the shortest text of the map that `text` begins with.
bool Charsmap::find(Span text, Span* replacement) const {
  size_t node = offset_of(units_[0]);
  for (size_t i = 0; i < text.size && text.data[i]; ++i) {
    const auto byte = static_cast<uint8_t>(text.data[i]);
    node ^= byte;
    if (node >= units_.size() || label_of(units_[node]) != byte) return false;
    const uint32_t unit = units_[node];
    node ^= offset_of(unit);
    if (!has_leaf(unit)) continue;
    if (node >= units_.size()) return false;
    const size_t begin = value_of(units_[node]);
    if (begin >= texts_.size() || (texts_[begin] & 0xC0) == 0x80) return false;
    *replacement = Span(texts_.data() + begin);
    return true;
  }
  return false;
}

Status Charsmap::append(Span text, List<char>& to, husk_error* error) const {
  constexpr size_t kLongest = 5;  // a longer group of characters is looked up by its characters
  for (size_t at = 0; at < text.size;) {
    // The characters up to `end` are what a reader sees as one.
    size_t end = at + static_cast<size_t>(character(text.from(at)));
    auto last = static_cast<utf8proc_int32_t>(code_point(text.from(at)));
    utf8proc_int32_t state = 0;
    while (end < text.size) {
      const auto next = static_cast<utf8proc_int32_t>(code_point(text.from(end)));
      if (utf8proc_grapheme_break_stateful(last, next, &state)) break;
      last = next;
      end += static_cast<size_t>(character(text.from(end)));
    }
    Span replacement;
    if (end - at <= kLongest && find(text.slice(at, end), &replacement)) {
      HUSK_TRY(to.append(replacement.data, replacement.size, error));
      at = end;
    }
    while (at < end) {
      const size_t after = at + static_cast<size_t>(character(text.from(at)));
      const bool is_found = find(text.slice(at, after), &replacement);
      const Span one = is_found ? replacement : text.slice(at, after);
      HUSK_TRY(to.append(one.data, one.size, error));
      at = after;
    }
  }
  return Status::ok;
}

}  // namespace husk::text
