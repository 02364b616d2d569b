// Runs a program from its syntax tree, statement by statement, without registers or a plan; each
// buffer has memory of its own. The tests compare the runtime's results with it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <husk/husk.h>

#include "ir/tree.h"

namespace husk::test {

// A number, or the mark of a failed computation. The failure counts only if the number is needed.
struct PlainNumber {
  int64_t i = 0;
  double f = 0;
  bool failed = false;
};

struct PlainTensor {
  std::vector<int64_t> sizes, strides;
  std::vector<uint8_t> bytes;  // from element 0 to the end of the last element
};

struct PlainValue {
  PlainNumber number;
  PlainTensor tensor;
};

// The exception of a failed run. `arithmetic` means that an int did not fit 64 bits or a divisor
// was 0; the compiler may have simplified such an expression to one that succeeds.
struct PlainFailure {
  bool arithmetic;
  std::string why;
};

class PlainEvaluator {
 public:
  // The program has one function with one variant, and must outlive this object.
  explicit PlainEvaluator(const compiler::Program& program);

  void reset();  // restores the initial states
  // Runs the function, which may write its inputs. Returns the outputs.
  std::vector<PlainValue> run(std::vector<PlainValue>& inputs);
  // Whether some name got a failed number in the last run although the run succeeded. Nothing
  // needed that number, but the compiler may compute it if a block that did not run needs it.
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
  int64_t integer(const compiler::Expr& e);  // a needed number: throws if it failed
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
  std::vector<PlainNumber> previous_results_, results_;
  bool doubtful_ = false;
  // Memory that the arguments of a call point to.
  std::vector<std::vector<int64_t>> int_lists_;
  std::vector<std::vector<double>> float_lists_;
  std::vector<std::vector<husk_op_arg>> tensor_lists_;
};

}  // namespace husk::test
