/* Husk for C++17: the handles of <husk/husk.h> as movable objects that release themselves, errors as exceptions, tensors from
 * pointers and shapes. Header only; threads, lifetimes and what calls do are husk.h's. */
#ifndef HUSK_HUSK_HPP
#define HUSK_HUSK_HPP

#include <husk/husk.h>

#include <memory>
#include <stdexcept>
#include <type_traits>
#include <utility>
#include <vector>

namespace husk {

// A failed call: what() is the text of husk_error.
class Error : public std::runtime_error {
 public:
  explicit Error(const husk_error& error)
      : std::runtime_error(error.text), status_(error.code), driver_code_(error.driver_code), step_(error.step) {}
  husk_status status() const noexcept { return status_; }
  int32_t driver_code() const noexcept { return driver_code_; }
  int32_t step() const noexcept { return step_; }

 private:
  husk_status status_;
  int32_t driver_code_, step_;
};

namespace detail {

template <class Call>
void check(Call call) {
  husk_error error = {};
  if (call(&error) != HUSK_OK) throw Error(error);
}

struct Release {
  void operator()(husk_engine* engine) const noexcept { husk_engine_release(engine); }
  void operator()(husk_program* program) const noexcept { husk_program_release(program); }
  void operator()(husk_session* session) const noexcept { husk_session_release(session); }
};

}  // namespace detail

// The element type of a C++ type.
template <class T>
constexpr husk_dtype dtype_of() {
  if constexpr (std::is_same_v<T, bool>) return HUSK_BOOL;
  else if constexpr (std::is_same_v<T, float>) return HUSK_F32;
  else if constexpr (std::is_same_v<T, double>) return HUSK_F64;
  else {
    static_assert(std::is_integral_v<T>, "name the dtype: this type is none of C++'s own numbers");
    constexpr bool is_signed = std::is_signed_v<T>;
    if constexpr (sizeof(T) == 1) return is_signed ? HUSK_I8 : HUSK_U8;
    else if constexpr (sizeof(T) == 2) return is_signed ? HUSK_I16 : HUSK_U16;
    else if constexpr (sizeof(T) == 4) return is_signed ? HUSK_I32 : HUSK_U32;
    else return is_signed ? HUSK_I64 : HUSK_U64;
  }
}

// A shape over memory of the caller's, which must outlive the run. Strides in elements; none: contiguous.
class Tensor {
 public:
  Tensor(void* data, husk_dtype dtype, std::vector<int64_t> sizes, std::vector<int64_t> strides = {},
         DLDevice device = {kDLCPU, 0})
      : sizes_(std::move(sizes)), strides_(std::move(strides)) {
    dl_.data = data;
    dl_.device = device;
    dl_.ndim = static_cast<int32_t>(sizes_.size());
    dl_.dtype = husk_dtype_to_dlpack(dtype);
  }
  template <class T>
  Tensor(T* data, std::vector<int64_t> sizes)
      : Tensor(const_cast<std::remove_const_t<T>*>(data), dtype_of<std::remove_const_t<T>>(), std::move(sizes)) {}

  // Valid until the tensor moves. A run may write the sizes of an output whose shape only the data decides.
  DLTensor* dlpack() {
    dl_.shape = sizes_.data();
    dl_.strides = strides_.empty() ? nullptr : strides_.data();
    return &dl_;
  }
  const std::vector<int64_t>& sizes() const { return sizes_; }

 private:
  DLTensor dl_ = {};
  std::vector<int64_t> sizes_, strides_;
};

// What goes in or out: husk_value, made from a number or a tensor. A tensor must outlive it.
class Value {
 public:
  Value() { value_.kind = HUSK_VALUE_NONE; }
  Value(Tensor& tensor) : Value(tensor.dlpack()) {}
  Value(DLTensor* tensor) {
    value_.kind = HUSK_VALUE_TENSOR;
    value_.as.tensor = tensor;
  }
  Value(bool b) { set(HUSK_VALUE_BOOL, b); }
  Value(int i) { set(HUSK_VALUE_INT, i); }
  Value(int64_t i) { set(HUSK_VALUE_INT, i); }
  Value(double f) {
    value_.kind = HUSK_VALUE_FLOAT;
    value_.as.f = f;
  }
  // After a run: an output's number, or its tensor (the session's, if none was given).
  int64_t integer() const { return value_.as.i; }
  double number() const { return value_.as.f; }
  DLTensor* tensor() const { return value_.as.tensor; }
  int32_t kind() const { return value_.kind; }

 private:
  void set(int32_t kind, int64_t i) {
    value_.kind = kind;
    value_.as.i = i;
  }
  husk_value value_ = {};
};
static_assert(sizeof(Value) == sizeof(husk_value), "arrays of values are passed as they are");

class Engine {
 public:
  explicit Engine(const husk_engine_options& options) {
    husk_engine* engine = nullptr;
    detail::check([&](husk_error* error) { return husk_engine_create(&options, &engine, error); });
    handle_.reset(engine);
  }
  void add_op(const husk_op& op) {
    detail::check([&](husk_error* error) { return husk_engine_add_op(get(), &op, error); });
  }
  void add_ops(const husk_op* ops, uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) add_op(ops[i]);
  }
  husk_port_properties properties() const {
    husk_port_properties out = {};
    husk_engine_properties(get(), &out);
    return out;
  }
  husk_engine* get() const { return handle_.get(); }

 private:
  std::unique_ptr<husk_engine, detail::Release> handle_;
};

