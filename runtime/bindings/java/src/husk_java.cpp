// The native methods of husk.Native: each is a call of the C interface. A failure becomes a
// husk.HuskException.
#include <jni.h>

#include <cstdlib>
#include <cstring>
#include <iterator>
#include <new>

#include <husk/husk.h>
#include <husk/ops.h>
#include <husk/port_host.h>
#include <husk/weights.h>

namespace {

// The classes and methods of Java that the functions of this file use. JNI_OnLoad finds them.
struct Java {
  JavaVM* vm;
  jclass exception, native, argument;
  jmethodID make_exception, run_operator, ask, log, make_argument;
} java;

struct Operator {
  Operator* next;
  jobject function;
  char contract[1];  // the text goes on behind the struct
};

struct Engine {
  husk_engine* handle;
  husk_threads threads;
  bool has_threads;
  jobject cancel, log;
  Operator* operators;
};

// A session, and the tables of its runs, which one thread uses at a time.
struct Session {
  husk_session* handle;
  jlong* packed;
  jsize packed_room;
  husk_value* values;
  DLTensor* tensors;
  uint32_t value_room;
};

JNIEnv* env_of_this_thread() {
  void* env = nullptr;
  java.vm->GetEnv(&env, JNI_VERSION_10);
  return static_cast<JNIEnv*>(env);
}

template <class T>
T* at(jlong address) {
  return reinterpret_cast<T*>(address);
}

jlong address_of(const void* object) { return reinterpret_cast<jlong>(object); }

jbyteArray bytes_of(JNIEnv* env, const char* text) {
  const auto size = static_cast<jsize>(std::strlen(text));
  jbyteArray bytes = env->NewByteArray(size);
  if (bytes) env->SetByteArrayRegion(bytes, 0, size, reinterpret_cast<const jbyte*>(text));
  return bytes;
}

// Throws. Does nothing if an exception is on its way.
void fail(JNIEnv* env, int status, const char* text, int driver_code = 0, int step = -1) {
  if (env->ExceptionCheck()) return;
  jbyteArray bytes = bytes_of(env, text);
  if (!bytes) return;
  auto exception = static_cast<jthrowable>(env->CallStaticObjectMethod(
      java.exception, java.make_exception, status, driver_code, step, bytes));
  if (!env->ExceptionCheck() && exception) env->Throw(exception);
}

bool check(JNIEnv* env, husk_status status, const husk_error& error) {
  if (status == HUSK_OK) return true;
  fail(env, error.code, error.text, error.driver_code, error.step);
  return false;
}

// A text of Java with a NUL behind it. `text` is null if there was no memory; an exception is on
// its way then.
struct Text {
  Text(JNIEnv* env, jbyteArray bytes) {
    const jsize size = env->GetArrayLength(bytes);
    text = static_cast<char*>(std::malloc(static_cast<size_t>(size) + 1));
    if (!text) {
      fail(env, HUSK_OUT_OF_MEMORY, "no memory for a text");
      return;
    }
    env->GetByteArrayRegion(bytes, 0, size, reinterpret_cast<jbyte*>(text));
    text[size] = 0;
  }
  Text(const Text&) = delete;
  ~Text() { std::free(text); }
  char* text;
};

// ---- what the library calls ----

// True if there was an exception. It must not pass through the frames of the library.
bool forget_exception(JNIEnv* env) {
  if (!env->ExceptionCheck()) return false;
  env->ExceptionClear();
  return true;
}

int32_t ask(void* user) {
  JNIEnv* env = env_of_this_thread();
  if (!env) return 0;
  const bool answer = env->CallStaticBooleanMethod(java.native, java.ask,
                                                   static_cast<jobject>(user));
  return forget_exception(env) || answer;
}

void log(void* user, int32_t level, const char* text) {
  JNIEnv* env = env_of_this_thread();
  if (!env || env->PushLocalFrame(4) != 0) return;
  if (jbyteArray bytes = bytes_of(env, text))
    env->CallStaticVoidMethod(java.native, java.log, static_cast<jobject>(user),
                              static_cast<jboolean>(level == HUSK_LOG_WARNING), bytes);
  forget_exception(env);
  env->PopLocalFrame(nullptr);
}

jlongArray longs(JNIEnv* env, const int64_t* from, int64_t count) {
  jlongArray all = env->NewLongArray(static_cast<jsize>(count));
  if (all && count > 0)
    env->SetLongArrayRegion(all, 0, static_cast<jsize>(count),
                            reinterpret_cast<const jlong*>(from));
  return all;
}

// The bytes of a contiguous tensor; -1 if it has other strides, or more than a ByteBuffer.
int64_t contiguous_bytes(const husk_op_arg& arg) {
  int64_t count = 1;
  for (int32_t d = arg.rank; d-- > 0;) {
    if (arg.sizes[d] > 1 && arg.strides[d] != count) return -1;
    if (__builtin_mul_overflow(count, arg.sizes[d], &count)) return -1;
  }
  int64_t bytes = 0;
  const bool fits = !__builtin_mul_overflow(
      count, static_cast<int64_t>(husk_dtype_size(static_cast<husk_dtype>(arg.dtype))), &bytes);
  return fits && bytes <= INT32_MAX ? bytes : -1;
}

jobject argument(JNIEnv* env, const husk_op_arg& arg) {
  const bool is_tensor = arg.kind == HUSK_ARG_TENSOR, is_list = arg.kind == HUSK_ARG_INTS;
  jbyteArray text = arg.kind == HUSK_ARG_STRING ? bytes_of(env, arg.string) : nullptr;
  jlongArray sizes = longs(env, arg.sizes, is_tensor ? arg.rank : is_list ? arg.count : 0);
  jlongArray strides = longs(env, arg.strides, is_tensor ? arg.rank : 0);
  jobject memory = nullptr;
  const int64_t bytes = is_tensor ? contiguous_bytes(arg) : -1;
  static char nothing;  // an address for tensors without elements
  if (bytes >= 0) memory = env->NewDirectByteBuffer(bytes ? arg.data : &nothing, bytes);
  if (env->ExceptionCheck()) return nullptr;
  return env->NewObject(java.argument, java.make_argument, static_cast<jint>(arg.kind),
                        static_cast<jint>(is_tensor ? arg.dtype : 0), static_cast<jlong>(arg.i),
                        arg.f, text, sizes, strides, memory);
}

husk_status failed(husk_error* error, husk_status status, const char* text, size_t size) {
  if (size >= sizeof(error->text)) size = sizeof(error->text) - 1;
  std::memcpy(error->text, text, size);
  error->text[size] = 0;
  error->code = status;
  return status;
}

husk_status failed(husk_error* error, husk_status status, const char* text) {
  return failed(error, status, text, std::strlen(text));
}

// Returns what Native.run told: null, or a byte with the status and a text.
jbyteArray told(JNIEnv* env, const Operator& op, const husk_op_arg* args, uint32_t count) {
  jobjectArray all = env->NewObjectArray(static_cast<jsize>(count), java.argument, nullptr);
  for (uint32_t i = 0; all && i < count; ++i) {
    jobject one = argument(env, args[i]);
    if (!one) return nullptr;
    env->SetObjectArrayElement(all, static_cast<jsize>(i), one);
    if (env->ExceptionCheck()) return nullptr;
  }
  if (!all) return nullptr;
  return static_cast<jbyteArray>(
      env->CallStaticObjectMethod(java.native, java.run_operator, op.function, all));
}

husk_status call_operator(const husk_op_context* context, const husk_op_arg* args, uint32_t count,
                          husk_error* error) {
  JNIEnv* env = env_of_this_thread();
  if (!env) return failed(error, HUSK_KERNEL, "an operator of Java on a thread without Java");
  if (env->PushLocalFrame(static_cast<jint>(8 + 6 * count)) != 0) {
    forget_exception(env);
    return failed(error, HUSK_OUT_OF_MEMORY, "no memory for the arguments in Java");
  }
  const jbyteArray text = told(env, *static_cast<const Operator*>(context->user), args, count);
  husk_status status = HUSK_OK;
  if (forget_exception(env)) {
    status = failed(error, HUSK_OUT_OF_MEMORY, "no memory for the arguments in Java");
  } else if (text) {
    char bytes[1 + sizeof(error->text)];
    jsize size = env->GetArrayLength(text);
    if (size > static_cast<jsize>(sizeof bytes)) size = sizeof bytes;
    env->GetByteArrayRegion(text, 0, size, reinterpret_cast<jbyte*>(bytes));
    status = failed(error, bytes[0], bytes + 1, static_cast<size_t>(size - 1));
  }
  env->PopLocalFrame(nullptr);
  return status;
}

// ---- tables of a run ----

bool reserve(JNIEnv* env, Session& s, jsize packed, uint32_t values) {
  if (packed > s.packed_room) {
    void* grown = std::realloc(s.packed, static_cast<size_t>(packed) * sizeof(jlong));
    if (grown) s.packed = static_cast<jlong*>(grown), s.packed_room = packed;
  }
  if (values > s.value_room) {
    void* grown = std::realloc(s.values, values * sizeof(husk_value));
    if (grown) s.values = static_cast<husk_value*>(grown);
    void* others = std::realloc(s.tensors, values * sizeof(DLTensor));
    if (others) s.tensors = static_cast<DLTensor*>(others);
    if (grown && others) s.value_room = values;
  }
  if (packed <= s.packed_room && values <= s.value_room) return true;
  fail(env, HUSK_OUT_OF_MEMORY, "no memory for the values of a run");
  return false;
}

// Makes the inputs of a run, and values for outputs behind them.
bool unpack(JNIEnv* env, Session& s, jlongArray packed, jint used, jint inputs, jint outputs) {
  const auto count = static_cast<uint32_t>(inputs + outputs);
  if (!reserve(env, s, used, count)) return false;
  env->GetLongArrayRegion(packed, 0, used, s.packed);
  jlong* next = s.packed;
  for (uint32_t i = 0; i < count; ++i) {
    husk_value& value = s.values[i];
    value = {};
    if (i >= static_cast<uint32_t>(inputs)) continue;
    value.kind = static_cast<int32_t>(*next++);
    if (value.kind != HUSK_VALUE_TENSOR) {
      value.as.i = *next++;
      continue;
    }
    DLTensor& tensor = s.tensors[i];
    tensor = {};
    tensor.data = at<void>(next[0]);
    tensor.device.device_type = kDLCPU;
    tensor.dtype = husk_dtype_to_dlpack(static_cast<husk_dtype>(next[1]));
    tensor.ndim = static_cast<int32_t>(next[2]);
    tensor.shape = reinterpret_cast<int64_t*>(next + 3);
    next += 3 + tensor.ndim;
    value.as.tensor = &tensor;
  }
  return true;
}

void set_strides(JNIEnv* env, const DLTensor& tensor, jlongArray results, jsize to) {
  jlong stride = 1;
  if (tensor.strides)
    return env->SetLongArrayRegion(results, to, tensor.ndim,
                                   reinterpret_cast<const jlong*>(tensor.strides));
  for (int32_t d = tensor.ndim; d-- > 0;) {  // DLPack's contiguous tensors need no strides
    env->SetLongArrayRegion(results, to + d, 1, &stride);
    stride *= tensor.shape[d];
  }
}

void pack(JNIEnv* env, const husk_value* values, jint count, jlongArray results) {
  jsize used = 0;
  for (jint i = 0; i < count; ++i) {
    const husk_value& value = values[i];
    if (value.kind != HUSK_VALUE_TENSOR) {
      const jlong number[] = {value.kind, value.as.i};
      env->SetLongArrayRegion(results, used, 2, number);
      used += 2;
      continue;
    }
    const DLTensor& tensor = *value.as.tensor;
    const jlong head[] = {value.kind,
                          address_of(static_cast<char*>(tensor.data) + tensor.byte_offset),
                          tensor.device.device_type, tensor.ndim};
    env->SetLongArrayRegion(results, used, 4, head);
    env->SetLongArrayRegion(results, used + 4, tensor.ndim,
                            reinterpret_cast<const jlong*>(tensor.shape));
    set_strides(env, tensor, results, used + 4 + tensor.ndim);
    used += 4 + 2 * tensor.ndim;
  }
}

void free_engine(JNIEnv* env, Engine* engine) {
  husk_engine_release(engine->handle);
  if (engine->has_threads) husk_host_threads_release(&engine->threads);
  if (engine->cancel) env->DeleteGlobalRef(engine->cancel);
  if (engine->log) env->DeleteGlobalRef(engine->log);
  while (Operator* op = engine->operators) {
    engine->operators = op->next;
    env->DeleteGlobalRef(op->function);
    std::free(op);
  }
  delete engine;
}

}  // namespace

