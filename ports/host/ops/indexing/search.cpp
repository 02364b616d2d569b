// aten::searchsorted, bucketize, histc and bincount.
#include <cmath>
#include <cstring>

#include "contracts.h"
#include "core/arguments.h"
#include "core/arithmetic.h"
#include "core/checked.h"
#include "core/loop.h"
#include "core/places.h"
#include "error.h"

namespace husk::host {

namespace {

// A sorted row, or a row with the order in which its elements are sorted.
template <class T>
struct Sorted {
  const T* data;
  int64_t stride, count;
  const int64_t* order;  // null if the row itself is sorted
  int64_t order_stride;

  // An index of the order was checked, but another thread may have changed it.
  Value<T> operator[](int64_t i) const {
    const int64_t place = order ? read_once(order + i * order_stride) : i;
    return get(data + (is_within(place, count) ? place : 0) * stride);
  }

  // The number of elements before `value`; with `right`, elements equal to it count. NaN comes
  // last.
  template <class V>
  int64_t find(V value, bool right) const {
    int64_t low = 0, high = count;
    while (low < high) {
      const int64_t middle = low + (high - low) / 2;
      const V here = cast<V>((*this)[middle]);
      const bool before = right ? !(is_nan(here) ? !is_nan(value) : value < here)
                                : !(here >= value) && !is_nan(here);
      if (before)
        low = middle + 1;
      else
        high = middle;
    }
    return low;
  }
};

struct Search {
  // Indices of the arguments. `sorter` is kNoArgument if the op has no such argument.
  ArgumentPlace sorted, values, sorter, out;
  bool right;
};

husk_status check_sorter(const Arguments& args, const Search& s, const husk_op_arg*& sorter) {
  sorter = nullptr;
  if (args.none(s.sorter)) return HUSK_OK;
  HUSK_TRY(args.check_tensor(s.sorter));
  HUSK_TRY(args.check_same_shape(s.sorter, s.sorted));
  HUSK_TRY(args.check_dtype(s.sorter, HUSK_I64));
  sorter = &args[s.sorter];
  const husk_op_arg& sorted = args[s.sorted];
  const int64_t length = sorted.rank > 0 ? sorted.sizes[sorted.rank - 1] : 1;
  Loop<1> loop(args);
  loop.shape(*sorter);
  int64_t index = 0;
  const bool in_range = each_while(loop, [&](const int64_t(&at)[1]) {
    index = read_once(data_of<int64_t>(*sorter) + at[0]);
    return is_within(index, length);
  });
  if (in_range) return HUSK_OK;
  return fail(args.error, HUSK_INVALID_INPUT,
              "%s: sorter has index %lld, out of range for size %lld", args.op,
              static_cast<long long>(index), static_cast<long long>(length));
}

using ReadDouble = double (*)(const void* data, int64_t at);

template <class V>
double read_double(const void* data, int64_t at) {
  return static_cast<double>(get(static_cast<const V*>(data) + at));
}

// Searches for all values, row by row. Values of the dtype of the sorted row are compared in that
// dtype. Values of other dtypes are read as f64 by `read`.
template <class T>
void search_rows(const husk_op_arg& sorted, const husk_op_arg* sorter, const husk_op_arg& values,
                 const husk_op_arg& out, bool right, const Loop<4>& rows, ReadDouble read) {
  const int32_t last = values.rank - 1, sorted_dim = sorted.rank - 1;
  const int64_t count = values.rank > 0 ? values.sizes[last] : 1;
  each(rows, [&](const int64_t(&at)[4]) {
    const Sorted<T> row{data_of<T>(sorted) + at[0], sorted.strides[sorted_dim],
                        sorted.sizes[sorted_dim],
                        sorter ? data_of<int64_t>(*sorter) + at[1] : nullptr,
                        sorter ? sorter->strides[sorted_dim] : 0};
    each_index(*rows.cancellation, count, [&](int64_t i) {
      const int64_t from = at[2] + (last < 0 ? 0 : i * values.strides[last]);
      const int64_t position = read ? row.find(read(values.data, from), right)
                                    : row.find(get(data_of<T>(values) + from), right);
      set_index(out, at[3] + (last < 0 ? 0 : i * out.strides[last]), position);
    });
  });
}

// A sorted sequence of rank 1 serves all values. One of a higher rank has a row for each row of the
// values.
husk_status search(const Arguments& args, const Search& s) {
  HUSK_TRY(args.check_tensor(s.sorted, 1, kMaxRank));
  HUSK_TRY(args.check_tensor(s.out));
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
    HUSK_TRY(args.check_tensor(s.out, 0, 0));
  } else {
    HUSK_TRY(args.check_tensor(s.values));
    HUSK_TRY(args.check_same_shape(s.out, s.values));
  }
  const husk_op_arg &sorted = args[s.sorted], &out = args[s.out];
  HUSK_TRY(args.check_index_dtype(s.out));
  const husk_op_arg* sorter = nullptr;
  HUSK_TRY(check_sorter(args, s, sorter));
  // All rows of a sequence without elements are equal, and their addresses must not be computed.
  const bool has_rows = sorted.rank > 1, has_elements = numel(sorted) > 0;
  if (has_rows && sorted.rank != values.rank) {
    return args.argument_error(s.sorted, HUSK_INVALID_ARGUMENT,
                               "has another rank than the values, and more than one dimension");
  }
  Loop<4> rows(args);
  rows.shape(values, 2);
  rows.add(3, out);
  for (int32_t d = 0; d < values.rank; ++d) {
    if (has_rows && d + 1 < values.rank)
      HUSK_TRY(args.check_size(s.sorted, d, values.sizes[d], "the rows of the values"));
    rows.strides[0][d] = has_rows && has_elements ? sorted.strides[d] : 0;
    rows.strides[1][d] = has_rows && has_elements && sorter ? sorter->strides[d] : 0;
  }
  if (numel(values) == 0) return HUSK_OK;
  if (values.rank > 0) rows.drop(values.rank - 1);
  ReadDouble read = nullptr;
  if (values.dtype != sorted.dtype && !visit<AnyReal>(values.dtype, [&](auto tag) {
        read = read_double<typename decltype(tag)::type>;
      })) {
    return args.unsupported_dtype(s.values);
  }
  return visit_argument<AnyReal>(args, s.sorted, [&](auto tag) {
    search_rows<typename decltype(tag)::type>(sorted, sorter, values, out, s.right, rows, read);
  });
}

// ---- histograms ----

struct Range {
  double low, high;
};

// The range of a histogram: [low, high], or, if low equals high, the range of the data. An empty
// range is widened.
husk_status range_of(const Arguments& args, double low, double high, Range& out) {
  constexpr ArgumentsOf named("histc");
  constexpr uint32_t kSelf = named["self"];
  const husk_op_arg& self = args[kSelf];
  Loop<1> loop(args);
  loop.shape(self);
  out = {low, high};
  if (low == high && numel(self) > 0) {
    bool first = true;
    visit<Reals>(self.dtype, [&](auto tag) {
      each(loop, [&](const int64_t(&at)[1]) {
        const double value = static_cast<double>(
            get(data_of<typename decltype(tag)::type>(self) + at[0]));
        if (first || value < out.low || is_nan(value)) out.low = value;
        if (first || value > out.high || is_nan(value)) out.high = value;
        first = false;
      });
    });
  }
  if (out.low == out.high) out = {out.low - 1, out.high + 1};
  if (!std::isfinite(out.low) || !std::isfinite(out.high)) {
    return fail(args.error, HUSK_INVALID_INPUT, "%s: the range from %g to %g is not finite",
                args.op, out.low, out.high);
  }
  if (out.low > out.high)
    return fail(args.error, HUSK_INVALID_ARGUMENT, "%s: max is less than min", args.op);
  return HUSK_OK;
}

// Adds the weight of each element of argument 0, 1 without weights, to its bin.
void count_bins(const Arguments& args, const husk_op_arg* weights, const husk_op_arg& out,
                const Range& range) {
  constexpr ArgumentsOf named("histc");
  constexpr uint32_t kSelf = named["self"];
  const husk_op_arg& self = args[kSelf];
  const int64_t bins = out.sizes[0];
  Loop<2> loop(args);
  loop.shape(self);
  loop.add(1, weights ? *weights : self);
  visit<Reals>(self.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = std::conditional_t<std::is_same_v<Value<T>, double>, double, float>;
    const C low = static_cast<C>(range.low), span = static_cast<C>(range.high) - low;
    each_index(args.cancellation, bins,
               [&](int64_t i) { set(writable<T>(out) + i * out.strides[0], Value<T>(0)); });
    each(loop, [&](const int64_t(&at)[2]) {
      const C value = static_cast<C>(get(data_of<T>(self) + at[0]));
      if (!(value >= low && value <= static_cast<C>(range.high))) return;
      // NaN if the range overflows.
      const C position = (value - low) * static_cast<C>(bins) / span;
      const int64_t bin = !(position > 0)                   ? 0
                          : position < static_cast<C>(bins) ? static_cast<int64_t>(position)
                                                            : bins - 1;
      T* bin_value = writable<T>(out) + (bin < bins ? bin : bins - 1) * out.strides[0];
      set(bin_value,
          plus(get(bin_value), weights ? get(data_of<T>(*weights) + at[1]) : Value<T>(1)));
    });
  });
}

