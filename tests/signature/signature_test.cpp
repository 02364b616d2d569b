// libhusk_signature: keys, signatures, and the text files that hold them.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <array>
#include <cstring>

#include <husk/signature.h>

#include "folder.h"

namespace husk::signature_test {
namespace {

// The secret key of the first test of RFC 8032 has this public key. OpenSSL made the signature of
// the content hash 0, 1, …, 31.
const std::string kPublicDigits =
    "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";
const std::string kSignatureDigits =
    "c991fd0e79755867a39b898a30a68a39eeccb7baa837f92f7a40bff866b0f59b"
    "63e3304f4a0c669b6df415af9396e199975c486db2ea4cc0778bcad459042b09";
const std::string kPublicText = "husk-public-key ed25519\n" + kPublicDigits + "\n";
const std::string kSignatureText = "husk-signature ed25519\n" + kSignatureDigits + "\n";
// The public key of the second test of RFC 8032.
const std::string kOtherDigits = "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c";

template <size_t n>
std::array<uint8_t, n> bytes_of(const std::string& digits) {
  std::array<uint8_t, n> out;
  for (size_t i = 0; i < n; ++i)
    out[i] = static_cast<uint8_t>(std::stoul(digits.substr(2 * i, 2), nullptr, 16));
  return out;
}

class Signature : public ::testing::Test {
 protected:
  Signature() {
    EXPECT_EQ(husk_signature_create(&trusted, &error), HUSK_OK) << error.text;
    for (size_t i = 0; i < hash.size(); ++i) hash[i] = static_cast<uint8_t>(i);
  }
  ~Signature() override { husk_signature_release(trusted); }

  husk_status add_key(const std::string& digits) {
    return husk_signature_add_key(trusted, bytes_of<32>(digits).data(), &error);
  }
  husk_status add_signature(const std::string& digits) {
    return husk_signature_add(trusted, bytes_of<64>(digits).data(), &error);
  }
  int accept() { return husk_signature_accept(trusted, hash.data()); }

