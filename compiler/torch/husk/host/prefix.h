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

}  // namespace husk_kernels

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
