/** @file
 * Husk for C++17: the handles of <husk/husk.h> as movable objects that release themselves, failures
 * as exceptions, tensors made from pointers and shapes. Header only. Each member function calls the
 * function of husk.h that its comment names; the rules about threads and lifetimes are the same.
 * Every member function that calls Husk throws Error if the call fails. */
#ifndef HUSK_HUSK_HPP
#define HUSK_HUSK_HPP

#include <cstdio>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
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
  /** Makes a failure of this header, or of an op of the application. */
  Error(husk_status status, const std::string& text)
      : std::runtime_error(text), status_(status), driver_code_(0), step_(-1) {}
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

/** Returns whether a tensor of `dtype` has elements of T. A byte of a bool tensor may be neither 0
 * nor 1, so such tensors are read as uint8_t, and as bool. */
template <class T>
constexpr bool holds(int32_t dtype) {
  return dtype == dtype_of<T>() || (dtype == HUSK_BOOL && std::is_same_v<T, uint8_t>);
}

/** The arguments of one call of an op; they are valid during the call. */
class OpArgs {
 public:
  /** Refers to what the runtime gave. */
  OpArgs(const husk_op_context& context, const husk_op_arg* args, uint32_t count)
      : context_(&context), args_(args), count_(count) {}
  /** Returns the number of arguments. */
  uint32_t size() const { return count_; }
  /** Returns an argument. Throws Error if there are fewer. */
  const husk_op_arg& operator[](uint32_t index) const {
    if (index < count_) return args_[index];
    throw Error(HUSK_INVALID_ARGUMENT, "the call has " + std::to_string(count_) + " arguments");
  }
  /** Returns the elements of a contiguous tensor. The op writes to them only if its contract says
   * so. Throws Error if the argument is no contiguous tensor of T. */
  template <class T>
  T* data(uint32_t index) const {
    const husk_op_arg& arg = (*this)[index];
    if (arg.kind != HUSK_ARG_TENSOR || !holds<std::remove_const_t<T>>(arg.dtype))
      throw Error(HUSK_INVALID_ARGUMENT, "argument " + std::to_string(index) +
                                             " is no tensor of the type that the op computes");
    int64_t stride = 1;
    for (int32_t d = arg.rank; d-- > 0; stride *= arg.sizes[d])
      if (arg.sizes[d] > 1 && arg.strides[d] != stride)
        throw Error(HUSK_UNSUPPORTED, "argument " + std::to_string(index) + " is not contiguous");
    return static_cast<T*>(arg.data);
  }
  /** Returns the number of elements of a tensor. */
  int64_t elements(uint32_t index) const {
    int64_t count = 1;
    for (int32_t d = 0; d < (*this)[index].rank; ++d) count *= (*this)[index].sizes[d];
    return count;
  }
  /** Returns what else the op gets: the device, the stream, threads. */
  const husk_op_context& context() const { return *context_; }

 private:
  const husk_op_context* context_;
  const husk_op_arg* args_;
  uint32_t count_;
};

namespace detail {

/** An op of the application. Programs and sessions keep it, since they may outlive the Engine. */
struct Operator {
  /** What Engine::add_op was given. */
  std::string contract;
  /** What Engine::add_op was given. */
  std::function<void(const OpArgs&)> function;

