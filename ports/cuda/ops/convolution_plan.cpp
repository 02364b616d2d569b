#include "ops/convolution_plan.h"

#include <cstring>
#include <initializer_list>
#include <iterator>

#include "device.h"

namespace husk::cuda {

namespace {

using Status = cudnnStatus_t;
constexpr int kMostConfigs = 16;  // that are tried of what one heuristic proposes
constexpr int64_t kUids[kTensors] = {1, 2, 3};

// A descriptor of cuDNN, which lives as long as the object. What follows a failure does nothing.
class BackendDescriptor {
 public:
  BackendDescriptor() = default;
  BackendDescriptor(const BackendDescriptor&) = delete;
  BackendDescriptor& operator=(const BackendDescriptor&) = delete;
  ~BackendDescriptor() {
    if (value) cudnn_->cudnnBackendDestroyDescriptor(value);
  }

  Status create(const Cudnn& cudnn, cudnnBackendDescriptorType_t type) {
    cudnn_ = &cudnn;
    return status_ = cudnn.cudnnBackendCreateDescriptor(type, &value);
  }
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
           const void* values) {
    if (status_ == CUDNN_STATUS_SUCCESS)
      status_ = cudnn_->cudnnBackendSetAttribute(value, name, type, count, values);
  }
  void set(cudnnBackendAttributeName_t name, const BackendDescriptor& descriptor) {
    set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &descriptor.value);
  }
  Status finalize() {
    if (status_ == CUDNN_STATUS_SUCCESS) status_ = cudnn_->cudnnBackendFinalize(value);
    return status_;
  }
  cudnnBackendDescriptor_t release() {
    cudnnBackendDescriptor_t released = value;
    value = nullptr;
    return released;
  }

  cudnnBackendDescriptor_t value = nullptr;

 private:
  const Cudnn* cudnn_ = nullptr;
  Status status_ = CUDNN_STATUS_NOT_INITIALIZED;
};

cudnnDataType_t type_of(int32_t dtype) {
  switch (dtype) {
    case HUSK_F16: return CUDNN_DATA_HALF;
    case HUSK_BF16: return CUDNN_DATA_BFLOAT16;
    case HUSK_F32: return CUDNN_DATA_FLOAT;
    default: return CUDNN_DATA_DOUBLE;
  }
}

Status write_tensor(const Cudnn& cudnn, const ConvolutionKey& key, int i, BackendDescriptor* out) {
  const cudnnDataType_t type = type_of(key.dtype);
  const int64_t align = key.align[i];
  if (const Status status = out->create(cudnn, CUDNN_BACKEND_TENSOR_DESCRIPTOR)) return status;
  out->set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
  out->set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, key.rank, key.sizes[i]);
  out->set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, key.rank, key.strides[i]);
  out->set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &align);
  out->set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &kUids[i]);
  return out->finalize();
}

Status write_convolution(const Cudnn& cudnn, const ConvolutionKey& key, BackendDescriptor* out) {
  const cudnnDataType_t type = key.dtype == HUSK_F64 ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT;
  const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
  const int64_t dims = key.rank - 2;
  if (const Status status = out->create(cudnn, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR)) return status;
  out->set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
  out->set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
  out->set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &dims);
  out->set(CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, dims, key.dilation);
  out->set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, dims, key.stride);
  out->set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, dims, key.padding);
  out->set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, dims, key.padding);
  return out->finalize();
}

// The graph of the one operation. What it was made of must live until a plan is made.
struct OperationGraph {
  BackendDescriptor tensors[kTensors], convolution, operation, graph;

