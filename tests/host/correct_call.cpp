#include <cstring>
#include <iterator>

#include "correct_calls.h"

namespace husk::host_test {

Call& Call::tensor(int32_t dtype, std::vector<int64_t> sizes, int64_t value, int64_t step,
                   int64_t period) {
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
  unsigned char* to = memory_blocks.emplace_back(static_cast<size_t>(count) * width).data();
  a.data = to;
  for (int64_t i = 0; i < count; ++i, to += width) {
    const int64_t element = value + (step ? i * step % period : 0);
    const float single = static_cast<float>(element);
    if (dtype == HUSK_F32)
      std::memcpy(to, &single, 4);
    else if (dtype == HUSK_I64)
      std::memcpy(to, &element, 8);
    else
      to[0] = static_cast<unsigned char>(element);
  }
  args.push_back(a);
  return *this;
}

Call& Call::repeated(int32_t dtype, const std::vector<int64_t>& sizes, int64_t value) {
  tensor(dtype, {1}, value);
  husk_op_arg& a = args.back();
  a.rank = static_cast<int32_t>(sizes.size());
  std::vector<int64_t> both = sizes;
  both.resize(2 * sizes.size() + 1);
  a.sizes = keep(both);
  a.strides = a.sizes + sizes.size();
  return *this;
}

Call& Call::f32(std::vector<int64_t> sizes) { return tensor(HUSK_F32, std::move(sizes), 1, 3, 7); }

Call& Call::i64(std::vector<int64_t> sizes, int64_t value, int64_t step, int64_t period) {
  return tensor(HUSK_I64, std::move(sizes), value, step, period);
}

Call& Call::mask(std::vector<int64_t> sizes) {
  return tensor(HUSK_BOOL, std::move(sizes), 0, 1, 2);
}

Call& Call::number(int64_t value) {
  args.push_back(int_arg(value));
  return *this;
}

Call& Call::real(double value) {
  args.push_back(float_arg(value));
  return *this;
}

Call& Call::complex(double real, double imaginary) {
  husk_op_arg a{};
  a.kind = HUSK_ARG_FLOATS;
  a.count = 2;
  floats.push_back({real, imaginary});
  a.floats = floats.back().data();
  args.push_back(a);
  return *this;
}

Call& Call::none(int count) {
  args.resize(args.size() + count);
  return *this;
}

Call& Call::list(const std::vector<int64_t>& values) {
  husk_op_arg a{};
  a.kind = HUSK_ARG_INTS;
  a.count = static_cast<int64_t>(values.size());
  a.sizes = keep(values);
  args.push_back(a);
  return *this;
}

Call& Call::text(const char* value) {
  husk_op_arg a{};
  a.kind = HUSK_ARG_STRING;
  a.string = value;
  args.push_back(a);
  return *this;
}

Call& Call::channels_last() {
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

Call& Call::transposed() {
  husk_op_arg& a = args.back();
  a.sizes = keep(std::vector<int64_t>(std::reverse_iterator(a.sizes + a.rank),
                                      std::reverse_iterator(a.sizes)));
  a.strides = keep(std::vector<int64_t>(std::reverse_iterator(a.strides + a.rank),
                                        std::reverse_iterator(a.strides)));
  return *this;
}

Call& Call::as_list(size_t count) {
  lists.emplace_back(args.end() - static_cast<std::ptrdiff_t>(count), args.end());
  args.resize(args.size() - count);
  husk_op_arg a{};
  a.kind = HUSK_ARG_TENSORS;
  a.count = static_cast<int64_t>(count);
  a.tensors = lists.back().data();
  args.push_back(a);
  return *this;
}

Call& Call::result() {
  husk_op_arg a{};
  a.kind = HUSK_ARG_RESULT;
  a.data = const_cast<int64_t*>(keep({0}));
  args.push_back(a);
  return *this;
}

const int64_t* Call::keep(std::vector<int64_t> values) {
  ints.push_back(std::move(values));
  return ints.back().data();
}

}  // namespace husk::host_test
