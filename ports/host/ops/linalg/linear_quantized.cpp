// Linear layers whose weight has codes of 8 or 4 bits with scales.
//
//   W[j, i] = (value(code[j, i]) - zeros[j, i / group]) * scales[j, i / group]
//
// `weight` is n x k, or n x ceil(k / 2) with two codes of 4 bits in a byte, the first one in its
// low half. `scales` and `zeros` are n x k / group; without `zeros` they are 0. The value of a code
// of 4 bits is values[code], or code - 8 without `values`; that of a code of 8 bits is the element
// of `weight`. The exporter defines the operators in compiler/torch/husk/quantized.
//
// husk::linear_quantized: out = activation(input W^T + bias) + residual
//
// husk::linear_rounded: the same; but if the codes are ints without `values`, packed, and in groups
// of a multiple of kRoundedBlock, the input is rounded to ints of 8 bits (rounded_product.h).
//
// husk::grouped_linear_quantized: weight, scales and zeros are stacks of such matrices, one for
// each expert, and a row of out is that of the input times the transposed matrix of its expert.
// Either `ends` has the ends of the experts' rows, which lie one behind the other, and rows behind
// the last end are 0; or `experts` has the number of the expert of each row, and a negative number
// counts from the end. Only the codes of experts that have rows are read.

#include "contracts.h"
#include "core/arguments.h"
#include "core/element.h"
#include "core/float8.h"
#include "core/kernel_choice.h"
#include "core/loop.h"
#include "linalg/groups.h"
#include "linalg/product_parts.h"
#include "linalg/quantized.h"
#include "linalg/rounded_product.h"

