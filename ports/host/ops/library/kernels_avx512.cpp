// The kernels of matrix products, of attention and of LSTMs, compiled for AVX-512 F, BW, DQ and VL.
// CMakeLists.txt sets the options.
#include "linalg/int_product_kernels.h"
#include "linalg/product_kernels.h"
#include "linalg/quantized_kernels.h"
#include "linalg/rounded_kernels.h"
#include "nn/attention_kernels.h"
#include "nn/grid_sampler_kernels.h"
#include "nn/int_convolution_kernels.h"
#include "nn/recurrent_kernels.h"
#include "nn/rnn_kernels.h"
#include "spectral/fft_kernels.h"

bool husk::host::product_run_avx512(Product& product) { return run_product(product); }
bool husk::host::product_run_quantized_avx512(Product& product) {
  return run_quantized_product(product);
}
int64_t husk::host::product_pack_avx512(const ProductPacking& packing, void* to) {
  return pack_product(packing, to);
}
void husk::host::attention_run_avx512(const Attention& attention, int64_t part,
                                      Cancellation& cancellation, void* scratch) {
  run_attention(attention, part, cancellation, scratch);
}
void husk::host::grid_prepare_avx512(GridTile& tile) { run_grid_prepare(tile); }
void husk::host::grid_sample_avx512(const GridTile& tile, const float* from, float* to) {
  run_grid_sample(tile, from, to);
}
void husk::host::lstm_cell_avx512(const LstmCell& cell) { run_lstm_cell(cell); }
void husk::host::recurrent_cell_avx512(const RecurrentCell& cell) { run_recurrent_cell(cell); }
double* husk::host::fft_line_avx512(const FftLine& line) { return run_fft_line(line); }
void husk::host::int_product_avx512(const IntProduct& product) { run_int_product(product); }
bool husk::host::rounded_product_avx512(const Product& product, const RoundedAdd& add,
                                        bool are_slices, const void*& ready) {
  return run_rounded_product(product, add, are_slices, ready);
}
void husk::host::int_convolution_avx512(const IntConvolution& convolution, int64_t part,
                                        Cancellation& cancellation, void* scratch) {
  run_int_convolution(convolution, part, cancellation, scratch);
}
