// Lets Inductor's C++ kernels run in a process without libtorch and libstdc++: definitions of the
// functions of both libraries that their headers call, and reductions whose helpers are on the
// stack. kernels.py includes this file after torch/csrc/inductor/cpp_prefix.h and runtime.h in the
// single translation unit of an image.
#include <cstring>
#include <new>

namespace husk_kernels {

// atomic_add and atomic_add_vec for loops that one thread runs.
template <typename T>
inline void add(T* to, T value) {
  *to = static_cast<T>(*to + value);
}

template <typename T, int indices, int values>
inline void add_vec(T* to, at::vec::VectorizedN<int64_t, indices> index,
                    at::vec::VectorizedN<T, values> value,
                    int64_t count = at::vec::VectorizedN<int64_t, indices>::size()) {
  constexpr int lanes = at::vec::VectorizedN<int64_t, indices>::size();
  int64_t places[lanes];
  T numbers[at::vec::VectorizedN<T, values>::size()];
  index.store(places, lanes);
  value.store(numbers, lanes);
  for (int64_t i = 0; i < count; ++i) add(to + places[i], numbers[i]);
}

// A cascade sum. Level k holds a sum of 2^k chunks, and levels carry as the digits of a binary
// counter do, so that the rounding error grows with the logarithm of the length.
template <typename T, uint64_t chunk>
struct CascadeSumHelper {
  union {
    T level[53];  // only the first `depth` are constructed
  };
  uint64_t depth;
  uint64_t in_chunk = 0;
  uint64_t chunks = 0;

  explicit CascadeSumHelper(uint64_t count) : depth(1) {
    while (depth < 53 && (chunk << depth) < count) ++depth;
    for (uint64_t k = 0; k < depth; ++k) new (&level[k]) T(0);
  }
  ~CascadeSumHelper() {}

  void carry() {
    if (depth == 1 || ++in_chunk < chunk) return;
    in_chunk = 0;
    ++chunks;
    for (uint64_t k = 1; k < depth; ++k) {
      level[k] = level[k] + level[k - 1];
      level[k - 1] = T(0);
      if (chunks >> (k - 1) & 1) break;
    }
  }
};

template <typename T, uint64_t chunk>
inline T cascade_sum_combine(T& data, CascadeSumHelper<T, chunk>* helper) {
  helper->level[0] = helper->level[0] + data;
  helper->carry();
  return helper->level[0];
}

template <typename T, uint64_t chunk>
inline T cascade_sum_combine(T& data, int64_t tail, CascadeSumHelper<T, chunk>* helper) {
  helper->level[0] = T::set(helper->level[0], helper->level[0] + data, tail);
  helper->carry();
  return helper->level[0];
}

template <typename T, uint64_t chunk>
inline T cascade_sum_final(CascadeSumHelper<T, chunk>* helper) {
  T sum = helper->level[0];
  for (uint64_t k = 1; k < helper->depth; ++k) sum = sum + helper->level[k];
  return sum;
}

// 1/1, 1/2, … 1/count. With this table a Welford reduction multiplies instead of dividing for each
// element.
template <typename S, uint64_t count>
struct Reciprocals {
  S of[count];
  constexpr Reciprocals() : of() {
    for (uint64_t n = 0; n < count; ++n) of[n] = static_cast<S>(1.0 / static_cast<double>(n + 1));
  }
};

template <typename S, uint64_t count>
inline constexpr Reciprocals<S, count> reciprocals{};

// A cascade of Welford states: level k holds the state of 2^k chunks.
template <typename T, uint64_t chunk>
struct WelfordHelper {
  union {
    Welford<T> level[53];
  };
  uint64_t depth;
  uint64_t chunks = 0;

  explicit WelfordHelper(uint64_t count) : depth(0) {
    while (depth < 53 && (chunk << depth) < count) ++depth;
    for (uint64_t k = 0; k < depth; ++k) new (&level[k]) Welford<T>();
  }
  ~WelfordHelper() {}

