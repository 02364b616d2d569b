/** @file
 * Husk for C++17: the handles of <husk/husk.h> as movable objects that release themselves, failures
 * as exceptions, tensors made from pointers and shapes. Header only. Each member function calls the
 * function of husk.h that its comment names; the rules about threads and lifetimes are the same.
 * Every member function that calls Husk throws Error if the call fails. */
#ifndef HUSK_HUSK_HPP
#define HUSK_HUSK_HPP

#include <memory>
#include <stdexcept>
#include <type_traits>
#include <utility>
#include <vector>

#include <husk/husk.h>

/** Husk's interface for C++17. */
namespace husk {

/** A failed call. what() is husk_error.text. */
class Error : public std::runtime_error {
 public:
  /** Copies the record of a failed call. */
  explicit Error(const husk_error& error)
      : std::runtime_error(error.text),
        status_(error.code),
        driver_code_(error.driver_code),
        step_(error.step) {}
  /** husk_error.code. */
  husk_status status() const noexcept { return status_; }
  /** husk_error.driver_code. */
  int32_t driver_code() const noexcept { return driver_code_; }
  /** husk_error.step. */
  int32_t step() const noexcept { return step_; }

 private:
  husk_status status_;
  int32_t driver_code_, step_;
};

/** Parts of this header that programs do not use. */
namespace detail {

/** Calls `call` with an error record, and throws Error if it fails. */
template <class Call>
void check(Call call) {
  husk_error error = {};
  if (call(&error) != HUSK_OK) throw Error(error);
}

/** Releases handles, for std::unique_ptr. */
struct Release {
  /** Releases an engine. */
  void operator()(husk_engine* engine) const noexcept { husk_engine_release(engine); }
  /** Releases a program. */
  void operator()(husk_program* program) const noexcept { husk_program_release(program); }
  /** Releases a session. */
  void operator()(husk_session* session) const noexcept { husk_session_release(session); }
};

}  // namespace detail

/** Returns the husk_dtype of an arithmetic type of C++. */
template <class T>
constexpr husk_dtype dtype_of() {
  if constexpr (std::is_same_v<T, bool>)
    return HUSK_BOOL;
  else if constexpr (std::is_same_v<T, float>)
    return HUSK_F32;
  else if constexpr (std::is_same_v<T, double>)
    return HUSK_F64;
  else {
    static_assert(std::is_integral_v<T>, "pass the husk_dtype: T is not an arithmetic type");
    constexpr bool is_signed = std::is_signed_v<T>;
    if constexpr (sizeof(T) == 1)
      return is_signed ? HUSK_I8 : HUSK_U8;
    else if constexpr (sizeof(T) == 2)
      return is_signed ? HUSK_I16 : HUSK_U16;
    else if constexpr (sizeof(T) == 4)
      return is_signed ? HUSK_I32 : HUSK_U32;
    else
      return is_signed ? HUSK_I64 : HUSK_U64;
  }
}

/** A tensor in memory of the caller. The memory and the object must outlive the runs that use
 * them. */
class Tensor {
 public:
  /** Makes a tensor from the address of its first element, its sizes and its strides, both in
   * elements; no strides: contiguous. */
  Tensor(void* data, husk_dtype dtype, std::vector<int64_t> sizes,
         std::vector<int64_t> strides = {}, DLDevice device = {kDLCPU, 0})
      : sizes_(std::move(sizes)), strides_(std::move(strides)) {
    dl_.data = data;
    dl_.device = device;
    dl_.ndim = static_cast<int32_t>(sizes_.size());
    dl_.dtype = husk_dtype_to_dlpack(dtype);
  }
  /** Makes a contiguous tensor of T in host memory. */
  template <class T>
  Tensor(T* data, std::vector<int64_t> sizes)
      : Tensor(const_cast<std::remove_const_t<T>*>(data), dtype_of<std::remove_const_t<T>>(),
               std::move(sizes)) {}

  /** Returns the tensor for husk.h. The pointer is valid until the Tensor moves. A run writes the
   * sizes of an output whose shape only the data decides. */
  DLTensor* dlpack() {
    dl_.shape = sizes_.data();
    dl_.strides = strides_.empty() ? nullptr : strides_.data();
    return &dl_;
  }
  /** Returns the sizes in elements. */
  const std::vector<int64_t>& sizes() const { return sizes_; }

