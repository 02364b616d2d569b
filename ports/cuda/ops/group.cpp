#include "ops/group.h"

#include <cstring>

#include <husk/detail/struct_size.h>

#include "ops/arguments.h"
#include "ops/turns.h"

namespace husk::cuda {

namespace {

constexpr uint32_t kMaxWorld = 65536;
constexpr size_t kAgreedBytes = 32;

// Joins by the id, or takes the communicator of the application.
husk_status open_comm(const Device& device, const uint8_t* bytes, DeviceGroup* group,
                      husk_error* error) {
  const Nccl& nccl = group->nccl;
  if (void* given = device.options.nccl_comm) {
    group->comm = static_cast<ncclComm_t>(given);
    int count = 0, rank = 0;
    ncclResult_t result = nccl.ncclCommCount(group->comm, &count);
    if (result == ncclSuccess) result = nccl.ncclCommUserRank(group->comm, &rank);
    if (result != ncclSuccess)
      return nccl_fail(nccl, error, result, "ncclCommCount", "husk_cuda_options.nccl_comm");
    if (static_cast<uint32_t>(count) == group->world && static_cast<uint32_t>(rank) == group->rank)
      return HUSK_OK;
    return fail(error, HUSK_INVALID_ARGUMENT,
                "husk_cuda_options.nccl_comm is rank %d of %d, the engine rank %u of %u", rank,
                count, group->rank, group->world);
  }
  ncclUniqueId id;
  static_assert(sizeof id == sizeof(husk_group_id) && sizeof id == kRankRecordBytes);
  memcpy(&id, bytes, sizeof id);
  ncclConfig_t config = kNcclConfig;
  const ncclResult_t result = nccl.ncclCommInitRankConfig(
      &group->comm, static_cast<int>(group->world), id, static_cast<int>(group->rank), &config);
  if (!group->comm)
    return nccl_fail(nccl, error, result, "ncclCommInitRankConfig", "a group of ranks");
  return group->settle(result, "ncclCommInitRankConfig", "a group of ranks", error);
}

husk_status gather_by_nccl(const Device& device, DeviceGroup& group, const char* thing,
                           const void* own, void* all, husk_error* error) {
  const Driver& driver = device.driver;
  CUstream stream = device.private_stream;
  const CUdeviceptr place = group.memory + group.rank * kRankRecordBytes;
  {
    const Lock lock(&group.whole->mutex);
    HUSK_TRY(group.check(thing, error));
    CUresult copied = driver.cuMemcpyHtoDAsync(place, own, kRankRecordBytes, stream);
    if (copied != CUDA_SUCCESS)
      return driver_fail(driver, error, copied, "cuMemcpyHtoDAsync", "%s", thing);
    const ncclResult_t result = group.nccl.ncclAllGather(
        reinterpret_cast<const void*>(place), reinterpret_cast<void*>(group.memory),
        kRankRecordBytes, ncclUint8, group.comm, stream);
    HUSK_TRY(group.settle(result, "ncclAllGather", thing, error));
  }
  HUSK_TRY(group_wait(device, {stream, nullptr}, true, error));
  CUresult copied = driver.cuMemcpyDtoHAsync(all, group.memory, group.world * kRankRecordBytes,
                                             stream);
  if (copied == CUDA_SUCCESS) copied = driver.cuStreamSynchronize(stream);
  if (copied == CUDA_SUCCESS) return HUSK_OK;
  return driver_fail(driver, error, copied, "cuMemcpyDtoHAsync", "%s", thing);
}

// A failure ends the group. No lock is held while this rank waits for the others.
husk_status gather_at_meeting(DeviceGroup& group, const char* thing, const void* own, void* all,
                              husk_error* error) {
  {
    const Lock lock(&group.whole->mutex);
    HUSK_TRY(group.check(thing, error));
  }
  const husk_status status = group.meeting.gather(own, all, group.whole->timeout_ms, error);
  const Lock lock(&group.whole->mutex);
  if (status != HUSK_OK) group.abort();
  return status;
}

// Brings `own`, kRankRecordBytes bytes, from each rank to each other one. `all` has those of all
// ranks then.
husk_status gather_records(const Device& device, DeviceGroup& group, const char* thing,
                           const void* own, void* all, husk_error* error) {
  return group.meeting.is_open() ? gather_at_meeting(group, thing, own, all, error)
                                 : gather_by_nccl(device, group, thing, own, all, error);
}

constexpr const char* kJoin = "husk_engine_create";
constexpr const char* kPart = "a group of some of the ranks";

// A group and its device, which open_peers hands to a function that gathers records.
struct Members {
  const Device* device;
  DeviceGroup* group;
};

husk_status alloc_records(const Device& device, DeviceGroup* group, husk_error* error) {
  const CUresult result = device.driver.cuMemAlloc(&group->memory, group->world * kRankRecordBytes);
  if (result == CUDA_SUCCESS) return HUSK_OK;
  return driver_fail(device.driver, error, result, "cuMemAlloc", "a group of %u ranks",
                     group->world);
}

// Lets the ranks know one another.
husk_status open_members(Device& device, DeviceGroup* group, husk_error* error) {
  const bool may_reach = !device.options.no_peer_memory || !group->nccl.library;
  Members members = {&device, group};
  const Gather gather = {&members, [](void* of, const void* own, void* all, husk_error* why) {
                           const Members& some = *static_cast<Members*>(of);
                           const char* thing = some.group->ranks ? kPart : kJoin;
                           return gather_records(*some.device, *some.group, thing, own, all, why);
                         }};
  HUSK_TRY(open_peers(device, group->rank, group->world, may_reach, gather, &group->peers, error));
  if (!group->peers.world) HUSK_TRY(want_nccl(device, *group, error));
  if (group->nccl.library || group->peers.world) return HUSK_OK;
  return fail(error, HUSK_UNSUPPORTED,
              "a group of ranks without NCCL: their devices do not reach the memory of each other; "
              "install NVIDIA's NCCL 2");
}

// The device has the group already, but only for this function.
husk_status open_group(Device& device, const husk_port_group& request, DeviceGroup* group,
                       husk_error* error) {
  const bool has_nccl = device.options.nccl_comm || !is_meeting_id(*request.id);
  if (has_nccl) HUSK_TRY(open_nccl(device.options.nccl, &group->nccl, error));
  group->rank = request.rank;
  group->world = request.world;
  group->timeout_ms = request.timeout_ms;
  if (HUSK_HAS_FIELD(&request, cancel_user)) {
    group->cancel = request.cancel;
    group->cancel_user = request.cancel_user;
  }
  group->is_own = !device.options.nccl_comm;
  group->id = *request.id;
  group->has_chosen = has_nccl || !may_have_nccl(*request.id);
  husk_status status = has_nccl ? open_comm(device, request.id->bytes, group, error)
                                : group->meeting.open(request, error);
  if (status == HUSK_OK) status = alloc_records(device, group, error);
  if (status == HUSK_OK) status = open_members(device, group, error);
  if (status == HUSK_OK) return HUSK_OK;
  if (group->memory) device.driver.cuMemFree(group->memory);
  unload_exchange(device, group->peers);
  group->abort();
  group->wait_for_abort();
  if (group->nccl.library) close_nccl(&group->nccl);
  group->meeting.close();
  return status;
}

void* end(void* of) {
  auto* group = static_cast<DeviceGroup*>(of);
  group->nccl.ncclCommAbort(group->ended);
  return nullptr;
}

}  // namespace

int DeviceGroup::place_of(int64_t of_whole) const {
  if (!ranks) return of_whole >= 0 && of_whole < world ? static_cast<int>(of_whole) : -1;
  for (uint32_t i = 0; i < world; ++i)
    if (ranks[i] == of_whole) return static_cast<int>(i);
  return -1;
}

bool DeviceGroup::has(const int64_t* some, int64_t count) const {
  if (count != world) return false;
  for (int64_t i = 0; i < count; ++i)
    if (some[i] != (ranks ? ranks[i] : i)) return false;
  return true;
}

husk_status DeviceGroup::check(const char* thing, husk_error* error) const {
  if (!whole->is_over) return HUSK_OK;
  return fail(error, HUSK_DEVICE,
              "%s: the group of ranks is of no more use after a failure: release the sessions, "
              "programs and engines of all ranks",
              thing);
}

husk_status DeviceGroup::settle(ncclResult_t result, const char* call, const char* thing,
                                husk_error* error) {
  const int64_t until = milliseconds() + whole->timeout_ms;
  for (uint32_t turn = 0; result == ncclInProgress; ++turn) {
    const ncclResult_t asked = nccl.ncclCommGetAsyncError(comm, &result);
    if (asked != ncclSuccess) result = asked;
    if (result != ncclInProgress) break;
    if (milliseconds() > until) {
      abort();
      return fail(error, HUSK_DEVICE,
                  "%s: %s: another rank did not come within %u ms "
                  "(husk_engine_options.group_timeout_ms)",
                  thing, call, whole->timeout_ms);
    }
    pause(turn);
  }
  if (result == ncclSuccess) return HUSK_OK;
  const husk_status status = nccl_fail(nccl, error, result, call, thing);
  abort();
  return status;
}

// The kernels end at once. But NCCL then waits until no graph has calls of the communicator,
// and those of the caller stay until their sessions are released. So it has a thread of its own.
void DeviceGroup::abort() {
  for (DeviceGroup* group = whole; group; group = group->next) {
    if (group->peers.stop) *group->peers.stop = 1;
    if (group->comm && group->is_own) {
      group->ended = group->comm;
      if (pthread_create(&group->ender, nullptr, end, group) != 0) {
        group->nccl.ncclCommAbort(group->comm);
        group->ended = nullptr;
      }
    }
    group->comm = nullptr;
  }
  whole->is_over = true;
}

void DeviceGroup::wait_for_abort() {
  if (ended) pthread_join(ender, nullptr);
  ended = nullptr;
}

husk_status group_id(void* user, husk_group_id* id, husk_error* error) {
  husk_cuda_options options = HUSK_CUDA_OPTIONS_INIT;
  if (user) detail::read_struct(*static_cast<const husk_cuda_options*>(user), &options);
  if (options.one_machine) return make_meeting_id(id, true, error);
  Nccl nccl;
  const husk_status opened = open_nccl(options.nccl, &nccl, error);
  // Ranks may be able to do without it, if the application does not name one.
  if (opened == HUSK_UNSUPPORTED && !options.nccl) return make_meeting_id(id, false, error);
  HUSK_TRY(opened);
  ncclUniqueId unique;
  const ncclResult_t result = nccl.ncclGetUniqueId(&unique);
  husk_status status = HUSK_OK;
  if (result == ncclSuccess)
    memcpy(id->bytes, &unique, sizeof unique);
  else
    status = nccl_fail(nccl, error, result, "ncclGetUniqueId", "the id of a group");
  close_nccl(&nccl);
  return status;
}

husk_status want_nccl(const Device& device, DeviceGroup& group, husk_error* error) {
  if (group.has_chosen) return HUSK_OK;
  group.has_chosen = true;
  // The record of the first rank is the id of the communicator. A rank without NCCL has zeros.
  uint8_t own[kRankRecordBytes] = {}, all[kMaxPeers * kRankRecordBytes];
  husk_error ignored;
  if (open_nccl(device.options.nccl, &group.nccl, &ignored) == HUSK_OK) {
    own[0] = 1;
    if (group.rank == 0) group.nccl.ncclGetUniqueId(reinterpret_cast<ncclUniqueId*>(own));
  }
  HUSK_TRY(gather_records(device, group, "NCCL", own, all, error));
  memset(own, 0, sizeof own);
  for (uint32_t rank = 0; rank < group.world; ++rank) {
    if (memcmp(own, all + rank * sizeof own, sizeof own) != 0) continue;
    if (group.nccl.library) close_nccl(&group.nccl);
    group.nccl.library = nullptr;
    return HUSK_OK;
  }
  const Lock lock(&group.whole->mutex);
  return open_comm(device, all, &group, error);
}

husk_status group_join(void* handle, const husk_port_group* request, husk_error* error) {
  HUSK_TRY(HUSK_CHECK_STRUCT(husk_port_group, request, timeout_ms, error));
  Device& device = as_device(handle);
  if (request->world < 2 || request->world > kMaxWorld || request->rank >= request->world)
    return fail(error, HUSK_INVALID_ARGUMENT, "a group of %u ranks has no rank %u", request->world,
                request->rank);
  Current current(handle, error);
  HUSK_TRY(current.status);
  auto* group = static_cast<DeviceGroup*>(
      allocate(device, sizeof(DeviceGroup), "a group of ranks", error));
  if (!group) return HUSK_OUT_OF_MEMORY;
  memset(static_cast<void*>(group), 0, sizeof *group);
  pthread_mutex_init(&group->mutex, nullptr);
  pthread_mutex_init(&group->is_opening, nullptr);
  group->whole = group;
  device.group = group;
  const husk_status status = open_group(device, *request, group, error);
  if (status == HUSK_OK) return HUSK_OK;
  device.group = nullptr;
  pthread_mutex_destroy(&group->is_opening);
  pthread_mutex_destroy(&group->mutex);
  release(device, group);
  return status;
}

husk_status group_agree(void* handle, const uint8_t* bytes, husk_error* error) {
  Device& device = as_device(handle);
  DeviceGroup& group = *device.group;
  Current current(handle, error);
  HUSK_TRY(current.status);
  constexpr const char* kThing = "husk_program_open";
  uint8_t own[kRankRecordBytes] = {};
  memcpy(own, bytes, kAgreedBytes);
  const size_t size = group.world * kRankRecordBytes;
  auto* all = static_cast<uint8_t*>(allocate(device, size, kThing, error));
  if (!all) return HUSK_OUT_OF_MEMORY;
  husk_status status = gather_records(device, group, kThing, own, all, error);
  for (uint32_t rank = 0; status == HUSK_OK && rank < group.world; ++rank)
    if (memcmp(all + rank * kRankRecordBytes, bytes, kAgreedBytes) != 0)
      status = fail(error, HUSK_INVALID_ARGUMENT, "rank %u and rank %u have different ones",
                    group.rank, rank);
  release(device, all);
  return status;
}

namespace {

// Leaves a group or a part of it.
void leave(Device& device, DeviceGroup* group) {
  unmap_peers(device, &group->peers);
  if (!group->whole->is_over && group->peers.imported) {
    // Memory must outlive its mappings in other processes, so this waits for the other ranks.
    husk_error ignored;
    uint8_t own[kRankRecordBytes] = {}, all[kMaxPeers * kRankRecordBytes];
    (void)gather_records(device, *group, "a group", own, all, &ignored);
  }
  close_peers(device, &group->peers);
  unload_exchange(device, group->peers);
  if (group->comm && group->is_own) {
    // Other ranks may still read memory of this one. Finalizing waits for them.
    husk_error ignored;
    const ncclResult_t result = group->nccl.ncclCommFinalize(group->comm);
    if (group->settle(result, "ncclCommFinalize", "a group", &ignored) == HUSK_OK) {
      group->nccl.ncclCommDestroy(group->comm);
      group->comm = nullptr;
    }
  }
  group->wait_for_abort();
  if (group->memory) device.driver.cuMemFree(group->memory);
  if (group->has_own_nccl() && group->nccl.library) close_nccl(&group->nccl);
  group->meeting.close();
}

}  // namespace

// The ranks leave their parts in the order in which they have opened them, so none waits for one
// that waits for it.
void group_close(void* handle) {
  Device& device = as_device(handle);
  DeviceGroup* group = device.group;
  if (!group) return;
  Current current(handle);
  for (DeviceGroup* part = group->next; part; part = part->next) leave(device, part);
  leave(device, group);
  while (DeviceGroup* part = group->next) {
    group->next = part->next;
    release(device, part);
  }
  pthread_mutex_destroy(&group->is_opening);
  pthread_mutex_destroy(&group->mutex);
  release(device, group);
  device.group = nullptr;
}

namespace {

// Brings NCCL's id of a part from the first of its ranks to the others, by the communicator of the
// whole.
husk_status share_id(const Device& device, DeviceGroup& part, ncclUniqueId* id, husk_error* error) {
  const Driver& driver = device.driver;
  const Nccl& nccl = part.nccl;
  ncclComm_t comm = part.whole->comm;
  CUstream stream = device.private_stream;
  auto* memory = reinterpret_cast<void*>(part.memory);
  {
    const Lock lock(&part.whole->mutex);
    HUSK_TRY(part.check(kPart, error));
    ncclResult_t result = ncclSuccess;
    if (part.rank == 0) {
      result = nccl.ncclGetUniqueId(id);
      if (result != ncclSuccess) return nccl_fail(nccl, error, result, "ncclGetUniqueId", kPart);
      const CUresult copied = driver.cuMemcpyHtoDAsync(part.memory, id, sizeof *id, stream);
      if (copied != CUDA_SUCCESS)
        return driver_fail(driver, error, copied, "cuMemcpyHtoDAsync", "%s", kPart);
    }
    nccl.ncclGroupStart();
    if (part.rank > 0)
      nccl.ncclRecv(memory, sizeof *id, ncclUint8, static_cast<int>(part.ranks[0]), comm, stream);
    for (uint32_t i = 1; part.rank == 0 && i < part.world; ++i)
      nccl.ncclSend(memory, sizeof *id, ncclUint8, static_cast<int>(part.ranks[i]), comm, stream);
    result = nccl.ncclGroupEnd();
    HUSK_TRY(part.whole->settle(result, "ncclGroupEnd", kPart, error));
  }
  HUSK_TRY(group_wait(device, {stream, nullptr}, true, error));
  CUresult copied = driver.cuMemcpyDtoHAsync(id, part.memory, sizeof *id, stream);
  if (copied == CUDA_SUCCESS) copied = driver.cuStreamSynchronize(stream);
  if (copied == CUDA_SUCCESS) return HUSK_OK;
  return driver_fail(driver, error, copied, "cuMemcpyDtoHAsync", "%s", kPart);
}

husk_status open_part_by_nccl(const Device& device, DeviceGroup* part, husk_error* error) {
  ncclUniqueId id = {};
  HUSK_TRY(share_id(device, *part, &id, error));
  const Lock lock(&part->whole->mutex);
  HUSK_TRY(part->check(kPart, error));
  ncclConfig_t config = kNcclConfig;
  const ncclResult_t result = part->nccl.ncclCommInitRankConfig(
      &part->comm, static_cast<int>(part->world), id, static_cast<int>(part->rank), &config);
  if (!part->comm) return nccl_fail(part->nccl, error, result, "ncclCommInitRankConfig", kPart);
  return part->settle(result, "ncclCommInitRankConfig", kPart, error);
}

// The ranks of a part meet where the id of the whole and their numbers say. They open NCCL for
// themselves when they need it.
husk_status open_part_at_meeting(DeviceGroup* part, husk_error* error) {
  const husk_group_id id = meeting_id_of(part->whole->id, part->ranks, part->world);
  const husk_port_group request = {
      sizeof request, part->rank, part->world, part->whole->timeout_ms, &id, nullptr, nullptr};
  return part->meeting.open(request, error);
}

husk_status open_part(Device& device, DeviceGroup* part, husk_error* error) {
  HUSK_TRY(alloc_records(device, part, error));
  HUSK_TRY(part->whole->meeting.is_open() ? open_part_at_meeting(part, error)
                                          : open_part_by_nccl(device, part, error));
  return open_members(device, part, error);
}

DeviceGroup* find(DeviceGroup* whole, const int64_t* ranks, int64_t count) {
  const Lock lock(&whole->mutex);
  for (DeviceGroup* group = whole; group; group = group->next)
    if ((group == whole || group->is_open) && group->has(ranks, count)) return group;
  return nullptr;
}

// Different ranks of a group with this rank among them. Returns its place, or -1.
int place_among(const DeviceGroup& whole, const int64_t* ranks, int64_t count) {
  int place = -1;
  for (int64_t i = 0; i < count; ++i) {
    if (whole.place_of(ranks[i]) < 0) return -1;
    for (int64_t j = 0; j < i; ++j)
      if (ranks[i] == ranks[j]) return -1;
    if (ranks[i] == whole.rank) place = static_cast<int>(i);
  }
  return place;
}

// A part that knows its ranks, among the parts of the whole, so that a failure ends it too.
DeviceGroup* add_part(const Device& device, const int64_t* ranks, uint32_t count, uint32_t place,
                      husk_error* error) {
  DeviceGroup* whole = device.group;
  const size_t own = (sizeof(DeviceGroup) + 7) / 8 * 8;
  void* memory = allocate(device, own + count * sizeof *ranks, kPart, error);
  if (!memory) return nullptr;
  memset(memory, 0, own);
  auto* part = static_cast<DeviceGroup*>(memory);
  if (whole->meeting.is_open()) {
    part->has_chosen = !may_have_nccl(whole->id);
  } else {
    part->has_chosen = true;
    part->nccl = whole->nccl;
  }
  part->is_own = true;
  part->rank = place;
  part->world = count;
  part->whole = whole;
  part->ranks = reinterpret_cast<int64_t*>(static_cast<char*>(memory) + own);
  memcpy(part->ranks, ranks, count * sizeof *ranks);
  const Lock lock(&whole->mutex);
  DeviceGroup* last = whole;
  while (last->next) last = last->next;
  last->next = part;
  return part;
}

}  // namespace

husk_status group_of(void* handle, const int64_t* ranks, int64_t count, DeviceGroup** group,
                     husk_error* error) {
  Device& device = as_device(handle);
  DeviceGroup* whole = device.group;
  *group = find(whole, ranks, count);
  if (*group) return HUSK_OK;
  *group = whole;
  const int place = place_among(*whole, ranks, count);
  if (place < 0) return HUSK_OK;
  const Current current(handle, error);
  HUSK_TRY(current.status);
  const Lock opening(&whole->is_opening);
  if (DeviceGroup* found = find(whole, ranks, count)) {
    *group = found;
    return HUSK_OK;
  }
  HUSK_TRY(check_group(device, kPart, error));
  DeviceGroup* part = add_part(device, ranks, static_cast<uint32_t>(count),
                               static_cast<uint32_t>(place), error);
  if (!part) return HUSK_OUT_OF_MEMORY;
  const husk_status status = open_part(device, part, error);
  const Lock lock(&whole->mutex);
  if (status != HUSK_OK) {
    // The other ranks of the part wait for this one, or will wait for it in its calls.
    part->abort();
    return status;
  }
  part->is_open = true;
  *group = part;
  return HUSK_OK;
}

bool is_exchange(const Device& device, const CUDA_KERNEL_NODE_PARAMS_v2& launch) {
  if (!device.group) return false;
  const Lock lock(&device.group->mutex);
  for (const DeviceGroup* group = device.group; group; group = group->next)
    if (group->peers.is_exchange(launch)) return true;
  return false;
}

namespace {

constexpr const char* kWait = "the wait for a stream";

// Ends the group if NCCL has found that a rank failed.
husk_status check_ranks(DeviceGroup& group, husk_error* error) {
  HUSK_TRY(group.check(kWait, error));
  for (DeviceGroup* one = &group; one; one = one->next) {
    if (!one->comm) continue;
    ncclResult_t failed = ncclSuccess;
    const ncclResult_t asked = one->nccl.ncclCommGetAsyncError(one->comm, &failed);
    if (asked != ncclSuccess) failed = asked;
    if (failed == ncclSuccess || failed == ncclInProgress) continue;
    const husk_status status = nccl_fail(one->nccl, error, failed, "another rank has failed",
                                         kWait);
    group.abort();
    return status;
  }
  return HUSK_OK;
}

CUresult ask(const Device& device, const Awaited& awaited) {
  return awaited.event ? device.driver.cuEventQuery(awaited.event)
                       : device.driver.cuStreamQuery(awaited.stream);
}

// Asks until the work has ended or failed. At times it calls `check`, whose failure ends the wait
// with the result "not ready".
template <class Check>
CUresult ask_until(const Device& device, const Awaited& awaited, const Check& check) {
  for (uint32_t turn = 1;; ++turn) {
    const CUresult result = ask(device, awaited);
    if (result != CUDA_ERROR_NOT_READY) return result;
    pause(turn);
    if (turn % kTurnsBetweenChecks == 0 && !check()) return result;
  }
}

// The kernels of a communicator end with it, and the work behind them runs, before the caller may
// free memory.
void wait_for_aborted(const Device& device, const Awaited& awaited) {
  const DeviceGroup& group = *device.group;
  if (!group.is_own) return;
  const int64_t until = milliseconds() + group.timeout_ms;
  ask_until(device, awaited, [&] { return milliseconds() <= until; });
}

// What has happened to the work of a group that was aborted, or what the application has to do.
const char* after_abort(const DeviceGroup& group) {
  return group.is_own ? ", and was ended" : ": abort husk_cuda_options.nccl_comm";
}

husk_status too_late(const DeviceGroup& group, husk_error* error) {
  return fail(error, HUSK_DEVICE,
              "the work of a stream did not end within %u ms%s: another rank is late, has ended, "
              "or runs something else (husk_engine_options.group_timeout_ms)",
              group.timeout_ms, after_abort(group));
}

husk_status cancelled(const DeviceGroup& group, husk_error* error) {
  return fail(error, HUSK_CANCELLED,
              "the work of a stream was cancelled by husk_engine_options.cancel%s",
              after_abort(group));
}

}  // namespace

husk_status group_wait(const Device& device, Awaited awaited, bool is_of_run, husk_error* error) {
  DeviceGroup& group = *device.group;
  const int64_t until = milliseconds() + group.timeout_ms;
  husk_status status = HUSK_OK;
  bool has_failed = false;
  {
    const Lock lock(&group.whole->mutex);
    has_failed = group.is_over;
  }
  const bool asks = is_of_run && !has_failed && group.cancel;
  const CUresult result = ask_until(device, awaited, [&] {
    const bool is_cancelled = asks && group.cancel(group.cancel_user);
    const Lock lock(&group.whole->mutex);
    if (!has_failed) status = check_ranks(group, error);
    if (status != HUSK_OK) return false;
    if (!is_cancelled && milliseconds() <= until) return true;
    group.abort();
    status = is_cancelled ? cancelled(group, error) : too_late(group, error);
    return false;
  });
  if (status != HUSK_OK) {
    wait_for_aborted(device, awaited);
    return status;
  }
  if (result != CUDA_SUCCESS)
    return driver_fail(device.driver, error, result,
                       awaited.event ? "cuEventQuery" : "cuStreamQuery", "stream of device %d",
                       device.index);
  // After a failure, other work goes on. The work of a rank that failed ends as well.
  const Lock lock(&group.whole->mutex);
  return has_failed && !is_of_run ? HUSK_OK : check_ranks(group, error);
}

CUresult synchronize(const Device& device, Awaited awaited, husk_status* of_group,
                     husk_error* error) {
  *of_group = HUSK_OK;
  if (!device.group)
    return awaited.event ? device.driver.cuEventSynchronize(awaited.event)
                         : device.driver.cuStreamSynchronize(awaited.stream);
  *of_group = group_wait(device, awaited, false, error);
  return CUDA_SUCCESS;
}

void let_end(const Device& device, Awaited awaited) {
  husk_status of_group = HUSK_OK;
  husk_error ignored;
  synchronize(device, awaited, &of_group, &ignored);
}

husk_status check_group(const Device& device, const char* thing, husk_error* error) {
  if (!device.group) return HUSK_OK;
  const Lock lock(&device.group->mutex);
  return device.group->check(thing, error);
}

}  // namespace husk::cuda