#define HUSK_NATIVE(result, name) extern "C" JNIEXPORT result JNICALL Java_husk_Native_##name

extern "C" JNIEXPORT jint JNICALL JNI_OnLoad(JavaVM* vm, void*) {
  java.vm = vm;
  JNIEnv* env = env_of_this_thread();
  const auto find = [&](const char* name) {
    jclass found = env->FindClass(name);
    return found ? static_cast<jclass>(env->NewGlobalRef(found)) : nullptr;
  };
  java.exception = find("husk/HuskException");
  java.native = find("husk/Native");
  java.argument = find("husk/Argument");
  if (!java.exception || !java.native || !java.argument) return JNI_ERR;
  java.make_exception = env->GetStaticMethodID(java.exception, "of", "(III[B)Lhusk/HuskException;");
  java.run_operator = env->GetStaticMethodID(java.native, "run",
                                             "(Lhusk/Operator;[Lhusk/Argument;)[B");
  java.ask = env->GetStaticMethodID(java.native, "ask", "(Ljava/util/function/BooleanSupplier;)Z");
  java.log = env->GetStaticMethodID(java.native, "log", "(Ljava/util/function/BiConsumer;Z[B)V");
  java.make_argument = env->GetMethodID(java.argument, "<init>",
                                        "(IIJD[B[J[JLjava/nio/ByteBuffer;)V");
  const bool all = java.make_exception && java.run_operator && java.ask && java.log &&
                   java.make_argument;
  return all ? JNI_VERSION_10 : JNI_ERR;
}

