// How the host port says what went wrong.
#ifndef HUSK_HOST_ERROR_H
#define HUSK_HOST_ERROR_H

#include <husk/types.h>

namespace husk::host {

// Fills `error` and returns `code`, for `return fail(...)`.
#if defined(__GNUC__)
__attribute__((format(printf, 3, 4), cold))
#endif
husk_status fail(husk_error* error, husk_status code, const char* format, ...);

}  // namespace husk::host

#endif
