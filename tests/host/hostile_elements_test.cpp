// Arguments that a hostile file may choose for ops of elementwise, indexing, movement and reduce.
// The tensors keep the op's contract. Everything else is the file's: sizes made large by a stride
// of 0, strides of dimensions with one element or none, indices, scalars and lists.
#include <algorithm>
#include <deque>

#include "core/arguments.h"
#include "host_device.h"
#include "tensor.h"

namespace husk::host_test {
namespace {

constexpr int64_t kFar = int64_t{1} << 60;

class HostileNumbers : public HostDevice {
 protected:
  // A tensor in memory of its own, which has `values` at its beginning and ends after the element
  // with the highest offset.
  template <class T>
  husk_op_arg tensor(int32_t dtype, const std::vector<int64_t>& sizes,
                     const std::vector<int64_t>& strides, const std::vector<T>& values) {
    husk_op_arg a{};
    a.kind = HUSK_ARG_TENSOR;
    a.dtype = dtype;
    a.rank = static_cast<int32_t>(sizes.size());
    a.sizes = keep(sizes);
    a.strides = keep(strides);
    int64_t elements = 1;
    for (size_t d = 0; d < sizes.size(); ++d) {
      if (sizes[d] == 0) elements = 0;
      if (sizes[d] > 1 && elements > 0) elements += (sizes[d] - 1) * strides[d];
    }
    const size_t bytes = static_cast<size_t>(elements * host::dtype_bytes(dtype));
    // An empty tensor has an address too, but no byte there belongs to it.
    memory_blocks.emplace_back(std::max<size_t>(bytes, 1));
    if (!values.empty())
      std::memcpy(memory_blocks.back().data(), values.data(),
                  std::min(bytes, values.size() * sizeof(T)));
    a.data = memory_blocks.back().data();
    return a;
  }
  husk_op_arg f32(const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides,
                  const std::vector<float>& values = {}) {
    return tensor(HUSK_F32, sizes, strides, values);
  }
  husk_op_arg i64(const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides,
                  const std::vector<int64_t>& values = {}) {
    return tensor(HUSK_I64, sizes, strides, values);
  }
  husk_op_arg u8(const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides,
                 const std::vector<uint8_t>& values = {}) {
    return tensor(HUSK_U8, sizes, strides, values);
  }
  husk_op_arg list(const std::vector<int64_t>& values) {
    husk_op_arg a{};
    a.kind = HUSK_ARG_INTS;
    a.count = static_cast<int64_t>(values.size());
    a.sizes = keep(values);
    return a;
  }
  husk_op_arg tensors(const std::vector<husk_op_arg>& entries) {
    lists.push_back(entries);
    husk_op_arg a{};
    a.kind = HUSK_ARG_TENSORS;
    a.count = static_cast<int64_t>(entries.size());
    a.tensors = lists.back().data();
    return a;
  }
  husk_op_arg text(const char* value) {
    husk_op_arg a{};
    a.kind = HUSK_ARG_STRING;
    a.string = value;
    return a;
  }
  husk_op_arg result() {
    husk_op_arg a{};
    a.kind = HUSK_ARG_RESULT;
    a.data = const_cast<int64_t*>(keep({0}));
    return a;
  }
  void refuses(const char* op, const std::vector<husk_op_arg>& args, husk_status status,
               const std::string& reason) {
    error = {};
    EXPECT_EQ(call(op, args), status) << op << ": " << error.text;
    EXPECT_NE(std::string(error.text).find(reason), std::string::npos) << error.text;
  }
  void accepts(const char* op, const std::vector<husk_op_arg>& args) {
    error = {};
    EXPECT_EQ(call(op, args), HUSK_OK) << error.text;
  }

