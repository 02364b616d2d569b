#include "lives.h"
#include "session.h"

#include <cstring>

namespace husk {
namespace {

constexpr uint64_t kLargest = 1ull << 48;  // bytes; sums of a million such still fit

}  // namespace

Status Frame::prepare(husk_session* s, uint32_t function, const Array<Interval>* narrowed, husk_error* error) {
  session = s;
  program = s->program;
  options = &s->options;
  code = program->code(function);
  HUSK_TRY(prepare_values(narrowed, error));
  HUSK_TRY(registers.allocate(allocator(), code.scalars.size, error));
  HUSK_TRY(last_registers.allocate(allocator(), code.scalars.size, error));
  HUSK_TRY(intervals.allocate(allocator(), code.scalars.size, error));
  find_intervals(code, dims.data(), intervals.data());
  HUSK_TRY(collect_accesses(code, intervals.data(), allocator(), &accesses, error));
  HUSK_TRY(prepare_blocks(error));
  HUSK_TRY(prepare_steps(error));
  HUSK_TRY(prepare_results(error));
  if (options->mode != HUSK_MODE_LIST && program->engine->port->graphs && code.segments.size == 1 &&
      options->parallel_percent >= 0)
    HUSK_TRY(prepare_parallel(error));
  bounded = plan_at_bounds();
  return Status::ok;
}

Status Frame::prepare_values(const Array<Interval>* narrowed, husk_error* error) {
  const uint32_t n = code.inputs();
  HUSK_TRY(inputs.allocate(allocator(), n, error));
  HUSK_TRY(input_bytes.allocate(allocator(), n, error));
  HUSK_TRY(input_written.allocate(allocator(), n, error));
  HUSK_TRY(input_align.allocate(allocator(), n, error));
  HUSK_TRY(misaligned.allocate(allocator(), n, error));
  HUSK_TRY(copies.allocate(allocator(), n, error));
  HUSK_TRY(first_stride.allocate(allocator(), n, error));
  HUSK_TRY(first_dim.allocate(allocator(), n + 1, error));
  uint32_t ranks = 0;
  for (uint32_t i = 0; i < n; ++i) {
    first_stride[i] = ranks;
    ranks += code.input(i)->rank();
    first_dim[i + 1] = first_dim[i] + count(code.input(i)->dims());
  }
  HUSK_TRY(strides.allocate(allocator(), ranks, error));
  HUSK_TRY(dims.allocate(allocator(), first_dim[n], error));
  for (uint32_t i = 0; i < n; ++i)
    for (uint32_t d = 0; d < count(code.input(i)->dims()); ++d) {
      const fb::Dim* dim = code.input(i)->dims()->Get(d);
      dims[first_dim[i] + d] = narrowed ? (*narrowed)[first_dim[i] + d] : Interval{dim->min(), dim->max()};
    }
  HUSK_TRY(output_data.allocate(allocator(), code.outputs(), error));
  HUSK_TRY(output_bytes.allocate(allocator(), code.outputs(), error));
  HUSK_TRY(output_align.allocate(allocator(), code.outputs(), error));
  for (const fb::Buffer& buffer : code.buffers) {
    if (buffer.space() == uint8_t(Space::input)) input_align[buffer.index()] = 1u << buffer.align_log2();
    if (buffer.space() == uint8_t(Space::output)) output_align[buffer.index()] = 1u << buffer.align_log2();
  }
  return Status::ok;
}

Status Frame::prepare_blocks(husk_error* error) {
  const uint32_t n = code.buffers.size;
  HUSK_TRY(base.allocate(allocator(), n, error));
  HUSK_TRY(capacity.allocate(allocator(), n, error));
  HUSK_TRY(block_of.allocate(allocator(), n, error));
  HUSK_TRY(sized_in.allocate(allocator(), n, error));
  HUSK_TRY(on_demand.allocate(allocator(), n, error));
  HUSK_TRY(rooms.allocate(allocator(), code.segments.size, error));
  HUSK_TRY(written.allocate(allocator(), code.segments.size, error));
  uint32_t in_arena = 0;
  for (uint32_t b = 0; b < n; ++b) {
    block_of[b] = code.buffers[b].space() == uint8_t(Space::arena) ? in_arena++ : kNone;
    while (code.buffers[b].size() >= code.segments[sized_in[b]].scalar_end()) ++sized_in[b];
  }
  HUSK_TRY(blocks.allocate(allocator(), in_arena, error));
  HUSK_TRY(planner.reserve(allocator(), in_arena, code.steps.size, error));
  if (code.segments.size > 1) HUSK_TRY(segment_blocks.allocate(allocator(), in_arena, error));
  for (uint32_t b = 0; b < n; ++b)
    if (block_of[b] != kNone) blocks[block_of[b]] = {0, 1ull << code.buffers[b].align_log2(), 0, 0, 0};
  for (const Access& access : accesses) {
    const fb::Buffer& buffer = code.buffers[access.buffer];
    if (buffer.space() == uint8_t(Space::input)) input_written[buffer.index()] |= writes(access.access);
  }
  find_lives(code, accesses, block_of.data(), blocks.data(), blocks.size());
  return Status::ok;
}

// Which blocks may share memory when independent steps run side by side.
Status Frame::prepare_parallel(husk_error* error) {
  Order order;
  HUSK_TRY(order.build(code, accesses, nullptr, allocator(), error));
  return find_shareable(order, accesses, block_of.data(), blocks.size(), allocator(), &shareable, error);
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
      return fixed(view.offset()) && fixed(view.extent()) && space != Space::input && space != Space::output &&
             sized_in[view.buffer()] == 0;
    }
    case ArgumentKind::null: return true;
    default: return false;
  }
}

