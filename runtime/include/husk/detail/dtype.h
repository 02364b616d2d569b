/** @file
 * Sizes and names of the element types, for the sources of the runtime and of the ports. The header
 * is private: applications call husk_dtype_size and husk_dtype_name. C++17. */
#ifndef HUSK_DETAIL_DTYPE_H
#define HUSK_DETAIL_DTYPE_H

#include <husk/types.h>

namespace husk::detail {

/** An element type. */
struct Dtype {
  const char* name;
  uint8_t bytes;
};

/** The element types in the order of husk_dtype. HUSK_POINTER, which no tensor has, is missing. */
inline constexpr Dtype kDtypes[] = {
    {"none", 0},  {"bool", 1},     {"u8", 1},     {"i8", 1},         {"u16", 2},
    {"i16", 2},   {"u32", 4},      {"i32", 4},    {"u64", 8},        {"i64", 8},
    {"f16", 2},   {"bf16", 2},     {"f32", 4},    {"f64", 8},        {"c64", 8},
    {"c128", 16}, {"f8e4m3fn", 1}, {"f8e5m2", 1}, {"f8e4m3fnuz", 1}, {"f8e5m2fnuz", 1},
};
inline constexpr int32_t kDtypeCount = sizeof(kDtypes) / sizeof(kDtypes[0]);
static_assert(kDtypeCount == HUSK_F8E5M2FNUZ + 1);

/** The bytes of an element; 0 if `dtype` is not an element type. */
constexpr uint8_t element_bytes(int32_t dtype) {
  return dtype >= 0 && dtype < kDtypeCount ? kDtypes[dtype].bytes : uint8_t{0};
}

/** The name of an element type; "unknown" if `dtype` is not one. */
constexpr const char* element_name(int32_t dtype) {
  return dtype >= 0 && dtype < kDtypeCount ? kDtypes[dtype].name : "unknown";
}

}  // namespace husk::detail

#endif
