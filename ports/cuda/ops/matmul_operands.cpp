#include "ops/matmul_operands.h"

#include <cstdio>
#include <cstring>

#include <husk/detail/dtype.h>

#include "error.h"
#include "ops/arguments.h"

namespace husk::cuda {

namespace {

constexpr ArgumentPlaces kAt(kMatmulContract);
constexpr uint32_t kA = kAt["a"], kB = kAt["b"], kBias = kAt["bias"], kAlpha = kAt["alpha"],
                   kBeta = kAt["beta"], kFast = kAt["fast"], kOut = kAt["out"],
                   kWorkspace = kAt["workspace"], kCount = kAt.count();
constexpr uint16_t kMaxAlign = 256;

struct Matrix {
  int64_t rows, columns, row_stride, column_stride, batch, batch_stride;
  Matrix transposed() const {
    return {columns, rows, column_stride, row_stride, batch, batch_stride};
  }
};

// The matrices of a product whose result lies column by column. cuBLASLt writes results column by
// column only, so the product for a result that lies row by row is D^T = B^T A^T: `swapped`.
struct Product {
  Matrix a, b, d;
  bool swapped;
};

Matrix matrix_of(const husk_op_arg& arg) {
  const int32_t row = arg.rank - 2, column = arg.rank - 1;
  const bool batched = arg.rank == 3 && arg.sizes[0] > 1;
  return {arg.sizes[row],
          arg.sizes[column],
          arg.strides[row],
          arg.strides[column],
          arg.rank == 3 ? arg.sizes[0] : 1,
          batched ? arg.strides[0] : 0};
}

// The leading dimension (elements from one column to the next) of a matrix that lies column by
// column; 0 if the elements of a column are not adjacent.
int64_t leading_dimension(const Matrix& m) {
  if (m.rows > 1 && m.row_stride != 1) return 0;
  if (m.columns <= 1) return m.rows;
  return m.column_stride >= m.rows ? m.column_stride : 0;
}

husk_status unsupported(husk_error* error, const husk_op_arg* args, const char* reason) {
  return fail(error, HUSK_UNSUPPORTED, "%s: %s: export with gemm='triton'", MatmulText(args).text,
              reason);
}

husk_status check_kinds(const husk_op_arg* args, uint32_t count, husk_error* error) {
  bool valid = count == kCount;
  const int32_t dtype = valid ? args[kA].dtype : 0, rank = valid ? args[kA].rank : 0;
  valid = valid &&
          (dtype == HUSK_F16 || dtype == HUSK_BF16 || dtype == HUSK_F32 || dtype == HUSK_F64) &&
          (rank == 2 || rank == 3) && is_tensor(args[kA], dtype, rank) &&
          is_tensor(args[kB], dtype, rank) && is_tensor(args[kOut], dtype, rank) &&
          is_tensor(args[kWorkspace], HUSK_U8, 1) &&
          (args[kWorkspace].sizes[0] <= 1 || args[kWorkspace].strides[0] == 1) &&
          args[kAlpha].kind == HUSK_ARG_FLOAT && args[kBeta].kind == HUSK_ARG_FLOAT &&
          args[kFast].kind == HUSK_ARG_INT;
  const husk_op_arg* bias = valid && args[kBias].kind != HUSK_ARG_NONE ? &args[kBias] : nullptr;
  if (bias)
    valid = bias->kind == HUSK_ARG_TENSOR && bias->dtype == dtype && bias->rank >= 1 &&
            bias->rank <= rank;
  if (valid) return HUSK_OK;
  return fail(
      error, HUSK_INVALID_ARGUMENT,
      "husk::matmul takes two tensors of f16, bf16, f32 or f64 and rank 2 or 3, a bias or "
      "none, two floats, an int, the result and a dense workspace of u8: export the program again");
}

husk_status check_sizes(const husk_op_arg* args, const Matrix& a, const Matrix& b, const Matrix& d,
                        husk_error* error) {
  const bool match = a.columns == b.rows && d.rows == a.rows && d.columns == b.columns &&
                     a.batch == b.batch && a.batch == d.batch;
  if (!match)
    return fail(error, HUSK_INVALID_INPUT,
                "%s: the sizes of the factors and the result do not match", MatmulText(args).text);
  if (d.batch > INT32_MAX || d.rows > INT32_MAX || d.columns > INT32_MAX || a.columns > INT32_MAX)
    return unsupported(error, args, "a size is above 2147483647");
  return HUSK_OK;
}

// A bias of one row, unscaled, is added by the algorithm's epilogue: in a swapped product that row
// is a column. Every other bias becomes the matrix C.
husk_status read_bias(const husk_op_arg* args, const Product& product, Operands* out,
                      husk_error* error) {
  const husk_op_arg& arg = args[kBias];
  const Matrix& d = product.d;
  const bool swapped = product.swapped;
  MatmulKey& key = out->key;
  if (arg.kind == HUSK_ARG_NONE || out->beta == 0) return HUSK_OK;
  const int32_t last = arg.rank - 1;
  const int64_t rows = swapped ? d.columns : d.rows, columns = swapped ? d.rows : d.columns;
  const bool one_row = arg.rank == 1 ||
                       (arg.rank == 2 &&
                        (arg.sizes[0] == 1 || (arg.sizes[0] == rows && arg.strides[0] == 0)));
  if (one_row && swapped && out->beta == 1 && d.batch == 1 && arg.sizes[last] == columns &&
      (columns == 1 || arg.strides[last] == 1)) {
    out->bias = arg.data;
    key.has_bias = 1;
    return HUSK_OK;
  }
  if (arg.rank < 2)
    return unsupported(error, args, "a bias that is not a row of the result, or is scaled");
  const Matrix c = swapped ? matrix_of(arg).transposed() : matrix_of(arg);
  if (c.rows != d.rows || c.columns != d.columns || c.batch != d.batch)
    return unsupported(error, args, "a bias of another size than the result");
  key.ld[2] = leading_dimension(c);
  key.stride[2] = c.batch_stride;
  if (key.ld[2] == 0 || (d.batch > 1 && c.batch_stride == 0))
    return unsupported(error, args, "the bias has another layout than the result");
  out->c = arg.data;
  return HUSK_OK;
}

// A result without elements is left alone. If k is 0 the result is filled with zeros, which must
// lie without gaps.
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
    return unsupported(error, args, "a product over nothing, with a bias or gaps");
  const int32_t dtype = args[kA].dtype;
  out->zeros = static_cast<uint64_t>(dense) * detail::element_bytes(dtype);
  return HUSK_OK;
}

// Decides whether the product is computed transposed, and swaps the factors' data if it is.
Product orient(const Matrix& a, const Matrix& b, const Matrix& d, Operands* out) {
  if (leading_dimension(d.transposed()) == 0) return {a, b, d, false};
  const void* data = out->a;
  out->a = out->b;
  out->b = data;
  return {b.transposed(), a.transposed(), d.transposed(), true};
}

void read_sizes(const husk_op_arg* args, const Product& product, MatmulKey* key) {
  key->m = product.d.rows;
  key->n = product.d.columns;
  key->k = product.a.columns;
  key->batch = product.d.batch;
  key->dtype = args[kA].dtype;
  key->fast = key->dtype == HUSK_F32 && args[kFast].i != 0;
}

// Leading dimensions and strides of the factors and the result.
husk_status read_layouts(const husk_op_arg* args, const Product& product, MatmulKey* key,
                         husk_error* error) {
  const Matrix* factors[] = {&product.a, &product.b};
  for (int i = 0; i < 2; ++i) {
    key->ld[i] = leading_dimension(*factors[i]);
    key->transposed[i] = key->ld[i] == 0;
    if (key->transposed[i]) key->ld[i] = leading_dimension(factors[i]->transposed());
    key->stride[i] = factors[i]->batch_stride;
    if (key->ld[i] == 0)
      return unsupported(error, args, "a factor that is neither row-major nor column-major");
  }
  const Matrix& d = product.d;
  key->ld[3] = leading_dimension(d);
  key->stride[3] = d.batch_stride;
  if (key->ld[3] == 0 || (d.batch > 1 && d.batch_stride == 0))
    return unsupported(error, args, "a result that is neither row-major nor column-major");
  return HUSK_OK;
}

// cuBLASLt wants a C even if beta is 0 and C is not read: D stands in for it.
void use_result_as_c(Operands* out) {
  out->beta = 0;
  out->c = out->d;
  out->key.ld[2] = out->key.ld[3];
  out->key.stride[2] = out->key.stride[3];
}

// Some algorithms of cuBLASLt store a leading dimension in 32 bits.
husk_status check_layouts(const husk_op_arg* args, const MatmulKey& key, husk_error* error) {
  for (const int64_t ld : key.ld)
    if (ld > INT32_MAX) return unsupported(error, args, "a stride is above 2147483647");
  return HUSK_OK;
}

void read_alignments(Operands* out) {
  MatmulKey& key = out->key;
  const void* data[] = {out->a, out->b, out->c, out->d};
  for (int i = 0; i < 4; ++i) key.align[i] = align_of(data[i], kMaxAlign);
  if (key.has_bias && align_of(out->bias, kMaxAlign) < key.align[3])
    key.align[3] = align_of(out->bias, kMaxAlign);
}

}  // namespace

