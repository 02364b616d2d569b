#include <husk/port_host.h>

#include "group.h"
#include "port_table.h"

namespace husk::host {
namespace {
constexpr husk_port kPort = port_table(module_load, {group_id, group_join, group_agree});
}  // namespace
}  // namespace husk::host

const husk_port* husk_port_host(void) { return &husk::host::kPort; }
