// The functions of husk.h about element types.
#include <husk/detail/dtype.h>
#include <husk/husk.h>

using namespace husk::detail;

namespace {

// DLPack's type code of each husk_dtype, in the order of the enumeration.
constexpr uint8_t kDlpackCodes[] = {
    0,
#define HUSK_DTYPE(code, NAME, name, bytes, kind, dlpack, torch) dlpack,
#include <dtypes.def>
};

}  // namespace

size_t husk_dtype_size(husk_dtype dtype) {
  if (dtype == HUSK_POINTER) return 8;
  return element_bytes(dtype);
}

const char* husk_dtype_name(husk_dtype dtype) {
  if (dtype == HUSK_POINTER) return "ptr";
  return element_name(dtype);
}

husk_dtype husk_dtype_from_dlpack(DLDataType type) {
  if (type.lanes != 1) return HUSK_DTYPE_NONE;
  for (int i = 1; i < kDtypeCount; ++i)
    if (kDlpackCodes[i] == type.code && kDtypes[i].bytes * 8 == type.bits)
      return static_cast<husk_dtype>(i);
  return HUSK_DTYPE_NONE;
}

DLDataType husk_dtype_to_dlpack(husk_dtype dtype) {
  DLDataType type = {0, 0, 1};
  if (dtype > 0 && dtype < kDtypeCount) {
    type.code = kDlpackCodes[dtype];
    type.bits = static_cast<uint8_t>(kDtypes[dtype].bytes * 8);
  }
  return type;
}
