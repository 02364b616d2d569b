// Arguments that a hostile file may choose for the ops of linear algebra, of neural networks, of
// random numbers and of spectra: sizes whose products wrap around, strides of 0 and strides that
// lead far away, numbers that no int holds, states that no generator has. The ops refuse them, or
// finish at once inside of their tensors.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <limits>

#include "host_device.h"
#include "random/generator.h"
#include "tensor.h"

namespace husk::host_test {
namespace {

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
constexpr int64_t kHuge = int64_t{1} << 62;   // the most elements of a tensor
constexpr int64_t kReach = int64_t{1} << 54;  // the most elements from one end to the other
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

class HostileArguments : public HostDevice {
 protected:
  // A tensor at `data` with these sizes and strides.
  husk_op_arg tensor(int32_t dtype, std::vector<int64_t> sizes, std::vector<int64_t> strides,
                     void* data) {
    husk_op_arg a{};
    a.kind = HUSK_ARG_TENSOR;
    a.access = HUSK_ACCESS_READ | HUSK_ACCESS_WRITE;
    a.dtype = dtype;
    a.rank = static_cast<int32_t>(sizes.size());
    a.data = data;
    a.sizes = keep(std::move(sizes));
    a.strides = keep(std::move(strides));
    return a;
  }
  // A tensor of f32 whose elements are all the same one.
  husk_op_arg repeated(std::vector<int64_t> sizes) {
    const std::vector<int64_t> zeros(sizes.size());
    return tensor(HUSK_F32, std::move(sizes), zeros, &one);
  }
  // A tensor without elements and without an address. Its strides lead far away.
  husk_op_arg empty(int32_t dtype, std::vector<int64_t> sizes) {
    std::vector<int64_t> far;
    for (const int64_t size : sizes) far.push_back(kReach / std::max<int64_t>(size, 1));
    return tensor(dtype, std::move(sizes), far, nullptr);
  }
  husk_op_arg ints(std::vector<int64_t> values) {
    husk_op_arg a{};
    a.kind = HUSK_ARG_INTS;
    a.count = static_cast<int64_t>(values.size());
    a.sizes = keep(std::move(values));
    return a;
  }
  husk_op_arg text(const char* value) {
    husk_op_arg a{};
    a.kind = HUSK_ARG_STRING;
    a.string = value;
    return a;
  }
  // The state of a generator.
  husk_op_arg state_of(host::Generator& generator) {
    return tensor(HUSK_U8, {sizeof generator}, {1}, &generator);
  }
  void refuses(const char* name, const std::vector<husk_op_arg>& args, husk_status status,
               const char* words) {
    EXPECT_EQ(call(name, args), status) << name;
    EXPECT_NE(std::string(error.text).find(words), std::string::npos) << error.text;
  }
  void accepts(const char* name, const std::vector<husk_op_arg>& args) {
    error = {};
    EXPECT_EQ(call(name, args), HUSK_OK) << error.text;
  }

  static constexpr husk_op_arg kNone{};
  float one = 1;

