// husk::linear, aten::mm, addmm, bmm, baddbmm and related operators: checks, then one matrix
// product for each matrix of the batch. Schemas: aten/src/ATen/native/native_functions.yaml of
// PyTorch.
#include <initializer_list>

#include "contracts.h"
#include "core/arguments.h"
#include "core/arithmetic.h"
#include "core/kernel_choice.h"
#include "core/loop.h"
#include "device.h"
#include "error.h"
#include "linalg/int_product.h"
#include "linalg/product_parts.h"

namespace husk::host {

namespace {

// The positions of an op's operands among its arguments. beta multiplies `self`. An op without
// `self` has kNoArgument for it, beta and alpha.
struct Operands {
  ArgumentPlace self, a, b, beta, alpha, out;
  int32_t rank;
};

constexpr Operands product_operands(const ArgumentsOf& named, int32_t rank) {
  return {kNoArgument, named["self"], named["mat2"], kNoArgument, kNoArgument, named["out"], rank};
}
constexpr Operands addition_operands(const ArgumentsOf& named, const char* a, const char* b,
                                     int32_t rank) {
  return {named["self"], named[a], named[b], named["beta"], named["alpha"], named["out"], rank};
}

husk_status check_operands(const Arguments& args, const Operands& at) {
  const uint32_t operands[] = {at.a, at.b, at.out};
  for (uint32_t index : operands) HUSK_TRY(args.check_tensor(index, at.rank, at.rank));
  for (uint32_t index : operands) HUSK_TRY(args.check_same_dtype(index, at.a));
  const int32_t row = at.rank - 2, column = at.rank - 1;
  HUSK_TRY(args.check_size(at.b, row, args[at.a].sizes[column], "the columns of the first matrix"));
  HUSK_TRY(args.check_size(at.out, row, args[at.a].sizes[row], "the rows of the first matrix"));
  HUSK_TRY(args.check_size(at.out, column, args[at.b].sizes[column],
                           "the columns of the second matrix"));
  if (at.rank == 2) return HUSK_OK;
  HUSK_TRY(args.check_size(at.b, 0, args[at.a].sizes[0], "the first batch"));
  return args.check_size(at.out, 0, args[at.a].sizes[0], "the first batch");
}

// Computes the strides with which self broadcasts to out.
husk_status broadcast_self(const Arguments& args, const Operands& at, int64_t* strides) {
  HUSK_TRY(args.check_tensor(at.self, 0, at.rank));
  HUSK_TRY(args.check_same_dtype(at.self, at.a));
  const husk_op_arg& self = args[at.self];
  for (int32_t dim = 0; dim < at.rank; ++dim) {
    const int32_t self_dim = dim - (at.rank - self.rank);
    strides[dim] = 0;
    if (self_dim < 0 || self.sizes[self_dim] == 1) continue;
    HUSK_TRY(args.check_size(at.self, self_dim, args[at.out].sizes[dim], "it broadcasts to out"));
    strides[dim] = self.strides[self_dim];
  }
  return HUSK_OK;
}

// The address of matrix number `batch`.
const void* batch_of(const husk_op_arg& tensor, int64_t stride, int64_t batch) {
  return static_cast<const unsigned char*>(tensor.data) +
         batch * stride * dtype_bytes(tensor.dtype);
}

husk_status multiply(const Arguments& args, const Operands& at,
                     Activation activation = Activation::None) {
  HUSK_TRY(check_operands(args, at));
  Features cpu{};
  Product product = {};
  product.alpha = 1;
  product.activation = activation;
  int64_t self[3] = {};
  bool adds = false;
  if (at.self != kNoArgument) {
    HUSK_TRY(broadcast_self(args, at, self));
    HUSK_TRY(args.get_number(at.beta, product.beta));
    HUSK_TRY(args.get_number(at.alpha, product.alpha));
    adds = product.beta != 0;  // as in PyTorch, beta = 0 ignores self, even if it holds NaN
  }
  HUSK_TRY(args.get_features(cpu));
  const husk_op_arg a = with_safe_strides(args[at.a]), b = with_safe_strides(args[at.b]),
                    &out = args[at.out];
  const int32_t row = at.rank - 2, column = at.rank - 1;
  product.dtype = static_cast<husk_dtype>(out.dtype);
  product.m = out.sizes[row];
  product.n = out.sizes[column];
  product.k = a.sizes[column];
  product.out_row = out.strides[row];
  product.out_column = out.strides[column];
  product.b = {nullptr, b.strides[row], b.strides[column], {b.dtype, 0}, {args.packed(at.b), 0}};
  if (numel(out) == 0) return HUSK_OK;
  const ProductKernels* kernels = product_kernels(cpu, product.dtype, product.b.format);
  if (!kernels) return args.unsupported_dtype(at.a);
  const bool batched = at.rank == 3;
  const int64_t batches = batched ? out.sizes[0] : 1;
  const ProductSplit split(product, cpu, args.context->threads);
  const int64_t parts = batches * split.parts();
  const double work = static_cast<double>(numel(out)) * static_cast<double>(product.k);
  run_in_parts(args, parts, work, [&](Parts& taken) {
    for (int64_t part = 0; taken.next(part);) {
      const int64_t i = part / split.parts();
      Product p = product;
      p.cancellation = &taken.cancellation;
      p.scratch = taken.scratch;
      p.a = {batch_of(a, batched ? a.strides[0] : 0, i), a.strides[row], a.strides[column]};
      p.b.data = batch_of(b, batched ? b.strides[0] : 0, i);
      p.out = const_cast<void*>(batch_of(out, batched ? out.strides[0] : 0, i));
      if (adds)
        p.self = {batch_of(args[at.self], batched ? self[0] : 0, i), self[row], self[column]};
      split.restrict_to(p, part % split.parts());
      product_run(cpu, kernels, p);
    }
  });
  return HUSK_OK;
}

}  // namespace

// out = activation(input weight^T + bias) + residual.
husk_status linear(const Arguments& args) {
  constexpr ArgumentsOf named("linear");
  constexpr uint32_t kInput = named["input"], kWeight = named["weight"], kBias = named["bias"],
                     kResidual = named["residual"], kActivation = named["activation"],
                     kOut = named["out"];
  for (uint32_t index : {kInput, kWeight, kOut}) {
    HUSK_TRY(args.check_tensor(index, 2, 2));
    HUSK_TRY(args.check_same_dtype(index, kInput));
  }
  const husk_op_arg input = with_safe_strides(args[kInput]),
                    weight = with_safe_strides(args[kWeight]), &out = args[kOut];
  HUSK_TRY(args.check_size(kWeight, 1, input.sizes[1], "the columns of the input"));
  HUSK_TRY(args.check_size(kOut, 0, input.sizes[0], "the rows of the input"));
  HUSK_TRY(args.check_size(kOut, 1, weight.sizes[0], "the rows of the weight"));
  Product product = {};
  if (!args.none(kBias)) {
    HUSK_TRY(args.check_vector(kBias, weight.sizes[0], "the rows of the weight"));
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
  if (!has_kernels(product.dtype)) return args.unsupported_dtype(kInput);
  if (numel(out) == 0) return HUSK_OK;
  product.m = out.sizes[0];
  product.n = out.sizes[1];
  product.k = input.sizes[1];
  product.alpha = product.beta = 1;
  product.a = {input.data, input.strides[0], input.strides[1]};
  product.b = {weight.data,
               weight.strides[1],
               weight.strides[0],
               {weight.dtype, 0},
               {args.packed(kWeight), 0}};
  product.out = out.data;
  product.out_row = out.strides[0];
  product.out_column = out.strides[1];
  run_product_in_parts(args, cpu, product);
  return HUSK_OK;
}

husk_status pack_operand(const Arguments& args, ArgumentPlace operand, int32_t along,
                         husk_packing& packing) {
  if (packing.argument != operand) return HUSK_OK;
  Features cpu{};
  HUSK_TRY(args.get_features(cpu));
  HUSK_TRY(args.check_tensor(operand, 2, 2));
  const husk_op_arg& b = args[operand];
  const int32_t across = 1 - along;
  const ProductPacking matrix = {static_cast<husk_dtype>(b.dtype),
                                 b.sizes[along],
                                 b.sizes[across],
                                 {b.data, b.strides[along], b.strides[across], {b.dtype, 0}, {}},
                                 &args.cancellation};
  packing.name = product_layout(cpu, matrix);
  packing.bytes = static_cast<uint64_t>(product_pack(cpu, matrix, packing.data));
  return HUSK_OK;
}

husk_status pack_linear(const Arguments& args, husk_packing& packing) {
  constexpr ArgumentsOf named("linear");
  constexpr uint32_t kWeight = named["weight"];
  return pack_operand(args, kWeight, 1, packing);
}
husk_status pack_mm(const Arguments& args, husk_packing& packing) {
  constexpr ArgumentsOf named("mm");
  constexpr uint32_t kMat2 = named["mat2"];
  return pack_operand(args, kMat2, 0, packing);
}
husk_status pack_addmm(const Arguments& args, husk_packing& packing) {
  constexpr ArgumentsOf named("addmm", "addmm_activation");
  constexpr uint32_t kMat2 = named["mat2"];
  return pack_operand(args, kMat2, 0, packing);
}

// out = beta * self + alpha * the sum of a[i] b[i]. As in PyTorch, each addition rounds to the
// dtype.
husk_status addbmm(const Arguments& args) {
  constexpr Operands at = addition_operands(ArgumentsOf("addbmm"), "batch1", "batch2", 2);
  HUSK_TRY(args.check_tensor(at.a, 3, 3));
  HUSK_TRY(args.check_tensor(at.b, 3, 3));
  HUSK_TRY(args.check_tensor(at.out, 2, 2));
  HUSK_TRY(args.check_same_dtype(at.b, at.a));
  HUSK_TRY(args.check_same_dtype(at.out, at.a));
  const husk_op_arg a = with_safe_strides(args[at.a]), b = with_safe_strides(args[at.b]),
                    &out = args[at.out];
  HUSK_TRY(args.check_size(at.b, 0, a.sizes[0], "the first batch"));
  HUSK_TRY(args.check_size(at.b, 1, a.sizes[2], "the columns of the first matrices"));
  HUSK_TRY(args.check_size(at.out, 0, a.sizes[1], "the rows of the first matrices"));
  HUSK_TRY(args.check_size(at.out, 1, b.sizes[2], "the columns of the second matrices"));
  int64_t self[2] = {};
  Product product = {};
  Features cpu{};
  HUSK_TRY(broadcast_self(args, at, self));
  HUSK_TRY(args.get_number(at.beta, product.beta));
  HUSK_TRY(args.get_number(at.alpha, product.alpha));
  HUSK_TRY(args.get_features(cpu));
  product.cancellation = &args.cancellation;
  product.scratch = args.scratch();
  product.dtype = out.dtype;
  product.m = out.sizes[0];
  product.n = out.sizes[1];
  product.k = a.sizes[2];
  product.out = out.data;
  product.out_row = out.strides[0];
  product.out_column = out.strides[1];
  if (numel(out) == 0) return HUSK_OK;
  if (product.beta != 0) product.self = {args[at.self].data, self[0], self[1]};
  product.b = {nullptr, b.strides[1], b.strides[2], {b.dtype, 0}, {}};
  const ProductKernels* kernels = product_kernels(cpu, product.dtype, product.b.format);
  if (!kernels) return args.unsupported_dtype(at.a);
  // Products over nothing are all 0, so that one of them stands for every matrix of the batches.
  if (a.sizes[0] == 0) product.k = 0;
  for (int64_t i = 0; i == 0 || (product.k > 0 && i < a.sizes[0]); ++i) {
    if (args.cancellation.ends(1)) return HUSK_CANCELLED;
    product.a = {batch_of(a, a.strides[0], i), a.strides[1], a.strides[2]};
    product.b.data = batch_of(b, b.strides[0], i);
    Product p = product;
    product_run(cpu, kernels, p);
    product.self = {out.data, out.strides[0], out.strides[1]};
    product.beta = 1;
  }
  return HUSK_OK;
}

// addmm, followed by relu or gelu.
husk_status addmm_activation(const Arguments& args) {
  constexpr ArgumentsOf named("addmm_activation");
  constexpr Operands at = addition_operands(named, "mat1", "mat2", 2);
  constexpr uint32_t kUseGelu = named["use_gelu"];
  bool gelu = false;
  HUSK_TRY(args.get_bool(kUseGelu, gelu));
  HUSK_TRY(args.check_tensor(at.a, 2, 2));
  if (!has_kernels(args[at.a].dtype)) return args.unsupported_dtype(at.a);
  return multiply(args, at, gelu ? Activation::Gelu : Activation::Relu);
}

// The last row that the device has counts.
constexpr KernelFor<IntProductRun> kIntProducts[] = {
#if defined(__x86_64__)
    {cpu_set::kBaseline, int_product_baseline},      {cpu_set::kAvx2, int_product_avx2},
    {cpu_set::kAvxVnni, int_product_avx_vnni},       {cpu_set::kAvx512, int_product_avx512},
    {cpu_set::kAvx512Vnni, int_product_avx512_vnni}, {cpu_set::kAmxInt8, int_product_amx},
#else
    {cpu_set::kArmBaseline, int_product_baseline},
    {cpu_set::kArmDotprod, int_product_dotprod},
    {cpu_set::kArmI8mm, int_product_i8mm},
#endif
};

// The product of matrices of i8, summed in i32.
husk_status int_mm(const Arguments& args) {
  constexpr Operands at = product_operands(ArgumentsOf("int_mm"), 2);
  for (uint32_t index : {at.a, at.b, at.out}) {
    HUSK_TRY(args.check_tensor(index, 2, 2));
    HUSK_TRY(args.check_dtype(index, index == at.out ? HUSK_I32 : HUSK_I8));
  }
  const husk_op_arg a = with_safe_strides(args[at.a]), b = with_safe_strides(args[at.b]),
                    &out = args[at.out];
  HUSK_TRY(args.check_size(at.b, 0, a.sizes[1], "the columns of the first matrix"));
  HUSK_TRY(args.check_size(at.out, 0, a.sizes[0], "the rows of the first matrix"));
  HUSK_TRY(args.check_size(at.out, 1, b.sizes[1], "the columns of the second matrix"));
  if (numel(out) == 0) return HUSK_OK;
  Features cpu{};
  HUSK_TRY(args.get_features(cpu));
  const IntProductRun run = best_kernel(cpu, kIntProducts);
  const IntProduct product = {out.sizes[0],
                              out.sizes[1],
                              a.sizes[1],
                              {a.data, a.strides[0], a.strides[1]},
                              {b.data, b.strides[0], b.strides[1]},
                              {args.packed(at.b), 0},
                              writable<int32_t>(out),
                              out.strides[0],
                              out.strides[1],
                              nullptr,
                              nullptr};
  constexpr int64_t kPartRows = 96, kPartColumns = 128;
  const int64_t rows = (product.m - 1) / kPartRows + 1,
                columns = (product.n - 1) / kPartColumns + 1;
  const double work = static_cast<double>(numel(out)) * static_cast<double>(product.k) / 4;
  run_in_parts(args, rows * columns, rows, work, [&](Parts& taken) {
    for (int64_t part = 0; taken.next(part);) {
      const int64_t i = part % rows * kPartRows, j = part / rows * kPartColumns;
      IntProduct p = product;
      p.m = product.m - i < kPartRows ? product.m - i : kPartRows;
      p.n = product.n - j < kPartColumns ? product.n - j : kPartColumns;
      p.a.data = data_of<int8_t>(a) + i * p.a.row;
      p.b.data = data_of<int8_t>(b) + j * p.b.column;
      p.packed.column = j;
      p.out += i * p.out_row + j * p.out_column;
      p.cancellation = &taken.cancellation;
      p.scratch = taken.scratch;
      run(p);
    }
  });
  return HUSK_OK;
}

husk_status pack_int_mm(const Arguments& args, husk_packing& packing) {
  constexpr uint32_t kMat2 = ArgumentsOf("int_mm")["mat2"];
  if (packing.argument != kMat2) return HUSK_OK;
  HUSK_TRY(args.check_tensor(kMat2, 2, 2));
  const husk_op_arg& b = args[kMat2];
  const ProductPacking matrix = {HUSK_I8,
                                 b.sizes[0],
                                 b.sizes[1],
                                 {b.data, b.strides[0], b.strides[1], {HUSK_I8, 8}, {}},
                                 &args.cancellation};
  packing.name = kCodesLayout;
  packing.bytes = static_cast<uint64_t>(product_pack_codes(matrix, packing.data));
  return HUSK_OK;
}

husk_status mm(const Arguments& args) {
  constexpr Operands at = product_operands(ArgumentsOf("mm"), 2);
  return multiply(args, at);
}
husk_status addmm(const Arguments& args) {
  constexpr Operands at = addition_operands(ArgumentsOf("addmm"), "mat1", "mat2", 2);
  return multiply(args, at);
}
husk_status bmm(const Arguments& args) {
  constexpr Operands at = product_operands(ArgumentsOf("bmm"), 3);
  return multiply(args, at);
}
husk_status baddbmm(const Arguments& args) {
  constexpr Operands at = addition_operands(ArgumentsOf("baddbmm"), "batch1", "batch2", 3);
  return multiply(args, at);
}

}  // namespace husk::host
