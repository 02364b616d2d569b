// The arguments of an operator's call, as the file describes them.
#pragma once

#include <husk/op.h>

#include "model/rows.h"

namespace husk::runtime {

// The operands of a variant that have the numbers of an argument's lists.
struct OperandRange {
  uint32_t first = 0, count = 0;
};

// Writes what the file says of an argument: kind, access, dtype, rank, count and text. The values
// of numbers are missing, and so is the address of a tensor. `arguments` are those of the call.
OperandRange describe_argument(const Code& code, const fb::Argument& argument,
                               const husk_op_arg* arguments, husk_op_arg* out);

// Lets the lists of an argument point to the numbers of its operands.
void set_lists(const int64_t* numbers, OperandRange range, husk_op_arg* out);

}  // namespace husk::runtime