 private:
  const int64_t* keep(std::vector<int64_t> values) {
    return kept.emplace_back(std::move(values)).data();
  }
  std::deque<std::vector<int64_t>> kept;
};

// ---- products of sizes of several tensors ----

TEST_F(HostileArguments, PairsOfRowsThatWrapAround) {
  // rows * (rows - 1) is 2 * kPairs modulo 2^64.
  constexpr int64_t kRows = 2790935979167403064, kPairs = 4;
  Tensor out(HUSK_F32, {kPairs});
  refuses("aten::_pdist_forward", {repeated({kRows, 1}), float_arg(2), out.arg()}, HUSK_UNSUPPORTED,
          "too many rows");
  Tensor rows(HUSK_F32, {4, 1}), six(HUSK_F32, {6}), three(HUSK_F32, {3, 1});
  for (int i = 0; i < 4; ++i) rows.set({i, 0}, i * i);
  accepts("aten::_pdist_forward", {rows.arg(), float_arg(1), six.arg()});
  EXPECT_EQ(six.get({5}), 5);
  rows.sizes[0] = 3;
  six.sizes[0] = 3;
  accepts("aten::_pdist_forward", {rows.arg(), float_arg(1), six.arg()});
  EXPECT_EQ(six.get({2}), 3);
}

TEST_F(HostileArguments, GroupsThatWrapAround) {
  // Three channels in each of these groups make 2 channels modulo 2^64.
  constexpr int64_t kGroups = 6148914691236517206;
  Tensor out(HUSK_F32, {1, 2, 4});
  const husk_op_arg single = ints({1}), zero = ints({0}), bias = tensor(HUSK_F32, {2}, {0}, &one);
  refuses("aten::convolution",
          {empty(HUSK_F32, {1, 0, 4}), empty(HUSK_F32, {0, 3, 1}), bias, single, zero, single,
           int_arg(1), zero, int_arg(kGroups), out.arg()},
          HUSK_INVALID_ARGUMENT, "argument groups is too large");
  refuses("aten::convolution",
          {repeated({1, 2, 4}), empty(HUSK_F32, {0, 3, 1}), kNone, single, zero, single, int_arg(0),
           zero, int_arg(kGroups), empty(HUSK_F32, {1, 0, 4})},
          HUSK_INVALID_ARGUMENT, "argument groups is too large");
}

TEST_F(HostileArguments, ConvolutionsOfCodes) {
  int8_t code = 2;
  uint8_t out = 0;
  constexpr int64_t kMany = int64_t{1} << 31;
  const auto call = [&](const husk_op_arg& input, const husk_op_arg& weight, int64_t padding,
                        int64_t dilation, int64_t groups, const husk_op_arg& result) {
    const husk_op_arg ones = ints({1, 1}), scale = float_arg(1), zero = int_arg(0);
    return std::vector<husk_op_arg>{input,
                                    weight,
                                    repeated({1}),
                                    kNone,
                                    ones,
                                    ints({padding, padding}),
                                    ints({dilation, dilation}),
                                    int_arg(groups),
                                    scale,
                                    zero,
                                    kNone,
                                    kNone,
                                    kNone,
                                    scale,
                                    zero,
                                    text("none"),
                                    scale,
                                    int_arg(9),
                                    zero,
                                    int_arg(255),
                                    zero,
                                    result};
  };
  const auto input = [&](int64_t channels) {
    return tensor(HUSK_I8, {1, channels, 1, 1}, {kReach, 0, kReach, kReach}, &code);
  };
  const auto result = [&](int64_t channels) {
    return tensor(HUSK_U8, {1, channels, 1, 1}, {1, 0, 1, 1}, &out);
  };
  // Both taps lie far outside of the image, where addresses would leave an int64_t.
  for (const int64_t channels : {int64_t{1}, int64_t{2}}) {
    out = 0;
    accepts("husk::convolution_int8",
            call(input(channels), tensor(HUSK_I8, {1, channels, 2, 2}, {0, 0, 0, 0}, &code),
                 kMany / 2, kMany, 1, result(1)));
    EXPECT_EQ(out, 9);
  }
  refuses("husk::convolution_int8",
          call(input(1), tensor(HUSK_I8, {1, 1, kHuge / 4, 4}, {0, 0, 0, 0}, &code), 0, 1, 1,
               result(1)),
          HUSK_UNSUPPORTED, "more than 65536 elements");
  refuses("husk::convolution_int8",
          call(input(1), empty(HUSK_I8, {0, 3, 1, 1}), 0, 1, 6148914691236517206, result(1)),
          HUSK_INVALID_ARGUMENT, "argument groups is too large");
  refuses("husk::convolution_int8",
          call(input(1), tensor(HUSK_I8, {1, 1, 1, 1}, {0, 0, 0, 0}, &code), kMany + 1, 1, 1,
               result(1)),
          HUSK_INVALID_ARGUMENT, "argument padding is out of range");
  accepts("husk::convolution_int8",
          call(empty(HUSK_I8, {0, 1, kHuge / 4, 1}), empty(HUSK_I8, {0, 1, 1, 1}), 0, 1, 1,
               empty(HUSK_U8, {0, 0, kHuge / 4, 1})));
}

TEST_F(HostileArguments, SpansThatWrapAround) {
  Tensor out(HUSK_F32, {1, 1, 1});
  const husk_op_arg single = ints({1}), zero = ints({0}), far = ints({int64_t{1} << 31});
  constexpr int64_t kSize = (int64_t{1} << 33) + 1;  // (kSize - 1) * 2^31 is 2^64
  for (const int64_t transposed : {0, 1}) {
    refuses("aten::convolution",
            {repeated({1, 1, 1}), repeated({1, 1, kSize}), kNone, single, zero, far,
             int_arg(transposed), zero, int_arg(1), out.arg()},
            HUSK_UNSUPPORTED, "too large");
  }
  refuses("aten::convolution",
          {repeated({1, 1, kSize}), repeated({1, 1, 1}), kNone, far, zero, single, int_arg(1), zero,
           int_arg(1), out.arg()},
          HUSK_UNSUPPORTED, "too large");
  refuses("aten::convolution",
          {repeated({1, 1, kHuge}), repeated({1, 1, kHuge}), kNone, single, zero, single,
           int_arg(1), ints({int64_t{1} << 31}), int_arg(1), out.arg()},
          HUSK_UNSUPPORTED, "too large");
  // The steps of the input reach 2^62 - 1 and the kernel spans 3 * 2^61 more.
  refuses("aten::convolution",
          {repeated({1, 1, kHuge}), repeated({1, 1, kHuge / 2 + 1}), kNone, single, zero, ints({3}),
           int_arg(1), zero, int_arg(1), out.arg()},
          HUSK_UNSUPPORTED, "too large");
}

TEST_F(HostileArguments, AKernelWithoutTaps) {
  const husk_op_arg single = ints({1}), zero = ints({0}), bias = tensor(HUSK_F32, {2}, {0}, &one);
  for (const int64_t transposed : {0, 1}) {
    // A kernel of size n takes n - 1 positions away, or adds them.
    Tensor out(HUSK_F32, {1, 2, transposed ? 2 : 4});
    accepts("aten::convolution", {repeated({1, 2, 3}), empty(HUSK_F32, {2, 2, 0}), bias, single,
                                  zero, single, int_arg(transposed), zero, int_arg(1), out.arg()});
    EXPECT_EQ(out.get({0, 1, 1}), 1);
  }
}

// A stride below 0 reads the input in reverse order.
TEST_F(HostileArguments, AReversedInputOfAConvolution) {
  for (const int64_t channels : {1, 40}) {
    Tensor forward(HUSK_F32, {1, channels, 9}), reversed(HUSK_F32, {1, channels, 9});
    Tensor weight(HUSK_F32, {channels, channels, 3});
    for (int64_t c = 0; c < channels; ++c) {
      for (int64_t i = 0; i < 9; ++i) {
        forward.set({0, c, i}, static_cast<double>(i * i + c));
        reversed.set({0, c, 8 - i}, static_cast<double>(i * i + c));
      }
    }
    for (int64_t i = 0; i < channels * channels * 3; ++i) weight.set(i, static_cast<double>(i % 5));
    reversed.strides[2] = -1;
    reversed.offset = 8;
    Tensor expected(HUSK_F32, {1, channels, 9}), out = expected;
    const husk_op_arg single = ints({1}), zero = ints({0});
    const auto run = [&](Tensor& input, Tensor& to) {
      accepts("aten::convolution", {input.arg(), weight.arg(), kNone, single, single, single,
                                    int_arg(0), zero, int_arg(1), to.arg()});
    };
    run(forward, expected);
    run(reversed, out);
    EXPECT_EQ(out.bytes, expected.bytes);
  }
}

TEST_F(HostileArguments, WindowsThatWrapAround) {
  Tensor out(HUSK_F32, {1, 4});
  refuses("aten::adaptive_avg_pool1d", {repeated({1, kHuge}), ints({4}), out.arg()},
          HUSK_UNSUPPORTED, "too large");
  std::vector<int64_t> indices(4);
  Tensor maxima(HUSK_F32, {1, 2, 2});
  refuses("aten::adaptive_max_pool2d",
          {repeated({1, 1, kHuge}), ints({2, 2}), maxima.arg(),
           tensor(HUSK_I64, {1, 2, 2}, {4, 2, 1}, indices.data())},
          HUSK_UNSUPPORTED, "too large");
}

TEST_F(HostileArguments, MoreRowsThanPivotsCount) {
  constexpr int64_t kRows = int64_t{1} << 32;
  int32_t pivot = 0, info = 0;
  refuses("aten::linalg_lu_factor_ex",
          {repeated({kRows, 1}), int_arg(1), int_arg(0), tensor(HUSK_F32, {kRows, 1}, {1, 1}, &one),
           tensor(HUSK_I32, {1}, {1}, &pivot), tensor(HUSK_I32, {}, {}, &info)},
          HUSK_UNSUPPORTED, "more than 2147483647 rows");
}

// Sizes whose products wrap around need more memory than any workspace has.
TEST_F(HostileArguments, WorkspacesAreAsLargeAsTheOpNeeds) {
  std::vector<double> scratch(60);
  const husk_op_arg workspace = tensor(HUSK_F64, {60}, {1}, scratch.data());
  const husk_op_arg all_at_one_place = tensor(HUSK_F64, {kHuge}, {0}, scratch.data());
  constexpr int64_t kSide = int64_t{1} << 31;
  Tensor vectors(HUSK_F32, {2, 2}), values(HUSK_F32, {2}), matrix(HUSK_F32, {2, 2});
  refuses("aten::linalg_matrix_exp",
          {repeated({kSide, kSide}), repeated({kSide, kSide}), workspace}, HUSK_INVALID_ARGUMENT,
          "argument workspace is smaller than the op needs");
  refuses("aten::_linalg_eigh",
          {repeated({kSide, kSide}), text("L"), int_arg(0), repeated({kSide}), values.arg(),
           all_at_one_place},
          HUSK_INVALID_ARGUMENT, "argument workspace is not contiguous");
  refuses("aten::_linalg_eigh",
          {matrix.arg(), text("L"), int_arg(1), values.arg(), vectors.arg(),
           tensor(HUSK_F64, {11}, {1}, scratch.data())},
          HUSK_INVALID_ARGUMENT, "argument workspace is smaller than the op needs");
  accepts("aten::_linalg_eigh", {matrix.arg(), text("L"), int_arg(1), values.arg(), vectors.arg(),
                                 tensor(HUSK_F64, {12}, {1}, scratch.data())});
  refuses("aten::linalg_qr",
          {repeated({kSide * 2, kSide * 2}), text("r"), empty(HUSK_F32, {0}),
           repeated({kSide * 2, kSide * 2}), workspace},
          HUSK_INVALID_ARGUMENT, "");
}

TEST_F(HostileArguments, MoreCategoriesThanAHeapCounts) {
  host::Generator generator;
  generator.start(1);
  int64_t category = 0;
  refuses("aten::multinomial",
          {repeated({int64_t{1} << 33}), int_arg(1), int_arg(0), kNone,
           tensor(HUSK_I64, {1}, {1}, &category), state_of(generator)},
          HUSK_INVALID_INPUT, "more than 2^32 categories");
}

// ---- loops over nothing ----

TEST_F(HostileArguments, ManyRowsWithoutElements) {
  accepts("aten::_cdist_forward", {repeated({kHuge, 1}), empty(HUSK_F32, {0, 1}), float_arg(2),
                                   kNone, empty(HUSK_F32, {kHuge, 0})});
  accepts("aten::linalg_solve_triangular",
          {empty(HUSK_F32, {kHuge, 0, 0}), empty(HUSK_F32, {kHuge, 0, 0}), int_arg(1), int_arg(1),
           int_arg(0), empty(HUSK_F32, {kHuge, 0, 0})});
  std::vector<double> scratch(60);
  const husk_op_arg workspace = tensor(HUSK_F64, {60}, {1}, scratch.data());
  accepts("aten::_linalg_svd",
          {empty(HUSK_F32, {kHuge / 16, 0, 3}), int_arg(0), int_arg(0), kNone, repeated({3}),
           empty(HUSK_F32, {kHuge / 16, 0}), repeated({3}), workspace});
  accepts("aten::geqrf", {empty(HUSK_F32, {kHuge / 16, 3, 0}), empty(HUSK_F32, {kHuge / 16, 3, 0}),
                          empty(HUSK_F32, {kHuge / 16, 0}), workspace});
  accepts("aten::linalg_lu",
          {empty(HUSK_F32, {kHuge / 16, 0, 3}), int_arg(1), empty(HUSK_F32, {kHuge / 16, 0, 0}),
           empty(HUSK_F32, {kHuge / 16, 0, 0}), empty(HUSK_F32, {kHuge / 16, 0, 3}), workspace});
  accepts("aten::cholesky_inverse",
          {empty(HUSK_F32, {kHuge / 16, 0, 0}), int_arg(0), empty(HUSK_F32, {kHuge / 16, 0, 0})});
  int8_t byte = 1;
  accepts("aten::_int_mm", {tensor(HUSK_I8, {kHuge, 1}, {0, 0}, &byte), empty(HUSK_I8, {1, 0}),
                            empty(HUSK_I32, {kHuge, 0})});
  accepts("aten::mm", {repeated({kHuge, 1}), empty(HUSK_F32, {1, 0}), empty(HUSK_F32, {kHuge, 0})});
  const husk_op_arg self = repeated({1, 1});
  Tensor out(HUSK_F32, {2, 3});
  accepts("aten::addbmm", {self, empty(HUSK_F32, {kHuge / 4, 2, 0}),
                           empty(HUSK_F32, {kHuge / 4, 0, 3}), int_arg(2), int_arg(1), out.arg()});
  EXPECT_EQ(out.get({1, 2}), 2);
  accepts("aten::_adaptive_avg_pool2d",
          {repeated({1, 4, 4}), ints({kHuge, 0}), empty(HUSK_F32, {1, kHuge, 0})});
  accepts("aten::adaptive_max_pool2d",
          {repeated({1, 4, 4}), ints({kHuge, 0}), empty(HUSK_F32, {1, kHuge, 0}),
           empty(HUSK_I64, {1, kHuge, 0})});
  accepts("aten::adaptive_avg_pool1d",
          {repeated({kHuge, 1}), ints({0}), empty(HUSK_F32, {kHuge, 0})});
}

// ---- strides of tensors without elements, and of dimensions of one element ----

TEST_F(HostileArguments, FactorsWithoutElements) {
  for (const int32_t dtype : {HUSK_F32, HUSK_F64}) {
    Tensor out(dtype, {200, 300}), batches(dtype, {3, 20, 4}), thin(dtype, {2, 300});
    accepts("aten::mm", {empty(dtype, {200, 0}), empty(dtype, {0, 300}), out.arg()});
    EXPECT_EQ(out.get({199, 299}), 0);
    accepts("aten::mm", {empty(dtype, {2, 0}), empty(dtype, {0, 300}), thin.arg()});
    EXPECT_EQ(thin.get({1, 299}), 0);
    accepts("aten::bmm", {empty(dtype, {3, 20, 0}), empty(dtype, {3, 0, 4}), batches.arg()});
    EXPECT_EQ(batches.get({2, 19, 3}), 0);
  }
  int32_t sums[6];
  accepts("aten::_int_mm",
          {empty(HUSK_I8, {2, 0}), empty(HUSK_I8, {0, 3}), tensor(HUSK_I32, {2, 3}, {3, 1}, sums)});
  EXPECT_EQ(sums[5], 0);
  Tensor distances(HUSK_F32, {4, 3, 3});
  accepts("aten::_cdist_forward", {empty(HUSK_F32, {4, 3, 0}), empty(HUSK_F32, {4, 3, 0}),
                                   float_arg(2), kNone, distances.arg()});
  EXPECT_EQ(distances.get({3, 2, 2}), 0);
  Tensor determinants(HUSK_F32, {2, 3});
  accepts("aten::_linalg_det", {empty(HUSK_F32, {2, 3, 0, 0}), determinants.arg(),
                                empty(HUSK_F32, {2, 3, 0, 0}), empty(HUSK_I32, {2, 3, 0})});
  EXPECT_EQ(determinants.get({1, 2}), 1);
  const husk_op_arg none = ints({});
  Tensor joined(HUSK_F32, {3, 4});
  accepts("aten::_trilinear", {empty(HUSK_F32, {3, 4, 0}), repeated({3, 4, 1}), repeated({3, 4, 1}),
                               none, none, none, ints({2}), int_arg(1), joined.arg()});
  EXPECT_EQ(joined.get({2, 3}), 0);
}

TEST_F(HostileArguments, LayersWithoutElements) {
  Tensor out(HUSK_F32, {2, 3, 4, 2});
  accepts("aten::_scaled_dot_product_flash_attention_for_cpu",
          {empty(HUSK_F32, {2, 3, 4, 0}), empty(HUSK_F32, {2, 3, 5, 0}), repeated({2, 3, 5, 2}),
           float_arg(0), int_arg(0), kNone, kNone, out.arg(), kNone});
  EXPECT_NEAR(out.get({1, 2, 3, 1}), 1, 1e-6);
  accepts("aten::_scaled_dot_product_flash_attention_for_cpu",
          {repeated({2, 3, 4, 2}), empty(HUSK_F32, {2, 3, 0, 2}), empty(HUSK_F32, {2, 3, 0, 2}),
           float_arg(0), int_arg(0), kNone, kNone, out.arg(), kNone});
  EXPECT_EQ(out.get({1, 2, 3, 1}), 0);

  const husk_op_arg single = ints({1}), zero = ints({0}), bias = tensor(HUSK_F32, {2}, {0}, &one);
  Tensor positions(HUSK_F32, {3, 2, 5});
  accepts("aten::convolution",
          {empty(HUSK_F32, {3, 0, 5}), empty(HUSK_F32, {2, 0, 1}), bias, single, zero, single,
           int_arg(0), zero, int_arg(1), positions.arg()});
  EXPECT_EQ(positions.get({2, 1, 4}), 1);
  positions = Tensor(HUSK_F32, {3, 2, 2});
  accepts("aten::convolution", {empty(HUSK_F32, {3, 2, 0}), repeated({2, 2, 1}), bias, single,
                                single, single, int_arg(0), zero, int_arg(1), positions.arg()});
  EXPECT_EQ(positions.get({2, 1, 1}), 1);

  Tensor steps(HUSK_F32, {3, 2, 1}), last(HUSK_F32, {2, 1}), cell(HUSK_F32, {2, 1});
  accepts(
      "aten::mkldnn_rnn_layer",
      {empty(HUSK_F32, {3, 2, 0}), empty(HUSK_F32, {4, 0}), repeated({4, 1}), kNone, kNone,
       repeated({2, 1}), repeated({2, 1}), int_arg(0), ints({}), int_arg(2), int_arg(1), int_arg(1),
       int_arg(0), int_arg(0), int_arg(0), int_arg(0), steps.arg(), last.arg(), cell.arg()});
  EXPECT_EQ(steps.get({2, 1, 0}), last.get({1, 0}));

  std::vector<int64_t> rows{2, 1};
  accepts("aten::embedding_renorm",
          {empty(HUSK_F32, {3, 0}), tensor(HUSK_I64, {2}, {1}, rows.data()), float_arg(1),
           float_arg(2), empty(HUSK_F32, {3, 0})});
}

TEST_F(HostileArguments, PositionsFarOutsideOfAnImage) {
  float coordinates[] = {static_cast<float>(kNaN), 1e30f, -1e30f, 0.5f};
  const husk_op_arg grid = tensor(HUSK_F32, {1, 1, 2, 2}, {4, 4, 2, 1}, coordinates),
                    image = tensor(HUSK_F32, {1, 1, 1, 1}, {kReach, kReach, kReach, kReach}, &one),
                    wide = repeated({1, 1, 1, kHuge});
  for (const int64_t padding : {0, 1, 2}) {
    for (const int64_t align : {0, 1}) {
      for (const int64_t mode : {0, 1}) {
        for (const husk_op_arg& input : {image, wide}) {
          Tensor out(HUSK_F32, {1, 1, 1, 2});
          accepts("aten::grid_sampler_2d",
                  {input, grid, int_arg(mode), int_arg(padding), int_arg(align), out.arg()});
          // NaN is outside of the image; the other paddings move it to the first element.
          EXPECT_EQ(out.get({0, 0, 0, 0}), padding == 0 ? 0 : 1);
        }
      }
    }
  }
}

// ---- numbers ----

TEST_F(HostileArguments, ScalesThatNoIntHolds) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const char* name : {"aten::_upsample_bilinear2d_aa", "aten::_upsample_bicubic2d_aa"}) {
    for (const double scale : {1e-300, 1e-310, 1e300, infinity, -infinity, kNaN, -1.0, 1e-19}) {
      Tensor out(HUSK_F32, {1, 1, 3, 3});
      accepts(name, {repeated({1, 1, 4, 5}), ints({3, 3}), int_arg(0), float_arg(scale),
                     float_arg(scale), out.arg()});
    }
  }
}

