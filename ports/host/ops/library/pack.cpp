// The table of husk_host_ops(), made from pack.def.
#include <utility>

#include <husk/ops.h>

#include "core/arguments.h"
#include "core/scratch.h"

namespace husk::host {

// The functions of the rows, which the other folders define.
#define HUSK_HOST_OP(name, run, contract) husk_status run(const Arguments& args);
#include "library/pack.def"
#undef HUSK_HOST_OP

// How ops lay out constants.
husk_status pack_linear(const Arguments& args, husk_packing& packing);
husk_status pack_int_mm(const Arguments& args, husk_packing& packing);
husk_status pack_linear_quantized(const Arguments& args, husk_packing& packing);
husk_status pack_grouped_linear_quantized(const Arguments& args, husk_packing& packing);
husk_status pack_mm(const Arguments& args, husk_packing& packing);
husk_status pack_addmm(const Arguments& args, husk_packing& packing);
husk_status pack_recurrent_layer(const Arguments& args, husk_packing& packing);
husk_status pack_rnn_layer(const Arguments& args, husk_packing& packing);
husk_status pack_convolution(const Arguments& args, husk_packing& packing);
husk_status pack_convolution_depthwise(const Arguments& args, husk_packing& packing);
husk_status pack_convolution_int8(const Arguments& args, husk_packing& packing);

namespace {

using Run = husk_status (*)(const Arguments& args);
using Pack = husk_status (*)(const Arguments& args, husk_packing& packing);

// The function that lays out constants for the ops that `run` computes; null if there is none.
constexpr Pack pack_of(Run run) {
  constexpr struct {
    Run run;
    Pack pack;
  } kPacks[] = {{linear, pack_linear},
                {int_mm, pack_int_mm},
                {linear_quantized, pack_linear_quantized},
                {linear_rounded, pack_linear_quantized},
                {grouped_linear_quantized, pack_grouped_linear_quantized},
                {mm, pack_mm},
                {addmm, pack_addmm},
                {addmm_activation, pack_addmm},
                {convolution, pack_convolution},
                {recurrent_layer, pack_recurrent_layer},
                {rnn_layer, pack_rnn_layer},
                {fused_convolution, pack_convolution},
                {convolution_depthwise, pack_convolution_depthwise},
                {convolution_int8, pack_convolution_int8}};
  for (const auto& row : kPacks)
    if (row.run == run) return row.pack;
  return nullptr;
}

// The scratch memory of the ops that `run` computes.
constexpr ScratchBytes scratch_of(Run run) {
  constexpr ScratchBytes kProduct = {kProductScratch, kProductScratch},
                         kConvolution = {kConvolutionScratch, kConvolutionScratch};
  constexpr struct {
    Run run;
    ScratchBytes bytes;
  } kScratch[] = {{linear, kProduct},
                  {int_mm, kProduct},
                  {linear_quantized, kProduct},
                  {linear_rounded, kProduct},
                  {grouped_linear_quantized, kProduct},
                  {grouped_product, kProduct},
                  {mm, kProduct},
                  {addmm, kProduct},
                  {bmm, kProduct},
                  {baddbmm, kProduct},
                  {addbmm, kProduct},
                  {addmm_activation, kProduct},
                  {attention, {kAttentionScratch, kAttentionScratch}},
                  {attention_codes, {kAttentionScratch, kAttentionScratch}},
                  {attention_pages, {kAttentionScratch, kAttentionScratch}},
                  {convolution, kConvolution},
                  {fused_convolution, kConvolution},
                  {convolution_depthwise, kConvolution},
                  {convolution_int8, kConvolution},
                  {recurrent_layer, {kProductScratch + kGatesScratch, kProductScratch}},
                  {rnn_layer, {kProductScratch + kGatesScratch, kProductScratch}},
                  {linear_lu, {kProductScratch, 0}},
                  {lu_solve, {kProductScratch, 0}},
                  {triangular_solve, {kProductScratch, 0}},
                  {cholesky, {kProductScratch, 0}},
                  {cholesky_inverse, {kProductScratch, 0}},
                  {cholesky_solve, {kProductScratch, 0}},
                  {lu_factor, {kProductScratch, 0}},
                  {linear_det, {kProductScratch, 0}},
                  {linear_slogdet, {kProductScratch, 0}},
                  {linear_solve, {kProductScratch, 0}},
                  {linear_cholesky, {kProductScratch, 0}},
                  {linear_triangle, {kProductScratch, 0}},
                  {linear_inverse, {kProductScratch + kInverseScratch, 0}},
                  {mode, {kModeScratch, 0}},
                  {multinomial, {kPairsScratch, 0}},
                  {unique, {kBatchScratch, 0}},
                  {unique_sizes, {kBatchScratch, 0}},
                  {unique_dim, {kSlicesScratch, 0}},
                  {unique_dim_sizes, {kSlicesScratch, 0}},
                  {upsample_bilinear2d_aa, {kResizeScratch, 0}},
                  {upsample_bicubic2d_aa, {kResizeScratch, 0}}};
  for (const auto& row : kScratch)
    if (row.run == run) return row.bytes;
  return {};
}

constexpr Op kTable[] = {
#define HUSK_HOST_OP(name, run, contract) {name, run, contract, pack_of(run), scratch_of(run)},
#include "library/pack.def"
#undef HUSK_HOST_OP
};
constexpr uint32_t kTableSize = sizeof kTable / sizeof *kTable;

template <size_t... I>
struct Rows {
  static constexpr husk_op kRows[] = {{sizeof(husk_op), 0, kTable[I].name, op_enter,
                                       const_cast<Op*>(&kTable[I]), nullptr, kTable[I].contract,
                                       kTable[I].pack ? op_pack : nullptr, HUSK_OP_ON_HOST, 0,
                                       static_cast<uint64_t>(kTable[I].scratch.caller),
                                       static_cast<uint64_t>(kTable[I].scratch.other)}...};
};

template <size_t... I>
constexpr const husk_op* rows(std::index_sequence<I...>) {
  return Rows<I...>::kRows;
}

// The op of one row, which the linker drops if no program names it.
template <size_t I>
constexpr Op kOne = kTable[I];

constexpr bool equal(const char* a, const char* b) {
  while (*a && *a == *b) ++a, ++b;
  return *a == *b;
}

}  // namespace

}  // namespace husk::host

// The rows for static programs. They are no part of the shared library's interface.
#define HUSK_HOST_OP_ROW(symbol, op_name, index)                            \
  static_assert(husk::host::equal(husk::host::kTable[index].name, op_name), \
                "pack_rows.inc is older than pack.def");                    \
  extern "C" const husk_op husk_host_op_##symbol;                           \
  const husk_op husk_host_op_##symbol = {                                   \
      sizeof(husk_op),                                                      \
      0,                                                                    \
      op_name,                                                              \
      husk::host::op_enter,                                                 \
      const_cast<husk::host::Op*>(&husk::host::kOne<index>),                \
      nullptr,                                                              \
      husk::host::kTable[index].contract,                                   \
      husk::host::kTable[index].pack ? husk::host::op_pack : nullptr,       \
      HUSK_OP_ON_HOST,                                                      \
      0,                                                                    \
      static_cast<uint64_t>(husk::host::kTable[index].scratch.caller),      \
      static_cast<uint64_t>(husk::host::kTable[index].scratch.other)};
#include "library/pack_rows.inc"
#undef HUSK_HOST_OP_ROW

const husk_op* husk_host_ops(uint32_t* count) {
  *count = husk::host::kTableSize;
  return husk::host::rows(std::make_index_sequence<husk::host::kTableSize>());
}
