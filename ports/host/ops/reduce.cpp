// Sums, means, products and variances over any dimensions, for complex tensors (and any others). Sums are in f64.
#include "arguments.h"
#include "error.h"
#include "loop.h"
#include "wide.h"

namespace husk::host {

namespace {

enum class Reduction { Sum, Mean, Product, Variance, All, Any };

struct Reduce {
  Loop<2> kept;        // self, out
  Loop<1> reduced;     // self
  int64_t count;       // elements that each result is made of
};

// Which dimensions go: a list of ints, one int, or none for all of them.
husk_status dims_of(const Arguments& args, uint32_t at, int32_t rank, uint32_t& mask) {
  mask = 0;
  const bool one = at < args.count && args[at].kind == HUSK_ARG_INT;
  if (args.none(at) || (args[at].kind == HUSK_ARG_INTS && args[at].count == 0)) {
    mask = (1u << rank) - 1;
    return HUSK_OK;
  }
  if (!one && args[at].kind != HUSK_ARG_INTS) return args.refuse(at, HUSK_INVALID_ARGUMENT, "is no list of ints");
  for (int64_t i = 0; i < (one ? 1 : args[at].count); i++) {
    const int64_t given = one ? args[at].i : args[at].sizes[i], dims = rank > 0 ? rank : 1;
    if (given < -dims || given >= dims) return args.refuse(at, HUSK_INVALID_ARGUMENT, "names no dimension of self");
    if (rank > 0) mask |= 1u << (given < 0 ? given + dims : given);
  }
  return HUSK_OK;
}

husk_status loops(const Arguments& args, uint32_t mask, bool keep, uint32_t out_at, Reduce& r) {
  const husk_op_arg &self = args[0], &out = args[out_at];
  int32_t next = 0;
  r.count = 1;
  for (int32_t d = 0; d < self.rank; d++) {
    const bool goes = mask >> d & 1;
    if (goes) {
      r.reduced.sizes[r.reduced.rank] = self.sizes[d];
      r.reduced.strides[0][r.reduced.rank++] = self.strides[d];
      r.count *= self.sizes[d];
    }
    if (goes && !keep) continue;
    if (next >= out.rank) return args.refuse(out_at, HUSK_INVALID_ARGUMENT, "has too few dimensions");
    HUSK_TRY(args.size(out_at, next, goes ? 1 : self.sizes[d], "what is left of self"));
    if (!goes) {
      r.kept.sizes[r.kept.rank] = self.sizes[d];
      r.kept.strides[0][r.kept.rank] = self.strides[d];
      r.kept.strides[1][r.kept.rank++] = out.strides[next];
    }
    next++;
  }
  if (next != out.rank) return args.refuse(out_at, HUSK_INVALID_ARGUMENT, "has too many dimensions");
  r.kept.merge();
  r.reduced.merge();
  return HUSK_OK;
}

template <class F>
void each_value(const Reduce& r, const husk_op_arg& self, ReadWide read, int64_t start, F f) {
  each_row(r.reduced, [&](const int64_t(&at)[1], int64_t count, const int64_t(&steps)[1]) {
    Wide values[wide_block];
    for (int64_t first = 0; first < count; first += wide_block) {
      const int64_t length = count - first < wide_block ? count - first : wide_block;
      read(self.data, start + at[0] + first * steps[0], steps[0], values, length);
      for (int64_t i = 0; i < length; i++) f(values[i]);
    }
  });
}

husk_status run(const Arguments& args, uint32_t dims_at, bool keep, uint32_t out_at, Reduction kind,
                double correction) {
  HUSK_TRY(args.tensor(0));
  HUSK_TRY(args.tensor(out_at));
  const husk_op_arg &self = args[0], &out = args[out_at];
  ReadWide read = nullptr;
  WriteWide write = nullptr;
  if (!reader_of(self.dtype, read)) return args.unsupported_dtype(0);
  if (!writer_of(out.dtype, write)) return args.unsupported_dtype(out_at);
  uint32_t mask = 0;
  HUSK_TRY(dims_of(args, dims_at, self.rank, mask));
  Reduce r{};
  HUSK_TRY(loops(args, mask, keep, out_at, r));
  each(r.kept, [&](const int64_t(&at)[2]) {
    Wide total{kind == Reduction::Product || kind == Reduction::All ? 1.0 : 0.0, 0};
    each_value(r, self, read, at[0], [&](Wide value) {
      const bool truth = value.re != 0 || value.im != 0;
      if (kind == Reduction::Product) total = times(total, value);
      else if (kind == Reduction::All) total.re = total.re != 0 && truth;
      else if (kind == Reduction::Any) total.re = total.re != 0 || truth;
      else total = plus(total, value);
    });
    const double count = static_cast<double>(r.count);
    if (kind == Reduction::Mean || kind == Reduction::Variance) total = {total.re / count, total.im / count};
    if (kind == Reduction::Variance) {
      double squares = 0;
      each_value(r, self, read, at[0], [&](Wide value) {
        const Wide d = minus(value, total);
        squares += d.re * d.re + d.im * d.im;
      });
      total = {squares / (count - correction > 0 ? count - correction : 0), 0};
    }
    write(out.data, at[1], 1, &total, 1);
  });
  return HUSK_OK;
}

constexpr uint32_t everything = 0xffffffff;   // no argument: all dimensions

husk_status along(const Arguments& args, uint32_t keep_at, uint32_t out_at, Reduction kind) {
  bool keep = false;
  HUSK_TRY(args.boolean(keep_at, keep));
  return run(args, 1, keep, out_at, kind, 0);
}

}  // namespace

husk_status reduce_sum(const Arguments& args) { return run(args, everything, false, 2, Reduction::Sum, 0); }
husk_status reduce_sum_dims(const Arguments& args) { return along(args, 2, 4, Reduction::Sum); }
husk_status reduce_mean(const Arguments& args) { return run(args, everything, false, 2, Reduction::Mean, 0); }
husk_status reduce_mean_dims(const Arguments& args) { return along(args, 2, 4, Reduction::Mean); }
husk_status reduce_prod(const Arguments& args) { return run(args, everything, false, 2, Reduction::Product, 0); }
husk_status reduce_prod_dim(const Arguments& args) { return along(args, 2, 4, Reduction::Product); }
husk_status reduce_all(const Arguments& args) { return run(args, everything, false, 1, Reduction::All, 0); }
husk_status reduce_any(const Arguments& args) { return run(args, everything, false, 1, Reduction::Any, 0); }
husk_status reduce_all_dim(const Arguments& args) { return along(args, 2, 3, Reduction::All); }
husk_status reduce_any_dim(const Arguments& args) { return along(args, 2, 3, Reduction::Any); }

husk_status reduce_var(const Arguments& args) {
  double correction = 1;
  bool keep = false;
  if (!args.none(2)) HUSK_TRY(args.number(2, correction));
  HUSK_TRY(args.boolean(3, keep));
  return run(args, 1, keep, 4, Reduction::Variance, correction);
}

}  // namespace husk::host
