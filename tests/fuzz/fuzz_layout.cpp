// Any metadata: what the runtime takes for a FlatBuffer of husk.fbs (runtime/src/layout.cpp), FlatBuffers' own verifier must
// take for one too, since generated accessors read it from then on. Input is an artifact, of which only the metadata counts.
#include "layout.h"

#include <husk_generated.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

namespace {

constexpr size_t kHeader = 64, kMetadataSize = 12;   // where it stands in the header

bool is_well_formed_to_flatbuffers(const uint8_t* bytes, size_t size) {
  flatbuffers::Verifier verifier(bytes, size, 64, 10000000);
  return husk::fb::VerifyProgramBuffer(verifier);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < kHeader) return 0;
  uint32_t metadata;
  std::memcpy(&metadata, data + kMetadataSize, sizeof(metadata));
  const size_t whole = std::min<size_t>(metadata, size - kHeader);
  const std::unique_ptr<uint8_t[]> bytes(new uint8_t[whole]);   // no longer: AddressSanitizer sees a byte read behind it
  std::memcpy(bytes.get(), data + kHeader, whole);
  if (!husk::is_well_formed(bytes.get(), whole) || is_well_formed_to_flatbuffers(bytes.get(), whole)) return 0;
  std::fprintf(stderr, "%zu bytes are taken that FlatBuffers refuse\n", whole);
  std::abort();
}
