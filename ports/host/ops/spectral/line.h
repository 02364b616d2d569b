// The discrete Fourier transform of a line of points, in f64. A length whose prime factors are
// small is transformed factor by factor (fft.h). Any other length becomes a circular convolution,
// whose own length has small factors (L. Bluestein, 1970). Both take time in proportion to n log n.
// An even number of real numbers is transformed as half as many complex ones, whose real parts are
// those at even places.
#pragma once

#include <cmath>

#include "core/complex_row.h"
#include "core/kernel_choice.h"
#include "core/loop.h"
#include "core/workspace.h"
#include "spectral/fft.h"

namespace husk::host {
namespace {

constexpr double kTwoPi = 2 * 3.14159265358979323846;
constexpr int64_t kLargestFactor = 64;  // a prime factor p costs p multiplications a point
// Lines of at most so many points need no workspace. They take 48 KiB of stack.
constexpr int64_t kStackPoints = 1024;

inline bool has_small_factors(int64_t n) {
  for (int64_t p = 2; p <= kLargestFactor; ++p)
    while (n % p == 0) n /= p;
  return n == 1;
}

// The length of the convolution for a line of n points: the smallest power of 2, or three times a
// power of 2, that is at least 2 n - 1. It is less than 3 n.
inline int64_t convolution_length(int64_t n) {
  int64_t length = 1;
  while (length < 2 * n - 1) length *= 2;
  return length >= 4 && length / 4 * 3 >= 2 * n - 1 ? length / 4 * 3 : length;
}

// The memory of a line of n points in a workspace.
inline Need line_need(int64_t n) {
  Need need;
  need.fits = n < kMaxElements / 8;
  if (!need.fits) return need;
  if (has_small_factors(n)) {
    need.add(2, n, 3);
  } else {
    need.add(2, n);
    need.add(2, convolution_length(n), 4);
  }
  return need;
}

class Line {
 public:
  // `memory` has the complex numbers of line_need(n) for each n that prepare() gets. Without a
  // workspace it has 3 * kStackPoints of them, and all lengths are transformed factor by factor.
  Line(Cancellation& calls_end, Features cpu, Complex128* line_memory, bool has_workspace)
      : cancellation(calls_end), memory(line_memory), convolves(has_workspace) {
    constexpr KernelFor<double* (*)(const FftLine&)> kKernels[] = HUSK_KERNELS(fft_line);
    kernel = best_kernel(cpu, kKernels);
  }

  // Whether the memory is enough for a line of `points`.
  bool fits(int64_t points) const { return convolves || points <= kStackPoints; }

  // Computes what all lines of this length and direction share, unless it is there already. A line
  // of reals is one of an even number of them. Returns false if the call is to end.
  bool prepare(int64_t points, bool is_forward, bool has_reals = false) {
    const int64_t step = has_reals ? 2 : 1;
    if (points == step * count && is_forward == forward && step == root_step) return true;
    root_step = step;
    count = points / step;
    forward = is_forward;
    direct = !convolves || has_small_factors(count);
    length = direct ? count : convolution_length(count);
    first = memory;
    second = first + length;
    roots = second + length;
    filter = roots + length;
    chirp = filter + length;
    // A convolution transforms forward, and has roots of its own.
    real_roots = direct ? roots : chirp + count;
    const int64_t shared = direct ? step : 1;
    const double turn = forward ? -kTwoPi : kTwoPi;
    if (!make_roots(roots, shared * length, direct ? turn : -kTwoPi, shared * length)) return false;
    if (!direct && has_reals && !make_roots(real_roots, count, turn, points)) return false;
    return direct || prepare_filter();
  }

  // The `points` of prepare() that run() transforms. It writes over them.
  Complex128* points() const { return first; }
  // Root `k` of unity of the reals of prepare(), for k below their half.
  const Complex128& real_root(int64_t k) const { return real_roots[k]; }

  // Returns the transformed points, or null if the call is to end.
  Complex128* run() {
    if (direct) return transform(first, second);
    if (!each_index(cancellation, length, [&](int64_t i) {
          first[i] = i < count ? times(first[i], chirp[i]) : Complex128{0, 0};
        }))
      return nullptr;
    Complex128* const spectrum = transform(first, second);
    // The transform back is the conjugate of the transform of the conjugates.
    if (!spectrum || !each_index(cancellation, length, [&](int64_t i) {
          spectrum[i] = conjugate(times(spectrum[i], filter[i]));
        }))
      return nullptr;
    Complex128* const result = transform(spectrum, spectrum == first ? second : first);
    if (!result || !each_index(cancellation, count, [&](int64_t i) {
          result[i] = times(conjugate(result[i]), chirp[i]);
        }))
      return nullptr;
    return result;
  }

  static Complex128 conjugate(const Complex128& z) { return {z.re, -z.im}; }

  Cancellation& cancellation;

 private:
  static Complex128 root_of(double turn, int64_t i, int64_t n) {
    const double angle = turn * static_cast<double>(i) / static_cast<double>(n);
    return {std::cos(angle), std::sin(angle)};
  }
  bool make_roots(Complex128* to, int64_t roots_count, double turn, int64_t n) {
    return each_index(cancellation, roots_count, [&](int64_t i) { to[i] = root_of(turn, i, n); });
  }

  // With k j = (k^2 + j^2 - (k - j)^2) / 2, the sum over x[j] * exp(turn k j / n) is a convolution
  // of x[j] * chirp[j] with the conjugates of the chirp, times chirp[k].
  bool prepare_filter() {
    const double turn = forward ? -kTwoPi : kTwoPi;
    int64_t square = 0;  // k^2 modulo 2 n, so that the angle is exact
    if (!each_index(cancellation, count,
                    [&](int64_t k) {
                      chirp[k] = root_of(turn, square, 2 * count);
                      square = (square + 2 * k + 1) % (2 * count);
                    }) ||
        !each_index(cancellation, length, [&](int64_t i) {
          const int64_t k = i < count ? i : length - i;
          first[i] = k < count ? conjugate(chirp[k]) : Complex128{0, 0};
        }))
      return false;
    const Complex128* const spectrum = transform(first, second);
    const double scale = 1 / static_cast<double>(length);
    return spectrum && each_index(cancellation, length, [&](int64_t i) {
             filter[i] = {spectrum[i].re * scale, spectrum[i].im * scale};
           });
  }

  // Transforms `length` points at `from` with the help of `to`. Returns the one that has the
  // result, or null if the call is to end.
  Complex128* transform(Complex128* from, Complex128* to) {
    const double* const result = kernel(
        {&from->re, &to->re, &roots->re, length, direct ? root_step : 1, &cancellation});
    return !result ? nullptr : result == &from->re ? from : to;
  }

  Complex128* const memory;
  const bool convolves;
  double* (*kernel)(const FftLine& line);
  // Results of prepare() for `count` complex points. `length` is the number of points that are
  // transformed factor by factor. `root_step` is 2 for a line of reals.
  int64_t count = 0, length = 0, root_step = 0;
  bool forward = true, direct = true;
  Complex128 *first = nullptr, *second = nullptr, *roots = nullptr, *real_roots = nullptr;
  Complex128 *filter = nullptr, *chirp = nullptr;  // only of a convolution
};

}  // namespace
}  // namespace husk::host
