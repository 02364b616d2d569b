// Functions of whole vectors that Inductor's headers compute one lane at a time: quotients of
// integers and random numbers. kernels.py includes this file after prefix.h, and host_loops.py and
// kernels.py write calls of the functions into kernels.
#if INDUCTOR_USE_VECTOR_TYPES()
namespace husk_kernels {

// Four lanes.
typedef double Doubles __attribute__((vector_size(32)));
typedef int64_t Longs __attribute__((vector_size(32)));
typedef uint64_t Words __attribute__((vector_size(32)));
typedef int32_t Ints __attribute__((vector_size(16)));
typedef float Floats __attribute__((vector_size(16)));

// 1.5 * 2^52. An f64 plus this number is rounded to an integer, which its lowest bits hold.
constexpr double round_shift = 0x1.8p52;
constexpr int64_t round_bits = 0x4338000000000000;

// Whether a vector is a mask.
template <typename V>
struct IsMask {
  static constexpr bool value = false;
};
template <typename T, int vectors>
struct IsMask<at::vec::VecMask<T, vectors>> {
  static constexpr bool value = true;
  // The lanes of a mask, all of whose bits are set or not.
  typedef std::conditional_t<sizeof(T) == 8, int64_t, int32_t> Lane;
};

template <typename V>
constexpr bool has_wide_lanes = false;
template <typename T, int vectors>
constexpr bool has_wide_lanes<at::vec::VecMask<T, vectors>> = sizeof(T) >= 4;

// Loads the first `count` elements of a vector. The others are 0.
template <typename V, int count, typename T>
inline std::enable_if_t<!IsMask<V>::value, V> load(const T* from) {
  if constexpr (V::size() == count) {
    return V::loadu(from);
  } else if constexpr (sizeof(T) == 2 || sizeof(V) != V::size() * sizeof(T)) {
    return V::loadu(from, count);
  } else {
    V result(0);
    memcpy(&result, from, count * sizeof(T));
    return result;
  }
}

// Makes a mask of the first `count` bools. The other lanes are not set.
template <typename V, int count, typename T>
inline std::enable_if_t<IsMask<V>::value, V> load(const T* from) {
  if constexpr (has_wide_lanes<V> && count == V::size() && sizeof(T) == 1) {
    typedef int8_t Bytes __attribute__((vector_size(count)));
    typedef typename IsMask<V>::Lane Lanes __attribute__((vector_size(sizeof(V))));
    Bytes bytes;
    memcpy(&bytes, from, count);
    const Lanes lanes = __builtin_convertvector(bytes, Lanes) != 0;
    V result;
    memcpy(&result, &lanes, sizeof lanes);
    return result;
  } else {
    return V::from(from, count);
  }
}

// Stores the first `count` elements of a vector, or whether those of a mask are set.
template <int count, typename V, typename T>
inline void store(V value, T* to) {
  if constexpr (!IsMask<V>::value && sizeof(V) == V::size() * sizeof(T)) {
    memcpy(to, &value, count * sizeof(T));
  } else if constexpr (has_wide_lanes<V> && count == V::size() && sizeof(T) == 1) {
    typedef int8_t Bytes __attribute__((vector_size(count)));
    typedef typename IsMask<V>::Lane Lanes __attribute__((vector_size(sizeof(V))));
    Lanes lanes;
    memcpy(&lanes, &value, sizeof lanes);
    const Bytes bytes = __builtin_convertvector(lanes, Bytes) & 1;
    memcpy(to, &bytes, count);
  } else {
    value.store(to, count);
  }
}

// The products of integers of 8 bits.
template <typename V>
inline V byte_products(const V& a, const V& b) {
  typedef uint16_t Pairs __attribute__((vector_size(sizeof(V))));
  Pairs x, y;
  memcpy(&x, &a, sizeof x);
  memcpy(&y, &b, sizeof y);
  x = ((x * y) & 0xFF) | ((x >> 8) * (y >> 8)) << 8;
  V result;
  memcpy(&result, &x, sizeof x);
  return result;
}

inline bool any(Longs mask) { return ((mask[0] | mask[1]) | (mask[2] | mask[3])) != 0; }

// The quotients of integers below 2^51, rounded down or, with `floor` false, to 0. The rounded
// quotient of f64 is less than 1 off, and so is the nearest integer to it. What is left of the
// dividend is exact and says in which direction.
template <bool floor>
inline Doubles quotients_of_four(Doubles a, Doubles b) {
  const Doubles zero = {}, one = zero + 1;
  const Doubles nearest = (a / b + round_shift) - round_shift;
  const Doubles rest = a - nearest * b;
  if (floor) return ((rest < 0) ^ (b < 0)) & (rest != 0) ? nearest - one : nearest;
  const Doubles outward = (a < 0) ^ (b < 0) ? zero - one : one;
  return ((rest < 0) ^ (a < 0)) & (rest != 0) ? nearest - outward : nearest;
}

template <bool floor, typename T>
inline T quotient(T x, T y) {
  if (y == T(-1)) return T(0 - uint64_t(x));
  const T q = x / y, rest = x % y;
  return floor && rest != 0 && (rest < 0) != (y < 0) ? q - 1 : q;
}

// The quotients of the first `lanes` elements, rounded down or, with `floor` false, to 0. Those of
// the least integer and -1 wrap around. CPUs without AVX-512 convert no vectors of integers of 64
// bits, and those below 2^51 are the lowest bits of an f64.
template <bool floor, typename V>
inline V quotients(const V& a, const V& b, int64_t lanes) {
  using T = typename V::value_type;
  constexpr int count = V::size();
  T x[count], y[count];
  a.store(x);
  b.store(y);
  for (int64_t i = lanes; i < count; ++i) y[i] = 1;
  for (int at = 0; at < count; at += 4) {
    if constexpr (sizeof(T) == 8) {
      Longs m, n;
      memcpy(&m, x + at, sizeof m);
      memcpy(&n, y + at, sizeof n);
      if (any(n == 0)) fail(division_by_zero);
      if (any((m + (int64_t(1) << 51) | n + (int64_t(1) << 51)) & -(int64_t(1) << 52))) {
        for (int i = at; i < at + 4; ++i) x[i] = quotient<floor>(x[i], y[i]);
        continue;
      }
      const Doubles q = quotients_of_four<floor>((Doubles)(m + round_bits) - round_shift,
                                                 (Doubles)(n + round_bits) - round_shift);
      m = (Longs)(q + round_shift) - round_bits;
      memcpy(x + at, &m, sizeof m);
    } else {
      Ints m, n;
      for (int i = 0; i < 4; ++i) m[i] = x[at + i], n[i] = y[at + i];
      if (any(__builtin_convertvector(n == 0, Longs))) fail(division_by_zero);
      const Doubles q = quotients_of_four<floor>(__builtin_convertvector(m, Doubles),
                                                 __builtin_convertvector(n, Doubles));
      // 2^31, the quotient of the least integer and -1, becomes the least integer.
      m = __builtin_convertvector((Longs)(q + round_shift) - round_bits, Ints);
      for (int i = 0; i < 4; ++i) x[at + i] = T(m[i]);
    }
  }
  return V::loadu(x);
}

// The products of the lower halves of words and a number.
inline Words wide_products(Words a, uint32_t b) {
#ifdef __AVX2__
  return (Words)_mm256_mul_epu32((__m256i)a, _mm256_set1_epi64x(b));
#else
  return (a & 0xFFFFFFFFu) * b;
#endif
}

// The first two words of Philox 4x32-10 (Salmon, Moraes, Dror and Shaw, "Parallel random numbers:
// as easy as 1, 2, 3") at four offsets, as at::Philox4_32(seed, 0, offset) returns them. They are
// the lower halves; the upper halves have no meaning.
template <typename Offset>
inline void philox(uint32_t seed, const Offset* offset, Words& first, Words& second) {
  Words c0, c1 = {}, c2 = {}, c3 = {};
  for (int i = 0; i < 4; ++i) c0[i] = uint32_t(offset[i]);
  uint32_t key0 = seed, key1 = 0;
#pragma GCC unroll 10
  for (int round = 0; round < 10; ++round) {
    const Words a = wide_products(c0, 0xD2511F53u), b = wide_products(c2, 0xCD9E8D57u);
    c0 = (b >> 32) ^ c1 ^ key0;
    c1 = b;
    c2 = (a >> 32) ^ c3 ^ key1;
    c3 = a;
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  first = c0;
  second = c1;
}

// uint32_to_uniform_float of four words.
inline Floats uniform(Words words) {
  const Doubles number = (Doubles)((Longs)(words & 0x7FFFFFFF) + round_bits) - round_shift;
  return __builtin_convertvector(number, Floats) * 4.6566127342e-10f;
}

// normalized_rand_cpu, randn_cpu and randint64_cpu at several offsets.
template <int count, typename Offset>
inline void normalized_rand_cpu(float* to, uint32_t seed, const Offset* offset) {
  for (int at = 0; at < count; at += 4) {
    Words first, second;
    philox(seed, offset + at, first, second);
    const Floats numbers = uniform(first);
    memcpy(to + at, &numbers, sizeof numbers);
  }
}

template <int count, typename Offset>
inline void randn_cpu(float* to, uint32_t seed, const Offset* offset) {
  using Vector = at::vec::Vectorized<double>;
  double angle[count], size[count];
  for (int at = 0; at < count; at += 4) {
    Words first, second;
    philox(seed, offset + at, first, second);
    const Floats numbers = 1 - uniform(first);
    const Doubles angles = 2.0 * M_PI * __builtin_convertvector(1 - uniform(second), Doubles);
    for (int i = 0; i < 4; ++i) size[at + i] = std::log(numbers[i]);
    memcpy(angle + at, &angles, sizeof angles);
  }
  for (int at = 0; at < count; at += Vector::size()) {
    const Vector length = (Vector(-2.0) * Vector::loadu(size + at)).sqrt();
    (length * Vector::loadu(angle + at).cos()).store(size + at);
  }
  for (int i = 0; i < count; ++i) to[i] = float(size[i]);
}

// The remainder is that of a quotient which a multiplication estimates, at most 2 too small.
template <int count, typename Offset>
inline void randint64_cpu(int64_t* to, uint32_t seed, const Offset* offset, int64_t low,
                          int64_t high) {
  const uint64_t range = uint64_t(high) - uint64_t(low), inverse = ~uint64_t(0) / range;
  for (int at = 0; at < count; at += 4) {
    Words first, second;
    philox(seed, offset + at, first, second);
    const Words numbers = (first & 0xFFFFFFFFu) | second << 32;
    for (int i = 0; i < 4; ++i) {
      const uint64_t quotient = uint64_t((unsigned __int128)numbers[i] * inverse >> 64);
      uint64_t rest = numbers[i] - quotient * range;
      rest = rest >= range ? rest - range : rest;
      rest = rest >= range ? rest - range : rest;
      to[at + i] = int64_t(rest + uint64_t(low));
    }
  }
}

}  // namespace husk_kernels
#endif
