// aten::mkldnn_rnn_layer: one layer of an LSTM in one direction, in f32. The products of the inputs
// are computed for as many steps at a time as fit into scratch memory. The state is kept in the
// outputs.
#include "nn/rnn.h"

#include <initializer_list>

#include "contracts.h"
#include "core/arguments.h"
#include "core/kernel_choice.h"
#include "device.h"
#include "error.h"
#include "linalg/product_parts.h"

namespace husk::host {

namespace {

constexpr double kCellWork = 24;  // a value of the state costs as much as so many products

struct Lstm {
  husk_op_arg input, input_weight;  // with safe strides: the inputs may have no elements
  const husk_op_arg *state_weight, *input_bias, *state_bias, *state, *cell, *out, *last_state,
      *last_cell;
  const void *packed_input_weight, *packed_state_weight;  // null if there is none
  Features cpu{};
  int64_t steps, sequences, width, hidden;
  bool reverse;
};

// A block of gate values: one row of 4 * hidden values for each sequence, `row` values apart.
struct Gates {
  float* data;
  int64_t row;
};

// gates = a * transposed(weight) + self.
void multiply(const Arguments& args, const Lstm& l, MatrixView a, const husk_op_arg& weight,
              const void* packed, Gates gates, int64_t rows, int64_t depth, MatrixView self) {
  Product p = {};
  p.dtype = HUSK_F32;
  p.m = rows;
  p.n = 4 * l.hidden;
  p.k = depth;
  p.a = a;
  p.b = {weight.data, weight.strides[1], weight.strides[0], {weight.dtype, 0}, {packed, 0}};
  p.self = self;
  p.out = gates.data;
  p.out_row = gates.row;
  p.out_column = 1;
  p.alpha = p.beta = 1;
  run_product_in_parts(args, l.cpu, p);
}

// The rows of a state from sequence `first` on. A state has shape [1, sequences, hidden] or
// [sequences, hidden].
MatrixView rows_of(const husk_op_arg& tensor, int64_t first) {
  const int32_t row = tensor.rank - 2;
  return {static_cast<const float*>(tensor.data) + first * tensor.strides[row], tensor.strides[row],
          tensor.strides[row + 1]};
}

// The rows of a step of a tensor with shape [steps, sequences, elements].
MatrixView step_of(const husk_op_arg& tensor, int64_t step, int64_t first) {
  return {
      static_cast<const float*>(tensor.data) + step * tensor.strides[0] + first * tensor.strides[1],
      tensor.strides[1], tensor.strides[2]};
}

float* row_of(const MatrixView& view, int64_t row) {
  return const_cast<float*>(static_cast<const float*>(view.data)) + row * view.row;
}

void copy_rows(const MatrixView& to, const MatrixView& from, int64_t rows, int64_t columns) {
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t h = 0; h < columns; ++h)
      row_of(to, i)[h * to.column] = row_of(from, i)[h * from.column];
}

// The sequences and steps whose gates are in scratch memory. The gates of step `low` come first.
struct Chunk {
  int64_t first, rows, low, steps;
};

// Computes the products of the inputs of a chunk. Whichever has more rows is one product: the
// sequences of a step, or the steps of a sequence.
void multiply_inputs(const Arguments& args, const Lstm& l, const Chunk& c, float* gates) {
  const int64_t row = 4 * l.hidden;
  MatrixView bias{};
  if (l.input_bias) bias = {l.input_bias->data, 0, l.input_bias->strides[0]};
  if (c.rows >= c.steps) {
    for (int64_t n = 0; n < c.steps; ++n)
      multiply(args, l, step_of(l.input, c.low + n, c.first), l.input_weight, l.packed_input_weight,
               {gates + n * c.rows * row, row}, c.rows, l.width, bias);
    return;
  }
  for (int64_t i = 0; i < c.rows; ++i) {
    MatrixView steps = step_of(l.input, c.low, c.first + i);
    steps.row = l.input.strides[0];
    multiply(args, l, steps, l.input_weight, l.packed_input_weight, {gates + i * row, c.rows * row},
             c.steps, l.width, bias);
  }
}

using CellRun = void (*)(const LstmCell& cell);

CellRun cell_of(Features cpu) {
  constexpr KernelFor<CellRun> kCells[] = HUSK_KERNELS(lstm_cell);
  return best_kernel(cpu, kCells);
}

// Computes the state after `step` from the state `before` it.
void run_step(const Arguments& args, const Lstm& l, const Chunk& c, int64_t step,
              const MatrixView& before, float* gates) {
  const int64_t row = 4 * l.hidden;
  multiply(args, l, before, *l.state_weight, l.packed_state_weight, {gates, row}, c.rows, l.hidden,
           {gates, row, 1});
  const MatrixView out = step_of(*l.out, step, c.first), cell = rows_of(*l.last_cell, c.first),
                   last = rows_of(*l.last_state, c.first);
  const double work = static_cast<double>(c.rows) * static_cast<double>(l.hidden) * kCellWork;
  const CellRun run_cell = cell_of(l.cpu);
  run_in_parts(args, c.rows, work, [&](Parts& taken) {
    for (int64_t i = 0; taken.next(i);)
      run_cell({gates + i * row, l.state_bias ? static_cast<float*>(l.state_bias->data) : nullptr,
                row_of(cell, i), row_of(out, i), row_of(last, i),
                l.state_bias ? l.state_bias->strides[0] : 0, cell.column, out.column, last.column,
                l.hidden});
  });
}

void run(const Arguments& args, const Lstm& l) {
  float* const gates = reinterpret_cast<float*>(static_cast<char*>(args.scratch()) +
                                                kProductScratch);
  const int64_t row = 4 * l.hidden, max_rows = kMaxGates / row;
  Chunk c = {};
  for (; c.first < l.sequences; c.first += c.rows) {
    if (args.cancellation.ends(max_rows * l.hidden)) return;
    c.rows = l.sequences - c.first < max_rows ? l.sequences - c.first : max_rows;
    copy_rows(rows_of(*l.last_cell, c.first), rows_of(*l.cell, c.first), c.rows, l.hidden);
    copy_rows(rows_of(*l.last_state, c.first), rows_of(*l.state, c.first), c.rows, l.hidden);
    MatrixView before = rows_of(*l.state, c.first);
    for (int64_t done = 0; done < l.steps; done += c.steps) {
      c.steps = max_rows / c.rows;
      if (c.steps > l.steps - done) c.steps = l.steps - done;
      c.low = l.reverse ? l.steps - done - c.steps : done;
      multiply_inputs(args, l, c, gates);
      for (int64_t n = 0; n < c.steps; ++n) {
        const int64_t at = l.reverse ? c.steps - 1 - n : n;
        if (args.cancellation.ended()) return;
        run_step(args, l, c, c.low + at, before, gates + at * c.rows * row);
        before = step_of(*l.out, c.low + at, c.first);
      }
    }
  }
}

husk_status check_state(const Arguments& args, ArgumentPlace index, const Lstm& l) {
  HUSK_TRY(args.check_tensor(index, 2, 3));
  HUSK_TRY(args.check_dtype(index, HUSK_F32));
  const int32_t rank = args[index].rank;
  if (rank == 3) HUSK_TRY(args.check_size(index, 0, 1, "one layer"));
  HUSK_TRY(args.check_size(index, rank - 2, l.sequences, "the input's sequences"));
  return args.check_size(index, rank - 1, l.hidden, "hidden_size");
}

husk_status check(const Arguments& args, Lstm& l) {
  constexpr ArgumentsOf named("rnn_layer");
  constexpr uint32_t kInput = named["input"], kWeight0 = named["weight0"],
                     kWeight1 = named["weight1"], kWeight2 = named["weight2"],
                     kWeight3 = named["weight3"], kHx = named["hx"], kCx = named["cx"],
                     kReverse = named["reverse"], kBatchSizes = named["batch_sizes"],
                     kMode = named["mode"], kHiddenSize = named["hidden_size"],
                     kNumLayers = named["num_layers"], kHasBiases = named["has_biases"],
                     kBidirectional = named["bidirectional"], kBatchFirst = named["batch_first"],
                     kTrain = named["train"], kOutput = named["output"], kHy = named["hy"],
                     kCy = named["cy"];
  HUSK_TRY(args.check_tensor(kInput, 3, 3));
  if (args[kInput].dtype != HUSK_F32) return args.unsupported_dtype(kInput);
  int64_t mode = 0, layers = 0;
  bool bidirectional = false, batch_first = false, train = false, biases = false;
  HUSK_TRY(args.get_bool(kReverse, l.reverse));
  HUSK_TRY(args.check_ints(kBatchSizes, 0));
  HUSK_TRY(args.get_int(kMode, mode));
  HUSK_TRY(args.get_int(kHiddenSize, l.hidden));
  HUSK_TRY(args.get_int(kNumLayers, layers));
  HUSK_TRY(args.get_bool(kHasBiases, biases));
  HUSK_TRY(args.get_bool(kBidirectional, bidirectional));
  HUSK_TRY(args.get_bool(kBatchFirst, batch_first));
  HUSK_TRY(args.get_bool(kTrain, train));
  if (mode != 2) return args.argument_error(kMode, HUSK_UNSUPPORTED, "is not 2 (LSTM)");
  if (train)
    return args.argument_error(kTrain, HUSK_UNSUPPORTED,
                               "is true: no workspace for training is made");
  if (l.hidden < 1 || l.hidden > kMaxGates / 4)
    return args.argument_error(kHiddenSize, HUSK_UNSUPPORTED, "is not between 1 and 12288");
  l.steps = args[kInput].sizes[0];
  l.sequences = args[kInput].sizes[1];
  l.width = args[kInput].sizes[2];
  for (uint32_t i : {kWeight0, kWeight1}) {
    HUSK_TRY(args.check_tensor(i, 2, 2));
    HUSK_TRY(args.check_dtype(i, HUSK_F32));
    HUSK_TRY(args.check_size(i, 0, 4 * l.hidden, "four gates"));
    HUSK_TRY(
        args.check_size(i, 1, i == kWeight0 ? l.width : l.hidden, "the input's, or hidden_size"));
  }
  for (uint32_t i : {kWeight2, kWeight3}) {
    if (!biases) break;
    HUSK_TRY(args.check_vector(i, 4 * l.hidden, "four gates"));
    HUSK_TRY(args.check_dtype(i, HUSK_F32));
  }
  for (uint32_t i : {kHx, kCx, kHy, kCy}) HUSK_TRY(check_state(args, i, l));
  HUSK_TRY(args.check_tensor(kOutput, 3, 3));
  HUSK_TRY(args.check_dtype(kOutput, HUSK_F32));
  HUSK_TRY(args.check_size(kOutput, 0, l.steps, "the input's steps"));
  HUSK_TRY(args.check_size(kOutput, 1, l.sequences, "the input's sequences"));
  HUSK_TRY(args.check_size(kOutput, 2, l.hidden, "hidden_size"));
  if (biases) {
    l.input_bias = &args[kWeight2];
    l.state_bias = &args[kWeight3];
  }
  return HUSK_OK;
}

}  // namespace

