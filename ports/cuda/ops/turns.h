// Waits that ask again and again.
#pragma once

#include <cstdint>
#include <ctime>

namespace husk::cuda {

// Turns after which a wait looks at more than what it waits for: at the clock, at other ranks.
constexpr uint32_t kTurnsBetweenChecks = 64;

inline int64_t milliseconds() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1000000;
}

// Between two questions of a wait: none in about the first millisecond, then a short sleep.
inline void pause(uint32_t turn) {
  constexpr uint32_t kBusyTurns = 2000;
  const timespec time = {0, 20000};
  if (turn > kBusyTurns) nanosleep(&time, nullptr);
}

}  // namespace husk::cuda
