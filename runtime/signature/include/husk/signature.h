/** @file
 * Signatures of artifacts: an application that trusts some public keys opens only files that were
 * signed with them.
 *
 * @code
 * husk_signature* trusted = NULL;
 * husk_signature_create(&trusted, &error);
 * husk_signature_add_key_file(trusted, "release.pub", &error);
 * husk_signature_add_file(trusted, "model.husk.sig", &error);
 * options.accept = husk_signature_accept;
 * options.accept_user = trusted;
 * options.verify_content = 1;
 * @endcode
 *
 * The library libhusk_signature has these functions; it uses libsodium. `husk-sign` makes keys and
 * signatures. A signature is one of Ed25519 (RFC 8032) over the 26 bytes "husk artifact signature
 * 1\n" and the 32 bytes of the content hash. The content hash covers the metadata, and these have
 * the hashes of the kernels and constants. Husk always compares kernels with their hashes, and
 * constants only if husk_engine_options.verify_content is 1.
 *
 * A file of a key or of a signature is text of two lines, each ended by "\n":
 *
 * | file       | first line                | second line                                      |
 * |------------|---------------------------|--------------------------------------------------|
 * | public key | `husk-public-key ed25519` | 64 digits: the public key                        |
 * | secret key | `husk-secret-key ed25519` | 64 digits: the seed of RFC 8032; keep it secret  |
 * | signature  | `husk-signature ed25519`  | 128 digits: the signature                        |
 *
 * The digits are hexadecimal, in lower case, in the order of the bytes.
 *
 * Errors: a function that returns husk_status fills `error`, which may be NULL, if it fails. The
 * handle stays usable and unchanged. The header is C11 and C++17. */
#ifndef HUSK_SIGNATURE_H
#define HUSK_SIGNATURE_H

#include <husk/types.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
  HUSK_SIGNATURE_KEY_BYTES = 32, /**< The size of a public key. */
  HUSK_SIGNATURE_BYTES = 64      /**< The size of a signature. */
};

/** Public keys that an application trusts, and signatures of artifacts. Several threads may call
 * husk_signature_accept for one handle at once, but not while keys or signatures are added. */
typedef struct husk_signature husk_signature;

/** Creates a handle without keys and signatures, which accepts no artifact.
 * @param signature the result, NULL after a failure
 * @param error may be NULL
 * @return HUSK_OK; HUSK_INVALID_ARGUMENT; HUSK_OUT_OF_MEMORY; or HUSK_UNSUPPORTED if libsodium
 * cannot start */
HUSK_API husk_status husk_signature_create(husk_signature** signature, husk_error* error);
/** Releases the handle, which no engine may use any more. NULL does nothing. */
HUSK_API void husk_signature_release(husk_signature* signature);

/** Adds a public key that the application trusts.
 * @param signature the handle
 * @param key HUSK_SIGNATURE_KEY_BYTES bytes; copied
 * @param error may be NULL
 * @return HUSK_OK; HUSK_INVALID_ARGUMENT if `key` is no public key; or HUSK_OUT_OF_MEMORY */
HUSK_API husk_status husk_signature_add_key(husk_signature* signature, const uint8_t* key,
                                            husk_error* error);
/** Adds the public key of a file.
 * @param signature the handle
 * @param path the path of a regular file
 * @param error may be NULL
 * @return HUSK_OK; HUSK_IO; HUSK_INVALID_FILE; or a failure of husk_signature_add_key */
HUSK_API husk_status husk_signature_add_key_file(husk_signature* signature, const char* path,
                                                 husk_error* error);
/** Adds a signature of some artifact. It is not checked before husk_signature_accept.
 * @param signature the handle
 * @param bytes HUSK_SIGNATURE_BYTES bytes; copied
 * @param error may be NULL
 * @return HUSK_OK; HUSK_INVALID_ARGUMENT; or HUSK_OUT_OF_MEMORY */
HUSK_API husk_status husk_signature_add(husk_signature* signature, const uint8_t* bytes,
                                        husk_error* error);
/** Adds the signature of a file.
 * @param signature the handle
 * @param path the path of a regular file
 * @param error may be NULL
 * @return HUSK_OK; HUSK_IO; HUSK_INVALID_FILE; or a failure of husk_signature_add */
HUSK_API husk_status husk_signature_add_file(husk_signature* signature, const char* path,
                                             husk_error* error);

/** Returns 1 if one of the signatures is that of an artifact with this content hash by one of the
 * keys, otherwise 0. The time grows with the number of keys times the number of signatures. This is
 * a function for husk_engine_options.accept.
 * @param user the husk_signature, husk_engine_options.accept_user; NULL accepts nothing
 * @param content_hash 32 bytes
 * @return 1 or 0 */
HUSK_API int32_t husk_signature_accept(void* user, const uint8_t* content_hash);

#ifdef __cplusplus
}
#endif
#endif