  /** Writes a failure. */
  static husk_status fail(husk_error* error, husk_status status, const char* text) {
    error->code = status;
    std::snprintf(error->text, sizeof(error->text), "%s", text);
    return status;
  }
  /** husk_op.call. */
  static husk_status call(const husk_op_context* context, const husk_op_arg* args, uint32_t count,
                          husk_error* error) {
    try {
      static_cast<Operator*>(context->user)->function(OpArgs(*context, args, count));
      return HUSK_OK;
    } catch (const Error& failure) {
      return fail(error, failure.status(), failure.what());
    } catch (const std::exception& failure) {
      return fail(error, HUSK_KERNEL, failure.what());
    } catch (...) {
      return fail(error, HUSK_KERNEL, "the op's function threw what is no std::exception");
    }
  }
};

/** The ops of an engine. */
using Operators = std::vector<std::unique_ptr<Operator>>;

}  // namespace detail

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
  /** Makes a contiguous tensor of T in host memory. If T is const, the tensor is read-only: it is
   * no output, nor an input that the program writes to (husk_value_info.is_written). */
  template <class T>
  Tensor(T* data, std::vector<int64_t> sizes)
      : Tensor(const_cast<std::remove_const_t<T>*>(data), dtype_of<std::remove_const_t<T>>(),
               std::move(sizes)) {
    read_only_ = std::is_const_v<T>;
  }

  /** Returns the tensor for husk.h. The pointer is valid until the Tensor moves. A run writes the
   * sizes of an output whose shape only the data decides. */
  DLTensor* dlpack() {
    dl_.shape = sizes_.data();
    dl_.strides = strides_.empty() ? nullptr : strides_.data();
    return &dl_;
  }
  /** Returns the sizes in elements. */
  const std::vector<int64_t>& sizes() const { return sizes_; }
  /** Returns whether runs only read the memory. */
  bool is_read_only() const { return read_only_; }

 private:
  DLTensor dl_ = {};
  std::vector<int64_t> sizes_, strides_;
  bool read_only_ = false;
};

/** An input or output: a husk_value, made from a number or a tensor. The tensor must outlive the
 * Value. */
class Value {
 public:
  /** Makes a value of kind HUSK_VALUE_NONE: as an output, memory of the session. */
  Value() { value_.kind = HUSK_VALUE_NONE; }
  /** Refers to a tensor. */
  Value(Tensor& tensor) : Value(tensor.dlpack()) { value_.reserved = tensor.is_read_only(); }
  /** Refers to a tensor in memory that may be written. */
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
  /** Returns whether the value is a tensor whose memory runs only read. */
  bool is_read_only() const { return value_.reserved != 0; }
  /** Returns a copy of the elements of a tensor in host memory, in the order of a contiguous one.
   * Throws Error if the value is none, or if its elements are not of type T. */
  template <class T>
  std::vector<T> elements() const {
    if (value_.kind != HUSK_VALUE_TENSOR) throw Error(HUSK_INVALID_ARGUMENT, "no tensor");
    const DLTensor& tensor = *value_.as.tensor;
    const DLDataType wanted = husk_dtype_to_dlpack(dtype_of<T>()),
                     flags = husk_dtype_to_dlpack(HUSK_BOOL);
    const auto is = [&](const DLDataType& type) {
      return tensor.dtype.code == type.code && tensor.dtype.bits == type.bits;
    };
    if (!is(wanted) && !(std::is_same_v<T, uint8_t> && is(flags)))
      throw Error(HUSK_INVALID_ARGUMENT, "the elements of the tensor have another type");
    if (tensor.device.device_type != kDLCPU)
      throw Error(HUSK_INVALID_ARGUMENT, "the tensor is in the memory of another device");
    int64_t count = 1;
    for (int32_t d = 0; d < tensor.ndim; ++d) count *= tensor.shape[d];
    std::vector<T> out;
    out.reserve(static_cast<size_t>(count));
    const T* from = reinterpret_cast<const T*>(static_cast<const char*>(tensor.data) +
                                               tensor.byte_offset);
    std::vector<int64_t> index(static_cast<size_t>(tensor.ndim));
    int64_t at = 0;
    for (int64_t i = 0; i < count; ++i) {
      if (!tensor.strides) {
        out.push_back(from[i]);
        continue;
      }
      out.push_back(from[at]);
      for (int32_t d = tensor.ndim; d-- > 0;) {
        at += tensor.strides[d];
        if (++index[static_cast<size_t>(d)] < tensor.shape[d]) break;
        at -= tensor.strides[d] * tensor.shape[d];
        index[static_cast<size_t>(d)] = 0;
      }
    }
    return out;
  }

