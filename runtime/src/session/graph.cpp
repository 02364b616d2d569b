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
  for (SegmentGraph& graph : segments_) {
    if (graph.exec)
      frame.session->port()->graphs->exec_destroy(frame.session->device(), graph.exec);
    graph = {};
  }
  registers_.clear();
  buffers_.clear();
  staged_.clear();
  plan_hash_ = 0;
  nodes = edges = programmatic_edges = 0;
}

void Graph::release(const Frame& frame) {
  reset(frame);
  frame.session->release(&staging_);
}

bool Graph::fits(const Frame& frame) const {
  if (!is_for(frame.memory.plan_hash) || !complete_) return false;
  for (uint32_t segment = 0; segment < segments_.size(); ++segment)
    if (segments_[segment].exec && !has_same_calls(frame, segment)) return false;
  return true;
}

// Returns whether the captured calls of a segment would do the same again.
bool Graph::has_same_calls(const Frame& frame, uint32_t segment) const {
  const SegmentGraph& graph = segments_[segment];
  for (uint32_t i = begin_of(segment, &SegmentGraph::registers_end); i < graph.registers_end; ++i)
    if (frame.prologue.registers[registers_[i].index].i != registers_[i].value) return false;
  for (uint32_t i = begin_of(segment, &SegmentGraph::buffers_end); i < graph.buffers_end; ++i)
    if (frame.memory.places[buffers_[i].index].base != buffers_[i].base) return false;
  return true;
}

bool Graph::changed(const Frame& frame, uint32_t step) const {
  const fb::Instruction& op = frame.code.steps[step];
  const StepState& state = frame.arguments.states[step];
  const StepNode& node = steps_[step];
  return memcmp(values_.data() + op.b(), frame.arguments.values.data() + op.b(),
                op.c() * sizeof(uint64_t)) != 0 ||
         memcmp(node.grid, state.launch.grid, sizeof(node.grid)) != 0 ||
         node.length != state.length;
}

void Graph::remember(const Frame& frame, uint32_t step) {
  const fb::Instruction& op = frame.code.steps[step];
  StepNode& node = steps_[step];
  memcpy(values_.data() + op.b(), frame.arguments.values.data() + op.b(),
         op.c() * sizeof(uint64_t));
  memcpy(node.grid, frame.arguments.states[step].launch.grid, sizeof(node.grid));
  node.length = frame.arguments.states[step].length;
}

Status Graph::patch(Frame& frame, uint32_t segment, uint32_t step, husk_error* error) {
  const husk_port_graphs* graphs = frame.session->port()->graphs;
  void *device = frame.session->device(), *exec = segments_[segment].exec;
  const fb::Instruction& op = frame.code.steps[step];
  const StepState& state = frame.arguments.states[step];
  const uint32_t node = steps_[step].number;
  const uint64_t* v = frame.arguments.values.data() + op.b();
  switch (static_cast<Step>(op.op())) {
    case Step::op_launch:
      return to_status(graphs->exec_set_kernel(device, exec, node, frame.program->kernels[op.a()],
                                               &state.launch, error));
    case Step::op_copy:
      return to_status(graphs->exec_set_copy(device, exec, node, reinterpret_cast<void*>(v[0]),
                                             reinterpret_cast<void*>(v[1]), state.length, error));
    default:
      return to_status(graphs->exec_set_fill(device, exec, node, reinterpret_cast<void*>(v[0]),
                                             v[1], frame.arguments.fill_width(step), state.length,
                                             error));
  }
}

// Gives the caller's new addresses to the copies around captured calls.
Status Graph::patch_staged(Frame& frame, uint32_t segment, husk_error* error) {
  const husk_port_graphs* graphs = frame.session->port()->graphs;
  void *device = frame.session->device(), *exec = segments_[segment].exec;
  const uint32_t end = segments_[segment].staged_end;
  for (uint32_t i = begin_of(segment, &SegmentGraph::staged_end); i < end; ++i) {
    StagedOperand& operand = staged_[i];
    const Code& code = frame.code;
    uint8_t* address = frame.memory.address(
        code.views[code.view_of(code.arguments[operand.argument])]);
    if (operand.address == address) continue;
    uint8_t* staged = static_cast<uint8_t*>(staging_.data) + operand.offset;
    if (operand.before != kNone)
      HUSK_TRY(to_status(graphs->exec_set_copy(device, exec, operand.before, staged, address,
                                               operand.length, error)));
    if (operand.after != kNone)
      HUSK_TRY(to_status(graphs->exec_set_copy(device, exec, operand.after, address, staged,
                                               operand.length, error)));
    operand.address = address;
    patched += (operand.before != kNone) + (operand.after != kNone);
  }
  return Status::ok;
}

Status Graph::patch_all(Frame& frame, uint32_t segment, husk_error* error) {
  const uint32_t begin = frame.code.segments[segment].step_begin(), end = step_end(segment);
  for (uint32_t s = begin; s < end; ++s) {
    if (static_cast<Step>(frame.code.steps[s].op()) == Step::op_extern || !changed(frame, s))
      continue;
    if (frame.arguments.is_empty(s)) return to_status(HUSK_UNSUPPORTED);
    HUSK_TRY(patch(frame, segment, s, error));
    remember(frame, s);
    ++patched;
  }
  return patch_staged(frame, segment, error);
}

Status Graph::run(Frame& frame, uint32_t segment, void* stream, bool nothing_changed,
                  bool* launched, husk_error* error) {
  *launched = false;
  if (segment >= segments_.size() || !segments_[segment].exec) return Status::ok;
  SegmentGraph& graph = segments_[segment];
  const bool current = nothing_changed && graph.current;
  graph.current = false;
  husk_error rejected;
  if (!current && (!has_same_calls(frame, segment) || failed(patch_all(frame, segment, &rejected))))
    return Status::ok;
  *launched = graph.current = true;
  return to_status(frame.session->port()->graphs->exec_launch(frame.session->device(), graph.exec,
                                                              stream, error));
}

}  // namespace husk::runtime
