#include "config.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstring>

#define JSON_NOEXCEPTION 1
#include <nlohmann/json.hpp>

namespace husk::triton {
namespace {

using Json = nlohmann::json;

Error parse(TRITONSERVER_Message* message, Json* json) {
  const char* text;
  size_t size;
  HUSK_TRITON_TRY(Error(TRITONSERVER_MessageSerializeToJson(message, &text, &size)));
  *json = Json::parse(text, text + size, nullptr, false);
  if (json->is_object()) return nullptr;
  return fail(TRITONSERVER_ERROR_INTERNAL, "the server passed a configuration that is no JSON");
}

// The member of an object; null if there is none. The server omits members that have their default.
Json member(const Json& json, const char* key) {
  return json.is_object() ? json.value(key, Json()) : Json();
}

std::string text(const Json& json) {
  return json.is_string() ? json.get<std::string>() : std::string();
}

// 64-bit numbers may be text: the JSON of Protocol Buffers writes them so.
int64_t number(const Json& json) {
  if (json.is_number()) return json.get<int64_t>();
  const std::string digits = text(json);
  int64_t value = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), value);
  return value;
}

bool is_true(const Json& json) { return json.is_boolean() && json.get<bool>(); }

Error parse_number(const char* key, const std::string& digits, uint64_t* value) {
  const char* end = digits.data() + digits.size();
  const auto [parsed, code] = std::from_chars(digits.data(), end, *value);
  if (code == std::errc() && parsed == end) return nullptr;
  return fail(TRITONSERVER_ERROR_INVALID_ARG, "the parameter \"%s\" is '%s', must be a number", key,
              digits.c_str());
}

// A parameter is {"string_value": TEXT}.
Error read_parameter(const Json& parameters, const char* key, uint64_t* value) {
  const Json found = member(member(parameters, key), "string_value");
  return found.is_string() ? parse_number(key, text(found), value) : nullptr;
}

std::string list(const std::vector<int64_t>& dims) {
  std::string out = "[";
  for (size_t i = 0; i < dims.size(); ++i) out += (i ? ", " : "") + std::to_string(dims[i]);
  return out + "]";
}

// Reads where the instances run: instance_group, and the parameter "device" for KIND_MODEL.
Error read_places(const Json& json, const std::string& device, Settings* settings) {
  constexpr char kCuda[] = "cuda:";
  constexpr size_t kPrefix = sizeof kCuda - 1;
  if (device.compare(0, kPrefix, kCuda) == 0) {
    const char* end = device.data() + device.size();
    const auto [parsed, code] = std::from_chars(device.data() + kPrefix, end, settings->model_gpu);
    if (code != std::errc() || parsed != end) settings->model_gpu = -1;
  }
  if (!device.empty() && device != "cpu" && settings->model_gpu < 0)
    return fail(TRITONSERVER_ERROR_INVALID_ARG,
                "the parameter \"device\" of config.pbtxt is '%s', must be cpu or cuda:N",
                device.c_str());
  const Json groups = member(json, "instance_group");
  bool first = true, by_model = false;
  for (const Json& group : groups.is_array() ? groups : Json::array()) {
    const std::string kind = text(member(group, "kind"));
    by_model |= kind == "KIND_MODEL";
    if (!first) continue;
    first = false;
    const Json gpus = member(group, "gpus");
    if (kind == "KIND_GPU")
      settings->gpu = gpus.is_array() && !gpus.empty() ? int32_t(number(gpus[0])) : 0;
    else if (kind == "KIND_MODEL")
      settings->gpu = settings->model_gpu;
    else
      settings->automatic = kind != "KIND_CPU";
  }
  if (device.empty() || by_model) return nullptr;
  return fail(TRITONSERVER_ERROR_INVALID_ARG,
              "the parameter \"device\" of config.pbtxt is for an instance_group with KIND_MODEL; "
              "KIND_CPU and KIND_GPU say themselves where instances run");
}

// Reads on how many devices the model runs at once.
Error read_ranks(const Json& parameters, Settings* settings) {
  constexpr uint64_t kMostRanks = 64;
  uint64_t timeout = 0;
  HUSK_TRITON_TRY(read_parameter(parameters, "ranks", &settings->ranks));
  HUSK_TRITON_TRY(read_parameter(parameters, "group_timeout_ms", &timeout));
  settings->group_timeout_ms = uint32_t(std::min<uint64_t>(timeout, UINT32_MAX));
  if (settings->ranks < 1 || settings->ranks > kMostRanks)
    return fail(TRITONSERVER_ERROR_INVALID_ARG,
                "the parameter \"ranks\" of config.pbtxt is %llu, must be 1 to %llu",
                static_cast<unsigned long long>(settings->ranks),
                static_cast<unsigned long long>(kMostRanks));
  if (settings->ranks > 1 && settings->decoupled)
    return fail(TRITONSERVER_ERROR_UNSUPPORTED,
                "the parameter \"ranks\" of config.pbtxt is for models without "
                "model_transaction_policy.decoupled: remove that, and call the functions as a "
                "sequence");
  return nullptr;
}

