// The random number generator of PyTorch's CPU ops. Its state is kept in the bytes of a tensor.
#pragma once

#include <husk/op.h>

namespace husk::host {

// The state, with the layout that it has in the program's state. A state of zeros has not been
// seeded yet.
// Mersenne Twister: Matsumoto and Nishimura, "Mersenne Twister: a 623-dimensionally equidistributed
// uniform pseudo-random number generator", ACM TOMACS 8 (1998).
struct Generator {
  uint64_t seed;                   // the seed that the words were computed from
  uint32_t seeded;                 // 0: `words` are not valid
  uint32_t next;                   // index of the next word; 624: all words are used up
  uint32_t has_float, has_double;  // 1: a sample of a pair of normal numbers is left over
  float left_float;
  uint32_t unused;
  double left_double;
  uint32_t words[624];

  static constexpr uint64_t kDefaultSeed = 67280421310721;  // the default seed of PyTorch

  void start(uint64_t new_seed);
  // Prepares the state for use: seeds it if it has not been seeded, and limits `next` to valid
  // values.
  void ready();
  uint32_t random();
  uint64_t random64();
  // Uniform numbers in [0, 1): multiples of 2^-24 and of 2^-53.
  float uniform_float() { return static_cast<float>(random() & 0xffffff) * 0x1p-24f; }
  // As many uniform_float() one after another.
  void uniform_floats(float* to, int64_t count);
  double uniform_double() { return static_cast<double>(random64() & 0x1fffffffffffff) * 0x1p-53; }
  // A normal number with mean 0 and deviation 1. Numbers are computed in pairs; the second one of a
  // pair is kept for the next call.
  double normal_double();

 private:
  void renew();  // makes the next 624 words
};

}  // namespace husk::host
