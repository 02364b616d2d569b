// What husk-run says of a function's outputs.
#pragma once

#include <optional>
#include <string>

#include "run/tensor.h"

namespace husk::run {

// An output: a tensor, or a number as a tensor of rank 0.
struct Output {
  std::string label;   // "output 0 y"
  std::string name;
  std::string position;
  Tensor tensor;
};

// One line: type, least, largest and mean number; NaNs are counted apart.
void print_summary(const Output& output);
// Every number, a line for each row.
void print_numbers(const Output& output);

// |got - expected| <= absolute + relative * |expected|; two NaNs are equal.
struct Tolerance {
  double relative, absolute;
};
// What rounding makes usual for the dtype, for what the user does not give.
Tolerance tolerance_for(husk_dtype dtype, std::optional<double> relative, std::optional<double> absolute);

// Prints the largest differences; false if some number is outside the tolerance, or type or shape differ.
bool print_comparison(const Output& output, const Tensor& expected, const Tolerance& tolerance);

}  // namespace husk::run
