// aten::convolution: one to three dimensions, plain and transposed, in groups. A tile of output positions is gathered
// into a matrix on the stack, one row for each input channel and place of the kernel, and multiplied with the weights;
// sums are f32 (f64 for f64) and are rounded once.
#include <string.h>

#include "arguments.h"
#include "device.h"
#include "element.h"
#include "error.h"
#include "parts.h"
#include "product.h"

namespace husk::host {

namespace {

constexpr int axes = 3;

// Along one axis.
struct Axis {
  int64_t in, out, kernel;
  int64_t stride, padding, dilation;
  int64_t in_stride, out_stride, kernel_stride;   // of the tensors, in elements
};

struct Convolution {
  const husk_op_arg *input, *weight, *bias, *out;
  const Device* device;
  Axis axis[axes];
  bool transposed;
  int64_t batch, groups;
  int64_t in_channels, out_channels;      // of a group
  int64_t weight_in, weight_out;          // strides of the weights along a group's channels
  int64_t weight_group;                   // from a group's weights to the next one's
  int64_t positions, places;              // of the output, of the kernel

  // The input's coordinate that output `o` sees through place `k`, or -1.
  static int64_t coordinate(const Axis& a, int64_t o, int64_t k, bool transposed) {
    int64_t i = transposed ? o + a.padding - k * a.dilation : o * a.stride - a.padding + k * a.dilation;
    if (transposed) {
      if (i < 0 || i % a.stride != 0) return -1;
      i /= a.stride;
    }
    return i < 0 || i >= a.in ? -1 : i;
  }
};

template <class T> constexpr int64_t tile = 384 / static_cast<int64_t>(sizeof(T));      // positions
template <class T> constexpr int64_t depth = 1024 / static_cast<int64_t>(sizeof(T));    // rows of the matrix at once
template <class T> constexpr int64_t channels = 512 / static_cast<int64_t>(sizeof(T));  // output channels at once
constexpr int64_t most_places = 64;                                                      // whose offsets are kept

// Neighbouring positions that see neighbours in the input, or nothing (offset -1).
struct Run {
  int64_t offset, start, count;
};
constexpr int most_runs = 8;

// Offsets in the input of what each position of a tile sees through one place of the kernel; -1: nothing.
template <int64_t P>
struct Tile {
  int64_t first, count;
  int64_t at[P][axes];
  int64_t out[P];               // offsets in the output
  int64_t kept[most_places][P];
  int64_t other[P];
  Run runs[most_places][most_runs];
  int run_count[most_places];   // 0: more than there is room for

  void start(const Convolution& c, int64_t begin, int64_t length) {
    first = begin;
    count = length;
    for (int64_t p = 0; p < count; p++) {
      int64_t rest = first + p;
      out[p] = 0;
      for (int d = axes - 1; d >= 0; d--) {
        at[p][d] = rest % c.axis[d].out;
        rest /= c.axis[d].out;
        out[p] += at[p][d] * c.axis[d].out_stride;
      }
    }
    for (int64_t k = 0; k < c.places && c.places <= most_places; k++) {
      fill(c, k, kept[k]);
      find_runs(k);
    }
  }
  // Calls f(run) for each run of a place; false, and no calls, where there are too many of them.
  template <class F>
  bool each_run(const Convolution& c, int64_t k, F f) const {
    if (c.places > most_places || run_count[k] == 0) return false;
    for (int i = 0; i < run_count[k]; i++) f(runs[k][i]);
    return true;
  }
  const int64_t* offsets(const Convolution& c, int64_t k) {
    if (c.places <= most_places) return kept[k];
    fill(c, k, other);
    return other;
  }

