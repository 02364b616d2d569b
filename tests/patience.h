// How long tests wait for what another thread does. No test fails because a machine is slow or
// busy: a limit only ends a test that hangs, and all of them are kHang (tests/patience.py has the
// same).
#pragma once

#include <chrono>

namespace husk::test {

constexpr auto kHang = std::chrono::minutes(10);

}  // namespace husk::test
