// Every f16 and bf16 value, converted by the matrix products of each instruction set.
#include "host_device.h"
#include "tensor.h"

namespace husk::host_test {
namespace {

class Element : public HostDevice {
 protected:
  // out[i] = x[i] * factor for all 65536 bit patterns. With `neighbours` the elements are adjacent
  // and go through vectors; otherwise they are converted one at a time.
  void multiply_all(int32_t dtype, double factor, bool neighbours, Tensor& x, Tensor& out) {
    for (int64_t i = 0; i < 65536; ++i) {
      const auto bits = static_cast<uint16_t>(i);
      std::memcpy(x.bytes.data() + 2 * x.element_at({i, 0}), &bits, 2);
    }
    Tensor factor_tensor(dtype, {1, 1});
    factor_tensor.set({0, 0}, factor);
    husk_op_arg from = x.arg(), to = out.arg(HUSK_ACCESS_WRITE);
    std::vector<int64_t> row{1, 65536}, x_row{x.strides[1], x.strides[0]},
        out_row{out.strides[1], out.strides[0]};
    if (neighbours) {  // 1 x 1 times 1 x 65536
      from.sizes = to.sizes = row.data();
      from.strides = x_row.data();
      to.strides = out_row.data();
      ASSERT_EQ(call("aten::mm.out", {factor_tensor.arg(), from, to}), HUSK_OK) << error.text;
    } else {
      ASSERT_EQ(call("aten::mm.out", {from, factor_tensor.arg(), to}), HUSK_OK) << error.text;
    }
  }

  void check(int32_t dtype, double (*round)(double)) {
    for (const CpuSet& set : sets()) {
      use(set);
      for (double factor : {1.0, 1.25, 0.0009765625, 1.0078125, -3.5}) {
        for (int64_t gap : {0, 1}) {
          Tensor x(dtype, {65536, 1}, {}, gap), out(dtype, {65536, 1}, {}, gap);
          multiply_all(dtype, factor, gap == 0, x, out);
          for (int64_t i = 0; i < 65536; ++i) {
            const double expected = round(x.get({i, 0}) * factor), got = out.get({i, 0});
            if (std::isnan(expected)) {
              ASSERT_TRUE(std::isnan(got)) << i;
            } else
              ASSERT_EQ(got, expected) << "bits " << i << " times " << factor << ", " << set.name;
          }
        }
      }
    }
  }
};

TEST_F(Element, Half) { check(HUSK_F16, round_to_half); }
TEST_F(Element, BFloat16) { check(HUSK_BF16, round_to_bfloat16); }

}  // namespace
}  // namespace husk::host_test
