// The cells of a GRU and of simple recurrent networks as their kernels see them.
#pragma once

#include <cstdint>

namespace husk::host {

enum class Recurrence : int32_t { Gru, Tanh, Relu };

// The gates of a step. Those of a GRU are, in torch's order: reset, update, new.
constexpr int64_t gates_of(Recurrence recurrence) { return recurrence == Recurrence::Gru ? 3 : 1; }

// One step of one sequence. `of_input` and `of_state` have what the input and the state `before`
// add to the gates, `size` elements each; those of `of_state` are adjacent. Strides are in
// elements. `after` gets the new state.
struct RecurrentCell {
  Recurrence recurrence;
  const float *of_input, *of_state, *before;
  float* after;
  int64_t input_stride, before_stride, after_stride, size;
};

// Computes after = new + sigmoid(update) * (before - new) with new = tanh(x + sigmoid(reset) * h),
// where x and h are what the input and the state add to that gate; or after = tanh(x + h), or
// relu(x + h). The same code is compiled for three instruction sets.
void recurrent_cell_baseline(const RecurrentCell& cell);
void recurrent_cell_avx2(const RecurrentCell& cell);
void recurrent_cell_avx512(const RecurrentCell& cell);

}  // namespace husk::host