 private:
  void find_runs(int64_t k) {
    const int64_t* offsets = kept[k];
    int found = 0;
    for (int64_t p = 0; p < count; found++) {
      if (found == most_runs) {
        run_count[k] = 0;
        return;
      }
      Run run{offsets[p], p, 1};
      const int64_t step = run.offset < 0 ? 0 : 1;
      while (p + run.count < count && offsets[p + run.count] == run.offset + step * run.count) run.count++;
      runs[k][found] = run;
      p += run.count;
    }
    run_count[k] = found;
  }
  void fill(const Convolution& c, int64_t place, int64_t* to) const {
    int64_t k[axes];
    for (int d = axes - 1; d >= 0; d--) {
      k[d] = place % c.axis[d].kernel;
      place /= c.axis[d].kernel;
    }
    for (int64_t p = 0; p < count; p++) {
      int64_t offset = 0;
      for (int d = 0; d < axes && offset >= 0; d++) {
        const int64_t i = Convolution::coordinate(c.axis[d], at[p][d], k[d], c.transposed);
        offset = i < 0 ? -1 : offset + i * c.axis[d].in_stride;
      }
      to[p] = offset;
    }
  }
};

template <class T>
struct Buffers {
  Tile<tile<T>> positions;
  alignas(64) T columns[depth<T> * tile<T>];
  alignas(64) T weights[channels<T> * depth<T>];
  alignas(64) T sums[channels<T> * tile<T>];
};

int64_t place_offset(const Convolution& c, int64_t place) {
  int64_t offset = 0;
  for (int d = axes - 1; d >= 0; d--) {
    offset += place % c.axis[d].kernel * c.axis[d].kernel_stride;
    place /= c.axis[d].kernel;
  }
  return offset;
}

// Rows [row, row + rows) of the matrix: row j is input channel j / places through place j % places.
template <class T, class S>
void gather_columns(const Convolution& c, const S* input, int64_t row, int64_t rows, Buffers<T>& b) {
  for (int64_t j = 0; j < rows; j++) {
    const S* channel = input + (row + j) / c.places * c.input->strides[1];
    const int64_t place = (row + j) % c.places;
    T* to = b.columns + j * tile<T>;
    const bool copied = b.positions.each_run(c, place, [&](const Run& run) {
      T* part = to + run.start;
      if (run.offset < 0) memset(part, 0, static_cast<size_t>(run.count) * sizeof(T));
      else if (std::is_same_v<T, S>) memcpy(part, channel + run.offset, static_cast<size_t>(run.count) * sizeof(T));
      else for (int64_t p = 0; p < run.count; p++) part[p] = T(get(channel + run.offset + p));
    });
    if (copied) continue;
    const int64_t* offsets = b.positions.offsets(c, place);
    for (int64_t p = 0; p < b.positions.count; p++) to[p] = offsets[p] < 0 ? T(0) : T(get(channel + offsets[p]));
  }
}

template <class T, class S>
void gather_weights(const Convolution& c, const S* weight, int64_t first, int64_t count, int64_t row, int64_t rows,
                    Buffers<T>& b) {
  for (int64_t j = 0; j < rows; j++) {
    const S* from = weight + (row + j) / c.places * c.weight_in + place_offset(c, (row + j) % c.places);
    for (int64_t o = 0; o < count; o++) b.weights[o * depth<T> + j] = T(get(from + (first + o) * c.weight_out));
  }
}

// Whether a group's weights already are the left matrix.
template <class T, class S>
bool weights_in_order(const Convolution& c) {
  if (!std::is_same_v<T, S> || c.weight_in != c.places) return false;
  int64_t stride = 1;
  for (int d = axes - 1; d >= 0; d--) {
    if (c.axis[d].kernel != 1 && c.axis[d].kernel_stride != stride) return false;
    stride *= c.axis[d].kernel;
  }
  return true;
}

template <class T, class S>
void store(const Convolution& c, const Buffers<T>& b, S* out, int64_t channel, int64_t first, int64_t count) {
  for (int64_t o = 0; o < count; o++) {
    const int64_t to = channel + first + o;
    const T bias = c.bias ? T(get(data_of<S>(*c.bias) + to * c.bias->strides[0])) : T(0);
    S* row = out + to * c.out->strides[1];
    for (int64_t p = 0; p < b.positions.count; p++) set(row + b.positions.out[p], b.sums[o * tile<T> + p] + bias);
  }
}

// One group of one image, for one tile.
template <class T, class S>
void run_tile(const Convolution& c, int64_t image, int64_t group, Buffers<T>& b) {
  const S* input = data_of<S>(*c.input) + image * c.input->strides[0] + group * c.in_channels * c.input->strides[1];
  const S* weight = data_of<S>(*c.weight) + group * c.weight_group;
  S* out = writable<S>(*c.out) + image * c.out->strides[0];
  const int64_t all = c.in_channels * c.places;
  for (int64_t first = 0; first < c.out_channels; first += channels<T>) {
    const int64_t count = c.out_channels - first < channels<T> ? c.out_channels - first : channels<T>;
    Product product = {};
    product.dtype = std::is_same_v<T, double> ? HUSK_F64 : HUSK_F32;
    product.m = count;
    product.n = b.positions.count;
    product.alpha = product.beta = 1;
    product.out = b.sums;
    product.out_row = tile<T>;
    product.out_column = 1;
    if (all == 0) memset(b.sums, 0, sizeof b.sums);
    for (int64_t row = 0; row < all; row += depth<T>) {
      product.k = all - row < depth<T> ? all - row : depth<T>;
      if (row > 0 || first == 0 || all > depth<T>) gather_columns<T, S>(c, input, row, product.k, b);
      if (weights_in_order<T, S>(c)) {
        product.a = {weight + first * c.weight_out + row, c.weight_out, 1};
      } else {
        gather_weights<T, S>(c, weight, first, count, row, product.k, b);
        product.a = {b.weights, depth<T>, 1};
      }
      product.b = {b.columns, tile<T>, 1};
      if (row > 0) product.self = {b.sums, tile<T>, 1};
      product_run(*c.device, product);
    }
    store<T, S>(c, b, out, group * c.out_channels, first, count);
  }
}

// Few products a position (one channel a group, say): sums of a tile, straight from the input.
template <class T, class S>
void run_thin_tile(const Convolution& c, int64_t image, int64_t group, Buffers<T>& b) {
  const S* input = data_of<S>(*c.input) + image * c.input->strides[0] + group * c.in_channels * c.input->strides[1];
  const S* weight = data_of<S>(*c.weight) + group * c.weight_group;
  memset(b.sums, 0, static_cast<size_t>(c.out_channels * tile<T>) * sizeof(T));
  for (int64_t i = 0; i < c.in_channels; i++) {
    for (int64_t k = 0; k < c.places; k++) {
      const S* channel = input + i * c.input->strides[1];
      const S* value = weight + i * c.weight_in + place_offset(c, k);
      for (int64_t o = 0; o < c.out_channels; o++) {
        const T scale = T(get(value + o * c.weight_out));
        T* sums = b.sums + o * tile<T>;
        const bool added = b.positions.each_run(c, k, [&](const Run& run) {
          if (run.offset < 0) return;
          T* part = sums + run.start;
          const S* from = channel + run.offset;
          for (int64_t p = 0; p < run.count; p++) part[p] += scale * T(get(from + p));
        });
        if (added) continue;
        const int64_t* offsets = b.positions.offsets(c, k);
        for (int64_t p = 0; p < b.positions.count; p++) {
          if (offsets[p] >= 0) sums[p] += scale * T(get(channel + offsets[p]));
        }
      }
    }
  }
  store<T, S>(c, b, writable<S>(*c.out) + image * c.out->strides[0], group * c.out_channels, 0, c.out_channels);
}

// Every step-th tile from the first-th on.
template <class T, class S>
void run_tiles(const Convolution& c, int64_t first, int64_t step) {
  Buffers<T> buffers;
  const bool thin = c.out_channels <= 2 && c.in_channels * c.places <= 512;
  for (int64_t start = first * tile<T>; start < c.positions; start += step * tile<T>) {
    buffers.positions.start(c, start, c.positions - start < tile<T> ? c.positions - start : tile<T>);
    for (int64_t image = 0; image < c.batch; image++) {
      for (int64_t group = 0; group < c.groups; group++) {
        thin ? run_thin_tile<T, S>(c, image, group, buffers) : run_tile<T, S>(c, image, group, buffers);
      }
    }
  }
}

template <class T, class S>
void run(const Convolution& c, const husk_threads* threads) {
  const double work = static_cast<double>(numel(*c.out)) * static_cast<double>(c.in_channels * c.places);
  in_parts(threads, (c.positions - 1) / tile<T> + 1, work,
           [&](int64_t first, int64_t step) { run_tiles<T, S>(c, first, step); });
}

// ---- checks ----

// A list of one number for each spatial dimension, or of one for all of them.
husk_status spatial(const Arguments& args, uint32_t at, int32_t dims, int64_t least, int64_t* out) {
  const bool one = args[at].kind == HUSK_ARG_INTS && args[at].count == 1;
  HUSK_TRY(args.integers(at, one ? 1 : dims));
  for (int32_t d = 0; d < dims; d++) {
    out[d] = args[at].sizes[one ? 0 : d];
    if (out[d] < least || out[d] > int64_t{1} << 31) return args.refuse(at, HUSK_INVALID_ARGUMENT, "is out of range");
  }
  return HUSK_OK;
}

husk_status check_channels(const Arguments& args, Convolution& c) {
  const husk_op_arg &input = *c.input, &weight = *c.weight;
  HUSK_TRY(args.integer(8, c.groups));
  if (c.groups < 1) return args.refuse(8, HUSK_INVALID_ARGUMENT, "is not positive");
  c.batch = input.sizes[0];
  if (c.transposed) {
    HUSK_TRY(args.size(1, 0, input.sizes[1], "the input's channels"));
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
  if (weight.sizes[0] % c.groups != 0) return args.refuse(1, HUSK_INVALID_ARGUMENT, "does not divide into the groups");
  HUSK_TRY(args.size(0, 1, c.in_channels * c.groups, "groups times the channels of the weights"));
  if (c.bias) HUSK_TRY(args.vector(2, c.out_channels * c.groups, "the output's channels"));
  HUSK_TRY(args.size(9, 0, c.batch, "the input's images"));
  return args.size(9, 1, c.out_channels * c.groups, "the weights' output channels");
}

husk_status check_axes(const Arguments& args, Convolution& c, int32_t dims) {
  int64_t stride[axes], padding[axes], dilation[axes], extra[axes];
  HUSK_TRY(spatial(args, 3, dims, 1, stride));
  HUSK_TRY(spatial(args, 4, dims, 0, padding));
  HUSK_TRY(spatial(args, 5, dims, 1, dilation));
  HUSK_TRY(spatial(args, 7, dims, 0, extra));
  c.positions = c.places = 1;
  for (int d = 0; d < axes; d++) {
    const int32_t own = d - (axes - dims), at = own + 2;
    if (own < 0) {
      c.axis[d] = {1, 1, 1, 1, 0, 1, 0, 0, 0};
      continue;
    }
    Axis& a = c.axis[d];
    a = {c.input->sizes[at], 0, c.weight->sizes[at], stride[own], padding[own], dilation[own],
         c.input->strides[at], c.out->strides[at], c.weight->strides[at]};
    const int64_t span = a.dilation * (a.kernel - 1);
    a.out = c.transposed ? (a.in - 1) * a.stride - 2 * a.padding + span + extra[own] + 1
                         : a.in + 2 * a.padding - span < 1 ? 0 : (a.in + 2 * a.padding - span - 1) / a.stride + 1;
    HUSK_TRY(args.size(9, at, a.out, "what stride, padding and dilation give"));
    c.positions *= a.out;
    c.places *= a.kernel;
  }
  return HUSK_OK;
}

}  // namespace

husk_status convolution(const Arguments& args) {
  HUSK_TRY(args.tensor(0, 3, 2 + axes));
  const int32_t rank = args[0].rank;
  HUSK_TRY(args.tensor(1, rank, rank));
  HUSK_TRY(args.tensor(9, rank, rank));
  HUSK_TRY(args.same_dtype(1, 0));
  HUSK_TRY(args.same_dtype(9, 0));
  Convolution c{};
  c.input = &args[0];
  c.weight = &args[1];
  c.out = &args[9];
  if (!args.none(2)) {
    HUSK_TRY(args.tensor(2, 1, 1));
    HUSK_TRY(args.same_dtype(2, 0));
    c.bias = &args[2];
  }
  HUSK_TRY(args.boolean(6, c.transposed));
  HUSK_TRY(check_channels(args, c));
  HUSK_TRY(check_axes(args, c, rank - 2));
  c.device = static_cast<const Device*>(args.context->device);
  if (!c.device) {
    return fail(args.error, HUSK_INVALID_ARGUMENT, "%s: the context has no device of the host port", args.op);
  }
  if (numel(*c.out) == 0) return HUSK_OK;
  const bool known = visit<Floats | Halves>(args[0].dtype, [&](auto tag) {
    using S = typename decltype(tag)::type;
    run<Value<S>, S>(c, args.context->threads);
  });
  return known ? husk_status{HUSK_OK} : args.unsupported_dtype(0);
}

}  // namespace husk::host
