// What is taken for a FlatBuffer of husk.fbs, beside what FlatBuffers' own verifier takes for one.
#include "layout.h"

#include "bent.h"

#include <cstring>

namespace husk::test {
namespace {

const char* const kProgram = R"(
target gpu cuda "sm_90a"
constant w f32 [4] bytes "00000000000000000000000000000000"
state ticks i64 [2] fill 0
function f {
  input x tensor f32 [1..16]
  output y tensor f32 rank 1
  variant cpu {
    let m = size(x, 0)
    check_eq(mod(m, 2), 0) "even"
    buffer x of input bytes mul(m, 4)
    buffer y of output bytes mul(m, 4)
    launch count grid (1, 1, 1) (both ticks) at "a"
    launch add grid (1, 1, 1) (read x, read w, write y, min(m, 4)) at "c"
    extern "aten::mm.out" (read tensor x f32 [m] [1], write tensor y f32 [m] [1])
    return (tensor y f32 [m] [1])
  }
}
)";

std::vector<uint64_t> metadata(size_t* size) {
  const std::vector<uint8_t> file = artifact(kProgram);
  uint32_t bytes;
  std::memcpy(&bytes, file.data() + 12, 4);
  std::vector<uint64_t> words(bytes / 8 + 1);
  std::memcpy(words.data(), file.data() + 64, bytes);
  *size = bytes;
  return words;
}

bool is_well_formed_to_flatbuffers(const void* bytes, size_t size) {
  flatbuffers::Verifier verifier(static_cast<const uint8_t*>(bytes), size, 64, 10000000);
  return fb::VerifyProgramBuffer(verifier);
}

TEST(Layout, TakesNothingThatFlatBuffersRefuses) {
  size_t size, both = 0, neither = 0, stricter = 0;
  std::vector<uint64_t> words = metadata(&size);
  ASSERT_TRUE(is_well_formed(words.data(), size));
  uint8_t* bytes = reinterpret_cast<uint8_t*>(words.data());
  for (size_t at = 0; at < size; ++at)
    for (uint8_t flip : {0x01, 0x02, 0x04, 0x08, 0x10, 0x20, 0x40, 0x80, 0xFF}) {
      bytes[at] ^= flip;
      const bool ours = is_well_formed(bytes, size), theirs = is_well_formed_to_flatbuffers(bytes, size);
      EXPECT_TRUE(theirs || !ours) << "byte " << at << " with " << int{flip};
      ++(ours == theirs ? (ours ? both : neither) : stricter);
      bytes[at] ^= flip;
    }
  EXPECT_GT(both, size_t{0});
  EXPECT_GT(neither, size_t{0});
  EXPECT_LT(stricter, neither / 10);   // elements that lie askew
}

TEST(Layout, KnowsWhereItEnds) {
  size_t size;
  const std::vector<uint64_t> words = metadata(&size);
  for (size_t part = 0; part < size; ++part)
    EXPECT_LE(is_well_formed(words.data(), part), is_well_formed_to_flatbuffers(words.data(), part)) << part;
}

}  // namespace
}  // namespace husk::test
