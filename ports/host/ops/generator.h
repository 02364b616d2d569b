// The generator of random numbers: PyTorch's one for the CPU, with its state in a tensor's bytes.
#ifndef HUSK_HOST_GENERATOR_H
#define HUSK_HOST_GENERATOR_H

#include <husk/op.h>

namespace husk::host {

// The state, as it lies in the program's state. All zeros: not seeded yet.
// Mersenne Twister: Matsumoto and Nishimura, "Mersenne Twister: a 623-dimensionally equidistributed uniform
// pseudo-random number generator", ACM TOMACS 8 (1998).
struct Generator {
  uint64_t seed;         // that it started from
  uint32_t seeded;       // 0: `words` mean nothing
  uint32_t next;         // of `words`; 624: they are used up
  uint32_t has_float, has_double;   // whether a normal sample is left over
  float left_float;
  uint32_t unused;
  double left_double;
  uint32_t words[624];

  static constexpr uint64_t default_seed = 67280421310721;   // PyTorch's

  void start(uint64_t from);
  // Seeds itself if nobody did; mends an index that no generator writes.
  void ready();
  uint32_t random();
  uint64_t random64();
  // In [0, 1), multiples of 2^-24 and 2^-53.
  float uniform_float() { return static_cast<float>(random() & 0xffffff) * 0x1p-24f; }
  double uniform_double() { return static_cast<double>(random64() & 0x1fffffffffffff) * 0x1p-53; }
  // With mean 0 and deviation 1; every other one is left over from the one before.
  double normal_double();
};

}  // namespace husk::host

#endif
