// Sums, means, products, variances, all and any over dimensions, for complex tensors, which
// frontends leave to ops, and for all other dtypes. Sums are in f64.
#include "contracts.h"
#include "core/arguments.h"
#include "core/complex_row.h"
#include "core/loop.h"
#include "error.h"

namespace husk::host {

namespace {

enum class Reduction { Sum, Mean, Product, Variance, All, Any };

struct Reduce {
  Loop<2> kept;     // over the dimensions of the result; operands: self, out
  Loop<1> reduced;  // over the reduced dimensions; operand: self
  int64_t count;    // elements that are reduced to one
};

// Reads the dimensions to reduce as bits: a list of ints, one int, or none for all dimensions.
husk_status get_dims(const Arguments& args, ArgumentPlace at, int32_t rank, uint32_t& mask) {
  mask = 0;
  const bool is_int = at < args.count && args[at].kind == HUSK_ARG_INT;
  if (args.none(at) || (args[at].kind == HUSK_ARG_INTS && args[at].count == 0)) {
    mask = (1u << rank) - 1;
    return HUSK_OK;
  }
  if (!is_int) HUSK_TRY(args.check_int_list(at));
  for (int64_t i = 0; i < (is_int ? 1 : args[at].count); ++i) {
    const int64_t dim = is_int ? args[at].i : args[at].sizes[i], dims = rank > 0 ? rank : 1;
    if (dim < -dims || dim >= dims)
      return args.argument_error(at, HUSK_INVALID_ARGUMENT, "names no dimension of self");
    if (rank > 0) mask |= 1u << (dim < 0 ? dim + dims : dim);
  }
  return HUSK_OK;
}

// All functions of this file have self at the same place.
constexpr uint32_t kReduced = ArgumentsOf("reduce_all", "reduce_all_dim", "reduce_any",
                                          "reduce_any_dim", "reduce_mean", "reduce_mean_dims",
                                          "reduce_prod", "reduce_prod_dim", "reduce_sum",
                                          "reduce_sum_dims", "reduce_var")["self"];

// Sets up the loops for the dimensions in `mask` and checks the shape of the output.
husk_status set_loops(const Arguments& args, uint32_t mask, bool keep, ArgumentPlace out_at,
                      Reduce& r) {
  const husk_op_arg &self = args[kReduced], &out = args[out_at];
  int32_t next = 0;
  r.count = 1;
  for (int32_t d = 0; d < self.rank; ++d) {
    const bool is_reduced = mask >> d & 1;
    if (is_reduced) {
      r.reduced.sizes[r.reduced.rank] = self.sizes[d];
      r.reduced.strides[0][r.reduced.rank++] = self.strides[d];
      r.count *= self.sizes[d];
    }
    if (is_reduced && !keep) continue;
    if (next >= out.rank)
      return args.argument_error(out_at, HUSK_INVALID_ARGUMENT, "has too few dimensions");
    HUSK_TRY(args.check_size(out_at, next, is_reduced ? 1 : self.sizes[d], "what is left of self"));
    if (!is_reduced) {
      r.kept.sizes[r.kept.rank] = self.sizes[d];
      r.kept.strides[0][r.kept.rank] = self.strides[d];
      r.kept.strides[1][r.kept.rank++] = out.strides[next];
    }
    ++next;
  }
  if (next != out.rank)
    return args.argument_error(out_at, HUSK_INVALID_ARGUMENT, "has too many dimensions");
  r.kept.merge();
  r.reduced.merge();
  return HUSK_OK;
}

// Calls f(value) for all elements that are reduced to one result.
template <class F>
void each_value(const Reduce& r, const husk_op_arg& self, ReadRow read, int64_t start, F f) {
  each_row(r.reduced, [&](const int64_t(&at)[1], int64_t count, const int64_t(&steps)[1]) {
    Complex128 values[kRowBlock];
    for (int64_t first = 0; first < count; first += kRowBlock) {
      const int64_t length = count - first < kRowBlock ? count - first : kRowBlock;
      read(self.data, start + at[0] + first * steps[0], steps[0], values, length);
      for (int64_t i = 0; i < length; ++i) f(values[i]);
    }
  });
}

husk_status run(const Arguments& args, ArgumentPlace dims_at, bool keep, ArgumentPlace out_at,
                Reduction kind, double correction) {
  HUSK_TRY(args.check_tensor(kReduced));
  HUSK_TRY(args.check_tensor(out_at));
  const husk_op_arg &self = args[kReduced], &out = args[out_at];
  ReadRow read = nullptr;
  WriteRow write = nullptr;
  if (!row_reader(self.dtype, read)) return args.unsupported_dtype(kReduced);
  if (!row_writer(out.dtype, write)) return args.unsupported_dtype(out_at);
  uint32_t mask = 0;
  HUSK_TRY(get_dims(args, dims_at, self.rank, mask));
  Reduce r{Loop<2>(args), Loop<1>(args), 0};
  HUSK_TRY(set_loops(args, mask, keep, out_at, r));
  each(r.kept, [&](const int64_t(&at)[2]) {
    Complex128 total{kind == Reduction::Product || kind == Reduction::All ? 1.0 : 0.0, 0};
    each_value(r, self, read, at[0], [&](Complex128 value) {
      const bool truth = value.re != 0 || value.im != 0;
      if (kind == Reduction::Product)
        total = times(total, value);
      else if (kind == Reduction::All)
        total.re = total.re != 0 && truth;
      else if (kind == Reduction::Any)
        total.re = total.re != 0 || truth;
      else
        total = plus(total, value);
    });
    const double count = static_cast<double>(r.count);
    if (kind == Reduction::Mean || kind == Reduction::Variance)
      total = {total.re / count, total.im / count};
    if (kind == Reduction::Variance) {
      double squares = 0;
      each_value(r, self, read, at[0], [&](Complex128 value) {
        const Complex128 d = minus(value, total);
        squares += d.re * d.re + d.im * d.im;
      });
      total = {squares / (count - correction > 0 ? count - correction : 0), 0};
    }
    write(out.data, at[1], 1, &total, 1);
  });
  return HUSK_OK;
}

// Reduces along the dimensions at argument `dim`.
husk_status run_along(const Arguments& args, ArgumentPlace keep_at, ArgumentPlace out_at,
                      Reduction kind) {
  constexpr ArgumentsOf named("reduce_all_dim", "reduce_any_dim", "reduce_mean_dims",
                              "reduce_prod_dim", "reduce_sum_dims");
  constexpr uint32_t kDim = named["dim"];
  bool keep = false;
  HUSK_TRY(args.get_bool(keep_at, keep));
  return run(args, kDim, keep, out_at, kind, 0);
}

}  // namespace

husk_status reduce_sum(const Arguments& args) {
  constexpr ArgumentsOf named("reduce_sum");
  constexpr uint32_t kOut = named["out"];
  return run(args, kNoArgument, false, kOut, Reduction::Sum, 0);
}
husk_status reduce_sum_dims(const Arguments& args) {
  constexpr ArgumentsOf named("reduce_sum_dims");
  constexpr uint32_t kKeepdim = named["keepdim"], kOut = named["out"];
  return run_along(args, kKeepdim, kOut, Reduction::Sum);
}
husk_status reduce_mean(const Arguments& args) {
  constexpr ArgumentsOf named("reduce_mean");
  constexpr uint32_t kOut = named["out"];
  return run(args, kNoArgument, false, kOut, Reduction::Mean, 0);
}
husk_status reduce_mean_dims(const Arguments& args) {
  constexpr ArgumentsOf named("reduce_mean_dims");
  constexpr uint32_t kKeepdim = named["keepdim"], kOut = named["out"];
  return run_along(args, kKeepdim, kOut, Reduction::Mean);
}
husk_status reduce_prod(const Arguments& args) {
  constexpr ArgumentsOf named("reduce_prod");
  constexpr uint32_t kOut = named["out"];
  return run(args, kNoArgument, false, kOut, Reduction::Product, 0);
}
husk_status reduce_prod_dim(const Arguments& args) {
  constexpr ArgumentsOf named("reduce_prod_dim");
  constexpr uint32_t kKeepdim = named["keepdim"], kOut = named["out"];
  return run_along(args, kKeepdim, kOut, Reduction::Product);
}
husk_status reduce_all(const Arguments& args) {
  constexpr ArgumentsOf named("reduce_all");
  constexpr uint32_t kOut = named["out"];
  return run(args, kNoArgument, false, kOut, Reduction::All, 0);
}
husk_status reduce_any(const Arguments& args) {
  constexpr ArgumentsOf named("reduce_any");
  constexpr uint32_t kOut = named["out"];
  return run(args, kNoArgument, false, kOut, Reduction::Any, 0);
}
husk_status reduce_all_dim(const Arguments& args) {
  constexpr ArgumentsOf named("reduce_all_dim");
  constexpr uint32_t kKeepdim = named["keepdim"], kOut = named["out"];
  return run_along(args, kKeepdim, kOut, Reduction::All);
}
husk_status reduce_any_dim(const Arguments& args) {
  constexpr ArgumentsOf named("reduce_any_dim");
  constexpr uint32_t kKeepdim = named["keepdim"], kOut = named["out"];
  return run_along(args, kKeepdim, kOut, Reduction::Any);
}

husk_status reduce_var(const Arguments& args) {
  constexpr ArgumentsOf named("reduce_var");
  constexpr uint32_t kDim = named["dim"], kCorrection = named["correction"],
                     kKeepdim = named["keepdim"], kOut = named["out"];
  double correction = 1;
  bool keep = false;
  if (!args.none(kCorrection)) HUSK_TRY(args.get_number(kCorrection, correction));
  HUSK_TRY(args.get_bool(kKeepdim, keep));
  return run(args, kDim, keep, kOut, Reduction::Variance, correction);
}

}  // namespace husk::host
