/** @file
 * Sizes, names and kinds of the element types, for the sources of the runtime and of the ports. The
 * header is private: applications call husk_dtype_size and husk_dtype_name. C++17. */
#ifndef HUSK_DETAIL_DTYPE_H
#define HUSK_DETAIL_DTYPE_H

#include <husk/types.h>

namespace husk::detail {

/** What the numbers of an element are. */
enum class DtypeKind : uint8_t { None, Bool, Unsigned, Signed, Float, Complex };

/** An element type. The name lies in the row: a pointer to it would be an address that the loader
 * has to set. */
struct Dtype {
  char name[14];
  uint8_t bytes;
  DtypeKind kind;
};

/** The element types in the order of husk_dtype. HUSK_POINTER, which no tensor has, is missing. */
inline constexpr Dtype kDtypes[] = {
    {"none", 0, DtypeKind::None},
#define HUSK_DTYPE(code, NAME, name, bytes, kind, dlpack, torch) {#name, bytes, DtypeKind::kind},
#include "dtypes.def"
};
inline constexpr int32_t kDtypeCount = sizeof(kDtypes) / sizeof(kDtypes[0]);
#define HUSK_DTYPE(code, NAME, name, bytes, kind, dlpack, torch) \
  static_assert(HUSK_##NAME == (code) && (code) < kDtypeCount, "run: python3 schema/dtypes.py");
#include "dtypes.def"

/** The bytes of an element; 0 if `dtype` is not an element type. */
constexpr uint8_t element_bytes(int32_t dtype) {
  return dtype >= 0 && dtype < kDtypeCount ? kDtypes[dtype].bytes : uint8_t{0};
}

/** The name of an element type; "unknown" if `dtype` is not one. */
constexpr const char* element_name(int32_t dtype) {
  return dtype >= 0 && dtype < kDtypeCount ? kDtypes[dtype].name : "unknown";
}

/** What the numbers of an element are; None if `dtype` is not an element type. */
constexpr DtypeKind element_kind(int32_t dtype) {
  return dtype >= 0 && dtype < kDtypeCount ? kDtypes[dtype].kind : DtypeKind::None;
}

/** Whether an int register of a program can hold an element. */
constexpr bool fits_int_register(int32_t dtype) { return dtype >= HUSK_BOOL && dtype <= HUSK_I64; }
/** Whether a float register can hold an element: session/encoding.cpp knows these floats. */
constexpr bool fits_float_register(int32_t dtype) { return dtype >= HUSK_F16 && dtype <= HUSK_F64; }

}  // namespace husk::detail

#endif
