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

struct Frame {
  Code code;
  husk_session* session = nullptr;
  husk_program* program = nullptr;
  const husk_session_options* options = nullptr;

  // What a run is given.
  Array<Interval> dims;             // what the session allows: of each input's dims, one input after the other
  Array<uint32_t> first_dim;        // by input, one more than there are
  Array<InputValue> inputs;
  Array<uint64_t> input_bytes;      // of the last bind, to see what changed
  Array<int64_t> strides;           // of inputs that came without
  Array<uint32_t> first_stride;     // by input
  Array<uint8_t> input_written;
  Array<uint32_t> input_align, output_align;   // bytes, by input and output: what the kernels assume
  Array<uint8_t*> misaligned;       // by input: where its data lies, if the run works on a copy
  Array<Room> copies;               // by input: room for that copy
  Array<uint8_t*> output_data;
  Array<uint64_t> output_bytes;
  Array<uint32_t> result_segment;   // by output: the segment that computes its shape
  Array<Room> own;                  // by output: room for one that the caller brings no memory for
  Array<DLTensor> own_tensors;      // by output
  Array<int64_t> own_shapes;        // sizes and strides of each such output
  Array<uint32_t> first_own;        // by output

  // What is computed from it.
  Array<Register> registers, last_registers;
  Array<Interval> intervals;
  Array<Register> results;          // what the segments brought
  Array<uint32_t> first_result;     // by segment, one more than there are
  uint32_t next_result = 0;         // where the next value of the segment under way goes
  uint32_t evaluated = 0;           // registers of so many segments hold numbers of one run, or resize
  bool bound_once = false;          // last_registers and input_bytes are of a run that passed its checks

  // Memory.
  Array<Block> blocks;              // of arena buffers
  Array<uint32_t> block_of;         // by buffer; kNone outside the arena
  Array<uint32_t> sized_in;         // by buffer: the segment that computes its size
  Array<uint8_t> on_demand;         // by buffer: placed when that segment begins, in its room
  Array<Block> segment_blocks;      // those of one segment while they are placed
  Array<Room> rooms;                // by segment
  Planner planner;
  BitRows shareable;                // empty: the list's order alone decides
  bool parallel = false;            // the plan in force keeps independent steps apart
  bool bounded = false;             // planned once, at the bounds
  Planned planned;
  uint64_t plan_hash = 0;           // tells plans of this frame apart; never 0 once planned
  uint64_t layout = 0;              // the session's arena that `base` and `values` speak of
  uint64_t stamp = 0;               // grows with each lay_out
  Array<uint64_t> written;          // by segment: the stamp for which all of its arguments were written
  uint8_t* arena = nullptr;         // the session's, as of that layout
  Array<uint8_t*> base;             // by buffer; null where the caller's memory is not known yet
  Array<uint64_t> capacity;

  // Steps.
  Array<uint64_t> values;           // by argument: the bytes of a parameter
  Array<void*> params;              // by argument: &values[i]
  Array<uint32_t> dynamic;          // arguments that may change from run to run, by step
  Array<uint32_t> first_dynamic;    // by step, one more than there are steps
  Array<husk_launch> launches;      // by step
  Array<husk_op_arg> op_args;       // by argument; extern steps only
  Array<int64_t> op_sizes;          // by operand

  Array<Access> accesses;
  Graph graph;
  uint64_t runs_as_list = 0, runs_as_graph = 0;

  // Everything that does not depend on shapes. Plans at the bounds if that takes at most options->bound_limit.
  // `narrowed` are the dims of the frame that this one replaces, or null.
  Status prepare(husk_session* session, uint32_t function, const Array<Interval>* narrowed, husk_error* error);
  // Gives device memory back; the session's work is done.
  void drop_rooms();
  const husk_allocator& allocator() const { return program->engine->allocator; }
  bool is_dynamic() const;

  // ---- bind.cpp: values of a run ----
  // `data` says whether tensors need an address (a run) or only a shape (a resize).
  Status bind_inputs(const husk_value* values, uint32_t count, bool data, husk_error* error);
  Status bind_outputs(husk_value* values, uint32_t count, uint32_t segment, husk_error* error);
  Status check_overlaps(husk_error* error) const;
  // Everything that FORMAT.md wants checked at each run of what `segment` computed.
  Status check_segment(uint32_t segment, husk_error* error) const;
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
  // Writes the arguments of a step that may have changed; with `all` every one. Fails where a number does not fit.
  Status write_arguments(uint32_t step, bool all, husk_error* error);
  uint32_t fill_width(uint32_t step) const;    // bytes of an element
  uint64_t step_length(uint32_t step) const;   // bytes of a copy, elements of a fill
  bool is_empty(uint32_t step) const;  // a launch with an empty grid, a copy or fill of nothing
  Status run_step(uint32_t step, void* stream, husk_error* error);
  const char* step_name(uint32_t step) const;   // of the kernel or op; "" if there is none
  // Tells in `error` which step failed.
  void blame(uint32_t step, husk_error* error) const;

  uint8_t* address(const fb::View& view) const { return base[view.buffer()] + registers[view.offset()].i; }

 private:
  Status prepare_values(const Array<Interval>* narrowed, husk_error* error);
  Status prepare_blocks(husk_error* error);
  Status prepare_parallel(husk_error* error);
  Status prepare_steps(husk_error* error);
  Status prepare_results(husk_error* error);
  bool is_static(const fb::Argument& argument) const;
  bool fixed(uint32_t reg) const { return intervals[reg].low == intervals[reg].high; }
  bool plan_at_bounds();
  Status bind_own(uint32_t output, husk_value* given, const int64_t* sizes, const int64_t* strides, husk_error* error);
  void plan_parallel();
  Status read_value(uint32_t step, void* stream, husk_error* error);
  void write_op_args(uint32_t step);
};

}  // namespace husk
