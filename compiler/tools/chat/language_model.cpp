#include "chat/language_model.h"

#include <algorithm>
#include <cstring>

#include "run/run_error.h"

#include <nlohmann/json.hpp>

namespace husk::chat {

using run::check;
using run::exit_load;
using run::exit_run;
using run::fail;

namespace {

using Json = nlohmann::json;

constexpr int64_t kSpan = 64;  // caches are read up to a multiple of so many positions

template <class T>
std::vector<unsigned char> bytes_of(const std::vector<T>& values) {
  std::vector<unsigned char> bytes(values.size() * sizeof(T));
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

}  // namespace

// A tensor of the device with one dimension.
struct LanguageModel::Array {
  int64_t size;
  DLTensor tensor{};

  template <class T>
  Array(run::Machine& machine, void* memory, const std::vector<T>& values, uint8_t code)
      : size(static_cast<int64_t>(values.size())) {
    machine.upload(memory, bytes_of(values));
    tensor.data = memory;
    tensor.device = {static_cast<DLDeviceType>(machine.properties().dl_device_type),
                     machine.properties().device_index};
    tensor.ndim = 1;
    tensor.dtype = {code, sizeof(T) * 8, 1};
    tensor.shape = &size;
  }
  Array(const Array&) = delete;
  husk_value value() { return {HUSK_VALUE_TENSOR, 0, {&tensor}}; }
};

LanguageModel::LanguageModel(run::Machine& machine, const std::string& path)
    : machine_(machine), path_(path), program_(machine.program_open(path)) {
  const char* described = text("model");
  if (!described) {
    fail(exit_load, "{} is no language model: `python -m husk llm` exports one", path);
  }
  const Json model = Json::parse(described);
  description_.max_tokens = model.at("max_tokens").get<int64_t>();
  description_.slots = model.at("slots").get<int64_t>();
  description_.chunk = model.at("chunk").get<int64_t>();
  if (const char* settings = text("generation")) {
    const Json generation = Json::parse(settings);
    description_.ends = generation.value("end", std::vector<int32_t>());
    if (generation.value("do_sample", false)) {
      description_.sampling.temperature = generation.value("temperature", 1.0);
      description_.sampling.top_k = generation.value("top_k", int64_t{0});
      description_.sampling.top_p = generation.value("top_p", 1.0);
    }
  }
  prefill_ = function("prefill");
  decode_ = function("decode");
  sample_ = function("sample");
  session_ = run::session_create(program_.get(), run::session_options("auto", "auto"));
  const auto count = static_cast<uint64_t>(description_.chunk);
  tokens_ = machine.allocate(count * sizeof(int64_t), false);
  positions_ = machine.allocate(sizeof(int64_t), false);
  settings_ = machine.allocate(5 * 64, false);
}

uint32_t LanguageModel::function(const char* name) const {
  husk_error error;
  uint32_t found = 0;
  check(husk_program_find_function(program_.get(), name, &found, &error), error, exit_load);
  return found;
}

const char* LanguageModel::text(const std::string& name) const {
  const std::string key = "husk.text." + name;
  const uint32_t count = husk_program_metadata_count(program_.get());
  for (uint32_t i = 0; i < count; ++i) {
    if (key == husk_program_metadata_key(program_.get(), i)) {
      return husk_program_metadata_value(program_.get(), i);
    }
  }
  return nullptr;
}

int64_t LanguageModel::span(int64_t end) const {
  return std::min((end + kSpan - 1) / kSpan * kSpan, description_.max_tokens);
}

void LanguageModel::call(uint32_t function, std::vector<husk_value>& inputs,
                         std::vector<husk_value>& outputs) {
  husk_error error;
  check(husk_session_run(session_.get(), function, machine_.stream(), inputs.data(),
                         static_cast<uint32_t>(inputs.size()), outputs.data(),
                         static_cast<uint32_t>(outputs.size()), &error),
        error, exit_run);
}

int32_t LanguageModel::download(const DLTensor& tensor) {
  std::vector<unsigned char> bytes(sizeof(int64_t));
  machine_.download(bytes, static_cast<const char*>(tensor.data) + tensor.byte_offset);
  int64_t token;
  std::memcpy(&token, bytes.data(), sizeof token);
  return static_cast<int32_t>(token);
}

// The token of a run of prefill or decode, whose outputs are the most likely one and the logits.
int32_t LanguageModel::token_of(std::vector<husk_value>& outputs, const Sampling& sampling) {
  husk_error error;
  if (sampling.temperature <= 0) {
    check(husk_session_wait(session_.get(), &error), error, exit_run);
    return download(*outputs[0].as.tensor);
  }
  char* const memory = static_cast<char*>(settings_);
  const std::vector<int64_t> position = {static_cast<int64_t>(sequence_.size())};
  Array temperature(machine_, memory, std::vector<float>{static_cast<float>(sampling.temperature)},
                    kDLFloat);
  Array top_k(machine_, memory + 64, std::vector<int64_t>{sampling.top_k}, kDLInt);
  Array top_p(machine_, memory + 128, std::vector<float>{static_cast<float>(sampling.top_p)},
              kDLFloat);
  Array seed(machine_, memory + 192, std::vector<int64_t>{sampling.seed}, kDLInt);
  Array at(machine_, memory + 256, position, kDLInt);
  std::vector<husk_value> inputs = {outputs[1],    temperature.value(), top_k.value(),
                                    top_p.value(), seed.value(),        at.value()};
  std::vector<husk_value> drawn(2, husk_value{HUSK_VALUE_NONE, 0, {nullptr}});
  call(sample_, inputs, drawn);
  check(husk_session_wait(session_.get(), &error), error, exit_run);
  return download(*drawn[0].as.tensor);
}

int32_t LanguageModel::begin(const std::vector<int32_t>& tokens, const Sampling& sampling) {
  if (tokens.empty()) fail(exit_run, "the text has no tokens");
  if (static_cast<int64_t>(tokens.size()) > description_.max_tokens) {
    fail(exit_run, "the text has {} tokens, but a sequence of {} has up to {}", tokens.size(),
         path_, description_.max_tokens);
  }
  // The last token is run again if the cache has it, since its logits are needed.
  const size_t most = std::min(tokens.size() - 1, sequence_.size());
  reused_ = 0;
  while (reused_ < most && tokens[reused_] == sequence_[reused_]) ++reused_;
  sequence_.resize(reused_);
  std::vector<husk_value> outputs;
  while (sequence_.size() < tokens.size()) {
    const auto begin = tokens.begin() + static_cast<ptrdiff_t>(sequence_.size());
    const auto count = std::min(tokens.end() - begin, static_cast<ptrdiff_t>(description_.chunk));
    Array chunk(machine_, tokens_, std::vector<int64_t>(begin, begin + count), kDLInt);
    const auto position = static_cast<int64_t>(sequence_.size());
    sequence_.insert(sequence_.end(), begin, begin + count);
    std::vector<husk_value> inputs(4, husk_value{HUSK_VALUE_INT, 0, {nullptr}});
    inputs[0] = chunk.value();
    inputs[1].as.i = 0;  // the slot
    inputs[2].as.i = position;
    inputs[3].as.i = span(position + count);
    outputs.assign(2, husk_value{HUSK_VALUE_NONE, 0, {nullptr}});
    if (count == 1) {  // some models take chunks of two tokens and more
      Array at(machine_, positions_, std::vector<int64_t>{position}, kDLInt);
      inputs = {inputs[0], at.value(), inputs[3]};
      call(decode_, inputs, outputs);
    } else {
      call(prefill_, inputs, outputs);
    }
  }
  return last_ = token_of(outputs, sampling);
}

std::optional<int32_t> LanguageModel::next(const Sampling& sampling) {
  const auto position = static_cast<int64_t>(sequence_.size());
  if (position >= description_.max_tokens) return std::nullopt;
  Array token(machine_, tokens_, std::vector<int64_t>{last_}, kDLInt);
  Array at(machine_, positions_, std::vector<int64_t>{position}, kDLInt);
  sequence_.push_back(last_);
  std::vector<husk_value> inputs = {token.value(), at.value(),
                                    husk_value{HUSK_VALUE_INT, 0, {nullptr}}};
  inputs[2].as.i = span(position + 1);
  std::vector<husk_value> outputs(2, husk_value{HUSK_VALUE_NONE, 0, {nullptr}});
  call(decode_, inputs, outputs);
  return last_ = token_of(outputs, sampling);
}

}  // namespace husk::chat
