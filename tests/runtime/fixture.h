// Common parts of the runtime's tests: an artifact from text, an engine on the host port, values.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include <husk/husk.h>
#include <husk/port_host.h>

#include "../values.h"

namespace husk::test {

// Compiles a program; the test kernels are the image "kernels.so" of target host HUSK_TEST_ARCH.
// Throws on an error in the text.
std::vector<uint8_t> artifact(const std::string& body);

// Memory that is aligned as husk_program_load requires.
class Aligned {
 public:
  explicit Aligned(const std::vector<uint8_t>& bytes);
  ~Aligned();
  Aligned(const Aligned&) = delete;
  Aligned& operator=(const Aligned&) = delete;
  const void* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  void* data_;
  size_t size_;
};

// A tensor over memory of the test. It is contiguous unless strides are given.
struct Tensor {
  DLTensor dl = {};
  std::vector<int64_t> shape, strides;
  std::vector<uint8_t> own;

  Tensor(husk_dtype dtype, std::vector<int64_t> sizes, void* data = nullptr,
         std::vector<int64_t> steps = {});
  Tensor(const Tensor&) = delete;
  template <class T>
  T* as() {
    return static_cast<T*>(dl.data);
  }
  husk_value value();
};

// An engine, a program, a session. `options` may name an allocator.
class Machine {
 public:
  explicit Machine(const std::string& body, husk_engine_options options = defaults(),
                   const husk_session_options* session_options = nullptr,
                   std::vector<husk_op> extra = {});
  // Loads an artifact.
  explicit Machine(const std::vector<uint8_t>& file, husk_engine_options options = defaults(),
                   const husk_session_options* session_options = nullptr,
                   std::vector<husk_op> extra = {});
  ~Machine();
  static husk_engine_options defaults();

  husk_status run(std::vector<husk_value> inputs, std::vector<husk_value> outputs,
                  uint32_t function = 0);
  husk_status resize(std::vector<husk_value> inputs, uint32_t function = 0);

  husk_engine* engine = nullptr;
  husk_program* program = nullptr;
  husk_session* session = nullptr;
  husk_error error = {};
  std::vector<husk_value> results;  // of the last run

 private:
  Aligned bytes_;
};

}  // namespace husk::test