TEST_F(HostileArguments, StatesThatNoGeneratorHas) {
  Tensor rates(HUSK_F32, {2}), out(HUSK_F32, {2});
  rates.set({0}, 5);
  rates.set({1}, 20);
  // The words of this generator are all 0 for ever.
  host::Generator zeros{};
  zeros.seeded = 1;
  refuses("aten::poisson", {rates.arg(), kNone, out.arg(), state_of(zeros)}, HUSK_INVALID_INPUT,
          "is not the state of a generator");
  for (const uint32_t bits : {0u, 624u, 625u, 0x80000000u, 0xffffffffu}) {
    host::Generator generator{};
    std::memset(generator.words, 0xff, sizeof generator.words);
    generator.seeded = generator.next = generator.has_double = bits;
    generator.left_double = kNaN;
    const husk_op_arg state = state_of(generator);
    Tensor many(HUSK_F64, {1300});
    accepts("aten::rand", {kNone, kNone, kNone, kNone, kNone, many.arg(), state});
    accepts("aten::randn", {kNone, kNone, kNone, kNone, kNone, many.arg(), state});
    accepts("aten::poisson", {rates.arg(), kNone, out.arg(), state});
    EXPECT_LE(generator.next, 624u);
  }
}

TEST_F(HostileArguments, AStateWhoseBytesWrapAround) {
  host::Generator generator;
  generator.start(1);
  static_assert(sizeof generator % 8 == 0);
  const husk_op_arg state = tensor(HUSK_I64, {(int64_t{1} << 61) + sizeof generator / 8}, {0},
                                   &generator);
  Tensor out(HUSK_F32, {2});
  refuses("aten::rand", {kNone, kNone, kNone, kNone, kNone, out.arg(), state},
          HUSK_INVALID_ARGUMENT, "is not the state of a generator");
}

