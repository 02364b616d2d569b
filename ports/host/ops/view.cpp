// Operators that return views in PyTorch, as copies, and others that only move elements. Each describes its input with
// other sizes, strides and start, and copies that.
#include "arguments.h"
#include "error.h"
#include "loop.h"
#include "number.h"

namespace husk::host {

namespace {

// A tensor that looks at another one's memory.
struct View {
  husk_op_arg tensor;
  int64_t sizes[most_dims], strides[most_dims];

  explicit View(const husk_op_arg& of) : tensor(of) {
    for (int32_t d = 0; d < of.rank; d++) {
      sizes[d] = of.sizes[d];
      strides[d] = of.strides[d];
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
    for (int32_t d = tensor.rank++; d > dim; d--) {
      sizes[d] = sizes[d - 1];
      strides[d] = strides[d - 1];
    }
    sizes[dim] = size;
    strides[dim] = stride;
  }
  void remove(int32_t dim) {
    tensor.rank--;
    for (int32_t d = dim; d < tensor.rank; d++) {
      sizes[d] = sizes[d + 1];
      strides[d] = strides[d + 1];
    }
  }
};

husk_status self_and_out(const Arguments& args, uint32_t out) {
  HUSK_TRY(args.tensor(0, 0, most_dims - 1));
  HUSK_TRY(args.tensor(out, 0, most_dims - 1));
  return args.same_dtype(out, 0);
}

// Copies a view of argument 0 to an output of just its shape.
husk_status copy_view(const Arguments& args, uint32_t out, const husk_op_arg& view) {
  HUSK_TRY(args.tensor(out, view.rank, view.rank));
  for (int32_t d = 0; d < view.rank; d++) HUSK_TRY(args.size(out, d, view.sizes[d], "what the input gives"));
  return copy_between(args, out, args[out], 0, view);
}

// Copies elements in order, whatever the shapes.
husk_status copy_in_order(const Arguments& args, uint32_t out_at) {
  HUSK_TRY(self_and_out(args, out_at));
  const husk_op_arg &self = args[0], &out = args[out_at];
  if (numel(self) != numel(out)) {
    return fail(args.error, HUSK_INVALID_ARGUMENT, "%s: the input has %lld elements, the output %lld", args.op,
                static_cast<long long>(numel(self)), static_cast<long long>(numel(out)));
  }
  Loop<1> to;
  to.shape(out);
  to.merge();
  int64_t at[most_dims] = {}, from = 0;
  visit_bytes(dtype_bytes(out.dtype), [&](auto tag) {
    using T = typename decltype(tag)::type;
    each(to, [&](const int64_t(&place)[1]) {
      writable<T>(out)[place[0]] = data_of<T>(self)[from];
      for (int32_t d = self.rank - 1; d >= 0; d--) {
        from += self.strides[d];
        if (++at[d] < self.sizes[d]) break;
        from -= self.strides[d] * self.sizes[d];
        at[d] = 0;
      }
    });
  });
  return HUSK_OK;
}

// A dtype of unsigned numbers of this many bytes, for moving; f64 pairs for 16.
int32_t dtype_of_bytes(int64_t bytes) {
  return bytes == 1 ? HUSK_U8 : bytes == 2 ? HUSK_U16 : bytes == 4 ? HUSK_U32 : bytes == 8 ? HUSK_U64 : HUSK_C128;
}

// A tensor as pieces of `bytes` bytes, one dimension more where it has larger elements.
husk_status in_pieces(const Arguments& args, uint32_t at, int64_t bytes, View& v) {
  const int64_t own = dtype_bytes(v.tensor.dtype), ratio = own / bytes;
  v.tensor.dtype = dtype_of_bytes(bytes);
  for (int32_t d = 0; d < v.tensor.rank; d++) v.strides[d] *= ratio;
  if (ratio == 1) return HUSK_OK;
  if (v.tensor.rank >= most_dims) return args.refuse(at, HUSK_UNSUPPORTED, "has too many dimensions");
  v.insert(v.tensor.rank, ratio, 1);
  return HUSK_OK;
}

// The last dimension in groups of `ratio`.
husk_status group_last(const Arguments& args, uint32_t at, int64_t ratio, View& v) {
  const int32_t last = v.tensor.rank - 1;
  if (last < 0 || v.sizes[last] % ratio != 0) {
    return args.refuse(at, HUSK_INVALID_ARGUMENT, "has a last dimension that is no multiple of the other's elements");
  }
  v.sizes[last] /= ratio;
  const int64_t stride = v.strides[last];
  v.strides[last] *= ratio;
  v.insert(last + 1, ratio, stride);
  return HUSK_OK;
}

// The bytes of argument 0, in the output's dtype; a size of the last dimension changes as the sizes of elements do.
husk_status reinterpret(const Arguments& args, uint32_t out_at, bool adds_dim, bool drops_dim) {
  HUSK_TRY(args.tensor(0, 0, most_dims - 1));
  HUSK_TRY(args.tensor(out_at, 0, most_dims - 1));
  View from(args[0]), to(args[out_at]);
  const int64_t from_bytes = dtype_bytes(args[0].dtype), to_bytes = dtype_bytes(args[out_at].dtype);
  const int64_t unit = from_bytes < to_bytes ? from_bytes : to_bytes;
  HUSK_TRY(in_pieces(args, 0, unit, from));
  HUSK_TRY(in_pieces(args, out_at, unit, to));
  if (!adds_dim && to_bytes < from_bytes) HUSK_TRY(group_last(args, out_at, from_bytes / to_bytes, to));
  if (!drops_dim && from_bytes < to_bytes) HUSK_TRY(group_last(args, 0, to_bytes / from_bytes, from));
  bool same = from.tensor.rank == to.tensor.rank;
  for (int32_t d = 0; same && d < to.tensor.rank; d++) same = from.sizes[d] == to.sizes[d];
  if (!same) return args.refuse(out_at, HUSK_INVALID_ARGUMENT, "has another shape than the input gives in its dtype");
  return copy_between(args, out_at, to.tensor, 0, from.tensor);
}

}  // namespace

husk_status view_reshape(const Arguments& args) { return copy_in_order(args, 2); }
husk_status view_alias(const Arguments& args) { return copy_in_order(args, 1); }
husk_status view_dtype(const Arguments& args) { return reinterpret(args, 2, false, false); }
husk_status view_as_real(const Arguments& args) { return reinterpret(args, 1, true, false); }
husk_status view_as_complex(const Arguments& args) { return reinterpret(args, 1, false, true); }

husk_status view_permute(const Arguments& args) {
  HUSK_TRY(self_and_out(args, 2));
  HUSK_TRY(args.integers(1, args[0].rank));
  View v(args[0]);
  uint32_t seen = 0;
  for (int32_t d = 0; d < args[0].rank; d++) {
    int64_t dim = args[1].sizes[d];
    if (dim < 0) dim += args[0].rank;
    if (dim < 0 || dim >= args[0].rank || seen >> dim & 1) {
      return args.refuse(1, HUSK_INVALID_ARGUMENT, "is no order of the dimensions");
    }
    seen |= 1u << dim;
    v.sizes[d] = args[0].sizes[dim];
    v.strides[d] = args[0].strides[dim];
  }
  return copy_view(args, 2, v.tensor);
}

husk_status view_transpose(const Arguments& args) {
  HUSK_TRY(self_and_out(args, 3));
  int32_t a = 0, b = 0;
  HUSK_TRY(args.dimension(1, args[0].rank, a));
  HUSK_TRY(args.dimension(2, args[0].rank, b));
  View v(args[0]);
  if (args[0].rank > 0) {
    v.sizes[a] = args[0].sizes[b];
    v.strides[a] = args[0].strides[b];
    v.sizes[b] = args[0].sizes[a];
    v.strides[b] = args[0].strides[a];
  }
  return copy_view(args, 3, v.tensor);
}

husk_status view_unsqueeze(const Arguments& args) {
  HUSK_TRY(self_and_out(args, 2));
  int32_t dim = 0;
  HUSK_TRY(args.dimension(1, args[0].rank + 1, dim));
  View v(args[0]);
  v.insert(dim, 1, 0);
  return copy_view(args, 2, v.tensor);
}

husk_status view_expand(const Arguments& args) {
  HUSK_TRY(self_and_out(args, 3));
  return copy_elements(args, 3, 0);
}

husk_status view_slice(const Arguments& args) {
  HUSK_TRY(self_and_out(args, 5));
  int32_t dim = 0;
  int64_t start = 0, end = INT64_MAX, step = 1;
  HUSK_TRY(args.dimension(1, args[0].rank, dim));
  if (!args.none(2)) HUSK_TRY(args.integer(2, start));
  if (!args.none(3)) HUSK_TRY(args.integer(3, end));
  HUSK_TRY(args.integer(4, step));
  if (args[0].rank == 0 || step < 1)
    return args.refuse(4, HUSK_INVALID_ARGUMENT, "is not positive, or self is a scalar");
  View v(args[0]);
  const int64_t size = v.sizes[dim];
  if (start < 0) start += size;
  if (end < 0) end += size;
  start = start < 0 ? 0 : start > size ? size : start;
  end = end < start ? start : end > size ? size : end;
  v.sizes[dim] = end == start ? 0 : (end - start - 1) / step + 1;
  if (v.sizes[dim] > 1) v.strides[dim] *= step;
  v.move(start * args[0].strides[dim]);
  return copy_view(args, 5, v.tensor);
}

husk_status view_select(const Arguments& args) {
  HUSK_TRY(self_and_out(args, 3));
  int32_t dim = 0;
  int64_t index = 0;
  HUSK_TRY(args.dimension(1, args[0].rank, dim));
  HUSK_TRY(args.integer(2, index));
  View v(args[0]);
  const int64_t size = args[0].rank > 0 ? v.sizes[dim] : 0;
  if (index < -size || index >= size) {
    return fail(args.error, HUSK_INVALID_INPUT, "%s: index %lld is out of range for dimension %d of size %lld", args.op,
                static_cast<long long>(index), dim, static_cast<long long>(size));
  }
  v.move((index < 0 ? index + size : index) * v.strides[dim]);
  v.remove(dim);
  return copy_view(args, 3, v.tensor);
}

husk_status view_diagonal(const Arguments& args) {
  HUSK_TRY(self_and_out(args, 4));
  int64_t offset = 0;
  int32_t a = 0, b = 0;
  HUSK_TRY(args.integer(1, offset));
  HUSK_TRY(args.dimension(2, args[0].rank, a));
  HUSK_TRY(args.dimension(3, args[0].rank, b));
  if (a == b) return args.refuse(3, HUSK_INVALID_ARGUMENT, "is dim1");
  View v(args[0]);
  const int64_t down = offset < 0 ? -offset : 0, right = offset > 0 ? offset : 0;
  int64_t length = v.sizes[a] - down < v.sizes[b] - right ? v.sizes[a] - down : v.sizes[b] - right;
  if (length < 0) length = 0;
  const int64_t stride = v.strides[a] + v.strides[b], start = down * v.strides[a] + right * v.strides[b];
  v.remove(a > b ? a : b);
  v.remove(a > b ? b : a);
  v.insert(v.tensor.rank, length, stride);
  v.move(start);
  return copy_view(args, 4, v.tensor);
}

husk_status view_reverse(const Arguments& args) {
  HUSK_TRY(self_and_out(args, 2));
  if (args[1].kind != HUSK_ARG_INTS) return args.refuse(1, HUSK_INVALID_ARGUMENT, "is no list of ints");
  View v(args[0]);
  int64_t start = 0;
  uint32_t seen = 0;
  for (int64_t i = 0; i < args[1].count; i++) {
    const int64_t given = args[1].sizes[i], dim = given < 0 ? given + args[0].rank : given;
    if (dim < 0 || dim >= args[0].rank || seen >> dim & 1) {
      return args.refuse(1, HUSK_INVALID_ARGUMENT, "does not name dimensions of self, each once");
    }
    seen |= 1u << dim;
    start += (v.sizes[dim] - 1) * v.strides[dim];
    v.strides[dim] = -v.strides[dim];
  }
  v.move(start);
  return copy_view(args, 2, v.tensor);
}

husk_status view_repeat(const Arguments& args) {
  HUSK_TRY(self_and_out(args, 2));
  const husk_op_arg &self = args[0], &out = args[2];
  HUSK_TRY(args.integers(1, out.rank));
  if (2 * out.rank > most_dims || out.rank < self.rank) {
    return args.refuse(2, HUSK_UNSUPPORTED, "has too many dimensions, or fewer than self");
  }
  View from(self), to(out);
  from.tensor.rank = to.tensor.rank = 2 * out.rank;
  for (int32_t d = 0; d < out.rank; d++) {
    const int32_t own = d - (out.rank - self.rank);
    const int64_t size = own < 0 ? 1 : self.sizes[own], times = args[1].sizes[d];
    int64_t expected = 0;
    if (times < 0 || __builtin_mul_overflow(size, times, &expected)) {
      return args.refuse(1, HUSK_INVALID_ARGUMENT, "is negative or too large");
    }
    HUSK_TRY(args.size(2, d, expected, "the repeats of self"));
    from.sizes[2 * d] = to.sizes[2 * d] = times;
    from.sizes[2 * d + 1] = to.sizes[2 * d + 1] = size;
    from.strides[2 * d] = 0;
    from.strides[2 * d + 1] = own < 0 ? 0 : self.strides[own];
    to.strides[2 * d] = out.strides[d] * size;
    to.strides[2 * d + 1] = out.strides[d];
  }
  return copy_between(args, 2, to.tensor, 0, from.tensor);
}

}  // namespace husk::host
