#include "write/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <system_error>

#include "ir/compile_error.h"

namespace husk::compiler {
namespace {

// The names of the temporary files that exist now, for the signal handler; null where there is
// none.
std::atomic<const char*> temporary_names[2];
static_assert(std::atomic<const char*>::is_always_lock_free);

// Keeps a name, in a free place if there is one, and returns the place.
size_t keep_name(const char* name) {
  const char* none = nullptr;
  if (temporary_names[0].compare_exchange_strong(none, name)) return 0;
  temporary_names[1] = name;
  return 1;
}

// SA_RESETHAND has restored the default action, which the second signal carries out.
void remove_and_end(int signal) {
  for (const std::atomic<const char*>& each : temporary_names)
    if (const char* name = each.load()) unlink(name);
  raise(signal);
}

}  // namespace

bool is_stream(const std::filesystem::path& path) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0) return false;
  const std::string& name = path.native();
  const bool open_file = name.starts_with("/dev/std") || name.starts_with("/dev/fd/") ||
                         name.starts_with("/proc/");
  return open_file || !S_ISREG(info.st_mode);
}

OutputFile::OutputFile(const std::filesystem::path& path) : path_(path) {
  if (is_stream(path_)) {
    file_ = open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (file_ < 0) fail_to_write(errno);
    return;
  }
  std::error_code missing;
  const std::filesystem::path target = std::filesystem::canonical(path, missing);
  if (!missing) path_ = target;
  open_temporary();
}

// The name has the number of the process, so that two compilers may write the same output.
void OutputFile::open_temporary() {
  struct stat old;
  const bool exists = stat(path_.c_str(), &old) == 0;
  for (int n = 0; file_ < 0; ++n) {
    temporary_path_ = fmt::format("{}.{}-{}.part", path_.native(), getpid(), n);
    slot_ = keep_name(temporary_path_.c_str());
    file_ = open(temporary_path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file_ >= 0) break;
    const int code = errno;
    temporary_names[slot_] = nullptr;
    temporary_path_.clear();
    if (code != EEXIST)
      fail({}, "cannot write {}: no file can be created beside it: {}", path_.native(),
           strerror(code));
  }
  if (exists) (void)fchmod(file_, old.st_mode & 0777);
}

OutputFile::~OutputFile() {
  if (file_ >= 0) ::close(file_);
  if (temporary_path_.empty()) return;
  unlink(temporary_path_.c_str());
  temporary_names[slot_] = nullptr;
}

void OutputFile::write(std::span<const uint8_t> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(file_, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_to_write(errno);
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
}

void OutputFile::write_at(uint64_t offset, std::span<const uint8_t> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = pwrite(file_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_to_write(errno);
    offset += static_cast<uint64_t>(n);
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
}

void OutputFile::resize(uint64_t bytes) {
  if (ftruncate(file_, static_cast<off_t>(bytes)) != 0) fail_to_write(errno);
}

const std::filesystem::path& OutputFile::close() {
  const int file = file_;
  file_ = -1;
  if (::close(file) != 0) fail_to_write(errno);
  return temporary_path_.empty() ? path_ : temporary_path_;
}

void OutputFile::finish_as(const std::filesystem::path& path) {
  path_ = path;
  finish();
}

void OutputFile::finish() {
  if (file_ >= 0) close();
  if (temporary_path_.empty()) return;
  if (rename(temporary_path_.c_str(), path_.c_str()) != 0) fail_to_write(errno);
  temporary_names[slot_] = nullptr;
  temporary_path_.clear();
}

void OutputFile::fail_to_write(int code) const {
  fail({}, "cannot write {}: {}", path_.native(), strerror(code));
}

void remove_output_on_signals() {
  struct sigaction action = {};
  action.sa_handler = remove_and_end;
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction old;
    // A signal that the parent process ignores, as nohup does, stays ignored.
    if (sigaction(number, nullptr, &old) == 0 && old.sa_handler != SIG_IGN)
      sigaction(number, &action, nullptr);
  }
  signal(SIGXFSZ, SIG_IGN);
}

}  // namespace husk::compiler
