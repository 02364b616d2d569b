// The runtime support of the kernels in a host image: checks that make the kernel return an error,
// memory that is freed if a check fails, and OpenMP's entry points on the application's threads. A
// failed check leaves the kernel by longjmp; this is safe because kernels have no destructors and
// throw no exceptions. The file needs only libc and is independent of PyTorch.
//
// schema/FORMAT.md, "Images", lists the symbols that an image exports. kernels.py includes this
// file in the single translation unit of an image.
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#define HUSK_EXPORT __attribute__((visibility("default")))

namespace husk_kernels {

// Numbers of the checks that every image has; kernels.py has their texts.
enum : int { unnamed = 1, no_memory = 2, division_by_zero = 3 };

// The header of an allocation, an element of a circular doubly linked list.
struct Block {
  Block* before;
  Block* after;
  void* memory;
};

// The state of one call of an entry, or of one body of a parallel region, while a thread executes
// it. A failed check jumps to `place`. `blocks` is the head of the list of the live allocations.
struct Call {
  jmp_buf place;
  Block blocks;
};

static thread_local Call* call = nullptr;

[[noreturn]] static void fail(int check) {
  if (call == nullptr) __builtin_trap();  // code outside of an entry cannot fail
  longjmp(call->place, check);
}

// Allocates memory that is freed if a check of the current call fails. The Block lies directly
// before the returned address.
static void* allocate(size_t size, size_t align) {
  if (align < alignof(Block)) align = alignof(Block);
  const size_t before = (sizeof(Block) + align - 1) / align * align;
  char* memory = size <= SIZE_MAX - before - align
                     ? static_cast<char*>(malloc(size + before + align))
                     : nullptr;
  if (memory == nullptr) fail(no_memory);
  const uintptr_t at = (reinterpret_cast<uintptr_t>(memory) + before + align - 1) / align * align;
  Block* block = reinterpret_cast<Block*>(at) - 1;
  block->memory = memory;
  block->before = block->after = block;
  if (call != nullptr) {
    block->before = &call->blocks;
    block->after = call->blocks.after;
    block->after->before = block->before->after = block;
  }
  return reinterpret_cast<void*>(at);
}

static void release(void* pointer) {
  if (pointer == nullptr) return;
  Block* block = static_cast<Block*>(pointer) - 1;
  block->before->after = block->after;
  block->after->before = block->before;
  free(block->memory);
}

static void release_all(Call& ended) {
  while (ended.blocks.after != &ended.blocks) release(ended.blocks.after + 1);
}

// Calls run(argument). Returns 0, or the number of the check that failed inside the call, whose
// allocations are then freed. Calls may nest.
template <class Run>
static int landing(Run run, void* argument) {
  Call now;
  Call* const outer = call;
  now.blocks.before = now.blocks.after = &now.blocks;
  call = &now;
  const int check = _setjmp(now.place);
  if (check == 0) run(argument);
  call = outer;
  if (check != 0) release_all(now);
  return check;
}

// The same layout as husk_threads of husk/types.h.
struct Threads {
  void* user;
  uint32_t count;
  void (*parallel)(void* user, uint32_t n, void (*body)(void* argument, uint32_t index),
                   void* argument);
};

}  // namespace husk_kernels

// The application's threads. The loader sets this variable after it has loaded the image. If it is
// null, kernels run on the calling thread only.
extern "C" {
HUSK_EXPORT extern const husk_kernels::Threads* husk_image_threads;
const husk_kernels::Threads* husk_image_threads = nullptr;
}

