// husk-sign, and examples/signed, run by a shell on the golden artifact of tests/runtime.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "../outcome.h"
#include "folder.h"

namespace husk::signature_test {
namespace {

using test::Outcome;
using test::run;

class Sign : public ::testing::Test {
 protected:
  Sign() {
    std::filesystem::copy_file(HUSK_GOLDEN, model);
    EXPECT_EQ(sign("keygen --secret " + secret + " --public " + pub).status, 0);
  }

  static Outcome sign(const std::string& arguments, const std::string& before = "") {
    return run(HUSK_SIGN " " + arguments, before);
  }
  Outcome verify(const std::string& key) { return sign("verify " + model + " --public " + key); }
  Outcome example(const std::string& key) { return run(HUSK_SIGNED " " + model + " " + key); }
  void sign_model() {
    const Outcome got = sign("sign " + model + " --secret " + secret);
    ASSERT_EQ(got.status, 0) << got.text;
    EXPECT_EQ(got.text, "");
  }
  // Changes one byte of the model.
  void damage(size_t at) {
    std::string bytes = folder.read("model.husk");
    bytes.at(at) = static_cast<char>(bytes.at(at) ^ 1);
    folder.file("model.husk", bytes);
  }

  Folder folder;
  const std::string model = folder.path("model.husk"), secret = folder.path("release.key"),
                    pub = folder.path("release.pub"), free = folder.path("free");
};

void expect_refused(const Outcome& got, const std::string& text) {
  EXPECT_EQ(got.status, 1) << got.text;
  EXPECT_EQ(got.text, "husk-sign: " + text + "\n");
}

TEST_F(Sign, ASignatureIsVerified) {
  sign_model();
  const Outcome got = verify(pub);
  EXPECT_EQ(got.status, 0) << got.text;
  EXPECT_EQ(got.text, model + ": the signature, all images and all constants are right\n");
  ASSERT_EQ(sign("sign " + model + " --secret " + secret + " -o " + free).status, 0);
  EXPECT_EQ(folder.read("free"), folder.read("model.husk.sig"));
  std::filesystem::remove(model + ".sig");
  EXPECT_EQ(sign("verify " + model + " --public " + pub + " --signature " + free).status, 0);
}

// The keys are those of the first test of RFC 8032. OpenSSL made the same signature of the prefix
// and the content hash.
TEST_F(Sign, WhatIsSignedStaysTheSame) {
  folder.file("release.key",
              "husk-secret-key ed25519\n"
              "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60\n");
  folder.file("release.pub",
              "husk-public-key ed25519\n"
              "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a\n");
  sign_model();
  EXPECT_EQ(verify(pub).status, 0);
  EXPECT_EQ(folder.read("model.husk.sig"),
            "husk-signature ed25519\n"
            "9685155941ff306133097cdecfd074c1042a02fbbf804dce5ed901fd18faf21b"
            "ff30c02aecd2bdd031e590c6d938685eb57372af5f60d56c9488498b4ff4e208\n");
}

TEST_F(Sign, KeysDifferAndTheSecretOneIsPrivate) {
  struct stat info;
  ASSERT_EQ(stat(secret.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0600u);
  const std::string other = folder.path("other");
  const std::string arguments = "keygen --secret " + other + ".key --public " + other + ".pub";
  ASSERT_EQ(sign(arguments, "umask 0; ").status, 0);
  ASSERT_EQ(stat((other + ".key").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0600u);
  EXPECT_NE(folder.read("other.key"), folder.read("release.key"));
  sign_model();
  expect_refused(verify(other + ".pub"), "'" + model + ".sig' is not a signature of '" + model +
                                             "' by the key '" + other + ".pub'");
  expect_refused(verify(secret), "'" + secret +
                                     "' is not a public key: it must have the line "
                                     "'husk-public-key ed25519' and a line of 64 hexadecimal "
                                     "digits");
}

TEST_F(Sign, KeysAreNotOverwritten) {
  const std::string secret_text = folder.read("release.key"), text = folder.read("release.pub");
  expect_refused(sign("keygen --secret " + secret + " --public " + free),
                 "'" + secret + "' exists: remove it, or choose another name");
  EXPECT_FALSE(folder.has("free"));
  expect_refused(sign("keygen --secret " + free + " --public " + pub),
                 "'" + pub + "' exists: remove it, or choose another name");
  EXPECT_FALSE(folder.has("free")) << "a secret key without its public key is of no use";
  EXPECT_EQ(folder.read("release.key"), secret_text);
  EXPECT_EQ(folder.read("release.pub"), text);
  expect_refused(sign("keygen --secret /absent/key --public " + free),
                 "cannot create '/absent/key': No such file or directory");
}

TEST_F(Sign, AFullDiskLeavesNoFile) {
  const char* const full = "trap '' XFSZ; ulimit -f 0; ";
  expect_refused(sign("keygen --secret " + free + " --public " + free + ".pub", full),
                 "cannot write '" + free + "': File too large");
  EXPECT_FALSE(folder.has("free"));
  sign_model();
  const std::string text = folder.read("model.husk.sig");
  EXPECT_EQ(sign("sign " + model + " --secret " + secret, full).status, 1);
  EXPECT_EQ(folder.read("model.husk.sig"), text) << "the signature that was there stays";
  EXPECT_EQ(folder.files(), 4);
}

TEST_F(Sign, ASignatureThatCannotBePutInPlaceIsRemoved) {
  std::filesystem::create_directory(free);
  expect_refused(sign("sign " + model + " --secret " + secret + " -o " + free),
                 "cannot write '" + free + "': Is a directory");
  EXPECT_EQ(folder.files(), 4);
}

TEST_F(Sign, ADamagedArtifactIsNeitherSignedNorVerified) {
  sign_model();
  damage(100);
  const std::string text = "the metadata does not match its hash: the file was changed or damaged";
  expect_refused(verify(pub), text);
  expect_refused(sign("sign " + model + " --secret " + secret), model + ": " + text);
  damage(100);
  damage(folder.read("model.husk").size() - 1);
  const std::string constant =
      model + ": constant 'w' does not match its hash: the file was changed or damaged";
  expect_refused(verify(pub), constant);
  expect_refused(sign("sign " + model + " --secret " + secret), constant);
}

TEST_F(Sign, WhatIsMissingIsNamed) {
  const std::string missing = "': No such file or directory";
  expect_refused(verify(pub), "cannot read the signature '" + model + ".sig" + missing);
  expect_refused(verify(free), "cannot read the public key '" + free + missing);
  expect_refused(sign("sign " + model + " --secret " + pub),
                 "'" + pub +
                     "' is not a secret key: it must have the line 'husk-secret-key ed25519' and a "
                     "line of 64 hexadecimal digits");
  expect_refused(sign("sign " + free + " --secret " + secret),
                 free + ": cannot open '" + free + missing);
  sign_model();
  std::filesystem::remove(model);
  expect_refused(verify(pub), "cannot open '" + model + missing);
}

// Every mistake of a command line is one line that says what is allowed, and exit code 2.
TEST_F(Sign, RefusesWrongCommandLines) {
  const auto expect_usage_error = [](const Outcome& outcome, const std::string& text) {
    EXPECT_EQ(outcome.status, 2) << outcome.text;
    EXPECT_NE(outcome.text.find(text), std::string::npos) << outcome.text;
    EXPECT_EQ(outcome.text.find('\n'), outcome.text.size() - 1) << outcome.text;
  };
  expect_usage_error(sign(""), "husk-sign: A subcommand is required; see --help");
  expect_usage_error(sign("encrypt"), "; see --help");
  expect_usage_error(sign("keygen --secret x"), "husk-sign: --public is required; see --help");
  expect_usage_error(sign("keygen --secret x --public y --unknown"), "--unknown");
  expect_usage_error(sign("sign --secret x"), "husk-sign: file is required; see --help");
  expect_usage_error(sign("sign " + model), "--secret is required");
  expect_usage_error(sign("sign " + model + " more --secret x"), "more");
  expect_usage_error(sign("verify " + model), "--public is required");
  expect_usage_error(sign("verify --public x"), "file is required");
  const Outcome help = sign("--help");
  EXPECT_EQ(help.status, 0);
  EXPECT_NE(help.text.find("Exit codes: 0 success"), std::string::npos) << help.text;
  EXPECT_EQ(sign("--version").text, "husk-sign " HUSK_VERSION "\n");
}

TEST_F(Sign, TheExampleOpensOnlySignedArtifacts) {
  Outcome got = example(pub);
  EXPECT_EQ(got.status, 1) << got.text;
  EXPECT_NE(got.text.find("cannot read the signature"), std::string::npos) << got.text;
  sign_model();
  got = example(pub);
  EXPECT_EQ(got.status, 0) << got.text;
  EXPECT_EQ(got.text, model + " is signed and has 1 function(s)\n");

  const std::string other = folder.path("other");
  ASSERT_EQ(sign("keygen --secret " + other + ".key --public " + other + ".pub").status, 0);
  got = example(other + ".pub");
  EXPECT_EQ(got.status, 1) << got.text;
  EXPECT_EQ(got.text, "unsupported: the application did not accept the artifact's content hash\n");

  damage(folder.read("model.husk").size() - 1);
  got = example(pub);
  EXPECT_EQ(got.status, 1) << got.text;
  EXPECT_NE(got.text.find("constant 'w' does not match its hash"), std::string::npos) << got.text;
}

}  // namespace
}  // namespace husk::signature_test
