// Where the numbers of an artifact's metadata stand, so that a mutant can bend one of them and leave the rest whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace husk::fuzz {

struct Field {
  uint32_t offset;      // in the file
  uint32_t width;       // bytes: 1, 2, 4, 8
  const char* what;     // fields of one kind have one name
};

// Rows that may change places: `count` structs of `size` bytes.
struct Table {
  uint32_t offset, size, count;
};

struct Fields {
  std::vector<Field> fields;
  std::vector<Table> tables;
};

// Of a file that verifies.
Fields find_fields(const std::vector<uint8_t>& file);

// Bends one field: to a neighbour of its value, a limit, another field's value of the same kind, or any number.
void bend(std::vector<uint8_t>& file, const Fields& fields, std::mt19937& random);
// Two rows of a table change places, or one becomes a copy of another.
void shuffle(std::vector<uint8_t>& file, const Fields& fields, std::mt19937& random);
// A few bytes anywhere in the metadata.
void scratch(std::vector<uint8_t>& file, std::mt19937& random);

}  // namespace husk::fuzz
