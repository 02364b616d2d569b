// Products of i8 by AMX: tiles of 16 rows and 64 ints of a row, and of 64 ints and the 16 columns
// of a panel. A panel's words lie as a tile has them, so nothing is copied but the last words along
// the depth.
//
// The instructions are called through the class `Tiles` of product_amx.h, with
//   add_int_product<Sums, A, B>()     adds the product of tiles A and B, of signed bytes, to Sums
#pragma once

#include "linalg/int_product_kernels.h"
#include "linalg/product_amx.h"

namespace husk::host {
namespace {

constexpr int64_t kAmxWords = 16;  // of a column in a tile

static_assert(kIntShift == 0 && kPanelColumns == kAmxRows && kIntRows % (2 * kAmxRows) == 0,
              "signed ints, panels as wide as a tile, and rows for the last tile");

template <class Tiles>
class IntTileProducts {
 public:
  static constexpr int kPanels = kMostIntPanels;

  // Sums of rows that a does not have are undefined.
  void add(int64_t panels, int64_t rows, int64_t words, const uint8_t* a, const uint32_t* b,
           int64_t pitch, int32_t* sums) {
    const int64_t steps = words / kAmxWords, rest = words % kAmxWords;
    for (int64_t panel = 0; rest > 0 && panel < panels; ++panel) {
      uint32_t* to = rest_ + panel * kAmxWords * kPanelColumns;
      const auto filled = static_cast<size_t>(rest * kPanelColumns) * sizeof *to;
      __builtin_memset(to, 0, sizeof rest_ / kPanels);
      __builtin_memcpy(to, b + panel * pitch + steps * kAmxWords * kPanelColumns, filled);
    }
    for (int64_t i = 0; i < rows; i += 2 * kAmxRows) {
      const bool two_rows = rows - i > kAmxRows, two_panels = panels == 2;
      const uint8_t* from = a + i * kIntPitch;
      int32_t* to = sums + i * kIntColumns;
      if (two_rows && two_panels)
        multiply<2, 2>(from, b, pitch, steps, rest > 0, to);
      else if (two_rows)
        multiply<2, 1>(from, b, pitch, steps, rest > 0, to);
      else if (two_panels)
        multiply<1, 2>(from, b, pitch, steps, rest > 0, to);
      else
        multiply<1, 1>(from, b, pitch, steps, rest > 0, to);
    }
  }

 private:
  static constexpr int64_t kSumBytes = kIntColumns * sizeof(int32_t),
                           kWordBytes = kPanelColumns * sizeof(uint32_t);

  // Adds 16 * R rows times P panels: tiles 0 to 3 have sums, 4 and 5 rows, 6 and 7 columns.
  template <int R, int P>
  void multiply(const uint8_t* a, const uint32_t* b, int64_t pitch, int64_t steps, bool has_rest,
                int32_t* sums) {
    int32_t* lower = sums + kAmxRows * kIntColumns;
    tiles_.template load<0>(sums, kSumBytes);
    if constexpr (P == 2) tiles_.template load<1>(sums + kPanelColumns, kSumBytes);
    if constexpr (R == 2) tiles_.template load<2>(lower, kSumBytes);
    if constexpr (R == 2 && P == 2) tiles_.template load<3>(lower + kPanelColumns, kSumBytes);
    for (int64_t s = 0; s < steps; ++s)
      step<R, P>(a + s * kAmxWords * 4, b + s * kAmxWords * kPanelColumns, pitch);
    // The bytes behind the last ints of a row are multiplied with 0.
    if (has_rest) step<R, P>(a + steps * kAmxWords * 4, rest_, kAmxWords * kPanelColumns);
    tiles_.template store<0>(sums, kSumBytes);
    if constexpr (P == 2) tiles_.template store<1>(sums + kPanelColumns, kSumBytes);
    if constexpr (R == 2) tiles_.template store<2>(lower, kSumBytes);
    if constexpr (R == 2 && P == 2) tiles_.template store<3>(lower + kPanelColumns, kSumBytes);
  }

  template <int R, int P>
  void step(const uint8_t* a, const uint32_t* b, int64_t pitch) {
    tiles_.template load<6>(b, kWordBytes);
    tiles_.template load<4>(a, kIntPitch);
    tiles_.template add_int_product<0, 4, 6>();
    if constexpr (P == 2) {
      tiles_.template load<7>(b + pitch, kWordBytes);
      tiles_.template add_int_product<1, 4, 7>();
    }
    if constexpr (R == 2) {
      tiles_.template load<5>(a + kAmxRows * kIntPitch, kIntPitch);
      tiles_.template add_int_product<2, 5, 6>();
      if constexpr (P == 2) tiles_.template add_int_product<3, 5, 7>();
    }
  }

  Tiles tiles_;
  alignas(64) uint32_t rest_[kPanels * kAmxWords * kPanelColumns];
};

#if HUSK_BF16_TILES
// With fewer rows a tile is mostly empty.
constexpr int64_t kAmxMinIntRows = 5;

[[maybe_unused]] void run_int_product_amx(const IntProduct& p) {
  if (p.m < kAmxMinIntRows) return int_product_avx512_vnni(p);
  run_int_product_by<IntTileProducts<AmxTiles>>(p);
}
#endif

}  // namespace
}  // namespace husk::host
