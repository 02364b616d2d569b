// The launch list: each step with its arguments laid out once, changed ones rewritten before it is enqueued.
#include "session.h"

#include <cstdio>
#include <cstring>

namespace husk {
namespace {

uint32_t bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, 4);
  return bits;
}

// IEEE half or bfloat16, rounded to nearest even.
uint16_t to_half(float value) {
  const uint32_t bits = bits_of(value);
  const uint32_t sign = bits >> 16 & 0x8000, magnitude = bits & 0x7FFFFFFF;
  if (magnitude > 0x7F800000) return static_cast<uint16_t>(sign | 0x7E00);   // NaN
  if (magnitude >= 0x477FF000) return static_cast<uint16_t>(sign | 0x7C00);  // 65520 and above round to infinity
  if (magnitude < 0x38800000) {                                              // subnormal: units of 2^-24
    float units = value < 0 ? -value : value;
    units *= 16777216.0f;
    uint32_t whole = static_cast<uint32_t>(units);
    const float rest = units - static_cast<float>(whole);
    whole += rest > 0.5f || (rest == 0.5f && (whole & 1));
    return static_cast<uint16_t>(sign | whole);
  }
  const uint32_t rounded = magnitude + 0xFFF + (magnitude >> 13 & 1);
  return static_cast<uint16_t>(sign | ((rounded - 0x38000000) >> 13));
}

uint16_t to_bfloat(float value) {
  const uint32_t bits = bits_of(value);
  if ((bits & 0x7FFFFFFF) > 0x7F800000) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

// What a read brought, as a register.
Register decode(uint8_t type, uint64_t bits) {
  Register r;
  auto shift = [&](int width) { return static_cast<int64_t>(bits << (64 - width)) >> (64 - width); };
  switch (type) {
    case HUSK_BOOL: r.i = (bits & 0xFF) != 0; break;
    case HUSK_U8: r.i = static_cast<int64_t>(bits & 0xFF); break;
    case HUSK_I8: r.i = shift(8); break;
    case HUSK_U16: r.i = static_cast<int64_t>(bits & 0xFFFF); break;
    case HUSK_I16: r.i = shift(16); break;
    case HUSK_U32: r.i = static_cast<int64_t>(bits & 0xFFFFFFFF); break;
    case HUSK_I32: r.i = shift(32); break;
    case HUSK_F16: {
      const uint32_t magnitude = bits & 0x7FFF;
      uint32_t word = (magnitude << 13) + 0x38000000;   // from the bias of a half's exponent to that of a float's
      if (magnitude >= 0x7C00) word += 0x38000000;      // infinity, NaN
      float single;
      memcpy(&single, &word, 4);
      const double value = magnitude < 0x400 ? magnitude * 0x1p-24 : single;
      r.f = bits & 0x8000 ? -value : value;
      break;
    }
    case HUSK_BF16:
    case HUSK_F32: {
      const uint32_t word = static_cast<uint32_t>(type == HUSK_BF16 ? bits << 16 : bits);
      float single;
      memcpy(&single, &word, 4);
      r.f = single;
      break;
    }
    default: r.i = static_cast<int64_t>(bits);
  }
  return r;
}

// The bytes of a number as `type`, low end first. False where an int does not fit.
bool encode(uint8_t type, Register value, uint64_t* out) {
  *out = static_cast<uint64_t>(value.i);
  if (type == HUSK_F64) return true;
  if (type >= HUSK_F16 && type <= HUSK_F32) {
    const float single = static_cast<float>(value.f);
    *out = type == HUSK_F16 ? to_half(single) : type == HUSK_BF16 ? to_bfloat(single) : bits_of(single);
    return true;
  }
  if (type == HUSK_BOOL) *out = value.i != 0;
  return type == HUSK_BOOL || decode(type, *out).i == value.i;
}

// What an op sees of each kind of argument.
constexpr uint8_t kOpArgs[] = {HUSK_ARG_NONE, HUSK_ARG_NONE, HUSK_ARG_INT, HUSK_ARG_FLOAT, HUSK_ARG_TENSOR, HUSK_ARG_INTS,
                               HUSK_ARG_STRING, HUSK_ARG_DTYPE, HUSK_ARG_NONE, HUSK_ARG_RESULT, HUSK_ARG_FLOATS,
                               HUSK_ARG_TENSORS};

constexpr int64_t kGridLimit[3] = {INT32_MAX, 65535, 65535};

// Copies and fills have no grid: its first two words hold their 64-bit length, so that a graph sees it change.
void set_length(husk_launch* launch, uint64_t length) {
  launch->grid[0] = static_cast<uint32_t>(length);
  launch->grid[1] = static_cast<uint32_t>(length >> 32);
}
uint64_t length(const husk_launch& launch) { return launch.grid[0] | static_cast<uint64_t>(launch.grid[1]) << 32; }

}  // namespace

