// How functions of the runtime fail: they fill the caller's husk_error and return its code.
#pragma once

#include <husk/types.h>

#include <cstdarg>

namespace husk {

enum class [[nodiscard]] Status : husk_status { ok = HUSK_OK };

inline bool failed(Status status) { return status != Status::ok; }
inline Status to_status(husk_status code) { return static_cast<Status>(code); }

// No message has a float in it, so these need not save the registers of floats.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define HUSK_MESSAGE(text, first) __attribute__((format(printf, text, first), target("general-regs-only")))
#else
#define HUSK_MESSAGE(text, first) __attribute__((format(printf, text, first)))
#endif

// Fills `error` (may be null) from a printf format and returns `code`.
HUSK_MESSAGE(3, 4) Status fail(husk_error* error, husk_status code, const char* format, ...);

// The same with HUSK_INVALID_INPUT, and with HUSK_INVALID_FILE.
HUSK_MESSAGE(2, 3) Status refuse(husk_error* error, const char* format, ...);
HUSK_MESSAGE(2, 3) Status reject(husk_error* error, const char* format, ...);

// Of texts one behind the other. An array of pointers would have to be relocated by the loader.
const char* nth_text(const char* texts, int32_t n);

// HUSK_INVALID_ARGUMENT: a call of "husk_" + function + what got NULL.
husk_status null_argument(husk_error* error, const char* function, const char* what = "");

// Puts text before what `error` says (may be null): the place that a message from below is about.
HUSK_MESSAGE(2, 3) void prefix(husk_error* error, const char* format, ...);

// Takes the messages of a call that brought no error of its own: ports fill one without asking.
struct Sink {
  husk_error spare;
  husk_error* of(husk_error* error) { return error ? error : &spare; }
};

}  // namespace husk

#define HUSK_TRY(call)                                           \
  do {                                                           \
    if (::husk::Status status_ = (call); ::husk::failed(status_)) \
      return status_;                                            \
  } while (0)