// Reads names that are separated by commas and spaces.
std::vector<std::string> words(const std::string& list) {
  std::vector<std::string> out;
  for (size_t at = 0; (at = list.find_first_not_of(", ", at)) != std::string::npos;) {
    const size_t end = std::min(list.find_first_of(", ", at), list.size());
    out.push_back(list.substr(at, end - at));
    at = end;
  }
  return out;
}

// The dims of a value in the configuration: -1 where any size is allowed, without the batch.
std::vector<int64_t> dims_of(const Value& value, bool batched) {
  std::vector<int64_t> dims;
  for (int32_t d = batched ? 1 : 0; d < value.rank; ++d) {
    const bool fixed = !value.ranges.empty() && value.ranges[2 * d] == value.ranges[2 * d + 1];
    dims.push_back(fixed ? value.ranges[2 * d] : -1);
  }
  return dims;
}

// Writes dims to an entry. Triton has no dims without a size: they are [1], which is no part of the
// shape. With a batch a reshape says so; without one the server refuses that reshape, and the
// backend takes [1] for the shape of a number.
void write_dims(const std::vector<int64_t>& dims, bool batched, Json* entry) {
  (*entry)["dims"] = dims.empty() ? std::vector<int64_t>{1} : dims;
  if (dims.empty() && batched) (*entry)["reshape"] = {{"shape", Json::array()}};
}

// Compares the inputs or the outputs of a configuration with those of the function.
class Side {
 public:
  Side(const char* side, const std::vector<Value>& values, const Settings& settings,
       const Signature& signature)
      : side_(side), values_(values), settings_(settings), signature_(signature) {}

  // Compares all entries, completes them, and sets `changed` if there was something to complete.
  Error entries(Json* entries, bool* changed) const {
    if (!entries->is_array()) *entries = Json::array();
    for (Json& entry : *entries) HUSK_TRITON_TRY(this->entry(&entry, changed));
    return nullptr;
  }

  // Adds an entry for a value.
  Error add(const Value& value, Json* entries) const {
    Json entry = {{"name", value.name}, {"data_type", config_type(value.type)}};
    HUSK_TRITON_TRY(batch(value));
    write_dims(dims_of(value, batched()), batched(), &entry);
    if (value.optional && is_input()) entry["optional"] = true;
    entries->push_back(std::move(entry));
    return nullptr;
  }

  static bool has(const Json& entries, const std::string& name) {
    for (const Json& entry : entries)
      if (text(member(entry, "name")) == name) return true;
    return false;
  }

 private:
  bool batched() const { return settings_.max_batch_size > 0; }
  bool is_input() const { return &values_ == &signature_.inputs; }

  Error entry(Json* entry, bool* changed) const {
    const std::string name = text(member(*entry, "name"));
    const size_t index = find(values_, name);
    if (index == values_.size())
      return fail(TRITONSERVER_ERROR_INVALID_ARG,
                  "%s '%s' of config.pbtxt is no %s of the function '%s': it has %s", side_,
                  name.c_str(), side_, signature_.name.c_str(), names(values_).c_str());
    const Value* value = &values_[index];
    const bool optional = is_true(member(*entry, "optional"));
    if (value->optional && is_input() && !optional) {
      (*entry)["optional"] = true;
      *changed = true;
    }
    for (const char* key : {"optional", "allow_ragged_batch", "is_shape_tensor"})
      if (is_true(member(*entry, key)) && !(key == std::string("optional") && value->optional))
        return fail(TRITONSERVER_ERROR_UNSUPPORTED,
                    "%s '%s': config.pbtxt sets %s, which Husk does not support", side_,
                    name.c_str(), key);
    HUSK_TRITON_TRY(batch(*value));
    const std::string type = text(member(*entry, "data_type"));
    if (type.empty() || type == "TYPE_INVALID") {
      (*entry)["data_type"] = config_type(value->type);
      *changed = true;
    } else if (type != config_type(value->type)) {
      return fail(TRITONSERVER_ERROR_INVALID_ARG,
                  "%s '%s': data_type of config.pbtxt is %s, the function '%s' has %s", side_,
                  name.c_str(), type.c_str(), signature_.name.c_str(), config_type(value->type));
    }
    if (member(*entry, "dims").empty()) {
      write_dims(dims_of(*value, batched()), batched(), entry);
      *changed = true;
      return nullptr;
    }
    return dims(*value, *entry);
  }

