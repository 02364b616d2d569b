#include "text/adapters.h"

#include <math.h>

#include <husk/dtype.h>

#include "base/halves.h"

namespace husk::text {

namespace {

constexpr char kPrefix[] = "base_model.model.";  // of the names in a file
constexpr char kModel[] = "model.";              // of the names in a program
constexpr char kA[] = ".lora_A", kB[] = ".lora_B";
constexpr char kWeight[] = ".weight";
constexpr double kMostBytes = 9007199254740992.0;  // 2^53: numbers of JSON are doubles

bool begins_with(Span text, const char* literal) {
  const size_t size = strlen(literal);
  return text.size >= size && memcmp(text.data, literal, size) == 0;
}

// Whether a text ends with a literal, which is then taken away.
bool strip_end(Span& text, Span end) {
  if (text.size < end.size || !equal(text.from(text.size - end.size), end)) return false;
  text.size -= end.size;
  return true;
}

bool contains(Span text, const char* literal) {
  const size_t size = strlen(literal);
  for (size_t i = 0; i + size <= text.size; ++i) {
    if (memcmp(text.data + i, literal, size) == 0) return true;
  }
  return false;
}

// A name for a message, which has room for a part of a long one. Names of a file may have bytes
// that are not to be printed.
struct Printed {
  explicit Printed(Span name) {
    const bool is_cut = name.size > sizeof text - 4;
    size_t size = is_cut ? sizeof text - 4 : name.size;
    for (size_t i = 0; i < size; ++i) {
      const char one = name.data[i];
      text[i] = one > ' ' && one <= '~' ? one : '?';
    }
    for (int i = 0; is_cut && i < 3; ++i) text[size++] = '.';
    text[size] = '\0';
  }
  char text[96];
};

// The element type of a matrix that can be read; 0 for others.
husk_dtype dtype_of(Span name) {
  if (equal(name, "F32")) return HUSK_F32;
  if (equal(name, "F16")) return HUSK_F16;
  return equal(name, "BF16") ? HUSK_BF16 : 0;
}

size_t bytes_of(husk_dtype dtype) { return dtype == HUSK_F32 ? 4 : 2; }

float number_at(const char* data, size_t i, husk_dtype dtype) {
  if (dtype == HUSK_F32) {
    float result;
    memcpy(&result, data + i * sizeof result, sizeof result);
    return result;
  }
  uint16_t bits;
  memcpy(&bits, data + i * sizeof bits, sizeof bits);
  return dtype == HUSK_F16 ? from_half(bits) : from_bfloat16(bits);
}

void put(char* to, size_t i, husk_dtype dtype, float number) {
  if (dtype == HUSK_F32) {
    memcpy(to + i * sizeof number, &number, sizeof number);
    return;
  }
  const uint16_t bits = dtype == HUSK_F16 ? to_half(number) : to_bfloat16(number);
  memcpy(to + i * sizeof bits, &bits, sizeof bits);
}

Status cut_file(husk_error* error, const char* what) {
  return fail(error, HUSK_INVALID_INPUT,
              "the adapter's safetensors are damaged: %s. Copy the file again", what);
}

Status unsupported(husk_error* error, const char* what) {
  return fail(error, HUSK_UNSUPPORTED, "the adapter has %s, which Husk does not compute", what);
}

// Whether a member of the configuration asks for something.
bool asks(const JsonValue* value) {
  if (!value) return false;
  switch (value->kind) {
    case JsonKind::null: return false;
    case JsonKind::boolean: return value->truth;
    case JsonKind::number:
    case JsonKind::array:
    case JsonKind::object: return value->number != 0;
    case JsonKind::string: return true;
  }
  return true;
}

}  // namespace

// The settings in adapter_config.json.
struct Adapters::Settings {
  Json json;
  double alpha = 0, rank = 0;
  bool is_rank_stabilized = false, has_ranks = false;
  const JsonValue* alphas = nullptr;

