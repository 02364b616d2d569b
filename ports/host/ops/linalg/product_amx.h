// The kernel of a matrix product of bf16 by the tiles of Intel's AMX: registers of 16 rows of 64
// bytes. An instruction multiplies a tile of a (16 rows of 32 elements) with a tile of b (16 rows
// of 16 pairs that are adjacent along the depth) and adds the products to 16 x 16 sums in f32.
// Source: Intel SDM volume 2, TDPBF16PS, and volume 1, chapter 18.
//
// A block of out is summed in a buffer, as in product_kernels.h. For each slice of k, each panel of
// 32 columns of b is multiplied with 32 rows of a at a time: four tiles hold the sums, two a and
// two b. Panels have the layout of a packed b for AVX-512 BF16, so a tile of b is 16 columns of 16
// rows of a panel.
//
// All tiles are whole. Rows of a are read in place where they fill a tile. What is left of the rows
// or of the depth, and an operand with other strides, is read from copies, which are filled with 0.
//
// The instructions are called through a class `Tiles`, so that a test can compute what they do on
// CPUs without AMX:
//   Tiles()                           configures eight tiles of 16 rows of 64 bytes
//   ~Tiles()                          releases them
//   zero<N>()                         sets tile N to 0
//   load<N>(from, stride)             reads the rows of tile N, which lie `stride` bytes apart
//   store<N>(to, stride)              writes them
//   add_product<Sums, A, B>()         adds the product of tiles A and B to tile Sums
#pragma once

#include "linalg/product_kernels.h"

namespace husk::host {
namespace {

constexpr int kAmxRows = 16;  // rows of every tile, and columns of a tile of b
constexpr int kAmxDepth = 32;
constexpr int kAmxPairs = kAmxDepth / 2;
constexpr int kAmxPanel = 32;  // columns
constexpr int kAmxBlockRows = 256;
constexpr int kAmxBlockColumns = 256;
constexpr int kAmxSlice = 512;  // elements along the depth
// Rows of sums whose distance is a power of two would displace one another from the first-level
// cache.
constexpr int kAmxPitch = kAmxBlockColumns + 16;

#if HUSK_BF16_TILES
static_assert(kAmxPanel == kTileColumns<float>, "both kernels read the same packed matrices");

// Inline assembly, since GCC's intrinsics take no template parameters as numbers of tiles.
class AmxTiles {
 public:
  AmxTiles() {
    alignas(64) unsigned char config[64] = {1};  // the palette
    for (int tile = 0; tile < 8; ++tile) {
      config[16 + 2 * tile] = 64;    // bytes of a row, in two bytes
      config[48 + tile] = kAmxRows;  // rows
    }
    __asm__ volatile("ldtilecfg %0" : : "m"(config));
  }
  ~AmxTiles() { __asm__ volatile("tilerelease" : : : "memory"); }
  AmxTiles(const AmxTiles&) = delete;

  template <int N>
  void zero() {
    __asm__ volatile("tilezero %%tmm%c0" : : "n"(N));
  }
  template <int N>
  void load(const void* from, int64_t stride) {
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(stride), "n"(N) : "memory");
  }
  template <int N>
  void store(void* to, int64_t stride) {
    __asm__ volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(stride), "n"(N) : "memory");
  }
  template <int Sums, int A, int B>
  void add_product() {
    __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "n"(Sums), "n"(A), "n"(B));
  }
  template <int Sums, int A, int B>
  void add_int_product() {
    __asm__ volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "n"(Sums), "n"(A), "n"(B));
  }
};
#endif

// 16 rows of a slice of a. `whole` are the tiles that the depth fills, with `stride` elements from
// row to row, and `rest` is the tile that it does not fill.
struct AmxOperand {
  const BFloat16* whole;
  int64_t stride;
  const BFloat16* rest;
};

