// husk::convolution_int8: a convolution, or a linear layer, of codes of 8 bits.
//
//   v = activation(input_scale * scales[o] * sum((input - input_zero) * weight) + bias[o] +
//                  residual_scale * (residual - residual_zero))
//   out = clamp(round(v / out_scale) + out_zero, out_least, out_most), or v if out is f32
//
// `input` is u8 or i8 of n x c, n x c x w or n x c x h x w, `weight` i8 with as many dimensions;
// with two there are no positions, and the convolution is a linear layer. Elements beside the image
// are the code of 0. `dynamic_scale` and `dynamic_zero`, tensors of one element, take the place of
// input_scale and input_zero if they are there. `scales` has a number for each channel of the
// output, or one for all. `residual` is u8, i8 or f32 of the shape of `out`, whose dtype `dtype`
// is. Sums are exact, and what follows them is in f32; ties are rounded to even codes.
#include <initializer_list>

#include "contracts.h"
#include "core/arguments.h"
#include "core/checked.h"
#include "core/kernel_choice.h"
#include "core/parallel.h"
#include "nn/int_convolution.h"

namespace husk::host {

namespace {

// The places of the arguments.
namespace place {
constexpr ArgumentsOf kNamed("convolution_int8");
constexpr uint32_t kInput = kNamed["input"], kWeight = kNamed["weight"], kScales = kNamed["scales"],
                   kBias = kNamed["bias"], kStride = kNamed["stride"], kPadding = kNamed["padding"],
                   kDilation = kNamed["dilation"], kGroups = kNamed["groups"],
                   kInputScale = kNamed["input_scale"], kInputZero = kNamed["input_zero"],
                   kDynamicScale = kNamed["dynamic_scale"], kDynamicZero = kNamed["dynamic_zero"],
                   kResidual = kNamed["residual"], kResidualScale = kNamed["residual_scale"],
                   kResidualZero = kNamed["residual_zero"], kActivation = kNamed["activation"],
                   kOutScale = kNamed["out_scale"], kOutZero = kNamed["out_zero"],
                   kOutLeast = kNamed["out_least"], kOutMost = kNamed["out_most"],
                   kOut = kNamed["out"];
}  // namespace place

// With more products of two codes, a sum may leave i32.
constexpr int64_t kMaxDepth = 65536;

constexpr bool is_code(int32_t dtype) { return dtype == HUSK_U8 || dtype == HUSK_I8; }

husk_status get_list(const Arguments& args, ArgumentPlace at, int32_t dims, int64_t least,
                     int64_t* out) {
  HUSK_TRY(args.check_ints(at, dims));
  for (int32_t d = 0; d < dims; ++d) {
    const int64_t value = args[at].sizes[d];
    if (value < least || value > int64_t{1} << 31)
      return args.argument_error(at, HUSK_INVALID_ARGUMENT, "is out of range");
    out[2 - dims + d] = value;
  }
  return HUSK_OK;
}

// Reads a scale, which is positive and finite.
husk_status get_scale(const Arguments& args, ArgumentPlace at, double& scale) {
  HUSK_TRY(args.get_number(at, scale));
  if (!(scale > 0) || !(static_cast<float>(1 / scale) <= 3e38f) ||
      !(static_cast<float>(scale) <= 3e38f))
    return args.argument_error(at, HUSK_INVALID_ARGUMENT, "is no positive number of f32");
  return HUSK_OK;
}

// Reads a code of a dtype.
husk_status get_code(const Arguments& args, ArgumentPlace at, int32_t dtype, int32_t& code) {
  int64_t value = 0;
  HUSK_TRY(args.get_int(at, value));
  const int64_t least = dtype == HUSK_I8 ? -128 : 0;
  if (value < least || value > least + 255)
    return args.argument_error(at, HUSK_INVALID_ARGUMENT, "is no code of the tensor's dtype");
  code = static_cast<int32_t>(value);
  return HUSK_OK;
}

// Reads the weight, what says how it is used, and the sizes that depend on it alone.
husk_status get_weight(const Arguments& args, IntConvolution& c) {
  HUSK_TRY(args.check_tensor(place::kWeight, 2, 4));
  HUSK_TRY(args.check_dtype(place::kWeight, HUSK_I8));
  HUSK_TRY(args.get_int(place::kGroups, c.groups));
  const husk_op_arg weight = with_safe_strides(args[place::kWeight]);
  const int32_t dims = weight.rank - 2;
  if (c.groups < 1 || weight.sizes[0] % c.groups != 0)
    return args.argument_error(place::kGroups, HUSK_INVALID_ARGUMENT,
                               "does not divide the channels of the output");
  c.weight = static_cast<const int8_t*>(weight.data);
  c.weight_out = weight.strides[0];
  c.weight_in = weight.strides[1];
  c.out_channels = weight.sizes[0] / c.groups;
  c.in_channels = weight.sizes[1];
  int64_t depth = c.in_channels;
  for (int32_t axis = 0; axis < 2; ++axis) {
    const int32_t dim = axis + dims;  // of the tensor, below 2 for an axis that is not there
    c.kernel[axis] = dim < 2 ? 1 : weight.sizes[dim];
    c.weight_axis[axis] = dim < 2 ? 0 : weight.strides[dim];
    if (!checked_multiply(depth, c.kernel[axis], depth) || depth > kMaxDepth)
      return args.argument_error(place::kWeight, HUSK_UNSUPPORTED,
                                 "has more than 65536 elements of a channel");
  }
  if (depth == 0)
    return args.argument_error(place::kWeight, HUSK_INVALID_ARGUMENT, "has no elements");
  return HUSK_OK;
}

ImageStrides strides_of(const husk_op_arg& tensor) {
  ImageStrides strides = {tensor.strides[0], tensor.strides[1], {0, 0}};
  for (int32_t dim = 2; dim < tensor.rank; ++dim)
    strides.axis[dim + 2 - tensor.rank] = tensor.strides[dim];
  return strides;
}

husk_status get_shapes(const Arguments& args, IntConvolution& c) {
  const husk_op_arg input = with_safe_strides(args[place::kInput]), &out = args[place::kOut];
  const int32_t rank = args[place::kWeight].rank, dims = rank - 2;
  for (int axis = 0; axis < 2; ++axis) {
    c.stride[axis] = c.dilation[axis] = c.in[axis] = c.positions[axis] = 1;
    c.padding[axis] = 0;
  }
  HUSK_TRY(get_list(args, place::kStride, dims, 1, c.stride));
  HUSK_TRY(get_list(args, place::kPadding, dims, 0, c.padding));
  HUSK_TRY(get_list(args, place::kDilation, dims, 1, c.dilation));
  int64_t all_in = 0;
  if (!checked_multiply(c.in_channels, c.groups, all_in))
    return args.argument_error(place::kGroups, HUSK_INVALID_ARGUMENT,
                               "is too large for the weight");
  HUSK_TRY(args.check_size(place::kInput, 1, all_in, "groups times the channels of the weight"));
  c.batch = input.sizes[0];
  HUSK_TRY(args.check_size(place::kOut, 0, c.batch, "the input's images"));
  HUSK_TRY(args.check_size(place::kOut, 1, args[place::kWeight].sizes[0],
                           "the weight's output channels"));
  for (int32_t dim = 2; dim < rank; ++dim) {
    const int32_t axis = dim - dims;
    int64_t span = 0;
    if (!checked_multiply(c.dilation[axis], c.kernel[axis] - 1, span))
      return args.argument_error(place::kWeight, HUSK_UNSUPPORTED, "is too large");
    c.in[axis] = input.sizes[dim];
    const int64_t room = c.in[axis] + 2 * c.padding[axis] - span;
    c.positions[axis] = room < 1 ? 0 : (room - 1) / c.stride[axis] + 1;
    HUSK_TRY(args.check_size(place::kOut, dim, c.positions[axis],
                             "what stride, padding and dilation give"));
  }
  c.input = input.data;
  c.input_dtype = static_cast<husk_dtype>(input.dtype);
  c.input_strides = strides_of(input);
  c.out = out.data;
  c.out_dtype = static_cast<husk_dtype>(out.dtype);
  c.out_strides = strides_of(out);
  return HUSK_OK;
}

// Reads the numbers of each channel.
husk_status get_vectors(const Arguments& args, IntConvolution& c) {
  const int64_t channels = args[place::kWeight].sizes[0];
  HUSK_TRY(args.check_tensor(place::kScales, 1, 1));
  HUSK_TRY(args.check_dtype(place::kScales, HUSK_F32));
  const bool is_one = args[place::kScales].sizes[0] == 1;
  HUSK_TRY(args.check_vector(place::kScales, is_one ? 1 : channels, "the output's channels"));
  c.scales = static_cast<const float*>(args[place::kScales].data);
  c.scales_stride = is_one ? 0 : args[place::kScales].strides[0];
  if (args.none(place::kBias)) return HUSK_OK;
  HUSK_TRY(args.check_vector(place::kBias, channels, "the output's channels"));
  HUSK_TRY(args.check_dtype(place::kBias, HUSK_F32));
  c.bias = static_cast<const float*>(args[place::kBias].data);
  c.bias_stride = args[place::kBias].strides[0];
  return HUSK_OK;
}

husk_status get_residual(const Arguments& args, IntConvolution& c) {
  c.residual_scale = 1;
  if (args.none(place::kResidual)) return HUSK_OK;
  HUSK_TRY(args.check_tensor(place::kResidual, args[place::kOut].rank, args[place::kOut].rank));
  HUSK_TRY(args.check_same_shape(place::kResidual, place::kOut));
  const int32_t dtype = args[place::kResidual].dtype;
  c.residual = args[place::kResidual].data;
  c.residual_dtype = static_cast<husk_dtype>(dtype);
  c.residual_strides = strides_of(args[place::kResidual]);
  if (dtype == HUSK_F32) return HUSK_OK;
  if (!is_code(dtype)) return args.unsupported_dtype(place::kResidual);
  double scale = 1;
  HUSK_TRY(get_scale(args, place::kResidualScale, scale));
  c.residual_scale = static_cast<float>(scale);
  return get_code(args, place::kResidualZero, dtype, c.residual_zero);
}

// Reads what the codes of the input stand for. What lies in memory may be anything: it changes the
// results alone.
husk_status get_input(const Arguments& args, IntConvolution& c) {
  if (args.none(place::kDynamicScale) != args.none(place::kDynamicZero))
    return args.argument_error(place::kDynamicZero, HUSK_INVALID_ARGUMENT,
                               "needs dynamic_scale beside it");
  if (args.none(place::kDynamicScale)) {
    double scale = 1;
    HUSK_TRY(get_scale(args, place::kInputScale, scale));
    c.input_scale = static_cast<float>(scale);
    return get_code(args, place::kInputZero, c.input_dtype, c.input_zero);
  }
  for (const uint32_t at : {place::kDynamicScale, place::kDynamicZero}) {
    HUSK_TRY(args.check_tensor(at));
    if (numel(args[at]) != 1)
      return args.argument_error(at, HUSK_INVALID_ARGUMENT, "has not one element");
  }
  HUSK_TRY(args.check_index_dtype(place::kDynamicZero));
  const husk_op_arg &scale = args[place::kDynamicScale], &zero = args[place::kDynamicZero];
  if (scale.dtype == HUSK_F64)
    c.input_scale = static_cast<float>(*static_cast<const double*>(scale.data));
  else if (scale.dtype == HUSK_F32)
    c.input_scale = *static_cast<const float*>(scale.data);
  else
    return args.unsupported_dtype(place::kDynamicScale);
  const int64_t code = zero.dtype == HUSK_I64 ? *static_cast<const int64_t*>(zero.data)
                                              : *static_cast<const int32_t*>(zero.data);
  const int64_t least = c.input_dtype == HUSK_I8 ? -128 : 0;
  c.input_zero = static_cast<int32_t>(smaller(larger(code, least), least + 255));
  return HUSK_OK;
}

husk_status get_output(const Arguments& args, IntConvolution& c) {
  HUSK_TRY(args.get_activation(place::kActivation, c.activation));
  if (c.out_dtype == HUSK_F32) return HUSK_OK;
  if (!is_code(c.out_dtype)) return args.unsupported_dtype(place::kOut);
  double scale = 1;
  HUSK_TRY(get_scale(args, place::kOutScale, scale));
  c.out_inverse = static_cast<float>(1 / scale);
  HUSK_TRY(get_code(args, place::kOutZero, c.out_dtype, c.out_zero));
  HUSK_TRY(get_code(args, place::kOutLeast, c.out_dtype, c.out_least));
  HUSK_TRY(get_code(args, place::kOutMost, c.out_dtype, c.out_most));
  if (c.out_least > c.out_most)
    return args.argument_error(place::kOutLeast, HUSK_INVALID_ARGUMENT, "is above out_most");
  return HUSK_OK;
}

// The last row that the device has counts.
constexpr KernelFor<IntConvolutionRun> kKernels[] = {
#if defined(__x86_64__)
    {cpu_set::kBaseline, int_convolution_baseline},      {cpu_set::kAvx2, int_convolution_avx2},
    {cpu_set::kAvxVnni, int_convolution_avx_vnni},       {cpu_set::kAvx512, int_convolution_avx512},
    {cpu_set::kAvx512Vnni, int_convolution_avx512_vnni},
#else
    {cpu_set::kArmBaseline, int_convolution_baseline},
    {cpu_set::kArmDotprod, int_convolution_dotprod},
#endif
};

}  // namespace

husk_status convolution_int8(const Arguments& args) {
  IntConvolution c{};
  HUSK_TRY(get_weight(args, c));
  const int32_t rank = args[place::kWeight].rank;
  HUSK_TRY(args.check_tensor(place::kInput, rank, rank));
  HUSK_TRY(args.check_tensor(place::kOut, rank, rank));
  if (!is_code(args[place::kInput].dtype)) return args.unsupported_dtype(place::kInput);
  HUSK_TRY(get_shapes(args, c));
  HUSK_TRY(get_vectors(args, c));
  HUSK_TRY(get_residual(args, c));
  HUSK_TRY(get_output(args, c));
  HUSK_TRY(get_input(args, c));
  Features cpu{};
  HUSK_TRY(args.get_features(cpu));
  if (numel(args[place::kOut]) == 0) return HUSK_OK;
  c.packed = args.packed(place::kWeight);
  const IntConvolutionRun run = best_kernel(cpu, kKernels);
  const IntConvolutionParts parts(c);
  const double work = static_cast<double>(numel(args[place::kOut])) *
                      static_cast<double>(depth_of(c)) / 4;
  run_in_parts(args, parts.count(), parts.position_blocks, work, [&](Parts& taken) {
    for (int64_t part = 0; taken.next(part);) run(c, part, taken.cancellation, taken.scratch);
  });
  return HUSK_OK;
}

// The panels of all groups, then the sum of the weights of each channel.
husk_status pack_convolution_int8(const Arguments& args, husk_packing& packing) {
  if (packing.argument != place::kWeight) return HUSK_OK;
  IntConvolution c{};
  if (get_weight(args, c) != HUSK_OK) return HUSK_OK;  // a run reports what is wrong
  const int64_t groups = int_groups(c), panels = int_panels(c), words = int_panel_words(c),
                channels = args[place::kWeight].sizes[0];
  int64_t all = 0;
  if (!checked_multiply(groups, panels, all) || !checked_multiply(all, words, all) ||
      !checked_add(all, channels, all) || !checked_multiply(all, int64_t{4}, all) || channels == 0)
    return HUSK_OK;
  packing.bytes = static_cast<uint64_t>(all);
  packing.layout = static_cast<uint64_t>(c.groups);
  packing.name = "panels and sums 2";
  if (!packing.data) return HUSK_OK;
  auto* to = static_cast<uint32_t*>(packing.data);
  for (int64_t group = 0; group < groups; ++group)
    for (int64_t panel = 0; panel < panels; ++panel, to += words) {
      if (args.cancellation.ends(words)) return HUSK_CANCELLED;
      write_int_panel(c, group, panel, 0, words / kIntPanel, to);
    }
  for (int64_t channel = 0; channel < channels; ++channel, ++to) {
    if (args.cancellation.ends(depth_of(c))) return HUSK_CANCELLED;
    const int32_t sum = sum_of_weights(c, channel);
    __builtin_memcpy(to, &sum, sizeof sum);
  }
  return HUSK_OK;
}

}  // namespace husk::host
