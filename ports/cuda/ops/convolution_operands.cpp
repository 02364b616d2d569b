#include "ops/convolution_operands.h"

#include <cstdio>
#include <cstring>
#include <initializer_list>

#include <husk/detail/dtype.h>

#include "error.h"
#include "ops/arguments.h"

namespace husk::cuda {

namespace {

constexpr ArgumentPlaces kAt(kConvolutionContract);
constexpr uint32_t kX = kAt["x"], kW = kAt["w"], kStride = kAt["stride"], kPadding = kAt["padding"],
                   kDilation = kAt["dilation"], kTransposed = kAt["transposed"],
                   kGroups = kAt["groups"], kFast = kAt["fast"], kOut = kAt["out"],
                   kWorkspace = kAt["workspace"], kCount = kAt.count();
constexpr uint16_t kMaxAlign = 16;  // the most that an engine of cuDNN asks for

husk_status unsupported(husk_error* error, const husk_op_arg* args, const char* reason) {
  return fail(error, HUSK_UNSUPPORTED, "%s: %s: export with conv='triton'",
              ConvolutionText(args).text, reason);
}

husk_status check_kinds(const husk_op_arg* args, uint32_t count, husk_error* error) {
  bool valid = count == kCount;
  const int32_t dtype = valid ? args[kX].dtype : 0, rank = valid ? args[kX].rank : 0;
  valid = valid &&
          (dtype == HUSK_F16 || dtype == HUSK_BF16 || dtype == HUSK_F32 || dtype == HUSK_F64) &&
          (rank == 4 || rank == 5) && is_tensor(args[kX], dtype, rank) &&
          is_tensor(args[kW], dtype, rank) && is_tensor(args[kOut], dtype, rank) &&
          is_tensor(args[kWorkspace], HUSK_U8, 1) &&
          (args[kWorkspace].sizes[0] <= 1 || args[kWorkspace].strides[0] == 1);
  for (const uint32_t i : {kStride, kPadding, kDilation})
    valid = valid && args[i].kind == HUSK_ARG_INTS && args[i].count == rank - 2;
  for (const uint32_t i : {kTransposed, kGroups, kFast})
    valid = valid && args[i].kind == HUSK_ARG_INT;
  if (valid) return HUSK_OK;
  return fail(
      error, HUSK_INVALID_ARGUMENT,
      "husk::cudnn_convolution takes two tensors of f16, bf16, f32 or f64 and rank 4 or 5, three "
      "lists of ints, three ints, the result and a dense workspace of u8: export the "
      "program again");
}

// The arguments that are the image, the filter and the result.
void arguments_of(const husk_op_arg* args, const husk_op_arg* (&tensors)[kTensors]) {
  const bool transposed = args[kTransposed].i != 0;
  tensors[kImage] = &args[transposed ? kOut : kX];
  tensors[kFilter] = &args[kW];
  tensors[kResult] = &args[transposed ? kX : kOut];
}

// The result's length of a dimension in which the filter moves, -1 if there is none. Numbers are
// far below the limit of int64: see check_sizes.
int64_t positions(int64_t image, int64_t taps, int64_t stride, int64_t padding, int64_t dilation) {
  const int64_t last = image + 2 * padding - dilation * (taps - 1) - 1;
  return last < 0 ? -1 : last / stride + 1;
}

husk_status check_sizes(const husk_op_arg* args, husk_error* error) {
  const husk_op_arg* tensors[kTensors];
  arguments_of(args, tensors);
  const int32_t rank = args[kX].rank;
  for (const husk_op_arg* tensor : tensors)
    for (int32_t d = 0; d < rank; ++d)
      if (tensor->sizes[d] > INT32_MAX || tensor->strides[d] > INT32_MAX || tensor->strides[d] < 0)
        return unsupported(error, args, "a size or a stride is negative or above 2147483647");
  for (int32_t d = 0; d < rank - 2; ++d)
    if (args[kStride].sizes[d] < 1 || args[kDilation].sizes[d] < 1 || args[kPadding].sizes[d] < 0 ||
        args[kStride].sizes[d] > INT32_MAX || args[kDilation].sizes[d] > INT32_MAX ||
        args[kPadding].sizes[d] > INT32_MAX)
      return unsupported(error, args, "a stride, a dilation or a padding is out of range");
  const int64_t *image = tensors[kImage]->sizes, *filter = tensors[kFilter]->sizes,
                *result = tensors[kResult]->sizes, groups = args[kGroups].i;
  bool match = groups >= 1 && groups <= INT32_MAX && image[0] == result[0] &&
               image[1] == filter[1] * groups && result[1] == filter[0] && filter[0] % groups == 0;
  for (int32_t d = 0; match && d < rank - 2; ++d)
    match = result[d + 2] == positions(image[d + 2], filter[d + 2], args[kStride].sizes[d],
                                       args[kPadding].sizes[d], args[kDilation].sizes[d]);
  if (match) return HUSK_OK;
  return fail(error, HUSK_INVALID_INPUT,
              "%s: the sizes of the image, the filter and the result do not match",
              ConvolutionText(args).text);
}

// Writes the strides of a dense tensor whose channels come last, or which lies in the order of its
// dimensions.
void write_dense(const int64_t* sizes, int32_t rank, bool channels_last, int64_t* strides) {
  int64_t dense = 1;
  if (channels_last) {
    strides[1] = 1;
    dense = sizes[1];
  }
  for (int32_t d = rank; d-- > 0;) {
    if (channels_last && d == 1) continue;
    strides[d] = dense;
    dense *= sizes[d];
  }
}

// Whether the strides put each element at the same place. The stride of a dimension of size 1 puts
// nothing anywhere.
bool same_places(const int64_t* sizes, const int64_t* one, const int64_t* other, int32_t rank) {
  for (int32_t d = 0; d < rank; ++d)
    if (sizes[d] != 1 && one[d] != other[d]) return false;
  return true;
}

// cuDNN decides by the strides whether channels come last, those of dimensions of size 1 included,
// and has its fast engines for tensors that agree. So all get the strides of one dense layout if
// they have it.
void read_layouts(ConvolutionKey* key) {
  for (const bool channels_last : {true, false}) {
    int64_t dense[kTensors][ConvolutionKey::kMaxRank] = {};
    bool all = true;
    for (int i = 0; i < kTensors; ++i) {
      write_dense(key->sizes[i], key->rank, channels_last, dense[i]);
      all = all && same_places(key->sizes[i], dense[i], key->strides[i], key->rank);
    }
    if (!all) continue;
    memcpy(key->strides, dense, sizeof dense);
    return;
  }
}

// A tensor may be larger than what its elements reach, but no two of its elements may share a
// place: engines write vectors.
husk_status check_overlap(const husk_op_arg* args, const ConvolutionKey& key, husk_error* error) {
  for (int i = 0; i < kTensors; ++i)
    for (int32_t d = 0; d < key.rank; ++d)
      if (key.sizes[i][d] > 1 && key.strides[i][d] == 0)
        return unsupported(error, args, "a tensor whose elements share memory");
  return HUSK_OK;
}

// A result without elements is left alone. If there is nothing to multiply the result is filled
// with zeros, which must lie without gaps.
husk_status read_empty(const husk_op_arg* args, ConvolutionOperands* out, husk_error* error) {
  const husk_op_arg& result = args[kOut];
  int64_t elements = 1, last = 0;
  for (int32_t d = 0; d < result.rank; ++d) {
    elements *= result.sizes[d];
    last += (result.sizes[d] - 1) * result.strides[d];
  }
  if (elements == 0) return HUSK_OK;
  if (last + 1 != elements)
    return unsupported(error, args, "a convolution over nothing whose result has gaps");
  out->zeros = static_cast<uint64_t>(elements) * detail::element_bytes(result.dtype);
  return HUSK_OK;
}

}  // namespace

husk_status read_convolution(const husk_op_arg* args, uint32_t count, ConvolutionOperands* out,
                             husk_error* error) {
  memset(out, 0, sizeof *out);
  HUSK_TRY(check_kinds(args, count, error));
  HUSK_TRY(check_sizes(args, error));
  const uint32_t askew = misaligned_tensor(args, count);
  if (askew < count) return misaligned(ConvolutionText(args).text, args, askew, error);
  const husk_op_arg* tensors[kTensors];
  arguments_of(args, tensors);
  ConvolutionKey& key = out->key;
  key.rank = args[kX].rank;
  key.dtype = args[kX].dtype;
  key.transposed = args[kTransposed].i != 0;
  key.fast = key.dtype == HUSK_F32 && args[kFast].i != 0;
  for (int i = 0; i < kTensors; ++i) {
    out->tensors[i] = tensors[i]->data;
    key.align[i] = align_of(tensors[i]->data, kMaxAlign);
    for (int32_t d = 0; d < key.rank; ++d) {
      key.sizes[i][d] = tensors[i]->sizes[d];
      key.strides[i][d] = tensors[i]->strides[d];
      out->is_empty = out->is_empty || key.sizes[i][d] == 0;
    }
  }
  if (out->is_empty) return read_empty(args, out, error);
  for (int32_t d = 0; d < key.rank - 2; ++d) {
    key.stride[d] = args[kStride].sizes[d];
    key.padding[d] = args[kPadding].sizes[d];
    key.dilation[d] = args[kDilation].sizes[d];
  }
  HUSK_TRY(check_overlap(args, key, error));
  read_layouts(&key);
  key.workspace = aligned_part(args[kWorkspace], &out->workspace);
  return HUSK_OK;
}

ConvolutionText::ConvolutionText(const husk_op_arg* args) {
  int used = snprintf(text, sizeof text, "husk::cudnn_convolution%s %s",
                      args[kTransposed].i ? ", transposed," : "",
                      detail::element_name(args[kX].dtype));
  const auto add = [&](const char* format, auto value) {
    const size_t at = static_cast<size_t>(used);
    if (at < sizeof text) used += snprintf(text + at, sizeof text - at, format, value);
  };
  for (const uint32_t i : {kX, kW}) {
    for (int32_t d = 0; d < args[i].rank; ++d)
      add(d ? ", %lld" : " [%lld", static_cast<long long>(args[i].sizes[d]));
    add("%s", "]");
  }
}

}  // namespace husk::cuda
