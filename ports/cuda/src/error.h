// Errors of this port: one line that names the driver call, the driver's error and the object that
// the call was about.
#pragma once

#include <husk/detail/try.h>

#include "driver.h"

namespace husk::cuda {

// Fills `error` and returns `code`.
[[gnu::format(printf, 3, 4)]] husk_status fail(husk_error* error, husk_status code,
                                               const char* format, ...);

// Fills `error` for a driver call that returned `result`. The format names the object ("kernel
// 'softmax'"). Returns the status that corresponds to `result`.
[[gnu::format(printf, 5, 6)]] husk_status driver_fail(const Driver& driver, husk_error* error,
                                                      CUresult result, const char* call,
                                                      const char* format, ...);

}  // namespace husk::cuda
