// The inputs and outputs of a function of an artifact, as Triton describes tensors.
#ifndef HUSK_BINDINGS_TRITON_SIGNATURE_H
#define HUSK_BINDINGS_TRITON_SIGNATURE_H

#include <string>
#include <vector>

#include <husk/husk.h>

#include "error.h"

namespace husk::triton {

// An input or output. Triton has tensors only: an int, a float and a bool of Husk are tensors of
// one element there.
struct Value {
  std::string name;
  int32_t kind = HUSK_VALUE_NONE;  // a NONE has no tensor in Triton
  TRITONSERVER_DataType type = TRITONSERVER_TYPE_INVALID;
  husk_dtype dtype = HUSK_DTYPE_NONE;  // of the tensor in Triton
  size_t element_bytes = 0;
  int32_t rank = 0;
  std::vector<int64_t> ranges;  // the smallest and largest size of each dim of an input tensor
  uint32_t alignment = 1;       // that the kernels assume for the address
  bool is_written = false;      // a run writes to the tensor
  bool optional = false;        // some of the functions that a request may choose lack it
};

struct Signature {
  uint32_t function = 0;  // the number in the artifact
  std::string name;       // of the function
  std::vector<Value> inputs, outputs;

  // Reads the signature of the function of that name. The name may be empty: then the artifact has
  // one function, or one named "forward".
  [[nodiscard]] static Error read(const husk_program* program, const std::string& name,
                                  Signature* signature);
  // Compares the signature with that of a function that takes the same requests. Afterwards both
  // have the names, and allow the sizes, that a request may have.
  [[nodiscard]] Error join(Signature* other);
  // Adds the inputs and outputs of another function, which requests may choose instead. Values of
  // the same name must agree in type and rank.
  [[nodiscard]] Error add(const Signature& other);
};

// Returns the index of the input or output of a name, the number of all if there is none.
size_t find(const std::vector<Value>& values, const std::string& name);

// Returns the names of inputs or outputs as a text, "none" if there are none.
std::string names(const std::vector<Value>& values);
// Returns the names of functions as a text.
std::string names(const std::vector<Signature>& functions);

// Returns the name of a type in config.pbtxt, such as "TYPE_FP32".
const char* config_type(TRITONSERVER_DataType type);

}  // namespace husk::triton

#endif
