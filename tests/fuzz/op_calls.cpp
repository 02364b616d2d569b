#include "op_calls.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <husk/ops.h>

namespace husk::fuzz {
namespace {

struct CountedOp {
  const husk_op* op;
  size_t index;  // in op_calls()
};

std::vector<OpCalls>& all_calls() {
  static std::vector<OpCalls> calls;
  return calls;
}

// A collective writes a token, which orders it among the others.
bool is_collective(const husk_op& op) { return std::strstr(op.contract, " token:w") != nullptr; }

// The ops of the library, in the order of pack.def.
const std::vector<CountedOp>& counted_ops() {
  static const std::vector<CountedOp> ops = [] {
    std::vector<CountedOp> out;
    uint32_t count = 0;
    const husk_op* all = husk_host_ops(&count);
    for (uint32_t i = 0; i < count; ++i) {
      all_calls().push_back({all[i].name, is_collective(all[i]), 0, 0});
      out.push_back({&all[i], i});
    }
    return out;
  }();
  return ops;
}

bool is_small(const husk_op_arg& arg) {
  if (arg.kind == HUSK_ARG_TENSORS) {
    for (int64_t i = 0; i < arg.count; ++i)
      if (!is_small(arg.tensors[i])) return false;
    return arg.count <= kMaxElements;
  }
  if (arg.kind != HUSK_ARG_TENSOR) return true;
  int64_t elements = 1;
  for (int32_t d = 0; d < arg.rank; ++d)
    if (__builtin_mul_overflow(elements, arg.sizes[d], &elements)) return false;
  return elements <= kMaxElements;
}

husk_status call(const husk_op_context* context, const husk_op_arg* args, uint32_t count,
                 husk_error* error) {
  const auto* counted = static_cast<const CountedOp*>(context->user);
  for (uint32_t i = 0; i < count; ++i)
    if (!is_small(args[i])) {
      error->code = HUSK_LIMIT;
      std::snprintf(error->text, sizeof(error->text), "%s: argument %u has over %lld elements",
                    counted->op->name, i, static_cast<long long>(kMaxElements));
      return HUSK_LIMIT;
    }
  husk_op_context real = *context;
  real.user = counted->op->user;
  OpCalls& calls = all_calls()[counted->index];
  ++calls.calls;
  const husk_status status = counted->op->call(&real, args, count, error);
  if (status == HUSK_OK) ++calls.finished;
  return status;
}

}  // namespace

const std::vector<OpCalls>& op_calls() {
  counted_ops();
  return all_calls();
}

void add_counted_ops(husk_engine* engine) {
  husk_error error = {};
  if (husk_ops_add_all(engine, &error) != HUSK_OK) std::abort();
  for (const CountedOp& counted : counted_ops()) {
    husk_op op = *counted.op;
    op.call = call;
    op.user = const_cast<CountedOp*>(&counted);
    if (op.prepare || husk_engine_add_op(engine, &op, &error) != HUSK_OK) std::abort();
  }
}

void fill_pattern(void* memory, int32_t dtype, uint64_t count) {
  auto* at = static_cast<uint8_t*>(memory);
  const auto write = [&at](const auto& number) {
    std::memcpy(at, &number, sizeof number);
    at += sizeof number;
  };
  // 0, 1 and 2 in formats that C++ has no type for.
  constexpr uint16_t kHalf[] = {0, 0x3C00, 0x4000}, kBrain[] = {0, 0x3F80, 0x4000};
  for (uint64_t i = 0; i < count; ++i) {
    const int value = static_cast<int>((i * 7 + i / 4 + 1) % 3);
    switch (dtype) {
      case HUSK_F32: write(static_cast<float>(value)); break;
      case HUSK_F64: write(static_cast<double>(value)); break;
      case HUSK_C64: {
        const float parts[] = {static_cast<float>(value), 1};
        write(parts);
        break;
      }
      case HUSK_C128: {
        const double parts[] = {static_cast<double>(value), 1};
        write(parts);
        break;
      }
      case HUSK_F16: write(kHalf[value]); break;
      case HUSK_BF16: write(kBrain[value]); break;
      case HUSK_BOOL: write(static_cast<uint8_t>(value & 1)); break;
      default: {
        const int64_t number = value;
        const size_t width = husk_dtype_size(static_cast<husk_dtype>(dtype));
        std::memcpy(at, &number, width);
        at += width;
      }
    }
  }
}

}  // namespace husk::fuzz
