// A libcufft.so.12 for tests that runs on the fake driver. It computes sums on the host, in double
// precision and in the order of the stream, and aborts if the real library's behaviour is
// undefined: two threads with one plan, a plan that is destroyed before its work has ended, no work
// area, operands outside of live memory or with a wrong alignment. A transform from complex to real
// numbers overwrites its input. Calls are counted and fail like the driver's (fake_calls,
// fake_fail_call), with a result of cuFFT.
#include <atomic>
#include <cmath>
#include <complex>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "fake.h"
#include "ops/fourier.h"

using namespace husk::cuda;

namespace {

using Complex = std::complex<double>;

[[noreturn]] void violation(const char* text) {
  fprintf(stderr, "fake libcufft: %s\n", text);
  abort();
}

// The result for a fault, which is a code of the driver or a result of cuFFT.
cufftResult result_of(int32_t code) {
  if (code == CUDA_ERROR_OUT_OF_MEMORY) return CUFFT_ALLOC_FAILED;
  return code > 20 ? CUFFT_EXEC_FAILED : static_cast<cufftResult>(code);
}

struct Plan {
  int32_t type = 0, rank = 0;
  int64_t sizes[3] = {1, 1, 1}, batch = 0;
  void* stream = nullptr;
  void* work = nullptr;
  bool allocates = true;
  std::atomic<bool> is_used{false}, is_alive{true};

  int64_t complex_count() const {
    int64_t count = batch;
    for (int d = 0; d < rank; ++d) count *= sizes[d];
    return count;
  }
};

std::mutex& mutex() {
  static auto* const one = new std::mutex;
  return *one;
}
// Plans are never freed, so that work knows a dead one.
std::map<cufftHandle, Plan*>& plans() {
  static auto* const all = new std::map<cufftHandle, Plan*>;
  return *all;
}

// The use of a plan during a call.
class Use {
 public:
  explicit Use(cufftHandle handle) {
    const std::lock_guard<std::mutex> lock(mutex());
    const auto found = plans().find(handle);
    if (found == plans().end() || !found->second->is_alive) violation("not a plan");
    plan_ = found->second;
    if (plan_->is_used.exchange(true)) violation("two threads use one plan");
  }
  ~Use() { plan_->is_used = false; }
  Plan* operator->() const { return plan_; }
  Plan* get() const { return plan_; }

