// aten::mm.out, addmm.out, bmm.out and baddbmm.out: checks, then one product a batch.
// Schemas: aten/src/ATen/native/native_functions.yaml of PyTorch.
#include "arguments.h"
#include "device.h"
#include "error.h"
#include "product.h"

namespace husk::host {

namespace {

// Where the operands of an op stand among its arguments; `self` is what beta multiplies, or none.
struct Layout {
  static constexpr uint32_t none = 0xffffffff;
  uint32_t self, a, b, beta, alpha, out, count;
  int32_t rank;
};

constexpr Layout plain(int32_t rank) { return {Layout::none, 0, 1, Layout::none, Layout::none, 2, 3, rank}; }
constexpr Layout added(int32_t rank) { return {0, 1, 2, 3, 4, 5, 6, rank}; }

husk_status check_operands(const Arguments& args, const Layout& at, husk_error* error) {
  const uint32_t operands[] = {at.a, at.b, at.out};
  for (uint32_t index : operands) {
    if (husk_status status = args.tensor(index, at.rank, at.rank)) return status;
  }
  for (uint32_t index : operands) {
    if (husk_status status = args.same_dtype(index, at.a)) return status;
  }
  const int32_t dtype = args[at.out].dtype;
  if (dtype != HUSK_F32 && dtype != HUSK_F64 && dtype != HUSK_F16 && dtype != HUSK_BF16) {
    return fail(error, HUSK_UNSUPPORTED, "%s: argument %s has dtype %d; the host op has f16, bf16, f32 and f64",
                args.op, args.names[at.a], dtype);
  }
  const int32_t row = at.rank - 2, column = at.rank - 1;
  if (husk_status status = args.size(at.b, row, args[at.a].sizes[column], "the columns of the first matrix")) {
    return status;
  }
  if (husk_status status = args.size(at.out, row, args[at.a].sizes[row], "the rows of the first matrix")) return status;
  if (husk_status status = args.size(at.out, column, args[at.b].sizes[column], "the columns of the second matrix")) {
    return status;
  }
  if (at.rank == 2) return HUSK_OK;
  if (husk_status status = args.size(at.b, 0, args[at.a].sizes[0], "the first batch")) return status;
  return args.size(at.out, 0, args[at.a].sizes[0], "the first batch");
}

// Self as strides over out's dimensions: 0 where it broadcasts.
husk_status broadcast(const Arguments& args, const Layout& at, int64_t* strides) {
  if (husk_status status = args.tensor(at.self, 0, at.rank)) return status;
  if (husk_status status = args.same_dtype(at.self, at.a)) return status;
  const husk_op_arg& self = args[at.self];
  for (int32_t dim = 0; dim < at.rank; dim++) {
    const int32_t own = dim - (at.rank - self.rank);
    strides[dim] = 0;
    if (own < 0 || self.sizes[own] == 1) continue;
    if (husk_status status = args.size(at.self, own, args[at.out].sizes[dim], "it broadcasts to out")) return status;
    strides[dim] = self.strides[own];
  }
  return HUSK_OK;
}

const void* batch_of(const husk_op_arg& tensor, int64_t stride, int64_t batch) {
  return static_cast<const unsigned char*>(tensor.data) + batch * stride * dtype_bytes(tensor.dtype);
}

void run_product(const Device& device, const Product& product) {
  switch (device.isa) {
#if defined(__x86_64__)
    case Isa::Avx512: return product_run_avx512(product);
    case Isa::Avx2: return product_run_avx2(product);
#endif
    default: return product_run_baseline(product);
  }
}

husk_status multiply(const husk_op_context* context, const Arguments& args, const Layout& at, husk_error* error) {
  if (husk_status status = check_operands(args, at, error)) return status;
  Product product = {};
  product.alpha = 1;
  int64_t self[3] = {};
  bool adds = false;
  if (at.self != Layout::none) {
    if (husk_status status = broadcast(args, at, self)) return status;
    if (husk_status status = args.number(at.beta, product.beta)) return status;
    if (husk_status status = args.number(at.alpha, product.alpha)) return status;
    adds = product.beta != 0;   // PyTorch does not let what beta = 0 multiplies through, NaN neither
  }
  if (!context->device) {
    return fail(error, HUSK_INVALID_ARGUMENT, "%s: the context has no device of the host port", args.op);
  }
  const husk_op_arg &a = args[at.a], &b = args[at.b], &out = args[at.out];
  const int32_t row = at.rank - 2, column = at.rank - 1;
  product.dtype = static_cast<husk_dtype>(out.dtype);
  product.m = out.sizes[row];
  product.n = out.sizes[column];
  product.k = a.sizes[column];
  product.out_row = out.strides[row];
  product.out_column = out.strides[column];
  const bool batched = at.rank == 3;
  const int64_t batches = batched ? out.sizes[0] : 1;
  for (int64_t i = 0; i < batches && product.m > 0 && product.n > 0; i++) {
    product.a = {batch_of(a, batched ? a.strides[0] : 0, i), a.strides[row], a.strides[column]};
    product.b = {batch_of(b, batched ? b.strides[0] : 0, i), b.strides[row], b.strides[column]};
    product.out = const_cast<void*>(batch_of(out, batched ? out.strides[0] : 0, i));
    if (adds) product.self = {batch_of(args[at.self], batched ? self[0] : 0, i), self[row], self[column]};
    run_product(*static_cast<const Device*>(context->device), product);
  }
  return HUSK_OK;
}

constexpr const char* mm_names[] = {"self", "mat2", "out"};
constexpr const char* addmm_names[] = {"self", "mat1", "mat2", "beta", "alpha", "out"};
constexpr const char* baddbmm_names[] = {"self", "batch1", "batch2", "beta", "alpha", "out"};

husk_status call(const husk_op_context* context, const Arguments& args, uint32_t count, const Layout& layout) {
  if (husk_status status = args.count(count, layout.count, layout.count)) return status;
  return multiply(context, args, layout, args.error);
}

}  // namespace

husk_status mm_out(const husk_op_context* context, const husk_op_arg* args, uint32_t count, husk_error* error) {
  return call(context, {"aten::mm.out", mm_names, args, error}, count, plain(2));
}

husk_status addmm_out(const husk_op_context* context, const husk_op_arg* args, uint32_t count, husk_error* error) {
  return call(context, {"aten::addmm.out", addmm_names, args, error}, count, added(2));
}

husk_status bmm_out(const husk_op_context* context, const husk_op_arg* args, uint32_t count, husk_error* error) {
  return call(context, {"aten::bmm.out", mm_names, args, error}, count, plain(3));
}

husk_status baddbmm_out(const husk_op_context* context, const husk_op_arg* args, uint32_t count, husk_error* error) {
  return call(context, {"aten::baddbmm.out", baddbmm_names, args, error}, count, added(3));
}

}  // namespace husk::host
