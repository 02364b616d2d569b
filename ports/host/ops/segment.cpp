// aten::segment_reduce and index_reduce.
#include <string.h>

#include "arguments.h"
#include "error.h"
#include "loop.h"
#include "number.h"

namespace husk::host {

namespace {

enum class Reduce { Sum, Mean, Most, Least, Product };

husk_status reduce_of(const Arguments& args, uint32_t at, Reduce& out) {
  constexpr struct { const char* name; Reduce reduce; } all[] = {{"sum", Reduce::Sum}, {"mean", Reduce::Mean},
                                                                 {"max", Reduce::Most}, {"min", Reduce::Least},
                                                                 {"prod", Reduce::Product}};
  for (const auto& row : all) {
    if (args[at].kind != HUSK_ARG_STRING || !args[at].string || strcmp(row.name, args[at].string) != 0) continue;
    out = row.reduce;
    return HUSK_OK;
  }
  return args.refuse(at, HUSK_INVALID_ARGUMENT, "is none of sum, mean, max, min, prod");
}

double start_value(Reduce reduce, bool given, double initial) {
  if (given) return initial;
  return reduce == Reduce::Product ? 1
         : reduce == Reduce::Most  ? -__builtin_inf()
         : reduce == Reduce::Least ? __builtin_inf()
                                   : 0;
}

double combine(Reduce reduce, double a, double b) {
  switch (reduce) {
    case Reduce::Product: return a * b;
    case Reduce::Most: return is_nan(a) || a > b ? a : b;
    case Reduce::Least: return is_nan(a) || a < b ? a : b;
    default: return a + b;
  }
}

// Segments of one row: from their lengths, or from the offsets where they start and end.
struct Segments {
  const husk_op_arg& given;
  bool lengths;
  int64_t count, stride;

  int64_t number(int64_t row, int64_t i) const { return get_index(given.dtype, given.data, row + i * stride); }
};

}  // namespace

husk_status segment_reduce(const Arguments& args) {
  HUSK_TRY(args.tensor(0, 1, most_dims));
  Reduce reduce{};
  HUSK_TRY(reduce_of(args, 1, reduce));
  if (!args.none(3)) return args.refuse(3, HUSK_UNSUPPORTED, "is given; give lengths or offsets");
  const uint32_t list = args.none(2) ? 4 : 2;
  HUSK_TRY(args.tensor(list, 1, args[0].rank));
  if (args[list].dtype != HUSK_I64 && args[list].dtype != HUSK_I32) return args.unsupported_dtype(list);
  const husk_op_arg &data = args[0], &given = args[list], &out = args[8];
  int32_t axis = 0;
  HUSK_TRY(args.dimension(5, data.rank, axis));
  if (axis != given.rank - 1) return args.refuse(5, HUSK_INVALID_ARGUMENT, "is not the last dimension of the segments");
  double initial = 0;
  if (!args.none(7)) HUSK_TRY(args.number(7, initial));
  HUSK_TRY(args.tensor(8, data.rank, data.rank));
  HUSK_TRY(args.same_dtype(8, 0));
  Segments segments{given, list == 2, given.sizes[axis] - (list == 2 ? 0 : 1), given.strides[axis]};
  if (segments.count < 0) return args.refuse(list, HUSK_INVALID_ARGUMENT, "has no last offset");
  for (int32_t d = 0; d < data.rank; d++) {
    HUSK_TRY(args.size(8, d, d == axis ? segments.count : data.sizes[d], "segments, or the data's"));
    if (d < axis) HUSK_TRY(args.size(list, d, data.sizes[d], "the data's"));
  }
  Loop<3> rows;   // data, segments, out
  rows.shape(data);
  rows.add(2, out);
  for (int32_t d = 0; d < data.rank; d++) rows.strides[1][d] = d < axis ? given.strides[d] : 0;
  rows.drop(axis);
  bool good = true;
  const bool known = visit<Floats | Halves>(data.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    good = each_while(rows, [&](const int64_t(&at)[3]) {
      int64_t from = segments.lengths ? 0 : segments.count >= 0 ? segments.number(at[1], 0) : 0;
      for (int64_t s = 0; s < segments.count; s++) {
        const int64_t length = segments.lengths ? segments.number(at[1], s) : segments.number(at[1], s + 1) - from;
        if (from < 0 || length < 0 || length > data.sizes[axis] - from) return false;
        double total = start_value(reduce, !args.none(7), initial);
        for (int64_t i = from; i < from + length; i++) {
          total = combine(reduce, total, static_cast<double>(get(data_of<T>(data) + at[0] + i * data.strides[axis])));
        }
        if (reduce == Reduce::Mean && length > 0) total /= static_cast<double>(length);
        if (reduce == Reduce::Mean && length == 0 && args.none(7)) total = __builtin_nan("");
        set(writable<T>(out) + at[2] + s * out.strides[axis], static_cast<Value<T>>(total));
        from += length;
      }
      return true;
    });
  });
  if (!known) return args.unsupported_dtype(0);
  return good ? husk_status{HUSK_OK} : args.refuse(list, HUSK_INVALID_INPUT, "has segments that are not in the data");
}

// A scatter whose index is the same for all rows.
husk_status index_reduce(const Arguments& args) {
  HUSK_TRY(copy_elements(args, 6, 0));
  HUSK_TRY(args.same_shape(6, 0));
  HUSK_TRY(args.tensor(2, 0, 1));
  HUSK_TRY(args.tensor(3, args[0].rank, args[0].rank));
  int32_t dim = 0;
  HUSK_TRY(args.dimension(1, args[0].rank, dim));
  const husk_op_arg &index = args[2], &source = args[3];
  if (source.rank > 0) HUSK_TRY(args.size(3, dim, numel(index), "one for each index"));
  int64_t strides[most_dims] = {};
  if (source.rank > 0) strides[dim] = index.rank > 0 ? index.strides[0] : 0;
  husk_op_arg expanded = index;
  expanded.rank = source.rank;
  expanded.sizes = source.sizes;
  expanded.strides = strides;
  const husk_op_arg scattered[] = {args[6], args[1], expanded, source, args[4], args[5]};
  const Op op{args.op, nullptr, "self dim index source reduce include_self"};
  return scatter_reduce_into(Arguments(op, args.context, scattered, 6, args.error));
}

}  // namespace husk::host
