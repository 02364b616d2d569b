#include "text/model.h"

#include <time.h>

namespace husk::text {

namespace {

constexpr int64_t kSpan = 64;  // caches are read up to a multiple of so many positions
constexpr size_t kAlign = 256;
// Runs of a batch on a device, and the most that may be asked for.
constexpr int64_t kRuns = 2, kMostRuns = 16;
constexpr DLDataType kInt64 = {kDLInt, 64, 1}, kInt32 = {kDLInt, 32, 1},
                     kFloat32 = {kDLFloat, 32, 1};
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

}  // namespace

uint64_t nanoseconds_now() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<uint64_t>(time.tv_sec) * 1000000000u + static_cast<uint64_t>(time.tv_nsec);
}

Model::~Model() {
  husk_session_release(session_);
  if (engine_) {
    husk_engine_free(engine_, device_rows_);
    husk_engine_free(engine_, device_found_);
    husk_engine_free(engine_, device_prompt_);
    husk_engine_free(engine_, device_history_);
    husk_engine_free(engine_, device_allowed_);
    husk_engine_free(engine_, device_top_);
    husk_engine_free(engine_, device_top_logprobs_);
    husk_engine_free(engine_, device_images_);
    husk_engine_free(engine_, device_embeddings_);
    husk_engine_free(engine_, device_source_);
    husk_engine_free(engine_, device_table_);
    husk_engine_stream_destroy(engine_, stream_);
  }
  for (char* memory : rows_) free_on_host(memory);
  for (char* memory : found_) free_on_host(memory);
  for (void* memory : sent_tables_) free_on_host(memory);
  free(prompt_);
}

Status Model::allocate_on_host(size_t bytes, void** memory, husk_error* error) {
  if (has_marks) {
    HUSK_TRY(to_status(husk_engine_alloc_host(engine_, bytes, memory, error)));
    memset(*memory, 0, bytes);
    return Status::ok;
  }
  *memory = calloc(bytes, 1);
  return *memory ? Status::ok
                 : fail(error, HUSK_OUT_OF_MEMORY, "no memory for %zu bytes of rows", bytes);
}

void Model::free_on_host(void* memory) {
  if (has_marks) {
    husk_engine_free_host(engine_, memory);
  } else {
    free(memory);
  }
}

// Finds out whether the device can go on while tokens are read. For that, copies to host memory are
// enqueued, and the session has a mark behind them.
Status Model::find_marks(husk_error* error) {
  if (most_runs == 1) return Status::ok;
  void* memory = nullptr;
  husk_error why;
  husk_status status = husk_engine_alloc_host(engine_, 1, &memory, &why);
  husk_engine_free_host(engine_, memory);
  for (uint32_t block = 0; block < kBlocks && status == HUSK_OK; ++block) {
    status = husk_session_mark(session_, block, &why);
  }
  has_marks = status == HUSK_OK;
  if (has_marks || status == HUSK_UNSUPPORTED) return Status::ok;
  if (error) *error = why;
  return to_status(status);
}

Status Model::allocate(husk_error* error) {
  const auto count = static_cast<size_t>(most_rows());
  column_bytes_ = (count * sizeof(int64_t) + kAlign - 1) / kAlign * kAlign;
  const size_t prompt = static_cast<size_t>(chunk) * sizeof(int64_t);
  const size_t blocks = has_marks ? kBlocks : 1;
  const size_t row_bytes = static_cast<size_t>(most_runs) * kColumns * column_bytes_,
               found_bytes = static_cast<size_t>(most_runs) * kFounds * column_bytes_;
  for (size_t block = 0; block < blocks; ++block) {
    void* memory = nullptr;
    HUSK_TRY(allocate_on_host(row_bytes, &memory, error));
    rows_[block] = static_cast<char*>(memory);
    HUSK_TRY(allocate_on_host(found_bytes, &memory, error));
    found_[block] = static_cast<char*>(memory);
  }
  prompt_ = static_cast<int64_t*>(malloc(prompt));
  if (!prompt_) return fail(error, HUSK_OUT_OF_MEMORY, "no memory for %zu rows", count);
  HUSK_TRY(to_status(husk_engine_alloc(engine_, blocks * row_bytes, &device_rows_, error)));
  HUSK_TRY(to_status(husk_engine_alloc(engine_, blocks * found_bytes, &device_found_, error)));
  HUSK_TRY(to_status(husk_engine_alloc(engine_, prompt, &device_prompt_, error)));
  if (images.exists()) HUSK_TRY(allocate_images(error));
  if (encoder.exists()) HUSK_TRY(allocate_source(error));
  if (pages) HUSK_TRY(allocate_pages(error));
  return controls() ? allocate_controls(error) : Status::ok;
}

