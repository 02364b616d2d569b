// A session of Husk that answers requests.
#ifndef HUSK_BINDINGS_TRITON_SESSION_H
#define HUSK_BINDINGS_TRITON_SESSION_H

#include <memory>
#include <vector>

#include "call.h"
#include "model.h"

namespace husk::triton {

class Session {
 public:
  [[nodiscard]] static Error create(const Model& model, std::unique_ptr<Session>* session);
  // Runs the function for one call. The outputs are written to the response where their shapes are
  // known before the run, and copied otherwise.
  [[nodiscard]] Error run(Call* call);
  // Runs the function once for the rows of several calls, which fit one another. A failure that
  // concerns one call is that call's error.
  [[nodiscard]] Error run(const std::vector<Call*>& calls);
  // Sets all states to their initial values.
  [[nodiscard]] Error reset();
  // Whether the states are those that the calls so far have left. A run that fails may have written
  // a part of them; reset() makes them valid again.
  bool has_valid_states() const { return valid_states_; }
  // Sets all states but the one of the random numbers to their initial values.
  [[nodiscard]] Error forget();

 private:
  explicit Session(const Model& model) : model_(model) {}
  Error reset(bool generator);
  Error bind(const Call& call);
  Error gather(const std::vector<Call*>& calls);
  Error prepare();
  Error plan_outputs();
  Error bind_outputs(Call* call);
  Error invoke();
  Error copy_output(size_t output, Call* call, int64_t first_row, int64_t rows);

  struct Release {
    void operator()(husk_session* session) const { husk_session_release(session); }
  };
  static constexpr int32_t kMaxRank = 16;  // Husk's
  struct Shape {
    int64_t sizes[kMaxRank], strides[kMaxRank];
  };
  struct Output {
    Shape shape;      // for the inputs of the last resize
    uint64_t bytes;   // of the elements
    bool known;       // the shape is known before the run
    bool contiguous;  // as Triton has tensors
    bool direct;      // the run writes to the response
    DLTensor tensor;  // the memory of the response
  };

  const Model& model_;
  std::unique_ptr<husk_session, Release> session_;
  std::vector<husk_value> input_values_, output_values_;
  std::vector<DLTensor> input_tensors_;
  std::vector<Shape> input_shapes_;
  std::vector<Output> outputs_;
  std::vector<Memory> batches_;     // for each input: the rows of several calls
  std::vector<int64_t> arguments_;  // sizes and numbers of this run
  std::vector<int64_t> prepared_;   // those of the last resize; empty: none succeeded
  uint64_t compute_start_ = 0, compute_end_ = 0;
  bool valid_states_ = true;
};

// Returns the time of CLOCK_MONOTONIC in nanoseconds.
uint64_t now();

}  // namespace husk::triton

#endif
