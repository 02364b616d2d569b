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
  size_t table_bytes;  // of the struct that holds the functions
};

// Opens the library at `path`, or if that is null the newest one that the driver can run. `table`
// is the struct that holds the functions; it begins with the library, a `void*`, and its other
// members become zeros. HUSK_UNSUPPORTED if there is no library, or if it lacks a function; the
// error says what to do.
[[nodiscard]] husk_status open_library(const LibraryDescription& description, const char* path,
                                       const Driver& driver, void* table, husk_error* error);
void close_library(void* library);

// Names a library in errors of its opening: "cuBLASLt on a driver of CUDA 13.0".
struct LibraryText {
  LibraryText(const LibraryDescription& description, const Driver& driver);
  char text[60];
};

// A value that a library returned: the status that corresponds to it, its name, and its number.
struct LibraryResult {
  husk_status status;
  const char* name;
  int32_t number;
};

// Fills `error` for a call that returned `result`; `thing` names the object. Returns the status.
husk_status library_fail(const LibraryDescription& description, const LibraryResult& result,
                         const char* call, const char* thing, husk_error* error);

}  // namespace husk::cuda
