#include <cstring>

#include <husk/detail/dtype.h>
#include <husk/husk.h>

#include "base/limits.h"
#include "model/verify.h"

namespace husk {

// Packs the kinds of an op's result (lowest 2 bits) and operands (3 bits each). 0 means that
// ops.def has no such op.
constexpr uint16_t scalar_rule(ResultKind result, Slot a, Slot b, Slot c) {
  return static_cast<uint16_t>(uint32_t(result) | uint32_t(a) << 2 | uint32_t(b) << 5 |
                               uint32_t(c) << 8);
}
constexpr Slot operand_kind(uint32_t rule, int i) {
  return static_cast<Slot>(rule >> (3 * i + 2) & 7);
}

namespace {

// One more than the largest code of a scalar op.
constexpr uint32_t kScalarCodes = [] {
  uint32_t codes = 0;
#define HUSK_SCALAR(code, name, result, a, b, c) codes = (code) < codes ? codes : (code) + 1;
#include <ops.def>
  return codes;
}();

struct ScalarRules {
  uint16_t rules[kScalarCodes];
};

constexpr ScalarRules make_rules() {
  using namespace columns;
  ScalarRules table = {};
#define HUSK_SCALAR(code, name, result, a, b, c) table.rules[code] = scalar_rule(result, a, b, c);
#include <ops.def>
  return table;
}

constexpr ScalarRules kRules = make_rules();

// The fields that an argument of each kind uses besides `kind` and `access`. The others are 0.
constexpr uint8_t kIndex = 1, kCount = 2, kType = 4;
constexpr uint8_t kUsedFields[] = {
    0,                // none
    kIndex | kType,   // view; the type is that of a read
    kIndex | kType,   // int register; the type is that of a fill
    kIndex | kType,   // float register
    kIndex,           // tensor
    kIndex | kCount,  // int list
    kIndex,           // string
    kType,            // dtype
    kIndex,           // null pointer
    kType,            // result
    kIndex | kCount,  // float list
    kIndex | kCount,  // tensor list
};
static_assert(sizeof(kUsedFields) == size_t(ArgumentKind::tensors) + 1);

uint32_t rule_of(uint16_t op) { return op < kScalarCodes ? kRules.rules[op] : 0; }

class VariantVerifier {
 public:
  VariantVerifier(const Code& code, Marks& marks, husk_error* error)
      : code_(code), marks_(marks), error_(error) {}

  Status run() {
    HUSK_TRY(segments());
    HUSK_TRY(loops());
    HUSK_TRY(arguments());
    for (uint32_t s = 0; s < code_.segments.size; ++s) {
      for (uint32_t n = code_.segments[s].scalar_begin(); n < code_.segments[s].scalar_end(); ++n)
        HUSK_TRY(of(scalar(n), "scalar op %u", n));
      find_results(code_.segments[s]);
    }
    HUSK_TRY(buffers());
    HUSK_TRY(views());
    HUSK_TRY(tensors());
    for (uint32_t s = 0; s < code_.segments.size; ++s)
      for (uint32_t n = code_.segments[s].step_begin(); n < code_.segments[s].step_end(); ++n)
        HUSK_TRY(of(step(s, n), "step %u", n));
    if (code_.origins.size != 0 && code_.origins.size != code_.steps.size)
      return bad("%u origins for %u steps", code_.origins.size, code_.steps.size);
    for (uint32_t text : code_.origins)
      if (!is_text(text)) return bad("an origin is not an index of a string");
    if (code_.names.size != 0 && code_.names.size != code_.buffers.size)
      return bad("%u names for %u buffers", code_.names.size, code_.buffers.size);
    for (uint32_t text : code_.names)
      if (!is_text(text)) return bad("a buffer's name is not an index of a string");
    return results();
  }

 private:
  // Rejects the file. Every message has at most two numbers, so `format` may use `a` and `b`.
  [[gnu::format(printf, 2, 0)]] Status bad(const char* format, uint32_t a = 0, uint32_t b = 0) {
    return invalid_file(error_, format, a, b);
  }
  // Puts the row that a failed check was about before its message.
  [[gnu::format(printf, 3, 0)]] Status of(Status status, const char* format, uint32_t row) {
    if (failed(status)) prefix(error_, format, row);
    return status;
  }

