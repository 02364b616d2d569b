// Reference counts and locks that need no C++ library.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>

namespace husk {

// The number of users of an object: one for the caller that has its handle, one for each child.
class References {
 public:
  void retain() { count_.fetch_add(1, std::memory_order_relaxed); }
  // Returns true if the caller dropped the last reference, and so must destroy the object.
  bool drop() { return count_.fetch_sub(1, std::memory_order_acq_rel) == 1; }
  bool alone() const { return count_.load(std::memory_order_acquire) == 1; }

 private:
  std::atomic<uint32_t> count_{1};
};

// A mutex without exceptions, which std::mutex throws. The initializer of pthread allocates
// nothing, so there is nothing to destroy.
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

// Holds a mutex until the end of a scope.
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
