#include "model.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "sequences.h"
#include "stream.h"

namespace husk::triton {

bool is_generator(const husk_storage_info& state) {
  return strcmp(state.name, "husk.generator") == 0;
}

Model::Model() : sequences_(new Sequences(*this)) {}
Model::~Model() = default;

Error Model::create(TRITONBACKEND_Model* handle, husk_engine* engine,
                    std::unique_ptr<Model>* model) {
  std::unique_ptr<Model> out(new Model);
  Config config;
  HUSK_TRITON_TRY(config.read(handle));
  HUSK_TRITON_TRY(config.settings(&out->settings_));
  HUSK_TRITON_TRY(out->open(handle, engine));
  HUSK_TRITON_TRY(out->read_signatures());
  if (out->has_state_ && out->settings_.max_batch_size > 0 && !out->settings_.sequences)
    return fail(TRITONSERVER_ERROR_INVALID_ARG,
                "max_batch_size of config.pbtxt is not 0, but the artifact has states, which "
                "requests must not share: set max_batch_size to 0, add sequence_batching, or "
                "export the function without states to a file of its own");
  Signature all = out->requests()[0];
  for (size_t i = 1; i < out->requests().size(); ++i) HUSK_TRITON_TRY(all.add(out->requests()[i]));
  HUSK_TRITON_TRY(config.complete(out->settings_, all, handle));
  out->output_count_ = config.output_count();
  *model = std::move(out);
  return nullptr;
}

Error Model::read_signatures() {
  std::vector<std::string> names = settings_.functions;
  const std::string& first = settings_.function;
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
    HUSK_TRITON_TRY(Signature::read(program_.get(), names[i], &functions_[i]));
  if (!settings_.next_function.empty()) {
    if (!settings_.sequences && !settings_.decoupled)
      return fail(TRITONSERVER_ERROR_INVALID_ARG,
                  "the parameter \"next_function\" of config.pbtxt is for models with "
                  "sequence_batching or model_transaction_policy.decoupled");
    next_signature_.emplace();
    HUSK_TRITON_TRY(Signature::read(program_.get(), settings_.next_function, &*next_signature_));
    HUSK_TRITON_TRY(functions_[0].join(&*next_signature_));
  }
  if (!settings_.decoupled) return nullptr;
  HUSK_TRITON_TRY(check_stream(signature(), next_signature_ ? *next_signature_ : signature()));
  stream_signatures_ = functions_;
  stream_signatures_[0].outputs = {token_value()};
  return nullptr;
}

Error Model::open(TRITONBACKEND_Model* handle, husk_engine* engine) {
  TRITONBACKEND_ArtifactType type;
  const char* folder;
  uint64_t version;
  HUSK_TRITON_TRY(Error(TRITONBACKEND_ModelRepository(handle, &type, &folder)));
  HUSK_TRITON_TRY(Error(TRITONBACKEND_ModelVersion(handle, &version)));
  if (type != TRITONBACKEND_ARTIFACT_FILESYSTEM)
    return fail(TRITONSERVER_ERROR_UNSUPPORTED, "the model repository must be a folder");
  // Clients see errors of a load: the texts name the file without its folder.
  const std::string file = std::to_string(version) + "/" + settings_.file;
  const std::string path = folder + ("/" + file);
  husk_program* program = nullptr;
  husk_error error;
  if (husk_program_open(engine, path.c_str(), &program, &error) != HUSK_OK) {
    std::string text = error.text;
    if (const size_t at = text.find(path); at != std::string::npos)
      text.replace(at, path.size(), file);
    else
      text = file + ": " + text;
    snprintf(error.text, sizeof error.text, "%s", text.c_str());
    return fail(error);
  }
  program_.reset(program);
  for (uint32_t i = 0; i < husk_program_state_count(program); ++i) {
    husk_storage_info state = HUSK_STORAGE_INFO_INIT;
    if (husk_program_state(program, i, &state, &error) != HUSK_OK) return fail(error);
    has_state_ |= !is_generator(state);
  }
  return nullptr;
}

}  // namespace husk::triton
