// The kernels of a matrix product whose second operand has codes with scales. Sums are exact: codes
// become f32, and a group's sum is multiplied by its scale.
//
// Few rows: the codes of a panel are read once, in the order of memory, and multiplied with up to
// kCodeRows rows at a time. The scale and the zero of a group are applied to its sums.
//
// Many rows, or codes that are not packed: numbers of a panel are written to scratch memory, where
// the kernels of float products read them.
#pragma once

#include "linalg/product_kernels.h"
#include "linalg/quantized.h"
#include "linalg/quantized_numbers.h"

// Packed codes are read by vectors. Without AVX2, x86-64 has no instructions that look up numbers.
#if defined(__AVX2__) || defined(__aarch64__)
#define HUSK_CODE_VECTORS 1
#else
#define HUSK_CODE_VECTORS 0
#endif

namespace husk::host {
namespace {

typedef int32_t Int32Vector __attribute__((vector_size(HUSK_VECTOR_BYTES)));

constexpr int kPanelVectors = static_cast<int>(kPanelColumns) / kLaneCount<float>;
constexpr int kMostAlong = 8;         // codes of a word
constexpr int kCodeRows = 4;          // rows that are multiplied with a panel at once
constexpr int64_t kAhead = 1024;      // words of a panel that are fetched ahead
constexpr int64_t kCodeDepth = 4096;  // elements of a row that are in scratch memory at a time
// Their distance from row to row. Rows that lie 2^n bytes apart share lines of the first-level
// cache.
constexpr int64_t kCodePitch = kCodeDepth + 16;

// ---- codes ----

// How codes become numbers. kAlong codes of a column make a word (quantized.h), of which
// numbers(words, i) is the code i of each column. number(byte, i) is that of the code i that a byte
// in memory has.

inline UInt32Vector load_words(const uint32_t* from) {
  UInt32Vector words;
  __builtin_memcpy(&words, from, sizeof words);
  return words;
}

struct SignedBytes {
  static constexpr int kAlong = 4;
  explicit SignedBytes(const Quantization&) {}
  Vector<float> numbers(UInt32Vector words, int i) const {
    return __builtin_convertvector(bits_as<Int32Vector>(words << (24 - 8 * i)) >> 24,
                                   Vector<float>);
  }
  float number(uint8_t byte, int64_t) const { return static_cast<int8_t>(byte); }
};

struct UnsignedBytes {
  static constexpr int kAlong = 4;
  explicit UnsignedBytes(const Quantization&) {}
  Vector<float> numbers(UInt32Vector words, int i) const {
    return __builtin_convertvector(bits_as<Int32Vector>(words >> 8 * i & 0xff), Vector<float>);
  }
  float number(uint8_t byte, int64_t) const { return byte; }
};

// Codes of 4 bits: a table of 16 numbers, which registers hold.
struct Nibbles {
  static constexpr int kAlong = 8;
  const float* values;
#if HUSK_CODE_VECTORS
  static constexpr int kTables = 16 / kLaneCount<float>;
  Vector<float> tables[kTables];
#endif

  explicit Nibbles(const Quantization& q) : values(q.values) {
#if HUSK_CODE_VECTORS
    for (int i = 0; i < kTables; ++i) tables[i] = load(values + i * kLaneCount<float>);
#endif
  }
#if HUSK_CODE_VECTORS
  Vector<float> numbers(UInt32Vector words, int i) const {
    const UInt32Vector codes = words >> (i % 4 * 8 + i / 4 * 4);
#if defined(__AVX512F__)
    // The instruction reads the lowest four bits of each lane.
    return _mm512_maskz_permutexvar_ps(0xffff, bits_as<__m512i>(codes), tables[0]);
#elif defined(__AVX2__)
    // An instruction reads the lowest three bits; the fourth one says which table is meant.
    const auto low = _mm256_permutevar8x32_ps(tables[0], bits_as<__m256i>(codes)),
               high = _mm256_permutevar8x32_ps(tables[1], bits_as<__m256i>(codes));
    return _mm256_blendv_ps(low, high, bits_as<__m256>(codes << 28));
#elif defined(__aarch64__)
    // An instruction looks up bytes: byte b of number c is byte 4 c + b of the table.
    const UInt32Vector bytes = (codes & 15) * 0x04040404 + 0x03020100;
    const uint8x16x4_t table = {bits_as<uint8x16_t>(tables[0]), bits_as<uint8x16_t>(tables[1]),
                                bits_as<uint8x16_t>(tables[2]), bits_as<uint8x16_t>(tables[3])};
    return bits_as<Vector<float> >(vqtbl4q_u8(table, bits_as<uint8x16_t>(bytes)));
#endif
  }
#endif
  float number(uint8_t byte, int64_t i) const { return values[i % 2 ? byte >> 4 : byte & 15]; }
};

// Floats of 8 bits: a table of 256 numbers in memory.
struct Float8Codes {
  static constexpr int kAlong = 4;
  const float* values;

