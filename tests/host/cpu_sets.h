// The sets of features that operators are compiled for, on this machine.
#pragma once

#include <vector>

#include "cpu.h"

namespace husk::host_test {

struct CpuSet {
  const char* name;
  host::Features features;

  bool multiplies_bf16() const {
    return features.has(host::feature::Avx512Bf16) || features.has(host::feature::Bf16);
  }
};

// The sets that such a CPU has. A set stands after the one that it extends.
inline std::vector<CpuSet> sets_of(host::Features cpu) {
  const CpuSet all[] = {
#define HUSK_CPU_SET(Name, machine, base, features) {#Name, host::cpu_set::k##Name},
#include <cpus.def>
  };
  std::vector<CpuSet> sets;
  for (const CpuSet& set : all)
    if (cpu.has(set.features)) sets.push_back(set);
  return sets;
}

}  // namespace husk::host_test
