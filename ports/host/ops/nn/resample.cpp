// Antialiased upsampling. Each output is a weighted mean of inputs near a position.
#include <algorithm>
#include <cmath>

#include "contracts.h"
#include "core/arguments.h"
#include "core/element.h"
#include "core/loop.h"
#include "core/scratch.h"
#include "error.h"

namespace husk::host {

namespace {

double linear_filter(double x) {
  x = std::fabs(x);
  return x < 1 ? 1 - x : 0;
}

// The cubic convolution filter of R. Keys with a = -1/2.
double cubic_filter(double x) {
  constexpr double kA = -0.5;
  x = std::fabs(x);
  if (x < 1) return ((kA + 2) * x - (kA + 3)) * x * x + 1;
  return x < 2 ? (((x - 5) * x + 8) * x - 4) * kA : 0;
}

// The inputs that contribute to an output along one axis.
struct Window {
  static constexpr int64_t kKnown = 64;  // weights that are computed once

  int64_t first, count;
  double center, inverse, sum;
  double (*filter)(double);
  double known[kKnown];

  double weight(int64_t i) const { return i < kKnown ? known[i] : filtered(i) / sum; }
  double filtered(int64_t i) const {
    return filter((static_cast<double>(i + first) - center + 0.5) * inverse);
  }
};

struct Resize {
  Cancellation& cancellation;
  int64_t in, out;
  double scale;  // inputs per output
  double reach;  // of the filter, in inputs, before it is widened for downsampling
  double (*filter)(double);

  Window window(int64_t i) const {
    const double support = scale >= 1 ? reach * scale : reach;
    Window w;
    w.center = scale * (static_cast<double>(i) + 0.5);
    w.inverse = scale >= 1 ? 1 / scale : 1;
    w.filter = filter;
    w.first = input_at(w.center - support + 0.5);
    w.count = input_at(w.center + support + 0.5) - w.first;
    double sum = 0;
    each_index(cancellation, w.count, [&](int64_t k) {
      const double weight = w.filtered(k);
      if (k < Window::kKnown) w.known[k] = weight;
      sum += weight;
    });
    w.sum = sum != 0 ? sum : 1;
    for (int64_t k = 0; k < std::min(w.count, Window::kKnown); ++k) w.known[k] /= w.sum;
    return w;
  }

 private:
  // The number of the input at a position, limited to [0, in]. A scale may make the position any
  // number, even NaN.
  int64_t input_at(double position) const {
    if (!(position > 0)) return 0;
    return position < static_cast<double>(in) ? static_cast<int64_t>(position) : in;
  }
};

husk_status read_resize(const Arguments& args, int32_t at, ArgumentPlace scale_at, bool align,
                        Resize& r) {
  constexpr ArgumentsOf named("upsample_bilinear2d_aa", "upsample_bicubic2d_aa");
  constexpr uint32_t kSelf = named["self"], kOut = named["out"];
  r.in = args[kSelf].sizes[at];
  r.out = args[kOut].sizes[at];
  const double in = static_cast<double>(r.in), out = static_cast<double>(r.out);
  if (align) {
    r.scale = r.out > 1 ? (in - 1) / (out - 1) : 0;
    return HUSK_OK;
  }
  double factor = 0;
  if (!args.none(scale_at)) HUSK_TRY(args.get_number(scale_at, factor));
  r.scale = factor > 0 ? 1 / factor : in / out;
  return HUSK_OK;
}

// The images of a call, and how their rows and columns are resized.
struct Resizing {
  const Arguments& args;
  const husk_op_arg &self, &out;
  Loop<2> planes;  // operands: self, out
  Resize rows, columns;
};

// Computes column `x` of all results, each element by itself.
template <class T>
bool resize_column(const Resizing& r, int64_t x) {
  const Window horizontal = r.columns.window(x);
  return each_index_while(r.args.cancellation, r.rows.out, [&](int64_t y) {
    const Window vertical = r.rows.window(y);
    // Loops over a few weights do not report them, and one in another is many together.
    constexpr int64_t kWeightWork = 4;
    const int64_t few = kWeightWork * std::min(vertical.count, kUnreportedWork) *
                        std::min(horizontal.count, kUnreportedWork);
    return each_while(r.planes, [&](const int64_t(&at)[2]) {
      if (r.args.cancellation.ends(few)) return false;
      double total = 0;
      const bool summed = each_index_while(r.args.cancellation, vertical.count, [&](int64_t v) {
        const T* row = data_of<T>(r.self) + at[0] + (vertical.first + v) * r.self.strides[2];
        double sum = 0;
        const bool row_summed = each_index(r.args.cancellation, horizontal.count, [&](int64_t h) {
          sum += horizontal.weight(h) *
                 static_cast<double>(get(row + (horizontal.first + h) * r.self.strides[3]));
        });
        total += vertical.weight(v) * sum;
        return row_summed;
      });
      set(writable<T>(r.out) + at[1] + y * r.out.strides[2] + x * r.out.strides[3],
          static_cast<Value<T>>(total));
      return summed;
    });
  });
}

// Neighbouring columns of the results, whose weights are computed once for all rows of all images.
// A row of a result is a row of weighted sums of input rows, of which each column then takes its
// part. Some rows are computed at once, because a sum of few elements waits for its own additions.
template <class V>
struct ColumnGroup {
  static constexpr int64_t kMost = 512, kWeights = 8192, kSpan = 4096;
  static constexpr int kRows = 4;

