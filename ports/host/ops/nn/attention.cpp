// aten::_scaled_dot_product_flash_attention_for_cpu, husk::attention_codes, whose keys and values
// are codes of 8 bits, and husk::attention_pages, whose keys and values are in pages: checks, then
// nn/attention_kernels.h computes the parts.
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

// The places of the arguments of an operator; kAbsent if it lacks one.
constexpr uint32_t kAbsent = UINT32_MAX;
struct Places {
  uint32_t query, key, value, attn_mask, scale, output;
  uint32_t is_causal = kAbsent, dropout_p = kAbsent, logsumexp = kAbsent;
  uint32_t key_scales = kAbsent, value_scales = kAbsent, table = kAbsent;
};

constexpr Places places_of(const ArgumentsOf& named) {
  return {named["query"],     named["key"],   named["value"],
          named["attn_mask"], named["scale"], named["output"]};
}

// Checks the sizes of keys and values that are codes, and of their scales.
husk_status check_codes(const Arguments& args, const Places& at, Attention& a) {
  const husk_op_arg& key = args[at.key];
  HUSK_TRY(args.check_same_dtype(at.value, at.key));
  if (key.dtype != HUSK_I8 && key.dtype != HUSK_F8E4M3FN) return args.unsupported_dtype(at.key);
  if (args[at.query].dtype == HUSK_F64) return args.unsupported_dtype(at.query);
  for (uint32_t i : {at.key_scales, at.value_scales}) {
    HUSK_TRY(args.check_tensor(i, 3, 3));
    if (args[i].dtype != HUSK_F32) return args.unsupported_dtype(i);
    for (int32_t d = 0; d < 3; ++d) HUSK_TRY(args.check_size(i, d, key.sizes[d], "the keys'"));
  }
  a.key_scales = &args[at.key_scales];
  a.value_scales = &args[at.value_scales];
  return HUSK_OK;
}

// Checks that the keys have the pages of the table, whose row for each batch `a` gets.
husk_status check_table(const Arguments& args, const Places& at, Attention& a) {
  HUSK_TRY(args.check_tensor(at.table, 2, 2));
  const husk_op_arg& table = args[at.table];
  if (table.dtype != HUSK_I64) return args.unsupported_dtype(at.table);
  HUSK_TRY(args.check_size(at.table, 0, args[at.query].sizes[0], "the query's batches"));
  const int64_t pages = args[at.key].sizes[0];
  int64_t page = 0;
  const bool are_there = each_index_while(args.cancellation, numel(table), [&](int64_t i) {
    page = data_of<int64_t>(
        table)[i / table.sizes[1] * table.strides[0] + i % table.sizes[1] * table.strides[1]];
    return is_within(page, pages);
  });
  if (!are_there) {
    return fail(args.error, HUSK_INVALID_INPUT,
                "%s: page %lld is out of bounds: the keys have %lld", args.op,
                static_cast<long long>(page), static_cast<long long>(pages));
  }
  a.table = &table;
  a.page = args[at.key].sizes[2];
  if (__builtin_mul_overflow(a.page, table.sizes[1], &a.key_count)) {
    return args.argument_error(at.table, HUSK_INVALID_ARGUMENT, "has too many pages");
  }
  return HUSK_OK;
}

// Keys and values have one dtype, that of the queries; it may be f16 or bf16 if these are f32.
husk_status check_dtypes(const Arguments& args, const Places& at) {
  HUSK_TRY(args.check_same_dtype(at.value, at.key));
  const int32_t key = args[at.key].dtype;
  if (args[at.query].dtype == HUSK_F32 && (key == HUSK_F16 || key == HUSK_BF16)) return HUSK_OK;
  return args.check_same_dtype(at.key, at.query);
}

