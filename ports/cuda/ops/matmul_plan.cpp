#include "ops/matmul_plan.h"

#include <cstring>

#include "device.h"

namespace husk::cuda {

namespace {

cudaDataType_t type_of(int32_t dtype) {
  switch (dtype) {
    case HUSK_F16: return CUDA_R_16F;
    case HUSK_BF16: return CUDA_R_16BF;
    case HUSK_F32: return CUDA_R_32F;
    default: return CUDA_R_64F;
  }
}

cublasStatus_t query_heuristic(const Cublas& cublas, const MatmulKey& key,
                               LtDescriptors* descriptors, MatmulPlan* plan) {
  Descriptor preference;
  cublasStatus_t status = cublas.cublasLtMatmulPreferenceInit_internal(&preference,
                                                                       sizeof preference);
  const auto set = [&](int attribute, const auto& value) {
    if (status == CUBLAS_STATUS_SUCCESS)
      status = cublas.cublasLtMatmulPreferenceSetAttribute(
          &preference, static_cast<cublasLtMatmulPreferenceAttributes_t>(attribute), &value,
          sizeof value);
  };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, key.workspace);
  for (int i = 0; i < 4; ++i)
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES + i, static_cast<uint32_t>(key.align[i]));
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  cublasLtMatmulHeuristicResult_t result = {};
  int count = 0;
  status = cublas.cublasLtMatmulAlgoGetHeuristic(
      cublas.handle, &descriptors->desc, &descriptors->layouts[0], &descriptors->layouts[1],
      &descriptors->layouts[2], &descriptors->layouts[3], &preference, 1, &result, &count);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  if (count == 0) return CUBLAS_STATUS_NOT_SUPPORTED;
  *plan = {key, result.algo, result.workspaceSize, 0};
  return result.state;
}

}  // namespace

cublasStatus_t LtDescriptors::write(const Cublas& cublas, const Operands& operands) {
  const MatmulKey& key = operands.key;
  const bool is_double = key.dtype == HUSK_F64;
  cublasStatus_t status = cublas.cublasLtMatmulDescInit_internal(
      &desc, sizeof desc,
      is_double  ? CUBLAS_COMPUTE_64F
      : key.fast ? CUBLAS_COMPUTE_32F_FAST_TF32
                 : CUBLAS_COMPUTE_32F,
      is_double ? CUDA_R_64F : CUDA_R_32F);
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const auto& value) {
    if (status == CUBLAS_STATUS_SUCCESS)
      status = cublas.cublasLtMatmulDescSetAttribute(&desc, attribute, &value, sizeof value);
  };
  if (key.transposed[0]) set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
  if (key.transposed[1]) set(CUBLASLT_MATMUL_DESC_TRANSB, CUBLAS_OP_T);
  if (key.has_bias) {
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, operands.bias);
  }
  const int64_t rows[] = {key.m, key.k, key.m, key.m}, columns[] = {key.k, key.n, key.n, key.n};
  for (int i = 0; i < 4 && status == CUBLAS_STATUS_SUCCESS; ++i) {
    const bool transposed = i < 2 && key.transposed[i];
    status = cublas.cublasLtMatrixLayoutInit_internal(
        &layouts[i], sizeof layouts[i], type_of(key.dtype),
        static_cast<uint64_t>(transposed ? columns[i] : rows[i]),
        static_cast<uint64_t>(transposed ? rows[i] : columns[i]), key.ld[i]);
    if (key.batch == 1 || status != CUBLAS_STATUS_SUCCESS) continue;
    const int32_t batch = static_cast<int32_t>(key.batch);
    status = cublas.cublasLtMatrixLayoutSetAttribute(
        &layouts[i], CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch, sizeof batch);
    if (status == CUBLAS_STATUS_SUCCESS)
      status = cublas.cublasLtMatrixLayoutSetAttribute(&layouts[i],
                                                       CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                                       &key.stride[i], sizeof key.stride[i]);
  }
  return status;
}

husk_status MatmulPlanCache::get(const Cublas& cublas, const MatmulKey& key,
                                 LtDescriptors* descriptors, const husk_op_arg* args,
                                 MatmulPlan* out, husk_error* error) {
  const uint64_t hash = hash_of(key);
  {
    const Lock lock(&mutex_);
    if (const MatmulPlan* plan = plans_.find(key, hash)) {
      *out = *plan;  // another thread may replace the plan while this one uses it
      return HUSK_OK;
    }
  }
  const cublasStatus_t status = query_heuristic(cublas, key, descriptors, out);
  if (status != CUBLAS_STATUS_SUCCESS)
    return cublas_fail(cublas, error, status, "cublasLtMatmulAlgoGetHeuristic",
                       MatmulText(args).text);
  const Lock lock(&mutex_);
  MatmulPlan* place = plans_.place(hash);
  *place = *out;
  plans_.keep(place, hash);
  return HUSK_OK;
}

}  // namespace husk::cuda