 private:
  void set(int32_t kind, int64_t i) {
    value_.kind = kind;
    value_.as.i = i;
  }
  husk_value value_ = {};  // `reserved` is 1 for a read-only tensor, until Session passes it on
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
  /** Registers a function of the application as an op, for programs that are opened afterwards. The
   * contract is the text of husk_op.contract. An exception of the function becomes the failure of
   * the run: an Error keeps its status and text, others are HUSK_KERNEL. Several threads call the
   * function if they run several sessions. It must not keep a Program or a Session, which keep it.
   * One thread at a time registers functions. */
  void add_op(const char* name, const char* contract, std::function<void(const OpArgs&)> function) {
    auto kept = std::make_unique<detail::Operator>();
    kept->contract = contract;
    kept->function = std::move(function);
    husk_op op = HUSK_OP_INIT;
    op.name = name;
    op.call = detail::Operator::call;
    op.user = kept.get();
    op.contract = kept->contract.c_str();
    operators_->push_back(std::move(kept));
    add_op(op);
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
  /** husk_engine_alloc. The memory is freed before the engine is released. */
  void* alloc(uint64_t bytes) {
    void* memory = nullptr;
    detail::check(
        [&](husk_error* error) { return husk_engine_alloc(get(), bytes, &memory, error); });
    return memory;
  }
  /** husk_engine_free. */
  void free(void* memory) { husk_engine_free(get(), memory); }
  /** husk_engine_stream_create. The stream is destroyed before the engine is released. */
  void* create_stream() {
    void* stream = nullptr;
    detail::check(
        [&](husk_error* error) { return husk_engine_stream_create(get(), &stream, error); });
    return stream;
  }
  /** husk_engine_stream_destroy. */
  void destroy_stream(void* stream) { husk_engine_stream_destroy(get(), stream); }
  /** husk_engine_upload. */
  void upload(void* to, const void* from, uint64_t bytes, void* stream = nullptr) {
    detail::check([&](husk_error* error) {
      return husk_engine_upload(get(), stream, to, from, bytes, error);
    });
  }
  /** husk_engine_download. */
  void download(void* to, const void* from, uint64_t bytes, void* stream = nullptr) {
    detail::check([&](husk_error* error) {
      return husk_engine_download(get(), stream, to, from, bytes, error);
    });
  }
  /** husk_engine_alloc_host. The memory is freed before the engine is released. */
  void* alloc_host(uint64_t bytes) {
    void* memory = nullptr;
    detail::check(
        [&](husk_error* error) { return husk_engine_alloc_host(get(), bytes, &memory, error); });
    return memory;
  }
  /** husk_engine_free_host. */
  void free_host(void* memory) { husk_engine_free_host(get(), memory); }
  /** husk_engine_copy. */
  void copy(void* to, const void* from, uint64_t bytes, void* stream = nullptr) {
    detail::check(
        [&](husk_error* error) { return husk_engine_copy(get(), stream, to, from, bytes, error); });
  }
  /** Returns the handle, which the object keeps. */
  husk_engine* get() const { return handle_.get(); }

 private:
  friend class Program;
  // It is released after the handle.
  std::shared_ptr<detail::Operators> operators_ = std::make_shared<detail::Operators>();
  std::unique_ptr<husk_engine, detail::Release> handle_;
};

/** A program; it owns one reference. */
class Program {
 public:
  /** husk_program_open. */
  Program(const Engine& engine, const char* path) : operators_(engine.operators_) {
    husk_program* program = nullptr;
    detail::check(
        [&](husk_error* error) { return husk_program_open(engine.get(), path, &program, error); });
    handle_.reset(program);
  }
  /** husk_program_load. Without `release` the memory must outlive every handle of the program. */
  Program(const Engine& engine, const void* data, size_t size,
          void (*release)(void*, const void*) = nullptr, void* user = nullptr)
      : operators_(engine.operators_) {
    husk_program* program = nullptr;
    detail::check([&](husk_error* error) {
      return husk_program_load(engine.get(), data, size, release, user, &program, error);
    });
    handle_.reset(program);
  }
  /** Returns the names of the functions: husk_program_function_count and _name. */
  std::vector<std::string> functions() const {
    std::vector<std::string> names(husk_program_function_count(get()));
    for (uint32_t i = 0; i < names.size(); ++i) names[i] = husk_program_function_name(get(), i);
    return names;
  }
  /** husk_program_function_target. */
  std::string target(uint32_t function = 0) const {
    return husk_program_function_target(get(), function);
  }
  /** husk_program_pytree. */
  std::string pytree() const { return husk_program_pytree(get()); }
  /** Returns keys and values: husk_program_metadata_count, _key and _value. */
  std::vector<std::pair<std::string, std::string>> metadata() const {
    std::vector<std::pair<std::string, std::string>> entries;
    for (uint32_t i = 0; i < husk_program_metadata_count(get()); ++i)
      entries.emplace_back(husk_program_metadata_key(get(), i),
                           husk_program_metadata_value(get(), i));
    return entries;
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
  /** husk_program_state_count. */
  uint32_t states() const { return husk_program_state_count(get()); }
  /** husk_program_constant_count. */
  uint32_t constants() const { return husk_program_constant_count(get()); }
  /** husk_program_constant. */
  husk_storage_info constant_info(uint32_t constant) const {
    husk_storage_info out = HUSK_STORAGE_INFO_INIT;
    detail::check(
        [&](husk_error* error) { return husk_program_constant(get(), constant, &out, error); });
    return out;
  }
  /** husk_program_find_constant. */
  uint32_t constant(const char* name) const {
    uint32_t out = 0;
    detail::check(
        [&](husk_error* error) { return husk_program_find_constant(get(), name, &out, error); });
    return out;
  }
  /** husk_program_host_step_count. */
  uint32_t host_steps(uint32_t function) const {
    return husk_program_host_step_count(get(), function);
  }
  /** husk_program_packed_bytes. */
  uint64_t packed_bytes() const { return husk_program_packed_bytes(get()); }
  /** husk_program_update_constants. */
  void update_constants(const std::vector<husk_constant_update>& updates) {
    detail::check([&](husk_error* error) {
      return husk_program_update_constants(get(), updates.data(),
                                           static_cast<uint32_t>(updates.size()), error);
    });
  }
  /** husk_program_update_constant_parts. */
  void update_constant_parts(const std::vector<husk_constant_part>& parts) {
    detail::check([&](husk_error* error) {
      return husk_program_update_constant_parts(get(), parts.data(),
                                                static_cast<uint32_t>(parts.size()), error);
    });
  }
  /** Replaces elements of the constant of this name, from the element `first` on.
   * husk_program_update_constant_parts. */
  template <class T>
  void update_constant_part(const char* name, uint64_t first, const std::vector<T>& elements) {
    const uint32_t number = constant(name);
    const husk_storage_info info = constant_info(number);
    if (!holds<T>(info.dtype)) expect(info, elements);
    update_constant_parts(
        {{number, 0, elements.data(), first * sizeof(T), elements.size() * sizeof(T)}});
  }
  /** Replaces the constant of this name, with as many elements of T as it has.
   * husk_program_update_constants. */
  template <class T>
  void update_constant(const char* name, const std::vector<T>& elements) {
    const uint32_t number = constant(name);
    expect(constant_info(number), elements);
    husk_constant_update update = {};
    update.constant = number;
    update.bytes = elements.data();
    update_constants({update});
  }
  /** Throws Error if the elements are not all of a state or constant. */
  template <class T>
  static void expect(const husk_storage_info& info, const std::vector<T>& elements) {
    if (holds<T>(info.dtype) && elements.size() * sizeof(T) == info.bytes) return;
    throw Error(HUSK_INVALID_ARGUMENT, std::string("'") + info.name + "' has " +
                                           std::to_string(info.bytes) + " bytes of " +
                                           husk_dtype_name(info.dtype) + "; given are " +
                                           std::to_string(elements.size()) + " elements of " +
                                           husk_dtype_name(dtype_of<T>()));
  }
  /** husk_program_input_count. */
  uint32_t inputs(uint32_t function = 0) const { return husk_program_input_count(get(), function); }
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
  friend class Session;
  std::shared_ptr<detail::Operators> operators_;
  std::unique_ptr<husk_program, detail::Release> handle_;
};

/** A session; it owns the handle. */
class Session {
 public:
  /** husk_session_create. */
  explicit Session(const Program& program,
                   const husk_session_options& options = HUSK_SESSION_OPTIONS_INIT)
      : operators_(program.operators_) {
    husk_session* session = nullptr;
    detail::check([&](husk_error* error) {
      return husk_session_create(program.get(), &options, &session, error);
    });
    handle_.reset(session);
    program_ = program.get();
  }
  /** husk_session_resize. */
  void resize(const std::vector<Value>& inputs, uint32_t function = 0) {
    const husk_value* values = plain(inputs);
    detail::check([&](husk_error* error) {
      return husk_session_resize(get(), function, values, size(inputs), error);
    });
  }
  /** husk_session_set_range. */
  void set_range(uint32_t input, uint32_t dim, int64_t min, int64_t max, uint32_t function = 0) {
    detail::check([&](husk_error* error) {
      return husk_session_set_range(get(), function, input, dim, min, max, error);
    });
  }
  /** husk_session_run. The run writes to `outputs`; a value of kind NONE becomes a tensor of the
   * session. Throws Error if the run would write to a read-only tensor. */
  void run(const std::vector<Value>& inputs, std::vector<Value>& outputs, uint32_t function = 0,
           void* stream = nullptr) {
    for (uint32_t i = 0; i < size(inputs); ++i)
      if (inputs[i].is_read_only()) check_read(i, function);
    for (const Value& output : outputs)
      if (output.is_read_only())
        throw Error(HUSK_INVALID_INPUT, "an output is read-only: pass memory that may be written");
    const husk_value* values = plain(inputs);
    detail::check([&](husk_error* error) {
      return husk_session_run(get(), function, stream, values, size(inputs),
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
  /** husk_session_mark. */
  void mark(uint32_t number) {
    detail::check([&](husk_error* error) { return husk_session_mark(get(), number, error); });
  }
  /** husk_session_wait_mark. */
  void wait_mark(uint32_t number) {
    detail::check([&](husk_error* error) { return husk_session_wait_mark(get(), number, error); });
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
  /** Returns the elements of the state of this name: husk_session_state_get. */
  template <class T>
  std::vector<T> state(const char* name) {
    const auto [number, info] = find(name);
    std::vector<T> elements(info.bytes / sizeof(T));
    Program::expect(info, elements);
    state_get(number, elements.data());
    return elements;
  }
  /** Replaces the state of this name: husk_session_state_set. */
  template <class T>
  void set_state(const char* name, const std::vector<T>& elements) {
    const auto [number, info] = find(name);
    Program::expect(info, elements);
    state_set(number, elements.data());
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

  // Throws if a run writes to an input.
  void check_read(uint32_t input, uint32_t function) const {
    husk_value_info info = HUSK_VALUE_INFO_INIT;
    if (husk_program_input(program_, function, input, &info, nullptr) == HUSK_OK && info.is_written)
      throw Error(HUSK_INVALID_INPUT,
                  std::string("input '") + info.name +
                      "' is read-only, and the program writes to it: pass a copy that may be "
                      "written");
  }
  // Returns the values for husk.h, which knows no read-only tensors.
  const husk_value* plain(const std::vector<Value>& values) {
    bool same = true;
    for (const Value& value : values) same = same && !value.is_read_only();
    if (same) return data(values);
    inputs_.assign(data(values), data(values) + values.size());
    for (husk_value& value : inputs_) value.reserved = 0;
    return inputs_.data();
  }

  std::pair<uint32_t, husk_storage_info> find(const char* name) const {
    std::pair<uint32_t, husk_storage_info> found = {0, HUSK_STORAGE_INFO_INIT};
    detail::check([&](husk_error* error) {
      const husk_status status = husk_program_find_state(program_, name, &found.first, error);
      return status != HUSK_OK ? status
                               : husk_program_state(program_, found.first, &found.second, error);
    });
    return found;
  }

  std::shared_ptr<detail::Operators> operators_;
  std::unique_ptr<husk_session, detail::Release> handle_;
  const husk_program* program_ = nullptr;  // kept by the session
  std::vector<husk_value> inputs_;         // of a call
};

}  // namespace husk

#endif