// ---- bincount ----

// Computes the number of bins: the largest element plus one, at least minlength.
husk_status count_bins_needed(const Arguments& args, int64_t& bins) {
  constexpr ArgumentsOf named("bincount", "bincount_sizes");
  constexpr uint32_t kSelf = named["self"], kMinlength = named["minlength"];
  HUSK_TRY(args.check_tensor(kSelf, 1, 1));
  const husk_op_arg& self = args[kSelf];
  int64_t minlength = 0;
  HUSK_TRY(args.get_int(kMinlength, minlength));
  if (minlength < 0) return args.argument_error(kMinlength, HUSK_INVALID_ARGUMENT, "is negative");
  if (!visit<Ints>(self.dtype, [](auto) {})) return args.unsupported_dtype(kSelf);
  bins = minlength;
  int64_t value = 0, wrong = 0;
  const bool all_fit = each_index_while(args.cancellation, self.sizes[0], [&](int64_t i) {
    value = get_index(self.dtype, self.data, i * self.strides[0]);
    wrong = i;
    return value >= 0 && (value < bins || checked_add(value, 1, bins));
  });
  if (all_fit) return HUSK_OK;
  return fail(args.error, HUSK_INVALID_INPUT, "%s: element %lld is %lld", args.op,
              static_cast<long long>(wrong), static_cast<long long>(value));
}

