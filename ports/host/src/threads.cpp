// A thread pool for applications without threads of their own. One region runs at a time: callers
// queue at `gate`. So a region always has all threads that it asks for, and the order in which
// numbers are added up never depends on other callers.
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cassert>
#include <cstdlib>
#include <cstring>
#include <new>

#include <husk/port_host.h>

#include "error.h"

namespace husk::host {

namespace {

// How often a thread checks for work before it sleeps. The gap between two kernels is a few
// microseconds; waking a thread takes longer.
constexpr int kSpins = 2000;

void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

struct Pool;

struct Worker {
  Pool* pool;
  uint32_t index;
  pthread_t thread;
};

struct Pool {
  husk_allocator allocator;
  uint32_t started = 0;  // the number of running workers
  int spins = 0;         // checks before sleeping; 0 if there are more threads than CPUs
  pthread_mutex_t gate;  // held by the caller whose region runs
  pthread_mutex_t lock;  // guards sleeping and waking
  pthread_cond_t work, done;
  // The number of regions begun. It is increased after the fields below `missing` are written.
  std::atomic<uint64_t> region{0};
  std::atomic<uint32_t> missing{0};  // workers that have not finished the region
  std::atomic<bool> stopping{false};
  uint32_t bodies = 0;
  void (*body)(void*, uint32_t) = nullptr;
  void* argument = nullptr;

  explicit Pool(const husk_allocator& memory) : allocator(memory) {}

  // The count - 1 workers, in the memory that follows the pool.
  Worker* workers() { return reinterpret_cast<Worker*>(this + 1); }
};

void* default_allocate(void*, size_t size, size_t align) {
  return aligned_alloc(align, (size + align - 1) / align * align);
}
void default_release(void*, void* pointer) { free(pointer); }

uint32_t cpu_count() {
  cpu_set_t set;  // has room for 1024 CPUs; the call fails if there are more
  const long count = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set)
                                                                 : sysconf(_SC_NPROCESSORS_ONLN);
  return count > 0 ? static_cast<uint32_t>(count) : 1;
}

bool has_work(const Pool& pool, uint64_t seen) {
  return pool.region.load(std::memory_order_acquire) != seen ||
         pool.stopping.load(std::memory_order_acquire);
}

void wait_for_work(Pool& pool, uint64_t seen) {
  for (int i = 0; i < pool.spins; ++i) {
    if (has_work(pool, seen)) return;
    pause_briefly();
  }
  pthread_mutex_lock(&pool.lock);
  while (!has_work(pool, seen)) pthread_cond_wait(&pool.work, &pool.lock);
  pthread_mutex_unlock(&pool.lock);
}

void* work(void* argument) {
  const Worker& self = *static_cast<Worker*>(argument);
  Pool& pool = *self.pool;
  for (uint64_t seen = 0;;) {
    wait_for_work(pool, seen);
    if (pool.stopping.load(std::memory_order_acquire)) return nullptr;
    ++seen;  // the next region begins only after all workers have finished this one
    if (self.index < pool.bodies) pool.body(pool.argument, self.index);
    if (pool.missing.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      pthread_mutex_lock(&pool.lock);
      pthread_cond_signal(&pool.done);
      pthread_mutex_unlock(&pool.lock);
    }
  }
}

void wait_for_workers(Pool& pool) {
  for (int i = 0; i < pool.spins; ++i) {
    if (pool.missing.load(std::memory_order_acquire) == 0) return;
    pause_briefly();
  }
  pthread_mutex_lock(&pool.lock);
  while (pool.missing.load(std::memory_order_acquire) != 0)
    pthread_cond_wait(&pool.done, &pool.lock);
  pthread_mutex_unlock(&pool.lock);
}

void parallel(void* user, uint32_t n, void (*body)(void*, uint32_t), void* argument) {
  auto& pool = *static_cast<Pool*>(user);
  if (n == 0) return;
  if (n == 1 || pool.started == 0) {
    assert(n == 1);
    body(argument, 0);
    return;
  }
  pthread_mutex_lock(&pool.gate);
  assert(n <= pool.started + 1 && "more bodies than the pool has threads");
  pool.body = body;
  pool.argument = argument;
  pool.bodies = n;
  pool.missing.store(pool.started, std::memory_order_relaxed);
  pthread_mutex_lock(&pool.lock);
  pool.region.fetch_add(1, std::memory_order_release);
  pthread_cond_broadcast(&pool.work);
  pthread_mutex_unlock(&pool.lock);
  body(argument, 0);
  wait_for_workers(pool);
  pthread_mutex_unlock(&pool.gate);
}

// Ends the running workers and frees the pool.
void destroy(Pool* pool) {
  pthread_mutex_lock(&pool->lock);
  pool->stopping.store(true, std::memory_order_release);
  pthread_cond_broadcast(&pool->work);
  pthread_mutex_unlock(&pool->lock);
  for (uint32_t i = 0; i < pool->started; ++i) pthread_join(pool->workers()[i].thread, nullptr);
  pthread_cond_destroy(&pool->done);
  pthread_cond_destroy(&pool->work);
  pthread_mutex_destroy(&pool->lock);
  pthread_mutex_destroy(&pool->gate);
  const husk_allocator allocator = pool->allocator;
  pool->~Pool();
  allocator.release(allocator.user, pool);
}

// Starts workers until there are `count` threads. Workers block all signals, because the
// application's signals are meant for its own threads.
husk_status start_workers(Pool* pool, uint32_t count, husk_error* error) {
  sigset_t all_signals, previous;
  sigfillset(&all_signals);
  pthread_sigmask(SIG_SETMASK, &all_signals, &previous);
  int failure = 0;
  while (pool->started + 1 < count) {
    Worker& worker = pool->workers()[pool->started];
    worker.pool = pool;
    worker.index = pool->started + 1;
    failure = pthread_create(&worker.thread, nullptr, work, &worker);
    if (failure != 0) break;
    ++pool->started;
  }
  pthread_sigmask(SIG_SETMASK, &previous, nullptr);
  if (failure == 0) return HUSK_OK;
  return fail(error, HUSK_OUT_OF_MEMORY, "threads: number %u of %u does not start: %s",
              pool->started + 1, count, strerror(failure));
}

}  // namespace

}  // namespace husk::host

