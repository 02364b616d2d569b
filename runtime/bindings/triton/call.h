// A request of Triton and its response.
#ifndef HUSK_BINDINGS_TRITON_CALL_H
#define HUSK_BINDINGS_TRITON_CALL_H

#include <vector>

#include "devices.h"
#include "error.h"
#include "memory.h"
#include "signature.h"

namespace husk::triton {

class Model;
class Program;

// An input of a request.
struct InputView {
  const int64_t* shape = nullptr;  // the request's
  uint32_t rank = 0;
  const void* data = nullptr;
  uint64_t bytes = 0;
  bool on_gpu = false;  // the memory is that of the GPU of the instance, not the host's
};

// Memory of a response.
struct Block {
  void* data = nullptr;
  bool on_gpu = false;  // of the instance
};

// Adds an output to a response, and returns its memory: that of the device, if the server gives it,
// else that of the host.
[[nodiscard]] Error write_output(TRITONBACKEND_Response* response, const Value& value,
                                 const int64_t* shape, uint32_t rank, uint64_t bytes,
                                 const Device& device, Block* block);

// Whether programs for a GPU can use an address without a copy.
bool suits_gpu(const void* data);

// One request, from its arrival to its release. An instance uses its calls again and again, so the
// vectors keep their memory.
class Call {
 public:
  // Takes a request. Reads the function that it chooses, its inputs, and the outputs that it asks
  // for; error() says what is wrong with it. A call that is open is sent and released. It has a
  // response unless the model is decoupled.
  void open(TRITONBACKEND_Request* request, const Model& model, const Program& program);
  // Sends the response, or the error if there is one.
  void send();
  // Returns the request to the server.
  void release();

  bool failed() const { return static_cast<bool>(error_); }
  TRITONSERVER_Error* error() const { return error_.get(); }
  void set_error(Error error) { error_ = std::move(error); }
  // Ends with an error if the client no longer waits.
  [[nodiscard]] Error check_cancelled() const;

  TRITONBACKEND_Request* request() const { return request_; }
  // The index of the function among those of the model.
  size_t function() const { return function_; }
  const std::vector<InputView>& inputs() const { return inputs_; }
  // Whether the request asks for the output.
  bool asks_for(size_t output) const { return asked_[output]; }
  // Returns the memory of the response for an output.
  [[nodiscard]] Error output(const Value& value, const int64_t* shape, uint32_t rank,
                             uint64_t bytes, const Device& device, Block* block) {
    return write_output(response_, value, shape, rank, bytes, device, block);
  }

  // Whether a batch may consist of the rows of both calls: they are for the same function, and the
  // sizes after dim 0 are equal.
  bool fits(const Call& other) const;
  // The sizes of dim 0 of the inputs, which are equal; 0 if they are not.
  int64_t rows() const;

  // Monotonic times in nanoseconds of the run that the call was a part of; 0: none.
  uint64_t compute_start = 0, compute_end = 0;

 private:
  Error read_function(const std::vector<Signature>& functions);
  Error read(const Model& model, const Program& program);
  Error check_inputs(const Signature& signature, const std::vector<Signature>& functions) const;
  Error read_outputs(const Signature& signature, const Model& model);
  Error read_input(const Value& value, const Device& device, InputView* view, Memory* copy);

  TRITONBACKEND_Request* request_ = nullptr;
  TRITONBACKEND_Response* response_ = nullptr;
  Error error_;
  size_t function_ = 0;
  std::vector<InputView> inputs_;
  std::vector<Memory> copies_;  // of inputs that came in several buffers or at a wrong address
  std::vector<uint8_t> asked_;  // a flag for each output
};

// Multiplies the sizes of a shape and the bytes of an element. Returns false if a size is negative
// or the product does not fit: the server lets shapes through whose bytes wrap around.
[[nodiscard]] bool shape_bytes(const int64_t* shape, uint32_t rank, size_t element_bytes,
                               uint64_t* bytes);

}  // namespace husk::triton

#endif