struct AmxBuffers {
  alignas(64) BFloat16 a[kAmxBlockRows * kAmxSlice];
  alignas(64) BFloat16 a_rest[kAmxBlockRows * kAmxDepth];
  alignas(64) BFloat16Pair b[kAmxPanel * kAmxSlice / 2 + kLaneCount<BFloat16Pair>];
  alignas(64) BFloat16Pair b_rest[kAmxPanel * kAmxPairs];
  alignas(64) float sums[kAmxBlockRows * kAmxPitch];
  AmxOperand rows[kAmxBlockRows / kAmxRows];
};

// Copies `rows` x `depth` elements of a, at most 16 rows, to 16 rows that are contiguous along the
// depth and have `pitch` elements. Elements up to the next multiple of kAmxDepth are 0, as are rows
// that a does not have.
inline void copy_amx_rows(const BFloat16* a, int64_t row, int64_t column, int64_t rows,
                          int64_t depth, BFloat16* to, int64_t pitch) {
  constexpr int L = kLaneCount<BFloat16Pair>;
  const int64_t filled = (depth + kAmxDepth - 1) / kAmxDepth * kAmxDepth;
  if (row == 1 && column != 1 && rows == kAmxRows) {
    // Vectors of pairs across the rows, transposed to vectors along them.
    for (int64_t r = 0; r < kAmxRows; r += L) {
      for (int64_t d = 0; d < filled; d += 2 * L) {
        Vector<BFloat16Pair> lanes[L];
        for (int64_t i = 0; i < L; ++i) {
          const int64_t at = d + 2 * i;
          lanes[i] = at < depth ? load_across<BFloat16Pair>(a + r + at * column, column, depth - at)
                                : Vector<BFloat16Pair>{};
        }
        transpose(lanes);
        for (int64_t i = 0; i < L; ++i)
          __builtin_memcpy(to + (r + i) * pitch + d, &lanes[i], sizeof lanes[i]);
      }
    }
    return;
  }
  for (int64_t r = 0; r < kAmxRows; ++r) {
    BFloat16* copy = to + r * pitch;
    const int64_t count = r < rows ? depth : 0;
    if (column == 1)
      __builtin_memcpy(copy, a + (r < rows ? r * row : 0), static_cast<size_t>(count) * sizeof *a);
    else
      for (int64_t d = 0; d < count; ++d) copy[d] = a[r * row + d * column];
    for (int64_t d = count; d < filled; ++d) copy[d] = {};
  }
}

// Fills buffers.rows for a slice of a, which begins at `a`.
inline void prepare_amx_rows(const Product& p, const BFloat16* a, int64_t rows, int64_t depth,
                             AmxBuffers& buffers) {
  const int64_t whole = depth / kAmxDepth * kAmxDepth;
  for (int64_t i = 0; i < rows; i += kAmxRows) {
    const BFloat16* from = a + i * p.a.row;
    const int64_t count = smaller(kAmxRows, rows - i);
    AmxOperand& operand = buffers.rows[i / kAmxRows];
    operand = {from, p.a.row, buffers.a_rest + i * kAmxDepth};
    if (p.a.column != 1 || count < kAmxRows) {
      BFloat16* copy = buffers.a + i * kAmxSlice;
      if (whole > 0) copy_amx_rows(from, p.a.row, p.a.column, count, whole, copy, kAmxSlice);
      operand.whole = copy;
      operand.stride = kAmxSlice;
    }
    if (whole < depth)
      copy_amx_rows(from + whole * p.a.column, p.a.row, p.a.column, count, depth - whole,
                    buffers.a_rest + i * kAmxDepth, kAmxDepth);
  }
}

