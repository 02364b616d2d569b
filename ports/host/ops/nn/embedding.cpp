// aten::_embedding_bag, _embedding_bag_forward_only and embedding_renorm. Each index and offset is
// read once and checked where it is used, because another thread may change it.
#include <cmath>
#include <initializer_list>

#include "contracts.h"
#include "core/arguments.h"
#include "core/arithmetic.h"
#include "core/loop.h"
#include "error.h"

namespace husk::host {

namespace {

enum class Mode { Sum = 0, Mean = 1, Max = 2 };

struct Bags {
  const husk_op_arg *weight, *indices, *offsets, *scales;   // scales may be null
  const husk_op_arg *out, *bag_of, *lengths, *max_indices;  // all but `out` may be null
  Mode mode;
  int64_t count, padding;  // padding is an index that is skipped, or -1

  int64_t index(int64_t i) const {
    return get_index(indices->dtype, indices->data, i * indices->strides[0]);
  }
  int64_t start(int64_t bag) const {
    return bag < offsets->sizes[0]
               ? get_index(offsets->dtype, offsets->data, bag * offsets->strides[0])
               : indices->sizes[0];
  }
  // Reads the indices [from, to) of a bag. Returns false if they are not among all indices.
  bool read(int64_t bag, int64_t& from, int64_t& to) const {
    from = start(bag);
    to = start(bag + 1);
    return from >= 0 && from <= to && to <= indices->sizes[0];
  }
};

husk_status wrong_index(const Arguments& args, int64_t index, const husk_op_arg& weight) {
  return fail(args.error, HUSK_INVALID_INPUT,
              "%s: index %lld is out of range for a table of %lld rows", args.op,
              static_cast<long long>(index), static_cast<long long>(weight.sizes[0]));
}

husk_status check_bags(const Arguments& args, const Bags& b) {
  int64_t wrong = 0, from = 0, to = 0;
  const bool in_range = each_index_while(args.cancellation, b.count, [&](int64_t bag) {
    wrong = bag;
    return b.read(bag, from, to) && (bag > 0 || from == 0);
  });
  if (in_range) return HUSK_OK;
  return fail(args.error, HUSK_INVALID_INPUT,
              "%s: offsets of bag %lld are %lld to %lld, of %lld indices", args.op,
              static_cast<long long>(wrong), static_cast<long long>(from),
              static_cast<long long>(to), static_cast<long long>(b.indices->sizes[0]));
}

constexpr int64_t kColumns = 256;  // columns that are summed at once

// Adds `columns` elements of a row, times `scale`, to sums.
template <class T, class V>
void add_row(const T* from, int64_t step, V scale, V* sums, int64_t columns) {
  if (step == 1) {
    for (int64_t c = 0; c < columns; ++c) sums[c] += scale * get(from + c);
  } else {
    for (int64_t c = 0; c < columns; ++c) sums[c] += scale * get(from + c * step);
  }
}

// Asks for the elements of the row that is added in a while, of this bag or of a later one. Rows
// lie in any order, so that the CPU cannot foresee which one comes next.
template <class T>
void ask_for_row(const Bags& b, int64_t i, int64_t column, int64_t columns) {
  constexpr int64_t kAhead = 8, kLine = 64 / static_cast<int64_t>(sizeof(T));
  if (i >= b.indices->sizes[0] - kAhead || b.weight->strides[1] != 1) return;
  const int64_t row = b.index(i + kAhead);
  if (!is_within(row, b.weight->sizes[0])) return;
  const T* from = data_of<T>(*b.weight) + row * b.weight->strides[0] + column;
  for (int64_t c = 0; c < columns; c += kLine) __builtin_prefetch(from + c);
}

// Fails if an index is not one of a row, or if the bag has changed since it was checked.
template <class T>
husk_status run_bag(const Arguments& args, const Bags& b, int64_t bag, int64_t column,
                    int64_t columns) {
  using V = Value<T>;
  V sums[kColumns];
  int64_t best[kColumns], length = 0, first = 0, end = 0;
  for (int64_t c = 0; c < columns; ++c) sums[c] = 0;
  if (b.mode == Mode::Max)
    for (int64_t c = 0; c < columns; ++c) best[c] = 0;
  if (!b.read(bag, first, end)) return args.tensor_changed();
  for (int64_t i = first; i < end; ++i) {
    if (args.cancellation.ends(columns)) return HUSK_CANCELLED;
    const int64_t row = b.index(i);
    if (!is_within(row, b.weight->sizes[0])) return wrong_index(args, row, *b.weight);
    ask_for_row<T>(b, i, column, columns);
    if (row == b.padding) continue;
    const T* from = data_of<T>(*b.weight) + row * b.weight->strides[0] +
                    column * b.weight->strides[1];
    const V scale = b.scales ? get(data_of<T>(*b.scales) + i * b.scales->strides[0]) : V(1);
    ++length;
    if (b.mode != Mode::Max) {
      add_row(from, b.weight->strides[1], scale, sums, columns);
      continue;
    }
    for (int64_t c = 0; c < columns; ++c) {
      const V value = get(from + c * b.weight->strides[1]);
      if (length == 1 || value > sums[c] || is_nan(value)) {
        sums[c] = value;
        best[c] = row;
      }
    }
  }
  T* to = writable<T>(*b.out) + bag * b.out->strides[0] + column * b.out->strides[1];
  for (int64_t c = 0; c < columns; ++c) {
    if (b.mode == Mode::Mean && length > 0) sums[c] /= static_cast<V>(length);
    set(to + c * b.out->strides[1], sums[c]);
    if (b.mode == Mode::Max && b.max_indices && b.max_indices->rank == 2)
      set_index(*b.max_indices,
                bag * b.max_indices->strides[0] + (column + c) * b.max_indices->strides[1],
                best[c]);
  }
  return HUSK_OK;
}

// Writes the outputs that PyTorch's backward pass reads: the bag of each index and the length of
// each bag.
husk_status write_backward_outputs(const Arguments& args, const Bags& b) {
  Cancellation& cancellation = args.cancellation;
  // If the last offset is included, PyTorch's outputs have one element more than there are bags.
  const husk_op_arg* const bag_outputs[] = {b.lengths, b.max_indices};
  for (const husk_op_arg* output : bag_outputs) {
    if (!output || output->rank != 1) continue;
    each_index(cancellation, output->sizes[0] - b.count, [&](int64_t after) {
      set_index(*output, (b.count + after) * output->strides[0], 0);
    });
  }
  const bool counts = b.bag_of || b.mode != Mode::Sum;
  const bool complete = each_index_while(cancellation, b.count, [&](int64_t bag) {
    int64_t length = 0, first = 0, end = 0;
    if (!b.read(bag, first, end)) return false;
    const bool counted = each_index(cancellation, counts ? end - first : 0, [&](int64_t after) {
      const int64_t i = first + after;
      if (b.bag_of) set_index(*b.bag_of, i * b.bag_of->strides[0], bag);
      length += b.index(i) != b.padding;
    });
    // PyTorch writes 0 for sums, because their backward pass does not read the lengths.
    if (b.lengths)
      set_index(*b.lengths, bag * b.lengths->strides[0], b.mode == Mode::Sum ? 0 : length);
    if (b.max_indices && b.max_indices->rank == 1)
      set_index(*b.max_indices, bag * b.max_indices->strides[0], b.mode == Mode::Mean ? length : 0);
    return counted;
  });
  return complete ? husk_status{HUSK_OK} : args.tensor_changed();
}

// Reads an optional output. `out` becomes null if the output is left out or empty.
husk_status get_optional_output(const Arguments& args, ArgumentPlace at, int64_t length,
                                const husk_op_arg*& out) {
  out = nullptr;
  if (args.none(at)) return HUSK_OK;
  HUSK_TRY(args.check_tensor(at, 1, 2));
  HUSK_TRY(args.check_index_dtype(at));
  if (numel(args[at]) == 0) return HUSK_OK;
  if (args[at].sizes[0] < length) HUSK_TRY(args.check_size(at, 0, length, "one for each"));
  out = &args[at];
  return HUSK_OK;
}

}  // namespace

husk_status embedding_bag(const Arguments& args) {
  constexpr ArgumentsOf named("embedding_bag");
  constexpr uint32_t kWeight = named["weight"], kIndices = named["indices"],
                     kOffsets = named["offsets"], kMode = named["mode"],
                     kPerSampleWeights = named["per_sample_weights"],
                     kIncludeLastOffset = named["include_last_offset"],
                     kPaddingIdx = named["padding_idx"], kOutput = named["output"],
                     kOffset2bag = named["offset2bag"], kBagSize = named["bag_size"],
                     kMaxIndices = named["max_indices"];
  HUSK_TRY(args.check_tensor(kWeight, 2, 2));
  HUSK_TRY(args.check_tensor(kIndices, 1, 1));
  HUSK_TRY(args.check_tensor(kOffsets, 1, 1));
  for (uint32_t i : {kIndices, kOffsets}) HUSK_TRY(args.check_index_dtype(i));
  Bags b{};
  b.weight = &args[kWeight];
  b.indices = &args[kIndices];
  b.offsets = &args[kOffsets];
  int64_t mode = 0;
  bool last = false;
  HUSK_TRY(args.get_int(kMode, mode));
  if (mode < 0 || mode > 2)
    return args.argument_error(kMode, HUSK_INVALID_ARGUMENT, "is not 0 (sum), 1 (mean) or 2 (max)");
  b.mode = static_cast<Mode>(mode);
  if (!args.none(kPerSampleWeights)) {
    HUSK_TRY(args.check_vector(kPerSampleWeights, b.indices->sizes[0], "one for each index"));
    HUSK_TRY(args.check_same_dtype(kPerSampleWeights, kWeight));
    b.scales = &args[kPerSampleWeights];
  }
  HUSK_TRY(args.get_bool(kIncludeLastOffset, last));
  HUSK_TRY(args.get_int(kPaddingIdx, b.padding));
  if (b.padding < 0) b.padding = -1;
  b.count = b.offsets->sizes[0] - (last ? 1 : 0);
  if (b.count < 0)
    return args.argument_error(kOffsets, HUSK_INVALID_ARGUMENT, "has no last offset");
  HUSK_TRY(args.check_tensor(kOutput, 2, 2));
  HUSK_TRY(args.check_same_dtype(kOutput, kWeight));
  HUSK_TRY(args.check_size(kOutput, 0, b.count, "one for each bag"));
  HUSK_TRY(args.check_size(kOutput, 1, b.weight->sizes[1], "the columns of the table"));
  b.out = &args[kOutput];
  HUSK_TRY(get_optional_output(args, kOffset2bag, b.indices->sizes[0], b.bag_of));
  HUSK_TRY(get_optional_output(args, kBagSize, b.count, b.lengths));
  HUSK_TRY(get_optional_output(args, kMaxIndices, b.count, b.max_indices));
  if (b.max_indices && b.max_indices->rank == 2)
    HUSK_TRY(args.check_size(kMaxIndices, 1, b.weight->sizes[1], "the columns of the table"));
  HUSK_TRY(check_bags(args, b));
  husk_status status = HUSK_OK;
  HUSK_TRY(visit_argument<Floats | Halves>(args, kWeight, [&](auto tag) {
    const int64_t columns = b.weight->sizes[1];
    each_index_while(args.cancellation, b.count, [&](int64_t bag) {
      for (int64_t c = 0; c < columns; c += kColumns) {
        status = run_bag<typename decltype(tag)::type>(
            args, b, bag, c, columns - c < kColumns ? columns - c : kColumns);
        if (status != HUSK_OK) return false;
      }
      return true;
    });
  }));
  HUSK_TRY(status);
  return write_backward_outputs(args, b);
}

// Copies the table and scales the rows that `indices` name to the norm max_norm if they are longer.
husk_status embedding_renorm(const Arguments& args) {
  constexpr ArgumentsOf named("embedding_renorm");
  constexpr uint32_t kSelf = named["self"], kIndices = named["indices"],
                     kMaxNorm = named["max_norm"], kNormType = named["norm_type"],
                     kOut = named["out"];
  HUSK_TRY(args.check_tensor(kSelf, 2, 2));
  HUSK_TRY(args.check_tensor(kIndices));
  HUSK_TRY(args.check_tensor(kOut, 2, 2));
  HUSK_TRY(args.check_same_shape(kOut, kSelf));
  HUSK_TRY(args.check_same_dtype(kOut, kSelf));
  HUSK_TRY(args.check_index_dtype(kIndices));
  double max_norm = 0, p = 0;
  HUSK_TRY(args.get_number(kMaxNorm, max_norm));
  HUSK_TRY(args.get_number(kNormType, p));
  HUSK_TRY(copy_elements(args, kOut, kSelf));
  const husk_op_arg &self = args[kSelf], &indices = args[kIndices], &out = args[kOut];
  Loop<1> loop(args);
  loop.shape(indices);
  int64_t wrong = 0;
  bool in_range = true;
  HUSK_TRY(visit_argument<Floats | Halves>(args, kSelf, [&](auto tag) {
    using T = typename decltype(tag)::type;
    each_while(loop, [&](const int64_t(&at)[1]) {
      const int64_t row = get_index(indices.dtype, indices.data, at[0]);
      if (!is_within(row, self.sizes[0])) {
        wrong = row;
        return in_range = false;
      }
      if (self.sizes[1] == 0) return true;  // a table without elements may have no memory
      const T* from = data_of<T>(self) + row * self.strides[0];
      T* to = writable<T>(out) + row * out.strides[0];
      double norm = 0;  // of the input's row, so that a repeated index gives the same result
      each_index(args.cancellation, self.sizes[1], [&](int64_t c) {
        const double value = std::fabs(static_cast<double>(get(from + c * self.strides[1])));
        norm = std::isinf(p) ? std::fmax(norm, value)
                             : norm + (p == 2 ? value * value : std::pow(value, p));
      });
      if (!std::isinf(p)) norm = p == 2 ? std::sqrt(norm) : std::pow(norm, 1 / p);
      if (!(norm > max_norm)) return true;
      each_index(args.cancellation, self.sizes[1], [&](int64_t c) {
        set(to + c * out.strides[1],
            static_cast<Value<T>>(static_cast<double>(get(from + c * self.strides[1])) *
                                  (max_norm / (norm + 1e-7))));
      });
      return true;
    });
  }));
  return in_range ? husk_status{HUSK_OK} : wrong_index(args, wrong, self);
}

}  // namespace husk::host
