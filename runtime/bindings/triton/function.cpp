#include "function.h"

#include <time.h>

#include <cstring>

namespace husk::triton {
namespace {

// Copies a tensor with strides, in elements, to contiguous memory.
void copy_strided(const uint8_t* from, const int64_t* sizes, const int64_t* strides, int32_t rank,
                  size_t element_bytes, uint8_t* to) {
  if (rank == 0) {
    memcpy(to, from, element_bytes);
    return;
  }
  // The last dims that are contiguous are one block.
  uint64_t block = element_bytes;
  int32_t outer = rank;
  for (; outer > 0; --outer) {
    if (sizes[outer - 1] == 0) return;
    if (sizes[outer - 1] != 1 && uint64_t(strides[outer - 1]) * element_bytes != block) break;
    block *= uint64_t(sizes[outer - 1]);
  }
  for (int32_t d = 0; d < outer; ++d)
    if (sizes[d] == 0) return;
  int64_t index[16] = {};
  for (;;) {
    int64_t offset = 0;
    for (int32_t d = 0; d < outer; ++d) offset += index[d] * strides[d];
    memcpy(to, from + offset * int64_t(element_bytes), block);
    to += block;
    int32_t d = outer - 1;
    while (d >= 0 && ++index[d] == sizes[d]) index[d--] = 0;
    if (d < 0) return;
  }
}

bool is_contiguous(const int64_t* sizes, const int64_t* strides, int32_t rank) {
  int64_t stride = 1;
  for (int32_t d = rank; d-- > 0;) {
    if (sizes[d] != 1 && strides[d] != stride) return false;
    stride *= sizes[d];
  }
  return true;
}

}  // namespace

uint64_t now() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return uint64_t(time.tv_sec) * 1000000000u + uint64_t(time.tv_nsec);
}

Function::Function(husk_session* session, const Signature& signature, const Place& place)
    : session_(session),
      signature_(signature),
      place_(place),
      input_values_(signature.inputs.size()),
      output_values_(signature.outputs.size()),
      input_tensors_(signature.inputs.size()),
      input_shapes_(signature.inputs.size()),
      outputs_(signature.outputs.size()),
      batches_(signature.inputs.size()),
      staged_(signature.inputs.size()) {}

// Makes these inputs those of the run.
Error Function::bind(const std::vector<InputView>& views) {
  const std::vector<Value>& inputs = signature_.inputs;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const InputView& view = views[i];
    staged_[i].from = nullptr;
    husk_value& value = input_values_[i];
    value = {inputs[i].kind, 0, {nullptr}};
    switch (inputs[i].kind) {
      case HUSK_VALUE_TENSOR: {
        if (int32_t(view.rank) != inputs[i].rank)
          return fail(TRITONSERVER_ERROR_INVALID_ARG, "input '%s' has %u dims, must have %d",
                      inputs[i].name.c_str(), view.rank, inputs[i].rank);
        for (uint32_t d = 0; d < view.rank; ++d) input_shapes_[i].sizes[d] = view.shape[d];
        DLTensor& tensor = input_tensors_[i];
        tensor = {const_cast<void*>(view.data),
                  place_.device.dlpack(),
                  inputs[i].rank,
                  husk_dtype_to_dlpack(inputs[i].dtype),
                  input_shapes_[i].sizes,
                  nullptr,
                  0};
        value.as.tensor = &tensor;
        // A resize may use the address, so a GPU never gets one of the host.
        if (place_.device.is_gpu() && !view.on_gpu)
          stage_from(i, view.data, view.bytes);
        else if (inputs[i].is_written)
          HUSK_TRITON_TRY(copy_input(i, view));
        break;
      }
      case HUSK_VALUE_INT: memcpy(&value.as.i, view.data, sizeof value.as.i); break;
      case HUSK_VALUE_FLOAT: memcpy(&value.as.f, view.data, sizeof value.as.f); break;
      case HUSK_VALUE_BOOL: value.as.i = *static_cast<const uint8_t*>(view.data) != 0; break;
      default: break;
    }
  }
  return nullptr;
}

