// Correct calls of ops, and the same calls with one argument changed at a time. An op must succeed,
// or say what is wrong, and must not touch memory outside of its tensors; sanitizers check that.
// Results are compared with PyTorch's in tests/torch.
#include "correct_calls.h"
#include "host_device.h"

namespace husk::host_test {
namespace {

// Replacements for one argument of a correct call.
std::vector<husk_op_arg> replacements_of(Call& call, const husk_op_arg& correct) {
  std::vector<husk_op_arg> replacements(1);
  if (correct.kind == HUSK_ARG_TENSOR) {
    for (int d = 0; d < correct.rank; ++d) {  // a size is one smaller, so the memory suffices
      std::vector<int64_t> sizes(correct.sizes, correct.sizes + correct.rank);
      if (--sizes[d] < 0) continue;
      sizes.push_back(0);
      replacements.push_back(correct);
      replacements.back().sizes = call.keep(sizes);
    }
    if (correct.rank > 0) {
      replacements.push_back(correct);
      replacements.back().rank--;
      replacements.push_back(correct);  // every element is element 0
      replacements.back().strides = call.keep(
          std::vector<int64_t>(static_cast<size_t>(correct.rank), 0));
    }
    for (int32_t dtype :
         {int{HUSK_BOOL}, int{HUSK_U8}, int{HUSK_F32}, int{HUSK_I32}, int{HUSK_F16}}) {
      if (correct.dtype <= HUSK_I8 && dtype > HUSK_U8)
        continue;  // the tensor would need more memory
      replacements.push_back(correct);
      replacements.back().dtype = dtype;
    }
    replacements.push_back(int_arg(1));
  } else {
    for (int64_t value : {-5, -1, 0, 1, 2, 3, 1000}) replacements.push_back(int_arg(value));
    replacements.push_back(int_arg(INT64_MAX));
    replacements.push_back(int_arg(INT64_MIN));
    replacements.push_back(float_arg(0.5));
    replacements.push_back(float_arg(std::numeric_limits<double>::quiet_NaN()));
    if (correct.kind == HUSK_ARG_INTS) {
      for (int64_t value : {int64_t{-1}, int64_t{0}, int64_t{3}, int64_t{1} << 40}) {
        replacements.push_back(correct);
        replacements.back().sizes = call.keep(
            std::vector<int64_t>(static_cast<size_t>(correct.count) + 1, value));
        replacements.push_back(replacements.back());
        replacements.back().count++;
      }
    }
  }
  return replacements;
}

class Calls : public HostDevice {};

TEST_F(Calls, CorrectAndThenChanged) {
  std::deque<Call> calls;
  add_correct_calls(calls);
  add_large_calls(calls);
  for (Call& correct : calls) {
    ASSERT_EQ(call(correct.name.c_str(), correct.args), HUSK_OK) << error.text;
    for (size_t i = 0; i < correct.args.size(); ++i) {
      for (const husk_op_arg& other : replacements_of(correct, correct.args[i])) {
        std::vector<husk_op_arg> args = correct.args;
        args[i] = other;
        error = {};
        const husk_status status = call(correct.name.c_str(), args);
        ASSERT_EQ(status, error.code) << correct.name;
        ASSERT_TRUE(status == HUSK_OK || std::string(error.text).find(correct.name) == 0)
            << error.text;
      }
    }
  }
}

// An index that does not exist: the text names the op, the index and the size.
TEST_F(Calls, IndicesOutOfRange) {
  const auto refuses = [&](const Call& wrong, const std::string& text) {
    error = {};
    EXPECT_EQ(call(wrong.name.c_str(), wrong.args), HUSK_INVALID_INPUT) << wrong.name;
    EXPECT_NE(std::string(error.text).find(wrong.name), std::string::npos) << error.text;
    EXPECT_NE(std::string(error.text).find(text), std::string::npos) << error.text;
  };
  for (int64_t bad : {int64_t{4}, int64_t{-5}, int64_t{1} << 40}) {
    const std::string text = "index " + std::to_string(bad) + " is out of range for ";
    refuses(Call("aten::index.Tensor").f32({4}).i64({2}, bad).as_list(1).f32({2}),
            text + "dimension 0 of size 4");
    refuses(Call("aten::index_put_").f32({4}).i64({2}, bad).as_list(1).f32({2}).number(0),
            text + "dimension 0 of size 4");
    refuses(Call("aten::gather").f32({3, 4}).number(1).i64({3, 2}, bad).number(0).f32({3, 2}),
            text + "dimension 1 of size 4");
    refuses(Call("aten::scatter_.value").f32({3, 4}).number(1).i64({3, 2}, bad).number(1),
            text + "dimension 1 of size 4");
    refuses(Call("aten::_embedding_bag")
                .f32({4, 2})
                .i64({3}, bad)
                .i64({1})
                .number(0)
                .number(0)
                .number(0)
                .none()
                .number(0)
                .number(-1)
                .f32({1, 2})
                .none(3),
            text + "a table of 4 rows");
  }
  refuses(Call("aten::nonzero").mask({2, 3}).i64({2, 2}), "room for 2 elements, the data has 3");
  refuses(Call("aten::_unique2").i64({3}, 0, 1, 3).number(1).number(0).number(0).i64({5}).none(2),
          "room for 5 elements, the data has 3");
}

}  // namespace
}  // namespace husk::host_test