husk_status read_operands(const husk_op_arg* args, uint32_t count, Operands* out,
                          husk_error* error) {
  memset(out, 0, sizeof *out);
  HUSK_TRY(check_kinds(args, count, error));
  const Matrix a = matrix_of(args[kA]), b = matrix_of(args[kB]), d = matrix_of(args[kOut]);
  HUSK_TRY(check_sizes(args, a, b, d, error));
  const uint32_t askew = misaligned_tensor(args, count);
  if (askew < count) return misaligned(MatmulText(args).text, args, askew, error);
  out->alpha = args[kAlpha].f;
  out->beta = args[kBeta].f;
  out->a = args[kA].data;
  out->b = args[kB].data;
  out->d = args[kOut].data;
  out->key.workspace = aligned_part(args[kWorkspace], &out->workspace);
  const Product product = orient(a, b, d, out);
  read_sizes(args, product, &out->key);
  if (out->is_empty()) return read_empty(args, out, error);
  HUSK_TRY(read_layouts(args, product, &out->key, error));
  HUSK_TRY(read_bias(args, product, out, error));
  if (!out->c) use_result_as_c(out);
  HUSK_TRY(check_layouts(args, out->key, error));
  read_alignments(out);
  return HUSK_OK;
}

MatmulText::MatmulText(const husk_op_arg* args) {
  const Matrix a = matrix_of(args[kA]), b = matrix_of(args[kB]);
  char batch[24] = "";
  if (a.batch != 1) snprintf(batch, sizeof batch, "%lld x ", static_cast<long long>(a.batch));
  snprintf(text, sizeof text, "husk::matmul %s %s[%lld, %lld] [%lld, %lld]%s",
           detail::element_name(args[kA].dtype), batch, static_cast<long long>(a.rows),
           static_cast<long long>(a.columns), static_cast<long long>(b.rows),
           static_cast<long long>(b.columns),
           args[kBias].kind == HUSK_ARG_NONE ? "" : " and a bias");
}

}  // namespace husk::cuda
