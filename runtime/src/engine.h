// A device and the operators that programs on it may call.
#pragma once

#include "memory.h"

#include <husk/husk.h>

#include <atomic>
#include <pthread.h>

namespace husk {

// Shared by the handles: one reference for the caller, one for each child.
class References {
 public:
  void retain() { count_.fetch_add(1, std::memory_order_relaxed); }
  bool drop() { return count_.fetch_sub(1, std::memory_order_acq_rel) == 1; }  // true: it was the last
  bool alone() const { return count_.load(std::memory_order_acquire) == 1; }

 private:
  std::atomic<uint32_t> count_{1};
};

// std::mutex throws, and would need the C++ library for it. Made by its initializer, it holds nothing to give back.
class Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;
  void lock() { pthread_mutex_lock(&mutex_); }
  void unlock() { pthread_mutex_unlock(&mutex_); }

 private:
  pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
};

class Lock {
 public:
  explicit Lock(Mutex& mutex) : mutex_(mutex) { mutex_.lock(); }
  ~Lock() { mutex_.unlock(); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  Mutex& mutex_;
};

}  // namespace husk

struct husk_engine {
  husk::References references;
  husk_allocator allocator = {};
  husk_engine_options options = {};
  const husk_port* port = nullptr;
  void* device = nullptr;
  husk_port_properties properties = {};
  husk::Mutex mutex;  // guards ops and lenders
  husk::List<husk_op> ops;  // as registered; the names are the engine's
  husk_program* lenders = nullptr;  // whose constants others may use

  ~husk_engine();

  // HUSK_NOT_FOUND if there is none by that name, of the application's or of the port's.
  husk::Status find_op(const char* name, husk_op* out, husk_error* error);
};
