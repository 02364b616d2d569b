// aten::histogram and the parts of aten::histogramdd: counts or sums of weights of points in bins
// of one or more dimensions, with the edges of the bins as a tensor or at equal distances.
#include <limits>

#include "contracts.h"
#include "core/arithmetic.h"
#include "core/loop.h"
#include "error.h"

namespace husk::host {

namespace {

// The edges of the bins along one dimension. `at` is null if they have equal distances.
template <class T>
struct Edges {
  const T* at;
  int64_t stride;
  T low, high;
  int64_t bins;

  // Edges at equal distances are computed from the nearer end, as torch.linspace does.
  T operator[](int64_t i) const {
    if (at) return at[i * stride];
    const T step = (high - low) / static_cast<T>(bins);
    return i < (bins + 1) / 2 ? low + step * static_cast<T>(i)
                              : high - step * static_cast<T>(bins - i);
  }
  // The bin of a value, -1 if there is none. The last bin has both of its edges.
  int64_t bin_of(T value) const {
    if (!(value >= (*this)[0] && value <= (*this)[bins])) return -1;
    // As eager mode searches, so that edges that do not ascend give the same bins. The first edge
    // is not above the value, so that some edge is found.
    int64_t first = 0;  // edges in front of it are not above the value
    for (int64_t count = bins + 1; count > 0;) {
      const int64_t half = count / 2;
      if (value < (*this)[first + half]) {
        count = half;
      } else {
        first += half + 1;
        count -= half + 1;
      }
    }
    first = first > bins ? bins : first;
    return first > 0 ? first - 1 : 0;
  }
};

constexpr ArgumentsOf kHistograms("histogram_count", "histogram_counts", "histogram_edges",
                                  "histogram_tensors");

// The points of self and their weights. A point is a row of `dimensions` numbers.
struct Points {
  int32_t dimensions;
  bool weighted;
};

// A loop over the points, for the points and their weights.
Loop<2> points_loop(const Arguments& args, const Points& points, ArgumentPlace weight_at) {
  constexpr uint32_t kSelf = kHistograms["self"];
  Loop<2> loop(args);
  const husk_op_arg self = with_safe_strides(args[kSelf]);
  loop.shape(self);
  for (int32_t d = 0; d < loop.rank; ++d) loop.strides[1][d] = 0;
  if (points.weighted) {
    const husk_op_arg weight = with_safe_strides(args[weight_at]);
    for (int32_t d = 0; d < weight.rank; ++d) loop.strides[1][d] = weight.strides[d];
  }
  if (points.dimensions) --loop.rank;
  return loop;
}

// The range of the numbers with the index `dimension`, or that of argument `range_at`. An empty
// range becomes one of length 1.
template <class T>
husk_status find_range(const Arguments& args, const Points& points, ArgumentPlace range_at,
                       int32_t dimension, T& low, T& high) {
  constexpr ArgumentsOf named("histogram_count", "histogram_counts");
  constexpr uint32_t kSelf = named["self"];
  low = 0;
  high = 1;  // without points
  if (!args.none(range_at)) {
    low = static_cast<T>(args[range_at].floats[2 * dimension]);
    high = static_cast<T>(args[range_at].floats[2 * dimension + 1]);
  } else if (numel(args[kSelf]) != 0) {
    const int64_t step = points.dimensions ? args[kSelf].strides[args[kSelf].rank - 1] : 0;
    const T* const first = data_of<T>(args[kSelf]) + dimension * step;
    low = high = *first;
    bool valid = true;
    each(points_loop(args, {points.dimensions, false}, kNoArgument), [&](const int64_t(&at)[2]) {
      const T value = first[at[0]];
      valid &= !is_nan(value);
      low = value < low ? value : low;
      high = value > high ? value : high;
    });
    if (!valid) low = std::numeric_limits<T>::quiet_NaN();
  }
  if (!(low - low == 0 && high - high == 0))
    return args.argument_error(kSelf, HUSK_INVALID_INPUT, "has a range that is not finite");
  if (low > high) return args.argument_error(range_at, HUSK_INVALID_INPUT, "ends before it begins");
  if (low == high) {
    low -= static_cast<T>(0.5);
    high += static_cast<T>(0.5);
  }
  return HUSK_OK;
}

// Checks the points, the weights and, unless `range_at` is kNoArgument, the range.
husk_status check_points(const Arguments& args, Points& points, ArgumentPlace range_at,
                         ArgumentPlace weight_at) {
  constexpr uint32_t kSelf = kHistograms["self"];
  HUSK_TRY(args.check_tensor(kSelf, points.dimensions ? 1 : 0, kMaxRank));
  if (!args.none(range_at)) {
    const int64_t count = 2 * (points.dimensions ? points.dimensions : 1);
    if (args[range_at].kind != HUSK_ARG_FLOATS || args[range_at].count != count ||
        !args[range_at].floats)
      return args.argument_error(range_at, HUSK_INVALID_ARGUMENT,
                                 "is not two numbers for each dimension");
  }
  points.weighted = !args.none(weight_at);
  if (!points.weighted) return HUSK_OK;
  const int32_t rank = args[kSelf].rank - (points.dimensions ? 1 : 0);
  HUSK_TRY(args.check_tensor(weight_at, rank, rank));
  HUSK_TRY(args.check_same_dtype(weight_at, kSelf));
  for (int32_t d = 0; d < rank; ++d)
    HUSK_TRY(args.check_size(weight_at, d, args[kSelf].sizes[d], "the points"));
  return HUSK_OK;
}

// Divides by the sum of all bins and by the size of each bin.
template <class T>
void make_density(const Arguments& args, const Edges<T>* edges, const husk_op_arg& out) {
  T sum = 0;
  Loop<1> loop(args);
  loop.shape(out);
  each(loop, [&](const int64_t(&at)[1]) { sum += data_of<T>(out)[at[0]]; });
  int64_t index[kMaxRank] = {};
  each(loop, [&](const int64_t(&at)[1]) {
    T& value = writable<T>(out)[at[0]];
    value /= sum;
    for (int32_t d = 0; d < out.rank; ++d) value /= edges[d][index[d] + 1] - edges[d][index[d]];
    for (int32_t d = out.rank - 1; d >= 0 && ++index[d] == out.sizes[d]; --d) index[d] = 0;
  });
}

// Writes the histogram of the points.
template <class T>
void count_points(const Arguments& args, const Points& points, const Edges<T>* edges,
                  ArgumentPlace weight_at, ArgumentPlace out_at, bool density) {
  constexpr uint32_t kSelf = kHistograms["self"];
  const husk_op_arg& out = args[out_at];
  Loop<1> all(args);
  all.shape(out);
  each(all, [&](const int64_t(&at)[1]) { writable<T>(out)[at[0]] = 0; });
  const int32_t dimensions = points.dimensions ? points.dimensions : 1;
  const int64_t step = points.dimensions ? args[kSelf].strides[args[kSelf].rank - 1] : 0;
  const T* const weights = points.weighted ? data_of<T>(args[weight_at]) : nullptr;
  if (numel(args[kSelf]) != 0 && numel(out) != 0) {
    each(points_loop(args, points, weight_at), [&](const int64_t(&at)[2]) {
      int64_t place = 0;
      for (int32_t d = 0; d < dimensions; ++d) {
        const int64_t bin = edges[d].bin_of(data_of<T>(args[kSelf])[at[0] + d * step]);
        if (bin < 0) return;
        place += bin * out.strides[d];
      }
      writable<T>(out)[place] += weights ? weights[at[1]] : T(1);
    });
  }
  if (density) make_density(args, edges, out);
}

// The output is a tensor of the dtype of the points with `bins` elements along dimension `dim`.
husk_status check_bins(const Arguments& args, ArgumentPlace out_at, int32_t dim, int64_t bins) {
  constexpr uint32_t kBins = kHistograms["bins"];
  if (bins < 1) return args.argument_error(kBins, HUSK_INVALID_ARGUMENT, "has no bins");
  return args.check_size(out_at, dim, bins, "the bins");
}

// The edges that a vector has.
template <class T>
Edges<T> edges_of(const husk_op_arg& tensor) {
  return {data_of<T>(tensor), tensor.strides[0], 0, 0, tensor.sizes[0] - 1};
}

}  // namespace

husk_status histogram_count(const Arguments& args) {
  constexpr ArgumentsOf named("histogram_count");
  constexpr uint32_t kSelf = named["self"], kBins = named["bins"], kRange = named["range"],
                     kWeight = named["weight"], kDensity = named["density"], kHist = named["hist"],
                     kBinEdges = named["bin_edges"];
  Points points{0, false};
  HUSK_TRY(check_points(args, points, kRange, kWeight));
  int64_t bins = 0;
  bool density = false;
  HUSK_TRY(args.get_int(kBins, bins));
  HUSK_TRY(args.get_bool(kDensity, density));
  HUSK_TRY(args.check_tensor(kHist, 1, 1));
  HUSK_TRY(args.check_same_dtype(kHist, kSelf));
  HUSK_TRY(check_bins(args, kHist, 0, bins));
  HUSK_TRY(args.check_tensor(kBinEdges, 1, 1));
  HUSK_TRY(args.check_same_dtype(kBinEdges, kSelf));
  if (bins == INT64_MAX) return args.argument_error(kBins, HUSK_UNSUPPORTED, "is too large");
  HUSK_TRY(args.check_size(kBinEdges, 0, bins + 1, "one more than there are bins"));
  husk_status status = HUSK_OK;
  HUSK_TRY(visit_argument<Floats>(args, kSelf, [&](auto tag) {
    using T = typename decltype(tag)::type;
    Edges<T> edges{nullptr, 0, 0, 0, bins};
    status = find_range(args, points, kRange, 0, edges.low, edges.high);
    if (status != HUSK_OK) return;
    count_points(args, points, &edges, kWeight, kHist, density);
    each_index(args.cancellation, bins + 1, [&](int64_t i) {
      writable<T>(args[kBinEdges])[i * args[kBinEdges].strides[0]] = edges[i];
    });
  }));
  return status;
}

husk_status histogram_edges(const Arguments& args) {
  constexpr ArgumentsOf named("histogram_edges");
  constexpr uint32_t kSelf = named["self"], kBins = named["bins"], kWeight = named["weight"],
                     kDensity = named["density"], kHist = named["hist"],
                     kBinEdges = named["bin_edges"];
  Points points{0, false};
  HUSK_TRY(check_points(args, points, kNoArgument, kWeight));
  bool density = false;
  HUSK_TRY(args.get_bool(kDensity, density));
  HUSK_TRY(args.check_tensor(kBins, 1, 1));
  HUSK_TRY(args.check_same_dtype(kBins, kSelf));
  HUSK_TRY(args.check_tensor(kHist, 1, 1));
  HUSK_TRY(args.check_same_dtype(kHist, kSelf));
  HUSK_TRY(check_bins(args, kHist, 0, args[kBins].sizes[0] - 1));
  HUSK_TRY(args.check_same_shape(kBinEdges, kBins));
  HUSK_TRY(args.check_same_dtype(kBinEdges, kSelf));
  HUSK_TRY(visit_argument<Floats>(args, kSelf, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const Edges<T> edges = edges_of<T>(args[kBins]);
    count_points(args, points, &edges, kWeight, kHist, density);
  }));
  return copy_elements(args, kBinEdges, kBins);
}

