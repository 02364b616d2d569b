#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <fstream>
#include <map>
#include <thread>

#include <husk/husk.h>

#include "base/blake2b.h"
#include "program.h"
#include "read/artifact.h"
#include "write/output_file.h"

namespace husk::test {
namespace {

using namespace husk::compiler;

const char* const kBlobs = R"(hir 1
target cpu host "a"
target gpu cuda "b"
constant c0 u8 [3] bytes "010203"
constant c1 u8 [3] bytes "010203"
constant none0 u8 [0] bytes ""
constant c2 u8 [4] bytes "01020304"
constant w f32 [2] file "w.safetensors" tensor "a"
image i0 cpu elf "k.so"
image i1 gpu cubin "k.so"
image i2 gpu ptx "k.ptx"
function f { variant cpu { return () } }
)";

// The number of files that are in the folder of a test at its beginning.
constexpr int kFilesOfTest = 4;

int files_of(const Folder& folder) {
  const std::filesystem::directory_iterator all(folder.path());
  return static_cast<int>(std::distance(begin(all), end(all)));
}

// Calls `work` in a process of its own, and returns how that process ended, as waitpid tells it.
template <class F>
int status_of_process(F work) {
  const pid_t child = fork();
  if (child == 0) _exit(work());
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return status;
}

class Write : public ::testing::Test {
 protected:
  Write() {
    folder.file("k.so", std::string("\x7f"
                                    "ELF") +
                            std::string(96, 'k'));
    folder.file("k.ptx", ".version 8.0");
    folder.file("w.safetensors",
                safetensors(R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}})",
                            "12345678"));
    folder.file("model.hir", kBlobs);
  }
  Folder folder;
};

TEST_F(Write, PlacesBlobsAccordingToTheFormat) {
  const auto bytes = compiled(kBlobs, folder.path());
  std::string error;
  const auto artifact = Artifact::view(bytes, error);
  ASSERT_TRUE(artifact) << error;
  EXPECT_EQ(artifact->check_blobs(), "");
  const fb::Program& p = artifact->program();
  const auto image = [&](int i) { return p.images()->Get(static_cast<uint32_t>(i))->blob(); };
  const auto constant = [&](int i) { return p.constants()->Get(static_cast<uint32_t>(i))->blob(); };
  EXPECT_EQ(image(0)->offset(), 0u);
  EXPECT_EQ(image(1)->offset(), 0u);  // equal bytes are stored once
  EXPECT_EQ(image(2)->offset(), 128u);
  EXPECT_EQ(image(2)->size(), 13u);  // includes the NUL
  EXPECT_EQ(constant(0)->offset(), 4096u);
  EXPECT_EQ(constant(1)->offset(), 4096u);
  EXPECT_EQ(constant(2)->size(), 0u);
  EXPECT_EQ(constant(3)->offset(), 8192u);
  EXPECT_EQ(constant(4)->offset(), 12288u);
  const uint64_t base = bytes.size() - 12288 - 8;
  EXPECT_EQ(base % 4096, 0u);
  EXPECT_EQ(memcmp(bytes.data() + base + 12288, "12345678", 8), 0);
  for (size_t i = base + 100; i < base + 128; ++i) EXPECT_EQ(bytes[i], 0);
}

TEST_F(Write, TwiceGivesTheSameBytes) {
  EXPECT_EQ(compiled(kBlobs, folder.path()), compiled(kBlobs, folder.path()));
  const std::string text = program("let a = add(n, m)", "fill f32 (write y, t)");
  EXPECT_EQ(compiled(text), compiled(text));
}

TEST_F(Write, ToAFileAsToMemory) {
  const auto result = compile_file(folder.path() / "model.hir", folder.path() / "model.husk");
  ASSERT_TRUE(std::holds_alternative<Summary>(result))
      << describe(std::get<Error>(result), "model.hir");
  const auto memory = compiled(kBlobs, folder.path());
  EXPECT_EQ(folder.read("model.husk"), std::string(memory.begin(), memory.end()));
  const Summary& s = std::get<Summary>(result);
  EXPECT_EQ(s.functions, 1u);
  EXPECT_EQ(s.image_bytes, 113u);
  EXPECT_EQ(s.constant_bytes, 15u);
  EXPECT_EQ(s.file_bytes, memory.size());
  EXPECT_EQ(files_of(folder), kFilesOfTest + 1);
}