  bool is_text(uint32_t index) const {
    return index == kNone || index < count(code_.program->strings());
  }
  bool holds(uint32_t reg, uint32_t end, ResultKind kind) const {
    return reg < end && result_kind(code_.scalars[reg].op()) == kind;
  }
  bool is_int(uint32_t reg) const { return holds(reg, code_.scalars.size, ResultKind::integer); }

  Status segments() {
    uint32_t scalar = 0, step = 0;
    for (const fb::Segment& segment : code_.segments) {
      if (segment.scalar_begin() != scalar || segment.step_begin() != step ||
          segment.scalar_end() < scalar || segment.step_end() < step)
        return bad("the segments are out of order");
      scalar = segment.scalar_end();
      step = segment.step_end();
    }
    if (code_.segments.size == 0 || scalar != code_.scalars.size || step != code_.steps.size)
      return bad("the segments do not cover all ops and steps");
    return Status::ok;
  }

  // Every `when` is computed before its segment. Loops end by their `when`. Two loops are nested or
  // have no segment in common.
  Status loops() {
    for (uint32_t s = 0; s < code_.segments.size; ++s) {
      const fb::Segment& segment = code_.segments[s];
      if (segment.when() != kNone &&
          !holds(segment.when(), segment.scalar_begin(), ResultKind::integer))
        return bad("segment %u: 'when' is not an int register of an earlier segment", s);
      if (segment.back() == kNone) continue;
      if (segment.back() > s || segment.when() == kNone)
        return bad("segment %u: 'back' names a later segment, or the segment has no 'when'", s);
      // The walk jumps over loops inside of this one, so each segment is met once in all walks.
      for (uint32_t t = s; t > segment.back();) {
        const uint32_t back = code_.segments[--t].back();
        if (back == kNone) continue;
        if (back < segment.back()) return bad("loops of segments %u and %u cross", t, s);
        t = back;
      }
    }
    return Status::ok;
  }

  // The arguments of the steps exist, are in the order of the steps and do not overlap. The lists
  // of an extern step follow its own arguments.
  Status arguments() {
    uint32_t next = 0;
    for (uint32_t n = 0; n < code_.steps.size; ++n) {
      const fb::Instruction& op = code_.steps[n];
      if (op.b() < next || uint64_t(op.b()) + op.c() > code_.arguments.size)
        return bad("step %u: its arguments do not exist or belong to another step", n);
      next = op.b() + op.c();
      const bool is_extern = static_cast<Step>(op.op()) == Step::op_extern;
      if (is_extern ? op.aux() > op.c() : op.aux() != 0)
        return bad("step %u: an unused field is set", n);
    }
    return Status::ok;
  }

  Status scalar(uint32_t n) {
    const fb::Instruction& op = code_.scalars[n];
    const uint32_t rule = rule_of(op.op());
    if (!rule) return bad(": unknown code %u", unsigned(op.op()));
    const uint32_t fields[3] = {op.a(), op.b(), op.c()};
    if (op.aux() != 0) return bad(": an unused field is set");
    if (operand_kind(rule, 0) == Slot::immediate)
      return op.a() == 0 ? Status::ok : bad(": an unused field is set");
    for (int i = 0; i < 3; ++i)
      if (!operand(n, operand_kind(rule, i), fields, i))
        return bad(": operand %d is not of the kind that the op takes", i);
    return Status::ok;
  }

  bool operand(uint32_t n, Slot kind, const uint32_t fields[3], int i) const {
    const uint32_t field = fields[i];
    switch (kind) {
      case Slot::unused: return field == 0;
      case Slot::integer: return holds(field, n, ResultKind::integer);
      case Slot::floating: return holds(field, n, ResultKind::floating);
      case Slot::immediate: return true;
      case Slot::value: return input(field, static_cast<Scalar>(code_.scalars[n].op()));
      case Slot::dim: return field < code_.input(fields[0])->rank();
      case Slot::text: return is_text(field);
      case Slot::nth: return result(field, static_cast<Scalar>(code_.scalars[n].op()));
    }
    return false;
  }

  bool input(uint32_t index, Scalar op) const {
    if (index >= code_.inputs()) return false;
    const uint8_t kind = code_.input(index)->kind();
    if (op == Scalar::op_input) return kind == HUSK_VALUE_INT || kind == HUSK_VALUE_BOOL;
    return kind == (op == Scalar::op_finput ? HUSK_VALUE_FLOAT : HUSK_VALUE_TENSOR);
  }

  bool result(uint32_t nth, Scalar op) const {
    return nth < found_ && (op == Scalar::op_fresult) == (float_results_ >> nth & 1);
  }

