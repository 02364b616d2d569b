// The branching program of these tests, and its result computed on the host.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace husk::test {

constexpr int64_t kLargest = 5000;
constexpr int kSteps = 4;  // launches in each branch

// A program of two independent branches, one of launches of `kernel`, one of launches of shift, and
// a join; a counter in the state counts runs.
inline std::string branches(const std::string& kernel,
                            const std::string& largest = std::to_string(kLargest)) {
  std::string text = R"(
state ticks i64 [] fill 0
function branches {
  input x tensor f32 [0..)" +
                     largest + R"(]
  input t float
  input k int -1000..1000
  output y tensor f32 rank 1
  variant gpu {
    let n = size(x, 0)
    let blocks = cdiv(n, 128)
    buffer x of input bytes mul(n, 4)
    buffer y of output bytes mul(n, 4)
)";
  for (const char* branch : {"a", "b"})
    for (int i = 0; i < 2; ++i)
      text += std::string("    buffer ") + branch + std::to_string(i) +
              " bytes mul(n, 4) align 64\n";
  for (const char* branch : {"a", "b"})
    for (int i = 0; i < kSteps; ++i)
      text += "    launch " + (*branch == 'a' ? kernel : "shift") + " grid (blocks, 1, 1) (read " +
              (i ? branch + std::to_string((i + 1) % 2) : "x") + ", write " + branch +
              std::to_string(i % 2) + ", " + (*branch == 'a' ? "t" : "k") + ", n) at \"branch " +
              branch + "\"\n";
  const std::string last = std::to_string((kSteps + 1) % 2);
  return text + "    launch join grid (blocks, 1, 1) (read a" + last + ", read b" + last +
         R"(, write y, n)
    launch count grid (1, 1, 1) (both ticks)
    return (tensor y f32 [n] [1])
  }
}
)";
}

inline std::vector<float> branches_of(const std::vector<float>& x, float t, int32_t k) {
  std::vector<float> y(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    float a = x[i], b = x[i];
    for (int s = 0; s < kSteps; ++s) {
      a = a * t + 0.25f;
      b = b * 0.5f + static_cast<float>(k);
    }
    y[i] = a - b;
  }
  return y;
}

}  // namespace husk::test
