// The caller's inputs and outputs of a run, checked against the signature.
#pragma once

#include <husk/husk.h>

#include "session/prologue.h"
#include "session/range_set.h"
#include "session/scratch.h"

namespace husk::runtime {

struct Engine;
struct Session;
struct ValuePlace;

// The properties of an input besides its value.
struct InputState {
  uint32_t first_stride;  // index in the strides of tensors that have none
  uint32_t align;         // bytes; kernels assume it of the address
  uint32_t buffer;        // kNone if there is none
  bool written;           // a step writes to the input
  uint64_t remembered_bytes;
  uint8_t* callers;    // the caller's memory, if the run works on a copy of it; else null
  bool staged;         // the caller's memory is the host's, and the copy is the device's
  ScratchBuffer copy;  // on the device where the steps take the input
};

struct OutputState {
  uint8_t* data;
  uint64_t bytes;
  uint32_t align;         // bytes; kernels assume it of the address
  uint32_t buffer;        // kNone if there is none
  uint32_t shaped_in;     // the segment that computes the shape
  uint32_t checked_in;    // the segment that computes the last register of the view
  uint32_t next_shaped;   // the next output that is shaped in the same segment, or kNone
  uint32_t next_checked;  // the next output that is checked in the same segment, or kNone
  uint8_t* staged;        // the caller's host memory, if the run writes to `copy`; else null
  ScratchBuffer copy;
  ScratchBuffer own;        // session-owned memory on the device where the steps write, if the
                            // caller passes none
  DLTensor session_tensor;  // describes `own` to the caller
  int64_t* shape;           // sizes and strides of `session_tensor`
};

// The size or stride that a message is about.
struct DimRef {
  const char* what = nullptr;  // "size" or "stride"; null if the message is about the whole value
  uint32_t dim = 0;
};

// The first tensor outputs of a segment; kNone if there is none.
struct SegmentOutputs {
  uint32_t shaped, checked;
};

struct IoBinding {
  Array<InputValue> inputs;
  Array<InputState> input_states;  // by input, with one more at the end
  Array<OutputState> output_states;
  Array<SegmentOutputs> segment_outputs;
  // The sizes that the session allows: by input, with limits::kMaxRank places for each.
  Array<Interval> ranges;

  // `places` are those of the inputs. `narrowed` replaces the ranges of the file, unless it is
  // null.
  Status prepare(Session* session, const Code& code, const ValuePlace* places,
                 const Interval* narrowed, husk_error* error);
  // Finds the segments that decide on the outputs. `prologue` must be prepared.
  Status prepare_outputs(const Prologue& prologue, husk_error* error);
  // Gives device memory back. The session's work must be done.
  void release_scratch();

  // Checks the inputs and takes their shapes. Tensors need memory only if `with_data` is set.
  // Inputs that are copied before a run get memory of the session.
  Status bind_inputs(const husk_value* values, uint32_t n, bool with_data, husk_error* error);
  // Checks the tensor outputs that `segment` shapes and takes their memory. An output without
  // memory gets session-owned memory, one in host memory gets a copy on the device. Memory that a
  // step writes must overlap no other input or output, since the order of steps does not consider
  // that.
  Status bind_outputs(husk_value* values, uint32_t n, uint32_t segment, husk_error* error);
  // Forgets the outputs of the last run: until its segment is bound, an output has no bytes.
  void begin_outputs();
  // Forgets the outputs that `segment` and later segments shape, because a loop runs these again.
  void unbind_outputs(uint32_t segment);
  // Treats the memory of all outputs as unknown, as it is in a resize.
  void forget_outputs();
  // Allocates memory for the outputs that the first segment shapes, in a resize, if some input is
  // staged: outputs will then probably lie in host memory too.
  Status prepare_staged_outputs(husk_error* error);
  // Copies inputs that are misaligned or staged to memory of the session, or back to the caller if
  // a step wrote to them.
  Status copy_inputs(bool back, void* stream, husk_error* error);
  // Copies inputs that a step wrote to, and staged outputs, back to the caller. Waits for the run
  // if it copies to host memory of the caller.
  Status copy_results(void* stream, husk_error* error);
  // Writes the integer, float and bool outputs.
  void write_scalar_outputs(husk_value* outputs) const;

  // Writes the sizes and strides of a tensor output, unless these pointers are null. Returns false
  // if only data decides the shape and it is not known.
  bool output_shape(uint32_t output, int64_t* sizes, int64_t* strides) const;

  // Returns whether the inputs take as many bytes as remember() saw.
  bool unchanged() const;
  void remember();

 private:
  Status bind_input(uint32_t input, const husk_value& value, bool with_data, DimRef* part,
                    husk_error* error);
  Status stage(ScratchBuffer* copy, uint64_t bytes, husk_error* error);
  Status bind_output(uint32_t output, husk_value* value, DimRef* part, husk_error* error);
  Status bind_session_output(uint32_t output, husk_value* value, const int64_t* shape,
                             husk_error* error);
  // Compares the outputs that `segment` shapes with the values before them; and the inputs, if it
  // is the first segment.
  Status check_overlaps(uint32_t segment, husk_error* error);
  // These have one index for all values: first the outputs, then the inputs. The memory of a value
  // is the caller's, even if the run works on a copy of it.
  struct Memory {
    uintptr_t begin, end;  // equal if the value has no bytes
    bool written;
  };
  Memory memory(uint32_t value) const;
  Status compare(uint32_t value, const Memory& memory, husk_error* error) const;
  // Inputs that are only read may overlap each other, so all of them are compared before the first
  // one is added.
  enum Pass { kWritten, kRead, kKept };
  // Compares a value that is written with those in `compared_`, and adds it to these; or compares,
  // or adds, one that is only read.
  Status add(uint32_t value, Pass pass, husk_error* error);

  Session* session_ = nullptr;
  const Code* code_ = nullptr;
  const Prologue* prologue_ = nullptr;
  Array<int64_t> strides_;  // of inputs whose tensors have none
  Array<int64_t> shapes_;   // of session-owned outputs
  // The memory of the values that steps write; if `shapes_later_`, that of all inputs too.
  RangeSet compared_;
  bool shapes_later_ = false;  // a segment after the first one shapes an output
};

// Writes the sizes and then the strides of a row of `code.tensors`.
inline void read_shape(const Code& code, uint32_t tensor, const Register* registers, int64_t* out) {
  const fb::Tensor& row = code.tensors[tensor];
  for (uint32_t d = 0; d < 2u * row.rank(); ++d)
    out[d] = registers[code.operands[row.first() + d]].i;
}

}  // namespace husk::runtime
