// Calls that the fuzzer of ops found. Each one overflowed an int64_t, which UndefinedBehavior-
// Sanitizer reports.
#include <deque>

#include "host_device.h"
#include "tensor.h"

namespace husk::host_test {
namespace {

class FuzzedOps : public HostDevice {
 protected:
  // A tensor of at most 64 elements.
  husk_op_arg tensor(int32_t dtype, const std::vector<int64_t>& sizes,
                     const std::vector<int64_t>& strides) {
    husk_op_arg a{};
    a.kind = HUSK_ARG_TENSOR;
    a.dtype = dtype;
    a.rank = static_cast<int32_t>(sizes.size());
    a.sizes = ints.emplace_back(sizes).data();
    a.strides = ints.emplace_back(strides).data();
    a.data = blocks.emplace_back(64 * 16).data();
    return a;
  }
  husk_op_arg list(const std::vector<int64_t>& values) {
    husk_op_arg a{};
    a.kind = HUSK_ARG_INTS;
    a.count = static_cast<int64_t>(values.size());
    a.sizes = ints.emplace_back(values).data();
    return a;
  }
  void refuses(const char* name, const std::vector<husk_op_arg>& args) {
    error = {};
    EXPECT_EQ(call(name, args), HUSK_INVALID_ARGUMENT) << name << ": " << error.text;
  }

 private:
  std::deque<std::vector<int64_t>> ints;
  std::deque<std::vector<unsigned char>> blocks;
};

// The strides of a tensor without elements reach no memory, but ops compute with them.
TEST_F(FuzzedOps, StridesOfEmptyTensors) {
  const husk_op_arg none{};
  refuses("aten::view.dtype",
          {tensor(HUSK_F32, {3}, {1}), none, tensor(HUSK_U16, {0}, {int64_t{1} << 62})});
  refuses("aten::view.dtype", {tensor(HUSK_BF16, {0, int64_t{1} << 32}, {INT64_MAX, 64}), none,
                               tensor(HUSK_U8, {3, 0}, {2, 5})});
  refuses("aten::view.dtype",
          {tensor(HUSK_BOOL, {}, {}), none, tensor(HUSK_F32, {0, 0, 2}, {INT64_MAX - 8, 68, 2})});
}

// A size that is large beside a size of 0, times the stride.
TEST_F(FuzzedOps, SizesOfEmptyTensors) {
  const husk_op_arg none{};
  const int64_t large = int64_t{1} << 61;
  refuses("aten::full_like", {tensor(HUSK_C128, {1, 1}, {1, 1}), float_arg(1), none, none, none,
                              int_arg(-2), none, tensor(HUSK_C128, {0, int64_t{1} << 62}, {4, 2})});
  refuses("aten::ne.Tensor", {tensor(HUSK_F16, {}, {}), tensor(HUSK_F16, {}, {}),
                              tensor(HUSK_F16, {0, 1, large, 1}, {2, 8, 8, 8})});
  refuses("aten::full", {list({0, 0, large, 0}), int_arg(2), none, none, none, none,
                         tensor(HUSK_C64, {0, 0, large, 0}, {1, 4, 8, 2})});
  refuses("aten::flip", {tensor(HUSK_I32, {1, large, 0}, {27, 9, 3}), list({1}),
                         tensor(HUSK_I32, {1, large, 0}, {27, 9, 3})});
}

}  // namespace
}  // namespace husk::host_test