  // Finds the results of a segment that the scalar ops of the next segment may name.
  void find_results(const fb::Segment& segment) {
    static_assert(limits::kMaxSegmentResults == 64, "one bit for each result");
    found_ = 0;
    float_results_ = 0;
    for (uint32_t s = segment.step_begin(); s < segment.step_end(); ++s) {
      const fb::Instruction& step = code_.steps[s];
      const bool read = static_cast<Step>(step.op()) == Step::op_read;
      if (!read && static_cast<Step>(step.op()) != Step::op_extern) continue;
      const uint32_t end = read ? step.c() : step.aux();
      for (uint32_t i = step.b(); i < step.b() + end; ++i) {
        if (!read && !is(code_.arguments[i], ArgumentKind::result)) continue;
        if (found_ == limits::kMaxSegmentResults) return;  // step() refuses such a segment
        float_results_ |= uint64_t{is_float(code_.arguments[i].type())} << found_++;
      }
    }
  }

  static bool is_float(uint8_t type) { return detail::fits_float_register(type); }
  static bool is_integer(uint8_t type) { return detail::fits_int_register(type); }

  // Whether the constant is in the file, or is computed for the target of this variant.
  bool is_for_target(uint32_t constant) const {
    const uint32_t by = code_.program->constants()->Get(constant)->folded_by();
    return by == kNone || code_.program->functions()->Get(by)->variants()->Get(0)->target() ==
                              code_.variant->target();
  }

  Status buffers() {
    const uint32_t counts[5] = {0, code_.inputs(), code_.outputs(),
                                count(code_.program->constants()), count(code_.program->states())};
    size_t first[5] = {0, 0, counts[1], 0, 0};
    first[3] = first[2] + counts[2];
    first[4] = first[3] + counts[3];
    const size_t ordered = first[4] + counts[4];
    marks_.clear();
    uint32_t in_arena = 0;
    for (uint32_t i = 0; i < code_.buffers.size; ++i) {
      const fb::Buffer& buffer = code_.buffers[i];
      if (buffer.space() > uint8_t(Space::state) ||
          buffer.align_log2() > __builtin_ctz(limits::kMaxValueAlign) || !is_int(buffer.size()) ||
          (buffer.reserved() | buffer.reserved2()))
        return bad(
            "buffer %u: unknown space, alignment over 4096, a reserved field is set, or its size "
            "is not an int register",
            i);
      if (buffer.device() != 0) HUSK_TRY(of(host_buffer(buffer), "buffer %u", i));
      if (buffer.space() == uint8_t(Space::arena)) {
        if (buffer.index() != kNone) return bad("buffer %u: in the arena, but names a value", i);
        ++in_arena;
        continue;
      }
      if (buffer.index() >= counts[buffer.space()])
        return bad("buffer %u: its value does not exist", i);
      if (buffer.space() == uint8_t(Space::constant) && !is_for_target(buffer.index()))
        return bad("buffer %u: its constant is folded for another target", i);
      if (!marks_.add(first[buffer.space()] + buffer.index()))
        return bad("buffer %u: its value has a buffer already", i);
      if ((buffer.space() == uint8_t(Space::input) &&
           code_.input(buffer.index())->kind() != HUSK_VALUE_TENSOR) ||
          (buffer.space() == uint8_t(Space::output) &&
           code_.output(buffer.index())->kind() != HUSK_VALUE_TENSOR))
        return bad("buffer %u: its value is not a tensor", i);
    }
    bool once = code_.order.size == 0 || code_.order.size == in_arena;
    for (uint32_t i : code_.order) once = once && i < in_arena && marks_.add(ordered + i);
    return once ? Status::ok : bad("the order is not a permutation of the arena buffers");
  }

  Status host_buffer(const fb::Buffer& buffer) {
    if (buffer.device() != uint8_t(Device::host)) return bad(": unknown device");
    if (buffer.space() > uint8_t(Space::output))
      return bad(": constants and states lie on the device");
    const fb::Target* target = code_.program->targets()->Get(code_.variant->target());
    return strcmp(target->port()->c_str(), "host") == 0
               ? bad(": a host target has no host beside its device")
               : Status::ok;
  }

  Status views() {
    for (uint32_t i = 0; i < code_.views.size; ++i) {
      const fb::View& view = code_.views[i];
      if (view.buffer() >= code_.buffers.size || !is_int(view.offset()) || !is_int(view.extent()) ||
          view.reserved())
        return bad(
            "view %u: its buffer does not exist, a reserved field is set, or its offset or extent "
            "is not an int register",
            i);
    }
    return Status::ok;
  }

