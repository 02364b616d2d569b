#include "ops/linalg.h"

#include <cstring>
#include <iterator>

#include <husk/detail/struct_size.h>

#include "ops/linalg_call.h"
#include "ops/op_library.h"

namespace husk::cuda {

namespace {

struct LinalgOp {
  const char* name;
  husk_status (*body)(LinalgCall& call);
  const char* contract;
};
constexpr LinalgOp kOps[] = {
#define HUSK_LINALG_OP(name, function, contract) {name, linalg::function, contract},
#include "ops/linalg.def"
#undef HUSK_LINALG_OP
};
enum {
#define HUSK_LINALG_OP(name, function, contract) k_##function,
#include "ops/linalg.def"
#undef HUSK_LINALG_OP
};

template <int op, bool prepares>
husk_status enter_op(const husk_op_context* context, const husk_op_arg* args, uint32_t count,
                     husk_error* error) {
  HUSK_TRY(HUSK_CHECK_STRUCT(husk_op_context, context, threads, error));
  Current current(context->device, error);
  HUSK_TRY(current.status);
  const NvtxRange range(as_device(context->device).nvtx, kOps[op].name);
  LinalgCall call(kOps[op].name, kOps[op].contract, context, args, count, prepares, error);
  HUSK_TRY(call.check_arguments());
  return call.run(kOps[op].body);
}

struct Entry {
  husk_op_fn call, prepare;
};
constexpr Entry kEntries[] = {
#define HUSK_LINALG_OP(name, function, contract) \
  {enter_op<k_##function, false>, enter_op<k_##function, true>},
#include "ops/linalg.def"
#undef HUSK_LINALG_OP
};

}  // namespace

husk_status Linalg::open(const Device& device, husk_error* error) {
  host_bytes = kFirstHostBytes;
  host_scratch = allocate(device, host_bytes, kTitle, error);
  if (!host_scratch) return HUSK_OUT_OF_MEMORY;
  const husk_status status = open_cusolver(device.options.cusolver, device.driver, &cusolver,
                                           error);
  if (status == HUSK_OK)
    pthread_mutex_init(&mutex, nullptr);
  else
    release(device, host_scratch);
  return status;
}

void Linalg::close(const Device& device) {
  close_cusolver(&cusolver);
  pthread_mutex_destroy(&mutex);
  release(device, host_scratch);
}

husk_status open_linalg(void* device, OpLibrary* out, husk_error* error) {
  return open_op_library<Linalg>(device, out, error);
}

// The ops wait for the stream and allocate device memory, so they cannot be captured.
husk_status find_linalg(const char* name, void* state, husk_op* op) {
  for (size_t i = 0; i < std::size(kOps); ++i) {
    if (strcmp(name, kOps[i].name) != 0) continue;
    *op = {sizeof(husk_op),
           0,
           kOps[i].name,
           kEntries[i].call,
           state,
           kEntries[i].prepare,
           kOps[i].contract,
           nullptr,
           HUSK_OP_ON_DEVICE,
           0,
           0,
           0};
    return HUSK_OK;
  }
  return HUSK_NOT_FOUND;
}

}  // namespace husk::cuda
