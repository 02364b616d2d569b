// The constants that the file does not hold, because a function of the file computes them from the
// others (FORMAT.md, "Folded constants").
#pragma once

#include "program/program.h"

namespace husk::runtime {

// Computes the folded constants of a program that is loaded, if it has some, and prepares the
// program to do so again after each update of its constants.
Status begin_folding(Program* program, husk_error* error);
// Frees what begin_folding made, also if it failed. No session of the program may exist.
void end_folding(Program* program);
// The memory that folded constants take on the device, in bytes.
uint64_t folded_bytes(const Program& program);

}  // namespace husk::runtime
