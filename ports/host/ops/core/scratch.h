// The scratch memory of the ops that need more than fits on the stack of a small thread
// (husk_op_context.scratch). The sizes suffice for each instruction set and dtype: whoever lays out
// the memory compares its size with the one here.
#pragma once

#include <cstdint>

namespace husk::host {

// A row for each thread that takes part.
constexpr int64_t kProductScratch = 584 << 10;      // blocks of the operands and of sums
constexpr int64_t kAttentionScratch = 280 << 10;    // blocks of the operands and of results
constexpr int64_t kConvolutionScratch = 592 << 10;  // packed weights, inputs and sums

// Only for the thread that calls the op.
constexpr int64_t kMaxGates = 49152;  // values of gates that are computed at a time
constexpr int64_t kGatesScratch = kMaxGates * int64_t{sizeof(float)};
constexpr int64_t kMaxInverseRows = 32768;  // rows of a matrix that is inverted: their pivots
constexpr int64_t kInverseScratch = kMaxInverseRows * int64_t{sizeof(int32_t)};
constexpr int64_t kMaxSlices = 65536;  // slices of unique_dim, whose numbers are sorted
constexpr int64_t kSlicesScratch = 2 * kMaxSlices * int64_t{sizeof(uint32_t)};
constexpr int64_t kBatchSize = 16384;          // distinct keys that a pass over the elements finds
constexpr int64_t kBatchScratch = 324 << 10;   // a batch of them, and the keys that were met last
constexpr int64_t kPairsScratch = 64 << 10;    // weights that multinomial draws at a time
constexpr int64_t kResizeScratch = 200 << 10;  // rows of images, and weights of columns
constexpr int64_t kModeScratch = kBatchScratch + kBatchSize * int64_t{sizeof(int64_t)};

}  // namespace husk::host