Status Model::allocate_images(husk_error* error) {
  const auto columns = static_cast<size_t>(chunk * (1 + images.extras()));
  HUSK_TRY(image_columns_.resize(columns, error));
  HUSK_TRY(
      to_status(husk_engine_alloc(engine_, columns * sizeof(int64_t), &device_images_, error)));
  size_t bytes = static_cast<size_t>(chunk) * sizeof(float);
  if (__builtin_mul_overflow(bytes, static_cast<size_t>(images.width), &bytes)) {
    return no_model(error, "rows of embeddings that fit into memory");
  }
  return to_status(husk_engine_alloc(engine_, bytes, &device_embeddings_, error));
}

Status Model::allocate_source(husk_error* error) {
  size_t bytes = static_cast<size_t>(encoder.features) * sizeof(float);
  if (encoder.takes_tokens()) {
    HUSK_TRY(source_tokens_.resize(static_cast<size_t>(encoder.positions), error));
    bytes = source_tokens_.size() * sizeof(int64_t);
  }
  return to_status(husk_engine_alloc(engine_, bytes, &device_source_, error));
}

Status Model::allocate_pages(husk_error* error) {
  const auto count = static_cast<size_t>(slots * columns());
  HUSK_TRY(slot_pages_.resize(count, error));
  HUSK_TRY(table_.resize(count, error));
  HUSK_TRY(device_has_.reserve(count, error));
  if (has_marks) HUSK_TRY(sent_tables_.resize(static_cast<size_t>(kBlocks * most_runs), error));
  for (void*& memory : sent_tables_) {
    HUSK_TRY(allocate_on_host(count * sizeof(int64_t), &memory, error));
  }
  return to_status(husk_engine_alloc(engine_, count * sizeof(int64_t), &device_table_, error));
}

Status Model::allocate_controls(husk_error* error) {
  const auto rows = static_cast<size_t>(slots), top = static_cast<size_t>(ranked);
  if (!top) return no_model(error, "ranked");
  HUSK_TRY(past_.resize(rows, error));
  HUSK_TRY(history_.resize(rows * static_cast<size_t>(max_tokens + 1), error));
  HUSK_TRY(allowed_.resize(rows * allowed_words(), error));
  HUSK_TRY(top_.resize(rows * top, error));
  HUSK_TRY(top_logprobs_.resize(rows * top, error));
  HUSK_TRY(top_tokens_.resize(top, error));
  const auto allocate_on_device = [&](size_t bytes, void** memory) {
    return to_status(husk_engine_alloc(engine_, bytes, memory, error));
  };
  HUSK_TRY(allocate_on_device(history_.size() * sizeof(int64_t), &device_history_));
  HUSK_TRY(allocate_on_device(allowed_.size() * sizeof(uint32_t), &device_allowed_));
  HUSK_TRY(allocate_on_device(top_.size() * sizeof(int64_t), &device_top_));
  return allocate_on_device(top_logprobs_.size() * sizeof(float), &device_top_logprobs_);
}

Status Model::open(husk_engine* engine, husk_program* program, const husk_session_options* options,
                   int64_t wanted_runs, husk_error* error) {
  HUSK_TRY(describe(program, error));
  HUSK_TRY(find_functions(program, error));
  engine_ = engine;
  husk_port_properties properties = HUSK_PORT_PROPERTIES_INIT;
  HUSK_TRY(to_status(husk_engine_properties(engine, &properties, error)));
  device_ = {static_cast<DLDeviceType>(properties.dl_device_type), properties.device_index};
  // A host has computed a run when the call returns: nothing waits for its tokens.
  most_runs = wanted_runs ? wanted_runs : properties.host_memory ? 1 : kRuns;
  if (most_runs > kMostRuns) most_runs = kMostRuns;
  HUSK_TRY(to_status(husk_engine_stream_create(engine, &stream_, error)));
  HUSK_TRY(to_status(husk_session_create(program, options, &session_, error)));
  HUSK_TRY(find_marks(error));
  HUSK_TRY(resized_.resize(husk_program_function_count(program), error));
  return allocate(error);
}

Status Model::check_tokens(const int32_t* tokens, size_t count, husk_error* error) const {
  for (size_t i = 0; i < count; ++i) {
    if (tokens[i] < 0 || tokens[i] >= vocabulary) {
      return fail(error, HUSK_INVALID_INPUT, "no token has the number %d: there are %lld",
                  tokens[i], static_cast<long long>(vocabulary));
    }
  }
  return Status::ok;
}

