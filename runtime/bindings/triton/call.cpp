#include "call.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "model.h"
#include "program.h"

namespace husk::triton {

bool shape_bytes(const int64_t* shape, uint32_t rank, size_t element_bytes, uint64_t* bytes) {
  int64_t product = static_cast<int64_t>(element_bytes);
  bool empty = false;
  for (uint32_t d = 0; d < rank; ++d) {
    if (shape[d] < 0) return false;
    if (shape[d] == 0)
      empty = true;
    else if (__builtin_mul_overflow(product, shape[d], &product))
      return false;
  }
  *bytes = empty ? 0 : static_cast<uint64_t>(product);
  return true;
}

namespace {

// Inputs over HTTP begin at any address.
bool is_aligned(const void* data, const Value& value) {
  const uintptr_t address = reinterpret_cast<uintptr_t>(data);
  return address % value.element_bytes == 0 && address % value.alignment == 0;
}

// Whether an input is used where the server has it. Bools are copied before they are checked:
// memory that a client shares with the server may change after a check. On a GPU, numbers are read
// by the host, and the memory of one GPU is not read by other ranks.
bool stays(const void* data, bool on_gpu, const Value& value, const Device& device) {
  if (value.type == TRITONSERVER_TYPE_BOOL) return false;
  if (on_gpu) return suits_gpu(data) && value.kind == HUSK_VALUE_TENSOR && !device.is_rank;
  return device.is_gpu() || is_aligned(data, value);
}

}  // namespace

bool suits_gpu(const void* data) {
  constexpr uintptr_t kAlign = 256;  // of memory that Husk allocates there
  return reinterpret_cast<uintptr_t>(data) % kAlign == 0;
}

void Call::open(TRITONBACKEND_Request* request, const Model& model, const Program& program) {
  request_ = request;
  response_ = nullptr;
  compute_start = compute_end = 0;
  const bool streams = model.settings().decoupled;
  error_.reset(streams ? nullptr : TRITONBACKEND_ResponseNew(&response_, request));
  if (!error_) error_ = check_cancelled();
  if (!error_) error_ = read_function(program.requests());
  if (!error_) error_ = read(model, program);
}

Error Call::check_cancelled() const {
  bool cancelled = false;
  HUSK_TRITON_TRY(Error(TRITONBACKEND_RequestIsCancelled(request_, &cancelled)));
  return cancelled ? fail(TRITONSERVER_ERROR_CANCELLED, "the request was cancelled") : nullptr;
}

Error Call::read_function(const std::vector<Signature>& functions) {
  function_ = 0;
  uint32_t count;
  HUSK_TRITON_TRY(Error(TRITONBACKEND_RequestParameterCount(request_, &count)));
  for (uint32_t k = 0; k < count; ++k) {
    const char* key;
    TRITONSERVER_ParameterType type;
    const void* value;
    HUSK_TRITON_TRY(Error(TRITONBACKEND_RequestParameter(request_, k, &key, &type, &value)));
    if (strcmp(key, "function") != 0) continue;
    if (type != TRITONSERVER_PARAMETER_STRING)
      return fail(TRITONSERVER_ERROR_INVALID_ARG, "the parameter 'function' must be a text");
    const char* name = static_cast<const char*>(value);
    for (function_ = 0; function_ < functions.size(); ++function_)
      if (functions[function_].name == name) return nullptr;
    function_ = 0;
    return fail(TRITONSERVER_ERROR_INVALID_ARG,
                "the parameter 'function' is '%s', requests to this model may choose from %s", name,
                names(functions).c_str());
  }
  return nullptr;
}

Error Call::read(const Model& model, const Program& program) {
  const Signature& signature = program.requests()[function_];
  inputs_.assign(signature.inputs.size(), InputView());
  copies_.resize(std::max(copies_.size(), signature.inputs.size()));
  asked_.assign(signature.outputs.size(), 0);
  // The server itself compares a request with the inputs of the model.
  if (program.requests().size() > 1) HUSK_TRITON_TRY(check_inputs(signature, program.requests()));
  for (size_t i = 0; i < signature.inputs.size(); ++i)
    if (signature.inputs[i].kind != HUSK_VALUE_NONE)
      HUSK_TRITON_TRY(read_input(signature.inputs[i], program.device(), &inputs_[i], &copies_[i]));
  return read_outputs(signature, model);
}

// Checks that the request has the inputs of its function, and none that only other functions have.
Error Call::check_inputs(const Signature& signature,
                         const std::vector<Signature>& functions) const {
  const auto has = [](const Signature& function, const char* name) {
    return find(function.inputs, name) < function.inputs.size();
  };
  uint32_t count;
  HUSK_TRITON_TRY(Error(TRITONBACKEND_RequestInputCount(request_, &count)));
  for (uint32_t k = 0; k < count; ++k) {
    const char* name;
    HUSK_TRITON_TRY(Error(TRITONBACKEND_RequestInputName(request_, k, &name)));
    if (has(signature, name)) continue;
    // The server adds inputs of its own to a request of a sequence.
    for (const Signature& other : functions)
      if (has(other, name))
        return fail(TRITONSERVER_ERROR_INVALID_ARG,
                    "input '%s' is no input of the function '%s': it has %s", name,
                    signature.name.c_str(), names(signature.inputs).c_str());
  }
  for (const Value& value : signature.inputs) {
    TRITONBACKEND_Input* input;
    if (value.kind != HUSK_VALUE_NONE &&
        Error(TRITONBACKEND_RequestInput(request_, value.name.c_str(), &input)))
      return fail(TRITONSERVER_ERROR_INVALID_ARG,
                  "input '%s' of the function '%s' is missing: it has %s", value.name.c_str(),
                  signature.name.c_str(), names(signature.inputs).c_str());
  }
  return nullptr;
}

Error Call::read_outputs(const Signature& signature, const Model& model) {
  const std::vector<Value>& outputs = signature.outputs;
  uint32_t count;
  HUSK_TRITON_TRY(Error(TRITONBACKEND_RequestOutputCount(request_, &count)));
  for (uint32_t k = 0; k < count; ++k) {
    const char* name;
    HUSK_TRITON_TRY(Error(TRITONBACKEND_RequestOutputName(request_, k, &name)));
    const size_t i = find(outputs, name);
    // A request that names no outputs asks for those of all functions.
    if (i < outputs.size())
      asked_[i] = 1;
    else if (count < model.output_count())
      return fail(TRITONSERVER_ERROR_INVALID_ARG,
                  "output '%s' is no output of the function '%s': it has %s", name,
                  signature.name.c_str(), names(outputs).c_str());
  }
  return nullptr;
}

Error Call::read_input(const Value& value, const Device& device, InputView* view, Memory* copy) {
  const char* name = value.name.c_str();
  TRITONBACKEND_Input* input;
  HUSK_TRITON_TRY(Error(TRITONBACKEND_RequestInput(request_, name, &input)));
  TRITONSERVER_DataType data_type;
  uint32_t buffers;
  uint64_t sent;
  HUSK_TRITON_TRY(Error(TRITONBACKEND_InputProperties(input, nullptr, &data_type, &view->shape,
                                                      &view->rank, &sent, &buffers)));
  if (data_type != value.type)
    return fail(TRITONSERVER_ERROR_INVALID_ARG, "input '%s' has another data type than %s", name,
                config_type(value.type));
  if (!shape_bytes(view->shape, view->rank, value.element_bytes, &view->bytes))
    return fail(TRITONSERVER_ERROR_INVALID_ARG, "input '%s' has a shape of too many bytes", name);
  // A rank of 0 is also accepted as a shape of ones, because Triton's dims are never empty.
  if (value.rank == 0) {
    if (view->bytes != value.element_bytes)
      return fail(TRITONSERVER_ERROR_INVALID_ARG, "input '%s' must have one element", name);
    view->rank = 0;
  }
  if (view->bytes != sent)
    return fail(TRITONSERVER_ERROR_INVALID_ARG,
                "input '%s' has a shape of %llu bytes, %llu bytes were sent", name,
                static_cast<unsigned long long>(view->bytes),
                static_cast<unsigned long long>(sent));
  uint64_t filled = 0;
  for (uint32_t k = 0; k < buffers; ++k) {
    const void* data;
    uint64_t bytes;
    TRITONSERVER_MemoryType type = device.memory_type();
    int64_t id = device.memory_id();
    HUSK_TRITON_TRY(Error(TRITONBACKEND_InputBuffer(input, k, &data, &bytes, &type, &id)));
    const bool on_gpu = type == TRITONSERVER_MEMORY_GPU;
    if (on_gpu && id != device.gpu)
      return fail(
          TRITONSERVER_ERROR_UNSUPPORTED,
          "input '%s' lies in memory of GPU %lld, the model runs on %s: send it from memory "
          "of the host",
          name, static_cast<long long>(id), device.name().c_str());
    if (bytes > view->bytes - filled)
      return fail(TRITONSERVER_ERROR_INVALID_ARG, "input '%s' has more bytes than its shape", name);
    if (buffers == 1 && stays(data, on_gpu, value, device)) {
      view->data = data;
      view->on_gpu = on_gpu;
    } else if (bytes) {
      uint8_t* block = filled == 0 ? copy->reserve(view->bytes) : copy->data();
      if (!block) return fail(TRITONSERVER_ERROR_UNAVAILABLE, "no memory for input '%s'", name);
      if (on_gpu)
        HUSK_TRITON_TRY(device.download(nullptr, block + filled, data, bytes));
      else
        memcpy(block + filled, data, bytes);
      view->data = block;
    }
    filled += bytes;
  }
  if (filled != view->bytes)
    return fail(TRITONSERVER_ERROR_INVALID_ARG, "input '%s' has fewer bytes than its shape", name);
  // Compiled code may rely on a bool being 0 or 1, in addresses too.
  if (value.type == TRITONSERVER_TYPE_BOOL) {
    const uint8_t* bytes = static_cast<const uint8_t*>(view->data);
    uint8_t bits = 0;
    for (uint64_t k = 0; k < view->bytes; ++k) bits |= bytes[k];
    if (bits > 1)
      return fail(TRITONSERVER_ERROR_INVALID_ARG, "input '%s' has a bool that is neither 0 nor 1",
                  name);
  }
  return nullptr;
}

Error write_output(TRITONBACKEND_Response* response, const Value& value, const int64_t* shape,
                   uint32_t rank, uint64_t bytes, const Device& device, Block* block) {
  // The server ends if it has no memory for an output of a request over gRPC.
  constexpr uint64_t kLarge = 1 << 20;
  if (Memory probe; bytes >= kLarge && !probe.reserve(bytes))
    return fail(TRITONSERVER_ERROR_UNAVAILABLE, "no memory for output '%s' of %llu bytes",
                value.name.c_str(), static_cast<unsigned long long>(bytes));
  TRITONBACKEND_Output* output;
  HUSK_TRITON_TRY(Error(TRITONBACKEND_ResponseOutput(response, &output, value.name.c_str(),
                                                     value.type, shape, rank)));
  TRITONSERVER_MemoryType type = device.memory_type();
  int64_t id = device.memory_id();
  HUSK_TRITON_TRY(Error(TRITONBACKEND_OutputBuffer(output, &block->data, bytes, &type, &id)));
  block->on_gpu = type == TRITONSERVER_MEMORY_GPU;
  if (block->on_gpu && id != device.gpu)
    return fail(TRITONSERVER_ERROR_UNSUPPORTED,
                "output '%s' is wanted in memory of GPU %lld, the model runs on %s: ask for it in "
                "memory of the host",
                value.name.c_str(), static_cast<long long>(id), device.name().c_str());
  return nullptr;
}

bool Call::fits(const Call& other) const {
  if (function_ != other.function_) return false;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const InputView &mine = inputs_[i], &others = other.inputs_[i];
    if (mine.rank != others.rank) return false;
    for (uint32_t d = 1; d < mine.rank; ++d)
      if (mine.shape[d] != others.shape[d]) return false;
  }
  return true;
}

int64_t Call::rows() const {
  int64_t rows = -1;
  for (const InputView& input : inputs_) {
    if (input.rank == 0) continue;
    if (rows >= 0 && input.shape[0] != rows) return 0;
    rows = input.shape[0];
  }
  return rows < 0 ? 0 : rows;
}

void Call::send() {
  if (!response_) return;
  log(Error(
      TRITONBACKEND_ResponseSend(response_, TRITONSERVER_RESPONSE_COMPLETE_FINAL, error_.get())));
  response_ = nullptr;
}

void Call::release() {
  log(Error(TRITONBACKEND_RequestRelease(request_, TRITONSERVER_REQUEST_RELEASE_ALL)));
  request_ = nullptr;
  error_.reset();
  for (Memory& memory : copies_) memory.trim();
}

}  // namespace husk::triton
