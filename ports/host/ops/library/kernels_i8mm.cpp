// The kernels of products of codes of 8 bits, compiled for 64-bit Arm with FEAT_I8MM.
// CMakeLists.txt sets the options.
#include "linalg/int_product_kernels.h"
#include "linalg/rounded_add.h"

void husk::host::int_product_i8mm(const IntProduct& product) { run_int_product(product); }
void husk::host::rounded_add_i8mm(const Product& p, const RoundedSlice& slice, int64_t column,
                                  int64_t columns, int64_t count, const RoundedRows& rows) {
  add_rounded_rows(p, slice, column, columns, count, rows);
}