  // Adds the state of a full chunk.
  void carry(const Welford<T>& full) {
    Welford<T> sum = full;
    ++chunks;
    for (uint64_t k = 0; k < depth; ++k) {
      sum = ::welford_combine(level[k], sum);
      if (chunks >> k & 1 || k + 1 == depth) {
        level[k] = sum;
        return;
      }
      level[k] = Welford<T>();
    }
  }
};

template <typename T, uint64_t chunk>
inline Welford<T> welford_combine(Welford<T>& state, T& data, WelfordHelper<T, chunk>* helper) {
  if (helper->depth > 0 && state.index == chunk) {
    helper->carry(state);
    state = Welford<T>();
  }
  const T weight = state.weight + T(1);
  const T delta = data - state.mean;
  using S = typename GetScalarType<T>::type;
  const T mean = state.mean + (state.index < chunk
                                   ? delta * T(reciprocals<S, chunk>.of[state.index])
                                   : delta / weight);
  return Welford<T>{mean, state.m2 + delta * (data - mean), weight, state.index + 1};
}

template <typename T, uint64_t chunk>
inline Welford<T> welford_combine(Welford<T>& state, T& data, int64_t tail,
                                  WelfordHelper<T, chunk>* helper) {
  const Welford<T> next = welford_combine(state, data, helper);
  return Welford<T>{T::set(state.mean, next.mean, tail), T::set(state.m2, next.m2, tail),
                    T::set(state.weight, next.weight, tail), next.index};
}

template <typename T, uint64_t chunk>
inline Welford<T> welford_combine(Welford<T>& state, WelfordHelper<T, chunk>* helper) {
  Welford<T> sum = state;
  for (uint64_t k = 0; k < helper->depth; ++k) sum = ::welford_combine(sum, helper->level[k]);
  return sum;
}

#if INDUCTOR_USE_VECTOR_TYPES()
// The lower and the upper halves of two vectors of bytes, element by element.
template <typename V>
inline V interleave_low(V a, V b) {
  if constexpr (sizeof(V) == 8)
    return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
  else
    return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}
template <typename V>
inline V interleave_high(V a, V b) {
  if constexpr (sizeof(V) == 8)
    return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
  else
    return __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15,
                                   31);
}

// Transposes as many rows as a row has bytes. A pass interleaves each row of the upper half with
// one of the lower half. It rotates the bits of an element's place, row and column, by one.
template <typename V>
inline void transpose_square(const char* from, int64_t from_pitch, char* to, int64_t to_pitch) {
  constexpr int N = sizeof(V);
  V rows[N], next[N];
#pragma GCC unroll 16
  for (int i = 0; i < N; ++i) memcpy(&rows[i], from + i * from_pitch, N);
#pragma GCC unroll 4
  for (int pass = 1; pass < N; pass *= 2) {
#pragma GCC unroll 8
    for (int i = 0; i < N / 2; ++i) {
      next[2 * i] = interleave_low(rows[i], rows[i + N / 2]);
      next[2 * i + 1] = interleave_high(rows[i], rows[i + N / 2]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < N; ++i) rows[i] = next[i];
  }
#pragma GCC unroll 16
  for (int i = 0; i < N; ++i) memcpy(to + i * to_pitch, &rows[i], N);
}

// Writes `columns` bytes of three rows, three bytes side by side: an image that becomes a
// channels-last one.
inline void interleave_three(const char* rows, int64_t pitch, char* to, int columns) {
  typedef uint8_t Bytes __attribute__((vector_size(16)));
  typedef uint64_t Words __attribute__((vector_size(16)));
  for (int at = 0; at < columns; at += 8) {
    // Not an array, which the compiler may write word by word and then read as vectors.
    uint64_t first_word, second_word, third_word;
    memcpy(&first_word, rows + at, 8);
    memcpy(&second_word, rows + pitch + at, 8);
    memcpy(&third_word, rows + 2 * pitch + at, 8);
    const Bytes both = reinterpret_cast<Bytes>(Words{first_word, second_word}),
                third = reinterpret_cast<Bytes>(Words{third_word, 0});
    const Bytes low = __builtin_shufflevector(both, third, 0, 8, 16, 1, 9, 17, 2, 10, 18, 3, 11, 19,
                                              4, 12, 20, 5),
                high = __builtin_shufflevector(both, third, 13, 21, 6, 14, 22, 7, 15, 23, 0, 0, 0,
                                               0, 0, 0, 0, 0);
    memcpy(to + 3 * at, &low, 16);
    memcpy(to + 3 * at + 16, &high, 8);
  }
}

// Transposes bytes, or returns false if it does not know the shape. The functions of the headers
// move them one by one.
inline bool transpose_bytes(const void* from, int64_t from_pitch, void* to, int64_t to_pitch,
                            int rows, int columns) {
  typedef uint8_t Bytes8 __attribute__((vector_size(8)));
  typedef uint8_t Bytes16 __attribute__((vector_size(16)));
  const char* source = static_cast<const char*>(from);
  char* target = static_cast<char*>(to);
  if (rows == 16 && columns == 16)
    transpose_square<Bytes16>(source, from_pitch, target, to_pitch);
  else if (rows == 8 && columns == 8)
    transpose_square<Bytes8>(source, from_pitch, target, to_pitch);
  else if (rows == 3 && to_pitch == 3 && columns % 8 == 0)
    interleave_three(source, from_pitch, target, columns);
  else
    return false;
  return true;
}
#endif

}  // namespace husk_kernels

