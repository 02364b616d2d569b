// husk::grouped_product: rows that are sorted by expert, times the matrix of their expert. `stack`
// has a matrix of k x n for each expert, and `ends` the end of the rows of each one. Rows of out
// behind the last end are 0. Matrices of experts without rows are not read. It is
// aten::_grouped_mm for a matrix and a stack (aten/src/ATen/native/GroupedMMUtils.h of PyTorch),
// which leaves those rows undefined.
#include "contracts.h"
#include "core/arguments.h"
#include "core/loop.h"
#include "linalg/product_parts.h"

namespace husk::host {

namespace {

constexpr ArgumentsOf kSorted("grouped_product");
constexpr uint32_t kSortedInput = kSorted["input"], kSortedStack = kSorted["stack"],
                   kSortedEnds = kSorted["ends"], kSortedOut = kSorted["out"];

// The ends of the rows of the experts, of `rows` rows.
struct SortedEnds {
  husk_op_arg of;
  int64_t rows;

  int64_t number(int64_t expert) const {
    const int64_t at = expert * of.strides[0];
    return of.dtype == HUSK_I32 ? data_of<int32_t>(of)[at] : data_of<int64_t>(of)[at];
  }
  // Within the rows, even if another thread changes the tensor.
  int64_t end(int64_t expert) const {
    const int64_t end = expert < 0 ? 0 : number(expert);
    return end < 0 ? 0 : end < rows ? end : rows;
  }
  husk_status check(const Arguments& args) const {
    husk_status status = HUSK_OK;
    int64_t before = 0;
    each_index_while(args.cancellation, of.sizes[0], [&](int64_t i) {
      const int64_t one = number(i);
      if (one < before || one > rows)
        status = args.argument_error(kSortedEnds, HUSK_INVALID_ARGUMENT,
                                     "has ends that descend, or lie behind the rows of the input");
      before = one;
      return status == HUSK_OK;
    });
    return status;
  }
};

husk_status check_sorted(const Arguments& args) {
  HUSK_TRY(args.check_tensor(kSortedInput, 2, 2));
  HUSK_TRY(args.check_tensor(kSortedStack, 3, 3));
  HUSK_TRY(args.check_tensor(kSortedOut, 2, 2));
  for (const ArgumentPlace place : {kSortedStack, kSortedOut})
    HUSK_TRY(args.check_same_dtype(place, kSortedInput));
  const husk_op_arg &input = args[kSortedInput], &stack = args[kSortedStack];
  HUSK_TRY(args.check_size(kSortedStack, 1, input.sizes[1], "the columns of the input"));
  HUSK_TRY(args.check_size(kSortedOut, 0, input.sizes[0], "the rows of the input"));
  HUSK_TRY(args.check_size(kSortedOut, 1, stack.sizes[2], "the columns of a matrix"));
  HUSK_TRY(args.check_vector(kSortedEnds, stack.sizes[0], "the experts"));
  return args.check_index_dtype(kSortedEnds);
}

}  // namespace

husk_status grouped_product(const Arguments& args) {
  HUSK_TRY(check_sorted(args));
  const husk_op_arg input = with_safe_strides(args[kSortedInput]),
                    stack = with_safe_strides(args[kSortedStack]), &out = args[kSortedOut];
  const SortedEnds ends = {args[kSortedEnds], input.sizes[0]};
  HUSK_TRY(ends.check(args));
  Features cpu{};
  HUSK_TRY(args.get_features(cpu));
  Product first = {};
  first.dtype = static_cast<husk_dtype>(out.dtype);
  first.n = out.sizes[1];
  first.k = input.sizes[1];
  first.alpha = 1;
  first.a = {input.data, input.strides[0], input.strides[1]};
  first.b = {stack.data, stack.strides[1], stack.strides[2], {first.dtype, 0}, {nullptr, 0}};
  first.out = out.data;
  first.out_row = out.strides[0];
  first.out_column = out.strides[1];
  const ProductKernels* kernels = product_kernels(cpu, first.dtype, first.b.format);
  if (!kernels) return args.unsupported_dtype(kSortedInput);
  if (numel(out) == 0) return HUSK_OK;
  const int64_t experts = stack.sizes[0], bytes = dtype_bytes(out.dtype);
  clear_rows(args.cancellation, out, ends.end(experts - 1));
  // A part is the rows of an expert times some columns, so that the number of parts follows from
  // the shapes. A few last columns are no part of their own (ProductSplit).
  constexpr int64_t kPartColumns = 256, kFewColumns = 32;
  int64_t columns = (first.n - 1) / kPartColumns + 1;
  if (columns > 1 && first.n - (columns - 1) * kPartColumns <= kFewColumns) --columns;
  if (experts == 0) return HUSK_OK;
  const double work = static_cast<double>(out.sizes[0]) * static_cast<double>(first.n) *
                      static_cast<double>(first.k);
  run_in_parts(args, experts * columns, work, [&](Parts& taken) {
    for (int64_t part = 0; taken.next(part);) {
      const int64_t expert = part / columns, column = part % columns * kPartColumns;
      const int64_t begin = ends.end(expert - 1);
      const auto move = [&](const void* data, int64_t elements) {
        return static_cast<const unsigned char*>(data) + elements * bytes;
      };
      Product p = first;
      p.m = ends.end(expert) - begin;
      if (p.m <= 0) continue;
      if (part % columns + 1 < columns)
        p.n = kPartColumns;
      else
        p.n -= column;
      p.cancellation = &taken.cancellation;
      p.scratch = taken.scratch;
      p.a.data = move(p.a.data, begin * p.a.row);
      p.b.data = move(p.b.data, expert * stack.strides[0] + column * p.b.column);
      p.out = const_cast<unsigned char*>(move(p.out, begin * p.out_row + column * p.out_column));
      product_run(cpu, kernels, p);
    }
  });
  return HUSK_OK;
}

}  // namespace husk::host
