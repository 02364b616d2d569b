#include "evaluator.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "ir/op_table.h"
#include "kernels.h"
#include "ops.h"
#include "passes/encode_fill.h"

namespace husk::test {

using namespace husk::compiler;

namespace {

// Encodes a number as an element of `dtype`, little-endian, as kernels and fills take it. False if
// an int does not fit.
bool encode(husk_dtype dtype, const PlainNumber& n, uint8_t* out) {
  auto put = [&](auto value) { memcpy(out, &value, sizeof(value)); };
  auto fits = [&](int64_t low, int64_t high) { return n.i >= low && n.i <= high; };
  switch (dtype) {
    case HUSK_BOOL: put(static_cast<uint8_t>(n.i != 0)); return true;
    case HUSK_U8: put(static_cast<uint8_t>(n.i)); return fits(0, UINT8_MAX);
    case HUSK_I8: put(static_cast<int8_t>(n.i)); return fits(INT8_MIN, INT8_MAX);
    case HUSK_U16: put(static_cast<uint16_t>(n.i)); return fits(0, UINT16_MAX);
    case HUSK_I16: put(static_cast<int16_t>(n.i)); return fits(INT16_MIN, INT16_MAX);
    case HUSK_U32: put(static_cast<uint32_t>(n.i)); return fits(0, UINT32_MAX);
    case HUSK_I32: put(static_cast<int32_t>(n.i)); return fits(INT32_MIN, INT32_MAX);
    case HUSK_F32: put(static_cast<float>(n.f)); return true;
    case HUSK_F64: put(n.f); return true;
    default: put(n.i); return true;
  }
}

template <class T>
T load(const uint8_t* from) {
  T value;
  memcpy(&value, from, sizeof(T));
  return value;
}

double half(uint16_t bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  double value = exponent == 0 ? std::ldexp(fraction, -24)
                               : std::ldexp(1024 + fraction, exponent - 25);
  if (exponent == 31)
    value = fraction ? std::numeric_limits<double>::quiet_NaN()
                     : std::numeric_limits<double>::infinity();
  return bits & 0x8000 ? -value : value;
}

PlainNumber decode(husk_dtype dtype, const uint8_t* from) {
  PlainNumber n;
  switch (dtype) {
    case HUSK_BOOL: n.i = *from != 0; break;
    case HUSK_U8: n.i = *from; break;
    case HUSK_I8: n.i = load<int8_t>(from); break;
    case HUSK_U16: n.i = load<uint16_t>(from); break;
    case HUSK_I16: n.i = load<int16_t>(from); break;
    case HUSK_U32: n.i = load<uint32_t>(from); break;
    case HUSK_I32: n.i = load<int32_t>(from); break;
    case HUSK_F16: n.f = half(load<uint16_t>(from)); break;
    case HUSK_BF16: n.f = std::bit_cast<float>(uint32_t{load<uint16_t>(from)} << 16); break;
    case HUSK_F32: n.f = load<float>(from); break;
    case HUSK_F64: n.f = load<double>(from); break;
    default: n.i = load<int64_t>(from);
  }
  return n;
}

using KernelFunction = int32_t (*)(void**);

KernelFunction kernel_of(const std::string& symbol) {
  static const std::map<std::string, KernelFunction> all = {
      {"random_mix", random_mix},       {"random_change", random_change},
      {"random_absorb", random_absorb}, {"random_sum", random_sum},
      {"random_record", random_record}, {"random_refuse", random_refuse}};
  return all.at(symbol);
}

const Kernel& find_kernel(const Program& program, const std::string& name) {
  for (const Kernel& k : program.kernels)
    if (k.name.text == name) return k;
  throw PlainFailure{false, "no kernel " + name};
}

}  // namespace

PlainEvaluator::PlainEvaluator(const Program& program)
    : program_(program), function_(program.functions.at(0)) {
  for (const Constant& c : program.constants) {
    std::vector<uint8_t>& bytes = constants_[c.name.text];
    for (size_t i = 0; i < c.bytes.text.size(); i += 2)
      bytes.push_back(static_cast<uint8_t>(std::stoi(c.bytes.text.substr(i, 2), nullptr, 16)));
  }
  reset();
}

void PlainEvaluator::reset() {
  for (const State& s : program_.states) {
    std::vector<uint8_t>& bytes = states_[s.name.text];
    if (!s.init.text.empty()) {
      bytes = constants_.at(s.init.text);
      continue;
    }
    bytes.assign(static_cast<size_t>(s.dims.at(0)),
                 static_cast<uint8_t>(encode_fill(s)));  // all states are u8 of one dimension
  }
}

void PlainEvaluator::bind(std::vector<PlainValue>& inputs) {
  lets_.clear();
  buffers_.clear();
  previous_results_.clear();
  results_.clear();
  doubtful_ = false;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Value& want = function_.inputs[i];
    PlainValue& in = inputs[i];
    inputs_[want.name.text] = &in;
    for (size_t d = 0; d < want.ranges.size(); ++d) {
      const int64_t value = want.kind == HUSK_VALUE_TENSOR ? in.tensor.sizes[d] : in.number.i;
      if (value < want.ranges[d].min || value > want.ranges[d].max)
        throw PlainFailure{false, "outside the signature"};
    }
  }
  for (auto& [name, bytes] : constants_)
    buffers_[name] = {static_cast<int64_t>(bytes.size()), bytes.data(), {}};
  for (auto& [name, bytes] : states_)
    buffers_[name] = {static_cast<int64_t>(bytes.size()), bytes.data(), {}};
}

