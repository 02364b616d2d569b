// One version of a model: an open artifact and the function of it that requests call.
#ifndef HUSK_BINDINGS_TRITON_MODEL_H
#define HUSK_BINDINGS_TRITON_MODEL_H

#include <memory>
#include <optional>
#include <string>

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
  const Signature& signature() const { return signature_; }
  // The inputs and outputs of a request, which are those of the function but for a stream.
  const Signature& requests() const { return stream_signature_ ? *stream_signature_ : signature_; }
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
  Signature signature_;
  std::optional<Signature> next_signature_, stream_signature_;
  std::unique_ptr<husk_program, Release> program_;
  bool has_state_ = false;
  std::unique_ptr<Sequences> sequences_;
};

// Whether a state is the generator of random numbers.
bool is_generator(const husk_storage_info& state);

}  // namespace husk::triton

#endif
