#include "generator.h"

#include <husk/port_host.h>
#include <math.h>
#include <string.h>

namespace husk::host {

namespace {

constexpr int words = 624, middle = 397;

uint32_t twist(uint32_t a, uint32_t b) {
  const uint32_t mixed = (a & 0x80000000) | (b & 0x7fffffff);
  return mixed >> 1 ^ (b & 1 ? 0x9908b0df : 0);
}

}  // namespace

void Generator::start(uint64_t from) {
  memset(static_cast<void*>(this), 0, sizeof *this);
  seed = from;
  seeded = 1;
  next = 624;
  words[0] = static_cast<uint32_t>(from);
  for (uint32_t i = 1; i < 624; i++) words[i] = 1812433253 * (words[i - 1] ^ words[i - 1] >> 30) + i;
}

void Generator::ready() {
  if (!seeded) start(default_seed);
  if (next > 624) next = 624;
}

uint32_t Generator::random() {
  if (next == 624) {
    for (int i = 0; i < host::words; i++) {
      words[i] = words[i < host::words - middle ? i + middle : i + middle - host::words] ^
                 twist(words[i], words[i + 1 < host::words ? i + 1 : 0]);
    }
    next = 0;
  }
  uint32_t y = words[next++];
  y ^= y >> 11;
  y ^= y << 7 & 0x9d2c5680;
  y ^= y << 15 & 0xefc60000;
  return y ^ y >> 18;
}

uint64_t Generator::random64() {
  const uint64_t high = random();
  return high << 32 | random();
}

double Generator::normal_double() {
  if (has_double) {
    has_double = 0;
    return left_double;
  }
  constexpr double pi = 3.14159265358979323846;
  const double u1 = uniform_double(), u2 = uniform_double();
  const double radius = sqrt(-2.0 * log1p(-u2)), angle = 2.0 * pi * u1;
  left_double = radius * sin(angle);
  has_double = 1;
  return radius * cos(angle);
}

}  // namespace husk::host

void husk_host_generator_seed(uint64_t seed, void* state) {
  static_assert(sizeof(husk::host::Generator) == HUSK_HOST_GENERATOR_BYTES, "the header's constant");
  husk::host::Generator generator;
  generator.start(seed);
  memcpy(state, &generator, sizeof generator);
}
