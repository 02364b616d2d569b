// The name and the instruction sets of the CPU.
#pragma once

#include <cstddef>
#include <cstdint>

namespace husk::host {

// Instruction sets that code is compiled for. Each one includes those before it. Bf16 has
// instructions that multiply bf16: on x86-64 AVX-512 BF16, on 64-bit Arm FEAT_BF16. Amx has
// AMX-TILE and AMX-BF16, which multiply tiles of bf16.
#if defined(__x86_64__)
enum class Isa : int32_t { Baseline = 1, Avx2 = 2, Avx512 = 3, Bf16 = 4, Amx = 5 };
#else
enum class Isa : int32_t { Baseline = 1, Bf16 = 2 };
#endif

// The largest instruction set that this CPU and its operating system support. A call takes
// microseconds, so it is made once, at open. On a CPU with AMX it asks the operating system for the
// permission of this process to use tiles.
Isa cpu_isa();

// The name of an instruction set as the arch of a target; null if this architecture does not have
// the set. Images do not use the instructions of Bf16 and Amx, whose name is that of the set before
// them.
const char* isa_name(Isa isa);

// Writes the name that the CPU reports, or a general one if it reports none. The text always ends
// with NUL.
void cpu_name(char* out, size_t size);

}  // namespace husk::host
