// Sizes and names of the element types, and DLPack's codes for them.
#include <husk/husk.h>

namespace {

struct Row {
  const char* name;
  uint8_t bytes, dlpack_code;
};

// The row of each husk_dtype, in the order of the enumeration.
constexpr Row kRows[] = {
    {"none", 0, 0},
    {"bool", 1, HUSK_DL_BOOL},
    {"u8", 1, kDLUInt},
    {"i8", 1, kDLInt},
    {"u16", 2, kDLUInt},
    {"i16", 2, kDLInt},
    {"u32", 4, kDLUInt},
    {"i32", 4, kDLInt},
    {"u64", 8, kDLUInt},
    {"i64", 8, kDLInt},
    {"f16", 2, kDLFloat},
    {"bf16", 2, kDLBfloat},
    {"f32", 4, kDLFloat},
    {"f64", 8, kDLFloat},
    {"c64", 8, kDLComplex},
    {"c128", 16, kDLComplex},
    {"f8e4m3fn", 1, HUSK_DL_F8E4M3FN},
    {"f8e5m2", 1, HUSK_DL_F8E5M2},
    {"f8e4m3fnuz", 1, HUSK_DL_F8E4M3FNUZ},
    {"f8e5m2fnuz", 1, HUSK_DL_F8E5M2FNUZ},
};
constexpr int kCount = sizeof(kRows) / sizeof(kRows[0]);
static_assert(kCount == HUSK_F8E5M2FNUZ + 1);

}  // namespace

size_t husk_dtype_size(husk_dtype dtype) {
  if (dtype == HUSK_POINTER) return 8;
  return dtype > 0 && dtype < kCount ? kRows[dtype].bytes : 0;
}

const char* husk_dtype_name(husk_dtype dtype) {
  if (dtype == HUSK_POINTER) return "ptr";
  return dtype >= 0 && dtype < kCount ? kRows[dtype].name : "unknown";
}

husk_dtype husk_dtype_from_dlpack(DLDataType type) {
  if (type.lanes != 1) return HUSK_DTYPE_NONE;
  for (int i = 1; i < kCount; ++i)
    if (kRows[i].dlpack_code == type.code && kRows[i].bytes * 8 == type.bits)
      return static_cast<husk_dtype>(i);
  return HUSK_DTYPE_NONE;
}

DLDataType husk_dtype_to_dlpack(husk_dtype dtype) {
  DLDataType type = {0, 0, 1};
  if (dtype > 0 && dtype < kCount) {
    type.code = kRows[dtype].dlpack_code;
    type.bits = static_cast<uint8_t>(kRows[dtype].bytes * 8);
  }
  return type;
}
