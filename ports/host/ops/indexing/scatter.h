// aten::scatter_reduce_.two, which aten::index_reduce calls.
#pragma once

#include "core/arguments.h"

namespace husk::host {

husk_status scatter_reduce_into(const Arguments& args);

}  // namespace husk::host
