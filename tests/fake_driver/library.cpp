#include "library.h"

#include <dlfcn.h>
#include <elf.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "peers.h"
#include "schedule.h"

namespace fake {

namespace {

#if defined(__aarch64__)
constexpr uint16_t kMachine = EM_AARCH64;
#else
constexpr uint16_t kMachine = EM_X86_64;
#endif
constexpr int kPlainShared = 48 * 1024, kMostShared = 227 * 1024;
constexpr uint32_t kPortableCluster = 8, kLargestCluster = 16;

// The length of an ELF image according to its own headers, which is all that the driver knows.
size_t elf_extent(const char* code) {
  Elf64_Ehdr header;
  memcpy(&header, code, sizeof header);
  size_t end = sizeof header;
  if (header.e_shnum)
    end = std::max(end, size_t{header.e_shoff} + size_t{header.e_shnum} * sizeof(Elf64_Shdr));
  if (header.e_phnum)
    end = std::max(end, size_t{header.e_phoff} + size_t{header.e_phnum} * sizeof(Elf64_Phdr));
  for (size_t i = 0; i < header.e_shnum; ++i) {
    Elf64_Shdr section;
    memcpy(&section, code + header.e_shoff + i * sizeof section, sizeof section);
    if (i && section.sh_type != SHT_NOBITS)
      end = std::max(end, size_t{section.sh_offset} + section.sh_size);
  }
  for (size_t i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment;
    memcpy(&segment, code + header.e_phoff + i * sizeof segment, sizeof segment);
    end = std::max(end, size_t{segment.p_offset} + segment.p_filesz);
  }
  return end;
}

// Opens the bytes through a file with a new name, because dlopen identifies libraries by name.
void* open_shared_object(const std::vector<char>& bytes) {
  const char* folder = getenv("TMPDIR");
  std::string path = std::string(folder ? folder : "/tmp") + "/fake_image_XXXXXX";
  const int file = mkstemp(path.data());
  if (file < 0) violation("cuLibraryLoadData: no file can be made as %s", path.c_str());
  size_t written = 0;
  while (written < bytes.size()) {
    const ssize_t count = write(file, bytes.data() + written, bytes.size() - written);
    if (count <= 0) violation("cuLibraryLoadData: %s cannot be written", path.c_str());
    written += static_cast<size_t>(count);
  }
  close(file);
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  unlink(path.c_str());
  return handle;
}

// Like the driver in its lazy mode, accepts any text; the first look-up in the library returns the
// error. The same holds for cubins for another machine. The one text that it knows is that of the
// kernels of ports/cuda/ops/exchange*.ptx.
CUresult load_text(CUlibrary* out, const char* text, CUjit_option* options, void** values,
                   unsigned int count) {
  Library* library = make<Library>();
  library->exchanges = strstr(text, ".entry husk_exchange(");
  library->late_error = library->exchanges         ? CUDA_SUCCESS
                        : strstr(text, ".version") ? CUDA_ERROR_JIT_COMPILER_NOT_FOUND
                                                   : CUDA_ERROR_INVALID_IMAGE;
  for (unsigned int i = 0; i < count; ++i) {
    if (options[i] == CU_JIT_ERROR_LOG_BUFFER) library->log = static_cast<char*>(values[i]);
    if (options[i] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES)
      library->log_size = reinterpret_cast<uintptr_t>(values[i]);
  }
  *out = reinterpret_cast<CUlibrary>(library);
  return CUDA_SUCCESS;
}

CUresult finish_loading(const Library& library) {
  if (library.log && library.log_size) {
    strncpy(library.log, "ptxas fatal : the fake driver\ncompiles no PTX", library.log_size - 1);
    library.log[library.log_size - 1] = 0;
  }
  return library.late_error;
}

Kernel* add_kernel(Library& library, const std::string& name, void* entry, const uint32_t* sizes) {
  Kernel* kernel = make<Kernel>(library, name);
  memcpy(&kernel->entry, &entry, sizeof entry);
  kernel->sizes = sizes;
  while (sizes[kernel->param_count] != FAKE_PARAMS_END) ++kernel->param_count;
  kernel->function = make<Function>(*kernel);
  library.kernels[name] = kernel;
  return kernel;
}

Kernel* find_kernel(Library& library, const std::string& name) {
  if (const auto known = library.kernels.find(name); known != library.kernels.end())
    return known->second;
  if (library.exchanges) {
    if (name != "husk_exchange" && name != "husk_exchange_pair" && name != "husk_exchange_sum")
      return nullptr;
    void (*const nothing)(const fake_grid*, void**) = [](const fake_grid*, void**) {};
    void* entry = nullptr;
    memcpy(&entry, &nothing, sizeof entry);
    return add_kernel(library, name, entry, kExchangeParams);
  }
  void* entry = dlsym(library.handle, name.c_str());
  if (!entry) return nullptr;
  const void* sizes = dlsym(library.handle, (name + "_param_sizes").c_str());
  if (!sizes)
    violation("cuLibraryGetKernel: the image has %s but no %s_param_sizes", name.c_str(),
              name.c_str());
  Kernel* kernel = add_kernel(library, name, entry, static_cast<const uint32_t*>(sizes));
  if (const void* most = dlsym(library.handle, (name + "_max_threads").c_str()))
    kernel->max_threads = *static_cast<const uint32_t*>(most);
  return kernel;
}

CUresult check_shape(const Function& function, const LaunchShape& shape) {
  const uint64_t threads = uint64_t{shape.block[0]} * shape.block[1] * shape.block[2];
  const auto& grid = shape.grid;
  if (grid[0] == 0 || grid[1] == 0 || grid[2] == 0 || threads == 0) return CUDA_ERROR_INVALID_VALUE;
  if (grid[0] > 0x7FFFFFFF || grid[1] > 0xFFFF || grid[2] > 0xFFFF) return CUDA_ERROR_INVALID_VALUE;
  if (shape.block[0] > 1024 || shape.block[1] > 1024 || shape.block[2] > 64)
    return CUDA_ERROR_INVALID_VALUE;
  if (threads > function.kernel.max_threads) return CUDA_ERROR_INVALID_VALUE;
  if (shape.shared_bytes > static_cast<uint32_t>(function.dynamic_shared))
    return CUDA_ERROR_INVALID_VALUE;
  if (shape.cluster > kLargestCluster || grid[0] % shape.cluster != 0)
    return CUDA_ERROR_INVALID_CLUSTER_SIZE;
  if (shape.cluster > kPortableCluster && !function.non_portable_cluster)
    return CUDA_ERROR_INVALID_CLUSTER_SIZE;
  if (shape.cluster > 1 && state().major < 9) return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

CUresult enqueue_launch(const Call& call, CUfunction handle, const LaunchShape& shape,
                        CUstream stream, void** params) {
  auto task = std::make_shared<Task>();
  Launch launch;
  const CUresult result = make_launch(call, handle, shape, params, &launch);
  if (result != CUDA_SUCCESS) return result;
  fill_kernel_task(call, std::move(launch), task.get());
  enqueue(call, stream, task, shape.programmatic);
  return CUDA_SUCCESS;
}

}  // namespace

CUresult make_launch(const Call& call, CUfunction handle, const LaunchShape& shape, void** params,
                     Launch* out) {
  Function& function = call.object<Function>(handle, "function");
  const CUresult result = check_shape(function, shape);
  if (result != CUDA_SUCCESS) return result;
  out->function = &function;
  out->grid = shape.grid;
  out->block = shape.block;
  const Kernel& kernel = function.kernel;
  if (kernel.param_count && !params)
    violation("%s: kernel %s gets no parameters", call.name, kernel.name.c_str());
  for (uint32_t i = 0; i < kernel.param_count; ++i) {
    if (!params[i])
      violation("%s: parameter %u of kernel %s is null", call.name, i, kernel.name.c_str());
    out->bytes.resize((out->bytes.size() + 15) / 16 * 16);
    out->offsets.push_back(out->bytes.size());
    const char* bytes = static_cast<const char*>(params[i]);
    out->bytes.insert(out->bytes.end(), bytes, bytes + kernel.sizes[i]);
  }
  return CUDA_SUCCESS;
}

// A parameter of eight bytes that looks like an address of device memory must be an address of live
// memory. The address right after an allocation is allowed, because it may be that of an empty
// view.
void fill_kernel_task(const Call& call, Launch launch, Task* task) {
  Function& function = *launch.function;
  const Kernel& kernel = function.kernel;
  task->what = "kernel " + kernel.name;
  if (!kernel.library.live)
    violation("%s: the library of kernel %s is unloaded", call.name, kernel.name.c_str());
  if (kernel.library.exchanges) fill_exchange(call, launch, task);
  for (uint32_t i = 0; i < kernel.param_count; ++i) {
    if (kernel.sizes[i] != sizeof(CUdeviceptr)) continue;
    CUdeviceptr address;
    memcpy(&address, launch.bytes.data() + launch.offsets[i], sizeof address);
    const Allocation* allocation = find_allocation(address);
    if (!allocation) continue;
    if (!allocation->live) {
      violation("%s: parameter %u of kernel %s points to %s", call.name, i, kernel.name.c_str(),
                explain_address(address).c_str());
    }
    task->memory.push_back(address);
  }
  if (!function.loaded) ++state().lazy_loads;
  function.loaded = true;
  task->launch = std::make_unique<Launch>(std::move(launch));
}

void Library::check_preserved(const char* call) const {
  if (code && memcmp(code, bytes.data(), bytes.size()) != 0)
    violation("%s: the image's bytes have changed", call);
}

CUresult cuLibraryLoadData(CUlibrary* out, const void* code, CUjit_option* jit_options,
                           void** jit_values, unsigned int jit_count, CUlibraryOption* options,
                           void**, unsigned int count) {
  Call call("cuLibraryLoadData");
  if (call.fault) return call.fault;
  if (const CUresult refused = refuse_while_capturing()) return refused;
  const char* bytes = static_cast<const char*>(code);
  if (memcmp(bytes, ELFMAG, SELFMAG) != 0)
    return load_text(out, bytes, jit_options, jit_values, jit_count);
  Elf64_Ehdr header;
  memcpy(&header, bytes, sizeof header);
  const std::vector<char> copy(bytes, bytes + elf_extent(bytes));
  Library loaded;
  if (header.e_machine != kMachine) {
    loaded.late_error = CUDA_ERROR_NO_BINARY_FOR_GPU;
  } else {
    loaded.handle = open_shared_object(copy);
    if (!loaded.handle) return CUDA_ERROR_INVALID_IMAGE;
  }
  Library* library = make<Library>(std::move(loaded));
  for (unsigned int i = 0; i < count; ++i) {
    if (options[i] != CU_LIBRARY_BINARY_IS_PRESERVED)
      violation("cuLibraryLoadData: option %d", options[i]);
    library->code = bytes;
    library->bytes = copy;
  }
  *out = reinterpret_cast<CUlibrary>(library);
  return CUDA_SUCCESS;
}

CUresult cuLibraryUnload(CUlibrary handle) {
  Call call("cuLibraryUnload");
  Library& library = call.object<Library>(handle, "library");
  if (const Task* user = user_of(library))
    violation("cuLibraryUnload: queued work uses it: %s", user->what.c_str());
  library.check_preserved("cuLibraryUnload");
  library.end();
  for (auto& [name, kernel] : library.kernels) {
    kernel->end();
    kernel->function->end();
  }
  if (library.handle) dlclose(library.handle);
  return call.fault;
}

CUresult cuLibraryGetModule(CUmodule* out, CUlibrary handle) {
  Call call("cuLibraryGetModule");
  if (call.fault) return call.fault;
  call.context();
  *out = nullptr;  // no function of the fake driver takes a module
  return finish_loading(call.object<Library>(handle, "library"));
}

CUresult cuLibraryGetKernel(CUkernel* out, CUlibrary handle, const char* name) {
  Call call("cuLibraryGetKernel");
  if (call.fault) return call.fault;
  Library& library = call.object<Library>(handle, "library");
  library.check_preserved("cuLibraryGetKernel");
  if (const CUresult result = finish_loading(library)) return result;
  Kernel* kernel = find_kernel(library, name);
  if (!kernel) return CUDA_ERROR_NOT_FOUND;
  *out = reinterpret_cast<CUkernel>(kernel);
  return CUDA_SUCCESS;
}

CUresult cuKernelGetFunction(CUfunction* out, CUkernel handle) {
  Call call("cuKernelGetFunction");
  if (call.fault) return call.fault;
  call.context();
  *out = reinterpret_cast<CUfunction>(call.object<Kernel>(handle, "kernel").function);
  return CUDA_SUCCESS;
}

CUresult cuKernelGetParamInfo(CUkernel handle, size_t index, size_t* offset, size_t* size) {
  Call call("cuKernelGetParamInfo");
  if (call.fault) return call.fault;
  const Kernel& kernel = call.object<Kernel>(handle, "kernel");
  if (index >= kernel.param_count) return CUDA_ERROR_INVALID_VALUE;
  size_t at = 0;
  for (size_t i = 0; i <= index; ++i) {
    const size_t bytes = kernel.sizes[i];
    at = (at + bytes - 1) / bytes * bytes;
    *offset = at;
    at += bytes;
  }
  if (size) *size = kernel.sizes[index];
  return CUDA_SUCCESS;
}

CUresult cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction handle) {
  Call call("cuFuncGetAttribute");
  if (call.fault) return call.fault;
  const Function& function = call.object<Function>(handle, "function");
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      *value = static_cast<int>(function.kernel.max_threads);
      break;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES: *value = 0; break;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: *value = function.dynamic_shared; break;
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
      *value = function.non_portable_cluster;
      break;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

CUresult cuFuncSetAttribute(CUfunction handle, CUfunction_attribute attribute, int value) {
  Call call("cuFuncSetAttribute");
  if (call.fault) return call.fault;
  Function& function = call.object<Function>(handle, "function");
  if (attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) {
    if (value < 0 || value > kMostShared) return CUDA_ERROR_INVALID_VALUE;
    function.dynamic_shared = std::max(value, kPlainShared);
    return CUDA_SUCCESS;
  }
  if (attribute != CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED)
    return CUDA_ERROR_INVALID_VALUE;
  function.non_portable_cluster = value != 0;
  return CUDA_SUCCESS;
}

CUresult cuFuncLoad(CUfunction handle) {
  Call call("cuFuncLoad");
  if (call.fault) return call.fault;
  call.context();
  call.object<Function>(handle, "function").loaded = true;
  return CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                        unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                        unsigned int block_z, unsigned int shared_bytes, CUstream stream,
                        void** params, void** extra) {
  Call call("cuLaunchKernel");
  if (call.fault) return call.fault;
  if (extra) violation("cuLaunchKernel: extra is not supported here");
  return enqueue_launch(call, function,
                        {{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes, 1},
                        stream, params);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** params,
                          void** extra) {
  Call call("cuLaunchKernelEx");
  if (call.fault) return call.fault;
  if (extra) violation("cuLaunchKernelEx: extra is not supported here");
  LaunchShape shape = {{config->gridDimX, config->gridDimY, config->gridDimZ},
                       {config->blockDimX, config->blockDimY, config->blockDimZ},
                       config->sharedMemBytes,
                       1};
  for (unsigned int i = 0; i < config->numAttrs; ++i) {
    const CUlaunchAttribute& attribute = config->attrs[i];
    if (!shape.set_attribute(attribute.id, attribute.value)) return CUDA_ERROR_INVALID_VALUE;
  }
  return enqueue_launch(call, function, shape, config->hStream, params);
}

bool LaunchShape::set_attribute(CUlaunchAttributeID id, const CUlaunchAttributeValue& value) {
  if (id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE) return true;
  if (id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION) {
    programmatic = value.programmaticStreamSerializationAllowed != 0;
    return state().major >= 9;
  }
  if (id != CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) return false;
  cluster = value.clusterDim.x;
  return cluster > 0 && value.clusterDim.y == 1 && value.clusterDim.z == 1;
}

}  // namespace fake
