// Correct calls whose sizes are changed.
#pragma once

#include "correct_calls.h"

namespace husk::host_test {

// A call with other sizes than the correct call that it comes from. The dimensions that grew have a
// stride of 0, so that no memory is needed.
struct Grown {
  std::vector<husk_op_arg> args;
  std::deque<std::vector<int64_t>> numbers;
  std::deque<std::vector<husk_op_arg>> lists;

  // grow(argument, dimension, size) returns the new size; numbers of lists have dimension -1.
  template <class Grow>
  Grown(const Call& call, const Grow& grow) : args(call.args) {
    for (size_t i = 0; i < args.size(); ++i) {
      if (args[i].kind == HUSK_ARG_TENSORS) {
        lists.emplace_back(args[i].tensors, args[i].tensors + args[i].count);
        for (husk_op_arg& item : lists.back()) change(item, i, grow);
        args[i].tensors = lists.back().data();
      } else {
        change(args[i], i, grow);
      }
    }
  }

 private:
  template <class Grow>
  void change(husk_op_arg& arg, size_t index, const Grow& grow) {
    if (arg.kind == HUSK_ARG_INT) arg.i = grow(index, -1, arg.i);
    if (arg.kind == HUSK_ARG_INTS) {
      auto& list = numbers.emplace_back(arg.sizes, arg.sizes + arg.count);
      for (int64_t& number : list) number = grow(index, -1, number);
      arg.sizes = list.data();
    }
    if (arg.kind != HUSK_ARG_TENSOR) return;
    auto& sizes = numbers.emplace_back(arg.sizes, arg.sizes + arg.rank);
    auto& strides = numbers.emplace_back(arg.strides, arg.strides + arg.rank);
    for (int32_t d = 0; d < arg.rank; ++d) {
      const int64_t size = grow(index, d, sizes[static_cast<size_t>(d)]);
      if (size == sizes[static_cast<size_t>(d)]) continue;
      sizes[static_cast<size_t>(d)] = size;
      strides[static_cast<size_t>(d)] = 0;
    }
    arg.sizes = sizes.data();
    arg.strides = strides.data();
  }
};

}  // namespace husk::host_test
