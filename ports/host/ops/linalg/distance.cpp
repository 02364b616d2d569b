// aten::_cdist_forward and _pdist_forward: p-norms of differences of rows.
#include <cmath>
#include <type_traits>

#include "contracts.h"
#include "core/arguments.h"
#include "core/arithmetic.h"
#include "core/checked.h"
#include "core/extremes.h"
#include "core/loop.h"
#include "error.h"

namespace husk::host {

namespace {

// The sum of the squares, or of the absolute values, of the differences of two rows without gaps.
// Sums of a few lanes are those of vectors, whose errors stay small over a part of a row.
double sum_of_differences(Cancellation& cancellation, const float* a, const float* b, int64_t count,
                          bool squares) {
  constexpr int64_t kLanes = 16, kPart = 1024;
  double total = 0;
  for (int64_t begin = 0; begin < count; begin += kPart) {
    if (cancellation.ends(kPart / kLanes)) break;
    const int64_t end = smaller(begin + kPart, count), whole = end - (end - begin) % kLanes;
    float sums[kLanes] = {};
    const auto add_all = [&](auto of) {
      for (int64_t i = begin; i < whole; i += kLanes)
        for (int64_t lane = 0; lane < kLanes; ++lane) sums[lane] += of(a[i + lane] - b[i + lane]);
      for (int64_t i = whole; i < end; ++i) sums[i - whole] += of(a[i] - b[i]);
    };
    if (squares)
      add_all([](float d) { return d * d; });
    else
      add_all([](float d) { return std::fabs(d); });
    for (const float sum : sums) total += sum;
  }
  return total;
}

// The p-norm of the difference of two rows.
template <class T>
double distance(Cancellation& cancellation, const T* a, int64_t a_step, const T* b, int64_t b_step,
                int64_t count, double p) {
  if constexpr (std::is_same_v<T, float>) {
    if (a_step == 1 && b_step == 1 && (p == 1 || p == 2)) {
      const double sum = sum_of_differences(cancellation, a, b, count, p == 2);
      return p == 2 ? std::sqrt(sum) : sum;
    }
  }
  double total = 0;
  each_index(cancellation, count, [&](int64_t i) {
    const double d = std::fabs(static_cast<double>(get(a + i * a_step)) -
                               static_cast<double>(get(b + i * b_step)));
    if (p == 0)
      total += d != 0;
    else if (p == 1)
      total += d;
    else if (p == 2)
      total += d * d;
    else if (std::isinf(p))
      total = is_nan(d) || d > total ? d : total;
    else
      total += std::pow(d, p);
  });
  return p == 0 || p == 1 || std::isinf(p) ? total
         : p == 2                          ? std::sqrt(total)
                                           : std::pow(total, 1 / p);
}

// Reads the p of a p-norm.
husk_status get_p(const Arguments& args, ArgumentPlace at, double& p) {
  HUSK_TRY(args.get_number(at, p));
  return p >= 0 ? husk_status{HUSK_OK}
                : args.argument_error(at, HUSK_INVALID_ARGUMENT, "is negative");
}

}  // namespace

husk_status cdist(const Arguments& args) {
  constexpr ArgumentsOf named("cdist");
  constexpr uint32_t kX1 = named["x1"], kX2 = named["x2"], kP = named["p"], kOut = named["out"];
  HUSK_TRY(args.check_tensor(kX1, 2, kMaxRank));
  HUSK_TRY(args.check_tensor(kX2, 2, kMaxRank));
  HUSK_TRY(args.check_tensor(kOut, 2, kMaxRank));
  HUSK_TRY(args.check_same_dtype(kX2, kX1));
  HUSK_TRY(args.check_same_dtype(kOut, kX1));
  double p = 0;
  HUSK_TRY(get_p(args, kP, p));
  const husk_op_arg a = with_safe_strides(args[kX1]), b = with_safe_strides(args[kX2]),
                    &out = args[kOut];
  HUSK_TRY(args.check_size(kX2, b.rank - 1, a.sizes[a.rank - 1], "the columns of x1"));
  HUSK_TRY(args.check_size(kOut, out.rank - 2, a.sizes[a.rank - 2], "the rows of x1"));
  HUSK_TRY(args.check_size(kOut, out.rank - 1, b.sizes[b.rank - 2], "the rows of x2"));
  Loop<3> batches(args);  // operands: out, x1, x2
  batches.shape(out);
  batches.rank = out.rank - 2;
  husk_op_arg left = a, right = b;
  left.rank -= 2;
  right.rank -= 2;
  if (!broadcast(left, out.sizes, batches.rank, batches.strides[1]) ||
      !broadcast(right, out.sizes, batches.rank, batches.strides[2])) {
    return args.argument_error(kOut, HUSK_INVALID_ARGUMENT,
                               "has batches that x1 and x2 do not broadcast to");
  }
  if (numel(out) == 0) return HUSK_OK;
  return visit_argument<Floats | Halves>(args, kX1, [&](auto tag) {
    using T = typename decltype(tag)::type;
    each(batches, [&](const int64_t(&at)[3]) {
      each_index_while(args.cancellation, a.sizes[a.rank - 2], [&](int64_t i) {
        return each_index(args.cancellation, b.sizes[b.rank - 2], [&](int64_t j) {
          const double d = distance(
              args.cancellation, data_of<T>(a) + at[1] + i * a.strides[a.rank - 2],
              a.strides[a.rank - 1], data_of<T>(b) + at[2] + j * b.strides[b.rank - 2],
              b.strides[b.rank - 1], a.sizes[a.rank - 1], p);
          set(writable<T>(out) + at[0] + i * out.strides[out.rank - 2] +
                  j * out.strides[out.rank - 1],
              static_cast<Value<T>>(d));
        });
      });
    });
  });
}

husk_status pdist(const Arguments& args) {
  constexpr ArgumentsOf named("pdist");
  constexpr uint32_t kSelf = named["self"], kP = named["p"], kOut = named["out"];
  HUSK_TRY(args.check_tensor(kSelf, 2, 2));
  double p = 0;
  HUSK_TRY(get_p(args, kP, p));
  const husk_op_arg& self = args[kSelf];
  const int64_t rows = self.sizes[0];
  int64_t pairs = 0;
  if (rows > 1 &&
      !checked_multiply(rows % 2 ? rows : rows / 2, rows % 2 ? (rows - 1) / 2 : rows - 1, pairs)) {
    return args.argument_error(kSelf, HUSK_UNSUPPORTED, "has too many rows");
  }
  HUSK_TRY(args.check_vector(kOut, pairs, "one for each pair of rows"));
  HUSK_TRY(args.check_same_dtype(kOut, kSelf));
  return visit_argument<Floats>(args, kSelf, [&](auto tag) {
    using T = typename decltype(tag)::type;
    int64_t to = 0;
    each_index_while(args.cancellation, rows, [&](int64_t i) {
      return each_index(args.cancellation, rows - i - 1, [&](int64_t after) {
        writable<T>(args[kOut])[to] = static_cast<T>(
            distance(args.cancellation, data_of<T>(self) + i * self.strides[0], self.strides[1],
                     data_of<T>(self) + (i + 1 + after) * self.strides[0], self.strides[1],
                     self.sizes[1], p));
        to += args[kOut].strides[0];
      });
    });
  });
}

}  // namespace husk::host
