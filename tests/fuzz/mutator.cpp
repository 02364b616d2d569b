// Mutants of artifacts for libFuzzer: half of them change fields and rows and keep the form of the
// metadata, the others change its bytes. The blobs after the metadata stay as they are. Files of
// all ranks have no metadata in that place: any of their bytes changes.
#include <algorithm>
#include <cstring>

#include <husk/husk.h>

#include "fields.h"
#include "model/container.h"
#include "mutate.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned seed);

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned seed) {
  using namespace husk::fuzz;
  std::mt19937 random(seed);
  const Artifact artifact(data, size);
  const bool is_one = artifact.data && !(artifact.data[24] & husk::kRanksFeature);
  if (!is_one || random() % 8 == 0) return LLVMFuzzerMutate(data, size, max_size);
  husk_error error;
  uint32_t metadata;
  std::memcpy(&metadata, artifact.data + 12, 4);
  if (random() % 2 && husk_program_verify(artifact.data, artifact.size, &error) == HUSK_OK) {
    std::vector<uint8_t> mutant(artifact.data, artifact.data + size);
    const Fields fields = find_fields(mutant);
    for (uint32_t n = 1 + random() % 3; n > 0; --n) {
      switch (random() % 4) {
        case 0: change_rows(mutant, fields, random); break;
        case 1: change_literal(mutant, fields, random); break;
        default: change_field(mutant, fields, random);
      }
    }
    std::memcpy(data, mutant.data(), size);
    return size;
  }
  std::memcpy(data, artifact.data, 64);
  if (metadata > 0) LLVMFuzzerMutate(data + 64, metadata, metadata);
  return size;
}
