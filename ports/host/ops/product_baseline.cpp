// Compiled for any CPU of the architecture; see CMakeLists.txt.
#include "product_kernels.h"

void husk::host::product_run_baseline(const Product& product) { run(product); }
