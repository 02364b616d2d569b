// Where the buffers of a function are in memory.
#pragma once

#include "plan/planner.h"
#include "session/io_binding.h"

namespace husk::runtime {

// Where a buffer is.
struct BufferPlace {
  uint8_t* base;  // null if the caller's memory is not known yet
  uint64_t capacity;
  uint32_t sized_in;  // the segment that computes its size
  uint32_t next;      // the next buffer in the same list of SegmentMemory, or kNone
  bool on_demand;     // placed in scratch memory when that segment begins
};

// The first buffers that a segment sizes, and memory for those that are placed on demand.
struct SegmentMemory {
  uint32_t arena, outer;  // kNone if there is none
  ByDevice<ScratchBuffer> scratch;
};

struct MemoryPlan {
  Array<BufferPlace> places;  // by buffer
  Array<Block> blocks;        // the buffers of the arenas, as the planner takes them
  Array<uint32_t> block_of;   // by buffer; kNone outside of the arenas
  Array<Access> accesses;     // of all steps
  BitRows shareable;  // blocks that may share memory in a parallel plan; empty for list mode
  ByDevice<Planned> planned = {};  // the sizes of the plans
  uint64_t plan_hash = 0;          // tells the plans of a function apart; 0 until the first plan
  bool parallel = false;           // the plan keeps independent steps apart
  bool bounded = false;            // planned once, for the largest sizes that the session allows
  ByDevice<uint8_t*> arenas = {};  // the addresses that `places` is right for
  // The session's arena_generation for which `places` is right; 0 if it is for none.
  uint64_t arena_generation = 0;
  // Grows with each assign_addresses. Step arguments that were written for another one are old.
  uint64_t binding_generation = 0;

  // Plans for the largest sizes if these are known and take at most options.bound_limit bytes.
  // `prologue` and `io` must be prepared.
  Status prepare(Session* session, const Code& code, const Prologue& prologue, const IoBinding& io,
                 husk_error* error);
  // Gives device memory back. The session's work must be done.
  void release_scratch();

  // Places the buffers of the arenas for the current registers, or for the largest sizes if no
  // prologue has run yet. Allocates nothing.
  Status plan(husk_error* error);
  // Places the buffers whose size the prologue of `segment` has just computed, in scratch memory.
  Status place_on_demand(uint32_t segment, husk_error* error);
  // Takes the addresses of the session's arenas and states, and of the constants.
  void assign_addresses();
  // Takes the addresses of inputs and outputs. Returns true if one differs from before.
  bool update_io_addresses();
  // Takes the addresses of the outputs that `segment` shapes.
  void update_output_addresses(uint32_t segment);
  // Returns whether the size of a buffer is known only when its segment begins.
  bool is_dynamic() const;

  // Checks that a buffer has at least `size` bytes, the number that its prologue computed.
  Status check_buffer(uint32_t buffer, int64_t size, husk_error* error) const {
    const bool fits = size >= 0 && static_cast<uint64_t>(size) <= places[buffer].capacity;
    return fits ? Status::ok : too_small(buffer, size, error);
  }
  // Checks the buffers outside of the arena that `segment` sizes.
  Status check_outer_buffers(uint32_t segment, husk_error* error) const;

  // Address of a view. The addition is one of integers: a base that is not known yet is null.
  uint8_t* address(const fb::View& view) const {
    return reinterpret_cast<uint8_t*>(
        reinterpret_cast<uintptr_t>(places[view.buffer()].base) +
        static_cast<uintptr_t>(prologue_->registers[view.offset()].i));
  }

 private:
  // Whether buffers of the function may lie on `device`.
  bool uses(Device device) const { return device == Device::target || uses_host_; }
  bool update(uint32_t buffer, uint8_t* data, uint64_t bytes);
  Status too_small(uint32_t buffer, int64_t size, husk_error* error) const;
  Status prepare_blocks(husk_error* error);
  void place_blocks();
  Status place_on_demand(uint32_t segment, Device device, husk_error* error);
  Status prepare_parallel(husk_error* error);
  void extend_over_collectives(const Dependences& dependences);
  bool plan_at_bounds();
  bool plan_parallel();
  Status check_size(uint32_t buffer, const Block& block, husk_error* error) const;
  uint64_t size_in_registers(uint32_t buffer) const {
    const int64_t bytes = prologue_->registers[code_->buffers[buffer].size()].i;
    return bytes > 0 ? static_cast<uint64_t>(bytes) : 0;
  }

  Session* session_ = nullptr;
  const Code* code_ = nullptr;
  const Prologue* prologue_ = nullptr;
  bool uses_host_ = false;  // some buffers lie on the host
  const IoBinding* io_ = nullptr;
  Planner planner_;
  Array<Block> segment_blocks_;  // the blocks of one segment, while they are placed
  Array<SegmentMemory> segments_;
  Array<uint64_t> tight_offsets_;  // by block: its offset in the smallest plan
};

}  // namespace husk::runtime
