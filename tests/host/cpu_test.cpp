// The features of the CPU, which cpus.def lists, and the targets that they allow.
#include "cpu.h"

#include <gtest/gtest.h>
#include <sys/utsname.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "cpu_sets.h"

namespace husk::host_test {
namespace {

using host::Features;
using namespace host::feature;

// The words of the line of /proc/cpuinfo that names features.
std::set<std::string> words_of_cpuinfo() {
  std::ifstream file("/proc/cpuinfo");
  std::set<std::string> words;
  for (std::string line; words.empty() && std::getline(file, line);) {
    if (line.rfind("flags", 0) != 0 && line.rfind("Features", 0) != 0) continue;
    std::istringstream rest(line);
    for (std::string word; rest >> word;) words.insert(word);
  }
  return words;
}

// Whether the kernel knows all features of cpus.def. An older one leaves out what it does not know.
bool knows_all_features() {
  utsname system{};
  int major = 0, minor = 0;
  if (uname(&system) != 0 || std::sscanf(system.release, "%d.%d", &major, &minor) != 2)
    return false;
  return major > 5 || (major == 5 && minor >= 16);
}

TEST(Cpu, FeaturesAreThoseOfTheOperatingSystem) {
  const std::set<std::string> words = words_of_cpuinfo();
  const bool knows_all = knows_all_features();
  const Features cpu = host::cpu_features();
#if defined(__x86_64__)
#define HUSK_MACHINE(Name, triple, cpuinfo) \
  if (std::string(#triple) == "x86_64" && !words.count(#cpuinfo)) GTEST_SKIP();
#else
#define HUSK_MACHINE(Name, triple, cpuinfo) \
  if (std::string(#triple) == "aarch64" && !words.count(#cpuinfo)) GTEST_SKIP();
#endif
#include <cpus.def>
  const auto compare = [&](const char* word, bool is_found, bool may_be_forbidden) {
    const bool is_listed = words.count(word) == 1;
    EXPECT_TRUE(is_found || !is_listed || may_be_forbidden) << word;
    EXPECT_TRUE(is_listed || !is_found || !knows_all) << word;
  };
#if defined(__x86_64__)
// The process may not be allowed to use tiles.
#define HUSK_X86_FEATURE(Name, cpuinfo, word, bit, state) \
  compare(#cpuinfo, cpu.has(Name), std::strcmp(#state, "Tiles") == 0);
#else
#define HUSK_ARM_FEATURE(Name, cpuinfo, word, bit) compare(#cpuinfo, cpu.has(Name), false);
#endif
#include <cpus.def>
}

TEST(Cpu, HasItsMachineAndNoFeatureOfAnother) {
  const Features cpu = host::cpu_features();
  EXPECT_NE(cpu.has(X86_64), cpu.has(Aarch64));
  EXPECT_FALSE(cpu.has(Avx2 | Bf16));
  EXPECT_NE(host::best_target(cpu), nullptr);
  EXPECT_FALSE(sets_of(cpu).empty());
}

TEST(Cpu, TargetsNeedAllOfTheirFeatures) {
  const Features avx2 = Avx | Avx2 | Fma | F16c | X86_64,
                 avx512 = avx2 | Avx512F | Avx512Bw | Avx512Dq | Avx512Vl;
  const struct {
    Features cpu;
    const char* best;
    std::vector<const char*> runs;  // from the lowest to the highest rank
  } rows[] = {
      {X86_64, "x86-64", {"x86-64"}},
      {X86_64 | Avx | Avx2 | Fma, "x86-64", {"x86-64"}},
      {avx2, "avx2", {"x86-64", "avx2"}},
      {avx2 | AvxVnni, "avx2", {"x86-64", "avx2"}},
      {avx2 | Avx512F | Avx512Dq, "avx2", {"x86-64", "avx2"}},
      {X86_64 | Avx512F | Avx512Bw | Avx512Dq | Avx512Vl, "x86-64", {"x86-64"}},
      {avx512, "avx512", {"x86-64", "avx2", "avx512"}},
      {avx512 | Avx512Vnni, "avx512", {"x86-64", "avx2", "avx512"}},
      {avx512 | AmxTile | AmxInt8, "avx512", {"x86-64", "avx2", "avx512"}},
      {Aarch64, "aarch64", {"aarch64"}},
      {Aarch64 | Dotprod | I8mm, "aarch64", {"aarch64"}},
  };
  const char* all[] = {"x86-64", "avx2", "avx512", "aarch64", "avx51", "", "sse"};
  for (const auto& row : rows) {
    SCOPED_TRACE(::testing::Message() << row.cpu.bits);
    EXPECT_STREQ(host::best_target(row.cpu), row.best);
    int32_t rank = 0;
    for (const char* arch : row.runs) {
      EXPECT_GT(host::target_rank(row.cpu, arch), rank) << arch;
      rank = host::target_rank(row.cpu, arch);
    }
    size_t count = 0;
    for (const char* arch : all) count += host::target_rank(row.cpu, arch) > 0;
    EXPECT_EQ(count, row.runs.size());
  }
  EXPECT_EQ(host::best_target(Features{}), nullptr);
}

TEST(Cpu, SetsAreWhatTheCpuHasAllFeaturesOf) {
  using namespace host::cpu_set;
  const auto names = [](Features cpu) {
    std::string all;
    for (const CpuSet& set : sets_of(cpu)) all += std::string(all.empty() ? "" : " ") + set.name;
    return all;
  };
  EXPECT_EQ(names(kAvx512 | Avx512Vnni), "Baseline Avx2 Avx512 Avx512Vnni");
  EXPECT_EQ(names(kAvx512 | AmxTile | AmxBf16), "Baseline Avx2 Avx512");
  EXPECT_EQ(names(kAvx512Bf16 | AmxTile | AmxInt8), "Baseline Avx2 Avx512 Avx512Bf16");
  EXPECT_EQ(names(kAmx), "Baseline Avx2 Avx512 Avx512Bf16 Amx");
  EXPECT_EQ(names(kAvx2 | AvxVnni), "Baseline Avx2 AvxVnni");
  EXPECT_EQ(names(kAmx | AmxInt8), "Baseline Avx2 Avx512 Avx512Bf16 Amx");
  EXPECT_EQ(names(kAmx | AmxInt8 | Avx512Vnni),
            "Baseline Avx2 Avx512 Avx512Vnni Avx512Bf16 Amx AmxInt8");
  EXPECT_EQ(names(kArmBaseline | I8mm), "ArmBaseline");
  EXPECT_EQ(names(kArmBaseline | Dotprod | I8mm), "ArmBaseline ArmDotprod ArmI8mm");
  EXPECT_EQ(names(kArmBf16), "ArmBaseline ArmBf16");
}

}  // namespace
}  // namespace husk::host_test
