// Reads CPUID directly, because __builtin_cpu_supports would bring in a static constructor of the
// compiler's library. Source of the bits: Intel SDM volume 2A, CPUID, leaves 1 and 7, and volume 1,
// 13.3 (XGETBV, state components).
#include "cpu.h"

#include <cstdio>
#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
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
  return has(b, kAvx512F | kAvx512Dq | kAvx512Bw | kAvx512Vl) && has(saved, kZmm) ? Isa::Avx512
                                                                                  : Isa::Avx2;
}

const char* isa_name(Isa isa) {
  switch (isa) {
    case Isa::Baseline: return "x86-64";
    case Isa::Avx2: return "avx2";
    case Isa::Avx512: return "avx512";
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

#else

Isa cpu_isa() { return Isa::Baseline; }

const char* isa_name(Isa isa) {
#if defined(__aarch64__)
  return isa == Isa::Baseline ? "aarch64" : nullptr;
#else
#error "the host port knows x86-64 and aarch64"
#endif
}

void cpu_name(char* out, size_t size) { snprintf(out, size, "aarch64 host"); }

#endif

}  // namespace husk::host
