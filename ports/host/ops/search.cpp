// aten::searchsorted, bucketize, histc, histogram and bincount.
#include <string.h>

#include <cmath>

#include "arguments.h"
#include "error.h"
#include "loop.h"
#include "number.h"

namespace husk::host {

namespace {

// A sorted row, maybe through an order of it.
template <class T>
struct Sorted {
  const T* data;
  int64_t stride, count;
  const int64_t* order;   // or null
  int64_t order_stride;

  Value<T> operator[](int64_t i) const { return get(data + (order ? order[i * order_stride] : i) * stride); }

  // How many elements come before `value`; with `right`, equal ones do. NaN comes last.
  template <class V>
  int64_t find(V value, bool right) const {
    int64_t low = 0, high = count;
    while (low < high) {
      const int64_t middle = low + (high - low) / 2;
      const V here = cast<V>((*this)[middle]);
      const bool before = right ? !(is_nan(here) ? !is_nan(value) : value < here)
                                : !(here >= value) && !is_nan(here);
      if (before) low = middle + 1; else high = middle;
    }
    return low;
  }
};

void put_index(const husk_op_arg& out, int64_t at, int64_t value) {
  if (out.dtype == HUSK_I32) writable<int32_t>(out)[at] = static_cast<int32_t>(value);
  else writable<int64_t>(out)[at] = value;
}

struct Search {
  uint32_t sorted, values, sorter, out;   // places of the arguments; sorter is none where the op has no such
  bool right;
};

husk_status check_sorter(const Arguments& args, const Search& s, const husk_op_arg*& sorter) {
  sorter = nullptr;
  if (args.none(s.sorter)) return HUSK_OK;
  HUSK_TRY(args.tensor(s.sorter));
  HUSK_TRY(args.same_shape(s.sorter, s.sorted));
  HUSK_TRY(args.dtype(s.sorter, HUSK_I64));
  sorter = &args[s.sorter];
  const husk_op_arg& sorted = args[s.sorted];
  const int64_t length = sorted.rank > 0 ? sorted.sizes[sorted.rank - 1] : 1;
  Loop<1> loop;
  loop.shape(*sorter);
  int64_t bad = 0;
  const bool good = each_while(loop, [&](const int64_t(&at)[1]) {
    bad = data_of<int64_t>(*sorter)[at[0]];
    return bad >= 0 && bad < length;
  });
  if (good) return HUSK_OK;
  return fail(args.error, HUSK_INVALID_INPUT, "%s: sorter has index %lld, out of range for size %lld", args.op,
              static_cast<long long>(bad), static_cast<long long>(length));
}

using ReadDouble = double (*)(const void* data, int64_t at);

template <class V>
double read_double(const void* data, int64_t at) { return static_cast<double>(get(static_cast<const V*>(data) + at)); }

// Compared in the type of both for like dtypes, as f64 (`read` the values) for others.
template <class T>
void search_rows(const husk_op_arg& sorted, const husk_op_arg* sorter, const husk_op_arg& values,
                 const husk_op_arg& out, bool right, const Loop<4>& rows, ReadDouble read) {
  const int32_t last = values.rank - 1, own = sorted.rank - 1;
  const int64_t count = values.rank > 0 ? values.sizes[last] : 1;
  each(rows, [&](const int64_t(&at)[4]) {
    const Sorted<T> row{data_of<T>(sorted) + at[0], sorted.strides[own], sorted.sizes[own],
                        sorter ? data_of<int64_t>(*sorter) + at[1] : nullptr, sorter ? sorter->strides[own] : 0};
    for (int64_t i = 0; i < count; i++) {
      const int64_t from = at[2] + (last < 0 ? 0 : i * values.strides[last]);
      const int64_t place =
          read ? row.find(read(values.data, from), right) : row.find(get(data_of<T>(values) + from), right);
      put_index(out, at[3] + (last < 0 ? 0 : i * out.strides[last]), place);
    }
  });
}

// Sequences of more than one dimension belong to the rows of the values.
husk_status search(const Arguments& args, const Search& s) {
  HUSK_TRY(args.tensor(s.sorted, 1, most_dims));
  HUSK_TRY(args.tensor(s.out));
  husk_op_arg values = args[s.values];
  Scalar scalar;
  double number = 0;
  int64_t whole = 0;
  if (scalar_of(values, scalar)) {
    values = {};
    values.kind = HUSK_ARG_TENSOR;
    number = scalar.re;
    whole = scalar.i;
    values.dtype = scalar.is_int ? HUSK_I64 : HUSK_F64;
    values.data = scalar.is_int ? static_cast<void*>(&whole) : &number;
    HUSK_TRY(args.tensor(s.out, 0, 0));
  } else {
    HUSK_TRY(args.tensor(s.values));
    HUSK_TRY(args.same_shape(s.out, s.values));
  }
  const husk_op_arg &sorted = args[s.sorted], &out = args[s.out];
  if (out.dtype != HUSK_I64 && out.dtype != HUSK_I32) return args.unsupported_dtype(s.out);
  const husk_op_arg* sorter = nullptr;
  HUSK_TRY(check_sorter(args, s, sorter));
  const bool own_rows = sorted.rank > 1;
  if (own_rows && sorted.rank != values.rank) {
    return args.refuse(s.sorted, HUSK_INVALID_ARGUMENT,
                       "has another rank than the values, and more than one dimension");
  }
  Loop<4> rows;
  rows.shape(values, 2);
  rows.add(3, out);
  for (int32_t d = 0; d < values.rank; d++) {
    if (own_rows && d + 1 < values.rank) HUSK_TRY(args.size(s.sorted, d, values.sizes[d], "the rows of the values"));
    rows.strides[0][d] = own_rows ? sorted.strides[d] : 0;
    rows.strides[1][d] = own_rows && sorter ? sorter->strides[d] : 0;
  }
  if (numel(values) == 0) return HUSK_OK;
  if (values.rank > 0) rows.drop(values.rank - 1);
  ReadDouble read = nullptr;
  if (values.dtype != sorted.dtype &&
      !visit<AnyReal>(values.dtype, [&](auto tag) { read = read_double<typename decltype(tag)::type>; })) {
    return args.unsupported_dtype(s.values);
  }
  const bool known = visit<AnyReal>(sorted.dtype, [&](auto tag) {
    search_rows<typename decltype(tag)::type>(sorted, sorter, values, out, s.right, rows, read);
  });
  return known ? husk_status{HUSK_OK} : args.unsupported_dtype(s.sorted);
}

// ---- histograms ----

struct Range { double low, high; };

// Given, or that of the data; one that is empty is widened.
husk_status range_of(const Arguments& args, double low, double high, Range& out) {
  const husk_op_arg& self = args[0];
  Loop<1> loop;
  loop.shape(self);
  out = {low, high};
  if (low == high && numel(self) > 0) {
    bool first = true;
    visit<Reals>(self.dtype, [&](auto tag) {
      each(loop, [&](const int64_t(&at)[1]) {
        const double value = static_cast<double>(get(data_of<typename decltype(tag)::type>(self) + at[0]));
        if (first || value < out.low || is_nan(value)) out.low = value;
        if (first || value > out.high || is_nan(value)) out.high = value;
        first = false;
      });
    });
  }
  if (out.low == out.high) out = {out.low - 1, out.high + 1};
  if (!std::isfinite(out.low) || !std::isfinite(out.high)) {
    return fail(args.error, HUSK_INVALID_INPUT, "%s: the range from %g to %g is not finite", args.op, out.low,
                out.high);
  }
  if (out.low > out.high) return fail(args.error, HUSK_INVALID_ARGUMENT, "%s: max is less than min", args.op);
  return HUSK_OK;
}

// Adds weights (1 where there are none) to the bins.
void count_bins(const husk_op_arg& self, const husk_op_arg* weights, const husk_op_arg& out, const Range& range) {
  const int64_t bins = out.sizes[0];
  Loop<2> loop;
  loop.shape(self);
  loop.add(1, weights ? *weights : self);
  visit<Reals>(self.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = std::conditional_t<std::is_same_v<Value<T>, double>, double, float>;
    const C low = static_cast<C>(range.low), span = static_cast<C>(range.high) - low;
    for (int64_t i = 0; i < bins; i++) set(writable<T>(out) + i * out.strides[0], Value<T>(0));
    each(loop, [&](const int64_t(&at)[2]) {
      const C value = static_cast<C>(get(data_of<T>(self) + at[0]));
      if (!(value >= low && value <= static_cast<C>(range.high))) return;
      const C place_in = (value - low) * static_cast<C>(bins) / span;   // NaN where the range overflows
      const int64_t bin = !(place_in > 0)                   ? 0
                          : place_in < static_cast<C>(bins) ? static_cast<int64_t>(place_in)
                                                            : bins - 1;
      T* place = writable<T>(out) + (bin < bins ? bin : bins - 1) * out.strides[0];
      set(place, plus(get(place), weights ? get(data_of<T>(*weights) + at[1]) : Value<T>(1)));
    });
  });
}

// ---- bincount ----

husk_status largest_bin(const Arguments& args, int64_t& bins) {
  HUSK_TRY(args.tensor(0, 1, 1));
  const husk_op_arg& self = args[0];
  int64_t least = 0;
  HUSK_TRY(args.integer(2, least));
  if (least < 0) return args.refuse(2, HUSK_INVALID_ARGUMENT, "is negative");
  if (!visit<Ints>(self.dtype, [](auto) {})) return args.unsupported_dtype(0);
  bins = least;
  for (int64_t i = 0; i < self.sizes[0]; i++) {
    const int64_t value = get_index(self.dtype, self.data, i * self.strides[0]);
    if (value < 0 || value == INT64_MAX) {
      return fail(args.error, HUSK_INVALID_INPUT, "%s: element %lld is %lld", args.op, static_cast<long long>(i),
                  static_cast<long long>(value));
    }
    if (value >= bins) bins = value + 1;
  }
  return HUSK_OK;
}

husk_status right_of(const Arguments& args, uint32_t right_at, uint32_t side_at, bool& right) {
  HUSK_TRY(args.boolean(right_at, right));
  if (side_at == 0 || args.none(side_at)) return HUSK_OK;
  const char* side = args[side_at].kind == HUSK_ARG_STRING ? args[side_at].string : nullptr;
  if (!side || (strcmp(side, "left") != 0 && strcmp(side, "right") != 0)) {
    return args.refuse(side_at, HUSK_INVALID_ARGUMENT, "is neither left nor right");
  }
  right = strcmp(side, "right") == 0;
  return HUSK_OK;
}

constexpr uint32_t nowhere = 0xffffffff;

}  // namespace

