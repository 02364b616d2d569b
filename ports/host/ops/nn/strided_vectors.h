// Vectors of elements that lie apart, for the instruction set that the including file is compiled
// for.
#pragma once

#include "core/lanes.h"

namespace husk::host {
namespace {

// Loads `count` elements, at most a vector, that lie `stride` elements apart.
inline Vector<float> load_apart(const float* from, int64_t stride, int64_t count) {
  if (stride == 1) return load_some<float>(from, count);
  Vector<float> v = {};
  for (int64_t i = 0; i < count; ++i) v[i] = from[i * stride];
  return v;
}

inline void store_apart(float* to, int64_t stride, Vector<float> v, int64_t count) {
  if (stride == 1) return store_some<float>(to, v, count);
  for (int64_t i = 0; i < count; ++i) to[i * stride] = v[i];
}

}  // namespace
}  // namespace husk::host
