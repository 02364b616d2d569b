// A group of ranks of one machine: processes, or threads of one process, that communicate by shared
// memory. DESIGN.md describes the protocol.
#pragma once

#include <cstdint>

#include <husk/port.h>

namespace husk::host {

struct Device;
struct SharedGroup;

constexpr uint32_t kMaxGroup = 64;          // ranks of a group
constexpr int64_t kAreaBytes = 256 * 1024;  // of each rank, in shared memory

// A collective describes what a rank computes together with others. All members of a call have the
// same one.
struct GroupCall {
  const char* op;  // the name of the op, for messages; not compared
  uint32_t kind;   // a number of the op
  uint32_t dtype;
  uint32_t detail;   // the reduction, or the rank that sends
  uint32_t members;  // how many ranks take part
  int64_t elements;
};

// The ranks that take part in a call, in the order in which they contribute.
struct Members {
  uint32_t count;
  uint32_t ranks[kMaxGroup];
};

// One rank of a group, as its device sees it. One thread at a time calls it.
constexpr size_t kNameBytes = 48;  // room for the name of shared memory

class Group {
 public:
  // Joins the group of `request.id`, and returns when all ranks have joined.
  static husk_status join(Device& device, const husk_port_group& request, husk_error* error);
  // Leaves the group and frees the object. The calls of ranks that wait for this one fail.
  void leave(Device& device);

  uint32_t rank() const { return rank_; }
  uint32_t world() const { return world_; }
  // The memory that `rank` writes and the others read: kAreaBytes bytes at a multiple of 64.
  uint8_t* area(uint32_t rank) const;

  // Returns when every member has called `meet`: what each has written to its area before is
  // visible to the members until they call `part`. Fails on every rank if a member does not come,
  // has left, has ended, or makes another call. `context` is null, or that of an op whose `cancel`
  // is asked while the rank waits.
  husk_status meet(const Members& members, const GroupCall& call, const husk_op_context* context,
                   husk_error* error);
  // Follows each `meet`. Returns when every member has called it; the areas may be written again.
  husk_status part(const Members& members, const GroupCall& call, const husk_op_context* context,
                   husk_error* error);
  // Makes the calls of all ranks fail from now on, and returns HUSK_INVALID_INPUT. The text says
  // what is wrong on this rank.
  husk_status refuse(const GroupCall& call, const char* text, husk_error* error);

  // husk_port.agree.
  husk_status agree(const uint8_t* bytes, husk_error* error);

 private:
  husk_status open(const husk_port_group& request, husk_error* error);
  husk_status attach(int file, bool is_first, husk_error* error);
  husk_status enter(husk_error* error);
  void watch_processes();
  void detach();
  husk_status check_whole(const char* what, husk_error* error) const;
  husk_status wait(const Members& members, const husk_op_context* context, const char* what,
                   husk_error* error);
  husk_status give_up(uint32_t reason, uint32_t rank, const char* what, husk_error* error);
  husk_status compare(const Members& members, const GroupCall& call, husk_error* error);

  SharedGroup* shared_ = nullptr;
  uint64_t bytes_ = 0;  // of the mapping
  uint32_t rank_ = 0, world_ = 0, timeout_ms_ = 0;
  bool has_entered_ = false;
  char name_[kNameBytes] = {};     // of the shared memory
  uint32_t met_[kMaxGroup] = {};   // how often this rank has met each other one
  int processes_[kMaxGroup] = {};  // a file descriptor of each other process, or -1
};

// The functions of husk_port, under the names that they have there.
husk_status group_id(void* user, husk_group_id* id, husk_error* error);
husk_status group_join(void* device, const husk_port_group* group, husk_error* error);
husk_status group_agree(void* device, const uint8_t* bytes, husk_error* error);

}  // namespace husk::host
