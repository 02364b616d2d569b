// The table of husk-run --trace: one row for each step of the last run.
#pragma once

#include <string>
#include <vector>

#include <husk/husk.h>

namespace husk::run {

class Trace {
 public:
  // Makes a session report its steps to this trace, which must outlive the session.
  void attach(husk_session_options& options);
  // Removes all rows.
  void clear() { rows_.clear(); }
  // One line for each step with its kind, name, grid, microseconds and origin; then the sum.
  std::string table() const;

 private:
  struct Row {
    uint32_t step;
    std::string kind, name, grid, origin;
    double microseconds;
    bool by_device;  // measured by the clock of the device
  };
  std::vector<Row> rows_;
};

}  // namespace husk::run
