// The kernel of aten::grid_sampler, for the instruction set that the including file is compiled
// for.
#pragma once

#include "core/lanes.h"
#include "nn/grid_sampler.h"

namespace husk::host {
namespace {

// The elements at offsets whose weights are not 0, and 0 for the others, which are not read.
inline Vector<float> gather_weighted(const float* from, const int32_t* offsets,
                                     Vector<float> weights) {
#if defined(__AVX512F__)
  const __m512i places = _mm512_load_si512(offsets);
  const __mmask16 used = _mm512_cmp_ps_mask(weights, _mm512_setzero_ps(), _CMP_NEQ_UQ);
  return _mm512_mask_i32gather_ps(_mm512_setzero_ps(), used, places, from, 4);
#elif defined(__AVX2__)
  const __m256i places = _mm256_load_si256(reinterpret_cast<const __m256i*>(offsets));
  const __m256 used = _mm256_cmp_ps(weights, _mm256_setzero_ps(), _CMP_NEQ_UQ);
  return _mm256_mask_i32gather_ps(_mm256_setzero_ps(), from, places, used, 4);
#else
  Vector<float> values = {};
  for (int i = 0; i < kLaneCount<float>; ++i)
    if (weights[i] != 0) values[i] = from[offsets[i]];
  return values;
#endif
}

// Loops over all lanes, also those behind the last result, are ones of vectors.
inline void run_grid_prepare(GridTile& tile) {
  constexpr int64_t N = GridTile::kMost;
  alignas(64) float parts[kAxes][2][N];  // weights before and behind a position
  alignas(64) int32_t steps[kAxes][2][N];
  const int first_axis = kAxes - tile.dims;
  for (int d = first_axis; d < kAxes; ++d) {
    constexpr double kShift = 0x1.8p52;  // the sum with a small number rounds it to an int
    const double* positions = tile.positions[d];
    const int32_t size = tile.sizes[d], stride = tile.strides[d];
    for (int64_t i = 0; i < N; ++i) {
      const double at = tile.nearest ? (positions[i] + kShift) - kShift : positions[i];
      const int32_t near = static_cast<int32_t>(at);
      const int32_t low = near - (static_cast<double>(near) > at ? 1 : 0);
      const float part = static_cast<float>(at - static_cast<double>(low));
      const bool has_low = low >= 0 && low < size, has_high = low >= -1 && low < size - 1;
      parts[d][0][i] = has_low ? 1 - part : 0.f;
      parts[d][1][i] = has_high ? part : 0.f;
      steps[d][0][i] = has_low ? low * stride : 0;
      steps[d][1][i] = has_high ? (low + 1) * stride : 0;
    }
  }
  for (int corner = 0; corner < 1 << tile.dims; ++corner) {
    const int x = corner & 1, y = corner >> 1 & 1, z = corner >> 2;
    for (int64_t i = 0; i < N; ++i) {
      const float weight = parts[kAxes - 1][x][i] * parts[kAxes - 2][y][i];
      const int32_t offset = steps[kAxes - 1][x][i] + steps[kAxes - 2][y][i];
      tile.weights[corner][i] = weight;
      tile.offsets[corner][i] = offset;
    }
    if (first_axis > 0) continue;
    for (int64_t i = 0; i < N; ++i) {
      tile.weights[corner][i] *= parts[0][z][i];
      tile.offsets[corner][i] += steps[0][z][i];
    }
  }
}

inline void run_grid_sample(const GridTile& tile, const float* from, float* to) {
  constexpr int64_t L = kLaneCount<float>;
  static_assert(GridTile::kMost % L == 0);
  for (int64_t i = 0; i < tile.count; i += L) {
    Vector<float> sum = {};
    for (int corner = 0; corner < tile.corners; ++corner) {
      const Vector<float> weights = load(tile.weights[corner] + i);
      sum += weights * gather_weighted(from, tile.offsets[corner] + i, weights);
    }
    store(to + i, sum);
  }
}

}  // namespace
}  // namespace husk::host