class Program {
 public:
  Program(const Engine& engine, const char* path) {
    husk_program* program = nullptr;
    detail::check([&](husk_error* error) { return husk_program_open(engine.get(), path, &program, error); });
    handle_.reset(program);
  }
  // Memory aligned to 64 bytes that outlives every handle made from it, or until `release` is called.
  Program(const Engine& engine, const void* data, size_t size, void (*release)(void*, const void*) = nullptr,
          void* user = nullptr) {
    husk_program* program = nullptr;
    detail::check([&](husk_error* error) {
      return husk_program_load(engine.get(), data, size, release, user, &program, error);
    });
    handle_.reset(program);
  }
  uint32_t function(const char* name) const {
    uint32_t out = 0;
    detail::check([&](husk_error* error) { return husk_program_find_function(get(), name, &out, error); });
    return out;
  }
  uint32_t state(const char* name) const {
    uint32_t out = 0;
    detail::check([&](husk_error* error) { return husk_program_find_state(get(), name, &out, error); });
    return out;
  }
  husk_storage_info state_info(uint32_t state) const {
    husk_storage_info out = {};
    detail::check([&](husk_error* error) { return husk_program_state(get(), state, &out, error); });
    return out;
  }
  uint32_t constant(const char* name) const {
    uint32_t out = 0;
    detail::check([&](husk_error* error) { return husk_program_find_constant(get(), name, &out, error); });
    return out;
  }
  void update_constants(const std::vector<husk_constant_update>& updates) {
    detail::check([&](husk_error* error) {
      return husk_program_update_constants(get(), updates.data(), static_cast<uint32_t>(updates.size()), error);
    });
  }
  uint32_t outputs(uint32_t function = 0) const { return husk_program_output_count(get(), function); }
  husk_value_info input(uint32_t index, uint32_t function = 0) const {
    husk_value_info out = {};
    detail::check([&](husk_error* error) { return husk_program_input(get(), function, index, &out, error); });
    return out;
  }
  husk_value_info output(uint32_t index, uint32_t function = 0) const {
    husk_value_info out = {};
    detail::check([&](husk_error* error) { return husk_program_output(get(), function, index, &out, error); });
    return out;
  }
  husk_program* get() const { return handle_.get(); }

 private:
  std::unique_ptr<husk_program, detail::Release> handle_;
};

class Session {
 public:
  explicit Session(const Program& program, const husk_session_options& options = HUSK_SESSION_OPTIONS_INIT) {
    husk_session* session = nullptr;
    detail::check([&](husk_error* error) { return husk_session_create(program.get(), &options, &session, error); });
    handle_.reset(session);
    program_ = program.get();
  }
  void resize(const std::vector<Value>& inputs, uint32_t function = 0) {
    detail::check([&](husk_error* error) {
      return husk_session_resize(get(), function, data(inputs), size(inputs), error);
    });
  }
  void bound(uint32_t input, uint32_t dim, int64_t min, int64_t max, uint32_t function = 0) {
    detail::check([&](husk_error* error) {
      return husk_session_bound(get(), function, input, dim, min, max, error);
    });
  }
  // Writes to the outputs that are given; a none among them becomes a tensor of the session's.
  void run(const std::vector<Value>& inputs, std::vector<Value>& outputs, uint32_t function = 0, void* stream = nullptr) {
    detail::check([&](husk_error* error) {
      return husk_session_run(get(), function, stream, data(inputs), size(inputs),
                              reinterpret_cast<husk_value*>(outputs.data()), size(outputs), error);
    });
  }
  // All outputs are the session's, valid until its next run of this function.
  std::vector<Value> run(const std::vector<Value>& inputs, uint32_t function = 0, void* stream = nullptr) {
    std::vector<Value> outputs(husk_program_output_count(program_, function));
    run(inputs, outputs, function, stream);
    return outputs;
  }
  void wait() {
    detail::check([&](husk_error* error) { return husk_session_wait(get(), error); });
  }
  void lend_arena(void* memory, uint64_t bytes) {
    detail::check([&](husk_error* error) { return husk_session_lend_arena(get(), memory, bytes, error); });
  }
  uint64_t arena_bytes() const { return husk_session_arena_bytes(get()); }
  void state_get(uint32_t state, void* bytes) {
    detail::check([&](husk_error* error) { return husk_session_state_get(get(), state, bytes, error); });
  }
  void state_set(uint32_t state, const void* bytes) {
    detail::check([&](husk_error* error) { return husk_session_state_set(get(), state, bytes, error); });
  }
  void state_reset(uint32_t state) {
    detail::check([&](husk_error* error) { return husk_session_state_reset(get(), state, error); });
  }
  void state_copy(uint32_t state, const Session& from) {
    detail::check([&](husk_error* error) { return husk_session_state_copy(get(), state, from.get(), error); });
  }
  husk_session_stats stats(uint32_t function = 0) const {
    husk_session_stats out = {};
    out.struct_size = sizeof(out);
    detail::check([&](husk_error* error) { return husk_session_stats_get(get(), function, &out, error); });
    return out;
  }
  husk_session* get() const { return handle_.get(); }

 private:
  static const husk_value* data(const std::vector<Value>& values) {
    return reinterpret_cast<const husk_value*>(values.data());
  }
  static uint32_t size(const std::vector<Value>& values) { return static_cast<uint32_t>(values.size()); }

  std::unique_ptr<husk_session, detail::Release> handle_;
  const husk_program* program_ = nullptr;   // the session keeps it
};

}  // namespace husk

#endif
