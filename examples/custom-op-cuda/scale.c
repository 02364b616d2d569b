#include "scale.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* The parts of the CUDA driver API that the operator needs: each function with the version of CUDA
 * that has this signature. A program that is built with the CUDA toolkit includes <cuda.h> and
 * links with -lcuda instead. */
typedef int CUresult, CUdevice;
typedef void *CUcontext, *CUlibrary, *CUkernel, *CUfunction;
#define FUNCTIONS(X)                                                                          \
  X(cuDeviceGet, 2000, (CUdevice*, int))                                                      \
  X(cuDevicePrimaryCtxRetain, 7000, (CUcontext*, CUdevice))                                   \
  X(cuDevicePrimaryCtxRelease, 11000, (CUdevice))                                             \
  X(cuCtxPushCurrent, 4000, (CUcontext))                                                      \
  X(cuCtxPopCurrent, 4000, (CUcontext*))                                                      \
  X(cuLibraryLoadData, 12000,                                                                 \
    (CUlibrary*, const void*, int*, void**, unsigned, int*, void**, unsigned))                \
  X(cuLibraryUnload, 12000, (CUlibrary))                                                      \
  X(cuLibraryGetKernel, 12000, (CUkernel*, CUlibrary, const char*))                           \
  X(cuKernelGetFunction, 12000, (CUfunction*, CUkernel))                                      \
  X(cuLaunchKernel, 4000,                                                                     \
    (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, \
     void**, void**))

struct scale_op {
#define MEMBER(name, version, parameters) CUresult(*name) parameters;
  FUNCTIONS(MEMBER)
  CUdevice device;
  CUcontext context; /* the device's primary context, in which Husk works too */
  CUlibrary library;
  CUfunction kernel;
};

static husk_status fail(husk_error* error, husk_status code, CUresult result, const char* format,
                        ...) {
  va_list arguments;
  error->code = code;
  error->driver_code = result;
  error->step = -1;
  va_start(arguments, format);
  vsnprintf(error->text, sizeof error->text, format, arguments);
  va_end(arguments);
  return code;
}

static int find_functions(scale_op* op) {
  typedef CUresult (*get_proc_address)(const char*, void**, int, uint64_t, int*);
  enum { LEGACY_STREAM = 1 };
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL); /* Husk has it open already */
  get_proc_address get = NULL;
  if (driver) *(void**)&get = dlsym(driver, "cuGetProcAddress_v2");
  if (!get) return 0;
#define FIND(name, version, parameters) \
  if (get(#name, (void**)&op->name, version, LEGACY_STREAM, NULL) || !op->name) return 0;
  FUNCTIONS(FIND)
  return 1;
}

/* app::scale(x, factor, out:w). It enqueues a kernel and returns: memory and stream are those of
 * the device's primary context. */
static husk_status scale(const husk_op_context* context, const husk_op_arg* args, uint32_t count,
                         husk_error* error) {
  const scale_op* op = context->user;
  const int valid = count == 3 && args[0].kind == HUSK_ARG_TENSOR && args[0].dtype == HUSK_F32 &&
                    args[1].kind == HUSK_ARG_FLOAT && args[2].kind == HUSK_ARG_TENSOR &&
                    args[2].dtype == HUSK_F32;
  if (!valid)
    return fail(error, HUSK_INVALID_ARGUMENT, 0, "app::scale takes a tensor of f32 and a float");
  /* The exporter makes both tensors contiguous and of the same sizes. */
  int64_t elements = 1;
  for (int32_t d = 0; d < args[0].rank; ++d) elements *= args[0].sizes[d];
  if (elements == 0) return HUSK_OK;
  if (elements > INT32_MAX)
    return fail(error, HUSK_UNSUPPORTED, 0, "app::scale: more than 2^31 elements");
  const void* x = args[0].data;
  void* y = args[2].data;
  float factor = (float)args[1].f;
  int n = (int)elements;
  void* params[] = {&x, &factor, &y, &n};
  /* Husk leaves no context current. */
  CUresult result = op->cuCtxPushCurrent(op->context);
  if (result) return fail(error, HUSK_DEVICE, result, "app::scale: no context");
  result = op->cuLaunchKernel(op->kernel, (unsigned)((elements + 255) / 256), 1, 1, 256, 1, 1, 0,
                              context->stream, params, NULL);
  CUcontext popped;
  op->cuCtxPopCurrent(&popped);
  if (result) return fail(error, HUSK_DEVICE, result, "app::scale: the launch failed");
  return HUSK_OK;
}

/* Reads a file, and adds a zero byte, which ends PTX. */
static char* read_file(const char* path) {
  FILE* file = fopen(path, "rb");
  char* bytes = NULL;
  long size;
  if (file && fseek(file, 0, SEEK_END) == 0 && (size = ftell(file)) > 0) {
    rewind(file);
    bytes = calloc(1, (size_t)size + 1);
    if (bytes && fread(bytes, 1, (size_t)size, file) != (size_t)size) {
      free(bytes);
      bytes = NULL;
    }
  }
  if (file) fclose(file);
  return bytes;
}

/* Loads the kernel into the primary context of GPU 0. */
static CUresult load(scale_op* op, const char* code) {
  CUkernel kernel;
  CUcontext popped;
  CUresult result = op->cuDeviceGet(&op->device, 0);
  if (!result) result = op->cuDevicePrimaryCtxRetain(&op->context, op->device);
  if (!result) result = op->cuCtxPushCurrent(op->context);
  if (result) return result;
  result = op->cuLibraryLoadData(&op->library, code, NULL, NULL, 0, NULL, NULL, 0);
  if (!result) result = op->cuLibraryGetKernel(&kernel, op->library, "scale");
  if (!result) result = op->cuKernelGetFunction(&op->kernel, kernel);
  op->cuCtxPopCurrent(&popped);
  return result;
}

husk_status scale_register(husk_engine* engine, const char* image, scale_op** out,
                           husk_error* error) {
  scale_op* op = calloc(1, sizeof *op);
  char* code = read_file(image);
  CUresult result;
  husk_status status;
  if (!op || !code) {
    status = fail(error, HUSK_NOT_FOUND, 0, "%s cannot be read", image);
  } else if (!find_functions(op)) {
    status = fail(error, HUSK_UNSUPPORTED, 0, "the driver is older than CUDA 12");
  } else if ((result = load(op, code)) != 0) {
    status = fail(error, HUSK_DEVICE, result, "%s has no kernel 'scale' for this GPU", image);
  } else {
    husk_op described = HUSK_OP_INIT;
    described.name = "app::scale";
    described.call = scale;
    described.user = op;
    described.contract = "x factor out:w";
    described.flags = HUSK_OP_CAPTURABLE; /* a call only enqueues a launch */
    status = husk_engine_add_op(engine, &described, error);
  }
  free(code); /* the driver has copied the image */
  if (status == HUSK_OK)
    *out = op;
  else if (op)
    scale_release(op);
  return status;
}

void scale_release(scale_op* op) {
  if (op->library) op->cuLibraryUnload(op->library);
  if (op->context) op->cuDevicePrimaryCtxRelease(op->device);
  free(op);
}