  explicit Float8Codes(const Quantization& q) : values(q.values) {}
  Vector<float> numbers(UInt32Vector words, int i) const {
    const UInt32Vector codes = words >> 8 * i & 0xff;
#if defined(__AVX512F__)
    return _mm512_mask_i32gather_ps(Vector<float>{}, 0xffff, bits_as<__m512i>(codes), values, 4);
#elif defined(__AVX2__)
    return _mm256_mask_i32gather_ps(Vector<float>{}, values, bits_as<__m256i>(codes),
                                    bits_as<__m256>(UInt32Vector{} - 1), 4);
#else
    Vector<float> found = {};
    for (int lane = 0; lane < kLaneCount<float>; ++lane) found[lane] = values[codes[lane]];
    return found;
#endif
  }
  float number(uint8_t byte, int64_t) const { return values[byte]; }
};

// ---- memory, and the functions of a format ----

// Whether codes, scales and zeros are packed.
inline bool all_packed(const Product& p) {
  const Quantization& q = *p.b.quantization;
  return HUSK_CODE_VECTORS && q.group % kMinPackedGroup == 0 && p.b.packed.data &&
         q.scales.packed && (!q.zeros.data || q.zeros.packed);
}

struct FewRowBuffers {
  alignas(64) float a[kFewCodeRows * kCodePitch];
  alignas(64) float group_sums[kFewCodeRows * (kCodeDepth / kMinPackedGroup + 2)];
  alignas(64) float sums[kFewCodeRows * kBlockColumns<float>];
};

struct ManyRowBuffers {
  BlockBuffers<float, float> blocks;
  alignas(64) float plain[kTileColumns<float> * kBlockDepth<float>];
};

// A slice of the depth: `depth` elements from element `begin` on, which is a multiple of
// kMinPackedGroup.
struct DepthSlice {
  int64_t begin, depth, group;

