// Reads CPUID directly, because __builtin_cpu_supports would bring in a static constructor of the
// compiler's library. Source: Intel SDM volume 1, 13.3 (XGETBV, state components), and
// Documentation/arch/x86/xstate.rst of Linux for the permission to use tiles.
#include "cpu.h"

#include <atomic>
#include <cstdio>
#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#else
#include <sys/auxv.h>
#endif

namespace husk::host {

#if defined(__x86_64__)

namespace {

constexpr uint32_t bit(int n) { return uint32_t{1} << n; }
constexpr bool has(uint32_t word, uint32_t bits) { return (word & bits) == bits; }

// The register files that the operating system saves on a context switch, as bits of XCR0.
enum State : uint32_t {
  Ymm = 1 << 1 | 1 << 2,
  Zmm = Ymm | 1 << 5 | 1 << 6 | 1 << 7,
  Tiles = 1 << 17 | 1 << 18
};
uint32_t saved_state() {
  uint32_t low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

// Asks Linux for the permission of all threads of the process to use tiles. It is refused by Linux
// before 5.16, and if a thread has an alternate signal stack that is too small for the tiles.
bool may_use_tiles() {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM of asm/prctl.h
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

// The registers that CPUID writes and that have bits of features: leaf, subleaf, register.
enum Word { Leaf1Ecx, Leaf7Ebx, Leaf7Ecx, Leaf7Edx, Leaf7Sub1Eax, kWords };
void read_words(uint32_t (&words)[kWords]) {
  uint32_t a, b, c, d;
  if (__get_cpuid(1, &a, &b, &c, &d)) words[Leaf1Ecx] = c;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return;
  words[Leaf7Ebx] = b;
  words[Leaf7Ecx] = c;
  words[Leaf7Edx] = d;
  if (a >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d)) words[Leaf7Sub1Eax] = a;
}

}  // namespace

Features cpu_features() {
  constexpr struct {
    uint32_t state;
    uint8_t number, word, bit;
  } kFeatures[] = {
#define HUSK_X86_FEATURE(Name, cpuinfo, word, bit, state) \
  {state, static_cast<uint8_t>(FeatureNumber::Name), word, bit},
#include <cpus.def>
  };
  constexpr uint32_t kOsxsave = bit(27);
  uint32_t words[kWords] = {};
  read_words(words);
  const uint32_t saved = has(words[Leaf1Ecx], kOsxsave) ? saved_state() : 0;
  Features all = feature::X86_64, tiles{};
  for (const auto& row : kFeatures) {
    if (!has(words[row.word], bit(row.bit)) || !has(saved, row.state)) continue;
    Features& found = row.state == Tiles ? tiles : all;
    found.bits |= uint64_t{1} << row.number;
  }
  return tiles.has(feature::AmxTile) && may_use_tiles() ? all | tiles : all;
}

void cpu_name(char* out, size_t size) {
  uint32_t words[13] = {};
  uint32_t a, b, c, d;
  if (__get_cpuid(0x80000004u, &a, &b, &c, &d)) {
    for (uint32_t i = 0; i < 3; ++i) {
      __get_cpuid(0x80000002u + i, &words[i * 4], &words[i * 4 + 1], &words[i * 4 + 2],
                  &words[i * 4 + 3]);
    }
  }
  char text[sizeof words];
  memcpy(text, words, sizeof words);
  const char* begin = text;
  while (*begin == ' ') ++begin;
  size_t length = strlen(begin);
  while (length > 0 && begin[length - 1] == ' ') --length;
  if (length == 0) {
    begin = "x86-64 host";
    length = strlen(begin);
  }
  snprintf(out, size, "%.*s", static_cast<int>(length), begin);
}

#elif defined(__aarch64__)

Features cpu_features() {
  Features all = feature::Aarch64;
#define HUSK_ARM_FEATURE(Name, cpuinfo, word, bit) \
  if (getauxval(word) >> bit & 1) all = all | feature::Name;
#include <cpus.def>
  return all;
}

void cpu_name(char* out, size_t size) { snprintf(out, size, "aarch64 host"); }

#else
#error "the host port knows x86-64 and aarch64"
#endif

namespace {

constexpr struct Target {
  char arch[8];
  Features features;
} kTargets[] = {
#define HUSK_CPU_TARGET(arch, Set) {#arch, cpu_set::k##Set},
#include <cpus.def>
};

// The number of targets whose images such a CPU runs.
int32_t rank_of(Features cpu) {
  int32_t rank = 0;
  for (const Target& target : kTargets) rank += cpu.has(target.features);
  return rank;
}

}  // namespace

Features features_of_this_cpu() {
  // 0 before the first call; threads that call at the same time store the same.
  static std::atomic<uint64_t> known{0};
  uint64_t bits = known.load(std::memory_order_relaxed);
  if (bits == 0) {
    bits = cpu_features().bits;
    known.store(bits, std::memory_order_relaxed);
  }
  return {bits};
}

const char* best_target(Features cpu) {
  const Target* best = nullptr;
  for (const Target& target : kTargets)
    if (cpu.has(target.features)) best = &target;
  return best ? best->arch : nullptr;
}

Features target_features(const char* arch) {
  for (const Target& target : kTargets)
    if (strcmp(target.arch, arch) == 0) return target.features;
  return {};
}

int32_t target_rank(Features cpu, const char* arch) {
  const Features target = target_features(arch);
  return cpu.has(target) ? rank_of(target) : 0;
}

}  // namespace husk::host
