// Runs a program as its text says, statement by statement: no registers, no plan, each buffer in memory of its own. What
// the compiler and the runtime make of the text is compared with it.
#pragma once

#include <husk/husk.h>

#include <map>
#include <string>
#include <vector>

#include "ir/tree.h"

namespace husk::test {

// A number, or the place of one whose computation failed: that matters only where something needs it.
struct PlainNumber {
  int64_t i = 0;
  double f = 0;
  bool failed = false;
};

struct PlainTensor {
  std::vector<int64_t> sizes, strides;
  std::vector<uint8_t> bytes;   // from element 0 to the end of the last one
};

struct PlainValue {
  PlainNumber number;
  PlainTensor tensor;
};

// Thrown where a run fails. `arithmetic`: because an int left 64 bits or a divisor was 0, where the compiler may have
// found a way around it.
struct PlainFailure {
  bool arithmetic;
  std::string why;
};

class PlainEvaluator {
 public:
  // The only function, its only variant. The program must outlive this.
  explicit PlainEvaluator(const compiler::Program& program);

  void reset();   // states as they begin
  // Inputs may be written. Returns the outputs.
  std::vector<PlainValue> run(std::vector<PlainValue>& inputs);
  // Whether the last run, which succeeded, gave a name to what has no value: it was not needed where it would have
  // mattered, but a block that did not run may have been enough for the compiler to have it computed.
  bool doubtful() const { return doubtful_; }
  const std::vector<uint8_t>& state(const std::string& name) const { return states_.at(name); }

 private:
  struct Buffer {
    int64_t size = 0;
    uint8_t* data = nullptr;
    std::vector<uint8_t> own;
  };

  // Numbers.
  PlainNumber expr(const compiler::Expr& e);
  PlainNumber call(const compiler::Expr& e);
  int64_t integer(const compiler::Expr& e);     // one that is needed
  double floating(const compiler::Expr& e);
  bool is_float(const compiler::Expr& e) const;
  int64_t dimension(const compiler::Expr& e);

  // Memory.
  struct View {
    uint8_t* data;
    int64_t extent;
  };
  View view(const compiler::Operand& o);
  View view(const std::string& buffer, int64_t offset, int64_t extent);
  void declare(const compiler::Statement& s);

  // Statements.
  void statements(const std::vector<compiler::Statement>& all);
  void statement(const compiler::Statement& s);
  void leave_out(const std::vector<compiler::Statement>& all);
  void check(const compiler::Statement& s);
  void launch(const compiler::Statement& s);
  void external(const compiler::Statement& s);
  void copy(const compiler::Statement& s);
  void fill(const compiler::Statement& s);
  void read(const compiler::Statement& s);
  husk_op_arg argument(const compiler::Operand& o);
  husk_op_arg tensor(const compiler::Operand& o);
  void bind(std::vector<PlainValue>& inputs);

  const compiler::Program& program_;
  const compiler::Function& function_;
  std::map<std::string, std::vector<uint8_t>> constants_, states_;
  std::map<std::string, PlainValue*> inputs_;
  std::map<std::string, PlainNumber> lets_;
  std::map<std::string, bool> let_is_float_;
  std::map<std::string, Buffer> buffers_;
  std::vector<PlainNumber> brought_, bringing_;
  bool doubtful_ = false;
  // What arguments of a call point to.
  std::vector<std::vector<int64_t>> int_lists_;
  std::vector<std::vector<double>> float_lists_;
  std::vector<std::vector<husk_op_arg>> tensor_lists_;
};

}  // namespace husk::test
