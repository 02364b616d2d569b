#include "model/evaluate.h"

#include <cmath>
#include <cstdio>
#include <cstring>

#include <husk/husk.h>

#include "model/integer.h"

namespace husk {
namespace {

// Describes a register in the message of a failed guard: "size 1 of input 'x' (7)".
struct Description {
  char text[80];
};

Description describe(const Code& code, uint32_t index, const Register* registers) {
  Description out;
  const fb::Instruction& op = code.scalars[index];
  const long long value = registers[index].i;
  switch (static_cast<Scalar>(op.op())) {
    case Scalar::op_size:
    case Scalar::op_stride:
      snprintf(out.text, sizeof(out.text), "%s %u of input '%.32s' (%lld)",
               static_cast<Scalar>(op.op()) == Scalar::op_size ? "size" : "stride", op.b(),
               code.input(op.a())->name()->c_str(), value);
      break;
    case Scalar::op_input:
      snprintf(out.text, sizeof(out.text), "input '%.32s' (%lld)",
               code.input(op.a())->name()->c_str(), value);
      break;
    default: snprintf(out.text, sizeof(out.text), "%lld", value);
  }
  return out;
}

// Returns true if the result is not a number or outside of int64.
bool to_integer(Scalar op, double value, int64_t* out) {
  switch (op) {
    case Scalar::op_floor: value = std::floor(value); break;
    case Scalar::op_ceil: value = std::ceil(value); break;
    case Scalar::op_round: value = std::nearbyint(value); break;  // halves go to the even neighbour
    default: value = std::trunc(value);
  }
  if (!(value >= -0x1p63 && value < 0x1p63)) return true;
  *out = static_cast<int64_t>(value);
  return false;
}

Status overflow(uint32_t index, husk_error* error) {
  return invalid_input(
      error,
      "size arithmetic leaves int64 (or divides by zero) at register %%%u: the inputs are too "
      "large",
      index);
}

Status failed_guard(const Code& code, const fb::Instruction& op, const Register* r,
                    husk_error* error) {
  const auto kind = static_cast<Scalar>(op.op());
  const char* text = code.text(kind == Scalar::op_check ? op.b() : op.c());
  const char* colon = *text ? ": " : "";
  if (kind == Scalar::op_check) return invalid_input(error, "%s%scheck failed", text, colon);
  return invalid_input(error, "%s%s%s must %s %s", text, colon, describe(code, op.a(), r).text,
                       kind == Scalar::op_check_eq ? "equal" : "be at most",
                       describe(code, op.b(), r).text);
}

Status failed_stride(const Code& code, const fb::Instruction& op, const InputValue& in,
                     int64_t want, husk_error* error) {
  return invalid_input(
      error,
      "stride %u of input '%s' is %lld, must be %lld: pass the memory format that was exported",
      op.b(), code.input(op.a())->name()->c_str(), static_cast<long long>(in.strides[op.b()]),
      static_cast<long long>(want));
}

// Returns whether two elements of the tensor differ in the index of the dimension. Otherwise its
// stride may be any number.
bool stride_matters(const InputValue& in, uint32_t rank, uint32_t dim) {
  for (uint32_t d = 0; d < rank; ++d)
    if (in.sizes[d] == 0) return false;
  return in.sizes[dim] > 1;
}

}  // namespace

Status evaluate(const Code& code, uint32_t segment, const InputValue* inputs,
                const Register* results, Register* r, husk_error* error, const uint8_t* known) {
  const uint32_t end = code.segments[segment].scalar_end();
  for (uint32_t n = code.segments[segment].scalar_begin(); n < end; ++n) {
    if (known && !known[n]) continue;
    const fb::Instruction& op = code.scalars[n];
    const uint32_t a = op.a(), b = op.b(), c = op.c();
    int64_t* out = &r[n].i;
    bool wrong = false;
    switch (static_cast<Scalar>(op.op())) {
      case Scalar::op_const:
      case Scalar::op_fconst: *out = immediate(op); break;
      case Scalar::op_input: *out = inputs[a].i; break;
      case Scalar::op_finput: r[n].f = inputs[a].f; break;
      case Scalar::op_size: *out = inputs[a].sizes[b]; break;
      case Scalar::op_stride: *out = inputs[a].strides[b]; break;
      case Scalar::op_result:
      case Scalar::op_fresult: r[n] = results[a]; break;
      case Scalar::op_bit_and: *out = r[a].i & r[b].i; break;
      case Scalar::op_bit_or: *out = r[a].i | r[b].i; break;
      case Scalar::op_bit_xor: *out = r[a].i ^ r[b].i; break;
      case Scalar::op_shl:
        wrong = r[b].i < 0 || r[b].i > 62 ||
                __builtin_mul_overflow(r[a].i, int64_t{1} << r[b].i, out);
        break;
      case Scalar::op_shr:
        wrong = r[b].i < 0;
        if (!wrong) *out = r[a].i >> (r[b].i < 63 ? r[b].i : 63);
        break;
      case Scalar::op_add: wrong = __builtin_add_overflow(r[a].i, r[b].i, out); break;
      case Scalar::op_sub: wrong = __builtin_sub_overflow(r[a].i, r[b].i, out); break;
      case Scalar::op_mul: wrong = __builtin_mul_overflow(r[a].i, r[b].i, out); break;
      case Scalar::op_floordiv:
      case Scalar::op_mod:
      case Scalar::op_cdiv: {
        const int64_t x = r[a].i, y = r[b].i;
        if ((wrong = y == 0 || (x == INT64_MIN && y == -1))) break;
        const auto kind = static_cast<Scalar>(op.op());
        if (kind == Scalar::op_mod) {
          *out = x % y;
          if (*out != 0 && (*out < 0) != (y < 0)) *out += y;  // the result has the sign of `y`
        } else {
          *out = floor_div(x, y) + (kind == Scalar::op_cdiv && x % y != 0);
        }
        break;
      }
      case Scalar::op_min: *out = r[a].i < r[b].i ? r[a].i : r[b].i; break;
      case Scalar::op_max: *out = r[a].i > r[b].i ? r[a].i : r[b].i; break;
      case Scalar::op_pow: wrong = r[b].i < 0 || power_overflows(r[a].i, r[b].i, out); break;
      case Scalar::op_eq: *out = r[a].i == r[b].i; break;
      case Scalar::op_ne: *out = r[a].i != r[b].i; break;
      case Scalar::op_lt: *out = r[a].i < r[b].i; break;
      case Scalar::op_le: *out = r[a].i <= r[b].i; break;
      case Scalar::op_and: *out = r[a].i && r[b].i; break;
      case Scalar::op_or: *out = r[a].i || r[b].i; break;
      case Scalar::op_not: *out = !r[a].i; break;
      case Scalar::op_select:
      case Scalar::op_fselect: r[n] = r[a].i ? r[b] : r[c]; break;
      case Scalar::op_range:
        *out = r[a].i;
        if (r[a].i < r[b].i || r[a].i > r[c].i)
          return invalid_input(error, "%s is outside %lld..%lld, the range that was exported",
                               describe(code, a, r).text, static_cast<long long>(r[b].i),
                               static_cast<long long>(r[c].i));
        break;
      case Scalar::op_fadd: r[n].f = r[a].f + r[b].f; break;
      case Scalar::op_fsub: r[n].f = r[a].f - r[b].f; break;
      case Scalar::op_fmul: r[n].f = r[a].f * r[b].f; break;
      case Scalar::op_fdiv: r[n].f = r[a].f / r[b].f; break;
      case Scalar::op_fmin: r[n].f = r[a].f < r[b].f ? r[a].f : r[b].f; break;
      case Scalar::op_fmax: r[n].f = r[a].f > r[b].f ? r[a].f : r[b].f; break;
      case Scalar::op_feq: *out = r[a].f == r[b].f; break;
      case Scalar::op_flt: *out = r[a].f < r[b].f; break;
      case Scalar::op_fle: *out = r[a].f <= r[b].f; break;
      case Scalar::op_float: r[n].f = static_cast<double>(r[a].i); break;
      case Scalar::op_trunc:
      case Scalar::op_floor:
      case Scalar::op_ceil:
      case Scalar::op_round: wrong = to_integer(static_cast<Scalar>(op.op()), r[a].f, out); break;
      case Scalar::op_sqrt: r[n].f = std::sqrt(r[a].f); break;
      case Scalar::op_fpow: r[n].f = std::pow(r[a].f, r[b].f); break;
      case Scalar::op_check:
        if (!r[a].i) return failed_guard(code, op, r, error);
        break;
      case Scalar::op_check_eq:
        if (r[a].i != r[b].i) return failed_guard(code, op, r, error);
        break;
      case Scalar::op_check_le:
        if (r[a].i > r[b].i) return failed_guard(code, op, r, error);
        break;
      case Scalar::op_check_stride:
        if (inputs[a].strides[b] != r[c].i && stride_matters(inputs[a], code.input(a)->rank(), b))
          return failed_stride(code, op, inputs[a], r[c].i, error);
        break;
    }
    if (wrong) return overflow(n, error);
  }
  return Status::ok;
}

}  // namespace husk
