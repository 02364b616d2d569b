// aten::scatter, scatter_add, scatter_reduce and gather. Rows along `dim` are independent of each
// other. A reduction that needs more than the tensor itself (sums in f32, counts) keeps that for a
// window of one row on the stack. Each index is read once and checked where it is used, because
// another thread may change it.
#include "indexing/scatter.h"

#include <limits>

#include "contracts.h"
#include "core/arguments.h"
#include "core/arithmetic.h"
#include "core/loop.h"
#include "core/places.h"
#include "error.h"

namespace husk::host {

namespace {

enum class Reduce { Assign, Sum, Product, Mean, Max, Min };

struct Scatter {
  const Arguments& args;
  const husk_op_arg &self, &index;
  const husk_op_arg* source;  // null: the source is `value`
  Scalar value;
  Reduce reduce;
  bool include_self;
  int64_t length, stride;                      // of self along dim
  Loop<3> rows;                                // operands: self, index, source; `dim` is left out
  int64_t count, index_stride, source_stride;  // along dim, of index and source
};

// The larger number; NaN if one of them is NaN.
template <class V>
V larger(V a, V b) {
  return is_nan(a) || a > b ? a : b;
}
// The smaller number; NaN if one of them is NaN.
template <class V>
V smaller(V a, V b) {
  return is_nan(a) || a < b ? a : b;
}

template <class V>
V combine(Reduce reduce, V a, V b) {
  switch (reduce) {
    case Reduce::Assign: return b;
    case Reduce::Product: return times(a, b);
    case Reduce::Max:
      if constexpr (!is_complex<V>) return larger(a, b);
      break;
    case Reduce::Min:
      if constexpr (!is_complex<V>) return smaller(a, b);
      break;
    default: break;
  }
  return plus(a, b);
}

template <class V>
V neutral(Reduce reduce) {
  if constexpr (is_complex<V>) {
    return number_of<V>(reduce == Reduce::Product);
  } else {
    using Limits = std::numeric_limits<V>;
    switch (reduce) {
      case Reduce::Product: return V(1);
      case Reduce::Max: return Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
      case Reduce::Min: return Limits::has_infinity ? Limits::infinity() : Limits::max();
      default: return V(0);
    }
  }
}

// sum / count. Ints round down, as in PyTorch's scatter_reduce with "mean".
template <class V>
V divide(V sum, int64_t count) {
  if constexpr (is_complex<V>) {
    using R = decltype(V::re);
    return {sum.re / static_cast<R>(count), sum.im / static_cast<R>(count)};
  } else if constexpr (std::is_same_v<V, bool>) {
    return sum;
  } else if constexpr (std::is_integral_v<V>) {
    const int64_t wide = static_cast<int64_t>(sum), quotient = wide / count;
    return static_cast<V>(wide % count < 0 ? quotient - 1 : quotient);
  } else {
    return sum / static_cast<V>(count);
  }
}

// Element i of a row of the source.
template <class T>
Value<T> source_value(const Scatter& s, int64_t row, int64_t i) {
  if (!s.source) return scalar_as<Value<T>>(s.value);
  return get(data_of<T>(*s.source) + row + i * s.source_stride);
}

// Calls f(index, i) for each index of a row. Returns false if an index is wrong, which becomes
// `wrong`, or if the call is to end.
template <class F>
[[gnu::always_inline]] inline bool each_place(const Scatter& s, int64_t row, int64_t& wrong,
                                              const F& f) {
  return each_place(s.args.cancellation, s.index, row, s.index_stride, s.count, s.length, wrong, f);
}

// Reduces a row directly in self. Returns false as each_place does.
template <class T>
bool scatter_row(const Scatter& s, const int64_t (&at)[3], int64_t& wrong) {
  T* self = writable<T>(s.self) + at[0];
  if (!s.include_self) {
    const auto clear = [&](int64_t to, int64_t) {
      set(self + to * s.stride, neutral<Value<T>>(s.reduce));
    };
    if (!each_place(s, at[1], wrong, clear)) return false;
  }
  return each_place(s, at[1], wrong, [&](int64_t to, int64_t i) {
    T* element = self + to * s.stride;
    set(element, combine(s.reduce, get(element), source_value<T>(s, at[2], i)));
  });
}

// Whether rows are reduced side by side: if the elements of a row lie far apart, and those of
// neighbouring rows are adjacent. Each element of self still gets its numbers in the order of
// `dim`.
bool are_side_by_side(const Scatter& s) {
  constexpr int64_t kLeast = 8;  // fewer rows share cache lines anyway
  const int32_t last = s.rows.rank - 1;
  if (last < 0 || s.count < 2 || s.rows.sizes[last] < kLeast) return false;
  return s.rows.strides[0][last] == 1 && s.stride != 1 &&
         (!s.source || s.rows.strides[2][last] == 1);
}

// Calls f(places, column, count, i) for each element i of neighbouring rows: the indices in
// `places` are those of `count` rows from row `column` on. Returns false as each_place does.
template <class F>
[[gnu::always_inline]] inline bool each_places(const Scatter& s, const int64_t (&at)[3],
                                               int64_t rows, int64_t step, int64_t& wrong,
                                               const F& f) {
  for (int64_t column = 0; column < rows; column += kPlaces) {
    const int64_t count = rows - column < kPlaces ? rows - column : kPlaces;
    // Rows with one index for all of them read it once.
    const int64_t read = step == 0 ? 1 : count;
    const bool all_within = each_index_while(s.args.cancellation, s.count, [&](int64_t i) {
      if (s.args.cancellation.ends(count)) return false;
      int64_t places[kPlaces];
      const int64_t first = at[1] + column * step + i * s.index_stride;
      if (!read_places(s.index.dtype, s.index.data, first, step, read, s.length, places)) {
        for (int64_t r = 0; r < read; ++r) {
          wrong = places[r];
          if (!is_within(wrong, s.length)) break;
        }
        return false;
      }
      f(places, column, count, i);
      return true;
    });
    if (!all_within) return false;
  }
  return true;
}

// The types of elements that are reduced side by side: those that models scatter most.
template <class T>
constexpr bool kSideBySide = set_of<T> == Floats || (set_of<T> == Ints && sizeof(T) >= 4);

// Reduces neighbouring rows directly in self. Returns false as each_place does.
template <class T>
bool scatter_rows(const Scatter& s, const int64_t (&at)[3], int64_t rows, int64_t step,
                  int64_t& wrong) {
  using V = Value<T>;
  T* self = writable<T>(s.self) + at[0];
  const auto visit_elements = [&](const auto& change) {
    return each_places(s, at, rows, step, wrong,
                       [&](const int64_t* places, int64_t column, int64_t count, int64_t i) {
                         T* const to = self + column;
                         if (step == 0) {
                           T* const row = to + places[0] * s.stride;
                           for (int64_t r = 0; r < count; ++r) change(row + r, column + r, i);
                         } else {
                           for (int64_t r = 0; r < count; ++r)
                             change(to + places[r] * s.stride + r, column + r, i);
                         }
                       });
  };
  if (!s.include_self) {
    const V start = neutral<V>(s.reduce);
    if (!visit_elements([&](T* element, int64_t, int64_t) { set(element, start); })) return false;
  }
  if (s.source && s.reduce == Reduce::Sum) {
    const T* source = data_of<T>(*s.source) + at[2];
    return visit_elements([&](T* element, int64_t r, int64_t i) {
      set(element, plus(get(element), get(source + r + i * s.source_stride)));
    });
  }
  return visit_elements([&](T* element, int64_t r, int64_t i) {
    set(element, combine(s.reduce, get(element), source_value<T>(s, at[2] + r, i)));
  });
}

// Elements of a row that are reduced at once. They and their counts take 48 KB.
template <class V>
constexpr int64_t kWindow = sizeof(V) <= 4 ? 4096 : 2048;

// Reduces the part of a row that begins at `first`, through sums and counts on the stack, so that
// f16 and bf16 round once. Returns false as each_place does.
template <class T>
bool scatter_window(const Scatter& s, const int64_t (&at)[3], int64_t first, int64_t& wrong) {
  using V = Value<T>;
  V sums[kWindow<V>];
  int64_t hits[kWindow<V>] = {};
  T* self = writable<T>(s.self) + at[0] + first * s.stride;
  const int64_t length = s.length - first < kWindow<V> ? s.length - first : kWindow<V>;
  if (s.args.cancellation.ends(length)) return false;
  for (int64_t i = 0; i < length; ++i)
    sums[i] = s.include_self ? get(self + i * s.stride) : neutral<V>(s.reduce);
  const bool summed = each_place(s, at[1], wrong, [&](int64_t index, int64_t i) {
    const int64_t to = index - first;
    if (!is_within(to, length)) return;
    sums[to] = combine(s.reduce, sums[to], source_value<T>(s, at[2], i));
    ++hits[to];
  });
  if (!summed) return false;
  for (int64_t i = 0; i < length; ++i) {
    if (hits[i] == 0) continue;
    if (s.reduce == Reduce::Mean) sums[i] = divide(sums[i], hits[i] + (s.include_self ? 1 : 0));
    set(self + i * s.stride, sums[i]);
  }
  return true;
}

// Calls row(at, wrong index) for each row until it returns false, or rows(at, count, step, wrong
// index) for each group of neighbouring rows, whose indices are `step` apart. Fails if an index is
// wrong.
template <class Row, class Rows>
husk_status each_scattered(const Scatter& s, int32_t dim, bool side_by_side, const Row& row,
                           const Rows& rows) {
  int64_t wrong = 0;
  const bool in_range = side_by_side ? each_row_while(s.rows,
                                                      [&](const int64_t(&at)[3], int64_t count,
                                                          const int64_t(&steps)[3]) {
                                                        return rows(at, count, steps[1], wrong);
                                                      })
                                     : each_while(s.rows, [&](const int64_t(&at)[3]) {
                                         return row(at, wrong);
                                       });
  return in_range || s.args.cancellation.ended() ? husk_status{HUSK_OK}
                                                 : s.args.index_out_of_range(wrong, dim, s.length);
}

// Sets up the loop over the rows of `index`, which self and the source must be large enough for.
husk_status rows_of(Scatter& s, ArgumentPlace index_at, int32_t dim) {
  const husk_op_arg &self = s.self, &index = s.index;
  const int32_t rank = self.rank;
  if (index.rank != rank && numel(index) > 0)
    return s.args.argument_error(index_at, HUSK_INVALID_ARGUMENT, "has another rank than self");
  if (s.source && s.source->rank != rank && numel(index) > 0)
    return s.args.argument_error(index_at, HUSK_INVALID_ARGUMENT,
                                 "has another rank than the source");
  s.count = s.length = s.stride = s.index_stride = s.source_stride = 1;
  if (numel(index) == 0) {
    s.count = 0;
    s.rows.rank = 1;
    s.rows.sizes[0] = 0;
    return HUSK_OK;
  }
  for (int32_t d = 0; d < rank; ++d) {
    if ((d != dim && index.sizes[d] > self.sizes[d]) ||
        (s.source && index.sizes[d] > s.source->sizes[d])) {
      return fail(s.args.error, HUSK_INVALID_ARGUMENT,
                  "%s: the index has size %lld along %d, more than self or the source", s.args.op,
                  static_cast<long long>(index.sizes[d]), d);
    }
  }
  s.rows.shape(index, 1);
  s.rows.add(0, self);
  s.rows.add(2, s.source ? *s.source : index);
  if (rank > 0) {
    s.count = index.sizes[dim];
    s.length = self.sizes[dim];
    s.stride = self.strides[dim];
    s.index_stride = index.strides[dim];
    s.source_stride = s.source ? s.source->strides[dim] : 0;
    s.rows.drop(dim);
  }
  return HUSK_OK;
}

husk_status run(const Arguments& args, ArgumentPlace self_at, ArgumentPlace source_at,
                Reduce reduce, bool include_self) {
  constexpr ArgumentsOf named("scatter", "scatter_add", "scatter_add_into", "scatter_into",
                              "scatter_reduce", "scatter_reduce_into");
  constexpr uint32_t kDim = named["dim"], kIndex = named["index"];
  HUSK_TRY(args.check_tensor(self_at));
  HUSK_TRY(args.check_tensor(kIndex));
  Scatter s{args,
            args[self_at],
            args[kIndex],
            nullptr,
            {},
            reduce,
            include_self,
            0,
            0,
            Loop<3>(args),
            0,
            0,
            0};
  int32_t dim = 0;
  HUSK_TRY(args.get_dim(kDim, s.self.rank, dim));
  HUSK_TRY(args.check_index_dtype(kIndex));
  if (!scalar_of(args[source_at], s.value)) {
    HUSK_TRY(args.check_tensor(source_at));
    HUSK_TRY(args.check_same_dtype(source_at, self_at));
    s.source = &args[source_at];
  }
  HUSK_TRY(rows_of(s, kIndex, dim));
  const bool windows = reduce == Reduce::Mean || (reduce != Reduce::Assign && s.count > 1 &&
                                                  visit<Halves>(s.self.dtype, [](auto) {}));
  husk_status status = HUSK_OK;
  HUSK_TRY(visit_argument<Everything>(args, self_at, [&](auto tag) {
    using T = typename decltype(tag)::type;
    status = each_scattered(
        s, dim, kSideBySide<T> && !windows && are_side_by_side(s),
        [&](const int64_t(&at)[3], int64_t& wrong) {
          if (!windows) return scatter_row<T>(s, at, wrong);
          int64_t first = 0;  // a row without elements has a window, too, which checks its indices
          do {
            if (!scatter_window<T>(s, at, first, wrong)) return false;
            first += kWindow<Value<T>>;
          } while (first < s.length);
          return true;
        },
        [&](const int64_t(&at)[3], int64_t rows, int64_t step, int64_t& wrong) {
          if constexpr (kSideBySide<T>) return scatter_rows<T>(s, at, rows, step, wrong);
          return false;
        });
  }));
  return status;
}

// Reads the name of the reduction.
husk_status reduce_of(const Arguments& args, ArgumentPlace at, Reduce& out) {
  constexpr ArgumentsOf named("scatter_reduce", "scatter_reduce_into");
  constexpr uint32_t kSelf = named["self"];
  constexpr struct {
    const char* name;
    Reduce reduce;
  } kReductions[] = {{"sum", Reduce::Sum},      {"add", Reduce::Sum},
                     {"prod", Reduce::Product}, {"multiply", Reduce::Product},
                     {"mean", Reduce::Mean},    {"amax", Reduce::Max},
                     {"amin", Reduce::Min}};
  if (args[at].kind == HUSK_ARG_STRING && args[at].string) {
    for (const auto& row : kReductions) {
      if (__builtin_strcmp(row.name, args[at].string) != 0) continue;
      out = row.reduce;
      const int32_t dtype = args[kSelf].dtype;
      const bool has_order = dtype != HUSK_C64 && dtype != HUSK_C128;
      return has_order || out == Reduce::Sum || out == Reduce::Product || out == Reduce::Mean
                 ? husk_status{HUSK_OK}
                 : args.unsupported_dtype(kSelf);
    }
  }
  return args.argument_error(at, HUSK_INVALID_ARGUMENT,
                             "is none of sum, prod, mean, amax, amin, add, multiply");
}

}  // namespace

husk_status scatter_into(const Arguments& args) {
  constexpr ArgumentsOf named("scatter_into");
  constexpr uint32_t kSelf = named["self"], kSrc = named["src"];
  return run(args, kSelf, kSrc, Reduce::Assign, true);
}

husk_status scatter_add_into(const Arguments& args) {
  constexpr ArgumentsOf named("scatter_add_into");
  constexpr uint32_t kSelf = named["self"], kSrc = named["src"];
  return run(args, kSelf, kSrc, Reduce::Sum, true);
}

husk_status scatter_reduce_into(const Arguments& args) {
  constexpr ArgumentsOf named("scatter_reduce_into");
  constexpr uint32_t kSelf = named["self"], kSrc = named["src"], kReduce = named["reduce"],
                     kIncludeSelf = named["include_self"];
  Reduce reduce{};
  bool include_self = true;
  HUSK_TRY(args.check_tensor(kSelf));
  HUSK_TRY(reduce_of(args, kReduce, reduce));
  if (!args.none(kIncludeSelf)) HUSK_TRY(args.get_bool(kIncludeSelf, include_self));
  return run(args, kSelf, kSrc, reduce, include_self);
}

husk_status scatter(const Arguments& args) {
  constexpr ArgumentsOf named("scatter");
  constexpr uint32_t kSelf = named["self"], kSrc = named["src"], kOut = named["out"];
  HUSK_TRY(copy_elements(args, kOut, kSelf));
  return run(args, kOut, kSrc, Reduce::Assign, true);
}

husk_status scatter_add(const Arguments& args) {
  constexpr ArgumentsOf named("scatter_add");
  constexpr uint32_t kSelf = named["self"], kSrc = named["src"], kOut = named["out"];
  HUSK_TRY(copy_elements(args, kOut, kSelf));
  return run(args, kOut, kSrc, Reduce::Sum, true);
}

husk_status scatter_reduce(const Arguments& args) {
  constexpr ArgumentsOf named("scatter_reduce");
  constexpr uint32_t kSelf = named["self"], kSrc = named["src"], kReduce = named["reduce"],
                     kIncludeSelf = named["include_self"], kOut = named["out"];
  Reduce reduce{};
  bool include_self = true;
  HUSK_TRY(copy_elements(args, kOut, kSelf));
  HUSK_TRY(reduce_of(args, kReduce, reduce));
  HUSK_TRY(args.get_bool(kIncludeSelf, include_self));
  return run(args, kOut, kSrc, reduce, include_self);
}

husk_status gather(const Arguments& args) {
  constexpr ArgumentsOf named("gather");
  constexpr uint32_t kSelf = named["self"], kDim = named["dim"], kIndex = named["index"],
                     kOut = named["out"];
  HUSK_TRY(args.check_tensor(kSelf));
  HUSK_TRY(args.check_tensor(kIndex));
  HUSK_TRY(args.check_tensor(kOut));
  HUSK_TRY(args.check_same_dtype(kOut, kSelf));
  HUSK_TRY(args.check_same_shape(kOut, kIndex));
  const husk_op_arg &self = args[kSelf], &index = args[kIndex], &out = args[kOut];
  int32_t dim = 0;
  HUSK_TRY(args.get_dim(kDim, self.rank, dim));
  HUSK_TRY(args.check_index_dtype(kIndex));
  Scatter s{args, self, index, &out, {}, Reduce::Assign, true, 0, 0, Loop<3>(args), 0, 0, 0};
  HUSK_TRY(rows_of(s, kIndex, dim));
  husk_status status = HUSK_OK;
  visit_bytes(dtype_bytes(self.dtype), [&](auto tag) {
    using T = typename decltype(tag)::type;
    status = each_scattered(
        s, dim, are_side_by_side(s),
        [&](const int64_t(&at)[3], int64_t& wrong) {
          return each_place(s, at[1], wrong, [&](int64_t from, int64_t i) {
            writable<T>(out)[at[2] + i * s.source_stride] = data_of<T>(
                self)[at[0] + from * s.stride];
          });
        },
        [&](const int64_t(&at)[3], int64_t rows, int64_t step, int64_t& wrong) {
          return each_places(s, at, rows, step, wrong,
                             [&](const int64_t* places, int64_t column, int64_t count, int64_t i) {
                               T* const to = writable<T>(out) + at[2] + column +
                                             i * s.source_stride;
                               const T* const from = data_of<T>(self) + at[0] + column;
                               for (int64_t r = 0; r < count; ++r)
                                 to[r] = from[places[step == 0 ? 0 : r] * s.stride + r];
                             });
        });
  });
  return status;
}

}  // namespace husk::host
