#include "run/report.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

namespace husk::run {

void print_summary(const Output& output) {
  const Tensor& tensor = output.tensor;
  const int64_t count = tensor.number_count();
  double least = std::numeric_limits<double>::infinity(), largest = -least, sum = 0;
  int64_t nans = 0;
  for (int64_t i = 0; i < count; i++) {
    const double value = tensor.number(i);
    if (std::isnan(value)) {
      nans++;
      continue;
    }
    least = std::min(least, value);
    largest = std::max(largest, value);
    sum += value;
  }
  fmt::print("{}: {}", output.label, type_text(tensor.dtype, tensor.sizes));
  if (count > nans) {
    fmt::print("  min {:.6g}  max {:.6g}  mean {:.6g}", least, largest,
               sum / static_cast<double>(count - nans));
  }
  if (nans) fmt::print("  nan {}", nans);
  fmt::print("\n");
}

void print_numbers(const Output& output) {
  const Tensor& tensor = output.tensor;
  const int64_t count = tensor.number_count();
  const int64_t row = tensor.sizes.empty() || count == 0
                          ? 1
                          : count / (tensor.count() / tensor.sizes.back());
  for (int64_t i = 0; i < count; i++)
    fmt::print("{:.9g}{}", tensor.number(i), (i + 1) % row ? " " : "\n");
}

Tolerance tolerance_for(husk_dtype dtype, std::optional<double> relative,
                        std::optional<double> absolute) {
  Tolerance usual{0, 0};
  switch (dtype) {
#define HUSK_TOLERANCE(NAME, relative, absolute) \
  case HUSK_##NAME: usual = {relative, absolute}; break;
#include <dtypes.def>
    default: break;
  }
  return {relative.value_or(usual.relative), absolute.value_or(usual.absolute)};
}

bool print_comparison(const Output& output, const Tensor& expected, const Tolerance& tolerance) {
  const Tensor& tensor = output.tensor;
  if (tensor.dtype != expected.dtype || tensor.sizes != expected.sizes) {
    fmt::print("{}: {}, but {} was expected\n", output.label, type_text(tensor.dtype, tensor.sizes),
               type_text(expected.dtype, expected.sizes));
    return false;
  }
  double absolute = 0, relative = 0;
  int64_t outside = 0;
  const int64_t count = tensor.number_count();
  for (int64_t i = 0; i < count; i++) {
    const double a = tensor.number(i), b = expected.number(i);
    double difference = std::fabs(a - b);
    if (tensor.dtype == HUSK_I64 || tensor.dtype == HUSK_U64) {  // a double may not distinguish
                                                                 // them
      difference = a == b ? std::fabs(static_cast<double>(tensor.integer(i) - expected.integer(i)))
                          : difference;
      if (difference == 0) continue;
    } else if (a == b || (std::isnan(a) && std::isnan(b))) {
      continue;
    }
    if (std::isnan(difference))
      difference = std::numeric_limits<double>::infinity();  // one number is NaN
    absolute = std::max(absolute, difference);
    if (b != 0) relative = std::max(relative, difference / std::fabs(b));
    if (!(difference <= tolerance.absolute + tolerance.relative * std::fabs(b)) ||
        std::isinf(difference))
      outside++;
  }
  fmt::print("{}: differs by {:.3g} at the most, relatively by {:.3g}; ", output.label, absolute,
             relative);
  if (outside == 0) {
    fmt::print("within rtol {:g}, atol {:g}\n", tolerance.relative, tolerance.absolute);
  } else {
    fmt::print("{} of {} outside rtol {:g}, atol {:g}\n", outside, count, tolerance.relative,
               tolerance.absolute);
  }
  return outside == 0;
}

}  // namespace husk::run
