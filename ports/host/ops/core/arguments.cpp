#include "core/arguments.h"

#include <cstring>
#include <initializer_list>

#include <husk/detail/dtype.h>
#include <husk/detail/struct_size.h>

#include "core/checked.h"
#include "device.h"
#include "error.h"

namespace husk::host {

namespace {

long long printable(int64_t value) { return static_cast<long long>(value); }

}  // namespace

int64_t dtype_bytes(int32_t dtype) { return detail::element_bytes(dtype); }

const char* dtype_name(int32_t dtype) { return detail::element_name(dtype); }

int64_t numel(const husk_op_arg& tensor) {
  int64_t product = 1;
  for (int32_t d = 0; d < tensor.rank; ++d) product *= tensor.sizes[d];
  return product;
}

husk_op_arg with_safe_strides(const husk_op_arg& tensor) {
  static constexpr int64_t kZeros[kMaxRank] = {};
  husk_op_arg safe = tensor;
  if (numel(tensor) == 0) safe.strides = kZeros;
  return safe;
}

bool may_visit(const int64_t* sizes, int32_t rank, const husk_op_arg& a, const husk_op_arg& b) {
  int64_t elements = 0;
  return checked_product(sizes, rank, elements) &&
         (elements <= kMaxBroadcast || elements <= numel(a) || elements <= numel(b));
}

bool contiguous(const husk_op_arg& tensor) {
  int64_t stride = 1;
  for (int32_t d = tensor.rank - 1; d >= 0; --d) {
    if (tensor.sizes[d] != 1 && tensor.strides[d] != stride) return false;
    stride *= tensor.sizes[d];
  }
  return true;
}

Arguments::Name Arguments::name(ArgumentPlace index) const {
  const char* from = contract;
  for (uint32_t before = index; before > 0 && from; --before) {
    from = strchr(from, ' ');
    if (from) ++from;
  }
  if (!from) return {1, "?"};
  return {static_cast<int>(strcspn(from, " ?:")), from};
}

const void* Arguments::packed(ArgumentPlace index) const {
  return HUSK_HAS_FIELD(context, packed) && context->packed ? context->packed[index] : nullptr;
}

husk_status Arguments::check_count() const {
  uint32_t min_count = 0, max_count = 0;
  for (const char* from = contract; from && *from; ++max_count) {
    const size_t length = strcspn(from, " ");
    min_count += from[length - 1] != '?';
    from += length + (from[length] == ' ');
  }
  if (count >= min_count && count <= max_count) return HUSK_OK;
  return fail(error, HUSK_INVALID_ARGUMENT, "%s: %u arguments; it takes %u%s", op, count,
              count < min_count ? min_count : max_count,
              min_count == max_count ? ""
              : count < min_count    ? " or more"
                                     : " at most");
}

husk_status Arguments::check_tensor(ArgumentPlace index, int32_t min_rank, int32_t max_rank) const {
  if (index >= count) return argument_error(index, HUSK_INVALID_ARGUMENT, "is missing");
  const husk_op_arg& value = values[index];
  const Name n = name(index);
  if (value.kind != HUSK_ARG_TENSOR) {
    return fail(error, HUSK_INVALID_ARGUMENT, "%s: argument %.*s is not a tensor (kind %d)", op,
                n.length, n.text, value.kind);
  }
  if (value.rank < min_rank || value.rank > max_rank) {
    return fail(error, HUSK_INVALID_ARGUMENT, "%s: argument %.*s has rank %d; it takes %d to %d",
                op, n.length, n.text, value.rank, min_rank, max_rank);
  }
  if (value.rank > 0 && (!value.sizes || !value.strides))
    return argument_error(index, HUSK_INVALID_ARGUMENT,
                          value.sizes ? "has no strides" : "has no sizes");
  const int64_t bytes = dtype_bytes(value.dtype);
  if (bytes == 0) return unsupported_dtype(index);
  bool empty = false;
  int64_t elements = 1;
  const int64_t max_reach = kMaxReach / bytes;
  for (int32_t d = 0; d < value.rank; ++d) {
    if (value.sizes[d] < 0) {
      return fail(error, HUSK_INVALID_ARGUMENT, "%s: argument %.*s has size %lld along %d", op,
                  n.length, n.text, printable(value.sizes[d]), d);
    }
    empty |= value.sizes[d] == 0;
    const int64_t size = value.sizes[d] > 0 ? value.sizes[d] : 1;
    if (!checked_multiply(elements, size, elements) || elements > kMaxElements)
      return argument_error(index, HUSK_INVALID_ARGUMENT, "has more than 2^62 elements");
    int64_t reach = 0;
    if (!checked_multiply(value.strides[d], size, reach) || reach > max_reach ||
        reach < -max_reach) {
      return fail(error, HUSK_INVALID_ARGUMENT,
                  "%s: argument %.*s has a stride along %d that is too large", op, n.length, n.text,
                  d);
    }
  }
  if (empty) return HUSK_OK;
  if (!value.data) return argument_error(index, HUSK_INVALID_ARGUMENT, "is null");
  const int64_t step = value.dtype == HUSK_C64 ? 4 : bytes > 8 ? 8 : bytes;
  if (reinterpret_cast<uintptr_t>(value.data) % static_cast<uintptr_t>(step) != 0) {
    return fail(error, HUSK_INVALID_ARGUMENT, "%s: argument %.*s is not aligned to %lld bytes", op,
                n.length, n.text, printable(step));
  }
  return HUSK_OK;
}

husk_status Arguments::check_dtype(ArgumentPlace index, int32_t expected) const {
  if (values[index].dtype == expected) return HUSK_OK;
  const Name n = name(index);
  return fail(error, HUSK_INVALID_ARGUMENT, "%s: argument %.*s has dtype %s; it must be %s", op,
              n.length, n.text, dtype_name(values[index].dtype), dtype_name(expected));
}

husk_status Arguments::check_same_dtype(ArgumentPlace index, ArgumentPlace other) const {
  if (values[index].dtype == values[other].dtype) return HUSK_OK;
  const Name n = name(index), o = name(other);
  return fail(error, HUSK_INVALID_ARGUMENT,
              "%s: argument %.*s has dtype %s, %.*s has %s; they must be the same", op, n.length,
              n.text, dtype_name(values[index].dtype), o.length, o.text,
              dtype_name(values[other].dtype));
}

husk_status Arguments::check_index_dtype(ArgumentPlace index) const {
  const int32_t dtype = values[index].dtype;
  return dtype == HUSK_I64 || dtype == HUSK_I32 ? husk_status{HUSK_OK} : unsupported_dtype(index);
}

husk_status Arguments::check_mask_dtype(ArgumentPlace index) const {
  const int32_t dtype = values[index].dtype;
  return dtype == HUSK_BOOL || dtype == HUSK_U8 ? husk_status{HUSK_OK} : unsupported_dtype(index);
}

husk_status Arguments::check_size(ArgumentPlace index, int32_t dim, int64_t expected,
                                  const char* reason) const {
  if (values[index].sizes[dim] == expected) return HUSK_OK;
  const Name n = name(index);
  return fail(error, HUSK_INVALID_ARGUMENT,
              "%s: argument %.*s has size %lld along %d, not %lld (%s)", op, n.length, n.text,
              printable(values[index].sizes[dim]), dim, printable(expected), reason);
}

husk_status Arguments::check_same_shape(ArgumentPlace index, ArgumentPlace other) const {
  const Name n = name(index), o = name(other);
  if (values[index].rank != values[other].rank) {
    return fail(error, HUSK_INVALID_ARGUMENT,
                "%s: argument %.*s has rank %d, %.*s has %d; they must be the same", op, n.length,
                n.text, values[index].rank, o.length, o.text, values[other].rank);
  }
  for (int32_t d = 0; d < values[index].rank; ++d) {
    if (values[index].sizes[d] == values[other].sizes[d]) continue;
    return fail(error, HUSK_INVALID_ARGUMENT,
                "%s: argument %.*s has size %lld along %d, %.*s has %lld", op, n.length, n.text,
                printable(values[index].sizes[d]), d, o.length, o.text,
                printable(values[other].sizes[d]));
  }
  return HUSK_OK;
}

husk_status Arguments::check_masked(ArgumentPlace index, ArgumentPlace out,
                                    ArgumentPlace mask) const {
  HUSK_TRY(check_tensor(index));
  for (uint32_t i : {out, mask}) {
    HUSK_TRY(check_tensor(i));
    HUSK_TRY(check_same_shape(i, index));
  }
  HUSK_TRY(check_same_dtype(out, index));
  return check_dtype(mask, HUSK_BOOL);
}

husk_status Arguments::check_vector(ArgumentPlace index, int64_t length, const char* reason) const {
  HUSK_TRY(check_tensor(index, 1, 1));
  return check_size(index, 0, length, reason);
}

husk_status Arguments::get_activation(ArgumentPlace index, Activation& out) const {
  constexpr struct {
    const char* name;
    Activation activation;
  } kActivations[] = {
      {"none", Activation::None},
#define HUSK_ACTIVATION(Name, name) {#name, Activation::Name},
#include <activations.def>
  };
  const char* name = values[index].kind == HUSK_ARG_STRING ? values[index].string : nullptr;
  for (const auto& known : kActivations) {
    if (!name || strcmp(name, known.name) != 0) continue;
    out = known.activation;
    return HUSK_OK;
  }
  return argument_error(index, HUSK_INVALID_ARGUMENT, "is no activation");
}

husk_status Arguments::get_number(ArgumentPlace index, double& out) const {
  if (index < count && values[index].kind == HUSK_ARG_INT) {
    out = static_cast<double>(values[index].i);
  } else if (index < count && values[index].kind == HUSK_ARG_FLOAT) {
    out = values[index].f;
  } else {
    const Name n = name(index);
    return fail(error, HUSK_INVALID_ARGUMENT, "%s: argument %.*s is not a number (kind %d)", op,
                n.length, n.text, index < count ? values[index].kind : HUSK_ARG_NONE);
  }
  return HUSK_OK;
}

husk_status Arguments::get_int(ArgumentPlace index, int64_t& out) const {
  if (index >= count || values[index].kind != HUSK_ARG_INT)
    return argument_error(index, HUSK_INVALID_ARGUMENT, "is not an int");
  out = values[index].i;
  return HUSK_OK;
}

husk_status Arguments::get_bool(ArgumentPlace index, bool& out) const {
  int64_t value = 0;
  HUSK_TRY(get_int(index, value));
  out = value != 0;
  return HUSK_OK;
}

husk_status Arguments::check_int_list(ArgumentPlace index) const {
  if (index < count && values[index].kind == HUSK_ARG_INTS && values[index].count >= 0 &&
      (values[index].count == 0 || values[index].sizes)) {
    return HUSK_OK;
  }
  return argument_error(index, HUSK_INVALID_ARGUMENT, "is not a list of ints");
}

husk_status Arguments::check_ints(ArgumentPlace index, int64_t expected) const {
  HUSK_TRY(check_int_list(index));
  const Name n = name(index);
  if (values[index].count == expected) return HUSK_OK;
  return fail(error, HUSK_INVALID_ARGUMENT, "%s: argument %.*s has %lld ints, not %lld", op,
              n.length, n.text, printable(values[index].count), printable(expected));
}

husk_status Arguments::get_dim(ArgumentPlace index, int32_t rank, int32_t& out) const {
  int64_t dim = 0;
  HUSK_TRY(get_int(index, dim));
  const int64_t dims = rank > 0 ? rank : 1;
  if (dim < -dims || dim >= dims) {
    const Name n = name(index);
    return fail(error, HUSK_INVALID_ARGUMENT,
                "%s: argument %.*s is %lld; the tensor has %d dimensions", op, n.length, n.text,
                printable(dim), rank);
  }
  out = static_cast<int32_t>(dim < 0 ? dim + dims : dim);
  return HUSK_OK;
}

husk_status Arguments::check_result(ArgumentPlace index) const {
  if (index < count && values[index].kind == HUSK_ARG_RESULT && values[index].data) return HUSK_OK;
  return argument_error(index, HUSK_INVALID_ARGUMENT, "is not a result");
}

husk_status Arguments::get_features(Features& out) const {
  const auto* device = static_cast<const Device*>(context->device);
  out = device ? device->features : features_of_this_cpu();
  return HUSK_OK;
}

husk_status Arguments::unsupported_dtype(ArgumentPlace index) const {
  const Name n = name(index);
  return fail(error, HUSK_UNSUPPORTED,
              "%s: argument %.*s has dtype %s (%d), which this op does not take", op, n.length,
              n.text, dtype_name(values[index].dtype), values[index].dtype);
}

husk_status Arguments::argument_error(ArgumentPlace index, husk_status status,
                                      const char* reason) const {
  const Name n = name(index);
  return fail(error, status, "%s: argument %.*s %s", op, n.length, n.text, reason);
}

husk_status Arguments::index_out_of_range(int64_t index, int32_t dim, int64_t size) const {
  return fail(error, HUSK_INVALID_INPUT,
              "%s: index %lld is out of range for dimension %d of size %lld", op, printable(index),
              dim, printable(size));
}

husk_status Arguments::tensor_changed() const {
  return fail(error, HUSK_INVALID_INPUT,
              "%s: a tensor changed during the call: do not write to a tensor that a run reads",
              op);
}

husk_status Arguments::wrong_result_size(int64_t capacity, int64_t elements) const {
  return fail(error, HUSK_INVALID_INPUT,
              "%s: the result has room for %lld elements, the data has %lld", op,
              printable(capacity), printable(elements));
}

husk_status op_enter(const husk_op_context* context, const husk_op_arg* args, uint32_t count,
                     husk_error* error) {
  HUSK_TRY(HUSK_CHECK_STRUCT(husk_op_context, context, threads, error));
  if (!context->user) {
    return fail(error, HUSK_INVALID_ARGUMENT,
                "an op of the host pack: the context has no husk_op.user");
  }
  const Op& op = *static_cast<const Op*>(context->user);
  Cancellation cancellation(*context);
  const Arguments arguments(op, context, cancellation, args, count, error);
  HUSK_TRY(arguments.check_count());
  if (op.scratch.caller > 0 && (!HUSK_HAS_FIELD(context, scratch) || !context->scratch ||
                                reinterpret_cast<uintptr_t>(context->scratch) % 64 != 0))
    return fail(error, HUSK_INVALID_ARGUMENT,
                "%s: husk_op_context.scratch is no memory of husk_op.scratch_bytes at a multiple "
                "of 64",
                op.name);
  const husk_status status = op.run(arguments);
  if (!cancellation.ended()) return status;
  return fail(error, HUSK_CANCELLED, "%s: husk_op_context.cancel ended the call", op.name);
}

husk_status op_pack(const husk_op_context* context, const husk_op_arg* args, uint32_t count,
                    husk_packing* packing, husk_error* error) {
  HUSK_TRY(HUSK_CHECK_STRUCT(husk_op_context, context, threads, error));
  HUSK_TRY(HUSK_CHECK_STRUCT(husk_packing, packing, data, error));
  if (!context->user) {
    return fail(error, HUSK_INVALID_ARGUMENT,
                "an op of the host pack: the context has no husk_op.user");
  }
  const Op& op = *static_cast<const Op*>(context->user);
  Cancellation cancellation(*context);
  const Arguments arguments(op, context, cancellation, args, count, error);
  HUSK_TRY(arguments.check_count());
  husk_packing own = HUSK_PACKING_INIT;  // the runtime may have an older one
  own.argument = packing->argument;
  own.bytes = packing->bytes;
  own.layout = packing->layout;
  own.data = packing->data;
  if (HUSK_HAS_FIELD(packing, stored)) own.stored = packing->stored;
  const husk_status status = op.pack(arguments, own);
  packing->bytes = own.bytes;
  packing->layout = own.layout;
  if (HUSK_HAS_FIELD(packing, name)) packing->name = own.name;
  if (!cancellation.ended()) return status;
  return fail(error, HUSK_CANCELLED, "%s: husk_op_context.cancel ended the call", op.name);
}

}  // namespace husk::host
