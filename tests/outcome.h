// Commands that tests run by a shell.
#pragma once

#include <sys/wait.h>

#include <cstdio>
#include <string>

namespace husk::test {

struct Outcome {
  int status;        // the exit status; -1 if the command did not run, or was killed
  std::string text;  // stdout and stderr together
};

// Runs a command; `before` is shell text before it.
inline Outcome run(const std::string& command, const std::string& before = "") {
  FILE* pipe = popen((before + command + " 2>&1").c_str(), "r");
  if (!pipe) return {-1, "popen failed"};
  Outcome out{0, ""};
  char part[4096];
  while (size_t n = fread(part, 1, sizeof(part), pipe)) out.text.append(part, n);
  const int status = pclose(pipe);
  out.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return out;
}

}  // namespace husk::test
