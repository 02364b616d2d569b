// The convolution kernels, compiled for AVX-512 F, BW, DQ and VL. CMakeLists.txt sets the options.
#include "nn/convolution_kernels.h"

const husk::host::ConvolutionKernels husk::host::convolution_avx512 = {
    "Avx512 1", count_parts, pack, run, count_pair_parts, pack_pair, run_pair};
