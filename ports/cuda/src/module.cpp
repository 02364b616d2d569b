#include "module.h"

#include <cstddef>
#include <cstring>
#include <new>

#include <husk/detail/dtype.h>
#include <husk/detail/struct_size.h>

#include "image.h"

namespace husk::cuda {

namespace {

// More bytes of shared memory (static and dynamic) need an opt-in. Source: CUDA C++ Programming
// Guide, "Compute Capabilities".
constexpr int kPlainShared = 48 * 1024;
// Clusters of more blocks need an opt-in. Source: CUDA C++ Programming Guide, "Thread Block
// Clusters".
constexpr uint32_t kPortableCluster = 8;

CUresult load_cubin(const Driver& driver, const husk_port_image& image, CUlibrary* library) {
  CUlibraryOption option = CU_LIBRARY_BINARY_IS_PRESERVED;
  void* value = reinterpret_cast<void*>(uintptr_t{1});
  return driver.cuLibraryLoadData(library, image.data, nullptr, nullptr, 0, &option, &value, 1);
}

CUresult load_ptx(const Driver& driver, const husk_port_image& image, Module* module) {
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {module->log, reinterpret_cast<void*>(sizeof module->log - 1)};
  return driver.cuLibraryLoadData(&module->library, image.data, options, values, 2, nullptr,
                                  nullptr, 0);
}

// Loads the image into module->library. The driver defers all the work that it can. PTX is compiled
// here nevertheless, so that the error of a bad PTX comes from here, with the compiler's message.
husk_status load_image(const Device& device, const husk_port_image& image, Module* module,
                       husk_error* error) {
  const Driver& driver = device.driver;
  const bool cubin = image.format == HUSK_IMAGE_CUBIN;
  const char* call = "cuLibraryLoadData";
  CUresult result = cubin ? load_cubin(driver, image, &module->library)
                          : load_ptx(driver, image, module);
  if (result == CUDA_SUCCESS && !cubin) {
    call = "cuLibraryGetModule";
    CUmodule loaded;
    result = driver.cuLibraryGetModule(&loaded, module->library);
    if (result != CUDA_SUCCESS) driver.cuLibraryUnload(module->library);
  }
  if (result == CUDA_SUCCESS) return HUSK_OK;
  for (char* c = module->log; *c; ++c)
    if (*c == '\n') *c = ' ';  // an error text is one line
  return driver_fail(driver, error, result, call, "%s '%.40s'%s%.80s", cubin ? "cubin" : "PTX",
                     image.name, *module->log ? ": " : "", module->log);
}

// The bytes of a parameter of this type; 0 if kernels have no parameters of this type.
size_t param_bytes(uint8_t dtype) {
  return dtype == HUSK_POINTER ? sizeof(CUdeviceptr) : detail::element_bytes(dtype);
}

// Compares the parameters in the image with those in the artifact: a launch copies as many bytes of
// each parameter as the image says. The driver cannot be asked for their number, so it is asked for
// one more than there should be, which must fail.
husk_status check_params(const Device& device, CUkernel kernel, const husk_port_kernel& desc,
                         const char* image, husk_error* error) {
  if (!device.driver.cuKernelGetParamInfo) return HUSK_OK;
  for (uint32_t i = 0; i <= desc.param_count; ++i) {
    size_t offset = 0, size = 0;
    const CUresult result = device.driver.cuKernelGetParamInfo(kernel, i, &offset, &size);
    const bool exists = result == CUDA_SUCCESS;
    if (!exists && result != CUDA_ERROR_INVALID_VALUE) {
      return driver_fail(device.driver, error, result, "cuKernelGetParamInfo",
                         "parameter %u of kernel '%.60s'", i, desc.symbol);
    }
    if (i == desc.param_count) {
      if (!exists) return HUSK_OK;
      return fail(error, HUSK_INVALID_FILE,
                  "kernel '%.60s' of image '%.60s' has more than the %u parameters given",
                  desc.symbol, image, desc.param_count);
    }
    if (!exists) {
      return fail(error, HUSK_INVALID_FILE,
                  "kernel '%.60s' of image '%.60s' has %u parameters, %u are given", desc.symbol,
                  image, i, desc.param_count);
    }
    if (size != param_bytes(desc.params[i])) {
      return fail(error, HUSK_INVALID_FILE,
                  "parameter %u of kernel '%.60s' of image '%.60s' has %zu bytes, the type given "
                  "(%u) has %zu",
                  i, desc.symbol, image, size, desc.params[i], param_bytes(desc.params[i]));
    }
  }
  return HUSK_OK;
}

husk_status get_attribute(const Device& device, CUfunction function, CUfunction_attribute attribute,
                          int* value, const char* symbol, husk_error* error) {
  const CUresult result = device.driver.cuFuncGetAttribute(value, attribute, function);
  if (result == CUDA_SUCCESS) return HUSK_OK;
  return driver_fail(device.driver, error, result, "cuFuncGetAttribute",
                     "attribute %d of kernel '%.60s'", attribute, symbol);
}

husk_status set_attribute(const Device& device, CUfunction function, CUfunction_attribute attribute,
                          int value, const char* symbol, husk_error* error) {
  const CUresult result = device.driver.cuFuncSetAttribute(function, attribute, value);
  if (result == CUDA_SUCCESS) return HUSK_OK;
  return driver_fail(device.driver, error, result, "cuFuncSetAttribute",
                     "attribute %d = %d of kernel '%.60s'", attribute, value, symbol);
}

// Checks the threads, shared memory and cluster that the kernel will be launched with, and opts in
// to them if needed, so that no launch fails because of them.
husk_status prepare_limits(const Device& device, CUfunction function, const husk_port_kernel& desc,
                           husk_error* error) {
  int threads = 0, fixed = 0;
  HUSK_TRY(get_attribute(device, function, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, &threads,
                         desc.symbol, error));
  if (desc.threads > static_cast<uint32_t>(threads)) {
    return fail(error, HUSK_UNSUPPORTED,
                "kernel '%.60s' wants %u threads a block, this device runs it with %d", desc.symbol,
                desc.threads, threads);
  }
  HUSK_TRY(get_attribute(device, function, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, &fixed, desc.symbol,
                         error));
  const uint64_t shared = uint64_t{desc.shared_bytes} + static_cast<uint64_t>(fixed);
  if (shared > kPlainShared && desc.shared_bytes) {
    if (shared > static_cast<uint64_t>(device.shared_optin)) {
      return fail(error, HUSK_UNSUPPORTED,
                  "kernel '%.60s' wants %llu bytes of shared memory, this device has %d",
                  desc.symbol, static_cast<unsigned long long>(shared), device.shared_optin);
    }
    // Another user of this function may have raised the limit further, so it is never lowered.
    int allowed = 0;
    HUSK_TRY(get_attribute(device, function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                           &allowed, desc.symbol, error));
    if (desc.shared_bytes > static_cast<uint32_t>(allowed)) {
      HUSK_TRY(set_attribute(device, function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                             static_cast<int>(desc.shared_bytes), desc.symbol, error));
    }
  }
  if (desc.cluster > 1 && device.major < 9) {
    return fail(error, HUSK_UNSUPPORTED,
                "kernel '%.60s' wants clusters of %u blocks: sm_%d%d has none", desc.symbol,
                desc.cluster, device.major, device.minor);
  }
  if (desc.cluster <= kPortableCluster) return HUSK_OK;
  return set_attribute(device, function, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1,
                       desc.symbol, error);
}

husk_status find_function(const Device& device, const Module& module, const husk_port_kernel& desc,
                          CUfunction* function, husk_error* error) {
  const Driver& driver = device.driver;
  CUkernel kernel = nullptr;
  CUresult result = driver.cuLibraryGetKernel(&kernel, module.library, desc.symbol);
  if (result != CUDA_SUCCESS) {
    const husk_status status = driver_fail(driver, error, result, "cuLibraryGetKernel",
                                           "kernel '%.50s' of image '%.50s'", desc.symbol,
                                           module.name);
    return result == CUDA_ERROR_NOT_FOUND ? error->code = HUSK_NOT_FOUND : status;
  }
  HUSK_TRY(check_params(device, kernel, desc, module.name, error));
  // The function of the current context can be launched on a stream and in a graph. Asking for it
  // loads the library into the context.
  result = driver.cuKernelGetFunction(function, kernel);
  if (result != CUDA_SUCCESS) {
    return driver_fail(driver, error, result, "cuKernelGetFunction",
                       "kernel '%.50s' of image '%.50s'", desc.symbol, module.name);
  }
  HUSK_TRY(prepare_limits(device, *function, desc, error));
  if (!driver.cuFuncLoad) return HUSK_OK;
  result = driver.cuFuncLoad(*function);  // otherwise the first launch would do it
  if (result == CUDA_SUCCESS) return HUSK_OK;
  return driver_fail(driver, error, result, "cuFuncLoad", "kernel '%.50s' of image '%.50s'",
                     desc.symbol, module.name);
}

}  // namespace

husk_status module_load(void* handle, const husk_port_image* image, void** out, husk_error* error) {
  *out = nullptr;
  HUSK_TRY(HUSK_CHECK_STRUCT(husk_port_image, image, name, error));
  const Device& device = as_device(handle);
  HUSK_TRY(check_image(*image, error));
  const size_t name_bytes = strlen(image->name) + 1;
  void* memory = allocate(device, sizeof(Module) + name_bytes, "a module", error);
  if (!memory) return error->code;
  Module* module = new (memory) Module();
  memcpy(module->name, image->name, name_bytes);

  Current current(handle, error);
  husk_status status = current.status;
  if (status == HUSK_OK) status = load_image(device, *image, module, error);
  if (status == HUSK_OK)
    *out = module;
  else
    release(device, module);
  return status;
}

void module_unload(void* handle, void* pointer) {
  if (!pointer) return;
  const Device& device = as_device(handle);
  Module* module = static_cast<Module*>(pointer);
  Current current(handle);
  device.driver.cuLibraryUnload(module->library);
  for (Kernel* kernel = module->kernels.load(std::memory_order_acquire); kernel;) {
    Kernel* next = kernel->next;
    release(device, kernel);
    kernel = next;
  }
  release(device, module);
}

husk_status kernel_get(void* handle, void* pointer, const husk_port_kernel* desc, void** out,
                       husk_error* error) {
  *out = nullptr;
  HUSK_TRY(HUSK_CHECK_STRUCT(husk_port_kernel, desc, threads, error));
  const Device& device = as_device(handle);
  Module& module = *static_cast<Module*>(pointer);
  Current current(handle, error);
  HUSK_TRY(current.status);
  CUfunction function = nullptr;
  HUSK_TRY(find_function(device, module, *desc, &function, error));
  const size_t symbol_bytes = strlen(desc->symbol) + 1;
  void* memory = allocate(device, sizeof(Kernel) + symbol_bytes, "a kernel", error);
  if (!memory) return error->code;
  Kernel* kernel = new (memory) Kernel();
  kernel->function = function;
  memcpy(kernel->symbol, desc->symbol, symbol_bytes);
  if (device.options.prefetch) {
    const husk_status status = prefetch(handle, kernel, *desc, error);
    if (status != HUSK_OK) {
      release(device, kernel);
      return status;
    }
  }
  kernel->next = module.kernels.load(std::memory_order_relaxed);
  while (!module.kernels.compare_exchange_weak(kernel->next, kernel, std::memory_order_release)) {
  }
  *out = kernel;
  return HUSK_OK;
}

}  // namespace husk::cuda