  // The shape that the backend sees is that of `reshape` if there is one.
  Error dims(const Value& value, const Json& entry) const {
    const Json reshape = member(entry, "reshape");
    const bool reshaped = reshape.is_object();
    const Json listed = reshaped ? member(reshape, "shape") : member(entry, "dims");
    std::vector<int64_t> dims;
    for (const Json& size : listed) dims.push_back(number(size));
    const std::vector<int64_t> expected = dims_of(value, batched());
    if (expected.empty() && !batched() && dims == std::vector<int64_t>{1}) return nullptr;
    bool fits = dims.size() == expected.size();
    const int32_t first = batched() ? 1 : 0;
    for (size_t i = 0; fits && i < dims.size(); ++i) {
      if (dims[i] == expected[i] || value.ranges.empty()) continue;
      const int64_t* range = &value.ranges[2 * (i + first)];
      fits = expected[i] == -1 && dims[i] >= range[0] && dims[i] <= range[1];
    }
    if (fits) return nullptr;
    return fail(TRITONSERVER_ERROR_INVALID_ARG,
                "%s '%s': %s of config.pbtxt is %s, the function '%s' has %s%s", side_,
                value.name.c_str(), reshaped ? "reshape" : "dims", list(dims).c_str(),
                signature_.name.c_str(), list(expected).c_str(),
                batched() ? ", without the batch" : "");
  }

  // Whether dim 0 of the value can be the batch that max_batch_size speaks of.
  Error batch(const Value& value) const {
    const long long rows = settings_.max_batch_size;
    if (rows == 0) return nullptr;
    const char* name = value.name.c_str();
    if (value.kind != HUSK_VALUE_TENSOR || value.rank == 0)
      return fail(TRITONSERVER_ERROR_INVALID_ARG,
                  "max_batch_size of config.pbtxt is %lld, but %s '%s' is a number and has no "
                  "batch: set max_batch_size to 0",
                  rows, side_, name);
    if (value.ranges.empty()) return nullptr;
    const long long low = value.ranges[0], high = value.ranges[1];
    if (low == high && high != rows)
      return fail(TRITONSERVER_ERROR_INVALID_ARG,
                  "max_batch_size of config.pbtxt is %lld, but dim 0 of %s '%s' is always %lld: "
                  "set max_batch_size to 0, or export the model with it dynamic",
                  rows, side_, name, high);
    if (high < rows)
      return fail(TRITONSERVER_ERROR_INVALID_ARG,
                  "max_batch_size of config.pbtxt is %lld, but dim 0 of %s '%s' is at most %lld",
                  rows, side_, name, high);
    return nullptr;
  }

  const char* side_;
  const std::vector<Value>& values_;
  const Settings& settings_;
  const Signature& signature_;
};

// The names of the inputs that the sequence batcher itself fills.
bool is_control(const Json& config, const std::string& name) {
  for (const Json& input : member(member(config, "sequence_batching"), "control_input"))
    if (text(member(input, "name")) == name) return true;
  return false;
}

}  // namespace

struct Config::Document {
  Json json;
};

Config::Config() : document_(new Document) {}
Config::~Config() = default;

Error Config::read(TRITONBACKEND_Model* model) {
  TRITONSERVER_Message* message;
  HUSK_TRITON_TRY(Error(TRITONBACKEND_ModelConfig(model, 1, &message)));
  Error failure = parse(message, &document_->json);
  log(Error(TRITONSERVER_MessageDelete(message)));
  return failure;
}

