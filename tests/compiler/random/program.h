// Valid programs at random: every statement and scalar op of the text form, in blocks and loops that end.
#pragma once

#include <string>

namespace husk::test {

// The text of one program for the host with one function; the same seed gives the same text (of one C++ compiler: the
// order in which calls compute their arguments is the compiler's choice). Its image is "random_kernels.so", its ops are
// those of ops.h. Every byte that it reads was written before, and nothing that it
// computes depends on where memory lies. Some programs fail at each run, some only for certain inputs.
std::string random_program(uint32_t seed);

}  // namespace husk::test
