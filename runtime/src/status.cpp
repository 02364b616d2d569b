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
  char before[sizeof(error->text)];
  memcpy(before, error->text, sizeof(before));
  va_list list;
  va_start(list, format);
  const int used = vsnprintf(error->text, sizeof(error->text), format, list);
  va_end(list);
  const int room = static_cast<int>(sizeof(error->text)) - used;
  if (used >= 0 && room > 0) snprintf(error->text + used, static_cast<size_t>(room), "%s", before);
}

}  // namespace husk