  bool int_operands(uint64_t first, uint64_t size) const {
    if (first + size > code_.operands.size) return false;
    for (uint64_t i = first; i < first + size; ++i)
      if (!is_int(code_.operands[i])) return false;
    return true;
  }

  Status tensors() {
    for (uint32_t i = 0; i < code_.tensors.size; ++i) {
      const fb::Tensor& tensor = code_.tensors[i];
      if (tensor.view() >= code_.views.size || tensor.rank() > limits::kMaxRank ||
          tensor.dtype() == HUSK_POINTER ||
          husk_dtype_size(static_cast<husk_dtype>(tensor.dtype())) == 0 ||
          !int_operands(tensor.first(), 2ull * tensor.rank()) ||
          (tensor.reserved() | tensor.reserved2()))
        return bad("tensor %u: invalid view, dtype, rank, sizes, strides or reserved field", i);
    }
    return Status::ok;
  }

  // The functions below return whether a step may use a row, which exists: its registers are below
  // `end`, the first register that is not computed before the step.
  bool view_by(uint32_t index, uint32_t end) const {
    const fb::View& view = code_.views[index];
    return view.offset() < end && view.extent() < end && code_.buffers[view.buffer()].size() < end;
  }

  bool tensor_by(uint32_t index, uint32_t end) const {
    const fb::Tensor& tensor = code_.tensors[index];
    for (uint32_t i = 0; i < 2u * tensor.rank(); ++i)
      if (code_.operands[tensor.first() + i] >= end) return false;
    return view_by(tensor.view(), end);
  }

  // Whether a field is set that an argument of its kind does not use. The kind is known.
  [[gnu::noinline]] static bool sets_unused_field(const fb::Argument& argument) {
    const uint32_t used = kUsedFields[argument.kind()];
    uint32_t set = argument.flags() | argument.reserved();
    if (!(used & kIndex)) set |= argument.index();
    if (!(used & kCount)) set |= argument.count();
    if (!(used & kType)) set |= argument.type();
    return set != 0;
  }

  // The mistake in the access of a view or tensor argument; null if there is none.
  const char* access_mistake(const fb::Argument& argument) const {
    const uint32_t access = argument.access();
    if (access == 0 || access > 7 || access == 4) return "access not allowed for this parameter";
    const fb::Buffer& buffer = code_.buffers[code_.views[code_.view_of(argument)].buffer()];
    return writes(access) && buffer.space() == uint8_t(Space::constant)
               ? "a constant cannot be written"
               : nullptr;
  }

  bool registers_before(const fb::Argument& list, uint32_t end, ResultKind kind) const {
    if (uint64_t(list.index()) + list.count() > code_.operands.size) return false;
    for (uint32_t i = 0; i < list.count(); ++i)
      if (!holds(code_.operands[list.index() + i], end, kind)) return false;
    return true;
  }

  // The mistake in an argument of a step whose registers are computed before register `end`; null
  // if there is none.
  const char* argument_mistake(const fb::Argument& argument, uint32_t end) const {
    constexpr const char* kBadRegister =
        "its register does not exist, has another type, or is computed later";
    constexpr const char* kUnusedField = "an unused field is set";
    if (argument.kind() >= sizeof(kUsedFields)) return "unknown kind";
    if (sets_unused_field(argument)) return kUnusedField;
    const auto kind = static_cast<ArgumentKind>(argument.kind());
    if (kind != ArgumentKind::view && kind != ArgumentKind::tensor && argument.access() != 0)
      return "access not allowed for this parameter";
    switch (kind) {
      case ArgumentKind::null: return argument.index() > 1 ? kUnusedField : nullptr;
      case ArgumentKind::none:
      case ArgumentKind::tensors: break;  // external() checks the items
      case ArgumentKind::view:
        if (argument.index() >= code_.views.size) return "its view does not exist";
        return view_by(argument.index(), end) ? access_mistake(argument) : kBadRegister;
      case ArgumentKind::tensor:
        if (argument.index() >= code_.tensors.size) return "its tensor does not exist";
        return tensor_by(argument.index(), end) ? access_mistake(argument) : kBadRegister;
      case ArgumentKind::integer:
        return holds(argument.index(), end, ResultKind::integer) ? nullptr : kBadRegister;
      case ArgumentKind::floating:
        return holds(argument.index(), end, ResultKind::floating) ? nullptr : kBadRegister;
      case ArgumentKind::integers:
        return registers_before(argument, end, ResultKind::integer) ? nullptr : kBadRegister;
      case ArgumentKind::floats:
        return registers_before(argument, end, ResultKind::floating) ? nullptr : kBadRegister;
      case ArgumentKind::result:
        return argument.type() == HUSK_I64 || argument.type() == HUSK_F64
                   ? nullptr
                   : "a result is i64 or f64";
      case ArgumentKind::string:
        return argument.index() < count(code_.program->strings()) ? nullptr
                                                                  : "its string does not exist";
      case ArgumentKind::dtype:
        return husk_dtype_size(static_cast<husk_dtype>(argument.type())) > 0 ? nullptr
                                                                             : "unknown dtype";
    }
    return nullptr;
  }

