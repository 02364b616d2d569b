// Correct calls of ops.
#pragma once

#include <cstring>
#include <deque>
#include <iterator>
#include <string>
#include <vector>

#include "core/arguments.h"
#include "tensor.h"

namespace husk::host_test {

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
  // Adds a tensor whose elements all lie at one place, so that it may have any number of them.
  Call& repeated(int32_t dtype, const std::vector<int64_t>& sizes, int64_t value = 1) {
    tensor(dtype, {1}, value);
    husk_op_arg& a = args.back();
    a.rank = static_cast<int32_t>(sizes.size());
    std::vector<int64_t> both = sizes;
    both.resize(2 * sizes.size() + 1);
    a.sizes = keep(both);
    a.strides = a.sizes + sizes.size();
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
  Call& complex(double real, double imaginary) {
    husk_op_arg a{};
    a.kind = HUSK_ARG_FLOATS;
    a.count = 2;
    floats.push_back({real, imaginary});
    a.floats = floats.back().data();
    args.push_back(a);
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
  // Makes the last tensor channels-last: its second dim becomes the innermost one.
  Call& channels_last() {
    husk_op_arg& a = args.back();
    std::vector<int64_t> strides(static_cast<size_t>(a.rank));
    int64_t stride = 1;
    const auto place = [&](int32_t d) {
      strides[static_cast<size_t>(d)] = stride;
      stride *= a.sizes[d];
    };
    place(1);
    for (int32_t d = a.rank - 1; d >= 2; --d) place(d);
    place(0);
    a.strides = keep(strides);
    return *this;
  }
  // Reverses the dims of the last tensor, whose memory stays as it is.
  Call& transposed() {
    husk_op_arg& a = args.back();
    a.sizes = keep(std::vector<int64_t>(std::reverse_iterator(a.sizes + a.rank),
                                        std::reverse_iterator(a.sizes)));
    a.strides = keep(std::vector<int64_t>(std::reverse_iterator(a.strides + a.rank),
                                          std::reverse_iterator(a.strides)));
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

  // The memory of the tensors, in the order in which they were added.
  std::deque<std::vector<unsigned char>>& blocks() { return memory_blocks; }

  std::string name;
  std::vector<husk_op_arg> args;

 private:
  std::deque<std::vector<int64_t>> ints;
  std::deque<std::vector<double>> floats;
  std::deque<std::vector<unsigned char>> memory_blocks;
  std::deque<std::vector<husk_op_arg>> lists;
};

// Adds a correct call of each op that random arguments seldom fit.
void add_correct_calls(std::deque<Call>& calls);

// Adds calls that are large enough for the kernels which small ones do not reach.
void add_large_calls(std::deque<Call>& calls);

// Adds calls that take hours, or for ever.
void add_endless_calls(std::deque<Call>& calls);

// Adds calls of several passes, in each of which Husk asks whether the call is to end.
void add_long_calls(std::deque<Call>& calls);

}  // namespace husk::host_test
