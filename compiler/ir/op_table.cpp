#include "ir/op_table.h"

#include <husk/detail/dtype.h>
#include <husk/husk.h>

// The table stands where the words of its columns do: from husk::compiler, `Value` and `Dim` would
// be names of that namespace.
namespace husk::columns {
namespace {
constexpr compiler::ScalarOp kScalars[] = {
#define HUSK_SCALAR(code, name, result, a, b, c) {code, #name, result, {a, b, c}},
#include <ops.def>
};
}  // namespace
}  // namespace husk::columns

namespace husk::compiler {
namespace {

namespace step_columns {
constexpr auto _ = StepRow::none;
constexpr auto Kernel = StepRow::kernel;
constexpr auto Op = StepRow::op;

constexpr StepOp kSteps[] = {
#define HUSK_STEP(code, name, a) {code, #name, a},
#include <ops.def>
};
}  // namespace step_columns

struct AccessWord {
  const char* name;
  uint8_t access;
};
constexpr AccessWord kAccesses[] = {
    {"read", HUSK_ACCESS_READ},
    {"write", HUSK_ACCESS_WRITE},
    {"both", HUSK_ACCESS_READ | HUSK_ACCESS_WRITE},
    {"atomic", HUSK_ACCESS_READ | HUSK_ACCESS_WRITE | HUSK_ACCESS_ATOMIC}};

}  // namespace

husk_dtype dtype_of(std::string_view name) {
  for (int i = HUSK_BOOL; i <= HUSK_POINTER; ++i) {
    const auto dtype = static_cast<husk_dtype>(i);
    if (husk_dtype_size(dtype) && name == husk_dtype_name(dtype)) return dtype;
  }
  return HUSK_DTYPE_NONE;
}

const char* dtype_name(husk_dtype dtype) { return husk_dtype_name(dtype); }
uint32_t dtype_bytes(husk_dtype dtype) { return static_cast<uint32_t>(husk_dtype_size(dtype)); }
bool is_int_dtype(husk_dtype dtype) { return detail::fits_int_register(dtype); }
bool is_float_dtype(husk_dtype dtype) { return detail::fits_float_register(dtype); }

uint8_t access_of(std::string_view word) {
  for (const AccessWord& row : kAccesses)
    if (word == row.name) return row.access;
  return 0;
}

const char* access_name(uint8_t access) {
  for (const AccessWord& row : kAccesses)
    if (access == row.access) return row.name;
  return "?";
}

const char* image_format_name(int32_t format) {
  switch (format) {
    case HUSK_IMAGE_ELF: return "elf";
    case HUSK_IMAGE_CUBIN: return "cubin";
    case HUSK_IMAGE_PTX: return "ptx";
    default: return "?";
  }
}

const char* value_kind_name(uint8_t kind) {
  constexpr const char* kNames[] = {"none", "tensor", "int", "float", "bool"};
  return kind < 5 ? kNames[kind] : "?";
}

bool is_reserved(std::string_view name) {
  for (std::string_view word : {"tensor", "tensors", "floats", "result", "dtype", "null", "asserts",
                                "none", "true", "false", "inf", "nan"})
    if (name == word) return true;
  return access_of(name) != 0;
}

const ScalarOp* scalar_op(std::string_view name) {
  for (const ScalarOp& row : columns::kScalars)
    if (name == row.name) return &row;
  return nullptr;
}

const ScalarOp* scalar_op(uint16_t code) {
  for (const ScalarOp& row : columns::kScalars)
    if (code == row.code) return &row;
  return nullptr;
}

const StepOp* step_op(uint16_t code) {
  for (const StepOp& row : step_columns::kSteps)
    if (code == row.code) return &row;
  return nullptr;
}

}  // namespace husk::compiler
