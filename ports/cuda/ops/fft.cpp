#include "ops/fft.h"

#include <cstdio>
#include <cstring>

#include <husk/detail/dtype.h>
#include <husk/detail/struct_size.h>

#include "ops/arguments.h"
#include "ops/fft_plan.h"
#include "ops/group.h"
#include "ops/op_library.h"
#include "ops/scratch.h"

namespace husk::cuda {

namespace {

// The husk_op.contract of husk::fft.
constexpr char kContract[] = "input dims inverse sizes out:w";
constexpr ArgumentPlaces kAt(kContract);
constexpr uint32_t kInput = kAt["input"], kDims = kAt["dims"], kInverse = kAt["inverse"],
                   kOut = kAt["out"], kCount = kAt.count();

// cuFFT opened for one device: OpLibrary.state, and `user` of the op.
struct Fft {
  static constexpr const char* kTitle = "plans of Fourier transforms";
  Cufft cufft;
  FftPlanCache plans;

  husk_status open(const Device& device, husk_error* error) {
    HUSK_TRY(open_cufft(device.options.cufft, device.driver, &cufft, error));
    plans.init();
    return HUSK_OK;
  }
  void close(const Device& device) {
    plans.destroy(device, cufft);
    close_cufft(&cufft);
  }
};

// The transform that a call asks for.
struct Transform {
  FftKey key;
  void *input, *out;
  size_t input_bytes;
  int direction;
  bool is_empty;
  char text[100];  // for errors: "husk::fft f32 real to complex 16 x [8, 64]"

