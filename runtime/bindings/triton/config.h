// The configuration of a model: config.pbtxt, which the server passes as JSON.
#ifndef HUSK_BINDINGS_TRITON_CONFIG_H
#define HUSK_BINDINGS_TRITON_CONFIG_H

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "error.h"
#include "signature.h"

namespace husk::triton {

// The values that the backend reads from the configuration of a model.
struct Settings {
  std::string file = "model.husk";  // in the folder of the version: default_model_filename
  int64_t max_batch_size = 0;       // 0: the function has no batch that Triton knows of
  bool sequences = false;           // sequence_batching is there
  bool decoupled = false;           // a request gives a stream of responses

  // Where the first instance runs: the number of a GPU, or Device::kCpu.
  int32_t gpu = -1;
  bool automatic = false;  // the server chooses between GPUs and the CPU
  // Where instances with KIND_MODEL run: the parameter "device".
  int32_t model_gpu = -1;

  // Parameters of the model.
  std::string function;                // empty: the only one, or "forward"
  std::vector<std::string> functions;  // that a request may choose from; empty: only `function`
  std::string next_function;      // for later requests of a sequence, or later steps of a stream
  uint64_t memory_limit = 0;      // bytes that a session, or the outputs of a call, may take
  uint64_t max_sequences = 128;   // live sequences
  uint64_t ranks = 1;             // devices on which the model runs at once
  uint32_t group_timeout_ms = 0;  // how long a rank waits for another one; 0: Husk's default

  // The time after which a sequence without a request is dropped. The server itself refuses its
  // requests after half of that.
  uint64_t sequence_idle_ns = 0;
};

class Config {
 public:
  Config();
  ~Config();
  // Takes the configuration of a model from the server.
  [[nodiscard]] Error read(TRITONBACKEND_Model* model);
  // Checks the parts of the configuration that do not depend on the artifact.
  [[nodiscard]] Error settings(Settings* settings) const;
  // Compares the configuration with the signature of the function. Adds what the configuration
  // lacks if the server allows that, and sends the result to the server. Never sets max_batch_size:
  // a dimension of any size need not be a batch.
  [[nodiscard]] Error complete(const Settings& settings, const Signature& signature,
                               TRITONBACKEND_Model* model);

  // The number of outputs that the complete configuration has.
  size_t output_count() const;

 private:
  struct Document;
  std::unique_ptr<Document> document_;
};

// Reads a value that was given on the command line as --backend-config=husk,KEY=VALUE. Leaves
// `value` as it is if there is none.
[[nodiscard]] Error read_command_line(TRITONBACKEND_Backend* backend, const char* key,
                                      uint64_t* value);

}  // namespace husk::triton

#endif