  V rows[kRows][kSpan];  // sums of input rows, from column `first` on
  V weights[kWeights];
  int32_t starts[kMost], counts[kMost];  // inputs of a column, from `first` on; their number
  int32_t places[kMost];                 // of their weights
  int64_t begin, count;                  // columns of the results
  int64_t first, span;                   // columns of the inputs

  // Takes columns from `x` on, as many as fit. May take none.
  void take(const Resize& columns, int64_t x) {
    int64_t low = 0, high = 0, used = 0;
    begin = x;
    for (count = 0; count < kMost && x < columns.out; ++count, ++x) {
      const Window window = columns.window(x);
      const int64_t end = window.first + window.count;
      const int64_t new_low = count ? std::min(low, window.first) : window.first,
                    new_high = count ? std::max(high, end) : end;
      if (columns.cancellation.ended() || new_high - new_low > kSpan ||
          used + window.count > kWeights)
        break;
      // The starts of earlier columns count from `low`, which only a scale that is no number
      // lowers.
      if (count && new_low != low) break;
      low = new_low;
      high = new_high;
      starts[count] = static_cast<int32_t>(window.first - low);
      counts[count] = static_cast<int32_t>(window.count);
      places[count] = static_cast<int32_t>(used);
      for (int64_t i = 0; i < window.count; ++i) weights[used++] = static_cast<V>(window.weight(i));
    }
    first = low;
    span = high - low;
  }

  // Sets row `r` to a weighted sum of input rows. Returns false if the call is to end.
  template <class T>
  bool sum_rows(const Resizing& all, const T* plane, const Window& window, int r) {
    V* const sums = rows[r];
    for (int64_t i = 0; i < span; ++i) sums[i] = 0;
    const int64_t step = all.self.strides[3];
    return each_index_while(all.args.cancellation, window.count, [&](int64_t v) {
      if (all.args.cancellation.ends(span / 4)) return false;
      const T* from = plane + (window.first + v) * all.self.strides[2] + first * step;
      const V weight = static_cast<V>(window.weight(v));
      if (step == 1) {
        for (int64_t i = 0; i < span; ++i) sums[i] += weight * get(from + i);
      } else {
        for (int64_t i = 0; i < span; ++i) sums[i] += weight * get(from + i * step);
      }
      return true;
    });
  }

