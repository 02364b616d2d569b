#include "loaded_program.h"

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>
#include <stdexcept>

#include "base/memory.h"
#include "compile.h"

namespace husk::test {

Fake::Fake() {
  library = dlopen("libcuda.so.1", RTLD_NOW);
  if (!library || !dlsym(library, "fake_reset"))
    throw std::runtime_error("these tests need the fake driver: ctest sets LD_LIBRARY_PATH to it");
#define CONTROL(name) name = reinterpret_cast<decltype(name)>(dlsym(library, #name));
  HUSK_FAKE_CONTROLS(CONTROL)
#undef CONTROL
}

const std::vector<uint8_t>& artifact(const std::string& functions) {
  static std::mutex mutex;
  static std::map<std::string, std::vector<uint8_t>> artifacts;
  const std::lock_guard<std::mutex> lock(mutex);  // tests call from several threads
  std::vector<uint8_t>& bytes = artifacts[functions];
  if (!bytes.empty()) return bytes;
  const std::filesystem::path image = HUSK_GRAPH_KERNELS;
  const std::string head =
      "hir 1\nproducer \"test\"\ntarget gpu cuda \"sm_90a\"\nimage kernels gpu cubin \"" +
      image.filename().string() + "\"\n" + R"(
kernel scale kernels "scale" (ptr, ptr, f32, i32) block 128 1 1 pdl_wait_first
kernel late kernels "scale" (ptr, ptr, f32, i32) block 128 1 1
kernel liar kernels "scale_careless" (ptr, ptr, f32, i32) block 128 1 1 pdl_wait_first
kernel shift kernels "shift" (ptr, ptr, i32, i32) block 128 1 1 pdl_wait_first
kernel join kernels "join" (ptr, ptr, ptr, i32) block 128 1 1 pdl_wait_first
kernel count kernels "count" (ptr) block 1 1 1 pdl_wait_first
kernel ahead kernels "scale_and_count" (ptr, ptr, ptr, i32) block 128 1 1 pdl_in_graph
kernel rash kernels "scale_and_count" (ptr, ptr, ptr, i32) block 128 1 1 pdl_wait_first
kernel pick kernels "pick" (ptr, ptr, ptr, i64, i64, ptr) block 128 1 1 pdl_wait_first
kernel positive kernels "positive" (ptr, ptr, i32) block 128 1 1
)";
  auto result = compiler::compile_text(
      functions.rfind("hir", 0) == 0 ? functions : head + functions, image.parent_path());
  if (auto* error = std::get_if<compiler::Error>(&result))
    throw std::runtime_error(compiler::describe(*error, "test.hir"));
  return bytes = std::get<0>(result);
}

std::string affine(const char* a, const char* b, const std::string& more) {
  return more + "constant a f32 [4] bytes \"" + a + "\"\nconstant b f32 [4] bytes \"" + b + R"("
function affine {
  input x tensor f32 [4]
  output y tensor f32 rank 1
  variant gpu {
    buffer x of input bytes 16
    buffer y of output bytes 16
    buffer halves bytes 16 align 64
    buffer less bytes 16 align 64
    launch shift grid (1, 1, 1) (read x, write halves, 0, 4)
    launch join grid (1, 1, 1) (read a, read halves, write less, 4)
    launch join grid (1, 1, 1) (read less, read b, write y, 4)
    return (tensor y f32 [4] [1])
  }
}
)";
}

husk_value DeviceTensor::value() {
  dl.shape = &size;
  husk_value v = {HUSK_VALUE_TENSOR, 0, {}};
  v.as.tensor = &dl;
  return v;
}

