// aten::_cdist_forward, _pdist_forward, gcd, hann_window, _trilinear and fake quantization.
#include <cmath>

#include "arguments.h"
#include "error.h"
#include "loop.h"
#include "number.h"

namespace husk::host {

namespace {

// The p-norm of the difference of two rows.
template <class T>
double distance(const T* a, int64_t a_step, const T* b, int64_t b_step, int64_t count, double p) {
  double total = 0;
  for (int64_t i = 0; i < count; i++) {
    const double d = std::fabs(static_cast<double>(get(a + i * a_step)) - static_cast<double>(get(b + i * b_step)));
    if (p == 0) total += d != 0;
    else if (p == 1) total += d;
    else if (p == 2) total += d * d;
    else if (std::isinf(p)) total = is_nan(d) || d > total ? d : total;
    else total += std::pow(d, p);
  }
  return p == 0 || p == 1 || std::isinf(p) ? total : p == 2 ? std::sqrt(total) : std::pow(total, 1 / p);
}

husk_status norm_of(const Arguments& args, uint32_t at, double& p) {
  HUSK_TRY(args.number(at, p));
  return p >= 0 ? husk_status{HUSK_OK} : args.refuse(at, HUSK_INVALID_ARGUMENT, "is negative");
}

}  // namespace

husk_status cdist(const Arguments& args) {
  HUSK_TRY(args.tensor(0, 2, most_dims));
  HUSK_TRY(args.tensor(1, 2, most_dims));
  HUSK_TRY(args.tensor(4, 2, most_dims));
  HUSK_TRY(args.same_dtype(1, 0));
  HUSK_TRY(args.same_dtype(4, 0));
  double p = 0;
  HUSK_TRY(norm_of(args, 2, p));
  const husk_op_arg &a = args[0], &b = args[1], &out = args[4];
  HUSK_TRY(args.size(1, b.rank - 1, a.sizes[a.rank - 1], "the columns of x1"));
  HUSK_TRY(args.size(4, out.rank - 2, a.sizes[a.rank - 2], "the rows of x1"));
  HUSK_TRY(args.size(4, out.rank - 1, b.sizes[b.rank - 2], "the rows of x2"));
  Loop<3> batches;   // out, x1, x2
  batches.shape(out);
  batches.rank = out.rank - 2;
  husk_op_arg left = a, right = b;
  left.rank -= 2;
  right.rank -= 2;
  if (!broadcast(left, out.sizes, batches.rank, batches.strides[1]) ||
      !broadcast(right, out.sizes, batches.rank, batches.strides[2])) {
    return args.refuse(4, HUSK_INVALID_ARGUMENT, "has batches that x1 and x2 do not broadcast to");
  }
  const bool known = visit<Floats | Halves>(a.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    each(batches, [&](const int64_t(&at)[3]) {
      for (int64_t i = 0; i < a.sizes[a.rank - 2]; i++) {
        for (int64_t j = 0; j < b.sizes[b.rank - 2]; j++) {
          const double d = distance(data_of<T>(a) + at[1] + i * a.strides[a.rank - 2], a.strides[a.rank - 1],
                                    data_of<T>(b) + at[2] + j * b.strides[b.rank - 2], b.strides[b.rank - 1],
                                    a.sizes[a.rank - 1], p);
          set(writable<T>(out) + at[0] + i * out.strides[out.rank - 2] + j * out.strides[out.rank - 1],
              static_cast<Value<T>>(d));
        }
      }
    });
  });
  return known ? husk_status{HUSK_OK} : args.unsupported_dtype(0);
}

husk_status pdist(const Arguments& args) {
  HUSK_TRY(args.tensor(0, 2, 2));
  double p = 0;
  HUSK_TRY(norm_of(args, 1, p));
  const husk_op_arg& self = args[0];
  const int64_t rows = self.sizes[0];
  HUSK_TRY(args.vector(2, rows > 1 ? rows * (rows - 1) / 2 : 0, "one for each pair of rows"));
  HUSK_TRY(args.same_dtype(2, 0));
  const bool known = visit<Floats>(self.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    int64_t to = 0;
    for (int64_t i = 0; i < rows; i++) {
      for (int64_t j = i + 1; j < rows; j++, to += args[2].strides[0]) {
        writable<T>(args[2])[to] = static_cast<T>(distance(data_of<T>(self) + i * self.strides[0], self.strides[1],
                                                           data_of<T>(self) + j * self.strides[0], self.strides[1],
                                                           self.sizes[1], p));
      }
    }
  });
  return known ? husk_status{HUSK_OK} : args.unsupported_dtype(0);
}

