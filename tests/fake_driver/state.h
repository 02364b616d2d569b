// The fake driver's own books: handles, counters, faults, and the guard that every driver function begins with.
#pragma once

#include <driver.h>

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "fake.h"

namespace fake {

using namespace husk::cuda;

// A rule was broken that a real driver does not check: says which, and aborts.
[[noreturn, gnu::format(printf, 1, 2)]] void violation(const char* format, ...);

struct Task;
using TaskPointer = std::shared_ptr<Task>;

// Every handle is the address of one of these. They are never freed, so that a dead handle is known as such.
struct Object {
  explicit Object(const char* object_kind, bool is_counted);
  virtual ~Object() = default;
  const char* kind;
  bool counted;   // among fake_live_objects
  bool live = true;
};

struct Context : Object {
  explicit Context(int index) : Object("context", false), ordinal(index) {}
  int ordinal;
  int retained = 0;
  TaskPointer null_last;   // last work of the default stream
};

struct Allocation {
  CUdeviceptr address;
  uint64_t size;
  char* region;            // guard page, slack, memory, guard page
  uint64_t region_size;
  bool live;
};

constexpr int kMaxDevices = 8;

struct State {
  std::recursive_mutex mutex;
  std::unordered_map<const void*, std::unique_ptr<Object>> objects;
  std::array<Context*, kMaxDevices> contexts{};

  std::map<std::string, uint64_t> calls;
  uint64_t all_calls = 0;
  uint64_t fail_at = 0;    // counts down
  std::string fail_name;
  CUresult fail_code = CUDA_SUCCESS;
  bool failed = false;

  bool initialised = false;
  int version = 13000, major = 9, minor = 0, devices = 1;
  uint64_t memory = uint64_t{16} << 30;
  bool integrated = false, registers_read_only = true;
  CUresult broken = CUDA_SUCCESS;   // what every use of a context comes back with
  std::set<std::string> hidden;
  std::map<const char*, uint64_t> pinned;

  std::mt19937_64 random{1};
  uint32_t eager_percent = 0;
  uint64_t lazy_loads = 0, early_starts = 0;

  uint64_t allocated = 0, held = 0;   // bytes; objects of libraries over the driver
  std::map<CUdeviceptr, Allocation> allocations;   // by the region's first byte, dead ones too

  void read_environment();
};
State& state();

// Entered by every driver function: takes the lock, counts, and says whether this call is to fail.
class Call {
 public:
  explicit Call(const char* name);
  const char* name;
  CUresult fault = CUDA_SUCCESS;

  // The context that is current in this thread; a violation if there is none.
  Context& context() const;

  // The object behind a handle; a violation if it is none of this kind, or dead.
  template <class T>
  T& object(const void* handle, const char* kind) const {
    return static_cast<T&>(find(handle, kind));
  }

 private:
  Object& find(const void* handle, const char* kind) const;
  bool needs_context() const;
  std::lock_guard<std::recursive_mutex> lock_;
};

template <class T, class... Arguments>
T* make(Arguments&&... arguments) {
  auto owned = std::make_unique<T>(std::forward<Arguments>(arguments)...);
  T* object = owned.get();
  state().objects.emplace(object, std::move(owned));
  return object;
}

std::vector<Context*>& context_stack();   // of this thread

// memory.cpp
Allocation* find_allocation(CUdeviceptr address);   // live or dead; null: no device memory, or the end of a piece
void check_range(const Call& call, CUdeviceptr address, uint64_t size, const char* what);
std::string explain_address(CUdeviceptr address);
bool is_pinned(const void* memory);
void watch_faults();

#define HUSK_DRIVER(name, version, need, parameters) CUresult name parameters;
#include <driver.def>
#undef HUSK_DRIVER

}  // namespace fake
