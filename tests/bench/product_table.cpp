// Finds out up to how many rows a matrix product is faster if its second operand is read in place
// instead of packed, for the instruction set that this file is compiled for. product_table.py
// compiles it for each one and writes ports/host/ops/linalg/product_table.h.
// Each line is a dtype (f64, f32, f16, bf16; with instructions for bf16 only that): the most rows
// if columns of the second operand are contiguous, and if its rows are.
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "cpu.h"
#include "linalg/product_amx.h"

namespace husk::host {
namespace {

double seconds_of(void (*run)(const Product& product), const Product& product) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  run(product);
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Returns memory for a matrix. Small matrices are in the second-level cache, large ones in the
// third, as weights often are. Matrices of zeros are as fast as others.
template <class S>
S* take_matrix(int64_t elements) {
  static std::vector<S> memory((16 << 20) / sizeof(S));
  static int64_t begin = 0;
  const int64_t used = elements * 2 <= (1 << 18) ? 1 << 18 : static_cast<int64_t>(memory.size());
  if (begin + elements > used) begin = 0;
  begin += elements;
  return memory.data() + begin - elements;
}

// Computes a product by packing b.
template <class T, class S, class P>
void run_packing(const Product& p) {
#if HUSK_BF16_TILES
  run_amx<AmxTiles>(p);
#else
  run_blocks<T, S, P>(p);
#endif
}

// The time of a product that reads b in place divided by the time of one that packs b. Both are the
// shortest of many, measured in turns.
template <class T, class S, class P>
double time_ratio(bool columns, int64_t m, int64_t n, int64_t k) {
  constexpr int64_t kPitch = 512;  // n columns are a part of a matrix with so many
  const husk_op_context context{};
  Cancellation cancellation(context);
  static struct {
    alignas(64) unsigned char bytes[kProductScratch];
  } memory;
  Product p = {};
  p.m = m;
  p.n = n;
  p.k = k;
  p.a = {take_matrix<S>(m * k), k, 1};
  p.b = {nullptr, columns ? 1 : kPitch, columns ? k : 1};
  p.out = take_matrix<S>(m * n);
  p.out_row = n;
  p.out_column = 1;
  p.alpha = 1;
  p.cancellation = &cancellation;
  p.scratch = memory.bytes;
  double in_place = 1, packed = 1;
  for (int i = 0; i < (k < 512 ? 30 : 10); ++i) {
    const int64_t elements = columns ? n * k : kPitch * k;
    p.b.data = take_matrix<S>(elements);
    in_place = std::fmin(in_place, seconds_of(run_thin<T, S, P>, p));
    p.b.data = take_matrix<S>(elements);
    packed = std::fmin(packed, seconds_of(run_packing<T, S, P>, p));
  }
  return in_place / packed;
}

template <class T, class S, class P>
int most_rows(bool columns, int64_t k) {
  int most = 0;
  for (int m = 1; m <= kThinMaxRows; ++m) {
    if (time_ratio<T, S, P>(columns, m, 256, k) <= 1)
      most = m;
    else if (m >= most + 4)  // a slow number of rows does not end the search
      break;
  }
  return most;
}

template <class T, class S, class P>
void print_element() {
  constexpr int64_t kMeasured[kDepths] = {16, 32, 64, 128, 256, 1024, 4096};
  for (bool columns : {true, false}) {
    for (int i = 0; i < kDepths; ++i)
      std::printf("%d%c", most_rows<T, S, P>(columns, kMeasured[i]), i + 1 < kDepths ? ' ' : '\n');
  }
}

}  // namespace
}  // namespace husk::host

int main() {
  using namespace husk::host;
#if HUSK_BF16_TILES
  if (!cpu_features().has(cpu_set::kAmx)) return 1;  // it also asks for the permission to use tiles
#endif
#if HUSK_BF16_PAIRS
  print_element<float, BFloat16, BFloat16Pair>();
#else
  print_element<double, double, double>();
  print_element<float, float, float>();
  print_element<float, Half, float>();
  print_element<float, BFloat16, float>();
#endif
}
