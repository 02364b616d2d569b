#include "lives.h"
#include "session.h"

#include <cstddef>
#include <cstring>

namespace husk {
namespace {

constexpr uint64_t kLargest = 1ull << 48;  // bytes; sums of a million such still fit

// What there may be many of in a variant.
enum Set : uint8_t {
  kInputs, kRanks, kRanges, kOutputs, kShown, kScalars, kResults, kSegments, kBlocks, kBuffers, kArguments, kSteps, kOpArguments,
  kOpSizes, kSets
};

// An array of a frame: where its pointer is, the bytes of an element, and how many elements more there are than of the set.
struct Share {
  uint16_t member, bytes;
  uint8_t of, more;
};

// A frame's place in memory is plain, though its class is not what C++ asks of offsetof without a condition.
#pragma GCC diagnostic ignored "-Winvalid-offsetof"
#define HUSK_SHARE(member, of, more) {offsetof(Frame, member), sizeof(*Frame::member), of, more}
constexpr Share kShares[] = {
    HUSK_SHARE(inputs, kInputs, 0),         HUSK_SHARE(input_states, kInputs, 1),     HUSK_SHARE(strides, kRanks, 0),
    HUSK_SHARE(dims, kRanges, 0),           HUSK_SHARE(output_states, kOutputs, 0),   HUSK_SHARE(shapes, kShown, 0),
    HUSK_SHARE(registers, kScalars, 0),     HUSK_SHARE(last_registers, kScalars, 0),  HUSK_SHARE(intervals, kScalars, 0),
    HUSK_SHARE(results, kResults, 0),       HUSK_SHARE(segment_states, kSegments, 1), HUSK_SHARE(blocks, kBlocks, 0),
    HUSK_SHARE(segment_blocks, kBlocks, 0), HUSK_SHARE(block_of, kBuffers, 0),        HUSK_SHARE(places, kBuffers, 0),
    HUSK_SHARE(values, kArguments, 0),      HUSK_SHARE(params, kArguments, 0),        HUSK_SHARE(dynamic, kArguments, 0),
    HUSK_SHARE(step_states, kSteps, 1),     HUSK_SHARE(op_args, kOpArguments, 0),     HUSK_SHARE(op_sizes, kOpSizes, 0)};

}  // namespace

Status Frame::prepare(husk_session* s, uint32_t function, const Interval* narrowed, husk_error* error) {
  session = s;
  program = s->program;
  options = &s->options;
  code = program->code(function);
  HUSK_TRY(owned.allocate(allocator(), share(nullptr), error));
  share(owned.data());
  HUSK_TRY(planner.reserve(allocator(), block_count, error));
  prepare_inputs(narrowed);
  find_intervals(code, dims, intervals);
  HUSK_TRY(collect_accesses(code, intervals, allocator(), &accesses, error));
  prepare_blocks();
  prepare_steps();
  prepare_results();
  if (options->mode != HUSK_MODE_LIST && program->engine->port->graphs && code.segments.size == 1 &&
      options->parallel_percent >= 0)
    HUSK_TRY(prepare_parallel(error));
  bounded = plan_at_bounds();
  return Status::ok;
}

// All arrays, so that what fills them cannot fail: laid out twice, to be counted and then to be given their shares. Returns their
// words.
size_t Frame::share(uint64_t* memory) {
  size_t counts[kSets] = {};
  counts[kInputs] = code.inputs();
  for (uint32_t i = 0; i < code.inputs(); ++i) {
    counts[kRanks] += code.input(i)->rank();
    counts[kRanges] += count(code.input(i)->dims());
  }
  counts[kOutputs] = code.outputs();
  for (uint32_t i = 0; i < code.outputs(); ++i) counts[kShown] += 2u * code.output(i)->rank();
  counts[kScalars] = code.scalars.size;
  counts[kSegments] = code.segments.size;
  counts[kBuffers] = code.buffers.size;
  counts[kArguments] = code.arguments.size;
  counts[kSteps] = code.steps.size;
  for (const fb::Buffer& buffer : code.buffers) counts[kBlocks] += buffer.space() == uint8_t(Space::arena);
  for (const fb::Instruction& step : code.steps) {
    counts[kResults] += code.values_of(step);
    if (static_cast<Step>(step.op()) != Step::op_extern) continue;
    counts[kOpArguments] = code.arguments.size;
    counts[kOpSizes] = code.operands.size;
  }
  size_t words = 0;
  for (const Share& share : kShares) {
    if (memory) *reinterpret_cast<void**>(reinterpret_cast<char*>(this) + share.member) = memory + words;
    words += ((counts[share.of] + share.more) * share.bytes + 7) / 8;
  }
  block_count = static_cast<uint32_t>(counts[kBlocks]);
  return words;
}

void Frame::prepare_inputs(const Interval* narrowed) {
  for (uint32_t i = 0; i < code.inputs(); ++i) {
    InputState* state = &input_states[i];
    const fb::Value* value = code.input(i);
    state[1].first_stride = state->first_stride + value->rank();
    state[1].first_dim = state->first_dim + count(value->dims());
    for (uint32_t d = 0; d < count(value->dims()); ++d) {
      const fb::Dim* dim = value->dims()->Get(d);
      dims[state->first_dim + d] = narrowed ? narrowed[state->first_dim + d] : Interval{dim->min(), dim->max()};
    }
  }
}

// The one that computes a register.
uint32_t Frame::segment_of(uint32_t reg) const {
  uint32_t segment = 0;
  while (reg >= code.segments[segment].scalar_end()) ++segment;
  return segment;
}

void Frame::prepare_blocks() {
  uint32_t in_arena = 0;
  for (uint32_t b = 0; b < code.buffers.size; ++b) {
    const fb::Buffer& buffer = code.buffers[b];
    const uint32_t align = 1u << buffer.align_log2();
    block_of[b] = kNone;
    switch (static_cast<Space>(buffer.space())) {
      case Space::arena:
        block_of[b] = in_arena;
        blocks[in_arena++] = {0, align, 0, 0, 0};
        break;
      case Space::input: input_states[buffer.index()].align = align; break;
      case Space::output: output_states[buffer.index()].align = align; break;
      default: break;
    }
    places[b].sized_in = segment_of(buffer.size());
  }
  for (const Access& access : accesses) {
    const fb::Buffer& buffer = code.buffers[access.buffer];
    if (buffer.space() == uint8_t(Space::input)) input_states[buffer.index()].written |= writes(access.access);
  }
  find_lives(code, accesses, block_of, blocks, block_count);
}

// Which blocks may share memory when independent steps run side by side.
Status Frame::prepare_parallel(husk_error* error) {
  Order order;
  HUSK_TRY(order.build(code, accesses, nullptr, allocator(), error));
  HUSK_TRY(tight_offsets.allocate(allocator(), block_count, error));
  return find_shareable(order, accesses, block_of, block_count, allocator(), &shareable, error);
}

bool Frame::is_static(const fb::Argument& argument) const {
  switch (static_cast<ArgumentKind>(argument.kind())) {
    case ArgumentKind::integer:
      return fixed(argument.index());
    case ArgumentKind::floating:
      return static_cast<Scalar>(code.scalars[argument.index()].op()) == Scalar::op_fconst;
    case ArgumentKind::view: {
      const fb::View& view = code.views[argument.index()];
      const auto space = static_cast<Space>(code.buffers[view.buffer()].space());
      return fixed(view.offset()) && fixed(view.extent()) && fixed(code.buffers[view.buffer()].size()) &&
             space != Space::input && space != Space::output && places[view.buffer()].sized_in == 0;
    }
    case ArgumentKind::null: return true;
    default: return false;
  }
}

void Frame::prepare_steps() {
  const uint32_t n = code.arguments.size;
  for (uint32_t i = 0; i < n; ++i) params[i] = &values[i];
  uint32_t filled = 0;
  for (uint32_t s = 0; s < code.steps.size; ++s) {
    const fb::Instruction& step = code.steps[s];
    const bool launch = static_cast<Step>(step.op()) == Step::op_launch;
    step_states[s].first_dynamic = filled;
    for (uint32_t i = step.b(); i < step.b() + step.c(); ++i)
      if (!is_static(code.arguments[i])) dynamic[filled++] = i;
    if (!launch) continue;
    const fb::Kernel* kernel = code.program->kernels()->Get(step.a());
    husk_launch& out = step_states[s].launch;
    for (uint32_t d = 0; d < 3; ++d) out.block[d] = kernel->block()->Get(d);
    out.shared_bytes = kernel->shared();
    out.cluster = kernel->cluster();
    const bool waits = kernel->flags() & kWaitsFirst && !options->full_edges;
    out.flags = kernel->flags() & kCooperative ? HUSK_LAUNCH_COOPERATIVE : waits ? HUSK_LAUNCH_PROGRAMMATIC : 0;
    out.params = params + step.b() + 3;
  }
  step_states[code.steps.size].first_dynamic = filled;
}

void Frame::prepare_results() {
  for (uint32_t s = 0; s < code.segments.size; ++s) {
    uint32_t brought = segment_states[s].first_result;
    for (uint32_t n = code.segments[s].step_begin(); n < code.segments[s].step_end(); ++n)
      brought += code.values_of(code.steps[n]);
    segment_states[s + 1].first_result = brought;
  }
  int64_t* shape = shapes;
  for (uint32_t i = 0; i < code.outputs(); ++i) {
    OutputState& state = output_states[i];
    if (static_cast<ArgumentKind>(code.results[i].kind()) != ArgumentKind::tensor) continue;
    const fb::Tensor& tensor = code.tensors[code.results[i].index()];
    state.shape = shape;
    shape += 2u * tensor.rank();
    const fb::View& view = code.views[tensor.view()];
    uint32_t last = code.buffers[view.buffer()].size();
    for (uint32_t d = 0; d < 2u * tensor.rank(); ++d)
      if (code.operands[tensor.first() + d] > last) last = code.operands[tensor.first() + d];
    state.segment = segment_of(last);
    state.checked_in = segment_of(view.offset());
    for (uint32_t other : {state.segment, segment_of(view.extent())})
      if (other > state.checked_in) state.checked_in = other;
  }
}

// Whether all buffers that the first prologue sizes fit below the limit at their bounds, and so are planned once. Buffers
// that later ones size take part if they have bounds too; else they are placed when their segment begins.
bool Frame::plan_at_bounds() {
  const uint64_t limit = options->bound_limit ? options->bound_limit : 256ull << 20;
  bool fits = true;
  for (uint32_t b = 0; b < code.buffers.size; ++b) {
    if (block_of[b] == kNone) continue;
    const int64_t high = intervals[code.buffers[b].size()].high;
    const bool bound = high != INT64_MAX && high >= 0 && static_cast<uint64_t>(high) <= limit;
    places[b].on_demand = places[b].sized_in > 0 && !bound;
    fits = fits && (bound || places[b].on_demand);
    blocks[block_of[b]].size = bound ? static_cast<uint64_t>(high) : 0;
  }
  husk_error ignored;
  if (fits && !failed(plan(&ignored)) && planned.peak <= limit) return true;
  for (uint32_t b = 0; b < code.buffers.size; ++b) places[b].on_demand = block_of[b] != kNone && places[b].sized_in > 0;
  return false;
}

bool Frame::is_dynamic() const {
  for (uint32_t b = 0; b < code.buffers.size; ++b)
    if (places[b].on_demand) return true;
  return false;
}

Status Frame::check_size(uint32_t buffer, const Block& block, husk_error* error) const {
  if (block.size <= kLargest) return Status::ok;
  return fail(error, HUSK_OUT_OF_MEMORY, "buffer %s would take %llu bytes", code.label(buffer).text,
              static_cast<unsigned long long>(block.size));
}

Status Frame::plan(husk_error* error) {
  for (uint32_t b = 0; b < code.buffers.size; ++b) {
    if (block_of[b] == kNone) continue;
    Block& block = blocks[block_of[b]];
    if (!bounded && evaluated) {
      const int64_t bytes = places[b].on_demand ? 0 : registers[code.buffers[b].size()].i;
      block.size = bytes > 0 ? static_cast<uint64_t>(bytes) : 0;
    }
    HUSK_TRY(check_size(b, block, error));
  }
  planned = planner.place(blocks, block_count, nullptr, code.placing());
  parallel = shareable.words() != 0 && plan_parallel();
  plan_hash = Graph::hash_plan(*this);
  return Status::ok;
}

Status Frame::place_on_demand(uint32_t segment, husk_error* error) {
  size_t n = 0;
  for (uint32_t b = 0; b < code.buffers.size; ++b) {
    if (!places[b].on_demand || places[b].sized_in != segment) continue;
    const int64_t bytes = registers[code.buffers[b].size()].i;
    Block& block = segment_blocks[n++];
    block = blocks[block_of[b]];
    block.size = bytes > 0 ? static_cast<uint64_t>(bytes) : 0;
    HUSK_TRY(check_size(b, block, error));
  }
  if (n == 0) return Status::ok;
  const Planned here = planner.place(segment_blocks, n, nullptr);
  HUSK_TRY(session->reserve(&segment_states[segment].room, here.peak, "sizes that only the data decides", error));
  n = 0;
  for (uint32_t b = 0; b < code.buffers.size; ++b) {
    if (!places[b].on_demand || places[b].sized_in != segment) continue;
    places[b].base = static_cast<uint8_t*>(segment_states[segment].room.data) + segment_blocks[n].offset;
    places[b].capacity = segment_blocks[n++].size;
  }
  return Status::ok;
}

void Frame::drop_rooms() {
  if (owned.size() == 0) return;
  for (uint32_t s = 0; s < code.segments.size; ++s) session->drop(&segment_states[s].room);
  for (uint32_t i = 0; i < code.outputs(); ++i) session->drop(&output_states[i].own);
  for (uint32_t i = 0; i < code.inputs(); ++i) session->drop(&input_states[i].copy);
}

// Takes the plan that keeps independent steps apart, unless it is too large for what it brings.
bool Frame::plan_parallel() {
  for (size_t i = 0; i < block_count; ++i) tight_offsets[i] = blocks[i].offset;
  const uint64_t percent = options->parallel_percent ? static_cast<uint64_t>(options->parallel_percent) : 25;
  const Planned apart = planner.place(blocks, block_count, &shareable);
  if (apart.peak <= planned.peak + planned.peak / 100 * percent + kArenaAlign * block_count) {
    planned = apart;
    return true;
  }
  for (size_t i = 0; i < block_count; ++i) blocks[i].offset = tight_offsets[i];
  return false;
}

void Frame::lay_out(uint8_t* new_arena, uint8_t* const* states, uint64_t new_layout) {
  arena = new_arena;
  for (uint32_t b = 0; b < code.buffers.size; ++b) {
    const fb::Buffer& buffer = code.buffers[b];
    switch (static_cast<Space>(buffer.space())) {
      case Space::arena:
        if (places[b].on_demand) break;  // place_on_demand, each run
        places[b].base = arena ? arena + blocks[block_of[b]].offset : nullptr;
        places[b].capacity = blocks[block_of[b]].size;
        break;
      case Space::constant:
        places[b].base = program->constants[buffer.index()];
        places[b].capacity = program->rows()->constants()->Get(buffer.index())->blob()->size();
        break;
      case Space::state:
        places[b].base = states[buffer.index()];
        places[b].capacity = state_bytes(program->rows()->states()->Get(buffer.index()));
        break;
      case Space::input:
      case Space::output: break;  // place_values, each run
    }
  }
  layout = new_layout;
  ++stamp;
}

bool Frame::place_values() {
  bool moved = false;
  auto place = [&](uint32_t b, uint8_t* data, uint64_t bytes) {
    moved = moved || places[b].base != data || places[b].capacity != bytes;
    places[b].base = data;
    places[b].capacity = bytes;
  };
  for (uint32_t b = 0; b < code.buffers.size; ++b) {
    const fb::Buffer& buffer = code.buffers[b];
    if (buffer.space() == uint8_t(Space::input))
      place(b, inputs[buffer.index()].data, inputs[buffer.index()].bytes);
    else if (buffer.space() == uint8_t(Space::output))
      place(b, output_states[buffer.index()].data, output_states[buffer.index()].bytes);
  }
  return moved;
}

}  // namespace husk