Status Frame::prepare_steps(husk_error* error) {
  const uint32_t n = code.arguments.size;
  HUSK_TRY(values.allocate(allocator(), n, error));
  HUSK_TRY(params.allocate(allocator(), n, error));
  HUSK_TRY(dynamic.allocate(allocator(), n, error));
  HUSK_TRY(first_dynamic.allocate(allocator(), code.steps.size + 1, error));
  HUSK_TRY(launches.allocate(allocator(), code.steps.size, error));
  for (uint32_t i = 0; i < n; ++i) params[i] = &values[i];
  uint32_t filled = 0;
  bool ops = false;
  for (uint32_t s = 0; s < code.steps.size; ++s) {
    const fb::Instruction& step = code.steps[s];
    const bool launch = static_cast<Step>(step.op()) == Step::op_launch;
    ops = ops || static_cast<Step>(step.op()) == Step::op_extern;
    first_dynamic[s] = filled;
    // Steps may share their arguments, so the positions are written down for each.
    for (uint32_t i = launch ? 3 : 0; i < step.c() && filled < n; ++i)
      if (!is_static(code.arguments[step.b() + i])) dynamic[filled++] = step.b() + i;
    if (!launch) continue;
    const fb::Kernel* kernel = code.program->kernels()->Get(step.a());
    husk_launch& out = launches[s];
    for (uint32_t d = 0; d < 3; ++d) out.block[d] = kernel->block()->Get(d);
    out.shared_bytes = kernel->shared();
    out.cluster = kernel->cluster();
    out.flags = kernel->flags() & kCooperative ? HUSK_LAUNCH_COOPERATIVE : 0;
    out.params = params.data() + step.b() + 3;
  }
  first_dynamic[code.steps.size] = filled;
  if (!ops) return Status::ok;
  HUSK_TRY(op_args.allocate(allocator(), n, error));
  return op_sizes.allocate(allocator(), code.operands.size, error);
}

Status Frame::prepare_results(husk_error* error) {
  HUSK_TRY(first_result.allocate(allocator(), code.segments.size + 1, error));
  for (uint32_t s = 0; s < code.segments.size; ++s) {
    first_result[s + 1] = first_result[s];
    for (uint32_t n = code.segments[s].step_begin(); n < code.segments[s].step_end(); ++n)
      first_result[s + 1] += code.values_of(code.steps[n]);
  }
  HUSK_TRY(results.allocate(allocator(), first_result[code.segments.size], error));
  HUSK_TRY(result_segment.allocate(allocator(), code.outputs(), error));
  HUSK_TRY(own.allocate(allocator(), code.outputs(), error));
  HUSK_TRY(own_tensors.allocate(allocator(), code.outputs(), error));
  HUSK_TRY(first_own.allocate(allocator(), code.outputs() + 1, error));
  for (uint32_t i = 0; i < code.outputs(); ++i) {
    first_own[i + 1] = first_own[i];
    if (static_cast<ArgumentKind>(code.results[i].kind()) != ArgumentKind::tensor) continue;
    const fb::Tensor& tensor = code.tensors[code.results[i].index()];
    first_own[i + 1] += 2u * tensor.rank();
    uint32_t last = code.buffers[code.views[tensor.view()].buffer()].size();
    for (uint32_t d = 0; d < 2u * tensor.rank(); ++d)
      if (code.operands[tensor.first() + d] > last) last = code.operands[tensor.first() + d];
    while (last >= code.segments[result_segment[i]].scalar_end()) ++result_segment[i];
  }
  return own_shapes.allocate(allocator(), first_own[code.outputs()], error);
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
    on_demand[b] = sized_in[b] > 0 && !bound;
    fits = fits && (bound || on_demand[b]);
    blocks[block_of[b]].size = bound ? static_cast<uint64_t>(high) : 0;
  }
  husk_error ignored;
  if (fits && !failed(plan(&ignored)) && planned.peak <= limit) return true;
  for (uint32_t b = 0; b < code.buffers.size; ++b) on_demand[b] = block_of[b] != kNone && sized_in[b] > 0;
  return false;
}

