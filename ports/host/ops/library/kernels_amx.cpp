// The kernel of products of bf16 by tiles, compiled for AMX-TILE and AMX-BF16 on top of AVX-512
// BF16. CMakeLists.txt sets the options.
#include "linalg/product_amx.h"

bool husk::host::product_run_amx(Product& product) { return run_amx_product(product); }
