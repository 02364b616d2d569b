// The random number generator.
#include "random/generator.h"

#include <cmath>
#include <cstring>

#include <husk/ops.h>
#include <husk/port_host.h>

namespace husk::host {

namespace {

constexpr int kWords = 624, kMiddle = 397;

uint32_t twist(uint32_t a, uint32_t b) {
  const uint32_t mixed = (a & 0x80000000) | (b & 0x7fffffff);
  return mixed >> 1 ^ ((0 - (b & 1)) & 0x9908b0df);
}

uint32_t tempered(uint32_t y) {
  y ^= y >> 11;
  y ^= y << 7 & 0x9d2c5680;
  y ^= y << 15 & 0xefc60000;
  return y ^ y >> 18;
}

}  // namespace

void Generator::start(uint64_t new_seed) {
  memset(static_cast<void*>(this), 0, sizeof *this);
  seed = new_seed;
  seeded = 1;
  next = 624;
  words[0] = static_cast<uint32_t>(new_seed);
  for (uint32_t i = 1; i < 624; ++i)
    words[i] = 1812433253 * (words[i - 1] ^ words[i - 1] >> 30) + i;
}

void Generator::ready() {
  if (!seeded) start(kDefaultSeed);
  if (next > 624) next = 624;
}

// Each word takes words that lie behind it, or far before it, so that compilers make loops of
// vectors of all but the last one.
void Generator::renew() {
  constexpr int kRest = kWords - kMiddle;
  for (int i = 0; i < kRest; ++i) words[i] = words[i + kMiddle] ^ twist(words[i], words[i + 1]);
  for (int i = kRest; i < kWords - 1; ++i)
    words[i] = words[i - kRest] ^ twist(words[i], words[i + 1]);
  words[kWords - 1] = words[kMiddle - 1] ^ twist(words[kWords - 1], words[0]);
  next = 0;
}

uint32_t Generator::random() {
  if (next == kWords) renew();
  return tempered(words[next++]);
}

void Generator::uniform_floats(float* to, int64_t count) {
  for (int64_t i = 0; i < count;) {
    if (next == kWords) renew();
    const int64_t rest = count - i, length = rest < kWords - next ? rest : kWords - next;
    const uint32_t* from = words + next;
    // An int of 24 bits is converted as a signed one, for which there are vector instructions.
    for (int64_t k = 0; k < length; ++k)
      to[i + k] = static_cast<float>(static_cast<int32_t>(tempered(from[k]) & 0xffffff)) * 0x1p-24f;
    next += static_cast<uint32_t>(length);
    i += length;
  }
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
  constexpr double kPi = 3.14159265358979323846;
  const double u1 = uniform_double(), u2 = uniform_double();
  const double radius = std::sqrt(-2.0 * std::log1p(-u2)), angle = 2.0 * kPi * u1;
  left_double = radius * std::sin(angle);
  has_double = 1;
  return radius * std::cos(angle);
}

}  // namespace husk::host

void husk_host_generator_seed(uint64_t seed, void* state) {
  static_assert(sizeof(husk::host::Generator) == HUSK_HOST_GENERATOR_BYTES,
                "HUSK_HOST_GENERATOR_BYTES is the size of the state");
  husk::host::Generator generator;
  generator.start(seed);
  memcpy(state, &generator, sizeof generator);
}
