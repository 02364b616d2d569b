// husk::recurrent_layer: one direction of a layer of a GRU or of a simple recurrent network, in
// f32. The products of the inputs are an argument, since a program computes them as one product.
#include "nn/recurrent.h"

#include "contracts.h"
#include "core/arguments.h"
#include "core/kernel_choice.h"
#include "device.h"
#include "error.h"
#include "linalg/product_parts.h"

namespace husk::host {

namespace {

constexpr double kRecurrentWork = 16;  // a value of the state costs as much as so many products

// `states` has the state before the first step and those after each one, or, if the layer is
// reversed, those after each one and then the one before the last step.
struct RecurrentLayer {
  Recurrence recurrence;
  husk_op_arg gates;  // with safe strides: there may be no steps
  const husk_op_arg *hidden, *weight, *bias, *states;
  const void* packed_weight;  // null if there is none
  Features cpu{};
  int64_t steps, sequences, size;
  bool is_reverse;

  int64_t row() const { return gates_of(recurrence) * size; }  // the values of a sequence's gates
};

// Rows of `size` elements of a tensor, one for each sequence.
struct StateRows {
  float* data;
  int64_t row, column;

  float* operator[](int64_t i) const { return data + i * row; }
};

// The rows of the last two dimensions of a tensor, of index `at` along one more before them.
StateRows state_rows(const husk_op_arg& tensor, int64_t first, int64_t at = 0) {
  const int64_t *strides = tensor.strides + tensor.rank - 2,
                offset = tensor.rank == 3 ? at * tensor.strides[0] : 0;
  return {static_cast<float*>(tensor.data) + offset + first * strides[0], strides[0], strides[1]};
}

// of_state = before * transposed(weight) + bias.
void multiply_state(const Arguments& args, const RecurrentLayer& l, const StateRows& before,
                    float* of_state, int64_t rows) {
  Product p = {};
  p.dtype = HUSK_F32;
  p.m = rows;
  p.n = l.row();
  p.k = l.size;
  p.a = {before.data, before.row, before.column};
  p.b = {l.weight->data,
         l.weight->strides[1],
         l.weight->strides[0],
         {HUSK_F32, 0},
         {l.packed_weight, 0}};
  if (l.bias) p.self = {l.bias->data, 0, l.bias->strides[0]};
  p.out = of_state;
  p.out_row = p.n;
  p.out_column = 1;
  p.alpha = p.beta = 1;
  run_product_in_parts(args, l.cpu, p);
}

using RecurrentCellRun = void (*)(const RecurrentCell& cell);

RecurrentCellRun recurrent_cell_of(Features cpu) {
  constexpr KernelFor<RecurrentCellRun> kCells[] = HUSK_KERNELS(recurrent_cell);
  return best_kernel(cpu, kCells);
}

// Computes all steps of `rows` sequences, whose products with a state fit into scratch memory.
void run_sequences(const Arguments& args, const RecurrentLayer& l, int64_t first, int64_t rows) {
  float* const of_state = reinterpret_cast<float*>(static_cast<char*>(args.scratch()) +
                                                   kProductScratch);
  const RecurrentCellRun run_cell = recurrent_cell_of(l.cpu);
  const double work = static_cast<double>(rows) * static_cast<double>(l.size) * kRecurrentWork;
  const StateRows hidden = state_rows(*l.hidden, first);
  StateRows before = state_rows(*l.states, first, l.is_reverse ? l.steps : 0);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t h = 0; h < l.size; ++h)
      before[i][h * before.column] = hidden[i][h * hidden.column];
  for (int64_t n = 0; n < l.steps; ++n) {
    if (args.cancellation.ends(rows * l.size)) return;
    const int64_t step = l.is_reverse ? l.steps - 1 - n : n;
    multiply_state(args, l, before, of_state, rows);
    const StateRows of_input = state_rows(l.gates, first, step),
                    after = state_rows(*l.states, first, l.is_reverse ? step : step + 1);
    run_in_parts(args, rows, work, [&](Parts& taken) {
      for (int64_t i = 0; taken.next(i);)
        run_cell({l.recurrence, of_input[i], of_state + i * l.row(), before[i], after[i],
                  of_input.column, before.column, after.column, l.size});
    });
    before = after;
  }
}

husk_status get_recurrence(const Arguments& args, ArgumentPlace at, Recurrence& out) {
  constexpr struct {
    const char* name;
    Recurrence recurrence;
  } kRecurrences[] = {
      {"gru", Recurrence::Gru}, {"rnn_tanh", Recurrence::Tanh}, {"rnn_relu", Recurrence::Relu}};
  if (!args.none(at) && args[at].kind == HUSK_ARG_STRING && args[at].string) {
    for (const auto& row : kRecurrences) {
      if (__builtin_strcmp(row.name, args[at].string) != 0) continue;
      out = row.recurrence;
      return HUSK_OK;
    }
  }
  return args.argument_error(at, HUSK_UNSUPPORTED, "is none of gru, rnn_tanh, rnn_relu");
}

husk_status check_recurrent(const Arguments& args, RecurrentLayer& l) {
  constexpr ArgumentsOf named("recurrent_layer");
  constexpr uint32_t kKind = named["kind"], kGates = named["gates"], kHidden = named["hidden"],
                     kCell = named["cell"], kWeight = named["weight"], kBias = named["bias"],
                     kReverse = named["is_reverse"], kStates = named["states"];
  HUSK_TRY(get_recurrence(args, kKind, l.recurrence));
  HUSK_TRY(args.check_tensor(kGates, 3, 3));
  if (args[kGates].dtype != HUSK_F32) return args.unsupported_dtype(kGates);
  HUSK_TRY(args.check_tensor(kHidden, 2, 2));
  HUSK_TRY(args.check_tensor(kWeight, 2, 2));
  HUSK_TRY(args.check_tensor(kStates, 3, 3));
  for (uint32_t i : {kHidden, kWeight, kStates}) HUSK_TRY(args.check_dtype(i, HUSK_F32));
  if (!args.none(kCell))
    return args.argument_error(kCell, HUSK_INVALID_ARGUMENT, "is for an LSTM, which this is not");
  HUSK_TRY(args.get_bool(kReverse, l.is_reverse));
  l.steps = args[kGates].sizes[0];
  l.sequences = args[kGates].sizes[1];
  l.size = args[kHidden].sizes[1];
  if (l.size < 1 || l.size > kMaxGates / gates_of(l.recurrence))
    return args.argument_error(kHidden, HUSK_UNSUPPORTED,
                               "has rows that are not of 1 to 49152 elements, a third for a gru");
  HUSK_TRY(args.check_size(kGates, 2, l.row(), "the gates of hidden"));
  HUSK_TRY(args.check_size(kHidden, 0, l.sequences, "the sequences of gates"));
  HUSK_TRY(args.check_size(kWeight, 0, l.row(), "the gates of hidden"));
  HUSK_TRY(args.check_size(kWeight, 1, l.size, "the elements of hidden"));
  HUSK_TRY(args.check_size(kStates, 0, l.steps + 1, "the steps of gates, and one"));
  HUSK_TRY(args.check_size(kStates, 1, l.sequences, "the sequences of gates"));
  HUSK_TRY(args.check_size(kStates, 2, l.size, "the elements of hidden"));
  if (!args.none(kBias)) {
    HUSK_TRY(args.check_vector(kBias, l.row(), "the gates of hidden"));
    HUSK_TRY(args.check_dtype(kBias, HUSK_F32));
    l.bias = &args[kBias];
  }
  l.gates = with_safe_strides(args[kGates]);
  l.hidden = &args[kHidden];
  l.weight = &args[kWeight];
  l.states = &args[kStates];
  l.packed_weight = args.packed(kWeight);
  return args.get_features(l.cpu);
}

}  // namespace

husk_status recurrent_layer(const Arguments& args) {
  RecurrentLayer l{};
  HUSK_TRY(check_recurrent(args, l));
  const int64_t most = kMaxGates / l.row();
  for (int64_t first = 0; first < l.sequences && !args.cancellation.ended(); first += most)
    run_sequences(args, l, first, l.sequences - first < most ? l.sequences - first : most);
  return HUSK_OK;
}

husk_status pack_recurrent_layer(const Arguments& args, husk_packing& packing) {
  constexpr uint32_t kWeight = ArgumentsOf("recurrent_layer")["weight"];
  return pack_operand(args, kWeight, 1, packing);
}

}  // namespace husk::host