// A file of weights that comes through a pipe.
class Piped : public Write {
 protected:
  Piped() {
    folder.file("model.hir", R"(hir 1
target cpu host "a"
image i0 cpu elf "k.so"
constant a f32 [2] file "w" tensor "a"
constant b u8 [3] bytes "010203"
constant same f32 [2] file "w" tensor "same"
constant small u8 [1] file "w" tensor "small"
constant same2 f32 [2] file "w" tensor "same2"
function f { variant cpu { return () } }
)");
  }

  // The result of huskc when `file` comes through the pipe.
  Result<Summary> compiled_with(const std::string& file) {
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    EXPECT_EQ(::write(ends[1], file.data(), file.size()), static_cast<ssize_t>(file.size()));
    close(ends[1]);
    auto result = compile_file(folder.path() / "model.hir", folder.path() / "model.husk", {},
                               {"w", ends[0]});
    close(ends[0]);
    return result;
  }
  std::string error_with(const std::string& file) {
    const auto result = compiled_with(file);
    EXPECT_EQ(files_of(folder), kFilesOfTest);  // no temporary file
    const Error* error = std::get_if<Error>(&result);
    return error ? error->text : "";
  }

  const std::string header = R"({
    "a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
    "unused": {"dtype": "U8", "shape": [3], "data_offsets": [8, 11]},
    "same": {"dtype": "F32", "shape": [2], "data_offsets": [11, 19]},
    "small": {"dtype": "U8", "shape": [1], "data_offsets": [19, 20]},
    "same2": {"dtype": "F32", "shape": [2], "data_offsets": [20, 28]}})";
  const std::string data = "12345678---12345678x12345678";
};

TEST_F(Piped, GivesTheBytesThatAFileGives) {
  const auto result = compiled_with(safetensors(header, data));
  ASSERT_TRUE(std::holds_alternative<Summary>(result))
      << describe(std::get<Error>(result), "model.hir");
  const std::string piped = folder.read("model.husk");
  folder.file("w", safetensors(header, data));
  const auto again = compile_file(folder.path() / "model.hir", folder.path() / "model.husk");
  ASSERT_TRUE(std::holds_alternative<Summary>(again));
  EXPECT_EQ(piped, folder.read("model.husk"));
  EXPECT_EQ(std::get<Summary>(result).constant_bytes, 8u + 3 + 1);  // equal ones are stored once
}

TEST_F(Piped, RefusesWhatDiffersFromTheText) {
  const std::string good = safetensors(header, data);
  for (const size_t cut : {size_t{0}, size_t{4}, size_t{30}, good.size() - data.size(),
                           good.size() - 9, good.size() - 1})
    EXPECT_EQ(error_with(good.substr(0, cut)),
              "w ends too early: the program that writes it to the pipe has failed");
  EXPECT_EQ(error_with("nothing of the kind"), "w is not a safetensors file");
  EXPECT_EQ(error_with(safetensors("[]", "")), "w has a header that is not a JSON object");
  const auto with = [&](const char* from, const char* to) {
    std::string changed = header;
    changed.replace(changed.find(from), strlen(from), to);
    return error_with(safetensors(changed, data));
  };
  EXPECT_EQ(with("F32", "I32"), "constant 'a' is f32, tensor 'a' of w is I32");
  EXPECT_EQ(with("[2]", "[1, 2]"), "constant 'a' is [2], tensor 'a' of w is [1, 2]");
  EXPECT_EQ(with("\"same\"", "\"other\""), "w has no tensor 'same'");
  EXPECT_EQ(with("[0, 8]", "[8, 16]"),
            "w is read once: its tensors must be in the order of the constants of the program");
}

