// huskc and husk-dump, run by a shell.
#include <gtest/gtest.h>

#include "../outcome.h"
#include "program.h"

namespace husk::test {
namespace {

class Tools : public ::testing::Test {
 protected:
  Outcome huskc(const std::string& arguments) { return run(std::string(HUSKC) + " " + arguments); }
  Outcome dump(const std::string& arguments) {
    return run(std::string(HUSK_DUMP) + " " + arguments);
  }
  Folder folder;
  const std::string hir = folder.file("model.hir", program("", "fill f32 (write y, 0.5)"));
  const std::string husk = (folder.path() / "model.husk").string();
};

TEST_F(Tools, CompileAndDump) {
  Outcome got = huskc(hir + " -o " + husk);
  EXPECT_EQ(got.status, 0) << got.text;
  EXPECT_EQ(got.text.substr(0, husk.size() + 37), husk + ": 1 functions, 1 steps, 7 registers, ");
  got = dump(husk + " --output=all --check");
  EXPECT_EQ(got.status, 0) << got.text;
  EXPECT_NE(got.text.find("0: fill f32 (write y["), std::string::npos) << got.text;
  EXPECT_EQ(dump(husk + " --output=json").text.substr(0, 1), "{");
  EXPECT_EQ(dump(husk + " --output=svg").text.substr(0, 5), "<svg ");
  EXPECT_NE(dump(husk + " --output=plan --at x.0=7").text.find("no arena"), std::string::npos);
  EXPECT_EQ(dump(husk + " --at x.0=101").text,
            "husk-dump: --at: 'x.0' cannot be 101: its range does not include that; see --help\n");
  EXPECT_EQ(dump(husk + " --at x.0").text,
            "husk-dump: --at=x.0: write NAME=N, as in x.0=64; see --help\n");
  EXPECT_EQ(dump(husk + " --at x.0=").status, 2);
}

TEST_F(Tools, Print) {
  const Outcome got = huskc(hir + " --print");
  EXPECT_EQ(got.status, 0);
  EXPECT_EQ(got.text.substr(0, 6), "hir 1\n");
  const Outcome lowered = huskc(hir + " --print-lowered -o " + husk);
  EXPECT_NE(lowered.text.find("%0 = size(x, 0)"), std::string::npos) << lowered.text;
}

TEST_F(Tools, ErrorsNameThePlace) {
  const std::string bad = folder.file("bad.hir", "hir 1\ntarget cpu");
  const Outcome got = huskc(bad + " -o " + husk);
  EXPECT_EQ(got.status, 1);
  EXPECT_EQ(got.text, bad + ":2:11: expected a port (host, cuda), found the end of the text\n");
  EXPECT_FALSE(std::filesystem::exists(husk));
}

// With little memory a tool says so, whatever it was doing. With too little for the system's loader
// it does not begin.
TEST_F(Tools, ALackOfMemoryIsAnError) {
#if defined(HUSK_SANITIZED) || defined(HUSK_EMULATED)
  GTEST_SKIP() << "the program itself needs more address space than any limit here";
#endif
  std::string steps;
  for (int i = 0; i < 3000; ++i) steps += "fill f32 (write y, 0.5) at \"model.py\"\n";
  const std::string large = folder.file("large.hir", program("", steps));
  ASSERT_EQ(huskc(large + " -o " + husk).status, 0);
  const std::string other = (folder.path() / "other.husk").string();
  const std::pair<std::string, std::string> tools[] = {
      {"husk-dump", HUSK_DUMP " " + husk + " --output=json"},
      {"huskc", HUSKC " " + large + " -o " + other}};
  for (const auto& [name, command] : tools) {
    int lacks = 0;
    Outcome got{-1, ""};
    for (int limit = 8000; got.status != 0 && limit < 4000000; limit += limit / 12) {  // KiB
      got = run(command, "ulimit -v " + std::to_string(limit) + "; ");
      const bool lacked = got.text.find("out of memory") != std::string::npos ||
                          got.text.find("Cannot allocate memory") != std::string::npos;
      lacks += lacked;
      ASSERT_TRUE(got.status == 0 || got.status == 127 || (got.status == 1 && lacked))
          << name << " with " << limit << " KiB: " << got.status << "\n"
          << got.text.substr(0, 400);
    }
    EXPECT_EQ(got.status, 0) << name;
    EXPECT_GT(lacks, 0) << name;
  }
}

// An output that cannot be written.
TEST_F(Tools, AFullPipeIsAnError) {
  ASSERT_EQ(huskc(hir + " -o " + husk).status, 0);
  const Outcome got = run("sh -c '" HUSK_DUMP " " + husk + " --output=json >/dev/full'");
  EXPECT_EQ(got.status, 1) << got.text;
  EXPECT_NE(got.text.find("No space left on device"), std::string::npos) << got.text;
}

// huskc handles the signal of a size limit itself.
TEST_F(Tools, AFullDiskIsAnErrorAndLeavesTheOldFile) {
  folder.file("model.husk", "old");
  const Outcome got = run("ulimit -f 1; " HUSKC " " + hir + " -o " + husk);
  EXPECT_EQ(got.status, 1);
  EXPECT_EQ(got.text, hir + ": cannot write " + husk + ": File too large\n");
  EXPECT_EQ(folder.read("model.husk"), "old");
}

TEST_F(Tools, OutputsThatAreNoRegularFiles) {
  ASSERT_EQ(huskc(hir + " -o " + husk).status, 0);
  const std::string bytes = folder.read("model.husk");
  EXPECT_EQ(huskc(hir + " -o /dev/stdout").text, bytes);  // a pipe
  EXPECT_EQ(huskc(hir + " -o /dev/stdout | cat").text, bytes);
  // A file that is open already is written, and not replaced.
  const std::string copy = (folder.path() / "copy.husk").string();
  EXPECT_EQ(run("exec 3<>" + copy + "; " HUSKC " " + hir + " -o /dev/fd/3; cat <&3").text, bytes);
  const Outcome none = huskc(hir + " -o /dev/null");
  EXPECT_EQ(none.text, "");
  EXPECT_EQ(none.status, 0);
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
  const Outcome full = huskc(hir + " -o /dev/full");
  EXPECT_EQ(full.status, 1);
  EXPECT_EQ(full.text, hir + ": cannot write /dev/full: No space left on device\n");
  EXPECT_EQ(huskc(hir + " --emit=obj -o /dev/stdout").text.substr(1, 3), "ELF");
}

// Every mistake of a command line is one line that says what is allowed, and exit code 2.
void expect_usage_error(const Outcome& outcome, const std::string& text) {
  EXPECT_EQ(outcome.status, 2) << outcome.text;
  EXPECT_NE(outcome.text.find(text), std::string::npos) << outcome.text;
  EXPECT_EQ(outcome.text.find('\n'), outcome.text.size() - 1) << outcome.text;
}

TEST_F(Tools, RefuseWrongCommandLines) {
  expect_usage_error(huskc(""), "huskc: input is required; see --help");
  expect_usage_error(huskc(hir), "huskc: write -o model.husk to compile, or --print");
  expect_usage_error(huskc(hir + " --unknown"), "--unknown");
  expect_usage_error(huskc(hir + " -o " + husk + " --emit=elf"),
                     "huskc: --emit: 'elf' is unknown: write one of husk, obj; see --help");
  expect_usage_error(huskc(hir + " -o " + husk + " --emit=obj --machine=mips"),
                     "write one of x86-64, aarch64;");
  expect_usage_error(huskc(hir + " -o " + husk + " --emit=obj --symbol=1x"),
                     "'1x' is not a C identifier");
  expect_usage_error(huskc(hir + " -o " + husk + " --symbol=x"), "need --emit=obj");
  expect_usage_error(huskc(hir + " -o " + husk + " --emit=obj --print-lowered"),
                     "--print-lowered needs --emit=husk");
  expect_usage_error(huskc(hir + " -o /dev/null --print-lowered"),
                     "--print-lowered needs a regular file as the output");
  EXPECT_FALSE(std::filesystem::exists(husk));
  expect_usage_error(dump(""), "husk-dump: file is required; see --help");
  expect_usage_error(dump(husk + " --output=svgg"),
                     "husk-dump: --output: 'svgg' is unknown: write one of meta, code, plan, "
                     "graph, sizes, all, json, svg; see --help");
}

TEST_F(Tools, HelpAndVersion) {
  for (const Outcome& outcome : {huskc("--help"), dump("--help")}) {
    EXPECT_EQ(outcome.status, 0);
    EXPECT_NE(outcome.text.find("Exit codes: 0 success"), std::string::npos) << outcome.text;
  }
  EXPECT_EQ(huskc("--version").text, "huskc " HUSK_VERSION "\n");
  EXPECT_EQ(dump("--version").text, "husk-dump " HUSK_VERSION "\n");
  EXPECT_EQ(dump("--version").status, 0);
}

TEST_F(Tools, DumpRefusesDamage) {
  const std::string broken = folder.file("broken.husk", std::string(100, 'x'));
  const Outcome got = dump(broken);
  EXPECT_EQ(got.status, 1);
  EXPECT_EQ(got.text, broken + ": not a Husk artifact: no header of 64 bytes with its magic\n");
}

}  // namespace
}  // namespace husk::test
