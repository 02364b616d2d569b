// husk::linear_quantized: a linear layer whose weight has codes of 8 or 4 bits with scales.
//
//   out = activation(input W^T + bias) + residual
//   W[j, i] = (value(code[j, i]) - zeros[j, i / group]) * scales[j, i / group]
//
// `weight` is n x k, or n x ceil(k / 2) with two codes of 4 bits in a byte, the first one in its
// low half. `scales` and `zeros` are n x k / group; without `zeros` they are 0. The value of a code
// of 4 bits is values[code], or code - 8 without `values`; that of a code of 8 bits is the element
// of `weight`. The exporter defines the operator in compiler/torch/husk/quantized.
#include "contracts.h"
#include "core/arguments.h"
#include "core/float8.h"
#include "linalg/product_parts.h"
#include "linalg/quantized.h"

namespace husk::host {

namespace {

constexpr ArgumentsOf kNamed("linear_quantized");
constexpr uint32_t kInput = kNamed["input"], kWeight = kNamed["weight"], kScales = kNamed["scales"],
                   kZeros = kNamed["zeros"], kValues = kNamed["values"], kBias = kNamed["bias"],
                   kResidual = kNamed["residual"], kActivation = kNamed["activation"],
                   kBits = kNamed["bits"], kGroup = kNamed["group"], kOut = kNamed["out"];

// Checks the weight, and reads how its codes are stored.
husk_status get_format(const Arguments& args, Format& format) {
  HUSK_TRY(args.check_tensor(kWeight, 2, 2));
  int64_t bits = 0;
  HUSK_TRY(args.get_int(kBits, bits));
  const int32_t dtype = args[kWeight].dtype;
  if (bits != 8 && bits != 4)
    return args.argument_error(kBits, HUSK_UNSUPPORTED, "is neither 8 nor 4");
  if (bits == 4 ? dtype != HUSK_U8 : dtype != HUSK_I8 && dtype != HUSK_U8 && !float8_format(dtype))
    return args.unsupported_dtype(kWeight);
  if (bits == 4 && args[kWeight].strides[1] != 1 && numel(args[kWeight]) != 0)
    return args.argument_error(kWeight, HUSK_UNSUPPORTED, "has codes that are not adjacent");
  format = {static_cast<husk_dtype>(dtype), static_cast<int32_t>(bits)};
  return HUSK_OK;
}

// Checks scales or zeros, a number for each group of the columns of the transposed weight.
husk_status get_numbers(const Arguments& args, ArgumentPlace at, bool may_be_ints,
                        GroupNumbers& numbers) {
  HUSK_TRY(args.check_tensor(at, 2, 2));
  const husk_op_arg of = with_safe_strides(args[at]);
  const bool is_float = of.dtype == HUSK_F32 || of.dtype == HUSK_F16 || of.dtype == HUSK_BF16,
             is_int = of.dtype == HUSK_I8 || of.dtype == HUSK_U8 || of.dtype == HUSK_I32;
  if (!is_float && !(may_be_ints && is_int)) return args.unsupported_dtype(at);
  numbers = {of.data, args.packed(at), of.strides[1], of.strides[0],
             static_cast<husk_dtype>(of.dtype)};
  return HUSK_OK;
}

}  // namespace

husk_status linear_quantized(const Arguments& args) {
  for (uint32_t index : {kInput, kOut}) {
    HUSK_TRY(args.check_tensor(index, 2, 2));
    HUSK_TRY(args.check_same_dtype(index, kInput));
  }
  Format format = {};
  HUSK_TRY(get_format(args, format));
  const husk_op_arg input = with_safe_strides(args[kInput]),
                    weight = with_safe_strides(args[kWeight]), &out = args[kOut];
  const int64_t k = input.sizes[1], n = weight.sizes[0];
  HUSK_TRY(args.check_size(kWeight, 1, format.bits == 4 ? k / 2 + k % 2 : k,
                           "the columns of the input"));
  HUSK_TRY(args.check_size(kOut, 0, input.sizes[0], "the rows of the input"));
  HUSK_TRY(args.check_size(kOut, 1, n, "the rows of the weight"));
  Quantization quantization = {};
  HUSK_TRY(args.get_int(kGroup, quantization.group));
  if (quantization.group < 1 || k % quantization.group != 0)
    return args.argument_error(kGroup, HUSK_INVALID_ARGUMENT,
                               "does not divide the columns of the input");
  HUSK_TRY(get_numbers(args, kScales, false, quantization.scales));
  if (!args.none(kZeros)) HUSK_TRY(get_numbers(args, kZeros, true, quantization.zeros));
  for (uint32_t index : {kScales, kZeros}) {
    if (args.none(index)) continue;
    HUSK_TRY(args.check_size(index, 0, n, "the rows of the weight"));
    HUSK_TRY(args.check_size(index, 1, k / quantization.group, "the groups of a row"));
  }
  float values[256];
  const auto* float8 = float8_format(format.dtype);
  for (int i = 0; i < (float8 ? 256 : 16); ++i)
    values[i] = float8 ? float8_decode(*float8, static_cast<uint8_t>(i))
                       : static_cast<float>(i - 8);
  if (!args.none(kValues)) {
    HUSK_TRY(args.check_vector(kValues, 16, "the codes of 4 bits"));
    HUSK_TRY(args.check_dtype(kValues, HUSK_F32));
    if (format.bits != 4)
      return args.argument_error(kValues, HUSK_INVALID_ARGUMENT, "is for codes of 4 bits");
    for (int i = 0; i < 16; ++i)
      values[i] = static_cast<const float*>(args[kValues].data)[i * args[kValues].strides[0]];
  }
  quantization.values = values;
  Product product = {};
  if (!args.none(kBias)) {
    HUSK_TRY(args.check_vector(kBias, n, "the rows of the weight"));
    HUSK_TRY(args.check_same_dtype(kBias, kInput));
    product.self = {args[kBias].data, 0, args[kBias].strides[0]};
  }
  if (!args.none(kResidual)) {
    HUSK_TRY(args.check_same_shape(kResidual, kOut));
    HUSK_TRY(args.check_same_dtype(kResidual, kInput));
    const husk_op_arg& residual = args[kResidual];
    product.residual = {residual.data, residual.strides[0], residual.strides[1]};
  }
  Features cpu{};
  HUSK_TRY(args.get_activation(kActivation, product.activation));
  HUSK_TRY(args.get_features(cpu));
  product.dtype = static_cast<husk_dtype>(out.dtype);
  if (!product_kernels(cpu, product.dtype, format)) return args.unsupported_dtype(kInput);
  if (numel(out) == 0) return HUSK_OK;
  product.m = out.sizes[0];
  product.n = n;
  product.k = k;
  product.alpha = product.beta = 1;
  product.a = {input.data, input.strides[0], input.strides[1]};
  product.b = {weight.data,
               format.bits == 4 ? 1 : weight.strides[1],
               weight.strides[0],
               format,
               {args.packed(kWeight), 0},
               &quantization};
  product.out = out.data;
  product.out_row = out.strides[0];
  product.out_column = out.strides[1];
  run_product_in_parts(args, cpu, product);
  return HUSK_OK;
}

husk_status pack_linear_quantized(const Arguments& args, husk_packing& packing) {
  int64_t group = 0;
  HUSK_TRY(args.get_int(kGroup, group));
  if (group % kMinPackedGroup != 0) return HUSK_OK;
  if (packing.argument == kScales || packing.argument == kZeros) {
    GroupNumbers numbers = {};
    HUSK_TRY(get_numbers(args, packing.argument, packing.argument == kZeros, numbers));
    const husk_op_arg& of = args[packing.argument];
    packing.bytes = static_cast<uint64_t>(
        pack_group_numbers(numbers, of.sizes[1], of.sizes[0], args.cancellation, packing.data));
    return HUSK_OK;
  }
  if (packing.argument != kWeight) return HUSK_OK;
  Format format = {};
  HUSK_TRY(get_format(args, format));
  Features cpu{};
  HUSK_TRY(args.get_features(cpu));
  const husk_op_arg& weight = args[kWeight];
  // A file fixes the sizes of a constant, and with them an even number of codes: the last code of
  // an odd row is one that nobody reads.
  const int64_t k = format.bits == 4 ? 2 * weight.sizes[1] : weight.sizes[1];
  const ProductPacking matrix = {
      static_cast<husk_dtype>(args[kInput].dtype),
      k,
      weight.sizes[0],
      {weight.data, format.bits == 4 ? 1 : weight.strides[1], weight.strides[0], format, {}},
      &args.cancellation};
  packing.bytes = static_cast<uint64_t>(product_pack(cpu, matrix, packing.data));
  return HUSK_OK;
}

}  // namespace husk::host
