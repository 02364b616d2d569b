#include "schedule.h"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>

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
  // Never destroyed: work may still be queued, and threads parked, when the process ends.
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
    if (text && sscanf(text, format, values...) != int{sizeof...(values)}) violation("%s=%s is no value", name, text);
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

// Devices and contexts themselves can still be asked for.
bool Call::needs_context() const {
  const std::string of(name);
  return of.compare(0, 5, "cuCtx") != 0 && of.compare(0, 8, "cuDevice") != 0 && of != "cuInit" &&
         of != "cuDriverGetVersion" && of != "cuGetProcAddress";
}

Context& Call::context() const {
  if (context_stack().empty()) violation("%s: no context is current in this thread", name);
  return *context_stack().back();
}

Object& Call::find(const void* handle, const char* kind) const {
  const auto found = state().objects.find(handle);
  if (found == state().objects.end()) violation("%s: %p is no handle (a %s is wanted)", name, handle, kind);
  Object& object = *found->second;
  if (std::string(object.kind) != kind) violation("%s: %p is a %s, not a %s", name, handle, object.kind, kind);
  if (!object.live) violation("%s: %s %p is dead", name, kind, handle);
  return object;
}

}  // namespace fake

using fake::state;

namespace {
struct Locked {
  std::lock_guard<std::recursive_mutex> lock{state().mutex};
};
}  // namespace

void fake_reset() {
  Locked locked;
  fake::State& s = state();
  s.calls.clear();
  s.all_calls = s.fail_at = s.lazy_loads = s.early_starts = 0;
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
  Locked locked;
  state().fail_name = name;
  state().fail_at = n;
  state().fail_code = static_cast<husk::cuda::CUresult>(code);
  state().failed = false;
}

int32_t fake_failed() {
  Locked locked;
  return state().failed;
}

uint64_t fake_calls(const char* name) {
  Locked locked;
  if (!name) return state().all_calls;
  const auto found = state().calls.find(name);
  return found == state().calls.end() ? 0 : found->second;
}

uint64_t fake_live_objects() {
  Locked locked;
  uint64_t count = state().held;
  for (const auto& [handle, object] : state().objects) count += object->counted && object->live;
  for (const auto& [address, allocation] : state().allocations) count += allocation.live;
  for (const fake::Context* context : state().contexts) count += context ? static_cast<uint64_t>(context->retained) : 0;
  return count;
}

uint64_t fake_lazy_loads() {
  Locked locked;
  return state().lazy_loads;
}

uint64_t fake_early_starts() {
  Locked locked;
  return state().early_starts;
}

void fake_schedule(uint64_t seed, uint32_t eager_percent) {
  Locked locked;
  state().random.seed(seed);
  state().eager_percent = eager_percent;
}

void fake_set_capability(int32_t major, int32_t minor) {
  Locked locked;
  state().major = major;
  state().minor = minor;
}

void fake_set_driver_version(int32_t version) {
  Locked locked;
  state().version = version;
}

void fake_set_devices(int32_t count) {
  Locked locked;
  state().devices = count < fake::kMaxDevices ? count : fake::kMaxDevices;
}

void fake_set_memory(uint64_t bytes) {
  Locked locked;
  state().memory = bytes;
}

void fake_set_integrated(int32_t integrated, int32_t registers_read_only) {
  Locked locked;
  state().integrated = integrated != 0;
  state().registers_read_only = registers_read_only != 0;
}

void fake_break(int32_t code) {
  Locked locked;
  if (state().broken && !code) fake::drain();
  state().broken = static_cast<husk::cuda::CUresult>(code);
}

void fake_hide(const char* name) {
  Locked locked;
  state().hidden.insert(name);
}

void fake_pin(const void* memory, uint64_t size) {
  Locked locked;
  if (size) state().pinned[static_cast<const char*>(memory)] = size;
  else state().pinned.erase(static_cast<const char*>(memory));
}
