// The limits of the format as constants. schema/limits.def lists them.
#pragma once

#include <cstdint>

namespace husk::limits {

#define HUSK_LIMIT(name, value) constexpr uint32_t name = value;
#include <limits.def>

}  // namespace husk::limits