HUSK_NATIVE(jbyteArray, version)(JNIEnv* env, jclass) { return bytes_of(env, husk_version()); }

HUSK_NATIVE(jlong, address)(JNIEnv* env, jclass, jobject memory) {
  return address_of(env->GetDirectBufferAddress(memory));
}

HUSK_NATIVE(jlong, createEngine)
(JNIEnv* env, jclass, jboolean host_images, jboolean verify, jint threads, jobject cancel,
 jobject log_to) {
  auto* engine = new (std::nothrow) Engine{};
  if (!engine) {
    fail(env, HUSK_OUT_OF_MEMORY, "no memory for an engine");
    return 0;
  }
  husk_error error = {};
  husk_status status = HUSK_OK;
  if (threads > 1) {
    status = husk_host_threads_create(static_cast<uint32_t>(threads), nullptr, &engine->threads,
                                      &error);
    engine->has_threads = status == HUSK_OK;
  }
  if (cancel) engine->cancel = env->NewGlobalRef(cancel);
  if (log_to) engine->log = env->NewGlobalRef(log_to);
  husk_engine_options options = HUSK_ENGINE_OPTIONS_INIT;
  options.port = husk_port_host();
  options.allow_host_images = host_images;
  options.require_op_contracts = 1;
  options.verify_content = verify;
  if (engine->has_threads) options.threads = &engine->threads;
  if (cancel) options.cancel = ask, options.cancel_user = engine->cancel;
  if (log_to) options.log = log, options.log_user = engine->log;
  if (status == HUSK_OK) status = husk_engine_create(&options, &engine->handle, &error);
  if (status == HUSK_OK) status = husk_ops_add_all(engine->handle, &error);
  if (check(env, status, error)) return address_of(engine);
  free_engine(env, engine);
  return 0;
}

