// Words of the text form that are lists elsewhere: element types, ops, accesses.
#pragma once

#include <husk/types.h>

#include <cstdint>
#include <string_view>

namespace husk::compiler {

// HUSK_DTYPE_NONE if there is none of that name; `ptr` is HUSK_POINTER.
husk_dtype dtype_of(std::string_view name);
const char* dtype_name(husk_dtype dtype);
uint32_t dtype_bytes(husk_dtype dtype);
bool is_int_dtype(husk_dtype dtype);       // bool and the ints: what an int register may stand for
bool is_float_dtype(husk_dtype dtype);     // f16, bf16, f32, f64: what a float register may stand for

// "read", "write", "both", "atomic" and their HUSK_ACCESS_* bits; 0 and "?" for others.
uint8_t access_of(std::string_view word);
const char* access_name(uint8_t access);

const char* image_format_name(int32_t format);   // HUSK_IMAGE_*: "elf", "cubin", "ptx"
const char* value_kind_name(uint8_t kind);       // HUSK_VALUE_*

// Words that begin an argument or are literals, so that nothing may be named so.
bool is_reserved(std::string_view name);

// One row of ops.def.
enum class Slot : uint8_t { _, I, F, Imm, Value, Dim, Text, Nth };
enum class Holds : uint8_t { None, Int, Float };
struct ScalarWord {
  uint16_t code;
  const char* name;
  Holds holds;
  Slot slots[3];
};
enum class StepRow : uint8_t { _, Kernel, Op };
struct StepWord {
  uint16_t code;
  const char* name;
  StepRow row;
};
// Null if there is none.
const ScalarWord* scalar_word(std::string_view name);
const ScalarWord* scalar_word(uint16_t code);
const StepWord* step_word(uint16_t code);

}  // namespace husk::compiler
