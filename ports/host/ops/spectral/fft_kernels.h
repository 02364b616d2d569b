// The kernel of a Fourier transform, for the instruction set that the including file is compiled
// for. A line whose length has a factor L, the lanes of a vector, is L lines whose points take
// turns: lane l of point j is point j * L + l of the line. These are transformed at once, and a sum
// over the lanes makes one line of them.
#pragma once

#include "core/lanes.h"
#include "spectral/fft.h"

namespace husk::host {
namespace {

// A vector of `width` numbers. GCC 12 takes no vector_size that depends on a parameter.
template <int64_t width>
struct FftVector;
template <>
struct FftVector<1> {
  using Type = double;
};
template <>
struct FftVector<2> {
  using Type = double __attribute__((vector_size(16)));
};
template <>
struct FftVector<4> {
  using Type = double __attribute__((vector_size(32)));
};
template <>
struct FftVector<8> {
  using Type = double __attribute__((vector_size(64)));
};

// Complex numbers, one in each lane.
template <int64_t width>
struct FftPoint {
  using V = typename FftVector<width>::Type;
  V re, im;

  static FftPoint load(const double* points, int64_t at) {
    FftPoint point;
    __builtin_memcpy(&point.re, points + 2 * width * at, sizeof(V));
    __builtin_memcpy(&point.im, points + 2 * width * at + width, sizeof(V));
    return point;
  }
  void store(double* points, int64_t at) const {
    __builtin_memcpy(points + 2 * width * at, &re, sizeof(V));
    __builtin_memcpy(points + 2 * width * at + width, &im, sizeof(V));
  }
  FftPoint operator+(const FftPoint& o) const { return {re + o.re, im + o.im}; }
  FftPoint operator-(const FftPoint& o) const { return {re - o.re, im - o.im}; }
  template <class R>  // a number, or one for each lane
  FftPoint times(const R& root_re, const R& root_im) const {
    return {re * root_re - im * root_im, re * root_im + im * root_re};
  }
  // Times i, or times -i if `sign` is -1.
  FftPoint turned(double sign) const { return {-sign * im, sign * re}; }
};

inline int64_t factor_of(int64_t n) {
  if (n % 4 == 0) return 4;
  for (int64_t p = 2; p * p <= n; ++p)
    if (n % p == 0) return p;
  return n;
}

// The transforms of all lanes.
template <int64_t width>
struct FftLanes {
  using Point = FftPoint<width>;
  const FftLine& line;
  int64_t count, root_step;  // points of a lane, and the distance of their roots
  double sign;               // of the angle of the first root

  const double* root(int64_t at) const { return line.roots + 2 * root_step * at; }

  // `points` and `other` change places with each factor.
  bool run(double*& points, double*& other) const {
    for (int64_t left = count, step = 1; left > 1;) {
      const int64_t p = factor_of(left);
      if (!pass(points, other, left / p, step, p)) return false;
      left /= p;
      step *= p;
      double* const from = points;
      points = other;
      other = from;
    }
    return true;
  }

  bool pass(const double* from, double* to, int64_t groups, int64_t step, int64_t p) const {
    const int64_t apart = groups * step, turns = count / (groups * p);
    for (int64_t k = 0; k < groups; ++k) {
      if (line.cancellation->ends(step * p * p)) return false;
      if (p == 4)
        quarters(from, to, step, apart, k, turns * k);
      else
        parts(from, to, step, apart, k, turns * k, p);
    }
    return true;
  }

