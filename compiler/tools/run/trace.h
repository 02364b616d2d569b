// What husk-run --trace prints: a row for each step that the last run took.
#pragma once

#include <husk/husk.h>

#include <string>
#include <vector>

namespace husk::run {

class Trace {
 public:
  // Has the session call this; the trace must outlive it.
  void attach(husk_session_options& options);
  // Forgets the rows so far.
  void clear() { rows_.clear(); }
  // Step, kind, name, grid, microseconds and origin, in the order of the run; then the sum.
  std::string table() const;

 private:
  struct Row {
    uint32_t step;
    std::string kind, name, grid, origin;
    double microseconds;
  };
  std::vector<Row> rows_;
};

}  // namespace husk::run