LoadedProgram::LoadedProgram(const std::string& functions, const husk_session_options* options,
                             const husk_allocator* allocator, const std::vector<husk_op>& ops,
                             const husk_port* engine_port)
    : file_(artifact(functions)) {
  bytes_ = std::aligned_alloc(4096, (file_.size() + 4095) / 4096 * 4096);
  std::memcpy(bytes_, file_.data(), file_.size());
  husk_engine_options engine_options = HUSK_ENGINE_OPTIONS_INIT;
  engine_options.port = engine_port;
  engine_options.log = [](void* user, int32_t, const char* text) {
    *static_cast<std::string*>(user) += std::string(text) + "\n";
  };
  engine_options.log_user = &log;
  engine_options.require_op_contracts = 1;
  engine_options.allocator = allocator;
  const husk_port* port = husk_port_cuda();
  if (port->open(port->user, 0, default_allocator(), nullptr, &device_, &error) != HUSK_OK) {
    device_ = nullptr;
    return;
  }
  if (husk_engine_create(&engine_options, &engine, &error) != HUSK_OK) return;
  if (husk_engine_stream_create(engine, &stream, &error) != HUSK_OK) return;
  for (const husk_op& op : ops)
    if (husk_engine_add_op(engine, &op, &error) != HUSK_OK) return;
  if (husk_program_load(engine, bytes_, file_.size(), nullptr, nullptr, &program, &error) !=
      HUSK_OK)
    return;
  session = open_session(options);
}

LoadedProgram::~LoadedProgram() {
  const husk_port* port = husk_port_cuda();
  for (husk_session* s : sessions_) husk_session_release(s);
  husk_program_release(program);
  husk_engine_stream_destroy(engine, stream);
  husk_engine_release(engine);
  if (device_) {
    for (void* memory : memory_) port->free(device_, memory);
    port->close(device_);
  }
  std::free(bytes_);
}

husk_session* LoadedProgram::open_session(const husk_session_options* options) {
  husk_session* opened = nullptr;
  if (husk_session_create(program, options, &opened, &error) == HUSK_OK)
    sessions_.push_back(opened);
  return opened;
}

void* LoadedProgram::alloc(size_t bytes) {
  void* memory = nullptr;
  if (husk_port_cuda()->alloc(device_, bytes, &memory, &error) != HUSK_OK) return nullptr;
  memory_.push_back(memory);
  return memory;
}

DeviceTensor device_vector(void* memory, int64_t n) {
  DeviceTensor tensor;
  tensor.size = n;
  tensor.dl.data = memory;
  tensor.dl.device = {kDLCUDA, 0};
  tensor.dl.ndim = 1;
  tensor.dl.dtype = husk_dtype_to_dlpack(HUSK_F32);
  return tensor;
}

husk_status LoadedProgram::upload(void* to, const void* from, size_t bytes) {
  const husk_status status = husk_port_cuda()->upload(device_, stream, to, from, bytes, &error);
  return status != HUSK_OK ? status : husk_port_cuda()->stream_wait(device_, stream, &error);
}

husk_status LoadedProgram::download(void* to, const void* from, size_t bytes) {
  return husk_port_cuda()->download(device_, stream, to, from, bytes, &error);
}

bool LoadedProgram::intact() const { return std::memcmp(bytes_, file_.data(), file_.size()) == 0; }

husk_session_stats LoadedProgram::stats(husk_session* of, uint32_t function) {
  husk_session_stats out = HUSK_SESSION_STATS_INIT;
  EXPECT_EQ(husk_session_stats_get(of, function, &out, &error), HUSK_OK);
  return out;
}

std::vector<float> FakeTest::run_affine(LoadedProgram& m, husk_session* session) {
  const float x[] = {2, 4, 6, 8};
  void *in = m.alloc(16), *out = m.alloc(16);
  EXPECT_EQ(m.upload(in, x, 16), HUSK_OK);
  DeviceTensor from = device_vector(in, 4), to = device_vector(out, 4);
  husk_value input = from.value(), output = to.value();
  EXPECT_EQ(husk_session_resize(session, 0, &input, 1, &m.error), HUSK_OK) << m.error.text;
  const uint64_t before = fake.fake_calls(nullptr);
  EXPECT_EQ(husk_session_run(session, 0, m.stream, &input, 1, &output, 1, &m.error), HUSK_OK)
      << m.error.text;
  run_calls = fake.fake_calls(nullptr) - before;
  std::vector<float> y(4);
  EXPECT_EQ(m.download(y.data(), out, 16), HUSK_OK);
  return y;
}

}  // namespace husk::test
