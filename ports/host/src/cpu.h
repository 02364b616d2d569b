// The name and the features of the CPU.
#pragma once

#include <cstddef>
#include <cstdint>

namespace husk::host {

// A set of features of CPUs. CPUs of one machine have no feature of another machine.
struct Features {
  uint64_t bits;

  constexpr bool has(Features all) const { return (bits & all.bits) == all.bits; }
};
constexpr Features operator|(Features a, Features b) { return {a.bits | b.bits}; }

// The number of each feature, in the order of cpus.def.
enum class FeatureNumber : uint8_t {
#define HUSK_MACHINE(Name, triple, cpuinfo) Name,
#define HUSK_X86_FEATURE(Name, cpuinfo, word, bit, state) Name,
#define HUSK_ARM_FEATURE(Name, cpuinfo, word, bit) Name,
#include <cpus.def>
};

// Each feature alone.
namespace feature {
#define HUSK_FEATURE(Name) \
  constexpr Features Name{uint64_t{1} << static_cast<int>(FeatureNumber::Name)};
#define HUSK_MACHINE(Name, triple, cpuinfo) HUSK_FEATURE(Name)
#define HUSK_X86_FEATURE(Name, cpuinfo, word, bit, state) HUSK_FEATURE(Name)
#define HUSK_ARM_FEATURE(Name, cpuinfo, word, bit) HUSK_FEATURE(Name)
#include <cpus.def>
#undef HUSK_FEATURE
}  // namespace feature

// The named sets, such as cpu_set::kAvx2.
namespace cpu_set {
using namespace feature;
constexpr Features kNone{0};
#define HUSK_CPU_SET(Name, machine, base, features) constexpr Features k##Name = k##base | features;
#include <cpus.def>
}  // namespace cpu_set

// The features that this CPU and its operating system support. A call takes microseconds, so it is
// made once, at open. On a CPU with AMX it asks the operating system for the permission of this
// process to use tiles; a CPU without it has none of the features of AMX.
Features cpu_features();

// The same, asked once in a process: the instruction takes tens of microseconds on a virtual
// machine, too long for a call of an op.
Features features_of_this_cpu();

// The name of the target with the most features among those whose images such a CPU runs; null if
// it runs none.
const char* best_target(Features cpu);

// 0 if such a CPU does not run images of the target `arch`, or if there is no such target. Of two
// targets that it runs, the one with more features has the higher rank. A target is known on every
// machine.
int32_t target_rank(Features cpu, const char* arch);

// The features that images of the target `arch` may use; none if there is no such target.
Features target_features(const char* arch);

// Writes the name that the CPU reports, or a general one if it reports none. The text always ends
// with NUL.
void cpu_name(char* out, size_t size);

}  // namespace husk::host