husk_status searchsorted(const Arguments& args) {
  bool right = false;
  HUSK_TRY(right_of(args, 3, 4, right));
  return search(args, {0, 1, 5, 6, right});
}

husk_status bucketize(const Arguments& args) {
  bool right = false;
  HUSK_TRY(right_of(args, 3, 0, right));
  HUSK_TRY(args.tensor(1, 1, 1));
  return search(args, {1, 0, nowhere, 4, right});
}

husk_status histc(const Arguments& args) {
  HUSK_TRY(args.tensor(0));
  double low = 0, high = 0;
  int64_t bins = 0;
  HUSK_TRY(args.integer(1, bins));
  HUSK_TRY(args.number(2, low));
  HUSK_TRY(args.number(3, high));
  if (bins < 1) return args.refuse(1, HUSK_INVALID_ARGUMENT, "is not positive");
  HUSK_TRY(args.vector(4, bins, "bins"));
  HUSK_TRY(args.same_dtype(4, 0));
  if (!visit<Reals>(args[0].dtype, [](auto) {})) return args.unsupported_dtype(0);
  Range range;
  HUSK_TRY(range_of(args, low, high, range));
  count_bins(args[0], nullptr, args[4], range);
  return HUSK_OK;
}

husk_status bincount_sizes(const Arguments& args) {
  HUSK_TRY(args.result(3));
  return largest_bin(args, *static_cast<int64_t*>(args[3].data));
}