Error Config::settings(Settings* settings) const {
  const Json& json = document_->json;
  if (const std::string file = text(member(json, "default_model_filename")); !file.empty())
    settings->file = file;
  settings->max_batch_size = number(member(json, "max_batch_size"));
  const Json sequences = member(json, "sequence_batching");
  settings->sequences = sequences.is_object();
  if (!member(sequences, "state").empty())
    return fail(TRITONSERVER_ERROR_UNSUPPORTED,
                "config.pbtxt has sequence_batching.state, but Husk keeps the state of a sequence "
                "in a session: remove it, and export the model with states");
  settings->decoupled = is_true(member(member(json, "model_transaction_policy"), "decoupled"));
  if (settings->decoupled && (settings->sequences || settings->max_batch_size > 0))
    return fail(TRITONSERVER_ERROR_UNSUPPORTED,
                "config.pbtxt sets model_transaction_policy.decoupled, which goes neither with "
                "max_batch_size nor with sequence_batching: remove them");
  const Json parameters = member(json, "parameters");
  HUSK_TRITON_TRY(
      read_places(json, text(member(member(parameters, "device"), "string_value")), settings));
  settings->function = text(member(member(parameters, "function"), "string_value"));
  settings->next_function = text(member(member(parameters, "next_function"), "string_value"));
  settings->functions = words(text(member(member(parameters, "functions"), "string_value")));
  if (!settings->functions.empty() && (settings->decoupled || !settings->next_function.empty()))
    return fail(TRITONSERVER_ERROR_INVALID_ARG,
                "the parameter \"functions\" of config.pbtxt lets a request choose, so it goes "
                "neither with \"next_function\" nor with model_transaction_policy.decoupled");
  // The server looks for the inputs of a request in its cache, not for the parameters.
  if (settings->functions.size() > 1 && is_true(member(member(json, "response_cache"), "enable")))
    return fail(TRITONSERVER_ERROR_INVALID_ARG,
                "config.pbtxt sets response_cache, which does not tell the functions of the "
                "parameter \"functions\" apart: make each function a model of its own");
  // A request must not take all memory of the machine, since the server would end with it.
  settings->memory_limit = uint64_t(sysconf(_SC_PHYS_PAGES)) * uint64_t(sysconf(_SC_PAGESIZE)) / 2;
  HUSK_TRITON_TRY(read_parameter(parameters, "memory_limit", &settings->memory_limit));
  const int64_t idle_us = number(member(sequences, "max_sequence_idle_microseconds"));
  settings->sequence_idle_ns = uint64_t(idle_us > 0 ? idle_us : 1000000) * 2000;
  HUSK_TRITON_TRY(read_parameter(parameters, "max_sequences", &settings->max_sequences));
  return read_ranks(parameters, settings);
}

Error Config::complete(const Settings& settings, const Signature& signature,
                       TRITONBACKEND_Model* model) {
  Json& json = document_->json;
  bool may_complete, changed = false;
  HUSK_TRITON_TRY(Error(TRITONBACKEND_ModelAutoCompleteConfig(model, &may_complete)));

  const Side inputs("input", signature.inputs, settings, signature);
  HUSK_TRITON_TRY(inputs.entries(&json["input"], &changed));
  for (const Value& value : signature.inputs) {
    if (value.kind == HUSK_VALUE_NONE || Side::has(json["input"], value.name) ||
        is_control(json, value.name))
      continue;
    if (!may_complete)
      return fail(TRITONSERVER_ERROR_INVALID_ARG,
                  "config.pbtxt lacks input '%s' of the function '%s'", value.name.c_str(),
                  signature.name.c_str());
    HUSK_TRITON_TRY(inputs.add(value, &json["input"]));
    changed = true;
  }

  // A configuration may leave outputs out, which no client sees then.
  const Side outputs("output", signature.outputs, settings, signature);
  HUSK_TRITON_TRY(outputs.entries(&json["output"], &changed));
  if (json["output"].empty()) {
    for (const Value& value : signature.outputs)
      if (value.kind != HUSK_VALUE_NONE) HUSK_TRITON_TRY(outputs.add(value, &json["output"]));
    changed = true;
  }
  if (!changed) return nullptr;
  if (!may_complete)
    return fail(TRITONSERVER_ERROR_INVALID_ARG,
                "config.pbtxt lacks outputs, dims or a data_type, and the server may not complete "
                "it (--disable-auto-complete-config)");

  const std::string serialized = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  TRITONSERVER_Message* message;
  HUSK_TRITON_TRY(Error(
      TRITONSERVER_MessageNewFromSerializedJson(&message, serialized.data(), serialized.size())));
  Error failure(TRITONBACKEND_ModelSetConfig(model, 1, message));
  log(Error(TRITONSERVER_MessageDelete(message)));
  return failure;
}

size_t Config::output_count() const { return document_->json["output"].size(); }

Error read_command_line(TRITONBACKEND_Backend* backend, const char* key, uint64_t* value) {
  TRITONSERVER_Message* message;  // the server's
  HUSK_TRITON_TRY(Error(TRITONBACKEND_BackendConfig(backend, &message)));
  Json json;
  HUSK_TRITON_TRY(parse(message, &json));
  const Json found = member(member(json, "cmdline"), key);
  return found.is_string() ? parse_number(key, text(found), value) : nullptr;
}

}  // namespace husk::triton