HUSK_NATIVE(void, releaseEngine)(JNIEnv* env, jclass, jlong engine) {
  free_engine(env, at<Engine>(engine));
}

HUSK_NATIVE(void, addOperator)
(JNIEnv* env, jclass, jlong address, jbyteArray name, jbyteArray contract, jobject function) {
  auto* engine = at<Engine>(address);
  const Text called(env, name), described(env, contract);
  if (!called.text || !described.text) return;
  const size_t size = std::strlen(described.text);
  auto* op = static_cast<Operator*>(std::malloc(sizeof(Operator) + size));
  jobject kept = op ? env->NewGlobalRef(function) : nullptr;
  if (!kept) {
    std::free(op);
    return fail(env, HUSK_OUT_OF_MEMORY, "no memory for an operator");
  }
  *op = {engine->operators, kept, {}};
  std::memcpy(op->contract, described.text, size + 1);
  husk_op row = HUSK_OP_INIT;
  row.name = called.text;
  row.call = call_operator;
  row.user = op;
  row.contract = op->contract;
  husk_error error = {};
  // The engine may know the operator even if the call fails, so it is kept until the engine ends.
  engine->operators = op;
  check(env, husk_engine_add_op(engine->handle, &row, &error), error);
}

HUSK_NATIVE(jbyteArray, deviceName)(JNIEnv* env, jclass, jlong engine) {
  husk_error error = {};
  husk_port_properties properties = {};
  properties.struct_size = sizeof properties;
  const husk_status status = husk_engine_properties(at<Engine>(engine)->handle, &properties,
                                                    &error);
  return check(env, status, error) ? bytes_of(env, properties.name) : nullptr;
}

