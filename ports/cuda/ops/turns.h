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

// Between two questions of a wait: none in about the first millisecond, then a sleep of a small
// part of the time so far, so that a long wait takes no processor time to speak of.
inline void pause(uint32_t turn) {
  constexpr uint32_t kBusyTurns = 2000, kTurnsOfASleep = 64;
  constexpr long kShortest = 20000, kLongest = 500000;  // nanoseconds
  if (turn <= kBusyTurns) return;
  const long longer = kShortest * (1 + (turn - kBusyTurns) / kTurnsOfASleep);
  const timespec time = {0, longer < kLongest ? longer : kLongest};
  nanosleep(&time, nullptr);
}

}  // namespace husk::cuda
