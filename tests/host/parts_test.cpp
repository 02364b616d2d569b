// Products, convolutions and attention on several threads give the same bits as on one.
#include <array>
#include <atomic>
#include <thread>

#include "core/parallel.h"
#include "host_device.h"
#include "tensor.h"

namespace husk::host_test {
namespace {

class Parts : public HostDevice {
 protected:
  static void parallel(void* user, uint32_t n, void (*body)(void* argument, uint32_t index),
                       void* argument) {
    static_cast<std::atomic<int>*>(user)->fetch_add(static_cast<int>(n));
    std::vector<std::thread> others;
    for (uint32_t i = 1; i < n; ++i) others.emplace_back(body, argument, i);
    body(argument, 0);
    for (std::thread& other : others) other.join();
  }

  // Runs an op without threads and with several numbers of threads, and compares its outputs, which
  // are the last arguments. `uses_threads` says whether the op has enough work to use threads.
  void expect_same_bits(const char* name, std::vector<husk_op_arg> args,
                        std::vector<Tensor*> outputs, bool uses_threads = true) {
    const husk_op& row = op(name);
    for (Tensor* output : outputs) args.push_back(output->arg(HUSK_ACCESS_WRITE));
    std::vector<std::vector<unsigned char>> reference;
    for (uint32_t threads : {0u, 1u, 2u, 3u, 7u}) {
      for (Tensor* output : outputs)
        std::fill(output->bytes.begin(), output->bytes.end(), static_cast<unsigned char>(0x5a));
      started_bodies = 0;
      const husk_threads pool{&started_bodies, threads, parallel};
      const husk_op_context context = context_of(row, threads ? &pool : nullptr);
      ASSERT_EQ(row.call(&context, args.data(), static_cast<uint32_t>(args.size()), &error),
                HUSK_OK)
          << error.text;
      EXPECT_EQ(started_bodies > 1, uses_threads && threads > 1) << name << " with " << threads;
      for (size_t i = 0; i < outputs.size(); ++i)
        if (threads == 0)
          reference.push_back(outputs[i]->bytes);
        else
          EXPECT_EQ(outputs[i]->bytes, reference[i]) << name << " with " << threads << " threads";
    }
  }
  Tensor filled(int32_t dtype, std::vector<int64_t> sizes, std::vector<int> order = {}) {
    Tensor tensor(dtype, std::move(sizes), std::move(order));
    tensor.randomize(random);
    return tensor;
  }