void Model::clear(int64_t run_number) {
  has_rows_ = false;
  is_batch_ = false;
  first_run_ = run_number;
  row_runs_ = 1;
  source_end_ = 1;
  memset(host(kTokens, first_run_), 0, kColumns * column_bytes_);
  // No token sees this position.
  for (int64_t i = 0; i < slots; ++i) numbers<int64_t>(kPositions)[i] = max_tokens;
  for (int64_t i = 0; i < most_rows(); ++i) {
    numbers<float>(kTopP)[i] = 1;
    numbers<float>(kRepetition)[i] = 1;
  }
  for (Past& past : past_) past = {};
  for (int64_t& number : slot_pages_) number = 0;
  if (!allowed_.empty()) memset(allowed_.data(), 0xFF, allowed_.size() * sizeof(uint32_t));
}

void Model::set_position(int64_t row, int64_t position) {
  numbers<int64_t>(kPositions)[row] = position;
}

void Model::set_token(int64_t row, int64_t token, int64_t position) {
  numbers<int64_t>(kTokens)[row] = token;
  set_position(row, position);
}

void Model::set_pages(int64_t slot, const int32_t* numbers, int64_t count) {
  int64_t* to = slot_pages_.data() + slot * columns();
  for (int64_t i = 0; i < count; ++i) to[i] = numbers[i];
}

void Model::set_adapter(int64_t row, int64_t adapter) {
  numbers<int64_t>(kAdapters)[row] = adapter;
}

void Model::set_shift(int64_t row, int64_t shift) { numbers<int64_t>(kShifts)[row] = shift; }

void Model::set_source(const Source& source) {
  const auto length = static_cast<int64_t>(source.tokens().size());
  if (length > source_end_) source_end_ = length;
}

void Model::set_token_of(int64_t slot, int64_t k, int64_t count, int64_t token) {
  numbers<int64_t>(kTokens)[slot * count + k] = token;
}

void Model::set_sampling(int64_t row, const Sampling& sampling, int64_t position) {
  numbers<float>(kTemperature)[row] = sampling.temperature;
  numbers<float>(kTopP)[row] = sampling.top_p;
  numbers<float>(kMinP)[row] = sampling.min_p;
  numbers<int64_t>(kTopK)[row] = sampling.top_k;
  numbers<int64_t>(kSeeds)[row] = sampling.seed;
  numbers<int64_t>(kDraws)[row] = position;
}

void Model::set_controls(int64_t row, const Controls& controls, const int32_t* tokens,
                         int64_t count, int64_t prompt) {
  numbers<float>(kRepetition)[row] = controls.repetition;
  numbers<float>(kPresence)[row] = controls.presence;
  numbers<float>(kFrequency)[row] = controls.frequency;
  numbers<int64_t>(kLengths)[row] = count;
  numbers<int64_t>(kPrompts)[row] = prompt;
  past_[static_cast<size_t>(row)] = {tokens, count};
}

uint32_t* Model::allowed(int64_t row) {
  return allowed_.data() + static_cast<size_t>(row) * allowed_words();
}

bool Model::allows_any(int64_t row) {
  uint32_t* words = allowed(row);
  const size_t count = allowed_words();
  const auto rest = static_cast<uint32_t>(vocabulary % 32);
  if (rest) words[count - 1] &= (1u << rest) - 1;  // bits without a token
  for (size_t i = 0; i < count; ++i) {
    if (words[i]) return true;
  }
  return false;
}

void Model::repeat_rows(int64_t runs) {
  for (int64_t ahead = 1; ahead < runs; ++ahead) {
    const int64_t run = first_run_ + ahead;
    memcpy(host(kTokens, run), host(kTokens, first_run_), kColumns * column_bytes_);
    for (int64_t i = 0; i < slots; ++i) {
      int64_t& position = reinterpret_cast<int64_t*>(host(kPositions, run))[i];
      if (position < max_tokens) position += ahead;
      reinterpret_cast<int64_t*>(host(kDraws, run))[i] += ahead;
    }
  }
  row_runs_ = runs;
  is_batch_ = has_marks;
}