  Status step(uint32_t segment, uint32_t n) {
    const fb::Instruction& op = code_.steps[n];
    const uint32_t end = code_.segments[segment].scalar_end();
    if (n == code_.segments[segment].step_begin()) results_ = 0;
    results_ += code_.result_count(op);
    if (results_ > 0 && segment + 1 == code_.segments.size)
      return bad(": it has a result, but there is no next segment to use it");
    if (results_ > limits::kMaxSegmentResults)
      return bad(": its segment has more than %u results", limits::kMaxSegmentResults);
    const fb::Argument* arguments = code_.arguments.data() + op.b();
    for (uint32_t i = 0; i < op.c(); ++i)
      if (const char* mistake = argument_mistake(arguments[i], end))
        return invalid_file(error_, ": argument %u: %s", i, mistake);
    HUSK_TRY(devices(op));
    switch (static_cast<Step>(op.op())) {
      case Step::op_launch: return launch(op, arguments);
      case Step::op_extern: return external(op, arguments);
      case Step::op_copy:
        if (op.a() != 0 || op.c() != 2 || !is(arguments[0], ArgumentKind::view) ||
            !is(arguments[1], ArgumentKind::view) || arguments[0].access() != HUSK_ACCESS_WRITE ||
            arguments[1].access() != HUSK_ACCESS_READ)
          return bad(": a copy takes a view with access write and a view with access read");
        return Status::ok;
      case Step::op_fill: return fill(op, arguments);
      case Step::op_read: return read(op, arguments);
    }
    return bad(": unknown code %u", unsigned(op.op()));
  }

  // A kernel and a fill take memory of the device, an op takes tensors of one place. Copies and
  // reads take any memory.
  Status devices(const fb::Instruction& op) {
    const auto kind = static_cast<Step>(op.op());
    if (kind == Step::op_copy || kind == Step::op_read) return Status::ok;
    const Device wanted = code_.device_of(op);
    for (uint32_t i = 0; i < op.c(); ++i) {
      const uint32_t view = code_.view_of(code_.arguments[op.b() + i]);
      if (view == kNone || code_.device_of(code_.views[view].buffer()) == wanted) continue;
      return kind == Step::op_extern
                 ? bad(": argument %u: some tensors of the op lie on the host, some on the device",
                       i)
                 : bad(": argument %u: lies on the host, where only copies, reads and ops reach it",
                       i);
    }
    return Status::ok;
  }

  static bool is(const fb::Argument& argument, ArgumentKind kind) {
    return static_cast<ArgumentKind>(argument.kind()) == kind;
  }

  Status external(const fb::Instruction& op, const fb::Argument* arguments) {
    if (op.a() >= count(code_.program->ops())) return bad(": its op does not exist");
    uint64_t item = op.aux();
    for (uint32_t i = 0; i < op.c(); ++i) {
      const bool tensor = is(arguments[i], ArgumentKind::tensor) ||
                          is(arguments[i], ArgumentKind::none);
      if (is(arguments[i], ArgumentKind::view) || is(arguments[i], ArgumentKind::null) ||
          (i >= op.aux() && !tensor))
        return bad(": argument %u has a kind that an op cannot take", i);
      if (!is(arguments[i], ArgumentKind::tensors)) continue;
      if (arguments[i].index() != item)
        return bad(": list %u does not begin after the items of the list before", i);
      item += arguments[i].count();
    }
    return item == op.c() ? Status::ok : bad(": some items belong to no list");
  }

