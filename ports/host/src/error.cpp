// The implementation of fail().
#include "error.h"

#include <cstdarg>
#include <cstdio>

#include <husk/detail/printable.h>

namespace husk::host {

husk_status fail(husk_error* error, husk_status code, const char* format, ...) {
  error->code = code;
  error->driver_code = 0;
  error->step = -1;
  va_list arguments;
  va_start(arguments, format);
  char text[sizeof error->text];
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  detail::write_printable(text, error->text, sizeof error->text);
  return code;
}

}  // namespace husk::host
