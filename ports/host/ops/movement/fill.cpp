// Ops that fill an output with a value or put it together from parts: fill, full, cat and pad.
// Frontends generate kernels for real dtypes and leave complex ones to these ops.
#include "contracts.h"
#include "core/arguments.h"
#include "core/arithmetic.h"
#include "core/loop.h"
#include "error.h"

namespace husk::host {

namespace {

// Fills the output with the value of an argument, a scalar or a tensor that broadcasts.
husk_status fill_with(const Arguments& args, ArgumentPlace out_at, ArgumentPlace value_at) {
  HUSK_TRY(args.check_tensor(out_at));
  if (args[value_at].kind == HUSK_ARG_TENSOR) return copy_elements(args, out_at, value_at);
  Scalar scalar;
  HUSK_TRY(get_scalar(args, value_at, scalar));
  // The scalar becomes a tensor of one element, so that the conversions of copies apply.
  husk_op_arg value{};
  value.kind = HUSK_ARG_TENSOR;
  double parts[2] = {scalar.re, scalar.im};
  if (scalar.is_int) {
    value.dtype = HUSK_I64;
    value.data = &scalar.i;
  } else {
    value.dtype = args[value_at].kind == HUSK_ARG_FLOATS ? HUSK_C128 : HUSK_F64;
    value.data = parts;
  }
  return copy_between(args, out_at, args[out_at], value_at, value);
}

// Copies `from`, made from argument `from_at`, into the part of an output that begins at index
// `starts` and has the shape of `from`.
husk_status copy_part(const Arguments& args, ArgumentPlace out_at, ArgumentPlace from_at,
                      const husk_op_arg& from, const int64_t* starts) {
  husk_op_arg part = args[out_at];
  int64_t offset = 0;
  for (int32_t d = 0; d < part.rank; ++d) offset += starts[d] * part.strides[d];
  if (numel(from) == 0) return HUSK_OK;
  part.sizes = from.sizes;
  part.data = static_cast<unsigned char*>(part.data) + offset * dtype_bytes(part.dtype);
  return copy_between(args, out_at, part, from_at, from);
}

}  // namespace

husk_status fill_into(const Arguments& args) {
  constexpr ArgumentsOf named("fill_into");
  constexpr uint32_t kSelf = named["self"], kValue = named["value"];
  return fill_with(args, kSelf, kValue);
}
husk_status fill(const Arguments& args) {
  constexpr ArgumentsOf named("fill");
  constexpr uint32_t kValue = named["value"], kOut = named["out"];
  return fill_with(args, kOut, kValue);
}
husk_status full(const Arguments& args) {
  constexpr ArgumentsOf named("full");
  constexpr uint32_t kFillValue = named["fill_value"], kOut = named["out"];
  return fill_with(args, kOut, kFillValue);
}
husk_status full_like(const Arguments& args) {
  constexpr ArgumentsOf named("full_like");
  constexpr uint32_t kFillValue = named["fill_value"], kOut = named["out"];
  return fill_with(args, kOut, kFillValue);
}

husk_status cat(const Arguments& args) {
  constexpr ArgumentsOf named("cat");
  constexpr uint32_t kTensors = named["tensors"], kDim = named["dim"], kOut = named["out"];
  HUSK_TRY(args.check_tensor(kOut));
  const husk_op_arg &list = args[kTensors], &out = args[kOut];
  int32_t dim = 0;
  HUSK_TRY(args.get_dim(kDim, out.rank, dim));
  if (list.kind != HUSK_ARG_TENSORS || !list.tensors)
    return args.argument_error(kTensors, HUSK_INVALID_ARGUMENT, "is not a list of tensors");
  int64_t starts[kMaxRank] = {};
  for (int64_t i = 0; i < list.count; ++i) {
    const husk_op_arg& tensor = list.tensors[i];
    const Op element{args.op, nullptr, "tensors"};
    HUSK_TRY(Arguments(element, args, &tensor, 1).check_tensor(0u));
    if (tensor.rank == 1 && tensor.sizes[0] == 0 && out.rank != 1) continue;  // as in PyTorch
    bool fits = tensor.rank == out.rank && out.rank > 0;
    for (int32_t d = 0; fits && d < out.rank; ++d) {
      fits = d == dim ? tensor.sizes[d] <= out.sizes[d] - starts[d]
                      : tensor.sizes[d] == out.sizes[d];
    }
    if (!fits) {
      return fail(args.error, HUSK_INVALID_ARGUMENT, "%s: tensor %lld does not fit the output",
                  args.op, static_cast<long long>(i));
    }
    HUSK_TRY(copy_part(args, kOut, kTensors, tensor, starts));
    starts[dim] += tensor.sizes[dim];
  }
  return args.check_size(kOut, dim, starts[dim], "the sum of the tensors' sizes");
}

// A negative padding cuts elements off.
husk_status constant_pad(const Arguments& args) {
  constexpr ArgumentsOf named("constant_pad");
  constexpr uint32_t kSelf = named["self"], kPad = named["pad"], kValue = named["value"],
                     kOut = named["out"];
  HUSK_TRY(args.check_tensor(kSelf));
  HUSK_TRY(args.check_tensor(kOut, args[kSelf].rank, args[kSelf].rank));
  HUSK_TRY(args.check_same_dtype(kOut, kSelf));
  const husk_op_arg &self = args[kSelf], &out = args[kOut];
  HUSK_TRY(args.check_int_list(kPad));
  if (args[kPad].count % 2 != 0 || args[kPad].count > 2 * self.rank) {
    return args.argument_error(kPad, HUSK_INVALID_ARGUMENT,
                               "is not a list of pairs, one for each of the last dimensions");
  }
  int64_t starts[kMaxRank], sizes[kMaxRank];
  husk_op_arg part = self;
  part.sizes = sizes;
  int64_t skipped = 0;
  bool empty = false;
  for (int32_t d = 0; d < self.rank; ++d) {
    const int64_t pair = self.rank - 1 - d;
    const bool is_padded = 2 * pair < args[kPad].count;
    const int64_t before = is_padded ? args[kPad].sizes[2 * pair] : 0,
                  after = is_padded ? args[kPad].sizes[2 * pair + 1] : 0;
    constexpr int64_t kMaxPad = int64_t{1} << 60;
    if (before < -kMaxPad || before > kMaxPad || after < -kMaxPad || after > kMaxPad)
      return args.argument_error(kPad, HUSK_INVALID_ARGUMENT, "is out of range");
    // The sum fits: no size passes kMaxElements, 4 * kMaxPad.
    HUSK_TRY(args.check_size(kOut, d, self.sizes[d] + before + after, "self and the pads"));
    starts[d] = before > 0 ? before : 0;
    sizes[d] = self.sizes[d] + (before < 0 ? before : 0) + (after < 0 ? after : 0);
    empty |= sizes[d] <= 0;
    if (before < 0 && sizes[d] > 0) skipped -= before * self.strides[d];
  }
  HUSK_TRY(fill_with(args, kOut, kValue));
  if (empty || numel(out) == 0) return HUSK_OK;
  part.data = static_cast<unsigned char*>(part.data) + skipped * dtype_bytes(self.dtype);
  return copy_part(args, kOut, kSelf, part, starts);
}

}  // namespace husk::host
