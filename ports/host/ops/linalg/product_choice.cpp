#include "linalg/product_choice.h"

#include "core/kernel_choice.h"

namespace husk::host {

namespace {

// Kernels whose operands have the same dtype.
#define HUSK_PRODUCT(dtype, Set, kernels) \
  {dtype, {dtype, 0}, cpu_set::k##Set, product_run_##kernels, product_pack_##kernels, #Set " 1"}

// The kernels of a dtype that are compiled for each set of features.
#if defined(__x86_64__)
#define HUSK_PRODUCTS(dtype)                                            \
  HUSK_PRODUCT(dtype, Avx512, avx512), HUSK_PRODUCT(dtype, Avx2, avx2), \
      HUSK_PRODUCT(dtype, Baseline, baseline)
#else
#define HUSK_PRODUCTS(dtype) HUSK_PRODUCT(dtype, ArmBaseline, baseline)
#endif

// Kernels whose second operand has codes.
#define HUSK_QUANTIZED(dtype, code, bits, Set, kernels) \
  {                                                     \
      dtype,                                            \
      {code, bits},                                     \
      cpu_set::k##Set,                                  \
      product_run_quantized_##kernels,                  \
      product_pack_codes,                               \
      kCodesLayout}
#if defined(__x86_64__)
#define HUSK_QUANTIZED_PRODUCTS(dtype, code, bits)                                            \
  HUSK_QUANTIZED(dtype, code, bits, Avx512, avx512),                                          \
      HUSK_QUANTIZED(dtype, code, bits, Avx2, avx2), {                                        \
    dtype, {code, bits}, cpu_set::kBaseline, product_run_quantized_baseline, nullptr, nullptr \
  }
#else
#define HUSK_QUANTIZED_PRODUCTS(dtype, code, bits) \
  HUSK_QUANTIZED(dtype, code, bits, ArmBaseline, baseline)
#endif
#define HUSK_QUANTIZED_FLOATS(code, bits)                                                       \
  HUSK_QUANTIZED_PRODUCTS(HUSK_F32, code, bits), HUSK_QUANTIZED_PRODUCTS(HUSK_F16, code, bits), \
      HUSK_QUANTIZED_PRODUCTS(HUSK_BF16, code, bits)

// The rows for equal formats stand from the best to the last one, which computes every product. A
// row without `run` is none.
constexpr ProductKernels kProductKernels[] = {
    HUSK_PRODUCTS(HUSK_F32),
    HUSK_PRODUCTS(HUSK_F64),
    HUSK_PRODUCTS(HUSK_F16),
#if defined(__x86_64__)
    {HUSK_BF16, {HUSK_BF16, 0}, cpu_set::kAmx, product_run_amx, product_pack_bf16, "Avx512Bf16 1"},
    HUSK_PRODUCT(HUSK_BF16, Avx512Bf16, bf16),
#else
    HUSK_PRODUCT(HUSK_BF16, ArmBf16, bf16),
#endif
    HUSK_PRODUCTS(HUSK_BF16),
    HUSK_QUANTIZED_FLOATS(HUSK_U8, 4),
    HUSK_QUANTIZED_FLOATS(HUSK_U8, 8),
    HUSK_QUANTIZED_FLOATS(HUSK_I8, 8),
    HUSK_QUANTIZED_FLOATS(HUSK_F8E4M3FN, 8),
    HUSK_QUANTIZED_FLOATS(HUSK_F8E5M2, 8),
    HUSK_QUANTIZED_FLOATS(HUSK_F8E4M3FNUZ, 8),
    HUSK_QUANTIZED_FLOATS(HUSK_F8E5M2FNUZ, 8),
#define HUSK_HOST_ELEMENT(NAME, set, T)                                                 \
  {HUSK_##NAME,                                                                         \
   {HUSK_##NAME, 0},                                                                    \
   cpu_set::kNone,                                                                      \
   ((set) & kPlainProducts) && !has_kernels(HUSK_##NAME) ? product_run_plain : nullptr, \
   nullptr,                                                                             \
   nullptr},
#include <dtypes.def>
};

// The first row from `row` on that the CPU has for these formats.
const ProductKernels* next_row(const ProductKernels* row, Features cpu, husk_dtype a, Format b) {
  for (; row != kProductKernels + sizeof kProductKernels / sizeof *kProductKernels; ++row)
    if (row->a == a && row->b.dtype == b.dtype && row->b.bits == b.bits && row->run &&
        cpu.has(row->needs))
      return row;
  return nullptr;
}

}  // namespace

const ProductKernels* product_kernels(Features cpu, husk_dtype a, Format b) {
  return next_row(kProductKernels, cpu, a, b);
}

void product_run(Features cpu, const ProductKernels* kernels, Product& product) {
  while (kernels && !kernels->run(product))
    kernels = next_row(kernels + 1, cpu, kernels->a, kernels->b);
}

int64_t product_pack(Features cpu, const ProductPacking& packing, void* to) {
  const ProductKernels* kernels = product_kernels(cpu, packing.dtype, packing.b.format);
  return kernels && kernels->pack ? kernels->pack(packing, to) : 0;
}

const char* product_layout(Features cpu, const ProductPacking& packing) {
  const ProductKernels* kernels = product_kernels(cpu, packing.dtype, packing.b.format);
  return kernels ? kernels->layout : nullptr;
}

}  // namespace husk::host
