// The outputs of a call: memory of PyTorch or NumPy into which a run writes.
#ifndef HUSK_PYTHON_RESULT_H
#define HUSK_PYTHON_RESULT_H

#include <nanobind/nanobind.h>

#include <memory>
#include <vector>

#include "view.h"

namespace husk::python {

// One output of a function, used again by each call of a session.
class Result {
 public:
  // The shape of the next calls, in elements: `rank` sizes and then `rank` strides.
  void set_shape(husk_dtype dtype, DLDevice device, const std::vector<int64_t>& shape);

  // Bytes to which the address must be aligned.
  uint32_t alignment = 1;
  // Only a run decides the shape.
  bool dynamic = false;
  // `rank` sizes and then `rank` strides.
  std::vector<int64_t> shape;

  // Allocates memory: PyTorch's if `api` is its table, NumPy's if `api` is NULL. An output that
  // lies on a device gets memory of NumPy only if it `is_staged`: a run copies it from the device.
  void allocate(const ExchangeApi* api, bool is_staged, const char* name);
  // The bytes that `allocate` asks for.
  uint64_t bytes() const { return static_cast<uint64_t>(extent_) * husk_dtype_size(dtype_); }
  // Takes memory of the caller, from `out=`.
  void use(PyObject* object, const char* name);
  // Copies a tensor of the session, whose run has ended, to new memory. Memory of NumPy gets what
  // lies on a device only with that `engine`, as in `allocate`.
  void copy(const DLTensor& from, const ExchangeApi* api, husk_engine* engine, const char* name);

  // The memory of the caller.
  const View& view() const { return *view_; }

  DLTensor* tensor() { return managed_ ? &managed_->dl_tensor : &view_->tensor; }

  // Returns the object of Python.
  nb::object finish();
  // Frees what a call that failed leaves.
  void discard();

  Result() = default;
  Result(Result&& other) = default;
  ~Result() { discard(); }

 private:
  void allocate_exchange();
  void allocate_numpy(bool is_staged, const char* name);

  husk_dtype dtype_ = HUSK_DTYPE_NONE;
  DLDevice device_ = {kDLCPU, 0};
  int64_t extent_ = 0;  // elements from the first to the last one of the shape
  bool contiguous_ = true;
  nb::object numpy_shape_;  // the sizes as a tuple, kept for numpy.empty

  const ExchangeApi* api_ = nullptr;
  ManagedTensor* managed_ = nullptr;
  nb::object object_;
  std::unique_ptr<View> view_;
};

// Drops what this file keeps of NumPy.
void forget_numpy();

}  // namespace husk::python

#endif
