#include "text/model.h"

#include <time.h>

namespace husk::text {

namespace {

constexpr int64_t kSpan = 64;  // caches are read up to a multiple of so many positions
constexpr size_t kAlign = 256;
constexpr DLDataType kInt64 = {kDLInt, 64, 1}, kFloat32 = {kDLFloat, 32, 1};
constexpr husk_value kNone = {HUSK_VALUE_NONE, 0, {nullptr}};

// Adds the time of a scope to a sum.
class Timed {
 public:
  explicit Timed(uint64_t& sum) : sum_(sum), begin_(nanoseconds_now()) {}
  ~Timed() { sum_ += nanoseconds_now() - begin_; }
  Timed(const Timed&) = delete;
  Timed& operator=(const Timed&) = delete;

 private:
  uint64_t& sum_;
  uint64_t begin_;
};

husk_value integer(int64_t number) {
  husk_value value = {HUSK_VALUE_INT, 0, {nullptr}};
  value.as.i = number;
  return value;
}

Status no_model(husk_error* error, const char* lack) {
  return fail(error, HUSK_INVALID_FILE,
              "the file is no language model, since it lacks %s: `python -m husk llm` exports one",
              lack);
}

double number_of(const Json& json, const char* name, double otherwise) {
  const JsonValue* found = json.member(json.root(), name);
  return found && found->kind == JsonKind::number ? found->number : otherwise;
}

// A whole number of the description, from 1 to `most`.
Status read_size(const Json& json, const char* name, double most, int64_t& to, husk_error* error) {
  const double number = number_of(json, name, 0);
  if (!(number >= 1 && number <= most)) return no_model(error, name);
  to = static_cast<int64_t>(number);
  return Status::ok;
}

}  // namespace

uint64_t nanoseconds_now() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<uint64_t>(time.tv_sec) * 1000000000u + static_cast<uint64_t>(time.tv_nsec);
}

const char* metadata(const husk_program* program, const char* name) {
  const uint32_t count = husk_program_metadata_count(program);
  for (uint32_t i = 0; i < count; ++i) {
    if (strcmp(husk_program_metadata_key(program, i), name) == 0) {
      return husk_program_metadata_value(program, i);
    }
  }
  return nullptr;
}

Model::~Model() {
  husk_session_release(session_);
  if (engine_) {
    husk_engine_free(engine_, device_rows_);
    husk_engine_free(engine_, device_found_);
    husk_engine_free(engine_, device_prompt_);
    husk_engine_stream_destroy(engine_, stream_);
  }
  free(rows_);
  free(found_);
  free(prompt_);
}

Status Model::describe(const husk_program* program, husk_error* error) {
  const char* described = metadata(program, "husk.text.model");
  if (!described) return no_model(error, "the metadata husk.text.model");
  Json json;
  HUSK_TRY(json.parse(Span(described), error));
  constexpr double kMost = 1 << 30;
  HUSK_TRY(read_size(json, "max_tokens", kMost, max_tokens, error));
  HUSK_TRY(read_size(json, "slots", 1 << 16, slots, error));
  HUSK_TRY(read_size(json, "chunk", kMost, chunk, error));
  HUSK_TRY(read_size(json, "vocabulary", kMost, vocabulary, error));
  const char* settings = metadata(program, "husk.text.generation");
  if (!settings) return Status::ok;
  HUSK_TRY(json.parse(Span(settings), error));
  if (const JsonValue* list = json.member(json.root(), "end")) {
    if (list->kind != JsonKind::array)
      return no_model(error, "a list of the tokens that end texts");
    for (const JsonValue* one = json.first(list); one != json.end(list); one = json.after(one)) {
      const double number = one->kind == JsonKind::number ? one->number : -1;
      if (!(number >= 0 && number < kMost)) return no_model(error, "numbers of tokens");
      HUSK_TRY(ends.push(static_cast<int32_t>(number), error));
    }
  }
  if (json.has_true(json.root(), "do_sample")) {
    recommended.temperature = static_cast<float>(number_of(json, "temperature", 1));
    recommended.top_k = static_cast<int64_t>(number_of(json, "top_k", 0));
    recommended.top_p = static_cast<float>(number_of(json, "top_p", 1));
  }
  return Status::ok;
}