HUSK_NATIVE(jlong, open)(JNIEnv* env, jclass, jlong engine, jbyteArray path) {
  const Text text(env, path);
  husk_error error = {};
  husk_program* program = nullptr;
  if (text.text)
    check(env, husk_weights_open(at<Engine>(engine)->handle, text.text, nullptr, &program, &error),
          error);
  return address_of(program);
}

HUSK_NATIVE(jlong, load)(JNIEnv* env, jclass, jlong engine, jbyteArray bytes) {
  const jsize size = env->GetArrayLength(bytes);
  const size_t room = (static_cast<size_t>(size) + 64) / 64 * 64;
  void* memory = std::aligned_alloc(64, room);
  if (!memory) {
    fail(env, HUSK_OUT_OF_MEMORY, "no memory for the artifact");
    return 0;
  }
  env->GetByteArrayRegion(bytes, 0, size, static_cast<jbyte*>(memory));
  husk_error error = {};
  husk_program* program = nullptr;
  const auto free_bytes = [](void* user, const void*) { std::free(user); };
  const husk_status status = husk_program_load(at<Engine>(engine)->handle, memory,
                                               static_cast<size_t>(size), free_bytes, memory,
                                               &program, &error);
  if (!check(env, status, error)) std::free(memory);
  return address_of(program);
}

HUSK_NATIVE(void, releaseProgram)(JNIEnv*, jclass, jlong program) {
  husk_program_release(at<husk_program>(program));
}

HUSK_NATIVE(jint, functionCount)(JNIEnv*, jclass, jlong program) {
  return static_cast<jint>(husk_program_function_count(at<husk_program>(program)));
}

HUSK_NATIVE(jbyteArray, functionName)(JNIEnv* env, jclass, jlong program, jint function) {
  return bytes_of(
      env, husk_program_function_name(at<husk_program>(program), static_cast<uint32_t>(function)));
}

HUSK_NATIVE(jbyteArray, functionTarget)(JNIEnv* env, jclass, jlong program, jint function) {
  return bytes_of(env, husk_program_function_target(at<husk_program>(program),
                                                    static_cast<uint32_t>(function)));
}

HUSK_NATIVE(jbyteArray, pytree)(JNIEnv* env, jclass, jlong program) {
  return bytes_of(env, husk_program_pytree(at<husk_program>(program)));
}

HUSK_NATIVE(jint, metadataCount)(JNIEnv*, jclass, jlong program) {
  return static_cast<jint>(husk_program_metadata_count(at<husk_program>(program)));
}