TEST_F(HostileArguments, RatesAndWeightsThatAreNoNumbers) {
  host::Generator generator;
  generator.start(1);
  const double infinity = std::numeric_limits<double>::infinity();
  int64_t categories[2];
  for (const double value : {kNaN, infinity, -1.0, 1e300}) {
    double number = value;
    Tensor out(HUSK_F64, {3});
    const husk_op_arg numbers = tensor(HUSK_F64, {3}, {0}, &number);
    refuses("aten::poisson", {numbers, kNone, out.arg(), state_of(generator)}, HUSK_INVALID_INPUT,
            "rate");
    if (value < 1e300 || value > 1e300 || std::isnan(value)) {
      refuses("aten::multinomial",
              {numbers, int_arg(2), int_arg(1), kNone, tensor(HUSK_I64, {2}, {1}, categories),
               state_of(generator)},
              HUSK_INVALID_INPUT, "probability");
      refuses("aten::bernoulli", {numbers, kNone, out.arg(), state_of(generator)},
              HUSK_INVALID_INPUT, "probability");
    }
  }
  double large = 1.7e308;  // the sum of the weights is infinite
  for (const int64_t replacement : {0, 1}) {
    accepts("aten::multinomial",
            {tensor(HUSK_F64, {3}, {0}, &large), int_arg(2), int_arg(replacement), kNone,
             tensor(HUSK_I64, {2}, {1}, categories), state_of(generator)});
    for (const int64_t category : categories) EXPECT_TRUE(category >= 0 && category < 3);
  }
  Tensor out(HUSK_F64, {3});
  accepts("aten::exponential", {kNone, float_arg(infinity), kNone, out.arg(), state_of(generator)});
  refuses("aten::exponential", {kNone, float_arg(kNaN), kNone, out.arg(), state_of(generator)},
          HUSK_INVALID_INPUT, "positive");
}

