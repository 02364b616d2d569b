#include "ops/matmul.h"

#include <cstring>

#include <husk/detail/struct_size.h>

#include "device.h"
#include "ops/arguments.h"
#include "ops/matmul_plan.h"
#include "ops/op_library.h"

namespace husk::cuda {

namespace {

// cuBLASLt opened for one device: OpLibrary.state, and `user` of the op.
struct Matmul {
  static constexpr const char* kTitle = "plans of matrix products";
  Cublas cublas;
  MatmulPlanCache plans;

  husk_status open(const Device& device, husk_error* error) {
    HUSK_TRY(open_cublas(device.options.cublas, device.driver, &cublas, error));
    plans.init();
    return HUSK_OK;
  }
  void close(const Device&) {
    close_cublas(&cublas);
    plans.destroy();
  }
};

husk_status prepare(const husk_op_context* context, const husk_op_arg* args, uint32_t count,
                    husk_error* error) {
  HUSK_TRY(HUSK_CHECK_STRUCT(husk_op_context, context, threads, error));
  Operands operands;
  HUSK_TRY(read_operands(args, count, &operands, error));
  if (operands.is_empty()) return HUSK_OK;
  Current current(context->device, error);
  HUSK_TRY(current.status);
  // The address of a bias in the caller's memory is not known yet and may be null, which the
  // library refuses; the choice of an algorithm depends on its alignment only.
  operands.bias = reinterpret_cast<void*>(uintptr_t{256});
  Matmul& matmul = *static_cast<Matmul*>(context->user);
  LtDescriptors descriptors;
  const cublasStatus_t status = descriptors.write(matmul.cublas, operands);
  if (status != CUBLAS_STATUS_SUCCESS)
    return cublas_fail(matmul.cublas, error, status, "a descriptor", MatmulText(args).text);
  MatmulPlan plan;
  return matmul.plans.get(matmul.cublas, operands.key, &descriptors, args, &plan, error);
}

husk_status call(const husk_op_context* context, const husk_op_arg* args, uint32_t count,
                 husk_error* error) {
  HUSK_TRY(HUSK_CHECK_STRUCT(husk_op_context, context, threads, error));
  Device& device = as_device(context->device);
  Operands operands;
  HUSK_TRY(read_operands(args, count, &operands, error));
  Current current(context->device, error);
  HUSK_TRY(current.status);
  const NvtxRange range(device.nvtx, "husk::matmul");
  if (operands.is_empty())
    return fill_zeros(device, context->stream, operands.d, operands.zeros, MatmulText(args).text,
                      error);
  Matmul& matmul = *static_cast<Matmul*>(context->user);
  const Cublas& cublas = matmul.cublas;
  LtDescriptors descriptors;
  cublasStatus_t status = descriptors.write(cublas, operands);
  if (status != CUBLAS_STATUS_SUCCESS)
    return cublas_fail(cublas, error, status, "a descriptor", MatmulText(args).text);
  MatmulPlan plan;
  HUSK_TRY(matmul.plans.get(cublas, operands.key, &descriptors, args, &plan, error));
  // cuBLASLt reads alpha and beta in the type that it computes in.
  const float alpha = static_cast<float>(operands.alpha), beta = static_cast<float>(operands.beta);
  const bool is_double = operands.key.dtype == HUSK_F64;
  Descriptor* layouts = descriptors.layouts;
  status = cublas.cublasLtMatmul(cublas.handle, &descriptors.desc,
                                 is_double ? static_cast<const void*>(&operands.alpha) : &alpha,
                                 operands.a, &layouts[0], operands.b, &layouts[1],
                                 is_double ? static_cast<const void*>(&operands.beta) : &beta,
                                 operands.c, &layouts[2], operands.d, &layouts[3], &plan.algo,
                                 operands.workspace, plan.workspace, as_stream(context->stream));
  if (status == CUBLAS_STATUS_SUCCESS)
    return check_work(device, context->stream, error, "%s", MatmulText(args).text);
  return cublas_fail(cublas, error, status, "cublasLtMatmul", MatmulText(args).text);
}

}  // namespace

husk_status open_matmul(void* device, OpLibrary* out, husk_error* error) {
  return open_op_library<Matmul>(device, out, error);
}

husk_status find_matmul(const char* name, void* state, husk_op* op) {
  if (strcmp(name, "husk::matmul") != 0) return HUSK_NOT_FOUND;
  *op = {sizeof(husk_op),
         0,
         "husk::matmul",
         call,
         state,
         prepare,
         kMatmulContract,
         nullptr,
         HUSK_OP_ON_DEVICE,
         HUSK_OP_CAPTURABLE,
         0,
         0};
  return HUSK_OK;
}

}  // namespace husk::cuda
