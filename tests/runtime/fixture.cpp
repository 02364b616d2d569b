#include "fixture.h"

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <utility>

#include <husk/ops.h>

#include "compile.h"

namespace husk::test {

std::vector<uint8_t> artifact(const std::string& body) {
  const std::filesystem::path image = HUSK_TEST_KERNELS;
  const std::string head = "hir 1\nproducer \"test\"\ntarget cpu host \"" HUSK_TEST_ARCH
                           "\"\nimage kernels cpu elf \"" +
                           image.filename().string() + "\"\n" + R"(
kernel add kernels "add" (ptr, ptr, ptr, i64)
kernel scale kernels "scale" (ptr, ptr, f32, i32)
kernel count kernels "count" (ptr)
kernel positive kernels "positive" (ptr, ptr, i64)
kernel check_index kernels "check_index" (i64)
kernel fail_assert kernels "fail_assert" (i64, ptr)
kernel record kernels "record" (ptr, bool, i8, u16, i32, u64, f16, bf16, f32, f64)
)";
  auto result = compiler::compile_text(head + body, image.parent_path());
  if (auto* error = std::get_if<compiler::Error>(&result))
    throw std::runtime_error(compiler::describe(*error, "test.hir"));
  return std::get<0>(result);
}

Aligned::Aligned(const std::vector<uint8_t>& bytes) : size_(bytes.size()) {
  data_ = std::aligned_alloc(4096, (size_ + 4095) / 4096 * 4096);
  std::memcpy(data_, bytes.data(), size_);
}
Aligned::~Aligned() { std::free(data_); }

Tensor::Tensor(husk_dtype dtype, std::vector<int64_t> sizes, void* data, std::vector<int64_t> steps)
    : shape(std::move(sizes)), strides(std::move(steps)) {
  int64_t elements = 1;
  for (size_t d = 0; d < shape.size(); ++d)
    elements = strides.empty() ? elements * shape[d] : elements + (shape[d] - 1) * strides[d];
  if (!data) {
    own.resize(static_cast<size_t>(elements) * husk_dtype_size(dtype) + 64);
    data = own.data() + (64 - reinterpret_cast<uintptr_t>(own.data()) % 64) % 64;
  }
  dl.data = data;
  dl.device = {kDLCPU, 0};
  dl.ndim = static_cast<int32_t>(shape.size());
  dl.dtype = husk_dtype_to_dlpack(dtype);
  dl.shape = shape.data();
  dl.strides = strides.empty() ? nullptr : strides.data();
}

husk_value Tensor::value() {
  husk_value v = {HUSK_VALUE_TENSOR, 0, {}};
  v.as.tensor = &dl;
  return v;
}

husk_engine_options Machine::defaults() {
  husk_engine_options options = HUSK_ENGINE_OPTIONS_INIT;
  options.port = husk_port_host();
  options.allow_host_images = 1;
  options.require_op_contracts = 1;
  return options;
}

Machine::Machine(const std::string& body, husk_engine_options options,
                 const husk_session_options* session_options, std::vector<husk_op> extra)
    : Machine(artifact(body), options, session_options, std::move(extra)) {}

Machine::Machine(const std::vector<uint8_t>& file, husk_engine_options options,
                 const husk_session_options* session_options, std::vector<husk_op> extra)
    : bytes_(file) {
  if (husk_engine_create(&options, &engine, &error) != HUSK_OK) return;
  if (husk_ops_add_all(engine, &error) != HUSK_OK) return;
  for (const husk_op& own : extra)
    if (husk_engine_add_op(engine, &own, &error) != HUSK_OK) return;
  if (husk_program_load(engine, bytes_.data(), bytes_.size(), nullptr, nullptr, &program, &error) !=
      HUSK_OK)
    return;
  husk_session_create(program, session_options, &session, &error);
}

Machine::~Machine() {
  husk_engine_release(engine);  // parents first: children keep them
  husk_program_release(program);
  husk_session_release(session);
}

husk_status Machine::resize(std::vector<husk_value> inputs, uint32_t function) {
  return husk_session_resize(session, function, inputs.data(), static_cast<uint32_t>(inputs.size()),
                             &error);
}

husk_status Machine::run(std::vector<husk_value> inputs, std::vector<husk_value> outputs,
                         uint32_t function) {
  results = std::move(outputs);
  return husk_session_run(session, function, nullptr, inputs.data(),
                          static_cast<uint32_t>(inputs.size()), results.data(),
                          static_cast<uint32_t>(results.size()), &error);
}

}  // namespace husk::test