// Puts the rows of the calls one after another, and makes them the inputs of the run.
Error Function::gather(const std::vector<Call*>& calls) {
  HUSK_TRITON_TRY(bind(calls[0]->inputs()));
  const std::vector<Value>& inputs = signature_.inputs;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].kind != HUSK_VALUE_TENSOR) continue;
    uint64_t bytes = 0;
    int64_t rows = 0;
    for (const Call* call : calls) {
      bytes += call->inputs()[i].bytes;
      rows += call->inputs()[i].shape[0];
    }
    uint8_t* block = batches_[i].reserve(bytes);
    if (!block)
      return fail(TRITONSERVER_ERROR_UNAVAILABLE, "no memory for a batch of input '%s'",
                  inputs[i].name.c_str());
    if (place_.device.is_gpu())
      stage_from(i, block, bytes);
    else
      input_tensors_[i].data = block;
    input_shapes_[i].sizes[0] = rows;
    for (const Call* call : calls) {
      const InputView& view = call->inputs()[i];
      if (view.on_gpu)
        HUSK_TRITON_TRY(place_.device.download(place_.stream, block, view.data, view.bytes));
      else if (view.bytes)
        memcpy(block, view.data, view.bytes);
      block += view.bytes;
    }
  }
  return nullptr;
}

// Plans the run, if the last one had other shapes.
Error Function::prepare() {
  if (prepared_.equal(input_values_)) return nullptr;
  prepared_.forget();
  husk_error error;
  if (husk_session_resize(session_, signature_.function, input_values_.data(),
                          uint32_t(input_values_.size()), &error) != HUSK_OK)
    return fail(error);
  HUSK_TRITON_TRY(plan_outputs());
  prepared_.remember();
  return nullptr;
}

// Reads the shapes of the outputs. Only between a resize and the run after it does Husk tell a
// shape that the inputs decide from one that the last run left there.
Error Function::plan_outputs() {
  uint64_t sum = 0;
  for (size_t i = 0; i < outputs_.size(); ++i) {
    const Value& value = signature_.outputs[i];
    Output& output = outputs_[i];
    output.known = false;
    if (value.kind != HUSK_VALUE_TENSOR ||
        husk_session_output_shape(session_, signature_.function, uint32_t(i), output.shape.sizes,
                                  output.shape.strides, nullptr) != HUSK_OK)
      continue;
    output.known = true;
    const int64_t* sizes = output.shape.sizes;
    if (!shape_bytes(sizes, uint32_t(value.rank), value.element_bytes, &output.bytes) ||
        __builtin_add_overflow(sum, output.bytes, &sum) || sum > place_.memory_limit)
      return fail(TRITONSERVER_ERROR_INVALID_ARG,
                  "for these inputs output '%s' takes more memory than the model may use: "
                  "memory_limit of config.pbtxt is %llu bytes",
                  value.name.c_str(), static_cast<unsigned long long>(place_.memory_limit));
    output.contiguous = is_contiguous(sizes, output.shape.strides, value.rank);
  }
  return nullptr;
}

// Lets the run write to the response of the call where that is possible. Without a call all
// outputs are written to memory of the session.
Error Function::bind_outputs(Call* call) {
  const std::vector<Value>& values = signature_.outputs;
  for (size_t i = 0; i < outputs_.size(); ++i) {
    Output& output = outputs_[i];
    output.direct = false;
    output_values_[i] = {HUSK_VALUE_NONE, 0, {nullptr}};
    const Value& value = values[i];
    if (value.kind != HUSK_VALUE_TENSOR) output_values_[i].kind = value.kind;
    if (!call || !call->asks_for(i) || !output.known || !output.contiguous || value.rank == 0)
      continue;
    HUSK_TRITON_TRY(call->output(value, output.shape.sizes, uint32_t(value.rank), output.bytes,
                                 place_.device, &output.block));
    output.direct = true;
    const void* memory = output.block.data;
    output.tensor = {
        output.block.data,  place_.device.dlpack(), value.rank, husk_dtype_to_dlpack(value.dtype),
        output.shape.sizes, output.shape.strides,   0};
    // Kernels may assume an alignment that the server does not give, and those of a GPU do not
    // write to memory of the host: then the result is copied.
    const bool suits = place_.device.is_gpu()
                           ? output.block.on_gpu && suits_gpu(memory)
                           : reinterpret_cast<uintptr_t>(memory) % value.alignment == 0;
    if (output.bytes && suits) output_values_[i] = {HUSK_VALUE_TENSOR, 0, {&output.tensor}};
  }
  return nullptr;
}

