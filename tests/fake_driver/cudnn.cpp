// A libcudnn.so.9 for tests that runs on the fake driver. It computes convolutions on the host, in
// the order of the stream, and aborts if the real library's behaviour is undefined: descriptors
// that are not finished, memory with a smaller alignment than was promised, a workspace that is too
// small, operands outside of live memory. Calls are counted and fail like the driver's (fake_calls,
// fake_fail_call), with a status of cuDNN.
//
// The first heuristic proposes engines 0 to 2, the second one engine 3. Engine 0 is not
// deterministic and computes wrong values, so that a test finds out if it is used. Engine 1 rounds
// f32 to tf32 and does not take f64. Engine 2 needs a workspace of the size of the result in f32.
// Engine 3 needs none. A heuristic that is to fail with -1 succeeds and proposes nothing.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <vector>

#include "fake.h"
#include "numbers.h"
#include "ops/dnn.h"

using namespace husk::cuda;

namespace {

constexpr int kMaxRank = 5;
constexpr uint64_t kHandle = 0xD0D0;

[[noreturn]] void violation(const char* text) {
  fprintf(stderr, "fake libcudnn: %s\n", text);
  abort();
}

struct Tensor {
  int64_t rank, sizes[kMaxRank], strides[kMaxRank], align, uid;
  cudnnDataType_t type;
};

// A finished descriptor describes a part of a problem, and has the other members at 0.
struct Problem {
  Tensor image, filter, result;
  int64_t dims, stride[3], padding[3], dilation[3];
  cudnnDataType_t compute;
  bool backward;
};

struct Attribute {
  cudnnBackendAttributeType_t type;
  int64_t count;
  std::vector<char> bytes;
};

struct Object {
  cudnnBackendDescriptorType_t type;
  bool finished = false;
  std::map<int, Attribute> attributes;
  Problem problem = {};
  int engine = 0;
};

struct Handle {
  uint64_t kind;
  CUstream stream;
};

struct Work {
  Problem problem;
  void* tensors[3];
  void* workspace;
  uint64_t workspace_size;
  int engine;
};

cudnnStatus_t status_of(int32_t code) {
  if (code == CUDA_ERROR_OUT_OF_MEMORY) return CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
  return code && code < 1000 ? CUDNN_STATUS_EXECUTION_FAILED : static_cast<cudnnStatus_t>(code);
}
cudnnStatus_t enter(const char* name, bool in_context) {
  return status_of(fake_enter(name, in_context));
}

Object& as_object(void* descriptor) { return *static_cast<Object*>(descriptor); }
Handle& as_handle(cudnnHandle_t handle) {
  Handle& typed = *reinterpret_cast<Handle*>(handle);
  if (typed.kind != kHandle) violation("not a handle");
  return typed;
}

size_t element_bytes(cudnnBackendAttributeType_t type) {
  switch (type) {
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_DOUBLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR: return 8;
    default: return 4;
  }
}

// The values of an attribute, null if it was not set to `count` values; 0 takes any count.
const void* values(const Object& object, int name, int64_t count = 1) {
  const auto found = object.attributes.find(name);
  if (found == object.attributes.end()) return nullptr;
  return count == 0 || found->second.count == count ? found->second.bytes.data() : nullptr;
}
template <class T>
T value(const Object& object, int name) {
  const void* found = values(object, name);
  if (!found) violation("an attribute is missing");
  T result;
  memcpy(&result, found, sizeof result);
  return result;
}
template <class T>
void list(const Object& object, int name, int64_t count, T* out) {
  const void* found = values(object, name, count);
  if (!found) violation("a list is missing or has another length");
  memcpy(out, found, static_cast<size_t>(count) * sizeof *out);
}
const Object& inner(const Object& object, int name, cudnnBackendDescriptorType_t type) {
  const Object& found = as_object(value<void*>(object, name));
  if (found.type != type || !found.finished)
    violation("a descriptor of another kind, or unfinished");
  return found;
}

cudnnStatus_t finish_tensor(Object* object) {
  Tensor& tensor = object->problem.image;
  const auto found = object->attributes.find(CUDNN_ATTR_TENSOR_DIMENSIONS);
  if (found == object->attributes.end()) return CUDNN_STATUS_BAD_PARAM;
  tensor.rank = found->second.count;
  if (tensor.rank < 4 || tensor.rank > kMaxRank) return CUDNN_STATUS_NOT_SUPPORTED;
  list(*object, CUDNN_ATTR_TENSOR_DIMENSIONS, tensor.rank, tensor.sizes);
  list(*object, CUDNN_ATTR_TENSOR_STRIDES, tensor.rank, tensor.strides);
  tensor.align = value<int64_t>(*object, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT);
  tensor.uid = value<int64_t>(*object, CUDNN_ATTR_TENSOR_UNIQUE_ID);
  tensor.type = value<cudnnDataType_t>(*object, CUDNN_ATTR_TENSOR_DATA_TYPE);
  for (int64_t d = 0; d < tensor.rank; ++d)
    if (tensor.sizes[d] < 1 || tensor.strides[d] < 1) return CUDNN_STATUS_BAD_PARAM;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t finish_convolution(Object* object) {
  Problem& problem = object->problem;
  problem.dims = value<int64_t>(*object, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS);
  if (problem.dims < 2 || problem.dims > 3) return CUDNN_STATUS_NOT_SUPPORTED;
  if (value<cudnnConvolutionMode_t>(*object, CUDNN_ATTR_CONVOLUTION_CONV_MODE) !=
      CUDNN_CROSS_CORRELATION)
    return CUDNN_STATUS_NOT_SUPPORTED;
  problem.compute = value<cudnnDataType_t>(*object, CUDNN_ATTR_CONVOLUTION_COMP_TYPE);
  int64_t after[3];
  list(*object, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, problem.dims, problem.stride);
  list(*object, CUDNN_ATTR_CONVOLUTION_DILATIONS, problem.dims, problem.dilation);
  list(*object, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, problem.dims, problem.padding);
  list(*object, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, problem.dims, after);
  for (int64_t d = 0; d < problem.dims; ++d)
    if (after[d] != problem.padding[d]) return CUDNN_STATUS_NOT_SUPPORTED;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t finish_operation(Object* object, bool backward) {
  Problem& problem = object->problem;
  const auto tensor = [&](int name) {
    return inner(*object, name, CUDNN_BACKEND_TENSOR_DESCRIPTOR).problem.image;
  };
  problem = inner(*object,
                  backward ? CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC
                           : CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                  CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR)
                .problem;
  problem.backward = backward;
  problem.image = tensor(backward ? CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX
                                  : CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X);
  problem.filter = tensor(backward ? CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W
                                   : CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W);
  problem.result = tensor(backward ? CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY
                                   : CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y);
  const int alpha = backward ? CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA
                             : CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA;
  const int beta = backward ? CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA
                            : CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA;
  const bool is_double = problem.image.type == CUDNN_DATA_DOUBLE;
  if (is_double != (problem.compute == CUDNN_DATA_DOUBLE)) return CUDNN_STATUS_NOT_SUPPORTED;
  if (is_double ? value<double>(*object, alpha) != 1 || value<double>(*object, beta) != 0
                : value<float>(*object, alpha) != 1 || value<float>(*object, beta) != 0)
    return CUDNN_STATUS_NOT_SUPPORTED;
  const Tensor &image = problem.image, &filter = problem.filter, &result = problem.result;
  const int64_t rank = problem.dims + 2;
  bool fits = image.rank == rank && filter.rank == rank && result.rank == rank &&
              image.sizes[0] == result.sizes[0] && result.sizes[1] == filter.sizes[0] &&
              image.sizes[1] % filter.sizes[1] == 0 &&
              filter.sizes[0] % (image.sizes[1] / filter.sizes[1]) == 0;
  for (int64_t d = 0; fits && d < problem.dims; ++d)
    fits = result.sizes[d + 2] == (image.sizes[d + 2] + 2 * problem.padding[d] -
                                   problem.dilation[d] * (filter.sizes[d + 2] - 1) - 1) /
                                          problem.stride[d] +
                                      1;
  return fits ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM;
}

int64_t workspace_of(const Problem& problem, int engine) {
  if (engine != 2) return 0;
  const Tensor& written = problem.backward ? problem.image : problem.result;
  int64_t elements = 1;
  for (int64_t d = 0; d < written.rank; ++d) elements *= written.sizes[d];
  return 4 * elements;
}

cudnnStatus_t finish(Object* object) {
  switch (object->type) {
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR: return finish_tensor(object);
    case CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR: return finish_convolution(object);
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
      return finish_operation(object, false);
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
      return finish_operation(object, true);
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR: {
      as_handle(value<cudnnHandle_t>(*object, CUDNN_ATTR_OPERATIONGRAPH_HANDLE));
      const Object& operation = as_object(value<void*>(*object, CUDNN_ATTR_OPERATIONGRAPH_OPS));
      if (!operation.finished) violation("an operation that is not finished");
      object->problem = operation.problem;
      return CUDNN_STATUS_SUCCESS;
    }
    case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR:
      object->problem = inner(*object, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH,
                              CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR)
                            .problem;
      return CUDNN_STATUS_SUCCESS;
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR: {
      as_handle(value<cudnnHandle_t>(*object, CUDNN_ATTR_EXECUTION_PLAN_HANDLE));
      const Object& config = inner(*object, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
                                   CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
      object->problem = config.problem;
      object->engine = config.engine;
      const bool is_double = config.problem.image.type == CUDNN_DATA_DOUBLE;
      return config.engine == 1 && is_double ? CUDNN_STATUS_NOT_SUPPORTED : CUDNN_STATUS_SUCCESS;
    }
    case CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR: return CUDNN_STATUS_SUCCESS;
    default: return CUDNN_STATUS_BAD_PARAM;
  }
}

fake::Number number(cudnnDataType_t type) {
  switch (type) {
    case CUDNN_DATA_DOUBLE: return fake::Number::f64;
    case CUDNN_DATA_FLOAT: return fake::Number::f32;
    case CUDNN_DATA_HALF: return fake::Number::f16;
    case CUDNN_DATA_BFLOAT16: return fake::Number::bf16;
  }
  violation("an unknown type");
}

// The place of an element; `position` has batch, channel and up to three positions in space.
int64_t offset(const Tensor& tensor, const int64_t* position) {
  int64_t sum = 0;
  for (int64_t d = 0; d < tensor.rank; ++d) sum += position[d] * tensor.strides[d];
  return sum;
}

// Calls `visit` with each position of a tensor.
template <class Visit>
void each(const Tensor& tensor, const Visit& visit) {
  int64_t position[kMaxRank] = {};
  for (;;) {
    visit(position);
    int64_t d = tensor.rank;
    while (d-- > 0) {
      if (++position[d] < tensor.sizes[d]) break;
      position[d] = 0;
    }
    if (d < 0) return;
  }
}

// Calls `visit` with the positions of an element of the image, of the filter and of the result, for
// each product of the convolution.
template <class Visit>
void each_product(const Problem& p, const Visit& visit) {
  const int64_t groups = p.image.sizes[1] / p.filter.sizes[1];
  const int64_t of_group = p.filter.sizes[0] / groups;
  each(p.result, [&](const int64_t* result) {
    Tensor taps = p.filter;
    taps.sizes[0] = 1;
    each(taps, [&](const int64_t* tap) {
      int64_t filter[kMaxRank], image[kMaxRank];
      memcpy(filter, tap, sizeof filter);
      filter[0] = result[1];
      image[0] = result[0];
      image[1] = result[1] / of_group * p.filter.sizes[1] + tap[1];
      for (int64_t d = 0; d < p.dims; ++d) {
        image[d + 2] = result[d + 2] * p.stride[d] - p.padding[d] + tap[d + 2] * p.dilation[d];
        if (image[d + 2] < 0 || image[d + 2] >= p.image.sizes[d + 2]) return;
      }
      visit(image, filter, result);
    });
  });
}

// The offset of the last element.
int64_t last_of(const Tensor& tensor) {
  int64_t last = 0;
  for (int64_t d = 0; d < tensor.rank; ++d) last += (tensor.sizes[d] - 1) * tensor.strides[d];
  return last;
}

void convolve(const void* data) {
  Work w;
  memcpy(&w, data, sizeof w);
  const Problem& p = w.problem;
  if (w.workspace_size) memset(w.workspace, 0xEE, w.workspace_size);
  const fake::Number type = number(p.image.type);
  const auto read = [&](const void* from, int64_t index) {
    const double exact = fake::load(type, from, index);
    if (w.engine != 1 || type != fake::Number::f32) return exact;
    float single = static_cast<float>(exact);
    uint32_t word;
    memcpy(&word, &single, 4);
    word &= 0xFFFFE000;  // the precision of tf32
    memcpy(&single, &word, 4);
    return static_cast<double>(single);
  };
  const Tensor& written = p.backward ? p.image : p.result;
  void* out = w.tensors[p.backward ? 0 : 2];
  std::vector<double> sums(static_cast<size_t>(last_of(written) + 1), w.engine == 0 ? 1 : 0);
  const auto sum_at = [&](int64_t at) -> double& { return sums[static_cast<size_t>(at)]; };
  each_product(p, [&](const int64_t* image, const int64_t* filter, const int64_t* result) {
    const double tap = read(w.tensors[1], offset(p.filter, filter));
    if (p.backward)
      sum_at(offset(p.image, image)) += tap * read(w.tensors[2], offset(p.result, result));
    else
      sum_at(offset(p.result, result)) += tap * read(w.tensors[0], offset(p.image, image));
  });
  each(written, [&](const int64_t* position) {
    const int64_t at = offset(written, position);
    fake::store(type, out, at, sum_at(at));
  });
}

fake_range range(const Tensor& tensor, const void* at) {
  return {at, static_cast<uint64_t>(last_of(tensor) + 1) * fake::width(number(tensor.type))};
}

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  if (const cudnnStatus_t fault = enter("cudnnCreate", true)) return fault;
  fake_hold(1);
  *handle = reinterpret_cast<cudnnHandle_t>(new Handle{kHandle, nullptr});
  return CUDNN_STATUS_SUCCESS;
}

EXPORT cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  const cudnnStatus_t fault = enter("cudnnDestroy", true);
  fake_hold(-1);
  delete &as_handle(handle);
  return fault;
}

EXPORT cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, CUstream stream) {
  if (const cudnnStatus_t fault = enter("cudnnSetStream", true)) return fault;
  as_handle(handle).stream = stream;
  return CUDNN_STATUS_SUCCESS;
}

EXPORT const char* cudnnGetErrorString(cudnnStatus_t status) {
  switch (status) {
    case CUDNN_STATUS_SUCCESS: return "CUDNN_STATUS_SUCCESS";
    case CUDNN_STATUS_NOT_INITIALIZED: return "CUDNN_STATUS_NOT_INITIALIZED";
    case CUDNN_STATUS_BAD_PARAM: return "CUDNN_STATUS_BAD_PARAM";
    case CUDNN_STATUS_NOT_SUPPORTED: return "CUDNN_STATUS_NOT_SUPPORTED";
    case CUDNN_STATUS_INTERNAL_ERROR: return "CUDNN_STATUS_INTERNAL_ERROR";
    case CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED:
      return "CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED";
    case CUDNN_STATUS_EXECUTION_FAILED: return "CUDNN_STATUS_EXECUTION_FAILED";
    default: return "CUDNN_STATUS_UNKNOWN";
  }
}

EXPORT cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                                  cudnnBackendDescriptor_t* descriptor) {
  if (const cudnnStatus_t fault = enter("cudnnBackendCreateDescriptor", false)) return fault;
  fake_hold(1);
  Object* object = new Object;
  object->type = type;
  *descriptor = object;
  return CUDNN_STATUS_SUCCESS;
}

