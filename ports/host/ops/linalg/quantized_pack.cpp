#include <cstring>

#include "core/arithmetic.h"
#include "linalg/quantized.h"

namespace husk::host {

namespace {

// The word of eight codes of 4 bits, of which each byte of `pairs` has two that are adjacent.
uint32_t word_of_pairs(uint32_t pairs) {
  const uint32_t even = pairs & 0x0f0f0f0f, odd = pairs >> 4 & 0x0f0f0f0f;
  const auto interleaved = [](uint32_t first, uint32_t second) {  // two bytes of each
    return (first & 0xff) | (second & 0xff) << 8 | (first & 0xff00) << 8 | (second & 0xff00) << 16;
  };
  return interleaved(even, odd) | interleaved(even >> 16, odd >> 16) << 4;
}

uint32_t load_bytes(const uint8_t* from, int64_t step, int64_t count) {
  uint32_t word = 0;
  if (step == 1 && count >= 4) {
    std::memcpy(&word, from, sizeof word);
    return word;
  }
  for (int64_t i = 0; i < count && i < 4; ++i) word |= uint32_t{from[i * step]} << 8 * i;
  return word;
}

}  // namespace

int64_t product_pack_codes(const ProductPacking& packing, void* to) {
  const int32_t bits = packing.b.format.bits;
  const int64_t panels = (packing.n + kPanelColumns - 1) / kPanelColumns,
                words = panel_words(bits, packing.k),
                bytes = panels * words * int64_t{sizeof(uint32_t)};
  if (packing.k < 1 || !to) return bytes;
  auto* word = static_cast<uint32_t*>(to);
  const auto* codes = static_cast<const uint8_t*>(packing.b.data);
  // Memory that holds the codes of a word, in bytes.
  const int64_t step = bits == 4 ? 1 : packing.b.row,
                count = bits == 4 ? (packing.k + 1) / 2 : packing.k;
  for (int64_t j = 0; j < packing.n; j += kPanelColumns) {
    if (packing.cancellation->ends(words)) break;
    const int64_t filled = packing.n - j < kPanelColumns ? packing.n - j : kPanelColumns;
    for (int64_t i = 0; i < count; i += 4, word += kPanelColumns) {
      for (int64_t c = 0; c < kPanelColumns; ++c) {
        uint32_t loaded = 0;
        if (c < filled)
          loaded = load_bytes(codes + i * step + (j + c) * packing.b.column, step, count - i);
        word[c] = bits == 4 ? word_of_pairs(loaded) : loaded;
      }
    }
  }
  return bytes;
}

int64_t pack_group_numbers(const GroupNumbers& numbers, int64_t groups, int64_t n,
                           Cancellation& cancellation, void* to) {
  const int64_t size = dtype_bytes(numbers.dtype), panels = (n + kPanelColumns - 1) / kPanelColumns;
  auto* place = static_cast<unsigned char*>(to);
  for (int64_t j = 0; to && j < panels * kPanelColumns; j += kPanelColumns) {
    if (cancellation.ends(groups * kPanelColumns)) break;
    for (int64_t g = 0; g < groups; ++g) {
      for (int64_t c = j; c < j + kPanelColumns; ++c, place += size) {
        const auto* from = static_cast<const unsigned char*>(numbers.data) +
                           (g * numbers.row + c * numbers.column) * size;
        if (c < n)
          std::memcpy(place, from, static_cast<size_t>(size));
        else
          std::memset(place, 0, static_cast<size_t>(size));
      }
    }
  }
  return panels * kPanelColumns * groups * size;
}

}  // namespace husk::host