  // Calls each(g, from, to) for the groups of the slice, with the number of the group and the part
  // of the slice that belongs to it.
  template <class Each>
  void each_group(const Each& each) const {
    for (int64_t d = 0; d < depth;) {
      const int64_t g = (begin + d) / group, end = smaller((g + 1) * group - begin, depth);
      each(g, d, end);
      d = end;
    }
  }
  int64_t first_group() const { return begin / group; }
};

// The functions that are compiled for each kind of codes. Others are compiled for each type of a.
struct CodeKernels {
  // Null without HUSK_CODE_VECTORS.
  void (*add_few_rows)(const Product& p, const DepthSlice& slice, int64_t column, int64_t columns,
                       FewRowBuffers& buffers);
  void (*write_numbers)(const Product& p, const DepthSlice& slice, int64_t column, int filled,
                        ManyRowBuffers& buffers);
};

#if HUSK_CODE_VECTORS
// ---- few rows ----

// Adds R rows of a times a slice of a panel to sums. `words` is the slice's first block; scales and
// zeros are those of the panel, and group_sums the sums of a over the slice's groups.
template <class Codes, int R>
void add_panel(const Codes& codes, const Quantization& q, const DepthSlice& slice,
               const uint32_t* words, int64_t panel_group, const float* a, const float* group_sums,
               int64_t groups, float* sums) {
  constexpr int L = kLaneCount<float>, V = kPanelVectors, A = Codes::kAlong,
                // Sums in registers, so that the processor need not wait for an addition.
      kSums = 8,
                C = R * V >= kSums ? 1
                    : R * V == 1   ? 4
                                   : kSums / (R * V);
  Vector<float> total[R][V] = {};
  slice.each_group([&](int64_t g, int64_t from, int64_t to) {
    Vector<float> part[R][C][V] = {};
    for (int64_t d = from; d < to; d += A, words += kPanelColumns) {
      // The processor loads ahead, but not far enough for one stream.
      __builtin_prefetch(words + kAhead, 0, 2);
      UInt32Vector block[V];
      HUSK_UNROLL
      for (int v = 0; v < V; ++v) block[v] = load_words(words + v * L);
      HUSK_UNROLL
      for (int i = 0; i < A; ++i) {
        Vector<float> right[V];
        HUSK_UNROLL
        for (int v = 0; v < V; ++v) right[v] = codes.numbers(block[v], i);
        HUSK_UNROLL
        for (int r = 0; r < R; ++r) {
          const Vector<float> left = all_lanes(a[r * kCodePitch + d + i]);
          HUSK_UNROLL
          for (int v = 0; v < V; ++v) add_product(part[r][i % C][v], left, right[v]);
        }
      }
    }
    const int64_t at = (panel_group + g) * kPanelColumns;
    HUSK_UNROLL
    for (int v = 0; v < V; ++v) {
      const Vector<float> scale = group_numbers(q.scales.dtype, q.scales.packed, at + v * L);
      Vector<float> zero = {};
      if (q.zeros.data) zero = group_numbers(q.zeros.dtype, q.zeros.packed, at + v * L);
      HUSK_UNROLL
      for (int r = 0; r < R; ++r) {
        Vector<float> sum = part[r][0][v];
        HUSK_UNROLL
        for (int c = 1; c < C; ++c) sum += part[r][c][v];
        if (q.zeros.data) sum -= zero * all_lanes(group_sums[r * groups + g - slice.first_group()]);
        add_product(total[r][v], sum, scale);
      }
    }
  });
  HUSK_UNROLL
  for (int r = 0; r < R; ++r) {
    HUSK_UNROLL
    for (int v = 0; v < V; ++v) {
      float* to = sums + r * kBlockColumns<float> + v * L;
      store(to, load(to) + total[r][v]);
    }
  }
}

// Adds the rows in buffers.a times a slice of up to kBlockColumns columns to buffers.sums. `column`
// is the first of them in the whole matrix.
template <class Codes>
void add_few_rows(const Product& p, const DepthSlice& slice, int64_t column, int64_t columns,
                  FewRowBuffers& buffers) {
  const Quantization& q = *p.b.quantization;
  const Codes codes(q);
  const int64_t groups = (slice.begin + slice.depth - 1) / slice.group - slice.first_group() + 1;
  if (q.zeros.data)
    for (int64_t r = 0; r < p.m; ++r)
      slice.each_group([&](int64_t g, int64_t from, int64_t to) {
        float sum = 0;
        for (int64_t d = from; d < to; ++d) sum += buffers.a[r * kCodePitch + d];
        buffers.group_sums[r * groups + g - slice.first_group()] = sum;
      });
  const int64_t pitch = panel_words(p.b.format.bits, p.k), all_groups = p.k / q.group;
  for (int64_t j = 0; j < columns; j += kPanelColumns) {
    const int64_t panel = (column + j) / kPanelColumns;
    const uint32_t* words = static_cast<const uint32_t*>(p.b.packed.data) + panel * pitch +
                            slice.begin / Codes::kAlong * kPanelColumns;
    each_row_group(p.m, [&](auto count, int64_t r) {
      add_panel<Codes, decltype(count)::value>(
          codes, q, slice, words, panel * all_groups, buffers.a + r * kCodePitch,
          buffers.group_sums + r * groups, groups, buffers.sums + r * kBlockColumns<float> + j);
    });
  }
}

template <class S>
void run_few_code_rows(const Product& p, const CodeKernels& kernels) {
  auto& buffers = lay_out<FewRowBuffers>(p);
  const S* a = static_cast<const S*>(p.a.data);
  for (int64_t j = 0; j < p.n; j += kBlockColumns<float>) {
    const int64_t columns = smaller(kBlockColumns<float>, p.n - j);
    __builtin_memset(buffers.sums, 0,
                     static_cast<size_t>(p.m) * kBlockColumns<float> * sizeof(float));
    for (int64_t d = 0; d < p.k; d += kCodeDepth) {
      const DepthSlice slice = {d, smaller(kCodeDepth, p.k - d), p.b.quantization->group};
      if (p.cancellation->ends(p.m * columns * slice.depth / 16)) return;
      for (int64_t r = 0; r < p.m; ++r) {
        const S* from = a + (p.rows ? p.rows[r] : r) * p.a.row + d * p.a.column;
        float* to = buffers.a + r * kCodePitch;
        int64_t t = 0;
        if (p.a.column == 1)
          for (; t + kLaneCount<float> <= slice.depth; t += kLaneCount<float>)
            store(to + t, load(from + t));
        for (; t < slice.depth; ++t) to[t] = load_one(from + t * p.a.column);
        // The last block has codes beyond the depth.
        for (; t % kMostAlong != 0; ++t) to[t] = 0;
      }
      kernels.add_few_rows(p, slice, p.b.packed.column + j, columns, buffers);
    }
    // Rows that are listed are stored one by one.
    const int64_t step = p.rows ? 1 : p.m;
    for (int64_t r = 0; r < p.m; r += step)
      store_sums<float, S>(p, buffers.sums + r * kBlockColumns<float>, kBlockColumns<float>,
                           p.rows ? p.rows[r] : r, j, step, columns);
  }
}

#endif
// ---- many rows ----

// Writes the numbers of a slice of up to kTileColumns columns, from column `column` of the whole
// matrix on, as a packed panel of a float product.
template <class Codes>
void write_numbers(const Product& p, const DepthSlice& slice, int64_t column, int filled,
                   ManyRowBuffers& buffers) {
  constexpr int W = kTileColumns<float>, A = Codes::kAlong;
  [[maybe_unused]] constexpr int L = kLaneCount<float>;
  const Quantization& q = *p.b.quantization;
  const Codes codes(q);
  float* const to = buffers.blocks.b;
  if (!all_packed(p)) {
    const auto* data = static_cast<const uint8_t*>(p.b.data);
    for (int64_t c = 0; c < filled; ++c)
      slice.each_group([&](int64_t g, int64_t from, int64_t end) {
        const auto number = [&](const GroupNumbers& of) {
          return group_number(of.dtype, of.data, g * of.row + (column + c) * of.column);
        };
        const float scale = number(q.scales), zero = q.zeros.data ? number(q.zeros) : 0;
        for (int64_t d = from; d < end; ++d) {
          const int64_t i = slice.begin + d, byte = (A == 8 ? i / 2 : i * p.b.row) +
                                                    (column - p.b.packed.column + c) * p.b.column;
          buffers.plain[c * kBlockDepth<float> + d] = (codes.number(data[byte], i) - zero) * scale;
        }
      });
    return pack<float, float, W>(buffers.plain, kBlockDepth<float>, 1, filled, slice.depth, to);
  }
#if HUSK_CODE_VECTORS
  for (int v = 0; v * L < filled; ++v) {
    const int64_t panel = (column + v * L) / kPanelColumns, lane = (column + v * L) % kPanelColumns;
    const uint32_t* words = static_cast<const uint32_t*>(p.b.packed.data) +
                            panel * panel_words(p.b.format.bits, p.k) +
                            slice.begin / A * kPanelColumns + lane;
    slice.each_group([&](int64_t g, int64_t from, int64_t end) {
      const int64_t at = (panel * (p.k / q.group) + g) * kPanelColumns + lane;
      const Vector<float> scale = group_numbers(q.scales.dtype, q.scales.packed, at);
      Vector<float> zero = {};
      if (q.zeros.data) zero = group_numbers(q.zeros.dtype, q.zeros.packed, at);
      for (int64_t d = from; d < end; d += A, words += kPanelColumns) {
        const UInt32Vector block = load_words(words);
        const int64_t codes_left = smaller(A, end - d);
        HUSK_UNROLL
        for (int i = 0; i < A; ++i)
          if (i < codes_left)
            store(to + (d + i) * W + v * L, (codes.numbers(block, i) - zero) * scale);
      }
    });
  }
#endif
}

template <class S>
void run_many_code_rows(const Product& p, const CodeKernels& kernels) {
  constexpr int width = kTileColumns<float>;
  auto& buffers = lay_out<ManyRowBuffers>(p);
  auto& blocks = buffers.blocks;
  const S* a = static_cast<const S*>(p.a.data);
  const int64_t row_blocks = (p.m - 1) / kBlockRows + 1, even = (p.m - 1) / row_blocks + 1,
                block_rows = (even + kTileRows - 1) / kTileRows * kTileRows;
  for (int64_t i = 0; i < p.m; i += block_rows) {
    const int64_t rows = smaller(block_rows, p.m - i);
    for (int64_t j = 0; j < p.n; j += kBlockColumns<float>) {
      const int64_t columns = smaller(kBlockColumns<float>, p.n - j);
      if (p.k <= 0) __builtin_memset(blocks.sums, 0, sizeof blocks.sums);
      for (int64_t d = 0; d < p.k; d += kBlockDepth<float>) {
        const DepthSlice slice = {d, smaller(kBlockDepth<float>, p.k - d), p.b.quantization->group};
        if (p.cancellation->ends(rows * columns * slice.depth / 16)) return;
        for (int64_t r = 0; r < rows; r += kTileRows)
          pack<float, S, kTileRows>(a + (i + r) * p.a.row + d * p.a.column, p.a.row, p.a.column,
                                    static_cast<int>(smaller(kTileRows, rows - r)), slice.depth,
                                    blocks.a + r * slice.depth);
        for (int64_t c = 0; c < columns; c += width) {
          const int filled = static_cast<int>(smaller(width, columns - c));
          kernels.write_numbers(p, slice, p.b.packed.column + j + c, filled, buffers);
          for (int64_t r = 0; r < rows; r += kTileRows) {
            float* sums = blocks.sums + r * kBlockColumns<float> + c;
            const float* left = blocks.a + r * slice.depth;
            if (filled > kLaneCount<float>)
              tile_of<float, kTileVectors>(rows - r, slice.depth, left, blocks.b, sums, d == 0);
            else
              tile_of<float, 1>(rows - r, slice.depth, left, blocks.b, sums, d == 0);
          }
        }
      }
      store_sums<float, S>(p, blocks.sums, kBlockColumns<float>, i, j, rows, columns);
    }
  }
}

// ---- choice of the method ----

template <class S>
void run_codes(const Product& p, const CodeKernels& kernels) {
#if HUSK_CODE_VECTORS
  if (p.m <= kFewCodeRows && all_packed(p)) return run_few_code_rows<S>(p, kernels);
#endif
  Product part = p;
  part.m = p.rows ? 1 : p.m;
  for (int64_t r = 0; r < p.m; r += part.m) {
    const int64_t row = p.rows ? p.rows[r] : 0;
    part.a.data = static_cast<const S*>(p.a.data) + row * p.a.row;
    part.out = static_cast<S*>(p.out) + row * p.out_row;
    run_many_code_rows<S>(part, kernels);
  }
}

template <class Codes>
constexpr CodeKernels kKernelsOf = {
#if HUSK_CODE_VECTORS
    add_few_rows<Codes>,
#else
    nullptr,
#endif
    write_numbers<Codes>};

inline CodeKernels code_kernels(Format format) {
  if (format.bits == 4) return kKernelsOf<Nibbles>;
  switch (format.dtype) {
    case HUSK_I8: return kKernelsOf<SignedBytes>;
    case HUSK_U8: return kKernelsOf<UnsignedBytes>;
    default: return kKernelsOf<Float8Codes>;
  }
}

[[maybe_unused]] bool run_quantized_product(Product& p) {
  if (p.m <= 0 || p.n <= 0) return true;
  const CodeKernels kernels = code_kernels(p.b.format);
  switch (p.dtype) {
    case HUSK_F16: run_codes<Half>(p, kernels); break;
    case HUSK_BF16: run_codes<BFloat16>(p, kernels); break;
    default: run_codes<float>(p, kernels); break;
  }
  return true;
}

}  // namespace
}  // namespace husk::host
