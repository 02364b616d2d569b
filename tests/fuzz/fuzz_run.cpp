// Fuzzes runs of artifacts whose changed metadata still verifies. The inputs are those that the
// signature allows; the port checks every address.
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <husk/husk.h>

#include "checking_port.h"
#include "mutate.h"

namespace {

constexpr size_t kMemory = 1 << 20;

// Inputs or outputs of a run, with the memory of their tensors.
struct Values {
  std::vector<husk_value> values;
  std::vector<DLTensor> tensors;
  std::vector<std::vector<int64_t>> shapes;
  std::vector<void*> memory;

  ~Values() {
    for (void* m : memory) std::free(m);
  }

  bool add(const husk_value_info& info, std::vector<int64_t> sizes, std::vector<int64_t> strides) {
    husk_value value = {info.kind, 0, {}};
    if (info.kind == HUSK_VALUE_INT && info.ranges) value.as.i = info.ranges[0];
    if (info.kind == HUSK_VALUE_FLOAT) value.as.f = 1.5;
    if (info.kind == HUSK_VALUE_TENSOR) {
      uint64_t bytes = husk_dtype_size(info.dtype);
      for (size_t d = 0; d < sizes.size(); ++d) {
        const uint64_t reach = strides.empty()
                                   ? static_cast<uint64_t>(sizes[d])
                                   : 1 + static_cast<uint64_t>(sizes[d] ? sizes[d] - 1 : 0) *
                                             static_cast<uint64_t>(strides[d]);
        if (sizes[d] < 0 || __builtin_mul_overflow(bytes, reach, &bytes) || bytes > kMemory)
          return false;
      }
      void* data = std::aligned_alloc(4096, (bytes + 4096) / 4096 * 4096);
      std::memset(data, 1, bytes);
      husk::fuzz::announce(data, bytes);
      memory.push_back(data);
      shapes.push_back(std::move(sizes));
      const size_t shape = shapes.size() - 1;
      if (!strides.empty()) shapes.push_back(std::move(strides));
      DLTensor tensor = {};
      tensor.data = data;
      tensor.device = {kDLCPU, 0};
      tensor.ndim = info.rank;
      tensor.dtype = husk_dtype_to_dlpack(info.dtype);
      tensor.shape = shapes[shape].data();
      tensor.strides = shape + 1 < shapes.size() ? shapes[shape + 1].data() : nullptr;
      tensors.push_back(tensor);
      value.as.tensor = &tensors.back();
    }
    values.push_back(value);
    return true;
  }
};

void run(husk_session* session, const husk_program* program, uint32_t function, int64_t extra) {
  husk_error error;
  Values in, out;
  const uint32_t inputs = husk_program_input_count(program, function);
  const uint32_t outputs = husk_program_output_count(program, function);
  if (inputs > 64 || outputs > 64) return;
  in.tensors.reserve(inputs);
  out.tensors.reserve(outputs);
  in.shapes.reserve(2 * inputs);
  out.shapes.reserve(2 * outputs);
  for (uint32_t i = 0; i < inputs; ++i) {
    husk_value_info info = HUSK_VALUE_INFO_INIT;
    if (husk_program_input(program, function, i, &info, &error) != HUSK_OK) std::abort();
    std::vector<int64_t> sizes;
    for (int32_t d = 0; d < info.rank; ++d) {
      const int64_t low = info.ranges[2 * d], high = info.ranges[2 * d + 1];
      sizes.push_back(high - low >= extra || high < low ? low + extra : low);
    }
    if (!in.add(info, sizes, {})) return;
  }
  if (husk_session_resize(session, function, in.values.data(), inputs, &error) != HUSK_OK) return;
  for (uint32_t i = 0; i < outputs; ++i) {
    husk_value_info info = HUSK_VALUE_INFO_INIT;
    if (husk_program_output(program, function, i, &info, &error) != HUSK_OK) std::abort();
    std::vector<int64_t> sizes(static_cast<size_t>(info.rank)), strides(sizes.size());
    // An output whose shape depends on data is in memory of the session. So are all outputs of the
    // last shape.
    if (info.kind == HUSK_VALUE_TENSOR &&
        (husk_session_output_shape(session, function, i, sizes.data(), strides.data(), &error) !=
             HUSK_OK ||
         extra == 1))
      info.kind = HUSK_VALUE_NONE;
    for (int64_t stride : strides)
      if (stride < 0) return;
    if (!out.add(info, sizes, strides)) return;
  }
  for (int i = 0; i < 2; ++i) {
    const husk_status status = husk_session_run(session, function, nullptr, in.values.data(),
                                                inputs, out.values.data(), outputs, &error);
    if (status != HUSK_OK && std::strlen(error.text) < 8) std::abort();
    ++(status == HUSK_OK ? husk::fuzz::runs().finished : husk::fuzz::runs().refused);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const husk::fuzz::Artifact artifact(data, size);
  husk_error error;
  if (!artifact.data || husk_program_verify(artifact.data, artifact.size, &error) != HUSK_OK)
    return 0;
  husk_engine_options options = HUSK_ENGINE_OPTIONS_INIT;
  options.port = husk::fuzz::checking_port();
  options.allow_host_images = 1;
  husk_engine* engine = nullptr;
  if (husk_engine_create(&options, &engine, &error) != HUSK_OK) std::abort();
  for (const char* name : {"aten::mm.out", "test::op", "test::op:sizes"}) {
    const husk_op op = husk::fuzz::touching_op(name);
    if (husk_engine_add_op(engine, &op, &error) != HUSK_OK) std::abort();
  }
  husk_program* program = nullptr;
  husk_session* session = nullptr;
  husk_session_options small = HUSK_SESSION_OPTIONS_INIT;
  small.bound_limit = 1 << 20;
  small.memory_limit = 1 << 22;
  small.loop_limit = 20;
  small.copy_misaligned = 1;
  if (husk_program_load(engine, artifact.data, artifact.size, nullptr, nullptr, &program, &error) ==
      HUSK_OK) {
    ++husk::fuzz::runs().loaded;
    // The port allocates constants and state, so it knows all memory that a step may access.
    if (husk_session_create(program, &small, &session, &error) == HUSK_OK) {
      ++husk::fuzz::runs().sessions;
      const uint32_t functions = husk_program_function_count(program);
      for (uint32_t f = 0; f < functions && f < 4; ++f)
        for (int64_t extra : {0, 3, 1}) run(session, program, f, extra);
    }
  }
  husk_session_release(session);
  husk_program_release(program);
  husk_engine_release(engine);
  husk::fuzz::forget();
  if (husk::fuzz::live() != 0) std::abort();
  return 0;
}
