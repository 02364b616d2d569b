// aten::segment_reduce and index_reduce.
#include <cstring>

#include "contracts.h"
#include "core/arguments.h"
#include "core/arithmetic.h"
#include "core/checked.h"
#include "core/loop.h"
#include "error.h"
#include "indexing/scatter.h"

namespace husk::host {

namespace {

enum class SegmentReduce { Sum, Mean, Max, Min, Product };

// Reads the name of the reduction.
husk_status reduce_of(const Arguments& args, ArgumentPlace at, SegmentReduce& out) {
  constexpr struct {
    const char* name;
    SegmentReduce reduce;
  } kReductions[] = {{"sum", SegmentReduce::Sum},
                     {"mean", SegmentReduce::Mean},
                     {"max", SegmentReduce::Max},
                     {"min", SegmentReduce::Min},
                     {"prod", SegmentReduce::Product}};
  for (const auto& row : kReductions) {
    if (args[at].kind != HUSK_ARG_STRING || !args[at].string ||
        strcmp(row.name, args[at].string) != 0)
      continue;
    out = row.reduce;
    return HUSK_OK;
  }
  return args.argument_error(at, HUSK_INVALID_ARGUMENT, "is none of sum, mean, max, min, prod");
}

// The value that a segment's reduction begins with.
double start_value(SegmentReduce reduce, bool has_initial, double initial) {
  if (has_initial) return initial;
  return reduce == SegmentReduce::Product ? 1
         : reduce == SegmentReduce::Max   ? -__builtin_inf()
         : reduce == SegmentReduce::Min   ? __builtin_inf()
                                          : 0;
}

double combine(SegmentReduce reduce, double a, double b) {
  switch (reduce) {
    case SegmentReduce::Product: return a * b;
    case SegmentReduce::Max: return is_nan(a) || a > b ? a : b;
    case SegmentReduce::Min: return is_nan(a) || a < b ? a : b;
    default: return a + b;
  }
}

// The segments of a row, as a tensor of their lengths or of the offsets at which they start and
// end.
struct Segments {
  const husk_op_arg& tensor;
  bool has_lengths;
  int64_t count, stride;

