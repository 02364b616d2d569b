// Artifacts whose weights lie in a file beside them.
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include <husk/weights.h>

#include "compile.h"
#include "fixture.h"

namespace husk::test {
namespace {

namespace fs = std::filesystem;

// A function that returns its constants, which the host port reads from the mapped files.
const char* const kText = "hir 1\ntarget cpu host \"" HUSK_TEST_ARCH R"("
constant first f32 [2] bytes "0000803f0000803f"
constant empty f32 [0] bytes ""
constant second f32 [3] bytes "000000400000004000000040"
function f {
  output y tensor f32 rank 1
  output z tensor f32 rank 1
  variant cpu {
    buffer y of output bytes 8
    buffer z of output bytes 12
    copy (write y, read first)
    copy (write z, read second)
    return (tensor y f32 [2] [1], tensor z f32 [3] [1])
  }
}
)";

class Weights : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/husk-weights-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    folder_ = name;
    std::ofstream(folder_ / "model.hir") << kText;
    const auto summary_or_error = compiler::compile_file(folder_ / "model.hir", artifact(), {}, {},
                                                         compiler::Weights::beside);
    ASSERT_TRUE(std::holds_alternative<compiler::Summary>(summary_or_error))
        << std::get<compiler::Error>(summary_or_error).text;
    name_ = std::get<compiler::Summary>(summary_or_error).weights;
    husk_engine_options options = Machine::defaults();
    ASSERT_EQ(husk_engine_create(&options, &engine_, &error_), HUSK_OK) << error_.text;
    options.verify_content = 1;
    ASSERT_EQ(husk_engine_create(&options, &verifying_, &error_), HUSK_OK) << error_.text;
  }
  void TearDown() override {
    husk_engine_release(engine_);
    husk_engine_release(verifying_);
    fs::remove_all(folder_);
  }

  fs::path artifact() const { return folder_ / "model.husk"; }
  fs::path weights() const { return folder_ / name_; }
  static std::string content(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  }
  static void write(const fs::path& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
  }

  // Opens and runs an artifact. Returns the text of the error, or the last numbers of the results.
  std::string result(const fs::path& path, const char* folder = nullptr,
                     husk_engine* engine = nullptr) {
    husk_program* program = nullptr;
    status_ = husk_weights_open(engine ? engine : engine_, path.c_str(), folder, &program, &error_);
    EXPECT_EQ(program != nullptr, status_ == HUSK_OK);
    if (status_ != HUSK_OK) return error_.text;
    husk_session* session = nullptr;
    EXPECT_EQ(husk_session_create(program, nullptr, &session, &error_), HUSK_OK) << error_.text;
    Tensor y(HUSK_F32, {2}), z(HUSK_F32, {3});
    husk_value out[] = {y.value(), z.value()};
    EXPECT_EQ(husk_session_run(session, 0, nullptr, nullptr, 0, out, 2, &error_), HUSK_OK)
        << error_.text;
    husk_session_release(session);
    husk_program_release(program);
    return std::to_string(int(y.as<float>()[1])) + " " + std::to_string(int(z.as<float>()[2]));
  }

  fs::path folder_;
  std::string name_;  // of the file of weights
  husk_engine *engine_ = nullptr, *verifying_ = nullptr;
  husk_status status_ = HUSK_OK;
  husk_error error_ = {};
};

TEST_F(Weights, AreFoundBesideTheArtifactOrInAFolder) {
  EXPECT_EQ(result(artifact()), "1 2");
  EXPECT_EQ(result(artifact(), nullptr, verifying_), "1 2");
  EXPECT_EQ(result(artifact(), folder_.c_str()), "1 2");
  fs::create_directory(folder_ / "links");
  fs::create_symlink(artifact(), folder_ / "links/model.husk");
  EXPECT_EQ(result(folder_ / "links/model.husk"), "1 2");
  fs::create_directory(folder_ / "other");
  fs::rename(weights(), folder_ / "other" / name_);
  EXPECT_EQ(result(artifact(), (folder_ / "other").c_str()), "1 2");
  fs::create_symlink(folder_ / "other" / name_, folder_ / "links" / name_);
  EXPECT_EQ(result(folder_ / "links/model.husk"), "1 2");
  const fs::path before = fs::current_path();
  fs::current_path(folder_);
  EXPECT_EQ(result("model.husk", "other"), "1 2");
  fs::rename("other/" + name_, name_);
  EXPECT_EQ(result("model.husk"), "1 2");
  fs::current_path(before);
}

TEST_F(Weights, InsideOfTheArtifactNeedNoFile) {
  const auto summary_or_error = compiler::compile_file(folder_ / "model.hir",
                                                       folder_ / "inside.husk");
  ASSERT_TRUE(std::holds_alternative<compiler::Summary>(summary_or_error));
  EXPECT_EQ(result(folder_ / "inside.husk", "/nowhere"), "1 2");
}

TEST_F(Weights, OfTheSameConstantsAreOneFile) {
  const auto summary_or_error = compiler::compile_file(
      folder_ / "model.hir", folder_ / "again.husk", {}, {}, compiler::Weights::beside);
  ASSERT_TRUE(std::holds_alternative<compiler::Summary>(summary_or_error));
  EXPECT_EQ(std::get<compiler::Summary>(summary_or_error).weights, name_);
  EXPECT_EQ(content(folder_ / "again.husk"), content(artifact()));
}

