// Logarithms of complex numbers that keep the digits of small numbers and do not overflow.
#pragma once

#include <cmath>

#include "core/arithmetic.h"

namespace husk::host {
namespace {

// log(1 + a). Near 0 the absolute value of 1 + a would lose the digits of a.
inline Complex<double> log_one_plus(Complex<double> a) {
  const double angle = std::atan2(a.im, a.re + 1);
  if (std::hypot(a.re, a.im) >= 0.5) return {std::log(std::hypot(a.re + 1, a.im)), angle};
  const double excess = a.re * (2 + a.re) + a.im * a.im;  // |1 + a|^2 - 1
  return {excess == 0 ? a.re : std::log1p(excess) / 2, angle};
}

}  // namespace
}  // namespace husk::host
