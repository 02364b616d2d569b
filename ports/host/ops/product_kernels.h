// The loops of a matrix product. Two ways: *thin*, where one side has at most eight rows, streams the other side once
// for each four of them, as it lies; everything else goes in *blocks*, with both sides packed into stack buffers.
//
// Blocks: a block of out (block_rows x block_columns) is summed in a buffer of its own, so that f16 and bf16 round
// once, edges need no code of their own and any strides of out will do. For each slice of k, the rows of a are packed
// into panels of tile_rows, and each panel of tile_columns of b is packed and multiplied with all of them while it is
// in the first cache. A tile's sums stay in registers.
#ifndef HUSK_HOST_PRODUCT_KERNELS_H
#define HUSK_HOST_PRODUCT_KERNELS_H

#include "lanes.h"
#include "product.h"

namespace husk::host {
namespace {

// 24 or 12 vectors of sums, of 32 or 16 registers.
constexpr int tile_rows = HUSK_VECTOR_BYTES == 64 ? 12 : 6;
constexpr int tile_vectors = 2;
template <class T> constexpr int tile_columns = tile_vectors * lane_count<T>;
constexpr int block_rows = 96;
template <class T> constexpr int block_columns = 1024 / static_cast<int>(sizeof(T));
template <class T> constexpr int block_depth = 1024 / static_cast<int>(sizeof(T));
constexpr int thin_rows = 4;                  // at once
constexpr int thin_most_rows = 2 * thin_rows; // from here on packing pays, measured on Zen 4
template <class T> constexpr int thin_depth = 8192 / static_cast<int>(sizeof(T));
template <class T> constexpr int thin_columns = 8192 / static_cast<int>(sizeof(T));

inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

// ---- out ----

// Writes `rows` x `columns` sums, `pitch` apart, to out at (row, column).
template <class T, class S>
void store_sums(const Product& p, const T* sums, int64_t pitch, int64_t row, int64_t column, int64_t rows,
                int64_t columns) {
  const T alpha = static_cast<T>(p.alpha), beta = static_cast<T>(p.beta);
  const bool contiguous = p.out_column == 1 && (!p.self.data || p.self.column == 1);
  for (int64_t i = 0; i < rows; i++) {
    const T* from = sums + i * pitch;
    S* to = static_cast<S*>(p.out) + (row + i) * p.out_row + column * p.out_column;
    const S* self = p.self.data ? static_cast<const S*>(p.self.data) + (row + i) * p.self.row + column * p.self.column
                                : nullptr;
    int64_t j = 0;
    for (; contiguous && j + lane_count<T> <= columns; j += lane_count<T>) {
      Vector<T> value = load(from + j) * alpha;
      if (self) value += load(self + j) * beta;
      store(to + j, value);
    }
    for (; j < columns; j++) {
      T value = from[j] * alpha;
      if (self) value += load_one(self + j * p.self.column) * beta;
      store_one(to + j * p.out_column, value);
    }
  }
}

// ---- blocks ----

// L columns of a panel (depth-wise neighbours in memory) from lane l of row r to row l of lane r.
template <class T, class S, int P>
void pack_transposed(const S* from, int64_t across, int rows, T* to) {
  constexpr int L = lane_count<T>, groups = (P + L - 1) / L;
  Vector<T> lanes[groups][L];
  for (int g = 0; g < groups; g++) {
    HUSK_UNROLL
    for (int r = 0; r < L; r++) {
      lanes[g][r] = g * L + r < rows ? load(from + (g * L + r) * across) : Vector<T>{};
    }
    transpose(lanes[g]);
  }
  // In this order, because a store may run over the end of its column, into what the next one writes.
  for (int d = 0; d < L; d++) {
    for (int g = 0; g < groups; g++) store(to + d * P + g * L, lanes[g][d]);
  }
}

// A panel: to[d * P + r] = from[r * across + d * along] for d < depth, r < rows, and 0 for the r up to P. May write up
// to a vector more than depth * P elements.
template <class T, class S, int P>
void pack(const S* from, int64_t across, int64_t along, int rows, int64_t depth, T* to) {
  constexpr int L = lane_count<T>;
  int64_t d = 0;
  if (along == 1 && across != 1) {
    for (; d + L <= depth; d += L) pack_transposed<T, S, P>(from + d, across, rows, to + d * P);
  } else if (across == 1 && rows == P && P % L == 0) {
    for (; d < depth; d++) {
      for (int r = 0; r < P; r += L) store(to + d * P + r, load(from + d * along + r));
    }
  } else if (across == 1 && rows == P) {
    for (; d < depth; d++) {
      for (int r = 0; r < P; r++) to[d * P + r] = load_one(from + d * along + r);
    }
  }
  for (; d < depth; d++) {
    for (int r = 0; r < rows; r++) to[d * P + r] = load_one(from + r * across + d * along);
    for (int r = rows; r < P; r++) to[d * P + r] = 0;
  }
}

// sums[r][c] += panel of a times panel of b, for R rows and C vectors.
template <class T, int R, int C>
void tile(int64_t depth, const T* a, const T* b, T* sums) {
  constexpr int L = lane_count<T>;
  Vector<T> total[R][C] = {};
  for (int64_t d = 0; d < depth; d++) {
    Vector<T> right[C];
    HUSK_UNROLL
    for (int c = 0; c < C; c++) right[c] = load(b + d * tile_columns<T> + c * L);
    HUSK_UNROLL
    for (int r = 0; r < R; r++) {
      const Vector<T> left = a[d * tile_rows + r] - Vector<T>{};
      HUSK_UNROLL
      for (int c = 0; c < C; c++) total[r][c] += left * right[c];
    }
  }
  HUSK_UNROLL
  for (int r = 0; r < R; r++) {
    HUSK_UNROLL
    for (int c = 0; c < C; c++) {
      T* to = sums + r * block_columns<T> + c * L;
      store(to, load(to) + total[r][c]);
    }
  }
}

// The smallest tile that holds `rows` rows.
template <class T, int C>
void tile_of(int64_t rows, int64_t depth, const T* a, const T* b, T* sums) {
  if (rows > tile_rows * 2 / 3) return tile<T, tile_rows, C>(depth, a, b, sums);
  if (rows > tile_rows / 3) return tile<T, tile_rows * 2 / 3, C>(depth, a, b, sums);
  tile<T, tile_rows / 3, C>(depth, a, b, sums);
}

template <class T>
struct BlockBuffers {
  alignas(64) T a[block_rows * block_depth<T> + lane_count<T>];
  alignas(64) T b[tile_columns<T> * block_depth<T> + lane_count<T>];
  alignas(64) T sums[block_rows * block_columns<T>];
};

// Adds a slice of k to the sums of a block; a and b point at its corner.
template <class T, class S>
void add_slice(const Product& p, const S* a, const S* b, int64_t rows, int64_t columns, int64_t depth,
               BlockBuffers<T>& buffers) {
  constexpr int width = tile_columns<T>;
  for (int64_t i = 0; i < rows; i += tile_rows) {
    pack<T, S, tile_rows>(a + i * p.a.row, p.a.row, p.a.column, static_cast<int>(smaller(tile_rows, rows - i)), depth,
                          buffers.a + i * depth);
  }
  for (int64_t j = 0; j < columns; j += width) {
    const int filled = static_cast<int>(smaller(width, columns - j));
    pack<T, S, width>(b + j * p.b.column, p.b.column, p.b.row, filled, depth, buffers.b);
    for (int64_t i = 0; i < rows; i += tile_rows) {
      T* sums = buffers.sums + i * block_columns<T> + j;
      if (filled > lane_count<T>) {
        tile_of<T, tile_vectors>(rows - i, depth, buffers.a + i * depth, buffers.b, sums);
      } else {
        tile_of<T, 1>(rows - i, depth, buffers.a + i * depth, buffers.b, sums);
      }
    }
  }
}

template <class T, class S>
void run_blocks(const Product& p) {
  BlockBuffers<T> buffers;
  const S *a = static_cast<const S*>(p.a.data), *b = static_cast<const S*>(p.b.data);
  for (int64_t i = 0; i < p.m; i += block_rows) {
    const int64_t rows = smaller(block_rows, p.m - i);
    for (int64_t j = 0; j < p.n; j += block_columns<T>) {
      const int64_t columns = smaller(block_columns<T>, p.n - j);
      __builtin_memset(buffers.sums, 0, sizeof buffers.sums);
      for (int64_t d = 0; d < p.k; d += block_depth<T>) {
        const int64_t depth = smaller(block_depth<T>, p.k - d);
        add_slice<T, S>(p, a + i * p.a.row + d * p.a.column, b + d * p.b.row + j * p.b.column, rows, columns, depth,
                        buffers);
      }
      store_sums<T, S>(p, buffers.sums, block_columns<T>, i, j, rows, columns);
    }
  }
}

// ---- thin ----

template <class T>
struct ThinBuffers {
  alignas(64) T a[thin_rows * thin_depth<T>];
  alignas(64) T sums[thin_rows * thin_columns<T>];
};

// sums[r][0 .. C) += rows of a times C columns of b, each contiguous along k.
template <class T, class S, int R, int C>
void add_dots(const T* a, const S* b, int64_t b_column, int64_t depth, T* sums) {
  constexpr int L = lane_count<T>;
  Vector<T> total[R][C] = {};
  int64_t d = 0;
  for (; d + L <= depth; d += L) {
    Vector<T> left[R];
    HUSK_UNROLL
    for (int r = 0; r < R; r++) left[r] = load(a + r * thin_depth<T> + d);
    HUSK_UNROLL
    for (int c = 0; c < C; c++) {
      const Vector<T> right = load(b + c * b_column + d);
      HUSK_UNROLL
      for (int r = 0; r < R; r++) total[r][c] += left[r] * right;
    }
  }
  for (int c = 0; c < C; c++) {
    for (int r = 0; r < R; r++) {
      T rest = 0;
      for (int64_t t = d; t < depth; t++) rest += a[r * thin_depth<T> + t] * load_one(b + c * b_column + t);
      sums[r * thin_columns<T> + c] += sum<T>(total[r][c]) + rest;
    }
  }
}

template <class T, class S, int R>
void add_columns(const T* a, const S* b, int64_t b_column, int64_t depth, int64_t columns, T* sums) {
  constexpr int C = R == 1 ? 8 : 4;
  int64_t j = 0;
  for (; j + C <= columns; j += C) add_dots<T, S, R, C>(a, b + j * b_column, b_column, depth, sums + j);
  for (; j < columns; j++) add_dots<T, S, R, 1>(a, b + j * b_column, b_column, depth, sums + j);
}

// sums[r][0 .. columns) += D elements of each row of a times D rows of b, each contiguous along n.
template <class T, class S, int R, int D>
void add_scaled(const T* a, const S* b, int64_t b_row, int64_t columns, T* sums) {
  constexpr int L = lane_count<T>;
  int64_t j = 0;
  for (; j + L <= columns; j += L) {
    Vector<T> right[D];
    HUSK_UNROLL
    for (int d = 0; d < D; d++) right[d] = load(b + d * b_row + j);
    HUSK_UNROLL
    for (int r = 0; r < R; r++) {
      Vector<T> total = load(sums + r * thin_columns<T> + j);
      HUSK_UNROLL
      for (int d = 0; d < D; d++) total += a[r * thin_depth<T> + d] * right[d];
      store(sums + r * thin_columns<T> + j, total);
    }
  }
  for (; j < columns; j++) {
    for (int r = 0; r < R; r++) {
      for (int d = 0; d < D; d++) {
        sums[r * thin_columns<T> + j] += a[r * thin_depth<T> + d] * load_one(b + d * b_row + j);
      }
    }
  }
}

template <class T, class S, int R>
void add_rows(const T* a, const S* b, int64_t b_row, int64_t depth, int64_t columns, T* sums) {
  constexpr int D = 4;
  int64_t d = 0;
  for (; d + D <= depth; d += D) add_scaled<T, S, R, D>(a + d, b + d * b_row, b_row, columns, sums);
  for (; d < depth; d++) add_scaled<T, S, R, 1>(a + d, b + d * b_row, b_row, columns, sums);
}

template <class T, class S, int R>
void run_thin(const Product& p) {
  ThinBuffers<T> buffers;
  const bool dots = p.b.row == 1 && (p.b.column != 1 || p.k > 1);
  const S *a = static_cast<const S*>(p.a.data), *b = static_cast<const S*>(p.b.data);
  for (int64_t j = 0; j < p.n; j += thin_columns<T>) {
    const int64_t columns = smaller(thin_columns<T>, p.n - j);
    __builtin_memset(buffers.sums, 0, sizeof buffers.sums);
    for (int64_t d = 0; d < p.k; d += thin_depth<T>) {
      const int64_t depth = smaller(thin_depth<T>, p.k - d);
      for (int r = 0; r < R; r++) {
        const S* row = a + r * p.a.row + d * p.a.column;
        for (int64_t t = 0; t < depth; t++) buffers.a[r * thin_depth<T> + t] = load_one(row + t * p.a.column);
      }
      const S* corner = b + d * p.b.row + j * p.b.column;
      if (dots) {
        add_columns<T, S, R>(buffers.a, corner, p.b.column, depth, columns, buffers.sums);
      } else {
        add_rows<T, S, R>(buffers.a, corner, p.b.row, depth, columns, buffers.sums);
      }
    }
    store_sums<T, S>(p, buffers.sums, thin_columns<T>, 0, j, R, columns);
  }
}

// ---- choice ----

// out^T = b^T a^T.
void turn(Product& p) {
  const MatrixView a = p.a, b = p.b;
  const int64_t m = p.m, row = p.out_row, self_row = p.self.row;
  p.a = {b.data, b.column, b.row};
  p.b = {a.data, a.column, a.row};
  p.m = p.n;
  p.n = m;
  p.out_row = p.out_column;
  p.out_column = row;
  p.self.row = p.self.column;
  p.self.column = self_row;
}

template <class S>
void skip_rows(Product& p, int64_t rows) {
  p.m -= rows;
  p.a.data = static_cast<const S*>(p.a.data) + rows * p.a.row;
  p.out = static_cast<S*>(p.out) + rows * p.out_row;
  if (p.self.data) p.self.data = static_cast<const S*>(p.self.data) + rows * p.self.row;
}

template <class T, class S>
void run_thin_groups(Product p) {
  for (; p.m >= thin_rows; skip_rows<S>(p, thin_rows)) run_thin<T, S, thin_rows>(p);
  switch (p.m) {
    case 1: return run_thin<T, S, 1>(p);
    case 2: return run_thin<T, S, 2>(p);
    case 3: return run_thin<T, S, 3>(p);
    default: return;
  }
}

template <class T, class S>
void run_typed(Product p) {
  if (p.n < p.m && p.n <= thin_most_rows) turn(p);
  // A stride along one element means nothing; 1 is the one that is fast.
  if (p.k == 1 && p.b.column != 1) p.b.row = 1;
  if (p.n == 1) p.b.column = 1;
  if (p.m <= thin_most_rows && (p.b.row == 1 || p.b.column == 1)) return run_thin_groups<T, S>(p);
  if (p.out_row == 1 && p.out_column != 1) turn(p);
  run_blocks<T, S>(p);
}

void run(const Product& p) {
  if (p.m <= 0 || p.n <= 0) return;
  switch (p.dtype) {
    case HUSK_F16: return run_typed<float, Half>(p);
    case HUSK_BF16: return run_typed<float, Brain>(p);
    case HUSK_F32: return run_typed<float, float>(p);
    default: return run_typed<double, double>(p);
  }
}

}  // namespace
}  // namespace husk::host

#endif
