// One version of a model: its settings, and its artifact on each device that instances run on.
#ifndef HUSK_BINDINGS_TRITON_MODEL_H
#define HUSK_BINDINGS_TRITON_MODEL_H

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "config.h"
#include "devices.h"
#include "program.h"
#include "ranks.h"

namespace husk::triton {

class Sequences;

class Model {
 public:
  Model(const Model&) = delete;
  ~Model();
  // Opens the artifact of a model, and compares or completes the model's configuration. `devices`
  // lives longer than the model.
  [[nodiscard]] static Error create(TRITONBACKEND_Model* handle, Devices* devices,
                                    std::unique_ptr<Model>* model);

  // The artifact on the device of the first instance.
  const Program& home() const { return *home_; }
  // Returns the artifact on a device, where it is opened if no instance was there.
  [[nodiscard]] Error program(int32_t gpu, const Program** program);
  // The number of outputs that the configuration has. A client that names none asks for them all.
  size_t output_count() const { return output_count_; }
  const Settings& settings() const { return settings_; }
  Sequences& sequences() { return *sequences_; }
  // The ranks of a model that runs on several devices at once; null if it runs on one.
  Ranks* ranks() const { return ranks_.get(); }

 private:
  explicit Model(Devices* devices);
  Error locate(TRITONBACKEND_Model* handle);

  Devices* devices_;
  Settings settings_;
  std::string folder_, file_;  // of the artifact: the file's path in the folder
  const Program* home_ = nullptr;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Program>> programs_;
  std::unique_ptr<Ranks> ranks_;
  size_t output_count_ = 0;
  std::unique_ptr<Sequences> sequences_;
};

}  // namespace husk::triton

#endif
