// The kernel of an LSTM's cell, for the instruction set that the including file is compiled for.
#pragma once

#include "core/vector_math.h"
#include "nn/rnn.h"
#include "nn/strided_vectors.h"

namespace husk::host {
namespace {

inline void run_lstm_cell(const LstmCell& c) {
  constexpr int64_t L = kLaneCount<float>;
  for (int64_t h = 0; h < c.hidden; h += L) {
    const int64_t count = c.hidden - h < L ? c.hidden - h : L;
    const auto gate = [&](int64_t number) {
      const int64_t first = number * c.hidden + h;
      const Vector<float> sum = load_some<float>(c.gates + first, count);
      return c.bias ? sum + load_apart(c.bias + first * c.bias_stride, c.bias_stride, count) : sum;
    };
    float* cell = c.cell + h * c.cell_stride;
    const Vector<float> before = load_apart(cell, c.cell_stride, count);
    const Vector<float> after = sigmoid(gate(1)) * before + sigmoid(gate(0)) * tanh(gate(2));
    const Vector<float> out = sigmoid(gate(3)) * tanh(after);
    store_apart(cell, c.cell_stride, after, count);
    store_apart(c.out + h * c.out_stride, c.out_stride, out, count);
    store_apart(c.last + h * c.last_stride, c.last_stride, out, count);
  }
}

}  // namespace
}  // namespace husk::host
