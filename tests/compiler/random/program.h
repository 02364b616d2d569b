// Random valid programs. They use every statement and scalar op of the text form; their loops end.
#pragma once

#include <string>

namespace husk::test {

// The text of one program for the host with one function. A seed gives one text for each C++
// compiler, since C++ does not define the order in which the arguments of a call are computed. The
// program uses the image "random_kernels.so" and the ops of ops.h. It reads only bytes that were
// written, and its results do not depend on addresses. Some programs fail in every run, some for
// certain inputs.
std::string random_program(uint32_t seed);

}  // namespace husk::test
