// Programs that several of these tests use, and their results computed on the host.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <husk/op.h>

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

// Copies, fills and two views of one buffer. Their nodes are patched like kernels.
inline const char* const kPieces = R"(
function pieces {
  input x tensor f32 [1..1000]
  input t float
  input k int
  output y tensor f32 rank 1
  variant gpu {
    let n = size(x, 0)
    let blocks = cdiv(n, 128)
    buffer x of input bytes mul(n, 4)
    buffer y of output bytes mul(n, 4)
    buffer pair bytes mul(n, 8) align 64
    buffer zero bytes mul(n, 4) align 64
    fill f32 (write zero, t)
    copy (write pair[0, mul(n, 4)], read x)
    launch shift grid (blocks, 1, 1) (read zero, write pair[mul(n, 4), mul(n, 4)], k, n)
    launch join grid (blocks, 1, 1)
      (read pair[0, mul(n, 4)], read pair[mul(n, 4), mul(n, 4)], write zero, n)
    copy (write y, read zero)
    return (tensor y f32 [n] [1])
  }
}
)";

// The number of elements of x above 0.
inline const char* const kRead = R"(
function count_positive {
  input x tensor f32 [1..1000]
  output found int
  variant gpu {
    let n = size(x, 0)
    buffer x of input bytes mul(n, 4)
    buffer tally bytes 8 align 8
    launch positive grid (1, 1, 1) (read x, write tally, n)
    read i64 (read tally)
    return (int result(0))
  }
}
)";

// A program without an arena: the copy node begins with the state's address as source and target.
inline const char* const kOutOfState = R"(
state ticks i64 [] fill 41
function tick {
  output now tensor i64 rank 0
  variant gpu {
    buffer now of output bytes 8
    launch count grid (1, 1, 1) (both ticks)
    copy (write now, read ticks)
    return (tensor now i64 [] [])
  }
}
)";

// A program without an arena that copies the caller's memory to the caller's memory.
inline const char* const kCopyInput = R"(
function forward {
  input x tensor f32 [1..1000]
  output y tensor f32 rank 1
  variant gpu {
    let n = size(x, 0)
    buffer x of input bytes mul(n, 4)
    buffer y of output bytes mul(n, 4)
    copy (write y, read x)
    return (tensor y f32 [n] [1])
  }
}
)";

// y = z = x[index]. Each kernel has two asserts, one for indices above the range and one for
// indices below 0.
inline const char* const kPick = R"(
assert "kernel pick: index out of bounds: index < 10"
assert "kernel pick: index out of bounds: 0 <= index"
function pick {
  input x tensor f32 [10]
  input index tensor i64 [1..100]
  output y tensor f32 rank 1
  output z tensor f32 rank 1
  variant gpu {
    let n = size(index, 0)
    buffer x of input bytes 40
    buffer index of input bytes mul(n, 8)
    buffer y of output bytes mul(n, 4)
    buffer z of output bytes mul(n, 4)
    launch pick grid (cdiv(n, 128), 1, 1) (read x, read index, write y, 10, n, asserts)
    launch pick grid (cdiv(n, 128), 1, 1) (read x, read index, write z, 10, n, asserts)
    return (tensor y f32 [n] [1], tensor z f32 [n] [1])
  }
}
)";

// y = (2 x + 0.25) w^T + b on rows of four, then y w^T - x. A product's workspace overwrites live
// buffers of the arena if the planner places it wrongly.
inline const char* const kProjections = R"(
constant w f32 [4, 4] bytes "0000803f000000400000404000008040)"
                                        R"(000000000000803f00000000000080bf)"
                                        R"(0000003f0000003f0000003f0000003f)"
                                        R"(0000803f0000000000000000000000c0"
constant b f32 [4] bytes "0000803f000000400000404000008040"
function project {
  input x tensor f32 [4..4000]
  output y tensor f32 rank 1
  variant gpu {
    let n = size(x, 0)
    let rows = floordiv(n, 4)
    check_eq(mul(rows, 4), n) "rows of four"
    buffer x of input bytes mul(n, 4)
    buffer y of output bytes mul(n, 4)
    buffer h bytes mul(n, 4) align 64
    buffer g bytes mul(n, 4) align 64
    buffer f bytes mul(n, 4) align 64
    buffer space bytes 1024 align 256
    buffer other_space bytes 1024 align 256
    launch scale grid (cdiv(n, 128), 1, 1) (read x, write h, 2.0, n)
    extern "husk::matmul" (read tensor h f32 [rows, 4] [4, 1], read tensor w f32 [4, 4] [1, 4],
      read tensor b f32 [4] [1], 1.0, 1.0, false,
      write tensor g f32 [rows, 4] [4, 1], write tensor space u8 [1024] [1]) at "up"
    extern "husk::matmul" (read tensor g f32 [rows, 4] [4, 1], read tensor w f32 [4, 4] [1, 4],
      none, 1.0, 0.0, false,
      write tensor f f32 [rows, 4] [4, 1], write tensor other_space u8 [1024] [1]) at "down"
    launch join grid (cdiv(n, 128), 1, 1) (read f, read x, write y, n)
    return (tensor y f32 [n] [1])
  }
}
)";

