// The name and the instruction sets of the CPU.
#pragma once

#include <cstddef>
#include <cstdint>

namespace husk::host {

// Instruction sets that code is compiled for. Each one includes those before it.
enum class Isa : int32_t { Baseline = 1, Avx2 = 2, Avx512 = 3 };

// The largest instruction set that this CPU and its operating system support. A call takes
// microseconds, so it is made once, at open.
Isa cpu_isa();

// The name of an instruction set as the arch of a target; null if this architecture does not have
// the set.
const char* isa_name(Isa isa);

// Writes the name that the CPU reports, or a general one if it reports none. The text always ends
// with NUL.
void cpu_name(char* out, size_t size);

}  // namespace husk::host
