// aten::convolution with one to three dimensions, plain or transposed, with groups. A tile of
// output positions is gathered into a matrix on the stack, with one row for each pair of input
// channel and kernel tap, and multiplied with the weights. Sums are in f32 (f64 for f64) and are
// rounded once.
#include <cstring>

#include "core/arguments.h"
#include "core/checked.h"
#include "core/element.h"
#include "core/parallel.h"
#include "device.h"
#include "error.h"
#include "linalg/product.h"
#include "nn/axes.h"

namespace husk::host {

namespace {

// The geometry along one axis.
struct Axis {
  int64_t in, out, kernel;
  int64_t stride, padding, dilation;
  int64_t in_stride, out_stride, kernel_stride;  // of the tensors, in elements
};

struct Convolution {
  husk_op_arg input, weight;  // with safe strides: they may have no elements
  const husk_op_arg *bias, *out;
  const Device* device;
  Axis axis[kAxes];
  bool transposed;
  int64_t batch, groups;
  int64_t in_channels, out_channels;  // in a group
  int64_t weight_in, weight_out;      // strides of the weights along a group's channels
  int64_t weight_group;               // stride from one group's weights to the next group's
  int64_t positions, taps;            // spatial sizes of the output and of the kernel

  // The input coordinate that output coordinate `o` reads through tap coordinate `k`, or -1 if it
  // lies outside of the input.
  static int64_t coordinate(const Axis& a, int64_t o, int64_t k, bool transposed) {
    int64_t i = transposed ? o + a.padding - k * a.dilation
                           : o * a.stride - a.padding + k * a.dilation;
    if (transposed) {
      if (i < 0 || i % a.stride != 0) return -1;
      i /= a.stride;
    }
    return i < 0 || i >= a.in ? -1 : i;
  }
};

template <class T>
constexpr int64_t kTile = 384 / static_cast<int64_t>(sizeof(T));  // positions in a tile
template <class T>
constexpr int64_t kDepth = 1024 / static_cast<int64_t>(sizeof(T));  // matrix rows at once
template <class T>
constexpr int64_t kChannels = 512 / static_cast<int64_t>(sizeof(T));  // output channels at once
constexpr int64_t kMaxTaps = 64;  // taps whose offsets are stored

// The offset of an element outside of the input. Strides below 0 make other negative offsets.
constexpr int64_t kOutside = INT64_MIN;

// A run of adjacent output positions that read adjacent input elements through a tap, or, with
// offset kOutside, elements outside of the input.
struct Run {
  int64_t offset, start, count;
};
constexpr int kMaxRuns = 8;

// P adjacent output positions, with the offset of the input element that each position reads
// through each tap, or kOutside.
template <int64_t P>
struct Tile {
  int64_t first, count;
  int64_t at[P][kAxes];
  int64_t out[P];  // offsets in the output
  int64_t stored_offsets[kMaxTaps][P];
  int64_t offset_buffer[P];
  Run runs[kMaxTaps][kMaxRuns];
  int run_count[kMaxTaps];  // 0 if there are more than kMaxRuns

  void start(const Convolution& c, int64_t begin, int64_t length) {
    first = begin;
    count = length;
    for (int64_t p = 0; p < count; ++p) {
      int64_t rest = first + p;
      out[p] = 0;
      for (int d = kAxes - 1; d >= 0; --d) {
        at[p][d] = rest % c.axis[d].out;
        rest /= c.axis[d].out;
        out[p] += at[p][d] * c.axis[d].out_stride;
      }
    }
    for (int64_t k = 0; k < c.taps && c.taps <= kMaxTaps; ++k) {
      fill(c, k, stored_offsets[k]);
      find_runs(k);
    }
  }
  // Calls f(run) for each run of a tap. Returns false, without a call, if the runs of the tap are
  // not stored.
  template <class F>
  bool each_run(const Convolution& c, int64_t k, F f) const {
    if (c.taps > kMaxTaps || run_count[k] == 0) return false;
    for (int i = 0; i < run_count[k]; ++i) f(runs[k][i]);
    return true;
  }
  // The offsets of all positions through a tap.
  const int64_t* offsets(const Convolution& c, int64_t k) {
    if (c.taps <= kMaxTaps) return stored_offsets[k];
    fill(c, k, offset_buffer);
    return offset_buffer;
  }

