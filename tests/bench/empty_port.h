// A device whose memory is the host's and whose kernels do nothing: what is measured on it is the runtime alone.
#pragma once

#include <husk/port.h>

namespace husk::bench {

const husk_port* empty_port();

}  // namespace husk::bench
