// The convolution kernels, compiled for AVX2 with FMA and F16C. CMakeLists.txt sets the options.
#include "nn/convolution_kernels.h"

const husk::host::ConvolutionKernels husk::host::convolution_avx2 = {
    "Avx2 1", count_parts, pack, run, count_pair_parts, pack_pair, run_pair};
