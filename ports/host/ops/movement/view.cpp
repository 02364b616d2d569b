// Operators that return views in PyTorch, implemented as copies, and other operators that only move
// elements. Each op describes its input with new sizes, strides and a new start, and copies that
// view.
#include "contracts.h"
#include "core/arguments.h"
#include "core/arithmetic.h"
#include "core/checked.h"
#include "core/loop.h"
#include "error.h"

namespace husk::host {

namespace {

// A tensor that shares the memory of another one and has its own sizes and strides.
struct View {
  husk_op_arg tensor;
  int64_t sizes[kMaxRank], strides[kMaxRank];

  explicit View(const husk_op_arg& source) : tensor(source) {
    for (int32_t d = 0; d < source.rank; ++d) {
      sizes[d] = source.sizes[d];
      strides[d] = source.strides[d];
    }
    tensor.sizes = sizes;
    tensor.strides = strides;
  }
  View(const View&) = delete;

  void move(int64_t elements) {
    if (numel(tensor) == 0) return;
    tensor.data = static_cast<unsigned char*>(tensor.data) + elements * dtype_bytes(tensor.dtype);
  }
  void insert(int32_t dim, int64_t size, int64_t stride) {
    for (int32_t d = tensor.rank++; d > dim; --d) {
      sizes[d] = sizes[d - 1];
      strides[d] = strides[d - 1];
    }
    sizes[dim] = size;
    strides[dim] = stride;
  }
  void remove(int32_t dim) {
    --tensor.rank;
    for (int32_t d = dim; d < tensor.rank; ++d) {
      sizes[d] = sizes[d + 1];
      strides[d] = strides[d + 1];
    }
  }
};

// The functions that call check_self_and_out() or copy_view().
constexpr ArgumentsOf kViews("view_alias", "view_diagonal", "view_expand", "view_permute",
                             "view_repeat", "view_reshape", "view_reverse", "view_select",
                             "view_slice", "view_transpose", "view_unsqueeze");

// Checks self and the output.
husk_status check_self_and_out(const Arguments& args, ArgumentPlace out) {
  constexpr uint32_t kSelf = kViews["self"];
  HUSK_TRY(args.check_tensor(kSelf, 0, kMaxRank - 1));
  HUSK_TRY(args.check_tensor(out, 0, kMaxRank - 1));
  return args.check_same_dtype(out, kSelf);
}

// Copies a view of self to an output that must have exactly its shape.
husk_status copy_view(const Arguments& args, ArgumentPlace out, const husk_op_arg& view) {
  constexpr uint32_t kSelf = kViews["self"];
  HUSK_TRY(args.check_tensor(out, view.rank, view.rank));
  for (int32_t d = 0; d < view.rank; ++d)
    HUSK_TRY(args.check_size(out, d, view.sizes[d], "what the input gives"));
  return copy_between(args, out, args[out], kSelf, view);
}

// Copies elements in order. The shapes may differ, the numbers of elements may not.
husk_status copy_in_order(const Arguments& args, ArgumentPlace out_at) {
  constexpr ArgumentsOf named("view_alias", "view_reshape");
  constexpr uint32_t kSelf = named["self"];
  HUSK_TRY(check_self_and_out(args, out_at));
  const husk_op_arg &self = args[kSelf], &out = args[out_at];
  if (numel(self) != numel(out)) {
    return fail(args.error, HUSK_INVALID_ARGUMENT,
                "%s: the input has %lld elements, the output %lld", args.op,
                static_cast<long long>(numel(self)), static_cast<long long>(numel(out)));
  }
  Loop<1> to(args);
  to.shape(out);
  to.merge();
  int64_t at[kMaxRank] = {}, from = 0;
  visit_bytes(dtype_bytes(out.dtype), [&](auto tag) {
    using T = typename decltype(tag)::type;
    each(to, [&](const int64_t(&to_at)[1]) {
      writable<T>(out)[to_at[0]] = data_of<T>(self)[from];
      for (int32_t d = self.rank - 1; d >= 0; --d) {
        from += self.strides[d];
        if (++at[d] < self.sizes[d]) break;
        from -= self.strides[d] * self.sizes[d];
        at[d] = 0;
      }
    });
  });
  return HUSK_OK;
}

// A dtype whose elements have `bytes` bytes, for moving elements.
int32_t dtype_of_bytes(int64_t bytes) {
  return bytes == 1   ? HUSK_U8
         : bytes == 2 ? HUSK_U16
         : bytes == 4 ? HUSK_U32
         : bytes == 8 ? HUSK_U64
                      : HUSK_C128;
}

// Reinterprets the tensor as elements of `bytes` bytes. Larger elements become a new last
// dimension.
husk_status split_elements(const Arguments& args, ArgumentPlace at, int64_t bytes, View& v) {
  const int64_t ratio = dtype_bytes(v.tensor.dtype) / bytes;
  v.tensor.dtype = dtype_of_bytes(bytes);
  for (int32_t d = 0; d < v.tensor.rank; ++d) v.strides[d] *= ratio;
  if (ratio == 1) return HUSK_OK;
  if (v.tensor.rank >= kMaxRank)
    return args.argument_error(at, HUSK_UNSUPPORTED, "has too many dimensions");
  v.insert(v.tensor.rank, ratio, 1);
  return HUSK_OK;
}

// Splits the last dimension into groups of `ratio`, which become a new last dimension.
husk_status group_last(const Arguments& args, ArgumentPlace at, int64_t ratio, View& v) {
  const int32_t last = v.tensor.rank - 1;
  if (last < 0 || v.sizes[last] % ratio != 0) {
    return args.argument_error(
        at, HUSK_INVALID_ARGUMENT,
        "has a last dimension that is not a multiple of the other's elements");
  }
  v.sizes[last] /= ratio;
  const int64_t stride = v.strides[last];
  v.strides[last] *= ratio;
  v.insert(last + 1, ratio, stride);
  return HUSK_OK;
}

// Copies the bytes of self to an output of another dtype. If the element size changes, the
// size of the last dimension changes too, unless a dimension is added or dropped for it.
husk_status reinterpret(const Arguments& args, ArgumentPlace out_at, bool adds_dim,
                        bool drops_dim) {
  constexpr ArgumentsOf named("view_as_complex", "view_as_real", "view_dtype");
  constexpr uint32_t kSelf = named["self"];
  HUSK_TRY(args.check_tensor(kSelf, 0, kMaxRank - 1));
  HUSK_TRY(args.check_tensor(out_at, 0, kMaxRank - 1));
  View from(args[kSelf]), to(args[out_at]);
  const int64_t from_bytes = dtype_bytes(args[kSelf].dtype),
                to_bytes = dtype_bytes(args[out_at].dtype);
  const int64_t unit = from_bytes < to_bytes ? from_bytes : to_bytes;
  HUSK_TRY(split_elements(args, kSelf, unit, from));
  HUSK_TRY(split_elements(args, out_at, unit, to));
  if (!adds_dim && to_bytes < from_bytes)
    HUSK_TRY(group_last(args, out_at, from_bytes / to_bytes, to));
  if (!drops_dim && from_bytes < to_bytes)
    HUSK_TRY(group_last(args, kSelf, to_bytes / from_bytes, from));
  bool same = from.tensor.rank == to.tensor.rank;
  for (int32_t d = 0; same && d < to.tensor.rank; ++d) same = from.sizes[d] == to.sizes[d];
  if (!same)
    return args.argument_error(out_at, HUSK_INVALID_ARGUMENT,
                               "has another shape than the input gives in its dtype");
  return copy_between(args, out_at, to.tensor, kSelf, from.tensor);
}

}  // namespace

husk_status view_reshape(const Arguments& args) {
  constexpr ArgumentsOf named("view_reshape");
  constexpr uint32_t kOut = named["out"];
  return copy_in_order(args, kOut);
}
husk_status view_alias(const Arguments& args) {
  constexpr ArgumentsOf named("view_alias");
  constexpr uint32_t kOut = named["out"];
  return copy_in_order(args, kOut);
}
husk_status view_dtype(const Arguments& args) {
  constexpr ArgumentsOf named("view_dtype");
  constexpr uint32_t kOut = named["out"];
  return reinterpret(args, kOut, false, false);
}
husk_status view_as_real(const Arguments& args) {
  constexpr ArgumentsOf named("view_as_real");
  constexpr uint32_t kOut = named["out"];
  return reinterpret(args, kOut, true, false);
}
husk_status view_as_complex(const Arguments& args) {
  constexpr ArgumentsOf named("view_as_complex");
  constexpr uint32_t kOut = named["out"];
  return reinterpret(args, kOut, false, true);
}

husk_status view_permute(const Arguments& args) {
  constexpr ArgumentsOf named("view_permute");
  constexpr uint32_t kSelf = named["self"], kDims = named["dims"], kOut = named["out"];
  HUSK_TRY(check_self_and_out(args, kOut));
  HUSK_TRY(args.check_ints(kDims, args[kSelf].rank));
  View v(args[kSelf]);
  uint32_t seen = 0;
  for (int32_t d = 0; d < args[kSelf].rank; ++d) {
    int64_t dim = args[kDims].sizes[d];
    if (dim < 0) dim += args[kSelf].rank;
    if (dim < 0 || dim >= args[kSelf].rank || seen >> dim & 1)
      return args.argument_error(kDims, HUSK_INVALID_ARGUMENT,
                                 "is not a permutation of the dimensions");
    seen |= 1u << dim;
    v.sizes[d] = args[kSelf].sizes[dim];
    v.strides[d] = args[kSelf].strides[dim];
  }
  return copy_view(args, kOut, v.tensor);
}

husk_status view_transpose(const Arguments& args) {
  constexpr ArgumentsOf named("view_transpose");
  constexpr uint32_t kSelf = named["self"], kDim0 = named["dim0"], kDim1 = named["dim1"],
                     kOut = named["out"];
  HUSK_TRY(check_self_and_out(args, kOut));
  int32_t a = 0, b = 0;
  HUSK_TRY(args.get_dim(kDim0, args[kSelf].rank, a));
  HUSK_TRY(args.get_dim(kDim1, args[kSelf].rank, b));
  View v(args[kSelf]);
  if (args[kSelf].rank > 0) {
    v.sizes[a] = args[kSelf].sizes[b];
    v.strides[a] = args[kSelf].strides[b];
    v.sizes[b] = args[kSelf].sizes[a];
    v.strides[b] = args[kSelf].strides[a];
  }
  return copy_view(args, kOut, v.tensor);
}

husk_status view_unsqueeze(const Arguments& args) {
  constexpr ArgumentsOf named("view_unsqueeze");
  constexpr uint32_t kSelf = named["self"], kDim = named["dim"], kOut = named["out"];
  HUSK_TRY(check_self_and_out(args, kOut));
  int32_t dim = 0;
  HUSK_TRY(args.get_dim(kDim, args[kSelf].rank + 1, dim));
  View v(args[kSelf]);
  v.insert(dim, 1, 0);
  return copy_view(args, kOut, v.tensor);
}

husk_status view_expand(const Arguments& args) {
  constexpr ArgumentsOf named("view_expand");
  constexpr uint32_t kSelf = named["self"], kOut = named["out"];
  HUSK_TRY(check_self_and_out(args, kOut));
  return copy_elements(args, kOut, kSelf);
}

husk_status view_slice(const Arguments& args) {
  constexpr ArgumentsOf named("view_slice");
  constexpr uint32_t kSelf = named["self"], kDim = named["dim"], kStart = named["start"],
                     kEnd = named["end"], kStep = named["step"], kOut = named["out"];
  HUSK_TRY(check_self_and_out(args, kOut));
  int32_t dim = 0;
  int64_t start = 0, end = INT64_MAX, step = 1;
  HUSK_TRY(args.get_dim(kDim, args[kSelf].rank, dim));
  if (!args.none(kStart)) HUSK_TRY(args.get_int(kStart, start));
  if (!args.none(kEnd)) HUSK_TRY(args.get_int(kEnd, end));
  HUSK_TRY(args.get_int(kStep, step));
  if (args[kSelf].rank == 0 || step < 1)
    return args.argument_error(kStep, HUSK_INVALID_ARGUMENT,
                               "is not positive, or self is a scalar");
  View v(args[kSelf]);
  const int64_t size = v.sizes[dim];
  if (start < 0) start += size;
  if (end < 0) end += size;
  start = start < 0 ? 0 : start > size ? size : start;
  end = end < start ? start : end > size ? size : end;
  v.sizes[dim] = end == start ? 0 : (end - start - 1) / step + 1;
  if (v.sizes[dim] > 1) v.strides[dim] *= step;
  v.move(start * args[kSelf].strides[dim]);
  return copy_view(args, kOut, v.tensor);
}

husk_status view_select(const Arguments& args) {
  constexpr ArgumentsOf named("view_select");
  constexpr uint32_t kSelf = named["self"], kDim = named["dim"], kIndex = named["index"],
                     kOut = named["out"];
  HUSK_TRY(check_self_and_out(args, kOut));
  int32_t dim = 0;
  int64_t index = 0;
  HUSK_TRY(args.get_dim(kDim, args[kSelf].rank, dim));
  HUSK_TRY(args.get_int(kIndex, index));
  View v(args[kSelf]);
  const int64_t size = args[kSelf].rank > 0 ? v.sizes[dim] : 0;
  if (index < -size || index >= size) return args.index_out_of_range(index, dim, size);
  v.move((index < 0 ? index + size : index) * v.strides[dim]);
  v.remove(dim);
  return copy_view(args, kOut, v.tensor);
}

husk_status view_diagonal(const Arguments& args) {
  constexpr ArgumentsOf named("view_diagonal");
  constexpr uint32_t kSelf = named["self"], kOffset = named["offset"], kDim1 = named["dim1"],
                     kDim2 = named["dim2"], kOut = named["out"];
  HUSK_TRY(check_self_and_out(args, kOut));
  int64_t offset = 0;
  int32_t a = 0, b = 0;
  HUSK_TRY(args.get_int(kOffset, offset));
  HUSK_TRY(args.get_dim(kDim1, args[kSelf].rank, a));
  HUSK_TRY(args.get_dim(kDim2, args[kSelf].rank, b));
  if (a == b) return args.argument_error(kDim2, HUSK_INVALID_ARGUMENT, "is dim1");
  View v(args[kSelf]);
  // An offset outside of the tensor counts as one at its border, where the diagonal is empty.
  const int64_t down = offset >= 0 ? 0 : offset > -v.sizes[a] ? -offset : v.sizes[a];
  const int64_t right = offset <= 0 ? 0 : offset < v.sizes[b] ? offset : v.sizes[b];
  const int64_t length = v.sizes[a] - down < v.sizes[b] - right ? v.sizes[a] - down
                                                                : v.sizes[b] - right;
  const int64_t stride = v.strides[a] + v.strides[b],
                start = down * v.strides[a] + right * v.strides[b];
  v.remove(a > b ? a : b);
  v.remove(a > b ? b : a);
  v.insert(v.tensor.rank, length, stride);
  v.move(start);
  return copy_view(args, kOut, v.tensor);
}

husk_status view_reverse(const Arguments& args) {
  constexpr ArgumentsOf named("view_reverse");
  constexpr uint32_t kA = named["a"], kDims = named["dims"], kOut = named["out"];
  HUSK_TRY(check_self_and_out(args, kOut));
  HUSK_TRY(args.check_int_list(kDims));
  View v(args[kA]);
  int64_t start = 0;
  uint32_t seen = 0;
  for (int64_t i = 0; i < args[kDims].count; ++i) {
    const int64_t signed_dim = args[kDims].sizes[i],
                  dim = signed_dim < 0 ? signed_dim + args[kA].rank : signed_dim;
    if (dim < 0 || dim >= args[kA].rank || seen >> dim & 1)
      return args.argument_error(kDims, HUSK_INVALID_ARGUMENT,
                                 "does not name dimensions of self, each once");
    seen |= 1u << dim;
    start += (v.sizes[dim] - 1) * v.strides[dim];
    v.strides[dim] = -v.strides[dim];
  }
  v.move(start);
  return copy_view(args, kOut, v.tensor);
}

husk_status view_repeat(const Arguments& args) {
  constexpr ArgumentsOf named("view_repeat");
  constexpr uint32_t kSelf = named["self"], kRepeats = named["repeats"], kOut = named["out"];
  HUSK_TRY(check_self_and_out(args, kOut));
  const husk_op_arg &self = args[kSelf], &out = args[kOut];
  HUSK_TRY(args.check_ints(kRepeats, out.rank));
  if (2 * out.rank > kMaxRank || out.rank < self.rank)
    return args.argument_error(kOut, HUSK_UNSUPPORTED,
                               "has too many dimensions, or fewer than self");
  View from(self), to(out);
  from.tensor.rank = to.tensor.rank = 2 * out.rank;
  for (int32_t d = 0; d < out.rank; ++d) {
    const int32_t self_dim = d - (out.rank - self.rank);
    const int64_t size = self_dim < 0 ? 1 : self.sizes[self_dim], times = args[kRepeats].sizes[d];
    int64_t expected = 0;
    if (times < 0 || !checked_multiply(size, times, expected))
      return args.argument_error(kRepeats, HUSK_INVALID_ARGUMENT, "is negative or too large");
    HUSK_TRY(args.check_size(kOut, d, expected, "the repeats of self"));
    from.sizes[2 * d] = to.sizes[2 * d] = times;
    from.sizes[2 * d + 1] = to.sizes[2 * d + 1] = size;
    from.strides[2 * d] = 0;
    from.strides[2 * d + 1] = self_dim < 0 ? 0 : self.strides[self_dim];
    // With 0 repeats a size is not bounded by the output's, but then there is nothing to copy.
    to.strides[2 * d] = times > 0 ? out.strides[d] * size : 0;
    to.strides[2 * d + 1] = out.strides[d];
  }
  if (numel(out) == 0) return HUSK_OK;
  return copy_between(args, kOut, to.tensor, kSelf, from.tensor);
}

}  // namespace husk::host
