// The convolution kernels, compiled for any CPU of the architecture. CMakeLists.txt sets the
// options.
#include "nn/convolution_kernels.h"

#if defined(__x86_64__)
#define HUSK_SET "Baseline"
#else
#define HUSK_SET "ArmBaseline"
#endif

const husk::host::ConvolutionKernels husk::host::convolution_baseline = {
    HUSK_SET " 1", count_parts, pack, run, count_pair_parts, pack_pair, run_pair};
