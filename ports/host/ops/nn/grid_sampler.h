// Positions of an image as the kernel of aten::grid_sampler sees them.
#pragma once

#include <cstdint>

#include "nn/axes.h"

namespace husk::host {

// Some neighbouring results of a row, for all channels: each is a sum of elements of the input, two
// for each axis, or four for each of two axes, times weights. An element whose weight is 0 is not
// read.
struct GridTile {
  static constexpr int64_t kMost = 64;
  static constexpr int kCorners = 16;

  int64_t count;  // results; the kernels compute kMost
  int dims;       // 2 or 3: the last axes count
  int corners;    // the elements that are summed for a result
  bool nearest;
  int32_t sizes[kAxes], strides[kAxes];        // of the input
  alignas(64) double positions[kAxes][kMost];  // within 1e9
  alignas(64) float weights[kCorners][kMost];  // `prepare` sets them and the offsets
  alignas(64) int32_t offsets[kCorners][kMost];
};

// Sets the weights and the offsets of a tile for its positions, with two elements for each axis.
// The same code is compiled for three instruction sets.
using GridPrepare = void (*)(GridTile& tile);
void grid_prepare_baseline(GridTile& tile);
void grid_prepare_avx2(GridTile& tile);
void grid_prepare_avx512(GridTile& tile);

// Writes the results of a channel. `to` has room for GridTile::kMost numbers.
using GridSample = void (*)(const GridTile& tile, const float* from, float* to);
void grid_sample_baseline(const GridTile& tile, const float* from, float* to);
void grid_sample_avx2(const GridTile& tile, const float* from, float* to);
void grid_sample_avx512(const GridTile& tile, const float* from, float* to);

}  // namespace husk::host
