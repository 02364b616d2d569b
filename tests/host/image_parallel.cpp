// Kernels on several threads, in the form that g++ -fopenmp gives a parallel region: a function for
// the region and a call of GOMP_parallel. They are written out so that any compiler builds them,
// over the runtime that the exporter puts into each image.
#include "../../compiler/torch/husk/host/runtime.h"

extern "C" {
extern HUSK_EXPORT const char* const husk_texts[];
extern HUSK_EXPORT const uint32_t husk_text_count;
const char* const husk_texts[] = {"unnamed", "no memory", "a division by 0",
                                  "an element is negative"};
const uint32_t husk_text_count = 4;
}

namespace {

struct Sum {
  const float* x;
  int64_t n;
  float* parts;
  int64_t squares;  // sum over the thread numbers, read after a barrier
  int32_t single;
  const int32_t* fails;
};

// Adds up a part of x in order. All threads wait for each other before and after one of them
// counts.
void sum_region(void* data) {
  Sum& sum = *static_cast<Sum*>(data);
  const int64_t index = omp_get_thread_num(), count = omp_get_num_threads();
  float part = 0;
  for (int64_t i = sum.n * index / count; i < sum.n * (index + 1) / count; ++i) {
    HUSK_CHECK(4, sum.x[i] >= 0);
    part += sum.x[i];
  }
  sum.parts[index] = part;
  GOMP_barrier();
  if (GOMP_single_start()) {
    ++sum.single;
    for (int64_t i = 0; i < count; ++i) sum.squares += i * i;
  }
  GOMP_barrier();
}

// Parameters: x f32[n], n, out f32[1], squares i64[1], wanted i32 (0: all threads).
void sum(void** params) {
  float parts[1024] = {};
  Sum sum{*static_cast<const float**>(params[0]),
          *static_cast<int64_t*>(params[1]),
          parts,
          0,
          0,
          nullptr};
  const int32_t wanted = *static_cast<int32_t*>(params[4]);
  GOMP_parallel(sum_region, &sum, static_cast<unsigned>(wanted), 0);
  float total = 0;
  for (const float part : parts) total += part;
  **static_cast<float**>(params[2]) = total;
  **static_cast<int64_t**>(params[3]) = sum.single == 1 ? sum.squares : -1;
}

// Body i fails with fails[i]: before the barrier if that is odd, otherwise after it. A failing body
// leaves memory allocated.
void fail_region(void* data) {
  const int32_t number = static_cast<Sum*>(data)->fails[omp_get_thread_num()];
  void* memory = husk_kernels::allocate(1 << 16, 64);
  if (number % 2 != 0) husk_kernels::fail(number);
  GOMP_barrier();
  if (number != 0) husk_kernels::fail(number);
  husk_kernels::release(memory);
}

void fail_some(void** params) {
  Sum sum{};
  sum.fails = *static_cast<const int32_t**>(params[0]);
  void* memory = husk_kernels::allocate(100, 64);
  GOMP_parallel(fail_region, &sum, 0, 0);
  husk_kernels::release(memory);
}

void count_inner(void* data) {
  const bool alone = omp_get_num_threads() == 1 && omp_get_thread_num() == 0;
  static_cast<std::atomic<int32_t>*>(data)->fetch_add(alone ? 1 : 1000000);
}

void count_outer(void* data) {
  GOMP_parallel(count_inner, data, 0, 0);
  if (!omp_in_parallel() && omp_get_num_threads() != 1)
    static_cast<std::atomic<int32_t>*>(data)->fetch_add(1000000);
}

void nested(void** params) {
  std::atomic<int32_t> count{0};
  GOMP_parallel(count_outer, &count, 0, 0);
  **static_cast<int32_t**>(params[0]) = count.load();
}

}  // namespace

extern "C" {
HUSK_EXPORT int32_t parallel_sum(void** params) { HUSK_ENTRY(sum(params)); }
HUSK_EXPORT int32_t parallel_fail(void** params) { HUSK_ENTRY(fail_some(params)); }
HUSK_EXPORT int32_t parallel_nested(void** params) { HUSK_ENTRY(nested(params)); }
HUSK_EXPORT int32_t divide(void** params) {
  HUSK_ENTRY({
    const int32_t by = *static_cast<int32_t*>(params[1]);
    if (by == 0) __ubsan_handle_divrem_overflow_abort(nullptr, nullptr, nullptr);
    **static_cast<int32_t**>(params[0]) = 100 / by;
  });
}
}
