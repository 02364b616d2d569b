// Failures. A function that fails fills the caller's husk_error and returns its code as a Status.
#pragma once

#include <cstdarg>

#include <husk/detail/try.h>
#include <husk/types.h>

namespace husk {

enum class [[nodiscard]] Status : husk_status { ok = HUSK_OK };

inline bool failed(Status status) { return status != Status::ok; }
inline Status to_status(husk_status code) { return static_cast<Status>(code); }

// Fills `error` (may be null) from a printf format and returns `code`.
[[gnu::format(printf, 3, 4)]]
Status fail(husk_error* error, husk_status code, const char* format, ...);

// Fail with HUSK_INVALID_INPUT and with HUSK_INVALID_FILE.
[[gnu::format(printf, 2, 3)]]
Status invalid_input(husk_error* error, const char* format, ...);
[[gnu::format(printf, 2, 3)]]
Status invalid_file(husk_error* error, const char* format, ...);

// Fails with HUSK_INVALID_ARGUMENT: an argument of the C function "husk_" + function + what is
// NULL.
husk_status null_argument(husk_error* error, const char* function, const char* what = "");

// Puts text before the message of `error` (may be null): the place that the message is about.
[[gnu::format(printf, 2, 3)]]
void prefix(husk_error* error, const char* format, ...);

// Receives the messages of a call whose caller passed no husk_error, because ports always fill one.
struct ErrorScratch {
  husk_error spare;
  husk_error* of(husk_error* error) { return error ? error : &spare; }
};

}  // namespace husk