// Reads whether equal elements come before the value: from `right`, or from `side`, if the op has
// it.
husk_status get_right_side(const Arguments& args, ArgumentPlace right_at, ArgumentPlace side_at,
                           bool& right) {
  HUSK_TRY(args.get_bool(right_at, right));
  if (args.none(side_at)) return HUSK_OK;
  const char* side = args[side_at].kind == HUSK_ARG_STRING ? args[side_at].string : nullptr;
  if (!side || (strcmp(side, "left") != 0 && strcmp(side, "right") != 0))
    return args.argument_error(side_at, HUSK_INVALID_ARGUMENT, "is neither left nor right");
  right = strcmp(side, "right") == 0;
  return HUSK_OK;
}

}  // namespace

husk_status searchsorted(const Arguments& args) {
  constexpr ArgumentsOf named("searchsorted");
  constexpr uint32_t kSortedSequence = named["sorted_sequence"], kSelf = named["self"],
                     kRight = named["right"], kSide = named["side"], kSorter = named["sorter"],
                     kOut = named["out"];
  bool right = false;
  HUSK_TRY(get_right_side(args, kRight, kSide, right));
  return search(args, {kSortedSequence, kSelf, kSorter, kOut, right});
}

husk_status bucketize(const Arguments& args) {
  constexpr ArgumentsOf named("bucketize");
  constexpr uint32_t kSelf = named["self"], kBoundaries = named["boundaries"],
                     kRight = named["right"], kOut = named["out"];
  bool right = false;
  HUSK_TRY(get_right_side(args, kRight, kNoArgument, right));
  HUSK_TRY(args.check_tensor(kBoundaries, 1, 1));
  return search(args, {kBoundaries, kSelf, kNoArgument, kOut, right});
}

