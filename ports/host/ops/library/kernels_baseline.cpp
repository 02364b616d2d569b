// The kernels of matrix products, of attention and of LSTMs, compiled for any CPU of the
// architecture. CMakeLists.txt sets the options.
#include "linalg/int_product_kernels.h"
#include "linalg/product_kernels.h"
#include "linalg/quantized_kernels.h"
#if HUSK_CODE_VECTORS
#include "linalg/rounded_add.h"
#include "linalg/rounded_kernels.h"
#endif
#include "nn/attention_kernels.h"
#include "nn/grid_sampler_kernels.h"
#include "nn/int_convolution_kernels.h"
#include "nn/recurrent_kernels.h"
#include "nn/rnn_kernels.h"
#include "spectral/fft_kernels.h"

bool husk::host::product_run_baseline(Product& product) { return run_product(product); }
bool husk::host::product_run_quantized_baseline(Product& product) {
  return run_quantized_product(product);
}
int64_t husk::host::product_pack_baseline(const ProductPacking& packing, void* to) {
  return pack_product(packing, to);
}
void husk::host::attention_run_baseline(const Attention& attention, int64_t part,
                                        Cancellation& cancellation, void* scratch) {
  run_attention(attention, part, cancellation, scratch);
}
void husk::host::grid_prepare_baseline(GridTile& tile) { run_grid_prepare(tile); }
void husk::host::grid_sample_baseline(const GridTile& tile, const float* from, float* to) {
  run_grid_sample(tile, from, to);
}
void husk::host::lstm_cell_baseline(const LstmCell& cell) { run_lstm_cell(cell); }
void husk::host::recurrent_cell_baseline(const RecurrentCell& cell) { run_recurrent_cell(cell); }
double* husk::host::fft_line_baseline(const FftLine& line) { return run_fft_line(line); }
void husk::host::int_product_baseline(const IntProduct& product) { run_int_product(product); }
// Codes are packed for sets of features with vectors that look up numbers.
#if HUSK_CODE_VECTORS
bool husk::host::rounded_product_baseline(const Product& product, const RoundedAdd& add,
                                          bool are_slices, const void*& ready) {
  return run_rounded_product(product, add, are_slices, ready);
}
void husk::host::rounded_add_baseline(const Product& p, const RoundedSlice& slice, int64_t column,
                                      int64_t columns, int64_t count, const RoundedRows& rows) {
  add_rounded_rows(p, slice, column, columns, count, rows);
}
#endif
void husk::host::int_convolution_baseline(const IntConvolution& convolution, int64_t part,
                                          Cancellation& cancellation, void* scratch) {
  run_int_convolution(convolution, part, cancellation, scratch);
}