EXPORT cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  const cudnnStatus_t fault = enter("cudnnBackendDestroyDescriptor", false);
  fake_hold(-1);
  delete &as_object(descriptor);
  return fault;
}

EXPORT cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
  if (const cudnnStatus_t fault = enter("cudnnBackendFinalize", false)) return fault;
  Object& object = as_object(descriptor);
  if (object.finished) violation("a descriptor is finished twice");
  const cudnnStatus_t status = finish(&object);
  object.finished = status == CUDNN_STATUS_SUCCESS;
  return status;
}

EXPORT cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor,
                                              cudnnBackendAttributeName_t name,
                                              cudnnBackendAttributeType_t type, int64_t count,
                                              const void* elements) {
  if (const cudnnStatus_t fault = enter("cudnnBackendSetAttribute", false)) return fault;
  Object& object = as_object(descriptor);
  if (object.finished) violation("an attribute of a finished descriptor is set");
  const char* bytes = static_cast<const char*>(elements);
  object.attributes[name] = {
      type, count, {bytes, bytes + static_cast<size_t>(count) * element_bytes(type)}};
  return CUDNN_STATUS_SUCCESS;
}

EXPORT cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t descriptor,
                                              cudnnBackendAttributeName_t name,
                                              cudnnBackendAttributeType_t, int64_t wanted,
                                              int64_t* count, void* elements) {
  *count = 0;
  const int32_t code = fake_enter("cudnnBackendGetAttribute", false);
  if (code == -1) return CUDNN_STATUS_SUCCESS;
  if (code) return status_of(code);
  Object& object = as_object(descriptor);
  if (!object.finished) violation("an attribute of an unfinished descriptor is read");
  switch (name) {
    case CUDNN_ATTR_ENGINEHEUR_RESULTS: {
      const auto mode = value<cudnnBackendHeurMode_t>(object, CUDNN_ATTR_ENGINEHEUR_MODE);
      const int first = mode == CUDNN_HEUR_MODE_A ? 0 : 3, last = mode == CUDNN_HEUR_MODE_A ? 2 : 3;
      void** results = static_cast<void**>(elements);
      for (int engine = first; engine <= last && *count < wanted; ++engine) {
        Object& config = as_object(results[*count]);
        if (config.type != CUDNN_BACKEND_ENGINECFG_DESCRIPTOR) violation("not a configuration");
        config.problem = object.problem;
        config.engine = engine;
        config.finished = true;
        ++*count;
      }
      return CUDNN_STATUS_SUCCESS;
    }
    case CUDNN_ATTR_ENGINECFG_ENGINE: {
      Object& engine = as_object(*static_cast<void**>(elements));
      if (engine.type != CUDNN_BACKEND_ENGINE_DESCRIPTOR) violation("not an engine");
      engine.engine = object.engine;
      engine.finished = true;
      *count = 1;
      return CUDNN_STATUS_SUCCESS;
    }
    case CUDNN_ATTR_ENGINE_NUMERICAL_NOTE: {
      auto* notes = static_cast<cudnnBackendNumericalNote_t*>(elements);
      if (object.engine < 2)
        notes[(*count)++] = object.engine ? CUDNN_NUMERICAL_NOTE_TENSOR_CORE
                                          : CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC;
      return CUDNN_STATUS_SUCCESS;
    }
    case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE: {
      const int64_t size = workspace_of(object.problem, object.engine);
      memcpy(elements, &size, sizeof size);
      *count = 1;
      return CUDNN_STATUS_SUCCESS;
    }
    default: return CUDNN_STATUS_BAD_PARAM;
  }
}

