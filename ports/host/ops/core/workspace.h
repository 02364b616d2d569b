// Scratch memory of an op. Ops do not allocate, so the file gives a call a contiguous vector of f64
// as its last argument. lower/workspaces.py of the exporter knows the length, which the op checks.
#pragma once

#include "core/arguments.h"
#include "core/checked.h"

namespace husk::host {
namespace {

// The number of f64 values that an op needs as a workspace.
class Need {
 public:
  // Adds rows * columns elements of `width` values.
  void add(int64_t width, int64_t rows, int64_t columns = 1) {
    int64_t elements = 0, values = 0;
    fits = fits && checked_multiply(rows, columns, elements) &&
           checked_multiply(elements, width, values) && checked_add(total, values, total);
  }
  bool fits = true;
  int64_t total = 0;
};

// The workspace is a contiguous vector of f64, and large enough.
inline husk_status check_workspace(const Arguments& args, ArgumentPlace at, const Need& need) {
  HUSK_TRY(args.check_tensor(at, 1, 1));
  HUSK_TRY(args.check_dtype(at, HUSK_F64));
  if (!contiguous(args[at]))
    return args.argument_error(at, HUSK_INVALID_ARGUMENT, "is not contiguous");
  if (!need.fits || args[at].sizes[0] < need.total)
    return args.argument_error(at, HUSK_INVALID_ARGUMENT, "is smaller than the op needs");
  return HUSK_OK;
}

// Hands out the memory of a checked workspace.
class WorkspaceMemory {
 public:
  WorkspaceMemory(const Arguments& args, ArgumentPlace at) : next(writable<double>(args[at])) {}

  template <class S>
  S* vector(int64_t count) {
    S* const memory = reinterpret_cast<S*>(next);
    next += count * static_cast<int64_t>(sizeof(S) / sizeof(double));
    return memory;
  }

 private:
  double* next;
};

}  // namespace
}  // namespace husk::host