#if INDUCTOR_USE_VECTOR_TYPES()
template <>
inline void transpose_mxn<uint8_t, false>(const uint8_t* from, int64_t from_pitch, uint8_t* to,
                                          int64_t to_pitch, int rows, int columns) {
  if (!husk_kernels::transpose_bytes(from, from_pitch, to, to_pitch, rows, columns))
    at::vec::transpose_mxn<uint8_t>(from, from_pitch, to, to_pitch, rows, columns);
}
template <>
inline void transpose_mxn<int8_t, false>(const int8_t* from, int64_t from_pitch, int8_t* to,
                                         int64_t to_pitch, int rows, int columns) {
  if (!husk_kernels::transpose_bytes(from, from_pitch, to, to_pitch, rows, columns))
    at::vec::transpose_mxn<int8_t>(from, from_pitch, to, to_pitch, rows, columns);
}
#endif

// The functions of the C++ runtime library that the headers may call.
void* operator new(size_t size) { return husk_kernels::allocate(size, 16); }
void* operator new[](size_t size) { return husk_kernels::allocate(size, 64); }
void* operator new(size_t size, std::align_val_t align) {
  return husk_kernels::allocate(size, size_t(align));
}
void* operator new[](size_t size, std::align_val_t align) {
  return husk_kernels::allocate(size, size_t(align));
}
void operator delete(void* pointer) noexcept { husk_kernels::release(pointer); }
void operator delete[](void* pointer) noexcept { husk_kernels::release(pointer); }
void operator delete(void* pointer, size_t) noexcept { husk_kernels::release(pointer); }
void operator delete[](void* pointer, size_t) noexcept { husk_kernels::release(pointer); }
void operator delete(void* pointer, std::align_val_t) noexcept { husk_kernels::release(pointer); }
void operator delete[](void* pointer, std::align_val_t) noexcept { husk_kernels::release(pointer); }
void operator delete(void* pointer, size_t, std::align_val_t) noexcept {
  husk_kernels::release(pointer);
}
void operator delete[](void* pointer, size_t, std::align_val_t) noexcept {
  husk_kernels::release(pointer);
}

namespace std {
ios_base::Init::Init() {}
ios_base::Init::~Init() {}
void __throw_bad_alloc() { husk_kernels::fail(husk_kernels::no_memory); }
void __throw_bad_array_new_length() { husk_kernels::fail(husk_kernels::no_memory); }
void __throw_length_error(const char*) { husk_kernels::fail(husk_kernels::unnamed); }
void __throw_out_of_range(const char*) { husk_kernels::fail(husk_kernels::unnamed); }
void __throw_out_of_range_fmt(const char*, ...) { husk_kernels::fail(husk_kernels::unnamed); }
void __throw_logic_error(const char*) { husk_kernels::fail(husk_kernels::unnamed); }
}  // namespace std

namespace c10::detail {
// torch 2.15 reports an integer division by zero through a function with "div_by_zero" in its name.
[[noreturn]] static void fail_in(const char* function) {
  husk_kernels::fail(strstr(function, "div_by_zero") != nullptr ? husk_kernels::division_by_zero
                                                                : husk_kernels::unnamed);
}
void torchCheckFail(const char* function, const char*, uint32_t, const char*) { fail_in(function); }
void torchCheckFail(const char* function, const char*, uint32_t, const std::string&) {
  fail_in(function);
}
}  // namespace c10::detail