Status Model::find_functions(const husk_program* program, husk_error* error) {
  const struct {
    const char* name;
    uint32_t inputs;
    uint32_t* number;
  } functions[] = {{"prefill", 4, &prefill_}, {"decode", 3, &decode_}, {"sample", 6, &sample_}};
  for (const auto& function : functions) {
    const husk_status status = husk_program_find_function(program, function.name, function.number,
                                                          error);
    if (status == HUSK_NOT_FOUND) return no_model(error, function.name);
    HUSK_TRY(to_status(status));
    if (husk_program_input_count(program, *function.number) != function.inputs ||
        husk_program_output_count(program, *function.number) != 2) {
      return fail(error, HUSK_INVALID_FILE,
                  "the function %s of the file is not that of a language model", function.name);
    }
  }
  return Status::ok;
}

Status Model::allocate(husk_error* error) {
  const auto count = static_cast<size_t>(slots);
  column_bytes_ = (count * sizeof(int64_t) + kAlign - 1) / kAlign * kAlign;
  const size_t prompt = static_cast<size_t>(chunk) * sizeof(int64_t);
  rows_ = static_cast<char*>(calloc(kColumns, column_bytes_));
  found_ = static_cast<char*>(calloc(kFounds, column_bytes_));
  prompt_ = static_cast<int64_t*>(malloc(prompt));
  if (!rows_ || !found_ || !prompt_) {
    return fail(error, HUSK_OUT_OF_MEMORY, "no memory for %zu slots", count);
  }
  HUSK_TRY(to_status(husk_engine_alloc(engine_, kColumns * column_bytes_, &device_rows_, error)));
  HUSK_TRY(to_status(husk_engine_alloc(engine_, kFounds * column_bytes_, &device_found_, error)));
  return to_status(husk_engine_alloc(engine_, prompt, &device_prompt_, error));
}

Status Model::open(husk_engine* engine, husk_program* program, const husk_session_options* options,
                   husk_error* error) {
  HUSK_TRY(describe(program, error));
  HUSK_TRY(find_functions(program, error));
  engine_ = engine;
  husk_port_properties properties = HUSK_PORT_PROPERTIES_INIT;
  HUSK_TRY(to_status(husk_engine_properties(engine, &properties, error)));
  device_ = {static_cast<DLDeviceType>(properties.dl_device_type), properties.device_index};
  HUSK_TRY(to_status(husk_engine_stream_create(engine, &stream_, error)));
  HUSK_TRY(to_status(husk_session_create(program, options, &session_, error)));
  return allocate(error);
}

void Model::clear() {
  has_rows_ = false;
  memset(rows_, 0, kColumns * column_bytes_);
  for (int64_t i = 0; i < slots; ++i) {
    // No token sees this position.
    reinterpret_cast<int64_t*>(host(kPositions))[i] = max_tokens;
    reinterpret_cast<float*>(host(kTopP))[i] = 1;
  }
}

void Model::set_token(int64_t row, int64_t token, int64_t position) {
  reinterpret_cast<int64_t*>(host(kTokens))[row] = token;
  reinterpret_cast<int64_t*>(host(kPositions))[row] = position;
}

void Model::set_sampling(int64_t row, const Sampling& sampling, int64_t position) {
  reinterpret_cast<float*>(host(kTemperature))[row] = sampling.temperature;
  reinterpret_cast<float*>(host(kTopP))[row] = sampling.top_p;
  reinterpret_cast<int64_t*>(host(kTopK))[row] = sampling.top_k;
  reinterpret_cast<int64_t*>(host(kSeeds))[row] = sampling.seed;
  reinterpret_cast<int64_t*>(host(kDraws))[row] = position;
}

husk_value Model::span(int64_t end) const {
  const int64_t rounded = (end + kSpan - 1) / kSpan * kSpan;
  return integer(rounded < max_tokens ? rounded : max_tokens);
}

husk_value Model::tensor(DLTensor& tensor, void* memory, int64_t* size, DLDataType type) const {
  tensor = {};
  tensor.data = memory;
  tensor.device = device_;
  tensor.ndim = 1;
  tensor.dtype = type;
  tensor.shape = size;
  husk_value value = {HUSK_VALUE_TENSOR, 0, {nullptr}};
  value.as.tensor = &tensor;
  return value;
}

husk_value Model::column(DLTensor& to, Column which, int64_t* rows) const {
  return tensor(to, static_cast<char*>(device_rows_) + static_cast<size_t>(which) * column_bytes_,
                rows, which < kTemperature ? kInt64 : kFloat32);
}

Status Model::upload(void* to, const void* from, size_t bytes, husk_error* error) {
  return to_status(husk_engine_upload(engine_, stream_, to, from, bytes, error));
}

