/** @file
 * HUSK_TRY for the sources of the runtime and of the ports. The header is private: applications do
 * not include it. C++17. */
#ifndef HUSK_DETAIL_TRY_H
#define HUSK_DETAIL_TRY_H

#include <husk/types.h>

/** Evaluates `expression`, a husk_status or an enum over it, and returns it from the enclosing
 * function if it is not HUSK_OK. */
#define HUSK_TRY(expression)                                                          \
  do {                                                                                \
    const auto husk_try_status = (expression);                                        \
    if (static_cast<husk_status>(husk_try_status) != HUSK_OK) return husk_try_status; \
  } while (0)

#endif