// aten::_histogramdd_from_bin_cts
husk_status histogram_counts(const Arguments& args) {
  constexpr ArgumentsOf named("histogram_counts");
  constexpr uint32_t kSelf = named["self"], kBins = named["bins"], kRange = named["range"],
                     kWeight = named["weight"], kDensity = named["density"], kOut = named["out"];
  HUSK_TRY(args.check_int_list(kBins));
  const int64_t count = args[kBins].count;
  if (count < 1 || count > kMaxRank)
    return args.argument_error(kBins, HUSK_UNSUPPORTED, "has no dimensions or too many");
  Points points{static_cast<int32_t>(count), false};
  HUSK_TRY(check_points(args, points, kRange, kWeight));
  HUSK_TRY(args.check_size(kSelf, args[kSelf].rank - 1, count, "the bins"));
  bool density = false;
  HUSK_TRY(args.get_bool(kDensity, density));
  HUSK_TRY(args.check_tensor(kOut, points.dimensions, points.dimensions));
  HUSK_TRY(args.check_same_dtype(kOut, kSelf));
  for (int32_t d = 0; d < points.dimensions; ++d)
    HUSK_TRY(check_bins(args, kOut, d, args[kBins].sizes[d]));
  husk_status status = HUSK_OK;
  HUSK_TRY(visit_argument<Floats>(args, kSelf, [&](auto tag) {
    using T = typename decltype(tag)::type;
    Edges<T> edges[kMaxRank];
    for (int32_t d = 0; d < points.dimensions && status == HUSK_OK; ++d) {
      edges[d] = {nullptr, 0, 0, 0, args[kBins].sizes[d]};
      status = find_range(args, points, kRange, d, edges[d].low, edges[d].high);
    }
    if (status == HUSK_OK) count_points(args, points, edges, kWeight, kOut, density);
  }));
  return status;
}

