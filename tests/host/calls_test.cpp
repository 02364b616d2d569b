// Correct calls of ops, and the same calls with one argument changed at a time. An op must succeed,
// or say what is wrong, and must not touch memory outside of its tensors; sanitizers check that.
// Results are compared with PyTorch's in tests/torch.
#include <deque>

#include "core/arguments.h"
#include "host_device.h"
#include "tensor.h"

namespace husk::host_test {
namespace {

// A call, and the memory of its tensors, each of which is exactly as large as needed.
class Call {
 public:
  explicit Call(const char* op) : name(op) {}

  // Adds a contiguous tensor. Its elements are `value`, or, with `step`, value + i * step % period.
  Call& tensor(int32_t dtype, std::vector<int64_t> sizes, int64_t value = 0, int64_t step = 0,
               int64_t period = 1) {
    const size_t width = static_cast<size_t>(host::dtype_bytes(dtype));
    husk_op_arg a{};
    a.kind = HUSK_ARG_TENSOR;
    a.dtype = dtype;
    a.rank = static_cast<int32_t>(sizes.size());
    std::vector<int64_t> strides(sizes.size() + 1);
    int64_t count = 1;
    for (int d = a.rank - 1; d >= 0; --d) {
      strides[d] = count;
      count *= sizes[d];
    }
    sizes.push_back(0);
    a.sizes = keep(sizes);
    a.strides = keep(strides);
    memory_blocks.emplace_back(static_cast<size_t>(count) * width);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t element = value + (step ? i * step % period : 0);
      unsigned char* to = memory_blocks.back().data() + static_cast<size_t>(i) * width;
      const float single = static_cast<float>(element);
      if (dtype == HUSK_F32)
        std::memcpy(to, &single, 4);
      else if (dtype == HUSK_I64)
        std::memcpy(to, &element, 8);
      else
        to[0] = static_cast<unsigned char>(element);
    }
    a.data = memory_blocks.back().data();
    args.push_back(a);
    return *this;
  }
  Call& f32(std::vector<int64_t> sizes) { return tensor(HUSK_F32, std::move(sizes), 1, 3, 7); }
  Call& i64(std::vector<int64_t> sizes, int64_t value = 0, int64_t step = 0, int64_t period = 1) {
    return tensor(HUSK_I64, std::move(sizes), value, step, period);
  }
  Call& mask(std::vector<int64_t> sizes) { return tensor(HUSK_BOOL, std::move(sizes), 0, 1, 2); }
  Call& number(int64_t value) {
    args.push_back(int_arg(value));
    return *this;
  }
  Call& real(double value) {
    args.push_back(float_arg(value));
    return *this;
  }
  Call& none(int count = 1) {
    args.resize(args.size() + count);
    return *this;
  }
  Call& list(const std::vector<int64_t>& values) {
    husk_op_arg a{};
    a.kind = HUSK_ARG_INTS;
    a.count = static_cast<int64_t>(values.size());
    a.sizes = keep(values);
    args.push_back(a);
    return *this;
  }
  Call& text(const char* value) {
    husk_op_arg a{};
    a.kind = HUSK_ARG_STRING;
    a.string = value;
    args.push_back(a);
    return *this;
  }
  // Replaces the last `count` tensors by a list of them.
  Call& as_list(size_t count) {
    lists.emplace_back(args.end() - static_cast<std::ptrdiff_t>(count), args.end());
    args.resize(args.size() - count);
    husk_op_arg a{};
    a.kind = HUSK_ARG_TENSORS;
    a.count = static_cast<int64_t>(count);
    a.tensors = lists.back().data();
    args.push_back(a);
    return *this;
  }
  Call& result() {
    husk_op_arg a{};
    a.kind = HUSK_ARG_RESULT;
    a.data = const_cast<int64_t*>(keep({0}));
    args.push_back(a);
    return *this;
  }
  const int64_t* keep(std::vector<int64_t> values) {
    ints.push_back(std::move(values));
    return ints.back().data();
  }

  std::string name;
  std::vector<husk_op_arg> args;

