#include "gpu.h"

#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>

namespace husk::gpu {

void give_up(const std::string& text) {
  std::fprintf(stderr, "%s\n", text.c_str());
  std::exit(1);
}

void require(CUresult status, const char* what) {
  if (status != CUDA_SUCCESS) give_up(std::string(what) + ": CUresult " + std::to_string(status));
}

void require(husk_status status, const husk_error& error) {
  if (status != HUSK_OK) give_up(std::string(husk_status_name(status)) + ": " + error.text);
}

Driver::Driver() {
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  if (!library) give_up(dlerror());
#define CALL(name)                                                      \
  name##_ = reinterpret_cast<decltype(name##_)>(dlsym(library, #name)); \
  if (!name##_) give_up("libcuda.so.1 has no " #name);
  HUSK_GPU_CALLS(CALL)
#undef CALL
  CUdevice device;
  CUcontext context;
  require(cuInit_(0), "cuInit");
  require(cuDeviceGet_(&device, 0), "cuDeviceGet");
  require(cuDevicePrimaryCtxRetain_(&context, device), "cuDevicePrimaryCtxRetain");
  require(cuCtxSetCurrent_(context), "cuCtxSetCurrent");
  require(cuStreamCreate_(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
}

CUdeviceptr Driver::alloc(size_t bytes) {
  CUdeviceptr memory;
  require(cuMemAlloc_v2_(&memory, bytes), "cuMemAlloc");
  return memory;
}

Loaded::Loaded(const char* path) {
  husk_engine_options options = HUSK_ENGINE_OPTIONS_INIT;
  options.port = husk_port_cuda();
  options.require_op_contracts = 1;
  husk_error error;
  require(husk_engine_create(&options, &engine, &error), error);
  require(husk_program_open(engine, path, &program, &error), error);
}

Loaded::~Loaded() {
  husk_program_release(program);
  husk_engine_release(engine);
}

husk_session* Loaded::session(int mode, bool full_edges) {
  husk_session_options options = HUSK_SESSION_OPTIONS_INIT;
  options.mode = mode;
  options.full_edges = full_edges;
  husk_session* session = nullptr;
  husk_error error;
  require(husk_session_create(program, &options, &session, &error), error);
  return session;
}

uint32_t Loaded::function(const char* name) {
  uint32_t index = 0;
  husk_error error;
  require(husk_program_find_function(program, name, &index, &error), error);
  return index;
}

const husk_allocator process_memory = {nullptr,
                                       [](void*, size_t size, size_t align) {
                                         return std::aligned_alloc(
                                             align, (size + align - 1) / align * align);
                                       },
                                       [](void*, void* memory) { std::free(memory); }};

Place::Place(int i, const husk_cuda_options* options) : port(*husk_port_cuda()), index(i) {
  if (options) port.user = const_cast<husk_cuda_options*>(options);
  husk_error error;
  require(port.open(port.user, index, &process_memory, nullptr, &device, &error), error);
  husk_engine_options engine_options = HUSK_ENGINE_OPTIONS_INIT;
  engine_options.port = &port;
  engine_options.device_index = index;
  engine_options.require_op_contracts = 1;
  require(husk_engine_create(&engine_options, &engine, &error), error);
}

Place::~Place() {
  for (void* each : memory) port.free(device, each);
  for (void* each : streams) port.stream_destroy(device, each);
  husk_engine_release(engine);
  port.close(device);
}

bool Place::exists(int index, husk_error* error) {
  const husk_port& port = *husk_port_cuda();
  void* device = nullptr;
  if (port.open(port.user, index, &process_memory, nullptr, &device, error) != HUSK_OK)
    return false;
  port.close(device);
  return true;
}

void* Place::alloc(size_t bytes) {
  void* address = nullptr;
  husk_error error;
  require(port.alloc(device, bytes, &address, &error), error);
  const std::lock_guard<std::mutex> lock(mutex);
  memory.push_back(address);
  return address;
}

void* Place::stream() {
  void* handle = nullptr;
  husk_error error;
  require(port.stream_create(device, &handle, &error), error);
  const std::lock_guard<std::mutex> lock(mutex);
  streams.push_back(handle);
  return handle;
}

void Place::upload(void* stream, void* to, const void* from, size_t bytes) {
  husk_error error;
  require(port.upload(device, stream, to, from, bytes, &error), error);
  require(port.stream_wait(device, stream, &error), error);
}

void Place::download(void* stream, void* to, const void* from, size_t bytes) {
  husk_error error;
  require(port.download(device, stream, to, from, bytes, &error), error);
}

husk_program* Place::open(const char* path) {
  husk_program* program = nullptr;
  husk_error error;
  require(husk_program_open(engine, path, &program, &error), error);
  return program;
}

Vector::Vector(CUdeviceptr memory, int64_t n, int device) : size(n), tensor() {
  tensor.data = reinterpret_cast<void*>(memory);
  tensor.device = {kDLCUDA, device};
  tensor.ndim = 1;
  tensor.dtype = husk_dtype_to_dlpack(HUSK_F32);
}

husk_value Vector::value() {
  tensor.shape = &size;
  husk_value v = {HUSK_VALUE_TENSOR, 0, {}};
  v.as.tensor = &tensor;
  return v;
}

std::vector<char> read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) give_up("cannot read " + path);
  return std::vector<char>((std::istreambuf_iterator<char>(file)), {});
}

double now() {
  return std::chrono::duration<double, std::micro>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<long>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

}  // namespace husk::gpu
