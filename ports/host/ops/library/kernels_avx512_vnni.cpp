// The kernels of products and of convolutions of codes of 8 bits, compiled for AVX-512 VNNI.
// CMakeLists.txt sets the options.
#include "linalg/int_product_kernels.h"
#include "linalg/rounded_add.h"
#include "nn/int_convolution_kernels.h"

void husk::host::int_product_avx512_vnni(const IntProduct& product) { run_int_product(product); }
void husk::host::rounded_add_avx512_vnni(const Product& p, const RoundedSlice& slice,
                                         int64_t column, int64_t columns, int64_t count,
                                         const RoundedRows& rows) {
  add_rounded_rows(p, slice, column, columns, count, rows);
}
void husk::host::int_convolution_avx512_vnni(const IntConvolution& convolution, int64_t part,
                                             Cancellation& cancellation, void* scratch) {
  run_int_convolution(convolution, part, cancellation, scratch);
}