  // cuFFT overwrites the input of a transform to real numbers.
  size_t copied_bytes() const {
    return key.type == CUFFT_C2R || key.type == CUFFT_Z2D ? input_bytes : 0;
  }
};

int64_t product(const int64_t* sizes, int32_t count) {
  int64_t result = 1;
  for (int32_t i = 0; i < count; ++i) result *= sizes[i];
  return result;
}

bool is_dense(const husk_op_arg& arg) {
  int64_t stride = 1;
  for (int32_t d = arg.rank; d-- > 0;) {
    if (arg.sizes[d] != 1 && arg.strides[d] != stride) return false;
    stride *= arg.sizes[d];
  }
  return true;
}

husk_status check_kinds(const husk_op_arg* args, uint32_t count, husk_error* error) {
  const auto is_tensor = [&](const husk_op_arg& arg) {
    return arg.kind == HUSK_ARG_TENSOR && (arg.dtype == HUSK_F32 || arg.dtype == HUSK_F64) &&
           arg.dtype == args[kInput].dtype;
  };
  const bool valid = count == kCount && is_tensor(args[kInput]) && is_tensor(args[kOut]) &&
                     args[kDims].kind == HUSK_ARG_INT && args[kInverse].kind == HUSK_ARG_INT &&
                     args[kDims].i >= 1 && args[kDims].i <= 3;
  if (valid) return HUSK_OK;
  return fail(error, HUSK_INVALID_ARGUMENT,
              "husk::fft takes a tensor of f32 or f64, the number 1, 2 or 3 of its transformed "
              "dimensions, an int and the result: export the program again");
}

// The sizes of the batch and of the transformed dimensions. The ranks tell which sides are complex:
// the last dimension of a complex side has the two parts.
husk_status read_sizes(const husk_op_arg* args, Transform* out, husk_error* error) {
  const husk_op_arg &input = args[kInput], &result = args[kOut];
  const int32_t rank = static_cast<int32_t>(args[kDims].i);
  const int32_t difference = result.rank - input.rank;  // 1: real to complex, -1: complex to real
  const int32_t input_parts = difference == 1 ? 0 : 1, result_parts = difference == -1 ? 0 : 1;
  const bool is_double = input.dtype == HUSK_F64;
  const int32_t first = input.rank - input_parts - rank;  // of the transformed dimensions
  bool fits = difference >= -1 && difference <= 1 && first >= 0 &&
              (!input_parts || input.sizes[input.rank - 1] == 2) &&
              (!result_parts || result.sizes[result.rank - 1] == 2);
  out->key.rank = rank;
  out->key.type = difference == 1    ? (is_double ? CUFFT_D2Z : CUFFT_R2C)
                  : difference == -1 ? (is_double ? CUFFT_Z2D : CUFFT_C2R)
                                     : (is_double ? CUFFT_Z2Z : CUFFT_C2C);
  const husk_op_arg& whole = difference == -1 ? result : input;  // not the half one
  const husk_op_arg& half = difference == -1 ? input : result;
  for (int32_t d = 0; fits && d < first + rank; ++d) {
    const bool is_half = difference != 0 && d == first + rank - 1;
    fits = half.sizes[d] == (is_half ? whole.sizes[d] / 2 + 1 : whole.sizes[d]);
    if (d >= first) out->key.sizes[d - first] = whole.sizes[d];
  }
  if (!fits)
    return fail(error, HUSK_INVALID_INPUT,
                "husk::fft: the sizes of the input and the result do "
                "not match");
  out->key.batch = product(input.sizes, first);
  out->is_empty = product(input.sizes, input.rank) == 0 || product(result.sizes, result.rank) == 0;
  out->input_bytes = static_cast<size_t>(product(input.sizes, input.rank)) *
                     detail::element_bytes(input.dtype);
  const char* kinds[] = {"complex to real", "complex", "real to complex"};
  const int64_t* n = out->key.sizes;
  char list[64];
  if (rank == 1) snprintf(list, sizeof list, "[%lld]", (long long)n[0]);
  if (rank == 2) snprintf(list, sizeof list, "[%lld, %lld]", (long long)n[0], (long long)n[1]);
  if (rank == 3)
    snprintf(list, sizeof list, "[%lld, %lld, %lld]", (long long)n[0], (long long)n[1],
             (long long)n[2]);
  snprintf(out->text, sizeof out->text, "husk::fft %s %s %lld x %s",
           detail::element_name(input.dtype), kinds[difference + 1], (long long)out->key.batch,
           list);
  return HUSK_OK;
}

husk_status read_transform(const husk_op_arg* args, uint32_t count, Transform* out,
                           husk_error* error) {
  memset(out, 0, sizeof *out);
  HUSK_TRY(check_kinds(args, count, error));
  HUSK_TRY(read_sizes(args, out, error));
  out->input = args[kInput].data;
  out->out = args[kOut].data;
  out->direction = args[kInverse].i ? CUFFT_INVERSE : CUFFT_FORWARD;
  const bool wrong_way = (out->key.type == CUFFT_R2C || out->key.type == CUFFT_D2Z)
                             ? out->direction == CUFFT_INVERSE
                             : out->copied_bytes() > 0 && out->direction == CUFFT_FORWARD;
  if (wrong_way)
    return fail(error, HUSK_UNSUPPORTED,
                "%s: cuFFT has this transform with the other sign only: export with fft='triton'",
                out->text);
  const char* names[] = {"the input", "the result"};
  const husk_op_arg* tensors[] = {&args[kInput], &args[kOut]};
  const uintptr_t align = 2 * detail::element_bytes(args[kInput].dtype);
  for (int i = 0; i < 2 && !out->is_empty; ++i) {
    if (!is_dense(*tensors[i]))
      return fail(error, HUSK_UNSUPPORTED, "%s: %s has gaps: export with fft='triton'", out->text,
                  names[i]);
    if (reinterpret_cast<uintptr_t>(tensors[i]->data) % align)
      return fail(error, HUSK_UNSUPPORTED,
                  "%s: the address of %s is no multiple of a complex number's size, as cuFFT "
                  "wants: give aligned memory, or export with fft='triton'",
                  out->text, names[i]);
  }
  return HUSK_OK;
}

husk_status prepare(const husk_op_context* context, const husk_op_arg* args, uint32_t count,
                    husk_error* error) {
  HUSK_TRY(HUSK_CHECK_STRUCT(husk_op_context, context, threads, error));
  Transform transform;
  HUSK_TRY(read_transform(args, count, &transform, error));
  if (transform.is_empty) return HUSK_OK;
  Current current(context->device, error);
  HUSK_TRY(current.status);
  Fft& fft = *static_cast<Fft*>(context->user);
  const Lock lock(&fft.plans.mutex);
  FftPlan* plan = nullptr;
  return fft.plans.get(as_device(context->device), fft.cufft, transform.key, transform.text, &plan,
                       error);
}

// Queues a transform, and the event after which its plan may be destroyed.
husk_status execute(const Device& device, const Cufft& cufft, FftPlan* plan, void* stream,
                    const Transform& transform, void* input, void* work, husk_error* error) {
  const auto failed = [&](cufftResult result, const char* call) {
    return result == CUFFT_SUCCESS ? husk_status{HUSK_OK}
                                   : cufft_fail(error, result, call, transform.text);
  };
  const auto driver_failed = [&](CUresult result, const char* call) {
    return result == CUDA_SUCCESS
               ? husk_status{HUSK_OK}
               : driver_fail(device.driver, error, result, call, "%s", transform.text);
  };
  if (!plan->used)
    HUSK_TRY(driver_failed(device.driver.cuEventCreate(&plan->used, CU_EVENT_DISABLE_TIMING),
                           "cuEventCreate"));
  HUSK_TRY(failed(cufft.cufftSetStream(plan->plan, as_stream(stream)), "cufftSetStream"));
  HUSK_TRY(failed(cufft.cufftSetWorkArea(plan->plan, work), "cufftSetWorkArea"));
  const husk_status status = failed(
      cufft.cufftXtExec(plan->plan, input, transform.out, transform.direction), "cufftXtExec");
  const CUresult recorded = device.driver.cuEventRecord(plan->used, as_stream(stream));
  // Without the event nobody knows when the plan may be destroyed, so the work ends now.
  if (recorded != CUDA_SUCCESS) let_end(device, {as_stream(stream), nullptr});
  HUSK_TRY(status);
  return driver_failed(recorded, "cuEventRecord");
}

husk_status call(const husk_op_context* context, const husk_op_arg* args, uint32_t count,
                 husk_error* error) {
  HUSK_TRY(HUSK_CHECK_STRUCT(husk_op_context, context, threads, error));
  Device& device = as_device(context->device);
  Transform transform;
  HUSK_TRY(read_transform(args, count, &transform, error));
  if (transform.is_empty) return HUSK_OK;
  Current current(context->device, error);
  HUSK_TRY(current.status);
  const NvtxRange range(device.nvtx, "husk::fft");
  Fft& fft = *static_cast<Fft*>(context->user);
  {
    const Lock lock(&fft.plans.mutex);
    FftPlan* plan = nullptr;
    HUSK_TRY(fft.plans.get(device, fft.cufft, transform.key, transform.text, &plan, error));
    const size_t copied = transform.copied_bytes();
    Scratch scratch(device, context->stream);
    HUSK_TRY(scratch.allocate(align_scratch(copied) + plan->work_bytes, transform.text, error));
    void* input = transform.input;
    if (copied) {
      input = scratch.data();
      const CUresult result = device.driver.cuMemcpyAsync(
          as_address(input), as_address(transform.input), copied, as_stream(context->stream));
      if (result != CUDA_SUCCESS)
        return driver_fail(device.driver, error, result, "cuMemcpyAsync", "%s", transform.text);
    }
    void* work = plan->work_bytes ? scratch.data() + align_scratch(copied) : nullptr;
    HUSK_TRY(execute(device, fft.cufft, plan, context->stream, transform, input, work, error));
  }
  return check_work(device, context->stream, error, "%s", transform.text);
}

}  // namespace

husk_status open_fft(void* device, OpLibrary* out, husk_error* error) {
  return open_op_library<Fft>(device, out, error);
}

// A call is not captured: it allocates, and a captured transform would keep the tables of a plan
// that another one may replace.
husk_status find_fft(const char* name, void* state, husk_op* op) {
  if (strcmp(name, "husk::fft") != 0) return HUSK_NOT_FOUND;
  *op = {sizeof(husk_op), 0,       "husk::fft",       call, state, prepare,
         kContract,       nullptr, HUSK_OP_ON_DEVICE, 0,    0,     0};
  return HUSK_OK;
}

}  // namespace husk::cuda