bool Frame::is_dynamic() const {
  for (uint8_t demanded : on_demand)
    if (demanded) return true;
  return false;
}

Status Frame::plan(husk_error* error) {
  for (uint32_t b = 0; b < code.buffers.size; ++b) {
    if (block_of[b] == kNone) continue;
    Block& block = blocks[block_of[b]];
    if (!bounded && evaluated) {
      const int64_t bytes = on_demand[b] ? 0 : registers[code.buffers[b].size()].i;
      block.size = bytes > 0 ? static_cast<uint64_t>(bytes) : 0;
    }
    if (block.size > kLargest)
      return fail(error, HUSK_OUT_OF_MEMORY, "function '%s': buffer %s would take %llu bytes",
                  code.function->name()->c_str(), code.label(b).text, static_cast<unsigned long long>(block.size));
  }
  planned = planner.place(blocks.data(), blocks.size(), nullptr);
  parallel = false;
  if (shareable.words() != 0) plan_parallel();
  plan_hash = Graph::hash_plan(*this);
  return Status::ok;
}

Status Frame::place_on_demand(uint32_t segment, husk_error* error) {
  size_t n = 0;
  for (uint32_t b = 0; b < code.buffers.size; ++b) {
    if (!on_demand[b] || sized_in[b] != segment) continue;
    const int64_t bytes = registers[code.buffers[b].size()].i;
    Block& block = segment_blocks[n++];
    block = blocks[block_of[b]];
    block.size = bytes > 0 ? static_cast<uint64_t>(bytes) : 0;
    if (block.size > kLargest)
      return fail(error, HUSK_OUT_OF_MEMORY, "function '%s': buffer %s would take %llu bytes",
                  code.function->name()->c_str(), code.label(b).text, static_cast<unsigned long long>(block.size));
  }
  if (n == 0) return Status::ok;
  const Planned here = planner.place(segment_blocks.data(), n, nullptr);
  HUSK_TRY(session->reserve(&rooms[segment], here.peak, "sizes that only the data decides", error));
  n = 0;
  for (uint32_t b = 0; b < code.buffers.size; ++b) {
    if (!on_demand[b] || sized_in[b] != segment) continue;
    base[b] = static_cast<uint8_t*>(rooms[segment].data) + segment_blocks[n].offset;
    capacity[b] = segment_blocks[n++].size;
  }
  return Status::ok;
}

void Frame::drop_rooms() {
  for (Array<Room>* all : {&rooms, &own, &copies})
    for (Room& room : *all) session->drop(&room);
}

void Frame::plan_parallel() {
  const uint64_t tight = planned.peak;
  const uint64_t percent = options->parallel_percent ? static_cast<uint64_t>(options->parallel_percent) : 25;
  planned = planner.place(blocks.data(), blocks.size(), &shareable);
  parallel = planned.peak <= tight + tight / 100 * percent + kArenaAlign * blocks.size();
  if (!parallel) planned = planner.place(blocks.data(), blocks.size(), nullptr);
}

void Frame::lay_out(uint8_t* new_arena, uint8_t* const* states, uint64_t new_layout) {
  arena = new_arena;
  for (uint32_t b = 0; b < code.buffers.size; ++b) {
    const fb::Buffer& buffer = code.buffers[b];
    switch (static_cast<Space>(buffer.space())) {
      case Space::arena:
        if (on_demand[b]) break;  // place_on_demand, each run
        base[b] = arena ? arena + blocks[block_of[b]].offset : nullptr;
        capacity[b] = blocks[block_of[b]].size;
        break;
      case Space::constant:
        base[b] = program->constants[buffer.index()];
        capacity[b] = program->rows()->constants()->Get(buffer.index())->blob()->size();
        break;
      case Space::state:
        base[b] = states[buffer.index()];
        capacity[b] = state_bytes(program->rows()->states()->Get(buffer.index()));
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
    moved = moved || base[b] != data || capacity[b] != bytes;
    base[b] = data;
    capacity[b] = bytes;
  };
  for (uint32_t b = 0; b < code.buffers.size; ++b) {
    const fb::Buffer& buffer = code.buffers[b];
    if (buffer.space() == uint8_t(Space::input))
      place(b, inputs[buffer.index()].data, inputs[buffer.index()].bytes);
    else if (buffer.space() == uint8_t(Space::output))
      place(b, output_data[buffer.index()], output_bytes[buffer.index()]);
  }
  return moved;
}

}  // namespace husk
