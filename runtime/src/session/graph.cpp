#include "session/graph.h"

#include <cstring>

#include "session/session.h"

namespace husk::runtime {
namespace {

// FNV-1a. It distinguishes the plans of one function, and needs no more strength.
struct Mixer {
  uint64_t state = 14695981039346656037ull;
  void add(uint64_t value) {
    for (int i = 0; i < 8; ++i, value >>= 8) state = (state ^ (value & 0xFF)) * 1099511628211ull;
  }
};

bool can_be_node(uint16_t op) {
  const auto kind = static_cast<Step>(op);
  return kind == Step::op_launch || kind == Step::op_copy || kind == Step::op_fill;
}

// Returns whether the argument is a view of an input or output whose address is not known in a
// resize.
bool is_unknown(const Frame& frame, const fb::Argument& argument) {
  const uint32_t view = frame.code.view_of(argument);
  return view != kNone && !frame.memory.places[frame.code.views[view].buffer()].base;
}

// Writes placeholder addresses for unknown ones. Kernel nodes accept any address; copy and fill
// nodes need valid device memory, so they get the other operand's or the arena's address. A node is
// always patched before a launch. Returns false if there is no such address.
bool use_placeholder_address(Frame& frame, uint32_t step) {
  const fb::Instruction& op = frame.code.steps[step];
  const auto kind = static_cast<Step>(op.op());
  if (kind == Step::op_launch) return true;
  const fb::Argument* arguments = &frame.code.arguments[op.b()];
  uint64_t* values = frame.arguments.values.data() + op.b();
  const bool to = is_unknown(frame, arguments[0]),
             from = kind == Step::op_copy && is_unknown(frame, arguments[1]);
  if (!to && !from) return true;
  const int64_t extent = frame.prologue.registers[frame.code.views[arguments[0].index()].extent()]
                             .i;
  uint64_t address = reinterpret_cast<uintptr_t>(frame.memory.arena);
  if (kind == Step::op_copy && to != from)
    address = values[to ? 1 : 0];
  else if (static_cast<uint64_t>(extent) > frame.memory.planned.peak)
    return false;
  if (to) values[0] = address;
  if (from) values[1] = address;
  return true;
}

// Writes to the application's log why a function has no graph.
void explain(const Frame& frame, uint32_t step, const char* why) {
  const husk_engine_options& options = frame.program->engine->options;
  if (!options.log) return;
  husk_error text;
  (void)fail(&text, HUSK_OK, "%s: no graph, it runs as a launch list", why);
  frame.arguments.add_step_context(step, &text);
  prefix(&text, "function '%s': ", frame.code.function->name()->c_str());
  options.log(options.log_user, HUSK_LOG_INFO, text.text);
}

bool pdl_waits_first(const Frame& frame, uint32_t step) {
  const fb::Instruction& op = frame.code.steps[step];
  return static_cast<Step>(op.op()) == Step::op_launch &&
         (frame.code.program->kernels()->Get(op.a())->flags() & kPdlWaitFirst);
}

}  // namespace

uint64_t Graph::hash_plan(const MemoryPlan& memory) {
  Mixer mixer;
  for (const Block& block : memory.blocks) {
    mixer.add(block.offset);
    mixer.add(block.size);
  }
  return mixer.state | 1;
}

void Graph::reset(const Frame& frame) {
  if (exec_) frame.session->port()->graphs->exec_destroy(frame.session->device(), exec_);
  exec_ = nullptr;
  current_ = false;
  nodes = edges = programmatic_edges = 0;
}

Status Graph::build(Frame& frame, husk_error* error) {
  const Code& code = frame.code;
  const husk_port_graphs* graphs = frame.session->port()->graphs;
  reset(frame);
  if (!graphs || code.segments.size != 1 || code.steps.size == 0 || code.has_host_buffers())
    return Status::ok;
  for (uint32_t s = 0; s < code.steps.size; ++s) {
    const char* why = !can_be_node(code.steps[s].op()) ? "an extern op"
                      : frame.arguments.is_empty(s)    ? "nothing to do at this shape"
                      : !use_placeholder_address(frame, s)
                          ? "a copy between tensors of the caller's, larger than the arena"
                          : nullptr;
    if (!why) continue;
    explain(frame, s, why);
    return Status::ok;
  }

  Array<Placement> placements;
  HUSK_TRY(placements.allocate(frame.session->allocator(), code.buffers.size, error));
  for (uint32_t b = 0; b < code.buffers.size; ++b)
    if (frame.memory.block_of[b] != kNone)
      placements[b] = {frame.memory.blocks[frame.memory.block_of[b]].offset,
                       frame.memory.blocks[frame.memory.block_of[b]].size};
  Dependences dependences;
  HUSK_TRY(dependences.build(code, frame.memory.accesses, placements.data(),
                             frame.session->allocator(), error));
  HUSK_TRY(values_.allocate(frame.session->allocator(), code.arguments.size, error));
  HUSK_TRY(sizes_.allocate(frame.session->allocator(), code.steps.size, error));

  void* graph = nullptr;
  HUSK_TRY(to_status(graphs->graph_create(frame.session->device(), &graph, error)));
  Status status = add_nodes(frame, graph, dependences, error);
  if (!failed(status))
    status = to_status(graphs->graph_instantiate(frame.session->device(), graph, &exec_, error));
  graphs->graph_destroy(frame.session->device(), graph);
  if (failed(status)) {
    exec_ = nullptr;
    nodes = edges = programmatic_edges = 0;
    return status;
  }
  plan_hash_ = frame.memory.plan_hash;
  for (uint32_t s = 0; s < code.steps.size; ++s) remember(frame, s);
  return Status::ok;
}

Status Graph::add_nodes(Frame& frame, void* graph, const Dependences& dependences,
                        husk_error* error) {
  const Code& code = frame.code;
  const husk_port_graphs* graphs = frame.session->port()->graphs;
  List<husk_graph_edge> before;
  size_t edge = 0;
  for (uint32_t s = 0; s < code.steps.size; ++s) {
    before.clear();
    for (; edge < dependences.edges.size() && dependences.edges[edge].to == s; ++edge) {
      const uint32_t from = dependences.edges[edge].from;
      // A kernel that waits first may start before a kernel that it depends on has ended: its wait
      // covers the end of that kernel, and of everything that kernel waited for.
      const bool early = !frame.session->options.full_edges && pdl_waits_first(frame, s) &&
                         static_cast<Step>(code.steps[from].op()) == Step::op_launch;
      HUSK_TRY(before.push(frame.session->allocator(), {from, early}, error));
      ++edges;
      programmatic_edges += early;
    }
    const fb::Instruction& op = code.steps[s];
    const uint64_t* v = frame.arguments.values.data() + op.b();
    const uint32_t count = static_cast<uint32_t>(before.size());
    husk_status status = HUSK_OK;
    switch (static_cast<Step>(op.op())) {
      case Step::op_launch:
        status = graphs->graph_add_kernel(
            frame.session->device(), graph, frame.program->kernels[op.a()],
            &frame.arguments.states[s].launch, before.begin(), count, error);
        break;
      case Step::op_copy:
        status = graphs->graph_add_copy(
            frame.session->device(), graph, reinterpret_cast<void*>(v[0]),
            reinterpret_cast<void*>(v[1]), frame.arguments.states[s].length, before.begin(), count,
            error);
        break;
      default:
        status = graphs->graph_add_fill(
            frame.session->device(), graph, reinterpret_cast<void*>(v[0]), v[1],
            frame.arguments.fill_width(s), frame.arguments.states[s].length, before.begin(), count,
            error);
    }
    if (status != HUSK_OK) {
      frame.arguments.add_step_context(s, error);
      return to_status(status);
    }
    ++nodes;
  }
  return Status::ok;
}

bool Graph::changed(const Frame& frame, uint32_t step) const {
  const fb::Instruction& op = frame.code.steps[step];
  const StepState& state = frame.arguments.states[step];
  return memcmp(values_.data() + op.b(), frame.arguments.values.data() + op.b(),
                op.c() * sizeof(uint64_t)) != 0 ||
         memcmp(sizes_[step].grid, state.launch.grid, sizeof(state.launch.grid)) != 0 ||
         sizes_[step].length != state.length;
}

void Graph::remember(const Frame& frame, uint32_t step) {
  const fb::Instruction& op = frame.code.steps[step];
  memcpy(values_.data() + op.b(), frame.arguments.values.data() + op.b(),
         op.c() * sizeof(uint64_t));
  memcpy(sizes_[step].grid, frame.arguments.states[step].launch.grid, sizeof(sizes_[step].grid));
  sizes_[step].length = frame.arguments.states[step].length;
}

Status Graph::patch(Frame& frame, uint32_t step, husk_error* error) {
  const husk_port_graphs* graphs = frame.session->port()->graphs;
  const fb::Instruction& op = frame.code.steps[step];
  const uint64_t* v = frame.arguments.values.data() + op.b();
  switch (static_cast<Step>(op.op())) {
    case Step::op_launch:
      return to_status(graphs->exec_set_kernel(frame.session->device(), exec_, step,
                                               frame.program->kernels[op.a()],
                                               &frame.arguments.states[step].launch, error));
    case Step::op_copy:
      return to_status(graphs->exec_set_copy(
          frame.session->device(), exec_, step, reinterpret_cast<void*>(v[0]),
          reinterpret_cast<void*>(v[1]), frame.arguments.states[step].length, error));
    default:
      return to_status(graphs->exec_set_fill(
          frame.session->device(), exec_, step, reinterpret_cast<void*>(v[0]), v[1],
          frame.arguments.fill_width(step), frame.arguments.states[step].length, error));
  }
}

Status Graph::run(Frame& frame, void* stream, bool nothing_changed, bool* launched,
                  husk_error* error) {
  *launched = false;
  husk_error rejected;
  const uint32_t steps = nothing_changed && current_ ? 0 : frame.code.steps.size;
  current_ = false;
  for (uint32_t s = 0; s < steps; ++s) {
    if (!changed(frame, s)) continue;
    if (frame.arguments.is_empty(s) || failed(patch(frame, s, &rejected))) return Status::ok;
    remember(frame, s);
    ++patched;
  }
  *launched = current_ = true;
  return to_status(
      frame.session->port()->graphs->exec_launch(frame.session->device(), exec_, stream, error));
}

}  // namespace husk::runtime