husk_status rnn_layer(const Arguments& args) {
  constexpr ArgumentsOf named("rnn_layer");
  constexpr uint32_t kInput = named["input"], kWeight0 = named["weight0"],
                     kWeight1 = named["weight1"], kHx = named["hx"], kCx = named["cx"],
                     kOutput = named["output"], kHy = named["hy"], kCy = named["cy"];
  Lstm l{};
  HUSK_TRY(check(args, l));
  l.input = with_safe_strides(args[kInput]);
  l.input_weight = with_safe_strides(args[kWeight0]);
  l.state_weight = &args[kWeight1];
  l.state = &args[kHx];
  l.cell = &args[kCx];
  l.out = &args[kOutput];
  l.last_state = &args[kHy];
  l.last_cell = &args[kCy];
  l.packed_input_weight = args.packed(kWeight0);
  l.packed_state_weight = args.packed(kWeight1);
  HUSK_TRY(args.get_features(l.cpu));
  if (l.sequences > 0) run(args, l);
  return HUSK_OK;
}

husk_status pack_rnn_layer(const Arguments& args, husk_packing& packing) {
  constexpr ArgumentsOf named("rnn_layer");
  constexpr uint32_t kWeight0 = named["weight0"], kWeight1 = named["weight1"];
  for (const uint32_t weight : {kWeight0, kWeight1})
    HUSK_TRY(pack_operand(args, weight, 1, packing));
  return HUSK_OK;
}

}  // namespace husk::host
