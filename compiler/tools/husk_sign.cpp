// husk-sign: makes keys, signs artifacts, and verifies signatures.
#include <fcntl.h>
#include <fmt/format.h>
#include <sodium.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string_view>

#include <husk/signature.h>

#include "ir/printable.h"
#include "read/artifact.h"
#include "signature/text.h"
#include "tools/command_line.h"

namespace {

using namespace husk::signature;
using husk::failed;
using husk::compiler::Artifact;

struct Arguments {
  std::string file, secret_key, public_key, signature;
};

constexpr const char* kFooter =
    "Examples:\n"
    "  husk-sign keygen --secret release.key --public release.pub\n"
    "  husk-sign sign model.husk --secret release.key         writes model.husk.sig\n"
    "  husk-sign verify model.husk --public release.pub       reads model.husk.sig\n\n"
    "Exit codes: 0 success; 1 a file or its signature is refused; 2 the command line is wrong.";

// A secret, which is overwritten when it is no longer needed.
template <size_t n>
struct Secret : std::array<uint8_t, n> {
  ~Secret() { sodium_memzero(this->data(), n); }
};

int refuse(const std::string& error) {
  fmt::print(stderr, "husk-sign: {}\n", husk::printable_lines(error));
  return 1;
}

// Creates a file, which must not exist. Returns an error text, or an empty string.
std::string create_file(const std::string& path, std::string_view text, mode_t mode) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
  if (file < 0 && errno == EEXIST)
    return fmt::format("'{}' exists: remove it, or choose another name", path);
  if (file < 0) return fmt::format("cannot create '{}': {}", path, strerror(errno));
  bool good = write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
              fsync(file) == 0;
  std::string error = good ? "" : fmt::format("cannot write '{}': {}", path, strerror(errno));
  close(file);
  if (!good) unlink(path.c_str());
  return error;
}

// Creates the file of a key or a signature.
std::string create_file(const std::string& path, const TextKind& kind, const uint8_t* bytes,
                        mode_t mode) {
  Secret<kMaxText> text;
  char* characters = reinterpret_cast<char*>(text.data());
  const uint32_t length = write_text(kind, bytes, characters);
  return create_file(path, {characters, length}, mode);
}

int keygen(const Arguments& a) {
  Secret<kSeedBytes> seed;
  Secret<crypto_sign_SECRETKEYBYTES> secret_key;
  uint8_t public_key[kKeyBytes];
  randombytes_buf(seed.data(), seed.size());
  crypto_sign_seed_keypair(public_key, secret_key.data(), seed.data());
  std::string error = create_file(a.secret_key, kSecretKey, seed.data(), 0600);
  if (!error.empty()) return refuse(error);
  error = create_file(a.public_key, kPublicKey, public_key, 0644);
  if (error.empty()) return 0;
  unlink(a.secret_key.c_str());
  return refuse(error);
}

// Opens an artifact, and compares its images and constants with their hashes; of a file of all
// ranks, those of each rank.
std::unique_ptr<Artifact> open_artifact(const std::string& path, std::string& error) {
  std::unique_ptr<Artifact> artifact;
  uint32_t rank = 0;
  do {
    artifact = Artifact::open(path, error, true, rank);
    if (artifact) error = artifact->check_blobs();
  } while (error.empty() && ++rank < artifact->ranks());
  if (error.empty()) return artifact;
  error = fmt::format("{}: {}", path, error);
  return nullptr;
}

