// An instance of a model: a thread of the server that executes requests.
#ifndef HUSK_BINDINGS_TRITON_INSTANCE_H
#define HUSK_BINDINGS_TRITON_INSTANCE_H

#include <memory>
#include <vector>

#include "call.h"
#include "model.h"
#include "session.h"

namespace husk::triton {

class Instance {
 public:
  [[nodiscard]] static Error create(TRITONBACKEND_ModelInstance* handle, Model* model,
                                    std::unique_ptr<Instance>* instance);
  // Answers and releases all requests.
  void execute(TRITONBACKEND_Request** requests, uint32_t count);

 private:
  Instance(TRITONBACKEND_ModelInstance* handle, Model* model, const Program& program)
      : handle_(handle), model_(model), program_(program) {}
  // A run of the function, for the statistics of the server.
  struct Run {
    uint64_t rows, compute_start, compute_end;
  };
  void run(uint32_t count);
  void run_one(Call* call);
  Error run_alone(Call* call);
  void run_batch();
  void add_run(const Call& call, uint64_t rows);

  TRITONBACKEND_ModelInstance* handle_;
  Model* model_;
  const Program& program_;            // the model's, on the device of the instance
  std::unique_ptr<Session> session_;  // null: each sequence has one, or each rank
  std::vector<Call> calls_;
  std::vector<Call*> batch_;  // that run together
  std::vector<Run> runs_;
};

}  // namespace husk::triton

#endif
