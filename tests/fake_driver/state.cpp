#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "schedule.h"

namespace fake {

void violation(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  fprintf(stderr, "fake libcuda: ");
  vfprintf(stderr, format, arguments);
  fprintf(stderr, "\n");
  va_end(arguments);
  abort();
}

State& state() {
  // Never destroyed: when the process ends, work may be queued and threads may be waiting.
  static State* const instance = [] {
    auto* created = new State;
    created->read_environment();
    return created;
  }();
  return *instance;
}

void State::read_environment() {
  const auto read = [](const char* name, const char* format, auto*... values) {
    const char* text = getenv(name);
    if (text && sscanf(text, format, values...) != int{sizeof...(values)})
      violation("%s=%s is not a valid value", name, text);
  };
  unsigned long long seed = 1;
  read("FAKE_CUDA_CAPABILITY", "%d.%d", &major, &minor);
  read("FAKE_CUDA_VERSION", "%d", &version);
  read("FAKE_CUDA_DEVICES", "%d", &devices);
  read("FAKE_CUDA_SEED", "%llu", &seed);
  read("FAKE_CUDA_EAGER", "%u", &eager_percent);
  random.seed(seed);
}

Object::Object(const char* object_kind, bool is_counted) : kind(object_kind), counted(is_counted) {}

void Object::end() {
  live = false;
  if (counted) state().live_counted.erase(this);
}

std::vector<Context*>& context_stack() {
  static thread_local std::vector<Context*> stack;
  return stack;
}

Call::Call(const char* call_name) : name(call_name), lock_(state().mutex) {
  State& s = state();
  ++s.all_calls;
  ++s.calls[name];
  if (s.broken && needs_context()) fault = s.broken;
  if (s.fail_at == 0 || (!s.fail_name.empty() && s.fail_name != name)) return;
  if (--s.fail_at == 0) {
    fault = s.fail_code;
    s.failed = true;
  }
}

// Functions about devices and contexts work without a context.
bool Call::needs_context() const {
  const std::string_view function(name);
  return function.compare(0, 5, "cuCtx") != 0 && function.compare(0, 8, "cuDevice") != 0 &&
         function != "cuInit" && function != "cuDriverGetVersion" && function != "cuGetProcAddress";
}

Context& Call::context() const {
  if (context_stack().empty()) violation("%s: no context is current in this thread", name);
  return *context_stack().back();
}

Object& Call::find(const void* handle, const char* kind) const {
  const auto entry = state().objects.find(handle);
  if (entry == state().objects.end())
    violation("%s: %p is not a handle (a %s is expected)", name, handle, kind);
  Object& object = *entry->second;
  if (std::string(object.kind) != kind)
    violation("%s: %p is a %s, not a %s", name, handle, object.kind, kind);
  if (!object.live) violation("%s: %s %p is dead", name, kind, handle);
  return object;
}

}  // namespace fake

using fake::state;

namespace {
struct Lock {
  std::lock_guard<std::recursive_mutex> guard{state().mutex};
};
}  // namespace

void fake_reset() {
  Lock lock;
  fake::State& s = state();
  s.calls.clear();
  s.all_calls = s.fail_at = s.lazy_loads = s.early_starts = s.idle_waits = 0;
  s.fail_name.clear();
  s.failed = false;
  s.version = 13000;
  s.major = 9;
  s.minor = 0;
  s.devices = 1;
  s.memory = uint64_t{16} << 30;
  s.hidden.clear();
  s.integrated = false;
  s.registers_read_only = true;
  fake_break(0);
  s.pinned.clear();
  s.eager_percent = 0;
  s.random.seed(1);
  s.read_environment();
}

void fake_fail_at(uint64_t n, int32_t code) { fake_fail_call("", n, code); }

void fake_fail_call(const char* name, uint64_t n, int32_t code) {
  Lock lock;
  state().fail_name = name;
  state().fail_at = n;
  state().fail_code = static_cast<husk::cuda::CUresult>(code);
  state().failed = false;
}

int32_t fake_failed() {
  Lock lock;
  return state().failed;
}

uint64_t fake_calls(const char* name) {
  Lock lock;
  if (!name) return state().all_calls;
  const auto entry = state().calls.find(name);
  return entry == state().calls.end() ? 0 : entry->second;
}

uint64_t fake_live_objects() {
  Lock lock;
  uint64_t count = state().held + state().live_counted.size() + state().live_allocations;
  for (const fake::Context* context : state().contexts)
    count += context ? static_cast<uint64_t>(context->retained) : 0;
  return count;
}

uint64_t fake_lazy_loads() {
  Lock lock;
  return state().lazy_loads;
}

uint64_t fake_idle_waits() {
  Lock lock;
  return state().idle_waits;
}

uint64_t fake_early_starts() {
  Lock lock;
  return state().early_starts;
}

void fake_schedule(uint64_t seed, uint32_t eager_percent) {
  Lock lock;
  state().random.seed(seed);
  state().eager_percent = eager_percent;
}

void fake_set_capability(int32_t major, int32_t minor) {
  Lock lock;
  state().major = major;
  state().minor = minor;
}

void fake_set_driver_version(int32_t version) {
  Lock lock;
  state().version = version;
}

void fake_set_devices(int32_t count) {
  Lock lock;
  state().devices = count < fake::kMaxDevices ? count : fake::kMaxDevices;
}

void fake_set_memory(uint64_t bytes) {
  Lock lock;
  state().memory = bytes;
}

void fake_set_integrated(int32_t integrated, int32_t registers_read_only) {
  Lock lock;
  state().integrated = integrated != 0;
  state().registers_read_only = registers_read_only != 0;
}

void fake_break(int32_t code) {
  Lock lock;
  if (state().broken && !code) fake::drain();
  state().broken = static_cast<husk::cuda::CUresult>(code);
}

void fake_hide(const char* name) {
  Lock lock;
  state().hidden.insert(name);
}

void fake_pin(const void* memory, uint64_t size) {
  Lock lock;
  if (size)
    state().pinned[static_cast<const char*>(memory)] = size;
  else
    state().pinned.erase(static_cast<const char*>(memory));
}
