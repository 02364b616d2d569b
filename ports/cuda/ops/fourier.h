// The part of cuFFT that the port uses, and the table of its functions in a library that is opened
// at run time. The declarations stand here so that the port builds without CUDA's headers. Names
// and values are those of cufft.h and cufftXt.h; tests/port/fourier_declarations.cpp compares all
// of them with these headers if they are installed.
#pragma once

#include "driver.h"

namespace husk::cuda {

using cufftHandle = int;  // a plan

enum cufftResult : int {
  CUFFT_SUCCESS = 0,
  CUFFT_INVALID_PLAN = 1,
  CUFFT_ALLOC_FAILED = 2,
  CUFFT_INVALID_TYPE = 3,
  CUFFT_INVALID_VALUE = 4,
  CUFFT_INTERNAL_ERROR = 5,
  CUFFT_EXEC_FAILED = 6,
  CUFFT_SETUP_FAILED = 7,
  CUFFT_INVALID_SIZE = 8,
  CUFFT_NO_WORKSPACE = 13,
  CUFFT_NOT_IMPLEMENTED = 14,
  CUFFT_NOT_SUPPORTED = 16
};
enum cufftType : int {
  CUFFT_C2C = 0x29,
  CUFFT_R2C = 0x2A,
  CUFFT_C2R = 0x2C,
  CUFFT_Z2Z = 0x69,
  CUFFT_D2Z = 0x6A,
  CUFFT_Z2D = 0x6C
};
enum { CUFFT_FORWARD = -1, CUFFT_INVERSE = 1 };

struct Cufft {
  void* library;
#define HUSK_CUFFT(name, parameters) cufftResult(*name) parameters;
#include "ops/fourier.def"
#undef HUSK_CUFFT
};

// Opens the library at `path`, or if that is null the newest one that the driver can run.
// HUSK_UNSUPPORTED if there is none; the error says what to do.
[[nodiscard]] husk_status open_cufft(const char* path, const Driver& driver, Cufft* cufft,
                                     husk_error* error);
void close_cufft(Cufft* cufft);

// Fills `error` for a call that returned `result`; `thing` names the object. Returns the status
// that corresponds to `result`.
husk_status cufft_fail(husk_error* error, cufftResult result, const char* call, const char* thing);

}  // namespace husk::cuda