TEST_F(HostileArguments, RangesOfAllInts) {
  host::Generator generator;
  generator.start(1);
  const husk_op_arg state = state_of(generator);
  int64_t values[3];
  const husk_op_arg out = tensor(HUSK_I64, {3}, {1}, values);
  const int64_t low = std::numeric_limits<int64_t>::min(), high = kMax;
  accepts("aten::randint.low_out", {int_arg(low), int_arg(high), ints({3}), out, state});
  refuses("aten::randint.low_out", {int_arg(high), int_arg(low), ints({3}), out, state},
          HUSK_INVALID_INPUT, "no values");
  refuses("aten::randperm", {int_arg(low), kNone, kNone, kNone, kNone, out, state},
          HUSK_INVALID_ARGUMENT, "has size 3");
  Tensor window(HUSK_F32, {3});
  for (const int64_t length : {low, high, int64_t{0}})
    refuses("aten::hann_window", {int_arg(length), kNone, kNone, kNone, kNone, window.arg()},
            HUSK_INVALID_ARGUMENT, "has size 3");
}

// ---- indices and lists ----

TEST_F(HostileArguments, BagsOutsideOfTheTable) {
  Tensor table(HUSK_F32, {4, 3}), out(HUSK_F32, {2, 3});
  std::vector<int64_t> indices{0, 1, 2}, offsets{0, 2};
  const auto run = [&](const char* words) {
    refuses("aten::_embedding_bag",
            {table.arg(), tensor(HUSK_I64, {3}, {1}, indices.data()),
             tensor(HUSK_I64, {2}, {1}, offsets.data()), int_arg(0), int_arg(0), int_arg(0), kNone,
             int_arg(0), int_arg(-1), out.arg(), kNone, kNone, kNone},
            HUSK_INVALID_INPUT, words);
  };
  for (const int64_t index : {int64_t{-1}, int64_t{4}, kMax, -kMax}) {
    indices[1] = index;
    run("out of range");
  }
  indices[1] = 1;
  for (const int64_t offset : {int64_t{-1}, int64_t{4}, kMax, -kMax}) {
    offsets = {0, offset};
    run("offsets of bag");
    offsets = {offset, 2};
    run("offsets of bag");
  }
}