 private:
  Plan* plan_;
};

bool is_double(int32_t type) { return type >= CUFFT_Z2Z; }
bool is_from_real(int32_t type) { return type == CUFFT_R2C || type == CUFFT_D2Z; }
bool is_to_real(int32_t type) { return type == CUFFT_C2R || type == CUFFT_Z2D; }
int64_t width(int32_t type) { return is_double(type) ? 8 : 4; }

double load(int32_t type, const void* from, int64_t index) {
  return is_double(type) ? static_cast<const double*>(from)[index]
                         : static_cast<double>(static_cast<const float*>(from)[index]);
}
void store(int32_t type, void* to, int64_t index, double value) {
  if (is_double(type))
    static_cast<double*>(to)[index] = value;
  else
    static_cast<float*>(to)[index] = static_cast<float>(value);
}

struct Work {
  const Plan* plan;
  void *input, *out, *work;
  int direction;
};

// The values of one side: real, complex, or the first half of the last dimension.
int64_t values_on(const Plan& plan, bool half) {
  const int64_t last = plan.sizes[plan.rank - 1];
  return half ? plan.complex_count() / last * (last / 2 + 1) : plan.complex_count();
}
uint64_t bytes_on(const Plan& plan, bool real, bool half) {
  return static_cast<uint64_t>(values_on(plan, half) * width(plan.type) * (real ? 1 : 2));
}
uint64_t work_bytes(const Plan& plan) { return bytes_on(plan, false, false) + 64; }

// Transforms `count` lines of length n whose elements lie `stride` apart.
void transform_lines(std::vector<Complex>& x, int64_t n, int64_t stride, int sign) {
  std::vector<Complex> waves(static_cast<size_t>(n)), line(static_cast<size_t>(n));
  for (int64_t k = 0; k < n; ++k)
    waves[static_cast<size_t>(k)] = std::polar(
        1.0, sign * 2 * M_PI * static_cast<double>(k) / static_cast<double>(n));
  const int64_t total = static_cast<int64_t>(x.size());
  for (int64_t begin = 0; begin < total; ++begin) {
    if (begin / stride % n != 0) continue;
    for (int64_t k = 0; k < n; ++k) {
      Complex sum = 0;
      for (int64_t j = 0; j < n; ++j)
        sum += x[static_cast<size_t>(begin + j * stride)] * waves[static_cast<size_t>(j * k % n)];
      line[static_cast<size_t>(k)] = sum;
    }
    for (int64_t k = 0; k < n; ++k)
      x[static_cast<size_t>(begin + k * stride)] = line[static_cast<size_t>(k)];
  }
}

void execute(const void* data) {
  Work w;
  memcpy(&w, data, sizeof w);
  const Plan& plan = *w.plan;
  if (!plan.is_alive) violation("a plan was destroyed before its work had ended");
  memset(w.work, 0xEE, work_bytes(plan));
  const int64_t last = plan.sizes[plan.rank - 1], half = last / 2 + 1;
  const bool from_real = is_from_real(plan.type), to_real = is_to_real(plan.type);
  std::vector<Complex> x(static_cast<size_t>(plan.complex_count()));
  for (size_t i = 0; i < x.size(); ++i) {
    const int64_t line = static_cast<int64_t>(i) / last, at = static_cast<int64_t>(i) % last;
    if (from_real) {
      x[i] = load(plan.type, w.input, static_cast<int64_t>(i));
    } else if (!to_real || at < half) {
      const int64_t from = to_real ? line * half + at : static_cast<int64_t>(i);
      x[i] = {load(plan.type, w.input, 2 * from), load(plan.type, w.input, 2 * from + 1)};
    }
  }
  // The last dimension of a transform to real numbers comes last, since its second half is missing.
  int64_t stride = to_real ? last : 1;
  for (int d = plan.rank - (to_real ? 2 : 1); d >= 0; --d) {
    transform_lines(x, plan.sizes[d], stride, w.direction);
    stride *= plan.sizes[d];
  }
  if (to_real) {
    for (size_t i = 0; i < x.size(); ++i) {
      const size_t at = i % static_cast<size_t>(last), begin = i - at;
      if (at == 0 || 2 * at == static_cast<size_t>(last)) x[i] = x[i].real();
      if (at >= static_cast<size_t>(half))
        x[i] = std::conj(x[begin + static_cast<size_t>(last) - at]);
    }
    transform_lines(x, last, 1, w.direction);
    memset(w.input, 0xEE, bytes_on(plan, false, true));
  }
  for (size_t i = 0; i < x.size(); ++i) {
    const int64_t line = static_cast<int64_t>(i) / last, at = static_cast<int64_t>(i) % last;
    if (to_real) {
      store(plan.type, w.out, static_cast<int64_t>(i), x[i].real());
    } else if (!from_real || at < half) {
      const int64_t to = from_real ? line * half + at : static_cast<int64_t>(i);
      store(plan.type, w.out, 2 * to, x[i].real());
      store(plan.type, w.out, 2 * to + 1, x[i].imag());
    }
  }
}

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default"))) cufftResult

EXPORT cufftCreate(cufftHandle* handle) {
  if (const int32_t fault = fake_enter("cufftCreate", true)) return result_of(fault);
  const std::lock_guard<std::mutex> lock(mutex());
  *handle = static_cast<cufftHandle>(plans().size()) + 1;
  plans()[*handle] = new Plan;
  fake_hold(1);
  return CUFFT_SUCCESS;
}

EXPORT cufftDestroy(cufftHandle handle) {
  const int32_t fault = fake_enter("cufftDestroy", true);
  Use(handle)->is_alive = false;
  fake_hold(-1);
  return result_of(fault);
}

EXPORT cufftSetAutoAllocation(cufftHandle handle, int allocates) {
  if (const int32_t fault = fake_enter("cufftSetAutoAllocation", true)) return result_of(fault);
  Use(handle)->allocates = allocates != 0;
  return CUFFT_SUCCESS;
}

EXPORT cufftMakePlanMany64(cufftHandle handle, int rank, long long* sizes, long long* input_embed,
                           long long, long long, long long* output_embed, long long, long long,
                           cufftType type, long long batch, size_t* bytes) {
  if (const int32_t fault = fake_enter("cufftMakePlanMany64", true)) return result_of(fault);
  const Use plan(handle);
  if (plan->allocates) violation("the plan allocates its work area itself");
  if (rank < 1 || rank > 3 || batch < 1 || input_embed || output_embed) return CUFFT_INVALID_VALUE;
  plan->type = type;
  plan->rank = rank;
  plan->batch = batch;
  for (int d = 0; d < rank; ++d) {
    if (sizes[d] < 1) return CUFFT_INVALID_SIZE;
    plan->sizes[d] = sizes[d];
  }
  *bytes = work_bytes(*plan.get());
  return CUFFT_SUCCESS;
}

EXPORT cufftSetStream(cufftHandle handle, CUstream stream) {
  if (const int32_t fault = fake_enter("cufftSetStream", true)) return result_of(fault);
  Use(handle)->stream = stream;
  return CUFFT_SUCCESS;
}

EXPORT cufftSetWorkArea(cufftHandle handle, void* work) {
  if (const int32_t fault = fake_enter("cufftSetWorkArea", true)) return result_of(fault);
  Use(handle)->work = work;
  return CUFFT_SUCCESS;
}

EXPORT cufftXtExec(cufftHandle handle, void* input, void* out, int direction) {
  const Use plan(handle);
  const int32_t type = plan->type;
  if (is_from_real(type) && direction != CUFFT_FORWARD) return CUFFT_INVALID_VALUE;
  if (is_to_real(type) && direction != CUFFT_INVERSE) return CUFFT_INVALID_VALUE;
  for (const void* side : {input, out})
    if (reinterpret_cast<uintptr_t>(side) % static_cast<uintptr_t>(2 * width(type)))
      violation("an operand is not aligned");
  const fake_range ranges[] = {{input, bytes_on(*plan.get(), is_from_real(type), is_to_real(type))},
                               {out, bytes_on(*plan.get(), is_to_real(type), is_from_real(type))},
                               {plan->work, work_bytes(*plan.get())}};
  const Work w = {plan.get(), input, out, plan->work, direction};
  return result_of(fake_queue("cufftXtExec", plan->stream, execute, &w, sizeof w, ranges, 3));
}
