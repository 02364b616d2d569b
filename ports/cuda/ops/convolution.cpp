#include "ops/convolution.h"

#include <cstring>

#include <husk/detail/struct_size.h>

#include "ops/arguments.h"
#include "ops/convolution_plan.h"
#include "ops/op_library.h"

namespace husk::cuda {

namespace {

// cuDNN opened for one device: OpLibrary.state, and `user` of the op.
struct Convolution {
  static constexpr const char* kTitle = "plans of convolutions";
  Cudnn cudnn;
  ConvolutionPlanCache plans;

  husk_status open(const Device& device, husk_error* error) {
    HUSK_TRY(open_cudnn(device.options.cudnn, device.driver, &cudnn, error));
    plans.init();
    return HUSK_OK;
  }
  void close(const Device&) {
    plans.destroy(cudnn);
    close_cudnn(&cudnn);
  }
};

husk_status prepare(const husk_op_context* context, const husk_op_arg* args, uint32_t count,
                    husk_error* error) {
  HUSK_TRY(HUSK_CHECK_STRUCT(husk_op_context, context, threads, error));
  ConvolutionOperands operands;
  HUSK_TRY(read_convolution(args, count, &operands, error));
  if (operands.is_empty) return HUSK_OK;
  Current current(context->device, error);
  HUSK_TRY(current.status);
  Convolution& convolution = *static_cast<Convolution*>(context->user);
  return convolution.plans.prepare(convolution.cudnn, operands, args, error);
}

husk_status call(const husk_op_context* context, const husk_op_arg* args, uint32_t count,
                 husk_error* error) {
  HUSK_TRY(HUSK_CHECK_STRUCT(husk_op_context, context, threads, error));
  Device& device = as_device(context->device);
  ConvolutionOperands operands;
  HUSK_TRY(read_convolution(args, count, &operands, error));
  Current current(context->device, error);
  HUSK_TRY(current.status);
  const NvtxRange range(device.nvtx, "husk::cudnn_convolution");
  if (operands.is_empty)
    return fill_zeros(device, context->stream,
                      operands.tensors[operands.key.transposed ? kImage : kResult], operands.zeros,
                      ConvolutionText(args).text, error);
  Convolution& convolution = *static_cast<Convolution*>(context->user);
  HUSK_TRY(convolution.plans.execute(convolution.cudnn, operands, as_stream(context->stream), args,
                                     error));
  return check_work(device, context->stream, error, "%s", ConvolutionText(args).text);
}

}  // namespace

husk_status open_convolution(void* device, OpLibrary* out, husk_error* error) {
  return open_op_library<Convolution>(device, out, error);
}

husk_status find_convolution(const char* name, void* state, husk_op* op) {
  if (strcmp(name, "husk::cudnn_convolution") != 0) return HUSK_NOT_FOUND;
  *op = {sizeof(husk_op),
         0,
         "husk::cudnn_convolution",
         call,
         state,
         prepare,
         kConvolutionContract,
         nullptr,
         HUSK_OP_ON_DEVICE,
         HUSK_OP_CAPTURABLE,
         0,
         0};
  return HUSK_OK;
}

}  // namespace husk::cuda
