// The kernel of products of i8, compiled for 64-bit Arm with FEAT_DotProd. CMakeLists.txt sets the
// options.
#include "linalg/int_product_kernels.h"

void husk::host::int_product_dotprod(const IntProduct& product) { run_int_product(product); }
