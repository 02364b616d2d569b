// The table of --trace.
#include <gtest/gtest.h>

#include "run/trace.h"

namespace husk::run_test {
namespace {

TEST(RunTrace, ATableInTheOrderOfTheEvents) {
  run::Trace trace;
  husk_session_options options = HUSK_SESSION_OPTIONS_INIT;
  trace.attach(options);
  const husk_trace_event old = {"f", 9, "read", "", "", {0, 0, 0}, 1};
  options.trace(options.trace_user, &old);
  trace.clear();
  const husk_trace_event events[] = {{"f", 0, "launch", "a_long_name", "model.py:1", {128, 2, 1}, 1500},
                                     {"f", 3, "fill", "", "", {0, 0, 0}, 40},
                                     {"f", 0, "launch", "a_long_name", "model.py:1", {65535, 2, 1}, 12345678}};
  for (const husk_trace_event& event : events) options.trace(options.trace_user, &event);
  EXPECT_EQ(trace.table(), " step kind   name        grid              us  origin\n"
                           "    0 launch a_long_name 128 2 1          1.5  model.py:1\n"
                           "    3 fill                                0.0\n"
                           "    0 launch a_long_name 65535 2 1    12345.7  model.py:1\n"
                           "3 steps, 12347.2 us\n");
}

TEST(RunTrace, NoStepIsATableToo) {
  EXPECT_EQ(run::Trace().table(), " step kind   name grid         us  origin\n0 steps, 0.0 us\n");
}

}  // namespace
}  // namespace husk::run_test