EXPORT cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                         cudnnBackendDescriptor_t variant_pack) {
  const Object &plan_object = as_object(plan), &pack = as_object(variant_pack);
  if (plan_object.type != CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR || !plan_object.finished)
    violation("not a finished plan");
  if (pack.type != CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR || !pack.finished)
    violation("not finished addresses");
  Work w = {};
  w.problem = plan_object.problem;
  w.engine = plan_object.engine;
  w.workspace = value<void*>(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
  w.workspace_size = static_cast<uint64_t>(workspace_of(plan_object.problem, plan_object.engine));
  int64_t uids[3];
  void* pointers[3];
  list(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, 3, uids);
  list(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, 3, pointers);
  const Tensor* tensors[] = {&w.problem.image, &w.problem.filter, &w.problem.result};
  fake_range ranges[4];
  uint32_t count = 0;
  for (int i = 0; i < 3; ++i) {
    for (int j = 0; j < 3; ++j)
      if (uids[j] == tensors[i]->uid) w.tensors[i] = pointers[j];
    if (!w.tensors[i]) violation("a tensor has no address");
    if (reinterpret_cast<uintptr_t>(w.tensors[i]) % static_cast<uintptr_t>(tensors[i]->align))
      violation("an operand has a smaller alignment than was promised");
    ranges[count++] = range(*tensors[i], w.tensors[i]);
  }
  if (w.workspace_size) ranges[count++] = {w.workspace, w.workspace_size};
  return status_of(fake_queue("cudnnBackendExecute", as_handle(handle).stream, convolve, &w,
                              sizeof w, ranges, count));
}
