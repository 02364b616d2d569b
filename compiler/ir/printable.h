// Texts of files for a terminal.
#pragma once

#include <algorithm>
#include <string>

#include <husk/detail/printable.h>

namespace husk {

// The text with \xHH for everything that is no printable letter, line feeds included: names in a
// file may hold anything.
inline std::string printable(const std::string& text) {
  std::string out;
  for (const char* at = text.c_str(); at != text.c_str() + text.size();) {
    char escaped[8];
    const size_t length = detail::printable_letter(at);
    if (length) {
      out.append(at, length);
    } else {
      const char byte[2] = {*at, 0};
      detail::write_printable(byte, escaped, sizeof escaped);
      out += *at ? escaped : "\\x00";
    }
    at += length ? length : 1;
  }
  return out;
}

// The same for a text of several lines, whose line feeds stay.
inline std::string printable_lines(const std::string& text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    out += printable(text.substr(at, end - at));
    if (end < text.size()) out += '\n';
    at = end + 1;
  }
  return out;
}

}  // namespace husk