husk_status bincount(const Arguments& args) {
  int64_t bins = 0;
  HUSK_TRY(largest_bin(args, bins));
  HUSK_TRY(args.vector(3, bins, "the largest element and one, or minlength"));
  const husk_op_arg &self = args[0], &out = args[3];
  const bool weighs = !args.none(1);
  if (weighs) HUSK_TRY(args.vector(1, self.sizes[0], "one for each element"));
  if (out.dtype != (!weighs ? HUSK_I64 : args[1].dtype == HUSK_F32 ? HUSK_F32 : HUSK_F64))
    return args.unsupported_dtype(3);
  Value<double> weight = 1;
  const bool known = visit<Floats | Ints>(out.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    for (int64_t i = 0; i < bins; i++) writable<T>(out)[i * out.strides[0]] = 0;
    for (int64_t i = 0; i < self.sizes[0]; i++) {
      if (weighs) {
        const bool knows = visit<AnyReal>(args[1].dtype, [&](auto other) {
          weight = static_cast<double>(get(data_of<typename decltype(other)::type>(args[1]) + i * args[1].strides[0]));
        });
        if (!knows) return;
      }
      T& place = writable<T>(out)[get_index(self.dtype, self.data, i * self.strides[0]) * out.strides[0]];
      place = static_cast<T>(place + static_cast<T>(weight));
    }
  });
  return known ? husk_status{HUSK_OK} : args.unsupported_dtype(3);
}

}  // namespace husk::host
