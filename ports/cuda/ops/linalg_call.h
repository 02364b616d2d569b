// One call of an op of linalg.def: its arguments, its memory, and the library.
#pragma once

#include <husk/op.h>

#include "device.h"
#include "ops/arguments.h"
#include "ops/scratch.h"
#include "ops/solver.h"

namespace husk::cuda {

// The cuSOLVER of one device: OpLibrary.state, and `user` of the ops.
struct Linalg {
  static constexpr const char* kTitle = "cuSOLVER";
  // Bytes of host scratch that are there before anything is prepared.
  static constexpr size_t kFirstHostBytes = 64 << 10;

  husk_status open(const Device& device, husk_error* error);
  void close(const Device& device);

  Cusolver cusolver;
  // Held while a call uses the library's handle, which has one stream, and the host scratch.
  pthread_mutex_t mutex;
  void* host_scratch;
  size_t host_bytes;
};

// A tensor as a batch of matrices that lie one after another, column by column, without gaps.
struct Matrices {
  char* data;
  int64_t rows, columns, batch;
  int64_t element_bytes;

  int64_t bytes() const { return rows * columns * element_bytes; }  // of one matrix
  bool is_empty() const { return rows == 0 || columns == 0 || batch == 0; }
  char* at(int64_t index) const { return data + index * bytes(); }
};

class LinalgCall {
 public:
  LinalgCall(const char* name, const char* contract, const husk_op_context* context,
             const husk_op_arg* args, uint32_t count, bool prepares, husk_error* error);
  LinalgCall(const LinalgCall&) = delete;
  LinalgCall& operator=(const LinalgCall&) = delete;

  const Cusolver& library() const { return linalg_.cusolver; }

  // Arguments

  // Whether there are as many arguments as the op takes, and the addresses of tensors are aligned.
  husk_status check_arguments() const;
  // Argument `index` as matrices, of the dtype of argument 0. `transposed`: as the transposed
  // matrices of a tensor that lies row by row.
  husk_status matrices(uint32_t index, Matrices* out, bool transposed = false) const;
  // The address of a dense tensor of `count` elements.
  template <class T>
  husk_status dense(uint32_t index, int32_t dtype, int64_t count, T** out) const {
    void* data = nullptr;
    HUSK_TRY(dense_memory(index, dtype, count, &data));
    *out = static_cast<T*>(data);
    return HUSK_OK;
  }
  // The address of a workspace, which the program gives as a vector of f64, with room for `count`
  // elements of the dtype of argument 0.
  husk_status workspace(uint32_t index, int64_t count, char** out) const;
  // HUSK_INVALID_INPUT with a text that says which sizes do not fit, unless `fits`.
  husk_status expect(bool fits, const char* what) const;
  bool flag(uint32_t index) const { return args_[index].i != 0; }
  const char* text(uint32_t index) const;
  int32_t dtype() const { return args_[0].dtype; }
  bool is_double() const { return dtype() == HUSK_F64; }
  cudaDataType_t type() const { return is_double() ? CUDA_R_64F : CUDA_R_32F; }
  const husk_op_arg& operator[](uint32_t index) const { return args_[index]; }

  // Memory

  // Allocates device memory in the order of the stream: `own` bytes for the op, and `work` bytes
  // for the library, whose functions also want `host` bytes of host memory. While the call is
  // prepared it provides the host memory only, and `is_prepared` is true after it.
  husk_status reserve(size_t own, size_t work, size_t host = 0);
  bool is_prepared() const { return prepares_; }
  void* own() const { return own_; }
  void* work() const { return work_; }
  size_t work_bytes() const { return work_bytes_; }
  void* host_work() const { return host_bytes_ ? linalg_.host_scratch : nullptr; }
  size_t host_bytes() const { return host_bytes_; }
  // An argument of a query for a size, which the library does not read: before a run it may be
  // null, which the library refuses.
  template <class T>
  T* unread(T* address) const {
    return address ? address : reinterpret_cast<T*>(uintptr_t{256});
  }

  // Work in the stream

  husk_status copy(void* to, const void* from, int64_t bytes) const;
  // Copies `rows` bytes of each of `columns` columns.
  husk_status copy_columns(void* to, int64_t to_pitch, const void* from, int64_t from_pitch,
                           int64_t rows, int64_t columns) const;
  husk_status zero(void* to, int64_t bytes) const;
  // Makes matrices identity matrices.
  husk_status set_identity(const Matrices& matrices) const;
  // Zeroes what lies below the diagonal of matrix `index`, or above it.
  husk_status clear_below(const Matrices& matrices, int64_t index) const;
  husk_status clear_above(const Matrices& matrices, int64_t index) const;
  husk_status set_ints(int32_t* to, int64_t first, int64_t count) const;
  // Waits for the stream. Fails with the name of argument `index` if one of `count` numbers in
  // device memory is not in [1, rows].
  husk_status check_rows(uint32_t index, const int32_t* numbers, int64_t count, int64_t rows) const;

  // The status of a call of the library.
  husk_status check(cusolverStatus_t status, const char* call) const;
  // The same for a function that uses host memory. If it does, this waits for the stream, because
  // the next call uses the same memory.
  husk_status check_host_work(cusolverStatus_t status, const char* call) const;
  // After the op has ended, the call waits for the stream and fails with the text `failure` if one
  // of the numbers is not 0. They lie in device memory.
  void check_later(const int32_t* infos, int64_t count, const char* failure);

  // Runs `body` with the library's handle, then what check_later asked for.
  husk_status run(husk_status (*body)(LinalgCall& call));

 private:
  husk_status dense_memory(uint32_t index, int32_t dtype, int64_t count, void** out) const;
  husk_status wrong(uint32_t index, husk_status code, const char* what) const;
  husk_status driver_status(CUresult result, const char* call) const;
  husk_status fill(void* to, uint32_t value, int64_t pitch, int64_t words, int64_t rows) const;
  husk_status clear(const Matrices& matrices, int64_t index, bool below) const;
  husk_status reserve_host(size_t bytes);
  husk_status check_infos() const;
  // Calls look(numbers, count, index of the first) for parts of `count` numbers of device memory
  // until it fails. Waits for the stream.
  template <class Look>
  husk_status read_ints(const int32_t* from, int64_t count, const Look& look) const;

  const char *name_, *contract_;
  Device& device_;
  Linalg& linalg_;
  CUstream stream_;
  const husk_op_arg* args_;
  uint32_t count_;
  bool prepares_;
  husk_error* error_;

  Scratch scratch_;
  void *own_ = nullptr, *work_ = nullptr;
  size_t work_bytes_ = 0, host_bytes_ = 0;
  const int32_t* infos_ = nullptr;
  int64_t info_count_ = 0;
  const char* failure_ = nullptr;
};

// The ops.
#define HUSK_LINALG_OP(name, function, contract) husk_status function(LinalgCall& call);
namespace linalg {
#include "ops/linalg.def"
}
#undef HUSK_LINALG_OP

// The places of their arguments, by the names in linalg.def.
#define HUSK_LINALG_OP(name, function, contract) constexpr ArgumentPlaces function(contract);
namespace linalg::places {
#include "ops/linalg.def"
}
#undef HUSK_LINALG_OP

}  // namespace husk::cuda
