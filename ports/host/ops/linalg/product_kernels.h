// The kernels of a matrix product. There are two methods.
//
// Thin: if one side has at most eight rows, the other side is not packed. It is read in place, once
// for each four of those rows.
//
// Blocks, for everything else: a block of out (kBlockRows x kBlockColumns) is summed in a buffer of
// its own, so that f16 and bf16 round once, edges need no special code, and out may have any
// strides. For each slice of k, the rows of a are packed into panels of kTileRows on the stack.
// Each panel of kTileColumns of b is packed and multiplied with all panels of a while it is in the
// first-level cache. The sums of a tile (kTileRows x kTileColumns) stay in registers.
#pragma once

#include "core/cancellation.h"
#include "core/vector_math.h"
#include "linalg/product.h"

namespace husk::host {
namespace {

// A tile has 24 vectors of sums if there are 32 vector registers, and 12 if there are 16.
constexpr int kTileRows = HUSK_VECTOR_BYTES == 64 ? 12 : 6;
constexpr int kTileVectors = 2;
template <class T>
constexpr int kTileColumns = kTileVectors * kLaneCount<T>;
constexpr int kBlockRows = 192;
template <class T>
constexpr int kBlockColumns = 1024 / static_cast<int>(sizeof(T));
template <class T>
constexpr int kBlockDepth = 1024 / static_cast<int>(sizeof(T));
constexpr int kThinRows = 4;                 // rows that are computed at once
constexpr int kThinMaxRows = 2 * kThinRows;  // with more rows packing pays, measured on Zen 4
template <class T>
constexpr int kThinDepth = 8192 / static_cast<int>(sizeof(T));
template <class T>
constexpr int kThinColumns = 8192 / static_cast<int>(sizeof(T));

// The smaller of two numbers.
inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

// ---- out ----

// Reads or writes up to a vector of a row of self, residual or out, whose elements have the stride
// `step`.
template <class T, class S>
Vector<T> load_part(const S* from, int64_t step, int64_t count) {
  if (step == 1 && count == kLaneCount<T>) return load(from);
  Vector<T> v = {};
  for (int64_t i = 0; i < count; ++i) v[i] = load_one(from + i * step);
  return v;
}
template <class T, class S>
void store_part(S* to, int64_t step, int64_t count, Vector<T> v) {
  if (step == 1 && count == kLaneCount<T>) return store(to, v);
  for (int64_t i = 0; i < count; ++i) store_one(to + i * step, v[i]);
}

template <class T, Activation A>
inline void activate_row(T* values, int64_t count) {
  for (int64_t j = 0; j < count; j += kLaneCount<T>)
    store(values + j, activate<T, A>(load(values + j)));
}

// Applies an activation to numbers, in whole vectors.
template <class T>
__attribute__((noinline)) void activate(Activation activation, T* values, int64_t count) {
#define HUSK_CASE(A) \
  case Activation::A: return activate_row<T, Activation::A>(values, count);
  switch (activation) {
    HUSK_CASE(Relu)
    HUSK_CASE(Relu6)
    HUSK_CASE(Hardsigmoid)
    HUSK_CASE(Hardswish)
    HUSK_CASE(Sigmoid)
    HUSK_CASE(Silu)
    HUSK_CASE(Tanh)
    HUSK_CASE(Gelu)
    HUSK_CASE(GeluTanh)
    case Activation::None: return;
  }
#undef HUSK_CASE
}

// Writes `rows` x `columns` sums, with `pitch` elements from row to row, to out at (row, column).
// The rows of sums have room for whole vectors. The sums are overwritten.
template <class T, class S>
void store_sums(const Product& p, T* sums, int64_t pitch, int64_t row, int64_t column, int64_t rows,
                int64_t columns) {
  constexpr int L = kLaneCount<T>;
  const T alpha = static_cast<T>(p.alpha), beta = static_cast<T>(p.beta);
  const auto at = [&](const MatrixView& view, int64_t i) {
    return static_cast<const S*>(view.data) + (row + i) * view.row + column * view.column;
  };
  const bool last_pass = p.activation == Activation::None && !p.residual.data;
  for (int64_t i = 0; i < rows; ++i) {
    T* from = sums + i * pitch;
    S* to = static_cast<S*>(p.out) + (row + i) * p.out_row + column * p.out_column;
    for (int64_t j = 0; j < columns; j += L) {
      const int64_t count = smaller(L, columns - j);
      Vector<T> value = load(from + j) * alpha;
      if (p.self.data)
        value += load_part<T>(at(p.self, i) + j * p.self.column, p.self.column, count) * beta;
      if (last_pass)
        store_part<T>(to + j * p.out_column, p.out_column, count, value);
      else
        store(from + j, value);
    }
    if (last_pass) continue;
    activate<T>(p.activation, from, columns);
    for (int64_t j = 0; j < columns; j += L) {
      const int64_t count = smaller(L, columns - j);
      Vector<T> value = load(from + j);
      if (p.residual.data)
        value += load_part<T>(at(p.residual, i) + j * p.residual.column, p.residual.column, count);
      store_part<T>(to + j * p.out_column, p.out_column, count, value);
    }
  }
}

// ---- blocks ----

// Packs L columns of a panel from rows that are contiguous along the depth: transposes L x L
// elements at a time.
template <class T, class S, int P>
void pack_transposed(const S* from, int64_t across, int rows, T* to) {
  constexpr int L = kLaneCount<T>, groups = (P + L - 1) / L;
  // There are registers for one group of rows at a time. A store may write past the end of its
  // column into the next one, so the last group is stored first, and columns in ascending order.
  for (int g = groups - 1; g >= 0; --g) {
    Vector<T> lanes[L];
    HUSK_UNROLL
    for (int r = 0; r < L; ++r)
      lanes[r] = g * L + r < rows ? load(from + (g * L + r) * across) : Vector<T>{};
    transpose(lanes);
    HUSK_UNROLL
    for (int d = 0; d < L; ++d) store(to + d * P + g * L, lanes[d]);
  }
}

// Packs a panel: to[d * P + r] = from[r * across + d * along] for d < depth and r < rows, and 0 for
// r from `rows` to P. May write up to one vector past depth * P elements.
template <class T, class S, int P>
void pack(const S* from, int64_t across, int64_t along, int rows, int64_t depth, T* to) {
  constexpr int L = kLaneCount<T>;
  int64_t d = 0;
  if (along == 1 && across != 1) {
    for (; d + L <= depth; d += L) pack_transposed<T, S, P>(from + d, across, rows, to + d * P);
  } else if (across == 1 && rows == P && P % L == 0) {
    for (; d < depth; ++d)
      for (int r = 0; r < P; r += L) store(to + d * P + r, load(from + d * along + r));
  } else if (across == 1 && rows == P) {
    for (; d < depth; ++d)
      for (int r = 0; r < P; ++r) to[d * P + r] = load_one(from + d * along + r);
  }
  for (; d < depth; ++d) {
    for (int r = 0; r < rows; ++r) to[d * P + r] = load_one(from + r * across + d * along);
    for (int r = rows; r < P; ++r) to[d * P + r] = 0;
  }
}

// Adds R rows of a times C vectors of columns of a panel of b to `total`. Element (r, d) of a lies
// at a[r * Row + d * Column].
template <class T, int R, int C, int Row, int Column>
inline void add_products(int64_t depth, const T* a, const T* b, Vector<T> (&total)[R][C]) {
  constexpr int L = kLaneCount<T>;
  for (int64_t d = 0; d < depth; ++d) {
    Vector<T> right[C];
    HUSK_UNROLL
    for (int c = 0; c < C; ++c) right[c] = load(b + d * kTileColumns<T> + c * L);
    HUSK_UNROLL
    for (int r = 0; r < R; ++r) {
      const Vector<T> left = a[r * Row + d * Column] - Vector<T>{};
      HUSK_UNROLL
      for (int c = 0; c < C; ++c) total[r][c] += left * right[c];
    }
  }
}

// Adds a panel of a times a panel of b to the sums, for R rows and C vectors of columns. The sums
// of the first slice of k are stored instead.
template <class T, int R, int C>
void tile(int64_t depth, const T* a, const T* b, T* sums, bool is_first) {
  constexpr int L = kLaneCount<T>;
  Vector<T> total[R][C] = {};
  add_products<T, R, C, 1, kTileRows>(depth, a, b, total);
  HUSK_UNROLL
  for (int r = 0; r < R; ++r) {
    HUSK_UNROLL
    for (int c = 0; c < C; ++c) {
      T* to = sums + r * kBlockColumns<T> + c * L;
      store(to, is_first ? total[r][c] : load(to) + total[r][c]);
    }
  }
}

// Calls the smallest tile that holds `rows` rows.
template <class T, int C>
void tile_of(int64_t rows, int64_t depth, const T* a, const T* b, T* sums, bool is_first) {
  if (rows > kTileRows * 2 / 3) return tile<T, kTileRows, C>(depth, a, b, sums, is_first);
  if (rows > kTileRows / 3) return tile<T, kTileRows * 2 / 3, C>(depth, a, b, sums, is_first);
  tile<T, kTileRows / 3, C>(depth, a, b, sums, is_first);
}

template <class T>
struct BlockBuffers {
  alignas(64) T a[kBlockRows * kBlockDepth<T> + kLaneCount<T>];
  alignas(64) T b[kTileColumns<T> * kBlockDepth<T> + kLaneCount<T>];
  alignas(64) T sums[kBlockRows * kBlockColumns<T>];
};

// Adds a slice of k to the sums of a block. a and b point to the corner of the block's operands.
template <class T, class S>
void add_slice(const Product& p, const S* a, const S* b, int64_t rows, int64_t columns,
               int64_t depth, bool is_first, BlockBuffers<T>& buffers) {
  constexpr int width = kTileColumns<T>;
  for (int64_t i = 0; i < rows; i += kTileRows) {
    pack<T, S, kTileRows>(a + i * p.a.row, p.a.row, p.a.column,
                          static_cast<int>(smaller(kTileRows, rows - i)), depth,
                          buffers.a + i * depth);
  }
  for (int64_t j = 0; j < columns; j += width) {
    const int filled = static_cast<int>(smaller(width, columns - j));
    pack<T, S, width>(b + j * p.b.column, p.b.column, p.b.row, filled, depth, buffers.b);
    for (int64_t i = 0; i < rows; i += kTileRows) {
      T* sums = buffers.sums + i * kBlockColumns<T> + j;
      if (filled > kLaneCount<T>)
        tile_of<T, kTileVectors>(rows - i, depth, buffers.a + i * depth, buffers.b, sums, is_first);
      else
        tile_of<T, 1>(rows - i, depth, buffers.a + i * depth, buffers.b, sums, is_first);
    }
  }
}

template <class T, class S>
void run_blocks(const Product& p) {
  BlockBuffers<T> buffers;
  const S *a = static_cast<const S*>(p.a.data), *b = static_cast<const S*>(p.b.data);
  // Blocks of about the same number of rows, because b is packed for each of them.
  const int64_t row_blocks = (p.m - 1) / kBlockRows + 1, even = (p.m - 1) / row_blocks + 1,
                block_rows = (even + kTileRows - 1) / kTileRows * kTileRows;
  for (int64_t i = 0; i < p.m; i += block_rows) {
    const int64_t rows = smaller(block_rows, p.m - i);
    for (int64_t j = 0; j < p.n; j += kBlockColumns<T>) {
      const int64_t columns = smaller(kBlockColumns<T>, p.n - j);
      if (p.k <= 0) __builtin_memset(buffers.sums, 0, sizeof buffers.sums);
      for (int64_t d = 0; d < p.k; d += kBlockDepth<T>) {
        const int64_t depth = smaller(kBlockDepth<T>, p.k - d);
        if (p.cancellation->ends(rows * columns * depth / 16)) return;
        add_slice<T, S>(p, a + i * p.a.row + d * p.a.column, b + d * p.b.row + j * p.b.column, rows,
                        columns, depth, d == 0, buffers);
      }
      store_sums<T, S>(p, buffers.sums, kBlockColumns<T>, i, j, rows, columns);
    }
  }
}

// ---- thin ----

template <class T>
struct ThinBuffers {
  alignas(64) T a[kThinRows * kThinDepth<T>];
  alignas(64) T sums[kThinRows * kThinColumns<T>];
};

// sums[r][0 .. C) += R rows of a times C columns of b, all contiguous along k.
template <class T, class S, int R, int C>
void add_dots(const T* a, int64_t a_row, const S* b, int64_t b_column, int64_t depth, T* sums,
              int64_t sums_row) {
  constexpr int L = kLaneCount<T>;
  Vector<T> total[R][C] = {};
  int64_t d = 0;
  for (; d + L <= depth; d += L) {
    Vector<T> left[R];
    HUSK_UNROLL
    for (int r = 0; r < R; ++r) left[r] = load(a + r * a_row + d);
    HUSK_UNROLL
    for (int c = 0; c < C; ++c) {
      const Vector<T> right = load(b + c * b_column + d);
      HUSK_UNROLL
      for (int r = 0; r < R; ++r) total[r][c] += left[r] * right;
    }
  }
  for (int c = 0; c < C; ++c) {
    for (int r = 0; r < R; ++r) {
      T rest = 0;
      for (int64_t t = d; t < depth; ++t) rest += a[r * a_row + t] * load_one(b + c * b_column + t);
      sums[r * sums_row + c] += sum<T>(total[r][c]) + rest;
    }
  }
}

template <class T, class S, int R>
void add_columns(const T* a, int64_t a_row, const S* b, int64_t b_column, int64_t depth,
                 int64_t columns, T* sums, int64_t sums_row) {
  constexpr int C = R == 1 ? 8 : 4;
  int64_t j = 0;
  for (; j + C <= columns; j += C)
    add_dots<T, S, R, C>(a, a_row, b + j * b_column, b_column, depth, sums + j, sums_row);
  for (; j < columns; ++j)
    add_dots<T, S, R, 1>(a, a_row, b + j * b_column, b_column, depth, sums + j, sums_row);
}

// sums[r][0 .. columns) += D elements of each of R rows of a times D rows of b that are contiguous
// along n.
template <class T, class S, int R, int D>
void add_scaled(const T* a, int64_t a_row, const S* b, int64_t b_row, int64_t columns, T* sums,
                int64_t sums_row) {
  constexpr int L = kLaneCount<T>;
  int64_t j = 0;
  for (; j + L <= columns; j += L) {
    Vector<T> right[D];
    HUSK_UNROLL
    for (int d = 0; d < D; ++d) right[d] = load(b + d * b_row + j);
    HUSK_UNROLL
    for (int r = 0; r < R; ++r) {
      Vector<T> total = load(sums + r * sums_row + j);
      HUSK_UNROLL
      for (int d = 0; d < D; ++d) total += a[r * a_row + d] * right[d];
      store(sums + r * sums_row + j, total);
    }
  }
  for (; j < columns; ++j) {
    for (int r = 0; r < R; ++r)
      for (int d = 0; d < D; ++d)
        sums[r * sums_row + j] += a[r * a_row + d] * load_one(b + d * b_row + j);
  }
}

template <class T, class S, int R>
void add_rows(const T* a, int64_t a_row, const S* b, int64_t b_row, int64_t depth, int64_t columns,
              T* sums, int64_t sums_row) {
  constexpr int D = 4;
  int64_t d = 0;
  for (; d + D <= depth; d += D)
    add_scaled<T, S, R, D>(a + d, a_row, b + d * b_row, b_row, columns, sums, sums_row);
  for (; d < depth; ++d)
    add_scaled<T, S, R, 1>(a + d, a_row, b + d * b_row, b_row, columns, sums, sums_row);
}

template <class T, class S, int R>
void run_thin(const Product& p) {
  ThinBuffers<T> buffers;
  const bool dots = p.b.row == 1 && (p.b.column != 1 || p.k > 1);
  const S *a = static_cast<const S*>(p.a.data), *b = static_cast<const S*>(p.b.data);
  for (int64_t j = 0; j < p.n; j += kThinColumns<T>) {
    const int64_t columns = smaller(kThinColumns<T>, p.n - j);
    for (int r = 0; r < R; ++r)
      for (int64_t t = 0; t < columns; t += kLaneCount<T>)
        store(buffers.sums + r * kThinColumns<T> + t, Vector<T>{});
    for (int64_t d = 0; d < p.k; d += kThinDepth<T>) {
      const int64_t depth = smaller(kThinDepth<T>, p.k - d);
      if (p.cancellation->ends(columns * depth / 16)) return;
      for (int r = 0; r < R; ++r) {
        const S* row = a + r * p.a.row + d * p.a.column;
        for (int64_t t = 0; t < depth; ++t)
          buffers.a[r * kThinDepth<T> + t] = load_one(row + t * p.a.column);
      }
      const S* corner = b + d * p.b.row + j * p.b.column;
      if (dots)
        add_columns<T, S, R>(buffers.a, kThinDepth<T>, corner, p.b.column, depth, columns,
                             buffers.sums, kThinColumns<T>);
      else
        add_rows<T, S, R>(buffers.a, kThinDepth<T>, corner, p.b.row, depth, columns, buffers.sums,
                          kThinColumns<T>);
    }
    store_sums<T, S>(p, buffers.sums, kThinColumns<T>, 0, j, R, columns);
  }
}

// ---- choice of the method ----

// Transposes the product: out^T = b^T a^T.
void transpose_product(Product& p) {
  const MatrixView a = p.a, b = p.b;
  const int64_t m = p.m, row = p.out_row;
  p.a = {b.data, b.column, b.row};
  p.b = {a.data, a.column, a.row};
  p.m = p.n;
  p.n = m;
  p.out_row = p.out_column;
  p.out_column = row;
  p.self = {p.self.data, p.self.column, p.self.row};
  p.residual = {p.residual.data, p.residual.column, p.residual.row};
}

template <class S>
void skip_rows(Product& p, int64_t rows) {
  p.m -= rows;
  p.a.data = static_cast<const S*>(p.a.data) + rows * p.a.row;
  p.out = static_cast<S*>(p.out) + rows * p.out_row;
  const auto skip = [rows](MatrixView& view) {
    if (view.data) view.data = static_cast<const S*>(view.data) + rows * view.row;
  };
  skip(p.self);
  skip(p.residual);
}

template <class T, class S>
void run_thin_groups(Product p) {
  for (; p.m >= kThinRows; skip_rows<S>(p, kThinRows)) run_thin<T, S, kThinRows>(p);
  switch (p.m) {
    case 1: return run_thin<T, S, 1>(p);
    case 2: return run_thin<T, S, 2>(p);
    case 3: return run_thin<T, S, 3>(p);
    default: return;
  }
}

template <class T, class S>
void run_typed(Product p) {
  if (p.n < p.m && p.n <= kThinMaxRows) transpose_product(p);
  // The stride along a dimension of one element is never used. The value 1 selects the faster
  // loops.
  if (p.k == 1 && p.b.column != 1) p.b.row = 1;
  if (p.n == 1) p.b.column = 1;
  if (p.m <= kThinMaxRows && (p.b.row == 1 || p.b.column == 1)) return run_thin_groups<T, S>(p);
  if (p.out_row == 1 && p.out_column != 1) transpose_product(p);
  run_blocks<T, S>(p);
}

void run_product(const Product& p) {
  if (p.m <= 0 || p.n <= 0) return;
  switch (p.dtype) {
    case HUSK_F16: return run_typed<float, Half>(p);
    case HUSK_BF16: return run_typed<float, BFloat16>(p);
    case HUSK_F32: return run_typed<float, float>(p);
    default: return run_typed<double, double>(p);
  }
}

}  // namespace
}  // namespace husk::host
