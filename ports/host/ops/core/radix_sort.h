// Sorting of indices by their keys, digit by digit from the lowest one. It takes a pass over all
// elements for each digit, and comparisons of keys would take one for each bit of their number. The
// elements and the indices lie in memory that another thread may change meanwhile: each place and
// each index is checked before it is used.
#pragma once

#include "core/element.h"
#include "core/loop.h"

namespace husk::host {
namespace {

constexpr int kDigitBits = 11;
constexpr int kDigits = 3;  // digits that are counted at once
constexpr uint64_t kDigitMask = (uint64_t{1} << kDigitBits) - 1;

// Halves of the 64-bit numbers that a row of indices has in the end.
using IndexHalf [[gnu::may_alias]] = uint32_t;

// Moves the indices `from` to `to`, in the order of a digit of their keys. Equal digits keep their
// order. Without `from`, the indices are 0 ... count - 1. `places` has the number of keys with each
// digit, and is changed. Returns false if the call is to end.
template <class Digit>
bool move_by_digit(Cancellation& cancellation, int64_t count, const Digit& digit, uint32_t* places,
                   const IndexHalf* from, IndexHalf* to) {
  uint32_t before = 0;
  for (uint64_t i = 0; i <= kDigitMask; ++i) {
    const uint32_t here = places[i];
    places[i] = before;
    before += here;
  }
  const auto move = [&](int64_t index) {
    const uint32_t place = places[digit(index)]++;
    if (place < count) to[place] = static_cast<uint32_t>(index);
  };
  if (!from) return each_index(cancellation, count, move);
  return each_index(cancellation, count, [&](int64_t i) {
    const int64_t index = read_once(from + i);
    move(is_within(index, count) ? index : 0);
  });
}

// Writes the indices 0 ... count - 1 in the order of key(index), an unsigned number of `key_bits`.
// Equal keys stay in order. `count` is from 1 to 2^32 - 1. If the call is to end, what is in
// `indices` is undefined.
template <class Key>
void radix_sort(Cancellation& cancellation, int64_t count, int key_bits, const Key& key,
                uint64_t* indices) {
  // The row has place for the indices of two passes, which have 32 bits each.
  auto* const first_half = reinterpret_cast<IndexHalf*>(indices);
  IndexHalf* const second_half = first_half + count;
  const IndexHalf* from = nullptr;
  for (int low = 0; low < key_bits; low += kDigits * kDigitBits) {
    uint32_t places[kDigits][kDigitMask + 1] = {};
    if (!each_index(cancellation, count, [&](int64_t i) {
          const uint64_t digits = key(i) >> low;
          for (int d = 0; d < kDigits; ++d) ++places[d][digits >> d * kDigitBits & kDigitMask];
        })) {
      return;
    }
    for (int d = 0; d < kDigits; ++d) {
      const auto digit = [&](int64_t i) { return key(i) >> low >> d * kDigitBits & kDigitMask; };
      if (places[d][digit(0)] == static_cast<uint32_t>(count)) continue;  // all have this digit
      IndexHalf* const to = from == second_half ? first_half : second_half;
      if (!move_by_digit(cancellation, count, digit, places[d], from, to)) return;
      from = to;
    }
  }
  // Each index of 32 bits is read before its place is written.
  static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);
  each_index(cancellation, count, [&](int64_t i) {
    const int64_t at = from == first_half ? count - 1 - i : i;
    const uint32_t index = from ? from[at] : static_cast<uint32_t>(at);
    first_half[2 * at] = index;
    first_half[2 * at + 1] = 0;
  });
}

// Sorts keys in memory that no other thread changes. Returns the one of `keys` and `other`, which
// is as large, that has them in the end. If the call is to end, the keys are undefined.
inline uint64_t* radix_sort_keys(Cancellation& cancellation, int64_t count, uint64_t* keys,
                                 uint64_t* other) {
  uint64_t varying = 0;
  each_index(cancellation, count, [&](int64_t i) { varying |= keys[i] ^ keys[0]; });
  for (int low = 0; low < 64; low += kDigitBits) {
    if ((varying >> low & kDigitMask) == 0) continue;
    int64_t places[kDigitMask + 1] = {};
    if (!each_index(cancellation, count, [&](int64_t i) { ++places[keys[i] >> low & kDigitMask]; }))
      return keys;
    int64_t before = 0;
    for (int64_t& place : places) {
      const int64_t here = place;
      place = before;
      before += here;
    }
    each_index(cancellation, count,
               [&](int64_t i) { other[places[keys[i] >> low & kDigitMask]++] = keys[i]; });
    std::swap(keys, other);
  }
  return keys;
}

}  // namespace
}  // namespace husk::host
