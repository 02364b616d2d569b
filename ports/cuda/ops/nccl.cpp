#include "ops/nccl.h"

#include <iterator>

#include "error.h"
#include "ops/library.h"

namespace husk::cuda {

namespace {

constexpr LibrarySymbol kSymbols[] = {
#define HUSK_NCCL(result, name, parameters) {#name, offsetof(Nccl, name)},
#include "ops/nccl.def"
#undef HUSK_NCCL
};

constexpr LibraryDescription kDescription = {
    "NCCL", "NVIDIA's NCCL 2", "one rank",          "nccl",      2, 2,
    true,   kSymbols,          std::size(kSymbols), sizeof(Nccl)};

husk_status code_of(ncclResult_t result) {
  return result == ncclInvalidArgument || result == ncclInvalidUsage ? HUSK_INVALID_ARGUMENT
                                                                     : HUSK_DEVICE;
}

}  // namespace

husk_status open_nccl(const char* path, Nccl* nccl, husk_error* error) {
  const Driver any = {};  // the version in the file's name does not depend on the driver
  return open_library(kDescription, path, any, nccl, error);
}

void close_nccl(Nccl* nccl) { close_library(nccl->library); }

husk_status nccl_fail(const Nccl& nccl, husk_error* error, ncclResult_t result, const char* call,
                      const char* thing) {
  const char* name = nccl.ncclGetErrorString(result);
  return library_fail(kDescription,
                      {code_of(result), name ? name : "an error without a name", result}, call,
                      thing, error);
}

}  // namespace husk::cuda
