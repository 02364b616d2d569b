// The program husk-run: its output, the files that it writes, and its exit codes.
#include "command.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <string>

#include <husk/husk.h>

#include "run/files.h"

namespace husk::run_test {
namespace {

class Command : public ::testing::Test {
 protected:
  // Runs the program with these arguments. Returns the text of both output streams and sets `code`
  // to the exit code.
  std::string run(const std::string& arguments) {
    Outcome got = run_command(std::string(HUSK_RUN) + " " + arguments);
    code = got.code;
    return std::move(got.text);
  }
  std::string run_model(const std::string& arguments) {
    return run(HUSK_TEST_MODEL " " + arguments);
  }
  void fails(const std::string& arguments, int expected, const std::string& words) {
    const std::string text = run(arguments);
    EXPECT_EQ(code, expected) << arguments << "\n" << text;
    EXPECT_EQ(text.rfind("husk-run: ", 0), 0u) << text;
    EXPECT_NE(text.find(words), std::string::npos) << text;
  }
  std::string path(const char* name) const { return folder.path(name); }

  static constexpr const char* kInputs = "--input=2x3xf32=iota --input=4 --input=1.5 --input=true ";
  const TemporaryFolder folder{"husk_run_test"};
  int code = -1;
};

TEST_F(Command, PrintsASummary) {
  const std::string text = run_model(std::string(kInputs) + "--repeat=2");
  EXPECT_EQ(code, 0) << text;
  EXPECT_NE(text.find("forward for host " HUSK_TEST_ARCH), std::string::npos) << text;
  EXPECT_NE(text.find("output 0 y: f32[2, 2]  min 6  max 54  mean 25.5\n"), std::string::npos)
      << text;
  EXPECT_NE(text.find("output 1 k: i64[]  min 5  max 5  mean 5\n"), std::string::npos) << text;
  EXPECT_NE(text.find("output 2 f: f64[]  min 3  max 3  mean 3\n"), std::string::npos) << text;
  EXPECT_TRUE(std::regex_search(text, std::regex("time: first .* us, median .* us .*, 2 runs")))
      << text;
}

TEST_F(Command, PrintsAllOrNothing) {
  EXPECT_NE(run_model(std::string(kInputs) + "--print=all").find("\n3 6\n15 27\n"),
            std::string::npos);
  EXPECT_EQ(run_model(std::string(kInputs) + "--print=none"), "");
  EXPECT_EQ(code, 0);
  EXPECT_EQ(run_model(std::string(kInputs) + "--print=none --repeat=3").substr(0, 12),
            "time: first ");
}

TEST_F(Command, PrintsStats) {
  const std::string text = run_model(std::string(kInputs) + "--print=none --stats --repeat=3");
  EXPECT_NE(text.find("steps 4"), std::string::npos) << text;
  EXPECT_NE(text.find("as list 3"), std::string::npos) << text;
}

TEST_F(Command, PrintsATraceOfTheLastRun) {
  const std::string text = run_model(std::string(kInputs) + "--print=none --trace --repeat=2");
  EXPECT_EQ(code, 0) << text;
  EXPECT_TRUE(std::regex_search(
      text, std::regex("^ step kind   name +grid +us  origin\n"
                       "    0 launch check +1 1 1 +[0-9.]+  model.py:2\n"
                       "    1 extern aten::mm.out +[0-9.]+  model.py:3\n"
                       "    2 launch add +1 1 1 +[0-9.]+  model.py:4\n"
                       "    3 copy +[0-9.]+\n4 steps, [0-9.]+ us by the clock of the host\n$")))
      << text;
}

TEST_F(Command, OutputSizesThatDependOnData) {
  const std::string x = " --print=all --outputs=" + path("out.safetensors") + " --input=";
  const std::string text = run(std::string(HUSK_TEST_DATA_MODEL) + x +
                               "5xf32=iota --input=2xc64=iota --input=3xf8e4m3fn=iota");
  EXPECT_EQ(code, 0) << text;
  EXPECT_NE(text.find("output 0 y: f32[4]  min 2  max 2  mean 2\n2 2 2 2\n"), std::string::npos)
      << text;
  EXPECT_NE(text.find("output 1 z2: c64[2]  min 0  max 3  mean 1.5\n"), std::string::npos) << text;
  EXPECT_EQ(text.find("nothing2"), std::string::npos) << text;
  const auto written = run::safetensors_read(path("out.safetensors"));
  EXPECT_EQ(written.at("0").sizes, (std::vector<int64_t>{4}));
  EXPECT_EQ(written.at("1").dtype, HUSK_C64);
  EXPECT_EQ(written.at("2").dtype, HUSK_F8E4M3FN);
  EXPECT_EQ(written.at("2").number(2), 2);
  EXPECT_EQ(written.count("3"), 0u);
}

TEST_F(Command, RepeatsKeepMemoryAndNoneIsAValue) {
  const std::string text = run(std::string(HUSK_TEST_DATA_MODEL) +
                               " --repeat=3 --print=all --input=2xf32=iota --input=none "
                               "--input=2xc64=zeros --input=3xf8e4m3fn=zeros --stats");
  EXPECT_EQ(code, 0) << text;
  EXPECT_NE(text.find("output 0 y: f32[1]  min 1  max 1  mean 1\n"), std::string::npos) << text;
  EXPECT_NE(text.find("segments 6"), std::string::npos) << text;
}

TEST_F(Command, SeedSetsInputsAndTheGenerator) {
  const std::string specs =
      " --print=all --input=4xf32=random --input=2xc64=random --input=3xf8e4m3fn=zeros";
  const auto with = [&](const char* seed) {
    const std::string text = run(std::string(HUSK_TEST_DATA_MODEL) + specs + seed);
    EXPECT_EQ(code, 0) << text;
    return text.substr(0, text.find("time:"));
  };
  EXPECT_EQ(with(" --seed=7"), with(" --seed=7"));
  EXPECT_NE(with(" --seed=7"), with(" --seed=8"));
  EXPECT_NE(with("").find("seed: i64[]  min 0  max 0"), std::string::npos);
  EXPECT_EQ(with(" --seed=7").find("seed: i64[]  min 0  max 0"), std::string::npos);
}

TEST_F(Command, OutputsServeAsExpectedValues) {
  run_model(std::string(kInputs) + "--print=none --outputs=" + path("out.safetensors"));
  ASSERT_EQ(code, 0);
  const auto written = run::safetensors_read(path("out.safetensors"));
  ASSERT_EQ(written.size(), 3u);
  EXPECT_EQ(written.at("0").number(3), 27);
  EXPECT_EQ(written.at("1").integer(0), 5);
  const std::string expected = "--expected=" + path("out.safetensors");
  EXPECT_NE(run_model(kInputs + expected).find("within rtol"), std::string::npos);
  EXPECT_EQ(code, 0);
  // The state has changed, so the second run gives other outputs.
  EXPECT_NE(run_model(kInputs + expected + " --repeat=2").find("4 of 4 outside"),
            std::string::npos);
  EXPECT_EQ(code, 1);
  run_model(kInputs + expected + " --repeat=2 --rtol=2");
  EXPECT_EQ(code, 0);
  run_model(kInputs + expected + " --repeat=2 --atol=28");
  EXPECT_EQ(code, 0);
}

TEST_F(Command, InputsFromAFile) {
  run::Tensor x = run::tensor_make(HUSK_F32, {2, 3}), n = run::tensor_make(HUSK_I32, {}),
              t = run::tensor_make(HUSK_F64, {1});
  for (int i = 0; i < 6; i++) x.set_number(i, i);
  n.set_number(0, 4);
  t.set_number(0, 1.5);
  run::safetensors_write(path("in.safetensors"), {{"x", x}, {"1", n}, {"t", t}});
  const std::string text = run_model("--print=all --input=false --inputs=" +
                                     path("in.safetensors"));
  EXPECT_EQ(code, 0) << text;
  EXPECT_NE(text.find("\n3 6\n15 27\n"), std::string::npos) << text;
  EXPECT_NE(text.find("k: i64[]  min 4"), std::string::npos) << text;
  fails(HUSK_TEST_MODEL " --input=1 --input=2 --inputs=" + path("in.safetensors"), 2,
        "have a value already");
}

TEST_F(Command, WrongCommandLines) {
  fails("", 2, "FILE");
  fails(HUSK_TEST_MODEL " --mode=fast", 2,
        "--mode: 'fast' is unknown: write one of auto, list, graph; see --help\n");
  fails(HUSK_TEST_MODEL " --edges=none", 2, "write one of auto, full;");
  fails(HUSK_TEST_MODEL " --print=some", 2, "write one of none, summary, all;");
  fails(HUSK_TEST_MODEL " --repeat=x", 2, "--repeat");
  fails(HUSK_TEST_MODEL " --repeat=0", 2, "--repeat");
  fails(HUSK_TEST_MODEL " --unknown", 2, "--unknown");
  fails(HUSK_TEST_MODEL " --device=tpu", 2, "--device=tpu");
  fails(HUSK_TEST_MODEL " --device=cuda:x", 2, "--device=cuda:x");
  fails(HUSK_TEST_MODEL " --function=backward", 2, "backward");
  fails(HUSK_TEST_MODEL " --input=1", 2, "x: f32[1..8, 3]");
  fails(HUSK_TEST_MODEL " --input=2x3xf32=iota", 2, "n: int");
  fails(HUSK_TEST_MODEL " --inputs=" + path("absent"), 2, "absent");
  fails(HUSK_TEST_MODEL " --expected=" + path("absent") + " " + kInputs, 2, "absent");
}

TEST_F(Command, VerifiesConstants) {
  std::string bytes;
  {
    std::ifstream file(HUSK_TEST_MODEL, std::ios::binary);
    bytes.assign(std::istreambuf_iterator<char>(file), {});
  }
  const auto write = [&](const char* name) {
    std::ofstream(path(name), std::ios::binary) << bytes;
    return path(name) + " " + kInputs + " --print=none";
  };
  const std::string good = write("good.husk");
  bytes.back() = static_cast<char>(bytes.back() ^ 1);  // a byte of the last constant
  const std::string bad = write("bad.husk");
  EXPECT_EQ(run(good + " --verify-content"), "");
  EXPECT_EQ(code, 0);
  EXPECT_EQ(run(bad), "");
  EXPECT_EQ(code, 0);
  fails(bad + " --verify-content", 3, "constant 'w' does not match its hash");
  // `script` runs a command on a terminal.
  if (std::system("command -v script >/dev/null") != 0) GTEST_SKIP() << "there is no script";
  const auto on_terminal = [&](const std::string& arguments) {
    std::string text;
    std::FILE* pipe = popen(
        ("script -qec '" HUSK_RUN " " + arguments + "' /dev/null 2>&1 </dev/null").c_str(), "r");
    char chunk[4096];
    while (const size_t size = std::fread(chunk, 1, sizeof chunk, pipe)) text.append(chunk, size);
    pclose(pipe);
    return text;
  };
  const std::string bar = on_terminal(good + " --verify-content");
  EXPECT_NE(bar.find("\rverifying [" + std::string(40, '.') + "]   0 %"), std::string::npos) << bar;
  EXPECT_NE(bar.find("\rverifying [" + std::string(40, '#') + "] 100 %"), std::string::npos) << bar;
  EXPECT_NE(on_terminal(bad + " --verify-content").find("%\r\nhusk-run: constant"),
            std::string::npos);
  EXPECT_EQ(on_terminal(good), "");
}

TEST_F(Command, UnusableFiles) {
  fails(path("absent.husk"), 3, "absent.husk");
  std::ofstream(path("empty.husk")).put('x');
  fails(path("empty.husk"), 3, "husk");
  fails(std::string(HUSK_TEST_MODEL) + " --device=host:1", 3, "host device 1");
}

TEST_F(Command, FailingRuns) {
  const std::string model = HUSK_TEST_MODEL;
  fails(model + " --input=3x3xf32=zeros --input=4 --input=1 --input=0", 4, "the batch of x");
  fails(model + " --input=9x3xf32=zeros --input=4 --input=1 --input=0", 4, "x");
  fails(model + " --input=2x3xf64=zeros --input=4 --input=1 --input=0", 4, "x");
  fails(model + " --input=2x3xf32=zeros --input=11 --input=1 --input=0", 4, "index out of bounds");
}

TEST_F(Command, HelpListsExitCodes) {
  EXPECT_EQ(run("--version"), std::string("husk-run ") + husk_version() + "\n");
  EXPECT_EQ(code, 0);
  const std::string text = run("--help");
  EXPECT_EQ(code, 0);
  EXPECT_NE(text.find("Exit codes: 0"), std::string::npos) << text;
}

}  // namespace
}  // namespace husk::run_test
