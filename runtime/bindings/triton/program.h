// An artifact that is open on a device, and the functions of it that requests call.
#ifndef HUSK_BINDINGS_TRITON_PROGRAM_H
#define HUSK_BINDINGS_TRITON_PROGRAM_H

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <husk/husk.h>

#include "config.h"
#include "devices.h"
#include "signature.h"

namespace husk::triton {

class Program {
 public:
  Program(const Program&) = delete;
  // Opens the file `folder`/`file`. Texts of errors name the file without its folder, because
  // clients see errors of a load.
  [[nodiscard]] static Error open(const std::string& folder, const std::string& file,
                                  const Settings& settings, const Device& device,
                                  std::unique_ptr<Program>* program);

  // Several threads may use the program.
  husk_program* get() const { return program_.get(); }
  const Device& device() const { return device_; }
  // The functions that a request may choose, of which the first one is the default.
  const std::vector<Signature>& functions() const { return functions_; }
  const Signature& signature() const { return functions_[0]; }
  // The inputs and outputs of a request for each function, which are the function's but for a
  // stream.
  const std::vector<Signature>& requests() const {
    return stream_signatures_.empty() ? functions_ : stream_signatures_;
  }
  // The signature of the function that the later requests of a sequence call; null if it is the
  // same function.
  const Signature* next_signature() const { return next_signature_ ? &*next_signature_ : nullptr; }
  // Whether a call changes what later calls of the session return. The generator of random numbers
  // does not count: it has no data of a client.
  bool has_state() const { return has_state_; }

 private:
  explicit Program(const Device& device) : device_(device) {}
  Error read_signatures(const Settings& settings);
  Error read_states();

  struct Release {
    void operator()(husk_program* program) const { husk_program_release(program); }
  };
  Device device_;
  std::unique_ptr<husk_program, Release> program_;
  std::vector<Signature> functions_, stream_signatures_;
  std::optional<Signature> next_signature_;
  bool has_state_ = false;
};

// Whether a state is the generator of random numbers.
bool is_generator(const husk_storage_info& state);

}  // namespace husk::triton

#endif
