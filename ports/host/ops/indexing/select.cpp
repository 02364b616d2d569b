// Ops whose result size depends on the data: nonzero, masked_select, repeat_interleave; and
// masked_scatter. The op with the suffix ":sizes" counts the elements of the result. The op itself
// counts again, and fails if its output has room for another number.
#include <cstring>

#include "contracts.h"
#include "core/arguments.h"
#include "core/arithmetic.h"
#include "core/checked.h"
#include "core/loop.h"
#include "error.h"

namespace husk::host {

namespace {

// Calls f(whether the element is not 0) for each element in order. Returns false if the dtype is
// not supported. Another thread may change the elements, so a pass that writes does not rely on
// what an earlier pass has counted.
template <class F>
bool each_truth(const Arguments& args, const husk_op_arg& tensor, F f) {
  Loop<1> loop(args);
  loop.shape(tensor);
  return visit<Everything>(tensor.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    each(loop, [&](const int64_t(&at)[1]) { f(cast<bool>(get(data_of<T>(tensor) + at[0]))); });
  });
}

husk_status count_true(const Arguments& args, ArgumentPlace at, int64_t& count) {
  count = 0;
  return each_truth(args, args[at], [&](bool truth) { count += truth; })
             ? husk_status{HUSK_OK}
             : args.unsupported_dtype(at);
}

// Writes the indices of the first `max_count` elements of argument 0 that are not 0. Returns how
// many it wrote.
int64_t write_indices(const Arguments& args, const husk_op_arg& out, int64_t max_count) {
  constexpr ArgumentsOf named("nonzero", "nonzero_static");
  constexpr uint32_t kSelf = named["self"];
  const husk_op_arg& self = args[kSelf];
  int64_t at[kMaxRank] = {}, row = 0;
  each_truth(args, self, [&](bool truth) {
    if (truth && row < max_count) {
      int64_t* to = writable<int64_t>(out) + row++ * out.strides[0];
      for (int32_t d = 0; d < self.rank; ++d) to[d * out.strides[1]] = at[d];
    }
    for (int32_t d = self.rank - 1; d >= 0; --d) {
      if (++at[d] < self.sizes[d]) break;
      at[d] = 0;
    }
  });
  return row;
}

// Checks self, and the output for indices.
husk_status check_indices_out(const Arguments& args, ArgumentPlace out) {
  constexpr ArgumentsOf named("nonzero", "nonzero_static");
  constexpr uint32_t kSelf = named["self"];
  HUSK_TRY(args.check_tensor(kSelf));
  HUSK_TRY(args.check_tensor(out, 2, 2));
  HUSK_TRY(args.check_dtype(out, HUSK_I64));
  return args.check_size(out, 1, args[kSelf].rank, "the rank of self");
}

// Makes a loop over the shape to which self and mask broadcast. Operands: self, mask.
husk_status masked_loop(const Arguments& args, Loop<2>& loop) {
  constexpr ArgumentsOf named("masked_select", "masked_select_sizes");
  constexpr uint32_t kSelf = named["self"], kMask = named["mask"];
  HUSK_TRY(args.check_tensor(kSelf));
  HUSK_TRY(args.check_tensor(kMask));
  HUSK_TRY(args.check_mask_dtype(kMask));
  const husk_op_arg &self = args[kSelf], &mask = args[kMask];
  loop.rank = self.rank > mask.rank ? self.rank : mask.rank;
  for (int32_t d = 0; d < loop.rank; ++d) {
    const int32_t self_dim = d - (loop.rank - self.rank), mask_dim = d - (loop.rank - mask.rank);
    const int64_t size = self_dim < 0 ? 1 : self.sizes[self_dim];
    loop.sizes[d] = size != 1 || mask_dim < 0 ? size : mask.sizes[mask_dim];
  }
  if (!broadcast(self, loop.sizes, loop.rank, loop.strides[0]) ||
      !broadcast(mask, loop.sizes, loop.rank, loop.strides[1])) {
    return args.argument_error(kMask, HUSK_INVALID_ARGUMENT,
                               "has a shape that does not broadcast with self");
  }
  if (!may_visit(loop.sizes, loop.rank, self, mask)) {
    return args.argument_error(kMask, HUSK_UNSUPPORTED,
                               "broadcasts with self to more than 2^36 elements");
  }
  loop.merge();
  return HUSK_OK;
}

int64_t masked_count(const husk_op_arg& mask, const Loop<2>& loop) {
  int64_t count = 0;
  each(loop, [&](const int64_t(&at)[2]) { count += data_of<uint8_t>(mask)[at[1]] != 0; });
  return count;
}

// Adds up the repeats. None of them may be negative.
husk_status repeats_sum(const Arguments& args, int64_t& sum) {
  constexpr ArgumentsOf named("repeat_interleave", "repeat_interleave_sizes");
  constexpr uint32_t kRepeats = named["repeats"];
  HUSK_TRY(args.check_tensor(kRepeats, 1, 1));
  const husk_op_arg& repeats = args[kRepeats];
  HUSK_TRY(args.check_index_dtype(kRepeats));
  sum = 0;
  int64_t value = 0, wrong = 0;
  const bool all_fit = each_index_while(args.cancellation, repeats.sizes[0], [&](int64_t i) {
    value = get_index(repeats.dtype, repeats.data, i * repeats.strides[0]);
    wrong = i;
    return value >= 0 && checked_add(sum, value, sum);
  });
  if (all_fit) return HUSK_OK;
  return fail(args.error, HUSK_INVALID_INPUT, "%s: repeat %lld is %lld", args.op,
              static_cast<long long>(wrong), static_cast<long long>(value));
}

}  // namespace

