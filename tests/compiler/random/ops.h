// Extern ops of random programs, for the engine and for the plain evaluator.
#pragma once

#include <husk/op.h>

#include <span>

namespace husk::test {

// "test::mix": every byte of the tensors that it writes depends on all that it is given.
// "test::measure:sizes": its results are the sum of the bytes of its tensors, as an int, and a quarter of it, as a float.
std::span<const husk_op> random_ops();

}  // namespace husk::test
