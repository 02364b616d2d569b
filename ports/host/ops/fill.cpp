// Constants, copies that convert, choices and joins: what is compiled for real dtypes and left to an op for complex
// ones.
#include "arguments.h"
#include "error.h"
#include "loop.h"
#include "number.h"

namespace husk::host {

namespace {

husk_status fill_with(const Arguments& args, uint32_t out_at, uint32_t value_at) {
  HUSK_TRY(args.tensor(out_at));
  if (args[value_at].kind == HUSK_ARG_TENSOR) return copy_elements(args, out_at, value_at);
  Scalar scalar;
  if (!scalar_of(args[value_at], scalar)) return args.refuse(value_at, HUSK_INVALID_ARGUMENT, "is no number");
  // A tensor of one element, so that there is one code for conversions.
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

// Copies argument `from` into the part of an output that starts at `starts` and has from's shape.
husk_status copy_part(const Arguments& args, uint32_t out_at, uint32_t from_at, const husk_op_arg& from,
                      const int64_t* starts) {
  husk_op_arg part = args[out_at];
  int64_t offset = 0;
  for (int32_t d = 0; d < part.rank; d++) offset += starts[d] * part.strides[d];
  if (numel(from) == 0) return HUSK_OK;
  part.sizes = from.sizes;
  part.data = static_cast<unsigned char*>(part.data) + offset * dtype_bytes(part.dtype);
  return copy_between(args, out_at, part, from_at, from);
}

// Copies tensor `from` to a tensor of the shape of `like`.
husk_status copy_like(const Arguments& args, uint32_t like_at, uint32_t out_at, uint32_t from_at) {
  HUSK_TRY(args.tensor(like_at));
  HUSK_TRY(args.tensor(out_at));
  HUSK_TRY(args.same_shape(out_at, like_at));
  return copy_elements(args, out_at, from_at);
}

}  // namespace

husk_status fill_into(const Arguments& args) { return fill_with(args, 0, 1); }
husk_status fill(const Arguments& args) { return fill_with(args, 2, 1); }
husk_status full(const Arguments& args) { return fill_with(args, 6, 1); }
husk_status full_like(const Arguments& args) { return fill_with(args, 7, 1); }

husk_status clone(const Arguments& args) { return copy_like(args, 0, 2, 0); }
husk_status convert_element_type(const Arguments& args) { return copy_like(args, 0, 2, 0); }
husk_status to_copy(const Arguments& args) { return copy_like(args, 0, 7, 0); }
husk_status copy_out_of_place(const Arguments& args) { return copy_like(args, 0, 3, 1); }

husk_status where(const Arguments& args) {
  for (uint32_t i = 0; i < 4; i++) HUSK_TRY(args.tensor(i));
  if (args[0].dtype != HUSK_BOOL && args[0].dtype != HUSK_U8) return args.unsupported_dtype(0);
  const husk_op_arg& out = args[3];
  // First the one everywhere, then the other where the condition says so.
  HUSK_TRY(copy_elements(args, 3, 2));
  Loop<3> loop;
  loop.shape(out);
  if (!broadcast(args[0], out.sizes, out.rank, loop.strides[1]) ||
      !broadcast(args[1], out.sizes, out.rank, loop.strides[2])) {
    return args.refuse(1, HUSK_INVALID_ARGUMENT,
                       "or the condition has a shape that does not broadcast to the output's");
  }
  loop.merge();
  bool known = false;
  const bool knows_self = visit<Everything>(args[1].dtype, [&](auto source) {
    using S = typename decltype(source)::type;
    if (args[1].dtype == out.dtype) {
      known = true;
      each(loop, [&](const int64_t(&at)[3]) {
        if (data_of<uint8_t>(args[0])[at[1]]) writable<S>(out)[at[0]] = data_of<S>(args[1])[at[2]];
      });
      return;
    }
    known = visit<Complexes>(out.dtype, [&](auto target) {
      using T = typename decltype(target)::type;
      each(loop, [&](const int64_t(&at)[3]) {
        if (data_of<uint8_t>(args[0])[at[1]]) set(writable<T>(out) + at[0], cast<T>(get(data_of<S>(args[1]) + at[2])));
      });
    });
  });
  return knows_self && known ? husk_status{HUSK_OK} : args.unsupported_dtype(1);
}

husk_status cat(const Arguments& args) {
  HUSK_TRY(args.tensor(2));
  const husk_op_arg &list = args[0], &out = args[2];
  int32_t dim = 0;
  HUSK_TRY(args.dimension(1, out.rank, dim));
  if (list.kind != HUSK_ARG_TENSORS || !list.tensors)
    return args.refuse(0, HUSK_INVALID_ARGUMENT, "is no list of tensors");
  int64_t starts[most_dims] = {};
  for (int64_t i = 0; i < list.count; i++) {
    const husk_op_arg& tensor = list.tensors[i];
    const Op element{args.op, nullptr, "tensors"};
    HUSK_TRY(Arguments(element, args.context, &tensor, 1, args.error).tensor(0));
    if (tensor.rank == 1 && tensor.sizes[0] == 0 && out.rank != 1) continue;   // PyTorch skips those
    bool fits = tensor.rank == out.rank && out.rank > 0;
    for (int32_t d = 0; fits && d < out.rank; d++) {
      fits = d == dim ? tensor.sizes[d] <= out.sizes[d] - starts[d] : tensor.sizes[d] == out.sizes[d];
    }
    if (!fits) {
      return fail(args.error, HUSK_INVALID_ARGUMENT, "%s: tensor %lld does not fit the output", args.op,
                  static_cast<long long>(i));
    }
    HUSK_TRY(copy_part(args, 2, 0, tensor, starts));
    starts[dim] += tensor.sizes[dim];
  }
  return args.size(2, dim, starts[dim], "the sum of the tensors' sizes");
}

// Negative pads cut off.
husk_status constant_pad(const Arguments& args) {
  HUSK_TRY(args.tensor(0));
  HUSK_TRY(args.tensor(3, args[0].rank, args[0].rank));
  HUSK_TRY(args.same_dtype(3, 0));
  const husk_op_arg &self = args[0], &out = args[3];
  if (args[1].kind != HUSK_ARG_INTS || args[1].count % 2 != 0 || args[1].count > 2 * self.rank) {
    return args.refuse(1, HUSK_INVALID_ARGUMENT, "is no list of pairs, one for each of the last dimensions");
  }
  int64_t starts[most_dims], sizes[most_dims];
  husk_op_arg part = self;
  part.sizes = sizes;
  int64_t skipped = 0;
  bool empty = false;
  for (int32_t d = 0; d < self.rank; d++) {
    const int64_t pair = self.rank - 1 - d;
    const bool pads = 2 * pair < args[1].count;
    const int64_t before = pads ? args[1].sizes[2 * pair] : 0, after = pads ? args[1].sizes[2 * pair + 1] : 0;
    constexpr int64_t most = int64_t{1} << 60;
    if (before < -most || before > most || after < -most || after > most) {
      return args.refuse(1, HUSK_INVALID_ARGUMENT, "is out of range");
    }
    HUSK_TRY(args.size(3, d, self.sizes[d] + before + after, "self and the pads"));
    starts[d] = before > 0 ? before : 0;
    sizes[d] = self.sizes[d] + (before < 0 ? before : 0) + (after < 0 ? after : 0);
    empty |= sizes[d] <= 0;
    if (before < 0) skipped -= before * self.strides[d];
  }
  HUSK_TRY(fill_with(args, 3, 2));
  if (empty || numel(out) == 0) return HUSK_OK;
  part.data = static_cast<unsigned char*>(part.data) + skipped * dtype_bytes(self.dtype);
  return copy_part(args, 3, 0, part, starts);
}

}  // namespace husk::host