husk_status gcd(const Arguments& args) {
  for (uint32_t i = 0; i < 3; i++) HUSK_TRY(args.tensor(i));
  HUSK_TRY(args.same_dtype(1, 0));
  HUSK_TRY(args.same_dtype(2, 0));
  Loop<3> loop;
  loop.shape(args[2]);
  for (uint32_t i = 0; i < 2; i++) {
    if (!broadcast(args[i], args[2].sizes, args[2].rank, loop.strides[1 + i])) {
      return args.refuse(i, HUSK_INVALID_ARGUMENT, "has a shape that does not broadcast to the output's");
    }
  }
  const bool known = visit<Ints>(args[0].dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    each(loop, [&](const int64_t(&at)[3]) {
      T a = data_of<T>(args[0])[at[1]], b = data_of<T>(args[1])[at[2]];
      if (a < 0) a = minus(T(0), a);
      if (b < 0) b = minus(T(0), b);
      while (a != 0) {
        const T rest = a == T(-1) ? T(0) : static_cast<T>(b % a);
        b = a;
        a = rest;
      }
      writable<T>(args[2])[at[0]] = b;
    });
  });
  return known ? husk_status{HUSK_OK} : args.unsupported_dtype(0);
}

namespace {

husk_status hann(const Arguments& args, uint32_t out_at, bool periodic) {
  int64_t length = 0;
  HUSK_TRY(args.integer(0, length));
  HUSK_TRY(args.vector(out_at, length, "window_length"));
  const husk_op_arg& out = args[out_at];
  const double turns = static_cast<double>(periodic ? length : length - 1);
  const bool known = visit<Floats | Halves>(out.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    for (int64_t i = 0; i < length; i++) {
      const double angle = 2 * 3.14159265358979323846 * static_cast<double>(i) / turns;
      set(writable<T>(out) + i * out.strides[0], static_cast<Value<T>>(length == 1 ? 1 : 0.5 - 0.5 * std::cos(angle)));
    }
  });
  return known ? husk_status{HUSK_OK} : args.unsupported_dtype(out_at);
}

// A tensor with dimensions of size 1 put in, as strides over `rank` dimensions whose sizes it adds to.
husk_status expand(const Arguments& args, uint32_t at, uint32_t dims_at, int32_t rank, int64_t* sizes,
                   int64_t* strides) {
  const husk_op_arg& dims = args[dims_at];
  if (dims.kind != HUSK_ARG_INTS || dims.count + args[at].rank != rank) {
    return args.refuse(dims_at, HUSK_INVALID_ARGUMENT, "does not give all operands the same rank");
  }
  uint32_t added = 0;
  for (int64_t i = 0; i < dims.count; i++) {
    if (dims.sizes[i] < 0 || dims.sizes[i] >= rank)
      return args.refuse(dims_at, HUSK_INVALID_ARGUMENT, "names no dimension");
    added |= 1u << dims.sizes[i];
  }
  int32_t own = 0;
  for (int32_t d = 0; d < rank; d++) {
    strides[d] = 0;
    if (added >> d & 1) continue;
    if (own >= args[at].rank) return args.refuse(dims_at, HUSK_INVALID_ARGUMENT, "names a dimension twice");
    const int64_t size = args[at].sizes[own];
    if (size != 1) {
      if (sizes[d] != 1 && sizes[d] != size)
        return args.refuse(at, HUSK_INVALID_ARGUMENT, "does not broadcast with the others");
      sizes[d] = size;
      strides[d] = args[at].strides[own];
    }
    own++;
  }
  return HUSK_OK;
}

}  // namespace

husk_status hann_window(const Arguments& args) { return hann(args, 5, true); }

husk_status hann_window_periodic(const Arguments& args) {
  bool periodic = false;
  HUSK_TRY(args.boolean(1, periodic));
  return hann(args, 6, periodic);
}

