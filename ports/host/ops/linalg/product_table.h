// Written by tests/bench/product_table.py, which measures the kernels.
// The most rows of a product that reads its second operand in place instead of packing it.
#pragma once

namespace husk::host {

// They depend on the depth of the product: the first number is for k < kDepthLimits[0], and so on.
constexpr int kDepths = 7;
constexpr int kDepthLimits[kDepths - 1] = {24, 48, 96, 192, 512, 2048};

struct InPlaceRows {
  int columns[kDepths];  // if the columns of the second operand are contiguous
  int rows[kDepths];     // if its rows are
};

// By instruction set, and by the dtype f64, f32, f16 and bf16. 64-bit Arm was not measured and
// takes the rows of the baseline.

// CPU: AMD EPYC.
constexpr InPlaceRows kInPlaceBaseline[] = {
    {{25, 32, 32, 32, 32, 32, 31}, {32, 32, 32, 32, 32, 32, 32}},
    {{4, 7, 32, 32, 32, 31, 32}, {32, 32, 32, 32, 32, 32, 32}},
    {{4, 4, 4, 4, 4, 4, 4}, {4, 4, 4, 4, 4, 4, 4}},
    {{2, 3, 4, 4, 4, 7, 7}, {4, 4, 4, 4, 4, 4, 4}}};
// CPU: AMD EPYC.
constexpr InPlaceRows kInPlaceAvx2[] = {{{3, 6, 8, 7, 7, 4, 4}, {11, 16, 16, 28, 32, 28, 27}},
                                        {{0, 2, 2, 3, 4, 13, 10}, {11, 20, 24, 31, 31, 28, 15}},
                                        {{1, 2, 3, 5, 8, 7, 14}, {13, 19, 20, 20, 25, 20, 19}},
                                        {{1, 2, 4, 8, 8, 8, 12}, {4, 4, 7, 7, 7, 8, 10}}};
// CPU: AMD EPYC.
constexpr InPlaceRows kInPlaceAvx512[] = {{{2, 2, 6, 13, 29, 31, 27}, {13, 23, 18, 32, 18, 20, 24}},
                                          {{1, 3, 6, 10, 25, 32, 32}, {22, 21, 21, 18, 32, 32, 30}},
                                          {{2, 3, 6, 11, 25, 32, 32}, {26, 23, 30, 30, 31, 32, 32}},
                                          {{2, 3, 5, 9, 15, 30, 32}, {17, 17, 21, 18, 22, 32, 32}}};
// CPU: AMD EPYC.
constexpr InPlaceRows kInPlaceBf16[] = {{{2, 1, 2, 6, 17, 32, 32}, {5, 4, 4, 5, 5, 6, 8}}};
// CPU: Intel(R) Xeon(R) Processor.
constexpr InPlaceRows kInPlaceAmx[] = {{{7, 2, 2, 2, 2, 4, 6}, {5, 2, 1, 1, 1, 4, 3}}};

}  // namespace husk::host
