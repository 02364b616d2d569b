#include "stream.h"

#include <cstring>

namespace husk::triton {
namespace {

bool is_integer(husk_dtype dtype) { return dtype == HUSK_I64 || dtype == HUSK_I32; }

// Returns the only value that is not none; null if there are several.
const Value* only(const std::vector<Value>& values, size_t* index) {
  const Value* found = nullptr;
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i].kind == HUSK_VALUE_NONE) continue;
    if (found) return nullptr;
    found = &values[i];
    *index = i;
  }
  return found;
}

}  // namespace

Value token_value() {
  Value token;
  token.name = "token";
  token.kind = HUSK_VALUE_INT;
  token.type = TRITONSERVER_TYPE_INT64;
  token.dtype = HUSK_I64;
  token.element_bytes = sizeof(int64_t);
  return token;
}

Error check_stream(const Signature& first, const Signature& next) {
  size_t index;
  const Value* input = only(next.inputs, &index);
  if (!input || input->kind != HUSK_VALUE_TENSOR || !is_integer(input->dtype))
    return fail(TRITONSERVER_ERROR_INVALID_ARG,
                "model_transaction_policy.decoupled of config.pbtxt is for functions that take "
                "tokens: '%s' must have one input, a tensor of i64 or i32",
                next.name.c_str());
  const Value* output = only(first.outputs, &index);
  if (!output || output->kind != HUSK_VALUE_TENSOR ||
      !(is_integer(output->dtype) || (output->dtype == HUSK_F32 && output->rank > 0)))
    return fail(TRITONSERVER_ERROR_INVALID_ARG,
                "model_transaction_policy.decoupled of config.pbtxt is for functions that give "
                "tokens: '%s' must have one output, logits of f32 or tokens of i64 or i32",
                first.name.c_str());
  return nullptr;
}

void Stream::run() {
  Error failure(TRITONBACKEND_ResponseFactoryNew(&factory_, call_->request()));
  if (failure) return call_->set_error(std::move(failure));
  if (!call_->failed()) {
    failure = read_parameters();
    if (!failure) failure = generate();
    if (failure) call_->set_error(std::move(failure));
  }
  if (call_->failed()) {
    TRITONBACKEND_Response* response = nullptr;
    Error unsent(TRITONBACKEND_ResponseNewFromFactory(&response, factory_));
    if (!unsent)
      unsent.reset(TRITONBACKEND_ResponseSend(response, TRITONSERVER_RESPONSE_COMPLETE_FINAL,
                                              call_->error()));
    log(std::move(unsent));
  }
  log(Error(TRITONBACKEND_ResponseFactoryDelete(factory_)));
}

Error Stream::read_parameters() {
  uint32_t count;
  HUSK_TRITON_TRY(Error(TRITONBACKEND_RequestParameterCount(call_->request(), &count)));
  for (uint32_t i = 0; i < count; ++i) {
    const char* key;
    TRITONSERVER_ParameterType type;
    const void* value;
    HUSK_TRITON_TRY(
        Error(TRITONBACKEND_RequestParameter(call_->request(), i, &key, &type, &value)));
    int64_t* known = strcmp(key, "max_tokens") == 0   ? &max_tokens_
                     : strcmp(key, "stop_token") == 0 ? &stop_token_
                                                      : nullptr;
    if (!known) continue;
    if (type != TRITONSERVER_PARAMETER_INT)
      return fail(TRITONSERVER_ERROR_INVALID_ARG, "the parameter '%s' must be an integer", key);
    memcpy(known, value, sizeof *known);
  }
  if (max_tokens_ >= 1) return nullptr;
  return fail(TRITONSERVER_ERROR_INVALID_ARG,
              "the parameter 'max_tokens' is %lld, must be at least 1",
              static_cast<long long>(max_tokens_));
}