TEST_F(HostileArguments, ListsWithoutNumbers) {
  husk_op_arg broken = ints({});
  broken.count = 1;
  broken.sizes = nullptr;
  const husk_op_arg none = ints({}), number = repeated({2});
  Tensor out(HUSK_F32, {2});
  for (uint32_t at = 3; at < 7; ++at) {
    std::vector<husk_op_arg> args{number, number,    number,     none,     none,
                                  none,   ints({0}), int_arg(1), out.arg()};
    args[at] = broken;
    EXPECT_EQ(call("aten::_trilinear", args), HUSK_INVALID_ARGUMENT) << error.text;
  }
  broken.count = -kMax;
  EXPECT_EQ(call("aten::_trilinear",
                 {number, number, number, broken, none, none, none, int_arg(1), out.arg()}),
            HUSK_INVALID_ARGUMENT);
  float points[4] = {};
  const husk_op_arg line = tensor(HUSK_C64, {2}, {1}, points);
  broken.count = 1;
  refuses("aten::_fft_c2c", {line, broken, int_arg(0), int_arg(1), line}, HUSK_INVALID_ARGUMENT,
          "is not a list");
  for (const int64_t dim : {int64_t{1}, int64_t{-2}, kMax, -kMax - 1})
    refuses("aten::_fft_c2c", {line, ints({dim}), int_arg(0), int_arg(1), line},
            HUSK_INVALID_ARGUMENT, "names no dimension");
}

