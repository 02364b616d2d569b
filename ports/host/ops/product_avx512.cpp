// Compiled for AVX-512 F, BW, DQ and VL; see CMakeLists.txt.
#include "product_kernels.h"

void husk::host::product_run_avx512(const Product& product) { run(product); }