 private:
  DLTensor dl_ = {};
  std::vector<int64_t> sizes_, strides_;
};

/** An input or output: a husk_value, made from a number or a tensor. The tensor must outlive the
 * Value. */
class Value {
 public:
  /** Makes a value of kind HUSK_VALUE_NONE: as an output, memory of the session. */
  Value() { value_.kind = HUSK_VALUE_NONE; }
  /** Refers to a tensor. */
  Value(Tensor& tensor) : Value(tensor.dlpack()) {}
  /** Refers to a tensor. */
  Value(DLTensor* tensor) {
    value_.kind = HUSK_VALUE_TENSOR;
    value_.as.tensor = tensor;
  }
  /** Makes a bool. */
  Value(bool b) { set(HUSK_VALUE_BOOL, b); }
  /** Makes an int. */
  Value(int i) { set(HUSK_VALUE_INT, i); }
  /** Makes an int. */
  Value(int64_t i) { set(HUSK_VALUE_INT, i); }
  /** Makes a float. */
  Value(double f) {
    value_.kind = HUSK_VALUE_FLOAT;
    value_.as.f = f;
  }
  /** Returns the number of an int or bool, for an output after the run. */
  int64_t integer() const { return value_.as.i; }
  /** Returns the number of a float, for an output after the run. */
  double number() const { return value_.as.f; }
  /** Returns the tensor; for an output that was passed as NONE, the tensor of the session. */
  DLTensor* tensor() const { return value_.as.tensor; }
  /** Returns HUSK_VALUE_*. */
  int32_t kind() const { return value_.kind; }

 private:
  void set(int32_t kind, int64_t i) {
    value_.kind = kind;
    value_.as.i = i;
  }
  husk_value value_ = {};
};
static_assert(sizeof(Value) == sizeof(husk_value), "an array of Value is an array of husk_value");

/** An engine; it owns one reference. */
class Engine {
 public:
  /** husk_engine_create. */
  explicit Engine(const husk_engine_options& options) {
    husk_engine* engine = nullptr;
    detail::check([&](husk_error* error) { return husk_engine_create(&options, &engine, error); });
    handle_.reset(engine);
  }
  /** husk_engine_add_op. */
  void add_op(const husk_op& op) {
    detail::check([&](husk_error* error) { return husk_engine_add_op(get(), &op, error); });
  }
  /** Registers an array of `count` ops; the stride is ops->struct_size. */
  void add_ops(const husk_op* ops, uint32_t count) {
    const char* at = reinterpret_cast<const char*>(ops);
    for (uint32_t i = 0; i < count; ++i, at += ops->struct_size)
      add_op(*reinterpret_cast<const husk_op*>(at));
  }
  /** Calls a function that registers the ops of a library: engine.add_ops(husk_ops_add_all). The
   * function is an argument so that this header does not need the library. */
  void add_ops(husk_status (*add_all)(husk_engine*, husk_error*)) {
    detail::check([&](husk_error* error) { return add_all(get(), error); });
  }
  /** husk_engine_properties. */
  husk_port_properties properties() const {
    husk_port_properties out = HUSK_PORT_PROPERTIES_INIT;
    detail::check([&](husk_error* error) { return husk_engine_properties(get(), &out, error); });
    return out;
  }
  /** Returns the handle, which the object keeps. */
  husk_engine* get() const { return handle_.get(); }

 private:
  std::unique_ptr<husk_engine, detail::Release> handle_;
};

/** A program; it owns one reference. */
class Program {
 public:
  /** husk_program_open. */
  Program(const Engine& engine, const char* path) {
    husk_program* program = nullptr;
    detail::check(
        [&](husk_error* error) { return husk_program_open(engine.get(), path, &program, error); });
    handle_.reset(program);
  }
  /** husk_program_load. Without `release` the memory must outlive every handle of the program. */
  Program(const Engine& engine, const void* data, size_t size,
          void (*release)(void*, const void*) = nullptr, void* user = nullptr) {
    husk_program* program = nullptr;
    detail::check([&](husk_error* error) {
      return husk_program_load(engine.get(), data, size, release, user, &program, error);
    });
    handle_.reset(program);
  }
  /** husk_program_find_function. */
  uint32_t function(const char* name) const {
    uint32_t out = 0;
    detail::check(
        [&](husk_error* error) { return husk_program_find_function(get(), name, &out, error); });
    return out;
  }
  /** husk_program_find_state. */
  uint32_t state(const char* name) const {
    uint32_t out = 0;
    detail::check(
        [&](husk_error* error) { return husk_program_find_state(get(), name, &out, error); });
    return out;
  }
  /** husk_program_state. */
  husk_storage_info state_info(uint32_t state) const {
    husk_storage_info out = HUSK_STORAGE_INFO_INIT;
    detail::check([&](husk_error* error) { return husk_program_state(get(), state, &out, error); });
    return out;
  }
  /** husk_program_find_constant. */
  uint32_t constant(const char* name) const {
    uint32_t out = 0;
    detail::check(
        [&](husk_error* error) { return husk_program_find_constant(get(), name, &out, error); });
    return out;
  }
  /** husk_program_update_constants. */
  void update_constants(const std::vector<husk_constant_update>& updates) {
    detail::check([&](husk_error* error) {
      return husk_program_update_constants(get(), updates.data(),
                                           static_cast<uint32_t>(updates.size()), error);
    });
  }
  /** husk_program_output_count. */
  uint32_t outputs(uint32_t function = 0) const {
    return husk_program_output_count(get(), function);
  }
  /** husk_program_input. */
  husk_value_info input(uint32_t index, uint32_t function = 0) const {
    husk_value_info out = HUSK_VALUE_INFO_INIT;
    detail::check(
        [&](husk_error* error) { return husk_program_input(get(), function, index, &out, error); });
    return out;
  }
  /** husk_program_output. */
  husk_value_info output(uint32_t index, uint32_t function = 0) const {
    husk_value_info out = HUSK_VALUE_INFO_INIT;
    detail::check([&](husk_error* error) {
      return husk_program_output(get(), function, index, &out, error);
    });
    return out;
  }
  /** Returns the handle, which the object keeps. */
  husk_program* get() const { return handle_.get(); }