namespace husk_kernels {

// A parallel region: `count` bodies that run at the same time. The first check that fails is the
// result of the region and of the kernel. The other bodies do not wait for a body that has failed.
// They leave the region at their next barrier, because code after the barrier may read memory that
// the failed body did not write.
struct Team {
  void (*run)(void* data);
  void* data;
  uint32_t count;
  std::atomic<int> failed{0};
  std::atomic<uint32_t> singles{0};   // `single` blocks that a body has begun
  std::atomic<uint32_t> arrived{0};   // bodies that wait at the barrier
  std::atomic<uint32_t> turn{0};      // number of completed barriers, plus one after a failure
  std::atomic<uint32_t> sleepers{0};  // threads that wait for `turn` by a futex
};

struct Body {
  Team* team;
  uint32_t index;
  uint32_t singles;  // `single` blocks that this body has reached
};

static thread_local Body* body = nullptr;  // null outside of a parallel region

static void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

// Releases the threads that wait for a change of `turn`.
static void next_turn(Team& team) {
  team.turn.fetch_add(1);
  if (team.sleepers.load() != 0)
    syscall(SYS_futex, &team.turn, FUTEX_WAKE_PRIVATE, INT32_MAX, nullptr, nullptr, 0);
}

// Waits until `turn` differs from `seen`: first actively, then by a futex.
static void wait_for_turn(Team& team, uint32_t seen) {
  for (int looks = 0; looks < 2000; ++looks) {
    if (team.turn.load(std::memory_order_acquire) != seen) return;
    pause_briefly();
  }
  team.sleepers.fetch_add(1);
  while (team.turn.load() == seen)
    syscall(SYS_futex, &team.turn, FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
  team.sleepers.fetch_sub(1);
}

// Executes one body of the team `argument`, and records the first failure of the team.
static void run_body(void* argument, uint32_t index) {
  Team& team = *static_cast<Team*>(argument);
  Body mine{&team, index, 0};
  body = &mine;
  const int check = landing(team.run, team.data);
  body = nullptr;
  int none = 0;
  if (check != 0 && team.failed.compare_exchange_strong(none, check)) next_turn(team);
}

// The number of threads that a new parallel region may have. A nested region has one.
static uint32_t thread_count() {
  const Threads* threads = husk_image_threads;
  return threads != nullptr && threads->count > 1 && body == nullptr ? threads->count : 1;
}

// The number of threads for a loop over `work` elements. Each thread gets at least 8192 elements,
// so that its work outweighs the cost of waking it.
static inline int threads_for(int64_t work) {
  const int64_t worth = work / 8192, most = thread_count();
  return static_cast<int>(worth < 1 ? 1 : worth < most ? worth : most);
}

}  // namespace husk_kernels

// The functions of libgomp that GCC calls for `#pragma omp`. A parallel region inside another one
// is serial.
extern "C" {

void GOMP_parallel(void (*run)(void*), void* data, unsigned wanted, unsigned) {
  using namespace husk_kernels;
  uint32_t count = thread_count();
  if (wanted != 0 && wanted < count) count = wanted;
  Team team{run, data, count};
  if (count == 1) {
    Body mine{&team, 0, 0};
    Body* const outer = body;
    body = &mine;
    run(data);  // a failed check ends the caller's call as well
    body = outer;
    return;
  }
  husk_image_threads->parallel(husk_image_threads->user, count, run_body, &team);
  if (const int check = team.failed.load()) fail(check);
}

void GOMP_barrier() {
  using namespace husk_kernels;
  if (body == nullptr || body->team->count == 1) return;
  Team& team = *body->team;
  const uint32_t seen = team.turn.load();
  if (const int check = team.failed.load()) fail(check);
  if (team.arrived.fetch_add(1) + 1 == team.count) {
    team.arrived.store(0);
    next_turn(team);
  } else {
    wait_for_turn(team, seen);
  }
  if (const int check = team.failed.load()) fail(check);
}

// Returns true to the first body that reaches a `single` block.
bool GOMP_single_start() {
  using namespace husk_kernels;
  if (body == nullptr) return true;
  uint32_t mine = body->singles++;
  return body->team->singles.compare_exchange_strong(mine, mine + 1);
}

int omp_get_thread_num() noexcept {
  return husk_kernels::body != nullptr ? static_cast<int>(husk_kernels::body->index) : 0;
}

int omp_get_num_threads() noexcept {
  return husk_kernels::body != nullptr ? static_cast<int>(husk_kernels::body->team->count) : 1;
}

int omp_get_max_threads() noexcept { return static_cast<int>(husk_kernels::thread_count()); }

int omp_in_parallel() noexcept {
  return husk_kernels::body != nullptr && husk_kernels::body->team->count > 1;
}

// The handler of -fsanitize=integer-divide-by-zero. Without it, a division by zero on x86 would end
// the process.
[[noreturn]] void __ubsan_handle_divrem_overflow_abort(void*, void*, void*) {
  husk_kernels::fail(husk_kernels::division_by_zero);
}

}  // extern "C"

// The body of an entry: executes the kernel and returns 0, or the number of the check that failed.
#define HUSK_ENTRY(...)                                        \
  husk_kernels::Body* const outer = husk_kernels::body;        \
  const auto run = [](void* untyped_params) {                  \
    void** const params = static_cast<void**>(untyped_params); \
    (void)params;                                              \
    __VA_ARGS__;                                               \
  };                                                           \
  const int check = husk_kernels::landing(run, params);        \
  husk_kernels::body = outer;                                  \
  return check

// Ends the current call with the check `number` if the condition is false.
#define HUSK_CHECK(number, condition)                                  \
  do {                                                                 \
    if (__builtin_expect(!(condition), 0)) husk_kernels::fail(number); \
  } while (false)
