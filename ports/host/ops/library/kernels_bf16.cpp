// The kernels of products of bf16, compiled for AVX-512 BF16 or for 64-bit Arm with FEAT_BF16.
// CMakeLists.txt sets the options.
#include "linalg/product_kernels.h"

bool husk::host::product_run_bf16(Product& product) { return run_bf16_product(product); }
int64_t husk::host::product_pack_bf16(const ProductPacking& packing, void* to) {
  return pack_bf16_product(packing, to);
}
