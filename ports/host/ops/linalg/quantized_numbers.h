// Scales and zeros of groups of codes, as vectors of f32.
#pragma once

#include "core/lanes.h"
#include "linalg/product.h"

namespace husk::host {
namespace {

// Number i of scales or zeros in memory.
inline float group_number(husk_dtype dtype, const void* data, int64_t i) {
  switch (dtype) {
    case HUSK_F32: return static_cast<const float*>(data)[i];
    case HUSK_F16: return load_one(static_cast<const Half*>(data) + i);
    case HUSK_BF16: return load_one(static_cast<const BFloat16*>(data) + i);
    case HUSK_I8: return static_cast<const int8_t*>(data)[i];
    case HUSK_U8: return static_cast<const uint8_t*>(data)[i];
    default: return static_cast<float>(static_cast<const int32_t*>(data)[i]);
  }
}

// A vector of numbers that are adjacent from number i on.
inline Vector<float> group_numbers(husk_dtype dtype, const void* data, int64_t i) {
  switch (dtype) {
    case HUSK_F32: return load(static_cast<const float*>(data) + i);
    case HUSK_F16: return load(static_cast<const Half*>(data) + i);
    case HUSK_BF16: return load(static_cast<const BFloat16*>(data) + i);
    default: break;
  }
  Vector<float> v = {};
  for (int lane = 0; lane < kLaneCount<float>; ++lane)
    v[lane] = group_number(dtype, data, i + lane);
  return v;
}

}  // namespace
}  // namespace husk::host
