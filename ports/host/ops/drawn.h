// The generator of a call of a random op, and what all of them draw.
#ifndef HUSK_HOST_DRAWN_H
#define HUSK_HOST_DRAWN_H

#include <string.h>

#include "arguments.h"
#include "element.h"
#include "generator.h"

namespace husk::host {
namespace {

// The generator of a call: taken from its tensor, and put back.
class Drawn {
 public:
  husk_status take(const Arguments& args, uint32_t at) {
    HUSK_TRY(args.tensor(at));
    const husk_op_arg& state = args[at];
    if (numel(state) * dtype_bytes(state.dtype) != static_cast<int64_t>(sizeof generator) || !contiguous(state)) {
      return args.refuse(at, HUSK_INVALID_ARGUMENT, "is not the state of a generator (HUSK_HOST_GENERATOR_BYTES)");
    }
    place = state.data;
    memcpy(static_cast<void*>(&generator), place, sizeof generator);
    generator.ready();
    return HUSK_OK;
  }
  void put() { memcpy(place, &generator, sizeof generator); }

  Generator generator;

 private:
  void* place = nullptr;
};

// A uniform number of [0, 1) with as many bits as T has digits.
template <class T>
auto uniform(Generator& g) {
  if constexpr (std::is_same_v<T, double>) return g.uniform_double();
  else if constexpr (std::is_same_v<T, Half>) return static_cast<float>(g.random() & 0x7ff) * 0x1p-11f;
  else if constexpr (std::is_same_v<T, Brain>) return static_cast<float>(g.random() & 0xff) * 0x1p-8f;
  else return g.uniform_float();
}

}  // namespace
}  // namespace husk::host

#endif
