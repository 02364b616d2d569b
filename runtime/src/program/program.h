// A loaded artifact: the variants that run on the engine's device, their kernels, the constants.
#pragma once

#include "program/constants.h"
#include "program/gate.h"
#include "program/packed.h"

namespace husk::runtime {

struct ChosenVariant {
  uint32_t variant;  // index in the function
  char target[64];   // "cuda sm_90a"
};

// Where an input or output of a function lies, and what a run does with its memory. A value without
// a buffer has the place of all zeros.
struct ValuePlace {
  uint8_t align_log2;  // the kernels assume that the address is a multiple of 2^align_log2
  Device device;
  bool is_written;  // a run writes to it
};

struct Program {
  References references;
  Engine* engine = nullptr;
  Container file;
  ConstantStore constants;
  PackedConstants packed;
  Array<ChosenVariant> chosen;  // by function
  // The inputs of the first function, its outputs, the inputs of the next function and so on.
  Array<ValuePlace> places;
  Array<uint32_t> first_places;  // by function: the index of its first input in `places`
  // By image, for those that share bytes by Container::same_bytes; null unless a chosen variant
  // uses it. `image_bytes` are copies of mapped images.
  Array<void*> modules, image_bytes;
  Array<void*> kernels;          // by kernel; null unless a chosen variant uses it
  ByDevice<Array<husk_op>> ops;  // by op; `call` is null unless a chosen variant uses it there
  uint64_t state_bytes = 0;      // of the states of one session, each aligned to kDeviceAlign
  uint64_t memory_bytes = 0;     // of images and constants, which max_program_bytes limits
  uint64_t op_scratch = 0;       // bytes that a session keeps for its ops (husk_op_context.scratch)
  RunGate gate;                  // sessions enter it for each call, updates of constants close it
  // The session that computes the folded constants, and the function that lets it do so
  // (session/folding.h); null if nothing is folded.
  void* folding = nullptr;
  Status (*fold)(Program* program, husk_error* error) = nullptr;

  ~Program();

  const fb::Program* rows() const { return file.program(); }
  // All functions: those that the application calls, then those that fold constants.
  uint32_t functions() const { return count(rows()->functions()); }
  uint32_t entry_points() const { return file.entry_points; }
  // Whether the function has a variant for this device. A function that folds constants for another
  // target has none.
  bool runs(uint32_t function) const { return chosen[function].target[0] != 0; }
  // The chosen variant of a function.
  Code code(uint32_t function) const;
  // The places of the inputs of a function; the places of its outputs follow.
  const ValuePlace* input_places(uint32_t function) const {
    return places.data() + first_places[function];
  }
  // The op that an extern step calls.
  const husk_op& op_of(const Code& code, const fb::Instruction& step) const {
    return ops[code.device_of(step)][step.a()];
  }
  // Whether a step calls an op that may wait for the work before it by itself, as collectives do.
  bool may_wait_first(const Code& code, uint32_t step) const {
    const fb::Instruction& op = code.steps[step];
    return static_cast<Step>(op.op()) == Step::op_extern &&
           (op_of(code, op).flags & HUSK_OP_WAITS_FIRST) != 0;
  }
  // Reads and verifies the artifact, after the container was mapped or borrowed, and makes it ready
  // to run.
  Status load(husk_error* error);
  // Changes the values of constants between the runs of the sessions.
  Status update(const husk_constant_part* updates, uint32_t n, husk_error* error);

 private:
  Status rank_targets(Array<int32_t>* ranks, husk_error* error) const;
  Status no_variant(const fb::Function* f, husk_error* error) const;
  Status check_world(husk_error* error) const;
  Status sum_states(husk_error* error);
  Status choose_variants(husk_error* error);
  Status find_places(husk_error* error);
  Status check_constants(husk_error* error);
  Status resolve_steps(husk_error* error);
  Status check_host_memory(const Code& code, husk_error* error) const;
  void count_scratch(const husk_op& op);
  Status prepare_op(const Code& code, uint32_t step, husk_error* error);
  Status load_module(uint32_t image, husk_error* error);
  Status load_kernel(uint32_t index, husk_error* error);
};

}  // namespace husk::runtime

struct husk_program : husk::runtime::Program {};
