// What the CPU can do, from its own mouth.
#ifndef HUSK_HOST_CPU_H
#define HUSK_HOST_CPU_H

#include <stddef.h>
#include <stdint.h>

namespace husk::host {

// Instruction sets that code is compiled for; a larger one includes the smaller.
enum class Isa : int32_t { Baseline = 1, Avx2 = 2, Avx512 = 3 };

// The largest set that this CPU and its operating system support. Takes microseconds: ask once, at open.
Isa cpu_isa();

// The name of a set as a target's arch; null where this architecture has no such set.
const char* isa_name(Isa isa);

// Writes the CPU's own name, or a plain one where it has none. Always NUL-terminated.
void cpu_name(char* out, size_t size);

}  // namespace husk::host

#endif