// out = the sum over some dimensions of the product of three tensors.
husk_status trilinear(const Arguments& args) {
  for (uint32_t i = 0; i < 3; i++) HUSK_TRY(args.tensor(i));
  HUSK_TRY(args.tensor(8));
  HUSK_TRY(args.same_dtype(1, 0));
  HUSK_TRY(args.same_dtype(2, 0));
  HUSK_TRY(args.same_dtype(8, 0));
  if (args[3].kind != HUSK_ARG_INTS || args[6].kind != HUSK_ARG_INTS) {
    return args.refuse(3, HUSK_INVALID_ARGUMENT, "or sumdim is no list of ints");
  }
  const int64_t rank = args[0].rank + args[3].count;
  if (rank > most_dims) return args.refuse(3, HUSK_UNSUPPORTED, "gives too many dimensions");
  Loop<4> kept, summed;
  int64_t sizes[most_dims], strides[3][most_dims];
  for (int64_t d = 0; d < rank; d++) sizes[d] = 1;
  for (uint32_t i = 0; i < 3; i++) HUSK_TRY(expand(args, i, 3 + i, static_cast<int32_t>(rank), sizes, strides[i]));
  uint32_t sums = 0;
  for (int64_t i = 0; i < args[6].count; i++) {
    if (args[6].sizes[i] < 0 || args[6].sizes[i] >= rank)
      return args.refuse(6, HUSK_INVALID_ARGUMENT, "names no dimension");
    sums |= 1u << args[6].sizes[i];
  }
  int32_t own = 0;
  for (int32_t d = 0; d < rank; d++) {
    Loop<4>& loop = sums >> d & 1 ? summed : kept;
    loop.sizes[loop.rank] = sizes[d];
    for (int i = 0; i < 3; i++) loop.strides[i][loop.rank] = strides[i][d];
    loop.strides[3][loop.rank] = 0;
    if (&loop == &kept) {
      if (own >= args[8].rank) return args.refuse(8, HUSK_INVALID_ARGUMENT, "has too few dimensions");
      HUSK_TRY(args.size(8, own, sizes[d], "the operands'"));
      loop.strides[3][loop.rank] = args[8].strides[own++];
    }
    loop.rank++;
  }
  if (own != args[8].rank) return args.refuse(8, HUSK_INVALID_ARGUMENT, "has too many dimensions");
  const bool known = visit<Floats | Halves>(args[0].dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    each(kept, [&](const int64_t(&at)[4]) {
      Value<T> total = 0;
      each(summed, [&](const int64_t(&in)[4]) {
        total += get(data_of<T>(args[0]) + at[0] + in[0]) * get(data_of<T>(args[1]) + at[1] + in[1]) *
                 get(data_of<T>(args[2]) + at[2] + in[2]);
      });
      set(writable<T>(args[8]) + at[3], total);
    });
  });
  return known ? husk_status{HUSK_OK} : args.unsupported_dtype(0);
}

husk_status fake_quantize(const Arguments& args) {
  HUSK_TRY(args.masked(0, 5));
  double scale = 0;
  int64_t zero = 0, least = 0, most = 0;
  HUSK_TRY(args.number(1, scale));
  HUSK_TRY(args.integer(2, zero));
  HUSK_TRY(args.integer(3, least));
  HUSK_TRY(args.integer(4, most));
  Loop<3> loop;
  loop.shape(args[0]);
  loop.add(1, args[5]);
  loop.add(2, args[6]);
  const bool known = visit<Floats | Halves>(args[0].dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const float step = static_cast<float>(scale), inverse = 1.0f / step;
    each(loop, [&](const int64_t(&at)[3]) {
      const float value = static_cast<float>(get(data_of<T>(args[0]) + at[0]));
      const float rounded = static_cast<float>(zero) + std::nearbyint(value * inverse);
      const float low = static_cast<float>(least), high = static_cast<float>(most);
      const float kept = rounded < low || is_nan(rounded) ? low : rounded > high ? high : rounded;
      set(writable<T>(args[5]) + at[1], static_cast<Value<T>>((kept - static_cast<float>(zero)) * step));
      writable<uint8_t>(args[6])[at[2]] = rounded >= low && rounded <= high;
    });
  });
  return known ? husk_status{HUSK_OK} : args.unsupported_dtype(0);
}

}  // namespace husk::host