// Adds 16 * R rows of a times 16 * C columns of a panel of b to the sums; those of the first slice
// are stored instead. There are `steps` tiles along the depth, and one more if b_rest is not null.
template <class Tiles, int R, int C>
void multiply_amx(Tiles& tiles, const AmxOperand* a, const BFloat16Pair* b,
                  const BFloat16Pair* b_rest, int64_t steps, float* sums, bool is_first) {
  constexpr int64_t b_stride = kAmxPanel * sizeof(BFloat16Pair), stride = kAmxPitch * sizeof(float);
  float* lower = sums + kAmxRows * kAmxPitch;
  if (is_first) {
    tiles.template zero<0>();
    if constexpr (C == 2) tiles.template zero<1>();
    if constexpr (R == 2) tiles.template zero<2>();
    if constexpr (R == 2 && C == 2) tiles.template zero<3>();
  } else {
    tiles.template load<0>(sums, stride);
    if constexpr (C == 2) tiles.template load<1>(sums + kAmxRows, stride);
    if constexpr (R == 2) tiles.template load<2>(lower, stride);
    if constexpr (R == 2 && C == 2) tiles.template load<3>(lower + kAmxRows, stride);
  }
  const auto add = [&](const BFloat16* upper_a, int64_t upper_stride, const BFloat16* lower_a,
                       int64_t lower_stride, const BFloat16Pair* panel) {
    tiles.template load<6>(panel, b_stride);
    tiles.template load<4>(upper_a, upper_stride);
    tiles.template add_product<0, 4, 6>();
    if constexpr (C == 2) {
      tiles.template load<7>(panel + kAmxRows, b_stride);
      tiles.template add_product<1, 4, 7>();
    }
    if constexpr (R == 2) {
      tiles.template load<5>(lower_a, lower_stride);
      tiles.template add_product<2, 5, 6>();
      if constexpr (C == 2) tiles.template add_product<3, 5, 7>();
    }
  };
  constexpr int64_t size = sizeof(BFloat16);
  for (int64_t s = 0; s < steps; ++s)
    add(a[0].whole + s * kAmxDepth, a[0].stride * size, a[R - 1].whole + s * kAmxDepth,
        a[R - 1].stride * size, b + s * kAmxPairs * kAmxPanel);
  if (b_rest) add(a[0].rest, kAmxDepth * size, a[R - 1].rest, kAmxDepth * size, b_rest);
  tiles.template store<0>(sums, stride);
  if constexpr (C == 2) tiles.template store<1>(sums + kAmxRows, stride);
  if constexpr (R == 2) tiles.template store<2>(lower, stride);
  if constexpr (R == 2 && C == 2) tiles.template store<3>(lower + kAmxRows, stride);
}

// Multiplies all rows of a slice with a panel.
template <class Tiles>
void multiply_amx_panel(Tiles& tiles, const AmxBuffers& buffers, int64_t rows, int64_t columns,
                        const BFloat16Pair* b, const BFloat16Pair* b_rest, int64_t steps,
                        float* sums, bool is_first) {
  const AmxOperand* a = buffers.rows;
  for (int64_t i = 0; i < rows; i += 2 * kAmxRows, a += 2, sums += 2 * kAmxRows * kAmxPitch) {
    const bool two_rows = rows - i > kAmxRows, two_columns = columns > kAmxRows;
    if (two_rows && two_columns)
      multiply_amx<Tiles, 2, 2>(tiles, a, b, b_rest, steps, sums, is_first);
    else if (two_rows)
      multiply_amx<Tiles, 2, 1>(tiles, a, b, b_rest, steps, sums, is_first);
    else if (two_columns)
      multiply_amx<Tiles, 1, 2>(tiles, a, b, b_rest, steps, sums, is_first);
    else
      multiply_amx<Tiles, 1, 1>(tiles, a, b, b_rest, steps, sums, is_first);
  }
}

