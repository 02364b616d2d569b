#include "session/graph_builder.h"

#include "base/align.h"

namespace husk::runtime {
namespace {

// A graph costs the host about as much as two launches. In a function of several segments, one with
// fewer steps is a list.
constexpr uint32_t kFewestSteps = 2;

// The most bytes of the caller's memory that the copies around captured calls move in one
// direction. A copy of that size takes about 3 us on a device with 3 TB/s, as long as a launch of
// the call in a list.
constexpr uint64_t kMostStagedBytes = 4ull << 20;

// A captured call finds its operand at an address with the same remainder as in memory that is
// aligned to this, so that it may choose what `prepare` has chosen.
constexpr uint64_t kStagingAlign = 256;

bool is_callers(const fb::Buffer& buffer) {
  const auto space = static_cast<Space>(buffer.space());
  return space == Space::input || space == Space::output;
}

bool captures(const husk_port_graphs& port) {
  return HUSK_HAS_FIELD(&port, captured_destroy) && port.capture_begin;
}

Step kind_of(const Code& code, uint32_t step) { return static_cast<Step>(code.steps[step].op()); }

// Returns whether a tensor has as many elements as its view has room for.
bool fills_view(const husk_op_arg& tensor, uint64_t view_bytes) {
  uint64_t bytes = husk_dtype_size(static_cast<husk_dtype>(tensor.dtype));
  for (int32_t d = 0; d < tensor.rank; ++d) bytes *= static_cast<uint64_t>(tensor.sizes[d]);
  return bytes == view_bytes;
}

}  // namespace

Graph::Builder::Builder(Graph& graph, Frame& frame)
    : graph_(graph),
      frame_(frame),
      code_(frame.code),
      session_(*frame.session),
      port_(*frame.session->port()->graphs),
      device_(frame.session->device()) {}

Graph::Builder::~Builder() {
  if (stream_) session_.port()->stream_destroy(device_, stream_);
}

Status Graph::build(Frame& frame, husk_error* error) {
  reset(frame);
  if (!frame.session->port()->graphs || frame.code.steps.size == 0 || frame.code.has_host_buffers())
    return Status::ok;
  Builder builder(*this, frame);
  Status status = builder.run(error);
  if (failed(status))
    reset(frame);
  else
    plan_hash_ = frame.memory.plan_hash;
  return status;
}

Status Graph::Builder::run(husk_error* error) {
  const husk_allocator& allocator = session_.allocator();
  const uint32_t segments = code_.segments.size;
  graph_.complete_ = true;
  HUSK_TRY(graph_.segments_.allocate(allocator, segments, error));
  HUSK_TRY(graph_.values_.allocate(allocator, code_.arguments.size, error));
  HUSK_TRY(graph_.steps_.allocate(allocator, code_.steps.size, error));
  HUSK_TRY(accepted_.allocate(allocator, segments, error));
  HUSK_TRY(register_used_.allocate(allocator, code_.scalars.size, error));
  HUSK_TRY(buffer_used_.allocate(allocator, code_.buffers.size, error));
  bool any = false;
  for (uint32_t s = 0; s < segments; ++s) HUSK_TRY(consider(s, error));
  allocate_staging();
  for (uint32_t s = 0; s < segments; ++s) any |= accepted_[s] != 0;
  if (!any) return Status::ok;

  Array<Placement> placements;
  HUSK_TRY(placements.allocate(allocator, code_.buffers.size, error));
  const MemoryPlan& memory = frame_.memory;
  for (uint32_t b = 0; b < code_.buffers.size; ++b)
    if (memory.block_of[b] != kNone)
      placements[b] = {memory.blocks[memory.block_of[b]].offset,
                       memory.blocks[memory.block_of[b]].size};
  HUSK_TRY(dependences_.build(code_, memory.accesses, placements.data(), allocator, error));
  for (uint32_t s = 0; s < segments; ++s)
    if (accepted_[s]) HUSK_TRY(build_segment(s, error));
  return Status::ok;
}

// Decides whether a segment is to have a graph, and collects what its captured calls use.
Status Graph::Builder::consider(uint32_t segment, husk_error* error) {
  const uint32_t begin = code_.segments[segment].step_begin();
  SegmentGraph& graph = graph_.segments_[segment];
  graph.step_end = begin;
  while (graph.step_end < code_.segments[segment].step_end() &&
         code_.result_count(code_.steps[graph.step_end]) == 0)
    ++graph.step_end;
  accepted_[segment] = graph.step_end - begin >= (code_.segments.size == 1 ? 1 : kFewestSteps);
  if (accepted_[segment])
    if (const Obstacle obstacle = find_obstacle(segment); obstacle.text) refuse(segment, obstacle);
  for (uint32_t s = begin; accepted_[segment] && s < graph.step_end; ++s) {
    if (kind_of(code_, s) != Step::op_extern) continue;
    HUSK_TRY(use_call(segment, s, error));
    if (staging_bytes_ > kMostStagedBytes)
      refuse(segment, {"an op that uses more than 4 MiB of the caller's memory", false, s});
  }
  graph.registers_end = static_cast<uint32_t>(graph_.registers_.size());
  graph.buffers_end = static_cast<uint32_t>(graph_.buffers_.size());
  graph.staged_end = static_cast<uint32_t>(graph_.staged_.size());
  return Status::ok;
}

Graph::Builder::Obstacle Graph::Builder::find_obstacle(uint32_t segment) const {
  for (uint32_t s = code_.segments[segment].step_begin(); s < graph_.step_end(segment); ++s) {
    Obstacle obstacle = find_step_obstacle(s);
    obstacle.step = s;
    if (obstacle.text) return obstacle;
  }
  return {};
}

Graph::Builder::Obstacle Graph::Builder::find_step_obstacle(uint32_t step) const {
  if (uses_memory_on_demand(step)) return {"memory whose size only the data decides", true};
  Transfer ignored;
  switch (kind_of(code_, step)) {
    case Step::op_extern: return find_call_obstacle(step);
    case Step::op_copy:
    case Step::op_fill:
      if (choose_transfer(step, &ignored)) break;
      return {"a copy between tensors of the caller's, larger than the arena", false};
    default: break;
  }
  if (is_prepared(step) && frame_.arguments.is_empty(step))
    return {"nothing to do at this shape", false};
  return {};
}

const husk_op& Graph::Builder::op_of(uint32_t step) const {
  return session_.program->ops[Device::target][code_.steps[step].a()];
}

Graph::Builder::Obstacle Graph::Builder::find_call_obstacle(uint32_t step) const {
  const husk_op& op = op_of(step);
  if (!(op.flags & HUSK_OP_CAPTURABLE)) return {"an op that is not HUSK_OP_CAPTURABLE", true};
  if (op.pack && frame_.arguments.has_packed()) return {"an op that packs constants", true};
  if (!captures(port_)) return {"an op, whose work the port cannot capture", true};
  if (!is_prepared(step)) return {"an op whose arguments are known only later", false};
  if (writes_shared_operand(step))
    return {"an op that writes memory of the caller and takes it as another operand too", false};
  return {};
}

bool Graph::Builder::uses_memory_on_demand(uint32_t step) const {
  const fb::Instruction& op = code_.steps[step];
  for (uint32_t i = op.b(); i < op.b() + op.c(); ++i) {
    const uint32_t view = code_.view_of(code_.arguments[i]);
    if (view != kNone && frame_.memory.places[code_.views[view].buffer()].on_demand) return true;
  }
  return false;
}

// Two operands in one buffer of the caller get two copies, so neither may be written.
bool Graph::Builder::writes_shared_operand(uint32_t step) const {
  const fb::Instruction& op = code_.steps[step];
  for (uint32_t i = op.b(); i < op.b() + op.c(); ++i)
    for (uint32_t j = op.b(); j < op.b() + op.c(); ++j) {
      const fb::Argument &written = code_.arguments[i], &other = code_.arguments[j];
      const uint32_t a = code_.view_of(written), b = code_.view_of(other);
      if (i == j || a == kNone || b == kNone || written.access() == HUSK_ACCESS_READ) continue;
      const uint32_t buffer = code_.views[a].buffer();
      if (buffer == code_.views[b].buffer() && is_callers(code_.buffers[buffer])) return true;
    }
  return false;
}

// Chooses valid addresses in place of those that only a run knows: nodes of copies and fills need
// device memory, so they get the other operand's or the arena's address. Returns false if there is
// no such address.
bool Graph::Builder::choose_transfer(uint32_t step, Transfer* out) const {
  const fb::Instruction& op = code_.steps[step];
  const bool copies = kind_of(code_, step) == Step::op_copy;
  const uint64_t* values = frame_.arguments.values.data() + op.b();
  const uint64_t width = copies ? 1 : frame_.arguments.fill_width(step);
  const uint64_t peak = frame_.memory.planned[Device::target].peak;
  void* const arena = frame_.memory.arenas[Device::target];
  if (!is_prepared(step)) {
    *out = {arena, arena, 1, false};
    return peak >= width;
  }
  const auto is_unknown = [&](const fb::Argument& argument) {
    const uint32_t view = code_.view_of(argument);
    return view != kNone && !frame_.memory.places[code_.views[view].buffer()].base;
  };
  const fb::Argument* arguments = &code_.arguments[op.b()];
  const bool to = is_unknown(arguments[0]), from = copies && is_unknown(arguments[1]);
  *out = {reinterpret_cast<void*>(values[0]), copies ? reinterpret_cast<void*>(values[1]) : nullptr,
          frame_.arguments.states[step].length, !to && !from};
  if (out->exact) return true;
  void* address = arena;
  if (copies && to != from)
    address = to ? out->from : out->to;
  else if (out->length > peak / width)
    return false;
  if (to) out->to = address;
  if (from) out->from = address;
  return true;
}

void Graph::Builder::refuse(uint32_t segment, Obstacle obstacle) {
  accepted_[segment] = 0;
  if (!obstacle.lasting) graph_.complete_ = false;
  const husk_engine_options& options = session_.program->engine->options;
  if (!options.log) return;
  husk_error text;
  (void)fail(&text, HUSK_OK, "no graph, it runs as a launch list: %s", obstacle.text);
  frame_.arguments.add_step_context(obstacle.step, &text);
  if (code_.segments.size > 1) prefix(&text, "segment %u: ", segment);
  prefix(&text, "function '%s': ", code_.function->name()->c_str());
  options.log(options.log_user, HUSK_LOG_INFO, text.text);
}

void Graph::Builder::refuse(uint32_t segment, uint32_t step, const char* what,
                            const husk_error& why) {
  husk_error text = why;
  prefix(&text, "%s: ", what);
  refuse(segment, {text.text, false, step});
}

// Remembers what decides the work of a call, and stages operands in the caller's memory.
Status Graph::Builder::use_call(uint32_t segment, uint32_t step, husk_error* error) {
  const fb::Instruction& op = code_.steps[step];
  for (uint32_t i = op.b(); i < op.b() + op.c(); ++i) {
    Status status = Status::ok;
    visit_registers(code_, code_.arguments[i], [&](uint32_t index) {
      if (!failed(status)) status = use_register(segment, index, error);
    });
    HUSK_TRY(status);
    if (code_.view_of(code_.arguments[i]) != kNone) HUSK_TRY(use_view(segment, step, i, error));
  }
  return Status::ok;
}

Status Graph::Builder::use_register(uint32_t segment, uint32_t index, husk_error* error) {
  if (register_used_[index] == segment + 1) return Status::ok;
  register_used_[index] = segment + 1;
  return graph_.registers_.push(session_.allocator(), {index, frame_.prologue.registers[index].i},
                                error);
}

Status Graph::Builder::use_view(uint32_t segment, uint32_t step, uint32_t argument,
                                husk_error* error) {
  const uint32_t index = code_.view_of(code_.arguments[argument]);
  const fb::View& view = code_.views[index];
  const uint32_t buffer = view.buffer();
  if (!is_callers(code_.buffers[buffer])) {
    if (buffer_used_[buffer] == segment + 1) return Status::ok;
    buffer_used_[buffer] = segment + 1;
    return graph_.buffers_.push(session_.allocator(), {buffer, frame_.memory.places[buffer].base},
                                error);
  }
  const Array<Register>& registers = frame_.prologue.registers;
  const auto length = static_cast<uint64_t>(registers[view.extent()].i);
  const auto offset = static_cast<uint64_t>(registers[view.offset()].i);
  const uint64_t at = align_up(staging_bytes_, kStagingAlign) + offset % kStagingAlign;
  // Elements that a call does not write must keep their values, so they are copied there first.
  const uint32_t access = code_.arguments[argument].access();
  const bool before = access != HUSK_ACCESS_WRITE ||
                      !fills_view(frame_.arguments.operand(argument), length);
  staging_bytes_ = length > kMostStagedBytes ? kMostStagedBytes + 1 : at + length;
  return graph_.staged_.push(
      session_.allocator(),
      {argument, step, before, writes(access), kNone, kNone, at, length, nullptr}, error);
}

// Segments whose operands are staged get no graph if there is no memory for that.
void Graph::Builder::allocate_staging() {
  husk_error why;
  if (!staging_bytes_ || !failed(session_.grow(&graph_.staging_, staging_bytes_,
                                               "copies of operands in the caller's memory", &why)))
    return;
  for (uint32_t s = 0; s < code_.segments.size; ++s) {
    const uint32_t first = graph_.begin_of(s, &SegmentGraph::staged_end);
    if (accepted_[s] && first < graph_.segments_[s].staged_end)
      refuse(s, graph_.staged_[first].step, "no memory", why);
  }
}

Status Graph::Builder::build_segment(uint32_t segment, husk_error* error) {
  HUSK_TRY(to_status(port_.graph_create(device_, &building_, error)));
  next_node_ = 0;
  const uint32_t nodes_before = graph_.nodes, edges_before = graph_.edges,
                 programmatic_before = graph_.programmatic_edges;
  SegmentGraph& graph = graph_.segments_[segment];
  Status status = add_steps(segment, error);
  if (!failed(status) && accepted_[segment])
    status = to_status(port_.graph_instantiate(device_, building_, &graph.exec, error));
  port_.graph_destroy(device_, building_);
  if (failed(status)) graph.exec = nullptr;
  if (graph.exec) return Status::ok;
  graph_.nodes = nodes_before;
  graph_.edges = edges_before;
  graph_.programmatic_edges = programmatic_before;
  return status;
}

Status Graph::Builder::add_steps(uint32_t segment, husk_error* error) {
  for (uint32_t s = code_.segments[segment].step_begin(); s < graph_.step_end(segment); ++s) {
    HUSK_TRY(collect_edges(segment, s, error));
    HUSK_TRY(kind_of(code_, s) == Step::op_extern ? add_call(segment, s, error)
                                                  : add_step(s, error));
    if (!accepted_[segment]) return Status::ok;
    graph_.steps_[s].last = next_node_ - 1;
  }
  return Status::ok;
}

// Whether a step is a launch, or a call that the port may make one.
bool Graph::Builder::is_kernel(uint32_t step) const {
  return kind_of(code_, step) == Step::op_launch || session_.program->may_wait_first(code_, step);
}

bool Graph::Builder::waits_first(uint32_t step) const {
  if (kind_of(code_, step) != Step::op_launch) return is_kernel(step);
  return code_.program->kernels()->Get(code_.steps[step].a())->flags() & kPdl;
}

// Collects the edges from earlier steps of the segment. Other segments are ordered by the stream.
Status Graph::Builder::collect_edges(uint32_t segment, uint32_t step, husk_error* error) {
  const List<Edge>& all = dependences_.edges;
  before_.clear();
  for (; edge_ < all.size() && all[edge_].to <= step; ++edge_) {
    const uint32_t from = all[edge_].from;
    if (all[edge_].to < step || from < code_.segments[segment].step_begin()) continue;
    // A kernel that waits first may start before a kernel that it depends on has ended: its wait
    // covers the end of that kernel, and of everything that kernel waited for.
    const bool early = !session_.options.full_edges && waits_first(step) && is_kernel(from);
    HUSK_TRY(before_.push(session_.allocator(), {graph_.steps_[from].last, early}, error));
    graph_.programmatic_edges += early;
  }
  return Status::ok;
}

// Counts a node that the port was to add. The next one waits for it, unless another step begins.
Status Graph::Builder::count_node(husk_status added, uint32_t step, husk_error* error) {
  if (added != HUSK_OK) {
    frame_.arguments.add_step_context(step, error);
    return to_status(added);
  }
  graph_.edges += static_cast<uint32_t>(before_.size());
  ++graph_.nodes;
  before_.clear();
  return before_.push(session_.allocator(), {next_node_++, 0}, error);
}

Status Graph::Builder::add_step(uint32_t step, husk_error* error) {
  const bool prepared = is_prepared(step);
  const fb::Instruction& op = code_.steps[step];
  const auto edge_count = static_cast<uint32_t>(before_.size());
  graph_.steps_[step].number = next_node_;
  graph_.remember(frame_, step);
  husk_status status = HUSK_OK;
  bool exact = prepared;
  if (kind_of(code_, step) == Step::op_launch) {
    husk_launch launch = frame_.arguments.states[step].launch;
    if (!prepared) {  // the numbers are known later; every number is valid but that of the blocks
      launch.grid[0] = launch.cluster;
      launch.grid[1] = launch.grid[2] = 1;
    }
    status = port_.graph_add_kernel(device_, building_, frame_.program->kernels[op.a()], &launch,
                                    before_.begin(), edge_count, error);
  } else {
    Transfer transfer;
    (void)choose_transfer(step, &transfer);  // consider() has refused a failure
    exact = transfer.exact;
    const uint64_t pattern = frame_.arguments.values[op.b() + 1];
    status = kind_of(code_, step) == Step::op_copy
                 ? port_.graph_add_copy(device_, building_, transfer.to, transfer.from,
                                        transfer.length, before_.begin(), edge_count, error)
                 : port_.graph_add_fill(device_, building_, transfer.to, pattern,
                                        frame_.arguments.fill_width(step), transfer.length,
                                        before_.begin(), edge_count, error);
  }
  if (!exact) graph_.steps_[step].length = kUnknown;
  return count_node(status, step, error);
}

// Adds a captured call, between copies of its operands in the caller's memory.
Status Graph::Builder::add_call(uint32_t segment, uint32_t step, husk_error* error) {
  husk_error why;
  void* captured = capture(segment, step, &why);
  if (!captured) {
    refuse(segment, step, "its work cannot be captured", why);
    return Status::ok;
  }
  Status status = add_staging_copies(segment, step, true, error);
  if (!failed(status))
    status = count_node(port_.graph_add_captured(device_, building_, captured, before_.begin(),
                                                 static_cast<uint32_t>(before_.size()), error),
                        step, error);
  port_.captured_destroy(device_, captured);
  HUSK_TRY(status);
  return add_staging_copies(segment, step, false, error);
}

// Adds the copies to staging memory, or from it, one after another.
Status Graph::Builder::add_staging_copies(uint32_t segment, uint32_t step, bool before,
                                          husk_error* error) {
  const uint32_t end = graph_.segments_[segment].staged_end;
  for (uint32_t i = graph_.begin_of(segment, &SegmentGraph::staged_end); i < end; ++i) {
    StagedOperand& operand = graph_.staged_[i];
    if (operand.step != step || !(before ? operand.is_read : operand.is_written)) continue;
    (before ? operand.before : operand.after) = next_node_;
    // A run puts the caller's address into its place.
    void* address = static_cast<uint8_t*>(graph_.staging_.data) + operand.offset;
    HUSK_TRY(count_node(
        port_.graph_add_copy(device_, building_, address, address, operand.length, before_.begin(),
                             static_cast<uint32_t>(before_.size()), error),
        step, error));
  }
  return Status::ok;
}

// Returns the captured work of a call, or null after filling `why`.
void* Graph::Builder::capture(uint32_t segment, uint32_t step, husk_error* why) {
  if (!stream_ && session_.port()->stream_create(device_, &stream_, why) != HUSK_OK) {
    stream_ = nullptr;
    return nullptr;
  }
  if (port_.capture_begin(device_, stream_, why) != HUSK_OK) return nullptr;
  use_staging(segment, step, true);
  Status status = frame_.arguments.run_step(step, stream_, why);
  use_staging(segment, step, false);
  void* captured = nullptr;
  husk_error second;
  if (port_.capture_end(device_, stream_, &captured, failed(status) ? &second : why) != HUSK_OK)
    return nullptr;
  if (!failed(status)) return captured;
  port_.captured_destroy(device_, captured);
  return nullptr;
}

void Graph::Builder::use_staging(uint32_t segment, uint32_t step, bool staged) {
  const uint32_t end = graph_.segments_[segment].staged_end;
  for (uint32_t i = graph_.begin_of(segment, &SegmentGraph::staged_end); i < end; ++i) {
    const StagedOperand& operand = graph_.staged_[i];
    if (operand.step != step) continue;
    const uint32_t view = code_.view_of(code_.arguments[operand.argument]);
    frame_.arguments.set_operand_address(
        operand.argument, staged ? static_cast<uint8_t*>(graph_.staging_.data) + operand.offset
                                 : frame_.memory.address(code_.views[view]));
  }
}

}  // namespace husk::runtime
