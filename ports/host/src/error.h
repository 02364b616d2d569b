// Errors of the host port.
#pragma once

#include <husk/types.h>

namespace husk::host {

// Fills `error` and returns `code`, so that a function can `return fail(...)`.
#if defined(__GNUC__)
__attribute__((format(printf, 3, 4), cold))
#endif
husk_status
fail(husk_error* error, husk_status code, const char* format, ...);

}  // namespace husk::host