// Makes a copy of an input that the run writes to: the memory of a request is only read. Its owner
// may be the client, in shared memory, or several models of an ensemble.
Error Function::copy_input(size_t input, const InputView& view) {
  uint8_t* copy = batches_[input].reserve(view.bytes);
  if (!copy)
    return fail(TRITONSERVER_ERROR_UNAVAILABLE, "no memory for a copy of input '%s'",
                signature_.inputs[input].name.c_str());
  if (view.on_gpu) {
    HUSK_TRITON_TRY(place_.device.download(place_.stream, copy, view.data, view.bytes));
    stage_from(input, copy, view.bytes);
    return nullptr;
  }
  if (view.bytes) memcpy(copy, view.data, view.bytes);
  input_tensors_[input].data = copy;
  return nullptr;
}

// Lets stage() copy an input of the host to the GPU.
void Function::stage_from(size_t input, const void* data, uint64_t bytes) {
  staged_[input].from = data;
  staged_[input].bytes = bytes;
  input_tensors_[input].data = nullptr;
}

// Copies the inputs of the host to the GPU. All else is ready for the run, so that nothing is
// copied for a call that is refused.
Error Function::stage() {
  for (size_t i = 0; i < staged_.size(); ++i) {
    Staged& staged = staged_[i];
    if (!staged.from) continue;
    HUSK_TRITON_TRY(staged.memory.reserve(place_.device, staged.bytes, &input_tensors_[i].data));
    HUSK_TRITON_TRY(
        place_.device.upload(place_.stream, input_tensors_[i].data, staged.from, staged.bytes));
  }
  return nullptr;
}

Error Function::invoke() {
  HUSK_TRITON_TRY(stage());
  for (Output& output : outputs_) output.copied = false;
  husk_error error;
  compute_start_ = now();
  const husk_status status = husk_session_run(session_, signature_.function, place_.stream,
                                              input_values_.data(), uint32_t(input_values_.size()),
                                              output_values_.data(),
                                              uint32_t(output_values_.size()), &error);
  const husk_status waited = status == HUSK_OK ? husk_session_wait(session_, &error) : status;
  compute_end_ = now();
  if (waited == HUSK_OK) return nullptr;
  broke_ = true;
  return fail(error);
}

// Makes `tensor` a result of the last run whose data the host can read.
Error Function::host_output(size_t index, DLTensor* tensor) {
  *tensor = *output_values_[index].as.tensor;
  if (!place_.device.is_gpu()) return nullptr;
  const Value& value = signature_.outputs[index];
  Output& output = outputs_[index];
  const uint8_t* from = static_cast<const uint8_t*>(tensor->data) + tensor->byte_offset;
  uint64_t bytes = value.element_bytes;  // from the first element to behind the last one
  for (int32_t d = 0; d < tensor->ndim; ++d)
    bytes = tensor->shape[d] == 0 || bytes == 0
                ? 0
                : bytes +
                      uint64_t((tensor->shape[d] - 1) * tensor->strides[d]) * value.element_bytes;
  uint8_t* copy = output.host.reserve(bytes);
  if (!copy)
    return fail(TRITONSERVER_ERROR_UNAVAILABLE, "no memory for output '%s' of %llu bytes",
                value.name.c_str(), static_cast<unsigned long long>(bytes));
  if (bytes && !output.copied)
    HUSK_TRITON_TRY(place_.device.download(place_.stream, copy, from, bytes));
  output.copied = true;
  tensor->data = copy;
  tensor->byte_offset = 0;
  tensor->device = {kDLCPU, 0};
  return nullptr;
}

