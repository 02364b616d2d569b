#include "program/op_arguments.h"

namespace husk::runtime {
namespace {

// The kind of an operator's argument by its ArgumentKind.
constexpr uint8_t kOpArgumentKinds[] = {HUSK_ARG_NONE,   HUSK_ARG_NONE,   HUSK_ARG_INT,
                                        HUSK_ARG_FLOAT,  HUSK_ARG_TENSOR, HUSK_ARG_INTS,
                                        HUSK_ARG_STRING, HUSK_ARG_DTYPE,  HUSK_ARG_NONE,
                                        HUSK_ARG_RESULT, HUSK_ARG_FLOATS, HUSK_ARG_TENSORS};

}  // namespace

OperandRange describe_argument(const Code& code, const fb::Argument& argument,
                               const husk_op_arg* arguments, husk_op_arg* out) {
  *out = husk_op_arg();
  out->kind = kOpArgumentKinds[argument.kind()];
  out->dtype = argument.type();
  out->count = argument.count();
  const uint32_t index = argument.index();
  switch (static_cast<ArgumentKind>(argument.kind())) {
    case ArgumentKind::tensor: {
      const fb::Tensor& tensor = code.tensors[index];
      out->access = argument.access();
      out->dtype = tensor.dtype();
      out->rank = tensor.rank();
      return {tensor.first(), 2u * tensor.rank()};
    }
    case ArgumentKind::integers:
    case ArgumentKind::floats: return {index, argument.count()};
    case ArgumentKind::string: out->string = code.text(index); return {};
    case ArgumentKind::tensors: out->tensors = arguments + index; return {};
    default: return {};
  }
}

void set_lists(const int64_t* numbers, OperandRange range, husk_op_arg* out) {
  if (out->kind != HUSK_ARG_TENSOR && out->kind != HUSK_ARG_INTS && out->kind != HUSK_ARG_FLOATS)
    return;
  out->sizes = numbers + range.first;
  out->strides = out->sizes + out->rank;
  out->floats = reinterpret_cast<const double*>(out->sizes);
}

}  // namespace husk::runtime