std::span<const uint8_t> bytes_of(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

// The file of weights is a safetensors file whose tensors begin at pages; its hash names it.
TEST_F(Write, WeightsBesideTheArtifact) {
  const auto result = compile_file(folder.path() / "model.hir", folder.path() / "model.husk", {},
                                   {}, Weights::beside);
  ASSERT_TRUE(std::holds_alternative<Summary>(result))
      << describe(std::get<Error>(result), "model.hir");
  EXPECT_EQ(files_of(folder), kFilesOfTest + 2);
  const Summary& s = std::get<Summary>(result);
  EXPECT_EQ(s.file_bytes, folder.read("model.husk").size());
  EXPECT_EQ(s.constant_bytes, 3u + 3 + 4 + 8);  // names that differ do not share a tensor
  const std::string file = folder.read(s.weights.c_str());
  Blake2b hash;
  uint8_t digest[32];
  hash.update(file.data(), file.size());
  hash.finish(digest);
  EXPECT_EQ(s.weights, hexadecimal(digest, 16) + ".safetensors");

  std::string error;
  const StoredTensors tensors = read_safetensors(bytes_of(file), error);
  ASSERT_EQ(error, "");
  uint64_t end = 0;  // the format demands that tensors leave no gaps
  std::map<uint64_t, const StoredTensor*> by_place;
  for (const auto& [name, tensor] : tensors)
    if (tensor.begin < tensor.end) by_place[tensor.begin] = &tensor;
  for (const auto& [begin, tensor] : by_place) {
    EXPECT_EQ(begin, end);
    end = tensor->end;
  }
  const uint64_t header = file.size() - end;
  EXPECT_EQ(header % 4096, 0u);
  for (const char* name : {"c0", "c1", "c2", "w"}) EXPECT_EQ(tensors.at(name).begin % 4096, 0u);
  EXPECT_EQ(tensors.at("w").dtype, HUSK_F32);
  EXPECT_EQ(tensors.at("w").shape, std::vector<int64_t>{2});
  EXPECT_EQ(tensors.at("none0").shape, std::vector<int64_t>{0});
  EXPECT_EQ(memcmp(tensors.at("w").bytes.data(), "12345678", 8), 0);

  const auto artifact = Artifact::open(folder.path() / "model.husk", error, true);
  ASSERT_TRUE(artifact) << error;
  EXPECT_EQ(artifact->check_blobs(), "");
  EXPECT_EQ(artifact->weights(), s.weights);
  const auto object = compile_object(folder.path() / "model.husk", folder.path() / "model.o", {},
                                     "husk_model", Machine::x86_64);
  ASSERT_TRUE(std::holds_alternative<Error>(object));
  EXPECT_EQ(std::get<Error>(object).text,
            "its weights lie beside it, and an object file has them inside: compile the .hir");
  std::filesystem::remove(folder.path() / s.weights);
  EXPECT_TRUE(Artifact::open(folder.path() / "model.husk", error)) << error;  // for a description
  EXPECT_FALSE(Artifact::open(folder.path() / "model.husk", error, true));
  EXPECT_EQ(error, "the weights of 'model.husk' are missing: put the file " + s.weights +
                       " beside it, or give the folder that has it");
}

TEST_F(Write, WeightsBesideAPipeAreRefused) {
  const auto result = compile_file(folder.path() / "model.hir", "/dev/null", {}, {},
                                   Weights::beside);
  ASSERT_TRUE(std::holds_alternative<Error>(result));
  EXPECT_EQ(std::get<Error>(result).text,
            "/dev/null is no regular file: there is no place beside it for the weights");
}

TEST_F(Write, WeightsOfATypeThatSafetensorsLacksStayInside) {
  folder.file("c.hir", R"(hir 1
target cpu host "a"
constant c c128 [1] bytes "00000000000000000000000000000000"
function f { variant cpu { return () } }
)");
  const auto result = compile_file(folder.path() / "c.hir", folder.path() / "c.husk", {}, {},
                                   Weights::beside);
  ASSERT_TRUE(std::holds_alternative<Error>(result));
  EXPECT_EQ(std::get<Error>(result).text,
            "constant 'c' is c128, which safetensors lacks: leave the weights inside of the "
            "artifact");
  EXPECT_EQ(files_of(folder), kFilesOfTest + 1);  // no temporary file
}

TEST_F(Write, AFailureLeavesTheOldFile) {
  folder.file("model.husk", "old");
  folder.file("broken.hir", "hir 1 function");
  const auto result = compile_file(folder.path() / "broken.hir", folder.path() / "model.husk");
  ASSERT_TRUE(std::holds_alternative<Error>(result));
  EXPECT_EQ(std::get<Error>(result).line, 1u);
  EXPECT_EQ(folder.read("model.husk"), "old");
}

// A disk that is full after any number of bytes is an error, and the old file stays. The size limit
// of a process stands in for the disk.
TEST_F(Write, AFullDiskLeavesTheOldFile) {
  folder.file("model.husk", "old");
  const uint64_t size = compiled(kBlobs, folder.path()).size();
  const std::string in = (folder.path() / "model.hir").string();
  const std::string out = (folder.path() / "model.husk").string();
  std::vector<uint64_t> limits = {size - 1};
  for (uint64_t limit = 0; limit < size + 1000; limit += 999) limits.push_back(limit);
  for (const uint64_t limit : limits) {
    SCOPED_TRACE(limit);
    const int status = status_of_process([&] {
      signal(SIGXFSZ, SIG_IGN);
      const rlimit most = {limit, limit};
      setrlimit(RLIMIT_FSIZE, &most);
      const auto result = compile_file(in, out);
      const Error* error = std::get_if<Error>(&result);
      if (!error) return 1;
      return error->text == "cannot write " + out + ": File too large" ? 2 : 3;
    });
    ASSERT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), limit < size ? 2 : 1);
    EXPECT_EQ(folder.read("model.husk") == "old", limit < size);
    EXPECT_EQ(files_of(folder), kFilesOfTest + 1);  // no temporary file
  }
}

