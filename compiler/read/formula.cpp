#include "read/formula.h"

#include <fmt/format.h>

#include <bit>

#include "ir/op_table.h"
#include "ir/printable.h"
#include "ir/printer.h"
#include "read/disassembler.h"

namespace husk::compiler {
namespace {

constexpr int kMaxDepth = 6;

// The precedence of an operator. A formula is parenthesised inside one of higher precedence.
enum Bind { sum, quotient, product, whole };

struct Piece {
  std::string text;
  Bind bind;
};

std::string within(const Piece& piece, Bind outer) {
  return piece.bind < outer ? "(" + piece.text + ")" : piece.text;
}

Piece piece(const Code& code, uint32_t id, int depth);

Piece infix(const Code& code, const fb::Instruction& op, const char* sign, Bind bind, Bind left,
            Bind right, int depth) {
  return {
      within(piece(code, op.a(), depth), left) + sign + within(piece(code, op.b(), depth), right),
      bind};
}

Piece call(const Code& code, const fb::Instruction& op, int depth) {
  const ScalarOp* row = scalar_op(op.op());
  const uint32_t fields[3] = {op.a(), op.b(), op.c()};
  std::string out = std::string(row->name) + "(";
  for (int i = 0; i < 3 && (row->slots[i] == Slot::integer || row->slots[i] == Slot::floating); ++i)
    out += (i ? ", " : "") + piece(code, fields[i], depth).text;
  return {out + ")", whole};
}

Piece piece(const Code& code, uint32_t id, int depth) {
  const fb::Instruction& op = code.scalars[id];
  switch (static_cast<Scalar>(op.op())) {
    case Scalar::op_const:
      return {fmt::format("{}", immediate(op)), immediate(op) < 0 ? sum : whole};
    case Scalar::op_fconst: return {print_float(std::bit_cast<double>(immediate(op))), whole};
    case Scalar::op_input:
    case Scalar::op_finput: return {printable(code.input(op.a())->name()->str()), whole};
    case Scalar::op_size:
      return {fmt::format("{}.{}", printable(code.input(op.a())->name()->str()), op.b()), whole};
    case Scalar::op_stride:
      return {fmt::format("{}'{}", printable(code.input(op.a())->name()->str()), op.b()), whole};
    case Scalar::op_result:
    case Scalar::op_fresult:
      return {fmt::format("{}({}) of segment {}", scalar_op(op.op())->name, op.a(),
                          code.segment_of(id) - 1),
              sum};
    default: break;
  }
  if (depth == 0) return {fmt::format("%{}", id), whole};
  switch (static_cast<Scalar>(op.op())) {
    case Scalar::op_add: {
      const fb::Instruction& b = code.scalars[op.b()];
      if (static_cast<Scalar>(b.op()) == Scalar::op_const && immediate(b) < 0 &&
          immediate(b) != INT64_MIN)
        return {fmt::format("{} - {}", within(piece(code, op.a(), depth - 1), sum), -immediate(b)),
                sum};
      return infix(code, op, " + ", sum, sum, sum, depth - 1);
    }
    case Scalar::op_sub: return infix(code, op, " - ", sum, sum, quotient, depth - 1);
    case Scalar::op_mul: return infix(code, op, " * ", product, product, product, depth - 1);
    case Scalar::op_floordiv: return infix(code, op, " // ", quotient, product, whole, depth - 1);
    case Scalar::op_mod: return infix(code, op, " % ", quotient, product, whole, depth - 1);
    case Scalar::op_range: return piece(code, op.a(), depth);  // its value is its first operand
    default: return call(code, op, depth - 1);
  }
}

}  // namespace

std::string formula(const Code& code, uint32_t id) { return piece(code, id, kMaxDepth).text; }

}  // namespace husk::compiler
