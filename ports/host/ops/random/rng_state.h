// The generator state of one call of a random op, and the uniform numbers that all ops draw.
#pragma once

#include <cstring>

#include <husk/detail/float_format.h>

#include "core/arguments.h"
#include "core/element.h"
#include "random/generator.h"

namespace husk::host {
namespace {

// A copy of the generator whose state is in an argument. load() reads the state, store() writes it
// back after a call that succeeded.
class RngState {
 public:
  husk_status load(const Arguments& args, ArgumentPlace at) {
    HUSK_TRY(args.check_tensor(at));
    const husk_op_arg& state = args[at];
    // The bytes of a contiguous tensor fit, because its elements lie within kMaxReach.
    if (!contiguous(state) ||
        numel(state) * dtype_bytes(state.dtype) != static_cast<int64_t>(sizeof generator)) {
      return args.argument_error(at, HUSK_INVALID_ARGUMENT,
                                 "is not the state of a generator (HUSK_HOST_GENERATOR_BYTES)");
    }
    state_memory = state.data;
    memcpy(static_cast<void*>(&generator), state_memory, sizeof generator);
    generator.ready();
    return HUSK_OK;
  }
  void store() { memcpy(state_memory, &generator, sizeof generator); }

  Generator generator;

 private:
  void* state_memory = nullptr;
};

// A uniform number in [0, 1) with as many bits as a fraction of T has.
template <class T>
auto uniform(Generator& g) {
  if constexpr (std::is_same_v<T, double>)
    return g.uniform_double();
  else if constexpr (set_of<T> == Halves) {
    constexpr uint32_t steps = 2u << detail::float_format(dtype_of<T>)->fraction;
    return static_cast<float>(g.random() & (steps - 1)) * (1.0f / static_cast<float>(steps));
  } else
    return g.uniform_float();
}

}  // namespace
}  // namespace husk::host
