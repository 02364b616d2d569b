// The group of ranks that a device has joined: a communicator of NCCL, and the memory of the other
// ranks if it can be reached. Ranks of one machine may have that memory alone. Operators of some of
// the ranks have groups of their own, the parts of this one.
#pragma once

#include "device.h"
#include "ops/meeting.h"
#include "ops/nccl.h"
#include "ops/peers.h"

namespace husk::cuda {

struct DeviceGroup {
  Nccl nccl;                         // `library` is null if there is none, or it is not open yet
  Meeting meeting;                   // of ranks that have joined without NCCL
  bool has_chosen;                   // whether to use NCCL: it was opened, or it never is
  bool is_over;                      // the group has failed
  ncclComm_t comm;                   // null after that, and without NCCL
  bool is_own;                       // false if the application brought the communicator
  uint32_t rank, world, timeout_ms;  // the rank is the place among those of the group
  int32_t (*cancel)(void* user);     // of the whole: ends waits for runs; or null
  void* cancel_user;
  Peers peers;
  CUdeviceptr memory;     // a record for each rank, of gather_records
  pthread_mutex_t mutex;  // guards `is_over`, and `comm`, which has one caller at a time
  ncclComm_t ended;       // what the thread `ender` aborts, or null
  pthread_t ender;

  // A part has these of the whole: its mutex, deadline and failure.
  DeviceGroup* whole;          // this group, if it is no part
  DeviceGroup* next;           // the part that was opened after this one
  bool is_open;                // of a part: its ranks know one another
  int64_t* ranks;              // of a part: its ranks in the whole; null: all in their order
  husk_group_id id;            // of the whole
  pthread_mutex_t is_opening;  // of the whole: held while a part is opened

  // Whether the library of `nccl` is closed with this group. A part may have that of the whole.
  bool has_own_nccl() const { return !ranks || meeting.is_open(); }
  // The place of a rank of the whole in this group, or -1.
  int place_of(int64_t of_whole) const;
  // Whether the group is that of some ranks of the whole, in this order.
  bool has(const int64_t* some, int64_t count) const;

  // Fails if the group has failed before. `thing` names the call.
  husk_status check(const char* thing, husk_error* error) const;
  // Waits until NCCL has enqueued what `call` returned `result` for. The mutex is held.
  husk_status settle(ncclResult_t result, const char* call, const char* thing, husk_error* error);
  // Ends the work of the whole group and its parts on this rank. The mutex is held. Graphs may have
  // calls of communicators and exchanges of peers, and must not run any more.
  void abort();
  // Waits until an aborted communicator is gone, for which its graphs must be gone.
  void wait_for_abort();
};

// The functions of husk_port; husk/port.h says what each does.
husk_status group_id(void* user, husk_group_id* id, husk_error* error);
husk_status group_join(void* device, const husk_port_group* group, husk_error* error);
husk_status group_agree(void* device, const uint8_t* bytes, husk_error* error);

// Opens NCCL for ranks that have joined without it, once: all ranks of the group call this, for the
// same op. That there is no NCCL is no error.
husk_status want_nccl(const Device& device, DeviceGroup& group, husk_error* error);

// Leaves the group of the device, if it has joined one. No work of the group is pending.
void group_close(void* device);

// The group of some ranks of the device's group. If they have none yet, it is opened, for which all
// of them must call this. Ranks of which none is this rank have the whole group.
husk_status group_of(void* device, const int64_t* ranks, int64_t count, DeviceGroup** group,
                     husk_error* error);

// Whether a launch is one of the exchanges of the device's group.
bool is_exchange(const Device& device, const CUDA_KERNEL_NODE_PARAMS_v2& launch);

// A wait is for the work of a stream, or for an event if that is not null.
struct Awaited {
  CUstream stream;
  CUevent event;
};

// Waits on a device that has joined a group. If the work does not end in time, or a rank fails, the
// group is ended and the call fails. From then on, waits for runs (`is_of_run`) fail, since nobody
// knows which of them had work of the group. No work of the group is pending after a failure, so
// memory may be freed, unless the communicator is the application's.
husk_status group_wait(const Device& device, Awaited awaited, bool is_of_run, husk_error* error);

// Waits as the driver does, and with the deadline of the group if the device has joined one. If
// this ends the wait, `*of_group` is the status of `error`.
CUresult synchronize(const Device& device, Awaited awaited, husk_status* of_group,
                     husk_error* error);

// The same for a caller to whom it does not matter how the work ends.
void let_end(const Device& device, Awaited awaited);

// Fails if the device has joined a group that has failed: a graph may have calls of its
// communicator, which is gone.
husk_status check_group(const Device& device, const char* thing, husk_error* error);

}  // namespace husk::cuda
