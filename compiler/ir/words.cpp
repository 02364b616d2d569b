#include "ir/words.h"

#include <husk/husk.h>

namespace husk::compiler {
namespace {

constexpr ScalarWord kScalars[] = {
#define HUSK_SCALAR(code, name, result, a, b, c) {code, #name, Holds::result, {Slot::a, Slot::b, Slot::c}},
#include <ops.def>
};
constexpr StepWord kSteps[] = {
#define HUSK_STEP(code, name, a) {code, #name, StepRow::a},
#include <ops.def>
};

struct AccessWord {
  const char* name;
  uint8_t access;
};
constexpr AccessWord kAccesses[] = {{"read", HUSK_ACCESS_READ},
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
bool is_int_dtype(husk_dtype dtype) { return dtype >= HUSK_BOOL && dtype <= HUSK_I64; }
bool is_float_dtype(husk_dtype dtype) { return dtype >= HUSK_F16 && dtype <= HUSK_F64; }

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
  for (std::string_view word : {"tensor", "tensors", "floats", "result", "dtype", "null", "asserts", "none", "true",
                                "false", "inf", "nan"})
    if (name == word) return true;
  return access_of(name) != 0;
}

const ScalarWord* scalar_word(std::string_view name) {
  for (const ScalarWord& row : kScalars)
    if (name == row.name) return &row;
  return nullptr;
}

const ScalarWord* scalar_word(uint16_t code) {
  for (const ScalarWord& row : kScalars)
    if (code == row.code) return &row;
  return nullptr;
}

const StepWord* step_word(uint16_t code) {
  for (const StepWord& row : kSteps)
    if (code == row.code) return &row;
  return nullptr;
}

}  // namespace husk::compiler
