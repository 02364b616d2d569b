// A port whose device memory is host memory and whose kernels do nothing, so that a measurement on
// it contains the runtime alone.
#pragma once

#include <husk/port.h>

namespace husk::bench {

const husk_port* empty_port();

}  // namespace husk::bench