void PlainEvaluator::declare(const Statement& s) {
  const int64_t size = integer(s.exprs[0]);
  if (size < 0 || size > 1 << 20) throw PlainFailure{false, "a buffer of that size"};
  Buffer& b = buffers_[s.name.text];
  b.size = size;
  if (s.of == BufferOf::input) {
    PlainTensor& t = inputs_.at(s.name.text)->tensor;
    if (static_cast<size_t>(size) > t.bytes.size())
      throw PlainFailure{false, "an input with fewer bytes"};
    b.data = t.bytes.data();
  } else {
    b.own.assign(static_cast<size_t>(size), 0xEE);
    b.data = b.own.data();
  }
}

PlainEvaluator::View PlainEvaluator::view(const std::string& name, int64_t offset, int64_t extent) {
  const Buffer& b = buffers_.at(name);
  if (offset < 0 || extent < 0 || offset > b.size || extent > b.size - offset)
    throw PlainFailure{false, "outside its buffer"};
  return {b.data + offset, extent};
}

PlainEvaluator::View PlainEvaluator::view(const Operand& o) {
  if (o.whole) return view(o.name.text, 0, buffers_.at(o.name.text).size);
  const int64_t offset = integer(o.exprs[0]);
  return view(o.name.text, offset, integer(o.exprs[1]));
}

husk_op_arg PlainEvaluator::tensor(const Operand& o) {
  std::vector<int64_t> numbers;
  for (const Exprs* all : {&o.sizes, &o.strides})
    for (const Expr& e : *all) numbers.push_back(integer(e));
  const size_t rank = o.sizes.size();
  const auto width = static_cast<int64_t>(husk_dtype_size(o.dtype));
  int64_t last = 1;
  for (size_t d = 0; d < rank; ++d) {
    if (numbers[d] < 0 || numbers[rank + d] < 0)
      throw PlainFailure{false, "a size or stride below 0"};
    last += (numbers[d] - 1) * numbers[rank + d];
  }
  for (size_t d = 0; d < rank; ++d)
    if (numbers[d] == 0) last = 0;
  husk_op_arg out = {};
  out.kind = HUSK_ARG_TENSOR;
  out.access = o.access;
  out.dtype = o.dtype;
  out.rank = static_cast<int32_t>(rank);
  out.data = view(o.name.text, o.whole ? 0 : integer(o.exprs[0]) * width, last * width).data;
  int_lists_.push_back(std::move(numbers));
  out.sizes = int_lists_.back().data();
  out.strides = out.sizes + rank;
  return out;
}