namespace husk::host {

namespace {

// The places of a weight's arguments.
struct WeightPlaces {
  ArgumentPlace weight, scales, zeros, values, bits, group;
};
template <class Named>
constexpr WeightPlaces weight_places(const Named& named) {
  return {named["weight"], named["scales"], named["zeros"],
          named["values"], named["bits"],   named["group"]};
}

constexpr ArgumentsOf kNamed("linear_quantized", "linear_rounded");
constexpr uint32_t kLayerInput = kNamed["input"], kLayerBias = kNamed["bias"],
                   kLayerResidual = kNamed["residual"], kLayerActivation = kNamed["activation"],
                   kLayerOut = kNamed["out"];
constexpr WeightPlaces kMatrix = weight_places(kNamed);

constexpr ArgumentsOf kGrouped("grouped_linear_quantized");
constexpr uint32_t kRows = kGrouped["input"], kEnds = kGrouped["ends"],
                   kExperts = kGrouped["experts"], kProducts = kGrouped["out"];
constexpr WeightPlaces kStack = weight_places(kGrouped);

// A matrix of codes, or a stack of them, of which `quantization` describes the first one.
// `weight`, `scales` and `zeros` have their strides, which are 0 if there are no elements.
struct CodedWeight {
  husk_op_arg weight, scales, zeros;
  Format format;
  Quantization quantization;
  float values[256];
};

// Checks a matrix, or a stack if `rank` is 3, and reads how its codes are stored.
husk_status get_format(const Arguments& args, const WeightPlaces& at, int32_t rank,
                       Format& format) {
  HUSK_TRY(args.check_tensor(at.weight, rank, rank));
  int64_t bits = 0;
  HUSK_TRY(args.get_int(at.bits, bits));
  const husk_op_arg& weight = args[at.weight];
  if (bits != 8 && bits != 4)
    return args.argument_error(at.bits, HUSK_UNSUPPORTED, "is neither 8 nor 4");
  if (bits == 4
          ? weight.dtype != HUSK_U8
          : weight.dtype != HUSK_I8 && weight.dtype != HUSK_U8 && !float8_format(weight.dtype))
    return args.unsupported_dtype(at.weight);
  if (bits == 4 && weight.strides[rank - 1] != 1 && numel(weight) != 0)
    return args.argument_error(at.weight, HUSK_UNSUPPORTED, "has codes that are not adjacent");
  format = {static_cast<husk_dtype>(weight.dtype), static_cast<int32_t>(bits)};
  return HUSK_OK;
}

// Checks scales or zeros, a number for each group of the columns of a transposed matrix.
husk_status get_numbers(const Arguments& args, ArgumentPlace at, int32_t rank, bool may_be_ints,
                        GroupNumbers& numbers) {
  HUSK_TRY(args.check_tensor(at, rank, rank));
  const husk_op_arg of = with_safe_strides(args[at]);
  const bool is_float = of.dtype == HUSK_F32 || of.dtype == HUSK_F16 || of.dtype == HUSK_BF16,
             is_int = of.dtype == HUSK_I8 || of.dtype == HUSK_U8 || of.dtype == HUSK_I32;
  if (!is_float && !(may_be_ints && is_int)) return args.unsupported_dtype(at);
  numbers = {of.data, args.packed(at), of.strides[rank - 1], of.strides[rank - 2],
             static_cast<husk_dtype>(of.dtype)};
  return HUSK_OK;
}

// Checks the arguments of a weight with a depth of k. `coded` must stay where it is while its
// `quantization` is used.
husk_status get_weight(const Arguments& args, const WeightPlaces& at, int32_t rank, int64_t k,
                       CodedWeight& coded) {
  HUSK_TRY(get_format(args, at, rank, coded.format));
  const Format format = coded.format;
  Quantization& quantization = coded.quantization;
  const int32_t rows = rank - 2, columns = rank - 1;
  coded.weight = with_safe_strides(args[at.weight]);
  HUSK_TRY(args.check_size(at.weight, columns, format.bits == 4 ? k / 2 + k % 2 : k,
                           "the columns of the input"));
  HUSK_TRY(args.get_int(at.group, quantization.group));
  if (quantization.group < 1 || k % quantization.group != 0)
    return args.argument_error(at.group, HUSK_INVALID_ARGUMENT,
                               "does not divide the columns of the input");
  HUSK_TRY(get_numbers(args, at.scales, rank, false, quantization.scales));
  if (!args.none(at.zeros)) HUSK_TRY(get_numbers(args, at.zeros, rank, true, quantization.zeros));
  for (ArgumentPlace index : {at.scales, at.zeros}) {
    if (args.none(index)) continue;
    (index == at.scales ? coded.scales : coded.zeros) = with_safe_strides(args[index]);
    if (rank == 3) HUSK_TRY(args.check_size(index, 0, coded.weight.sizes[0], "the experts"));
    HUSK_TRY(args.check_size(index, rows, coded.weight.sizes[rows], "the rows of the weight"));
    HUSK_TRY(args.check_size(index, columns, k / quantization.group, "the groups of a row"));
  }
  const auto* float8 = float8_format(format.dtype);
  for (int i = 0; i < (float8 ? 256 : 16); ++i)
    coded.values[i] = float8 ? float8_decode(*float8, static_cast<uint8_t>(i))
                             : static_cast<float>(i - 8);
  if (!args.none(at.values)) {
    HUSK_TRY(args.check_vector(at.values, 16, "the codes of 4 bits"));
    HUSK_TRY(args.check_dtype(at.values, HUSK_F32));
    if (format.bits != 4)
      return args.argument_error(at.values, HUSK_INVALID_ARGUMENT, "is for codes of 4 bits");
    for (int i = 0; i < 16; ++i)
      coded.values[i] = static_cast<const float*>(
          args[at.values].data)[i * args[at.values].strides[0]];
  }
  quantization.values = coded.values;
  return HUSK_OK;
}

// Input and output are matrices of one dtype, with one row for each row of the other.
husk_status check_rows(const Arguments& args, ArgumentPlace input, ArgumentPlace out) {
  for (const ArgumentPlace index : {input, out}) {
    HUSK_TRY(args.check_tensor(index, 2, 2));
    HUSK_TRY(args.check_same_dtype(index, input));
  }
  return args.check_size(out, 0, args[input].sizes[0], "the rows of the input");
}

// The product of the input with the first matrix of a weight; `out` has elements.
Product product_of(const husk_op_arg& input, const CodedWeight& coded, const void* packed,
                   const husk_op_arg& out) {
  const int32_t rows = coded.weight.rank - 2;
  const husk_op_arg& weight = coded.weight;
  Product product = {};
  product.dtype = static_cast<husk_dtype>(out.dtype);
  product.m = out.sizes[0];
  product.n = out.sizes[1];
  product.k = input.sizes[1];
  product.alpha = product.beta = 1;
  product.a = {input.data, input.strides[0], input.strides[1]};
  product.b = {weight.data,          coded.format.bits == 4 ? 1 : weight.strides[rows + 1],
               weight.strides[rows], coded.format,
               {packed, 0},          &coded.quantization};
  product.out = out.data;
  product.out_row = out.strides[0];
  product.out_column = out.strides[1];
  return product;
}

// The last row that the device has counts. Without AVX2, x86-64 packs no codes. AVX-512 without
// VNNI has no better sums than AVX2.
constexpr KernelFor<RoundedKernels> kRoundedProducts[] = {
#if defined(__x86_64__)
    {cpu_set::kAvx2, {rounded_product_avx2, {rounded_add_avx2, false}, false}},
    {cpu_set::kAvxVnni, {rounded_product_avx2, {rounded_add_avx_vnni, true}, true}},
    {cpu_set::kAvx512, {rounded_product_avx512, {rounded_add_avx2, false}, false}},
    {cpu_set::kAvx512Vnni, {rounded_product_avx512, {rounded_add_avx512_vnni, true}, true}},
#else
    {cpu_set::kArmBaseline, {rounded_product_baseline, {rounded_add_baseline, false}, false}},
    {cpu_set::kArmDotprod, {rounded_product_baseline, {rounded_add_dotprod, false}, true}},
    {cpu_set::kArmI8mm, {rounded_product_baseline, {rounded_add_i8mm, false}, true}},
#endif
};

// How parts of a layer are computed. Each thread has its own.
class LayerRun {
 public:
  LayerRun(Features cpu, const Product& layer, bool rounds, bool has_values)
      : cpu_(cpu),
        kernels_(product_kernels(cpu, layer.dtype, layer.b.format)),
        ints_(best_kernel(cpu, kRoundedProducts)),
        may_be_ints_(may_be_ints(layer, has_values)),
        rounds_(rounds) {}

