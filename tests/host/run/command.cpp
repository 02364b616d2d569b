#include "command.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>

namespace husk::run_test {

Outcome run_command(const std::string& command) {
  Outcome out{-1, ""};
  std::FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  if (!pipe) return out;
  char chunk[4096];
  while (const size_t size = std::fread(chunk, 1, sizeof chunk, pipe)) out.text.append(chunk, size);
  const int status = pclose(pipe);
  if (WIFEXITED(status)) out.code = WEXITSTATUS(status);
  return out;
}

TemporaryFolder::TemporaryFolder(const std::string& name)
    : folder_((std::filesystem::temp_directory_path() / (name + "_" + std::to_string(getpid())))
                  .string()) {
  std::filesystem::create_directories(folder_);
}

TemporaryFolder::~TemporaryFolder() { std::filesystem::remove_all(folder_); }

std::string TemporaryFolder::path(const std::string& name) const { return folder_ + "/" + name; }

}  // namespace husk::run_test
