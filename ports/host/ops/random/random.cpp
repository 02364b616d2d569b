// Ops that fill tensors with uniform, normal and integer random numbers, in the order and with the
// arithmetic of PyTorch's CPU kernels (aten/src/ATen/core/DistributionsHelper.h,
// TransformationHelper.h, native/cpu/DistributionTemplates.h).
#include <algorithm>
#include <cmath>

#include "contracts.h"
#include "core/arguments.h"
#include "core/arithmetic.h"
#include "core/loop.h"
#include "device.h"
#include "random/normal.h"
#include "random/rng_state.h"

namespace husk::host {

namespace {

// a * b + c, rounded once.
inline float fused(float a, float b, float c) { return fmaf(a, b, c); }
inline double fused(double a, double b, double c) { return fma(a, b, c); }

// Fills memory with uniform numbers in [0, 1).
void fill_floats(Cancellation& cancellation, Generator& g, float* to, int64_t count) {
  constexpr int64_t kBlock = 1024;
  for (int64_t i = 0; i < count && !cancellation.ends(kBlock); i += kBlock)
    g.uniform_floats(to + i, count - i < kBlock ? count - i : kBlock);
}

template <class T>
void fill_uniform(const Arguments& args, Generator& g, const husk_op_arg& out, double from,
                  double to) {
  using V = Value<T>;
  const V low = static_cast<V>(from), span = static_cast<V>(to) - low;
  if constexpr (std::is_same_v<T, float>) {
    if (low == 0 && span == 1 && contiguous(out))
      return fill_floats(args.cancellation, g, writable<T>(out), numel(out));
  }
  Loop<1> loop(args);
  loop.shape(out);
  each(loop, [&](const int64_t(&at)[1]) {
    set(writable<T>(out) + at[0], fused(uniform<T>(g), span, low));
  });
}

// The places of the output and of the state of the generator.
struct DrawPlaces {
  ArgumentPlace out, state;