husk_status nonzero(const Arguments& args) {
  constexpr ArgumentsOf named("nonzero");
  constexpr uint32_t kSelf = named["self"], kOut = named["out"];
  HUSK_TRY(check_indices_out(args, kOut));
  int64_t count = 0;
  HUSK_TRY(count_true(args, kSelf, count));
  if (count != args[kOut].sizes[0]) return args.wrong_result_size(args[kOut].sizes[0], count);
  return write_indices(args, args[kOut], count) == count ? husk_status{HUSK_OK}
                                                         : args.tensor_changed();
}

husk_status nonzero_sizes(const Arguments& args) {
  constexpr ArgumentsOf named("nonzero_sizes");
  constexpr uint32_t kSelf = named["self"], kSize = named["size"];
  HUSK_TRY(args.check_tensor(kSelf));
  HUSK_TRY(args.check_result(kSize));
  return count_true(args, kSelf, *static_cast<int64_t*>(args[kSize].data));
}

husk_status nonzero_static(const Arguments& args) {
  constexpr ArgumentsOf named("nonzero_static");
  constexpr uint32_t kSelf = named["self"], kSize = named["size"], kFillValue = named["fill_value"],
                     kOut = named["out"];
  int64_t size = 0, fill = 0;
  HUSK_TRY(check_indices_out(args, kOut));
  HUSK_TRY(args.get_int(kSize, size));
  HUSK_TRY(args.get_int(kFillValue, fill));
  HUSK_TRY(args.check_size(kOut, 0, size, "size"));
  if (!visit<Everything>(args[kSelf].dtype, [](auto) {})) return args.unsupported_dtype(kSelf);
  const husk_op_arg& out = args[kOut];
  const int64_t count = write_indices(args, out, size);
  if (args[kSelf].rank == 0) return HUSK_OK;  // the output has no columns
  each_index(args.cancellation, size - count, [&](int64_t i) {
    for (int32_t d = 0; d < args[kSelf].rank; ++d)
      writable<int64_t>(out)[(count + i) * out.strides[0] + d * out.strides[1]] = fill;
  });
  return HUSK_OK;
}

husk_status masked_select(const Arguments& args) {
  constexpr ArgumentsOf named("masked_select");
  constexpr uint32_t kSelf = named["self"], kMask = named["mask"], kOut = named["out"];
  Loop<2> loop(args);
  HUSK_TRY(masked_loop(args, loop));
  HUSK_TRY(args.check_tensor(kOut, 1, 1));
  HUSK_TRY(args.check_same_dtype(kOut, kSelf));
  const husk_op_arg &self = args[kSelf], &mask = args[kMask], &out = args[kOut];
  const int64_t count = masked_count(mask, loop);
  if (count != out.sizes[0]) return args.wrong_result_size(out.sizes[0], count);
  bool complete = true;
  visit_bytes(dtype_bytes(self.dtype), [&](auto tag) {
    using T = typename decltype(tag)::type;
    int64_t to = 0, left = count;
    each(loop, [&](const int64_t(&at)[2]) {
      if (data_of<uint8_t>(mask)[at[1]] == 0 || left == 0) return;
      writable<T>(out)[to] = data_of<T>(self)[at[0]];
      to += out.strides[0];
      --left;
    });
    complete = left == 0;
  });
  return complete ? husk_status{HUSK_OK} : args.tensor_changed();
}

