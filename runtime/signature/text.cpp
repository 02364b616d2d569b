#include "signature/text.h"

#include <fcntl.h>
#include <sodium.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

namespace husk::signature {
namespace {

constexpr char kPrefix[] = "husk artifact signature 1\n";

Status unreadable(const TextKind& kind, const char* path, husk_error* error) {
  return fail(error, HUSK_IO, "cannot read the %s '%s': %m", kind.noun, path);
}

// Reads at most `size` bytes and writes their number to `length`.
Status read_file(const TextKind& kind, const char* path, char* text, size_t size, size_t* length,
                 husk_error* error) {
  // A FIFO would block without O_NONBLOCK.
  const int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return unreadable(kind, path, error);
  struct stat info;
  Status status = Status::ok;
  *length = 0;
  if (fstat(file, &info) != 0) {
    status = unreadable(kind, path, error);
  } else if (!S_ISREG(info.st_mode)) {
    status = fail(error, HUSK_IO, "the %s '%s' is not a regular file", kind.noun, path);
  } else {
    ssize_t n = 0;
    while (*length < size && (n = read(file, text + *length, size - *length)) > 0)
      *length += static_cast<size_t>(n);
    if (n < 0) status = unreadable(kind, path, error);
  }
  close(file);
  return status;
}

}  // namespace

Message::Message(const uint8_t* content_hash) {
  static_assert(sizeof(kPrefix) - 1 + 32 == sizeof(bytes));
  memcpy(bytes, kPrefix, sizeof(kPrefix) - 1);
  memcpy(bytes + sizeof(kPrefix) - 1, content_hash, 32);
}

uint32_t write_text(const TextKind& kind, const uint8_t* bytes, char text[kMaxText]) {
  char digits[2 * kMaxBytes + 1];
  sodium_bin2hex(digits, sizeof(digits), bytes, kind.bytes);
  const int length = snprintf(text, kMaxText, "%s\n%s\n", kind.header, digits);
  sodium_memzero(digits, sizeof(digits));
  return static_cast<uint32_t>(length);
}

Status read_text(const TextKind& kind, const char* path, uint8_t* bytes, husk_error* error) {
  char text[kMaxText] = {}, expected[kMaxText];
  size_t length = 0;
  Status status = read_file(kind, path, text, sizeof(text), &length, error);
  if (!failed(status)) {
    // A text is right if its bytes make the same text again.
    const bool good = sodium_hex2bin(bytes, kind.bytes, text + strlen(kind.header) + 1,
                                     2 * kind.bytes, nullptr, nullptr, nullptr) == 0 &&
                      write_text(kind, bytes, expected) == length &&
                      memcmp(text, expected, length) == 0;
    if (!good)
      status = fail(error, HUSK_INVALID_FILE,
                    "'%.120s' is not a %s: it must have the line '%s' and a line of %u "
                    "hexadecimal digits",
                    path, kind.noun, kind.header, 2 * kind.bytes);
  }
  sodium_memzero(text, sizeof(text));
  sodium_memzero(expected, sizeof(expected));
  return status;
}

}  // namespace husk::signature
