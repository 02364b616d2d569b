// Whether a session is prepared for the inputs of a call: the rule of husk_session_resize.
#ifndef HUSK_BINDINGS_PREPARED_INPUTS_H
#define HUSK_BINDINGS_PREPARED_INPUTS_H

#include <cstring>
#include <utility>
#include <vector>

#include <husk/husk.h>

namespace husk::bindings {

// The sizes, strides and numbers of the inputs of the last resize of a function.
class PreparedInputs {
 public:
  // Reads the inputs of a call. Returns whether they are equal to those of the last resize.
  bool equal(const std::vector<husk_value>& inputs) {
    next_.clear();
    for (const husk_value& input : inputs) {
      if (input.kind != HUSK_VALUE_TENSOR) {
        int64_t bits = 0;
        if (input.kind == HUSK_VALUE_FLOAT)
          memcpy(&bits, &input.as.f, sizeof bits);
        else if (input.kind != HUSK_VALUE_NONE)
          bits = input.as.i;
        next_.push_back(bits);
        continue;
      }
      const DLTensor& tensor = *input.as.tensor;
      next_.insert(next_.end(), tensor.shape, tensor.shape + tensor.ndim);
      next_.push_back(tensor.strides != nullptr);
      if (tensor.strides) next_.insert(next_.end(), tensor.strides, tensor.strides + tensor.ndim);
    }
    return known_ && next_ == last_;
  }
  // A resize for the inputs that `equal` has read last was successful.
  void remember() {
    std::swap(last_, next_);
    known_ = true;
  }
  void forget() { known_ = false; }
  bool known() const { return known_; }

 private:
  std::vector<int64_t> last_, next_;
  bool known_ = false;
};

}  // namespace husk::bindings

#endif
