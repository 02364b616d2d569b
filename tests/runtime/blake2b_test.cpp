#include "base/blake2b.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

namespace {

std::string digest(const std::string& text, size_t piece) {
  husk::Blake2b hash;
  for (size_t i = 0; i < text.size(); i += piece)
    hash.update(text.data() + i, std::min(piece, text.size() - i));
  uint8_t out[32];
  hash.finish(out);
  char hex[65];
  for (int i = 0; i < 32; ++i) snprintf(hex + 2 * i, 3, "%02x", out[i]);
  return hex;
}

// The expected values are those of Python's hashlib.blake2b(..., digest_size=32).
TEST(Blake2b, AgreesWithHashlib) {
  EXPECT_EQ(digest("", 1), "0e5751c026e543b2e8ab2eb06099daa1d1e5df47778f7787faab45cdf12fe3a8");
  EXPECT_EQ(digest("abc", 1), "bddd813c634239723171ef3fee98579b94964e3bb1cb3e427262c8c068d52319");
}

TEST(Blake2b, PiecesDoNotMatter) {
  for (size_t length : {127u, 128u, 129u, 255u, 256u, 257u, 1000u}) {
    std::string text;
    for (size_t i = 0; i < length; ++i) text += static_cast<char>(i * 7);
    const std::string whole = digest(text, length);
    for (size_t piece : {1u, 3u, 64u, 128u, 129u})
      EXPECT_EQ(digest(text, piece), whole) << length << " " << piece;
  }
}

}  // namespace
