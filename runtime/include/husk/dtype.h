/** @file
 * The element types. Written by schema/dtypes.py from dtypes.def. The header is C11 and C++17. */
#ifndef HUSK_DTYPE_H
#define HUSK_DTYPE_H

#include <stdint.h>

/** The type of a tensor's element or of a kernel's parameter. It is an int and not an enum, since a
 * value from a file may be none of the values below. */
typedef int32_t husk_dtype;
/** The values of husk_dtype. Files contain them, so they never change. */
enum {
  HUSK_DTYPE_NONE = 0,
  HUSK_BOOL = 1,
  HUSK_U8 = 2,
  HUSK_I8 = 3,
  HUSK_U16 = 4,
  HUSK_I16 = 5,
  HUSK_U32 = 6,
  HUSK_I32 = 7,
  HUSK_U64 = 8,
  HUSK_I64 = 9,
  HUSK_F16 = 10,
  HUSK_BF16 = 11,
  HUSK_F32 = 12,
  HUSK_F64 = 13,
  HUSK_C64 = 14,
  HUSK_C128 = 15,
  HUSK_F8E4M3FN = 16,
  HUSK_F8E5M2 = 17,
  HUSK_F8E4M3FNUZ = 18,
  HUSK_F8E5M2FNUZ = 19,
  HUSK_POINTER = 32 /**< A device address; only parameters of kernels have this type. */
};

#endif