  // The most columns of a part of a layer with m rows. Rows are rounded once for each part.
  int64_t most_columns(int64_t m, const husk_threads* threads) const {
    if (!may_be_ints_ || !rounds_ || m <= kFewCodeRows) return ProductSplit::kMostColumns;
    return threads && threads->count > 1 ? 1024 : 4096;
  }

  void operator()(Product& part) {
    if (may_be_ints_ && rounds_) return run_rounded(part);
    if (may_be_ints_ && ints_.has_slices && part.m == 1 &&
        ints_.run(rows_of(part, part.rows ? part.rows[0] : 0, 1), ints_.add, true, ready_))
      return;
    ready_ = nullptr;
    product_run(cpu_, kernels_, part);
  }

 private:
  void run_rounded(const Product& part) {
    const int64_t times = (part.m - 1) / rounded_rows_at_once(part.k) + 1,
                  rows = ProductSplit::rounded_up((part.m - 1) / times + 1, kRoundedAtOnce);
    for (int64_t row = 0; row < part.m; row += rows)
      ints_.run(rows_of(part, row, rows < part.m - row ? rows : part.m - row), ints_.add, false,
                ready_);
  }

  // Whether the first operand of a product can become ints.
  static bool may_be_ints(const Product& p, bool has_values) {
    const Quantization& q = *p.b.quantization;
    const bool are_ints = p.b.format.dtype == HUSK_U8 || p.b.format.dtype == HUSK_I8;
    return are_ints && !has_values && q.group % kRoundedBlock == 0 && p.k > 0 && p.b.packed.data &&
           q.scales.packed && (!q.zeros.data || q.zeros.packed);
  }
  // The product of some rows that follow each other.
  static Product rows_of(const Product& part, int64_t row, int64_t count) {
    Product rows = part;
    const auto move = [&](const void* data, int64_t distance) {
      const int64_t bytes = row * distance * dtype_bytes(part.dtype);
      return data ? static_cast<const unsigned char*>(data) + bytes : nullptr;
    };
    rows.m = count;
    rows.rows = nullptr;
    rows.a.data = move(part.a.data, part.a.row);
    rows.self.data = move(part.self.data, part.self.row);
    rows.residual.data = move(part.residual.data, part.residual.row);
    rows.out = const_cast<unsigned char*>(move(part.out, part.out_row));
    return rows;
  }