HUSK_NATIVE(jbyteArray, metadata)(JNIEnv* env, jclass, jlong program, jint entry, jboolean key) {
  const auto index = static_cast<uint32_t>(entry);
  return bytes_of(env, key ? husk_program_metadata_key(at<husk_program>(program), index)
                           : husk_program_metadata_value(at<husk_program>(program), index));
}

HUSK_NATIVE(jint, valueCount)
(JNIEnv*, jclass, jlong program, jint function, jboolean output) {
  const auto index = static_cast<uint32_t>(function);
  return static_cast<jint>(output ? husk_program_output_count(at<husk_program>(program), index)
                                  : husk_program_input_count(at<husk_program>(program), index));
}

HUSK_NATIVE(jbyteArray, value)
(JNIEnv* env, jclass, jlong program, jint function, jint index, jboolean output, jlongArray to) {
  husk_error error = {};
  husk_value_info info = {};
  info.struct_size = sizeof info;
  const auto describe = output ? husk_program_output : husk_program_input;
  const husk_status status = describe(at<husk_program>(program), static_cast<uint32_t>(function),
                                      static_cast<uint32_t>(index), &info, &error);
  if (!check(env, status, error)) return nullptr;
  const jlong head[] = {info.kind, info.dtype, info.rank, info.is_written};
  env->SetLongArrayRegion(to, 0, 4, head);
  if (info.ranges)
    env->SetLongArrayRegion(to, 4, 2 * info.rank, reinterpret_cast<const jlong*>(info.ranges));
  return bytes_of(env, info.name);
}

HUSK_NATIVE(jint, storageCount)(JNIEnv*, jclass, jlong program, jboolean state) {
  return static_cast<jint>(state ? husk_program_state_count(at<husk_program>(program))
                                 : husk_program_constant_count(at<husk_program>(program)));
}

HUSK_NATIVE(jbyteArray, storage)
(JNIEnv* env, jclass, jlong program, jint index, jboolean state, jlongArray to) {
  husk_error error = {};
  husk_storage_info info = {};
  info.struct_size = sizeof info;
  const auto describe = state ? husk_program_state : husk_program_constant;
  const husk_status status = describe(at<husk_program>(program), static_cast<uint32_t>(index),
                                      &info, &error);
  if (!check(env, status, error)) return nullptr;
  const jlong head[] = {info.dtype, info.rank, static_cast<jlong>(info.bytes)};
  env->SetLongArrayRegion(to, 0, 3, head);
  env->SetLongArrayRegion(to, 3, info.rank, reinterpret_cast<const jlong*>(info.dims));
  return bytes_of(env, info.name);
}

HUSK_NATIVE(void, updateConstant)
(JNIEnv* env, jclass, jlong program, jint constant, jobject bytes, jlong offset, jlong size) {
  husk_error error = {};
  const husk_constant_part part = {static_cast<uint32_t>(constant), 0,
                                   env->GetDirectBufferAddress(bytes),
                                   static_cast<uint64_t>(offset), static_cast<uint64_t>(size)};
  check(env, husk_program_update_constant_parts(at<husk_program>(program), &part, 1, &error),
        error);
}

HUSK_NATIVE(jlong, createSession)
(JNIEnv* env, jclass, jlong program, jint mode, jlong memory_limit, jlong loop_limit) {
  auto* session = new (std::nothrow) Session{};
  if (!session) {
    fail(env, HUSK_OUT_OF_MEMORY, "no memory for a session");
    return 0;
  }
  husk_session_options options = HUSK_SESSION_OPTIONS_INIT;
  options.mode = mode;
  options.memory_limit = static_cast<uint64_t>(memory_limit);
  options.loop_limit = static_cast<uint64_t>(loop_limit);
  husk_error error = {};
  const husk_status status = husk_session_create(at<husk_program>(program), &options,
                                                 &session->handle, &error);
  if (check(env, status, error)) return address_of(session);
  delete session;
  return 0;
}

HUSK_NATIVE(void, releaseSession)(JNIEnv*, jclass, jlong address) {
  auto* session = at<Session>(address);
  husk_session_release(session->handle);
  std::free(session->packed);
  std::free(session->values);
  std::free(session->tensors);
  delete session;
}

