// The syntax tree of a program in text form, according to the grammar of HIR.md.
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <vector>

#include <husk/types.h>

namespace husk::compiler {

// A position in the text, from 1. Comparisons of trees ignore it.
struct Place {
  uint32_t line = 0;
  uint32_t column = 0;
  friend bool operator==(const Place&, const Place&) { return true; }
};

struct Name {
  Place place;
  std::string text;
  friend bool operator==(const Name&, const Name&) = default;
};

enum class ExprKind : uint8_t { integer, floating, boolean, name, call };

struct Expr {
  Place place;
  ExprKind kind = ExprKind::integer;
  int64_t integer = 0;  // an integer, or 0 or 1 for a boolean
  uint64_t bits = 0;    // the bits of a double, so that NaN equals itself
  std::string name;     // the name, or the called op
  std::vector<Expr> operands;
  friend bool operator==(const Expr&, const Expr&) = default;
};

using Exprs = std::vector<Expr>;

// A range of sizes or ints; INT64_MAX stands for `inf`.
struct Range {
  Place place;
  int64_t min = 0;
  int64_t max = 0;
  friend bool operator==(const Range&, const Range&) = default;
};

struct Target {
  Name name, port;
  std::string arch;
  friend bool operator==(const Target&, const Target&) = default;
};

struct User {
  std::string key, value;
  friend bool operator==(const User&, const User&) = default;
};

struct Constant {
  Name name;
  husk_dtype dtype = HUSK_DTYPE_NONE;
  std::vector<int64_t> dims;
  bool in_file = false;
  std::string file, tensor;  // in_file
  Name bytes;                // not in_file: hexadecimal digits; the place of either
  Name folded_by;            // the function that computes it; empty if its bytes are given
  friend bool operator==(const Constant&, const Constant&) = default;
};

struct State {
  Name name;
  husk_dtype dtype = HUSK_DTYPE_NONE;
  std::vector<int64_t> dims;
  Name init;  // the constant it starts as; empty if it starts with `fill`
  Expr fill;  // a literal
  friend bool operator==(const State&, const State&) = default;
};

struct Image {
  Name name, target;
  int32_t format = 0;  // HUSK_IMAGE_*
  Name file;
  friend bool operator==(const Image&, const Image&) = default;
};

struct Kernel {
  Name name, image;
  std::string symbol;
  std::vector<husk_dtype> params;
  int64_t block[3] = {1, 1, 1};
  int64_t shared = 0;
  int64_t cluster = 1;
  uint32_t flags = 0;  // KernelFlag
  friend bool operator==(const Kernel&, const Kernel&) = default;
};

struct Value {
  Name name;
  uint8_t kind = 0;  // HUSK_VALUE_*
  husk_dtype dtype = HUSK_DTYPE_NONE;
  std::vector<Range> ranges;  // of an input: the range of each dimension, or of the int
  int64_t rank = 0;
  friend bool operator==(const Value&, const Value&) = default;
};

// The logarithm of a checked alignment; 0 if none is stated.
inline uint8_t align_log2(int64_t align) {
  return align > 1 ? static_cast<uint8_t>(std::bit_width(static_cast<uint64_t>(align)) - 1)
                   : uint8_t{0};
}

// The kinds of arguments of steps, and of results.
enum class OperandKind : uint8_t {
  view,
  tensor,
  scalar,
  list,
  string,
  dtype,
  null,
  asserts,
  none,
  result,
  floats,
  tensors
};

struct Operand {
  Place place;
  OperandKind kind = OperandKind::none;
  uint8_t access = 0;                  // HUSK_ACCESS_* bits; views and tensors
  Name name;                           // views and tensors: the buffer; strings: the text
  husk_dtype dtype = HUSK_DTYPE_NONE;  // results: i64 or f64
  bool whole = true;                   // views without offset and extent; tensors without offset
  Exprs exprs;           // views: offset, extent; tensors: offset; scalar: one; list, floats: all
  Exprs sizes, strides;  // tensors
  std::vector<Operand> items;  // of a tensor list: tensors and nones
  friend bool operator==(const Operand&, const Operand&) = default;
};

enum class StatementKind : uint8_t {
  let,
  check,
  buffer,
  launch,
  external,
  copy,
  fill,
  read,
  when,
  loop
};
enum class BufferOf : uint8_t { arena, input, output };
enum class ResultKeyword : uint8_t { tensor, integer, floating, none };

struct Statement {
  Place place;
  StatementKind kind = StatementKind::let;
  Name name;    // let, buffer: the new name; check: the guard; launch: the kernel; extern: the op
  Exprs exprs;  // let: the value; check: operands; buffer: bytes; launch: the grid; when, loop:
                // condition
  BufferOf of = BufferOf::arena;
  int64_t align = 0;                   // of a buffer, in bytes; 0 if it is not stated
  bool on_host = false;                // of a buffer: it lies in host memory beside the device
  husk_dtype dtype = HUSK_DTYPE_NONE;  // fill, read
  std::vector<Operand> operands;
  bool has_text = false;
  std::string text;              // check: the message; steps: the origin after `at`
  std::vector<Statement> body;   // when: before `else`; loop: before `while`
  std::vector<Statement> other;  // when: after `else`; loop: after `while`
  bool has_else = false;
  friend bool operator==(const Statement&, const Statement&) = default;
};

// Whether a step has results, which the host uses in the next segment.
inline bool has_results(const Statement& s) {
  if (s.kind == StatementKind::read) return true;
  for (const Operand& o : s.operands)
    if (o.kind == OperandKind::result) return true;
  return false;
}

struct ResultItem {
  ResultKeyword keyword = ResultKeyword::none;
  Operand operand;  // tensor: as an argument without access; integer, floating: scalar
  friend bool operator==(const ResultItem&, const ResultItem&) = default;
};

struct Variant {
  Name target;
  std::vector<Statement> statements;
  Place return_place;
  std::vector<ResultItem> results;
  friend bool operator==(const Variant&, const Variant&) = default;
};

struct Function {
  Name name;
  std::vector<Value> inputs, outputs;
  std::vector<Variant> variants;
  friend bool operator==(const Function&, const Function&) = default;
};

// The place of a program among those of several ranks.
struct World {
  Place place;
  int64_t size = 0, rank = 0;
  std::string set;  // hexadecimal digits
  friend bool operator==(const World&, const World&) = default;
};

struct Program {
  int64_t version = 0;
  Place version_place;
  std::string producer;  // empty if it is not stated
  std::vector<User> user;
  bool has_tree = false;
  std::string tree;
  std::vector<std::string> asserts;
  bool has_world = false;
  World world;
  std::vector<Target> targets;
  std::vector<Constant> constants;
  std::vector<State> states;
  std::vector<Image> images;
  std::vector<Kernel> kernels;
  std::vector<Function> functions;
  friend bool operator==(const Program&, const Program&) = default;
};

}  // namespace husk::compiler
