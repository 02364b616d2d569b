// The product kernels, compiled for any CPU of the architecture. CMakeLists.txt sets the options.
#include "linalg/product_kernels.h"

void husk::host::product_run_baseline(const Product& product) { run(product); }
