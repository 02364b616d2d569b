// Compares the port's declarations of the driver API with cuda.h of CUDA 13, at compile time. The
// port's header comes first, because macros in cuda.h rename functions and constants.
#include <driver.h>

namespace husk::cuda {

namespace {

// Values of names that are macros in cuda.h.
constexpr int kRegisterMapped = CU_MEMHOSTREGISTER_DEVICEMAP,
              kRegisterReadOnly = CU_MEMHOSTREGISTER_READ_ONLY;
constexpr int kProgrammaticPort = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC;

// The types of the functions in driver.def, under names that cuda.h does not rename.
#define HUSK_DRIVER(name, version, need, parameters) using name##_ours = CUresult parameters;
#include <driver.def>
#undef HUSK_DRIVER

}  // namespace

}  // namespace husk::cuda

#include <cuda.h>

#include <type_traits>

#if CUDA_VERSION >= 13000

namespace husk::cuda {

namespace {

template <class A, class B>
constexpr bool same_parameter = sizeof(A) == sizeof(B) && alignof(A) == alignof(B) &&
                                std::is_pointer_v<A> == std::is_pointer_v<B>;

template <class A, class B>
struct SameFunction;
template <class... A, class... B>
struct SameFunction<CUresult(A...), ::CUresult(B...)> {
  static constexpr bool value = [] {
    if constexpr (sizeof...(A) == sizeof...(B))
      return (same_parameter<A, B> && ...);
    else
      return false;
  }();
};
#define HUSK_DRIVER(name, version, need, parameters) \
  static_assert(SameFunction<name##_ours, std::remove_pointer_t<decltype(&::name)>>::value, #name);
#include <driver.def>
#undef HUSK_DRIVER

#define SAME_SIZE(type)                                                                           \
  static_assert(                                                                                  \
      sizeof(husk::cuda::type) == sizeof(::type) && alignof(husk::cuda::type) == alignof(::type), \
      #type)
#define SAME_PLACE(type, field) \
  static_assert(offsetof(husk::cuda::type, field) == offsetof(::type, field), #type "." #field)
#define SAME_VALUE(name) static_assert(int{husk::cuda::name} == int{::name}, #name)

SAME_SIZE(CUdeviceptr);
SAME_SIZE(CUdevice);
SAME_SIZE(CUlaunchAttributeValue);
SAME_PLACE(CUlaunchAttributeValue, clusterDim.y);
SAME_PLACE(CUlaunchAttributeValue, clusterDim.z);
SAME_PLACE(CUlaunchAttributeValue, cooperative);
SAME_PLACE(CUlaunchAttributeValue, programmaticStreamSerializationAllowed);
SAME_SIZE(CUlaunchAttribute);
SAME_PLACE(CUlaunchAttribute, value);

SAME_SIZE(CUlaunchConfig);
SAME_PLACE(CUlaunchConfig, gridDimX);
SAME_PLACE(CUlaunchConfig, gridDimZ);
SAME_PLACE(CUlaunchConfig, blockDimX);
SAME_PLACE(CUlaunchConfig, blockDimZ);
SAME_PLACE(CUlaunchConfig, sharedMemBytes);
SAME_PLACE(CUlaunchConfig, hStream);
SAME_PLACE(CUlaunchConfig, attrs);
SAME_PLACE(CUlaunchConfig, numAttrs);

SAME_SIZE(CUDA_KERNEL_NODE_PARAMS_v2);
SAME_PLACE(CUDA_KERNEL_NODE_PARAMS_v2, func);
SAME_PLACE(CUDA_KERNEL_NODE_PARAMS_v2, gridDimX);
SAME_PLACE(CUDA_KERNEL_NODE_PARAMS_v2, gridDimZ);
SAME_PLACE(CUDA_KERNEL_NODE_PARAMS_v2, blockDimX);
SAME_PLACE(CUDA_KERNEL_NODE_PARAMS_v2, blockDimZ);
SAME_PLACE(CUDA_KERNEL_NODE_PARAMS_v2, sharedMemBytes);
SAME_PLACE(CUDA_KERNEL_NODE_PARAMS_v2, kernelParams);
SAME_PLACE(CUDA_KERNEL_NODE_PARAMS_v2, extra);
SAME_PLACE(CUDA_KERNEL_NODE_PARAMS_v2, kern);
SAME_PLACE(CUDA_KERNEL_NODE_PARAMS_v2, ctx);
static_assert(sizeof(husk::cuda::CUDA_KERNEL_NODE_PARAMS_v2) ==
              sizeof(::CUDA_KERNEL_NODE_PARAMS_v3));
static_assert(offsetof(::CUDA_KERNEL_NODE_PARAMS_v2, ctx) ==
              offsetof(::CUDA_KERNEL_NODE_PARAMS_v3, ctx));
static_assert(offsetof(::CUDA_KERNEL_NODE_PARAMS_v2, kernelParams) ==
              offsetof(::CUDA_KERNEL_NODE_PARAMS_v3, kernelParams));

SAME_SIZE(CUDA_MEMSET_NODE_PARAMS_v1);
SAME_PLACE(CUDA_MEMSET_NODE_PARAMS_v1, dst);
SAME_PLACE(CUDA_MEMSET_NODE_PARAMS_v1, pitch);
SAME_PLACE(CUDA_MEMSET_NODE_PARAMS_v1, value);
SAME_PLACE(CUDA_MEMSET_NODE_PARAMS_v1, elementSize);
SAME_PLACE(CUDA_MEMSET_NODE_PARAMS_v1, width);
SAME_PLACE(CUDA_MEMSET_NODE_PARAMS_v1, height);

SAME_SIZE(CUDA_MEMCPY2D_v2);
SAME_PLACE(CUDA_MEMCPY2D_v2, srcMemoryType);
SAME_PLACE(CUDA_MEMCPY2D_v2, srcDevice);
SAME_PLACE(CUDA_MEMCPY2D_v2, srcPitch);
SAME_PLACE(CUDA_MEMCPY2D_v2, dstMemoryType);
SAME_PLACE(CUDA_MEMCPY2D_v2, dstDevice);
SAME_PLACE(CUDA_MEMCPY2D_v2, dstPitch);
SAME_PLACE(CUDA_MEMCPY2D_v2, WidthInBytes);
SAME_PLACE(CUDA_MEMCPY2D_v2, Height);
SAME_SIZE(CUDA_MEMCPY3D_v2);
SAME_PLACE(CUDA_MEMCPY3D_v2, srcMemoryType);
SAME_PLACE(CUDA_MEMCPY3D_v2, srcDevice);
SAME_PLACE(CUDA_MEMCPY3D_v2, dstMemoryType);
SAME_PLACE(CUDA_MEMCPY3D_v2, dstDevice);
SAME_PLACE(CUDA_MEMCPY3D_v2, dstHeight);
SAME_PLACE(CUDA_MEMCPY3D_v2, WidthInBytes);
SAME_PLACE(CUDA_MEMCPY3D_v2, Height);
SAME_PLACE(CUDA_MEMCPY3D_v2, Depth);

SAME_SIZE(CUgraphEdgeData);
SAME_PLACE(CUgraphEdgeData, from_port);
SAME_PLACE(CUgraphEdgeData, to_port);
SAME_PLACE(CUgraphEdgeData, type);
SAME_SIZE(CUgraphNodeParams);
SAME_PLACE(CUgraphNodeParams, type);
SAME_PLACE(CUgraphNodeParams, kernel);
SAME_PLACE(CUgraphNodeParams, reserved2);

SAME_VALUE(CUDA_SUCCESS);
SAME_VALUE(CUDA_ERROR_INVALID_VALUE);
SAME_VALUE(CUDA_ERROR_OUT_OF_MEMORY);
SAME_VALUE(CUDA_ERROR_NOT_INITIALIZED);
SAME_VALUE(CUDA_ERROR_STUB_LIBRARY);
SAME_VALUE(CUDA_ERROR_NO_DEVICE);
SAME_VALUE(CUDA_ERROR_INVALID_DEVICE);
SAME_VALUE(CUDA_ERROR_INVALID_IMAGE);
SAME_VALUE(CUDA_ERROR_INVALID_CONTEXT);
SAME_VALUE(CUDA_ERROR_NO_BINARY_FOR_GPU);
SAME_VALUE(CUDA_ERROR_INVALID_PTX);
SAME_VALUE(CUDA_ERROR_JIT_COMPILER_NOT_FOUND);
SAME_VALUE(CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
SAME_VALUE(CUDA_ERROR_JIT_COMPILATION_DISABLED);
SAME_VALUE(CUDA_ERROR_CONTAINED);
SAME_VALUE(CUDA_ERROR_INVALID_SOURCE);
SAME_VALUE(CUDA_ERROR_INVALID_HANDLE);
SAME_VALUE(CUDA_ERROR_ILLEGAL_STATE);
SAME_VALUE(CUDA_ERROR_NOT_FOUND);
SAME_VALUE(CUDA_ERROR_NOT_READY);
SAME_VALUE(CUDA_ERROR_ILLEGAL_ADDRESS);
SAME_VALUE(CUDA_ERROR_LAUNCH_TIMEOUT);
SAME_VALUE(CUDA_ERROR_ASSERT);
SAME_VALUE(CUDA_ERROR_HARDWARE_STACK_ERROR);
SAME_VALUE(CUDA_ERROR_ILLEGAL_INSTRUCTION);
SAME_VALUE(CUDA_ERROR_MISALIGNED_ADDRESS);
SAME_VALUE(CUDA_ERROR_INVALID_ADDRESS_SPACE);
SAME_VALUE(CUDA_ERROR_INVALID_PC);
SAME_VALUE(CUDA_ERROR_LAUNCH_FAILED);
SAME_VALUE(CUDA_ERROR_NOT_SUPPORTED);
SAME_VALUE(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH);
SAME_VALUE(CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE);
SAME_VALUE(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
SAME_VALUE(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
SAME_VALUE(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
SAME_VALUE(CUDA_ERROR_CAPTURED_EVENT);
SAME_VALUE(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
SAME_VALUE(CUDA_ERROR_EXTERNAL_DEVICE);
SAME_VALUE(CUDA_ERROR_INVALID_CLUSTER_SIZE);
SAME_VALUE(CUDA_ERROR_UNKNOWN);
SAME_VALUE(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
SAME_VALUE(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
SAME_VALUE(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
SAME_VALUE(CU_DEVICE_ATTRIBUTE_INTEGRATED);
SAME_VALUE(CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED);
SAME_VALUE(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
SAME_VALUE(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
SAME_VALUE(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
SAME_VALUE(CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED);
SAME_VALUE(CU_MEMORYTYPE_HOST);
SAME_VALUE(CU_MEMORYTYPE_DEVICE);
SAME_VALUE(CU_JIT_ERROR_LOG_BUFFER);
SAME_VALUE(CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES);
SAME_VALUE(CU_LIBRARY_BINARY_IS_PRESERVED);
SAME_VALUE(CU_STREAM_NON_BLOCKING);
SAME_VALUE(CU_STREAM_CAPTURE_MODE_GLOBAL);
SAME_VALUE(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
SAME_VALUE(CU_STREAM_CAPTURE_MODE_RELAXED);
SAME_VALUE(CU_STREAM_CAPTURE_STATUS_NONE);
SAME_VALUE(CU_STREAM_CAPTURE_STATUS_ACTIVE);
SAME_VALUE(CU_STREAM_CAPTURE_STATUS_INVALIDATED);
SAME_VALUE(CU_EVENT_DEFAULT);
SAME_VALUE(CU_EVENT_DISABLE_TIMING);
SAME_VALUE(CU_GET_PROC_ADDRESS_LEGACY_STREAM);
SAME_VALUE(CU_LAUNCH_ATTRIBUTE_COOPERATIVE);
SAME_VALUE(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
SAME_VALUE(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);
SAME_VALUE(CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC);
SAME_VALUE(CU_GRAPH_NODE_TYPE_KERNEL);
static_assert(kRegisterMapped == CU_MEMHOSTREGISTER_DEVICEMAP &&
              kRegisterReadOnly == CU_MEMHOSTREGISTER_READ_ONLY);
static_assert(kProgrammaticPort == CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC);

}  // namespace

}  // namespace husk::cuda

#endif