  Status read(Span config, husk_error* error) {
    const Status status = json.parse(config, error);
    if (failed(status)) {
      prefix(error, "adapter_config.json: ");
      return status;
    }
    HUSK_TRY(refuse_others(error));
    const JsonValue* r = json.member(json.root(), "r");
    const JsonValue* found = json.member(json.root(), "lora_alpha");
    rank = r && r->kind == JsonKind::number ? r->number : 0;
    alpha = found && found->kind == JsonKind::number ? found->number : NAN;
    if (!(rank >= 1) || !isfinite(alpha)) {
      return fail(error, HUSK_INVALID_INPUT, "adapter_config.json has no number %s",
                  rank >= 1 ? "lora_alpha" : "r");
    }
    is_rank_stabilized = json.has_true(json.root(), "use_rslora");
    has_ranks = asks(json.member(json.root(), "rank_pattern"));
    alphas = json.member(json.root(), "alpha_pattern");
    return check_patterns(error);
  }

  // The factor of the matrix B of a layer.
  float scale_of(Span layer, int64_t layer_rank) const {
    double found = alpha;
    for (const JsonValue* one = alphas ? json.first(alphas) : nullptr;
         one && one != json.end(alphas); one = json.after(one + 1)) {
      Span rest = layer;
      if (!strip_end(rest, json.text(one))) continue;
      if (rest.size && rest.data[rest.size - 1] != '.') continue;
      found = one[1].number;
      break;
    }
    const auto divisor = static_cast<double>(layer_rank);
    return static_cast<float>(found / (is_rank_stabilized ? sqrt(divisor) : divisor));
  }

 private:
  // Refuses what changes a model in another way than by two matrices.
  Status refuse_others(husk_error* error) const {
    const JsonValue* root = json.root();
    const JsonValue* kind = json.member(root, "peft_type");
    if (kind && !json.has_text(root, "peft_type", "LORA")) {
      return fail(error, HUSK_UNSUPPORTED, "the adapter is of the kind %s: Husk takes LORA",
                  Printed(json.text(kind)).text);
    }
    static constexpr struct {
      const char *name, *what;
    } others[] = {
#define HUSK_PEFT_SETTING(name, what) {#name, #what " (" #name ")"},
#include <adapters.def>
    };
    for (const auto& other : others) {
      if (asks(json.member(root, other.name))) return unsupported(error, other.what);
    }
    const JsonValue* bias = json.member(root, "bias");
    if (bias && !json.has_text(root, "bias", "none")) {
      return unsupported(error, "biases of layers (bias is not \"none\")");
    }
    const JsonValue* initial = json.member(root, "init_lora_weights");
    if (initial && initial->kind == JsonKind::string) {
      const Span name = json.text(initial);
      static constexpr const char* kinds[] = {
#define HUSK_PEFT_INITIAL(name) #name,
#include <adapters.def>
      };
      for (const char* changing : kinds) {
        if (!begins_with(name, changing)) continue;
        return fail(error, HUSK_UNSUPPORTED,
                    "the adapter belongs to a model whose weights %s has changed "
                    "(init_lora_weights): save it with path_initial_model_for_weight_conversion",
                    changing);
      }
    }
    return Status::ok;
  }