  const Features cpu_;
  const ProductKernels* const kernels_;
  const RoundedKernels ints_;
  const bool may_be_ints_, rounds_;
  const void* ready_ = nullptr;
};

// ---- packing ----

// The matrix that is packed, or the first one of a stack, as the second operand of products.
ProductPacking matrix_to_pack(const Arguments& args, const WeightPlaces& at, ArgumentPlace input,
                              Format format) {
  const husk_op_arg& weight = args[at.weight];
  const int32_t rows = weight.rank - 2, columns = weight.rank - 1;
  // A file fixes the sizes of a constant, and with them an even number of codes: the last code of
  // an odd row is one that nobody reads.
  const int64_t k = format.bits == 4 ? 2 * weight.sizes[columns] : weight.sizes[columns];
  return {static_cast<husk_dtype>(args[input].dtype),
          k,
          weight.sizes[rows],
          {weight.data,
           format.bits == 4 ? 1 : weight.strides[columns],
           weight.strides[rows],
           format,
           {}},
          &args.cancellation};
}

// Packs an argument of a weight, each matrix of a stack behind the one before.
husk_status pack_weight(const Arguments& args, const WeightPlaces& at, ArgumentPlace input,
                        int32_t rank, husk_packing& packing) {
  int64_t group = 0;
  HUSK_TRY(args.get_int(at.group, group));
  if (group % kMinPackedGroup != 0) return HUSK_OK;
  const ArgumentPlace place = packing.argument;
  const bool is_weight = place == at.weight;
  if (!is_weight && place != at.scales && place != at.zeros) return HUSK_OK;
  GroupNumbers numbers = {};
  Format format = {};
  Features cpu{};
  if (is_weight)
    HUSK_TRY(get_format(args, at, rank, format));
  else
    HUSK_TRY(get_numbers(args, place, rank, place == at.zeros, numbers));
  HUSK_TRY(args.get_features(cpu));
  const husk_op_arg of = with_safe_strides(args[place]);
  const int64_t matrices = rank == 3 ? of.sizes[0] : 1;
  const auto pack = [&](int64_t matrix, void* to) {
    const int64_t distance = rank == 3 ? matrix * of.strides[0] * dtype_bytes(of.dtype) : 0;
    if (!is_weight) {
      GroupNumbers own = numbers;
      own.data = static_cast<const unsigned char*>(numbers.data) + distance;
      return pack_group_numbers(own, of.sizes[rank - 1], of.sizes[rank - 2], args.cancellation, to);
    }
    ProductPacking own = matrix_to_pack(args, at, input, format);
    own.b.data = static_cast<const unsigned char*>(own.b.data) + distance;
    return product_pack(cpu, own, to);
  };
  const int64_t bytes = pack(0, nullptr);
  packing.name = is_weight ? product_layout(cpu, matrix_to_pack(args, at, input, format))
                           : "numbers 1";
  packing.bytes = static_cast<uint64_t>(matrices * bytes);
  for (int64_t i = 0; packing.data && bytes > 0 && i < matrices; ++i)
    pack(i, static_cast<unsigned char*>(packing.data) + i * bytes);
  return HUSK_OK;
}

// ---- groups ----

husk_status get_groups(const Arguments& args, int64_t experts, int64_t rows, Groups& groups) {
  if (args.none(kEnds) == args.none(kExperts))
    return args.argument_error(kEnds, HUSK_INVALID_ARGUMENT,
                               "and experts: exactly one of them must be given");
  groups = {experts, rows, {}, args.none(kExperts)};
  const ArgumentPlace place = groups.are_ends ? kEnds : kExperts;
  HUSK_TRY(args.check_vector(place, groups.are_ends ? experts : rows,
                             groups.are_ends ? "the experts" : "the rows of the input"));
  HUSK_TRY(args.check_index_dtype(place));
  groups.of = args[place];
  return groups.check(args, place);
}

// The products of the experts, in parts: the rows of an expert times some of its columns.
struct GroupedProduct {
  Product first;  // with the first matrix of the stack
  Groups groups;
  const CodedWeight& coded;
  int64_t column_parts;
  int64_t packed_bytes[3];  // from matrix to matrix, of codes, scales and zeros