husk_op_arg PlainEvaluator::argument(const Operand& o) {
  husk_op_arg out = {};
  switch (o.kind) {
    case OperandKind::tensor: return tensor(o);
    case OperandKind::scalar:
      out.kind = is_float(o.exprs[0]) ? HUSK_ARG_FLOAT : HUSK_ARG_INT;
      out.i = out.kind == HUSK_ARG_INT ? integer(o.exprs[0]) : 0;
      out.f = out.kind == HUSK_ARG_FLOAT ? floating(o.exprs[0]) : 0;
      break;
    case OperandKind::list:
      int_lists_.emplace_back();
      for (const Expr& e : o.exprs) int_lists_.back().push_back(integer(e));
      out.kind = HUSK_ARG_INTS;
      out.sizes = int_lists_.back().data();
      out.count = static_cast<int64_t>(o.exprs.size());
      break;
    case OperandKind::floats:
      float_lists_.emplace_back();
      for (const Expr& e : o.exprs) float_lists_.back().push_back(floating(e));
      out.kind = HUSK_ARG_FLOATS;
      out.floats = float_lists_.back().data();
      out.count = static_cast<int64_t>(o.exprs.size());
      break;
    case OperandKind::tensors: {
      std::vector<husk_op_arg> items;
      for (const Operand& item : o.items) items.push_back(argument(item));
      tensor_lists_.push_back(std::move(items));
      out.kind = HUSK_ARG_TENSORS;
      out.tensors = tensor_lists_.back().data();
      out.count = static_cast<int64_t>(o.items.size());
      break;
    }
    case OperandKind::string:
      out.kind = HUSK_ARG_STRING;
      out.string = o.name.text.c_str();
      break;
    case OperandKind::dtype:
    case OperandKind::result:
      out.kind = o.kind == OperandKind::dtype ? HUSK_ARG_DTYPE : HUSK_ARG_RESULT;
      out.dtype = o.dtype;
      break;
    default: break;
  }
  return out;
}

bool PlainEvaluator::is_float(const Expr& e) const {
  if (e.kind == ExprKind::call)
    return scalar_op(std::string_view(e.name))->result == ResultKind::floating;
  if (e.kind != ExprKind::name) return e.kind == ExprKind::floating;
  if (auto let = let_is_float_.find(e.name); let != let_is_float_.end()) return let->second;
  for (const Value& v : function_.inputs)
    if (v.name.text == e.name) return v.kind == HUSK_VALUE_FLOAT;
  return false;
}

void PlainEvaluator::external(const Statement& s) {
  int_lists_.clear();
  float_lists_.clear();
  tensor_lists_.clear();
  std::vector<husk_op_arg> arguments;
  for (const Operand& o : s.operands) arguments.push_back(argument(o));
  std::vector<PlainNumber> results(arguments.size());
  for (size_t i = 0; i < arguments.size(); ++i)
    if (arguments[i].kind == HUSK_ARG_RESULT)
      arguments[i].data = arguments[i].dtype == HUSK_F64 ? static_cast<void*>(&results[i].f)
                                                         : &results[i].i;
  for (const husk_op& op : random_ops())
    if (s.name.text == op.name)
      op.call(nullptr, arguments.data(), static_cast<uint32_t>(arguments.size()), nullptr);
  for (size_t i = 0; i < arguments.size(); ++i)
    if (arguments[i].kind == HUSK_ARG_RESULT) results_.push_back(results[i]);
}

void PlainEvaluator::launch(const Statement& s) {
  const Kernel& kernel = find_kernel(program_, s.name.text);
  constexpr int64_t kMost[3] = {INT32_MAX, 65535, 65535};
  bool empty = false, many = false;
  for (size_t d = 0; d < 3; ++d) {
    const int64_t n = integer(s.exprs[d]);
    if (n < 0 || n > kMost[d]) throw PlainFailure{false, "no grid"};
    empty = empty || n == 0;
    many = many || n > 1;
  }
  std::vector<uint64_t> values(s.operands.size());
  std::vector<void*> params;
  for (size_t i = 0; i < s.operands.size(); ++i) {
    const Operand& o = s.operands[i];
    params.push_back(&values[i]);
    if (o.kind == OperandKind::null) continue;
    if (o.kind == OperandKind::view) {
      values[i] = reinterpret_cast<uintptr_t>(view(o).data);
      continue;
    }
    const PlainNumber n = expr(o.exprs[0]);
    if (n.failed) throw PlainFailure{true, "an argument without a value"};
    if (!encode(kernel.params[i], n, reinterpret_cast<uint8_t*>(&values[i])))
      throw PlainFailure{false, "an argument that does not fit"};
  }
  if (!empty && many) throw PlainFailure{false, "a grid on the host"};
  if (!empty && kernel_of(kernel.symbol)(params.data()) != 0)
    throw PlainFailure{false, "a kernel's check"};
}

void PlainEvaluator::copy(const Statement& s) {
  const View to = view(s.operands[0]), from = view(s.operands[1]);
  if (to.extent != from.extent) throw PlainFailure{false, "a copy between different extents"};
  if (to.extent > 0) memmove(to.data, from.data, static_cast<size_t>(to.extent));
}

