#include "frame.h"

#include <cstring>

namespace husk {
namespace {

constexpr uint64_t kLargest = 1ull << 48;  // bytes; sums of a million such still fit

}  // namespace

Status Frame::prepare(husk_program* p, uint32_t function, const husk_session_options* o, husk_error* error) {
  program = p;
  options = o;
  code = p->code(function);
  HUSK_TRY(inputs.allocate(allocator(), code.inputs(), error));
  HUSK_TRY(input_bytes.allocate(allocator(), code.inputs(), error));
  HUSK_TRY(input_written.allocate(allocator(), code.inputs(), error));
  HUSK_TRY(first_stride.allocate(allocator(), code.inputs(), error));
  HUSK_TRY(output_data.allocate(allocator(), code.outputs(), error));
  HUSK_TRY(output_bytes.allocate(allocator(), code.outputs(), error));
  uint32_t ranks = 0;
  for (uint32_t i = 0; i < code.inputs(); ++i) {
    first_stride[i] = ranks;
    ranks += code.input(i)->rank();
  }
  HUSK_TRY(strides.allocate(allocator(), ranks, error));
  HUSK_TRY(registers.allocate(allocator(), code.scalars.size, error));
  HUSK_TRY(last_registers.allocate(allocator(), code.scalars.size, error));
  HUSK_TRY(intervals.allocate(allocator(), code.scalars.size, error));
  for (uint32_t r = 0; r < code.scalars.size; ++r) intervals[r] = interval(code, r, intervals.data());
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

Status Frame::prepare_blocks(husk_error* error) {
  const uint32_t n = code.buffers.size;
  HUSK_TRY(base.allocate(allocator(), n, error));
  HUSK_TRY(capacity.allocate(allocator(), n, error));
  HUSK_TRY(block_of.allocate(allocator(), n, error));
  uint32_t in_arena = 0;
  for (uint32_t b = 0; b < n; ++b)
    block_of[b] = code.buffers[b].space() == uint8_t(Space::arena) ? in_arena++ : kNone;
  HUSK_TRY(blocks.allocate(allocator(), in_arena, error));
  HUSK_TRY(planner.reserve(allocator(), in_arena, code.steps.size, error));
  for (uint32_t b = 0; b < n; ++b)
    if (block_of[b] != kNone) blocks[block_of[b]] = {0, 1ull << code.buffers[b].align_log2(), UINT32_MAX, 0, 0};
  for (const Access& access : accesses) {
    const fb::Buffer& buffer = code.buffers[access.buffer];
    if (buffer.space() == uint8_t(Space::input)) input_written[buffer.index()] |= writes(access.access);
    if (block_of[access.buffer] == kNone) continue;
    Block& block = blocks[block_of[access.buffer]];
    if (access.step < block.first) block.first = access.step;
    if (access.step > block.last) block.last = access.step;
  }
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
      return fixed(view.offset()) && fixed(view.extent()) && space != Space::input && space != Space::output;
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
  HUSK_TRY(result_segment.allocate(allocator(), code.outputs(), error));
  for (uint32_t i = 0; i < code.outputs(); ++i) {
    if (static_cast<ArgumentKind>(code.results[i].kind()) != ArgumentKind::tensor) continue;
    const fb::Tensor& tensor = code.tensors[code.results[i].index()];
    for (uint32_t d = 0; d < 2u * tensor.rank(); ++d)
      while (code.operands[tensor.first() + d] >= code.segments[result_segment[i]].scalar_end()) ++result_segment[i];
  }
  return Status::ok;
}

bool Frame::plan_at_bounds() {
  uint64_t limit = options->bound_limit ? options->bound_limit : 256ull << 20;
  for (uint32_t b = 0; b < code.buffers.size; ++b) {
    if (block_of[b] == kNone) continue;
    const int64_t high = intervals[code.buffers[b].size()].high;
    Block& block = blocks[block_of[b]];
    if (high == INT64_MAX || high < 0 || static_cast<uint64_t>(high) > limit) return false;
    block.size = static_cast<uint64_t>(high);
  }
  husk_error ignored;
  return !failed(plan(&ignored)) && planned.peak <= limit;
}

Status Frame::plan(husk_error* error) {
  for (uint32_t b = 0; b < code.buffers.size; ++b) {
    if (block_of[b] == kNone) continue;
    Block& block = blocks[block_of[b]];
    if (!bounded && evaluated) {
      const uint32_t size = code.buffers[b].size();
      const int64_t bytes = size < code.segments[0].scalar_end() ? registers[size].i : intervals[size].high;
      if (bytes == INT64_MAX)
        return fail(error, HUSK_UNSUPPORTED, "function '%s': buffer %u has a size that only the device knows, and no bound: "
                    "give its symbol a range when exporting", code.function->name()->c_str(), b);
      block.size = bytes > 0 ? static_cast<uint64_t>(bytes) : 0;
    }
    if (block.size > kLargest)
      return fail(error, HUSK_OUT_OF_MEMORY, "function '%s': buffer %u would take %llu bytes",
                  code.function->name()->c_str(), b, static_cast<unsigned long long>(block.size));
  }
  planned = planner.place(blocks.data(), blocks.size(), nullptr);
  parallel = false;
  if (shareable.words() != 0) plan_parallel();
  plan_hash = Graph::hash_plan(*this);
  return Status::ok;
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
        base[b] = arena + blocks[block_of[b]].offset;
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
