// Groups of ranks by POSIX shared memory.
#include "group.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <new>

#include <husk/detail/dtype.h>
#include <husk/detail/struct_size.h>
#include <husk/detail/try.h>

#include "device.h"
#include "error.h"

namespace husk::host {

namespace {

// The values of Slot.state.
enum : uint32_t { kFree = 0, kTaken = 1, kLeft = 2 };

// Why a group is of no more use. A number of the group holds the reason and the rank that it is
// about, see `broken_by`.
enum Reason : uint32_t {
  kLate = 1,
  kGone = 2,
  kEnded = 3,
  kDiffers = 4,
  kCancelled = 5,
  kRefused = 6,
  kWrongWorld = 7,
};
constexpr const char* kReasons[] = {"",
                                    "did not come in time",
                                    "has left the group",
                                    "is a process that has ended",
                                    "makes another call",
                                    "was cancelled",
                                    "refused the call",
                                    "has another world"};

constexpr uint32_t broken_by(uint32_t reason, uint32_t rank) { return reason << 16 | (rank + 1); }

// The first turns of a wait ask without a pause, then the thread yields, then it sleeps.
constexpr uint32_t kBusyTurns = 256, kYieldingTurns = 2048;
constexpr long kSleepNanoseconds = 50000;
constexpr char kPrefix[] = "/husk-";  // of names of shared memory

constexpr uint32_t kTurnsBetweenChecks = 64;  // of processes, the clock and `cancel`

int64_t milliseconds() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1000000;
}

void pause(uint32_t turn) {
  if (turn < kBusyTurns) return;
  if (turn < kYieldingTurns) {
    sched_yield();
    return;
  }
  const timespec time = {0, kSleepNanoseconds};
  nanosleep(&time, nullptr);
}

// Process numbers of different namespaces mean different processes.
uint64_t process_namespace() {
  struct stat status {};
  return stat("/proc/self/ns/pid", &status) == 0 ? static_cast<uint64_t>(status.st_ino) : 0;
}

// pidfd_open, which the C library of older systems lacks.
int open_process(uint32_t pid) {
#ifdef SYS_pidfd_open
  return static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
#else
  (void)pid;
  return -1;
#endif
}

bool has_ended(int process) {
  if (process < 0) return false;
  pollfd wanted = {process, POLLIN, 0};
  return poll(&wanted, 1, 0) == 1;
}

}  // namespace

// One rank writes this, and the others read it.
struct alignas(64) Slot {
  std::atomic<uint32_t> state;
  std::atomic<uint32_t> pid;
  std::atomic<uint64_t> name_space;
  GroupCall call;                        // valid between two meetings
  uint8_t bytes[32];                     // of `agree`, likewise
  std::atomic<uint32_t> met[kMaxGroup];  // how often the rank has come to meet each other one
};

// The beginning of the shared memory. It is followed by an area for each rank.
struct alignas(64) SharedGroup {
  std::atomic<uint32_t> world;  // 0 until the rank that created the memory has made it large enough
  std::atomic<uint32_t> broken;  // 0, or broken_by
  Slot slots[kMaxGroup];
};
static_assert(std::atomic<uint32_t>::is_always_lock_free &&
              std::atomic<uint64_t>::is_always_lock_free);

namespace {

uint64_t bytes_of(uint32_t world) {
  return sizeof(SharedGroup) + uint64_t{world} * static_cast<uint64_t>(kAreaBytes);
}

// Whether ranks have entered the group, and all of them have ended. A process of another namespace
// may live.
bool has_ended(const SharedGroup& group, uint64_t own_namespace) {
  bool was_entered = false;
  for (const Slot& slot : group.slots) {
    const uint32_t state = slot.state, pid = slot.pid;
    if (state == kFree) continue;
    was_entered = true;
    if (state == kLeft) continue;
    const bool is_known = pid != 0 && own_namespace != 0 && slot.name_space == own_namespace;
    if (!is_known || kill(static_cast<pid_t>(pid), 0) == 0 || errno != ESRCH) return false;
  }
  return was_entered;
}

// Removes the name of a group that has ended.
void remove_ended(const char* name) {
  const int file = shm_open(name, O_RDONLY | O_CLOEXEC, 0600);
  if (file < 0) return;
  struct stat status {};
  void* memory = MAP_FAILED;
  if (fstat(file, &status) == 0 && static_cast<uint64_t>(status.st_size) >= bytes_of(2))
    memory = mmap(nullptr, sizeof(SharedGroup), PROT_READ, MAP_SHARED, file, 0);
  close(file);
  if (memory == MAP_FAILED) return;
  const bool is_ended = has_ended(*static_cast<const SharedGroup*>(memory), process_namespace());
  munmap(memory, sizeof(SharedGroup));
  if (is_ended) shm_unlink(name);
}

// Removes the names that groups have left whose ranks were killed.
void remove_all_ended() {
  DIR* folder = opendir("/dev/shm");
  if (!folder) return;
  while (const dirent* entry = readdir(folder)) {
    char name[kNameBytes] = "/";
    const size_t length = strlen(entry->d_name);
    if (strncmp(entry->d_name, kPrefix + 1, strlen(kPrefix) - 1) != 0 || length + 2 > sizeof name)
      continue;
    memcpy(name + 1, entry->d_name, length + 1);
    remove_ended(name);
  }
  closedir(folder);
}

Members everyone(uint32_t world) {
  Members members{};
  members.count = world;
  for (uint32_t i = 0; i < world; ++i) members.ranks[i] = i;
  return members;
}

constexpr GroupCall kJoin = {"husk_engine_create", 0, 0, 0, 0, 0};
constexpr GroupCall kAgree = {"husk_program_open", 0, 0, 0, 0, 32};

}  // namespace

