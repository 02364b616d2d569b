// The kernel of products of i8, compiled for AVX-512 VNNI. CMakeLists.txt sets the options.
#include "linalg/int_product_kernels.h"

void husk::host::int_product_avx512_vnni(const IntProduct& product) { run_int_product(product); }
