#include "base/mutant.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>

namespace husk {
namespace {

constexpr unsigned kMostMutants = 100000;

unsigned chosen() {
  const char* number = getenv("HUSK_MUTANT");
  return number ? static_cast<unsigned>(atoi(number)) : 0;
}

// Each line has a number and is one write, so that child processes may add theirs.
void trace(unsigned number) {
  static std::atomic<bool> seen[kMostMutants];
  static const char* const path = getenv("HUSK_MUTANT_TRACE");
  if (!path || seen[number].exchange(true)) return;
  char line[16];
  const int length = snprintf(line, sizeof(line), "%u\n", number);
  const int file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (file < 0 || write(file, line, static_cast<size_t>(length)) != length) abort();
  close(file);
}

}  // namespace

bool is_removed(unsigned number) {
  static const unsigned removed = chosen();
  trace(number);
  return number == removed;
}

}  // namespace husk
