// One function of one session: its registers, where its buffers are, and its steps with everything resolved that can be.
#pragma once

#include "graph.h"
#include "planner.h"
#include "program.h"

struct husk_session;

namespace husk {

// Device memory of a session that grows when it must and is kept for the next run.
struct Room {
  void* data;
  uint64_t bytes;
};

// What a frame knows of an input beside its value.
struct InputState {
  uint32_t first_dim;      // of those that it has in `dims`
  uint32_t first_stride;   // of those that it has in `strides`
  uint32_t align;          // bytes: what the kernels assume
  bool written;
  uint64_t last_bytes;     // of the last bind, to see what changed
  uint8_t* misaligned;     // where its data lies, if the run works on a copy
  Room copy;
};

struct OutputState {
  uint8_t* data;
  uint64_t bytes;
  uint32_t align;      // bytes: what the kernels assume
  uint32_t segment;    // the one that computes its shape
  uint32_t checked_in; // the one that computes the last register of its view too
  Room own;            // where the caller brings no memory
  DLTensor tensor;     // of that room
  int64_t* shape;      // its sizes and strides
};

// Where a buffer is.
struct Place {
  uint8_t* base;       // null where the caller's memory is not known yet
  uint64_t capacity;
  uint32_t sized_in;   // the segment that computes its size
  bool on_demand;      // placed when that segment begins, in its room
};

struct SegmentState {
  uint32_t first_result;   // of what it brings
  uint64_t written;        // the stamp for which all of its arguments were written
  Room room;
};

struct StepState {
  husk_launch launch;
  uint32_t first_dynamic;
};

// The one size or stride that a message is about.
struct Part {
  const char* what = nullptr;   // "size" or "stride"; null: the message is about the whole value
  uint32_t dim = 0;
};

struct Frame {
  // What is read most, where instructions are short. Arrays without a size are shares of `owned`.
  Register* registers = nullptr;
  Place* places = nullptr;          // by buffer
  InputValue* inputs = nullptr;
  InputState* input_states = nullptr;   // by input, one more than there are
  OutputState* output_states = nullptr;
  uint64_t* values = nullptr;       // by argument: the bytes of a parameter
  husk_session* session = nullptr;
  husk_program* program = nullptr;
  Code code;
  const husk_session_options* options = nullptr;
  Array<uint64_t> owned;

  // What a run is given.
  Interval* dims = nullptr;         // what the session allows: of each input's dims, one input after the other
  int64_t* strides = nullptr;       // of inputs that came without
  int64_t* shapes = nullptr;        // of outputs that the session has the memory of

  // What is computed from it.
  Register* last_registers = nullptr;
  Interval* intervals = nullptr;
  Register* results = nullptr;      // what the segments brought
  SegmentState* segment_states = nullptr;   // one more than there are
  uint32_t next_result = 0;         // where the next value of the segment under way goes
  uint32_t evaluated = 0;           // registers of so many segments hold numbers of one run, or resize
  bool preparing = false;           // a resize writes arguments: ops choose what they need for them
  bool bound_once = false;          // last_registers and input_bytes are of a run that passed its checks

  // Memory.
  Block* blocks = nullptr;          // of arena buffers
  Block* segment_blocks = nullptr;  // those of one segment while they are placed
  uint32_t block_count = 0;
  uint32_t* block_of = nullptr;     // by buffer; kNone outside the arena
  Planner planner;
  BitRows shareable;                // empty: the list's order alone decides
  Array<uint64_t> tight_offsets;    // by block: where the smallest plan has it; only beside shareable
  bool parallel = false;            // the plan in force keeps independent steps apart
  bool bounded = false;             // planned once, at the bounds
  Planned planned;
  uint64_t plan_hash = 0;           // tells plans of this frame apart; never 0 once planned
  uint64_t layout = 0;              // the session's arena that `places` and `values` speak of
  uint64_t stamp = 0;               // grows with each lay_out
  uint8_t* arena = nullptr;         // the session's, as of that layout

  // Steps.
  void** params = nullptr;          // by argument: &values[i]
  uint32_t* dynamic = nullptr;      // arguments that may change from run to run, by step
  StepState* step_states = nullptr; // one more than there are
  husk_op_arg* op_args = nullptr;   // by argument; extern steps only
  int64_t* op_sizes = nullptr;      // by operand

  Array<Access> accesses;
  Graph graph;
  uint64_t runs_as_list = 0, runs_as_graph = 0;

