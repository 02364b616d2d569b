// A device for fuzzing. It runs no kernels, but checks every address that the runtime passes to it.
// An address outside of memory that the port allocated or the test announced ends the process.
#pragma once

#include <cstddef>

#include <husk/op.h>
#include <husk/port.h>

namespace husk::fuzz {

// The ports of the process: one of the CPU, and one of a device with a host beside it, whose
// targets are those of CUDA. All devices share one record of memory. It is not thread-safe.
const husk_port* checking_port();
const husk_port* checking_port_beside_host();
// An extern op that reads and writes every element of its tensors, as their access allows.
husk_op touching_op(const char* name);
// Registers memory of the test: inputs and outputs. forget() removes all of it.
void announce(const void* memory, size_t size);
void forget();
// The number of allocations that are not freed, plus the number of open devices.
size_t live();

}  // namespace husk::fuzz
