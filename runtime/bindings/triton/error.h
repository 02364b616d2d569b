// Errors of Triton and of Husk.
#ifndef HUSK_BINDINGS_TRITON_ERROR_H
#define HUSK_BINDINGS_TRITON_ERROR_H

#include <memory>

#include <husk/types.h>

#include "api.h"

namespace husk::triton {

struct DeleteError {
  void operator()(TRITONSERVER_Error* error) const { TRITONSERVER_ErrorDelete(error); }
};
// An error of Triton; null if a call succeeded.
using Error = std::unique_ptr<TRITONSERVER_Error, DeleteError>;

// Returns an error with a formatted text of at most 1023 bytes.
[[nodiscard]] Error fail(TRITONSERVER_Error_Code code, const char* format, ...)
    __attribute__((format(printf, 2, 3)));

// Returns the error of a call of Husk that failed.
[[nodiscard]] Error fail(const husk_error& error);

// Writes a text to the log of the server.
void log(TRITONSERVER_LogLevel level, const char* text);

// Writes an error, if it is one, to the log of the server: for calls after which nobody can be
// told.
void log(Error error);

}  // namespace husk::triton

// Returns the error of a call of Triton's API, or of a function that returns an Error, if there is
// one.
#define HUSK_TRITON_TRY(call)                                         \
  do {                                                                \
    if (::husk::triton::Error failure{call}; failure) return failure; \
  } while (0)

#endif
