// Files that change on the disk before or after they are opened. A file that is truncated while a
// program maps it ends the process, which no test can check.
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "fixture.h"

namespace husk::test {
namespace {

// A function that returns its constant, which the host port reads from the mapped file.
std::vector<uint8_t> returns(const std::string& bytes) {
  return artifact("constant w f32 [2] bytes \"" + bytes + R"("
function f {
  output y tensor f32 rank 1
  variant cpu {
    buffer y of output bytes 8
    copy (write y, read w)
    return (tensor y f32 [2] [1])
  }
}
)");
}
const char* const kOnes = "0000803f0000803f";
const char* const kTwos = "0000004000000040";

class MappedFile : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(mkdtemp(folder_), nullptr);
    husk_engine_options options = Machine::defaults();
    ASSERT_EQ(husk_engine_create(&options, &engine_, &error_), HUSK_OK) << error_.text;
  }
  void TearDown() override {
    husk_engine_release(engine_);
    for (const char* name : {"model.husk", "new.husk"}) unlink(path(name).c_str());
    rmdir(folder_);
  }
  std::string path(const char* name) const { return std::string(folder_) + "/" + name; }
  void write(const char* name, const std::vector<uint8_t>& bytes) const {
    FILE* file = fopen(path(name).c_str(), "wb");
    ASSERT_NE(file, nullptr);
    EXPECT_EQ(fwrite(bytes.data(), 1, bytes.size(), file), bytes.size());
    fclose(file);
  }
  husk_status open(husk_program** program) {
    return husk_program_open(engine_, path("model.husk").c_str(), program, &error_);
  }
  float run(husk_program* program) {
    husk_session* session = nullptr;
    EXPECT_EQ(husk_session_create(program, nullptr, &session, &error_), HUSK_OK) << error_.text;
    Tensor y(HUSK_F32, {2});
    husk_value out = y.value();
    EXPECT_EQ(husk_session_run(session, 0, nullptr, nullptr, 0, &out, 1, &error_), HUSK_OK)
        << error_.text;
    husk_session_release(session);
    return y.as<float>()[1];
  }

  char folder_[24] = "/tmp/husk-file-XXXXXX";
  husk_engine* engine_ = nullptr;
  husk_error error_ = {};
};

TEST_F(MappedFile, ATruncatedFileIsRefused) {
  const std::vector<uint8_t> whole = returns(kOnes);
  for (const size_t size : {whole.size() - 1, whole.size() - 8, whole.size() / 2, size_t{100},
                            size_t{64}, size_t{63}, size_t{0}}) {
    SCOPED_TRACE(size);
    write("model.husk", whole);
    ASSERT_EQ(truncate(path("model.husk").c_str(), static_cast<off_t>(size)), 0);
    husk_program* program = nullptr;
    EXPECT_EQ(open(&program), HUSK_INVALID_FILE);
    EXPECT_EQ(program, nullptr);
    EXPECT_NE(std::strstr(error_.text, size < 64 ? "no header of 64 bytes" : "is truncated"),
              nullptr)
        << error_.text;
  }
}

// Whoever renames a new file over an open one, as huskc and husk.export do, leaves programs that
// are open as they are.
TEST_F(MappedFile, AFileMayBeReplacedWhileItIsOpen) {
  write("model.husk", returns(kOnes));
  husk_program *before = nullptr, *after = nullptr;
  ASSERT_EQ(open(&before), HUSK_OK) << error_.text;
  write("new.husk", returns(kTwos));
  ASSERT_EQ(rename(path("new.husk").c_str(), path("model.husk").c_str()), 0);
  EXPECT_EQ(run(before), 1.0f);
  ASSERT_EQ(open(&after), HUSK_OK) << error_.text;
  EXPECT_EQ(run(after), 2.0f);
  EXPECT_EQ(unlink(path("model.husk").c_str()), 0);
  EXPECT_EQ(run(before), 1.0f);
  EXPECT_EQ(run(after), 2.0f);
  husk_program_release(before);
  husk_program_release(after);
}

// A program of bytes in memory does not depend on the file that they came from.
TEST_F(MappedFile, ACopyOutlivesTheFile) {
  const std::vector<uint8_t> whole = returns(kOnes);
  write("model.husk", whole);
  std::vector<uint8_t> read(whole.size());
  FILE* file = fopen(path("model.husk").c_str(), "rb");
  ASSERT_NE(file, nullptr);
  EXPECT_EQ(fread(read.data(), 1, read.size(), file), read.size());
  fclose(file);
  const Aligned copy(read);
  husk_program* program = nullptr;
  ASSERT_EQ(
      husk_program_load(engine_, copy.data(), copy.size(), nullptr, nullptr, &program, &error_),
      HUSK_OK)
      << error_.text;
  ASSERT_EQ(truncate(path("model.husk").c_str(), 0), 0);
  EXPECT_EQ(run(program), 1.0f);
  husk_program_release(program);
}

// A file without bytes on any disk, which is larger than the address space.
TEST_F(MappedFile, AFileThatCannotBeMappedIsRefused) {
  const int file = memfd_create("husk", 0);
  if (file < 0 || ftruncate(file, off_t{1} << 56) != 0)
    GTEST_SKIP() << "no file of 64 PiB: " << std::strerror(errno);
  const std::string name = "/proc/self/fd/" + std::to_string(file);
  husk_program* program = nullptr;
  EXPECT_EQ(husk_program_open(engine_, name.c_str(), &program, &error_), HUSK_IO);
  EXPECT_NE(std::strstr(error_.text, "cannot map '/proc/self/fd/"), nullptr) << error_.text;
  ::close(file);
}

}  // namespace
}  // namespace husk::test
