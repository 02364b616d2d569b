#include "write/mapping.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace husk::compiler {

Mapping::Mapping(const std::filesystem::path& path, std::string& error) {
  error.clear();
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) {
    error = fmt::format("cannot open {}: {}", path.string(), strerror(errno));
    return;
  }
  struct stat info = {};
  if (fstat(file, &info) != 0 || !S_ISREG(info.st_mode)) {
    error = fmt::format("{} is not a regular file", path.string());
  } else if (info.st_size > 0) {  // mmap refuses empty ranges
    void* data = mmap(nullptr, static_cast<size_t>(info.st_size), PROT_READ, MAP_PRIVATE, file, 0);
    if (data == MAP_FAILED) {
      error = fmt::format("cannot map {}: {}", path.string(), strerror(errno));
    } else {
      data_ = static_cast<const uint8_t*>(data);
      size_ = static_cast<size_t>(info.st_size);
    }
  }
  close(file);
}

Mapping::~Mapping() {
  if (data_) munmap(const_cast<uint8_t*>(data_), size_);
}

}  // namespace husk::compiler
