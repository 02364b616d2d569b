#include "run/call.h"

#include <algorithm>
#include <chrono>

#include "ir/printable.h"
#include "run/run_error.h"

namespace husk::run {

namespace {

using Clock = std::chrono::steady_clock;
using Microseconds = std::chrono::duration<double, std::micro>;

// The number of elements from the first to the last element of a tensor, both included.
uint64_t extent(const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides) {
  uint64_t elements = 1;
  for (size_t d = 0; d < sizes.size(); d++) {
    if (sizes[d] == 0) return 0;
    elements += static_cast<uint64_t>((sizes[d] - 1) * strides[d]);
  }
  return elements;
}

std::vector<int64_t> contiguous_strides(const std::vector<int64_t>& sizes) {
  std::vector<int64_t> strides(sizes.size());
  int64_t stride = 1;
  for (size_t d = sizes.size(); d-- > 0;) {
    strides[d] = stride;
    stride *= std::max<int64_t>(sizes[d], 1);
  }
  return strides;
}

}  // namespace

Call::Call(Machine& machine, const husk_program* program, uint32_t function, husk_session* session,
           void* stream, const std::vector<Value>& inputs)
    : machine_(machine),
      program_(program),
      session_(session),
      stream_(stream),
      function_(function) {
  const uint32_t output_count = husk_program_output_count(program, function);
  tensors_.reserve(inputs.size() + output_count);
  for (uint32_t i = 0; i < inputs.size(); i++) inputs_.push_back(input_make(i, inputs[i]));
  resize();
  for (uint32_t i = 0; i < output_count; i++) outputs_.push_back(output_make(i));
}

void Call::resize() {
  husk_error error;
  check(husk_session_resize(session_, function_, inputs_.data(),
                            static_cast<uint32_t>(inputs_.size()), &error),
        error, exit_run);
}

void Call::enqueue() {
  husk_error error;
  check(husk_session_run(session_, function_, stream_, inputs_.data(),
                         static_cast<uint32_t>(inputs_.size()), outputs_.data(),
                         static_cast<uint32_t>(outputs_.size()), &error),
        error, exit_run);
}

RunTime Call::run() {
  husk_error error;
  const auto begin = Clock::now();
  enqueue();
  const auto returned = Clock::now();
  check(husk_session_wait(session_, &error), error, exit_run);
  const auto done = Clock::now();
  return {Microseconds(returned - begin).count(), Microseconds(done - begin).count()};
}

double Call::run_queued(int runs) {
  husk_error error;
  const auto begin = Clock::now();
  for (int i = 0; i < runs; i++) enqueue();
  check(husk_session_wait(session_, &error), error, exit_run);
  return Microseconds(Clock::now() - begin).count() / runs;
}

std::vector<Output> Call::results() {
  std::vector<Output> results;
  for (uint32_t i = 0; i < outputs_.size(); i++) {
    // A run replaces HUSK_VALUE_NONE by the session's tensor, unless the output has kind none.
    if (outputs_[i].kind == HUSK_VALUE_NONE) continue;
    const std::string name = output_info(i).name;
    results.push_back({fmt::format("output {} {}", i, printable(name)), name, std::to_string(i),
                       result(outputs_[i])});
  }
  return results;
}

husk_value_info Call::output_info(uint32_t index) const {
  husk_value_info info = HUSK_VALUE_INFO_INIT;
  husk_error error;
  check(husk_program_output(program_, function_, index, &info, &error), error, exit_load);
  return info;
}

Call::DeviceTensor& Call::device_tensor_make(const husk_value_info& info, husk_dtype dtype,
                                             std::vector<int64_t> sizes,
                                             std::vector<int64_t> strides) {
  const uint64_t bytes = extent(sizes, strides) * husk_dtype_size(dtype);
  DeviceTensor& device = tensors_.emplace_back(
      DeviceTensor{{}, std::move(sizes), std::move(strides)});
  device.tensor.data = machine_.allocate(bytes, info.on_host != 0);
  device.tensor.device = {static_cast<DLDeviceType>(machine_.properties().dl_device_type),
                          machine_.properties().device_index};
  if (info.on_host) device.tensor.device = {kDLCPU, 0};
  device.tensor.ndim = static_cast<int32_t>(device.sizes.size());
  device.tensor.dtype = husk_dtype_to_dlpack(dtype);
  device.tensor.shape = device.sizes.data();
  device.tensor.strides = device.strides.data();
  return device;
}

husk_value Call::input_make(uint32_t index, const Value& input) {
  husk_value_info info = HUSK_VALUE_INFO_INIT;
  husk_error error;
  check(husk_program_input(program_, function_, index, &info, &error), error, exit_load);
  husk_value value{};
  value.kind = info.kind;
  if (const auto* tensor = std::get_if<Tensor>(&input)) {
    DeviceTensor& device = device_tensor_make(info, tensor->dtype, tensor->sizes,
                                              contiguous_strides(tensor->sizes));
    if (info.on_host)
      std::copy(tensor->bytes.begin(), tensor->bytes.end(),
                static_cast<unsigned char*>(device.tensor.data));
    else
      machine_.upload(device.tensor.data, tensor->bytes);
    value.as.tensor = &device.tensor;
  } else if (const auto* number = std::get_if<int64_t>(&input)) {
    value.as.i = *number;
  } else if (const auto* real = std::get_if<double>(&input)) {
    value.as.f = *real;
  }
  return value;
}

husk_value Call::output_make(uint32_t index) {
  const husk_value_info info = output_info(index);
  husk_value value{};
  value.kind = info.kind;
  if (info.kind != HUSK_VALUE_TENSOR) return value;
  std::vector<int64_t> sizes(static_cast<size_t>(info.rank)), strides(sizes.size());
  husk_error error;
  if (husk_session_output_shape(session_, function_, index, sizes.data(), strides.data(), &error) !=
      HUSK_OK) {
    value.kind = HUSK_VALUE_NONE;  // the shape depends on data: the session allocates the memory
    return value;
  }
  value.as.tensor = &device_tensor_make(info, info.dtype, std::move(sizes), std::move(strides))
                         .tensor;
  return value;
}

Tensor Call::result(const husk_value& value) {
  if (value.kind == HUSK_VALUE_TENSOR) {
    const DLTensor& tensor = *value.as.tensor;
    const std::vector<int64_t> sizes(tensor.shape, tensor.shape + tensor.ndim);
    const std::vector<int64_t> strides = tensor.strides
                                             ? std::vector<int64_t>(tensor.strides,
                                                                    tensor.strides + tensor.ndim)
                                             : contiguous_strides(sizes);
    const husk_dtype dtype = husk_dtype_from_dlpack(tensor.dtype);
    std::vector<unsigned char> bytes(extent(sizes, strides) * husk_dtype_size(dtype));
    const auto* data = static_cast<const unsigned char*>(tensor.data) + tensor.byte_offset;
    if (tensor.device.device_type == kDLCPU)
      std::copy_n(data, bytes.size(), bytes.data());
    else
      machine_.download(bytes, data);
    return tensor_gather(dtype, sizes, strides, bytes);
  }
  if (value.kind == HUSK_VALUE_FLOAT) {
    Tensor number = tensor_make(HUSK_F64, {});
    number.set_number(0, value.as.f);
    return number;
  }
  // The bytes are copied, since a double does not hold every int64.
  Tensor number = tensor_make(value.kind == HUSK_VALUE_BOOL ? HUSK_BOOL : HUSK_I64, {});
  const int64_t word = value.kind == HUSK_VALUE_BOOL ? value.as.i != 0 : value.as.i;
  std::copy_n(reinterpret_cast<const unsigned char*>(&word), number.bytes.size(),
              number.bytes.data());
  return number;
}

}  // namespace husk::run
