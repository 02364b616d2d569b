// The port of programs that load no images. It is a file of its own, so that such programs do not
// get the loader from a static library.
#include <husk/port_host.h>

#include "port_table.h"

namespace husk::host {
namespace {
constexpr husk_port kLinkedPort = port_table(module_link, {});
}  // namespace
}  // namespace husk::host

const husk_port* husk_port_host_linked(void) { return &husk::host::kLinkedPort; }