// Adds a slice of k to the sums of a block. a and b point to the corner of the block's operands;
// `packed` is the packed slice of the block's first panel, or null, and `pitch` its pairs from
// panel to panel.
template <class Tiles>
void add_amx_slice(const Product& p, const BFloat16* a, const BFloat16* b,
                   const BFloat16Pair* packed, int64_t pitch, int64_t rows, int64_t columns,
                   int64_t depth, bool is_first, AmxBuffers& buffers) {
  const int64_t steps = depth / kAmxDepth, pairs = packed_depth<BFloat16Pair>(depth),
                rest = pairs - steps * kAmxPairs;
  prepare_amx_rows(p, a, rows, depth, buffers);
  if (rest > 0) __builtin_memset(buffers.b_rest, 0, sizeof buffers.b_rest);
  // The application is not asked, and so does not run, while the tiles are configured.
  Tiles tiles;
  for (int64_t j = 0; j < columns; j += kAmxPanel) {
    const int64_t filled = smaller(kAmxPanel, columns - j);
    const BFloat16Pair* panel = packed ? packed + j / kAmxPanel * pitch : buffers.b;
    if (!packed)
      pack<BFloat16Pair, BFloat16, kAmxPanel>(b + j * p.b.column, p.b.column, p.b.row,
                                              static_cast<int>(filled), depth, buffers.b);
    if (rest > 0)
      __builtin_memcpy(buffers.b_rest, panel + steps * kAmxPairs * kAmxPanel,
                       static_cast<size_t>(rest * kAmxPanel) * sizeof *panel);
    multiply_amx_panel(tiles, buffers, rows, filled, panel, rest > 0 ? buffers.b_rest : nullptr,
                       steps, buffers.sums + j, is_first);
  }
}

// Computes a product, with or without a packed b.
template <class Tiles>
[[gnu::noinline]] void run_amx(const Product& p) {
  auto& buffers = lay_out<AmxBuffers>(p);
  const auto* a = static_cast<const BFloat16*>(p.a.data);
  const auto* b = static_cast<const BFloat16*>(p.b.data);
  const int64_t row_blocks = (p.m - 1) / kAmxBlockRows + 1, even = (p.m - 1) / row_blocks + 1,
                block_rows = (even + 2 * kAmxRows - 1) / (2 * kAmxRows) * (2 * kAmxRows),
                depth_of_k = packed_depth<BFloat16Pair>(p.k), pitch = depth_of_k * kAmxPanel;
  const auto* packed = static_cast<const BFloat16Pair*>(p.b.packed.data);
  if (packed) packed += p.b.packed.column * depth_of_k;
  for (int64_t i = 0; i < p.m; i += block_rows) {
    const int64_t rows = smaller(block_rows, p.m - i);
    for (int64_t j = 0; j < p.n; j += kAmxBlockColumns) {
      const int64_t columns = smaller(kAmxBlockColumns, p.n - j);
      if (p.k <= 0) __builtin_memset(buffers.sums, 0, sizeof buffers.sums);
      for (int64_t d = 0; d < p.k; d += kAmxSlice) {
        const int64_t depth = smaller(kAmxSlice, p.k - d);
        if (p.cancellation->ends(rows * columns * depth / 16)) return;
        add_amx_slice<Tiles>(p, a + i * p.a.row + d * p.a.column, b + j * p.b.column + d * p.b.row,
                             packed ? packed + j * depth_of_k + d / 2 * kAmxPanel : nullptr, pitch,
                             rows, columns, depth, d == 0, buffers);
      }
      store_sums<float, BFloat16>(p, buffers.sums, kAmxPitch, i, j, rows, columns);
    }
  }
}

#if HUSK_BF16_TILES
// A product with a packed b takes as long for one row as for the 16 rows of a tile, which is as
// long as with vectors.
constexpr int64_t kAmxMinRows = 2;

// Computes a product, or returns false if there are so few rows or columns that AVX-512 BF16 is
// faster.
[[maybe_unused]] bool run_amx_product(Product& p) {
  if (!are_pairs_faster(p)) return false;
  if (p.m <= 0 || p.n <= 0) return true;
  if (p.b.packed.data) {
    if (p.m < kAmxMinRows) return false;
  } else {
    put_thin_side_first(p);
    if (is_thin<BFloat16>(p)) return false;
    if (p.out_row == 1 && p.out_column != 1) transpose_product(p);
  }
  run_amx<AmxTiles>(p);
  return true;
}
#endif

}  // namespace
}  // namespace husk::host
