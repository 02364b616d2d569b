// Correct calls of ops.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "core/arguments.h"
#include "tensor.h"

namespace husk::host_test {

// A call, and the memory of its tensors, each of which is exactly as large as needed. Its functions
// are not inline: there are a thousand calls, and a compiler would take long for copies of them.
class Call {
 public:
  explicit Call(const char* op) : name(op) {}

  // Adds a contiguous tensor. Its elements are `value`, or, with `step`, value + i * step % period.
  Call& tensor(int32_t dtype, std::vector<int64_t> sizes, int64_t value = 0, int64_t step = 0,
               int64_t period = 1);
  // Adds a tensor whose elements all lie at one place, so that it may have any number of them.
  Call& repeated(int32_t dtype, const std::vector<int64_t>& sizes, int64_t value = 1);
  Call& f32(std::vector<int64_t> sizes);
  Call& i64(std::vector<int64_t> sizes, int64_t value = 0, int64_t step = 0, int64_t period = 1);
  Call& mask(std::vector<int64_t> sizes);
  Call& number(int64_t value);
  Call& real(double value);
  Call& complex(double real, double imaginary);
  Call& none(int count = 1);
  Call& list(const std::vector<int64_t>& values);
  Call& text(const char* value);
  // Makes the last tensor channels-last: its second dim becomes the innermost one.
  Call& channels_last();
  // Reverses the dims of the last tensor, whose memory stays as it is.
  Call& transposed();
  // Replaces the last `count` tensors by a list of them.
  Call& as_list(size_t count);
  Call& result();
  const int64_t* keep(std::vector<int64_t> values);

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
