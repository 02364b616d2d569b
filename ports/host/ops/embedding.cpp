// aten::_embedding_bag and aten::embedding_renorm.
#include <math.h>

#include "arguments.h"
#include "error.h"
#include "loop.h"
#include "number.h"

namespace husk::host {

namespace {

enum class Mode { Sum = 0, Mean = 1, Most = 2 };

struct Bags {
  const husk_op_arg *weight, *indices, *offsets, *scales;   // scales: or null
  const husk_op_arg *out, *bag_of, *lengths, *most;         // the last three: or null
  Mode mode;
  int64_t count, padding;                                   // padding: an index that does not count, or -1

  int64_t index(int64_t i) const { return get_index(indices->dtype, indices->data, i * indices->strides[0]); }
  int64_t start(int64_t bag) const {
    return bag < offsets->sizes[0] ? get_index(offsets->dtype, offsets->data, bag * offsets->strides[0])
                                   : indices->sizes[0];
  }
};

void put_index(const husk_op_arg& tensor, int64_t at, int64_t value) {
  if (tensor.dtype == HUSK_I32) writable<int32_t>(tensor)[at] = static_cast<int32_t>(value);
  else writable<int64_t>(tensor)[at] = value;
}

husk_status check_indices(const Arguments& args, const husk_op_arg& indices, const husk_op_arg& weight) {
  Loop<1> loop;
  loop.shape(indices);
  int64_t bad = 0;
  const bool good = each_while(loop, [&](const int64_t(&at)[1]) {
    bad = get_index(indices.dtype, indices.data, at[0]);
    return bad >= 0 && bad < weight.sizes[0];
  });
  if (good) return HUSK_OK;
  return fail(args.error, HUSK_INVALID_INPUT, "%s: index %lld is out of range for a table of %lld rows", args.op,
              static_cast<long long>(bad), static_cast<long long>(weight.sizes[0]));
}

husk_status check_bags(const Arguments& args, const Bags& b) {
  for (int64_t bag = 0; bag < b.count; bag++) {
    const int64_t from = b.start(bag), to = b.start(bag + 1);
    if (from >= 0 && from <= to && to <= b.indices->sizes[0] && (bag > 0 || from == 0)) continue;
    return fail(args.error, HUSK_INVALID_INPUT, "%s: offsets of bag %lld are %lld to %lld, of %lld indices", args.op,
                static_cast<long long>(bag), static_cast<long long>(from), static_cast<long long>(to),
                static_cast<long long>(b.indices->sizes[0]));
  }
  return HUSK_OK;
}

constexpr int64_t width = 256;   // columns at once

template <class T>
void run_bag(const Bags& b, int64_t bag, int64_t column, int64_t columns) {
  using V = Value<T>;
  V sums[width] = {};
  int64_t best[width] = {}, length = 0;
  for (int64_t i = b.start(bag); i < b.start(bag + 1); i++) {
    const int64_t row = b.index(i);
    if (row == b.padding) continue;
    const T* from = data_of<T>(*b.weight) + row * b.weight->strides[0] + column * b.weight->strides[1];
    const V scale = b.scales ? get(data_of<T>(*b.scales) + i * b.scales->strides[0]) : V(1);
    for (int64_t c = 0; c < columns; c++) {
      const V value = get(from + c * b.weight->strides[1]);
      if (b.mode != Mode::Most) {
        sums[c] += scale * value;
      } else if (length == 0 || value > sums[c] || is_nan(value)) {
        sums[c] = value;
        best[c] = row;
      }
    }
    length++;
  }
  T* to = writable<T>(*b.out) + bag * b.out->strides[0] + column * b.out->strides[1];
  for (int64_t c = 0; c < columns; c++) {
    if (b.mode == Mode::Mean && length > 0) sums[c] /= static_cast<V>(length);
    set(to + c * b.out->strides[1], sums[c]);
    if (b.mode == Mode::Most && b.most && b.most->rank == 2) {
      put_index(*b.most, bag * b.most->strides[0] + (column + c) * b.most->strides[1], best[c]);
    }
  }
}

// What the backward pass would read: for each index its bag, for each bag its length.
void describe(const Bags& b) {
  const husk_op_arg* all[] = {b.lengths, b.most};
  for (const husk_op_arg* of_bags : all) {   // PyTorch's have one more where the last offset is given
    if (!of_bags || of_bags->rank != 1) continue;
    for (int64_t i = b.count; i < of_bags->sizes[0]; i++) put_index(*of_bags, i * of_bags->strides[0], 0);
  }
  for (int64_t bag = 0; bag < b.count; bag++) {
    int64_t length = 0;
    for (int64_t i = b.start(bag); i < b.start(bag + 1); i++) {
      if (b.bag_of) put_index(*b.bag_of, i * b.bag_of->strides[0], bag);
      length += b.index(i) != b.padding;
    }
    // PyTorch leaves 0 for sums, whose backward pass does not read them.
    if (b.lengths) put_index(*b.lengths, bag * b.lengths->strides[0], b.mode == Mode::Sum ? 0 : length);
    if (b.most && b.most->rank == 1) put_index(*b.most, bag * b.most->strides[0], b.mode == Mode::Mean ? length : 0);
  }
}

// An output that may be left out, or be empty where PyTorch leaves it so.
husk_status extra(const Arguments& args, uint32_t at, int64_t length, const husk_op_arg*& out) {
  out = nullptr;
  if (args.none(at)) return HUSK_OK;
  HUSK_TRY(args.tensor(at, 1, 2));
  if (args[at].dtype != HUSK_I64 && args[at].dtype != HUSK_I32) return args.unsupported_dtype(at);
  if (numel(args[at]) == 0) return HUSK_OK;
  if (args[at].sizes[0] < length) HUSK_TRY(args.size(at, 0, length, "one for each"));
  out = &args[at];
  return HUSK_OK;
}

}  // namespace

husk_status embedding_bag(const Arguments& args) {
  HUSK_TRY(args.tensor(0, 2, 2));
  HUSK_TRY(args.tensor(1, 1, 1));
  HUSK_TRY(args.tensor(2, 1, 1));
  for (uint32_t i = 1; i < 3; i++) {
    if (args[i].dtype != HUSK_I64 && args[i].dtype != HUSK_I32) return args.unsupported_dtype(i);
  }
  Bags b{};
  b.weight = &args[0];
  b.indices = &args[1];
  b.offsets = &args[2];
  int64_t mode = 0;
  bool last = false;
  HUSK_TRY(args.integer(4, mode));
  if (mode < 0 || mode > 2) return args.refuse(4, HUSK_INVALID_ARGUMENT, "is not 0 (sum), 1 (mean) or 2 (max)");
  b.mode = static_cast<Mode>(mode);
  if (!args.none(6)) {
    HUSK_TRY(args.vector(6, b.indices->sizes[0], "one for each index"));
    HUSK_TRY(args.same_dtype(6, 0));
    b.scales = &args[6];
  }
  HUSK_TRY(args.boolean(7, last));
  HUSK_TRY(args.integer(8, b.padding));
  if (b.padding < 0) b.padding = -1;
  b.count = b.offsets->sizes[0] - (last ? 1 : 0);
  if (b.count < 0) return args.refuse(2, HUSK_INVALID_ARGUMENT, "has no last offset");
  HUSK_TRY(args.tensor(9, 2, 2));
  HUSK_TRY(args.same_dtype(9, 0));
  HUSK_TRY(args.size(9, 0, b.count, "one for each bag"));
  HUSK_TRY(args.size(9, 1, b.weight->sizes[1], "the columns of the table"));
  b.out = &args[9];
  HUSK_TRY(extra(args, 10, b.indices->sizes[0], b.bag_of));
  HUSK_TRY(extra(args, 11, b.count, b.lengths));
  HUSK_TRY(extra(args, 12, b.count, b.most));
  if (b.most && b.most->rank == 2) HUSK_TRY(args.size(12, 1, b.weight->sizes[1], "the columns of the table"));
  HUSK_TRY(check_indices(args, *b.indices, *b.weight));
  HUSK_TRY(check_bags(args, b));
  const bool known = visit<Floats | Halves>(b.weight->dtype, [&](auto tag) {
    for (int64_t bag = 0; bag < b.count; bag++) {
      for (int64_t c = 0; c < b.weight->sizes[1]; c += width) {
        run_bag<typename decltype(tag)::type>(b, bag, c,
                                              b.weight->sizes[1] - c < width ? b.weight->sizes[1] - c : width);
      }
    }
  });
  if (!known) return args.unsupported_dtype(0);
  describe(b);
  return HUSK_OK;
}

// Rows that are looked at, and longer than max_norm, are made as long as that; others stay.
husk_status embedding_renorm(const Arguments& args) {
  HUSK_TRY(args.tensor(0, 2, 2));
  HUSK_TRY(args.tensor(1));
  HUSK_TRY(copy_elements(args, 4, 0));
  HUSK_TRY(args.same_shape(4, 0));
  HUSK_TRY(args.same_dtype(4, 0));
  if (args[1].dtype != HUSK_I64 && args[1].dtype != HUSK_I32) return args.unsupported_dtype(1);
  double most = 0, p = 0;
  HUSK_TRY(args.number(2, most));
  HUSK_TRY(args.number(3, p));
  HUSK_TRY(check_indices(args, args[1], args[0]));
  const husk_op_arg &self = args[0], &indices = args[1], &out = args[4];
  Loop<1> loop;
  loop.shape(indices);
  const bool known = visit<Floats | Halves>(out.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    each(loop, [&](const int64_t(&at)[1]) {
      const int64_t row = get_index(indices.dtype, indices.data, at[0]);
      const T* from = data_of<T>(self) + row * self.strides[0];
      T* to = writable<T>(out) + row * out.strides[0];
      double norm = 0;   // of the row as it was: a second look scales it to the same length
      for (int64_t c = 0; c < self.sizes[1]; c++) {
        const double value = fabs(static_cast<double>(get(from + c * self.strides[1])));
        norm = isinf(p) ? fmax(norm, value) : norm + (p == 2 ? value * value : pow(value, p));
      }
      if (!isinf(p)) norm = p == 2 ? sqrt(norm) : pow(norm, 1 / p);
      if (!(norm > most)) return;
      for (int64_t c = 0; c < self.sizes[1]; c++) {
        set(to + c * out.strides[1],
            static_cast<Value<T>>(static_cast<double>(get(from + c * self.strides[1])) * (most / (norm + 1e-7))));
      }
    });
  });
  return known ? husk_status{HUSK_OK} : args.unsupported_dtype(0);
}

}  // namespace husk::host
