// husk::grouped_product: rows that are sorted by expert, times the matrix of their expert. `stack`
// has a matrix of k x n for each expert, and `ends` the end of the rows of each one. Rows of out
// behind the last end are 0. Matrices of experts without rows are not read. It is
// aten::_grouped_mm for a matrix and a stack (aten/src/ATen/native/GroupedMMUtils.h of PyTorch),
// which leaves those rows undefined.
#include "contracts.h"
#include "core/arguments.h"
#include "linalg/groups.h"
#include "linalg/product_parts.h"

namespace husk::host {

namespace {

constexpr ArgumentsOf kSorted("grouped_product");
constexpr uint32_t kSortedInput = kSorted["input"], kSortedStack = kSorted["stack"],
                   kSortedEnds = kSorted["ends"], kSortedOut = kSorted["out"];

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
  const Groups groups = {stack.sizes[0], input.sizes[0], args[kSortedEnds], true};
  HUSK_TRY(groups.check(args, kSortedEnds));
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
  const int64_t bytes = dtype_bytes(out.dtype);
  clear_rows(args.cancellation, out, groups.begin(groups.experts));
  if (groups.experts == 0) return HUSK_OK;
  // A few last columns are no part of their own (ProductSplit).
  constexpr int64_t kFewColumns = 32;
  int64_t columns = (first.n - 1) / kGroupColumns + 1;
  if (columns > 1 && first.n - (columns - 1) * kGroupColumns <= kFewColumns) --columns;
  const double work = static_cast<double>(out.sizes[0]) * static_cast<double>(first.n) *
                      static_cast<double>(first.k);
  run_in_parts(args, groups.experts * columns, work, [&](Parts& taken) {
    for (int64_t part = 0; taken.next(part);) {
      const int64_t expert = part / columns, column = part % columns * kGroupColumns;
      const int64_t begin = groups.begin(expert);
      const auto move = [&](const void* data, int64_t elements) {
        return static_cast<const unsigned char*>(data) + elements * bytes;
      };
      Product p = first;
      p.m = groups.end(expert) - begin;
      if (p.m <= 0) continue;
      if (part % columns + 1 < columns)
        p.n = kGroupColumns;
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
