// The rows of verified metadata as plain arrays, which are read in place.
#pragma once

#include <husk_generated.h>

#include <husk/op.h>
#include <husk/types.h>

namespace husk {

constexpr uint32_t kNone = 0xFFFFFFFFu;

enum class Space : uint8_t { arena, input, output, constant, state };
// The values of Buffer.device: the device of the variant, and host memory beside it.
enum class Device : uint8_t { target, host };
constexpr Device kDevices[] = {Device::target, Device::host};

// One T for each device.
template <class T>
struct ByDevice {
  T values[sizeof(kDevices) / sizeof(Device)];

  T& operator[](Device device) { return values[static_cast<uint8_t>(device)]; }
  const T& operator[](Device device) const { return values[static_cast<uint8_t>(device)]; }
};

enum class ArgumentKind : uint8_t {
  none,
  view,
  integer,
  floating,
  tensor,
  integers,
  string,
  dtype,
  null,
  result,
  floats,
  tensors
};
enum KernelFlag : uint32_t {
  kPdlWaitFirst = 1,  // waits for its predecessors (programmatic dependent launch) before anything
                      // else
  kCooperative = 2,
  kTriggersEarly = 4,
  kPdlInGraph = 8,  // the same, in a graph: waits before anything but constants, states and inputs
  kPdl = kPdlWaitFirst | kPdlInGraph  // of both a kernel has one at most
};

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

// The structs, or numbers, of a FlatBuffers vector as a plain array. A missing vector has no rows.
template <class T>
struct Rows {
  const T* rows = nullptr;
  uint32_t size = 0;

  Rows() = default;
  Rows(const T* first, uint32_t n) : rows(first), size(n) {}
  // A vector of the file is passed as rows without a cast. NOLINTBEGIN(google-explicit-constructor)
  Rows(const flatbuffers::Vector<const T*>* vector) {
    if (!vector) return;
    rows = reinterpret_cast<const T*>(vector->Data());
    size = vector->size();
  }
  Rows(const flatbuffers::Vector<T>* vector) {
    if (!vector) return;
    rows = reinterpret_cast<const T*>(vector->Data());
    size = vector->size();
  }
  // NOLINTEND(google-explicit-constructor)
  const T* data() const { return rows; }
  const T& operator[](size_t i) const { return rows[i]; }
  const T* begin() const { return rows; }
  const T* end() const { return rows + size; }
};

// A vector of tables.
template <class T>
using Tables = flatbuffers::Vector<flatbuffers::Offset<T>>;

template <class T>
uint32_t count(const flatbuffers::Vector<T>* rows) {
  return rows ? rows->size() : 0;
}

// Functions, constants, states and values, of which only the names are read. All have the name in
// the same field, so that one function reads the names of each kind.
using NamedTables = Tables<fb::Value>;
template <class T>
const NamedTables* named(const Tables<T>* rows) {
  static_assert(int{T::VT_NAME} == int{fb::Value::VT_NAME});
  return reinterpret_cast<const NamedTables*>(rows);
}

// The rows of one variant, with its function and program.
struct Code {
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
      : program(p),
        function(f),
        steps(v->steps()),
        segments(v->segments()),
        arguments(v->arguments()),
        buffers(v->buffers()),
        views(v->views()),
        tensors(v->tensors()),
        operands(v->operands()),
        scalars(v->scalars()),
        results(v->results()),
        origins(v->origins()),
        names(v->names()),
        order(v->placement_order()),
        variant(v) {}

  uint32_t inputs() const { return count(function->inputs()); }
  uint32_t outputs() const { return count(function->outputs()); }
  const fb::Value* input(uint32_t i) const { return function->inputs()->Get(i); }
  const fb::Value* output(uint32_t i) const { return function->outputs()->Get(i); }
  const char* text(uint32_t i) const {
    return i == kNone ? "" : program->strings()->Get(i)->c_str();
  }
  // The place in the model that a step comes from; "" if the file has none.
  const char* origin(uint32_t step) const { return step < origins.size ? text(origins[step]) : ""; }
  // The name of a buffer; "" if the file has none.
  const char* name(uint32_t buffer) const { return buffer < names.size ? text(names[buffer]) : ""; }
  // The order in which the buffers of the arena are placed, as indices among them; null if the file
  // has none.
  const uint32_t* placement_order() const { return order.size ? order.data() : nullptr; }
  // The text for a buffer in messages: "'buf0'", or "#3" if the buffer has no name.
  struct Label {
    char text[40];
  };
  Label label(uint32_t buffer) const;
  // Returns the segment that computes a register.
  uint32_t segment_of(uint32_t reg) const;
  // The number of results that a step reads back to the host.
  uint32_t result_count(const fb::Instruction& step) const;
  Device device_of(uint32_t buffer) const { return static_cast<Device>(buffers[buffer].device()); }
  // The device on which the op of an extern step runs, where its tensors lie: the target if there
  // are none. Other steps run on the target.
  Device device_of(const fb::Instruction& step) const;
  // Returns whether a buffer lies in host memory beside the device.
  bool has_host_buffers() const;
  bool is_tensor_output(uint32_t i) const {
    return static_cast<ArgumentKind>(results[i].kind()) == ArgumentKind::tensor;
  }
  // The view that an argument accesses; kNone if it accesses no memory.
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
