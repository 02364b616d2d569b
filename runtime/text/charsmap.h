// The replacements of characters that SentencePiece compiles into its models.
#pragma once

#include "text/list.h"

namespace husk::text {

class Charsmap {
 public:
  // Reads the map, which JSON has in base64. Fails with HUSK_INVALID_FILE.
  Status read(Span base64, husk_error* error);
  // Appends a text with its replacements.
  Status append(Span text, List<char>& to, husk_error* error) const;

 private:
  bool find(Span text, Span* replacement) const;

  List<uint32_t> units_;  // a double array, as the library Darts-clone makes it
  List<char> texts_;      // the replacements, each with a NUL at its end
};

}  // namespace husk::text
