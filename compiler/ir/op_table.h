// The vocabulary of the text form: element types, accesses, image formats, value kinds, and the
// rows of ops.def.
#pragma once

#include <cstdint>
#include <string_view>

#include <husk/types.h>

#include "model/verify.h"

namespace husk::compiler {

// The element type called `name`, or HUSK_DTYPE_NONE if no type has that name. `ptr` is
// HUSK_POINTER.
husk_dtype dtype_of(std::string_view name);
const char* dtype_name(husk_dtype dtype);
uint32_t dtype_bytes(husk_dtype dtype);
bool is_int_dtype(husk_dtype dtype);    // bool and the ints; their values fit an int register
bool is_float_dtype(husk_dtype dtype);  // f16, bf16, f32, f64; their values fit a float register

// The HUSK_ACCESS_* bits of "read", "write", "both" or "atomic"; 0 for any other word.
uint8_t access_of(std::string_view word);
// The inverse of access_of(); "?" if no word stands for the bits.
const char* access_name(uint8_t access);

const char* image_format_name(int32_t format);  // HUSK_IMAGE_*: "elf", "cubin", "ptx"
const char* value_kind_name(uint8_t kind);      // HUSK_VALUE_*: "none", "tensor", "int", ...

// Whether the word begins an argument or is a literal. No value or buffer may have such a name.
bool is_reserved(std::string_view name);

// A HUSK_SCALAR row of ops.def.
struct ScalarOp {
  uint16_t code;
  const char* name;
  ResultKind result;  // none for a guard
  Slot slots[3];
};

// The kind of row that a step's field `a` names.
enum class StepRow : uint8_t { none, kernel, op };

// A HUSK_STEP row of ops.def.
struct StepOp {
  uint16_t code;
  const char* name;
  StepRow row;
};

// The row with that name or code; null if ops.def has none.
const ScalarOp* scalar_op(std::string_view name);
const ScalarOp* scalar_op(uint16_t code);
const StepOp* step_op(uint16_t code);

}  // namespace husk::compiler
