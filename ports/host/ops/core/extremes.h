// The smaller and the larger of two numbers. As in lanes.h, nothing may be shared between files of
// several instruction sets.
#pragma once

#include <cstdint>

namespace husk::host {
namespace {

inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
inline int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

}  // namespace
}  // namespace husk::host
