// Adaptive average and max pooling over one to three dimensions. Output i pools the inputs from
// floor(i * in / out) to ceil((i + 1) * in / out).
#include "contracts.h"
#include "core/arguments.h"
#include "core/checked.h"
#include "core/element.h"
#include "core/loop.h"
#include "error.h"
#include "nn/axes.h"

namespace husk::host {

namespace {

struct Pool {
  int64_t in[kAxes], out[kAxes], in_strides[kAxes], out_strides[kAxes], index_strides[kAxes];
  Loop<3> planes;  // over the dimensions before the spatial ones; operands: input, output, indices

  explicit Pool(const Arguments& args) : planes(args) {}
};

// The product of `in` and `out` fits in an int64_t.
int64_t start_of(int64_t i, int64_t in, int64_t out) { return i / out * in + i % out * in / out; }
int64_t end_of(int64_t i, int64_t in, int64_t out) { return 1 + ((i + 1) * in - 1) / out; }

// Checks the arguments and reads the geometry.
husk_status read(const Arguments& args, int32_t spatial, ArgumentPlace out_at,
                 ArgumentPlace indices_at, Pool& p) {
  constexpr ArgumentsOf named("adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d",
                              "adaptive_max_pool2d", "adaptive_max_pool3d");
  constexpr uint32_t kSelf = named["self"], kOutputSize = named["output_size"];
  HUSK_TRY(args.check_tensor(kSelf, spatial + 1, spatial + 2));
  const int32_t rank = args[kSelf].rank;
  HUSK_TRY(args.check_ints(kOutputSize, spatial));
  HUSK_TRY(args.check_tensor(out_at, rank, rank));
  HUSK_TRY(args.check_same_dtype(out_at, kSelf));
  const bool with_indices = indices_at != kNoArgument;
  if (with_indices) {
    HUSK_TRY(args.check_tensor(indices_at, rank, rank));
    HUSK_TRY(args.check_dtype(indices_at, HUSK_I64));
    HUSK_TRY(args.check_same_shape(indices_at, out_at));
  }
  const husk_op_arg &self = args[kSelf], &out = args[out_at],
                    &indices = args[with_indices ? indices_at : out_at];
  p.planes.shape(self);
  p.planes.add(1, out);
  p.planes.add(2, indices);
  p.planes.rank = rank - spatial;
  for (int32_t d = 0; d < rank - spatial; ++d)
    HUSK_TRY(args.check_size(out_at, d, self.sizes[d], "the input's"));
  for (int d = 0; d < kAxes; ++d) {
    const int32_t at = rank - kAxes + d;
    const bool is_used = d >= kAxes - spatial;
    if (is_used)
      HUSK_TRY(args.check_size(out_at, at, args[kOutputSize].sizes[d - (kAxes - spatial)],
                               "output_size"));
    p.in[d] = is_used ? self.sizes[at] : 1;
    p.out[d] = is_used ? out.sizes[at] : 1;
    p.in_strides[d] = is_used ? self.strides[at] : 0;
    p.out_strides[d] = is_used ? out.strides[at] : 0;
    p.index_strides[d] = is_used ? indices.strides[at] : 0;
    if (p.in[d] == 0 && numel(out) > 0)
      return args.argument_error(kSelf, HUSK_INVALID_INPUT, "has an empty spatial dimension");
    int64_t steps = 0;
    if (numel(out) > 0 && !checked_multiply(p.in[d], p.out[d], steps))
      return args.argument_error(kSelf, HUSK_UNSUPPORTED, "or output_size is too large");
  }
  return HUSK_OK;
}

// Calls f(output offset, index offset, first, last) for each window of a plane. The window is
// [first[d], last[d]) along axis d.
template <class F>
void each_window(const Pool& p, F f) {
  int64_t first[kAxes], last[kAxes];
  if (p.planes.cancellation->ended()) return;  // there may be many planes
  const auto set_window = [&](int d, int64_t at) {
    first[d] = start_of(at, p.in[d], p.out[d]);
    last[d] = end_of(at, p.in[d], p.out[d]);
  };
  for (int64_t z = 0; z < p.out[0]; ++z) {
    set_window(0, z);
    for (int64_t y = 0; y < p.out[1]; ++y) {
      set_window(1, y);
      const int64_t out = z * p.out_strides[0] + y * p.out_strides[1],
                    index = z * p.index_strides[0] + y * p.index_strides[1],
                    rows = (last[0] - first[0]) * (last[1] - first[1]);
      int64_t unreported = 1;
      for (int64_t x = 0; x < p.out[2]; ++x) {
        set_window(2, x);
        unreported += rows * (last[2] - first[2]);
        if (unreported >= kWorkBetweenQuestions) {
          if (p.planes.cancellation->ends(unreported)) return;
          unreported = 0;
        }
        f(out + x * p.out_strides[2], index + x * p.index_strides[2], first, last);
      }
      if (p.planes.cancellation->ends(unreported)) return;
    }
  }
}

// Calls f(input offset, index of the element in its plane) for each element of a window. A window
// of many elements reports them, and its rows, once more while it reads them.
template <class F>
void each_inside(const Pool& p, const int64_t* first, const int64_t* last, F f) {
  int64_t unreported = 0;
  for (int64_t z = first[0]; z < last[0]; ++z) {
    for (int64_t y = first[1]; y < last[1]; ++y) {
      ++unreported;  // the row
      for (int64_t x = first[2]; x < last[2];) {
        const int64_t rest = last[2] - x,
                      count = rest < kWorkBetweenQuestions ? rest : kWorkBetweenQuestions;
        unreported += count;
        if (unreported >= kWorkBetweenQuestions) {
          if (p.planes.cancellation->ends(unreported)) return;
          unreported = 0;
        }
        for (const int64_t end = x + count; x < end; ++x) {
          f(z * p.in_strides[0] + y * p.in_strides[1] + x * p.in_strides[2],
            (z * p.in[1] + y) * p.in[2] + x);
        }
      }
    }
  }
}

husk_status average(const Arguments& args, int32_t spatial) {
  constexpr ArgumentsOf named("adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d");
  constexpr uint32_t kSelf = named["self"], kOut = named["out"];
  Pool p(args);
  HUSK_TRY(read(args, spatial, kOut, kNoArgument, p));
  if (numel(args[kOut]) == 0) return HUSK_OK;
  return visit_argument<Floats | Halves>(args, kSelf, [&](auto tag) {
    using T = typename decltype(tag)::type;
    each(p.planes, [&](const int64_t(&at)[3]) {
      each_window(p, [&](int64_t out, int64_t, const int64_t* first, const int64_t* last) {
        Value<T> sum = 0;
        each_inside(p, first, last, [&](int64_t offset, int64_t) {
          sum += get(data_of<T>(args[kSelf]) + at[0] + offset);
        });
        const int64_t count = (last[0] - first[0]) * (last[1] - first[1]) * (last[2] - first[2]);
        set(writable<T>(args[kOut]) + at[1] + out, sum / static_cast<Value<T>>(count));
      });
    });
  });
}

// Max pooling. NaN counts as the largest value. The second output is the index of the largest
// element in its plane.
husk_status maximum(const Arguments& args, int32_t spatial) {
  constexpr ArgumentsOf named("adaptive_max_pool2d", "adaptive_max_pool3d");
  constexpr uint32_t kSelf = named["self"], kOut = named["out"], kIndices = named["indices"];
  Pool p(args);
  HUSK_TRY(read(args, spatial, kOut, kIndices, p));
  if (numel(args[kOut]) == 0) return HUSK_OK;
  return visit_argument<Reals>(args, kSelf, [&](auto tag) {
    using T = typename decltype(tag)::type;
    each(p.planes, [&](const int64_t(&at)[3]) {
      each_window(p, [&](int64_t out, int64_t index, const int64_t* first, const int64_t* last) {
        Value<T> best{};
        int64_t best_index = -1;
        each_inside(p, first, last, [&](int64_t offset, int64_t number) {
          const Value<T> value = get(data_of<T>(args[kSelf]) + at[0] + offset);
          if (best_index >= 0 && !(value > best) && !is_nan(value)) return;
          best = value;
          best_index = number;
        });
        set(writable<T>(args[kOut]) + at[1] + out, best);
        writable<int64_t>(args[kIndices])[at[2] + index] = best_index;
      });
    });
  });
}

}  // namespace

husk_status adaptive_avg_pool1d(const Arguments& args) { return average(args, 1); }
husk_status adaptive_avg_pool2d(const Arguments& args) { return average(args, 2); }
husk_status adaptive_avg_pool3d(const Arguments& args) { return average(args, 3); }
husk_status adaptive_max_pool2d(const Arguments& args) { return maximum(args, 2); }
husk_status adaptive_max_pool3d(const Arguments& args) { return maximum(args, 3); }

}  // namespace husk::host
