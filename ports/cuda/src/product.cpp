#include "product.h"

#include <stdio.h>
#include <string.h>

#include "error.h"

namespace husk::cuda {

namespace {

enum { kA, kB, kBias, kAlpha, kBeta, kFast, kOut, kWorkspace, kCount };
constexpr uint16_t kMostAlign = 256;

struct Matrix {
  int64_t rows, columns, row_stride, column_stride, batch, batch_stride;
  Matrix transposed() const { return {columns, rows, column_stride, row_stride, batch, batch_stride}; }
};

bool is_tensor(const husk_op_arg& arg, int32_t dtype, int32_t rank) {
  return arg.kind == HUSK_ARG_TENSOR && arg.dtype == dtype && arg.rank == rank;
}

Matrix matrix_of(const husk_op_arg& arg) {
  const int32_t row = arg.rank - 2, column = arg.rank - 1;
  const bool batched = arg.rank == 3 && arg.sizes[0] > 1;
  return {arg.sizes[row], arg.sizes[column], arg.strides[row], arg.strides[column], arg.rank == 3 ? arg.sizes[0] : 1,
          batched ? arg.strides[0] : 0};
}

// Elements from one column to the next, where the elements of a column lie side by side; else 0.
int64_t leading(const Matrix& m) {
  if (m.rows > 1 && m.row_stride != 1) return 0;
  if (m.columns <= 1) return m.rows;
  return m.column_stride >= m.rows ? m.column_stride : 0;
}

uint16_t align_of(const void* pointer) {
  const auto low = reinterpret_cast<uintptr_t>(pointer) & (kMostAlign - 1);
  return static_cast<uint16_t>(low ? low & (~low + 1) : kMostAlign);
}

husk_status refuse(husk_error* error, const husk_op_arg* args, const char* what) {
  return fail(error, HUSK_UNSUPPORTED, "%s: %s: export without libraries=True", ProductText(args).text, what);
}

husk_status check_kinds(const husk_op_arg* args, uint32_t count, husk_error* error) {
  bool right = count == kCount;
  const int32_t dtype = right ? args[kA].dtype : 0, rank = right ? args[kA].rank : 0;
  right = right && (dtype == HUSK_F16 || dtype == HUSK_BF16 || dtype == HUSK_F32 || dtype == HUSK_F64) &&
          (rank == 2 || rank == 3) && is_tensor(args[kA], dtype, rank) && is_tensor(args[kB], dtype, rank) &&
          is_tensor(args[kOut], dtype, rank) && is_tensor(args[kWorkspace], HUSK_U8, 1) &&
          args[kAlpha].kind == HUSK_ARG_FLOAT && args[kBeta].kind == HUSK_ARG_FLOAT && args[kFast].kind == HUSK_ARG_INT;
  const husk_op_arg* bias = right && args[kBias].kind != HUSK_ARG_NONE ? &args[kBias] : nullptr;
  if (bias) right = bias->kind == HUSK_ARG_TENSOR && bias->dtype == dtype && bias->rank >= 1 && bias->rank <= rank;
  if (right) return HUSK_OK;
  return fail(error, HUSK_INVALID_ARGUMENT, "husk::matmul takes two tensors of f16, bf16, f32 or f64 and rank 2 or 3, a bias or "
              "none, two floats, an int, the result and a workspace of u8: export the program again");
}

husk_status check_sizes(const husk_op_arg* args, const Matrix& a, const Matrix& b, const Matrix& d, husk_error* error) {
  const bool fit = a.columns == b.rows && d.rows == a.rows && d.columns == b.columns && a.batch == b.batch && a.batch == d.batch;
  if (!fit)
    return fail(error, HUSK_INVALID_INPUT, "%s: the sizes do not fit one another", ProductText(args).text);
  if (d.batch > INT32_MAX || d.rows > INT32_MAX || d.columns > INT32_MAX || a.columns > INT32_MAX)
    return refuse(error, args, "a size is above 2147483647");
  return HUSK_OK;
}

// What is added: a row that all rows share is the kernel's own addition, all else is C. `d` is the result as it lies: column by
// column, that is transposed where `swapped`.
husk_status read_bias(const husk_op_arg* args, const Matrix& d, bool swapped, Operands* out, husk_error* error) {
  const husk_op_arg& arg = args[kBias];
  Product& p = out->product;
  if (arg.kind == HUSK_ARG_NONE || out->beta == 0) return HUSK_OK;
  const int32_t last = arg.rank - 1;
  const bool one_row = arg.rank == 1 || (arg.rank == 2 && (arg.sizes[0] == 1 || arg.strides[0] == 0));
  const int64_t columns = swapped ? d.rows : d.columns;
  if (one_row && swapped && out->beta == 1 && d.batch == 1 && arg.sizes[last] == columns &&
      (columns == 1 || arg.strides[last] == 1)) {
    out->bias = arg.data;
    p.has_bias = 1;
    return HUSK_OK;
  }
  if (arg.rank < 2) return refuse(error, args, "a bias that is no row of the result, or is scaled");
  const Matrix c = swapped ? matrix_of(arg).transposed() : matrix_of(arg);
  if (c.rows != d.rows || c.columns != d.columns || c.batch != d.batch)
    return refuse(error, args, "a bias of another size than the result");
  p.ld[2] = leading(c);
  p.stride[2] = c.batch_stride;
  if (p.ld[2] == 0 || (d.batch > 1 && c.batch_stride == 0)) return refuse(error, args, "the bias lies otherwise than the result");
  out->c = arg.data;
  return HUSK_OK;
}

// A product over nothing is zeros.
husk_status read_empty(const husk_op_arg* args, Operands* out, husk_error* error) {
  const husk_op_arg& result = args[kOut];
  int64_t dense = 1;
  bool is_dense = true;
  for (int32_t d = result.rank; d-- > 0;) {
    is_dense = is_dense && (result.sizes[d] == 1 || result.strides[d] == dense);
    dense *= result.sizes[d];
  }
  if (dense == 0) return HUSK_OK;
  if ((args[kBias].kind != HUSK_ARG_NONE && out->beta != 0) || !is_dense)
    return refuse(error, args, "a product over nothing, with a bias or gaps");
  const int32_t dtype = args[kA].dtype;
  out->zeros = static_cast<uint64_t>(dense) * (dtype == HUSK_F64 ? 8 : dtype == HUSK_F32 ? 4 : 2);
  return HUSK_OK;
}

}  // namespace

husk_status read_operands(const husk_op_arg* args, uint32_t count, Operands* out, husk_error* error) {
  memset(out, 0, sizeof *out);
  HUSK_TRY(check_kinds(args, count, error));
  Matrix a = matrix_of(args[kA]), b = matrix_of(args[kB]), d = matrix_of(args[kOut]);
  HUSK_TRY(check_sizes(args, a, b, d, error));
  out->alpha = args[kAlpha].f;
  out->beta = args[kBeta].f;
  out->a = args[kA].data;
  out->b = args[kB].data;
  out->d = args[kOut].data;
  out->workspace = args[kWorkspace].data;
  // A result that lies row by row is its transpose that lies column by column.
  const bool swapped = leading(d.transposed()) != 0;
  if (swapped) {
    const Matrix first = a.transposed();
    a = b.transposed();
    b = first;
    d = d.transposed();
    const void* data = out->a;
    out->a = out->b;
    out->b = data;
  }
  Product& p = out->product;
  p.m = d.rows;
  p.n = d.columns;
  p.k = a.columns;
  p.batch = d.batch;
  p.dtype = args[kA].dtype;
  p.fast = p.dtype == HUSK_F32 && args[kFast].i != 0;
  p.workspace = static_cast<uint64_t>(args[kWorkspace].sizes[0]);
  if (out->is_empty()) return read_empty(args, out, error);
  const Matrix* given[] = {&a, &b};
  for (int i = 0; i < 2; ++i) {
    p.ld[i] = leading(*given[i]);
    p.transposed[i] = p.ld[i] == 0;
    if (p.transposed[i]) p.ld[i] = leading(given[i]->transposed());
    p.stride[i] = given[i]->batch_stride;
    if (p.ld[i] == 0) return refuse(error, args, "a factor that lies neither by rows nor by columns");
  }
  p.ld[3] = leading(d);
  p.stride[3] = d.batch_stride;
  if (p.ld[3] == 0 || (d.batch > 1 && d.batch_stride == 0)) return refuse(error, args, "a result that lies neither by rows nor by columns");
  HUSK_TRY(read_bias(args, d, swapped, out, error));
  if (!out->c) {   // it is not read, and described as D is
    out->beta = 0;
    out->c = out->d;
    p.ld[2] = p.ld[3];
    p.stride[2] = p.stride[3];
  }
  const void* data[] = {out->a, out->b, out->c, out->d};
  for (int i = 0; i < 4; ++i) p.align[i] = align_of(data[i]);
  if (p.has_bias && align_of(out->bias) < p.align[3]) p.align[3] = align_of(out->bias);
  return HUSK_OK;
}

ProductText::ProductText(const husk_op_arg* args) {
  const char* names[] = {"f16", "bf16", "f32", "f64"};
  const Matrix a = matrix_of(args[kA]), b = matrix_of(args[kB]);
  char batch[24] = "";
  if (a.batch != 1) snprintf(batch, sizeof batch, "%lld x ", static_cast<long long>(a.batch));
  snprintf(text, sizeof text, "husk::matmul %s %s[%lld, %lld] [%lld, %lld]%s", names[args[kA].dtype - HUSK_F16], batch,
           static_cast<long long>(a.rows), static_cast<long long>(a.columns), static_cast<long long>(b.rows),
           static_cast<long long>(b.columns), args[kBias].kind == HUSK_ARG_NONE ? "" : " and a bias");
}

}  // namespace husk::cuda
