// The kernel of products of i8 by tiles, compiled for AMX-INT8 on top of AMX-BF16. CMakeLists.txt
// sets the options.
#include "linalg/int_product_amx.h"

void husk::host::int_product_amx(const IntProduct& product) { run_int_product_amx(product); }
