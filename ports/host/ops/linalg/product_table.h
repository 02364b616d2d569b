// Written by tests/bench/product_table.py, which measures the kernels. CPU: AMD EPYC.
// The most rows of a product that reads its second operand in place instead of packing it.
#pragma once

namespace husk::host {

// They depend on the depth of the product: the first number is for k < kDepthLimits[0], and so on.
constexpr int kDepths = 5;
constexpr int kDepthLimits[kDepths - 1] = {32, 128, 512, 2048};

struct InPlaceRows {
  int columns[kDepths];  // if the columns of the second operand are contiguous
  int rows[kDepths];     // if its rows are
};

// By instruction set, and by the dtype f64, f32, f16 and bf16. 64-bit Arm was not measured and
// takes the rows of the baseline.
constexpr InPlaceRows kInPlaceBaseline[] = {{{29, 32, 32, 32, 32}, {32, 32, 32, 32, 32}},
                                            {{4, 32, 32, 32, 32}, {32, 32, 32, 32, 32}},
                                            {{4, 4, 4, 4, 4}, {4, 4, 4, 4, 4}},
                                            {{3, 7, 11, 5, 7}, {16, 5, 4, 7, 8}}};
constexpr InPlaceRows kInPlaceAvx2[] = {{{9, 11, 4, 7, 7}, {13, 25, 27, 24, 25}},
                                        {{0, 14, 9, 10, 10}, {19, 24, 32, 28, 26}},
                                        {{1, 7, 14, 8, 16}, {24, 12, 11, 8, 11}},
                                        {{1, 9, 10, 7, 11}, {16, 4, 4, 4, 5}}};
constexpr InPlaceRows kInPlaceAvx512[] = {{{6, 6, 2, 28, 25}, {21, 32, 32, 18, 32}},
                                          {{4, 16, 32, 32, 32}, {31, 31, 28, 29, 26}},
                                          {{3, 11, 26, 29, 32}, {30, 31, 29, 19, 29}},
                                          {{1, 10, 18, 20, 32}, {32, 30, 22, 20, 16}}};
constexpr InPlaceRows kInPlaceBf16[] = {{{2, 11, 22, 31, 32}, {26, 11, 6, 9, 6}}};

}  // namespace husk::host