TEST_F(Write, AFolderThatMayNotBeWrittenLeavesTheOldFile) {
  folder.file("model.husk", "old");
  std::filesystem::permissions(folder.path(), std::filesystem::perms(0555));
  const int status = status_of_process([&] {
    if (geteuid() == 0 && seteuid(65534) != 0) return 2;
    const auto result = compile_file(folder.path() / "model.hir", folder.path() / "model.husk");
    const Error* error = std::get_if<Error>(&result);
    return error && error->text.find("beside it: Permission denied") != std::string::npos ? 0 : 1;
  });
  EXPECT_EQ(status, 0);
  std::filesystem::permissions(folder.path(), std::filesystem::perms(0755));
  EXPECT_EQ(folder.read("model.husk"), "old");
}

TEST_F(Write, ASignalRemovesTheTemporaryFile) {
  folder.file("model.husk", "old");
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    const int status = status_of_process([&] {
      remove_output_on_signals();
      OutputFile file(folder.path() / "model.husk");
      OutputFile beside(folder.path() / "weights");
      file.write(std::vector<uint8_t>(100000));
      if (files_of(folder) != kFilesOfTest + 3) return 1;
      raise(number);
      return 2;
    });
    ASSERT_TRUE(WIFSIGNALED(status)) << WEXITSTATUS(status);
    EXPECT_EQ(WTERMSIG(status), number);
    EXPECT_EQ(folder.read("model.husk"), "old");
    EXPECT_EQ(files_of(folder), kFilesOfTest + 1);
  }
}

// A program that has the old file open keeps its content, and the new file has the permissions of
// the old one. A symbolic link stays a link.
TEST_F(Write, ReplacesTheFileAndNotItsContent) {
  const std::filesystem::path file = folder.file("old.husk", "old"),
                              link = folder.path() / "model.husk";
  std::filesystem::permissions(file, std::filesystem::perms(0640));
  std::filesystem::create_symlink("old.husk", link);
  std::ifstream open_before(file, std::ios::binary);
  const auto result = compile_file(folder.path() / "model.hir", link);
  ASSERT_TRUE(std::holds_alternative<Summary>(result));
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(open_before), {}), "old");
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_EQ(std::filesystem::status(file).permissions(), std::filesystem::perms(0640));
  EXPECT_EQ(folder.read("old.husk").size(), std::get<Summary>(result).file_bytes);
  EXPECT_EQ(files_of(folder), kFilesOfTest + 2);
}

