// The fields of the metadata of an artifact, found by the schema alone (reflection of husk.fbs), so
// that a mutant can change one of them and leave the rest valid.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

namespace husk::fuzz {

enum class FieldKind {
  number,      // a scalar of a table, a struct or a vector
  reference,   // the offset of a table, a vector or a string
  length,      // the length of a vector or a string
  letter,      // a byte of a string
  terminator,  // the NUL after a string
  entry,       // the entry of a table's vtable: 0 removes the field
};

// Bytes of the file.
struct Place {
  uint32_t offset, width;
};

// All places of one field. `name` says where the rows of an instruction or argument belong, since
// their numbers mean different things: "scalar add.a", "argument tensor.index".
struct Field {
  std::string name;
  std::string in_schema;  // "Instruction.a"
  FieldKind kind;
  bool required;  // a table without the field is not well-formed
  std::vector<Place> places;
};

// A vector of `count` rows of `size` bytes.
struct Table {
  uint32_t offset, size, count;
};

struct Fields {
  std::vector<Field> fields;
  std::vector<Table> tables;
};

// The fields of a valid artifact.
Fields find_fields(const std::vector<uint8_t>& file);

// Every field of the schema, as "Table.field". The struct that a field of a struct is has fields of
// its own.
std::vector<std::string> fields_of_schema();

// The fields of tables that are texts or vectors, as "Table.field".
std::vector<std::string> lists_of_schema();

uint64_t load(const std::vector<uint8_t>& file, Place place);
void store(std::vector<uint8_t>& file, Place place, uint64_t value);

// Changes one field: to a neighbour of its value, a limit, the value of another place of the field,
// or a random number. Returns the field.
const Field& change_field(std::vector<uint8_t>& file, const Fields& fields, std::mt19937& random);
// Changes the value of one int literal of a prologue, for instance a size or a stride. Most such
// artifacts verify, and what they do is decided when they run.
void change_literal(std::vector<uint8_t>& file, const Fields& fields, std::mt19937& random);
// Swaps two rows of a table, or copies one over the other.
void change_rows(std::vector<uint8_t>& file, const Fields& fields, std::mt19937& random);
// Changes a few random bytes of the metadata.
void change_bytes(std::vector<uint8_t>& file, std::mt19937& random);

}  // namespace husk::fuzz
