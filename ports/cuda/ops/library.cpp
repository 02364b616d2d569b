#include "ops/library.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstring>

#include "error.h"

namespace husk::cuda {

namespace {

// The libraries start threads and register their kernels with the driver, so their code stays
// mapped.
void* open_file(const char* name) { return dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE); }

void* find_file(const LibraryDescription& description, const char* path, int32_t driver_version) {
  if (path) return open_file(path);
  const int32_t newest = description.newest + (description.is_fixed ? 0 : driver_version / 1000);
  char name[48];
  for (int32_t version = newest; version >= description.oldest; --version) {
    snprintf(name, sizeof name, "lib%s.so.%d", description.stem, version);
    if (void* library = open_file(name)) return library;
  }
  snprintf(name, sizeof name, "lib%s.so", description.stem);
  return open_file(name);
}

}  // namespace

husk_status open_library(const LibraryDescription& description, const char* path,
                         const Driver& driver, void* table, husk_error* error) {
  memset(table, 0, description.table_bytes);
  void* library = find_file(description, path, driver.version);
  if (!library) {
    const char* reason = dlerror();
    return fail(error, HUSK_UNSUPPORTED,
                "no %s (%.90s): install %s, add its folder to LD_LIBRARY_PATH, or export with %s",
                description.title, reason ? reason : description.stem, description.package,
                description.instead);
  }
  for (size_t i = 0; i < description.symbol_count; ++i) {
    const LibrarySymbol& symbol = description.symbols[i];
    void* function = dlsym(library, symbol.name);
    if (!function) {
      dlclose(library);
      return fail(error, HUSK_UNSUPPORTED, "this %s has no %s: install a newer version of %s",
                  description.title, symbol.name, description.package);
    }
    memcpy(static_cast<char*>(table) + symbol.offset, &function, sizeof function);
  }
  memcpy(table, &library, sizeof library);
  return HUSK_OK;
}

void close_library(void* library) { dlclose(library); }

LibraryText::LibraryText(const LibraryDescription& description, const Driver& driver) {
  snprintf(text, sizeof text, "%s on a driver of CUDA %d.%d", description.title,
           driver.version / 1000, driver.version % 1000 / 10);
}

husk_status library_fail(const LibraryDescription& description, const LibraryResult& result,
                         const char* call, const char* thing, husk_error* error) {
  const bool is_unsupported = result.status == HUSK_UNSUPPORTED;
  (void)fail(error, result.status, "%s: %s: %s (%d)%s%s", thing, call, result.name, result.number,
             is_unsupported ? "; export with " : "", is_unsupported ? description.instead : "");
  error->driver_code = result.number;
  return result.status;
}

}  // namespace husk::cuda
