// The bytes that a signature covers, and the text files of keys and signatures (husk/signature.h).
// libhusk_signature and husk-sign use them.
#pragma once

#include <cstdint>

#include "base/status.h"

namespace husk::signature {

constexpr uint32_t kKeyBytes = 32, kSeedBytes = 32, kSignatureBytes = 64, kMaxBytes = 64;

// The bytes that a signature is over. The digit at the end of the prefix is the version of
// signatures; it grows if a content hash comes to mean something else.
struct Message {
  explicit Message(const uint8_t* content_hash);
  uint8_t bytes[26 + 32];
};

struct TextKind {
  const char* header;  // the first line
  const char* noun;    // for messages
  uint32_t bytes;      // how many the second line has, two digits each
};
constexpr TextKind kPublicKey = {"husk-public-key ed25519", "public key", kKeyBytes};
constexpr TextKind kSecretKey = {"husk-secret-key ed25519", "secret key", kSeedBytes};
constexpr TextKind kSignature = {"husk-signature ed25519", "signature", kSignatureBytes};

// Room for the longest text, its NUL included.
constexpr uint32_t kMaxText = 32 + 2 * kMaxBytes;

// Writes the text of `bytes` to `text`, NUL-terminated, and returns its length.
uint32_t write_text(const TextKind& kind, const uint8_t* bytes, char text[kMaxText]);

// Reads a file with such a text. Fails with HUSK_IO or HUSK_INVALID_FILE.
Status read_text(const TextKind& kind, const char* path, uint8_t* bytes, husk_error* error);

}  // namespace husk::signature
