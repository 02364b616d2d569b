// The texts with which damaged artifacts are refused.
#pragma once

#include <algorithm>
#include <cctype>
#include <cstring>
#include <string>

namespace husk::fuzz {

// Whether a text names the part of the file, or the op, that it is about.
inline bool names_a_part(const std::string& text) {
  constexpr const char* kParts[] = {
      "FlatBuffer", "argument", "blob",     "block",  "buffer",   "constant", "dim",    "dtype",
      "function",   "image",    "index",    "input",  "instruct", "item",     "kernel", "list",
      "loop",       "magic",    "metadata", "name",   "op",       "operand",  "output", "param",
      "rank",       "register", "result",   "row",    "scalar",   "segment",  "space",  "state",
      "step",       "string",   "symbol",   "target", "tensor",   "text",     "type",   "value",
      "variant",    "version",  "view",     "aten::", "prims::"};
  return text.size() >= 12 &&
         std::any_of(std::begin(kParts), std::end(kParts),
                     [&](const char* part) { return text.find(part) != std::string::npos; });
}

// The text with its numbers and names replaced by placeholders.
inline std::string kind_of(const std::string& text) {
  std::string kind;
  for (const char* at = text.c_str(); *at; ++at) {
    if (*at == '\'') {
      const char* end = std::strchr(at + 1, '\'');
      if (end) at = end;
      kind += "'…'";
    } else if (std::isdigit(static_cast<unsigned char>(*at))) {
      if (kind.empty() || kind.back() != '#') kind += '#';
    } else {
      kind += *at;
    }
  }
  return kind;
}

}  // namespace husk::fuzz
