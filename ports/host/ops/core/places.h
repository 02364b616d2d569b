// Indices in tensors that name places along a dimension. Another thread may change them during a
// call (husk.h), so each is read once and checked before it is used.
#pragma once

#include "core/element.h"
#include "core/loop.h"

namespace husk::host {
namespace {

constexpr int64_t kPlaces = 64;  // indices that are read at once

// Reads indices that lie `stride` apart. Returns whether all of them are in [0, size).
template <class T>
bool read_places(const T* from, int64_t stride, int64_t count, int64_t size, int64_t* places) {
  uint64_t outside = 0;
  for (int64_t i = 0; i < count; ++i) {
    places[i] = static_cast<int64_t>(read_once(from + i * stride));
    outside |= !is_within(places[i], size);
  }
  return !outside;
}
inline bool read_places(int32_t dtype, const void* data, int64_t at, int64_t stride, int64_t count,
                        int64_t size, int64_t* places) {
  switch (dtype) {
    case HUSK_I64:
      return read_places(static_cast<const int64_t*>(data) + at, stride, count, size, places);
    case HUSK_I32:
      return read_places(static_cast<const int32_t*>(data) + at, stride, count, size, places);
    default:
      for (int64_t i = 0; i < count; ++i) {
        places[i] = get_index(dtype, data, at + i * stride);
        if (!is_within(places[i], size)) return false;
      }
      return true;
  }
}

// Calls f(place, i) for each of `count` indices of a tensor, from offset `at` on, that lie `stride`
// apart. Returns false if an index is not in [0, size), which becomes `wrong`, or if the call is to
// end.
template <class F>
[[gnu::always_inline]] inline bool each_place(Cancellation& cancellation,
                                              const husk_op_arg& indices, int64_t at,
                                              int64_t stride, int64_t count, int64_t size,
                                              int64_t& wrong, const F& f) {
  int64_t places[kPlaces];
  int64_t unreported = 0;
  if (cancellation.ended()) return false;
  for (int64_t first = 0; first < count; first += kPlaces) {
    const int64_t length = count - first < kPlaces ? count - first : kPlaces;
    unreported += length;
    if (unreported > kUnreportedWork) {
      if (cancellation.ends(unreported)) return false;
      unreported = 0;
    }
    const bool all_within = read_places(indices.dtype, indices.data, at + first * stride, stride,
                                        length, size, places);
    if (!all_within) {
      for (int64_t i = 0; i < length; ++i) {
        if (is_within(places[i], size)) continue;
        wrong = places[i];
        return false;
      }
    }
    for (int64_t i = 0; i < length; ++i) f(places[i], first + i);
  }
  return true;
}

}  // namespace
}  // namespace husk::host