  Status launch(const fb::Instruction& op, const fb::Argument* arguments) {
    const fb::Program* program = code_.program;
    if (op.a() >= count(program->kernels())) return bad(": its kernel does not exist");
    const fb::Kernel* kernel = program->kernels()->Get(op.a());
    const char* name = kernel->name()->c_str();
    if (program->images()->Get(kernel->image())->target() != code_.variant->target())
      return invalid_file(error_, ": kernel '%s' is for another target", name);
    if (op.c() != 3 + count(kernel->params()))
      return invalid_file(error_, ": kernel '%s' takes %u arguments", name,
                          count(kernel->params()));
    for (uint32_t i = 0; i < op.c(); ++i) {
      const uint8_t type = i < 3 ? uint8_t(HUSK_I32) : kernel->params()->Get(i - 3);
      const bool fits = type == HUSK_POINTER
                            ? is(arguments[i], ArgumentKind::view) ||
                                  is(arguments[i], ArgumentKind::null)
                            : is(arguments[i],
                                 is_integer(type) ? ArgumentKind::integer : ArgumentKind::floating);
      if (!fits || (type != HUSK_POINTER && !is_integer(type) && !is_float(type)))
        return invalid_file(error_,
                            ": argument %u of kernel '%s' does not have the type of its parameter",
                            i, name);
    }
    return Status::ok;
  }

  Status fill(const fb::Instruction& op, const fb::Argument* arguments) {
    bool good = op.a() == 0 && op.c() == 2 && is(arguments[0], ArgumentKind::view) &&
                arguments[0].access() == HUSK_ACCESS_WRITE;
    if (good) {
      const uint8_t type = arguments[1].type();
      good = (is_integer(type) && is(arguments[1], ArgumentKind::integer)) ||
             (is_float(type) && is(arguments[1], ArgumentKind::floating));
    }
    return good ? Status::ok : bad(": a fill takes a view with access write and an int or float");
  }

  Status read(const fb::Instruction& op, const fb::Argument* arguments) {
    // Only a view has both an access and a type.
    if (op.a() != 0 || op.c() != 1 || arguments[0].access() != HUSK_ACCESS_READ ||
        (!is_integer(arguments[0].type()) && !is_float(arguments[0].type())))
      return bad(": a read takes one view with access read and an int or float type");
    return Status::ok;
  }

  Status results() {
    if (code_.results.size != code_.outputs())
      return bad("%u results for %u outputs", code_.results.size, code_.outputs());
    for (uint32_t i = 0; i < code_.results.size; ++i) {
      const fb::Argument& result = code_.results[i];
      const fb::Value* output = code_.output(i);
      bool good = false;
      switch (output->kind()) {
        case HUSK_VALUE_NONE: good = is(result, ArgumentKind::none); break;
        case HUSK_VALUE_TENSOR:
          good = is(result, ArgumentKind::tensor) && result_tensor(result.index(), i);
          break;
        case HUSK_VALUE_FLOAT:
          good = is(result, ArgumentKind::floating) &&
                 holds(result.index(), code_.scalars.size, ResultKind::floating);
          break;
        default: good = is(result, ArgumentKind::integer) && is_int(result.index());
      }
      if (!good)
        return invalid_file(error_,
                            "result %u does not have the kind, dtype and rank of output '%s'", i,
                            output->name()->c_str());
      if ((result.access() | result.type()) || sets_unused_field(result))
        return bad("result %u: an unused field is set", i);
    }
    return Status::ok;
  }

  bool result_tensor(uint32_t index, uint32_t output) const {
    if (index >= code_.tensors.size) return false;
    const fb::Tensor& tensor = code_.tensors[index];
    const fb::Buffer& buffer = code_.buffers[code_.views[tensor.view()].buffer()];
    return tensor.dtype() == code_.output(output)->dtype() &&
           tensor.rank() == code_.output(output)->rank() &&
           buffer.space() == uint8_t(Space::output) && buffer.index() == output;
  }

  const Code& code_;
  Marks& marks_;
  husk_error* error_;
  uint32_t found_ = 0;  // results of the segment before the one whose scalar ops are checked
  uint64_t float_results_ = 0;  // by result, one bit: it is a float
  uint32_t results_ = 0;        // results of the current segment so far
};

}  // namespace

ResultKind result_kind(uint16_t op) { return static_cast<ResultKind>(rule_of(op) & 3); }

Status verify_variant(const Code& code, Marks& marks, husk_error* error) {
  return VariantVerifier(code, marks, error).run();
}

}  // namespace husk
