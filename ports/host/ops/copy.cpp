// aten::copy_ between tensors of one dtype: any strides, broadcasting. (Inductor converts in kernels of its own.)
#include <string.h>

#include "arguments.h"
#include "error.h"

namespace husk::host {

namespace {

constexpr int32_t most_dims = 8;

// The copy as loops over the destination's dimensions, the last one innermost.
struct Walk {
  int32_t rank = 0;
  int64_t sizes[most_dims];
  int64_t to[most_dims];     // strides, in elements
  int64_t from[most_dims];
};

using RowCopy = void (*)(unsigned char* to, int64_t to_stride, const unsigned char* from, int64_t from_stride,
                         int64_t count);

// Bytes of N: the same dtype on both sides.
template <int N>
void copy_row(unsigned char* to, int64_t to_stride, const unsigned char* from, int64_t from_stride, int64_t count) {
  if (to_stride == 1 && from_stride == 1) {
    memcpy(to, from, static_cast<size_t>(count) * N);
    return;
  }
  for (int64_t i = 0; i < count; i++) memcpy(to + i * to_stride * N, from + i * from_stride * N, N);
}

// Visits every element of the outer dimensions in order; ranks are small, so the counters live here.
void walk(const Walk& w, RowCopy copy, unsigned char* to, const unsigned char* from, int64_t bytes) {
  int64_t at[most_dims] = {};
  for (int32_t d = 0; d < w.rank; d++) {
    if (w.sizes[d] == 0) return;
  }
  if (w.rank == 0) return copy(to, 1, from, 1, 1);
  const int32_t last = w.rank - 1;
  for (;;) {
    copy(to, w.to[last], from, w.from[last], w.sizes[last]);
    int32_t d = last - 1;
    for (; d >= 0; d--) {
      to += w.to[d] * bytes;
      from += w.from[d] * bytes;
      if (++at[d] < w.sizes[d]) break;
      to -= w.to[d] * bytes * w.sizes[d];
      from -= w.from[d] * bytes * w.sizes[d];
      at[d] = 0;
    }
    if (d < 0) return;
  }
}

RowCopy row_copy(int64_t bytes) {
  switch (bytes) {
    case 1: return copy_row<1>;
    case 2: return copy_row<2>;
    case 4: return copy_row<4>;
    case 8: return copy_row<8>;
    default: return copy_row<16>;
  }
}

}  // namespace

husk_status copy_into(const husk_op_context*, const husk_op_arg* values, uint32_t count, husk_error* error) {
  constexpr const char* names[] = {"self", "src", "non_blocking"};
  const Arguments args{"aten::copy_", names, values, error};
  if (husk_status status = args.count(count, 2, 3)) return status;
  if (husk_status status = args.tensor(0, 0, most_dims)) return status;
  if (husk_status status = args.tensor(1, 0, args[0].rank)) return status;
  if (husk_status status = args.same_dtype(1, 0)) return status;
  const husk_op_arg &to = args[0], &from = args[1];
  Walk w;
  w.rank = to.rank;
  for (int32_t d = 0; d < to.rank; d++) {
    const int32_t own = d - (to.rank - from.rank);
    w.sizes[d] = to.sizes[d];
    w.to[d] = to.strides[d];
    w.from[d] = 0;
    if (own < 0 || from.sizes[own] == 1) continue;
    if (husk_status status = args.size(1, own, to.sizes[d], "it broadcasts to self")) return status;
    w.from[d] = from.strides[own];
  }
  const int64_t bytes = dtype_bytes(to.dtype);
  walk(w, row_copy(bytes), static_cast<unsigned char*>(to.data), static_cast<const unsigned char*>(from.data), bytes);
  return HUSK_OK;
}

}  // namespace husk::host