  std::atomic<int> started_bodies{0};
  std::mt19937 random{5};
};

TEST_F(Parts, Products) {
  const int64_t shapes[][3] = {{300, 70, 600},  {1, 1500, 2000}, {1999, 600, 3},
                               {193, 200, 257}, {60, 300, 208},  {40, 400, 780}};
  for (int32_t dtype : {int{HUSK_F32}, int{HUSK_BF16}}) {
    for (auto& [m, k, n] : shapes) {
      Tensor a = filled(dtype, {m, k}), b = filled(dtype, {k, n}, {1, 0}),
             bias = filled(dtype, {n}), out(dtype, {m, n});
      expect_same_bits("aten::addmm.out", {bias.arg(), a.arg(), b.arg(), int_arg(1), int_arg(2)},
                       {&out});
    }
    Tensor a = filled(dtype, {9, 40, 50}), b = filled(dtype, {9, 50, 70}), out(dtype, {9, 40, 70});
    expect_same_bits("aten::bmm.out", {a.arg(), b.arg()}, {&out});
  }
  husk_op_arg gelu{};
  gelu.kind = HUSK_ARG_STRING;
  gelu.string = "gelu";
  // Rows and columns of several parts, an activation and a residual.
  for (auto& [m, k, n] : {std::array<int64_t, 3>{16, 128, 384}, {410, 70, 200}, {7, 300, 900}}) {
    Tensor x = filled(HUSK_F32, {m, k}), weight = filled(HUSK_F32, {n, k}),
           bias = filled(HUSK_F32, {n}), residual = filled(HUSK_F32, {m, n}), out(HUSK_F32, {m, n});
    expect_same_bits("husk::linear", {x.arg(), weight.arg(), bias.arg(), residual.arg(), gelu},
                     {&out});
  }
  Tensor a = filled(HUSK_F32, {100, 10}), b = filled(HUSK_F32, {10, 100}),
         out(HUSK_F32, {100, 100});
  // The product is too small for threads.
  expect_same_bits("aten::mm.out", {a.arg(), b.arg()}, {&out}, false);
}

TEST_F(Parts, Convolution) {
  const int64_t one_pair[] = {1, 1}, zero_pair[] = {0, 0};
  husk_op_arg ones{}, zeros{};
  ones.kind = zeros.kind = HUSK_ARG_INTS;
  ones.count = zeros.count = 2;
  ones.sizes = one_pair;
  zeros.sizes = zero_pair;
  const std::vector<int> channels_last = {0, 2, 3, 1};
  for (const std::vector<int>& order : {std::vector<int>{}, channels_last}) {
    Tensor input = filled(HUSK_F32, {2, 16, 30, 31}, order),
           weight = filled(HUSK_F32, {24, 16, 3, 3}), out(HUSK_F32, {2, 24, 30, 31}, order);
    expect_same_bits(
        "aten::convolution",
        {input.arg(), weight.arg(), husk_op_arg{}, ones, ones, ones, int_arg(0), zeros, int_arg(1)},
        {&out});
  }
}

TEST_F(Parts, ConvolutionAndDepthwise) {
  const int64_t one_pair[] = {1, 1}, zero_pair[] = {0, 0}, two_pair[] = {2, 2};
  const auto pair = [](const int64_t* numbers) {
    husk_op_arg arg{};
    arg.kind = HUSK_ARG_INTS;
    arg.count = 2;
    arg.sizes = numbers;
    return arg;
  };
  husk_op_arg relu{};
  relu.kind = HUSK_ARG_STRING;
  relu.string = "relu";
  const std::vector<int> channels_last = {0, 2, 3, 1};
  Tensor input = filled(HUSK_F32, {3, 16, 41, 30}, channels_last),
         weight = filled(HUSK_F32, {100, 16, 1, 1}), thin = filled(HUSK_F32, {100, 1, 5, 5}),
         out(HUSK_F32, {3, 100, 41, 30}, channels_last);
  expect_same_bits("husk::convolution_depthwise",
                   {input.arg(), weight.arg(), husk_op_arg{}, pair(one_pair), pair(zero_pair),
                    pair(one_pair), husk_op_arg{}, relu, thin.arg(), husk_op_arg{}, pair(one_pair),
                    pair(two_pair), pair(one_pair), husk_op_arg{}, relu},
                   {&out});
}

TEST_F(Parts, RangesOfAllPlacesThatAFileMayAskFor) {
  constexpr int64_t kPlaces = int64_t{1} << 62;
  host::PartRanges ranges(kPlaces, kPlaces, 64);
  int64_t part = 0;
  ASSERT_TRUE(ranges.take(63, part));
  EXPECT_EQ(part, kPlaces / 64 * 63);
}

// Each part is taken once, by whatever number of threads, and threads begin with their own places.
TEST_F(Parts, Ranges) {
  for (const int64_t positions : {1, 2, 3, 7, 64, 200}) {
    for (const int64_t rows : {1, 2, 5}) {
      for (const int64_t threads : {1, 2, 3, 8, 100}) {
        host::PartRanges ranges(positions * rows, positions, threads);
        std::vector<int> taken(static_cast<size_t>(positions * rows));
        for (int64_t range = 0; range < ranges.count; ++range) {
          int64_t first = 0, part = 0, size = 0;
          for (; ranges.take(range, part); ++size) {
            ASSERT_TRUE(part >= 0 && part < positions * rows);
            if (size == 0) first = part;
            ++taken[static_cast<size_t>(part)];
            const int64_t place = part % positions;
            EXPECT_GE(place, ranges.begin_of(range));
            EXPECT_LT(place, ranges.begin_of(range + 1));
            EXPECT_GE(part, first);
          }
          EXPECT_FALSE(ranges.take(range, part));
        }
        EXPECT_EQ(taken, std::vector<int>(taken.size(), 1));
        EXPECT_EQ(ranges.begin_of(0), 0);
        EXPECT_EQ(ranges.begin_of(ranges.count), positions);
      }
    }
  }
}

TEST_F(Parts, Attention) {
  Tensor query = filled(HUSK_F32, {2, 3, 130, 32}), key = filled(HUSK_F32, {2, 3, 150, 32}),
         out(HUSK_F32, {2, 3, 130, 32}), sums(HUSK_F32, {2, 3, 130});
  expect_same_bits(
      "aten::_scaled_dot_product_flash_attention_for_cpu",
      {query.arg(), key.arg(), key.arg(), float_arg(0), int_arg(1), husk_op_arg{}, husk_op_arg{}},
      {&out, &sums});
}

}  // namespace
}  // namespace husk::host_test
