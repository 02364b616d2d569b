// The extern ops of random programs, for the engine and for the evaluator of the tests.
#pragma once

#include <span>

#include <husk/op.h>

namespace husk::test {

// "test::mix": every byte of the tensors that it writes depends on all its arguments.
// "test::measure:sizes": its results are the sum of the bytes of its tensors as an int, and a
// quarter of that sum as a float.
std::span<const husk_op> random_ops();

}  // namespace husk::test
