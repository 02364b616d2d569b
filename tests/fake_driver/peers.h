// The port's kernels that exchange tensors between ranks.
#pragma once

#include "library.h"

namespace fake {

// Whether devices reach the memory of each other (FAKE_PEERS=1).
bool has_peers();

// The bytes of the parameters of these kernels.
constexpr uint32_t kExchangeParams[] = {
    8, 8, 8, 64, 8, 8, 8, 8, 4, 4, 4, 4, 4, 4, 4, 4, FAKE_PARAMS_END};

// Makes a task of a launch of such a kernel: it writes to the other ranks, and then it waits for
// what they write, without end if they do not.
void fill_exchange(const Call& call, const Launch& launch, Task* task);

}  // namespace fake
