// The positions of the numbers in the metadata of an artifact, so that a mutant can change one of
// them and leave the rest valid.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace husk::fuzz {

struct Field {
  uint32_t offset;   // in the file
  uint32_t width;    // bytes: 1, 2, 4, 8
  const char* what;  // kind of the field
};

// A table of `count` rows of `size` bytes.
struct Table {
  uint32_t offset, size, count;
};

struct Fields {
  std::vector<Field> fields;
  std::vector<Table> tables;
};

// The fields of a valid artifact.
Fields find_fields(const std::vector<uint8_t>& file);

// Changes one field: to a neighbour of its value, a limit, the value of another field of the same
// kind, or a random number.
void change_field(std::vector<uint8_t>& file, const Fields& fields, std::mt19937& random);
// Swaps two rows of a table, or copies one over the other.
void change_rows(std::vector<uint8_t>& file, const Fields& fields, std::mt19937& random);
// Changes a few random bytes of the metadata.
void change_bytes(std::vector<uint8_t>& file, std::mt19937& random);

}  // namespace husk::fuzz