// Checks the tensors except the mask, and reads the sizes.
husk_status check_shapes(const Arguments& args, const Places& at, Attention& a) {
  for (uint32_t i : {at.query, at.key, at.value}) {
    HUSK_TRY(args.check_tensor(i, 4, 4));
    const bool has_pages = at.table != kAbsent && i != at.query;
    HUSK_TRY(args.check_size(i, 0, args[has_pages ? at.key : at.query].sizes[0],
                             has_pages ? "the keys' pages" : "the query's batches"));
  }
  const bool are_codes = at.key_scales != kAbsent && !args.none(at.key_scales);
  if (!are_codes) HUSK_TRY(check_dtypes(args, at));
  HUSK_TRY(args.check_tensor(at.output, 4, 4));
  HUSK_TRY(args.check_same_dtype(at.output, at.query));
  HUSK_TRY(args.check_size(at.key, 3, args[at.query].sizes[3], "the query's width"));
  HUSK_TRY(args.check_size(at.value, 2, args[at.key].sizes[2], "the keys"));
  HUSK_TRY(args.check_size(at.value, 1, args[at.key].sizes[1], "the heads of the keys"));
  const int64_t heads = args[at.query].sizes[1], key_heads = args[at.key].sizes[1];
  if (key_heads < 1 || heads % key_heads != 0)
    return args.argument_error(at.key, HUSK_INVALID_ARGUMENT,
                               "has heads that do not divide the query's");
  const int64_t sizes[] = {args[at.query].sizes[0], heads, args[at.query].sizes[2],
                           args[at.value].sizes[3]};
  for (int32_t d = 0; d < 4; ++d)
    HUSK_TRY(args.check_size(at.output, d, sizes[d], "the query's, and the values' width"));
  a.heads = key_heads;
  a.group = heads / key_heads;
  a.query_count = sizes[2];
  a.key_count = args[at.key].sizes[2];
  if (at.table != kAbsent) HUSK_TRY(check_table(args, at, a));
  a.width = args[at.query].sizes[3];
  a.value_width = sizes[3];
  if (a.width > kMaxHeadWidth || a.value_width > kMaxHeadWidth)
    return args.argument_error(at.query, HUSK_UNSUPPORTED, "or value has heads of more than 256");
  if (are_codes) return check_codes(args, at, a);
  if (at.logsumexp == kAbsent || args.none(at.logsumexp)) return HUSK_OK;
  HUSK_TRY(args.check_tensor(at.logsumexp, 3, 3));
  for (int32_t d = 0; d < 3; ++d)
    HUSK_TRY(args.check_size(at.logsumexp, d, sizes[d], "the query's"));
  if (args[at.logsumexp].dtype != HUSK_F32 && args[at.logsumexp].dtype != HUSK_F64)
    return args.unsupported_dtype(at.logsumexp);
  a.log_sums = &args[at.logsumexp];
  return HUSK_OK;
}

husk_status attend(const Arguments& args, const Places& at) {
  Attention a{};
  HUSK_TRY(check_shapes(args, at, a));
  if (at.dropout_p != kAbsent) {
    double dropout = 0;
    HUSK_TRY(args.get_number(at.dropout_p, dropout));
    if (dropout != 0) return args.argument_error(at.dropout_p, HUSK_UNSUPPORTED, "is not 0");
  }
  if (at.is_causal != kAbsent) HUSK_TRY(args.get_bool(at.is_causal, a.causal));
  a.query = with_safe_strides(args[at.query]);
  a.key = with_safe_strides(args[at.key]);
  a.value = with_safe_strides(args[at.value]);
  a.out = &args[at.output];
  if (!args.none(at.attn_mask)) {
    HUSK_TRY(args.check_tensor(at.attn_mask, 0, 4));
    const int64_t sizes[] = {args[at.query].sizes[0], args[at.query].sizes[1], a.query_count,
                             a.key_count};
    a.mask = &args[at.attn_mask];
    if (!broadcast(*a.mask, sizes, 4, a.mask_strides))
      return args.argument_error(at.attn_mask, HUSK_INVALID_ARGUMENT,
                                 "does not broadcast to the scores");
    if (a.mask->dtype != HUSK_BOOL && a.mask->dtype != HUSK_F32 &&
        a.mask->dtype != args[at.query].dtype)
      return args.unsupported_dtype(at.attn_mask);
  }
  a.scale = a.width > 0 ? 1 / std::sqrt(static_cast<double>(a.width)) : 1;
  if (!args.none(at.scale)) HUSK_TRY(args.get_number(at.scale, a.scale));
  Features cpu{};
  HUSK_TRY(args.get_features(cpu));
  const int32_t dtype = a.out->dtype;
  if (!has_kernels(dtype)) return args.unsupported_dtype(at.query);
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

}  // namespace

husk_status attention(const Arguments& args) {
  constexpr ArgumentsOf named("attention");
  constexpr Places kPlaces = [named] {
    Places at = places_of(named);
    at.is_causal = named["is_causal"];
    at.dropout_p = named["dropout_p"];
    at.logsumexp = named["logsumexp"];
    return at;
  }();
  return attend(args, kPlaces);
}

husk_status attention_codes(const Arguments& args) {
  constexpr ArgumentsOf named("attention_codes");
  constexpr Places kPlaces = [named] {
    Places at = places_of(named);
    at.is_causal = named["is_causal"];
    at.key_scales = named["key_scales"];
    at.value_scales = named["value_scales"];
    return at;
  }();
  return attend(args, kPlaces);
}

husk_status attention_pages(const Arguments& args) {
  constexpr ArgumentsOf named("attention_pages");
  constexpr Places kPlaces = [named] {
    Places at = places_of(named);
    at.key_scales = named["key_scales"];
    at.value_scales = named["value_scales"];
    at.table = named["table"];
    return at;
  }();
  return attend(args, kPlaces);
}

}  // namespace husk::host
