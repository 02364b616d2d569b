#include "model.h"

#include "sequences.h"

namespace husk::triton {

Model::Model(Devices* devices) : devices_(devices) {}
Model::~Model() = default;

Error Model::create(TRITONBACKEND_Model* handle, Devices* devices, std::unique_ptr<Model>* model) {
  std::unique_ptr<Model> out(new Model(devices));
  Config config;
  HUSK_TRITON_TRY(config.read(handle));
  HUSK_TRITON_TRY(config.settings(&out->settings_));
  HUSK_TRITON_TRY(out->locate(handle));
  Settings& settings = out->settings_;
  // The server takes a GPU for such a group if there is one.
  Device first;
  if (settings.automatic && !devices->open(0, &first)) settings.gpu = 0;
  if (settings.ranks > 1) {
    HUSK_TRITON_TRY(Ranks::create(out->folder_, out->file_, settings, devices, &out->ranks_));
    out->home_ = &out->ranks_->home();
  } else {
    HUSK_TRITON_TRY(out->program(settings.gpu, &out->home_));
  }
  const Program* home = out->home_;
  if (home->has_state() && settings.max_batch_size > 0 && !settings.sequences)
    return fail(TRITONSERVER_ERROR_INVALID_ARG,
                "max_batch_size of config.pbtxt is not 0, but the artifact has states, which "
                "requests must not share: set max_batch_size to 0, add sequence_batching, or "
                "export the function without states to a file of its own");
  Signature all = home->requests()[0];
  for (size_t i = 1; i < home->requests().size(); ++i)
    HUSK_TRITON_TRY(all.add(home->requests()[i]));
  HUSK_TRITON_TRY(config.complete(settings, all, handle));
  out->output_count_ = config.output_count();
  out->sequences_ = std::make_unique<Sequences>(*out);
  *model = std::move(out);
  return nullptr;
}

Error Model::locate(TRITONBACKEND_Model* handle) {
  TRITONBACKEND_ArtifactType type;
  const char* folder;
  uint64_t version;
  HUSK_TRITON_TRY(Error(TRITONBACKEND_ModelRepository(handle, &type, &folder)));
  HUSK_TRITON_TRY(Error(TRITONBACKEND_ModelVersion(handle, &version)));
  if (type != TRITONBACKEND_ARTIFACT_FILESYSTEM)
    return fail(TRITONSERVER_ERROR_UNSUPPORTED, "the model repository must be a folder");
  folder_ = folder;
  file_ = std::to_string(version) + "/" + settings_.file;
  return nullptr;
}

Error Model::program(int32_t gpu, const Program** program) {
  std::lock_guard lock(mutex_);
  for (const auto& known : programs_) {
    if (known->device().gpu != gpu) continue;
    *program = known.get();
    return nullptr;
  }
  Device device;
  HUSK_TRITON_TRY(devices_->open(gpu, &device));
  std::unique_ptr<Program> entry;
  HUSK_TRITON_TRY(Program::open(folder_, file_, settings_, device, &entry));
  *program = entry.get();
  programs_.push_back(std::move(entry));
  return nullptr;
}

}  // namespace husk::triton
