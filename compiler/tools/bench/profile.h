// The times of the steps of a function, over many runs.
#pragma once

#include <string>
#include <vector>

#include <husk/husk.h>

namespace husk::bench_tool {

// One step, or several that have something in common.
struct ProfileRow {
  std::string kind, name, grid, origin;
  uint32_t steps = 1;
  double microseconds = 0;          // of one run; the median of all runs for a step
  int32_t clock = HUSK_CLOCK_HOST;  // of a step
  uint32_t step = 0;                // the index of a step
  uint64_t constant_bytes = 0;      // of the constants that the steps read; 0 if it is not known
};

class Profile {
 public:
  // Makes a session report its steps to this profile, which must outlive the session.
  void attach(husk_session_options& options);
  // Forgets all runs.
  void clear();

  // The steps in the order of the first run.
  std::vector<ProfileRow> steps() const;
  // The steps by kernel or operator, slowest first. A row's origin is empty.
  static std::vector<ProfileRow> by_operator(const std::vector<ProfileRow>& steps);
  // The steps by the module of the model, slowest first. A row's name is the module's path, "" for
  // steps without one.
  static std::vector<ProfileRow> by_module(const std::vector<ProfileRow>& steps);

 private:
  struct Step {
    ProfileRow row;
    std::vector<double> microseconds;
  };
  std::vector<Step> steps_;
  std::vector<size_t> position_;  // in steps_, by the index of the step
};

// The path of the module in the origin of a step, "layers.0.attention"; "" if it names none.
std::string module_of(const std::string& origin);

// The clock that has measured the steps: "device", "host", or "device and host".
std::string clock_name(const std::vector<ProfileRow>& steps);

// Tables of the steps, of the operators and of the modules. They have a column with the bytes of
// the constants that are read in a second, if these are known of some step.
std::string profile_tables(const std::vector<ProfileRow>& steps);
// The steps as a trace in JSON for chrome://tracing and Perfetto, one after the other. The rows are
// the steps and, above them, their modules.
std::string profile_trace(const std::vector<ProfileRow>& steps, const std::string& title);
// The steps as a picture in SVG. The width of a rectangle is its time; the rectangles above the
// steps are their modules.
std::string profile_picture(const std::vector<ProfileRow>& steps, const std::string& title);

}  // namespace husk::bench_tool
