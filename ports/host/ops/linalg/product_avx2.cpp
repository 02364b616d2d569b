// The product kernels, compiled for AVX2 with FMA and F16C. CMakeLists.txt sets the options.
#include "linalg/product_kernels.h"

void husk::host::product_run_avx2(const Product& product) { run(product); }
