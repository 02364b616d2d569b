#include "read/disassembler.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <iterator>

#include "ir/op_table.h"
#include "ir/printable.h"
#include "ir/printer.h"

namespace husk::compiler {
namespace {

// "%3", or "%3=40" for a constant.
std::string reg(const Code& code, uint32_t id) {
  const fb::Instruction& op = code.scalars[id];
  switch (static_cast<Scalar>(op.op())) {
    case Scalar::op_const: return fmt::format("%{}={}", id, immediate(op));
    case Scalar::op_fconst:
      return fmt::format("%{}={}", id, print_float(std::bit_cast<double>(immediate(op))));
    default: return fmt::format("%{}", id);
  }
}

std::string registers(const Code& code, uint32_t first, uint32_t count) {
  std::string out = "[";
  for (uint32_t i = 0; i < count; ++i) out += (i ? ", " : "") + reg(code, code.operands[first + i]);
  return out + "]";
}

std::string cut(const char* text, size_t most) {
  size_t length = strnlen(text, most + 1);
  if (length <= most) return std::string(text, length);
  length = most - 3;
  while (length > 0 && (text[length] & 0xC0) == 0x80) --length;  // a letter of UTF-8 stays whole
  return std::string(text, length) + "...";
}

std::string text(const Code& code, uint32_t index) {
  return quote(cut(code.text(index), kMostText));
}

}  // namespace

std::string shortened(const char* text, size_t most) { return printable(cut(text, most)); }

const char* dtype_text(uint8_t dtype) { return dtype_name(static_cast<husk_dtype>(dtype)); }

std::string buffer_name(const Code& code, uint32_t index) {
  const fb::Buffer& buffer = code.buffers[index];
  switch (static_cast<Space>(buffer.space())) {
    case Space::arena: break;
    case Space::input: return shortened(code.input(buffer.index())->name()->c_str());
    case Space::output: return shortened(code.output(buffer.index())->name()->c_str());
    case Space::constant:
      return shortened(code.program->constants()->Get(buffer.index())->name()->c_str());
    case Space::state:
      return shortened(code.program->states()->Get(buffer.index())->name()->c_str());
  }
  const std::string name = shortened(code.name(index));
  return name.empty() ? fmt::format("@{}", index) : name;
}

namespace {

std::string view_text(const Code& code, uint32_t index) {
  const fb::View& view = code.views[index];
  return fmt::format("{}[{}, {}]", buffer_name(code, view.buffer()), reg(code, view.offset()),
                     reg(code, view.extent()));
}

std::string tensor_text(const Code& code, uint32_t index) {
  const fb::Tensor& t = code.tensors[index];
  return fmt::format("tensor {} {} {} {}", view_text(code, t.view()), dtype_text(t.dtype()),
                     registers(code, t.first(), t.rank()),
                     registers(code, t.first() + t.rank(), t.rank()));
}

// The access as HIR.md writes it, or its bits if HIR.md has no word for it.
std::string access_text(uint8_t access) {
  const std::string name = access_name(access);
  return name == "?" ? fmt::format("access {}", access) : name;
}

// `items` is the argument that the indices of an extern's tensor lists count from.
std::string argument_text(const Code& code, const fb::Argument& a, uint32_t items = 0) {
  const std::string access = a.access() ? access_text(a.access()) + " " : "";
  switch (static_cast<ArgumentKind>(a.kind())) {
    case ArgumentKind::none: return "none";
    case ArgumentKind::view: return access + view_text(code, a.index());
    case ArgumentKind::integer:
    case ArgumentKind::floating: return reg(code, a.index());
    case ArgumentKind::tensor: return access + tensor_text(code, a.index());
    case ArgumentKind::integers: return registers(code, a.index(), a.count());
    case ArgumentKind::string: return text(code, a.index());
    case ArgumentKind::dtype: return fmt::format("dtype {}", dtype_text(a.type()));
    case ArgumentKind::null: return a.index() ? "asserts" : "null";
    case ArgumentKind::result: return a.type() == HUSK_F64 ? "result float" : "result int";
    case ArgumentKind::floats: return "floats " + registers(code, a.index(), a.count());
    case ArgumentKind::tensors: {
      std::string out = "tensors [";
      for (uint32_t i = 0; i < a.count(); ++i)
        out += (i ? ", " : "") + argument_text(code, code.arguments[items + a.index() + i]);
      return out + "]";
    }
  }
  return "?";
}

std::string arguments_text(const Code& code, uint32_t first, uint32_t count) {
  std::string out = "(";
  for (uint32_t i = 0; i < count; ++i)
    out += (i ? ", " : "") + argument_text(code, code.arguments[first + i], first);
  return out + ")";
}

std::string operand_text(const Code& code, Slot slot, uint32_t field) {
  switch (slot) {
    case Slot::value: return shortened(code.input(field)->name()->c_str());
    case Slot::dim:
    case Slot::nth: return fmt::format("{}", field);
    default: return reg(code, field);
  }
}

std::string buffer_text(const Code& code, uint32_t index) {
  constexpr const char* kSpaces[] = {"arena", "input", "output", "constant", "state"};
  const fb::Buffer& b = code.buffers[index];
  std::string out = fmt::format("buffer {} of {} bytes {}", buffer_name(code, index),
                                kSpaces[b.space()], reg(code, b.size()));
  if (b.align_log2()) out += fmt::format(" align {}", 1u << b.align_log2());
  return code.device_of(index) == Device::host ? out + " on host" : out;
}

}  // namespace

std::string disassemble_scalar(const Code& code, uint32_t index) {
  const fb::Instruction& op = code.scalars[index];
  const ScalarOp* row = scalar_op(op.op());
  std::string out = row->result == ResultKind::none ? "" : fmt::format("%{} = ", index);
  if (row->slots[0] == Slot::immediate) {
    const std::string value = reg(code, index);
    return out + row->name + " " + value.substr(value.find('=') + 1);
  }
  out += std::string(row->name) + "(";
  const uint32_t fields[3] = {op.a(), op.b(), op.c()};
  std::string message;
  for (int i = 0; i < 3 && row->slots[i] != Slot::unused; ++i) {
    if (row->slots[i] == Slot::text) {
      if (fields[i] != kNone) message = " " + text(code, fields[i]);
    } else {
      out += (i ? ", " : "") + operand_text(code, row->slots[i], fields[i]);
    }
  }
  return out + ")" + message;
}

std::string disassemble_step(const Code& code, uint32_t index) {
  const fb::Instruction& op = code.steps[index];
  const StepOp* row = step_op(op.op());
  std::string out = row->name;
  uint32_t first = op.b(), count = op.c();
  if (row->row == StepRow::kernel) {  // the first three arguments are the grid
    out += " " + shortened(code.program->kernels()->Get(op.a())->name()->c_str()) + " grid " +
           arguments_text(code, first, 3);
    first += 3;
    count -= 3;
  } else if (row->row == StepRow::op) {
    out += " " + quote(shortened(code.program->ops()->Get(op.a())->c_str()));
    if (code.device_of(op) == Device::host) out += " on host";
    count = op.aux();
  }
  const auto kind = static_cast<Step>(op.op());
  if (kind == Step::op_fill)
    out += fmt::format(" {}", dtype_text(code.arguments[first + 1].type()));
  if (kind == Step::op_read) out += fmt::format(" {}", dtype_text(code.arguments[first].type()));
  out += " " + arguments_text(code, first, count);
  if (const std::string origin = shortened(code.origin(index)); !origin.empty())
    out += " at " + quote(origin);
  return out;
}

std::string segment_text(const Code& code, uint32_t index) {
  const fb::Segment& s = code.segments[index];
  std::string out = fmt::format("segment {}", index);
  if (s.when() != kNone) out += " when " + reg(code, s.when());
  if (s.back() != kNone) out += fmt::format(", then back to segment {}", s.back());
  return out;
}

std::string disassemble(const Code& code, size_t indent) {
  std::string out;
  auto line = [&](size_t more, const std::string& text) {
    out += std::string(indent + more, ' ') + text + "\n";
  };
  for (uint32_t i = 0; i < code.buffers.size; ++i) line(0, buffer_text(code, i));
  for (uint32_t s = 0; s < code.segments.size; ++s) {
    const fb::Segment& segment = code.segments[s];
    line(0, segment_text(code, s));
    for (uint32_t i = segment.scalar_begin(); i < segment.scalar_end(); ++i)
      line(2, disassemble_scalar(code, i));
    for (uint32_t i = segment.step_begin(); i < segment.step_end(); ++i)
      line(2, fmt::format("{}: {}", i, disassemble_step(code, i)));
  }
  std::string results = "return (";
  for (uint32_t i = 0; i < code.results.size; ++i)
    results += (i ? ", " : "") + argument_text(code, code.results[i]);
  line(0, results + ")");
  return out;
}

}  // namespace husk::compiler
