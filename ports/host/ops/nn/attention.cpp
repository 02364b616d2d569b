// aten::_scaled_dot_product_flash_attention_for_cpu: checks, then nn/attention_kernels.h computes
// the parts.
#include "nn/attention.h"

#include <cmath>
#include <initializer_list>

#include "contracts.h"
#include "core/arguments.h"
#include "core/element.h"
#include "core/kernel_choice.h"
#include "core/loop.h"
#include "core/parallel.h"
#include "device.h"
#include "error.h"

namespace husk::host {

namespace {

using Run = void (*)(const Attention& attention, int64_t part, Cancellation& cancellation,
                     void* scratch);

Run run_of(Features cpu) {
  constexpr KernelFor<Run> kRuns[] = HUSK_KERNELS(attention_run);
  return best_kernel(cpu, kRuns);
}

// Divides the rows of each head of the keys into parts of about the same size. The division does
// not depend on the number of threads, so the results do not either.
void divide(Attention& a) {
  const int64_t rows = a.group * a.query_count,
                most = attention_part_rows(a.width > a.value_width ? a.width : a.value_width),
                parts = (rows - 1) / most + 1, each = (rows - 1) / parts + 1;
  constexpr int64_t kPanel = 12;  // a multiple of the rows of a tile for every instruction set
  a.part_rows = rows <= most ? rows : (each + kPanel - 1) / kPanel * kPanel;
  a.parts_of_head = (rows - 1) / a.part_rows + 1;
}

// Checks the tensors except the mask, and reads the sizes.
husk_status check_shapes(const Arguments& args, Attention& a) {
  constexpr ArgumentsOf named("attention");
  constexpr uint32_t kQuery = named["query"], kKey = named["key"], kValue = named["value"],
                     kOutput = named["output"], kLogsumexp = named["logsumexp"];
  for (uint32_t i : {kQuery, kKey, kValue}) {
    HUSK_TRY(args.check_tensor(i, 4, 4));
    HUSK_TRY(args.check_same_dtype(i, kQuery));
    HUSK_TRY(args.check_size(i, 0, args[kQuery].sizes[0], "the query's batches"));
  }
  HUSK_TRY(args.check_tensor(kOutput, 4, 4));
  HUSK_TRY(args.check_same_dtype(kOutput, kQuery));
  HUSK_TRY(args.check_size(kKey, 3, args[kQuery].sizes[3], "the query's width"));
  HUSK_TRY(args.check_size(kValue, 2, args[kKey].sizes[2], "the keys"));
  HUSK_TRY(args.check_size(kValue, 1, args[kKey].sizes[1], "the heads of the keys"));
  const int64_t heads = args[kQuery].sizes[1], key_heads = args[kKey].sizes[1];
  if (key_heads < 1 || heads % key_heads != 0)
    return args.argument_error(kKey, HUSK_INVALID_ARGUMENT,
                               "has heads that do not divide the query's");
  const int64_t sizes[] = {args[kQuery].sizes[0], heads, args[kQuery].sizes[2],
                           args[kValue].sizes[3]};
  for (int32_t d = 0; d < 4; ++d)
    HUSK_TRY(args.check_size(kOutput, d, sizes[d], "the query's, and the values' width"));
  a.heads = key_heads;
  a.group = heads / key_heads;
  a.query_count = sizes[2];
  a.key_count = args[kKey].sizes[2];
  a.width = args[kQuery].sizes[3];
  a.value_width = sizes[3];
  if (a.width > kMaxHeadWidth || a.value_width > kMaxHeadWidth)
    return args.argument_error(kQuery, HUSK_UNSUPPORTED, "or value has heads of more than 256");
  if (args.none(kLogsumexp)) return HUSK_OK;
  HUSK_TRY(args.check_tensor(kLogsumexp, 3, 3));
  for (int32_t d = 0; d < 3; ++d) HUSK_TRY(args.check_size(kLogsumexp, d, sizes[d], "the query's"));
  if (args[kLogsumexp].dtype != HUSK_F32 && args[kLogsumexp].dtype != HUSK_F64)
    return args.unsupported_dtype(kLogsumexp);
  a.log_sums = &args[kLogsumexp];
  return HUSK_OK;
}

}  // namespace

husk_status attention(const Arguments& args) {
  constexpr ArgumentsOf named("attention");
  constexpr uint32_t kQuery = named["query"], kKey = named["key"], kValue = named["value"],
                     kDropoutP = named["dropout_p"], kIsCausal = named["is_causal"],
                     kAttnMask = named["attn_mask"], kScale = named["scale"],
                     kOutput = named["output"];
  Attention a{};
  double dropout = 0;
  HUSK_TRY(check_shapes(args, a));
  HUSK_TRY(args.get_number(kDropoutP, dropout));
  if (dropout != 0) return args.argument_error(kDropoutP, HUSK_UNSUPPORTED, "is not 0");
  HUSK_TRY(args.get_bool(kIsCausal, a.causal));
  a.query = with_safe_strides(args[kQuery]);
  a.key = with_safe_strides(args[kKey]);
  a.value = with_safe_strides(args[kValue]);
  a.out = &args[kOutput];
  if (!args.none(kAttnMask)) {
    HUSK_TRY(args.check_tensor(kAttnMask, 0, 4));
    const int64_t sizes[] = {args[kQuery].sizes[0], args[kQuery].sizes[1], a.query_count,
                             a.key_count};
    a.mask = &args[kAttnMask];
    if (!broadcast(*a.mask, sizes, 4, a.mask_strides))
      return args.argument_error(kAttnMask, HUSK_INVALID_ARGUMENT,
                                 "does not broadcast to the scores");
    if (a.mask->dtype != HUSK_BOOL && a.mask->dtype != HUSK_F32 &&
        a.mask->dtype != args[kQuery].dtype)
      return args.unsupported_dtype(kAttnMask);
  }
  a.scale = a.width > 0 ? 1 / std::sqrt(static_cast<double>(a.width)) : 1;
  if (!args.none(kScale)) HUSK_TRY(args.get_number(kScale, a.scale));
  Features cpu{};
  HUSK_TRY(args.get_features(cpu));
  const int32_t dtype = a.out->dtype;
  if (!has_kernels(dtype)) return args.unsupported_dtype(kQuery);
  if (numel(*a.out) == 0) return HUSK_OK;
  divide(a);
  const Run run = run_of(cpu);
  const int64_t parts = a.query.sizes[0] * a.heads * a.parts_of_head;
  const double work = static_cast<double>(numel(*a.out)) * 2 * static_cast<double>(a.key_count);
  run_in_parts(args, parts, work, [&](Parts& own) {
    for (int64_t part = 0; own.next(part);) run(a, part, own.cancellation, own.scratch);
  });
  return HUSK_OK;
}

}  // namespace husk::host
