// The kernels of a matrix product. There are two methods for operands as they lie in memory.
//
// Thin: if one side has few rows, the other side is not packed. It is read in place, a few of its
// columns or rows at a time, which are multiplied with all rows of the thin side.
//
// Blocks, for everything else: a block of out (kBlockRows x kBlockColumns) is summed in a buffer of
// its own, so that f16 and bf16 round once, edges need no special code, and out may have any
// strides. For each slice of k, the rows of a are packed into panels of kTileRows in scratch
// memory. Each panel of kTileColumns of b is packed and multiplied with all panels of a while it is
// in the first-level cache. The sums of a tile (kTileRows x kTileColumns) stay in registers.
//
// If b is packed already, it is multiplied by blocks. The slices of up to kTileRows rows are as
// deep as the scratch memory has room for, because each panel of b is read once then.
#pragma once

#include <type_traits>

#include "core/cancellation.h"
#include "core/extremes.h"
#include "core/vector_math.h"
#include "linalg/product.h"
#include "linalg/product_table.h"

namespace husk::host {
namespace {

// A tile has 24 vectors of sums if there are 32 vector registers, and 12 if there are 16.
#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int kTileRows = 12;
#else
constexpr int kTileRows = 6;
#endif
constexpr int kTileVectors = 2;
template <class T>
constexpr int kTileColumns = kTileVectors * kLaneCount<T>;
constexpr int kBlockRows = 216;
template <class T>
constexpr int kBlockColumns = 1024 / static_cast<int>(sizeof(T));
template <class T>
constexpr int kBlockDepth = 1024 / static_cast<int>(sizeof(T));
constexpr int kThinRows = 4;      // rows that are computed at once
constexpr int kThinMaxRows = 32;  // at most: product_table.h says up to how many it pays
template <class T>
constexpr int kThinDepth = 8192 / static_cast<int>(sizeof(T));
constexpr int64_t kThinStep = 16;  // columns or rows of b that are multiplied with all rows of a
constexpr int kDotVectors = kTileRows == 12 ? 16 : 8;  // sums of columns that are read in place

template <int N>
struct Constant {
  static constexpr int value = N;
};

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
  switch (activation) {
    case Activation::None: return;
#define HUSK_ACTIVATION(Name, name) \
  case Activation::Name: return activate_row<T, Activation::Name>(values, count);
#include <activations.def>
  }
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

// Packed operands consist of elements of type P: T itself, or pairs of bf16 that are adjacent along
// the depth. kAlong<P> elements of the matrix make one packed element.
template <class P>
constexpr int kAlong = 1;
template <>
constexpr int kAlong<BFloat16Pair> = 2;

// Reads one packed element, or a vector of those that follow it along the depth. `count` is the
// number of elements that the matrix still has there.
template <class P, class S>
inline P read_along(const S* from, int64_t, int64_t) {
  return load_one(from);
}
template <>
inline BFloat16Pair read_along<BFloat16Pair>(const BFloat16* from, int64_t along, int64_t count) {
  return {from->bits | (count > 1 ? static_cast<uint32_t>(from[along].bits) << 16 : 0)};
}
template <class P, class S>
inline Vector<P> load_along(const S* from) {
  return load(from);
}
template <>
inline Vector<BFloat16Pair> load_along<BFloat16Pair>(const BFloat16* from) {
  return bits_as<Vector<BFloat16Pair>>(load(reinterpret_cast<const float*>(from)));
}

// The same for the first `count` elements; the others are 0.
template <class P, class S>
inline Vector<P> load_some_along(const S* from, int64_t count) {
  return load_some<P>(from, count);
}
template <>
inline Vector<BFloat16Pair> load_some_along<BFloat16Pair>(const BFloat16* from, int64_t count) {
#if defined(__AVX512BW__)
  const auto mask = static_cast<__mmask32>((uint64_t{1} << count) - 1);
  return bits_as<Vector<BFloat16Pair>>(_mm512_maskz_loadu_epi16(mask, from));
#else
  BFloat16 padded[2 * kLaneCount<BFloat16Pair>] = {};
  for (int64_t i = 0; i < count; ++i) padded[i] = from[i];
  return load_along<BFloat16Pair>(padded);
#endif
}

// Reads `count` packed elements, at most a vector, that are neighbours across the depth. The other
// lanes are 0. `depth` is the number of elements that the matrix still has along the depth.
template <class P, class S>
inline Vector<P> load_across(const S* from, int64_t, int64_t, int64_t count = kLaneCount<P>) {
  return load_some<P>(from, count);
}
template <>
inline Vector<BFloat16Pair> load_across<BFloat16Pair>(const BFloat16* from, int64_t along,
                                                      int64_t depth, int64_t count) {
  const UInt32Vector low = load_bits(from, count);
  return depth > 1 ? low | load_bits(from + along, count) << 16 : low;
}

// Packs L columns of a panel from rows that are contiguous along the depth: transposes L x L
// packed elements at a time.
template <class P, class S, int W>
void pack_transposed(const S* from, int64_t across, int rows, P* to) {
  constexpr int L = kLaneCount<P>, groups = (W + L - 1) / L;
  // There are registers for one group of rows at a time. A store may write past the end of its
  // column into the next one, so the last group is stored first, and columns in ascending order.
  for (int g = groups - 1; g >= 0; --g) {
    Vector<P> lanes[L];
    HUSK_UNROLL
    for (int r = 0; r < L; ++r)
      lanes[r] = g * L + r < rows ? load_along<P>(from + (g * L + r) * across) : Vector<P>{};
    transpose(lanes);
    HUSK_UNROLL
    for (int d = 0; d < L; ++d) store(to + d * W + g * L, lanes[d]);
  }
}

// Packs a panel of W rows: to[d * W + r] is made of the elements at from[r * across + d * along],
// for r < rows, and 0 for r from `rows` to W. If `depth` does not divide into packed elements, the
// last one is filled with 0. May write up to one vector past the end of the panel.
template <class P, class S, int W>
void pack(const S* from, int64_t across, int64_t along, int rows, int64_t depth, P* to) {
  constexpr int L = kLaneCount<P>, A = kAlong<P>;
  int64_t d = 0;  // a multiple of A
  if (along == 1 && across != 1) {
    for (; d + L * A <= depth; d += L * A)
      pack_transposed<P, S, W>(from + d, across, rows, to + d / A * W);
  } else if (across == 1 && rows == W && W % L == 0) {
    for (; d < depth; d += A) {
      // The next rows are far away, so that the processor does not load them ahead.
      const int64_t ahead = d + 8 * A < depth ? 8 * A * along : 0;
      for (int i = 0; i < A; ++i)
        for (int r = 0; r < W; r += 64 / static_cast<int>(sizeof(S)))
          __builtin_prefetch(from + (d + i) * along + ahead + r);
      for (int r = 0; r < W; r += L)
        store(to + d / A * W + r, load_across<P>(from + d * along + r, along, depth - d));
    }
  } else if (across == 1 && rows == W) {
    for (; d < depth; d += A)
      for (int r = 0; r < W; ++r)
        to[d / A * W + r] = read_along<P>(from + d * along + r, along, depth - d);
  }
  for (; d < depth; d += A) {
    for (int r = 0; r < rows; ++r)
      to[d / A * W + r] = read_along<P>(from + r * across + d * along, along, depth - d);
    for (int r = rows; r < W; ++r) to[d / A * W + r] = P{};
  }
}

// Adds R rows of a times C vectors of columns of a panel of b to `total`. Both have `depth` packed
// elements. Element (r, d) of a lies at a[r * Row + d * Column].
template <class T, int R, int C, int Row, int Column, class P>
inline void add_products(int64_t depth, const P* a, const P* b, Vector<T> (&total)[R][C]) {
  constexpr int L = kLaneCount<T>;
  for (int64_t d = 0; d < depth; ++d) {
    Vector<P> right[C];
    HUSK_UNROLL
    for (int c = 0; c < C; ++c) right[c] = load(b + d * kTileColumns<T> + c * L);
#if defined(__aarch64__)
    // Instructions multiply with one lane of a vector.
    if constexpr (Row == 1 && R % L == 0) {
      Vector<P> lanes[R / L];
      HUSK_UNROLL
      for (int r = 0; r < R / L; ++r) lanes[r] = load(a + r * L + d * Column);
      HUSK_UNROLL
      for (int r = 0; r < R; ++r) {
        HUSK_UNROLL
        for (int c = 0; c < C; ++c) add_product_of_lane(total[r][c], lanes[r / L], r % L, right[c]);
      }
      continue;
    }
#endif
    HUSK_UNROLL
    for (int r = 0; r < R; ++r) {
      const Vector<P> left = all_lanes(a[r * Row + d * Column]);
      HUSK_UNROLL
      for (int c = 0; c < C; ++c) add_product(total[r][c], left, right[c]);
    }
  }
}

// Adds a panel of a times a panel of b to the sums, for R rows and C vectors of columns. The sums
// of the first slice of k are stored instead.
template <class T, int R, int C, class P>
void tile(int64_t depth, const P* a, const P* b, T* sums, bool is_first) {
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
template <class T, int C, class P>
void tile_of(int64_t rows, int64_t depth, const P* a, const P* b, T* sums, bool is_first) {
  if (rows > kTileRows * 2 / 3) return tile<T, kTileRows, C>(depth, a, b, sums, is_first);
  if (rows > kTileRows / 3) return tile<T, kTileRows * 2 / 3, C>(depth, a, b, sums, is_first);
  tile<T, kTileRows / 3, C>(depth, a, b, sums, is_first);
}

template <class T, class P>
struct BlockBuffers {
  alignas(64) P a[kBlockRows * kBlockDepth<T> + kLaneCount<T>];
  alignas(64) P b[kTileColumns<T> * kBlockDepth<T> + kLaneCount<T>];
  alignas(64) T sums[kBlockRows * kBlockColumns<T>];
};

// Lays out the scratch memory of a product.
template <class Buffers>
Buffers& lay_out(const Product& p) {
  static_assert(sizeof(Buffers) <= kProductScratch, "core/scratch.h");
  return *static_cast<Buffers*>(p.scratch);
}

// The memory of a panel whose columns are contiguous along the depth. It is only fetched, so it
// need not exist.
struct PanelMemory {
  uint64_t begin, across;  // an address and a stride in bytes, which may wrap around
  int64_t columns, depth;  // the depth is in bytes
};

// Fetches part `part` of `parts` of a panel into the second-level cache. It has one short piece in
// each of its columns, which the processor does not load ahead.
inline void fetch(const PanelMemory& panel, int64_t part, int64_t parts) {
  for (int64_t c = panel.columns * part / parts; c < panel.columns * (part + 1) / parts; ++c) {
    const uint64_t column = panel.begin + static_cast<uint64_t>(c) * panel.across;
    for (int64_t d = 0; d < panel.depth; d += 64)
      __builtin_prefetch(reinterpret_cast<const void*>(column + static_cast<uint64_t>(d)), 0, 2);
  }
}

// Adds a slice of k to the sums of a block. a and b point to the corner of the block's operands.
// `next` is the first panel of b after this slice.
template <class T, class S, class P>
void add_slice(const Product& p, const S* a, const S* b, int64_t rows, int64_t columns,
               int64_t depth, bool is_first, const PanelMemory& next, BlockBuffers<T, P>& buffers) {
  constexpr int width = kTileColumns<T>;
  constexpr int64_t size = sizeof(S);
  const int64_t packed = (depth + kAlong<P> - 1) / kAlong<P>;
  for (int64_t i = 0; i < rows; i += kTileRows) {
    pack<P, S, kTileRows>(a + i * p.a.row, p.a.row, p.a.column,
                          static_cast<int>(smaller(kTileRows, rows - i)), depth,
                          buffers.a + i * packed);
  }
  for (int64_t j = 0; j < columns; j += width) {
    const int filled = static_cast<int>(smaller(width, columns - j));
    pack<P, S, width>(b + j * p.b.column, p.b.column, p.b.row, filled, depth, buffers.b);
    PanelMemory following = next;
    if (j + filled < columns)
      following = {reinterpret_cast<uintptr_t>(b + (j + filled) * p.b.column), next.across,
                   smaller(width, columns - j - filled), depth * size};
    for (int64_t i = 0; i < rows; i += kTileRows) {
      if (p.b.row == 1) fetch(following, i / kTileRows, (rows - 1) / kTileRows + 1);
      T* sums = buffers.sums + i * kBlockColumns<T> + j;
      const P* left = buffers.a + i * packed;
      if (filled > kLaneCount<T>)
        tile_of<T, kTileVectors>(rows - i, packed, left, buffers.b, sums, is_first);
      else
        tile_of<T, 1>(rows - i, packed, left, buffers.b, sums, is_first);
    }
  }
}

// ---- packed ----

// The packed elements along the depth of a packed matrix.
template <class P>
constexpr int64_t packed_depth(int64_t k) {
  return (k + kAlong<P> - 1) / kAlong<P>;
}

// A packed matrix consists of panels of kTileColumns columns. Row d of a panel has one packed
// element of each column.
template <class T, class S, class P>
int64_t pack_matrix(const ProductPacking& packing, void* to) {
  constexpr int width = kTileColumns<T>;
  const int64_t depth = packed_depth<P>(packing.k);
  const int64_t panels = (packing.n + width - 1) / width;
  // pack() writes up to a vector past the end of a panel.
  const int64_t bytes = (panels * width * depth + kLaneCount<P>)*int64_t{sizeof(P)};
  if (packing.n < width / 2 || packing.k < 1) return 0;
  if (!to) return bytes;
  const S* from = static_cast<const S*>(packing.b.data);
  P* panel = static_cast<P*>(to);
  for (int64_t j = 0; j < packing.n; j += width, panel += width * depth) {
    if (packing.cancellation->ends(width * packing.k)) break;
    pack<P, S, width>(from + j * packing.b.column, packing.b.column, packing.b.row,
                      static_cast<int>(smaller(width, packing.n - j)), packing.k, panel);
  }
  // Equal matrices have equal copies.
  __builtin_memset(static_cast<P*>(to) + panels * width * depth, 0, kLaneCount<P> * sizeof(P));
  return bytes;
}

// Adds R rows of a, or stores their products, times N panels of b that lie `pitch` packed elements
// apart. Element (r, d) of a lies at a[r * row + d * column].
template <class T, int R, int N, class P>
void multiply_panels(int64_t depth, const P* a, int64_t row, int64_t column, const P* b,
                     int64_t pitch, T* sums, bool is_first) {
  constexpr int L = kLaneCount<T>, width = kTileColumns<T>;
  Vector<T> total[R][N * kTileVectors] = {};
  for (int64_t d = 0; d < depth; ++d) {
    Vector<P> left[R];
    HUSK_UNROLL
    for (int r = 0; r < R; ++r) left[r] = all_lanes(a[r * row + d * column]);
    HUSK_UNROLL
    for (int n = 0; n < N; ++n) {
      HUSK_UNROLL
      for (int c = 0; c < kTileVectors; ++c) {
        const Vector<P> right = load(b + n * pitch + d * width + c * L);
        HUSK_UNROLL
        for (int r = 0; r < R; ++r) add_product(total[r][n * kTileVectors + c], left[r], right);
      }
    }
  }
  HUSK_UNROLL
  for (int r = 0; r < R; ++r) {
    HUSK_UNROLL
    for (int c = 0; c < N * kTileVectors; ++c) {
      T* to = sums + r * kBlockColumns<T> + c * L;
      store(to, is_first ? total[r][c] : load(to) + total[r][c]);
    }
  }
}

// The same for all panels of a block. Several panels at once keep enough sums in registers that the
// processor need not wait for an addition.
template <class T, int R, class P>
void multiply_few_rows(int64_t columns, int64_t depth, const P* a, int64_t row, int64_t column,
                       const P* b, int64_t pitch, T* sums, bool is_first) {
  constexpr int width = kTileColumns<T>, sums_wanted = 8, sums_of_panel = R * kTileVectors,
                N = sums_of_panel < sums_wanted ? sums_wanted / sums_of_panel : 1;
  for (; columns > (N - 1) * width; columns -= N * width, b += N * pitch, sums += N * width)
    multiply_panels<T, R, N>(depth, a, row, column, b, pitch, sums, is_first);
  for (; columns > 0; columns -= width, b += pitch, sums += width)
    multiply_panels<T, R, 1>(depth, a, row, column, b, pitch, sums, is_first);
}

// Adds a slice of k to the sums of a block. b is the packed slice of the block's first panel, and
// `pitch` the packed elements of a panel.
template <class T, class S, class P>
void add_packed_slice(const Product& p, const S* a, const P* b, int64_t pitch, int64_t rows,
                      int64_t columns, int64_t depth, bool is_first, BlockBuffers<T, P>& buffers) {
  constexpr int width = kTileColumns<T>;
  const int64_t packed = packed_depth<P>(depth);
  const P* left = buffers.a;
  int64_t row = 1, column = kTileRows;
  if (std::is_same_v<S, P> && rows <= kThinRows) {
    left = reinterpret_cast<const P*>(a);
    row = p.a.row;
    column = p.a.column;
  } else {
    for (int64_t i = 0; i < rows; i += kTileRows)
      pack<P, S, kTileRows>(a + i * p.a.row, p.a.row, p.a.column,
                            static_cast<int>(smaller(kTileRows, rows - i)), depth,
                            buffers.a + i * packed);
  }
  const auto few = [&](auto count) {
    multiply_few_rows<T, decltype(count)::value>(columns, packed, left, row, column, b, pitch,
                                                 buffers.sums, is_first);
  };
  switch (rows) {
    case 1: return few(Constant<1>());
    case 2: return few(Constant<2>());
    case 3: return few(Constant<3>());
    case 4: return few(Constant<4>());
    default: break;
  }
  static_assert(kThinRows == 4);
  for (int64_t j = 0; j < columns; j += width, b += pitch) {
    const P* next = j + width < columns ? b + pitch : b + packed * width;
    for (int64_t i = 0; i < rows; i += kTileRows) {
      // The next panel is far away, so that the processor does not load its first lines ahead.
      const int64_t tiles = (rows - 1) / kTileRows + 1, lines = packed * width * sizeof(P) / 64,
                    tile_number = i / kTileRows;
      for (int64_t l = lines * tile_number / tiles; l < lines * (tile_number + 1) / tiles; ++l)
        __builtin_prefetch(reinterpret_cast<const char*>(next) + l * 64, 0, 2);
      T* sums = buffers.sums + i * kBlockColumns<T> + j;
      if (columns - j > kLaneCount<T>)
        tile_of<T, kTileVectors>(rows - i, packed, left + i * packed, b, sums, is_first);
      else
        tile_of<T, 1>(rows - i, packed, left + i * packed, b, sums, is_first);
    }
  }
}

// Computes a product with a packed b.
template <class T, class S, class P>
[[gnu::noinline]] void run_packed(const Product& p) {
  auto& buffers = lay_out<BlockBuffers<T, P>>(p);
  const S* a = static_cast<const S*>(p.a.data);
  const int64_t row_blocks = (p.m - 1) / kBlockRows + 1, even = (p.m - 1) / row_blocks + 1,
                block_rows = (even + kTileRows - 1) / kTileRows * kTileRows,
                depth_of_k = packed_depth<P>(p.k), pitch = depth_of_k * kTileColumns<T>;
  const int64_t slice = p.m > kTileRows ? kBlockDepth<T> * kAlong<P>
                                        : kBlockDepth<T> * kAlong<P> * (kBlockRows / kTileRows);
  const P* b = static_cast<const P*>(p.b.packed.data) + p.b.packed.column * depth_of_k;
  for (int64_t i = 0; i < p.m; i += block_rows) {
    const int64_t rows = smaller(block_rows, p.m - i);
    for (int64_t j = 0; j < p.n; j += kBlockColumns<T>) {
      const int64_t columns = smaller(kBlockColumns<T>, p.n - j);
      for (int64_t d = 0; d < p.k; d += slice) {
        const int64_t depth = smaller(slice, p.k - d);
        if (p.cancellation->ends(rows * columns * depth / 16)) return;
        add_packed_slice<T, S, P>(p, a + i * p.a.row + d * p.a.column,
                                  b + j * depth_of_k + packed_depth<P>(d) * kTileColumns<T>, pitch,
                                  rows, columns, depth, d == 0, buffers);
      }
      store_sums<T, S>(p, buffers.sums, kBlockColumns<T>, i, j, rows, columns);
    }
  }
}

// ---- blocks of operands that are packed here ----

// Computes a product whose operands are packed as elements of type P.
template <class T, class S, class P>
void run_blocks(const Product& p) {
  auto& buffers = lay_out<BlockBuffers<T, P>>(p);
  constexpr int64_t slice = kBlockDepth<T> * kAlong<P>;
  const S *a = static_cast<const S*>(p.a.data), *b = static_cast<const S*>(p.b.data);
  // Blocks of about the same number of rows, because b is packed for each of them.
  const int64_t row_blocks = (p.m - 1) / kBlockRows + 1, even = (p.m - 1) / row_blocks + 1,
                block_rows = (even + kTileRows - 1) / kTileRows * kTileRows;
  for (int64_t i = 0; i < p.m; i += block_rows) {
    const int64_t rows = smaller(block_rows, p.m - i);
    for (int64_t j = 0; j < p.n; j += kBlockColumns<T>) {
      const int64_t columns = smaller(kBlockColumns<T>, p.n - j);
      if (p.k <= 0) __builtin_memset(buffers.sums, 0, sizeof buffers.sums);
      for (int64_t d = 0; d < p.k; d += slice) {
        const int64_t depth = smaller(slice, p.k - d);
        if (p.cancellation->ends(rows * columns * depth / 16)) return;
        // After the last slice of a part its thread most often takes the columns that follow.
        const S* block = b + j * p.b.column;
        const bool is_last = d + depth == p.k;
        const uint64_t across = static_cast<uint64_t>(p.b.column) * sizeof(S);
        const uint64_t ahead = is_last ? static_cast<uint64_t>(columns) * across
                                       : static_cast<uint64_t>(d + depth) * sizeof(S);
        const int64_t next_depth = smaller(slice, is_last ? p.k : p.k - d - depth);
        const PanelMemory next = {reinterpret_cast<uintptr_t>(block) + ahead, across,
                                  smaller(kTileColumns<T>, columns),
                                  next_depth * static_cast<int64_t>(sizeof(S))};
        add_slice<T, S, P>(p, a + i * p.a.row + d * p.a.column, block + d * p.b.row, rows, columns,
                           depth, d == 0, next, buffers);
      }
      store_sums<T, S>(p, buffers.sums, kBlockColumns<T>, i, j, rows, columns);
    }
  }
}

// ---- thin ----

// The type in which the rows of a lie in memory when they are multiplied with vectors of P.
template <class T, class P>
struct RowElement {
  using Type = T;
};
template <class T>
struct RowElement<T, BFloat16Pair> {
  using Type = BFloat16;
};

// The smallest power of two that is at least n.
constexpr int power_of_two(int n) { return n <= 1 ? 1 : 2 * power_of_two((n + 1) / 2); }

// sums[r][0 .. C) += R rows of a times C columns of b, all contiguous along k.
template <class T, class P, class A, class S, int R, int C>
void add_dots(const A* a, int64_t a_row, const S* b, int64_t b_column, int64_t depth, T* sums,
              int64_t sums_row) {
  constexpr int step = kLaneCount<P> * kAlong<P>;
  Vector<T> total[power_of_two(R * C)] = {};
  const auto add_step = [&](const auto& load_a, const auto& load_b) {
    Vector<P> left[R];
    HUSK_UNROLL
    for (int r = 0; r < R; ++r) left[r] = load_a(a + r * a_row);
    HUSK_UNROLL
    for (int c = 0; c < C; ++c) {
      const Vector<P> right = load_b(b + c * b_column);
      HUSK_UNROLL
      for (int r = 0; r < R; ++r) add_product(total[r * C + c], left[r], right);
    }
  };
  int64_t d = 0;
  for (; d + step <= depth; d += step)
    add_step([d](const A* row) { return load_along<P>(row + d); },
             [d](const S* column) { return load_along<P>(column + d); });
  if (d < depth)
    add_step([d, depth](const A* row) { return load_some_along<P>(row + d, depth - d); },
             [d, depth](const S* column) { return load_some_along<P>(column + d, depth - d); });
  alignas(64) T dots[power_of_two(R * C)];
  sum_each<T>(total, dots);
  for (int r = 0; r < R; ++r)
    for (int c = 0; c < C; ++c) sums[r * sums_row + c] += dots[r * C + c];
}

// sums[r][0 .. columns) += R rows of a times columns of b, all contiguous along k.
template <class T, class P, class A, class S, int R>
void add_columns(const A* a, int64_t a_row, const S* b, int64_t b_column, int64_t depth,
                 int64_t columns, T* sums, int64_t sums_row) {
  // More columns of a deep matrix, which may lie 2^n bytes apart, would not fit in the first-level
  // cache together.
  constexpr int C = R == 1 ? 8 : kDotVectors / power_of_two(R);
  int64_t j = 0;
  for (; j + C <= columns; j += C)
    add_dots<T, P, A, S, R, C>(a, a_row, b + j * b_column, b_column, depth, sums + j, sums_row);
  for (; j < columns; ++j)
    add_dots<T, P, A, S, R, 1>(a, a_row, b + j * b_column, b_column, depth, sums + j, sums_row);
}

// sums[r][0 .. columns) += D packed elements of each of R rows of a times as many rows of b that
// are contiguous along n. Only the last packed element may be incomplete: `depth` is the number of
// elements that are left. The rows of sums have room for whole vectors.
template <class T, class P, class A, class S, int R, int D>
void add_scaled(const A* a, int64_t a_row, const S* b, int64_t b_row, int64_t depth,
                int64_t columns, T* sums, int64_t sums_row) {
  constexpr int L = kLaneCount<T>, along = kAlong<P>;
  P left[R][D];
  for (int r = 0; r < R; ++r)
    for (int d = 0; d < D; ++d)
      left[r][d] = read_along<P>(a + r * a_row + d * along, 1, depth - d * along);
  // A row of b is short, and the next one is far away: the processor does not load it ahead.
  const int64_t ahead = depth >= 2 * D * along ? D * along * b_row : 0;
  const auto add = [&](int64_t j, const auto& load_b) {
    HUSK_UNROLL
    for (int d = 0; d < D * along; ++d) __builtin_prefetch(b + d * b_row + j + ahead);
    Vector<P> right[D];
    HUSK_UNROLL
    for (int d = 0; d < D; ++d) right[d] = load_b(b + d * along * b_row + j, depth - d * along);
    HUSK_UNROLL
    for (int r = 0; r < R; ++r) {
      Vector<T> total = load(sums + r * sums_row + j);
      HUSK_UNROLL
      for (int d = 0; d < D; ++d) add_product(total, all_lanes(left[r][d]), right[d]);
      store(sums + r * sums_row + j, total);
    }
  };
  int64_t j = 0;
  for (; j + L <= columns; j += L)
    add(j,
        [&](const S* from, int64_t left_over) { return load_across<P>(from, b_row, left_over); });
  if (j < columns)
    add(j, [&](const S* from, int64_t left_over) {
      return load_across<P>(from, b_row, left_over, columns - j);
    });
}

// sums[r][0 .. columns) += R rows of a times rows of b that are contiguous along n.
template <class T, class P, class A, class S, int R>
void add_rows(const A* a, int64_t a_row, const S* b, int64_t b_row, int64_t depth, int64_t columns,
              T* sums, int64_t sums_row) {
  constexpr int D = 4, along = kAlong<P>;
  int64_t d = 0;
  for (; d + D * along <= depth; d += D * along)
    add_scaled<T, P, A, S, R, D>(a + d, a_row, b + d * b_row, b_row, depth - d, columns, sums,
                                 sums_row);
  for (; d < depth; d += along)
    add_scaled<T, P, A, S, R, 1>(a + d, a_row, b + d * b_row, b_row, depth - d, columns, sums,
                                 sums_row);
}

// Copies the rows of a, unless they already are what is multiplied.
template <class T, class S, class A>
const A* copy_rows(const Product& p, const S* a, int64_t depth, A* to) {
  if constexpr (std::is_same_v<S, A>) {
    if (p.a.column == 1) return a;
  }
  for (int64_t r = 0; r < p.m; ++r)
    for (int64_t t = 0; t < depth; ++t)
      if constexpr (std::is_same_v<S, A>)
        to[r * kThinDepth<T> + t] = a[r * p.a.row + t * p.a.column];
      else
        to[r * kThinDepth<T> + t] = load_one(a + r * p.a.row + t * p.a.column);
  return to;
}

template <class T, class P>
struct ThinBuffers {
  alignas(64) typename RowElement<T, P>::Type a[kThinMaxRows * kThinDepth<T>];
  alignas(64) T sums[kThinMaxRows * kBlockColumns<T>];
};

// Calls add(integral_constant R, r) for groups of R rows that begin with r.
template <class Add>
inline void each_row_group(int64_t rows, const Add& add) {
  int64_t r = 0;
  for (; r + kThinRows <= rows; r += kThinRows) add(Constant<kThinRows>(), r);
  switch (rows - r) {
    case 1: return add(Constant<1>(), r);
    case 2: return add(Constant<2>(), r);
    case 3: return add(Constant<3>(), r);
    default: return;
  }
}

// Computes a product of at most kThinMaxRows rows. Groups of columns or rows of b are multiplied
// with all rows of a while they are in the first-level cache.
template <class T, class S, class P>
void run_thin(const Product& p) {
  using A = typename RowElement<T, P>::Type;
  auto& buffers = lay_out<ThinBuffers<T, P>>(p);
  const bool dots = p.b.row == 1 && (p.b.column != 1 || p.k > 1);
  const S *a = static_cast<const S*>(p.a.data), *b = static_cast<const S*>(p.b.data);
  for (int64_t j = 0; j < p.n; j += kBlockColumns<T>) {
    const int64_t columns = smaller(kBlockColumns<T>, p.n - j);
    for (int64_t t = 0; t < p.m * kBlockColumns<T>; t += kLaneCount<T>)
      store(buffers.sums + t, Vector<T>{});
    for (int64_t d = 0; d < p.k; d += kThinDepth<T>) {
      const int64_t depth = smaller(kThinDepth<T>, p.k - d);
      if (p.cancellation->ends(p.m * columns * depth / 16)) return;
      const A* rows = copy_rows<T>(p, a + d * p.a.column, depth, buffers.a);
      const int64_t pitch = rows == buffers.a ? kThinDepth<T> : p.a.row;
      const S* corner = b + d * p.b.row + j * p.b.column;
      const int64_t step = p.m <= kThinRows ? kBlockColumns<T> + kThinDepth<T> : kThinStep;
      for (int64_t t = 0; t < (dots ? columns : depth); t += step) {
        each_row_group(p.m, [&](auto count, int64_t r) {
          constexpr int R = decltype(count)::value;
          T* sums = buffers.sums + r * kBlockColumns<T>;
          const A* left = rows + r * pitch;
          if (dots)
            add_columns<T, P, A, S, R>(left, pitch, corner + t * p.b.column, p.b.column, depth,
                                       smaller(step, columns - t), sums + t, kBlockColumns<T>);
          else
            add_rows<T, P, A, S, R>(left + t, pitch, corner + t * p.b.row, p.b.row,
                                    smaller(step, depth - t), columns, sums, kBlockColumns<T>);
        });
      }
    }
    store_sums<T, S>(p, buffers.sums, kBlockColumns<T>, 0, j, p.m, columns);
  }
}

// ---- choice of the method ----

// Transposes a product of operands of one format: out^T = b^T a^T.
inline void transpose_product(Product& p) {
  const MatrixView a = p.a;
  const int64_t m = p.m, row = p.out_row;
  p.a = {p.b.data, p.b.column, p.b.row};
  p.b = {a.data, a.column, a.row, p.b.format, p.b.packed};
  p.m = p.n;
  p.n = m;
  p.out_row = p.out_column;
  p.out_column = row;
  p.self = {p.self.data, p.self.column, p.self.row};
  p.residual = {p.residual.data, p.residual.column, p.residual.row};
}

// The row of the table for this instruction set and element.
template <class S>
constexpr InPlaceRows in_place_rows() {
#if HUSK_BF16_TILES
  return kInPlaceAmx[0];
#elif HUSK_BF16_PAIRS
  return kInPlaceBf16[0];
#else
#if defined(__AVX512F__)
  constexpr const InPlaceRows* table = kInPlaceAvx512;
#elif defined(__AVX2__)
  constexpr const InPlaceRows* table = kInPlaceAvx2;
#else
  constexpr const InPlaceRows* table = kInPlaceBaseline;
#endif
  return table[std::is_same_v<S, double>  ? 0
               : std::is_same_v<S, float> ? 1
               : std::is_same_v<S, Half>  ? 2
                                          : 3];
#endif
}

// True if b is read in place. The memory of the kernels has room for kThinMaxRows.
template <class S>
bool is_thin(const Product& p) {
  if (p.m > kThinMaxRows) return false;
  constexpr InPlaceRows most = in_place_rows<S>();
  int depth = 0;
  while (depth + 1 < kDepths && p.k >= kDepthLimits[depth]) ++depth;
  if (p.b.row == 1) return p.m <= most.columns[depth];
  return p.b.column == 1 && p.m <= most.rows[depth];
}

// Makes the side with few rows, if there is one, the first operand.
inline void put_thin_side_first(Product& p) {
  if (p.n < p.m && p.n <= kThinMaxRows) transpose_product(p);
  // The stride along a dimension of one element is never used. The value 1 selects the faster
  // loops.
  if (p.k == 1 && p.b.column != 1) p.b.row = 1;
  if (p.n == 1) p.b.column = 1;
}

template <class T, class S, class P>
void run_typed(Product& p) {
  if (p.b.packed.data) return run_packed<T, S, P>(p);
  put_thin_side_first(p);
  if (is_thin<S>(p)) return run_thin<T, S, P>(p);
  if (p.out_row == 1 && p.out_column != 1) transpose_product(p);
  run_blocks<T, S, P>(p);
}

[[maybe_unused]] bool run_product(Product& p) {
  if (p.m <= 0 || p.n <= 0) return true;
  switch (p.dtype) {
    case HUSK_F16: run_typed<float, Half, float>(p); break;
    case HUSK_BF16: run_typed<float, BFloat16, float>(p); break;
    case HUSK_F32: run_typed<float, float, float>(p); break;
    default: run_typed<double, double, double>(p); break;
  }
  return true;
}

// f16, and bf16 without instructions for it, would be packed as f32 and take twice the memory.
[[maybe_unused]] int64_t pack_product(const ProductPacking& packing, void* to) {
  switch (packing.dtype) {
    case HUSK_F32: return pack_matrix<float, float, float>(packing, to);
    case HUSK_F64: return pack_matrix<double, double, double>(packing, to);
    default: return 0;
  }
}

#if HUSK_BF16_PAIRS
[[maybe_unused]] int64_t pack_bf16_product(const ProductPacking& packing, void* to) {
  return pack_matrix<float, BFloat16, BFloat16Pair>(packing, to);
}
// One row is multiplied in f32 by other kernels, because memory is slower than that.
inline bool are_pairs_faster(const Product& p) { return (p.m > 1 && p.n > 1) || p.b.packed.data; }
[[maybe_unused]] bool run_bf16_product(Product& p) {
  if (!are_pairs_faster(p)) return false;
  if (p.m > 0 && p.n > 0) run_typed<float, BFloat16, BFloat16Pair>(p);
  return true;
}
#endif

}  // namespace
}  // namespace husk::host