// The same, with a read between the products, so that each lies in a segment of its own.
inline std::string segmented_projections() {
  std::string text = kProjections;
  const auto insert = [&](const char* before, const char* more) {
    text.insert(text.find(before), more);
  };
  insert("    launch scale", "    buffer tally bytes 8 align 8\n");
  insert("    extern \"husk::matmul\" (read tensor g",
         "    launch positive grid (1, 1, 1) (read g, write tally, n)\n    read i64 (read tally)\n"
         "    check_le(result(0), n)\n");
  return text;
}
inline constexpr float kW[4][4] = {
    {1, 2, 3, 4}, {0, 1, 0, -1}, {0.5f, 0.5f, 0.5f, 0.5f}, {1, 0, 0, -2}};
inline constexpr float kB[4] = {1, 2, 3, 4};

inline std::vector<float> multiply_rows(const std::vector<float>& x, const float* bias) {
  std::vector<float> y(x.size());
  for (size_t row = 0; row < x.size(); row += 4)
    for (size_t i = 0; i < 4; ++i) {
      y[row + i] = bias ? bias[i] : 0;
      for (size_t k = 0; k < 4; ++k) y[row + i] += x[row + k] * kW[i][k];
    }
  return y;
}

inline std::vector<float> projections_of(const std::vector<float>& x) {
  std::vector<float> y = x;
  for (float& value : y) value = value * 2 + 0.25f;
  y = multiply_rows(multiply_rows(y, kB), nullptr);
  for (size_t i = 0; i < x.size(); ++i) y[i] -= x[i];
  return y;
}

// The same with convolutions of images that have one pixel: a plain one, then a transposed one.
inline const char* const kConvolutions = R"(
constant w f32 [4, 4] bytes "0000803f000000400000404000008040)"
                                         R"(000000000000803f00000000000080bf)"
                                         R"(0000003f0000003f0000003f0000003f)"
                                         R"(0000803f0000000000000000000000c0"
function convolve {
  input x tensor f32 [4..4000]
  output y tensor f32 rank 1
  variant gpu {
    let n = size(x, 0)
    let rows = floordiv(n, 4)
    check_eq(mul(rows, 4), n) "rows of four"
    buffer x of input bytes mul(n, 4)
    buffer y of output bytes mul(n, 4)
    buffer h bytes mul(n, 4) align 64
    buffer g bytes mul(n, 4) align 64
    buffer f bytes mul(n, 4) align 64
    buffer space bytes 1024 align 256
    launch scale grid (cdiv(n, 128), 1, 1) (read x, write h, 2.0, n)
    extern "husk::cudnn_convolution" (read tensor h f32 [rows, 4, 1, 1] [4, 1, 4, 4],
      read tensor w f32 [4, 4, 1, 1] [4, 1, 4, 4], [1, 1], [0, 0], [1, 1], false, 1, false,
      write tensor g f32 [rows, 4, 1, 1] [4, 1, 4, 4], write tensor space u8 [1024] [1]) at "down"
    extern "husk::cudnn_convolution" (read tensor g f32 [rows, 4, 1, 1] [4, 1, 4, 4],
      read tensor w f32 [4, 4, 1, 1] [4, 1, 4, 4], [1, 1], [0, 0], [1, 1], true, 1, false,
      write tensor f f32 [rows, 4, 1, 1] [4, 1, 4, 4], write tensor space u8 [1024] [1]) at "up"
    launch join grid (cdiv(n, 128), 1, 1) (read f, read x, write y, n)
    return (tensor y f32 [n] [1])
  }
}
)";

inline std::vector<float> convolutions_of(const std::vector<float>& x) {
  std::vector<float> h = x, y(x.size());
  for (float& value : h) value = value * 2 + 0.25f;
  h = multiply_rows(h, nullptr);
  for (size_t row = 0; row < x.size(); row += 4)
    for (size_t k = 0; k < 4; ++k)
      for (size_t i = 0; i < 4; ++i) y[row + k] += h[row + i] * kW[i][k];
  for (size_t i = 0; i < x.size(); ++i) y[i] -= x[i];
  return y;
}