HUSK_NATIVE(void, run)
(JNIEnv* env, jclass, jlong address, jint function, jlongArray values, jint used, jint inputs,
 jlongArray results, jint outputs) {
  Session& s = *at<Session>(address);
  if (!unpack(env, s, values, used, inputs, outputs)) return;
  husk_error error = {};
  husk_value* out = s.values + inputs;
  husk_status status = husk_session_run(s.handle, static_cast<uint32_t>(function), nullptr,
                                        s.values, static_cast<uint32_t>(inputs), out,
                                        static_cast<uint32_t>(outputs), &error);
  if (status == HUSK_OK) status = husk_session_wait(s.handle, &error);
  if (check(env, status, error)) pack(env, out, outputs, results);
}

HUSK_NATIVE(void, resize)
(JNIEnv* env, jclass, jlong address, jint function, jlongArray values, jint used, jint inputs) {
  Session& s = *at<Session>(address);
  if (!unpack(env, s, values, used, inputs, 0)) return;
  husk_error error = {};
  check(env,
        husk_session_resize(s.handle, static_cast<uint32_t>(function), s.values,
                            static_cast<uint32_t>(inputs), &error),
        error);
}

HUSK_NATIVE(void, setRange)
(JNIEnv* env, jclass, jlong session, jint function, jint input, jint dim, jlong min, jlong max) {
  husk_error error = {};
  check(env,
        husk_session_set_range(at<Session>(session)->handle, static_cast<uint32_t>(function),
                               static_cast<uint32_t>(input), static_cast<uint32_t>(dim), min, max,
                               &error),
        error);
}

HUSK_NATIVE(void, gather)
(JNIEnv* env, jclass, jlong address, jlongArray sizes, jlongArray strides, jint width,
 jobject target) {
  jlong size[64], stride[64], index[64] = {};
  const jsize rank = env->GetArrayLength(sizes);
  if (rank > static_cast<jsize>(std::size(size)))
    return fail(env, HUSK_INVALID_ARGUMENT, "a tensor of more than 64 dimensions");
  env->GetLongArrayRegion(sizes, 0, rank, size);
  env->GetLongArrayRegion(strides, 0, rank, stride);
  auto* to = static_cast<char*>(env->GetDirectBufferAddress(target));
  const char *from = at<char>(address), *end = to + env->GetDirectBufferCapacity(target);
  // Contiguous dims are copied as one.
  jsize outer = rank;
  jlong row = width;
  while (outer > 0 && (size[outer - 1] == 1 || stride[outer - 1] * width == row))
    row *= size[--outer];
  for (; to != end; to += row) {
    jlong offset = 0;
    for (jsize d = 0; d < outer; ++d) offset += index[d] * stride[d];
    std::memcpy(to, from + offset * width, static_cast<size_t>(row));
    for (jsize d = outer; d-- > 0;) {
      if (++index[d] < size[d]) break;
      index[d] = 0;
    }
  }
}

HUSK_NATIVE(void, getState)(JNIEnv* env, jclass, jlong session, jint state, jobject bytes) {
  husk_error error = {};
  check(env,
        husk_session_state_get(at<Session>(session)->handle, static_cast<uint32_t>(state),
                               env->GetDirectBufferAddress(bytes), &error),
        error);
}

HUSK_NATIVE(void, setState)(JNIEnv* env, jclass, jlong session, jint state, jobject bytes) {
  husk_error error = {};
  check(env,
        husk_session_state_set(at<Session>(session)->handle, static_cast<uint32_t>(state),
                               env->GetDirectBufferAddress(bytes), &error),
        error);
}

HUSK_NATIVE(void, resetState)(JNIEnv* env, jclass, jlong session, jint state) {
  husk_error error = {};
  check(
      env,
      husk_session_state_reset(at<Session>(session)->handle, static_cast<uint32_t>(state), &error),
      error);
}

HUSK_NATIVE(void, copyState)(JNIEnv* env, jclass, jlong session, jint state, jlong from) {
  husk_error error = {};
  check(env,
        husk_session_state_copy(at<Session>(session)->handle, static_cast<uint32_t>(state),
                                at<Session>(from)->handle, &error),
        error);
}
