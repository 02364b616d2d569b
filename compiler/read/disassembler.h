// Prints the code of a verified variant for people. The compiler cannot read this text.
//
//   function forward, variant cpu (host avx2)
//     buffer buf0 of arena bytes %2 align 64
//     segment 0
//       %0 = size(x, 0)                                   # an int register, named by its row
//       %1 = const 40
//       %2 = mul(%0, %1=40)
//       check_eq(%0, %1=40) "the batch of x"
//       0: launch add grid (1, 1, 1) (read x[0, %2], ...) at "model.py:12"
//     segment 1 when %3, then back to segment 0
//       ...
//
// A register that holds a constant is printed with its value: %1=40.
#pragma once

#include <string>

#include "model/rows.h"

namespace husk::compiler {

// The whole variant; each line begins with `indent` spaces.
std::string disassemble(const Code& code, size_t indent);

// The name of a dtype as a file stores it.
const char* dtype_text(uint8_t dtype);

// A text that many rows may name, as it is printed at each of them: escaped, and a long one ends in
// "...", so that the output grows with the file. The row that defines a name prints all of it.
constexpr size_t kMostText = 256;
std::string shortened(const char* text, size_t most = kMostText);

// One scalar op or step, without a newline.
std::string disassemble_scalar(const Code& code, uint32_t index);
std::string disassemble_step(const Code& code, uint32_t index);
// The head of a segment: "segment 1 when %3, then back to segment 0".
std::string segment_text(const Code& code, uint32_t index);
// The name of a buffer: that of its input, output, constant or state, the one in the file, or
// "@2", the number of its row.
std::string buffer_name(const Code& code, uint32_t index);

}  // namespace husk::compiler