Status Frame::write_arguments(uint32_t step, bool all, husk_error* error) {
  const fb::Instruction& op = code.steps[step];
  const auto kind = static_cast<Step>(op.op());
  husk_launch& launch = step_states[step].launch;
  if (kind == Step::op_extern) {
    HUSK_TRY(write_op_args(step, error));
    return preparing ? run_step(step, nullptr, error) : Status::ok;
  }
  const fb::Kernel* kernel = kind == Step::op_launch ? code.program->kernels()->Get(op.a()) : nullptr;
  const uint32_t begin = all ? op.b() : step_states[step].first_dynamic;
  const uint32_t end = all ? op.b() + op.c() : step_states[step + 1].first_dynamic;
  for (uint32_t n = begin; n < end; ++n) {
    const uint32_t i = all ? n : dynamic[n], at = i - op.b();
    const fb::Argument& argument = code.arguments[i];
    switch (static_cast<ArgumentKind>(argument.kind())) {
      case ArgumentKind::view:
        HUSK_TRY(check_view(argument.index(), error));
        values[i] = reinterpret_cast<uintptr_t>(address(code.views[argument.index()]));
        break;
      case ArgumentKind::integer:
      case ArgumentKind::floating: {
        const Register value = registers[argument.index()];
        if (kernel && at < 3) {
          if (value.i < 0 || value.i > kGridLimit[at])
            return refuse(error, "grid dimension %u is %lld, outside 0..%lld: the inputs are too large", at,
                          static_cast<long long>(value.i), static_cast<long long>(kGridLimit[at]));
          launch.grid[at] = static_cast<uint32_t>(value.i);
          break;
        }
        const uint8_t type = kernel ? kernel->params()->Get(at - 3) : argument.type();
        if (!encode(type, value, &values[i]))
          return refuse(error, "argument %u is %lld, which %s does not hold: the inputs are too large", at,
                        static_cast<long long>(value.i), husk_dtype_name(static_cast<husk_dtype>(type)));
        break;
      }
      default: values[i] = argument.index() ? reinterpret_cast<uintptr_t>(session->failed_assert) : 0;
    }
  }
  if (kind == Step::op_copy || kind == Step::op_fill) {
    const int64_t bytes = registers[code.views[code.arguments[op.b()].index()].extent()].i;
    if (kind == Step::op_copy && registers[code.views[code.arguments[op.b() + 1].index()].extent()].i != bytes)
      return refuse(error, "a copy between views of different extents: export the program again");
    const size_t width = husk_dtype_size(static_cast<husk_dtype>(code.arguments[op.b() + 1].type()));
    set_length(&launch, static_cast<uint64_t>(bytes) / (kind == Step::op_copy ? 1 : width));
  }
  return Status::ok;
}

Status Frame::write_op_args(uint32_t step, husk_error* error) {
  const fb::Instruction& op = code.steps[step];
  for (uint32_t i = op.b(); i < op.b() + op.c(); ++i) {
    const fb::Argument& argument = code.arguments[i];
    const auto kind = static_cast<ArgumentKind>(argument.kind());
    husk_op_arg& out = op_args[i];
    out = husk_op_arg();
    out.kind = kOpArgs[argument.kind()];
    out.dtype = argument.type();
    out.count = argument.count();
    uint32_t first = argument.index(), numbers = 0;   // operands, to be laid out beside one another
    switch (kind) {
      case ArgumentKind::tensor: {
        HUSK_TRY(check_tensor_row(first, error));
        const fb::Tensor& tensor = code.tensors[first];
        out.access = argument.access();
        out.dtype = tensor.dtype();
        out.rank = tensor.rank();
        out.data = address(code.views[tensor.view()]);
        first = tensor.first();
        numbers = 2u * tensor.rank();
        break;
      }
      case ArgumentKind::integer:
      case ArgumentKind::floating:
        out.i = registers[first].i;
        out.f = registers[first].f;
        continue;
      case ArgumentKind::integers:
      case ArgumentKind::floats: numbers = argument.count(); break;
      case ArgumentKind::string: out.string = code.text(first); continue;
      case ArgumentKind::tensors: out.tensors = op_args + op.b() + first; continue;
      default: continue;
    }
    for (uint32_t d = first; d < first + numbers; ++d) op_sizes[d] = registers[code.operands[d]].i;
    out.sizes = op_sizes + first;
    out.strides = out.sizes + out.rank;
    out.floats = reinterpret_cast<const double*>(out.sizes);
  }
  return Status::ok;
}

