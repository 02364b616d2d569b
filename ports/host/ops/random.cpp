// Ops that draw random numbers, in the order and with the arithmetic of PyTorch's CPU kernels
// (aten/src/ATen/core/DistributionsHelper.h, TransformationHelper.h, native/cpu/DistributionTemplates.h describe them).
// The state of the generator is the last argument of each, right behind the output.
#include <cmath>

#include "arguments.h"
#include "drawn.h"
#include "loop.h"
#include "number.h"

namespace husk::host {

namespace {

inline float fused(float a, float b, float c) { return fmaf(a, b, c); }
inline double fused(double a, double b, double c) { return fma(a, b, c); }

template <class T>
void fill_uniform(Generator& g, const husk_op_arg& out, double from, double to) {
  using V = Value<T>;
  const V low = static_cast<V>(from), span = static_cast<V>(to) - low;
  Loop<1> loop;
  loop.shape(out);
  each(loop, [&](const int64_t(&at)[1]) { set(writable<T>(out) + at[0], fused(uniform<T>(g), span, low)); });
}

// fill(tag of the dtype, generator, tensor) writes a tensor of a dtype of the `kinds`.
template <unsigned kinds, class Fill>
husk_status draw_into(const Arguments& args, uint32_t out_at, Fill fill) {
  Drawn drawn;
  HUSK_TRY(drawn.take(args, out_at + 1));
  const bool known =
      visit<kinds>(args[out_at].dtype, [&](auto tag) { fill(tag, drawn.generator, args[out_at]); });
  if (!known) return args.unsupported_dtype(out_at);
  drawn.put();
  return HUSK_OK;
}

husk_status uniform_into(const Arguments& args, uint32_t out_at, double from, double to) {
  HUSK_TRY(args.tensor(out_at));
  return draw_into<Floats | Halves>(args, out_at, [&](auto tag, Generator& g, const husk_op_arg& out) {
    fill_uniform<typename decltype(tag)::type>(g, out, from, to);
  });
}

// ---- normal ----

// A result of arithmetic in T: f16 and bf16 round at every step.
template <class T>
Value<T> rounded(Value<T> value) {
  T stored;
  set(&stored, value);
  return get(&stored);
}

// Sixteen uniform numbers become normal ones (Box-Muller); the first eight and the last eight are pairs.
template <class T>
void normal_sixteen(T* data, double mean, double deviation) {
  using V = Value<T>;
  constexpr double turn = 2.0 * 3.14159265358979323846;
  const V m = rounded<T>(static_cast<V>(mean)), d = rounded<T>(static_cast<V>(deviation));
  for (int i = 0; i < 8; i++) {
    const V u1 = rounded<T>(1 - get(data + i)), u2 = get(data + i + 8);
    const V radius = rounded<T>(std::sqrt(rounded<T>(-2 * rounded<T>(std::log(u1)))));
    const V angle = rounded<T>(sizeof(T) == 4 ? static_cast<V>(turn) * u2 : static_cast<V>(turn * u2));
    const V x = rounded<T>(radius * rounded<T>(std::cos(angle))), y = rounded<T>(radius * rounded<T>(std::sin(angle)));
    if constexpr (sizeof(T) == 2) {
      set(data + i, rounded<T>(x * d) + m);
      set(data + i + 8, rounded<T>(y * d) + m);
    } else {
      set(data + i, fused(x, d, m));
      set(data + i + 8, fused(y, d, m));
    }
  }
}

template <class T>
void fill_normal(Generator& g, const husk_op_arg& out, double mean, double deviation) {
  T* data = writable<T>(out);
  const int64_t count = numel(out);
  if (count < 16 || !contiguous(out)) {
    Loop<1> loop;
    loop.shape(out);
    each(loop, [&](const int64_t(&at)[1]) {
      set(data + at[0], static_cast<Value<T>>(fused(g.normal_double(), deviation, mean)));
    });
    return;
  }
  for (int64_t i = 0; i < count; i++) set(data + i, static_cast<Value<T>>(uniform<T>(g)));
  for (int64_t i = 0; i + 16 <= count; i += 16) normal_sixteen(data + i, mean, deviation);
  if (count % 16 == 0) return;
  for (int64_t i = count - 16; i < count; i++) set(data + i, static_cast<Value<T>>(uniform<T>(g)));
  normal_sixteen(data + count - 16, mean, deviation);
}

husk_status normal_into(const Arguments& args, uint32_t out_at, double mean, double deviation) {
  HUSK_TRY(args.tensor(out_at));
  return draw_into<Floats | Halves>(args, out_at, [&](auto tag, Generator& g, const husk_op_arg& out) {
    fill_normal<typename decltype(tag)::type>(g, out, mean, deviation);
  });
}

// The mean is an argument, and the deviation the next one.
husk_status normal_of(const Arguments& args, uint32_t mean_at, uint32_t out_at) {
  double mean = 0, deviation = 0;
  HUSK_TRY(args.number(mean_at, mean));
  HUSK_TRY(args.number(mean_at + 1, deviation));
  return normal_into(args, out_at, mean, deviation);
}

// ---- ints ----

constexpr int wide_range_bits =
    28;   // from 2^28 values on, 64 bits are drawn: the rest of a division is then even enough

template <class T>
void fill_ints(Generator& g, const husk_op_arg& out, int64_t low, int64_t high) {
  const uint64_t range = static_cast<uint64_t>(high) - static_cast<uint64_t>(low);
  Loop<1> loop;
  loop.shape(out);
  each(loop, [&](const int64_t(&at)[1]) {
    const uint64_t random = range >> wide_range_bits ? g.random64() : g.random();
    const int64_t value = static_cast<int64_t>(random % range + static_cast<uint64_t>(low));
    set(writable<T>(out) + at[0], cast<Value<T>>(value));
  });
}

husk_status ints_into(const Arguments& args, uint32_t out_at, int64_t low, int64_t high) {
  HUSK_TRY(args.tensor(out_at));
  if (low >= high) return args.refuse(out_at, HUSK_INVALID_INPUT, "has no values to draw from: low is not below high");
  return draw_into<AnyReal | WideUnsigned>(args, out_at, [&](auto tag, Generator& g, const husk_op_arg& out) {
    fill_ints<typename decltype(tag)::type>(g, out, low, high);
  });
}

husk_status ints_below(const Arguments& args, uint32_t high_at, uint32_t out_at) {
  int64_t high = 0;
  HUSK_TRY(args.integer(high_at, high));
  return ints_into(args, out_at, 0, high);
}

// The lowest is an argument, and what all are below the next one.
husk_status ints_between(const Arguments& args, uint32_t low_at, uint32_t out_at) {
  int64_t low = 0, high = 0;
  HUSK_TRY(args.integer(low_at, low));
  HUSK_TRY(args.integer(low_at + 1, high));
  return ints_into(args, out_at, low, high);
}

}  // namespace

husk_status rand(const Arguments& args) { return uniform_into(args, 5, 0, 1); }
husk_status rand_like(const Arguments& args) { return uniform_into(args, 6, 0, 1); }

husk_status uniform(const Arguments& args) {
  double from = 0, to = 0;
  HUSK_TRY(args.number(1, from));
  HUSK_TRY(args.number(2, to));
  return uniform_into(args, 4, from, to);
}

husk_status randn(const Arguments& args) { return normal_into(args, 5, 0, 1); }
husk_status randn_like(const Arguments& args) { return normal_into(args, 6, 0, 1); }
husk_status normal_functional(const Arguments& args) { return normal_of(args, 1, 4); }
// PyTorch's dtype-less `normal` of numbers, and the one that its functionalization leaves.
husk_status normal_float_float(const Arguments& args) { return normal_of(args, 0, 8); }
husk_status prims_normal(const Arguments& args) { return normal_of(args, 1, 7); }

husk_status randint(const Arguments& args) { return ints_below(args, 0, 6); }
husk_status randint_like(const Arguments& args) { return ints_below(args, 1, 7); }
husk_status randint_low(const Arguments& args) { return ints_between(args, 0, 7); }
husk_status randint_low_out(const Arguments& args) { return ints_between(args, 0, 3); }
husk_status randint_like_low(const Arguments& args) { return ints_between(args, 1, 8); }

}  // namespace husk::host
