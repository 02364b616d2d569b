#include "arguments.h"

#include "error.h"

namespace husk::host {

int64_t dtype_bytes(int32_t dtype) {
  switch (dtype) {
    case HUSK_BOOL: case HUSK_U8: case HUSK_I8:
    case HUSK_F8E4M3FN: case HUSK_F8E5M2: case HUSK_F8E4M3FNUZ: case HUSK_F8E5M2FNUZ: return 1;
    case HUSK_U16: case HUSK_I16: case HUSK_F16: case HUSK_BF16: return 2;
    case HUSK_U32: case HUSK_I32: case HUSK_F32: return 4;
    case HUSK_U64: case HUSK_I64: case HUSK_F64: case HUSK_C64: return 8;
    case HUSK_C128: return 16;
    default: return 0;
  }
}

husk_status Arguments::count(uint32_t given, uint32_t least, uint32_t most) const {
  if (given >= least && given <= most) return HUSK_OK;
  return fail(error, HUSK_INVALID_ARGUMENT, "%s: %u arguments; it takes %u%s", op, given, given < least ? least : most,
              least == most ? "" : given < least ? " or more" : " at the most");
}

husk_status Arguments::tensor(uint32_t index, int32_t least, int32_t most) const {
  const husk_op_arg& value = values[index];
  const char* name = names[index];
  if (value.kind != HUSK_ARG_TENSOR) {
    return fail(error, HUSK_INVALID_ARGUMENT, "%s: argument %s is no tensor (kind %d)", op, name, value.kind);
  }
  if (value.rank < least || value.rank > most) {
    return fail(error, HUSK_INVALID_ARGUMENT, "%s: argument %s has rank %d; it takes %d to %d", op, name, value.rank,
                least, most);
  }
  if (value.rank > 0 && (!value.sizes || !value.strides)) {
    return fail(error, HUSK_INVALID_ARGUMENT, "%s: argument %s has no %s", op, name,
                value.sizes ? "strides" : "sizes");
  }
  const int64_t bytes = dtype_bytes(value.dtype);
  if (bytes == 0) return fail(error, HUSK_UNSUPPORTED, "%s: argument %s has dtype %d", op, name, value.dtype);
  bool empty = false;
  for (int32_t d = 0; d < value.rank; d++) {
    if (value.sizes[d] < 0) {
      return fail(error, HUSK_INVALID_ARGUMENT, "%s: argument %s has size %lld along %d", op, name,
                  static_cast<long long>(value.sizes[d]), d);
    }
    empty |= value.sizes[d] == 0;
  }
  if (empty) return HUSK_OK;
  if (!value.data) return fail(error, HUSK_INVALID_ARGUMENT, "%s: argument %s is null", op, name);
  const int64_t step = bytes > 8 ? 8 : bytes;
  if (reinterpret_cast<uintptr_t>(value.data) % static_cast<uintptr_t>(step) != 0) {
    return fail(error, HUSK_INVALID_ARGUMENT, "%s: argument %s is not aligned to %lld bytes", op, name,
                static_cast<long long>(step));
  }
  return HUSK_OK;
}

husk_status Arguments::same_dtype(uint32_t index, uint32_t other) const {
  if (values[index].dtype == values[other].dtype) return HUSK_OK;
  return fail(error, HUSK_INVALID_ARGUMENT, "%s: argument %s has dtype %d, %s has %d; they must be the same", op,
              names[index], values[index].dtype, names[other], values[other].dtype);
}

husk_status Arguments::size(uint32_t index, int32_t dim, int64_t expected, const char* reason) const {
  if (values[index].sizes[dim] == expected) return HUSK_OK;
  return fail(error, HUSK_INVALID_ARGUMENT, "%s: argument %s has size %lld along %d, not %lld (%s)", op, names[index],
              static_cast<long long>(values[index].sizes[dim]), dim, static_cast<long long>(expected), reason);
}

husk_status Arguments::number(uint32_t index, double& out) const {
  if (values[index].kind == HUSK_ARG_INT) {
    out = static_cast<double>(values[index].i);
  } else if (values[index].kind == HUSK_ARG_FLOAT) {
    out = values[index].f;
  } else {
    return fail(error, HUSK_INVALID_ARGUMENT, "%s: argument %s is no number (kind %d)", op, names[index],
                values[index].kind);
  }
  return HUSK_OK;
}

}  // namespace husk::host