bool Frame::is_empty(uint32_t step) const {
  const husk_launch& launch = step_states[step].launch;
  switch (static_cast<Step>(code.steps[step].op())) {
    case Step::op_launch: return !launch.grid[0] || !launch.grid[1] || !launch.grid[2];
    case Step::op_copy:
    case Step::op_fill: return length(launch) == 0;
    default: return false;
  }
}

Status Frame::run_step(uint32_t step, void* stream, husk_error* error) {
  const fb::Instruction& op = code.steps[step];
  const husk_port* port = session->port();
  void* device = session->device();
  if (is_empty(step)) return Status::ok;
  auto pointer = [&](uint32_t i) { return reinterpret_cast<void*>(static_cast<uintptr_t>(values[op.b() + i])); };
  switch (static_cast<Step>(op.op())) {
    case Step::op_launch:
      return to_status(port->launch(device, stream, program->kernels[op.a()], &step_states[step].launch, error));
    case Step::op_copy:
      return to_status(port->copy(device, stream, pointer(0), pointer(1), length(step_states[step].launch), error));
    case Step::op_fill:
      return to_status(port->fill(device, stream, pointer(0), values[op.b() + 1], fill_width(step),
                                  length(step_states[step].launch), error));
    case Step::op_read: return read_value(step, stream, error);
    case Step::op_extern: {
      const husk_op& entry = program->ops[op.a()];
      const husk_op_fn function = preparing ? entry.prepare : entry.call;
      if (!function) return Status::ok;
      const husk_op_context context = {entry.user, device, stream, program->engine->options.threads};
      for (uint32_t i = op.b(); i < op.b() + op.aux(); ++i)
        if (op_args[i].kind == HUSK_ARG_RESULT) {
          results[next_result].i = 0;
          op_args[i].data = &results[next_result++];
        }
      return to_status(function(&context, op_args + op.b(), op.aux(), error));
    }
  }
  return Status::ok;
}

uint32_t Frame::fill_width(uint32_t step) const {
  return static_cast<uint32_t>(
      husk_dtype_size(static_cast<husk_dtype>(code.arguments[code.steps[step].b() + 1].type())));
}

uint64_t Frame::step_length(uint32_t step) const { return length(step_states[step].launch); }

Status Frame::read_value(uint32_t step, void* stream, husk_error* error) {
  const fb::Argument& argument = code.arguments[code.steps[step].b()];
  const fb::View& view = code.views[argument.index()];
  const size_t width = husk_dtype_size(static_cast<husk_dtype>(argument.type()));
  if (registers[view.extent()].i < static_cast<int64_t>(width))
    return refuse(error, "a read of %zu bytes from a view of %lld", width,
                static_cast<long long>(registers[view.extent()].i));
  uint64_t bits = 0;
  HUSK_TRY(to_status(session->port()->download(session->device(), stream, &bits, address(view), width, error)));
  results[next_result++] = decode(argument.type(), bits);
  return Status::ok;
}

const char* Frame::step_name(uint32_t step) const {
  const fb::Instruction& op = code.steps[step];
  if (static_cast<Step>(op.op()) == Step::op_launch) return code.program->kernels()->Get(op.a())->name()->c_str();
  if (static_cast<Step>(op.op()) == Step::op_extern) return code.program->ops()->Get(op.a())->c_str();
  return "";
}

void Frame::blame(uint32_t step, husk_error* error) const {
  if (!error) return;
  const char* what = step_name(step);
  const char* origin = code.origin(step);
  prefix(error, "step %u%s%s%s%s%s: ", step, *what ? " " : "", what, *origin ? " (" : "", origin, *origin ? ")" : "");
  error->step = static_cast<int32_t>(step);
}

}  // namespace husk
