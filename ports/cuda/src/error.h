// How this port fails: one line that names the driver call, the driver's error and the thing.
#ifndef HUSK_CUDA_ERROR_H
#define HUSK_CUDA_ERROR_H

#include "driver.h"

namespace husk::cuda {

// Fills `error` and returns `code`.
[[gnu::format(printf, 3, 4)]] husk_status fail(husk_error* error, husk_status code, const char* format, ...);

// Fills `error` for a driver call that came back with `result`; the format says the thing ("kernel 'softmax'").
[[gnu::format(printf, 5, 6)]] husk_status driver_fail(const Driver& driver, husk_error* error, CUresult result,
                                                      const char* call, const char* format, ...);

}  // namespace husk::cuda

#define HUSK_TRY(expression)                                  \
  do {                                                        \
    if (const husk_status status_ = (expression)) return status_; \
  } while (0)

#endif
