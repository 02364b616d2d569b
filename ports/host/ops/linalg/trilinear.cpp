// aten::_trilinear.
#include <initializer_list>

#include "contracts.h"
#include "core/arguments.h"
#include "core/arithmetic.h"
#include "core/loop.h"

namespace husk::host {

namespace {

// Expands an operand: inserts the dimensions that argument `dims_at` names, with stride 0. Writes
// strides over `rank` dimensions, and the sizes of the operand to `sizes`.
husk_status expand(const Arguments& args, ArgumentPlace at, ArgumentPlace dims_at, int32_t rank,
                   int64_t* sizes, int64_t* strides) {
  const husk_op_arg& dims = args[dims_at];
  const husk_op_arg operand = with_safe_strides(args[at]);
  HUSK_TRY(args.check_int_list(dims_at));
  if (dims.count != rank - operand.rank)
    return args.argument_error(dims_at, HUSK_INVALID_ARGUMENT,
                               "does not give all operands the same rank");
  uint32_t added = 0;
  for (int64_t i = 0; i < dims.count; ++i) {
    if (dims.sizes[i] < 0 || dims.sizes[i] >= rank)
      return args.argument_error(dims_at, HUSK_INVALID_ARGUMENT, "names no dimension");
    added |= 1u << dims.sizes[i];
  }
  int32_t operand_dim = 0;
  for (int32_t d = 0; d < rank; ++d) {
    strides[d] = 0;
    if (added >> d & 1) continue;
    if (operand_dim >= operand.rank)
      return args.argument_error(dims_at, HUSK_INVALID_ARGUMENT, "names a dimension twice");
    const int64_t size = operand.sizes[operand_dim];
    if (size != 1) {
      if (sizes[d] != 1 && sizes[d] != size)
        return args.argument_error(at, HUSK_INVALID_ARGUMENT, "does not broadcast with the others");
      sizes[d] = size;
      strides[d] = operand.strides[operand_dim];
    }
    ++operand_dim;
  }
  return HUSK_OK;
}

}  // namespace

// out = the sum over some dimensions of the product of three tensors.
husk_status trilinear(const Arguments& args) {
  constexpr ArgumentsOf named("trilinear");
  constexpr uint32_t kI1 = named["i1"], kI2 = named["i2"], kI3 = named["i3"],
                     kExpand1 = named["expand1"], kExpand2 = named["expand2"],
                     kExpand3 = named["expand3"], kSumdim = named["sumdim"], kOut = named["out"];
  for (const uint32_t at : {kI1, kI2, kI3}) HUSK_TRY(args.check_tensor(at));
  HUSK_TRY(args.check_tensor(kOut));
  HUSK_TRY(args.check_same_dtype(kI2, kI1));
  HUSK_TRY(args.check_same_dtype(kI3, kI1));
  HUSK_TRY(args.check_same_dtype(kOut, kI1));
  HUSK_TRY(args.check_int_list(kExpand1));
  HUSK_TRY(args.check_int_list(kSumdim));
  if (args[kExpand1].count > kMaxRank - args[kI1].rank)
    return args.argument_error(kExpand1, HUSK_UNSUPPORTED, "gives too many dimensions");
  const int64_t rank = args[kI1].rank + args[kExpand1].count;
  Loop<4> kept(args), summed(args);
  int64_t sizes[kMaxRank], strides[3][kMaxRank];
  for (int64_t d = 0; d < rank; ++d) sizes[d] = 1;
  constexpr uint32_t kOperands[] = {kI1, kI2, kI3}, kExpands[] = {kExpand1, kExpand2, kExpand3};
  for (int i = 0; i < 3; ++i)
    HUSK_TRY(
        expand(args, kOperands[i], kExpands[i], static_cast<int32_t>(rank), sizes, strides[i]));
  uint32_t sums = 0;
  for (int64_t i = 0; i < args[kSumdim].count; ++i) {
    if (args[kSumdim].sizes[i] < 0 || args[kSumdim].sizes[i] >= rank)
      return args.argument_error(kSumdim, HUSK_INVALID_ARGUMENT, "names no dimension");
    sums |= 1u << args[kSumdim].sizes[i];
  }
  int32_t out_dim = 0;
  for (int32_t d = 0; d < rank; ++d) {
    Loop<4>& loop = sums >> d & 1 ? summed : kept;
    loop.sizes[loop.rank] = sizes[d];
    for (int i = 0; i < 3; ++i) loop.strides[i][loop.rank] = strides[i][d];
    loop.strides[3][loop.rank] = 0;
    if (&loop == &kept) {
      if (out_dim >= args[kOut].rank)
        return args.argument_error(kOut, HUSK_INVALID_ARGUMENT, "has too few dimensions");
      HUSK_TRY(args.check_size(kOut, out_dim, sizes[d], "the operands'"));
      loop.strides[3][loop.rank] = args[kOut].strides[out_dim++];
    }
    ++loop.rank;
  }
  if (out_dim != args[kOut].rank)
    return args.argument_error(kOut, HUSK_INVALID_ARGUMENT, "has too many dimensions");
  return visit_argument<Floats | Halves>(args, kI1, [&](auto tag) {
    using T = typename decltype(tag)::type;
    each(kept, [&](const int64_t(&at)[4]) {
      Value<T> total = 0;
      each(summed, [&](const int64_t(&in)[4]) {
        total += get(data_of<T>(args[kI1]) + at[0] + in[0]) *
                 get(data_of<T>(args[kI2]) + at[1] + in[1]) *
                 get(data_of<T>(args[kI3]) + at[2] + in[2]);
      });
      set(writable<T>(args[kOut]) + at[3], total);
    });
  });
}

}  // namespace husk::host
