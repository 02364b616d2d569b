// The two programs, as a shell runs them.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>

#include "program.h"

namespace husk::test {
namespace {

struct Outcome {
  int status;
  std::string text;   // stdout and stderr
};

Outcome run(const std::string& command) {
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  if (!pipe) return {-1, "popen failed"};
  Outcome out{0, ""};
  char part[4096];
  while (size_t n = fread(part, 1, sizeof(part), pipe)) out.text.append(part, n);
  const int status = pclose(pipe);
  out.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return out;
}

class Tools : public ::testing::Test {
 protected:
  Outcome huskc(const std::string& arguments) { return run(std::string(HUSKC) + " " + arguments); }
  Outcome dump(const std::string& arguments) { return run(std::string(HUSK_DUMP) + " " + arguments); }
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
  EXPECT_EQ(dump(husk + " --at x.0=101").text, husk + ": 'x.0' cannot be 101: its range does not hold that\n");
  EXPECT_EQ(dump(husk + " --at x.0").text, husk + ": --at=x.0: write NAME=N, as in x.0=64\n");
  EXPECT_EQ(dump(husk + " --at x.0=").status, 1);
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

TEST_F(Tools, SayWhatTheyWant) {
  EXPECT_NE(huskc(hir).status, 0);
  EXPECT_NE(huskc("").status, 0);
  EXPECT_EQ(huskc("--help").status, 0);
  EXPECT_EQ(dump("--help").status, 0);
  EXPECT_NE(dump(husk + " --output=xml").status, 0);
  EXPECT_EQ(huskc("--version").text.substr(0, 6), "huskc ");
}

TEST_F(Tools, DumpRefusesDamage) {
  const std::string broken = folder.file("broken.husk", std::string(100, 'x'));
  const Outcome got = dump(broken);
  EXPECT_EQ(got.status, 1);
  EXPECT_EQ(got.text, broken + ": not a Husk artifact: no header of 64 bytes with its magic\n");
}

}  // namespace
}  // namespace husk::test