Error Stream::generate() {
  HUSK_TRITON_TRY(session_->forget());
  // A token is a tensor of as many dims as the next function wants, all of size 1.
  int64_t ones[16];
  for (int64_t& one : ones) one = 1;
  const Signature* other = program_.next_signature();
  const Signature& next = other ? *other : program_.signature();
  size_t index = 0;
  const Value& input = *only(next.inputs, &index);
  alignas(4096) int64_t token;
  std::vector<InputView> inputs(next.inputs.size());
  inputs[index] = {ones, uint32_t(input.rank), &token, input.element_bytes};

  Function* function = &session_->first(*call_);
  HUSK_TRITON_TRY(function->run(call_->inputs()));
  call_->compute_start = function->compute_start();
  for (int64_t step = 1;; ++step) {
    call_->compute_end = function->compute_end();
    HUSK_TRITON_TRY(next_token(function, &token));
    const bool last = step == max_tokens_ || token == stop_token_;
    HUSK_TRITON_TRY(send_token(token, last));
    if (last) return nullptr;
    HUSK_TRITON_TRY(check_cancelled());
    if (input.dtype == HUSK_I32) {
      const int32_t narrow = int32_t(token);
      memcpy(&token, &narrow, sizeof narrow);
    }
    function = &session_->next(*call_);
    HUSK_TRITON_TRY(function->run(inputs));
  }
}

Error Stream::next_token(Function* function, int64_t* token) const {
  size_t index = 0;
  const Value& value = *only(program_.signature().outputs, &index);
  DLTensor tensor;
  HUSK_TRITON_TRY(function->host_output(index, &tensor));
  int64_t last = 0;  // the first element of the last row, in elements
  for (int32_t d = 0; d < tensor.ndim; ++d) {
    if (tensor.shape[d] == 0)
      return fail(TRITONSERVER_ERROR_INVALID_ARG, "output '%s' is empty: there is no token",
                  value.name.c_str());
    if (d + 1 < tensor.ndim) last += (tensor.shape[d] - 1) * tensor.strides[d];
  }
  const int64_t width = tensor.ndim ? tensor.shape[tensor.ndim - 1] : 1;
  const int64_t stride = tensor.ndim ? tensor.strides[tensor.ndim - 1] : 1;
  const uint8_t* data = static_cast<const uint8_t*>(tensor.data) + tensor.byte_offset;
  if (value.dtype == HUSK_I64) {
    *token = reinterpret_cast<const int64_t*>(data)[last + (width - 1) * stride];
  } else if (value.dtype == HUSK_I32) {
    *token = reinterpret_cast<const int32_t*>(data)[last + (width - 1) * stride];
  } else {
    const float* logits = reinterpret_cast<const float*>(data) + last;
    *token = 0;
    for (int64_t i = 1; i < width; ++i)
      if (logits[i * stride] > logits[*token * stride]) *token = i;
  }
  return nullptr;
}

Error Stream::send_token(int64_t token, bool last) {
  TRITONBACKEND_Response* response;
  HUSK_TRITON_TRY(Error(TRITONBACKEND_ResponseNewFromFactory(&response, factory_)));
  Block block;
  constexpr int64_t kOne = 1;
  // A token is read by the host in any case, so its memory is wanted there.
  if (Error failure = write_output(response, token_value(), &kOne, 1, sizeof token, Device(),
                                   &block)) {
    log(Error(TRITONBACKEND_ResponseDelete(response)));
    return failure;
  }
  memcpy(block.data, &token, sizeof token);
  return Error(TRITONBACKEND_ResponseSend(response, last ? TRITONSERVER_RESPONSE_COMPLETE_FINAL : 0,
                                          nullptr));
}

Error Stream::check_cancelled() const {
  bool cancelled = false;
  HUSK_TRITON_TRY(Error(TRITONBACKEND_ResponseFactoryIsCancelled(factory_, &cancelled)));
  return cancelled ? fail(TRITONSERVER_ERROR_CANCELLED, "the request was cancelled") : nullptr;
}

}  // namespace husk::triton
