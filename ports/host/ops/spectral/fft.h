// Fourier transforms of points as their kernels see them.
#pragma once

#include <cstdint>

#include "core/cancellation.h"

namespace husk::host {

// A line of `length` complex numbers, whose prime factors are small. Real and imaginary parts are
// adjacent. `roots` has the powers of exp(-2 pi i / length), or of its conjugate, `root_step` of
// them apart: root_step * length numbers.
struct FftLine {
  double *points, *other;  // the points, which are written over, and memory for as many
  const double* roots;
  int64_t length, root_step;
  Cancellation* cancellation;
};

// Transforms a line factor by factor (Stockham's autosort algorithm). Returns `points` or `other`,
// whichever has the result, or null if the call is to end. The same code is compiled for three
// instruction sets.
double* fft_line_baseline(const FftLine& line);
double* fft_line_avx2(const FftLine& line);
double* fft_line_avx512(const FftLine& line);

}  // namespace husk::host