 private:
  std::deque<std::vector<int64_t>> ints;
  std::deque<std::vector<unsigned char>> memory_blocks;
  std::deque<std::vector<husk_op_arg>> lists;
};

std::vector<int64_t> generator() { return {HUSK_HOST_GENERATOR_BYTES / 8}; }

// Adds a correct call of each op that random arguments seldom fit.
void add_correct_calls(std::deque<Call>& calls) {
  const auto call = [&](const char* name) -> Call& { return calls.emplace_back(name); };
  call("aten::convolution")
      .f32({2, 4, 5, 6})
      .f32({6, 2, 3, 2})
      .f32({6})
      .list({2, 1})
      .list({1, 0})
      .list({1, 2})
      .number(0)
      .list({0, 0})
      .number(2)
      .f32({2, 6, 3, 4});
  call("aten::convolution")
      .f32({2, 4, 5})
      .f32({4, 3, 3})
      .none()
      .list({2})
      .list({1})
      .list({1})
      .number(1)
      .list({1})
      .number(1)
      .f32({2, 3, 10});
  call("aten::convolution")
      .f32({1, 3, 5, 5})
      .f32({3, 1, 3, 3})
      .none()
      .list({1, 1})
      .list({1, 1})
      .list({1, 1})
      .number(0)
      .list({0, 0})
      .number(3)
      .f32({1, 3, 5, 5});
  call("aten::_embedding_bag")
      .f32({5, 3})
      .i64({6}, 0, 1, 5)
      .i64({2}, 0, 3, 6)
      .number(0)
      .number(2)
      .number(0)
      .none()
      .number(0)
      .number(-1)
      .f32({2, 3})
      .i64({6})
      .i64({2})
      .i64({2, 3});
  call("aten::_embedding_bag_forward_only")
      .f32({5, 3})
      .i64({6}, 0, 1, 5)
      .i64({3}, 0, 3, 7)
      .number(0)
      .number(0)
      .number(0)
      .f32({6})
      .number(1)
      .number(2)
      .f32({2, 3})
      .i64({0})
      .i64({3})
      .i64({3});
  call("aten::embedding_renorm").f32({5, 3}).i64({2, 2}, 0, 1, 5).real(1).real(2).f32({5, 3});
  call("aten::_scaled_dot_product_flash_attention_for_cpu")
      .f32({1, 4, 5, 3})
      .f32({1, 2, 6, 3})
      .f32({1, 2, 6, 4})
      .real(0)
      .number(1)
      .f32({5, 6})
      .none()
      .f32({1, 4, 5, 4})
      .f32({1, 4, 5});
  call("aten::mkldnn_rnn_layer")
      .f32({3, 2, 4})
      .f32({20, 4})
      .f32({20, 5})
      .f32({20})
      .f32({20})
      .f32({1, 2, 5})
      .f32({1, 2, 5})
      .number(1)
      .list({})
      .number(2)
      .number(5)
      .number(1)
      .number(1)
      .number(0)
      .number(0)
      .number(0)
      .f32({3, 2, 5})
      .f32({1, 2, 5})
      .f32({1, 2, 5});
  call("aten::nonzero").mask({2, 3}).i64({3, 2});
  call("aten::nonzero_static").mask({2, 3}).number(4).number(-1).i64({4, 2});
  call("aten::masked_select").f32({2, 3}).mask({2, 3}).f32({3});
  call("aten::masked_scatter").f32({2, 3}).mask({2, 3}).f32({3}).f32({2, 3});
  call("aten::repeat_interleave.Tensor").i64({3}, 0, 1, 3).none().i64({3});
  call("aten::repeat_interleave.Tensor:sizes").i64({3}, 0, 1, 3).none().result();
  call("aten::index.Tensor").f32({3, 4, 2}).mask({3}).i64({1, 1}).as_list(2).f32({1, 1, 2});
  call("aten::index_put_")
      .f32({3, 4})
      .i64({2}, -3, 5, 6)
      .i64({3, 1}, 0, 1, 4)
      .as_list(2)
      .f32({3, 2})
      .number(1);
  call("aten::scatter_reduce_.two")
      .f32({3, 4})
      .number(-1)
      .i64({2, 6}, 0, 1, 4)
      .f32({2, 6})
      .text("mean")
      .number(0);
  call("aten::index_reduce")
      .f32({3, 4})
      .number(1)
      .i64({2}, 0, 1, 4)
      .f32({3, 2})
      .text("amax")
      .number(0)
      .f32({3, 4});
  call("aten::segment_reduce")
      .f32({5, 2})
      .text("mean")
      .i64({2}, 2, 1, 2)
      .none(2)
      .number(0)
      .number(0)
      .none()
      .f32({2, 2});
  call("aten::searchsorted.Tensor")
      .f32({3, 1})
      .f32({3, 4})
      .number(0)
      .number(1)
      .text("right")
      .i64({3, 1})
      .i64({3, 4});
  call("aten::bincount").i64({4}, 0, 1, 3).f32({4}).number(2).f32({3});
  call("aten::_unique2")
      .i64({2, 3}, 0, 1, 4)
      .number(1)
      .number(1)
      .number(1)
      .i64({4})
      .i64({2, 3})
      .i64({4});
  call("aten::unique_dim")
      .i64({3, 2}, 0, 1, 4)
      .number(0)
      .number(1)
      .number(1)
      .number(1)
      .i64({2, 2})
      .i64({3})
      .i64({2});
  call("aten::unique_consecutive")
      .i64({4}, 0, 1, 2)
      .number(1)
      .number(1)
      .none()
      .i64({4})
      .i64({4})
      .i64({4});
  call("aten::sort.stable").f32({3, 5}).number(1).number(0).number(1).f32({3, 5}).i64({3, 5});
  call("aten::topk").f32({3, 5}).number(2).number(1).number(1).number(1).f32({3, 2}).i64({3, 2});
  call("aten::addbmm").f32({4, 5}).f32({2, 4, 3}).f32({2, 3, 5}).number(1).number(2).f32({4, 5});
  call("aten::_int_mm").tensor(HUSK_I8, {3, 4}).tensor(HUSK_I8, {4, 5}).tensor(HUSK_I32, {3, 5});
  call("aten::select.int").f32({3, 4}).number(1).number(-4).f32({3});
  call("aten::view.dtype").f32({3, 4}).none().tensor(HUSK_C64, {3, 2});
  call("aten::adaptive_max_pool3d")
      .f32({2, 3, 4, 5})
      .list({2, 3, 2})
      .f32({2, 2, 3, 2})
      .i64({2, 2, 3, 2});
  call("aten::grid_sampler_3d")
      .f32({1, 2, 3, 4, 5})
      .f32({1, 2, 2, 2, 3})
      .number(0)
      .number(2)
      .number(0)
      .f32({1, 2, 2, 2, 2});
  call("aten::_upsample_bicubic2d_aa")
      .f32({1, 2, 5, 6})
      .list({3, 9})
      .number(0)
      .none(2)
      .f32({1, 2, 3, 9});
  call("aten::_trilinear")
      .f32({4, 6})
      .f32({3, 6, 5})
      .f32({4, 5})
      .list({1, 3})
      .list({0})
      .list({1, 2})
      .list({2, 3})
      .number(1)
      .f32({4, 3});
  call("aten::_pdist_forward").f32({4, 3}).real(2).f32({6});
  call("aten::_fft_c2c")
      .tensor(HUSK_C64, {3, 6})
      .list({1, 0})
      .number(1)
      .number(0)
      .tensor(HUSK_C64, {3, 6});
  call("aten::_fft_r2c").f32({3, 6}).list({0, 1}).number(0).number(1).tensor(HUSK_C64, {3, 4});
  call("aten::_fft_c2r").tensor(HUSK_C64, {3, 4}).list({1}).number(2).number(7).f32({3, 7});
  call("aten::_linalg_solve_ex")
      .f32({2, 3, 3})
      .f32({2, 3, 2})
      .number(1)
      .number(0)
      .f32({2, 3, 2})
      .f32({2, 3, 3})
      .tensor(HUSK_I32, {2, 3})
      .tensor(HUSK_I32, {2});
  call("aten::multinomial").f32({2, 5}).number(3).number(0).none().i64({2, 3}).i64(generator());
  call("aten::randperm").number(7).none(4).i64({7}).i64(generator());
  call("aten::bernoulli.Tensor").f32({4}).tensor(HUSK_F32, {4}).none().f32({4}).i64(generator());
}

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
      if ((correct.dtype == HUSK_I8 || correct.dtype == HUSK_BOOL) && dtype > HUSK_U8)
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
