#include "program.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include <husk/weights.h>

#include "stream.h"

namespace husk::triton {

bool is_generator(const husk_storage_info& state) {
  return strcmp(state.name, "husk.generator") == 0;
}

Error Program::open(const std::string& folder, const std::string& file, const Settings& settings,
                    const Device& device, std::unique_ptr<Program>* program) {
  std::unique_ptr<Program> out(new Program(device));
  const std::string path = folder + "/" + file;
  husk_program* handle = nullptr;
  husk_error error;
  if (husk_weights_open(device.engine, path.c_str(), nullptr, &handle, &error) != HUSK_OK) {
    std::string text = error.text;
    if (const size_t at = text.find(path); at != std::string::npos)
      text.replace(at, path.size(), file);
    else
      text = file + ": " + text;
    text += "; instance_group of config.pbtxt puts the model on " + device.name();
    snprintf(error.text, sizeof error.text, "%s", text.c_str());
    return fail(error);
  }
  out->program_.reset(handle);
  HUSK_TRITON_TRY(out->read_states());
  HUSK_TRITON_TRY(out->read_signatures(settings));
  *program = std::move(out);
  return nullptr;
}

Error Program::read_states() {
  for (uint32_t i = 0; i < husk_program_state_count(get()); ++i) {
    husk_storage_info state = HUSK_STORAGE_INFO_INIT;
    husk_error error;
    if (husk_program_state(get(), i, &state, &error) != HUSK_OK) return fail(error);
    has_state_ |= !is_generator(state);
  }
  return nullptr;
}

Error Program::read_signatures(const Settings& settings) {
  std::vector<std::string> names = settings.functions;
  const std::string& first = settings.function;
  if (names.empty()) {
    names.push_back(first);
  } else if (!first.empty()) {
    const auto found = std::find(names.begin(), names.end(), first);
    if (found == names.end())
      return fail(TRITONSERVER_ERROR_INVALID_ARG,
                  "the parameter \"function\" of config.pbtxt is '%s', which the parameter "
                  "\"functions\" does not name",
                  first.c_str());
    std::rotate(names.begin(), found, found + 1);
  }
  functions_.resize(names.size());
  for (size_t i = 0; i < names.size(); ++i)
    HUSK_TRITON_TRY(Signature::read(get(), names[i], &functions_[i]));
  if (!settings.next_function.empty()) {
    if (!settings.sequences && !settings.decoupled)
      return fail(TRITONSERVER_ERROR_INVALID_ARG,
                  "the parameter \"next_function\" of config.pbtxt is for models with "
                  "sequence_batching or model_transaction_policy.decoupled");
    next_signature_.emplace();
    HUSK_TRITON_TRY(Signature::read(get(), settings.next_function, &*next_signature_));
    HUSK_TRITON_TRY(functions_[0].join(&*next_signature_));
  }
  if (!settings.decoupled) return nullptr;
  HUSK_TRITON_TRY(check_stream(signature(), next_signature_ ? *next_signature_ : signature()));
  stream_signatures_ = functions_;
  stream_signatures_[0].outputs = {token_value()};
  return nullptr;
}

}  // namespace husk::triton