  Status write(const Cudnn& cudnn, const ConvolutionKey& key) {
    for (int i = 0; i < kTensors; ++i)
      if (const Status status = write_tensor(cudnn, key, i, &tensors[i])) return status;
    if (const Status status = write_convolution(cudnn, key, &convolution)) return status;
    if (const Status status = write_operation(cudnn, key)) return status;
    if (const Status status = graph.create(cudnn, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR))
      return status;
    graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &cudnn.handle);
    graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, operation);
    return graph.finalize();
  }

 private:
  Status write_operation(const Cudnn& cudnn, const ConvolutionKey& key) {
    const bool is_double = key.dtype == HUSK_F64, backward = key.transposed;
    const cudnnBackendAttributeType_t scalar = is_double ? CUDNN_TYPE_DOUBLE : CUDNN_TYPE_FLOAT;
    const double wide[] = {1, 0};
    const float single[] = {1, 0};
    const auto factor = [&](int i) -> const void* {
      return is_double ? static_cast<const void*>(&wide[i]) : &single[i];
    };
    if (const Status status = operation.create(
            cudnn, backward ? CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR
                            : CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR))
      return status;
    operation.set(backward ? CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC
                           : CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                  convolution);
    operation.set(backward ? CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX
                           : CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                  tensors[kImage]);
    operation.set(backward ? CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W
                           : CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                  tensors[kFilter]);
    operation.set(backward ? CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY
                           : CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                  tensors[kResult]);
    operation.set(backward ? CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA
                           : CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                  scalar, 1, factor(0));
    operation.set(backward ? CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA
                           : CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
                  scalar, 1, factor(1));
    return operation.finalize();
  }
};

// Whether the results of a configuration are those that the program asks for: the same at each run,
// and products of f32 in f32 unless tf32 is allowed.
bool is_exact(const Cudnn& cudnn, const ConvolutionKey& key, const BackendDescriptor& config) {
  BackendDescriptor engine;
  if (engine.create(cudnn, CUDNN_BACKEND_ENGINE_DESCRIPTOR)) return false;
  int64_t count = 0;
  if (cudnn.cudnnBackendGetAttribute(config.value, CUDNN_ATTR_ENGINECFG_ENGINE,
                                     CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &engine.value))
    return false;
  cudnnBackendNumericalNote_t notes[32];
  if (cudnn.cudnnBackendGetAttribute(engine.value, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                     CUDNN_TYPE_NUMERICAL_NOTE, std::size(notes), &count, notes))
    return false;
  const bool is_single = key.dtype == HUSK_F32;
  for (int64_t i = 0; i < count && i < static_cast<int64_t>(std::size(notes)); ++i) {
    if (notes[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) return false;
    if (is_single && notes[i] == CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS) return false;
    if (is_single && !key.fast && notes[i] == CUDNN_NUMERICAL_NOTE_TENSOR_CORE) return false;
  }
  return true;
}

// Makes a plan of a configuration if it fits. Returns whether it did.
bool make_plan(const Cudnn& cudnn, const ConvolutionKey& key, BackendDescriptor* config,
               ConvolutionPlan* out) {
  if (!is_exact(cudnn, key, *config)) return false;
  BackendDescriptor plan;
  if (plan.create(cudnn, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR)) return false;
  plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &cudnn.handle);
  plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, *config);
  if (plan.finalize()) return false;
  int64_t workspace = 0, count = 0;
  if (cudnn.cudnnBackendGetAttribute(plan.value, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                     CUDNN_TYPE_INT64, 1, &count, &workspace) ||
      workspace < 0 || static_cast<uint64_t>(workspace) > key.workspace)
    return false;
  out->workspace = static_cast<uint64_t>(workspace);
  out->plan = plan.release();
  out->config = config->release();
  return true;
}

// Makes a plan of the first configuration that fits, of those that a heuristic proposes. `out` is
// left alone if there is none.
Status try_heuristic(const Cudnn& cudnn, const ConvolutionKey& key, const OperationGraph& operation,
                     cudnnBackendHeurMode_t mode, ConvolutionPlan* out) {
  BackendDescriptor heuristic, configs[kMostConfigs];
  if (const Status status = heuristic.create(cudnn, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR))
    return status;
  heuristic.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, operation.graph);
  heuristic.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
  if (const Status status = heuristic.finalize()) return status;
  cudnnBackendDescriptor_t results[kMostConfigs];
  for (int i = 0; i < kMostConfigs; ++i) {
    if (const Status status = configs[i].create(cudnn, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR))
      return status;
    results[i] = configs[i].value;
  }
  int64_t count = 0;
  if (const Status status = cudnn.cudnnBackendGetAttribute(
          heuristic.value, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
          kMostConfigs, &count, results))
    return status;
  for (int i = 0; i < count && i < kMostConfigs; ++i)
    if (make_plan(cudnn, key, &configs[i], out)) break;
  return CUDNN_STATUS_SUCCESS;
}

