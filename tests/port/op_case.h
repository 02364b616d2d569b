// An op of a library of NVIDIA's under test.
#pragma once

#include "port_case.h"

namespace husk::port_test {

inline husk_op_arg tensor_arg(int32_t access, int32_t dtype, int32_t rank, void* memory,
                              const int64_t* sizes, const int64_t* strides) {
  husk_op_arg arg{};
  arg.kind = HUSK_ARG_TENSOR;
  arg.access = access;
  arg.dtype = dtype;
  arg.rank = rank;
  arg.data = memory;
  arg.sizes = sizes;
  arg.strides = strides;
  return arg;
}
inline husk_op_arg integer(int64_t value) {
  husk_op_arg arg{};
  arg.kind = HUSK_ARG_INT;
  arg.i = value;
  return arg;
}
inline husk_op_arg number(double value) {
  husk_op_arg arg{};
  arg.kind = HUSK_ARG_FLOAT;
  arg.f = value;
  return arg;
}
inline husk_op_arg text(const char* value) {
  husk_op_arg arg{};
  arg.kind = HUSK_ARG_STRING;
  arg.string = value;
  return arg;
}
// `values` must outlive the argument.
inline husk_op_arg ints(const std::vector<int64_t>& values) {
  husk_op_arg arg{};
  arg.kind = HUSK_ARG_INTS;
  arg.count = static_cast<int64_t>(values.size());
  arg.sizes = values.data();
  return arg;
}

// A fixture, Cuda or OverFake, with an op.
template <class Fixture>
class WithOp : public Fixture {
 protected:
  // Finds an op; skips the test if the machine lacks the library.
  void find(const char* name) {
    op = HUSK_OP_INIT;
    const husk_status status = this->port->find_op(this->device, name, &op, &this->error);
    if (status == HUSK_UNSUPPORTED && !fake()) GTEST_SKIP() << this->error.text;
    ASSERT_EQ(status, HUSK_OK) << this->error.text;
  }
  husk_status enqueue(husk_op_fn function, const std::vector<husk_op_arg>& args) {
    const husk_op_context context = context_of(op.user, this->device, this->stream);
    return function(&context, args.data(), static_cast<uint32_t>(args.size()), &this->error);
  }
  husk_status call(const std::vector<husk_op_arg>& args) { return enqueue(op.call, args); }
  // The call and its preparation are refused with these words.
  void expect_refused(const std::vector<husk_op_arg>& args, husk_status status, const char* words) {
    for (husk_op_fn function : {op.call, op.prepare}) {
      EXPECT_EQ(enqueue(function, args), status) << words;
      EXPECT_TRUE(this->error_says(words)) << this->error.text;
    }
  }
  // Memory of `workspace_size` bytes as the last argument of an op.
  husk_op_arg workspace_arg() const {
    static constexpr int64_t kOne = 1;
    return tensor_arg(HUSK_ACCESS_WRITE, HUSK_U8, 1, workspace, &workspace_size, &kOne);
  }
  // Without its library the op is refused with `missing`, with another library with `other`.
  void expect_errors_of_opening(const char* name, const char* husk_cuda_options::*path,
                                const char* file, const char* missing, const char* other) {
    husk_cuda_options options = HUSK_CUDA_OPTIONS_INIT;
    options.*path = file;
    this->open_with(options);
    const int host_live = this->memory.live;
    EXPECT_EQ(this->port->find_op(this->device, name, &op, &this->error), HUSK_UNSUPPORTED);
    EXPECT_TRUE(this->error_says(std::string(file) + " LD_LIBRARY_PATH " + missing))
        << this->error.text;
    EXPECT_EQ(this->memory.live, host_live);
    options.*path = "libcuda.so.1";
    this->open_with(options);
    EXPECT_EQ(this->port->find_op(this->device, name, &op, &this->error), HUSK_UNSUPPORTED);
    EXPECT_TRUE(this->error_says(other)) << this->error.text;
  }

  husk_op op = HUSK_OP_INIT;
  void* workspace = nullptr;
  int64_t workspace_size = 1 << 20;
};

}  // namespace husk::port_test
