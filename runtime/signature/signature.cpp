#include <sodium.h>

#include <cstdlib>
#include <cstring>

#include <husk/signature.h>

#include "signature/text.h"

using husk::fail;
using husk::null_argument;
using husk::Status;
using husk::signature::kKeyBytes;
using husk::signature::kSignatureBytes;

namespace {

// Keys or signatures, one after another.
struct Rows {
  uint8_t* bytes = nullptr;
  size_t count = 0;

  Status add(const uint8_t* row, size_t size, husk_error* error) {
    void* larger = realloc(bytes, (count + 1) * size);
    if (!larger) return fail(error, HUSK_OUT_OF_MEMORY, "no memory for a key or a signature");
    bytes = static_cast<uint8_t*>(larger);
    memcpy(bytes + count++ * size, row, size);
    return Status::ok;
  }
};

}  // namespace

static_assert(HUSK_SIGNATURE_KEY_BYTES == crypto_sign_PUBLICKEYBYTES &&
              HUSK_SIGNATURE_KEY_BYTES == kKeyBytes);
static_assert(HUSK_SIGNATURE_BYTES == crypto_sign_BYTES && HUSK_SIGNATURE_BYTES == kSignatureBytes);

struct husk_signature {
  Rows keys, signatures;
};

husk_status husk_signature_create(husk_signature** signature, husk_error* error) {
  if (!signature) return null_argument(error, "signature_create");
  *signature = nullptr;
  if (sodium_init() < 0)
    return husk_status(fail(error, HUSK_UNSUPPORTED,
                            "libsodium cannot start: it has no source of "
                            "random numbers"));
  auto* created = static_cast<husk_signature*>(calloc(1, sizeof(husk_signature)));
  if (!created) return husk_status(fail(error, HUSK_OUT_OF_MEMORY, "no memory for a handle"));
  *signature = created;
  return HUSK_OK;
}

void husk_signature_release(husk_signature* signature) {
  if (!signature) return;
  free(signature->keys.bytes);
  free(signature->signatures.bytes);
  free(signature);
}

husk_status husk_signature_add_key(husk_signature* signature, const uint8_t* key,
                                   husk_error* error) {
  if (!signature || !key) return null_argument(error, "signature_add_key");
  if (!crypto_core_ed25519_is_valid_point(key))
    return husk_status(
        fail(error, HUSK_INVALID_ARGUMENT, "these bytes are not a public key of Ed25519"));
  return husk_status(signature->keys.add(key, kKeyBytes, error));
}

husk_status husk_signature_add_key_file(husk_signature* signature, const char* path,
                                        husk_error* error) {
  if (!signature || !path) return null_argument(error, "signature_add_key_file");
  uint8_t key[kKeyBytes];
  HUSK_TRY(husk_status(husk::signature::read_text(husk::signature::kPublicKey, path, key, error)));
  const husk_status status = husk_signature_add_key(signature, key, error);
  if (status != HUSK_OK) husk::prefix(error, "'%.120s': ", path);
  return status;
}

husk_status husk_signature_add(husk_signature* signature, const uint8_t* bytes, husk_error* error) {
  if (!signature || !bytes) return null_argument(error, "signature_add");
  return husk_status(signature->signatures.add(bytes, kSignatureBytes, error));
}

husk_status husk_signature_add_file(husk_signature* signature, const char* path,
                                    husk_error* error) {
  if (!signature || !path) return null_argument(error, "signature_add_file");
  uint8_t bytes[kSignatureBytes];
  HUSK_TRY(
      husk_status(husk::signature::read_text(husk::signature::kSignature, path, bytes, error)));
  return husk_signature_add(signature, bytes, error);
}

int32_t husk_signature_accept(void* user, const uint8_t* content_hash) {
  const auto* trusted = static_cast<const husk_signature*>(user);
  if (!trusted || !content_hash) return 0;
  const husk::signature::Message message(content_hash);
  for (size_t k = 0; k < trusted->keys.count; ++k)
    for (size_t s = 0; s < trusted->signatures.count; ++s)
      if (crypto_sign_verify_detached(trusted->signatures.bytes + s * kSignatureBytes,
                                      message.bytes, sizeof(message.bytes),
                                      trusted->keys.bytes + k * kKeyBytes) == 0)
        return 1;
  return 0;
}
