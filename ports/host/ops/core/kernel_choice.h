// The choice of a function that is compiled once for each of several sets of features.
#pragma once

#include <cstddef>

#include "cpu.h"

namespace husk::host {

// A function, or a table of functions, for CPUs that have the features `needs`.
template <class Kernel>
struct KernelFor {
  Features needs;
  Kernel kernel;
};

// The rows of kernels whose names end in the name of a set, for the sets of this machine that
// ops/library compiles the most kernels for.
#if defined(__x86_64__)
#define HUSK_KERNELS(name)                   \
  {                                          \
      {cpu_set::kBaseline, name##_baseline}, \
      {cpu_set::kAvx2, name##_avx2},         \
      {cpu_set::kAvx512, name##_avx512},     \
  }
#else
#define HUSK_KERNELS(name)                     \
  {                                            \
    { cpu_set::kArmBaseline, name##_baseline } \
  }
#endif

// The last kernel whose features the CPU has. The first one runs on every CPU of the machine.
template <class Kernel, size_t N>
Kernel best_kernel(Features cpu, const KernelFor<Kernel> (&kernels)[N]) {
  size_t best = N - 1;
  while (best > 0 && !cpu.has(kernels[best].needs)) --best;
  return kernels[best].kernel;
}

}  // namespace husk::host
