// Rounding of sizes and offsets.
#pragma once

#include <cstdint>

#include "base/limits.h"

namespace husk {

// Addresses of the arena, of constants and of states in device memory are multiples of this.
constexpr uint64_t kDeviceAlign = limits::kDeviceAlign;

// Returns the smallest multiple of `align`, a power of two, that is at least `value`.
constexpr uint64_t align_up(uint64_t value, uint64_t align) {
  return (value + align - 1) & ~(align - 1);
}

}  // namespace husk