TEST_F(HostileArguments, SpectraOfManyPoints) {
  float points[4] = {};
  const husk_op_arg dim = ints({0}), out = tensor(HUSK_F32, {2}, {1}, points);
  for (const int64_t size : {int64_t{0}, int64_t{-1}, -kMax - 1})
    refuses("aten::_fft_c2r",
            {tensor(HUSK_C64, {2}, {1}, points), dim, int_arg(0), int_arg(size), out},
            HUSK_INVALID_INPUT, "no points");
  refuses("aten::_fft_c2r",
          {tensor(HUSK_C64, {2}, {1}, points), dim, int_arg(0), int_arg(kMax), out},
          HUSK_UNSUPPORTED, "points along");
  refuses("aten::_fft_r2c",
          {repeated({kHuge}), dim, int_arg(0), int_arg(1),
           tensor(HUSK_C64, {kHuge / 2 + 1}, {0}, points)},
          HUSK_UNSUPPORTED, "points along");
  double scratch[60] = {};
  const husk_op_arg workspace = tensor(HUSK_F64, {60}, {1}, scratch);
  for (const int64_t size : {int64_t{67}, kHuge, kMax})
    refuses("aten::_fft_c2r",
            {tensor(HUSK_C64, {2}, {1}, points), dim, int_arg(0), int_arg(size), out, workspace},
            HUSK_INVALID_ARGUMENT, "argument workspace is smaller than the op needs");
  refuses("aten::_fft_c2r",
          {tensor(HUSK_C64, {kHuge / 2, 2}, {0, 0}, points), ints({0, 1}), int_arg(0), int_arg(2),
           tensor(HUSK_F32, {kHuge / 2, 2}, {0, 0}, points), workspace},
          HUSK_INVALID_ARGUMENT, "argument workspace is smaller than the op needs");
}

TEST_F(HostileArguments, SizesOfALayerThatWrapAround) {
  for (const int64_t hidden : {int64_t{0}, int64_t{-1}, int64_t{1} << 62, kMax, -kMax - 1}) {
    Tensor state(HUSK_F32, {1, 1}), out(HUSK_F32, {1, 1, 1});
    refuses("aten::mkldnn_rnn_layer",
            {repeated({1, 1, 1}), repeated({4, 1}), repeated({4, 1}), kNone, kNone, state.arg(),
             state.arg(), int_arg(0), ints({}), int_arg(2), int_arg(hidden), int_arg(1), int_arg(0),
             int_arg(0), int_arg(0), int_arg(0), out.arg(), state.arg(), state.arg()},
            HUSK_UNSUPPORTED, "is not between 1 and 12288");
  }
}

}  // namespace
}  // namespace husk::host_test
