// Random ops whose distribution depends on data or parameters (bernoulli, dropout, exponential,
// poisson, multinomial), and randperm. On Intel CPUs PyTorch takes bernoulli_ and exponential_ from
// MKL; these ops give the numbers that PyTorch gives on all other CPUs.
#include <algorithm>
#include <cmath>

#include "contracts.h"
#include "core/arguments.h"
#include "core/arithmetic.h"
#include "core/heap.h"
#include "core/loop.h"
#include "core/scratch.h"
#include "core/sort_key.h"
#include "error.h"
#include "random/rng_state.h"

namespace husk::host {

namespace {

// ---- bernoulli ----

// Fills an output with samples that are 1 with probability p.
husk_status bernoulli_with(const Arguments& args, ArgumentPlace out_at, ArgumentPlace state_at,
                           double p) {
  HUSK_TRY(args.check_tensor(out_at));
  if (!(p >= 0 && p <= 1))
    return fail(args.error, HUSK_INVALID_INPUT, "%s: p is %g, not in [0, 1]", args.op, p);
  RngState rng;
  HUSK_TRY(rng.load(args, state_at));
  Loop<1> loop(args);
  loop.shape(args[out_at]);
  HUSK_TRY(visit_argument<AnyReal>(args, out_at, [&](auto tag) {
    using T = typename decltype(tag)::type;
    each(loop, [&](const int64_t(&at)[1]) {
      set(writable<T>(args[out_at]) + at[0], Value<T>(rng.generator.uniform_double() < p));
    });
  }));
  rng.store();
  return HUSK_OK;
}

// Fills an output with samples of which each has a probability of its own. A sample is drawn in the
// precision of its probability.
husk_status bernoulli_each(const Arguments& args, ArgumentPlace p_at, ArgumentPlace out_at,
                           ArgumentPlace state_at) {
  HUSK_TRY(args.check_tensor(p_at));
  HUSK_TRY(args.check_tensor(out_at));
  const husk_op_arg &p = args[p_at], &out = args[out_at];
  Loop<2> loop(args);
  loop.shape(out);
  if (!broadcast(p, out.sizes, out.rank, loop.strides[1])) {
    return args.argument_error(p_at, HUSK_INVALID_ARGUMENT,
                               "has a shape that does not broadcast to the output's");
  }
  RngState rng;
  HUSK_TRY(rng.load(args, state_at));
  bool p_supported = false, in_range = true;
  HUSK_TRY(visit_argument<AnyReal>(args, out_at, [&](auto tag) {
    using T = typename decltype(tag)::type;
    p_supported = visit<Floats | Halves>(p.dtype, [&](auto other) {
      using P = typename decltype(other)::type;
      in_range = each_while(loop, [&](const int64_t(&at)[2]) {
        const Value<P> chance = get(data_of<P>(p) + at[1]);
        if (!(chance >= 0 && chance <= 1)) return false;
        bool hit;
        if constexpr (std::is_same_v<P, double>)
          hit = rng.generator.uniform_double() < chance;
        else
          hit = rng.generator.uniform_float() < chance;
        set(writable<T>(out) + at[0], Value<T>(hit));
        return true;
      });
    });
  }));
  if (!p_supported) return args.unsupported_dtype(p_at);
  if (!in_range)
    return args.argument_error(p_at, HUSK_INVALID_INPUT, "has a probability that is not in [0, 1]");
  rng.store();
  return HUSK_OK;
}

// ---- exponential, poisson ----

// A sample of the exponential distribution.
double exponential_number(Generator& g, double rate) {
  return -1.0 / rate * std::log1p(-g.uniform_double());
}

// The rejections after which a sample is given up. A generator practically never rejects so often,
// but the bytes of its state may be any, and some states give the same number for ever.
constexpr int kMaxTries = 1000;

// Draws a sample of the Poisson distribution. Returns false if it gives up. For rates of 10 and
// more: W. Hoermann, "The transformed rejection method for generating Poisson random variables",
// Insurance: Mathematics and Economics 12 (1993), algorithm PTRS. For smaller rates: Knuth's
// products of uniform numbers.
bool poisson_number(Generator& g, double rate, double& k) {
  k = 0;
  if (rate == 0) return true;
  if (rate < 10) {
    const double limit = std::exp(-rate);
    double product = 1;
    for (; k < kMaxTries; ++k) {
      product *= g.uniform_double();
      if (!(product > limit)) return true;
    }
    return false;
  }
  const double root = std::sqrt(rate), b = 0.931 + 2.53 * root, a = -0.059 + 0.02483 * b;
  const double alpha = 1.1239 + 1.1328 / (b - 3.4), quick = 0.9277 - 3.6224 / (b - 2);
  for (int tries = 0; tries < kMaxTries; ++tries) {
    const double u = g.uniform_double() - 0.5, v = g.uniform_double(), us = 0.5 - std::fabs(u);
    k = std::floor((2 * a / us + b) * u + rate + 0.43);
    if (us >= 0.07 && v <= quick) return true;
    if (k < 0 || (us < 0.013 && v > us)) continue;
    int sign = 0;
    if (std::log(v) + std::log(alpha) - std::log(a / (us * us) + b) <=
        -rate + k * std::log(rate) - lgamma_r(k + 1, &sign)) {
      return true;
    }
  }
  return false;
}

// ---- multinomial ----

// A row of weights.
template <class T>
struct Weights {
  Cancellation& cancellation;
  const T* data;
  int64_t stride, count;
  Value<T> operator[](int64_t i) const { return get(data + i * stride); }
};

// The categories of a row, which are drawn with replacement. There is no memory for the cumulative
// sum of each weight, so only the sums before some thousand blocks of categories are kept, and a
// draw adds up the weights of one block.
template <class T>
class Categories {
 public:
  Categories(const Weights<T>& weights, Value<T> sum) : weights_(weights), sum_(sum) {
    const int64_t block = (weights.count + kMaxBlocks - 1) / kMaxBlocks;
    block_ = block > kMinBlock ? block : kMinBlock;
    Value<T> passed = 0;
    each_index_while(weights.cancellation, (weights.count + block_ - 1) / block_, [&](int64_t b) {
      before_[blocks_++] = passed;
      const int64_t first = b * block_, rest = weights.count - first;
      return each_index(weights.cancellation, rest < block_ ? rest : block_,
                        [&](int64_t i) { passed += weights[first + i]; });
    });
  }