husk_status masked_select_sizes(const Arguments& args) {
  constexpr ArgumentsOf named("masked_select_sizes");
  constexpr uint32_t kMask = named["mask"], kSize = named["size"];
  Loop<2> loop(args);
  HUSK_TRY(masked_loop(args, loop));
  HUSK_TRY(args.check_result(kSize));
  *static_cast<int64_t*>(args[kSize].data) = masked_count(args[kMask], loop);
  return HUSK_OK;
}

husk_status masked_scatter(const Arguments& args) {
  constexpr ArgumentsOf named("masked_scatter");
  constexpr uint32_t kSelf = named["self"], kMask = named["mask"], kSource = named["source"],
                     kOut = named["out"];
  HUSK_TRY(args.check_tensor(kSource));
  HUSK_TRY(args.check_same_dtype(kSource, kSelf));
  HUSK_TRY(copy_elements(args, kOut, kSelf));
  HUSK_TRY(args.check_same_dtype(kOut, kSelf));
  HUSK_TRY(args.check_tensor(kMask));
  const husk_op_arg &mask = args[kMask], &source = args[kSource], &out = args[kOut];
  HUSK_TRY(args.check_mask_dtype(kMask));
  Loop<2> loop(args);
  loop.shape(out);
  if (!broadcast(mask, out.sizes, out.rank, loop.strides[1]))
    return args.argument_error(kMask, HUSK_INVALID_ARGUMENT,
                               "has a shape that does not broadcast to self");
  const int64_t count = masked_count(mask, loop);
  if (count > numel(source)) {
    return fail(args.error, HUSK_INVALID_INPUT,
                "%s: the mask has %lld true elements, source has %lld", args.op,
                static_cast<long long>(count), static_cast<long long>(numel(source)));
  }
  visit_bytes(dtype_bytes(out.dtype), [&](auto tag) {
    using T = typename decltype(tag)::type;
    int64_t from[kMaxRank] = {}, left = count;
    each(loop, [&](const int64_t(&at)[2]) {
      if (data_of<uint8_t>(mask)[at[1]] == 0 || left == 0) return;
      --left;
      int64_t offset = 0;
      for (int32_t d = 0; d < source.rank; ++d) offset += from[d] * source.strides[d];
      writable<T>(out)[at[0]] = data_of<T>(source)[offset];
      for (int32_t d = source.rank - 1; d >= 0; --d) {
        if (++from[d] < source.sizes[d]) break;
        from[d] = 0;
      }
    });
  });
  return HUSK_OK;
}

husk_status repeat_interleave(const Arguments& args) {
  constexpr ArgumentsOf named("repeat_interleave");
  constexpr uint32_t kRepeats = named["repeats"], kOut = named["out"];
  int64_t sum = 0;
  HUSK_TRY(repeats_sum(args, sum));
  HUSK_TRY(args.check_tensor(kOut, 1, 1));
  HUSK_TRY(args.check_same_dtype(kOut, kRepeats));
  const husk_op_arg &repeats = args[kRepeats], &out = args[kOut];
  if (sum != out.sizes[0]) return args.wrong_result_size(out.sizes[0], sum);
  int64_t to = 0, left = sum;
  const bool complete = each_index_while(args.cancellation, repeats.sizes[0], [&](int64_t i) {
    const int64_t times = get_index(repeats.dtype, repeats.data, i * repeats.strides[0]);
    if (times < 0 || times > left) return false;
    left -= times;
    return each_index(args.cancellation, times, [&](int64_t) {
      set_index(out, to, i);
      to += out.strides[0];
    });
  });
  return complete && left == 0 ? husk_status{HUSK_OK} : args.tensor_changed();
}

husk_status repeat_interleave_sizes(const Arguments& args) {
  constexpr ArgumentsOf named("repeat_interleave_sizes");
  constexpr uint32_t kSize = named["size"];
  HUSK_TRY(args.check_result(kSize));
  return repeats_sum(args, *static_cast<int64_t*>(args[kSize].data));
}

}  // namespace husk::host