  // Writes `row_count` rows of results, the first of which begins at `to`.
  template <class T>
  void write(const Resizing& all, T* to, int64_t row_count) const {
    for (int64_t c = 0; c < count; ++c) {
      const V* const own = weights + places[c];
      V sums[kRows] = {};
      for (int64_t i = 0; i < counts[c]; ++i)
        for (int r = 0; r < kRows; ++r) sums[r] += own[i] * rows[r][starts[c] + i];
      for (int64_t r = 0; r < row_count; ++r)
        set(to + r * all.out.strides[2] + (begin + c) * all.out.strides[3], sums[r]);
    }
  }
};
static_assert(sizeof(ColumnGroup<double>) <= kResizeScratch, "core/scratch.h");

template <class T>
void resize(const Resizing& r) {
  using Group = ColumnGroup<Value<T>>;
  Group& group = *static_cast<Group*>(r.args.scratch());
  for (int64_t x = 0; x < r.columns.out && !r.args.cancellation.ended();) {
    group.take(r.columns, x);
    if (group.count == 0) {
      resize_column<T>(r, x++);
      continue;
    }
    each_while(r.planes, [&](const int64_t(&at)[2]) {
      for (int64_t y = 0; y < r.rows.out; y += Group::kRows) {
        const int64_t count = std::min<int64_t>(r.rows.out - y, Group::kRows);
        for (int row = 0; row < Group::kRows; ++row) {  // the last rows may be computed twice
          const Window window = r.rows.window(y + std::min<int64_t>(row, count - 1));
          if (!group.sum_rows(r, data_of<T>(r.self) + at[0], window, row)) return false;
        }
        const int64_t inputs = group.places[group.count - 1] + group.counts[group.count - 1];
        if (r.args.cancellation.ends(inputs + group.count)) return false;
        group.write(r, writable<T>(r.out) + at[1] + y * r.out.strides[2], count);
      }
      return true;
    });
    x += group.count;
  }
}

husk_status upsample(const Arguments& args, double reach, double (*filter)(double)) {
  constexpr ArgumentsOf named("upsample_bilinear2d_aa", "upsample_bicubic2d_aa");
  constexpr uint32_t kSelf = named["self"], kOutputSize = named["output_size"],
                     kAlignCorners = named["align_corners"], kScalesH = named["scales_h"],
                     kScalesW = named["scales_w"], kOut = named["out"];
  HUSK_TRY(args.check_tensor(kSelf, 4, 4));
  HUSK_TRY(args.check_tensor(kOut, 4, 4));
  HUSK_TRY(args.check_same_dtype(kOut, kSelf));
  HUSK_TRY(args.check_ints(kOutputSize, 2));
  const husk_op_arg &self = args[kSelf], &out = args[kOut];
  bool align = false;
  HUSK_TRY(args.get_bool(kAlignCorners, align));
  for (int32_t d = 0; d < 4; ++d)
    HUSK_TRY(args.check_size(kOut, d, d < 2 ? self.sizes[d] : args[kOutputSize].sizes[d - 2],
                             "output_size, or the input's"));
  if (numel(out) == 0) return HUSK_OK;
  if (numel(self) == 0) return args.argument_error(kSelf, HUSK_INVALID_INPUT, "has no elements");
  Resize rows{args.cancellation, 0, 0, 0, reach, filter}, columns = rows;
  HUSK_TRY(read_resize(args, 2, kScalesH, align, rows));
  HUSK_TRY(read_resize(args, 3, kScalesW, align, columns));
  Loop<2> planes(args);
  planes.shape(self);
  planes.add(1, out);
  planes.rank = 2;
  const Resizing resizing{args, self, out, planes, rows, columns};
  return visit_argument<Floats | Halves>(
      args, kSelf, [&](auto tag) { resize<typename decltype(tag)::type>(resizing); });
}

}  // namespace

husk_status upsample_bilinear2d_aa(const Arguments& args) {
  return upsample(args, 1, linear_filter);
}
husk_status upsample_bicubic2d_aa(const Arguments& args) { return upsample(args, 2, cubic_filter); }

}  // namespace husk::host
