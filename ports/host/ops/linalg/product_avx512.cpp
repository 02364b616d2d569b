// The product kernels, compiled for AVX-512 F, BW, DQ and VL. CMakeLists.txt sets the options.
#include "linalg/product_kernels.h"

void husk::host::product_run_avx512(const Product& product) { run(product); }
