#include "status.h"

#include <cstdio>
#include <cstring>

namespace husk {

Status fail(husk_error* error, husk_status code, const char* format, ...) {
  if (error) {
    error->code = code;
    error->driver_code = 0;
    error->step = -1;
    va_list list;
    va_start(list, format);
    vsnprintf(error->text, sizeof(error->text), format, list);
    va_end(list);
  }
  return to_status(code);
}

void prefix(husk_error* error, const char* format, ...) {
  if (!error) return;
  constexpr size_t kRoom = sizeof(error->text);
  char front[kRoom];
  va_list list;
  va_start(list, format);
  const int written = vsnprintf(front, kRoom, format, list);
  va_end(list);
  const size_t used = written < 0 ? 0 : size_t(written) < kRoom ? size_t(written) : kRoom - 1;
  memmove(error->text + used, error->text, kRoom - used);
  memcpy(error->text, front, used);
  error->text[kRoom - 1] = 0;
}

}  // namespace husk