// Two compilers that write the same output do not disturb each other.
TEST_F(Write, TheTemporaryNameIsFree) {
  const std::string taken = fmt::format("model.husk.{}-0.part", getpid());
  folder.file(taken, "of somebody else");
  const auto result = compile_file(folder.path() / "model.hir", folder.path() / "model.husk");
  ASSERT_TRUE(std::holds_alternative<Summary>(result));
  EXPECT_EQ(folder.read(taken), "of somebody else");
  EXPECT_EQ(files_of(folder), kFilesOfTest + 2);
}

TEST_F(Write, ToAPipe) {
  const std::filesystem::path fifo = folder.path() / "fifo";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  std::string got;
  std::thread reader([&] {
    std::ifstream file(fifo, std::ios::binary);
    got.assign(std::istreambuf_iterator<char>(file), {});
  });
  const auto result = compile_file(folder.path() / "model.hir", fifo);
  reader.join();
  EXPECT_TRUE(std::holds_alternative<Summary>(result));
  const auto memory = compiled(kBlobs, folder.path());
  EXPECT_EQ(got, std::string(memory.begin(), memory.end()));
  EXPECT_TRUE(std::filesystem::is_fifo(fifo));
  EXPECT_EQ(files_of(folder), kFilesOfTest + 1);
}

TEST_F(Write, NamesFilesThatCannotBeUsed) {
  const auto error = [](const std::filesystem::path& in, const std::filesystem::path& out) {
    const auto result = compile_file(in, out);
    return std::holds_alternative<Error>(result) ? std::get<Error>(result).text : "";
  };
  const std::string path = folder.path().string();
  EXPECT_EQ(error(path + "/nope.hir", path + "/a"),
            "cannot open " + path + "/nope.hir: No such file or directory");
  EXPECT_EQ(error(path, path + "/a"), path + " is not a regular file");
  EXPECT_EQ(error(path + "/model.hir", path + "/model.hir"),
            "the output would overwrite the input");
  EXPECT_EQ(error(path + "/model.hir", path + "/no/a"),
            "cannot write " + path +
                "/no/a: no file can be created beside it: No such file or directory");
  EXPECT_EQ(error(path + "/model.hir", path), "cannot write " + path + ": Is a directory");
}

TEST_F(Write, ImagesMustHaveTheStatedFormat) {
  const auto error = [&](const char* name) {
    return error_of(std::string("hir 1 target cpu host \"a\"\nimage i cpu elf \"") + name +
                        "\" function f { variant cpu { return () } }",
                    folder.path());
  };
  EXPECT_EQ(error("k.so"), "");
  EXPECT_EQ(error("k.ptx"),
            "2:17: image 'i' is not in elf format: it does not begin with the ELF magic");
  folder.file("empty", "");
  EXPECT_EQ(error("empty"), "2:17: image 'i' is an empty file");
}

TEST_F(Write, TheRootIsWherePathsBegin) {
  std::filesystem::create_directory(folder.path() / "sub");
  folder.file("sub/model.hir", kBlobs);
  const auto without = compile_file(folder.path() / "sub/model.hir", folder.path() / "a.husk");
  EXPECT_TRUE(std::holds_alternative<Error>(without));
  const auto with = compile_file(folder.path() / "sub/model.hir", folder.path() / "a.husk",
                                 folder.path());
  EXPECT_TRUE(std::holds_alternative<Summary>(with));
  const auto beside = compile(folder.path() / "model.hir");
  EXPECT_TRUE(std::holds_alternative<std::vector<uint8_t>>(beside));
}

}  // namespace
}  // namespace husk::test