// aten::_histogramdd_from_bin_tensors
husk_status histogram_tensors(const Arguments& args) {
  constexpr ArgumentsOf named("histogram_tensors");
  constexpr uint32_t kSelf = named["self"], kBins = named["bins"], kWeight = named["weight"],
                     kDensity = named["density"], kOut = named["out"];
  const husk_op_arg& list = args[kBins];
  if (list.kind != HUSK_ARG_TENSORS || list.count < 1 || list.count > kMaxRank || !list.tensors)
    return args.argument_error(kBins, HUSK_INVALID_ARGUMENT, "is not a list of tensors");
  Points points{static_cast<int32_t>(list.count), false};
  HUSK_TRY(check_points(args, points, kNoArgument, kWeight));
  HUSK_TRY(args.check_size(kSelf, args[kSelf].rank - 1, list.count, "the bins"));
  bool density = false;
  HUSK_TRY(args.get_bool(kDensity, density));
  HUSK_TRY(args.check_tensor(kOut, points.dimensions, points.dimensions));
  HUSK_TRY(args.check_same_dtype(kOut, kSelf));
  const Op row{args.op, nullptr,
               "bins bins bins bins bins bins bins bins bins bins bins bins bins "
               "bins bins bins"};
  const Arguments bins(row, args, list.tensors, static_cast<uint32_t>(list.count));
  for (uint32_t d = 0; d < bins.count; ++d) {
    HUSK_TRY(bins.check_tensor(d, 1, 1));
    HUSK_TRY(bins.check_dtype(d, args[kSelf].dtype));
    HUSK_TRY(check_bins(args, kOut, static_cast<int32_t>(d), bins[d].sizes[0] - 1));
  }
  HUSK_TRY(visit_argument<Floats>(args, kSelf, [&](auto tag) {
    using T = typename decltype(tag)::type;
    Edges<T> edges[kMaxRank];
    for (uint32_t d = 0; d < bins.count; ++d) edges[d] = edges_of<T>(bins[d]);
    count_points(args, points, edges, kWeight, kOut, density);
  }));
  return HUSK_OK;
}

}  // namespace husk::host
