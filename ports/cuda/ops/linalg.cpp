#include "ops/linalg.h"

#include <cstring>
#include <iterator>

#include <husk/detail/struct_size.h>

#include "ops/linalg_call.h"

namespace husk::cuda {

namespace {

// Host scratch of the library that is there before anything is prepared.
constexpr size_t kFirstHostBytes = 64 << 10;

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
  HUSK_TRY(call.check_count());
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

// OpLibrary.close.
void close_linalg(const Device& device, void* state) {
  Linalg* linalg = static_cast<Linalg*>(state);
  close_cusolver(&linalg->cusolver);
  pthread_mutex_destroy(&linalg->mutex);
  release(device, linalg->host_scratch);
  release(device, linalg);
}

}  // namespace

husk_status open_linalg(void* handle, OpLibrary* out, husk_error* error) {
  Device& device = as_device(handle);
  Current current(handle, error);
  HUSK_TRY(current.status);
  constexpr const char* kThing = "cuSOLVER";
  Linalg* linalg = static_cast<Linalg*>(allocate(device, sizeof(Linalg), kThing, error));
  if (!linalg) return HUSK_OUT_OF_MEMORY;
  memset(linalg, 0, sizeof *linalg);
  husk_status status = HUSK_OUT_OF_MEMORY;
  linalg->host_bytes = kFirstHostBytes;
  linalg->host_scratch = allocate(device, kFirstHostBytes, kThing, error);
  if (linalg->host_scratch)
    status = open_cusolver(device.options.cusolver, device.driver, &linalg->cusolver, error);
  if (status != HUSK_OK) {
    if (linalg->host_scratch) release(device, linalg->host_scratch);
    release(device, linalg);
    return status;
  }
  pthread_mutex_init(&linalg->mutex, nullptr);
  *out = {linalg, close_linalg};
  return HUSK_OK;
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
           0};
    return HUSK_OK;
  }
  return HUSK_NOT_FOUND;
}

}  // namespace husk::cuda