// y = the eigenvalues of x as matrices of one element, which are x. The other results are not used.
inline constexpr const char* kEigenvalues = R"(
function eigenvalues {
  input x tensor f32 [4..4000]
  output y tensor f32 rank 1
  variant gpu {
    let n = size(x, 0)
    buffer x of input bytes mul(n, 4)
    buffer y of output bytes mul(n, 4)
    buffer h bytes mul(n, 4) align 64
    buffer f bytes mul(n, 4) align 64
    buffer v bytes mul(n, 4) align 64
    buffer space bytes 40 align 64
    launch scale grid (cdiv(n, 128), 1, 1) (read x, write h, 2.0, n)
    extern "aten::_linalg_eigh" (read tensor h f32 [n, 1, 1] [1, 1, 1], "L", true,
      write tensor f f32 [n, 1] [1, 1], write tensor v f32 [n, 1, 1] [1, 1, 1],
      write tensor space f64 [5] [1]) at "values"
    launch join grid (cdiv(n, 128), 1, 1) (read f, read x, write y, n)
    return (tensor y f32 [n] [1])
  }
}
)";

// y = 2 (2 x + 1/4) - x, where the factor 2 comes from a transform of pairs and back.
inline constexpr const char* kSpectrum = R"(
function spectrum {
  input x tensor f32 [4..4000]
  output y tensor f32 rank 1
  variant gpu {
    let n = size(x, 0)
    let pairs = floordiv(n, 2)
    check_eq(mul(pairs, 2), n) "pairs"
    buffer x of input bytes mul(n, 4)
    buffer y of output bytes mul(n, 4)
    buffer h bytes mul(n, 4) align 64
    buffer g bytes mul(n, 8) align 64
    buffer f bytes mul(n, 4) align 64
    launch scale grid (cdiv(n, 128), 1, 1) (read x, write h, 2.0, n)
    extern "husk::fft" (read tensor h f32 [pairs, 2] [2, 1], 1, false, [pairs, 2, 2],
      write tensor g f32 [pairs, 2, 2] [4, 2, 1]) at "there"
    extern "husk::fft" (read tensor g f32 [pairs, 2, 2] [4, 2, 1], 1, true, [pairs, 2],
      write tensor f f32 [pairs, 2] [2, 1]) at "back"
    launch join grid (cdiv(n, 128), 1, 1) (read f, read x, write y, n)
    return (tensor y f32 [n] [1])
  }
}
)";

inline std::vector<float> eigenvalues_of(std::vector<float> x) {
  for (float& value : x) value = value * 2 + 0.25f - value;
  return x;
}
inline std::vector<float> spectrum_of(std::vector<float> x) {
  for (float& value : x) value = 2 * (value * 2 + 0.25f) - value;
  return x;
}

// y = (x / 2 + k)^2 / 2 + k, where the square is computed on the host.
inline const char* const kSquareOnHost = R"(
function square {
  input x tensor f32 [1..1000]
  input k int
  output y tensor f32 rank 1
  variant gpu {
    let n = size(x, 0)
    let blocks = cdiv(n, 128)
    buffer x of input bytes mul(n, 4)
    buffer y of output bytes mul(n, 4)
    buffer a bytes mul(n, 4) align 64
    buffer b bytes mul(n, 4) align 64 on host
    buffer c bytes mul(n, 4) align 64 on host
    buffer d bytes mul(n, 4) align 64
    launch shift grid (blocks, 1, 1) (read x, write a, k, n)
    copy (write b, read a)
    extern "test::square" (read tensor b f32 [n] [1], write tensor c f32 [n] [1]) at "square"
    copy (write d, read c)
    launch shift grid (blocks, 1, 1) (read d, write y, k, n)
    return (tensor y f32 [n] [1])
  }
}
)";

// out[i] = in[i]^2, for tensors of one dimension on the host.
inline void square_elements(const husk_op_arg* args) {
  const float* in = static_cast<const float*>(args[0].data);
  float* out = static_cast<float*>(args[1].data);
  for (int64_t i = 0; i < args[0].sizes[0]; ++i) out[i] = in[i] * in[i];
}

inline std::vector<float> square_of(std::vector<float> x, int32_t k) {
  for (float& value : x) {
    value = value / 2 + static_cast<float>(k);
    value = value * value / 2 + static_cast<float>(k);
  }
  return x;
}

}  // namespace husk::test
