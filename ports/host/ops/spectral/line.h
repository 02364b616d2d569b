// The discrete Fourier transform of a line of points, in f64. A length whose prime factors are
// small is transformed factor by factor (Stockham's autosort algorithm). Any other length becomes a
// circular convolution, whose own length has small factors (L. Bluestein, 1970). Both take time in
// proportion to n log n.
#pragma once

#include <cmath>

#include "core/complex_row.h"
#include "core/loop.h"
#include "core/workspace.h"

namespace husk::host {
namespace {

constexpr double kTwoPi = 2 * 3.14159265358979323846;
constexpr int64_t kLargestFactor = 64;  // a prime factor p costs p multiplications a point
// Lines of at most so many points need no workspace. They take 48 KiB of stack.
constexpr int64_t kStackPoints = 1024;

inline int64_t smallest_factor(int64_t n) {
  if (n % 4 == 0) return 4;
  for (int64_t p = 2; p * p <= n; ++p)
    if (n % p == 0) return p;
  return n;
}

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
  Line(Cancellation& calls_end, Complex128* line_memory, bool has_workspace)
      : cancellation(calls_end), memory(line_memory), convolves(has_workspace) {}

  // Whether the memory is enough for a line of `points`.
  bool fits(int64_t points) const { return convolves || points <= kStackPoints; }

  // Computes what all lines of this length and direction share, unless it is there already.
  // Returns false if the call is to end.
  bool prepare(int64_t points, bool is_forward) {
    if (points == count && is_forward == forward) return true;
    count = points;
    forward = is_forward;
    direct = !convolves || has_small_factors(points);
    length = direct ? points : convolution_length(points);
    first = memory;
    second = first + length;
    roots = second + length;
    filter = roots + length;
    chirp = filter + length;
    const double turn = direct && !forward ? kTwoPi : -kTwoPi;
    if (!each_index(cancellation, length, [&](int64_t i) { roots[i] = root_of(turn, i, length); }))
      return false;
    return direct || prepare_filter();
  }

  // The `points` of prepare() that run() transforms. It writes over them.
  Complex128* points() const { return first; }

  // Returns the transformed points, or null if the call is to end.
  const Complex128* run() {
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

 private:
  static Complex128 root_of(double turn, int64_t i, int64_t n) {
    const double angle = turn * static_cast<double>(i) / static_cast<double>(n);
    return {std::cos(angle), std::sin(angle)};
  }
  static Complex128 conjugate(const Complex128& z) { return {z.re, -z.im}; }

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
    int64_t left = length, step = 1;
    while (left > 1) {
      const int64_t p = smallest_factor(left);
      if (!pass(from, to, left, step, p)) return nullptr;
      left /= p;
      step *= p;
      Complex128* const other = from;
      from = to;
      to = other;
    }
    return from;
  }

  bool pass(const Complex128* from, Complex128* to, int64_t left, int64_t step, int64_t p) {
    const int64_t m = left / p, turns = length / left;
    return each_index_while(cancellation, m, [&](int64_t k) {
      const int64_t work = step * p * p;
      if (work > kUnreportedWork && cancellation.ends(work)) return false;
      if (p == 4)
        quarters(from + step * k, to + 4 * step * k, step, m * step, turns * k);
      else
        parts(from + step * k, to + p * step * k, step, m * step, turns * k, p);
      return true;
    });
  }

  // One group of a pass with any factor. The points of a group are `apart` from each other.
  void parts(const Complex128* from, Complex128* to, int64_t step, int64_t apart, int64_t turn,
             int64_t p) const {
    const int64_t inner = length / p;
    for (int64_t j = 0; j < p; ++j) {
      const Complex128 root = roots[turn * j];
      for (int64_t q = 0; q < step; ++q) {
        Complex128 sum = from[q];
        for (int64_t r = 1; r < p; ++r) {
          const Complex128 value = from[q + apart * r];
          const int64_t at = r * j % p * inner;
          sum = plus(sum, at == 0 ? value : times(value, roots[at]));
        }
        to[q + step * j] = times(sum, root);
      }
    }
  }
  // The same with the factor 4, whose inner roots are 1, i, -1 and -i.
  void quarters(const Complex128* from, Complex128* to, int64_t step, int64_t apart,
                int64_t turn) const {
    const double sign = roots[length / 4].im < 0 ? -1 : 1;
    const Complex128 one = roots[turn], two = roots[2 * turn], three = roots[3 * turn];
    for (int64_t q = 0; q < step; ++q) {
      const Complex128 a = from[q], b = from[q + apart], c = from[q + 2 * apart],
                       d = from[q + 3 * apart];
      const Complex128 even = plus(a, c), odd = plus(b, d), even_difference = minus(a, c),
                       difference = minus(b, d),
                       turned = {-sign * difference.im, sign * difference.re};
      to[q] = plus(even, odd);
      to[q + step] = times(plus(even_difference, turned), one);
      to[q + 2 * step] = times(minus(even, odd), two);
      to[q + 3 * step] = times(minus(even_difference, turned), three);
    }
  }

  Cancellation& cancellation;
  Complex128* const memory;
  const bool convolves;
  // Results of prepare() for `count` points. `length` is the number of points that are
  // transformed factor by factor.
  int64_t count = 0, length = 0;
  bool forward = true, direct = true;
  Complex128 *first = nullptr, *second = nullptr, *roots = nullptr;
  Complex128 *filter = nullptr, *chirp = nullptr;  // only of a convolution
};

}  // namespace
}  // namespace husk::host
