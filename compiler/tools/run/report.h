// Prints the outputs of a function, and compares them with expected ones.
#pragma once

#include <optional>
#include <string>

#include "run/tensor.h"

namespace husk::run {

// An output. A number is a tensor of rank 0.
struct Output {
  std::string label;  // "output 0 y"
  std::string name;
  std::string position;
  Tensor tensor;
};

// Prints one line: type, minimum, maximum and mean without NaNs, number of NaNs.
void print_summary(const Output& output);
// Prints every number, one line for each row.
void print_numbers(const Output& output);

// The condition |output - expected| <= absolute + relative * |expected|. Two NaNs are equal.
struct Tolerance {
  double relative, absolute;
};
// The tolerance of the user, with the usual rounding errors of the dtype as default.
Tolerance tolerance_for(husk_dtype dtype, std::optional<double> relative,
                        std::optional<double> absolute);

// Prints the largest differences. Returns false if a number is outside of the tolerance, or if type
// or shape differ.
bool print_comparison(const Output& output, const Tensor& expected, const Tolerance& tolerance);

}  // namespace husk::run
