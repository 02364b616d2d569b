// The behaviour of a tool if there is no memory.
#pragma once

namespace husk::tools {

// Whether `new` throws std::bad_alloc, as it should. Otherwise, before main(), it ends the process
// with a message.
extern bool out_of_memory_throws;

}  // namespace husk::tools
