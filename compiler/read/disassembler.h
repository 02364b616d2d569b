// The code of a verified variant as text, for people: not a text form that can be read back.
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
// A register that holds a constant shows it wherever it is used: %1=40.
#pragma once

#include <string>

#include "rows.h"

namespace husk::compiler {

// One variant, every line with `indent` spaces before it.
std::string disassemble(const Code& code, size_t indent);

// One row of it, without a line's end.
std::string disassemble_scalar(const Code& code, uint32_t index);
std::string segment_text(const Code& code, uint32_t index);   // "segment 1 when %3, then back to segment 0"
// What a buffer is called: as what it stands for, or as the file says, or by its row, "@2".
std::string buffer_name(const Code& code, uint32_t index);
std::string disassemble_step(const Code& code, uint32_t index);

}  // namespace husk::compiler