void free_plan(const Cudnn& cudnn, const ConvolutionPlan& plan) {
  if (plan.plan) cudnn.cudnnBackendDestroyDescriptor(plan.plan);
  if (plan.config) cudnn.cudnnBackendDestroyDescriptor(plan.config);
}

}  // namespace

void ConvolutionPlanCache::destroy(const Cudnn& cudnn) {
  plans_.each([&](const ConvolutionPlan& plan) { free_plan(cudnn, plan); });
  pthread_mutex_destroy(&mutex_);
}

husk_status ConvolutionPlanCache::get(const Cudnn& cudnn, const ConvolutionKey& key,
                                      const husk_op_arg* args, const ConvolutionPlan** out,
                                      husk_error* error) {
  const uint64_t hash = hash_of(key);
  *out = plans_.find(key, hash);
  if (*out) return HUSK_OK;
  ConvolutionPlan plan = {key, 0, 0, nullptr, nullptr};
  OperationGraph operation;
  if (const Status status = operation.write(cudnn, key))
    return cudnn_fail(cudnn, error, status, "a descriptor", ConvolutionText(args).text);
  // The second heuristic proposes engines that are slow and take everything.
  for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    if (plan.plan) break;
    const Status status = try_heuristic(cudnn, key, operation, mode, &plan);
    if (status != CUDNN_STATUS_SUCCESS && mode == CUDNN_HEUR_MODE_FALLBACK)
      return cudnn_fail(cudnn, error, status, "a choice of an engine", ConvolutionText(args).text);
  }
  if (!plan.plan)
    return fail(error, HUSK_UNSUPPORTED,
                "%s: cuDNN has no engine for it that fits into a workspace of %llu bytes: export "
                "with conv='triton'",
                ConvolutionText(args).text, static_cast<unsigned long long>(key.workspace));
  ConvolutionPlan* place = plans_.place(hash);
  free_plan(cudnn, *place);
  *place = plan;
  plans_.keep(place, hash);
  *out = place;
  return HUSK_OK;
}

husk_status ConvolutionPlanCache::prepare(const Cudnn& cudnn, const ConvolutionOperands& operands,
                                          const husk_op_arg* args, husk_error* error) {
  const ConvolutionPlan* plan;
  const Lock lock(&mutex_);
  return get(cudnn, operands.key, args, &plan, error);
}

husk_status ConvolutionPlanCache::execute(const Cudnn& cudnn, const ConvolutionOperands& operands,
                                          CUstream stream, const husk_op_arg* args,
                                          husk_error* error) {
  const ConvolutionPlan* plan;
  const Lock lock(&mutex_);
  HUSK_TRY(get(cudnn, operands.key, args, &plan, error));
  if (const Status status = cudnn.cudnnSetStream(cudnn.handle, stream))
    return cudnn_fail(cudnn, error, status, "cudnnSetStream", ConvolutionText(args).text);
  BackendDescriptor pack;
  Status status = pack.create(cudnn, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, kTensors, kUids);
  pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, kTensors, operands.tensors);
  pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &operands.workspace);
  if (status == CUDNN_STATUS_SUCCESS) status = pack.finalize();
  if (status != CUDNN_STATUS_SUCCESS)
    return cudnn_fail(cudnn, error, status, "the addresses", ConvolutionText(args).text);
  status = cudnn.cudnnBackendExecute(cudnn.handle, plan->plan, pack.value);
  if (status == CUDNN_STATUS_SUCCESS) return HUSK_OK;
  return cudnn_fail(cudnn, error, status, "cudnnBackendExecute", ConvolutionText(args).text);
}

}  // namespace husk::cuda
