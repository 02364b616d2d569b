#include "engine.h"

#include <pthread.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include <husk/ops.h>
#include <husk/port_cuda.h>
#include <husk/port_host.h>
#include <husk/ports.h>

#include "call.h"
#include "error.h"
#include "text.h"

namespace husk::python {
namespace {

// A pool of threads that survives a fork. The child of a fork has none of its parent's threads, so
// it starts new ones at its first call. Programs share the pools, which live as long as the
// process.
class Pool {
 public:
  explicit Pool(uint32_t count) : count_(count) {
    table_ = {this, count, &Pool::parallel};
    start();
  }
  const husk_threads* table() const { return &table_; }

  static void forked() { ++forks_; }

 private:
  static void parallel(void* self, uint32_t n, void (*body)(void* argument, uint32_t index),
                       void* argument) {
    auto* pool = static_cast<Pool*>(self);
    if (pool->forks_seen_ != forks_) pool->start();
    pool->threads_.parallel(pool->threads_.user, n, body, argument);
  }

  // A pool of the parent is not released: its threads are not there to be ended.
  void start() {
    check([&](husk_error* error) {
      return husk_host_threads_create(count_, nullptr, &threads_, error);
    });
    forks_seen_ = forks_;
  }

  static std::atomic<uint32_t> forks_;
  uint32_t count_;
  uint32_t forks_seen_ = 0;
  husk_threads threads_ = {};
  husk_threads table_ = {};
};
std::atomic<uint32_t> Pool::forks_{0};

const husk_threads* shared_threads(uint32_t count) {
  static nb::ft_mutex mutex;
  static auto* pools = new std::map<uint32_t, Pool*>;
  nb::ft_lock_guard guard(mutex);
  if (pools->empty()) pthread_atfork(nullptr, nullptr, &Pool::forked);
  Pool*& pool = (*pools)[count];
  if (!pool) pool = new Pool(count);
  return pool->table();
}

uint64_t number(const nb::dict& options, const char* name) {
  return options.contains(name) ? nb::cast<uint64_t>(options[name]) : 0;
}

nb::object callable_or_none(const nb::dict& options, const char* name) {
  if (!options.contains(name)) return nb::none();
  nb::object function = nb::borrow(options[name]);
  if (!function.is_none() && !PyCallable_Check(function.ptr()))
    throw nb::type_error((std::string(name) + " must be a function").c_str());
  return function;
}

[[noreturn]] void refuse_device(const char* device, const std::string& remedy) {
  throw nb::value_error((std::string("device '") + device + "': " + remedy).c_str());
}

// The port of a device. The host is "cpu", as in PyTorch; the others have the names of their ports.
const husk_port* port_of(const char* device) {
  if (!strcmp(device, "cpu")) return husk_port_host();
  const husk_port* port = husk_port_find(device);
  if (port && port != husk_port_host()) return port;
  std::string known = "give \"cpu\"", last;
  for (uint32_t i = 0; const husk_port* one = husk_port_at(i); ++i) {
    if (one == husk_port_host()) continue;
    if (!last.empty()) known += ", " + last;
    const std::string name = one->name;
    known += ", \"" + name + "\"";
    last = "\"" + name + ":N\"";
  }
  refuse_device(device, known + " or " + last);
}

husk_group_id group_of(nb::handle value) {
  husk_group_id id;
  if (!nb::isinstance<nb::bytes>(value) || nb::cast<nb::bytes>(value).size() != sizeof id.bytes)
    throw nb::value_error("group: give the bytes that husk.group_id() has returned on one rank");
  memcpy(id.bytes, nb::cast<nb::bytes>(value).data(), sizeof id.bytes);
  return id;
}

}  // namespace

nb::bytes group_id(const char* device, bool one_machine) {
  husk_port port = *port_of(device);
  husk_cuda_options options = HUSK_CUDA_OPTIONS_INIT;
  options.one_machine = one_machine;
  if (!strcmp(port.name, "cuda")) port.user = &options;
  husk_group_id id;
  check_unlocked([&](husk_error* error) { return husk_group_id_create(&port, &id, error); });
  return nb::bytes(reinterpret_cast<const char*>(id.bytes), sizeof id.bytes);
}

Engine::Engine(const char* device, nb::dict options) {
  accept_ = callable_or_none(options, "accept");
  progress_ = callable_or_none(options, "progress");
  log_ = callable_or_none(options, "log");
  husk_engine_options engine = HUSK_ENGINE_OPTIONS_INIT;
  engine.port = port_of(device);
  if (const char* colon = strchr(device, ':')) {
    char* end;
    engine.device_index = static_cast<int32_t>(strtol(colon + 1, &end, 10));
    if (end == colon + 1 || *end || engine.device_index < 0) {
      const std::string name(device, colon + 1);
      refuse_device(device, "give a number after \"" + name + "\"");
    }
  }
  engine.allow_host_images = 1;
  engine.max_metadata_bytes = number(options, "max_metadata_bytes");
  engine.max_state_bytes = number(options, "max_state_bytes");
  engine.max_steps = number(options, "max_steps");
  engine.max_step_elements = number(options, "max_step_elements");
  engine.max_packed_bytes = number(options, "max_packed_bytes");
  engine.max_program_bytes = number(options, "max_program_bytes");
  engine.verify_content = number(options, "verify_content") != 0;
  husk_group_id id;
  engine.rank = static_cast<uint32_t>(number(options, "rank"));
  engine.world = static_cast<uint32_t>(number(options, "world"));
  engine.group_timeout_ms = static_cast<uint32_t>(number(options, "group_timeout_ms"));
  if (options.contains("group")) {
    id = group_of(options["group"]);
    engine.group = &id;
  }
  if (!accept_.is_none()) engine.accept = &Engine::accept;
  if (!progress_.is_none()) engine.progress = &Engine::progress;
  if (!log_.is_none()) engine.log = &Engine::log;
  engine.accept_user = engine.progress_user = engine.log_user = this;
  engine.cancel = &Interrupt::requested;
  const auto threads = static_cast<uint32_t>(number(options, "threads"));
  if (threads > 1) engine.threads = shared_threads(threads);
  check_unlocked([&](husk_error* error) { return husk_engine_create(&engine, &handle_, error); });
  try {
    check([&](husk_error* error) { return husk_engine_properties(handle_, &properties_, error); });
    check([&](husk_error* error) { return husk_ops_add_all(handle_, error); });
  } catch (...) {
    husk_engine_release(handle_);
    throw;
  }
}

Engine::~Engine() { husk_engine_release(handle_); }

void Engine::add_op(const char* name, nb::callable function) {
  nb::ft_lock_guard guard(mutex_);
  ops_.push_back(std::make_unique<PythonOp>(std::move(function), properties_));
  husk_op op = HUSK_OP_INIT;
  op.name = name;
  op.call = &PythonOp::call;
  op.user = ops_.back().get();
  check([&](husk_error* error) { return husk_engine_add_op(handle_, &op, error); });
}

int32_t Engine::accept(void* self, const uint8_t* content_hash) {
  nb::gil_scoped_acquire locked;
  bool accepted = false;
  const bool done = Interrupt::calls([&] {
    nb::bytes hash(reinterpret_cast<const char*>(content_hash), 32);
    nb::object answer = static_cast<Engine*>(self)->accept_(hash);
    const int truth = PyObject_IsTrue(answer.ptr());
    if (truth < 0) throw nb::python_error();
    accepted = truth != 0;
  });
  return done && accepted;
}

int32_t Engine::progress(void* self, uint64_t done, uint64_t total) {
  nb::gil_scoped_acquire locked;
  return !Interrupt::calls([&] { static_cast<Engine*>(self)->progress_(done, total); });
}

void Engine::log(void* self, int32_t level, const char* text) {
  nb::gil_scoped_acquire locked;
  try {
    static_cast<Engine*>(self)->log_(level, to_str(text));
  } catch (nb::python_error& error) {
    error.discard_as_unraisable("the log function of husk.load");
  } catch (const std::exception&) {
    // There is no memory for a message, nor for one about it.
  }
}

}  // namespace husk::python
