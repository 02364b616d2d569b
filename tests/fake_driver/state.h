// The state of the fake driver: handles, counters, faults, and the guard with which every driver
// function begins.
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
#include <unordered_set>
#include <vector>

#include "fake.h"

namespace fake {

using namespace husk::cuda;

// Reports the violation of a rule that a real driver does not check, and aborts.
[[noreturn, gnu::format(printf, 1, 2)]] void violation(const char* format, ...);

struct Task;
using TaskPointer = std::shared_ptr<Task>;

// Every handle is the address of an Object. Objects are never freed, so that a dead handle can be
// recognised.
struct Object {
  explicit Object(const char* object_kind, bool is_counted);
  virtual ~Object() = default;
  void end();  // the handle is dead from now on
  const char* kind;
  bool counted;  // fake_live_objects counts the object
  bool live = true;
};

struct Context : Object {
  explicit Context(int index) : Object("context", false), ordinal(index) {}
  int ordinal;
  int retained = 0;
  TaskPointer null_last;  // the last task of the default stream
};

struct Allocation {
  CUdeviceptr address;
  uint64_t size;
  char* region;  // guard page, slack, memory, slack, guard page
  uint64_t region_size;
  bool live;
  bool freed_later;  // cuMemFreeAsync was called, and its stream has not come to it
};

constexpr int kMaxDevices = 8;

struct State {
  std::recursive_mutex mutex;
  std::unordered_map<const void*, std::unique_ptr<Object>> objects;  // live and dead
  std::unordered_set<const Object*> live_counted;  // few, where `objects` grows with each test
  std::array<Context*, kMaxDevices> contexts{};

  std::map<std::string, uint64_t> calls;
  uint64_t all_calls = 0;
  uint64_t fail_at = 0;  // calls up to and including the failing one; 0: no call fails
  std::string fail_name;
  CUresult fail_code = CUDA_SUCCESS;
  bool failed = false;

  bool initialised = false;
  int version = 13000, major = 9, minor = 0, devices = 1;
  uint64_t memory = uint64_t{16} << 30;
  bool integrated = false, registers_read_only = true;
  CUresult broken = CUDA_SUCCESS;  // the error of every use of a context (fake_break)
  std::set<std::string> hidden;
  std::map<const char*, uint64_t> pinned;

  std::mt19937_64 random{1};
  uint32_t eager_percent = 0;
  uint64_t lazy_loads = 0, early_starts = 0, idle_waits = 0;

  uint64_t allocated = 0;                         // bytes
  uint64_t held = 0;                              // objects of libraries (fake_hold)
  std::map<CUdeviceptr, Allocation> allocations;  // by the region's first byte, live and dead
  uint64_t live_allocations = 0;

  void read_environment();
};
State& state();

// The guard of a driver function: holds the lock, counts the call, and has the fault that the call
// is to return.
class Call {
 public:
  explicit Call(const char* name);
  const char* name;
  CUresult fault = CUDA_SUCCESS;

  // The current context of this thread; a violation if there is none.
  Context& context() const;

  // The object of a handle; a violation if the object has another kind or is dead.
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
  if (object->counted) state().live_counted.insert(object);
  return object;
}

std::vector<Context*>& context_stack();  // the stack of this thread

// memory.cpp
// The live or dead allocation that contains the address; null if there is none or if the address is
// the end of a live one.
Allocation* find_allocation(CUdeviceptr address);
void free_in_order(CUdeviceptr address);  // what cuMemFreeAsync has queued
void check_range(const Call& call, CUdeviceptr address, uint64_t size, const char* what);
std::string explain_address(CUdeviceptr address);
// Pinned memory that a queued copy uses. Until the copy has ended, its pages are protected: a write
// of the host is a fault, and if the copy writes, a read is one too.
struct HostUse {
  char* begin;
  uint64_t size;
  bool written;
  bool overlaps(const char* from, uint64_t bytes) const {
    return from < begin + size && begin < from + bytes;
  }
};
void begin_use(const HostUse& use);
void end_use(const HostUse& use);
bool is_pinned(const void* memory);
void watch_faults();

#define HUSK_DRIVER(name, version, need, parameters) CUresult name parameters;
#include <driver.def>
#undef HUSK_DRIVER

}  // namespace fake