  constexpr explicit DrawPlaces(const ArgumentsOf& named)
      : out(named["out"]), state(named["generator_state"]) {}
};

// Loads the generator, calls fill(tag of the dtype, generator, output) for a dtype of the set
// `Types`, and stores the generator.
template <unsigned Types, class Fill>
husk_status draw_into(const Arguments& args, DrawPlaces at, Fill fill) {
  RngState rng;
  HUSK_TRY(rng.load(args, at.state));
  HUSK_TRY(visit_argument<Types>(args, at.out,
                                 [&](auto tag) { fill(tag, rng.generator, args[at.out]); }));
  rng.store();
  return HUSK_OK;
}

husk_status uniform_into(const Arguments& args, DrawPlaces at, double from, double to) {
  HUSK_TRY(args.check_tensor(at.out));
  return draw_into<Floats | Halves>(args, at, [&](auto tag, Generator& g, const husk_op_arg& out) {
    fill_uniform<typename decltype(tag)::type>(args, g, out, from, to);
  });
}

// ---- normal ----

// Rounds a result to T, as PyTorch does after every step of f16 and bf16 arithmetic.
template <class T>
Value<T> rounded(Value<T> value) {
  T stored;
  set(&stored, value);
  return get(&stored);
}

// Turns 16 uniform numbers into normal ones (Box-Muller). Elements i and i + 8 form a pair.
template <class T>
void normal_sixteen(T* data, double mean, double deviation) {
  using V = Value<T>;
  constexpr double kTwoPi = 2.0 * 3.14159265358979323846;
  const V m = rounded<T>(static_cast<V>(mean)), d = rounded<T>(static_cast<V>(deviation));
  for (int i = 0; i < 8; ++i) {
    const V u1 = rounded<T>(1 - get(data + i)), u2 = get(data + i + 8);
    const V radius = rounded<T>(std::sqrt(rounded<T>(-2 * rounded<T>(std::log(u1)))));
    const V angle = rounded<T>(sizeof(T) == 4 ? static_cast<V>(kTwoPi) * u2
                                              : static_cast<V>(kTwoPi * u2));
    const V x = rounded<T>(radius * rounded<T>(std::cos(angle))),
            y = rounded<T>(radius * rounded<T>(std::sin(angle)));
    if constexpr (sizeof(T) == 2) {
      set(data + i, rounded<T>(x * d) + m);
      set(data + i + 8, rounded<T>(y * d) + m);
    } else {
      set(data + i, fused(x, d, m));
      set(data + i + 8, fused(y, d, m));
    }
  }
}

#if defined(__x86_64__)
// Fills a contiguous tensor of at least 16 elements.
void fill_normal_avx2(const Arguments& args, Generator& g, float* data, int64_t count, double mean,
                      double deviation) {
  const float m = static_cast<float>(mean), d = static_cast<float>(deviation);
  fill_floats(args.cancellation, g, data, count);
  constexpr int64_t kBlock = 64;  // groups
  for (int64_t i = 0; i < count / 16 && !args.cancellation.ends(kBlock * 16); i += kBlock)
    normal_groups_avx2(data + i * 16, std::min(count / 16 - i, kBlock), m, d);
  if (count % 16 == 0) return;
  g.uniform_floats(data + count - 16, 16);
  normal_groups_avx2(data + count - 16, 1, m, d);
}
#endif

template <class T>
void fill_normal(const Arguments& args, Features cpu, Generator& g, const husk_op_arg& out,
                 double mean, double deviation) {
  T* data = writable<T>(out);
  const int64_t count = numel(out);
  if (count < 16 || !contiguous(out)) {
    Loop<1> loop(args);
    loop.shape(out);
    each(loop, [&](const int64_t(&at)[1]) {
      set(data + at[0], static_cast<Value<T>>(fused(g.normal_double(), deviation, mean)));
    });
    return;
  }
#if defined(__x86_64__)
  if constexpr (std::is_same_v<T, float>) {
    if (cpu.has(cpu_set::kAvx2)) return fill_normal_avx2(args, g, data, count, mean, deviation);
  }
#else
  (void)cpu;
#endif
  each_index(args.cancellation, count,
             [&](int64_t i) { set(data + i, static_cast<Value<T>>(uniform<T>(g))); });
  each_index(args.cancellation, count / 16,
             [&](int64_t i) { normal_sixteen(data + i * 16, mean, deviation); });
  if (count % 16 == 0) return;
  for (int64_t i = count - 16; i < count; ++i) set(data + i, static_cast<Value<T>>(uniform<T>(g)));
  normal_sixteen(data + count - 16, mean, deviation);
}

husk_status normal_into(const Arguments& args, DrawPlaces at, double mean, double deviation) {
  Features cpu{};
  HUSK_TRY(args.check_tensor(at.out));
  HUSK_TRY(args.get_features(cpu));
  return draw_into<Floats | Halves>(args, at, [&](auto tag, Generator& g, const husk_op_arg& out) {
    fill_normal<typename decltype(tag)::type>(args, cpu, g, out, mean, deviation);
  });
}

// Fills an output with normal numbers. Arguments `mean_at` and `deviation_at` describe them.
husk_status normal_of(const Arguments& args, ArgumentPlace mean_at, ArgumentPlace deviation_at,
                      DrawPlaces at) {
  double mean = 0, deviation = 0;
  HUSK_TRY(args.get_number(mean_at, mean));
  HUSK_TRY(args.get_number(deviation_at, deviation));
  return normal_into(args, at, mean, deviation);
}

// ---- ints ----

// From 2^28 values on, 64 random bits are drawn, so that the remainder of a division is nearly
// uniform.
constexpr int kWideRangeBits = 28;

template <class T>
void fill_ints(const Arguments& args, Generator& g, const husk_op_arg& out, int64_t low,
               int64_t high) {
  const uint64_t range = static_cast<uint64_t>(high) - static_cast<uint64_t>(low);
  Loop<1> loop(args);
  loop.shape(out);
  each(loop, [&](const int64_t(&at)[1]) {
    const uint64_t random = range >> kWideRangeBits ? g.random64() : g.random();
    const int64_t value = static_cast<int64_t>(random % range + static_cast<uint64_t>(low));
    set(writable<T>(out) + at[0], cast<Value<T>>(value));
  });
}

husk_status ints_into(const Arguments& args, DrawPlaces at, int64_t low, int64_t high) {
  HUSK_TRY(args.check_tensor(at.out));
  if (low >= high)
    return args.argument_error(at.out, HUSK_INVALID_INPUT,
                               "has no values to draw from: low is not below high");
  return draw_into<AnyReal | WideUnsigned>(
      args, at, [&](auto tag, Generator& g, const husk_op_arg& out) {
        fill_ints<typename decltype(tag)::type>(args, g, out, low, high);
      });
}

// Fills an output with ints from 0 up to the exclusive limit at argument `high_at`.
husk_status ints_below(const Arguments& args, ArgumentPlace high_at, DrawPlaces at) {
  int64_t high = 0;
  HUSK_TRY(args.get_int(high_at, high));
  return ints_into(args, at, 0, high);
}

// Fills an output with ints from the value at argument `low_at` up to the exclusive limit at
// `high_at`.
husk_status ints_between(const Arguments& args, ArgumentPlace low_at, ArgumentPlace high_at,
                         DrawPlaces at) {
  int64_t low = 0, high = 0;
  HUSK_TRY(args.get_int(low_at, low));
  HUSK_TRY(args.get_int(high_at, high));
  return ints_into(args, at, low, high);
}

}  // namespace

husk_status rand(const Arguments& args) {
  constexpr ArgumentsOf named("rand");
  constexpr DrawPlaces kDraw(named);
  return uniform_into(args, kDraw, 0, 1);
}
husk_status rand_like(const Arguments& args) {
  constexpr ArgumentsOf named("rand_like");
  constexpr DrawPlaces kDraw(named);
  return uniform_into(args, kDraw, 0, 1);
}

husk_status uniform(const Arguments& args) {
  constexpr ArgumentsOf named("uniform");
  constexpr DrawPlaces kDraw(named);
  constexpr uint32_t kFrom = named["from"], kTo = named["to"];
  double from = 0, to = 0;
  HUSK_TRY(args.get_number(kFrom, from));
  HUSK_TRY(args.get_number(kTo, to));
  return uniform_into(args, kDraw, from, to);
}

husk_status randn(const Arguments& args) {
  constexpr ArgumentsOf named("randn");
  constexpr DrawPlaces kDraw(named);
  return normal_into(args, kDraw, 0, 1);
}
husk_status randn_like(const Arguments& args) {
  constexpr ArgumentsOf named("randn_like");
  constexpr DrawPlaces kDraw(named);
  return normal_into(args, kDraw, 0, 1);
}
husk_status normal_functional(const Arguments& args) {
  constexpr ArgumentsOf named("normal_functional");
  constexpr DrawPlaces kDraw(named);
  constexpr uint32_t kMean = named["mean"], kStd = named["std"];
  return normal_of(args, kMean, kStd, kDraw);
}
// aten::normal.float_float, and prims::normal, which functionalization makes of it.
husk_status normal_float_float(const Arguments& args) {
  constexpr ArgumentsOf named("normal_float_float");
  constexpr DrawPlaces kDraw(named);
  constexpr uint32_t kMean = named["mean"], kStd = named["std"];
  return normal_of(args, kMean, kStd, kDraw);
}
husk_status prims_normal(const Arguments& args) {
  constexpr ArgumentsOf named("prims_normal");
  constexpr DrawPlaces kDraw(named);
  constexpr uint32_t kMean = named["mean"], kStd = named["std"];
  return normal_of(args, kMean, kStd, kDraw);
}

husk_status randint(const Arguments& args) {
  constexpr ArgumentsOf named("randint");
  constexpr DrawPlaces kDraw(named);
  constexpr uint32_t kHigh = named["high"];
  return ints_below(args, kHigh, kDraw);
}
husk_status randint_like(const Arguments& args) {
  constexpr ArgumentsOf named("randint_like");
  constexpr DrawPlaces kDraw(named);
  constexpr uint32_t kHigh = named["high"];
  return ints_below(args, kHigh, kDraw);
}
husk_status randint_low(const Arguments& args) {
  constexpr ArgumentsOf named("randint_low");
  constexpr DrawPlaces kDraw(named);
  constexpr uint32_t kLow = named["low"], kHigh = named["high"];
  return ints_between(args, kLow, kHigh, kDraw);
}
husk_status randint_low_out(const Arguments& args) {
  constexpr ArgumentsOf named("randint_low_out");
  constexpr DrawPlaces kDraw(named);
  constexpr uint32_t kLow = named["low"], kHigh = named["high"];
  return ints_between(args, kLow, kHigh, kDraw);
}
husk_status randint_like_low(const Arguments& args) {
  constexpr ArgumentsOf named("randint_like_low");
  constexpr DrawPlaces kDraw(named);
  constexpr uint32_t kLow = named["low"], kHigh = named["high"];
  return ints_between(args, kLow, kHigh, kDraw);
}

}  // namespace husk::host
