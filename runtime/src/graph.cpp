#include "graph.h"

#include "session.h"

#include <cstring>

namespace husk {
namespace {

// FNV-1a: only tells plans of one frame apart.
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

// A view of the caller's memory, which a resize need not know. A kernel node takes any address until it is patched; copy and
// fill nodes want memory of the device. They get the other side's, or the arena's: no run sees it, since a node whose
// address is another is patched before it is launched.
bool is_unknown(const Frame& frame, const fb::Argument& argument) {
  const uint32_t view = frame.code.view_of(argument);
  return view != kNone && !frame.places[frame.code.views[view].buffer()].base;
}

// Writes an address in place of the unknown ones; false if there is none to take.
bool stand_in(Frame& frame, uint32_t step) {
  const fb::Instruction& op = frame.code.steps[step];
  const auto kind = static_cast<Step>(op.op());
  if (kind == Step::op_launch) return true;
  const fb::Argument* arguments = &frame.code.arguments[op.b()];
  uint64_t* values = frame.values + op.b();
  const bool to = is_unknown(frame, arguments[0]), from = kind == Step::op_copy && is_unknown(frame, arguments[1]);
  if (!to && !from) return true;
  const int64_t extent = frame.registers[frame.code.views[arguments[0].index()].extent()].i;
  uint64_t address = reinterpret_cast<uintptr_t>(frame.arena);
  if (kind == Step::op_copy && to != from)
    address = values[to ? 1 : 0];
  else if (static_cast<uint64_t>(extent) > frame.planned.peak)
    return false;
  if (to) values[0] = address;
  if (from) values[1] = address;
  return true;
}

// Tells the application's log why a function that might have a graph has none.
void explain(const Frame& frame, uint32_t step, const char* why) {
  const husk_engine_options& options = frame.program->engine->options;
  if (!options.log) return;
  husk_error text;
  (void)fail(&text, HUSK_OK, "%s: no graph, it runs as a launch list", why);
  frame.blame(step, &text);
  prefix(&text, "function '%s': ", frame.code.function->name()->c_str());
  options.log(options.log_user, HUSK_LOG_INFO, text.text);
}

bool waits_first(const Frame& frame, uint32_t step) {
  const fb::Instruction& op = frame.code.steps[step];
  return static_cast<Step>(op.op()) == Step::op_launch &&
         (frame.code.program->kernels()->Get(op.a())->flags() & kWaitsFirst);
}

}  // namespace

uint64_t Graph::hash_plan(const Frame& frame) {
  Mixer mixer;
  for (uint32_t i = 0; i < frame.block_count; ++i) {
    mixer.add(frame.blocks[i].offset);
    mixer.add(frame.blocks[i].size);
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
  if (!graphs || code.segments.size != 1 || code.steps.size == 0) return Status::ok;
  for (uint32_t s = 0; s < code.steps.size; ++s) {
    const char* why = !can_be_node(code.steps[s].op()) ? "an extern op"
                      : frame.is_empty(s)              ? "nothing to do at this shape"
                      : !stand_in(frame, s)            ? "a copy between tensors of the caller's, larger than the arena"
                                                       : nullptr;
    if (!why) continue;
    explain(frame, s, why);
    return Status::ok;
  }

  Array<Placement> placements;
  HUSK_TRY(placements.allocate(frame.allocator(), code.buffers.size, error));
  for (uint32_t b = 0; b < code.buffers.size; ++b)
    if (frame.block_of[b] != kNone) placements[b] = {frame.blocks[frame.block_of[b]].offset,
                                                     frame.blocks[frame.block_of[b]].size};
  Order order;
  HUSK_TRY(order.build(code, frame.accesses, placements.data(), frame.allocator(), error));
  HUSK_TRY(values_.allocate(frame.allocator(), code.arguments.size, error));
  HUSK_TRY(grids_.allocate(frame.allocator(), 3 * code.steps.size, error));

  void* graph = nullptr;
  HUSK_TRY(to_status(graphs->graph_create(frame.session->device(), &graph, error)));
  Status status = add_nodes(frame, graph, order, error);
  if (!failed(status)) status = to_status(graphs->graph_instantiate(frame.session->device(), graph, &exec_, error));
  graphs->graph_destroy(frame.session->device(), graph);
  if (failed(status)) {
    exec_ = nullptr;
    nodes = edges = programmatic_edges = 0;
    return status;
  }
  plan_hash_ = hash_plan(frame);
  for (uint32_t s = 0; s < code.steps.size; ++s) remember(frame, s);
  return Status::ok;
}

Status Graph::add_nodes(Frame& frame, void* graph, const Order& order, husk_error* error) {
  const Code& code = frame.code;
  const husk_port_graphs* graphs = frame.session->port()->graphs;
  List<husk_graph_edge> before;
  size_t edge = 0;
  for (uint32_t s = 0; s < code.steps.size; ++s) {
    before.clear();
    for (; edge < order.edges.size() && order.edges[edge].to == s; ++edge) {
      const uint32_t from = order.edges[edge].from;
      // A step that waits first may start before the one it waits for has ended, if that is a kernel too: the wait is for
      // its end, and for the end of all that it waited for.
      const bool early = !frame.options->full_edges && waits_first(frame, s) &&
                         static_cast<Step>(code.steps[from].op()) == Step::op_launch;
      HUSK_TRY(before.push(frame.allocator(), {from, early}, error));
      ++edges;
      programmatic_edges += early;
    }
    const fb::Instruction& op = code.steps[s];
    const uint64_t* v = frame.values + op.b();
    const uint32_t count = static_cast<uint32_t>(before.size());
    husk_status status = HUSK_OK;
    switch (static_cast<Step>(op.op())) {
      case Step::op_launch:
        status = graphs->graph_add_kernel(frame.session->device(), graph, frame.program->kernels[op.a()], &frame.step_states[s].launch,
                                          before.begin(), count, error);
        break;
      case Step::op_copy:
        status = graphs->graph_add_copy(frame.session->device(), graph, reinterpret_cast<void*>(v[0]),
                                        reinterpret_cast<void*>(v[1]), frame.step_length(s), before.begin(), count, error);
        break;
      default:
        status = graphs->graph_add_fill(frame.session->device(), graph, reinterpret_cast<void*>(v[0]), v[1], frame.fill_width(s),
                                        frame.step_length(s), before.begin(), count, error);
    }
    if (status != HUSK_OK) {
      frame.blame(s, error);
      return to_status(status);
    }
    ++nodes;
  }
  return Status::ok;
}

bool Graph::changed(const Frame& frame, uint32_t step) const {
  const fb::Instruction& op = frame.code.steps[step];
  return memcmp(&values_[op.b()], &frame.values[op.b()], op.c() * sizeof(uint64_t)) != 0 ||
         memcmp(&grids_[3 * step], frame.step_states[step].launch.grid, 3 * sizeof(uint32_t)) != 0;
}

void Graph::remember(const Frame& frame, uint32_t step) {
  const fb::Instruction& op = frame.code.steps[step];
  memcpy(&values_[op.b()], &frame.values[op.b()], op.c() * sizeof(uint64_t));
  memcpy(&grids_[3 * step], frame.step_states[step].launch.grid, 3 * sizeof(uint32_t));
}

Status Graph::patch(Frame& frame, uint32_t step, husk_error* error) {
  const husk_port_graphs* graphs = frame.session->port()->graphs;
  const fb::Instruction& op = frame.code.steps[step];
  const uint64_t* v = frame.values + op.b();
  switch (static_cast<Step>(op.op())) {
    case Step::op_launch:
      return to_status(graphs->exec_set_kernel(frame.session->device(), exec_, step, frame.program->kernels[op.a()],
                                               &frame.step_states[step].launch, error));
    case Step::op_copy:
      return to_status(graphs->exec_set_copy(frame.session->device(), exec_, step, reinterpret_cast<void*>(v[0]),
                                             reinterpret_cast<void*>(v[1]), frame.step_length(step), error));
    default:
      return to_status(graphs->exec_set_fill(frame.session->device(), exec_, step, reinterpret_cast<void*>(v[0]), v[1],
                                             frame.fill_width(step), frame.step_length(step), error));
  }
}

Status Graph::run(Frame& frame, void* stream, bool same, bool* done, husk_error* error) {
  *done = false;
  husk_error refused;
  const uint32_t steps = same && current_ ? 0 : frame.code.steps.size;
  current_ = false;
  for (uint32_t s = 0; s < steps; ++s) {
    if (!changed(frame, s)) continue;
    if (frame.is_empty(s) || failed(patch(frame, s, &refused))) return Status::ok;
    remember(frame, s);
    ++patched;
  }
  *done = current_ = true;
  return to_status(frame.session->port()->graphs->exec_launch(frame.session->device(), exec_, stream, error));
}

}  // namespace husk