TEST_F(Weights, ThatAreMissingOrOthersAreRefused) {
  const std::string right = content(weights());
  const auto with = [&](const std::string& bytes) {
    write(weights(), bytes);
    const std::string text = result(artifact());
    EXPECT_EQ(status_, HUSK_INVALID_FILE);
    return text;
  };
  const std::string size = std::to_string(right.size());
  const auto sized = [&](size_t bytes, const char* what) {
    return "the weights of 'model.husk', the file " + name_ + ", have " + std::to_string(bytes) +
           " bytes and not " + size + ": the file is " + what + "; copy it again";
  };
  for (const size_t bytes : {size_t{0}, size_t{7}, size_t{4096}, right.size() - 1})
    EXPECT_EQ(with(right.substr(0, bytes)), sized(bytes, "truncated"));
  EXPECT_EQ(with(right + "x"), sized(right.size() + 1, "another one"));

  const std::string other = "the file " + name_ +
                            " is damaged, or not the weights of 'model.husk': its header does not "
                            "match the artifact; copy it again";
  std::string changed = right;
  changed.replace(changed.find("F32"), 3, "I32");
  EXPECT_EQ(with(changed), other);
  EXPECT_EQ(with(std::string(right.size(), '\0')), other);
  EXPECT_EQ(with(std::string(right.size(), '\xff')), other);

  changed = right;
  changed.back() ^= 1;
  write(weights(), changed);
  EXPECT_EQ(result(artifact()), "1 8");  // bytes are compared on request
  EXPECT_EQ(result(artifact(), nullptr, verifying_),
            "with the weights " + name_ +
                ": constant 'second' does not match its hash: the file was changed or damaged");

  fs::remove(weights());
  EXPECT_EQ(result(artifact()), "the weights of 'model.husk' are missing: put the file " + name_ +
                                    " beside it, or give the folder that has it");
  EXPECT_EQ(status_, HUSK_IO);
  EXPECT_EQ(result(artifact(), "/nowhere"),
            "the weights of 'model.husk' are missing: put the file " + name_ +
                " into the folder of weights that was given");
  ASSERT_EQ(mkfifo(weights().c_str(), 0600), 0);
  EXPECT_EQ(result(artifact()),
            "cannot open the weights of 'model.husk', the file " + name_ + ": Invalid argument");
  EXPECT_EQ(status_, HUSK_IO);
}

TEST_F(Weights, OfADamagedArtifactAreRefused) {
  const std::string right = content(artifact());
  for (const size_t bytes : {size_t{64}, size_t{100}, right.size() - 64, right.size() - 1}) {
    write(artifact(), right.substr(0, bytes));
    EXPECT_EQ(
        result(artifact()),
        "the artifact 'model.husk' is truncated: it does not end with the row of its weights; "
        "copy it again");
    EXPECT_EQ(status_, HUSK_INVALID_FILE);
  }
  // The size of the whole, and the size of the weights in the row.
  for (const size_t at : {size_t{16}, right.size() - 56}) {
    for (const uint64_t value : {uint64_t{1}, uint64_t{1} << 60, UINT64_MAX}) {
      std::string changed = right;
      uint64_t number;
      memcpy(&number, changed.data() + at, 8);
      number += value;
      memcpy(changed.data() + at, &number, 8);
      write(artifact(), changed);
      EXPECT_NE(result(artifact()), "1 2");
      EXPECT_TRUE(status_ == HUSK_INVALID_FILE || status_ == HUSK_IO) << error_.text;
    }
  }
}

TEST_F(Weights, OtherFunctionsSayHowToOpenThem) {
  const char* const text =
      "the artifact's weights lie in a file beside it: open its path by husk_weights_open";
  husk_program* program = nullptr;
  EXPECT_EQ(husk_program_open(engine_, artifact().c_str(), &program, &error_), HUSK_INVALID_FILE);
  EXPECT_STREQ(error_.text, text);
  const std::string bytes = content(artifact());
  EXPECT_EQ(husk_program_verify(bytes.data(), bytes.size(), &error_), HUSK_INVALID_FILE);
  EXPECT_STREQ(error_.text, text);
}

TEST_F(Weights, ReportsWhatIsNoArtifactAsOpenDoes) {
  EXPECT_NE(result(folder_ / "nothing").find("No such file"), std::string::npos);
  EXPECT_NE(result(folder_).find("is not a regular file"), std::string::npos);
  write(artifact(), "nothing");
  EXPECT_NE(result(artifact()).find("no header of 64 bytes"), std::string::npos);
  husk_program* program = nullptr;
  EXPECT_EQ(husk_weights_open(nullptr, "a", nullptr, &program, &error_), HUSK_INVALID_ARGUMENT);
  EXPECT_EQ(husk_weights_open(engine_, nullptr, nullptr, &program, &error_), HUSK_INVALID_ARGUMENT);
  EXPECT_EQ(husk_weights_open(engine_, "a", nullptr, nullptr, nullptr), HUSK_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace husk::test
