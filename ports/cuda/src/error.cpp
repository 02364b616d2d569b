#include "error.h"

#include <cstdarg>
#include <cstdio>
#include <cstring>

#include <husk/detail/printable.h>

namespace husk::cuda {

static husk_status code_of(CUresult result) {
  switch (result) {
    case CUDA_ERROR_OUT_OF_MEMORY: return HUSK_OUT_OF_MEMORY;
    case CUDA_ERROR_STUB_LIBRARY:
    case CUDA_ERROR_NO_DEVICE:
    case CUDA_ERROR_NO_BINARY_FOR_GPU:
    case CUDA_ERROR_JIT_COMPILER_NOT_FOUND:
    case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
    case CUDA_ERROR_JIT_COMPILATION_DISABLED:
    case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
    case CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE:
    case CUDA_ERROR_NOT_SUPPORTED: return HUSK_UNSUPPORTED;
    case CUDA_ERROR_INVALID_IMAGE:
    case CUDA_ERROR_INVALID_PTX:
    case CUDA_ERROR_INVALID_SOURCE: return HUSK_INVALID_FILE;
    default: return HUSK_DEVICE;
  }
}

static const char* remedy(CUresult result) {
  switch (result) {
    case CUDA_ERROR_NO_DEVICE: return "; check nvidia-smi and CUDA_VISIBLE_DEVICES";
    case CUDA_ERROR_STUB_LIBRARY:
      return "; this libcuda.so.1 is a stub for linking: put the driver's own first in "
             "LD_LIBRARY_PATH";
    case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
    case CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE:
      return "; libcuda.so.1 does not belong to the kernel driver: reboot, or remove the compat "
             "package";
    case CUDA_ERROR_NO_BINARY_FOR_GPU: return "; export for this device";
    case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
    case CUDA_ERROR_JIT_COMPILER_NOT_FOUND:
    case CUDA_ERROR_JIT_COMPILATION_DISABLED:
      return "; update the driver, or export a cubin for this device";
    case CUDA_ERROR_CONTAINED:
    case CUDA_ERROR_EXTERNAL_DEVICE:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
      return "; a kernel failed: this process must restart before it can use the device again";
    default: return "";
  }
}

static void write(husk_error* error, husk_status code, int32_t driver_code) {
  error->code = code;
  error->driver_code = driver_code;
  error->step = -1;
}

husk_status fail(husk_error* error, husk_status code, const char* format, ...) {
  write(error, code, 0);
  va_list arguments;
  va_start(arguments, format);
  char text[sizeof error->text];
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  detail::write_printable(text, error->text, sizeof error->text);
  return code;
}

husk_status driver_fail(const Driver& driver, husk_error* error, CUresult result, const char* call,
                        const char* format, ...) {
  const husk_status code = code_of(result);
  write(error, code, result);
  // The call, the error and the remedy are never cut off; the object gets the room that is left.
  char after[200];
  int room = snprintf(after, sizeof after, ": %s: %s (%d)%s", call, error_name(driver, result),
                      result, remedy(result));
  room = static_cast<int>(sizeof error->text) -
         (room < static_cast<int>(sizeof after) ? room : static_cast<int>(sizeof after) - 1);
  va_list arguments;
  va_start(arguments, format);
  char text[sizeof error->text];
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  detail::write_printable(text, error->text, static_cast<size_t>(room));
  const size_t length = strlen(error->text);
  snprintf(error->text + length, sizeof error->text - length, "%s", after);
  return code;
}

}  // namespace husk::cuda
