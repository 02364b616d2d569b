// One version of a model: an open artifact and the functions of it that requests call.
#ifndef HUSK_BINDINGS_TRITON_MODEL_H
#define HUSK_BINDINGS_TRITON_MODEL_H

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <husk/husk.h>

#include "config.h"
#include "signature.h"

namespace husk::triton {

class Sequences;

class Model {
 public:
  Model(const Model&) = delete;
  ~Model();
  // Opens the artifact of a model, and compares or completes the model's configuration.
  [[nodiscard]] static Error create(TRITONBACKEND_Model* handle, husk_engine* engine,
                                    std::unique_ptr<Model>* model);

  // Several threads may use the program.
  husk_program* program() const { return program_.get(); }
  // The functions that a request may choose, of which the first one is the default.
  const std::vector<Signature>& functions() const { return functions_; }
  const Signature& signature() const { return functions_[0]; }
  // The inputs and outputs of a request for each function, which are the function's but for a
  // stream.
  const std::vector<Signature>& requests() const {
    return stream_signatures_.empty() ? functions_ : stream_signatures_;
  }
  // The number of outputs that the configuration has. A client that names none asks for them all.
  size_t output_count() const { return output_count_; }
  // The signature of the function that the later requests of a sequence call; null if it is the
  // same function.
  const Signature* next_signature() const { return next_signature_ ? &*next_signature_ : nullptr; }
  const Settings& settings() const { return settings_; }
  // Whether a call changes what later calls of the session return. The generator of random numbers
  // does not count: it has no data of a client.
  bool has_state() const { return has_state_; }
  Sequences& sequences() { return *sequences_; }

 private:
  Model();
  Error read_signatures();
  Error open(TRITONBACKEND_Model* handle, husk_engine* engine);

  struct Release {
    void operator()(husk_program* program) const { husk_program_release(program); }
  };
  Settings settings_;
  std::vector<Signature> functions_, stream_signatures_;
  std::optional<Signature> next_signature_;
  std::unique_ptr<husk_program, Release> program_;
  bool has_state_ = false;
  size_t output_count_ = 0;
  std::unique_ptr<Sequences> sequences_;
};

// Whether a state is the generator of random numbers.
bool is_generator(const husk_storage_info& state);

}  // namespace husk::triton

#endif
