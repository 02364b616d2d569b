#include "ops/meeting.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "ops/turns.h"

namespace husk::cuda {

// The part of the shared memory that one rank writes and the others read.
struct MeetingSlot {
  std::atomic<uint32_t> world;  // 0 before the rank comes
  std::atomic<uint32_t> round;  // the last one whose record is there
  std::atomic<uint32_t> has_left;
  // The records of even rounds and of odd ones. A rank that writes to the place of two rounds ago
  // has met the others in the round between, so they have read what was there.
  uint8_t records[2][kRankRecordBytes];
};
struct SharedMeeting {
  MeetingSlot slots[kMaxPeers];
};
static_assert(std::atomic<uint32_t>::is_always_lock_free);

namespace {

constexpr char kMark[8] = {'h', 'u', 's', 'k', 'm', 'e', 'e', 't'};
constexpr size_t kNameBytes = 16;  // random ones, after the mark; a byte says if there may be NCCL

void name_of(const husk_group_id& id, char (*name)[48]) {
  int at = snprintf(*name, sizeof *name, "/husk-");
  for (size_t i = 0; i < kNameBytes; ++i)
    at += snprintf(*name + at, sizeof *name - static_cast<size_t>(at), "%02x",
                   id.bytes[sizeof kMark + i]);
}

}  // namespace

husk_status make_meeting_id(husk_group_id* id, bool may_have_nccl, husk_error* error) {
  *id = {};
  memcpy(id->bytes, kMark, sizeof kMark);
  id->bytes[sizeof kMark + kNameBytes] = may_have_nccl;
  if (getrandom(id->bytes + sizeof kMark, kNameBytes, 0) == kNameBytes) return HUSK_OK;
  return fail(error, HUSK_DEVICE, "the id of a group: getrandom: %s", strerror(errno));
}

// The two halves of the name are hashes (FNV-1a) that begin with those of the group's.
husk_group_id meeting_id_of(const husk_group_id& group, const int64_t* ranks, uint32_t count) {
  husk_group_id id = group;
  uint8_t* name = id.bytes + sizeof kMark;
  for (size_t half = 0; half < kNameBytes; half += sizeof(uint64_t)) {
    uint64_t hash = 0;
    memcpy(&hash, name + half, sizeof hash);
    for (uint32_t i = 0; i < count; ++i)
      hash = (hash ^ (static_cast<uint64_t>(ranks[i]) + 1)) * 1099511628211u;
    memcpy(name + half, &hash, sizeof hash);
  }
  return id;
}

bool is_meeting_id(const husk_group_id& id) { return memcmp(id.bytes, kMark, sizeof kMark) == 0; }

bool may_have_nccl(const husk_group_id& id) { return id.bytes[sizeof kMark + kNameBytes]; }

// The rank that comes first makes the shared memory, which is zeros then.
husk_status Meeting::attach(const husk_group_id& id, husk_error* error) {
  char name[48];
  name_of(id, &name);
  const int file = shm_open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0) return fail(error, HUSK_DEVICE, "a group of ranks: shm_open: %s", strerror(errno));
  void* memory = MAP_FAILED;
  // Without memory behind it, a later access would end the process.
  int failed = posix_fallocate(file, 0, sizeof(SharedMeeting));
  if (failed == 0) {
    memory = mmap(nullptr, sizeof(SharedMeeting), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED) failed = errno;
  }
  ::close(file);
  if (failed == 0) {
    shared_ = static_cast<SharedMeeting*>(memory);
    return HUSK_OK;
  }
  shm_unlink(name);
  return fail(error, HUSK_OUT_OF_MEMORY, "a group of ranks: %zu bytes of shared memory: %s",
              sizeof(SharedMeeting), strerror(failed));
}

husk_status Meeting::open(const husk_port_group& request, husk_error* error) {
  rank_ = request.rank;
  world_ = request.world;
  rounds_ = 0;
  if (world_ > kMaxPeers)
    return fail(error, HUSK_UNSUPPORTED,
                "a group of %u ranks without NCCL: it has at most %u; install NVIDIA's NCCL 2",
                world_, kMaxPeers);
  HUSK_TRY(attach(*request.id, error));
  uint32_t nobody = 0;
  husk_status status = HUSK_OK;
  has_come_ = shared_->slots[rank_].world.compare_exchange_strong(nobody, world_);
  if (!has_come_)
    status = fail(error, HUSK_INVALID_ARGUMENT,
                  "a group of ranks: rank %u has joined with this id already: each rank joins "
                  "once, and each group has an id of its own (husk_group_id_create)",
                  rank_);
  const uint8_t own[kRankRecordBytes] = {};
  uint8_t all[kMaxPeers * kRankRecordBytes];
  if (status == HUSK_OK) status = gather(own, all, request.timeout_ms, error);
  // All ranks have the memory now, or will not come, so that nobody needs its name.
  char name[48];
  name_of(*request.id, &name);
  shm_unlink(name);
  if (status != HUSK_OK) close();
  return status;
}

void Meeting::close() {
  if (!shared_) return;
  if (has_come_) shared_->slots[rank_].has_left.store(1, std::memory_order_release);
  munmap(shared_, sizeof *shared_);
  shared_ = nullptr;
}

husk_status Meeting::wait_for(uint32_t rank, uint32_t timeout_ms, husk_error* error) const {
  const int64_t until = milliseconds() + timeout_ms;
  const MeetingSlot& slot = shared_->slots[rank];
  for (uint32_t turn = 1;; ++turn) {
    const bool has_left = slot.has_left.load(std::memory_order_acquire);  // before its last round
    const auto ahead = static_cast<int32_t>(slot.round.load(std::memory_order_acquire) - rounds_);
    const uint32_t world = slot.world.load(std::memory_order_relaxed);
    if (world && world != world_)
      return fail(error, HUSK_INVALID_ARGUMENT,
                  "a group of ranks: rank %u has a world of %u, rank %u one of %u: give all ranks "
                  "the same husk_engine_options.world",
                  rank_, world_, rank, world);
    if (ahead >= 0) return HUSK_OK;
    if (has_left)
      return fail(error, HUSK_DEVICE, "a group of ranks: rank %u has left after a failure", rank);
    if (turn % kTurnsBetweenChecks == 0 && milliseconds() > until)
      return fail(error, HUSK_DEVICE,
                  "a group of ranks: rank %u did not come within %u ms "
                  "(husk_engine_options.group_timeout_ms)",
                  rank, timeout_ms);
    pause(turn);
  }
}

husk_status Meeting::gather(const void* own, void* all, uint32_t timeout_ms, husk_error* error) {
  MeetingSlot& slot = shared_->slots[rank_];
  const uint32_t parity = ++rounds_ & 1;
  memcpy(slot.records[parity], own, kRankRecordBytes);
  slot.round.store(rounds_, std::memory_order_release);
  for (uint32_t rank = 0; rank < world_; ++rank) {
    HUSK_TRY(wait_for(rank, timeout_ms, error));
    memcpy(static_cast<uint8_t*>(all) + rank * kRankRecordBytes,
           shared_->slots[rank].records[parity], kRankRecordBytes);
  }
  return HUSK_OK;
}

}  // namespace husk::cuda
