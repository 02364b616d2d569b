// Where the weights of an artifact are that lie beside it (FORMAT.md, "Weights beside the file").
#pragma once

#include <cstdint>

namespace husk {

// The bit of the header's feature bits which says that the constants lie in another file.
constexpr uint64_t kWeightsFeature = 2;
// The weights begin at a multiple of this number in the whole of both files: the largest size of a
// page, so that both can be mapped.
constexpr uint64_t kWeightsAlign = 65536;
constexpr uint64_t kWeightsMagic = 0x3145444953454257;  // "WBESIDE1"

// The last bytes of such an artifact. Its size and theirs are multiples of 64.
struct WeightsRow {
  uint64_t magic;           // kWeightsMagic
  uint64_t bytes;           // the size of the file of weights, which ends the whole
  uint8_t hash[32];         // of that file; the first half names it
  uint8_t header_hash[16];  // the first half of the hash of its header, up to the first tensor
};
static_assert(sizeof(WeightsRow) == 64);

// The first bytes of the hash of a file of weights; their hexadecimal digits, followed by this
// ending, are its name.
constexpr uint32_t kWeightsNameBytes = 16;
#define HUSK_WEIGHTS_ENDING ".safetensors"

}  // namespace husk
