// The rows of verified metadata as plain arrays, read in place.
#pragma once

#include <husk/op.h>
#include <husk/types.h>
#include <husk_generated.h>

namespace husk {

constexpr uint32_t kNone = 0xFFFFFFFFu;

enum class Space : uint8_t { arena, input, output, constant, state };
enum class ArgumentKind : uint8_t {
  none, view, integer, floating, tensor, integers, string, dtype, null, result, floats, tensors
};
enum KernelFlag : uint32_t { kWaitsFirst = 1, kCooperative = 2, kTriggersEarly = 4 };

enum class Scalar : uint16_t {
#define HUSK_SCALAR(code, name, result, a, b, c) op_##name = code,
#include <ops.def>
};
enum class Step : uint16_t {
#define HUSK_STEP(code, name, a) op_##name = code,
#include <ops.def>
};

inline bool reads(uint32_t access) { return (access & HUSK_ACCESS_READ) != 0; }
inline bool writes(uint32_t access) { return (access & HUSK_ACCESS_WRITE) != 0; }

// One code for rows of every type. A vector is how many rows there are, and then these; null: none.
struct AnyRows {
  const void* rows = nullptr;
  uint32_t size = 0;

  AnyRows() = default;
  [[gnu::noinline]] AnyRows(const void* vector) {
    if (!vector) return;
    size = *static_cast<const uint32_t*>(vector);
    rows = static_cast<const uint32_t*>(vector) + 1;
  }
};

template <class T>
struct Rows : AnyRows {
  using AnyRows::AnyRows;
  Rows(const T* first, uint32_t n) {
    rows = first;
    size = n;
  }
  const T* data() const { return static_cast<const T*>(rows); }
  const T& operator[](size_t i) const { return data()[i]; }
  const T* begin() const { return data(); }
  const T* end() const { return data() + size; }
};

template <class T>
uint32_t count(const flatbuffers::Vector<T>* rows) {
  return rows ? rows->size() : 0;
}

// Every table that has a name has it in the same place, so that one function finds names in all of them.
using Names = flatbuffers::Vector<flatbuffers::Offset<fb::Constant>>;
template <class T>
const Names* names_of(const flatbuffers::Vector<flatbuffers::Offset<T>>* rows) {
  static_assert(int(T::VT_NAME) == int(fb::Constant::VT_NAME));
  return reinterpret_cast<const Names*>(rows);
}
inline const char* name_at(const Names* rows, uint32_t i) { return rows->Get(i)->name()->c_str(); }

// One variant and what it stands in.
struct Code {
  // In this order what is read most lies within 128 bytes, where instructions are short.
  const fb::Program* program;
  const fb::Function* function;
  Rows<fb::Instruction> steps;
  Rows<fb::Segment> segments;
  Rows<fb::Argument> arguments;
  Rows<fb::Buffer> buffers;
  Rows<fb::View> views;
  Rows<fb::Tensor> tensors;
  Rows<uint32_t> operands;
  Rows<fb::Instruction> scalars;
  Rows<fb::Argument> results;
  Rows<uint32_t> origins, names, order;
  const fb::Variant* variant;

  Code() = default;
  Code(const fb::Program* p, const fb::Function* f, const fb::Variant* v)
      : program(p), function(f), steps(v->steps()), segments(v->segments()), arguments(v->arguments()),
        buffers(v->buffers()), views(v->views()), tensors(v->tensors()), operands(v->operands()), scalars(v->scalars()),
        results(v->results()), origins(v->origins()), names(v->names()), order(v->order()), variant(v) {}

  uint32_t inputs() const { return count(function->inputs()); }
  uint32_t outputs() const { return count(function->outputs()); }
  const fb::Value* input(uint32_t i) const { return function->inputs()->Get(i); }
  const fb::Value* output(uint32_t i) const { return function->outputs()->Get(i); }
  const char* text(uint32_t i) const { return i == kNone ? "" : program->strings()->Get(i)->c_str(); }
  // Where in the model a step comes from; "" if the file does not say.
  const char* origin(uint32_t step) const { return step < origins.size ? text(origins[step]) : ""; }
  // The name of a buffer; "" if the file does not say.
  const char* name(uint32_t buffer) const { return buffer < names.size ? text(names[buffer]) : ""; }
  // In which the buffers of the arena are placed, numbered among themselves; null if the file does not say.
  const uint32_t* placing() const { return order.size ? order.data() : nullptr; }
  // What messages call it: "'buf0'", or "#3" where it has no name.
  struct Label {
    char text[40];
  };
  Label label(uint32_t buffer) const;
  // How many values a step brings to the host.
  uint32_t values_of(const fb::Instruction& step) const {
    if (static_cast<Step>(step.op()) == Step::op_read) return 1;
    uint32_t n = 0;
    if (static_cast<Step>(step.op()) == Step::op_extern)
      for (uint32_t i = step.b(); i < step.b() + step.aux(); ++i)
        n += static_cast<ArgumentKind>(arguments[i].kind()) == ArgumentKind::result;
    return n;
  }
  // The view that an argument touches, or none.
  uint32_t view_of(const fb::Argument& argument) const {
    switch (static_cast<ArgumentKind>(argument.kind())) {
      case ArgumentKind::view: return argument.index();
      case ArgumentKind::tensor: return tensors[argument.index()].view();
      default: return kNone;
    }
  }
};

inline int64_t immediate(const fb::Instruction& op) {
  return static_cast<int64_t>(static_cast<uint64_t>(op.b()) | static_cast<uint64_t>(op.c()) << 32);
}

}  // namespace husk
