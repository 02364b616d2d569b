// The convolution kernels, compiled for any CPU of the architecture. CMakeLists.txt sets the
// options.
#include "nn/convolution_kernels.h"

const husk::host::ConvolutionKernels husk::host::convolution_baseline = {
    count_parts, pack, run, count_pair_parts, pack_pair, run_pair};