uint8_t* Group::area(uint32_t rank) const {
  return reinterpret_cast<uint8_t*>(shared_ + 1) + rank * kAreaBytes;
}

husk_status Group::join(Device& device, const husk_port_group& request, husk_error* error) {
  if (request.world > kMaxGroup || request.world < 2 || request.rank >= request.world)
    return fail(error, HUSK_INVALID_ARGUMENT, "host group: rank %u of %u; it has 2 to %u ranks",
                request.rank, request.world, kMaxGroup);
  void* memory = device.allocate(sizeof(Group), alignof(Group));
  if (!memory) return fail(error, HUSK_OUT_OF_MEMORY, "host group: no memory for its handle");
  auto* group = new (memory) Group;
  const husk_status status = group->open(request, error);
  if (status == HUSK_OK)
    device.group = group;
  else
    group->leave(device);
  return status;
}

husk_status Group::open(const husk_port_group& request, husk_error* error) {
  rank_ = request.rank;
  world_ = request.world;
  timeout_ms_ = request.timeout_ms;
  for (int& process : processes_) process = -1;
  int at = snprintf(name_, sizeof name_, "%s", kPrefix);
  for (uint32_t i = 0; i < 16; ++i)
    at += snprintf(name_ + at, sizeof name_ - static_cast<size_t>(at), "%02x",
                   request.id->bytes[i]);
  // The first rank creates the memory, whichever it is.
  int file = shm_open(name_, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  const bool is_first = file >= 0;
  if (is_first) remove_all_ended();
  if (!is_first && errno == EEXIST) file = shm_open(name_, O_RDWR | O_CLOEXEC, 0600);
  if (file < 0) return fail(error, HUSK_DEVICE, "host group: shm_open: %s", strerror(errno));
  const husk_status status = attach(file, is_first, error);
  close(file);
  if (status != HUSK_OK) {
    if (is_first) shm_unlink(name_);
    return status;
  }
  return enter(error);
}

// Maps the shared memory. The first rank makes it large enough, and writes the world last.
husk_status Group::attach(int file, bool is_first, husk_error* error) {
  const uint64_t wanted = bytes_of(world_);
  if (is_first) {
    // Without memory behind it, a later access would end the process.
    if (const int failed = posix_fallocate(file, 0, static_cast<off_t>(wanted)))
      return fail(error, HUSK_OUT_OF_MEMORY, "host group: %llu bytes of shared memory: %s",
                  static_cast<unsigned long long>(wanted), strerror(failed));
  } else {
    const int64_t until = milliseconds() + timeout_ms_;
    struct stat status {};
    for (uint32_t turn = 0;; ++turn) {
      if (fstat(file, &status) == 0 && static_cast<uint64_t>(status.st_size) >= bytes_of(2)) break;
      if (milliseconds() > until)
        return fail(error, HUSK_DEVICE,
                    "host group: the rank that came first did not make the shared memory within "
                    "%u ms",
                    timeout_ms_);
      pause(turn);
    }
  }
  // A rank with another world sees the slots only, to tell the others.
  const uint64_t head = bytes_of(is_first ? world_ : 2);
  void* memory = mmap(nullptr, head, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED)
    return fail(error, HUSK_OUT_OF_MEMORY, "host group: mmap: %s", strerror(errno));
  shared_ = static_cast<SharedGroup*>(memory);
  bytes_ = head;
  if (is_first) {
    shared_->world.store(world_, std::memory_order_release);
    return HUSK_OK;
  }
  const int64_t until = milliseconds() + timeout_ms_;
  uint32_t world = 0;
  for (uint32_t turn = 0; (world = shared_->world.load(std::memory_order_acquire)) == 0; ++turn) {
    if (milliseconds() > until)
      return fail(error, HUSK_DEVICE,
                  "host group: the rank that came first did not make the shared memory within %u "
                  "ms",
                  timeout_ms_);
    pause(turn);
  }
  if (world != world_) {
    uint32_t whole = 0;
    shared_->broken.compare_exchange_strong(whole, broken_by(kWrongWorld, rank_));
    return fail(error, HUSK_INVALID_ARGUMENT,
                "host group: rank %u has a world of %u, another rank one of %u: give all ranks the "
                "same husk_engine_options.world",
                rank_, world_, world);
  }
  void* all = mremap(memory, head, wanted, MREMAP_MAYMOVE);
  if (all == MAP_FAILED)
    return fail(error, HUSK_OUT_OF_MEMORY, "host group: mremap: %s", strerror(errno));
  shared_ = static_cast<SharedGroup*>(all);
  bytes_ = wanted;
  return HUSK_OK;
}

// Takes the slot of the rank, and waits for the other ranks.
husk_status Group::enter(husk_error* error) {
  Slot& slot = shared_->slots[rank_];
  uint32_t expected = kFree;
  if (!slot.state.compare_exchange_strong(expected, kTaken))
    return fail(error, HUSK_INVALID_ARGUMENT,
                "host group: rank %u has joined with this id already: each rank joins once, and "
                "each group has an id of its own (husk_group_id_create)",
                rank_);
  has_entered_ = true;
  slot.pid.store(static_cast<uint32_t>(getpid()));
  slot.name_space.store(process_namespace());
  HUSK_TRY(meet(everyone(world_), kJoin, nullptr, error));
  watch_processes();
  return part(everyone(world_), kJoin, nullptr, error);
}

void Group::watch_processes() {
  const Slot& own = shared_->slots[rank_];
  for (uint32_t other = 0; other < world_; ++other) {
    const Slot& slot = shared_->slots[other];
    if (slot.name_space == own.name_space && slot.pid != own.pid)
      processes_[other] = open_process(slot.pid);
  }
}

void Group::leave(Device& device) {
  detach();
  this->~Group();
  device.release(this);
}

void Group::detach() {
  for (const int process : processes_)
    if (process >= 0) close(process);
  if (has_entered_) {
    shared_->slots[rank_].state.store(kLeft, std::memory_order_release);
    shm_unlink(name_);  // the first that leaves; the memory lasts as long as a rank has it
  }
  if (shared_) munmap(shared_, bytes_);
  shared_ = nullptr;
}

husk_status Group::meet(const Members& members, const GroupCall& call,
                        const husk_op_context* context, husk_error* error) {
  // The others may still have to compare the call that failed with theirs.
  HUSK_TRY(check_whole(call.op, error));
  shared_->slots[rank_].call = call;
  HUSK_TRY(part(members, call, context, error));
  return compare(members, call, error);
}

husk_status Group::check_whole(const char* what, husk_error* error) const {
  const uint32_t broken = shared_->broken.load(std::memory_order_acquire);
  if (!broken) return HUSK_OK;
  return fail(error, HUSK_DEVICE,
              "%s: the group of ranks is of no more use: rank %u %s. Release the sessions, "
              "programs and engines of all ranks",
              what, (broken & 0xffff) - 1, kReasons[broken >> 16]);
}

husk_status Group::part(const Members& members, const GroupCall& call,
                        const husk_op_context* context, husk_error* error) {
  for (uint32_t i = 0; i < members.count; ++i) {
    const uint32_t other = members.ranks[i];
    shared_->slots[rank_].met[other].store(++met_[other], std::memory_order_release);
  }
  return wait(members, context, call.op, error);
}

husk_status Group::wait(const Members& members, const husk_op_context* context, const char* what,
                        husk_error* error) {
  const bool asks = context && HUSK_HAS_FIELD(context, cancel_user) && context->cancel;
  int64_t until = 0;
  uint32_t turn = 0;
  for (uint32_t i = 0; i < members.count; ++turn) {
    const uint32_t other = members.ranks[i];
    const Slot& slot = shared_->slots[other];
    // The count goes around after 2^32 meetings, so it is compared by its distance.
    const auto has_come = [&] {
      const uint32_t behind = met_[other] - slot.met[rank_].load(std::memory_order_acquire);
      return static_cast<int32_t>(behind) <= 0;
    };
    if (has_come()) {
      ++i;
      continue;
    }
    HUSK_TRY(check_whole(what, error));
    pause(turn);
    if (turn % kTurnsBetweenChecks != kTurnsBetweenChecks - 1) continue;
    // A rank that has done its last call may have come, and left, since the question above.
    const bool has_left = slot.state.load(std::memory_order_acquire) == kLeft;
    if (has_left || has_ended(processes_[other])) {
      if (has_come()) continue;
      return give_up(has_left ? kGone : kEnded, other, what, error);
    }
    if (asks && context->cancel(context->cancel_user)) {
      (void)give_up(kCancelled, rank_, what, error);
      return fail(error, HUSK_CANCELLED, "%s: the application cancelled the wait for rank %u", what,
                  other);
    }
    const int64_t now = milliseconds();
    if (until == 0) until = now + timeout_ms_;
    if (now > until) return give_up(kLate, other, what, error);
  }
  return HUSK_OK;
}

husk_status Group::give_up(uint32_t reason, uint32_t rank, const char* what, husk_error* error) {
  uint32_t whole = 0;
  // A rank may have said why the group is broken since this one asked, and then have left it.
  if (!shared_->broken.compare_exchange_strong(whole, broken_by(reason, rank)))
    return check_whole(what, error);
  if (reason == kLate)
    return fail(error, HUSK_DEVICE,
                "%s: rank %u did not come within %u ms (husk_engine_options.group_timeout_ms)",
                what, rank, timeout_ms_);
  return fail(error, HUSK_DEVICE, "%s: rank %u %s", what, rank, kReasons[reason]);
}

husk_status Group::compare(const Members& members, const GroupCall& call, husk_error* error) {
  for (uint32_t i = 0; i < members.count; ++i) {
    const uint32_t other = members.ranks[i];
    const GroupCall& its = shared_->slots[other].call;
    if (its.kind == call.kind && its.dtype == call.dtype && its.detail == call.detail &&
        its.members == call.members && its.elements == call.elements)
      continue;
    (void)give_up(kDiffers, other, call.op, error);
    return fail(error, HUSK_INVALID_INPUT,
                "%s of %lld elements of %s: rank %u makes another call (operator %u, %lld elements "
                "of %s): all ranks run the same functions with the same shapes, in one order",
                call.op, static_cast<long long>(call.elements),
                detail::element_name(static_cast<int32_t>(call.dtype)), other, its.kind,
                static_cast<long long>(its.elements),
                detail::element_name(static_cast<int32_t>(its.dtype)));
  }
  return HUSK_OK;
}

husk_status Group::refuse(const GroupCall& call, const char* text, husk_error* error) {
  (void)give_up(kRefused, rank_, call.op, error);
  return fail(error, HUSK_INVALID_INPUT, "%s: %s", call.op, text);
}

husk_status Group::agree(const uint8_t* bytes, husk_error* error) {
  const Members members = everyone(world_);
  memcpy(shared_->slots[rank_].bytes, bytes, sizeof Slot::bytes);
  HUSK_TRY(meet(members, kAgree, nullptr, error));
  uint32_t other = 0;
  while (other < world_ && memcmp(shared_->slots[other].bytes, bytes, sizeof Slot::bytes) == 0)
    ++other;
  HUSK_TRY(part(members, kAgree, nullptr, error));
  if (other == world_) return HUSK_OK;
  return fail(error, HUSK_INVALID_ARGUMENT, "rank %u and rank %u have different ones", rank_,
              other);
}

husk_status group_id(void*, husk_group_id* id, husk_error* error) {
  if (getrandom(id->bytes, sizeof id->bytes, 0) == static_cast<ssize_t>(sizeof id->bytes))
    return HUSK_OK;
  return fail(error, HUSK_DEVICE, "host group: getrandom: %s", strerror(errno));
}

husk_status group_join(void* handle, const husk_port_group* group, husk_error* error) {
  HUSK_TRY(HUSK_CHECK_STRUCT(husk_port_group, group, timeout_ms, error));
  return Group::join(*static_cast<Device*>(handle), *group, error);
}

husk_status group_agree(void* handle, const uint8_t* bytes, husk_error* error) {
  return static_cast<Device*>(handle)->group->agree(bytes, error);
}

}  // namespace husk::host
