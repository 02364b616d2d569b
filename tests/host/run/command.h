// Programs that tests run, and the files that they write.
#pragma once

#include <string>

namespace husk::run_test {

struct Outcome {
  int code;          // the exit code, or -1
  std::string text;  // stdout and stderr together
};

// Runs a command line of the shell.
Outcome run_command(const std::string& command);

// A folder of this process that is removed with the object.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(const std::string& name);
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  std::string path(const std::string& name) const;

 private:
  std::string folder_;
};

}  // namespace husk::run_test
