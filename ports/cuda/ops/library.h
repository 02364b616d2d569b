// Libraries of NVIDIA's that operators of the port call. Nothing is linked: a library is opened
// when the first program that needs it is opened, and its functions are looked up by name.
#pragma once

#include "driver.h"

namespace husk::cuda {

// A function of a library, and the place of its pointer in the struct that holds the functions.
struct LibrarySymbol {
  const char* name;
  size_t offset;
};

struct LibraryDescription {
  const char* title;    // "cuBLASLt"
  const char* package;  // what has to be installed: "CUDA's cuBLAS"
  const char* instead;  // the option of an export without the library: "gemm='triton'"
  const char* stem;     // of the file: "cublasLt" in libcublasLt.so.13
  // The versions in the names of files that are tried, the newest first. The newest is that of the
  // driver's major version of CUDA plus `newest`, or just `newest` if `is_fixed`: a driver runs
  // libraries of its own major version of CUDA and of earlier ones.
  int32_t oldest, newest;
  bool is_fixed;
  const LibrarySymbol* symbols;
  size_t symbol_count;
};

// Opens the library at `path`, or if that is null the newest one that the driver can run, and
// writes its functions to `table`. Returns null if there is none, or if it lacks a function; the
// error (HUSK_UNSUPPORTED) says what to do.
[[nodiscard]] void* open_library(const LibraryDescription& description, const char* path,
                                 const Driver& driver, void* table, husk_error* error);
void close_library(void* library);

}  // namespace husk::cuda
