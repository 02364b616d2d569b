// A device for fuzzing: it runs nothing, but looks at every address that the runtime hands it. What is not inside memory
// that it gave out, or that the test announced, ends the process.
#pragma once

#include <husk/op.h>
#include <husk/port.h>

#include <cstddef>

namespace husk::fuzz {

// One port for the process; every device that it opens shares its record of memory. Not thread-safe.
const husk_port* checking_port();
// An extern op that touches all of its tensors: reads what it may read, writes what it may write.
husk_op touching_op(const char* name);
// Memory of the caller's, inputs and outputs. forget() drops all of it.
void announce(const void* memory, size_t size);
void forget();
// Memory that a device gave out and did not take back.
size_t live();

}  // namespace husk::fuzz