husk_status histc(const Arguments& args) {
  constexpr ArgumentsOf named("histc");
  constexpr uint32_t kSelf = named["self"], kBins = named["bins"], kMin = named["min"],
                     kMax = named["max"], kOut = named["out"];
  HUSK_TRY(args.check_tensor(kSelf));
  double low = 0, high = 0;
  int64_t bins = 0;
  HUSK_TRY(args.get_int(kBins, bins));
  HUSK_TRY(args.get_number(kMin, low));
  HUSK_TRY(args.get_number(kMax, high));
  if (bins < 1) return args.argument_error(kBins, HUSK_INVALID_ARGUMENT, "is not positive");
  HUSK_TRY(args.check_vector(kOut, bins, "bins"));
  HUSK_TRY(args.check_same_dtype(kOut, kSelf));
  if (!visit<Reals>(args[kSelf].dtype, [](auto) {})) return args.unsupported_dtype(kSelf);
  Range range;
  HUSK_TRY(range_of(args, low, high, range));
  count_bins(args, nullptr, args[kOut], range);
  return HUSK_OK;
}

husk_status bincount_sizes(const Arguments& args) {
  constexpr ArgumentsOf named("bincount_sizes");
  constexpr uint32_t kSize = named["size"];
  HUSK_TRY(args.check_result(kSize));
  return count_bins_needed(args, *static_cast<int64_t*>(args[kSize].data));
}

husk_status bincount(const Arguments& args) {
  constexpr ArgumentsOf named("bincount");
  constexpr uint32_t kSelf = named["self"], kWeights = named["weights"], kOut = named["out"];
  int64_t bins = 0;
  HUSK_TRY(count_bins_needed(args, bins));
  HUSK_TRY(args.check_vector(kOut, bins, "the largest element and one, or minlength"));
  const husk_op_arg &self = args[kSelf], &out = args[kOut];
  const bool weighted = !args.none(kWeights);
  if (weighted) {
    HUSK_TRY(args.check_vector(kWeights, self.sizes[0], "one for each element"));
    if (!visit<AnyReal>(args[kWeights].dtype, [](auto) {})) return args.unsupported_dtype(kWeights);
  }
  if (out.dtype != (!weighted ? HUSK_I64 : args[kWeights].dtype == HUSK_F32 ? HUSK_F32 : HUSK_F64))
    return args.unsupported_dtype(kOut);
  bool complete = true;
  HUSK_TRY(visit_argument<Floats | Ints>(args, kOut, [&](auto tag) {
    using T = typename decltype(tag)::type;
    // Calls f(bin, i) for each element, which another thread may have changed since it was counted.
    const auto each_bin = [&](const auto& f) {
      int64_t wrong = 0;
      complete = each_place(
          args.cancellation, self, 0, self.strides[0], self.sizes[0], bins, wrong,
          [&](int64_t bin, int64_t i) { f(writable<T>(out)[bin * out.strides[0]], i); });
    };
    each_index(args.cancellation, bins,
               [&](int64_t i) { writable<T>(out)[i * out.strides[0]] = 0; });
    if (!weighted) {
      each_bin([](T& bin, int64_t) { bin += 1; });
      return;
    }
    visit<AnyReal>(args[kWeights].dtype, [&](auto other) {
      const auto* weights = data_of<typename decltype(other)::type>(args[kWeights]);
      each_bin([&](T& bin, int64_t i) {
        const auto weight = static_cast<double>(get(weights + i * args[kWeights].strides[0]));
        bin = static_cast<T>(bin + static_cast<T>(weight));
      });
    });
  }));
  return complete ? husk_status{HUSK_OK} : args.tensor_changed();
}

}  // namespace husk::host
