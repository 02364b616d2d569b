// The table of --trace.
#include "run/trace.h"

#include <gtest/gtest.h>

namespace husk::run_test {
namespace {

TEST(RunTrace, TableHasTheOrderOfTheEvents) {
  run::Trace trace;
  husk_session_options options = HUSK_SESSION_OPTIONS_INIT;
  trace.attach(options);
  const husk_trace_event cleared = {
      sizeof(husk_trace_event), 9, {0, 0, 0}, 0, "f", "read", "", "", 1, HUSK_CLOCK_HOST, 0};
  options.trace(options.trace_user, &cleared);
  trace.clear();
  const husk_trace_event events[] = {
      {sizeof(husk_trace_event),
       0,
       {128, 2, 1},
       0,
       "f",
       "launch",
       "a_long_name",
       "model.py:1",
       1500,
       HUSK_CLOCK_DEVICE,
       0},
      {sizeof(husk_trace_event), 3, {0, 0, 0}, 0, "f", "fill", "", "", 40, HUSK_CLOCK_DEVICE, 0},
      {sizeof(husk_trace_event),
       0,
       {65535, 2, 1},
       0,
       "f",
       "launch",
       "a_long_name",
       "model.py:1",
       12345678,
       HUSK_CLOCK_DEVICE,
       0}};
  for (const husk_trace_event& event : events) options.trace(options.trace_user, &event);
  EXPECT_EQ(trace.table(),
            " step kind   name        grid              us  origin\n"
            "    0 launch a_long_name 128 2 1          1.5  model.py:1\n"
            "    3 fill                                0.0\n"
            "    0 launch a_long_name 65535 2 1    12345.7  model.py:1\n"
            "3 steps, 12347.2 us by the clock of the device\n");
  options.trace(options.trace_user, &cleared);
  EXPECT_NE(trace.table().find(" by the clock of the device and host\n"), std::string::npos);
}

TEST(RunTrace, TableWithoutSteps) {
  EXPECT_EQ(run::Trace().table(),
            " step kind   name grid         us  origin\n"
            "0 steps, 0.0 us by the clock of the host\n");
}

}  // namespace
}  // namespace husk::run_test
