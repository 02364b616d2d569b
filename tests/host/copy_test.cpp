// aten::copy_: strides, broadcasting, every element size.
#include <husk/detail/dtype.h>

#include "host_device.h"
#include "tensor.h"

namespace husk::host_test {
namespace {

class Copy : public HostDevice {
 protected:
  std::mt19937 random{3};
};

TEST_F(Copy, StridesAndBroadcast) {
  const std::vector<int> orders[] = {{0, 1, 2}, {2, 0, 1}, {1, 2, 0}};
  const std::vector<int64_t> shapes[] = {{4, 3, 5}, {1, 3, 5}, {4, 1, 1}, {3, 5}, {5}, {}};
  for (int32_t dtype : {int{HUSK_F32}, int{HUSK_F64}, int{HUSK_F16}}) {
    for (auto& order : orders) {
      for (auto& shape : shapes) {
        for (int64_t gap : {0, 2}) {
          Tensor to(dtype, {4, 3, 5}, order, gap, 1), from(dtype, shape, {}, gap);
          from.randomize(random);
          const Tensor before = to;
          ASSERT_EQ(call("aten::copy_", {to.arg(HUSK_ACCESS_WRITE), from.arg(), int_arg(0)}),
                    HUSK_OK)
              << error.text;
          Tensor rest = to;
          for (int64_t i = 0; i < 60; ++i) {
            const int64_t at[] = {i / 15, i / 5 % 3, i % 5};
            int64_t source = from.offset;
            for (size_t d = 0; d < shape.size(); ++d)
              if (shape[d] > 1) source += at[3 - shape.size() + d] * from.strides[d];
            ASSERT_EQ(to.get({at[0], at[1], at[2]}), from.get(source)) << i;
            const size_t size = element_bytes(dtype),
                         byte = to.element_at({at[0], at[1], at[2]}) * size;
            std::memcpy(rest.bytes.data() + byte, before.bytes.data() + byte, size);
          }
          ASSERT_EQ(rest.bytes, before.bytes);
        }
      }
    }
  }
}

TEST_F(Copy, EveryDtype) {
  const int64_t size = 3, stride = 1;
  for (int32_t dtype = HUSK_BOOL; dtype < husk::detail::kDtypeCount; ++dtype) {
    alignas(16) unsigned char from[48], to[48];
    for (int i = 0; i < 48; ++i) from[i] = static_cast<unsigned char>(i + 1);
    std::memset(to, 0, sizeof to);
    husk_op_arg target{}, source{};
    target.kind = source.kind = HUSK_ARG_TENSOR;
    target.dtype = source.dtype = dtype;
    target.rank = source.rank = 1;
    target.sizes = source.sizes = &size;
    target.strides = source.strides = &stride;
    target.data = to;
    source.data = from;
    ASSERT_EQ(call("aten::copy_", {target, source}), HUSK_OK) << error.text;
    const size_t bytes = 3 * size_t{husk::detail::element_bytes(dtype)};
    EXPECT_EQ(std::memcmp(to, from, bytes), 0) << dtype;
    EXPECT_TRUE(bytes == 48 || to[bytes] == 0) << dtype;
  }
}

TEST_F(Copy, Empty) {
  Tensor to(HUSK_F32, {0, 3}), from(HUSK_F32, {1, 3});
  husk_op_arg target = to.arg(HUSK_ACCESS_WRITE);
  target.data = nullptr;
  EXPECT_EQ(call("aten::copy_", {target, from.arg()}), HUSK_OK) << error.text;
}

TEST_F(Copy, Refuses) {
  Tensor to(HUSK_F32, {4, 3}), wrong(HUSK_F32, {4}), deep(HUSK_F32, {1, 4, 3});
  const std::pair<Tensor*, const char*> cases[] = {
      {&wrong, "argument src has a shape that does not broadcast"},
      {&deep, "argument src has a shape"}};
  for (auto [from, text] : cases) {
    EXPECT_EQ(call("aten::copy_", {to.arg(HUSK_ACCESS_WRITE), from->arg()}), HUSK_INVALID_ARGUMENT);
    EXPECT_NE(std::string(error.text).find(text), std::string::npos) << error.text;
  }
}

}  // namespace
}  // namespace husk::host_test
