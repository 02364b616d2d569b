#include "base/status.h"

#include <cstdio>
#include <cstring>

#include <husk/detail/printable.h>

namespace husk {

// Names of a file are parts of the text, so it is escaped as a whole.
static Status write(husk_error* error, husk_status code, const char* format, va_list list) {
  if (error) {
    error->code = code;
    error->driver_code = 0;
    error->step = -1;
    char text[sizeof(error->text)];
    vsnprintf(text, sizeof(text), format, list);
    detail::write_printable(text, error->text, sizeof(error->text));
  }
  return to_status(code);
}

Status fail(husk_error* error, husk_status code, const char* format, ...) {
  va_list list;
  va_start(list, format);
  Status status = write(error, code, format, list);
  va_end(list);
  return status;
}

Status invalid_input(husk_error* error, const char* format, ...) {
  va_list list;
  va_start(list, format);
  Status status = write(error, HUSK_INVALID_INPUT, format, list);
  va_end(list);
  return status;
}

Status invalid_file(husk_error* error, const char* format, ...) {
  va_list list;
  va_start(list, format);
  Status status = write(error, HUSK_INVALID_FILE, format, list);
  va_end(list);
  return status;
}

husk_status null_argument(husk_error* error, const char* function, const char* what) {
  return husk_status(
      fail(error, HUSK_INVALID_ARGUMENT, "husk_%s%s: an argument is NULL", function, what));
}

void prefix(husk_error* error, const char* format, ...) {
  if (!error) return;
  constexpr size_t kRoom = sizeof(error->text);
  char text[2 * kRoom];
  va_list list;
  va_start(list, format);
  const int written = vsnprintf(text, kRoom, format, list);
  va_end(list);
  const size_t used = written < 0 ? 0 : size_t(written) < kRoom ? size_t(written) : kRoom - 1;
  memcpy(text + used, error->text, kRoom);
  detail::write_printable(text, error->text, kRoom);
}

}  // namespace husk
