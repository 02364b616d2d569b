// aten::convolution, and husk::convolution, which begins with the same arguments and computes
// activation(channel_scale * (input conv weight) + bias + residual). Both have one to three spatial
// dimensions, are plain or transposed, and have groups. husk::convolution_depthwise computes a
// plain one of two dimensions and the depthwise one that reads its results, both without a
// residual. convolution_kernels.h computes all of them.
#include "nn/convolution.h"

#include "contracts.h"
#include "core/arguments.h"
#include "core/checked.h"
#include "core/element.h"
#include "core/kernel_choice.h"
#include "core/parallel.h"
#include "device.h"
#include "error.h"

namespace husk::host {

namespace {

// The two operators of one convolution, and all three.
constexpr ArgumentsOf kPlain("convolution", "fused_convolution"),
    kAll("convolution", "convolution_depthwise", "fused_convolution");

// Reads a list with one number for each spatial dimension, or with one number for all of them.
husk_status get_spatial(const Arguments& args, ArgumentPlace at, int32_t dims, int64_t min_value,
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

// Writes what the weights and the groups say of the channels.
void set_channels(const husk_op_arg& weight, Convolution& c) {
  if (c.transposed) {
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
}

husk_status check_channels(const Arguments& args, ArgumentPlace out, const husk_op_arg& weight,
                           Convolution& c) {
  constexpr uint32_t kInput = kPlain["input"], kWeight = kPlain["weight"],
                     kGroups = kPlain["groups"];
  const husk_op_arg& input = args[kInput];
  HUSK_TRY(args.get_int(kGroups, c.groups));
  if (c.groups < 1) return args.argument_error(kGroups, HUSK_INVALID_ARGUMENT, "is not positive");
  c.batch = input.sizes[0];
  if (c.transposed) HUSK_TRY(args.check_size(kWeight, 0, input.sizes[1], "the input's channels"));
  set_channels(weight, c);
  if (weight.sizes[0] % c.groups != 0)
    return args.argument_error(kWeight, HUSK_INVALID_ARGUMENT, "does not divide into the groups");
  int64_t all_in = 0, all_out = 0;
  if (!checked_multiply(c.in_channels, c.groups, all_in) ||
      !checked_multiply(c.out_channels, c.groups, all_out))
    return args.argument_error(kGroups, HUSK_INVALID_ARGUMENT, "is too large for the weights");
  HUSK_TRY(args.check_size(kInput, 1, all_in, "groups times the channels of the weights"));
  HUSK_TRY(args.check_size(out, 0, c.batch, "the input's images"));
  return args.check_size(out, 1, all_out, "the weights' output channels");
}

// Computes a.out, to which a transposed convolution adds `extra`. Returns false if it does not fit.
// Strides, paddings and dilations are at most 2^31.
bool compute_out(ConvolutionAxis& a, bool transposed, int64_t extra) {
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

// The places of the arguments that say which elements of the input a position reads.
struct SpatialPlaces {
  ArgumentPlace stride, padding, dilation;
};

// The spatial arguments, one number for each dimension.
struct Spatial {
  int64_t stride[kAxes], padding[kAxes], dilation[kAxes], extra[kAxes] = {};

  husk_status read_plain(const Arguments& args, SpatialPlaces at, int32_t dims) {
    HUSK_TRY(get_spatial(args, at.stride, dims, 1, stride));
    HUSK_TRY(get_spatial(args, at.padding, dims, 0, padding));
    return get_spatial(args, at.dilation, dims, 1, dilation);
  }
  husk_status read(const Arguments& args, int32_t dims) {
    constexpr SpatialPlaces kSpatial = {kPlain["stride"], kPlain["padding"], kPlain["dilation"]};
    constexpr uint32_t kOutputPadding = kPlain["output_padding"];
    HUSK_TRY(read_plain(args, kSpatial, dims));
    return get_spatial(args, kOutputPadding, dims, 0, extra);
  }
  // Writes the axis of a spatial dimension, but for its strides and its output size.
  void set_axis(int32_t dim, int64_t in, int64_t kernel, ConvolutionAxis& a) const {
    a.in = in;
    a.kernel = kernel;
    a.stride = stride[dim];
    a.padding = padding[dim];
    a.dilation = dilation[dim];
  }
};

// The axis of a dimension that the tensors do not have.
constexpr ConvolutionAxis kNoAxis = {1, 1, 1, 1, 0, 1, 0, 0, 0, 0};

husk_status check_axes(const Arguments& args, ArgumentPlace out, const husk_op_arg& input,
                       const husk_op_arg& weight, Convolution& c) {
  constexpr uint32_t kInput = kPlain["input"];
  const int32_t dims = input.rank - 2;
  Spatial spatial;
  HUSK_TRY(spatial.read(args, dims));
  c.taps = 1;
  for (int d = 0; d < kAxes; ++d) {
    const int32_t spatial_dim = d - (kAxes - dims), at = spatial_dim + 2;
    ConvolutionAxis& a = c.axis[d];
    a = kNoAxis;
    if (spatial_dim < 0) continue;
    spatial.set_axis(spatial_dim, input.sizes[at], weight.sizes[at], a);
    a.in_stride = input.strides[at];
    a.kernel_stride = weight.strides[at];
    a.out_stride = args[out].strides[at];
    if (!compute_out(a, c.transposed, spatial.extra[spatial_dim]))
      return args.argument_error(kInput, HUSK_UNSUPPORTED, "or weight is too large");
    HUSK_TRY(args.check_size(out, at, a.out, "what stride, padding and dilation give"));
    c.taps *= a.kernel;
  }
  return HUSK_OK;
}

// Reads `bias` or `channel_scale`, a vector over the output's channels or none.
husk_status get_vector(const Arguments& args, ArgumentPlace at, const Convolution& c,
                       const void*& data, int64_t& stride) {
  constexpr uint32_t kInput = kAll["input"];
  if (args.none(at)) return HUSK_OK;
  HUSK_TRY(args.check_tensor(at, 1, 1));
  HUSK_TRY(args.check_same_dtype(at, kInput));
  HUSK_TRY(args.check_vector(at, c.groups * c.out_channels, "the output's channels"));
  data = args[at].data;
  stride = args[at].strides[0];
  return HUSK_OK;
}

husk_status get_residual(const Arguments& args, ArgumentPlace at, ArgumentPlace out,
                         Convolution& c) {
  constexpr uint32_t kInput = kPlain["input"];
  if (args.none(at)) return HUSK_OK;
  const int32_t rank = args[out].rank;
  HUSK_TRY(args.check_tensor(at, rank, rank));
  HUSK_TRY(args.check_same_dtype(at, kInput));
  HUSK_TRY(args.check_same_shape(at, out));
  c.residual = args[at].data;
  c.residual_image = args[at].strides[0];
  c.residual_channel = args[at].strides[1];
  for (int32_t d = 2; d < rank; ++d) c.axis[kAxes - rank + d].residual_stride = args[at].strides[d];
  return HUSK_OK;
}

// Reads the arguments that both operators have. `out` is the place of the output.
husk_status get_convolution(const Arguments& args, ArgumentPlace out, Convolution& c) {
  constexpr uint32_t kInput = kPlain["input"], kWeight = kPlain["weight"], kBias = kPlain["bias"],
                     kTransposed = kPlain["transposed"];
  HUSK_TRY(args.check_tensor(kInput, 3, 2 + kAxes));
  const int32_t rank = args[kInput].rank;
  HUSK_TRY(args.check_tensor(kWeight, rank, rank));
  HUSK_TRY(args.check_tensor(out, rank, rank));
  HUSK_TRY(args.check_same_dtype(kWeight, kInput));
  HUSK_TRY(args.check_same_dtype(out, kInput));
  HUSK_TRY(args.get_bool(kTransposed, c.transposed));
  // Tensors without elements have strides that say nothing.
  const husk_op_arg input = with_safe_strides(args[kInput]),
                    weight = with_safe_strides(args[kWeight]);
  c.dtype = args[kInput].dtype;
  c.input = input.data;
  c.weight = weight.data;
  c.out = args[out].data;
  c.input_image = input.strides[0];
  c.input_channel = input.strides[1];
  c.out_image = args[out].strides[0];
  c.out_channel = args[out].strides[1];
  HUSK_TRY(check_channels(args, out, weight, c));
  HUSK_TRY(check_axes(args, out, input, weight, c));
  return get_vector(args, kBias, c, c.shift, c.shift_stride);
}

// Joins the images and all axes to one long axis if each position reads one element and all lie in
// the tensors one behind another. Then the positions are found without a stop at each line.
void join_axes(Convolution& c) {
  ConvolutionAxis& last = c.axis[kAxes - 1];
  for (const ConvolutionAxis& a : c.axis)
    if (a.kernel != 1 || a.stride != 1 || a.padding != 0) return;
  const auto join = [&](int64_t count, int64_t in, int64_t out, int64_t residual) {
    if (count != 1 && (in != last.in * last.in_stride || out != last.out * last.out_stride ||
                       (c.residual && residual != last.out * last.residual_stride)))
      return false;
    last.in *= count;
    last.out *= count;
    return true;
  };
  for (int d = kAxes - 2; d >= 0; --d) {
    ConvolutionAxis& a = c.axis[d];
    if (!join(a.in, a.in_stride, a.out_stride, a.residual_stride)) return;
    a = kNoAxis;
  }
  if (join(c.batch, c.input_image, c.out_image, c.residual_image)) c.batch = 1;
}

// Makes the axis with positions the last one, because a depthwise convolution computes positions
// along the last axis at once.
void move_points_first(Convolution& c) {
  if (c.in_channels != 1 || c.out_channels != 1) return;
  for (int d = 1; d < kAxes; ++d) {
    const ConvolutionAxis& last = c.axis[kAxes - 1];
    if (last.in != 1 || last.kernel != 1 || last.padding != 0) return;
    for (int to = kAxes - 1; to > 0; --to) c.axis[to] = c.axis[to - 1];
    c.axis[0] = kNoAxis;
  }
}

const ConvolutionKernels* kernels_of(Features cpu) {
  constexpr KernelFor<const ConvolutionKernels*> kKernels[] = HUSK_KERNELS(&convolution);
  return best_kernel(cpu, kKernels);
}

// ConvolutionParts::next for a source that is a Parts.
bool next_part(void* source, int64_t& part) { return static_cast<Parts*>(source)->next(part); }

husk_status run(const Arguments& args, ArgumentPlace out, Convolution& c) {
  constexpr uint32_t kInput = kPlain["input"], kWeight = kPlain["weight"];
  Features cpu{};
  HUSK_TRY(args.get_features(cpu));
  c.packed = args.packed(kWeight);
  c.packs = c.packed != nullptr;
  if (!c.transposed) {
    join_axes(c);
    move_points_first(c);
  }
  return visit_argument<Floats | Halves>(args, kInput, [&](auto) {
    if (numel(args[out]) == 0) return;
    const ConvolutionKernels* kernels = kernels_of(cpu);
    const double work = static_cast<double>(numel(args[out])) *
                        static_cast<double>(c.in_channels * c.taps);
    const auto [parts, positions] = kernels->count_parts(c);
    run_in_parts(args, parts, positions, work, [&](Parts& own) {
      kernels->run(c, {own.cancellation, own.scratch, &own, next_part});
    });
  });
}

// Reads what the copy of constant weights depends on. Sizes of the input that the file does not fix
// are taken for those of a small image: a run with others may choose another method, and then packs
// the weights itself. Returns false if something else is unknown or wrong, which a run reports.
bool get_packing(const Arguments& args, Convolution& c) {
  constexpr uint32_t kInput = kPlain["input"], kWeight = kPlain["weight"],
                     kTransposed = kPlain["transposed"], kGroups = kPlain["groups"];
  constexpr int64_t kUnknownSize = 32;
  const husk_op_arg &input = args[kInput], &weight = args[kWeight];
  const int32_t rank = weight.rank, dims = rank - 2;
  Spatial spatial;
  if (args.check_tensor(kWeight, 3, 2 + kAxes) != HUSK_OK ||
      args.get_bool(kTransposed, c.transposed) != HUSK_OK ||
      args.get_int(kGroups, c.groups) != HUSK_OK || spatial.read(args, dims) != HUSK_OK ||
      input.kind != HUSK_ARG_TENSOR || input.rank != rank || c.groups < 1 ||
      weight.sizes[0] % c.groups != 0)
    return false;
  const auto size = [&](int32_t dim) {
    return input.sizes[dim] < 0 ? kUnknownSize : input.sizes[dim];
  };
  c.dtype = weight.dtype;
  c.weight = weight.data;
  c.packs = true;
  c.packing = &args.cancellation;
  c.batch = input.sizes[0] < 0 ? 1 : input.sizes[0];
  c.input_channel = input.strides[1];
  set_channels(weight, c);
  c.taps = 1;
  for (int d = 0; d < kAxes; ++d) {
    const int32_t spatial_dim = d - (kAxes - dims), at = spatial_dim + 2;
    ConvolutionAxis& a = c.axis[d];
    a = kNoAxis;
    if (spatial_dim < 0) continue;
    spatial.set_axis(spatial_dim, size(at), weight.sizes[at], a);
    a.kernel_stride = weight.strides[at];
    if (!compute_out(a, c.transposed, spatial.extra[spatial_dim]) || a.out < 1) return false;
    c.taps *= a.kernel;
  }
  int64_t positions = c.batch;
  for (const ConvolutionAxis& a : c.axis)
    if (!checked_multiply(positions, a.out, positions)) return false;
  return true;
}

// ---- a convolution and a depthwise one ----

// The places of the arguments of one of the two convolutions of husk::convolution_depthwise.
struct PairPlaces {
  ArgumentPlace weight, bias;
  SpatialPlaces spatial;
  ArgumentPlace scale, activation;
};
constexpr int64_t kMaxPairTaps = 512;  // of the depthwise one, whose taps lie on the stack
constexpr ArgumentsOf kPair("convolution_depthwise");
constexpr uint32_t kPairInput = kPair["input"], kPairOut = kPair["out"];
constexpr PairPlaces kFirst = {kPair["weight"],
                               kPair["bias"],
                               {kPair["stride"], kPair["padding"], kPair["dilation"]},
                               kPair["channel_scale"],
                               kPair["activation"]};
constexpr PairPlaces kSecond = {
    kPair["depthwise_weight"],
    kPair["depthwise_bias"],
    {kPair["depthwise_stride"], kPair["depthwise_padding"], kPair["depthwise_dilation"]},
    kPair["depthwise_scale"],
    kPair["depthwise_activation"]};

// Reads the weights of one of the two convolutions, and the geometry, but for the sizes and strides
// of its input and output.
husk_status get_pair_weight(const Arguments& args, const PairPlaces& at, Convolution& c) {
  HUSK_TRY(args.check_tensor(at.weight, 4, 4));
  HUSK_TRY(args.check_same_dtype(at.weight, kPairInput));
  const husk_op_arg& weight = args[at.weight];
  if (numel(weight) == 0)
    return args.argument_error(at.weight, HUSK_INVALID_ARGUMENT, "has no elements");
  Spatial spatial;
  HUSK_TRY(spatial.read_plain(args, at.spatial, 2));
  c.dtype = weight.dtype;
  c.weight = weight.data;
  c.packed = args.packed(at.weight);
  c.packs = true;
  c.packing = &args.cancellation;
  c.transposed = false;
  c.taps = 1;
  c.axis[0] = kNoAxis;
  for (int32_t d = 0; d < 2; ++d) {
    ConvolutionAxis& a = c.axis[1 + d];
    a = {};
    spatial.set_axis(d, 0, weight.sizes[2 + d], a);
    a.kernel_stride = weight.strides[2 + d];
    c.taps *= a.kernel;
  }
  return HUSK_OK;
}

// Reads the weights of both and the channels that they have.
husk_status get_pair_weights(const Arguments& args, ConvolutionPair& pair) {
  Convolution &first = pair.first, &second = pair.second;
  HUSK_TRY(get_pair_weight(args, kFirst, first));
  HUSK_TRY(get_pair_weight(args, kSecond, second));
  if (second.taps > kMaxPairTaps)
    return args.argument_error(kSecond.weight, HUSK_UNSUPPORTED, "has more than 512 taps");
  first.groups = 1;
  set_channels(args[kFirst.weight], first);
  second.groups = first.out_channels;
  HUSK_TRY(args.check_size(kSecond.weight, 0, second.groups, "the channels that it reads"));
  HUSK_TRY(args.check_size(kSecond.weight, 1, 1, "a depthwise convolution's channels"));
  set_channels(args[kSecond.weight], second);
  return HUSK_OK;
}

// Writes the sizes of the results along both axes.
husk_status get_pair_sizes(const Arguments& args, ConvolutionPair& pair) {
  const husk_op_arg input = with_safe_strides(args[kPairInput]);
  const husk_op_arg& out = args[kPairOut];
  for (int32_t d = 0; d < 2; ++d) {
    ConvolutionAxis &first = pair.first.axis[1 + d], &second = pair.second.axis[1 + d];
    first.in = input.sizes[2 + d];
    first.in_stride = input.strides[2 + d];
    if (!compute_out(first, false, 0))
      return args.argument_error(kPairInput, HUSK_UNSUPPORTED, "or weight is too large");
    second.in = first.out;
    second.out_stride = out.strides[2 + d];
    if (!compute_out(second, false, 0))
      return args.argument_error(kSecond.weight, HUSK_UNSUPPORTED, "is too large");
    HUSK_TRY(
        args.check_size(kPairOut, 2 + d, second.out, "what strides, paddings and dilations give"));
  }
  return HUSK_OK;
}

husk_status get_pair_vectors(const Arguments& args, const PairPlaces& at, Convolution& c) {
  HUSK_TRY(get_vector(args, at.bias, c, c.shift, c.shift_stride));
  HUSK_TRY(get_vector(args, at.scale, c, c.scale, c.scale_stride));
  return args.get_activation(at.activation, c.activation);
}

husk_status get_pair(const Arguments& args, ConvolutionPair& pair) {
  HUSK_TRY(args.check_tensor(kPairInput, 4, 4));
  HUSK_TRY(args.check_tensor(kPairOut, 4, 4));
  HUSK_TRY(args.check_same_dtype(kPairOut, kPairInput));
  HUSK_TRY(get_pair_weights(args, pair));
  Convolution &first = pair.first, &second = pair.second;
  const husk_op_arg input = with_safe_strides(args[kPairInput]);
  const husk_op_arg& out = args[kPairOut];
  HUSK_TRY(args.check_size(kPairInput, 1, first.in_channels, "the channels of the weights"));
  HUSK_TRY(args.check_size(kPairOut, 0, input.sizes[0], "the input's images"));
  HUSK_TRY(args.check_size(kPairOut, 1, second.groups, "the weights' output channels"));
  first.batch = second.batch = input.sizes[0];
  first.input = input.data;
  first.input_image = input.strides[0];
  first.input_channel = input.strides[1];
  second.out = out.data;
  second.out_image = out.strides[0];
  second.out_channel = out.strides[1];
  const husk_threads* threads = args.context->threads;
  pair.threads = threads && threads->count > 1 ? threads->count : 1;
  HUSK_TRY(get_pair_sizes(args, pair));
  HUSK_TRY(get_pair_vectors(args, kFirst, first));
  return get_pair_vectors(args, kSecond, second);
}

// Kernels leave gaps where they read nothing that counts. A file must not have what was in memory
// there before.
void clear(const husk_packing& packing) {
  if (packing.data) __builtin_memset(packing.data, 0, packing.bytes);
}

// Takes what ConvolutionKernels::pack has returned.
husk_status set_packing(const Arguments& args, const ConvolutionKernels& kernels, int64_t bytes,
                        husk_packing& packing) {
  if (bytes == kWrongCopy)
    return args.argument_error(packing.argument, HUSK_INVALID_FILE,
                               "has a packed copy in the file that is for other weights");
  packing.name = kernels.layout;
  packing.bytes = static_cast<uint64_t>(bytes);
  return HUSK_OK;
}

}  // namespace

husk_status pack_convolution(const Arguments& args, husk_packing& packing) {
  constexpr uint32_t kWeight = kPlain["weight"];
  Convolution c{};
  Features cpu{};
  HUSK_TRY(args.get_features(cpu));
  if (packing.argument != kWeight || !get_packing(args, c)) return HUSK_OK;
  int64_t method = 0;
  c.packed = packing.stored;
  clear(packing);
  const ConvolutionKernels& kernels = *kernels_of(cpu);
  HUSK_TRY(set_packing(args, kernels, kernels.pack(c, packing.data, &method), packing));
  packing.layout = static_cast<uint64_t>(8 * c.groups + 4 * c.transposed + method);
  return HUSK_OK;
}

husk_status convolution(const Arguments& args) {
  constexpr ArgumentsOf named("convolution");
  constexpr uint32_t kOut = named["out"];
  Convolution c{};
  HUSK_TRY(get_convolution(args, kOut, c));
  return run(args, kOut, c);
}

husk_status pack_convolution_depthwise(const Arguments& args, husk_packing& packing) {
  const bool is_second = packing.argument == kSecond.weight;
  if (!is_second && packing.argument != kFirst.weight) return HUSK_OK;
  const PairPlaces& at = is_second ? kSecond : kFirst;
  Convolution c{};
  Features cpu{};
  HUSK_TRY(args.get_features(cpu));
  // A run reports what is wrong.
  if (get_pair_weight(args, at, c) != HUSK_OK) return HUSK_OK;
  c.groups = is_second ? args[at.weight].sizes[0] : 1;
  if (is_second && c.taps > kMaxPairTaps) return HUSK_OK;
  set_channels(args[at.weight], c);
  c.packed = packing.stored;
  clear(packing);
  const ConvolutionKernels& kernels = *kernels_of(cpu);
  return set_packing(args, kernels, kernels.pack_pair(c, is_second, packing.data), packing);
}

husk_status convolution_depthwise(const Arguments& args) {
  ConvolutionPair pair{};
  HUSK_TRY(get_pair(args, pair));
  Features cpu{};
  HUSK_TRY(args.get_features(cpu));
  const husk_op_arg& out = args[kPairOut];
  const ConvolutionKernels* kernels = kernels_of(cpu);
  const bool is_empty = numel(out) == 0;
  const ConvolutionPartCount count = is_empty ? ConvolutionPartCount{}
                                              : kernels->count_pair_parts(pair);
  if (!is_empty && count.parts == 0)
    return args.argument_error(kSecond.weight, HUSK_UNSUPPORTED,
                               "reads more elements at a time than are kept");
  return visit_argument<Floats | Halves>(args, kPairInput, [&](auto) {
    if (is_empty) return;
    const double work = static_cast<double>(numel(out)) *
                        static_cast<double>(pair.first.in_channels * pair.first.taps +
                                            pair.second.taps);
    run_in_parts(args, count.parts, count.positions, work, [&](Parts& own) {
      kernels->run_pair(pair, {own.cancellation, own.scratch, &own, next_part});
    });
  });
}

husk_status fused_convolution(const Arguments& args) {
  constexpr ArgumentsOf named("fused_convolution");
  constexpr uint32_t kChannelScale = named["channel_scale"], kResidual = named["residual"],
                     kActivation = named["activation"], kOut = named["out"];
  Convolution c{};
  HUSK_TRY(get_convolution(args, kOut, c));
  HUSK_TRY(get_vector(args, kChannelScale, c, c.scale, c.scale_stride));
  HUSK_TRY(get_residual(args, kResidual, kOut, c));
  HUSK_TRY(args.get_activation(kActivation, c.activation));
  return run(args, kOut, c);
}

}  // namespace husk::host