// Brings the columns to the device, if it does not have them.
Status Model::upload_rows(husk_error* error) {
  if (has_rows_) return Status::ok;
  HUSK_TRY(upload(device_rows_, rows_, kColumns * column_bytes_, error));
  has_rows_ = true;
  return Status::ok;
}

// Runs a function with two outputs, of which the first has memory.
Status Model::run(uint32_t function, const husk_value* inputs, uint32_t count, husk_value* outputs,
                  husk_error* error) {
  const husk_value second = outputs[1];
  husk_status status = husk_session_run(session_, function, stream_, inputs, count, outputs, 2,
                                        error);
  if (status == HUSK_NEEDS_RESIZE) {
    HUSK_TRY(to_status(husk_session_resize(session_, function, inputs, count, error)));
    outputs[1] = second;
    status = husk_session_run(session_, function, stream_, inputs, count, outputs, 2, error);
  }
  is_damaged_ = status != HUSK_OK;
  return to_status(status);
}

Status Model::prefill(const int32_t* tokens, int64_t count, int64_t slot, int64_t position,
                      husk_error* error) {
  const Timed timed(nanoseconds);
  is_damaged_ = false;
  for (int64_t i = 0; i < count; ++i) prompt_[i] = tokens[i];
  HUSK_TRY(upload(device_prompt_, prompt_, static_cast<size_t>(count) * sizeof(int64_t), error));
  DLTensor chunk_tensor, next_tensor;
  int64_t one = 1;
  const husk_value inputs[] = {tensor(chunk_tensor, device_prompt_, &count, kInt64), integer(slot),
                               integer(position), span(position + count)};
  husk_value outputs[] = {tensor(next_tensor, device_found_, &one, kInt64), kNone};
  HUSK_TRY(run(prefill_, inputs, 4, outputs, error));
  logits_ = outputs[1].as.tensor;
  return Status::ok;
}

Status Model::decode(int64_t rows, int64_t end, husk_error* error) {
  const Timed timed(nanoseconds);
  is_damaged_ = false;
  HUSK_TRY(upload_rows(error));
  DLTensor tensors[2], next_tensor;
  const husk_value inputs[] = {column(tensors[0], kTokens, &rows),
                               column(tensors[1], kPositions, &rows), span(end)};
  husk_value outputs[] = {tensor(next_tensor, device_found_, &rows, kInt64), kNone};
  HUSK_TRY(run(decode_, inputs, 3, outputs, error));
  logits_ = outputs[1].as.tensor;
  return Status::ok;
}

Status Model::finish(int64_t rows, bool samples, husk_error* error) {
  const Timed timed(nanoseconds);
  is_damaged_ = true;  // an error of the device may come from any run before
  size_t bytes = static_cast<size_t>(rows) * sizeof(int64_t);
  if (samples) {
    HUSK_TRY(upload_rows(error));
    husk_value inputs[6] = {{HUSK_VALUE_TENSOR, 0, {logits_}}};
    DLTensor tensors[7];
    static constexpr Column kInputs[] = {kTemperature, kTopK, kTopP, kSeeds, kDraws};
    for (int i = 0; i < 5; ++i) inputs[i + 1] = column(tensors[i], kInputs[i], &rows);
    char* const logprobs = static_cast<char*>(device_found_) + kLogprobs * column_bytes_;
    husk_value outputs[] = {tensor(tensors[5], device_found_, &rows, kInt64),
                            tensor(tensors[6], logprobs, &rows, kFloat32)};
    HUSK_TRY(run(sample_, inputs, 6, outputs, error));
    is_damaged_ = true;
    bytes = kLogprobs * column_bytes_ + static_cast<size_t>(rows) * sizeof(float);
  }
  HUSK_TRY(to_status(husk_engine_download(engine_, stream_, found_, device_found_, bytes, error)));
  HUSK_TRY(to_status(husk_session_wait(session_, error)));
  is_damaged_ = false;
  return Status::ok;
}

int32_t Model::token(int64_t row) const {
  int64_t token;
  memcpy(&token, found_ + static_cast<size_t>(row) * sizeof token, sizeof token);
  return static_cast<int32_t>(token);
}

float Model::logprob(int64_t row) const {
  float logprob;
  memcpy(&logprob, found_ + kLogprobs * column_bytes_ + static_cast<size_t>(row) * sizeof logprob,
         sizeof logprob);
  return logprob;
}

}  // namespace husk::text