void PlainEvaluator::fill(const Statement& s) {
  const View to = view(s.operands[0]);
  const PlainNumber n = expr(s.exprs[0]);
  if (n.failed) throw PlainFailure{true, "a fill without a value"};
  uint8_t element[8];
  if (!encode(s.dtype, n, element)) throw PlainFailure{false, "a fill that does not fit"};
  const auto width = static_cast<int64_t>(husk_dtype_size(s.dtype));
  for (int64_t at = 0; at + width <= to.extent; at += width)
    memcpy(to.data + at, element, static_cast<size_t>(width));
}

void PlainEvaluator::read(const Statement& s) {
  const View from = view(s.operands[0]);
  if (from.extent < static_cast<int64_t>(husk_dtype_size(s.dtype)))
    throw PlainFailure{false, "a read of too few bytes"};
  results_.push_back(decode(s.dtype, from.data));
}

void PlainEvaluator::check(const Statement& s) {
  const std::string& name = s.name.text;
  if (name == "check_stride") {
    const PlainTensor& t = inputs_.at(s.exprs[0].name)->tensor;
    const auto d = static_cast<size_t>(s.exprs[1].integer);
    bool matters = t.sizes[d] > 1;
    for (int64_t size : t.sizes) matters = matters && size > 0;
    const int64_t want = integer(s.exprs[2]);
    if (matters && t.strides[d] != want) throw PlainFailure{false, "a stride"};
    return;
  }
  const int64_t a = integer(s.exprs[0]), b = s.exprs.size() > 1 ? integer(s.exprs[1]) : 0;
  if (name == "check" ? a == 0 : name == "check_eq" ? a != b : a > b)
    throw PlainFailure{false, "a guard"};
}

void PlainEvaluator::leave_out(const std::vector<Statement>& all) {
  for (const Statement& s : all) {
    if (s.kind == StatementKind::let) {
      lets_[s.name.text] = {};
      let_is_float_[s.name.text] = is_float(s.exprs[0]);
    }
    leave_out(s.body);
    leave_out(s.other);
  }
}

void PlainEvaluator::statements(const std::vector<Statement>& all) {
  for (const Statement& s : all) statement(s);
  if (results_.empty()) return;
  previous_results_ = std::move(results_);
  results_.clear();
}

void PlainEvaluator::statement(const Statement& s) {
  if (!results_.empty() && !has_results(s)) {
    previous_results_ = std::move(results_);
    results_.clear();
  }
  switch (s.kind) {
    case StatementKind::let:
      lets_[s.name.text] = expr(s.exprs[0]);
      doubtful_ = doubtful_ || lets_[s.name.text].failed;
      let_is_float_[s.name.text] = is_float(s.exprs[0]);
      break;
    case StatementKind::check: return check(s);
    case StatementKind::buffer: return declare(s);
    case StatementKind::launch: return launch(s);
    case StatementKind::external: return external(s);
    case StatementKind::copy: return copy(s);
    case StatementKind::fill: return fill(s);
    case StatementKind::read: return read(s);
    case StatementKind::when: {
      const bool holds = integer(s.exprs[0]) != 0;
      leave_out(holds ? s.other : s.body);
      return statements(holds ? s.body : s.other);
    }
    case StatementKind::loop:
      for (int turns = 0; statements(s.body), integer(s.exprs[0]) != 0; ++turns) {
        if (turns > 1000) throw PlainFailure{false, "a loop without end"};
        statements(s.other);
      }
      return leave_out(s.other);
  }
}

std::vector<PlainValue> PlainEvaluator::run(std::vector<PlainValue>& inputs) {
  bind(inputs);
  const Variant& variant = function_.variants.at(0);
  statements(variant.statements);
  std::vector<PlainValue> out;
  for (const ResultItem& item : variant.results) {
    PlainValue value;
    if (item.keyword == ResultKeyword::integer) value.number.i = integer(item.operand.exprs[0]);
    if (item.keyword == ResultKeyword::floating) value.number.f = floating(item.operand.exprs[0]);
    if (item.keyword == ResultKeyword::tensor) {
      const husk_op_arg t = tensor(item.operand);
      value.tensor.sizes.assign(t.sizes, t.sizes + t.rank);
      value.tensor.strides.assign(t.strides, t.strides + t.rank);
      value.tensor.bytes = buffers_.at(item.operand.name.text).own;
    }
    out.push_back(std::move(value));
  }
  return out;
}

}  // namespace husk::test