husk_status husk_host_threads_create(uint32_t count, const husk_allocator* custom_allocator,
                                     husk_threads* out, husk_error* error) {
  using namespace husk::host;
  husk_error unused_error;
  if (!error) error = &unused_error;
  if (!out) return fail(error, HUSK_INVALID_ARGUMENT, "threads: `out` is null");
  *out = {};
  const husk_allocator allocator = custom_allocator
                                       ? *custom_allocator
                                       : husk_allocator{nullptr, default_allocate, default_release};
  if (!allocator.allocate || !allocator.release) {
    return fail(error, HUSK_INVALID_ARGUMENT,
                "threads: they need an allocator with both of its functions");
  }
  const uint32_t cpus = cpu_count();
  if (count == 0) count = cpus;
  if (count > HUSK_HOST_THREADS_MAX) {
    return fail(error, HUSK_INVALID_ARGUMENT, "threads: %u are too many, at most %d can be had",
                count, HUSK_HOST_THREADS_MAX);
  }
  void* memory = allocator.allocate(allocator.user, sizeof(Pool) + count * sizeof(Worker), 64);
  if (!memory) return fail(error, HUSK_OUT_OF_MEMORY, "threads: no memory for a pool of %u", count);
  auto* pool = new (memory) Pool(allocator);
  pool->spins = count <= cpus ? kSpins : 0;
  pthread_mutex_init(&pool->gate, nullptr);
  pthread_mutex_init(&pool->lock, nullptr);
  pthread_cond_init(&pool->work, nullptr);
  pthread_cond_init(&pool->done, nullptr);
  if (const husk_status status = start_workers(pool, count, error)) {
    destroy(pool);
    return status;
  }
  *out = {pool, count, parallel};
  return HUSK_OK;
}

void husk_host_threads_release(husk_threads* threads) {
  if (!threads || !threads->user) return;
  husk::host::destroy(static_cast<husk::host::Pool*>(threads->user));
  *threads = {};
}
