#include "read/formula.h"

#include <fmt/format.h>

#include <bit>

#include "ir/op_table.h"
#include "ir/printable.h"
#include "ir/printer.h"
#include "read/disassembler.h"

namespace husk::compiler {
namespace {

// A formula that would be deeper, or have more pieces, names registers in place of what is left
// out.
constexpr int kMaxDepth = 6, kMaxPieces = 48;
constexpr size_t kMaxName = 64;

// The precedence of an operator. A formula is parenthesised inside one of higher precedence.
enum Bind { sum, quotient, product, whole };

struct Piece {
  std::string text;
  Bind bind;
};

std::string within(const Piece& piece, Bind outer) {
  return piece.bind < outer ? "(" + piece.text + ")" : piece.text;
}

std::string name(const Code& code, uint32_t input) {
  return shortened(code.input(input)->name()->c_str(), kMaxName);
}

class Formula {
 public:
  explicit Formula(const Code& code) : code_(code) {}
  Piece piece(uint32_t id, int depth);

 private:
  Piece infix(const fb::Instruction& op, const char* sign, Bind bind, Bind left, Bind right,
              int depth);
  Piece call(const fb::Instruction& op, int depth);

  const Code& code_;
  int pieces_ = 0;
};

Piece Formula::infix(const fb::Instruction& op, const char* sign, Bind bind, Bind left, Bind right,
                     int depth) {
  const std::string first = within(piece(op.a(), depth), left);
  return {first + sign + within(piece(op.b(), depth), right), bind};
}

Piece Formula::call(const fb::Instruction& op, int depth) {
  const ScalarOp* row = scalar_op(op.op());
  const uint32_t fields[3] = {op.a(), op.b(), op.c()};
  std::string out = std::string(row->name) + "(";
  for (int i = 0; i < 3 && (row->slots[i] == Slot::integer || row->slots[i] == Slot::floating); ++i)
    out += (i ? ", " : "") + piece(fields[i], depth).text;
  return {out + ")", whole};
}

Piece Formula::piece(uint32_t id, int depth) {
  const Code& code = code_;
  const fb::Instruction& op = code.scalars[id];
  switch (static_cast<Scalar>(op.op())) {
    case Scalar::op_const:
      return {fmt::format("{}", immediate(op)), immediate(op) < 0 ? sum : whole};
    case Scalar::op_fconst: return {print_float(std::bit_cast<double>(immediate(op))), whole};
    case Scalar::op_input:
    case Scalar::op_finput: return {name(code, op.a()), whole};
    case Scalar::op_size: return {fmt::format("{}.{}", name(code, op.a()), op.b()), whole};
    case Scalar::op_stride: return {fmt::format("{}'{}", name(code, op.a()), op.b()), whole};
    case Scalar::op_result:
    case Scalar::op_fresult:
      return {fmt::format("{}({}) of segment {}", scalar_op(op.op())->name, op.a(),
                          code.segment_of(id) - 1),
              sum};
    default: break;
  }
  if (depth == 0 || ++pieces_ > kMaxPieces) return {fmt::format("%{}", id), whole};
  switch (static_cast<Scalar>(op.op())) {
    case Scalar::op_add: {
      const fb::Instruction& b = code.scalars[op.b()];
      if (static_cast<Scalar>(b.op()) == Scalar::op_const && immediate(b) < 0 &&
          immediate(b) != INT64_MIN)
        return {fmt::format("{} - {}", within(piece(op.a(), depth - 1), sum), -immediate(b)), sum};
      return infix(op, " + ", sum, sum, sum, depth - 1);
    }
    case Scalar::op_sub: return infix(op, " - ", sum, sum, quotient, depth - 1);
    case Scalar::op_mul: return infix(op, " * ", product, product, product, depth - 1);
    case Scalar::op_floordiv: return infix(op, " // ", quotient, product, whole, depth - 1);
    case Scalar::op_mod: return infix(op, " % ", quotient, product, whole, depth - 1);
    case Scalar::op_range: return piece(op.a(), depth - 1);  // its value is its first operand
    default: return call(op, depth - 1);
  }
}

}  // namespace

std::string formula(const Code& code, uint32_t id) {
  return Formula(code).piece(id, kMaxDepth).text;
}

}  // namespace husk::compiler
