// The kernel of a recurrent cell, for the instruction set that the including file is compiled for.
#pragma once

#include "core/vector_math.h"
#include "nn/recurrent.h"
#include "nn/strided_vectors.h"

namespace husk::host {
namespace {

inline void run_recurrent_cell(const RecurrentCell& c) {
  constexpr int64_t L = kLaneCount<float>;
  for (int64_t h = 0; h < c.size; h += L) {
    const int64_t count = c.size - h < L ? c.size - h : L;
    const auto of_input = [&](int64_t gate) {
      return load_apart(c.of_input + (gate * c.size + h) * c.input_stride, c.input_stride, count);
    };
    const auto of_state = [&](int64_t gate) {
      return load_some<float>(c.of_state + gate * c.size + h, count);
    };
    Vector<float> after = of_input(0) + of_state(0);
    switch (c.recurrence) {
      case Recurrence::Gru: {
        const Vector<float> before = load_apart(c.before + h * c.before_stride, c.before_stride,
                                                count);
        const Vector<float> fresh = tanh(of_input(2) + sigmoid(after) * of_state(2));
        after = fresh + sigmoid(of_input(1) + of_state(1)) * (before - fresh);
        break;
      }
      case Recurrence::Tanh: after = tanh(after); break;
      case Recurrence::Relu: after = after < 0 ? Vector<float>{} : after; break;
    }
    store_apart(c.after + h * c.after_stride, c.after_stride, after, count);
  }
}

}  // namespace
}  // namespace husk::host