  // Group `k` of a pass with any factor. Its points are `apart` from each other.
  void parts(const double* from, double* to, int64_t step, int64_t apart, int64_t k, int64_t turn,
             int64_t p) const {
    const int64_t inner = count / p;
    for (int64_t j = 0; j < p; ++j) {
      const double* const outer = root(turn * j);
      for (int64_t q = 0; q < step; ++q) {
        Point sum = Point::load(from, step * k + q);
        for (int64_t r = 1, at = j; r < p; ++r, at = at + j < p ? at + j : at + j - p) {
          const double* const own = root(at * inner);
          sum = sum + Point::load(from, step * k + q + apart * r).times(own[0], own[1]);
        }
        sum.times(outer[0], outer[1]).store(to, p * step * k + q + step * j);
      }
    }
  }
  // The same with the factor 4, whose inner roots are 1, i, -1 and -i.
  void quarters(const double* from, double* to, int64_t step, int64_t apart, int64_t k,
                int64_t turn) const {
    const double *const one = root(turn), *const two = root(2 * turn),
                        *const three = root(3 * turn);
    const double re[] = {one[0], two[0], three[0]}, im[] = {one[1], two[1], three[1]};
    from += 2 * width * step * k;
    to += 8 * width * step * k;
    for (int64_t q = 0; q < step; ++q) {
      const Point a = Point::load(from, q), b = Point::load(from, q + apart),
                  c = Point::load(from, q + 2 * apart), d = Point::load(from, q + 3 * apart);
      const Point even = a + c, odd = b + d, difference = a - c, turned = (b - d).turned(sign);
      (even + odd).store(to, q);
      (difference + turned).times(re[0], im[0]).store(to, q + step);
      (even - odd).times(re[1], im[1]).store(to, q + 2 * step);
      (difference - turned).times(re[2], im[2]).store(to, q + 3 * step);
    }
  }
};

// The transform of n points, `apart` from each other: out[q] has the sum over r of in[r] times
// root^(q r).
template <int64_t n, int64_t width>
inline void few_points(const FftPoint<width>* in, int64_t apart, double sign,
                       FftPoint<width>* out) {
  if constexpr (n == 1) {
    out[0] = in[0];
  } else {
    constexpr double kHalf = 0.70710678118654752440;
    constexpr int64_t h = n / 2;
    few_points<h>(in, 2 * apart, sign, out);
    few_points<h>(in + apart, 2 * apart, sign, out + h);
    for (int64_t q = 0; q < h; ++q) {
      const FftPoint<width> odd = out[h + q], turned = odd.turned(sign);
      FftPoint<width> right = odd;
      if (4 * q == n) right = turned;
      if (8 * q == n) right = {(odd.re + turned.re) * kHalf, (odd.im + turned.im) * kHalf};
      if (8 * q == 3 * n) right = {(turned.re - odd.re) * kHalf, (turned.im - odd.im) * kHalf};
      out[h + q] = out[q] - right;
      out[q] = out[q] + right;
    }
  }
}

// Makes one line of those of the lanes: of point k of all lanes the points k + lanes' count * q.
template <int64_t width>
bool join_lanes(const FftLanes<width>& lanes, const double* from, double* to) {
  const FftLine& line = lanes.line;
  for (int64_t k = 0; k < lanes.count; k += width) {
    if (line.cancellation->ends(4 * width)) return false;
    const int64_t columns = lanes.count - k < width ? lanes.count - k : width;
    double re[width][width] = {}, im[width][width] = {};  // by lane and column
    for (int64_t c = 0; c < columns; ++c) {
      double root_re[width], root_im[width];
      for (int64_t l = 0; l < width; ++l) {
        const double* const root = line.roots + 2 * line.root_step * l * (k + c);
        root_re[l] = root[0];
        root_im[l] = root[1];
      }
      FftPoint<width> roots;
      __builtin_memcpy(&roots.re, root_re, sizeof root_re);
      __builtin_memcpy(&roots.im, root_im, sizeof root_im);
      const FftPoint<width> point = FftPoint<width>::load(from, k + c).times(roots.re, roots.im);
      for (int64_t l = 0; l < width; ++l) {
        re[l][c] = point.re[l];
        im[l][c] = point.im[l];
      }
    }
    FftPoint<width> in[width], out[width];
    for (int64_t l = 0; l < width; ++l) {
      __builtin_memcpy(&in[l].re, re[l], sizeof re[l]);
      __builtin_memcpy(&in[l].im, im[l], sizeof im[l]);
    }
    few_points<width>(in, 1, lanes.sign, out);
    for (int64_t q = 0; q < width; ++q)
      for (int64_t c = 0; c < columns; ++c) {
        to[2 * (k + c + lanes.count * q)] = out[q].re[c];
        to[2 * (k + c + lanes.count * q) + 1] = out[q].im[c];
      }
  }
  return true;
}

template <int64_t width>
double* run_fft_lanes(const FftLine& line) {
  double *points = line.points, *other = line.other;
  const int64_t count = line.length / width;
  // The angle of the first root is below 0 in a forward transform. One of two points has none.
  const double* const quarter = line.roots + 2 * line.root_step * (line.length / 4);
  const double sign = line.length > 2 && quarter[1] < 0 ? -1 : 1;
  const FftLanes<width> lanes{line, count, line.root_step * width, sign};
  if constexpr (width == 1) {
    return lanes.run(points, other) ? points : nullptr;
  } else {
    if (line.cancellation->ends(line.length)) return nullptr;
    for (int64_t j = 0; j < count; ++j) {
      FftPoint<width> point{};
      for (int64_t l = 0; l < width; ++l) {
        point.re[l] = points[2 * (j * width + l)];
        point.im[l] = points[2 * (j * width + l) + 1];
      }
      point.store(points, j);
    }
    return lanes.run(points, other) && join_lanes(lanes, points, other) ? other : nullptr;
  }
}

inline double* run_fft_line(const FftLine& line) {
  constexpr int64_t kMost = kLaneCount<double>;
  if constexpr (kMost >= 8)
    if (line.length % 8 == 0) return run_fft_lanes<8>(line);
  if constexpr (kMost >= 4)
    if (line.length % 4 == 0) return run_fft_lanes<4>(line);
  if (line.length % 2 == 0) return run_fft_lanes<2>(line);
  return run_fft_lanes<1>(line);
}

}  // namespace
}  // namespace husk::host