// Copies rows of an output that is not in the response yet. `rows` of -1 are all.
Error Function::copy_output(size_t index, Call* call, int64_t first_row, int64_t rows) {
  const Value& value = signature_.outputs[index];
  const husk_value& result = output_values_[index];
  if (value.kind != HUSK_VALUE_TENSOR) {
    constexpr int64_t kOne = 1;
    Block block;
    HUSK_TRITON_TRY(call->output(value, &kOne, 1, value.element_bytes, Device(), &block));
    if (value.kind == HUSK_VALUE_BOOL) {
      *static_cast<uint8_t*>(block.data) = result.as.i != 0;
    } else {
      memcpy(block.data, &result.as, value.element_bytes);
    }
    return nullptr;
  }
  const DLTensor& tensor = *result.as.tensor;
  Output& output = outputs_[index];
  if (output.direct && result.as.tensor == &output.tensor) return nullptr;
  int64_t sizes[kMaxRank] = {1};
  for (int32_t d = 0; d < tensor.ndim; ++d) sizes[d] = tensor.shape[d];
  if (rows >= 0) sizes[0] = rows;
  uint64_t bytes;
  if (!shape_bytes(sizes, uint32_t(tensor.ndim), value.element_bytes, &bytes))
    return fail(TRITONSERVER_ERROR_INTERNAL, "output '%s' is too large", value.name.c_str());
  Block block = output.block;
  if (!output.direct)
    HUSK_TRITON_TRY(call->output(value, sizes, tensor.ndim ? uint32_t(tensor.ndim) : 1, bytes,
                                 place_.device, &block));
  if (!block.data || !bytes) return nullptr;
  const Device& device = place_.device;
  if (device.is_gpu() && !block.on_gpu && rows < 0 &&
      is_contiguous(sizes, tensor.strides, tensor.ndim))
    return device.download(place_.stream, block.data,
                           static_cast<const uint8_t*>(tensor.data) + tensor.byte_offset, bytes);
  DLTensor here;
  HUSK_TRITON_TRY(host_output(index, &here));
  const uint8_t* from = static_cast<const uint8_t*>(here.data) + here.byte_offset;
  if (rows >= 0) from += first_row * here.strides[0] * int64_t(value.element_bytes);
  if (!block.on_gpu) {
    copy_strided(from, sizes, here.strides, here.ndim, value.element_bytes,
                 static_cast<uint8_t*>(block.data));
    return nullptr;
  }
  uint8_t* copy = rows_.reserve(bytes);
  if (!copy)
    return fail(TRITONSERVER_ERROR_UNAVAILABLE, "no memory for output '%s'", value.name.c_str());
  copy_strided(from, sizes, here.strides, here.ndim, value.element_bytes, copy);
  // The response is sent without a look at the stream. An upload may still be under way when it
  // returns; a copy back to the host waits for it.
  HUSK_TRITON_TRY(device.upload(place_.stream, block.data, copy, bytes));
  return device.download(place_.stream, copy, block.data, 1);
}

// Returns large blocks, so that one large request does not take memory for ever.
void Function::trim() {
  for (Memory& batch : batches_) batch.trim();
  for (Staged& staged : staged_) staged.memory.trim();
  for (Output& output : outputs_) output.host.trim();
  rows_.trim();
}

Error Function::run(Call* call) {
  HUSK_TRITON_TRY(bind(call->inputs()));
  HUSK_TRITON_TRY(prepare());
  HUSK_TRITON_TRY(bind_outputs(call));
  HUSK_TRITON_TRY(invoke());
  call->compute_start = compute_start_;
  call->compute_end = compute_end_;
  for (size_t i = 0; i < outputs_.size(); ++i)
    if (call->asks_for(i)) HUSK_TRITON_TRY(copy_output(i, call, 0, -1));
  trim();
  return nullptr;
}

Error Function::run(const std::vector<InputView>& inputs) {
  HUSK_TRITON_TRY(bind(inputs));
  HUSK_TRITON_TRY(prepare());
  HUSK_TRITON_TRY(bind_outputs(nullptr));
  return invoke();
}

Error Function::follow(const std::vector<Call*>& calls) {
  HUSK_TRITON_TRY(gather(calls));
  HUSK_TRITON_TRY(prepare());
  HUSK_TRITON_TRY(bind_outputs(nullptr));
  return invoke();
}

Error Function::run(const std::vector<Call*>& calls) {
  HUSK_TRITON_TRY(follow(calls));
  int64_t rows = 0;
  for (const Call* call : calls) rows += call->rows();
  for (size_t i = 0; i < outputs_.size(); ++i) {
    const Value& value = signature_.outputs[i];
    if (value.kind != HUSK_VALUE_TENSOR) continue;  // asked for by nobody: see Config::complete
    if (value.rank > 0 && output_values_[i].as.tensor->shape[0] == rows) continue;
    for (const Call* call : calls)
      if (call->asks_for(i))
        return fail(TRITONSERVER_ERROR_INTERNAL,
                    "dim 0 of output '%s' is not the batch of %lld rows: set max_batch_size of "
                    "config.pbtxt to 0",
                    value.name.c_str(), static_cast<long long>(rows));
  }
  int64_t first_row = 0;
  for (Call* call : calls) {
    call->compute_start = compute_start_;
    call->compute_end = compute_end_;
    for (size_t i = 0; i < outputs_.size() && !call->failed(); ++i)
      if (call->asks_for(i)) call->set_error(copy_output(i, call, first_row, call->rows()));
    first_row += call->rows();
  }
  trim();
  return nullptr;
}

}  // namespace husk::triton
