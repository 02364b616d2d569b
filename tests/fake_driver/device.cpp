#include <cstdio>
#include <cstring>
#include <string_view>

#include "schedule.h"

namespace fake {

namespace {

const std::map<int, const char*>& error_names() {
  static const auto* const names = new std::map<int, const char*>{
#define NAME(error) {error, #error}
      NAME(CUDA_SUCCESS),
      NAME(CUDA_ERROR_INVALID_VALUE),
      NAME(CUDA_ERROR_OUT_OF_MEMORY),
      NAME(CUDA_ERROR_NOT_INITIALIZED),
      NAME(CUDA_ERROR_STUB_LIBRARY),
      NAME(CUDA_ERROR_NO_DEVICE),
      NAME(CUDA_ERROR_INVALID_DEVICE),
      NAME(CUDA_ERROR_INVALID_IMAGE),
      NAME(CUDA_ERROR_INVALID_CONTEXT),
      NAME(CUDA_ERROR_NO_BINARY_FOR_GPU),
      NAME(CUDA_ERROR_INVALID_PTX),
      NAME(CUDA_ERROR_JIT_COMPILER_NOT_FOUND),
      NAME(CUDA_ERROR_UNSUPPORTED_PTX_VERSION),
      NAME(CUDA_ERROR_INVALID_HANDLE),
      NAME(CUDA_ERROR_ILLEGAL_STATE),
      NAME(CUDA_ERROR_NOT_FOUND),
      NAME(CUDA_ERROR_NOT_READY),
      NAME(CUDA_ERROR_ILLEGAL_ADDRESS),
      NAME(CUDA_ERROR_LAUNCH_FAILED),
      NAME(CUDA_ERROR_NOT_SUPPORTED),
      NAME(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH),
      NAME(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED),
      NAME(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED),
      NAME(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT),
      NAME(CUDA_ERROR_CAPTURED_EVENT),
      NAME(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD),
      NAME(CUDA_ERROR_INVALID_CLUSTER_SIZE),
      NAME(CUDA_ERROR_UNKNOWN),
#undef NAME
  };
  return *names;
}

struct Symbol {
  const char* name;
  int version;
  void* function;
};

template <class F>
void* address_of(F* function) {
  void* address;
  static_assert(sizeof address == sizeof function);
  memcpy(&address, &function, sizeof address);
  return address;
}

const std::vector<Symbol>& symbols() {
  static const auto* const table = new std::vector<Symbol>{
#define HUSK_DRIVER(name, version, need, parameters) {#name, version, address_of(&name)},
#include <driver.def>
#undef HUSK_DRIVER
  };
  return *table;
}

// The kind of a live object that belongs to a context although all contexts are dead, or null.
// Libraries and graphs do not belong to contexts.
const char* live_in_contexts() {
  for (const Context* context : state().contexts)
    if (context && context->live) return nullptr;
  for (const Object* object : state().live_counted) {
    const std::string_view kind = object->kind;
    if (kind != "library" && kind != "graph") return object->kind;
  }
  return state().live_allocations ? "allocation" : nullptr;
}

bool known(CUdevice device) {
  return state().initialised && device >= 0 && device < state().devices;
}

}  // namespace

CUresult cuInit(unsigned int flags) {
  Call call("cuInit");
  if (call.fault) return call.fault;
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (state().devices == 0) return CUDA_ERROR_NO_DEVICE;
  state().initialised = true;
  watch_faults();
  return CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int* version) {
  Call call("cuDriverGetVersion");
  if (call.fault) return call.fault;
  *version = state().version;
  return CUDA_SUCCESS;
}

// Not counted as a call, because errors of other calls are reported through it.
CUresult cuGetErrorName(CUresult error, const char** name) {
  const auto entry = error_names().find(error);
  if (entry == error_names().end()) return CUDA_ERROR_INVALID_VALUE;
  *name = entry->second;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int* count) {
  Call call("cuDeviceGetCount");
  if (call.fault) return call.fault;
  if (!state().initialised) return CUDA_ERROR_NOT_INITIALIZED;
  *count = state().devices;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  Call call("cuDeviceGet");
  if (call.fault) return call.fault;
  if (!known(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char* name, int size, CUdevice device) {
  Call call("cuDeviceGetName");
  if (call.fault) return call.fault;
  if (!known(device)) return CUDA_ERROR_INVALID_DEVICE;
  snprintf(name, static_cast<size_t>(size), "Fake GPU");
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  Call call("cuDeviceGetAttribute");
  if (call.fault) return call.fault;
  if (!known(device)) return CUDA_ERROR_INVALID_DEVICE;
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = state().major; break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = state().minor; break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: *value = 227 * 1024; break;
    case CU_DEVICE_ATTRIBUTE_INTEGRATED: *value = state().integrated; break;
    case CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED:
      *value = state().registers_read_only;
      break;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem(size_t* bytes, CUdevice device) {
  Call call("cuDeviceTotalMem");
  if (call.fault) return call.fault;
  if (!known(device)) return CUDA_ERROR_INVALID_DEVICE;
  *bytes = state().memory;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* out, CUdevice device) {
  Call call("cuDevicePrimaryCtxRetain");
  if (call.fault) return call.fault;
  if (!known(device)) return CUDA_ERROR_INVALID_DEVICE;
  Context*& context = state().contexts[static_cast<size_t>(device)];
  if (!context) context = make<Context>(device);
  context->live = true;
  ++context->retained;
  *out = reinterpret_cast<CUcontext>(context);
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
  Call call("cuDevicePrimaryCtxRelease");
  Context* context = known(device) ? state().contexts[static_cast<size_t>(device)] : nullptr;
  if (!context || context->retained == 0)
    violation("cuDevicePrimaryCtxRelease: device %d is not retained", device);
  context->live = --context->retained > 0;
  if (const char* left = live_in_contexts(); left && !context->live)
    violation("cuDevicePrimaryCtxRelease: the last one, and there still is a live %s", left);
  return call.fault;
}

CUresult cuCtxPushCurrent(CUcontext handle) {
  Call call("cuCtxPushCurrent");
  if (call.fault) return call.fault;
  context_stack().push_back(&call.object<Context>(handle, "context"));
  return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent(CUcontext* out) {
  Call call("cuCtxPopCurrent");
  *out = reinterpret_cast<CUcontext>(&call.context());
  context_stack().pop_back();
  return call.fault;
}

}  // namespace fake

extern "C" {

__attribute__((visibility("default"))) husk::cuda::CUresult cuDriverGetVersion(int* version) {
  return fake::cuDriverGetVersion(version);
}

__attribute__((visibility("default"))) husk::cuda::CUresult cuGetProcAddress_v2(
    const char* name, void** function, int version, uint64_t flags, int* status) {
  fake::Call call("cuGetProcAddress");
  *function = nullptr;
  if (call.fault) return call.fault;
  if (version > fake::state().version || flags != husk::cuda::CU_GET_PROC_ADDRESS_LEGACY_STREAM)
    return husk::cuda::CUDA_ERROR_INVALID_VALUE;
  for (const fake::Symbol& symbol : fake::symbols()) {
    if (strcmp(symbol.name, name) != 0 || fake::state().hidden.count(name)) continue;
    if (symbol.version == version) *function = symbol.function;
  }
  if (status) *status = *function ? 0 : 1;
  return husk::cuda::CUDA_SUCCESS;
}
}
