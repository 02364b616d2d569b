// Element types: their sizes, names, and DLPack's words for them.
#include <husk/husk.h>

#include "status.h"

namespace {

struct Row {
  uint8_t bytes, code;
};

constexpr char kNames[] = "none\0bool\0u8\0i8\0u16\0i16\0u32\0i32\0u64\0i64\0f16\0bf16\0f32\0f64\0c64\0c128\0"
                          "f8e4m3fn\0f8e5m2\0f8e4m3fnuz\0f8e5m2fnuz";

constexpr Row kRows[] = {
    {0, 0},          {1, HUSK_DL_BOOL},
    {1, kDLUInt},    {1, kDLInt},    {2, kDLUInt},          {2, kDLInt},
    {4, kDLUInt},    {4, kDLInt},    {8, kDLUInt},          {8, kDLInt},
    {2, kDLFloat},   {2, kDLBfloat}, {4, kDLFloat},         {8, kDLFloat},
    {8, kDLComplex}, {16, kDLComplex},
    {1, HUSK_DL_F8E4M3FN}, {1, HUSK_DL_F8E5M2}, {1, HUSK_DL_F8E4M3FNUZ}, {1, HUSK_DL_F8E5M2FNUZ},
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
  return dtype >= 0 && dtype < kCount ? husk::nth_text(kNames, dtype) : "unknown";
}

husk_dtype husk_dtype_from_dlpack(DLDataType type) {
  if (type.lanes != 1) return HUSK_DTYPE_NONE;
  for (int i = 1; i < kCount; ++i)
    if (kRows[i].code == type.code && kRows[i].bytes * 8 == type.bits) return static_cast<husk_dtype>(i);
  return HUSK_DTYPE_NONE;
}

DLDataType husk_dtype_to_dlpack(husk_dtype dtype) {
  DLDataType type = {0, 0, 1};
  if (dtype > 0 && dtype < kCount) {
    type.code = kRows[dtype].code;
    type.bits = static_cast<uint8_t>(kRows[dtype].bytes * 8);
  }
  return type;
}