husk_value Model::source_span() const {
  const int64_t rounded = (source_end_ + kSpan - 1) / kSpan * kSpan;
  return integer(rounded < encoder.positions ? rounded : encoder.positions);
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

husk_value Model::table(DLTensor& to, void* memory, int64_t* sizes, DLDataType type) const {
  const husk_value value = tensor(to, memory, sizes, type);
  to.ndim = 2;
  return value;
}

husk_value Model::column(DLTensor& to, Column which, int64_t* rows, int64_t run) const {
  const bool is_whole = which < kTemperature || which == kLengths || which == kPrompts;
  return tensor(to, static_cast<char*>(device_rows_) + row_at(which, run), rows,
                is_whole ? kInt64 : kFloat32);
}

husk_value Model::found(DLTensor& to, Found which, int64_t* rows, int64_t run) const {
  return tensor(to, static_cast<char*>(device_found_) + found_at(which, run), rows,
                which == kNext ? kInt64 : kFloat32);
}

Status Model::upload(void* to, const void* from, size_t bytes, husk_error* error) {
  return to_status(husk_engine_upload(engine_, stream_, to, from, bytes, error));
}

// Enqueues a copy. The host goes on, and leaves its memory alone until the copy is done.
Status Model::copy_bytes(void* to, const void* from, size_t bytes, husk_error* error) {
  return to_status(husk_engine_copy(engine_, stream_, to, from, bytes, error));
}

// Brings the columns to the device, if it does not have them.
Status Model::upload_rows(husk_error* error) {
  if (has_rows_) return Status::ok;
  const size_t columns = static_cast<size_t>(row_runs_ - 1) * kColumns + column_count();
  const auto bring = is_batch_ ? &Model::copy_bytes : &Model::upload;
  HUSK_TRY((this->*bring)(static_cast<char*>(device_rows_) + row_at(kTokens, first_run_),
                          host(kTokens, first_run_), columns * column_bytes_, error));
  has_rows_ = true;
  return Status::ok;
}

// Brings the pages of the positions before `end` of some slots to the device, if it does not have
// them, and sets the sizes of the table. Few steps change it.
Status Model::upload_pages(int64_t first, int64_t rows, int64_t end, int64_t run_number,
                           int64_t* sizes, husk_error* error) {
  sizes[0] = rows;
  sizes[1] = (end + page - 1) / page;
  const auto width = static_cast<size_t>(sizes[1]);
  const size_t count = static_cast<size_t>(rows) * width;
  for (int64_t row = 0; row < rows; ++row) {
    memcpy(table_.data() + static_cast<size_t>(row) * width,
           slot_pages_.data() + (first + row) * columns(), width * sizeof(int64_t));
  }
  const size_t bytes = count * sizeof(int64_t);
  if (device_has_.size() == count && memcmp(device_has_.data(), table_.data(), bytes) == 0) {
    return Status::ok;
  }
  device_has_.clear();
  if (is_batch_) {
    void* const sent = sent_tables_[static_cast<size_t>(run_number)];
    memcpy(sent, table_.data(), bytes);
    HUSK_TRY(copy_bytes(device_table_, sent, bytes, error));
  } else {
    HUSK_TRY(upload(device_table_, table_.data(), bytes, error));
  }
  return device_has_.append(table_.data(), count, error);
}

// Sets what a function takes for the positions before `end` of some slots.
Status Model::see(int64_t first, int64_t rows, int64_t end, int64_t run_number, Seen& seen,
                  husk_error* error) {
  if (!pages) {
    const int64_t rounded = (end + kSpan - 1) / kSpan * kSpan;
    seen.value = integer(rounded < max_tokens ? rounded : max_tokens);
    return Status::ok;
  }
  HUSK_TRY(upload_pages(first, rows, end, run_number, seen.sizes, error));
  seen.value = table(seen.tensor, device_table_, seen.sizes, kInt64);
  return Status::ok;
}

// The same for a prompt of one slot, whose table has one dimension.
Status Model::see_slot(int64_t slot, int64_t end, Seen& seen, husk_error* error) {
  HUSK_TRY(see(slot, 1, end, 0, seen, error));
  if (pages) seen.value = tensor(seen.tensor, device_table_, seen.sizes + 1, kInt64);
  return Status::ok;
}

Status Model::run(uint32_t function, const husk_value* inputs, uint32_t count, husk_value* outputs,
                  uint32_t output_count, husk_error* error) {
  const husk_value last = outputs[output_count - 1];  // those before it have memory
  // Only a resize makes a graph. That of a plan at the bounds is for all sizes.
  if (!resized_[function]) HUSK_TRY(resize(function, inputs, count, error));
  husk_status status = husk_session_run(session_, function, stream_, inputs, count, outputs,
                                        output_count, error);
  if (status == HUSK_NEEDS_RESIZE) {
    HUSK_TRY(resize(function, inputs, count, error));
    outputs[output_count - 1] = last;
    status = husk_session_run(session_, function, stream_, inputs, count, outputs, output_count,
                              error);
  }
  is_damaged_ = status != HUSK_OK;
  return to_status(status);
}

Status Model::resize(uint32_t function, const husk_value* inputs, uint32_t count,
                     husk_error* error) {
  HUSK_TRY(to_status(husk_session_resize(session_, function, inputs, count, error)));
  resized_[function] = 1;
  return Status::ok;
}

Status Model::encode(const Source& source, int64_t slot, husk_error* error) {
  const Timed timed(nanoseconds);
  is_damaged_ = false;
  const List<int32_t>& tokens = source.tokens();
  auto count = static_cast<int64_t>(tokens.size());
  DLTensor input, found;
  int64_t one = 1;
  husk_value inputs[] = {kNone, integer(slot)};
  if (encoder.takes_tokens()) {
    for (size_t i = 0; i < tokens.size(); ++i) source_tokens_[i] = tokens[i];
    HUSK_TRY(upload(device_source_, source_tokens_.data(), tokens.size() * sizeof(int64_t), error));
    inputs[0] = tensor(input, device_source_, &count, kInt64);
  } else {
    const size_t bytes = static_cast<size_t>(encoder.features) * sizeof(float);
    HUSK_TRY(upload(device_source_, source.features(), bytes, error));
    inputs[0] = tensor(input, device_source_, encoder.shape.data(), kFloat32);
    input.ndim = static_cast<int32_t>(encoder.shape.size());
  }
  husk_value output = tensor(found, device_found_, &one, kInt64);
  return run(encode_, inputs, 2, &output, 1, error);
}

Status Model::prefill(const int32_t* tokens, int64_t count, int64_t slot, int64_t position,
                      int64_t adapter, husk_error* error) {
  const Timed timed(nanoseconds);
  is_damaged_ = false;
  for (int64_t i = 0; i < count; ++i) prompt_[i] = tokens[i];
  HUSK_TRY(upload(device_prompt_, prompt_, static_cast<size_t>(count) * sizeof(int64_t), error));
  DLTensor chunk_tensor, next_tensor;
  Seen seen;
  HUSK_TRY(see_slot(slot, position + count, seen, error));
  int64_t one = 1;
  husk_value outputs[] = {tensor(next_tensor, device_found_, &one, kInt64), kNone};
  const husk_value inputs[] = {tensor(chunk_tensor, device_prompt_, &count, kInt64), integer(slot),
                               integer(position), seen.value,
                               encoder.takes_tokens() ? source_span() : integer(adapter)};
  HUSK_TRY(run(prefill_, inputs, 4 + prefill_inputs(), outputs, 2, error));
  logits_ = outputs[1].as.tensor;
  return Status::ok;
}

Status Model::prefill_images(const int32_t* tokens, int64_t begin, int64_t end, int64_t slot,
                             const PromptImages& from, husk_error* error) {
  const Timed timed(nanoseconds);
  is_damaged_ = false;
  int64_t count = end - begin, first, embedded;
  for (int64_t i = 0; i < count; ++i) prompt_[i] = tokens[i];
  int64_t* const columns = image_columns_.data();
  from.fill(begin, end, columns, columns + count, &first, &embedded);
  const auto size = static_cast<size_t>(count) * sizeof(int64_t);
  HUSK_TRY(upload(device_prompt_, prompt_, size, error));
  HUSK_TRY(upload(device_images_, columns, size * static_cast<size_t>(1 + images.extras()), error));
  HUSK_TRY(upload(device_embeddings_, from.row(first),
                  static_cast<size_t>(embedded * images.width) * sizeof(float), error));
  DLTensor tensors[4], next_tensor;
  int64_t one = 1, row_sizes[] = {embedded, images.width}, place_sizes[] = {3, count};
  void* const extras = static_cast<char*>(device_images_) + size;
  Seen seen;
  HUSK_TRY(see_slot(slot, end, seen, error));
  const husk_value inputs[] = {tensor(tensors[0], device_prompt_, &count, kInt64),
                               integer(slot),
                               integer(begin),
                               seen.value,
                               tensor(tensors[1], device_images_, &count, kInt64),
                               table(tensors[2], device_embeddings_, row_sizes, kFloat32),
                               images.has_grid() ? table(tensors[3], extras, place_sizes, kInt64)
                                                 : tensor(tensors[3], extras, &count, kInt64)};
  husk_value outputs[] = {tensor(next_tensor, device_found_, &one, kInt64), kNone};
  HUSK_TRY(run(prefill_images_, inputs, images.extras() ? 7 : 6, outputs, 2, error));
  logits_ = outputs[1].as.tensor;
  return Status::ok;
}

Status Model::image(const float* pixels, float* rows, husk_error* error) {
  const Timed timed(nanoseconds);
  const auto bytes = static_cast<size_t>(images.pixels) * sizeof(float);
  void* memory = nullptr;
  HUSK_TRY(to_status(husk_engine_alloc(engine_, bytes, &memory, error)));
  DLTensor picture;
  const husk_value input = [&] {
    const husk_value value = tensor(picture, memory, images.shape.data(), kFloat32);
    picture.ndim = static_cast<int32_t>(images.shape.size());
    return value;
  }();
  husk_value output = kNone;
  Status status = upload(memory, pixels, bytes, error);
  if (!failed(status)) status = run(image_, &input, 1, &output, 1, error);
  if (!failed(status)) {
    const DLTensor* found = output.as.tensor;
    const bool is_right = found->ndim == 2 && found->shape[0] == images.rows &&
                          found->shape[1] == images.width &&
                          (!found->strides ||
                           (found->strides[0] == images.width && found->strides[1] == 1));
    status = is_right ? Status::ok : no_model(error, "rows of images that are one after the other");
    if (is_right)
      status = to_status(husk_engine_download(
          engine_, stream_, rows, static_cast<const char*>(found->data) + found->byte_offset,
          static_cast<size_t>(images.rows * images.width) * sizeof(float), error));
  }
  if (!failed(status)) status = to_status(husk_session_wait(session_, error));
  husk_engine_free(engine_, memory);
  return status;
}

Status Model::decode(int64_t rows, int64_t end, int64_t run_number, int64_t from,
                     husk_error* error) {
  return take_token(decode_, 0, rows, end, run_number, from, error);
}

Status Model::decode_single(int64_t slot, int64_t end, int64_t run_number, int64_t from,
                            husk_error* error) {
  return take_token(single_, slot, 1, end, run_number, from, error);
}

// Runs `decode`, or `single`, which has one input more, the slot.
Status Model::take_token(uint32_t function, int64_t slot, int64_t rows, int64_t end,
                         int64_t run_number, int64_t from, husk_error* error) {
  const Timed timed(nanoseconds);
  is_damaged_ = false;
  HUSK_TRY(upload_rows(error));
  DLTensor tensors[3], next_tensor;
  Seen seen;
  HUSK_TRY(see(slot, rows, end, run_number, seen, error));
  husk_value inputs[5];
  uint32_t count = 0;
  inputs[count++] = from == kRows ? column(tensors[0], kTokens, &rows, run_number)
                                  : found(tensors[0], kNext, &rows, from);
  inputs[count++] = column(tensors[1], kPositions, &rows, run_number);
  if (function == single_) inputs[count++] = integer(slot);
  inputs[count++] = seen.value;
  inputs[count++] = encoder.takes_tokens() ? source_span()
                                           : column(tensors[2], row_column(), &rows, run_number);
  husk_value outputs[] = {found(next_tensor, kNext, &rows, run_number), kNone};
  HUSK_TRY(run(function, inputs, count - 1 + row_inputs(), outputs, 2, error));
  logits_ = outputs[1].as.tensor;
  return Status::ok;
}

Status Model::verify(int64_t rows, int64_t count, int64_t end, husk_error* error) {
  const Timed timed(nanoseconds);
  is_damaged_ = false;
  HUSK_TRY(upload_rows(error));
  DLTensor tensors[3], next_tensor;
  int64_t sizes[] = {rows, count}, all = rows * count;
  Seen seen;
  HUSK_TRY(see(0, rows, end, 0, seen, error));
  const husk_value inputs[] = {table(tensors[0], device_rows_, sizes, kInt64),
                               column(tensors[1], kPositions, &rows), seen.value,
                               column(tensors[2], row_column(), &rows)};
  husk_value outputs[] = {tensor(next_tensor, device_found_, &all, kInt64), kNone};
  HUSK_TRY(run(verify_, inputs, 3 + row_inputs(), outputs, 2, error));
  logits_ = outputs[1].as.tensor;
  return Status::ok;
}

Status Model::embed(const int32_t* tokens, int64_t count, bool last, float* to, size_t capacity,
                    size_t* size, husk_error* error) {
  const Timed timed(nanoseconds);
  for (int64_t i = 0; i < count; ++i) prompt_[i] = tokens[i];
  HUSK_TRY(upload(device_prompt_, prompt_, static_cast<size_t>(count) * sizeof(int64_t), error));
  DLTensor text;
  const husk_value input = tensor(text, device_prompt_, &count, kInt64);
  husk_value outputs[] = {kNone, kNone};
  husk_status status = husk_session_run(session_, embed_, stream_, &input, 1, outputs, 2, error);
  if (status == HUSK_NEEDS_RESIZE) {
    HUSK_TRY(to_status(husk_session_resize(session_, embed_, &input, 1, error)));
    outputs[0] = outputs[1] = kNone;
    status = husk_session_run(session_, embed_, stream_, &input, 1, outputs, 2, error);
  }
  HUSK_TRY(to_status(status));
  const DLTensor* hidden = outputs[0].as.tensor;
  *size = static_cast<size_t>(hidden->shape[1]);
  const size_t written = *size < capacity ? *size : capacity;
  const DLTensor* from = last ? hidden : outputs[1].as.tensor;
  const char* data = static_cast<const char*>(from->data) + from->byte_offset;
  if (last) data += static_cast<size_t>(count - 1) * *size * sizeof(float);
  if (written) {
    HUSK_TRY(to_status(
        husk_engine_download(engine_, stream_, to, data, written * sizeof(float), error)));
  }
  return to_status(husk_session_wait(session_, error));
}

Status Model::copy(int64_t source, int64_t slot, int64_t position, int64_t count,
                   husk_error* error) {
  const Timed timed(nanoseconds);
  is_damaged_ = false;
  const husk_value inputs[] = {integer(source), integer(slot), integer(position), integer(count)};
  husk_value end = kNone;
  return run(copy_, inputs, 4, &end, 1, error);
}

Status Model::copy_page(int64_t source, int64_t number, int64_t from, int64_t slot,
                        husk_error* error) {
  const Timed timed(nanoseconds);
  is_damaged_ = false;
  const husk_value inputs[] = {integer(source), integer(number), integer(from), integer(slot)};
  husk_value copied = kNone;
  return run(copy_, inputs, has_rows() ? 4 : 2, &copied, 1, error);
}

// Applies penalties and masks to the logits of the last run.
Status Model::adjust(int64_t rows, DLTensor** logits, husk_error* error) {
  int64_t longest = 1;
  for (int64_t row = 0; row < rows; ++row) {
    const Past& past = past_[static_cast<size_t>(row)];
    if (past.count > longest) longest = past.count;
  }
  longest = (longest + kSpan - 1) / kSpan * kSpan;
  if (longest > max_tokens + 1) longest = max_tokens + 1;
  const auto width = static_cast<size_t>(longest);
  for (int64_t row = 0; row < rows; ++row) {
    const Past& past = past_[static_cast<size_t>(row)];
    int64_t* to = history_.data() + static_cast<size_t>(row) * width;
    memset(to, 0, width * sizeof(int64_t));
    for (int64_t i = 0; i < past.count; ++i) to[i] = past.tokens[i];
  }
  const auto count = static_cast<size_t>(rows);
  HUSK_TRY(upload_rows(error));
  HUSK_TRY(upload(device_history_, history_.data(), count * width * sizeof(int64_t), error));
  HUSK_TRY(
      upload(device_allowed_, allowed_.data(), count * allowed_words() * sizeof(uint32_t), error));
  int64_t history_sizes[] = {rows, longest};
  int64_t allowed_sizes[] = {rows, static_cast<int64_t>(allowed_words())};
  DLTensor tensors[7];
  const husk_value inputs[] = {{HUSK_VALUE_TENSOR, 0, {logits_}},
                               table(tensors[0], device_history_, history_sizes, kInt64),
                               column(tensors[1], kLengths, &rows),
                               column(tensors[2], kPrompts, &rows),
                               column(tensors[3], kRepetition, &rows),
                               column(tensors[4], kPresence, &rows),
                               column(tensors[5], kFrequency, &rows),
                               table(tensors[6], device_allowed_, allowed_sizes, kInt32)};
  husk_value output = kNone;
  HUSK_TRY(run(adjust_, inputs, 8, &output, 1, error));
  *logits = output.as.tensor;
  return Status::ok;
}

// Whether all rows take one of the most likely tokens, as many as `sample_few` puts in order.
bool Model::draws_from_few(int64_t rows) const {
  const auto* temperature = numbers<const float>(kTemperature);
  const auto* top_k = numbers<const int64_t>(kTopK);
  for (int64_t i = 0; i < rows; ++i) {
    if (temperature[i] > 0 && !(top_k[i] >= 1 && top_k[i] <= candidates)) return false;
  }
  return candidates > 0;
}

Status Model::sample(int64_t rows, DLTensor* logits, int64_t run_number, husk_error* error) {
  HUSK_TRY(upload_rows(error));
  husk_value inputs[7] = {{HUSK_VALUE_TENSOR, 0, {logits}}};
  DLTensor tensors[8];
  static constexpr Column kInputs[] = {kTemperature, kTopK, kTopP, kMinP, kSeeds, kDraws};
  for (int i = 0; i < 6; ++i) inputs[i + 1] = column(tensors[i], kInputs[i], &rows, run_number);
  husk_value outputs[] = {found(tensors[6], kNext, &rows, run_number),
                          found(tensors[7], kLogprobs, &rows, run_number)};
  return run(draws_from_few(rows) ? sample_few_ : sample_, inputs, 7, outputs, 2, error);
}

// Log-probabilities of the tokens that `sample` has drawn, and of the most likely ones, by the
// logits of the last run.
Status Model::rank(int64_t rows, int64_t run_number, husk_error* error) {
  DLTensor tensors[4];
  int64_t sizes[] = {rows, ranked};
  const husk_value inputs[] = {{HUSK_VALUE_TENSOR, 0, {logits_}},
                               found(tensors[0], kNext, &rows, run_number)};
  husk_value outputs[] = {found(tensors[1], kLogprobs, &rows, run_number),
                          table(tensors[2], device_top_, sizes, kInt64),
                          table(tensors[3], device_top_logprobs_, sizes, kFloat32)};
  return run(rank_, inputs, 2, outputs, 3, error);
}

Status Model::choose(int64_t rows, const Wanted& wanted, int64_t run_number, husk_error* error) {
  const Timed timed(nanoseconds);
  DLTensor* logits = logits_;
  is_damaged_ = true;  // an error of the device may come from any run before
  if (wanted.adjusts) HUSK_TRY(adjust(rows, &logits, error));
  if (wanted.samples || wanted.adjusts) HUSK_TRY(sample(rows, logits, run_number, error));
  is_damaged_ = true;
  if (wanted.ranks) HUSK_TRY(rank(rows, run_number, error));
  is_damaged_ = true;
  return Status::ok;
}

size_t Model::found_bytes(int64_t rows, const Wanted& wanted, int64_t runs) const {
  const bool has_logprobs = wanted.samples || wanted.adjusts || wanted.ranks;
  const size_t last = found_at(has_logprobs ? kLogprobs : kNext, runs - 1),
               size = has_logprobs ? sizeof(float) : sizeof(int64_t);
  return last + static_cast<size_t>(rows) * size;
}

Status Model::send(int64_t rows, const Wanted& wanted, int64_t first, int64_t runs,
                   husk_error* error) {
  if (!has_marks || wanted.ranks) return Status::ok;
  const Timed timed(nanoseconds);
  const int64_t block = first / most_runs;
  HUSK_TRY(copy_bytes(found_[block], static_cast<char*>(device_found_) + found_at(kNext, first),
                      found_bytes(rows, wanted, runs), error));
  return to_status(husk_session_mark(session_, static_cast<uint32_t>(block), error));
}

Status Model::receive(int64_t rows, const Wanted& wanted, int64_t first, int64_t runs,
                      husk_error* error) {
  if (!has_marks || wanted.ranks) return read(rows, wanted, first, runs, error);
  const Timed timed(nanoseconds);
  is_damaged_ = true;
  const auto block = static_cast<uint32_t>(first / most_runs);
  HUSK_TRY(to_status(husk_session_wait_mark(session_, block, error)));
  is_damaged_ = false;
  return Status::ok;
}

Status Model::read(int64_t rows, const Wanted& wanted, int64_t first, int64_t runs,
                   husk_error* error) {
  const Timed timed(nanoseconds);
  const auto download = [&](void* to, const void* from, size_t bytes) {
    return to_status(husk_engine_download(engine_, stream_, to, from, bytes, error));
  };
  if (wanted.ranks) {
    const auto count = static_cast<size_t>(rows) * static_cast<size_t>(ranked);
    HUSK_TRY(download(top_.data(), device_top_, count * sizeof(int64_t)));
    HUSK_TRY(download(top_logprobs_.data(), device_top_logprobs_, count * sizeof(float)));
  }
  HUSK_TRY(download(found_[first / most_runs],
                    static_cast<char*>(device_found_) + found_at(kNext, first),
                    found_bytes(rows, wanted, runs)));
  HUSK_TRY(to_status(husk_session_wait(session_, error)));
  is_damaged_ = false;
  return Status::ok;
}

Status Model::finish(int64_t rows, const Wanted& wanted, husk_error* error) {
  HUSK_TRY(choose(rows, wanted, 0, error));
  return read(rows, wanted, 0, 1, error);
}

Chosen Model::chosen(int64_t row, uint32_t top, int64_t run_number) {
  Chosen result;
  const auto at = static_cast<size_t>(row);
  int64_t token;
  memcpy(&token, found_on_host(kNext, run_number) + at * sizeof token, sizeof token);
  result.token = static_cast<int32_t>(token);
  memcpy(&result.logprob, found_on_host(kLogprobs, run_number) + at * sizeof(float), sizeof(float));
  if (top == 0) return result;
  const size_t first = at * static_cast<size_t>(ranked);
  for (size_t i = 0; i < top; ++i) top_tokens_[i] = static_cast<int32_t>(top_[first + i]);
  result.top_count = top;
  result.top_tokens = top_tokens_.data();
  result.top_logprobs = top_logprobs_.data() + first;
  return result;
}

}  // namespace husk::text
