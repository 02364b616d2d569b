// safetensors and .npy files: written tensors are read back, and broken files are refused with an
// error that names the file.
#include "run/files.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "run/run_error.h"

namespace husk::run_test {
namespace {

using namespace std::string_literals;

class Files : public ::testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(path); }

  void write(const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }
  // Writes a safetensors file with this header and these data.
  void write_safetensors(const std::string& header, const std::string& data) {
    const uint64_t length = header.size();
    write(std::string(reinterpret_cast<const char*>(&length), sizeof length) + header + data);
  }
  void write_npy(const std::string& header, const std::string& data, char major = 1) {
    const uint32_t length = static_cast<uint32_t>(header.size());
    write("\x93NUMPY"s + major + '\0' +
          std::string(reinterpret_cast<const char*>(&length), major == 1 ? 2 : 4) + header + data);
  }
  template <class Read>
  void refuses(Read read, const std::string& words) {
    try {
      read(path);
      ADD_FAILURE() << "was read: " << words;
    } catch (const run::RunError& failure) {
      EXPECT_EQ(failure.code, run::exit_usage);
      EXPECT_EQ(failure.text.rfind(path, 0), 0u) << failure.text;
      EXPECT_NE(failure.text.find(words), std::string::npos) << failure.text;
    }
  }

  std::string path = std::filesystem::temp_directory_path() /
                     ("husk_files_test_" + std::to_string(getpid()));
};

TEST_F(Files, SafetensorsRoundTrip) {
  std::vector<std::pair<std::string, run::Tensor>> tensors;
  for (husk_dtype dtype :
       {HUSK_BOOL, HUSK_I8, HUSK_BF16, HUSK_F16, HUSK_F8E4M3FN, HUSK_F32, HUSK_F64, HUSK_C64}) {
    run::Tensor t = run::tensor_make(dtype, {3, 1});
    for (int i = 0; i < t.number_count(); i++) t.set_number(i, i);
    tensors.emplace_back(std::to_string(dtype), t);
  }
  tensors.emplace_back("empty", run::tensor_make(HUSK_F32, {0, 4}));
  tensors.emplace_back("number", run::tensor_make(HUSK_I64, {}));
  run::safetensors_write(path, tensors);
  const run::TensorMap read = run::safetensors_read(path);
  ASSERT_EQ(read.size(), tensors.size());
  for (const auto& [name, tensor] : tensors) {
    EXPECT_EQ(read.at(name).dtype, tensor.dtype);
    EXPECT_EQ(read.at(name).sizes, tensor.sizes);
    EXPECT_EQ(read.at(name).bytes, tensor.bytes);
  }
  run::safetensors_write(path, {});
  EXPECT_TRUE(run::safetensors_read(path).empty());
}

TEST_F(Files, SafetensorsLacksSomeDtypes) {
  EXPECT_THROW(run::safetensors_write(path, {{"x", run::tensor_make(HUSK_C128, {1})}}),
               run::RunError);
}

TEST_F(Files, SafetensorsOfOtherPrograms) {
  write_safetensors(
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
      "xyz");
  const run::TensorMap read = run::safetensors_read(path);
  ASSERT_EQ(read.size(), 1u);
  EXPECT_EQ(read.at("a").number(1), 'z');
}

TEST_F(Files, BrokenSafetensors) {
  refuses(run::safetensors_read, "No such file");
  write("short");
  refuses(run::safetensors_read, "too short");
  write("\xff\xff\xff\xff\xff\xff\xff\xff{}"s);
  refuses(run::safetensors_read, "leaves the file");
  write_safetensors("{\"a\":", "");
  refuses(run::safetensors_read, "not understood");
  write_safetensors(R"({"a":1})", "");
  refuses(run::safetensors_read, "not understood");
  write_safetensors(R"({"a":{"dtype":"F4","shape":[1],"data_offsets":[0,1]}})", "x");
  refuses(run::safetensors_read, "dtype F4");
  for (const char* offsets : {"[0,5]", "[3,2]", "[0]"}) {
    write_safetensors(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":)"s + offsets + "}}",
                      "wxyz");
    refuses(run::safetensors_read, "tensor a lies outside");
  }
  for (const char* shape : {"[3]", "[-4]", "[4611686018427387904,4611686018427387904]", "[]"}) {
    write_safetensors(R"({"a":{"dtype":"U8","shape":)"s + shape + R"(,"data_offsets":[0,4]}})",
                      "wxyz");
    refuses(run::safetensors_read, "has 4 bytes");
  }
}

TEST_F(Files, Npy) {
  for (char major : {1, 2, 3}) {
    write_npy("{'descr': '<u2', 'fortran_order': False, 'shape': (2, 1), }   \n", "ab"s + "\0\1"s,
              major);
    const run::Tensor t = run::npy_read(path);
    EXPECT_EQ(t.dtype, HUSK_U16);
    EXPECT_EQ(t.sizes, (std::vector<int64_t>{2, 1}));
    EXPECT_EQ(t.number(1), 256);
  }
  write_npy("{'descr': '|b1', 'fortran_order': False, 'shape': (), }", "\1");
  EXPECT_TRUE(run::npy_read(path).sizes.empty());
}

TEST_F(Files, BrokenNpy) {
  refuses(run::npy_read, "No such file");
  write("\x93NUMPY");
  refuses(run::npy_read, "no .npy file");
  write("\x93NUMPY\x09\0\0\0\0\0\0\0"s);
  refuses(run::npy_read, "version 9");
  write("\x93NUMPY\x01\0\xff\xff{'descr'"s);
  refuses(run::npy_read, "header of 65535 bytes");
  // Headers of any length. An error has only the start of one.
  const std::string many(1 << 20, 'f');
  for (const std::string& header :
       {"{'descr': '<" + many + "', 'fortran_order': False, 'shape': (1,)}",
        "{'descr': '<f4', 'fortran_order': " + many + ", 'shape': (1,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (" + many + ")}", many,
        "{'descr': '<f4', 'fortran_order': False, 'shape': (" + std::string(1 << 20, '1') + ")}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (" + std::string(1 << 20, ',') + "}"}) {
    write_npy(header, "xxxx", 2);
    refuses(run::npy_read, "");
    try {
      run::npy_read(path);
    } catch (const run::RunError& failure) {
      EXPECT_LT(failure.text.size(), 500u);
    }
  }
  write_npy("{'shape': (1,)}", "");
  refuses(run::npy_read, "not understood");
  write_npy("{'descr': '>f4', 'fortran_order': False, 'shape': (1,)}", "xxxx");
  refuses(run::npy_read, ">f4");
  write_npy("{'descr': '<M8', 'fortran_order': False, 'shape': (1,)}", "xxxx");
  refuses(run::npy_read, "<M8");
  write_npy("{'descr': '<f4', 'fortran_order': True, 'shape': (1,)}", "xxxx");
  refuses(run::npy_read, "Fortran");
  write_npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", "xxxx");
  refuses(run::npy_read, "4 bytes of data for f32[2]");
  for (const char* shape :
       {"(99999999999999999999,)", "(4611686018427387904, 4611686018427387904)"}) {
    write_npy("{'descr': '<f4', 'fortran_order': False, 'shape': "s + shape + "}", "xxxx");
    refuses(run::npy_read, "too large");
  }
}

}  // namespace
}  // namespace husk::run_test