  int64_t number(int64_t row, int64_t i) const {
    return get_index(tensor.dtype, tensor.data, row + i * stride);
  }
};

}  // namespace

husk_status segment_reduce(const Arguments& args) {
  constexpr ArgumentsOf named("segment_reduce");
  constexpr uint32_t kData = named["data"], kReduce = named["reduce"], kLengths = named["lengths"],
                     kIndices = named["indices"], kOffsets = named["offsets"],
                     kAxis = named["axis"], kInitial = named["initial"], kOut = named["out"];
  HUSK_TRY(args.check_tensor(kData, 1, kMaxRank));
  SegmentReduce reduce{};
  HUSK_TRY(reduce_of(args, kReduce, reduce));
  if (!args.none(kIndices))
    return args.argument_error(kIndices, HUSK_UNSUPPORTED, "is given; give lengths or offsets");
  const uint32_t list_at = args.none(kLengths) ? kOffsets : kLengths;
  HUSK_TRY(args.check_tensor(list_at, 1, args[kData].rank));
  HUSK_TRY(args.check_index_dtype(list_at));
  const husk_op_arg &data = args[kData], &list = args[list_at], &out = args[kOut];
  int32_t axis = 0;
  HUSK_TRY(args.get_dim(kAxis, data.rank, axis));
  if (axis != list.rank - 1)
    return args.argument_error(kAxis, HUSK_INVALID_ARGUMENT,
                               "is not the last dimension of the segments");
  double initial = 0;
  if (!args.none(kInitial)) HUSK_TRY(args.get_number(kInitial, initial));
  HUSK_TRY(args.check_tensor(kOut, data.rank, data.rank));
  HUSK_TRY(args.check_same_dtype(kOut, kData));
  Segments segments{list, list_at == kLengths, list.sizes[axis] - (list_at == kLengths ? 0 : 1),
                    list.strides[axis]};
  if (segments.count < 0)
    return args.argument_error(list_at, HUSK_INVALID_ARGUMENT, "has no last offset");
  for (int32_t d = 0; d < data.rank; ++d) {
    HUSK_TRY(args.check_size(kOut, d, d == axis ? segments.count : data.sizes[d],
                             "segments, or the data's"));
    if (d < axis) HUSK_TRY(args.check_size(list_at, d, data.sizes[d], "the data's"));
  }
  Loop<3> rows(args);  // operands: data, segments, out
  rows.shape(data);
  rows.add(2, out);
  for (int32_t d = 0; d < data.rank; ++d) rows.strides[1][d] = d < axis ? list.strides[d] : 0;
  rows.drop(axis);
  bool in_range = true;
  HUSK_TRY(visit_argument<Floats | Halves>(args, kData, [&](auto tag) {
    using T = typename decltype(tag)::type;
    in_range = each_while(rows, [&](const int64_t(&at)[3]) {
      int64_t from = segments.has_lengths ? 0 : segments.count >= 0 ? segments.number(at[1], 0) : 0;
      return each_index_while(args.cancellation, segments.count, [&](int64_t s) {
        int64_t length = 0;
        if (segments.has_lengths)
          length = segments.number(at[1], s);
        else if (!checked_subtract(segments.number(at[1], s + 1), from, length))
          return false;
        if (from < 0 || length < 0 || length > data.sizes[axis] - from) return false;
        double total = start_value(reduce, !args.none(kInitial), initial);
        each_index(args.cancellation, length, [&](int64_t i) {
          total = combine(
              reduce, total,
              static_cast<double>(get(data_of<T>(data) + at[0] + (from + i) * data.strides[axis])));
        });
        if (reduce == SegmentReduce::Mean && length > 0) total /= static_cast<double>(length);
        if (reduce == SegmentReduce::Mean && length == 0 && args.none(kInitial))
          total = __builtin_nan("");
        set(writable<T>(out) + at[2] + s * out.strides[axis], static_cast<Value<T>>(total));
        from += length;
        return true;
      });
    });
  }));
  return in_range ? husk_status{HUSK_OK}
                  : args.argument_error(list_at, HUSK_INVALID_INPUT,
                                        "has segments that are not in the data");
}

// index_reduce is a scatter_reduce with the same index for all rows: the index broadcasts to the
// source.
husk_status index_reduce(const Arguments& args) {
  constexpr ArgumentsOf named("index_reduce");
  constexpr uint32_t kSelf = named["self"], kDim = named["dim"], kIndex = named["index"],
                     kSource = named["source"], kReduce = named["reduce"],
                     kIncludeSelf = named["include_self"], kOut = named["out"];
  HUSK_TRY(copy_elements(args, kOut, kSelf));
  HUSK_TRY(args.check_same_shape(kOut, kSelf));
  HUSK_TRY(args.check_tensor(kIndex, 0, 1));
  HUSK_TRY(args.check_tensor(kSource, args[kSelf].rank, args[kSelf].rank));
  int32_t dim = 0;
  HUSK_TRY(args.get_dim(kDim, args[kSelf].rank, dim));
  const husk_op_arg &index = args[kIndex], &source = args[kSource];
  const int64_t count = source.rank > 0 ? source.sizes[dim] : 1;
  if (numel(index) != count) {
    return fail(args.error, HUSK_INVALID_ARGUMENT,
                "%s: argument index has %lld elements, not %lld (the size of source)", args.op,
                static_cast<long long>(numel(index)), static_cast<long long>(count));
  }
  int64_t strides[kMaxRank] = {};
  if (source.rank > 0) strides[dim] = index.rank > 0 ? index.strides[0] : 0;
  husk_op_arg expanded = index;
  expanded.rank = source.rank;
  expanded.sizes = source.sizes;
  expanded.strides = strides;
  const husk_op_arg scattered[] = {args[kOut], args[kDim],    expanded,
                                   source,     args[kReduce], args[kIncludeSelf]};
  const Op op{args.op, nullptr, "self dim index source reduce include_self"};
  return scatter_reduce_into(Arguments(op, args, scattered, 6));
}

}  // namespace husk::host