  // PEFT takes the names in `alpha_pattern` for regular expressions; here they are ends of names.
  Status check_patterns(husk_error* error) const {
    if (!alphas) return Status::ok;
    if (alphas->kind != JsonKind::object) {
      return fail(error, HUSK_INVALID_INPUT, "alpha_pattern of adapter_config.json is no object");
    }
    for (const JsonValue* one = json.first(alphas); one != json.end(alphas);
         one = json.after(one + 1)) {
      const Span name = json.text(one);
      bool is_plain = name.size > 0;
      for (size_t i = 0; i < name.size; ++i) {
        const char c = name.data[i];
        is_plain &= (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                    c == '_' || c == '.';
      }
      if (is_plain && one[1].kind == JsonKind::number) continue;
      return fail(error, HUSK_UNSUPPORTED,
                  "alpha_pattern of adapter_config.json has %s: give names of layers, and numbers",
                  Printed(name).text);
    }
    return Status::ok;
  }
};

Status Adapters::add_layer(uint32_t constant, const husk_storage_info& a, husk_error* error) {
  Span name(a.name);
  if (!begins_with(name, kModel) || !strip_end(name, Span(kA))) return Status::ok;
  List<char> other;
  HUSK_TRY(other.append(name.data, name.size, error));
  HUSK_TRY(other.append(kB, sizeof kB, error));
  Layer layer = {name.from(strlen(kModel)), constant, 0, 0, 0, a.dtype};
  husk_storage_info b = HUSK_STORAGE_INFO_INIT;
  HUSK_TRY(to_status(husk_program_find_constant(program_, other.data(), &layer.b, error)));
  HUSK_TRY(to_status(husk_program_constant(program_, layer.b, &b, error)));
  const bool fits = a.rank == 3 && b.rank == 3 && a.dims[0] == count_ + 1 &&
                    b.dims[0] == count_ + 1 && a.dims[1] == rank_ && b.dims[2] == rank_ &&
                    a.dtype == b.dtype &&
                    (a.dtype == HUSK_F32 || a.dtype == HUSK_F16 || a.dtype == HUSK_BF16);
  if (!fits) {
    return fail(error, HUSK_INVALID_FILE, "the constant %s is no matrix of adapters",
                Printed(Span(a.name)).text);
  }
  layer.inputs = a.dims[2];
  layer.outputs = b.dims[1];
  return layers_.push(layer, error);
}

Status Adapters::open(husk_program* program, int64_t adapter_count, int64_t largest_rank,
                      husk_error* error) {
  program_ = program;
  count_ = adapter_count;
  rank_ = largest_rank;
  const uint32_t constants = count_ ? husk_program_constant_count(program) : 0;
  for (uint32_t i = 0; i < constants; ++i) {
    husk_storage_info info = HUSK_STORAGE_INFO_INIT;
    HUSK_TRY(to_status(husk_program_constant(program, i, &info, error)));
    HUSK_TRY(add_layer(i, info, error));
  }
  if (count_ && layers_.empty()) {
    return fail(error, HUSK_INVALID_FILE, "the file has no constants for its adapters");
  }
  return states_.resize(static_cast<size_t>(count_) + 1, error);
}

// One tensor of the file.
Status Adapters::read_entry(Span name, const Json& json, const JsonValue* value, Span data,
                            List<Pair>& pairs, husk_error* error) const {
  const Printed printed(name);
#define HUSK_PEFT_TENSOR(part, what) \
  if (contains(name, #part)) return unsupported(error, #what);
#include <adapters.def>
  Span layer = name;
  const bool is_weight = begins_with(name, kPrefix) && strip_end(layer, Span(kWeight));
  const bool is_a = is_weight && strip_end(layer, Span(kA));
  if (!is_weight || (!is_a && !strip_end(layer, Span(kB)))) {
    return fail(error, HUSK_UNSUPPORTED,
                "the adapter has the tensor %s: Husk takes base_model.model.LAYER.lora_A.weight "
                "and lora_B.weight of PEFT",
                printed.text);
  }
  layer = layer.from(strlen(kPrefix));
  size_t index = 0;
  while (index < layers_.size() && !equal(layers_[index].name, layer)) ++index;
  if (index == layers_.size()) {
    return fail(error, HUSK_INVALID_INPUT,
                "the file of the model has no room for an adapter of %s: export the model with "
                "this layer among --adapter-targets",
                Printed(layer).text);
  }
  Matrix& matrix = is_a ? pairs[index].a : pairs[index].b;
  if (matrix.data) {
    return fail(error, HUSK_INVALID_INPUT, "the adapter has %s twice", printed.text);
  }
  const JsonValue* type = json.member(value, "dtype");
  const JsonValue* shape = json.member(value, "shape");
  const JsonValue* offsets = json.member(value, "data_offsets");
  if (!type || type->kind != JsonKind::string || !shape || shape->kind != JsonKind::array ||
      !offsets || offsets->kind != JsonKind::array || offsets->number != 2) {
    return cut_file(error, "a tensor has no dtype, shape and data_offsets");
  }
  matrix.dtype = dtype_of(json.text(type));
  if (!matrix.dtype) {
    return fail(error, HUSK_UNSUPPORTED, "%s has the type %s: Husk takes F32, F16 and BF16",
                printed.text, Printed(json.text(type)).text);
  }
  const JsonValue* size = json.first(shape);
  matrix.rows = shape->number == 2 ? whole(size[0], 1 << 30) : -1;
  matrix.columns = shape->number == 2 ? whole(size[1], 1 << 30) : -1;
  if (matrix.rows < 1 || matrix.columns < 1) {
    return fail(error, HUSK_INVALID_INPUT, "%s is no matrix", printed.text);
  }
  const int64_t begin = whole(json.first(offsets)[0], kMostBytes);
  const int64_t end = whole(json.first(offsets)[1], kMostBytes);
  const auto bytes = static_cast<int64_t>(bytes_of(matrix.dtype));
  if (begin < 0 || end < begin || static_cast<uint64_t>(end) > data.size) {
    return cut_file(error, "it ends before its last tensor");
  }
  if (end - begin != matrix.rows * matrix.columns * bytes) {
    return cut_file(error, "a tensor has more or fewer bytes than its shape says");
  }
  matrix.data = data.data + begin;
  return Status::ok;
}

// Compares the matrices of a layer with what the program has room for.
Status Adapters::check(const Layer& layer, const Pair& pair, const Settings& settings,
                       husk_error* error) const {
  if (!pair.a.data && !pair.b.data) return Status::ok;
  const Printed printed(layer.name);
  if (!pair.a.data || !pair.b.data) {
    return fail(error, HUSK_INVALID_INPUT, "the adapter has no lora_%c of %s",
                pair.a.data ? 'B' : 'A', printed.text);
  }
  const int64_t rank = pair.a.rows;
  if (pair.a.columns != layer.inputs || pair.b.rows != layer.outputs || pair.b.columns != rank) {
    return fail(error, HUSK_INVALID_INPUT,
                "the adapter is of another shape: %s has lora_A [%lld, %lld] and lora_B [%lld, "
                "%lld], but the model needs [r, %lld] and [%lld, r]",
                printed.text, static_cast<long long>(rank), static_cast<long long>(pair.a.columns),
                static_cast<long long>(pair.b.rows), static_cast<long long>(pair.b.columns),
                static_cast<long long>(layer.inputs), static_cast<long long>(layer.outputs));
  }
  if (rank > rank_) {
    return fail(error, HUSK_INVALID_INPUT,
                "the adapter has rank %lld for %s, but the file of the model has room for %lld: "
                "export the model with --rank %lld",
                static_cast<long long>(rank), printed.text, static_cast<long long>(rank_),
                static_cast<long long>(rank));
  }
  if (!settings.has_ranks && settings.rank != static_cast<double>(rank)) {
    return fail(error, HUSK_INVALID_INPUT,
                "the adapter is of another shape: %s has rank %lld, but adapter_config.json says "
                "r = %g",
                printed.text, static_cast<long long>(rank), settings.rank);
  }
  return Status::ok;
}

Status Adapters::read(Span weights, const Settings& settings, List<Pair>& pairs,
                      husk_error* error) const {
  if (weights.size < 8) return cut_file(error, "it has no header");
  uint64_t header = 0;
  for (int i = 7; i >= 0; --i) header = header << 8 | static_cast<uint8_t>(weights.data[i]);
  if (header > weights.size - 8) return cut_file(error, "it ends in its header");
  const auto header_bytes = static_cast<size_t>(header);
  Json json;
  const Status status = json.parse(weights.slice(8, 8 + header_bytes), error);
  if (failed(status)) {
    prefix(error, "the adapter's safetensors: ");
    return status;
  }
  const JsonValue* root = json.root();
  if (root->kind != JsonKind::object) return cut_file(error, "its header is no object");
  HUSK_TRY(pairs.resize(layers_.size(), error));
  size_t found = 0;
  for (const JsonValue* one = json.first(root); one != json.end(root); one = json.after(one + 1)) {
    if (equal(json.text(one), "__metadata__")) continue;
    HUSK_TRY(
        read_entry(json.text(one), json, one + 1, weights.from(8 + header_bytes), pairs, error));
    ++found;
  }
  if (!found) return fail(error, HUSK_INVALID_INPUT, "the adapter has no matrices");
  for (size_t i = 0; i < pairs.size(); ++i) {
    HUSK_TRY(check(layers_[i], pairs[i], settings, error));
  }
  return Status::ok;
}

// Writes the matrices, with zeros up to the rank of the constants.
Status Adapters::write(int64_t adapter, const List<Pair>& pairs, const Settings& settings,
                       bool* is_damaged, husk_error* error) {
  const auto width = static_cast<size_t>(rank_);
  size_t bytes = 0;
  for (const Layer& layer : layers_) {
    bytes += static_cast<size_t>(layer.inputs + layer.outputs) * width * bytes_of(layer.dtype);
  }
  List<char> memory;
  List<husk_constant_part> parts;
  HUSK_TRY(memory.resize(bytes, error));
  HUSK_TRY(parts.reserve(2 * layers_.size(), error));
  char* to = memory.data();
  for (size_t i = 0; i < layers_.size(); ++i) {
    const Layer& layer = layers_[i];
    const Matrix &a = pairs[i].a, &b = pairs[i].b;
    const auto inputs = static_cast<size_t>(layer.inputs);
    const auto outputs = static_cast<size_t>(layer.outputs);
    const auto rank = static_cast<size_t>(a.data ? a.rows : 0);
    const size_t a_bytes = width * inputs * bytes_of(layer.dtype);
    const size_t b_bytes = width * outputs * bytes_of(layer.dtype);
    const auto index = static_cast<uint64_t>(adapter);
    for (size_t k = 0; k < rank * inputs; ++k) {
      put(to, k, layer.dtype, number_at(a.data, k, a.dtype));
    }
    HUSK_TRY(parts.push({layer.a, 0, to, index * a_bytes, a_bytes}, error));
    to += a_bytes;
    const float scale = rank ? settings.scale_of(layer.name, a.rows) : 0;
    for (size_t row = 0; rank && row < outputs; ++row) {
      for (size_t k = 0; k < rank; ++k) {
        put(to, row * width + k, layer.dtype, scale * number_at(b.data, row * rank + k, b.dtype));
      }
    }
    HUSK_TRY(parts.push({layer.b, 0, to, index * b_bytes, b_bytes}, error));
    to += b_bytes;
  }
  const husk_status status = husk_program_update_constant_parts(
      program_, parts.data(), static_cast<uint32_t>(parts.size()), error);
  *is_damaged = status != HUSK_OK && status != HUSK_OUT_OF_MEMORY;
  return to_status(status);
}

Status Adapters::read_and_write(uint32_t adapter, Span weights, Span config, bool* is_damaged,
                                husk_error* error) {
  Settings settings;
  HUSK_TRY(settings.read(config, error));
  List<Pair> pairs;
  HUSK_TRY(read(weights, settings, pairs, error));
  return write(adapter, pairs, settings, is_damaged, error);
}

// Keeps requests away from an adapter that none of them uses.
Status Adapters::begin_change(uint32_t adapter, husk_error* error) {
  if (count_ == 0) {
    return fail(error, HUSK_UNSUPPORTED,
                "the file has no room for adapters: export it with --adapters N");
  }
  if (adapter < 1 || int64_t{adapter} > count_) {
    return fail(error, HUSK_INVALID_ARGUMENT,
                "there is no adapter %u: the file has room for those from 1 to %lld", adapter,
                static_cast<long long>(count_));
  }
  const Lock lock(mutex_);
  State& state = states_[adapter];
  if (state.users) {
    return fail(error, HUSK_INVALID_ARGUMENT,
                "adapter %u is in use by %llu requests: wait for their ends, or cancel them",
                adapter, static_cast<unsigned long long>(state.users));
  }
  if (state.is_changing) {
    return fail(error, HUSK_INVALID_ARGUMENT, "another thread sets adapter %u", adapter);
  }
  state.is_changing = true;
  return Status::ok;
}

Status Adapters::set(uint32_t adapter, Span weights, Span config, husk_error* error) {
  HUSK_TRY(begin_change(adapter, error));
  bool is_damaged = false;
  const Status status = read_and_write(adapter, weights, config, &is_damaged, error);
  const Lock lock(mutex_);
  State& state = states_[adapter];
  state.is_changing = false;
  if (is_damaged) state.version = 0;
  if (!failed(status)) state.version = ++last_version_;
  return status;
}

Status Adapters::remove(uint32_t adapter, husk_error* error) {
  HUSK_TRY(begin_change(adapter, error));
  const Lock lock(mutex_);
  State& state = states_[adapter];
  state.is_changing = false;
  if (!state.version) return fail(error, HUSK_NOT_FOUND, "adapter %u is not set", adapter);
  state.version = 0;
  return Status::ok;
}

Status Adapters::take(uint32_t adapter, uint64_t* version, husk_error* error) {
  *version = 0;
  if (adapter == 0) return Status::ok;
  const Lock lock(mutex_);
  State& state = states_[adapter];
  if (!state.version || state.is_changing) {
    return fail(error, HUSK_NOT_FOUND, "adapter %u is not set: call husk_generator_set_adapter",
                adapter);
  }
  ++state.users;
  *version = state.version;
  return Status::ok;
}

void Adapters::give_back(uint32_t adapter) {
  if (adapter == 0) return;
  const Lock lock(mutex_);
  --states_[adapter].users;
}

}  // namespace husk::text
