// Where the ranks of a group meet without NCCL: shared memory of one machine, through which
// each rank tells the others where its device's memory is.
#pragma once

#include "device.h"
#include "ops/peers.h"

namespace husk::cuda {

// An id of a group that meets so. It names the shared memory, and says whether there may be NCCL.
[[nodiscard]] husk_status make_meeting_id(husk_group_id* id, bool may_have_nccl, husk_error* error);
bool is_meeting_id(const husk_group_id& id);
bool may_have_nccl(const husk_group_id& id);
// The id of some of the ranks of a group, which all of them find.
husk_group_id meeting_id_of(const husk_group_id& group, const int64_t* ranks, uint32_t count);

struct SharedMeeting;

class Meeting {
 public:
  // Comes to the meeting, and waits for the other ranks.
  husk_status open(const husk_port_group& request, husk_error* error);
  // Leaves. Nobody waits for this rank from now on.
  void close();
  bool is_open() const { return shared_; }
  // Brings a record of kRankRecordBytes from each rank to each other one. All ranks call it equally
  // often.
  husk_status gather(const void* own, void* all, uint32_t timeout_ms, husk_error* error);

 private:
  husk_status attach(const husk_group_id& id, husk_error* error);
  husk_status wait_for(uint32_t rank, uint32_t timeout_ms, husk_error* error) const;

  SharedMeeting* shared_;  // null if there is no meeting
  uint32_t rank_, world_, rounds_;
  bool has_come_;  // this rank's part of the memory is its own
};

}  // namespace husk::cuda
