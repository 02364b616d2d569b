// A function of an artifact, in a session of Husk, that answers requests.
#ifndef HUSK_BINDINGS_TRITON_FUNCTION_H
#define HUSK_BINDINGS_TRITON_FUNCTION_H

#include <vector>

#include "../prepared_inputs.h"
#include "call.h"
#include "signature.h"

namespace husk::triton {

class Function {
 public:
  // Where a session runs.
  struct Place {
    Device device;
    void* stream;
    uint64_t memory_limit;
  };
  // `session`, `signature` and the stream live longer than the object.
  Function(husk_session* session, const Signature& signature, const Place& place);
  // Runs the function for one call. The outputs are written to the response where their shapes are
  // known before the run, and copied otherwise.
  [[nodiscard]] Error run(Call* call);
  // Runs the function once for the rows of several calls, which fit one another. A failure that
  // concerns one call is that call's error.
  [[nodiscard]] Error run(const std::vector<Call*>& calls);
  // Runs the function for these inputs. The outputs stay in the session until the next run.
  [[nodiscard]] Error run(const std::vector<InputView>& inputs);
  // The same for the rows of several calls.
  [[nodiscard]] Error follow(const std::vector<Call*>& calls);
  // Returns an output, a tensor, of the last run in memory of the host.
  [[nodiscard]] Error host_output(size_t index, DLTensor* tensor);
  // Monotonic times in nanoseconds of the last run.
  uint64_t compute_start() const { return compute_start_; }
  uint64_t compute_end() const { return compute_end_; }
  // Whether a run failed after it had begun, so that it may have written a part of a state.
  bool broke() const { return broke_; }
  // The states are valid again.
  void mend() { broke_ = false; }

 private:
  Error bind(const std::vector<InputView>& inputs);
  Error gather(const std::vector<Call*>& calls);
  Error prepare();
  Error plan_outputs();
  Error bind_outputs(Call* call);
  Error copy_input(size_t input, const InputView& view);
  void stage_from(size_t input, const void* data, uint64_t bytes);
  Error stage();
  Error invoke();
  Error copy_output(size_t output, Call* call, int64_t first_row, int64_t rows);
  void trim();

  static constexpr int32_t kMaxRank = 16;  // Husk's
  struct Shape {
    int64_t sizes[kMaxRank], strides[kMaxRank];
  };
  struct Output {
    Shape shape;      // for the inputs of the last resize
    uint64_t bytes;   // of the elements
    bool known;       // the shape is known before the run
    bool contiguous;  // as Triton has tensors
    bool direct;      // the response has memory already
    Block block;      // that memory
    DLTensor tensor;  // the same
    Memory host;      // a copy of the result of a GPU
    bool copied;      // `host` has the result of the last run
  };

  // An input that is copied from the host to the GPU before the run.
  struct Staged {
    const void* from = nullptr;  // null: it lies there already
    uint64_t bytes = 0;
    DeviceMemory memory;
  };

  husk_session* session_;
  const Signature& signature_;
  Place place_;
  std::vector<husk_value> input_values_, output_values_;
  std::vector<DLTensor> input_tensors_;
  std::vector<Shape> input_shapes_;
  std::vector<Output> outputs_;
  // For each input: the rows of several calls, or a copy of what the run writes to.
  std::vector<Memory> batches_;
  std::vector<Staged> staged_;  // for each input
  Memory rows_;                 // of an output that is sent to memory of the GPU
  bindings::PreparedInputs prepared_;
  uint64_t compute_start_ = 0, compute_end_ = 0;
  bool broke_ = false;
};

// Returns the time of CLOCK_MONOTONIC in nanoseconds.
uint64_t now();

}  // namespace husk::triton

#endif