 private:
  std::unique_ptr<husk_program, detail::Release> handle_;
};

/** A session; it owns the handle. */
class Session {
 public:
  /** husk_session_create. */
  explicit Session(const Program& program,
                   const husk_session_options& options = HUSK_SESSION_OPTIONS_INIT) {
    husk_session* session = nullptr;
    detail::check([&](husk_error* error) {
      return husk_session_create(program.get(), &options, &session, error);
    });
    handle_.reset(session);
    program_ = program.get();
  }
  /** husk_session_resize. */
  void resize(const std::vector<Value>& inputs, uint32_t function = 0) {
    detail::check([&](husk_error* error) {
      return husk_session_resize(get(), function, data(inputs), size(inputs), error);
    });
  }
  /** husk_session_set_range. */
  void set_range(uint32_t input, uint32_t dim, int64_t min, int64_t max, uint32_t function = 0) {
    detail::check([&](husk_error* error) {
      return husk_session_set_range(get(), function, input, dim, min, max, error);
    });
  }
  /** husk_session_run. The run writes to `outputs`; a value of kind NONE becomes a tensor of the
   * session. */
  void run(const std::vector<Value>& inputs, std::vector<Value>& outputs, uint32_t function = 0,
           void* stream = nullptr) {
    detail::check([&](husk_error* error) {
      return husk_session_run(get(), function, stream, data(inputs), size(inputs),
                              reinterpret_cast<husk_value*>(outputs.data()), size(outputs), error);
    });
  }
  /** husk_session_run. Returns the outputs as tensors of the session, which are valid until its
   * next run of this function. */
  std::vector<Value> run(const std::vector<Value>& inputs, uint32_t function = 0,
                         void* stream = nullptr) {
    std::vector<Value> outputs(husk_program_output_count(program_, function));
    run(inputs, outputs, function, stream);
    return outputs;
  }
  /** husk_session_wait. */
  void wait() {
    detail::check([&](husk_error* error) { return husk_session_wait(get(), error); });
  }
  /** husk_session_set_arena. */
  void set_arena(void* memory, uint64_t bytes) {
    detail::check(
        [&](husk_error* error) { return husk_session_set_arena(get(), memory, bytes, error); });
  }
  /** husk_session_arena_bytes. */
  uint64_t arena_bytes() const { return husk_session_arena_bytes(get()); }
  /** husk_session_state_get. */
  void state_get(uint32_t state, void* bytes) {
    detail::check(
        [&](husk_error* error) { return husk_session_state_get(get(), state, bytes, error); });
  }
  /** husk_session_state_set. */
  void state_set(uint32_t state, const void* bytes) {
    detail::check(
        [&](husk_error* error) { return husk_session_state_set(get(), state, bytes, error); });
  }
  /** husk_session_state_reset. */
  void state_reset(uint32_t state) {
    detail::check([&](husk_error* error) { return husk_session_state_reset(get(), state, error); });
  }
  /** husk_session_state_copy. */
  void state_copy(uint32_t state, const Session& from) {
    detail::check([&](husk_error* error) {
      return husk_session_state_copy(get(), state, from.get(), error);
    });
  }
  /** husk_session_stats_get. */
  husk_session_stats stats(uint32_t function = 0) const {
    husk_session_stats out = HUSK_SESSION_STATS_INIT;
    detail::check(
        [&](husk_error* error) { return husk_session_stats_get(get(), function, &out, error); });
    return out;
  }
  /** Returns the handle, which the object keeps. */
  husk_session* get() const { return handle_.get(); }

 private:
  static const husk_value* data(const std::vector<Value>& values) {
    return reinterpret_cast<const husk_value*>(values.data());
  }
  static uint32_t size(const std::vector<Value>& values) {
    return static_cast<uint32_t>(values.size());
  }

  std::unique_ptr<husk_session, detail::Release> handle_;
  const husk_program* program_ = nullptr;  // kept by the session
};

}  // namespace husk

#endif
