// The cells of an LSTM as their kernels see them.
#pragma once

#include <cstdint>

namespace husk::host {

// One step of one sequence. `gates` has the sums of the products of the four gates, in torch's
// order: input, forget, cell, output, `hidden` adjacent elements each. Strides are in elements.
struct LstmCell {
  const float* gates;
  const float* bias;  // 4 * hidden elements that are added to the gates; null if there are none
  float *cell, *out, *last;
  int64_t bias_stride, cell_stride, out_stride, last_stride, hidden;
};

// Computes cell = sigmoid(forget) * cell + sigmoid(input) * tanh(gate), and
// out = last = sigmoid(output) * tanh(cell). The same code is compiled for three instruction sets.
void lstm_cell_baseline(const LstmCell& cell);
void lstm_cell_avx2(const LstmCell& cell);
void lstm_cell_avx512(const LstmCell& cell);

}  // namespace husk::host