  // With fewer rows than experts, the parts of an expert are those of its first row.
  bool is_by_row() const { return !groups.are_ends && groups.rows < groups.experts; }
  int64_t parts() const { return (is_by_row() ? groups.rows : groups.experts) * column_parts; }

  // `first` with the matrix of an expert and the columns of a part. `own` gets its quantization.
  Product restricted(int64_t expert, int64_t column_part, Quantization& own) const {
    const auto move = [&](const void* data, int64_t distance) {
      return data ? static_cast<const unsigned char*>(data) + distance : nullptr;
    };
    const auto of_expert = [&](const husk_op_arg& of) {
      return expert * of.strides[0] * dtype_bytes(of.dtype);
    };
    const int64_t column = column_part * kGroupColumns, bytes = dtype_bytes(first.dtype);
    Product p = first;
    own = coded.quantization;
    own.scales.data = move(own.scales.data, of_expert(coded.scales));
    own.scales.packed = move(own.scales.packed, expert * packed_bytes[1]);
    if (own.zeros.data) {
      own.zeros.data = move(own.zeros.data, of_expert(coded.zeros));
      own.zeros.packed = move(own.zeros.packed, expert * packed_bytes[2]);
    }
    p.b.quantization = &own;
    p.b.data = move(p.b.data,
                    of_expert(coded.weight) + column * p.b.column * dtype_bytes(p.b.format.dtype));
    p.b.packed = {move(p.b.packed.data, expert * packed_bytes[0]), column};
    p.n = p.n - column < kGroupColumns ? p.n - column : kGroupColumns;
    p.out = static_cast<unsigned char*>(p.out) + column * p.out_column * bytes;
    return p;
  }