 private:
  void find_runs(int64_t k) {
    const int64_t* offsets = stored_offsets[k];
    int index = 0;
    for (int64_t p = 0; p < count; ++index) {
      if (index == kMaxRuns) {
        run_count[k] = 0;
        return;
      }
      Run run{offsets[p], p, 1};
      const int64_t step = run.offset == kOutside ? 0 : 1;
      while (p + run.count < count && offsets[p + run.count] == run.offset + step * run.count)
        ++run.count;
      runs[k][index] = run;
      p += run.count;
    }
    run_count[k] = index;
  }
  void fill(const Convolution& c, int64_t tap, int64_t* to) const {
    int64_t k[kAxes];
    for (int d = kAxes - 1; d >= 0; --d) {
      k[d] = tap % c.axis[d].kernel;
      tap /= c.axis[d].kernel;
    }
    for (int64_t p = 0; p < count; ++p) {
      int64_t offset = 0;
      for (int d = 0; d < kAxes && offset != kOutside; ++d) {
        const int64_t i = Convolution::coordinate(c.axis[d], at[p][d], k[d], c.transposed);
        offset = i < 0 ? kOutside : offset + i * c.axis[d].in_stride;
      }
      to[p] = offset;
    }
  }
};

template <class T>
struct Buffers {
  Cancellation* cancellation;  // of the thread
  Tile<kTile<T>> positions;
  alignas(64) T columns[kDepth<T> * kTile<T>];
  alignas(64) T weights[kChannels<T> * kDepth<T>];
  alignas(64) T sums[kChannels<T> * kTile<T>];
};

// The offset of a tap in the weights.
int64_t tap_offset(const Convolution& c, int64_t tap) {
  int64_t offset = 0;
  for (int d = kAxes - 1; d >= 0; --d) {
    offset += tap % c.axis[d].kernel * c.axis[d].kernel_stride;
    tap /= c.axis[d].kernel;
  }
  return offset;
}

// Gathers rows [row, row + rows) of the matrix. Row j holds the inputs of channel j / taps for tap
// j % taps.
template <class T, class S>
void gather_columns(const Convolution& c, const S* input, int64_t row, int64_t rows,
                    Buffers<T>& b) {
  for (int64_t j = 0; j < rows; ++j) {
    const S* channel = input + (row + j) / c.taps * c.input.strides[1];
    const int64_t tap = (row + j) % c.taps;
    T* to = b.columns + j * kTile<T>;
    const bool copied = b.positions.each_run(c, tap, [&](const Run& run) {
      T* part = to + run.start;
      if (run.offset == kOutside)
        memset(part, 0, static_cast<size_t>(run.count) * sizeof(T));
      else if (std::is_same_v<T, S>)
        memcpy(part, channel + run.offset, static_cast<size_t>(run.count) * sizeof(T));
      else
        for (int64_t p = 0; p < run.count; ++p) part[p] = T(get(channel + run.offset + p));
    });
    if (copied) continue;
    const int64_t* offsets = b.positions.offsets(c, tap);
    for (int64_t p = 0; p < b.positions.count; ++p)
      to[p] = offsets[p] == kOutside ? T(0) : T(get(channel + offsets[p]));
  }
}

template <class T, class S>
void gather_weights(const Convolution& c, const S* weight, int64_t first, int64_t count,
                    int64_t row, int64_t rows, Buffers<T>& b) {
  for (int64_t j = 0; j < rows; ++j) {
    const S* from = weight + (row + j) / c.taps * c.weight_in + tap_offset(c, (row + j) % c.taps);
    for (int64_t o = 0; o < count; ++o)
      b.weights[o * kDepth<T> + j] = T(get(from + (first + o) * c.weight_out));
  }
}

// True if the weights of a group already have the layout of the left matrix.
template <class T, class S>
bool weights_in_order(const Convolution& c) {
  if (!std::is_same_v<T, S> || c.weight_in != c.taps) return false;
  int64_t stride = 1;
  for (int d = kAxes - 1; d >= 0; --d) {
    if (c.axis[d].kernel != 1 && c.axis[d].kernel_stride != stride) return false;
    stride *= c.axis[d].kernel;
  }
  return true;
}

template <class T, class S>
void store(const Convolution& c, const Buffers<T>& b, S* out, int64_t channel, int64_t first,
           int64_t count) {
  for (int64_t o = 0; o < count; ++o) {
    const int64_t to = channel + first + o;
    const T bias = c.bias ? T(get(data_of<S>(*c.bias) + to * c.bias->strides[0])) : T(0);
    S* row = out + to * c.out->strides[1];
    for (int64_t p = 0; p < b.positions.count; ++p)
      set(row + b.positions.out[p], b.sums[o * kTile<T> + p] + bias);
  }
}

// Computes one group of one image for one tile.
template <class T, class S>
void run_tile(const Convolution& c, int64_t image, int64_t group, Buffers<T>& b) {
  const S* input = data_of<S>(c.input) + image * c.input.strides[0] +
                   group * c.in_channels * c.input.strides[1];
  const S* weight = data_of<S>(c.weight) + group * c.weight_group;
  S* out = writable<S>(*c.out) + image * c.out->strides[0];
  const int64_t depth = c.in_channels * c.taps;  // fits: a product of sizes of the weights
  for (int64_t first = 0; first < c.out_channels; first += kChannels<T>) {
    const int64_t count = c.out_channels - first < kChannels<T> ? c.out_channels - first
                                                                : kChannels<T>;
    if (b.cancellation->ends(count * kTile<T>)) return;
    Product product = {};
    product.dtype = std::is_same_v<T, double> ? HUSK_F64 : HUSK_F32;
    product.m = count;
    product.n = b.positions.count;
    product.alpha = product.beta = 1;
    product.out = b.sums;
    product.out_row = kTile<T>;
    product.out_column = 1;
    product.cancellation = b.cancellation;
    if (depth == 0) memset(b.sums, 0, sizeof b.sums);
    for (int64_t row = 0; row < depth; row += kDepth<T>) {
      product.k = depth - row < kDepth<T> ? depth - row : kDepth<T>;
      if (b.cancellation->ends(product.k * kTile<T>)) return;
      if (row > 0 || first == 0 || depth > kDepth<T>)
        gather_columns<T, S>(c, input, row, product.k, b);
      if (weights_in_order<T, S>(c)) {
        product.a = {weight + first * c.weight_out + row, c.weight_out, 1};
      } else {
        gather_weights<T, S>(c, weight, first, count, row, product.k, b);
        product.a = {b.weights, kDepth<T>, 1};
      }
      product.b = {b.columns, kTile<T>, 1};
      if (row > 0) product.self = {b.sums, kTile<T>, 1};
      product_run(*c.device, product);
    }
    store<T, S>(c, b, out, group * c.out_channels, first, count);
  }
}

// Computes the same as run_tile if there are few products for each position, for example one
// channel in a group. The products are summed directly from the input.
template <class T, class S>
void run_thin_tile(const Convolution& c, int64_t image, int64_t group, Buffers<T>& b) {
  const S* input = data_of<S>(c.input) + image * c.input.strides[0] +
                   group * c.in_channels * c.input.strides[1];
  const S* weight = data_of<S>(c.weight) + group * c.weight_group;
  memset(b.sums, 0, static_cast<size_t>(c.out_channels * kTile<T>) * sizeof(T));
  for (int64_t i = 0; i < c.in_channels; ++i) {
    for (int64_t k = 0; k < c.taps; ++k) {
      const S* channel = input + i * c.input.strides[1];
      const S* value = weight + i * c.weight_in + tap_offset(c, k);
      for (int64_t o = 0; o < c.out_channels; ++o) {
        const T scale = T(get(value + o * c.weight_out));
        T* sums = b.sums + o * kTile<T>;
        const bool added = b.positions.each_run(c, k, [&](const Run& run) {
          if (run.offset == kOutside) return;
          T* part = sums + run.start;
          const S* from = channel + run.offset;
          for (int64_t p = 0; p < run.count; ++p) part[p] += scale * T(get(from + p));
        });
        if (added) continue;
        const int64_t* offsets = b.positions.offsets(c, k);
        for (int64_t p = 0; p < b.positions.count; ++p)
          if (offsets[p] != kOutside) sums[p] += scale * T(get(channel + offsets[p]));
      }
    }
  }
  store<T, S>(c, b, writable<S>(*c.out) + image * c.out->strides[0], group * c.out_channels, 0,
              c.out_channels);
}

template <class T, class S>
void run_tiles(const Convolution& c, Parts& parts) {
  Buffers<T> buffers;
  buffers.cancellation = &parts.cancellation;
  const bool thin = c.out_channels <= 2 && c.in_channels * c.taps <= 512;
  for (int64_t tile = 0; parts.next(tile);) {
    const int64_t start = tile * kTile<T>;
    buffers.positions.start(c, start,
                            c.positions - start < kTile<T> ? c.positions - start : kTile<T>);
    for (int64_t image = 0; image < c.batch; ++image) {
      for (int64_t group = 0; group < c.groups; ++group) {
        if (parts.cancellation.ends(kTile<T>)) return;
        thin ? run_thin_tile<T, S>(c, image, group, buffers)
             : run_tile<T, S>(c, image, group, buffers);
      }
    }
  }
}

template <class T, class S>
void run(const Arguments& args, const Convolution& c) {
  const double work = static_cast<double>(numel(*c.out)) *
                      static_cast<double>(c.in_channels * c.taps);
  run_in_parts(args, (c.positions - 1) / kTile<T> + 1, work,
               [&](Parts& parts) { run_tiles<T, S>(c, parts); });
}

// ---- checks ----

// Reads a list with one number for each spatial dimension, or with one number for all of them.
husk_status get_spatial(const Arguments& args, uint32_t at, int32_t dims, int64_t min_value,
                        int64_t* out) {
  const bool is_single = args[at].kind == HUSK_ARG_INTS && args[at].count == 1;
  HUSK_TRY(args.check_ints(at, is_single ? 1 : dims));
  for (int32_t d = 0; d < dims; ++d) {
    out[d] = args[at].sizes[is_single ? 0 : d];
    if (out[d] < min_value || out[d] > int64_t{1} << 31)
      return args.argument_error(at, HUSK_INVALID_ARGUMENT, "is out of range");
  }
  return HUSK_OK;
}

husk_status check_channels(const Arguments& args, Convolution& c) {
  const husk_op_arg &input = c.input, &weight = c.weight;
  HUSK_TRY(args.get_int(8, c.groups));
  if (c.groups < 1) return args.argument_error(8, HUSK_INVALID_ARGUMENT, "is not positive");
  c.batch = input.sizes[0];
  if (c.transposed) {
    HUSK_TRY(args.check_size(1, 0, input.sizes[1], "the input's channels"));
    c.in_channels = weight.sizes[0] / c.groups;
    c.out_channels = weight.sizes[1];
    c.weight_in = weight.strides[0];
    c.weight_out = weight.strides[1];
    c.weight_group = c.in_channels * weight.strides[0];
  } else {
    c.in_channels = weight.sizes[1];
    c.out_channels = weight.sizes[0] / c.groups;
    c.weight_in = weight.strides[1];
    c.weight_out = weight.strides[0];
    c.weight_group = c.out_channels * weight.strides[0];
  }
  if (weight.sizes[0] % c.groups != 0)
    return args.argument_error(1, HUSK_INVALID_ARGUMENT, "does not divide into the groups");
  int64_t all_in = 0, all_out = 0;
  if (!checked_multiply(c.in_channels, c.groups, all_in) ||
      !checked_multiply(c.out_channels, c.groups, all_out))
    return args.argument_error(8, HUSK_INVALID_ARGUMENT, "is too large for the weights");
  HUSK_TRY(args.check_size(0, 1, all_in, "groups times the channels of the weights"));
  if (c.bias) HUSK_TRY(args.check_vector(2, all_out, "the output's channels"));
  HUSK_TRY(args.check_size(9, 0, c.batch, "the input's images"));
  return args.check_size(9, 1, all_out, "the weights' output channels");
}

// Computes a.out, to which a transposed convolution adds `extra`. Returns false if it does not fit.
// Strides, paddings and dilations are at most 2^31.
bool compute_out(Axis& a, bool transposed, int64_t extra) {
  int64_t span = 0, steps = 0;
  if (!checked_multiply(a.dilation, a.kernel - 1, span)) return false;
  if (transposed) {
    return checked_multiply(a.in - 1, a.stride, steps) && checked_add(steps, span, a.out) &&
           checked_add(a.out, extra + 1 - 2 * a.padding, a.out);
  }
  const int64_t room = a.in + 2 * a.padding - span;
  a.out = room < 1 ? 0 : (room - 1) / a.stride + 1;
  return true;
}

husk_status check_axes(const Arguments& args, Convolution& c, int32_t dims) {
  int64_t stride[kAxes], padding[kAxes], dilation[kAxes], extra[kAxes];
  HUSK_TRY(get_spatial(args, 3, dims, 1, stride));
  HUSK_TRY(get_spatial(args, 4, dims, 0, padding));
  HUSK_TRY(get_spatial(args, 5, dims, 1, dilation));
  HUSK_TRY(get_spatial(args, 7, dims, 0, extra));
  c.positions = c.taps = 1;
  for (int d = 0; d < kAxes; ++d) {
    const int32_t spatial_dim = d - (kAxes - dims), at = spatial_dim + 2;
    if (spatial_dim < 0) {
      c.axis[d] = {1, 1, 1, 1, 0, 1, 0, 0, 0};
      continue;
    }
    Axis& a = c.axis[d];
    a = {c.input.sizes[at],    0,
         c.weight.sizes[at],   stride[spatial_dim],
         padding[spatial_dim], dilation[spatial_dim],
         c.input.strides[at],  c.out->strides[at],
         c.weight.strides[at]};
    if (!compute_out(a, c.transposed, extra[spatial_dim]))
      return args.argument_error(0, HUSK_UNSUPPORTED, "or weight is too large");
    HUSK_TRY(args.check_size(9, at, a.out, "what stride, padding and dilation give"));
    c.positions *= a.out;
    c.taps *= a.kernel;
  }
  return HUSK_OK;
}

}  // namespace

husk_status convolution(const Arguments& args) {
  HUSK_TRY(args.check_tensor(0, 3, 2 + kAxes));
  const int32_t rank = args[0].rank;
  HUSK_TRY(args.check_tensor(1, rank, rank));
  HUSK_TRY(args.check_tensor(9, rank, rank));
  HUSK_TRY(args.check_same_dtype(1, 0));
  HUSK_TRY(args.check_same_dtype(9, 0));
  Convolution c{};
  c.input = with_safe_strides(args[0]);
  c.weight = with_safe_strides(args[1]);
  c.out = &args[9];
  if (!args.none(2)) {
    HUSK_TRY(args.check_tensor(2, 1, 1));
    HUSK_TRY(args.check_same_dtype(2, 0));
    c.bias = &args[2];
  }
  HUSK_TRY(args.get_bool(6, c.transposed));
  HUSK_TRY(check_channels(args, c));
  HUSK_TRY(check_axes(args, c, rank - 2));
  HUSK_TRY(args.get_device(c.device));
  if (numel(*c.out) == 0) return HUSK_OK;
  return visit_argument<Floats | Halves>(args, 0, [&](auto tag) {
    using S = typename decltype(tag)::type;
    run<Value<S>, S>(args, c);
  });
}

}  // namespace husk::host
