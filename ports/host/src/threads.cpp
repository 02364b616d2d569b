// A thread pool for applications without threads of their own. One region runs at a time: callers
// queue at `gate`. A region always has as many bodies as it asks for, so the order in which numbers
// are added up never depends on other callers.
//
// Bodies are taken, not assigned: a thread that is ready takes the next body. A caller that has
// finished its body 0 takes those that no worker has begun, so a worker that wakes late costs
// nothing. Bodies may wait for one another: there are as many threads as bodies, and each thread
// that is not inside a body takes one.
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <time.h>
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

// How long a thread looks for work before it sleeps. Waking a thread takes 50 microseconds on a
// virtual machine, and the regions of a model are often further apart than that.
constexpr int64_t kSpinNanoseconds = 200000;

int64_t nanoseconds() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<int64_t>(now.tv_sec) * 1000000000 + now.tv_nsec;
}

void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

// The stack of a worker. An operator needs 64 KB, a kernel what its compiler gives it, and the
// default differs from 128 KB to 8 MB among C libraries.
constexpr size_t kStackBytes = size_t{1} << 20;

struct Pool;

struct Worker {
  struct Pool* pool;
  pthread_t thread;
  std::atomic<int> cpu{-1};  // where it last began a body
};

struct Pool {
  husk_allocator allocator;
  uint32_t started = 0;  // the number of running workers
  bool spins = false;    // false if there are more threads than CPUs
  pthread_mutex_t gate;  // held by the caller whose region runs
  pthread_mutex_t lock;  // guards sleeping and waking
  pthread_cond_t work, done;
  // The number of the region in the upper half, the number of its bodies that nobody has taken in
  // the lower half. The fields after `done_bodies` are written before it.
  alignas(64) std::atomic<uint64_t> tickets{0};
  std::atomic<uint32_t> sleepers{0};  // workers that sleep or are about to
  std::atomic<bool> stopping{false};
  std::atomic<int> caller_cpu{-1};  // where the caller began the region
  alignas(64) std::atomic<uint32_t> done_bodies{0};
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

bool has_work(const Pool& pool) {
  return static_cast<uint32_t>(pool.tickets.load()) != 0 || pool.stopping.load();
}

// Moves this thread to another CPU if it is on that of the caller of the last region. The system
// wakes a thread on the CPU of its waker if all CPUs are busy, and would let the two take turns.
void leave_callers_cpu(const Pool& pool) {
  const int cpu = pool.caller_cpu.load();
  cpu_set_t allowed, others;
  if (cpu < 0 || cpu >= CPU_SETSIZE || sched_getcpu() != cpu ||
      sched_getaffinity(0, sizeof allowed, &allowed) != 0)
    return;
  others = allowed;
  CPU_CLR(static_cast<size_t>(cpu), &others);
  // The thread stays where the first call has put it.
  if (sched_setaffinity(0, sizeof others, &others) == 0)
    sched_setaffinity(0, sizeof allowed, &allowed);
}

// Looks for a while whether `ready()` has become true. Calls `between()` about every microsecond.
template <class Ready, class Between>
bool spin(const Pool& pool, const Ready& ready, const Between& between) {
  if (ready()) return true;
  if (!pool.spins) return false;
  for (const int64_t end = nanoseconds() + kSpinNanoseconds; nanoseconds() < end;) {
    for (int i = 0; i < 16; ++i) {
      pause_briefly();
      if (ready()) return true;
    }
    between();
  }
  return false;
}

void wait_for_work(Pool& pool) {
  const auto ready = [&] { return has_work(pool); };
  if (spin(pool, ready, [&] { leave_callers_cpu(pool); })) return;
  pthread_mutex_lock(&pool.lock);
  // A caller publishes its region before it reads the number of sleepers, so either the caller sees
  // this sleeper or this thread sees the region.
  pool.sleepers.fetch_add(1);
  while (!ready()) pthread_cond_wait(&pool.work, &pool.lock);
  pool.sleepers.fetch_sub(1);
  pthread_mutex_unlock(&pool.lock);
}

// Takes a body of the region and runs it. Returns false if there is none left.
bool run_body(Pool& pool) {
  uint64_t tickets = pool.tickets.load();
  do {
    if (static_cast<uint32_t>(tickets) == 0) return false;
  } while (!pool.tickets.compare_exchange_weak(tickets, tickets - 1));
  // The region cannot end before this body does, so its fields do not change.
  const uint32_t bodies = pool.bodies, index = bodies - static_cast<uint32_t>(tickets);
  pool.body(pool.argument, index);
  if (pool.done_bodies.fetch_add(1) + 2 == bodies) {  // all bodies but body 0
    pthread_mutex_lock(&pool.lock);
    pthread_cond_signal(&pool.done);
    pthread_mutex_unlock(&pool.lock);
  }
  return true;
}

void* work(void* argument) {
  Worker& self = *static_cast<Worker*>(argument);
  Pool& pool = *self.pool;
  while (!pool.stopping.load()) {
    wait_for_work(pool);
    if (pool.spins) leave_callers_cpu(pool);
    self.cpu.store(sched_getcpu());
    while (run_body(pool)) {
    }
  }
  return nullptr;
}

void wait_for_bodies(Pool& pool, uint32_t others) {
  const auto done = [&] { return pool.done_bodies.load() == others; };
  // A worker on the CPU of this thread has to run first.
  const auto let_worker_run = [&] {
    const int cpu = sched_getcpu();
    for (uint32_t i = 0; i < pool.started; ++i)
      if (pool.workers()[i].cpu.load() == cpu) return void(sched_yield());
  };
  if (spin(pool, done, let_worker_run)) return;
  pthread_mutex_lock(&pool.lock);
  while (!done()) pthread_cond_wait(&pool.done, &pool.lock);
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
  pool.done_bodies.store(0, std::memory_order_relaxed);
  pool.caller_cpu.store(sched_getcpu());
  const uint64_t region = (pool.tickets.load(std::memory_order_relaxed) >> 32) + 1;
  pool.tickets.store(region << 32 | (n - 1));
  if (pool.sleepers.load() != 0) {
    pthread_mutex_lock(&pool.lock);
    pthread_cond_broadcast(&pool.work);
    pthread_mutex_unlock(&pool.lock);
  }
  body(argument, 0);
  while (run_body(pool)) {
  }
  wait_for_bodies(pool, n - 1);
  pthread_mutex_unlock(&pool.gate);
}

// Ends the running workers and frees the pool.
void destroy(Pool* pool) {
  pthread_mutex_lock(&pool->lock);
  pool->stopping.store(true);
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
  pthread_attr_t attributes;
  int failure = pthread_attr_init(&attributes);
  if (failure == 0) failure = pthread_attr_setstacksize(&attributes, kStackBytes);
  while (failure == 0 && pool->started + 1 < count) {
    Worker& worker = *new (&pool->workers()[pool->started]) Worker{};
    worker.pool = pool;
    failure = pthread_create(&worker.thread, &attributes, work, &worker);
    if (failure != 0) break;
    ++pool->started;
  }
  pthread_attr_destroy(&attributes);
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
  pool->spins = count <= cpus;
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
