// Adaptive pools of one to three dimensions: each output looks at a window of its own, from floor(i * in / out) to
// ceil((i + 1) * in / out).
#include "arguments.h"
#include "element.h"
#include "error.h"
#include "loop.h"

namespace husk::host {

namespace {

constexpr int axes = 3;

struct Pool {
  int64_t in[axes], out[axes], in_strides[axes], out_strides[axes], index_strides[axes];
  Loop<3> planes;   // input, output, indices: the dimensions before the spatial ones
};

int64_t start_of(int64_t i, int64_t in, int64_t out) { return i / out * in + i % out * in / out; }
int64_t end_of(int64_t i, int64_t in, int64_t out) { return 1 + ((i + 1) * in - 1) / out; }

husk_status read(const Arguments& args, int32_t spatial, uint32_t out_at, bool with_indices, Pool& p) {
  HUSK_TRY(args.tensor(0, spatial + 1, spatial + 2));
  const int32_t rank = args[0].rank;
  HUSK_TRY(args.integers(1, spatial));
  HUSK_TRY(args.tensor(out_at, rank, rank));
  HUSK_TRY(args.same_dtype(out_at, 0));
  if (with_indices) {
    HUSK_TRY(args.tensor(out_at + 1, rank, rank));
    HUSK_TRY(args.dtype(out_at + 1, HUSK_I64));
    HUSK_TRY(args.same_shape(out_at + 1, out_at));
  }
  const husk_op_arg &self = args[0], &out = args[out_at], &indices = args[with_indices ? out_at + 1 : out_at];
  p.planes.shape(self);
  p.planes.add(1, out);
  p.planes.add(2, indices);
  p.planes.rank = rank - spatial;
  for (int32_t d = 0; d < rank - spatial; d++) HUSK_TRY(args.size(out_at, d, self.sizes[d], "the input's"));
  for (int d = 0; d < axes; d++) {
    const int32_t at = rank - axes + d;
    const bool real = d >= axes - spatial;
    if (real) HUSK_TRY(args.size(out_at, at, args[1].sizes[d - (axes - spatial)], "output_size"));
    p.in[d] = real ? self.sizes[at] : 1;
    p.out[d] = real ? out.sizes[at] : 1;
    p.in_strides[d] = real ? self.strides[at] : 0;
    p.out_strides[d] = real ? out.strides[at] : 0;
    p.index_strides[d] = real ? indices.strides[at] : 0;
    if (p.in[d] == 0 && numel(out) > 0) return args.refuse(0, HUSK_INVALID_INPUT, "has an empty spatial dimension");
  }
  return HUSK_OK;
}

// Calls f(output offset, index offset, first, last) for each window of a plane.
template <class F>
void each_window(const Pool& p, F f) {
  int64_t at[axes], first[axes], last[axes];
  for (at[0] = 0; at[0] < p.out[0]; at[0]++) {
    for (at[1] = 0; at[1] < p.out[1]; at[1]++) {
      for (at[2] = 0; at[2] < p.out[2]; at[2]++) {
        int64_t out = 0, index = 0;
        for (int d = 0; d < axes; d++) {
          first[d] = start_of(at[d], p.in[d], p.out[d]);
          last[d] = end_of(at[d], p.in[d], p.out[d]);
          out += at[d] * p.out_strides[d];
          index += at[d] * p.index_strides[d];
        }
        f(out, index, first, last);
      }
    }
  }
}

// Calls f(input offset, number of the element in its plane) for each element of a window.
template <class F>
void each_inside(const Pool& p, const int64_t* first, const int64_t* last, F f) {
  for (int64_t z = first[0]; z < last[0]; z++) {
    for (int64_t y = first[1]; y < last[1]; y++) {
      for (int64_t x = first[2]; x < last[2]; x++) {
        f(z * p.in_strides[0] + y * p.in_strides[1] + x * p.in_strides[2], (z * p.in[1] + y) * p.in[2] + x);
      }
    }
  }
}

husk_status average(const Arguments& args, int32_t spatial) {
  Pool p{};
  HUSK_TRY(read(args, spatial, 2, false, p));
  const bool known = visit<Floats | Halves>(args[0].dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    each(p.planes, [&](const int64_t(&at)[3]) {
      each_window(p, [&](int64_t out, int64_t, const int64_t* first, const int64_t* last) {
        Value<T> sum = 0;
        each_inside(p, first, last, [&](int64_t offset, int64_t) { sum += get(data_of<T>(args[0]) + at[0] + offset); });
        const int64_t count = (last[0] - first[0]) * (last[1] - first[1]) * (last[2] - first[2]);
        set(writable<T>(args[2]) + at[1] + out, sum / static_cast<Value<T>>(count));
      });
    });
  });
  return known ? husk_status{HUSK_OK} : args.unsupported_dtype(0);
}

// With the place of each largest element in its plane; NaN is the largest.
husk_status most(const Arguments& args, int32_t spatial) {
  Pool p{};
  HUSK_TRY(read(args, spatial, 2, true, p));
  const bool known = visit<Reals>(args[0].dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    each(p.planes, [&](const int64_t(&at)[3]) {
      each_window(p, [&](int64_t out, int64_t index, const int64_t* first, const int64_t* last) {
        Value<T> best{};
        int64_t place = -1;
        each_inside(p, first, last, [&](int64_t offset, int64_t number) {
          const Value<T> value = get(data_of<T>(args[0]) + at[0] + offset);
          if (place >= 0 && !(value > best) && !is_nan(value)) return;
          best = value;
          place = number;
        });
        set(writable<T>(args[2]) + at[1] + out, best);
        writable<int64_t>(args[3])[at[2] + index] = place;
      });
    });
  });
  return known ? husk_status{HUSK_OK} : args.unsupported_dtype(0);
}

}  // namespace

husk_status adaptive_avg_pool1d(const Arguments& args) { return average(args, 1); }
husk_status adaptive_avg_pool2d(const Arguments& args) { return average(args, 2); }
husk_status adaptive_avg_pool3d(const Arguments& args) { return average(args, 3); }
husk_status adaptive_max_pool2d(const Arguments& args) { return most(args, 2); }
husk_status adaptive_max_pool3d(const Arguments& args) { return most(args, 3); }

}  // namespace husk::host