  // The first category at which the normalized cumulative sum of weights reaches u.
  int64_t pick(double u) const {
    int64_t low = 0, high = blocks_;  // the category is in a block from `low` on, before `high`
    while (high - low > 1) {
      const int64_t middle = low + (high - low) / 2;
      (is_below(before_[middle], u) ? low : high) = middle;
    }
    const int64_t first = low * block_, rest = weights_.count - 1 - first;
    Value<T> passed = before_[low];
    int64_t picked = first;
    const bool missed = each_index_while(weights_.cancellation, rest < block_ ? rest : block_,
                                         [&](int64_t i) {
                                           passed += weights_[first + i];
                                           picked = first + i;
                                           return is_below(passed, u);
                                         });
    return missed ? weights_.count - 1 : picked;  // the cumulative sum of the last category is 1
  }

 private:
  static constexpr int64_t kMaxBlocks = 4096, kMinBlock = 16;
  bool is_below(Value<T> passed, double u) const { return static_cast<double>(passed / sum_) < u; }

  const Weights<T>& weights_;
  const Value<T> sum_;
  int64_t block_ = 0, blocks_ = 0;
  Value<T> before_[kMaxBlocks];
};

// Draws k categories without replacement as PyTorch does: the k largest values of weight /
// exponential number, with one exponential number for each weight.
template <class T>
void pick_without(Generator& g, const Weights<T>& weights, int64_t* out, int64_t stride, int64_t k,
                  void* scratch) {
  const auto key = [&](Generator& from, int64_t i) {
    T divisor, quotient;
    set(&divisor, static_cast<Value<T>>(exponential_number(from, 1)));
    set(&quotient, weights[i] / get(&divisor));
    return key_of(get(&quotient));
  };
  if constexpr (sizeof(Value<T>) == 4) {
    const PackedHeap heap{reinterpret_cast<uint64_t*>(out), stride};
    first_k(
        weights.cancellation, weights.count, [&](int64_t i) { return ~key(g, i) & 0xffffffff; },
        heap, k);
    each_index(weights.cancellation, k, [&](int64_t j) { out[j * stride] = heap.get(j).index; });
  } else {
    // There is no memory for the quotients, so each pass over the weights draws the same numbers
    // again and takes the next few thousand categories.
    constexpr int64_t kMaxPairs = kPairsScratch / int64_t{sizeof(Pair)};
    auto* const pairs = static_cast<Pair*>(scratch);
    Pair last{};
    const Generator start = g;
    for (int64_t first = 0; first < k; first += kMaxPairs) {
      const int64_t wanted = std::min(k - first, kMaxPairs);
      int64_t found = 0;
      g = start;
      const bool complete = each_index(weights.cancellation, weights.count, [&](int64_t i) {
        const Pair here{~key(g, i), i};
        if (first > 0 && !(last < here)) return;
        if (found == wanted) {
          if (!(here < pairs[0])) return;
          std::pop_heap(pairs, pairs + found--);
        }
        pairs[found++] = here;
        std::push_heap(pairs, pairs + found);
      });
      if (!complete) return;
      std::sort_heap(pairs, pairs + found);
      for (int64_t j = 0; j < found; ++j) out[(first + j) * stride] = pairs[j].index;
      last = pairs[found - 1];
    }
  }
}

template <class T>
const char* weights_fault(const Weights<T>& weights, int64_t samples, bool replacement,
                          Value<T>& sum) {
  // A heap stores 32 bits of the number of a category.
  if (weights.count > int64_t{UINT32_MAX} + 1) return "has more than 2^32 categories";
  sum = 0;
  const bool all_finite = each_index_while(weights.cancellation, weights.count, [&](int64_t i) {
    const Value<T> weight = weights[i];
    sum += weight;
    return weight >= 0 && !std::isinf(weight);
  });
  if (!all_finite) return "has a probability that is negative, infinite or NaN";
  if (!(sum > 0)) return "has a row whose sum is not positive";
  return !replacement && samples > weights.count ? "has fewer categories than there are samples"
                                                 : nullptr;
}

}  // namespace

husk_status bernoulli_p_into(const Arguments& args) {
  constexpr ArgumentsOf named("bernoulli_p_into");
  constexpr uint32_t kSelf = named["self"], kP = named["p"],
                     kGeneratorState = named["generator_state"];
  double p = 0;
  HUSK_TRY(args.get_number(kP, p));
  return bernoulli_with(args, kSelf, kGeneratorState, p);
}
husk_status bernoulli_p(const Arguments& args) {
  constexpr ArgumentsOf named("bernoulli_p");
  constexpr uint32_t kP = named["p"], kOut = named["out"],
                     kGeneratorState = named["generator_state"];
  double p = 0;
  HUSK_TRY(args.get_number(kP, p));
  return bernoulli_with(args, kOut, kGeneratorState, p);
}
husk_status bernoulli(const Arguments& args) {
  constexpr ArgumentsOf named("bernoulli");
  constexpr uint32_t kSelf = named["self"], kOut = named["out"],
                     kGeneratorState = named["generator_state"];
  return bernoulli_each(args, kSelf, kOut, kGeneratorState);
}
husk_status bernoulli_tensor(const Arguments& args) {
  constexpr ArgumentsOf named("bernoulli_tensor");
  constexpr uint32_t kP = named["p"], kOut = named["out"],
                     kGeneratorState = named["generator_state"];
  return bernoulli_each(args, kP, kOut, kGeneratorState);
}
husk_status bernoulli_tensor_into(const Arguments& args) {
  constexpr ArgumentsOf named("bernoulli_tensor_into");
  constexpr uint32_t kSelf = named["self"], kP = named["p"],
                     kGeneratorState = named["generator_state"];
  return bernoulli_each(args, kP, kSelf, kGeneratorState);
}

husk_status native_dropout(const Arguments& args) {
  constexpr ArgumentsOf named("native_dropout");
  constexpr uint32_t kInput = named["input"], kP = named["p"], kTrain = named["train"],
                     kOut = named["out"], kMask = named["mask"],
                     kGeneratorState = named["generator_state"];
  HUSK_TRY(args.check_masked(kInput, kOut, kMask));
  double p = 0;
  bool train = true;
  HUSK_TRY(args.get_number(kP, p));
  if (!args.none(kTrain)) HUSK_TRY(args.get_bool(kTrain, train));
  HUSK_TRY(train ? bernoulli_with(args, kMask, kGeneratorState, 1 - p) : husk_status{HUSK_OK});
  const double scale = !train ? 1 : p == 1 ? 0 : 1 / (1 - p);
  Loop<3> loop(args);
  loop.shape(args[kInput]);
  loop.add(1, args[kOut]);
  loop.add(2, args[kMask]);
  return visit_argument<Floats | Halves>(args, kInput, [&](auto tag) {
    using T = typename decltype(tag)::type;
    each(loop, [&](const int64_t(&at)[3]) {
      uint8_t& mask = writable<uint8_t>(args[kMask])[at[2]];
      if (!train) mask = 1;
      set(writable<T>(args[kOut]) + at[1],
          get(data_of<T>(args[kInput]) + at[0]) * Value<T>(mask) * static_cast<Value<T>>(scale));
    });
  });
}

husk_status exponential(const Arguments& args) {
  constexpr ArgumentsOf named("exponential");
  constexpr uint32_t kLambd = named["lambd"], kOut = named["out"],
                     kGeneratorState = named["generator_state"];
  double rate = 0;
  HUSK_TRY(args.get_number(kLambd, rate));
  HUSK_TRY(args.check_tensor(kOut));
  if (!(rate > 0)) return args.argument_error(kLambd, HUSK_INVALID_INPUT, "is not positive");
  RngState rng;
  HUSK_TRY(rng.load(args, kGeneratorState));
  Loop<1> loop(args);
  loop.shape(args[kOut]);
  HUSK_TRY(visit_argument<Floats | Halves>(args, kOut, [&](auto tag) {
    using T = typename decltype(tag)::type;
    each(loop, [&](const int64_t(&at)[1]) {
      set(writable<T>(args[kOut]) + at[0],
          static_cast<Value<T>>(exponential_number(rng.generator, rate)));
    });
  }));
  rng.store();
  return HUSK_OK;
}

husk_status poisson(const Arguments& args) {
  constexpr ArgumentsOf named("poisson");
  constexpr uint32_t kSelf = named["self"], kOut = named["out"],
                     kGeneratorState = named["generator_state"];
  HUSK_TRY(args.check_tensor(kSelf));
  HUSK_TRY(args.check_tensor(kOut));
  HUSK_TRY(args.check_same_shape(kOut, kSelf));
  HUSK_TRY(args.check_same_dtype(kOut, kSelf));
  RngState rng;
  HUSK_TRY(rng.load(args, kGeneratorState));
  Loop<2> loop(args);
  loop.shape(args[kSelf]);
  loop.add(1, args[kOut]);
  bool in_range = true, drawn = true;
  HUSK_TRY(visit_argument<Floats | Halves>(args, kSelf, [&](auto tag) {
    using T = typename decltype(tag)::type;
    each_while(loop, [&](const int64_t(&at)[2]) {
      const double rate = static_cast<double>(get(data_of<T>(args[kSelf]) + at[0]));
      double number = 0;
      in_range = rate >= 0 && rate < 0x1p62;
      drawn = in_range && poisson_number(rng.generator, rate, number);
      if (drawn) set(writable<T>(args[kOut]) + at[1], static_cast<Value<T>>(number));
      return drawn;
    });
  }));
  if (!in_range)
    return args.argument_error(kSelf, HUSK_INVALID_INPUT,
                               "has a rate that is negative, NaN or too large");
  if (!drawn)
    return args.argument_error(kGeneratorState, HUSK_INVALID_INPUT,
                               "is not the state of a generator");
  rng.store();
  return HUSK_OK;
}

husk_status multinomial(const Arguments& args) {
  constexpr ArgumentsOf named("multinomial");
  constexpr uint32_t kSelf = named["self"], kNumSamples = named["num_samples"],
                     kReplacement = named["replacement"], kOut = named["out"],
                     kGeneratorState = named["generator_state"];
  HUSK_TRY(args.check_tensor(kSelf, 1, 2));
  const int32_t rank = args[kSelf].rank;
  int64_t samples = 0;
  bool replacement = false;
  HUSK_TRY(args.get_int(kNumSamples, samples));
  HUSK_TRY(args.get_bool(kReplacement, replacement));
  HUSK_TRY(args.check_tensor(kOut, rank, rank));
  HUSK_TRY(args.check_dtype(kOut, HUSK_I64));
  const husk_op_arg &self = args[kSelf], &out = args[kOut];
  if (samples < 1) return args.argument_error(kNumSamples, HUSK_INVALID_INPUT, "is not positive");
  HUSK_TRY(args.check_size(kOut, rank - 1, samples, "num_samples"));
  if (rank == 2) HUSK_TRY(args.check_size(kOut, 0, self.sizes[0], "the rows of self"));
  RngState rng;
  HUSK_TRY(rng.load(args, kGeneratorState));
  const bool without = !replacement || samples == 1;
  const char* fault = nullptr;
  HUSK_TRY(visit_argument<Floats | Halves>(args, kSelf, [&](auto tag) {
    using T = typename decltype(tag)::type;
    each_index_while(args.cancellation, rank == 2 ? self.sizes[0] : 1, [&](int64_t row) {
      const Weights<T> weights{args.cancellation,
                               data_of<T>(self) + (rank == 2 ? row * self.strides[0] : 0),
                               self.strides[rank - 1], self.sizes[rank - 1]};
      int64_t* to = writable<int64_t>(out) + (rank == 2 ? row * out.strides[0] : 0);
      Value<T> sum = 0;
      fault = weights_fault(weights, samples, replacement, sum);
      if (fault) return false;
      if (without) {
        pick_without(rng.generator, weights, to, out.strides[rank - 1], samples, args.scratch());
        return true;
      }
      const Categories<T> categories(weights, sum);
      return each_index(args.cancellation, samples, [&](int64_t i) {
        to[i * out.strides[rank - 1]] = categories.pick(rng.generator.uniform_double());
      });
    });
  }));
  if (fault) return args.argument_error(kSelf, HUSK_INVALID_INPUT, fault);
  rng.store();
  return HUSK_OK;
}

husk_status randperm(const Arguments& args) {
  constexpr ArgumentsOf named("randperm");
  constexpr uint32_t kN = named["n"], kOut = named["out"],
                     kGeneratorState = named["generator_state"];
  int64_t n = 0;
  HUSK_TRY(args.get_int(kN, n));
  HUSK_TRY(args.check_vector(kOut, n, "n"));
  RngState rng;
  HUSK_TRY(rng.load(args, kGeneratorState));
  const husk_op_arg& out = args[kOut];
  HUSK_TRY(visit_argument<Ints | Floats | Halves>(args, kOut, [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* data = writable<T>(out);
    const int64_t stride = out.strides[0];
    each_index(args.cancellation, n,
               [&](int64_t i) { set(data + i * stride, static_cast<Value<T>>(i)); });
    each_index(args.cancellation, n - 1, [&](int64_t i) {
      const int64_t other = i + static_cast<int64_t>(rng.generator.random() %
                                                     static_cast<uint64_t>(n - i));
      const T swapped = data[i * stride];
      data[i * stride] = data[other * stride];
      data[other * stride] = swapped;
    });
  }));
  rng.store();
  return HUSK_OK;
}

}  // namespace husk::host