int sign(const Arguments& a) {
  husk_error record = {};
  Secret<kSeedBytes> seed;
  if (failed(read_text(kSecretKey, a.secret_key.c_str(), seed.data(), &record)))
    return refuse(record.text);
  std::string error;
  const auto artifact = open_artifact(a.file, error);
  if (!artifact) return refuse(error);

  Secret<crypto_sign_SECRETKEYBYTES> secret_key;
  uint8_t public_key[kKeyBytes], signature[kSignatureBytes];
  crypto_sign_seed_keypair(public_key, secret_key.data(), seed.data());
  const Message message(artifact->hash());
  crypto_sign_detached(signature, nullptr, message.bytes, sizeof(message.bytes), secret_key.data());

  // A signature of an earlier version of the artifact is replaced as a whole.
  const std::string output = a.signature.empty() ? a.file + ".sig" : a.signature;
  const std::string aside = fmt::format("{}.{}", output, getpid());
  error = create_file(aside, kSignature, signature, 0644);
  if (error.empty() && rename(aside.c_str(), output.c_str()) != 0) {
    error = fmt::format("cannot write '{}': {}", output, strerror(errno));
    unlink(aside.c_str());
  }
  return error.empty() ? 0 : refuse(error);
}

int verify(const Arguments& a) {
  const std::string path = a.signature.empty() ? a.file + ".sig" : a.signature;
  husk_error record = {};
  husk_signature* trusted = nullptr;
  husk_status status = husk_signature_create(&trusted, &record);
  if (status == HUSK_OK)
    status = husk_signature_add_key_file(trusted, a.public_key.c_str(), &record);
  if (status == HUSK_OK) status = husk_signature_add_file(trusted, path.c_str(), &record);
  // Nothing of the metadata is parsed before the signature is known to be right.
  husk::Container file;
  if (status == HUSK_OK) status = husk_status(file.map(a.file.c_str(), &record));
  if (status == HUSK_OK) status = husk_status(file.read(*husk::default_allocator(), 0, 0, &record));
  const bool accepted = status == HUSK_OK && husk_signature_accept(trusted, file.content_hash());
  husk_signature_release(trusted);
  if (status != HUSK_OK) return refuse(record.text);
  if (!accepted)
    return refuse(
        fmt::format("'{}' is not a signature of '{}' by the key '{}'", path, a.file, a.public_key));
  std::string error;
  const auto artifact = open_artifact(a.file, error);
  if (artifact && memcmp(artifact->hash(), file.content_hash(), 32) != 0)
    error = fmt::format("'{}' was replaced while it was verified", a.file);
  if (!error.empty()) return refuse(error);
  fmt::print("{}: the signature, all images and all constants are right\n", a.file);
  return 0;
}

int run_tool(int argc, char** argv) {
  Arguments a;
  CLI::App app{"Makes keys, signs Husk artifacts (.husk), and verifies signatures.", "husk-sign"};
  app.require_subcommand(1);
  app.footer(kFooter);
  CLI::App* keygen_app = app.add_subcommand("keygen", "Make a pair of keys");
  keygen_app->add_option("--secret", a.secret_key, "The file to write the secret key to")
      ->required();
  keygen_app->add_option("--public", a.public_key, "The file to write the public key to")
      ->required();
  CLI::App* sign_app = app.add_subcommand("sign", "Sign an artifact, after verifying all of it");
  sign_app->add_option("file", a.file, "The artifact, model.husk")->required();
  sign_app->add_option("--secret", a.secret_key, "The file of the secret key")->required();
  sign_app->add_option("-o,--output", a.signature,
                       "The file to write the signature to (default: the artifact and .sig)");
  CLI::App* verify_app = app.add_subcommand(
      "verify", "Verify the signature of an artifact, and then all of the artifact");
  verify_app->add_option("file", a.file, "The artifact, model.husk")->required();
  verify_app->add_option("--public", a.public_key, "The file of the public key")->required();
  verify_app->add_option("--signature", a.signature,
                         "The file of the signature (default: the artifact and .sig)");
  if (const auto done = husk::tools::parse(app, argc, argv)) return *done;
  if (sodium_init() < 0) return refuse("libsodium cannot start");
  if (*keygen_app) return keygen(a);
  return *sign_app ? sign(a) : verify(a);
}

}  // namespace

int main(int argc, char** argv) {
  return husk::tools::guarded("husk-sign", 1, [&] { return run_tool(argc, argv); });
}
