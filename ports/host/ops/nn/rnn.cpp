// aten::mkldnn_rnn_layer: one layer of an LSTM in one direction, in f32. As many sequences as fit
// are computed at a time. The state is kept in the outputs.
#include <cmath>

#include "core/arguments.h"
#include "core/element.h"
#include "device.h"
#include "error.h"
#include "linalg/product.h"

namespace husk::host {

namespace {

constexpr int64_t kMaxGates = 49152;  // gate values that fit on the stack
constexpr int64_t kGateWork = 32;     // the work of the functions of one value of the state

struct Lstm {
  Cancellation* cancellation;
  husk_op_arg input, input_weight;  // with safe strides: the inputs may have no elements
  const husk_op_arg *state_weight, *input_bias, *state_bias, *state, *cell, *out, *last_state,
      *last_cell;
  const Device* device;
  int64_t steps, sequences, width, hidden;
  bool reverse;
};

float sigmoid(float x) { return 1 / (1 + std::exp(-x)); }

// gates = a * transposed(weight) + self.
void multiply(const Lstm& l, MatrixView a, const husk_op_arg& weight, float* gates, int64_t rows,
              int64_t depth, MatrixView self) {
  Product p = {};
  p.dtype = HUSK_F32;
  p.m = rows;
  p.n = 4 * l.hidden;
  p.k = depth;
  p.a = a;
  p.b = {weight.data, weight.strides[1], weight.strides[0]};
  p.self = self;
  p.out = gates;
  p.out_row = 4 * l.hidden;
  p.out_column = 1;
  p.alpha = p.beta = 1;
  p.cancellation = l.cancellation;
  product_run(*l.device, p);
}

// The rows of a state from sequence `first` on. A state has shape [1, sequences, hidden] or
// [sequences, hidden].
MatrixView rows_of(const husk_op_arg& tensor, int64_t first) {
  const int32_t row = tensor.rank - 2;
  return {data_of<float>(tensor) + first * tensor.strides[row], tensor.strides[row],
          tensor.strides[row + 1]};
}

MatrixView step_of(const husk_op_arg& tensor, int64_t step, int64_t first) {
  return {data_of<float>(tensor) + step * tensor.strides[0] + first * tensor.strides[1],
          tensor.strides[1], tensor.strides[2]};
}

float& at(const MatrixView& view, int64_t row, int64_t column) {
  const auto* data = static_cast<const float*>(view.data);
  return const_cast<float*>(data)[row * view.row + column * view.column];
}

void run(const Lstm& l) {
  float gates[kMaxGates];
  const int64_t max_rows = kMaxGates / (4 * l.hidden);
  for (int64_t first = 0; first < l.sequences; first += max_rows) {
    if (l.cancellation->ends(max_rows * l.hidden)) return;
    const int64_t rows = l.sequences - first < max_rows ? l.sequences - first : max_rows;
    const MatrixView cell = rows_of(*l.cell, first), last_cell = rows_of(*l.last_cell, first),
                     last = rows_of(*l.last_state, first);
    MatrixView before = rows_of(*l.state, first);
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t h = 0; h < l.hidden; ++h) {
        at(last_cell, i, h) = at(cell, i, h);
        at(last, i, h) = at(before, i, h);
      }
    }
    for (int64_t n = 0; n < l.steps; ++n) {
      const int64_t step = l.reverse ? l.steps - 1 - n : n;
      if (l.cancellation->ends(rows * l.hidden * kGateWork)) return;
      MatrixView bias{};
      if (l.input_bias) bias = {l.input_bias->data, 0, l.input_bias->strides[0]};
      multiply(l, step_of(l.input, step, first), l.input_weight, gates, rows, l.width, bias);
      multiply(l, before, *l.state_weight, gates, rows, l.hidden, {gates, 4 * l.hidden, 1});
      const MatrixView out = step_of(*l.out, step, first);
      for (int64_t i = 0; i < rows; ++i) {
        const float* gate = gates + i * 4 * l.hidden;
        for (int64_t h = 0; h < l.hidden; ++h) {
          float values[4];
          for (int g = 0; g < 4; ++g) {
            const int64_t gate_index = g * l.hidden + h;
            values[g] = gate[gate_index] +
                        (l.state_bias
                             ? data_of<float>(*l.state_bias)[gate_index * l.state_bias->strides[0]]
                             : 0);
          }
          float& c = at(last_cell, i, h);
          c = sigmoid(values[1]) * c + sigmoid(values[0]) * std::tanh(values[2]);
          at(out, i, h) = at(last, i, h) = sigmoid(values[3]) * std::tanh(c);
        }
      }
      before = out;
    }
  }
}