  // Calls run(product) for the products of a part.
  template <class Run>
  void run_part(int64_t part, Cancellation& cancellation, const Run& run) const {
    const int64_t number = part / column_parts, column_part = part % column_parts;
    int64_t expert = number, row = 0;
    if (is_by_row()) {
      expert = groups.expert(number);
      const bool is_first = each_index_while(cancellation, number,
                                             [&](int64_t i) { return groups.expert(i) != expert; });
      if (!is_first) return;
      row = number;
    }
    if (expert < 0 || expert >= groups.experts) return;
    Quantization own;
    Product p = restricted(expert, column_part, own);
    if (groups.are_ends) {
      const int64_t bytes = dtype_bytes(p.dtype);
      const int64_t begin = groups.begin(expert);
      p.m = groups.end(expert) - begin;
      if (p.m <= 0) return;
      p.a.data = static_cast<const unsigned char*>(p.a.data) + begin * p.a.row * bytes;
      p.out = static_cast<unsigned char*>(p.out) + begin * p.out_row * bytes;
      return run(p);
    }
    int64_t rows[kFewCodeRows];
    p.rows = rows;
    p.m = 0;
    const bool is_whole = each_index(cancellation, groups.rows - row, [&](int64_t i) {
      if (groups.expert(row + i) != expert) return;
      rows[p.m++] = row + i;
      if (p.m < kFewCodeRows) return;
      run(p);
      p.m = 0;
    });
    if (!is_whole) return;
    if (p.m > 0) run(p);
  }
};

husk_status run_linear(const Arguments& args, bool rounds) {
  HUSK_TRY(check_rows(args, kLayerInput, kLayerOut));
  const husk_op_arg input = with_safe_strides(args[kLayerInput]), &out = args[kLayerOut];
  CodedWeight coded = {};
  HUSK_TRY(get_weight(args, kMatrix, 2, input.sizes[1], coded));
  const int64_t n = coded.weight.sizes[0];
  HUSK_TRY(args.check_size(kLayerOut, 1, n, "the rows of the weight"));
  Product product = product_of(input, coded, args.packed(kMatrix.weight), out);
  if (!args.none(kLayerBias)) {
    HUSK_TRY(args.check_vector(kLayerBias, n, "the rows of the weight"));
    HUSK_TRY(args.check_same_dtype(kLayerBias, kLayerInput));
    product.self = {args[kLayerBias].data, 0, args[kLayerBias].strides[0]};
  }
  if (!args.none(kLayerResidual)) {
    HUSK_TRY(args.check_same_shape(kLayerResidual, kLayerOut));
    HUSK_TRY(args.check_same_dtype(kLayerResidual, kLayerInput));
    const husk_op_arg& residual = args[kLayerResidual];
    product.residual = {residual.data, residual.strides[0], residual.strides[1]};
  }
  Features cpu{};
  HUSK_TRY(args.get_activation(kLayerActivation, product.activation));
  HUSK_TRY(args.get_features(cpu));
  if (!product_kernels(cpu, product.dtype, coded.format))
    return args.unsupported_dtype(kLayerInput);
  if (numel(out) == 0) return HUSK_OK;
  const LayerRun run(cpu, product, rounds, !args.none(kMatrix.values));
  run_parts_of_product(args, cpu, product, run, run.most_columns(product.m, args.context->threads));
  return HUSK_OK;
}

}  // namespace

husk_status linear_quantized(const Arguments& args) { return run_linear(args, false); }

husk_status linear_rounded(const Arguments& args) { return run_linear(args, true); }

husk_status pack_linear_quantized(const Arguments& args, husk_packing& packing) {
  return pack_weight(args, kMatrix, kLayerInput, 2, packing);
}

husk_status grouped_linear_quantized(const Arguments& args) {
  HUSK_TRY(check_rows(args, kRows, kProducts));
  const husk_op_arg input = with_safe_strides(args[kRows]), &out = args[kProducts];
  CodedWeight coded = {};
  HUSK_TRY(get_weight(args, kStack, 3, input.sizes[1], coded));
  HUSK_TRY(args.check_size(kProducts, 1, coded.weight.sizes[1], "the rows of a matrix"));
  Groups groups = {};
  HUSK_TRY(get_groups(args, coded.weight.sizes[0], input.sizes[0], groups));
  Features cpu{};
  HUSK_TRY(args.get_features(cpu));
  if (!product_kernels(cpu, static_cast<husk_dtype>(out.dtype), coded.format))
    return args.unsupported_dtype(kRows);
  if (numel(out) == 0) return HUSK_OK;
  if (groups.are_ends) clear_rows(args.cancellation, out, groups.begin(groups.experts));
  GroupedProduct grouped = {product_of(input, coded, args.packed(kStack.weight), out),
                            groups,
                            coded,
                            (out.sizes[1] - 1) / kGroupColumns + 1,
                            {}};
  const int64_t group_count = input.sizes[1] / coded.quantization.group;
  const auto packed_numbers = [&](const GroupNumbers& of) {
    return of.packed ? pack_group_numbers(of, group_count, out.sizes[1], args.cancellation, nullptr)
                     : 0;
  };
  if (grouped.first.b.packed.data)
    grouped.packed_bytes[0] = product_pack(cpu, matrix_to_pack(args, kStack, kRows, coded.format),
                                           nullptr);
  grouped.packed_bytes[1] = packed_numbers(coded.quantization.scales);
  grouped.packed_bytes[2] = packed_numbers(coded.quantization.zeros);
  const double work = static_cast<double>(out.sizes[0]) * static_cast<double>(out.sizes[1]) *
                      static_cast<double>(input.sizes[1]);
  if (grouped.parts() == 0) return HUSK_OK;
  const LayerRun run(cpu, grouped.first, false, !args.none(kStack.values));
  run_in_parts(args, grouped.parts(), work, [&](Parts& taken) {
    LayerRun own = run;
    for (int64_t part = 0; taken.next(part);)
      grouped.run_part(part, taken.cancellation, [&](Product p) {
        p.cancellation = &taken.cancellation;
        p.scratch = taken.scratch;
        own(p);
      });
  });
  return HUSK_OK;
}

husk_status pack_grouped_linear_quantized(const Arguments& args, husk_packing& packing) {
  return pack_weight(args, kStack, kRows, 3, packing);
}

}  // namespace husk::host
