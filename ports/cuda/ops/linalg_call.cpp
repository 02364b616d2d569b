#include "ops/linalg_call.h"

#include <cstdio>
#include <cstring>

#include <husk/detail/dtype.h>

#include "ops/arguments.h"
#include "ops/group.h"

namespace husk::cuda {

namespace {

// True if a tensor lies without gaps, row by row, or with `by_columns` each of its matrices column
// by column.
bool is_dense(const husk_op_arg& arg, bool by_columns) {
  int64_t stride = 1;
  bool empty = false, dense = true;
  for (int32_t i = 0; i < arg.rank; ++i) {
    const int32_t last = arg.rank - 1 - i;
    const int32_t d = by_columns && i < 2 ? arg.rank - 2 + i : last;
    empty = empty || arg.sizes[d] == 0;
    dense = dense && (arg.sizes[d] == 1 || arg.strides[d] == stride);
    stride *= arg.sizes[d];
  }
  return dense || empty;
}

int64_t product(const int64_t* sizes, int32_t count) {
  int64_t result = 1;
  for (int32_t i = 0; i < count; ++i) result *= sizes[i];
  return result;
}

// The word with a number in a text of words, and its length up to a ':'.
const char* word(const char* text, uint32_t index, int* length) {
  while (index-- > 0) text = strchr(text, ' ') + 1;
  *length = static_cast<int>(strcspn(text, " :"));
  return text;
}

uint32_t word_count(const char* text) {
  uint32_t count = 1;
  for (; *text; ++text) count += *text == ' ';
  return count;
}

}  // namespace

LinalgCall::LinalgCall(const char* name, const char* contract, const husk_op_context* context,
                       const husk_op_arg* args, uint32_t count, bool prepares, husk_error* error)
    : name_(name),
      contract_(contract),
      device_(as_device(context->device)),
      linalg_(*static_cast<Linalg*>(context->user)),
      stream_(as_stream(context->stream)),
      args_(args),
      count_(count),
      prepares_(prepares),
      error_(error),
      scratch_(device_, context->stream) {}

husk_status LinalgCall::check_arguments() const {
  const uint32_t wanted = word_count(contract_), askew = misaligned_tensor(args_, count_);
  if (askew < count_) return misaligned(name_, args_, askew, error_);
  if (count_ == wanted) return HUSK_OK;
  return fail(error_, HUSK_INVALID_ARGUMENT,
              "%s takes %u arguments (%s), not %u: export the program again", name_, wanted,
              contract_, count_);
}

husk_status LinalgCall::wrong(uint32_t index, husk_status code, const char* what) const {
  int length = 0;
  const char* argument = word(contract_, index, &length);
  return fail(error_, code, "%s: %.*s %s", name_, length, argument, what);
}

husk_status LinalgCall::matrices(uint32_t index, Matrices* out, bool transposed) const {
  const husk_op_arg& arg = args_[index];
  if (arg.kind != HUSK_ARG_TENSOR || arg.rank < 2)
    return wrong(index, HUSK_INVALID_ARGUMENT, "is no matrix: export the program again");
  if ((dtype() != HUSK_F32 && dtype() != HUSK_F64) || arg.dtype != dtype())
    return wrong(index, HUSK_UNSUPPORTED,
                 "has another dtype than f32 or f64, or than the first tensor: export with "
                 "linalg='host'");
  if (!is_dense(arg, !transposed))
    return wrong(index, HUSK_UNSUPPORTED,
                 transposed
                     ? "does not lie row by row without gaps: export with linalg='host'"
                     : "does not lie column by column without gaps: export with linalg='host'");
  const int32_t row = arg.rank - 2, column = arg.rank - 1;
  *out = {static_cast<char*>(arg.data), arg.sizes[transposed ? column : row],
          arg.sizes[transposed ? row : column], product(arg.sizes, arg.rank - 2),
          detail::element_bytes(arg.dtype)};
  if (out->rows <= INT32_MAX && out->columns <= INT32_MAX) return HUSK_OK;
  return wrong(index, HUSK_UNSUPPORTED, "has a size above 2147483647: export with linalg='host'");
}

husk_status LinalgCall::dense_memory(uint32_t index, int32_t dtype, int64_t count,
                                     void** out) const {
  const husk_op_arg& arg = args_[index];
  if (arg.kind != HUSK_ARG_TENSOR || arg.dtype != dtype)
    return wrong(index, HUSK_INVALID_ARGUMENT, "has another type: export the program again");
  if (!is_dense(arg, false))
    return wrong(index, HUSK_UNSUPPORTED,
                 "has gaps between its elements: export with "
                 "linalg='host'");
  *out = arg.data;
  return expect(product(arg.sizes, arg.rank) == count, "numbers for each matrix");
}

husk_status LinalgCall::workspace(uint32_t index, int64_t count, char** out) const {
  const husk_op_arg& arg = args_[index];
  const bool fits = arg.kind == HUSK_ARG_TENSOR && arg.dtype == HUSK_F64 && arg.rank == 1 &&
                    is_dense(arg, false) && arg.sizes[0] >= count;
  if (!fits)
    return wrong(index, HUSK_INVALID_ARGUMENT,
                 "is too small, or no dense vector of f64: export "
                 "the program again");
  *out = static_cast<char*>(arg.data);
  return HUSK_OK;
}

husk_status LinalgCall::expect(bool fits, const char* what) const {
  if (fits) return HUSK_OK;
  return fail(error_, HUSK_INVALID_INPUT, "%s: the sizes of the tensors do not fit: %s", name_,
              what);
}

const char* LinalgCall::text(uint32_t index) const {
  const husk_op_arg& arg = args_[index];
  return arg.kind == HUSK_ARG_STRING && arg.string ? arg.string : "";
}

// ---- Memory -------------------------------------------------------------------------------------

husk_status LinalgCall::reserve(size_t own, size_t work, size_t host) {
  HUSK_TRY(reserve_host(host));
  if (prepares_) return HUSK_OK;
  HUSK_TRY(scratch_.allocate(align_scratch(own) + work, name_, error_));
  own_ = scratch_.data();
  work_ = scratch_.data() + align_scratch(own);
  work_bytes_ = work;
  return HUSK_OK;
}

husk_status LinalgCall::reserve_host(size_t bytes) {
  host_bytes_ = bytes;
  if (bytes <= linalg_.host_bytes) return HUSK_OK;
  if (!prepares_)
    return fail(error_, HUSK_UNSUPPORTED,
                "%s: cuSOLVER wants %zu bytes of host memory for these sizes, %zu are there: "
                "resize the session to them before the run",
                name_, bytes, linalg_.host_bytes);
  void* memory = allocate(device_, bytes, "scratch memory of cuSOLVER", error_);
  if (!memory) return HUSK_OUT_OF_MEMORY;
  release(device_, linalg_.host_scratch);
  linalg_.host_scratch = memory;
  linalg_.host_bytes = bytes;
  return HUSK_OK;
}

// ---- Work in the stream -------------------------------------------------------------------------

husk_status LinalgCall::driver_status(CUresult result, const char* call) const {
  if (result == CUDA_SUCCESS) return HUSK_OK;
  return driver_fail(device_.driver, error_, result, call, "%s", name_);
}

husk_status LinalgCall::copy(void* to, const void* from, int64_t bytes) const {
  if (bytes == 0) return HUSK_OK;
  return driver_status(device_.driver.cuMemcpyAsync(as_address(to), as_address(from),
                                                    static_cast<size_t>(bytes), stream_),
                       "cuMemcpyAsync");
}

husk_status LinalgCall::copy_columns(void* to, int64_t to_pitch, const void* from,
                                     int64_t from_pitch, int64_t rows, int64_t columns) const {
  CUDA_MEMCPY2D_v2 params = {};
  params.srcMemoryType = params.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  params.srcDevice = as_address(from);
  params.srcPitch = static_cast<size_t>(from_pitch);
  params.dstDevice = as_address(to);
  params.dstPitch = static_cast<size_t>(to_pitch);
  params.WidthInBytes = static_cast<size_t>(rows);
  params.Height = static_cast<size_t>(columns);
  return driver_status(device_.driver.cuMemcpy2DAsync(&params, stream_), "cuMemcpy2DAsync");
}

husk_status LinalgCall::zero(void* to, int64_t bytes) const {
  if (bytes == 0) return HUSK_OK;
  return driver_status(
      device_.driver.cuMemsetD8Async(as_address(to), 0, static_cast<size_t>(bytes), stream_),
      "cuMemsetD8Async");
}

// Fills `rows` rows of words of 32 bits.
husk_status LinalgCall::fill(void* to, uint32_t value, int64_t pitch, int64_t words,
                             int64_t rows) const {
  if (words == 0 || rows == 0) return HUSK_OK;
  return driver_status(device_.driver.cuMemsetD2D32Async(as_address(to), static_cast<size_t>(pitch),
                                                         value, static_cast<size_t>(words),
                                                         static_cast<size_t>(rows), stream_),
                       "cuMemsetD2D32Async");
}

husk_status LinalgCall::set_identity(const Matrices& m) const {
  HUSK_TRY(zero(m.data, m.bytes() * m.batch));
  const double one = 1;
  const float single = 1;
  uint32_t words[2];
  memcpy(words, &one, sizeof one);  // the lower half of this number is zero
  if (!is_double()) memcpy(&words[1], &single, sizeof single);
  const int64_t diagonal = m.rows < m.columns ? m.rows : m.columns;
  for (int64_t i = 0; i < m.batch; ++i)
    HUSK_TRY(
        fill(m.at(i) + m.element_bytes - 4, words[1], (m.rows + 1) * m.element_bytes, 1, diagonal));
  return HUSK_OK;
}

husk_status LinalgCall::clear_below(const Matrices& matrices, int64_t index) const {
  HUSK_TRY(clear(matrices, index, true));
  const int64_t rest = matrices.rows - matrices.columns;  // the rows below the square part
  if (rest <= 0) return HUSK_OK;
  const int64_t bytes = matrices.element_bytes;
  return fill(matrices.at(index) + matrices.columns * bytes, 0, matrices.rows * bytes,
              rest * bytes / 4, matrices.columns);
}

husk_status LinalgCall::clear_above(const Matrices& matrices, int64_t index) const {
  return clear(matrices, index, false);
}

// Zeroes a triangle of the square part of a matrix by about three times as many fills as the root
// of its rows, where one for each column would take longer than the factorization. Squares of size
// s beside the diagonal, at every second multiple of s, are filled for each power of two s. Those
// of one size lie in equal distances in memory, so one fill takes a whole square, or the same
// column of all squares, whichever gives fewer fills.
husk_status LinalgCall::clear(const Matrices& m, int64_t index, bool below) const {
  const int64_t n = m.rows < m.columns ? m.rows : m.columns, words = m.element_bytes / 4;
  const int64_t row_bytes = m.element_bytes, column_bytes = m.rows * m.element_bytes;
  for (int64_t s = 1; s < n; s *= 2) {
    const int64_t squares = n / (2 * s), apart = 2 * s * (row_bytes + column_bytes);
    // The first square lies s rows below the diagonal, or s columns beside it.
    char* const first = m.at(index) + s * (below ? row_bytes : column_bytes);
    const bool by_columns = squares > s;
    for (int64_t i = 0; i < (by_columns ? s : squares); ++i)
      HUSK_TRY(by_columns ? fill(first + i * column_bytes, 0, apart, s * words, squares)
                          : fill(first + i * apart, 0, column_bytes, s * words, s));
    const int64_t rest = n - squares * 2 * s - s;  // of a last square that is cut off
    if (rest > 0)
      HUSK_TRY(fill(first + squares * apart, 0, column_bytes, (below ? rest : s) * words,
                    below ? s : rest));
  }
  return HUSK_OK;
}

husk_status LinalgCall::set_ints(int32_t* to, int64_t first, int64_t count) const {
  for (int64_t i = 0; i < count; ++i)
    HUSK_TRY(fill(to + i, static_cast<uint32_t>(first + i), 4, 1, 1));
  return HUSK_OK;
}

// ---- The library --------------------------------------------------------------------------------

husk_status LinalgCall::check(cusolverStatus_t status, const char* call) const {
  return status == CUSOLVER_STATUS_SUCCESS ? husk_status{HUSK_OK}
                                           : cusolver_fail(error_, status, call, name_);
}

husk_status LinalgCall::check_host_work(cusolverStatus_t status, const char* call) const {
  if (host_bytes_ == 0) return check(status, call);
  husk_status of_group = HUSK_OK;
  const CUresult waited = synchronize(device_, {stream_, nullptr}, &of_group, error_);
  // A second attempt follows a first one that fails, so that the memory is free on a device that is
  // not lost.
  if (waited != CUDA_SUCCESS) device_.driver.cuStreamSynchronize(stream_);
  HUSK_TRY(of_group);
  HUSK_TRY(check(status, call));
  return driver_status(waited, "cuStreamSynchronize");
}

void LinalgCall::check_later(const int32_t* infos, int64_t count, const char* failure) {
  infos_ = infos;
  info_count_ = count;
  failure_ = failure;
}

template <class Look>
husk_status LinalgCall::read_ints(const int32_t* from, int64_t count, const Look& look) const {
  int32_t part[256];
  constexpr int64_t kPart = static_cast<int64_t>(sizeof part / sizeof part[0]);
  for (int64_t done = 0; done < count; done += kPart) {
    const int64_t length = count - done < kPart ? count - done : kPart;
    if (device_.group) HUSK_TRY(group_wait(device_, {stream_, nullptr}, false, error_));
    HUSK_TRY(driver_status(
        device_.driver.cuMemcpyDtoHAsync(part, as_address(from + done),
                                         static_cast<size_t>(length) * sizeof part[0], stream_),
        "cuMemcpyDtoHAsync"));
    HUSK_TRY(driver_status(device_.driver.cuStreamSynchronize(stream_), "cuStreamSynchronize"));
    HUSK_TRY(look(part, length, done));
  }
  return HUSK_OK;
}

husk_status LinalgCall::check_infos() const {
  return read_ints(infos_, info_count_, [&](const int32_t* part, int64_t count, int64_t first) {
    for (int64_t i = 0; i < count; ++i) {
      const long long matrix = first + i;
      if (part[i] != 0)
        return fail(error_, HUSK_INVALID_INPUT, "%s: %s (info %d of matrix %lld)", name_, failure_,
                    part[i], matrix);
    }
    return husk_status{HUSK_OK};
  });
}

husk_status LinalgCall::check_rows(uint32_t index, const int32_t* numbers, int64_t count,
                                   int64_t rows) const {
  return read_ints(numbers, count, [&](const int32_t* part, int64_t length, int64_t) {
    for (int64_t i = 0; i < length; ++i)
      if (part[i] < 1 || part[i] > rows)
        return wrong(index, HUSK_INVALID_INPUT, "has a number that is not of a row");
    return husk_status{HUSK_OK};
  });
}

husk_status LinalgCall::run(husk_status (*body)(LinalgCall& call)) {
  {
    const Lock lock(&linalg_.mutex);
    if (!prepares_)
      HUSK_TRY(
          check(library().cusolverDnSetStream(library().handle, stream_), "cusolverDnSetStream"));
    HUSK_TRY(body(*this));
  }
  if (prepares_) return HUSK_OK;
  HUSK_TRY(check_infos());
  return check_work(device_, stream_, error_, "%s", name_);
}

}  // namespace husk::cuda