husk_status check_state(const Arguments& args, uint32_t index, const Lstm& l) {
  HUSK_TRY(args.check_tensor(index, 2, 3));
  HUSK_TRY(args.check_dtype(index, HUSK_F32));
  const int32_t rank = args[index].rank;
  if (rank == 3) HUSK_TRY(args.check_size(index, 0, 1, "one layer"));
  HUSK_TRY(args.check_size(index, rank - 2, l.sequences, "the input's sequences"));
  return args.check_size(index, rank - 1, l.hidden, "hidden_size");
}

husk_status check(const Arguments& args, Lstm& l) {
  HUSK_TRY(args.check_tensor(0, 3, 3));
  if (args[0].dtype != HUSK_F32) return args.unsupported_dtype(0);
  int64_t mode = 0, layers = 0;
  bool bidirectional = false, batch_first = false, train = false, biases = false;
  HUSK_TRY(args.get_bool(7, l.reverse));
  HUSK_TRY(args.check_ints(8, 0));
  HUSK_TRY(args.get_int(9, mode));
  HUSK_TRY(args.get_int(10, l.hidden));
  HUSK_TRY(args.get_int(11, layers));
  HUSK_TRY(args.get_bool(12, biases));
  HUSK_TRY(args.get_bool(13, bidirectional));
  HUSK_TRY(args.get_bool(14, batch_first));
  HUSK_TRY(args.get_bool(15, train));
  if (mode != 2) return args.argument_error(9, HUSK_UNSUPPORTED, "is not 2 (LSTM)");
  if (train)
    return args.argument_error(15, HUSK_UNSUPPORTED, "is true: no workspace for training is made");
  if (l.hidden < 1 || l.hidden > kMaxGates / 4)
    return args.argument_error(10, HUSK_UNSUPPORTED, "is not between 1 and 12288");
  l.steps = args[0].sizes[0];
  l.sequences = args[0].sizes[1];
  l.width = args[0].sizes[2];
  for (uint32_t i = 1; i < 3; ++i) {
    HUSK_TRY(args.check_tensor(i, 2, 2));
    HUSK_TRY(args.check_dtype(i, HUSK_F32));
    HUSK_TRY(args.check_size(i, 0, 4 * l.hidden, "four gates"));
    HUSK_TRY(args.check_size(i, 1, i == 1 ? l.width : l.hidden, "the input's, or hidden_size"));
  }
  for (uint32_t i = 3; i < 5 && biases; ++i) {
    HUSK_TRY(args.check_vector(i, 4 * l.hidden, "four gates"));
    HUSK_TRY(args.check_dtype(i, HUSK_F32));
  }
  constexpr uint32_t states[] = {5, 6, 17, 18};
  for (uint32_t i : states) HUSK_TRY(check_state(args, i, l));
  HUSK_TRY(args.check_tensor(16, 3, 3));
  HUSK_TRY(args.check_dtype(16, HUSK_F32));
  HUSK_TRY(args.check_size(16, 0, l.steps, "the input's steps"));
  HUSK_TRY(args.check_size(16, 1, l.sequences, "the input's sequences"));
  HUSK_TRY(args.check_size(16, 2, l.hidden, "hidden_size"));
  if (biases) {
    l.input_bias = &args[3];
    l.state_bias = &args[4];
  }
  return HUSK_OK;
}

}  // namespace

husk_status rnn_layer(const Arguments& args) {
  Lstm l{};
  l.cancellation = &args.cancellation;
  HUSK_TRY(check(args, l));
  l.input = with_safe_strides(args[0]);
  l.input_weight = with_safe_strides(args[1]);
  l.state_weight = &args[2];
  l.state = &args[5];
  l.cell = &args[6];
  l.out = &args[16];
  l.last_state = &args[17];
  l.last_cell = &args[18];
  HUSK_TRY(args.get_device(l.device));
  if (l.sequences > 0) run(l);
  return HUSK_OK;
}

}  // namespace husk::host
