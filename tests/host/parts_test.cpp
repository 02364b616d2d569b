// Products, convolutions and attention on the application's threads: the same bits as without them.
#include <atomic>
#include <thread>

#include "host_device.h"
#include "tensor.h"

namespace husk::host_test {
namespace {

class Parts : public HostDevice {
 protected:
  static void parallel(void* user, uint32_t n, void (*body)(void* argument, uint32_t index), void* argument) {
    static_cast<std::atomic<int>*>(user)->fetch_add(static_cast<int>(n));
    std::vector<std::thread> others;
    for (uint32_t i = 1; i < n; i++) others.emplace_back(body, argument, i);
    body(argument, 0);
    for (std::thread& other : others) other.join();
  }

  // Runs an op whose outputs are the last `outputs` tensors, without threads and with some, and compares.
  void same(const char* name, std::vector<husk_op_arg> args, std::vector<Tensor*> outputs, bool expected = true) {
    uint32_t count = 0;
    const husk_op* ops = husk_host_ops(&count);
    const husk_op* op = nullptr;
    for (uint32_t i = 0; i < count; i++) op = std::string(ops[i].name) == name ? &ops[i] : op;
    ASSERT_NE(op, nullptr);
    for (Tensor* output : outputs) args.push_back(output->arg(HUSK_ACCESS_WRITE));
    std::vector<std::vector<unsigned char>> before;
    for (uint32_t threads : {0u, 1u, 2u, 3u, 7u}) {
      for (Tensor* output : outputs)
        std::fill(output->bytes.begin(), output->bytes.end(), static_cast<unsigned char>(0x5a));
      used = 0;
      const husk_threads some{&used, threads, parallel};
      const husk_op_context context{op->user, device, nullptr, threads ? &some : nullptr};
      ASSERT_EQ(op->call(&context, args.data(), static_cast<uint32_t>(args.size()), &error), HUSK_OK) << error.text;
      EXPECT_EQ(used > 1, expected && threads > 1) << name << " with " << threads;
      for (size_t i = 0; i < outputs.size(); i++) {
        if (threads == 0) before.push_back(outputs[i]->bytes);
        else EXPECT_EQ(outputs[i]->bytes, before[i]) << name << " with " << threads << " threads";
      }
    }
  }
  Tensor filled(int32_t dtype, std::vector<int64_t> sizes, std::vector<int> order = {}) {
    Tensor tensor(dtype, std::move(sizes), std::move(order));
    tensor.randomize(random);
    return tensor;
  }

  std::atomic<int> used{0};
  std::mt19937 random{5};
};

TEST_F(Parts, Products) {
  const int64_t shapes[][3] = {{300, 70, 600}, {1, 1500, 2000}, {1999, 600, 3}, {193, 200, 257}};
  for (int32_t dtype : {int{HUSK_F32}, int{HUSK_BF16}}) {
    for (auto& [m, k, n] : shapes) {
      Tensor a = filled(dtype, {m, k}), b = filled(dtype, {k, n}, {1, 0}), bias = filled(dtype, {n}),
             out(dtype, {m, n});
      same("aten::addmm.out", {bias.arg(), a.arg(), b.arg(), int_arg(1), int_arg(2)}, {&out});
    }
    Tensor a = filled(dtype, {9, 40, 50}), b = filled(dtype, {9, 50, 70}), out(dtype, {9, 40, 70});
    same("aten::bmm.out", {a.arg(), b.arg()}, {&out});
  }
  Tensor a = filled(HUSK_F32, {100, 10}), b = filled(HUSK_F32, {10, 300}), out(HUSK_F32, {100, 300});
  same("aten::mm.out", {a.arg(), b.arg()}, {&out}, false);   // too little work
}

TEST_F(Parts, Convolution) {
  Tensor input = filled(HUSK_F32, {2, 16, 30, 31}), weight = filled(HUSK_F32, {24, 16, 3, 3}),
         out(HUSK_F32, {2, 24, 30, 31});
  const int64_t ones[] = {1, 1}, zeros[] = {0, 0};
  husk_op_arg one{}, zero{};
  one.kind = zero.kind = HUSK_ARG_INTS;
  one.count = zero.count = 2;
  one.sizes = ones;
  zero.sizes = zeros;
  same("aten::convolution", {input.arg(), weight.arg(), husk_op_arg{}, one, one, one, int_arg(0), zero, int_arg(1)},
       {&out});
}

TEST_F(Parts, Attention) {
  Tensor query = filled(HUSK_F32, {2, 3, 130, 32}), key = filled(HUSK_F32, {2, 3, 150, 32}),
         out(HUSK_F32, {2, 3, 130, 32}), sums(HUSK_F32, {2, 3, 130});
  same("aten::_scaled_dot_product_flash_attention_for_cpu",
       {query.arg(), key.arg(), key.arg(), float_arg(0), int_arg(1), husk_op_arg{}, husk_op_arg{}}, {&out, &sums});
}

}  // namespace
}  // namespace husk::host_test
