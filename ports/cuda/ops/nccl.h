// The part of NCCL that the port uses, and the table of its functions in a library that is opened
// at run time. The declarations stand here so that the port builds without NCCL's header. Names and
// values are those of nccl.h; tests/port/nccl_declarations.cpp compares all of them with this
// header if it is installed.
#pragma once

#include "driver.h"

namespace husk::cuda {

using ncclComm_t = struct ncclComm*;

struct ncclUniqueId {
  char internal[128];
};

enum ncclResult_t : int {
  ncclSuccess = 0,
  ncclUnhandledCudaError = 1,
  ncclSystemError = 2,
  ncclInternalError = 3,
  ncclInvalidArgument = 4,
  ncclInvalidUsage = 5,
  ncclRemoteError = 6,
  ncclInProgress = 7
};
enum ncclRedOp_t : int { ncclSum = 0, ncclProd = 1, ncclMax = 2, ncclMin = 3, ncclAvg = 4 };
enum ncclDataType_t : int {
  ncclInt8 = 0,
  ncclUint8 = 1,
  ncclInt32 = 2,
  ncclUint32 = 3,
  ncclInt64 = 4,
  ncclUint64 = 5,
  ncclFloat16 = 6,
  ncclFloat32 = 7,
  ncclFloat64 = 8,
  ncclBfloat16 = 9,
  ncclFloat8e4m3 = 10,
  ncclFloat8e5m2 = 11
};

// The struct of NCCL 2.14. The library reads `size` bytes, and gives what later versions added its
// default according to `version`.
struct ncclConfig_t {
  size_t size;
  unsigned int magic;
  unsigned int version;
  int blocking;
};
constexpr ncclConfig_t kNcclConfig = {sizeof(ncclConfig_t), 0xcafebeef, 21400, 0};

struct Nccl {
  void* library;
#define HUSK_NCCL(result, name, parameters) result(*name) parameters;
#include "ops/nccl.def"
#undef HUSK_NCCL
};

// Opens the library at `path`, libnccl.so.2 if that is null. HUSK_UNSUPPORTED if there is none; the
// error says what to do.
[[nodiscard]] husk_status open_nccl(const char* path, Nccl* nccl, husk_error* error);
void close_nccl(Nccl* nccl);

// Fills `error` for a call that returned `result`; `thing` names the object. Returns the status
// that corresponds to `result`.
husk_status nccl_fail(const Nccl& nccl, husk_error* error, ncclResult_t result, const char* call,
                      const char* thing);

}  // namespace husk::cuda