  // Everything that does not depend on shapes. Plans at the bounds if that takes at most options->bound_limit.
  // `narrowed` are the dims of the frame that this one replaces, or null.
  Status prepare(husk_session* session, uint32_t function, const Interval* narrowed, husk_error* error);
  // Gives device memory back; the session's work is done.
  void drop_rooms();
  const husk_allocator& allocator() const { return program->engine->allocator; }
  bool is_dynamic() const;

  // ---- bind.cpp: values of a run ----
  // `data` says whether tensors need an address (a run) or only a shape (a resize).
  Status bind_inputs(const husk_value* values, uint32_t count, bool data, husk_error* error);
  Status bind_outputs(husk_value* values, uint32_t count, uint32_t segment, husk_error* error);
  Status check_overlaps(husk_error* error) const;
  // What FORMAT.md wants checked of memory that the session does not place and whose size is known with `segment`, and of the
  // outputs that it shapes. Views of steps are checked where their addresses are written.
  Status check_memory_of(uint32_t segment, husk_error* error) const;
  // Evaluates a prologue.
  Status enter(uint32_t segment, husk_error* error);
  // Leaves zeros where a segment that does not run would have computed or brought something.
  void skip(uint32_t segment);
  bool runs(uint32_t segment) const {
    const uint32_t when = code.segments[segment].when();
    return when == kNone || registers[when].i != 0;
  }
  // Shape of a tensor output: `rank` sizes, then strides. False if only the data decides it and it is not known.
  bool output_shape(uint32_t output, int64_t* sizes, int64_t* strides) const;
  // Whether all that the checks look at is as it was when remember() was called.
  bool unchanged() const;
  void remember();
  // Ints and floats among the outputs.
  void write_results(husk_value* outputs) const;

  // ---- frame.cpp ----
  // Places the buffers for the registers in force, or for bounds where those are not known yet. Allocates nothing.
  Status plan(husk_error* error);
  // Makes room for the buffers whose size the prologue of `segment` has just computed.
  Status place_on_demand(uint32_t segment, husk_error* error);
  // Takes the addresses of a new arena, new states or a new plan.
  void lay_out(uint8_t* arena, uint8_t* const* states, uint64_t layout);
  // Takes the addresses of inputs and outputs. True if any is another than before.
  bool place_values();

  // ---- steps.cpp ----
  // Writes the arguments of a step that may have changed; with `all` every one. Fails where a number does not fit, or a view
  // does not lie in its buffer.
  Status write_arguments(uint32_t step, bool all, husk_error* error);
  uint32_t fill_width(uint32_t step) const;    // bytes of an element
  uint64_t step_length(uint32_t step) const;   // bytes of a copy, elements of a fill
  bool is_empty(uint32_t step) const;  // a launch with an empty grid, a copy or fill of nothing
  Status run_step(uint32_t step, void* stream, husk_error* error);
  const char* step_name(uint32_t step) const;   // of the kernel or op; "" if there is none
  // Tells in `error` which step failed.
  void blame(uint32_t step, husk_error* error) const;

  // A number: an op that prepares itself is shown the offset alone where the memory is not known yet.
  uint8_t* address(const fb::View& view) const {
    return reinterpret_cast<uint8_t*>(reinterpret_cast<uintptr_t>(places[view.buffer()].base) +
                                      static_cast<uintptr_t>(registers[view.offset()].i));
  }

 private:
  size_t share(uint64_t* memory);
  void prepare_inputs(const Interval* narrowed);
  void prepare_blocks();
  Status prepare_parallel(husk_error* error);
  void prepare_steps();
  void prepare_results();
  uint32_t segment_of(uint32_t reg) const;
  bool is_static(const fb::Argument& argument) const;
  bool fixed(uint32_t reg) const { return intervals[reg].low == intervals[reg].high; }
  bool plan_at_bounds();
  Status bind_input(uint32_t input, const husk_value& given, bool data, Part* part, husk_error* error);
  Status bind_output(uint32_t output, husk_value* given, Part* part, husk_error* error);
  Status bind_own(uint32_t output, husk_value* given, const int64_t* shape, husk_error* error);
  void read_shape(uint32_t tensor, int64_t* out) const;
  Status check_buffer(uint32_t buffer, husk_error* error) const;
  Status check_view(uint32_t view, husk_error* error) const;
  Status check_tensor_row(uint32_t tensor, husk_error* error) const;
  bool plan_parallel();
  Status check_size(uint32_t buffer, const Block& block, husk_error* error) const;
  Status read_value(uint32_t step, void* stream, husk_error* error);
  Status write_op_args(uint32_t step, husk_error* error);
};

}  // namespace husk