  husk_signature* trusted = nullptr;
  husk_error error = {};
  std::array<uint8_t, 32> hash;
  Folder folder;
};

TEST_F(Signature, IsAcceptedForItsKeyAndItsHash) {
  EXPECT_EQ(accept(), 0) << "there is no key and no signature";
  ASSERT_EQ(add_key(kPublicDigits), HUSK_OK) << error.text;
  EXPECT_EQ(accept(), 0) << "there is no signature";
  ASSERT_EQ(add_signature(kSignatureDigits), HUSK_OK) << error.text;
  EXPECT_EQ(accept(), 1);
  for (uint8_t& byte : hash) {
    byte ^= 1;
    EXPECT_EQ(accept(), 0);
    byte ^= 1;
  }
  EXPECT_EQ(accept(), 1);
  EXPECT_EQ(husk_signature_accept(nullptr, hash.data()), 0);
  EXPECT_EQ(husk_signature_accept(trusted, nullptr), 0);
}

TEST_F(Signature, IsRefusedForAnotherKey) {
  ASSERT_EQ(add_key(kOtherDigits), HUSK_OK) << error.text;
  ASSERT_EQ(add_signature(kSignatureDigits), HUSK_OK);
  EXPECT_EQ(accept(), 0);
  ASSERT_EQ(add_key(kPublicDigits), HUSK_OK);
  EXPECT_EQ(accept(), 1) << "one of the keys is right";
}

TEST_F(Signature, OneOfManyIsEnough) {
  std::string wrong = kSignatureDigits;
  wrong[0] = '0';
  for (int i = 0; i < 20; ++i) ASSERT_EQ(add_signature(wrong), HUSK_OK);
  for (int i = 0; i < 20; ++i) ASSERT_EQ(add_key(kOtherDigits), HUSK_OK);
  ASSERT_EQ(add_key(kPublicDigits), HUSK_OK);
  EXPECT_EQ(accept(), 0);
  ASSERT_EQ(add_signature(kSignatureDigits), HUSK_OK);
  ASSERT_EQ(add_signature(wrong), HUSK_OK);
  EXPECT_EQ(accept(), 1);
}

TEST_F(Signature, FilesAreRead) {
  const std::string key = folder.file("key.pub", kPublicText);
  const std::string signature = folder.file("model.husk.sig", kSignatureText);
  ASSERT_EQ(husk_signature_add_key_file(trusted, key.c_str(), &error), HUSK_OK) << error.text;
  ASSERT_EQ(husk_signature_add_file(trusted, signature.c_str(), &error), HUSK_OK) << error.text;
  EXPECT_EQ(accept(), 1);
}

TEST_F(Signature, FilesOfAnotherFormAreRefused) {
  std::string upper = kPublicText, letter = kPublicText;
  upper[24] = 'D';
  letter[24] = 'g';
  const std::string texts[] = {
      "",
      kPublicText.substr(0, kPublicText.size() - 1),
      kPublicText + "\n",
      kPublicText + std::string(10000, '0'),
      "husk-secret-key ed25519\n" + kPublicDigits + "\n",
      "husk-public-key ed25519\n\n" + kPublicDigits.substr(1) + "\n",
      "husk-public-key ed25519\r\n" + kPublicDigits + "\n",
      "husk-public-key ed25519\n" + kPublicDigits.substr(2) + "\n",
      kSignatureText,
      upper,
      letter,
  };
  for (const std::string& text : texts) {
    const std::string path = folder.file("key.pub", text);
    EXPECT_EQ(husk_signature_add_key_file(trusted, path.c_str(), &error), HUSK_INVALID_FILE)
        << text;
    EXPECT_EQ(error.text, "'" + path +
                              "' is not a public key: it must have the line "
                              "'husk-public-key ed25519' and a line of 64 hexadecimal digits");
  }
  const std::string path = folder.file("model.husk.sig", kPublicText);
  EXPECT_EQ(husk_signature_add_file(trusted, path.c_str(), &error), HUSK_INVALID_FILE);
  EXPECT_NE(std::strstr(error.text, "'husk-signature ed25519' and a line of 128 hexadecimal"),
            nullptr)
      << error.text;
  ASSERT_EQ(add_signature(kSignatureDigits), HUSK_OK);
  EXPECT_EQ(accept(), 0) << "no key was added";
}

TEST_F(Signature, FilesThatCannotBeReadAreNamed) {
  const std::string absent = folder.path("absent"), fifo = folder.path("fifo");
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_EQ(husk_signature_add_file(trusted, absent.c_str(), &error), HUSK_IO);
  EXPECT_EQ(error.text, "cannot read the signature '" + absent + "': No such file or directory");
  for (const std::string& path : {fifo, folder.path("")}) {
    EXPECT_EQ(husk_signature_add_key_file(trusted, path.c_str(), &error), HUSK_IO);
    EXPECT_EQ(error.text, "the public key '" + path + "' is not a regular file");
  }
  // A file of the kernel that opens, and fails to be read.
  EXPECT_EQ(husk_signature_add_key_file(trusted, "/proc/self/mem", &error), HUSK_IO);
  EXPECT_STREQ(error.text, "cannot read the public key '/proc/self/mem': Input/output error");
}

TEST_F(Signature, BytesThatAreNoKeyAreRefused) {
  const std::string zeros(64, '0');
  EXPECT_EQ(add_key(zeros), HUSK_INVALID_ARGUMENT);
  EXPECT_STREQ(error.text, "these bytes are not a public key of Ed25519");
  const std::string path = folder.file("key.pub", "husk-public-key ed25519\n" + zeros + "\n");
  EXPECT_EQ(husk_signature_add_key_file(trusted, path.c_str(), &error), HUSK_INVALID_ARGUMENT);
  EXPECT_EQ(error.text, "'" + path + "': these bytes are not a public key of Ed25519");
}

TEST_F(Signature, NullArguments) {
  const uint8_t bytes[64] = {};
  EXPECT_EQ(husk_signature_create(nullptr, &error), HUSK_INVALID_ARGUMENT);
  EXPECT_EQ(husk_signature_add_key(nullptr, bytes, &error), HUSK_INVALID_ARGUMENT);
  EXPECT_EQ(husk_signature_add_key(trusted, nullptr, &error), HUSK_INVALID_ARGUMENT);
  EXPECT_NE(std::strstr(error.text, "husk_signature_add_key: "), nullptr) << error.text;
  EXPECT_EQ(husk_signature_add_key_file(nullptr, "key", &error), HUSK_INVALID_ARGUMENT);
  EXPECT_EQ(husk_signature_add_key_file(trusted, nullptr, &error), HUSK_INVALID_ARGUMENT);
  EXPECT_EQ(husk_signature_add(nullptr, bytes, &error), HUSK_INVALID_ARGUMENT);
  EXPECT_EQ(husk_signature_add(trusted, nullptr, &error), HUSK_INVALID_ARGUMENT);
  EXPECT_EQ(husk_signature_add_file(nullptr, "signature", &error), HUSK_INVALID_ARGUMENT);
  EXPECT_EQ(husk_signature_add_file(trusted, nullptr, nullptr), HUSK_INVALID_ARGUMENT);
  husk_signature_release(nullptr);
}

}  // namespace
}  // namespace husk::signature_test
