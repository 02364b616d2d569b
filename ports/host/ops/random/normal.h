// The kernel of normal numbers.
#pragma once

#include <cstdint>

namespace husk::host {

// Turns uniform numbers into normal ones (Box-Muller), in `groups` groups of 16. Elements i and
// i + 8 of a group form a pair. The results are bit for bit those of PyTorch, which has vector
// functions of its own on CPUs with AVX2, and only there.
void normal_groups_avx2(float* data, int64_t groups, float mean, float deviation);

}  // namespace husk::host
