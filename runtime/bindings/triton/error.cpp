#include "error.h"

#include <cstdarg>
#include <cstdio>

namespace husk::triton {
namespace {

// Who can repair the failure decides: the client (INVALID_ARG), time (UNAVAILABLE), or the operator
// of the server.
TRITONSERVER_Error_Code code_of(husk_status status) {
  switch (status) {
    case HUSK_INVALID_INPUT:
    case HUSK_KERNEL:  // an index out of range, for instance
    case HUSK_LIMIT:   // the same request would reach it again
    case HUSK_INVALID_FILE: return TRITONSERVER_ERROR_INVALID_ARG;
    case HUSK_OUT_OF_MEMORY: return TRITONSERVER_ERROR_UNAVAILABLE;
    case HUSK_UNSUPPORTED: return TRITONSERVER_ERROR_UNSUPPORTED;
    case HUSK_IO:
    case HUSK_NOT_FOUND: return TRITONSERVER_ERROR_NOT_FOUND;
    case HUSK_CANCELLED: return TRITONSERVER_ERROR_CANCELLED;
    default: return TRITONSERVER_ERROR_INTERNAL;
  }
}

}  // namespace

Error fail(TRITONSERVER_Error_Code code, const char* format, ...) {
  char text[1024];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  return Error(TRITONSERVER_ErrorNew(code, text));
}

Error fail(const husk_error& error) {
  return Error(TRITONSERVER_ErrorNew(code_of(error.code), error.text));
}

void log(TRITONSERVER_LogLevel level, const char* text) {
  Error(TRITONSERVER_LogMessage(level, "husk", 0, text));
}

void log(Error error) {
  if (error) log(TRITONSERVER_LOG_WARN, TRITONSERVER_ErrorMessage(error.get()));
}

}  // namespace husk::triton
