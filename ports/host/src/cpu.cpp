// Reads CPUID directly, because __builtin_cpu_supports would bring in a static constructor of the
// compiler's library. Source of the bits: Intel SDM volume 2A, CPUID, leaves 1 and 7 (subleaves 0
// and 1), and volume 1, 13.3 (XGETBV, state components); Documentation/arch/x86/xstate.rst of Linux
// for the permission to use tiles.
#include "cpu.h"

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

}  // namespace

Isa cpu_isa() {
  uint32_t a, b, c, d;
  if (!__get_cpuid(1, &a, &b, &c, &d)) return Isa::Baseline;
  constexpr uint32_t kFma = bit(12), kOsxsave = bit(27), kAvx = bit(28), kF16c = bit(29);
  if (!has(c, kFma | kOsxsave | kAvx | kF16c)) return Isa::Baseline;
  const uint32_t saved = saved_state();
  constexpr uint32_t kYmm = bit(1) | bit(2), kZmm = kYmm | bit(5) | bit(6) | bit(7);
  if (!has(saved, kYmm) || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return Isa::Baseline;
  constexpr uint32_t kAvx2 = bit(5), kAvx512F = bit(16), kAvx512Dq = bit(17), kAvx512Bw = bit(30),
                     kAvx512Vl = bit(31);
  if (!has(b, kAvx2)) return Isa::Baseline;
  if (!has(b, kAvx512F | kAvx512Dq | kAvx512Bw | kAvx512Vl) || !has(saved, kZmm)) return Isa::Avx2;
  constexpr uint32_t kAvx512Bf16 = bit(5), kAmx = bit(22) | bit(24), kTiles = bit(17) | bit(18);
  const bool has_amx = has(d, kAmx) && has(saved, kTiles);
  const bool multiplies_bf16 = a >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d) &&
                               has(a, kAvx512Bf16);
  if (!multiplies_bf16) return Isa::Avx512;
  return has_amx && may_use_tiles() ? Isa::Amx : Isa::Bf16;
}

const char* isa_name(Isa isa) {
  switch (isa) {
    case Isa::Baseline: return "x86-64";
    case Isa::Avx2: return "avx2";
    case Isa::Avx512:
    case Isa::Bf16:
    case Isa::Amx: return "avx512";
  }
  return nullptr;
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

Isa cpu_isa() {
  constexpr unsigned long kBf16 = 1ul << 14;  // HWCAP2_BF16 of Linux, asm/hwcap.h
  return getauxval(AT_HWCAP2) & kBf16 ? Isa::Bf16 : Isa::Baseline;
}

const char* isa_name(Isa isa) {
  return isa == Isa::Baseline || isa == Isa::Bf16 ? "aarch64" : nullptr;
}

void cpu_name(char* out, size_t size) { snprintf(out, size, "aarch64 host"); }

#else
#error "the host port knows x86-64 and aarch64"
#endif

}  // namespace husk::host
