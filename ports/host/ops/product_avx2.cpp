// Compiled for AVX2 with FMA and F16C; see CMakeLists.txt.
#include "product_kernels.h"

void husk::host::product_run_avx2(const Product& product) { run(product); }
