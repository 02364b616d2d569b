#include "session/memory_plan.h"

#include "model/shape.h"
#include "plan/liveness.h"
#include "session/session.h"

namespace husk::runtime {
namespace {

constexpr uint64_t kLargestBuffer = 1ull << 48;  // bytes; sums of a million such sizes still fit
constexpr uint64_t kDefaultBoundLimit = 256ull << 20;
constexpr uint64_t kDefaultParallelPercent = 25;

}  // namespace

Status MemoryPlan::prepare(Session* session, const Code& code, const Prologue& prologue,
                           const IoBinding& io, husk_error* error) {
  session_ = session;
  code_ = &code;
  prologue_ = &prologue;
  io_ = &io;
  uses_host_ = code.has_host_buffers();
  HUSK_TRY(
      collect_accesses(code, prologue.intervals.data(), session->allocator(), &accesses, error));
  HUSK_TRY(prepare_blocks(error));
  const husk_session_options& options = session->options;
  if (options.mode != HUSK_MODE_LIST && session->port()->graphs && code.segments.size == 1 &&
      options.parallel_memory_percent >= 0 && !uses_host_)
    HUSK_TRY(prepare_parallel(error));
  bounded = plan_at_bounds();
  return Status::ok;
}

Status MemoryPlan::prepare_blocks(husk_error* error) {
  const Code& code = *code_;
  const husk_allocator& allocator = session_->allocator();
  uint32_t n = 0;
  for (const fb::Buffer& buffer : code.buffers) n += buffer.space() == uint8_t(Space::arena);
  HUSK_TRY(places.allocate(allocator, code.buffers.size, error));
  HUSK_TRY(block_of.allocate(allocator, code.buffers.size, error));
  HUSK_TRY(blocks.allocate(allocator, n, error));
  HUSK_TRY(segment_blocks_.allocate(allocator, n, error));
  HUSK_TRY(segments_.allocate(allocator, code.segments.size, error));
  HUSK_TRY(planner_.reserve(allocator, n, error));
  for (SegmentMemory& segment : segments_) {
    segment.arena = segment.outer = kNone;
    for (Device device : kDevices) segment.scratch[device].device = device;
  }
  for (uint32_t b = code.buffers.size; b-- > 0;) {  // backward, so that the lists are in order
    const fb::Buffer& buffer = code.buffers[b];
    const bool in_arena = buffer.space() == uint8_t(Space::arena);
    BufferPlace& place = places[b];
    place.sized_in = prologue_->segment_of(buffer.size());
    SegmentMemory& segment = segments_[place.sized_in];
    uint32_t& first = in_arena ? segment.arena : segment.outer;
    place.next = first;
    first = b;
    block_of[b] = in_arena ? --n : kNone;
    if (!in_arena) continue;
    blocks[n].align = 1u << buffer.align_log2();
    blocks[n].device = code.device_of(b);
  }
  return find_live_ranges(code, accesses, block_of.data(), blocks.data(), blocks.size(), allocator,
                          error);
}

// Finds the blocks that may share memory even if independent steps run at the same time.
Status MemoryPlan::prepare_parallel(husk_error* error) {
  const husk_allocator& allocator = session_->allocator();
  Dependences dependences;
  HUSK_TRY(dependences.build(*code_, accesses, nullptr, allocator, error));
  if (dependences.is_chain) return Status::ok;
  extend_over_collectives(dependences);
  HUSK_TRY(tight_offsets_.allocate(allocator, blocks.size(), error));
  return find_shareable(dependences, accesses, block_of.data(), blocks.size(), allocator,
                        &shareable, error);
}

// A collective waits for other ranks, and the steps up to its first reader run meanwhile. So its
// blocks are live until then, in any plan: a step that got their memory would wait for it. Another
// collective comes after it in any case and ends nothing.
void MemoryPlan::extend_over_collectives(const Dependences& dependences) {
  const Program& program = *session_->program;
  for (const Access& access : accesses) {
    const uint32_t block = block_of[access.buffer];
    if (block == kNone || !program.may_wait_first(*code_, access.step)) continue;
    uint32_t last = access.step;
    while (last + 1 < code_->steps.size && (program.may_wait_first(*code_, last + 1) ||
                                            !dependences.ancestors.test(last + 1, access.step)))
      ++last;
    if (blocks[block].last < last) blocks[block].last = last;
  }
}

// Returns whether all buffers that the first prologue sizes fit below the limit at their largest
// sizes, and so are planned once. Buffers that later prologues size take part if they have bounds;
// otherwise they are placed on demand.
bool MemoryPlan::plan_at_bounds() {
  uint64_t limit = session_->options.bound_limit;
  if (limit == 0) limit = kDefaultBoundLimit;
  if (limit > kLargestBuffer) limit = kLargestBuffer;
  bool fits = true;
  for (uint32_t b = 0; b < code_->buffers.size; ++b) {
    if (block_of[b] == kNone) continue;
    const int64_t high = prologue_->intervals[code_->buffers[b].size()].high;
    const bool bound = static_cast<uint64_t>(high) <= limit;  // not negative, not INT64_MAX
    places[b].on_demand = places[b].sized_in > 0 && !bound;
    fits = fits && (bound || places[b].on_demand);
    blocks[block_of[b]].size = bound ? static_cast<uint64_t>(high) : 0;
  }
  husk_error ignored;
  fits = fits && !failed(plan(&ignored));
  for (Device device : kDevices) fits = fits && planned[device].peak <= limit;
  if (fits) return true;
  for (uint32_t b = 0; b < code_->buffers.size; ++b)
    places[b].on_demand = block_of[b] != kNone && places[b].sized_in > 0;
  return false;
}

void MemoryPlan::release_scratch() {
  for (SegmentMemory& segment : segments_)
    for (Device device : kDevices) session_->release(&segment.scratch[device]);
}

bool MemoryPlan::is_dynamic() const {
  for (const BufferPlace& place : places)
    if (place.on_demand) return true;
  return false;
}

Status MemoryPlan::check_size(uint32_t buffer, const Block& block, husk_error* error) const {
  if (block.size <= kLargestBuffer) return Status::ok;
  return fail(error, HUSK_OUT_OF_MEMORY, "buffer %s would take %llu bytes",
              code_->label(buffer).text, static_cast<unsigned long long>(block.size));
}

Status MemoryPlan::plan(husk_error* error) {
  for (uint32_t b = 0; b < code_->buffers.size; ++b) {
    if (block_of[b] == kNone) continue;
    Block& block = blocks[block_of[b]];
    if (!bounded && prologue_->evaluated)
      block.size = places[b].on_demand ? 0 : size_in_registers(b);
    HUSK_TRY(check_size(b, block, error));
  }
  place_blocks();
  parallel = shareable.words() != 0 && plan_parallel();
  plan_hash = Graph::hash_plan(*this);
  return Status::ok;
}

void MemoryPlan::place_blocks() {
  const uint32_t* order = code_->placement_order();
  for (Device device : kDevices)
    if (uses(device))
      planned[device] = planner_.place(blocks.data(), blocks.size(), nullptr, order, device);
}

// Takes the plan that keeps independent steps apart, unless it is too large for what it brings.
bool MemoryPlan::plan_parallel() {
  const size_t n = blocks.size();
  for (size_t i = 0; i < n; ++i) tight_offsets_[i] = blocks[i].offset;
  const int32_t option = session_->options.parallel_memory_percent;
  const uint64_t percent = option ? static_cast<uint64_t>(option) : kDefaultParallelPercent;
  Planned& tight = planned[Device::target];
  const Planned apart = planner_.place(blocks.data(), n, &shareable);
  if (apart.peak <= tight.peak + tight.peak / 100 * percent + kArenaAlign * n) {
    tight = apart;
    return true;
  }
  for (size_t i = 0; i < n; ++i) blocks[i].offset = tight_offsets_[i];
  return false;
}

Status MemoryPlan::place_on_demand(uint32_t segment, husk_error* error) {
  for (Device device : kDevices)
    if (uses(device)) HUSK_TRY(place_on_demand(segment, device, error));
  return Status::ok;
}

Status MemoryPlan::place_on_demand(uint32_t segment, Device device, husk_error* error) {
  size_t n = 0;
  for (uint32_t b = segments_[segment].arena; b != kNone; b = places[b].next) {
    if (!places[b].on_demand || code_->device_of(b) != device) continue;
    Block& block = segment_blocks_[n++];
    block = blocks[block_of[b]];
    block.size = size_in_registers(b);
    HUSK_TRY(check_size(b, block, error));
  }
  if (n == 0) return Status::ok;
  const Planned here = planner_.place(segment_blocks_.data(), n, nullptr, nullptr, device);
  SegmentMemory& memory = segments_[segment];
  ScratchBuffer* scratch = &memory.scratch[device];
  HUSK_TRY(session_->grow(scratch, here.peak, "sizes that only the data decides", error));
  n = 0;
  for (uint32_t b = memory.arena; b != kNone; b = places[b].next) {
    if (!places[b].on_demand || code_->device_of(b) != device) continue;
    const Block& block = segment_blocks_[n++];
    places[b].base = static_cast<uint8_t*>(scratch->data) + block.offset;
    places[b].capacity = block.size;
  }
  return Status::ok;
}

void MemoryPlan::assign_addresses() {
  const Program& program = *session_->program;
  for (Device device : kDevices)
    arenas[device] = static_cast<uint8_t*>(session_->arenas[device].memory);
  for (uint32_t b = 0; b < code_->buffers.size; ++b) {
    const fb::Buffer& buffer = code_->buffers[b];
    BufferPlace& place = places[b];
    switch (static_cast<Space>(buffer.space())) {
      case Space::arena: {
        if (place.on_demand) break;  // place_on_demand does it in each run
        uint8_t* memory = arenas[code_->device_of(b)];
        place.base = memory ? memory + blocks[block_of[b]].offset : nullptr;
        place.capacity = blocks[block_of[b]].size;
        break;
      }
      case Space::constant:
        place.base = program.constants.address(buffer.index());
        place.capacity = program.constants.bytes(buffer.index());
        break;
      case Space::state:
        place.base = session_->states[buffer.index()];
        place.capacity = verified_bytes(program.rows()->states()->Get(buffer.index()));
        break;
      case Space::input:
      case Space::output: break;  // update_io_addresses does it in each run
    }
  }
  arena_generation = session_->arena_generation;
  ++binding_generation;
}

// Returns true if the place differs from before.
bool MemoryPlan::update(uint32_t buffer, uint8_t* data, uint64_t bytes) {
  if (buffer == kNone) return false;
  BufferPlace& place = places[buffer];
  const bool moved = place.base != data || place.capacity != bytes;
  place.base = data;
  place.capacity = bytes;
  return moved;
}

bool MemoryPlan::update_io_addresses() {
  bool moved = false;
  for (uint32_t i = 0; i < io_->inputs.size(); ++i)
    moved |= update(io_->input_states[i].buffer, io_->inputs[i].data, io_->inputs[i].bytes);
  for (const OutputState& output : io_->output_states)
    moved |= update(output.buffer, output.data, output.bytes);
  return moved;
}

void MemoryPlan::update_output_addresses(uint32_t segment) {
  for (uint32_t i = io_->segment_outputs[segment].shaped; i != kNone;) {
    const OutputState& output = io_->output_states[i];
    update(output.buffer, output.data, output.bytes);
    i = output.next_shaped;
  }
}

Status MemoryPlan::too_small(uint32_t buffer, int64_t size, husk_error* error) const {
  return fail(
      error, block_of[buffer] == kNone ? HUSK_INVALID_INPUT : HUSK_NEEDS_RESIZE,
      "buffer %s needs %lld bytes, there are %llu: call husk_session_resize with these shapes",
      code_->label(buffer).text, static_cast<long long>(size),
      static_cast<unsigned long long>(places[buffer].capacity));
}

Status MemoryPlan::check_outer_buffers(uint32_t segment, husk_error* error) const {
  for (uint32_t b = segments_[segment].outer; b != kNone; b = places[b].next)
    HUSK_TRY(check_buffer(b, prologue_->registers[code_->buffers[b].size()].i, error));
  return Status::ok;
}

}  // namespace husk::runtime
