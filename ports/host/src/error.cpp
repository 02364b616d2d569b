// The implementation of fail().
#include "error.h"

#include <cstdarg>
#include <cstdio>

namespace husk::host {

husk_status fail(husk_error* error, husk_status code, const char* format, ...) {
  error->code = code;
  error->driver_code = 0;
  error->step = -1;
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(error->text, sizeof error->text, format, arguments);
  va_end(arguments);
  return code;
}

}  // namespace husk::host