 private:
  const int64_t* keep(std::vector<int64_t> values) {
    values.push_back(0);  // the address of an empty list is not null
    ints.push_back(std::move(values));
    return ints.back().data();
  }
  std::deque<std::vector<int64_t>> ints;
  std::deque<std::vector<unsigned char>> memory_blocks;
  std::deque<std::vector<husk_op_arg>> lists;
};

// ---- all ops ------------------------------------------------------------------------------------

TEST_F(HostileNumbers, MoreElementsThanAnInt64Counts) {
  const husk_op_arg scalar = f32({}, {});
  for (const std::vector<int64_t>& sizes :
       {std::vector<int64_t>{int64_t{1} << 32, int64_t{1} << 32},
        std::vector<int64_t>{int64_t{1} << 62, 2}, std::vector<int64_t>{INT64_MAX},
        std::vector<int64_t>{0, int64_t{1} << 40, int64_t{1} << 40}}) {
    refuses("aten::alias", {f32(sizes, std::vector<int64_t>(sizes.size(), 0)), scalar},
            HUSK_INVALID_ARGUMENT, "has more than 2^62 elements");
  }
}

// The strides of a dimension with one element, and those of an empty tensor, say nothing about
// memory, but ops compute offsets with them.
TEST_F(HostileNumbers, StridesWithoutMeaning) {
  const husk_op_arg to = f32({2, 1, 2}, {2, 2, 1});
  for (int64_t stride : {INT64_MAX, INT64_MIN, kFar}) {
    refuses("aten::clone", {f32({2, 1, 2}, {2, stride, 1}), {}, to}, HUSK_INVALID_ARGUMENT,
            "stride along 1 that is too large");
    refuses("aten::clone", {f32({0, 5}, {5, stride}), {}, f32({0, 5}, {5, 1})},
            HUSK_INVALID_ARGUMENT, "stride along 1 that is too large");
  }
  // The product of this stride and its size is 0 modulo 2^64.
  refuses("aten::clone", {f32({0, 4}, {4, int64_t{1} << 62}), {}, f32({0, 4}, {4, 1})},
          HUSK_INVALID_ARGUMENT, "stride along 1 that is too large");
  accepts("aten::clone", {f32({2, 1, 2}, {2, int64_t{1} << 40, 1}), {}, to});
}

// A list of ints whose address is null.
TEST_F(HostileNumbers, ListWithoutMemory) {
  husk_op_arg broken = list({0, 0});
  broken.sizes = nullptr;
  const husk_op_arg in = f32({2, 3}, {3, 1}), out = f32({2, 3}, {3, 1});
  refuses("aten::flip", {in, broken, out}, HUSK_INVALID_ARGUMENT, "is not a list of ints");
  refuses("aten::constant_pad_nd", {in, broken, int_arg(0), out}, HUSK_INVALID_ARGUMENT,
          "is not a list of");
  refuses("aten::sum.dim_IntList", {in, broken, int_arg(1), {}, f32({1, 1}, {1, 1})},
          HUSK_INVALID_ARGUMENT, "is not a list of ints");
}

// ---- movement -----------------------------------------------------------------------------------

TEST_F(HostileNumbers, DiagonalFarOutside) {
  const husk_op_arg in = f32({2, 3}, {3, 1}), none = f32({0}, {1});
  for (int64_t offset : {INT64_MIN, INT64_MIN + 1, -kFar, kFar, INT64_MAX}) {
    accepts("aten::diagonal", {in, int_arg(offset), int_arg(0), int_arg(1), none});
    accepts("aten::diagonal", {in, int_arg(offset), int_arg(1), int_arg(0), none});
  }
}

TEST_F(HostileNumbers, RepeatNever) {
  accepts("aten::repeat", {u8({kFar}, {0}), list({0}), u8({0}, {int64_t{1} << 57})});
}

// 7 times this number is 1 modulo 2^64.
TEST_F(HostileNumbers, RepeatsThatWrapAround) {
  refuses("aten::repeat", {u8({7}, {1}), list({7905747460161236407}), u8({1}, {1})},
          HUSK_INVALID_ARGUMENT, "is negative or too large");
}

TEST_F(HostileNumbers, PadCutsMoreThanThereIs) {
  accepts("aten::constant_pad_nd",
          {f32({4}, {16}), list({-kFar, kFar}), int_arg(7), f32({4}, {1})});
  refuses("aten::constant_pad_nd",
          {f32({4}, {1}), list({-kFar - 1, kFar}), int_arg(7), f32({4}, {1})},
          HUSK_INVALID_ARGUMENT, "is out of range");
}

// ---- indexing -----------------------------------------------------------------------------------

// Each tensor alone has few enough elements.
TEST_F(HostileNumbers, MaskedShapeOfTwoTensors) {
  const husk_op_arg self = f32({int64_t{1} << 32, 1}, {0, 1}),
                    mask = u8({1, int64_t{1} << 32}, {1, 0});
  refuses("aten::masked_select:sizes", {self, mask, result()}, HUSK_UNSUPPORTED,
          "broadcasts with self to more than 2^36 elements");
  refuses("aten::masked_select", {self, mask, f32({0}, {1})}, HUSK_UNSUPPORTED,
          "broadcasts with self to more than 2^36 elements");
}

// No element is visited, so the number of elements is not limited, and the other sizes have a
// product that no int64_t holds.
TEST_F(HostileNumbers, MaskedShapeWithoutElements) {
  const husk_op_arg self = f32({int64_t{1} << 62, 1, 0}, {0, 0, 0}),
                    mask = u8({1, 2, 1}, {0, 1, 0});
  accepts("aten::masked_select", {self, mask, f32({0}, {1})});
}

TEST_F(HostileNumbers, IndexShapeOfTwoTensors) {
  for (int64_t size : {int64_t{1} << 20, int64_t{1} << 40}) {
    const husk_op_arg rows = i64({size, 1}, {0, 1}), columns = i64({1, size}, {1, 0});
    refuses("aten::index_put_",
            {f32({2, 2}, {2, 1}), tensors({rows, columns}), f32({}, {}), int_arg(0)},
            HUSK_UNSUPPORTED, "selects more than 2^36 elements");
  }
}

// A mask is read once, and not again for each row of the result.
TEST_F(HostileNumbers, LongMaskAndManyRows) {
  constexpr int64_t kMask = 1 << 20, kRows = 1 << 16;
  std::vector<uint8_t> ends(kMask), bytes(kMask);
  ends.front() = ends.back() = 1;
  bytes.back() = 7;
  const husk_op_arg self = u8({kMask, 1}, {1, 1}, bytes);
  const husk_op_arg indices = tensors(
      {tensor(HUSK_BOOL, {kMask}, {1}, ends), i64({kRows, 1}, {0, 1})});
  const husk_op_arg out = u8({kRows, 2}, {2, 1});
  accepts("aten::index.Tensor", {self, indices, out});
  for (int64_t i = 0; i < 2 * kRows; ++i)
    ASSERT_EQ(static_cast<const uint8_t*>(out.data)[i], i % 2 ? 7 : 0) << i;
}

// Values for the same element follow each other in the order of the result.
TEST_F(HostileNumbers, MaskAndEqualRows) {
  const husk_op_arg self = f32({3, 2}, {2, 1}), values = f32({2, 2}, {2, 1}, {1, 2, 3, 4});
  const husk_op_arg indices = tensors(
      {tensor<uint8_t>(HUSK_BOOL, {3}, {1}, {1, 0, 1}), i64({2, 1}, {1, 1}, {1, 1})});
  accepts("aten::index_put_", {self, indices, values, int_arg(0)});
  const float expected[] = {0, 3, 0, 0, 0, 4};
  EXPECT_EQ(std::memcmp(self.data, expected, sizeof expected), 0);
}

// The result of a scalar has rows, but no element.
TEST_F(HostileNumbers, RowsWithoutColumns) {
  accepts("aten::nonzero_static",
          {f32({}, {}), int_arg(kFar), int_arg(-1), i64({kFar, 0}, {0, 1})});
}

TEST_F(HostileNumbers, ComplexWeights) {
  refuses("aten::bincount",
          {i64({2}, {1}), tensor<double>(HUSK_C128, {2}, {1}, {}), int_arg(0),
           tensor<double>(HUSK_F64, {1}, {1}, {})},
          HUSK_UNSUPPORTED, "weights has dtype c128");
}

// The number of bins, or of repeated elements, does not fit an int64_t.
TEST_F(HostileNumbers, CountsThatWrapAround) {
  refuses("aten::bincount:sizes", {i64({1}, {1}, {INT64_MAX}), {}, int_arg(0), result()},
          HUSK_INVALID_INPUT, "element 0 is 9223372036854775807");
  refuses("aten::repeat_interleave.Tensor:sizes",
          {i64({3}, {1}, {INT64_MAX, INT64_MAX, 5}), {}, result()}, HUSK_INVALID_INPUT,
          "repeat 1 is 9223372036854775807");
}

TEST_F(HostileNumbers, SearchInEmptyRows) {
  husk_op_arg sorted = f32({3, 0}, {1, 1});
  sorted.data = nullptr;
  const husk_op_arg out = i64({3, 2}, {2, 1}, {9, 9, 9, 9, 9, 9});
  accepts("aten::searchsorted.Tensor",
          {sorted, f32({3, 2}, {2, 1}), int_arg(0), int_arg(0), {}, {}, out});
  EXPECT_EQ(static_cast<const int64_t*>(out.data)[5], 0);
}

// ---- reduce -------------------------------------------------------------------------------------

// The heap of a row of 2^32 elements needs 64 bits for each key, and the values have fewer.
TEST_F(HostileNumbers, FirstOfLongRows) {
  for (int32_t dtype : {int{HUSK_U8}, int{HUSK_F32}}) {
    refuses("aten::topk",
            {tensor<uint8_t>(dtype, {int64_t{1} << 33}, {0}, {}), int_arg(4), int_arg(0),
             int_arg(1), int_arg(1), tensor<uint8_t>(dtype, {4}, {1}, {}), i64({4}, {1})},
            HUSK_UNSUPPORTED, "has 2^32 or more elements along the dimension");
  }
}

// A row of many distinct elements, one of which is there twice.
TEST_F(HostileNumbers, ModeOfALongRow) {
  constexpr int64_t kCount = 200000;
  std::vector<int64_t> row(kCount);
  for (int64_t i = 0; i < kCount; ++i) row[i] = (i * 7919) % kCount;
  row[150000] = row[3];
  const husk_op_arg value = i64({}, {}), index = i64({}, {});
  accepts("aten::mode", {i64({kCount}, {1}, row), int_arg(0), int_arg(0), value, index});
  EXPECT_EQ(*static_cast<const int64_t*>(value.data), row[3]);
  EXPECT_EQ(*static_cast<const int64_t*>(index.data), 150000);
}

TEST_F(HostileNumbers, ScalarAndEmptyIndex) {
  const auto arguments = [&](const husk_op_arg& index) -> std::vector<husk_op_arg> {
    return {f32({}, {}), int_arg(0), index, f32({}, {}), text("amax"), int_arg(1), f32({}, {})};
  };
  refuses("aten::index_reduce", arguments(i64({0}, {1})), HUSK_INVALID_ARGUMENT,
          "index has 0 elements, not 1");
  refuses("aten::index_reduce", arguments(i64({2}, {1})), HUSK_INVALID_ARGUMENT,
          "index has 2 elements, not 1");
  accepts("aten::index_reduce", arguments(i64({1}, {1})));
  accepts("aten::index_reduce", arguments(i64({}, {})));
}

TEST_F(HostileNumbers, SegmentsFarOutside) {
  const auto run = [&](const husk_op_arg& lengths, const husk_op_arg& offsets) {
    refuses("aten::segment_reduce",
            {f32({5}, {1}),
             text("sum"),
             lengths,
             {},
             offsets,
             int_arg(0),
             int_arg(0),
             {},
             f32({2}, {1})},
            HUSK_INVALID_INPUT, "has segments that are not in the data");
  };
  for (const std::vector<int64_t>& offsets :
       {std::vector<int64_t>{INT64_MIN, INT64_MAX, 0},
        std::vector<int64_t>{INT64_MAX, INT64_MIN, 0},
        std::vector<int64_t>{0, INT64_MAX, INT64_MIN}, std::vector<int64_t>{-2, 3, 5},
        std::vector<int64_t>{6, 6, 6}})
    run({}, i64({3}, {1}, offsets));
  for (const std::vector<int64_t>& lengths :
       {std::vector<int64_t>{1, INT64_MAX}, std::vector<int64_t>{INT64_MAX, 1},
        std::vector<int64_t>{5, 1}, std::vector<int64_t>{-1, 1}})
    run(i64({2}, {1}, lengths), {});
}

TEST_F(HostileNumbers, MoreDistinctElementsThanTheResultHolds) {
  const husk_op_arg self = i64({4}, {1}, {4, 1, 3, 2}), out = i64({2}, {1}),
                    inverse = i64({4}, {1}), counts = i64({2}, {1});
  refuses("aten::_unique2", {self, int_arg(1), int_arg(1), int_arg(1), out, inverse, counts},
          HUSK_INVALID_INPUT, "the result has room for 2 elements, the data has 4");
  refuses("aten::unique_consecutive", {self, int_arg(1), int_arg(1), {}, out, inverse, counts},
          HUSK_INVALID_INPUT, "the result has room for 2 elements, the data has 4");
}

// The order of the slices lies on the stack.
TEST_F(HostileNumbers, MoreSlicesThanTheStackHolds) {
  refuses("aten::unique_dim:sizes",
          {u8({65537, 1}, {0, 0}), int_arg(0), int_arg(1), int_arg(0), int_arg(0), result()},
          HUSK_UNSUPPORTED, "self has 65537 slices; it takes up to 65536");
}

// Slices without elements are many, but no tensor has an element.
TEST_F(HostileNumbers, DistinctEmptySlices) {
  const husk_op_arg self = f32({kFar, 0}, {0, 1});
  refuses("aten::unique_consecutive",
          {self, int_arg(0), int_arg(0), int_arg(0), f32({1, 0}, {1, 1}), {}, {}},
          HUSK_INVALID_INPUT, "has no elements in a slice");
  refuses("aten::unique_consecutive:sizes", {self, int_arg(0), int_arg(0), int_arg(0), result()},
          HUSK_INVALID_INPUT, "has no elements in a slice");
  refuses("aten::unique_dim:sizes",
          {f32({3, 0}, {1, 1}), int_arg(0), int_arg(1), int_arg(0), int_arg(0), result()},
          HUSK_INVALID_INPUT, "has no elements in a slice");
  accepts("aten::unique_dim:sizes",
          {f32({0, 3}, {3, 1}), int_arg(0), int_arg(1), int_arg(0), int_arg(0), result()});
}

}  // namespace
}  // namespace husk::host_test
