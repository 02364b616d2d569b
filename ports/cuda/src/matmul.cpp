#include "matmul.h"

#include <string.h>

namespace husk::cuda {

namespace {

class Locked {
 public:
  explicit Locked(pthread_mutex_t* mutex) : mutex_(mutex) { pthread_mutex_lock(mutex_); }
  ~Locked() { pthread_mutex_unlock(mutex_); }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

 private:
  pthread_mutex_t* mutex_;
};

// What cuBLASLt is told of a product. It is written anew for each call: that takes less than looking after what is kept would.
struct Description {
  Descriptor desc, layouts[4];   // A, B, C, D

  cublasStatus_t write(const Cublas& cublas, const Operands& operands);
};

cudaDataType_t type_of(int32_t dtype) {
  switch (dtype) {
    case HUSK_F16: return CUDA_R_16F;
    case HUSK_BF16: return CUDA_R_16BF;
    case HUSK_F32: return CUDA_R_32F;
    default: return CUDA_R_64F;
  }
}

cublasStatus_t Description::write(const Cublas& cublas, const Operands& operands) {
  const Product& p = operands.product;
  const bool is_double = p.dtype == HUSK_F64;
  cublasStatus_t status = cublas.cublasLtMatmulDescInit_internal(
      &desc, sizeof desc, is_double ? CUBLAS_COMPUTE_64F : p.fast ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F,
      is_double ? CUDA_R_64F : CUDA_R_32F);
  const auto say = [&](cublasLtMatmulDescAttributes_t attribute, const auto& value) {
    if (status == CUBLAS_STATUS_SUCCESS) status = cublas.cublasLtMatmulDescSetAttribute(&desc, attribute, &value, sizeof value);
  };
  if (p.transposed[0]) say(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
  if (p.transposed[1]) say(CUBLASLT_MATMUL_DESC_TRANSB, CUBLAS_OP_T);
  if (p.has_bias) {
    say(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    say(CUBLASLT_MATMUL_DESC_BIAS_POINTER, operands.bias);
  }
  const int64_t rows[] = {p.m, p.k, p.m, p.m}, columns[] = {p.k, p.n, p.n, p.n};
  for (int i = 0; i < 4 && status == CUBLAS_STATUS_SUCCESS; ++i) {
    const bool turned = i < 2 && p.transposed[i];
    status = cublas.cublasLtMatrixLayoutInit_internal(&layouts[i], sizeof layouts[i], type_of(p.dtype),
                                                      static_cast<uint64_t>(turned ? columns[i] : rows[i]),
                                                      static_cast<uint64_t>(turned ? rows[i] : columns[i]), p.ld[i]);
    if (p.batch == 1 || status != CUBLAS_STATUS_SUCCESS) continue;
    const int32_t batch = static_cast<int32_t>(p.batch);
    status = cublas.cublasLtMatrixLayoutSetAttribute(&layouts[i], CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch, sizeof batch);
    if (status == CUBLAS_STATUS_SUCCESS)
      status = cublas.cublasLtMatrixLayoutSetAttribute(&layouts[i], CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &p.stride[i],
                                                       sizeof p.stride[i]);
  }
  return status;
}

Plan* set_of(Products* products, const Product& product) {
  uint64_t hash = 0xCBF29CE484222325;   // FNV-1a over words
  uint64_t word;
  static_assert(sizeof(Product) % sizeof word == 0);
  for (size_t i = 0; i < sizeof product; i += sizeof word) {
    memcpy(&word, reinterpret_cast<const char*>(&product) + i, sizeof word);
    hash = (hash ^ word) * 0x100000001B3;
    hash ^= hash >> 29;
  }
  return products->plans[hash % Products::kSets];
}

// A copy, so that others may take its place meanwhile.
bool find_plan(Products* products, const Product& product, Plan* out) {
  Plan* set = set_of(products, product);
  const Locked locked(&products->mutex);
  for (uint32_t i = 0; i < Products::kWays; ++i) {
    if (!set[i].used || memcmp(&set[i].product, &product, sizeof product) != 0) continue;
    set[i].used = ++products->clock;
    *out = set[i];
    return true;
  }
  return false;
}

void keep_plan(Products* products, const Plan& plan) {
  Plan* set = set_of(products, plan.product);
  const Locked locked(&products->mutex);
  Plan* oldest = set;
  for (uint32_t i = 1; i < Products::kWays; ++i)
    if (set[i].used < oldest->used) oldest = &set[i];
  *oldest = plan;
  oldest->used = ++products->clock;
}

cublasStatus_t ask(const Cublas& cublas, const Product& p, Description* description, Plan* plan) {
  Descriptor preference;
  cublasStatus_t status = cublas.cublasLtMatmulPreferenceInit_internal(&preference, sizeof preference);
  const auto say = [&](int attribute, const auto& value) {
    if (status == CUBLAS_STATUS_SUCCESS)
      status = cublas.cublasLtMatmulPreferenceSetAttribute(
          &preference, static_cast<cublasLtMatmulPreferenceAttributes_t>(attribute), &value, sizeof value);
  };
  say(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, p.workspace);
  for (int i = 0; i < 4; ++i) say(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES + i, static_cast<uint32_t>(p.align[i]));
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  cublasLtMatmulHeuristicResult_t result = {};
  int count = 0;
  status = cublas.cublasLtMatmulAlgoGetHeuristic(cublas.handle, &description->desc, &description->layouts[0],
                                                 &description->layouts[1], &description->layouts[2], &description->layouts[3],
                                                 &preference, 1, &result, &count);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  if (count == 0) return CUBLAS_STATUS_NOT_SUPPORTED;
  *plan = {p, result.algo, result.workspaceSize, 0};
  return result.state;
}

// Finds the plan, or chooses one and keeps it. Two threads may choose the same at a time.
husk_status plan_for(Products* products, const Product& product, Description* description, const husk_op_arg* args, Plan* plan,
                     husk_error* error) {
  if (find_plan(products, product, plan)) return HUSK_OK;
  const cublasStatus_t status = ask(products->cublas, product, description, plan);
  if (status != CUBLAS_STATUS_SUCCESS)
    return cublas_fail(products->cublas, error, status, "cublasLtMatmulAlgoGetHeuristic", "%s", ProductText(args).text);
  keep_plan(products, *plan);
  return HUSK_OK;
}

husk_status zero(const Device& device, const Operands& operands, void* stream, const husk_op_arg* args, husk_error* error) {
  if (operands.zeros == 0) return HUSK_OK;
  const CUresult result =
      device.driver.cuMemsetD8Async(as_address(operands.d), 0, static_cast<size_t>(operands.zeros), as_stream(stream));
  if (result == CUDA_SUCCESS) return HUSK_OK;
  return driver_fail(device.driver, error, result, "cuMemsetD8Async", "%s", ProductText(args).text);
}

husk_status prepare(const husk_op_context* context, const husk_op_arg* args, uint32_t count, husk_error* error) {
  Operands operands;
  HUSK_TRY(read_operands(args, count, &operands, error));
  if (operands.is_empty()) return HUSK_OK;
  Current current(context->device, error);
  HUSK_TRY(current.status);
  operands.bias = reinterpret_cast<void*>(uintptr_t{256});   // where the caller's memory is not known yet it may be null
  Products* products = static_cast<Products*>(context->user);
  Description description;
  const cublasStatus_t status = description.write(products->cublas, operands);
  if (status != CUBLAS_STATUS_SUCCESS)
    return cublas_fail(products->cublas, error, status, "a descriptor", "%s", ProductText(args).text);
  Plan plan;
  return plan_for(products, operands.product, &description, args, &plan, error);
}

husk_status call(const husk_op_context* context, const husk_op_arg* args, uint32_t count, husk_error* error) {
  Device& device = as_device(context->device);
  Operands operands;
  HUSK_TRY(read_operands(args, count, &operands, error));
  Current current(context->device, error);
  HUSK_TRY(current.status);
  const Range range(device, "husk::matmul");
  if (operands.is_empty()) return zero(device, operands, context->stream, args, error);
  Products* products = static_cast<Products*>(context->user);
  const Cublas& cublas = products->cublas;
  Description description;
  cublasStatus_t status = description.write(cublas, operands);
  if (status != CUBLAS_STATUS_SUCCESS) return cublas_fail(cublas, error, status, "a descriptor", "%s", ProductText(args).text);
  Plan plan;
  HUSK_TRY(plan_for(products, operands.product, &description, args, &plan, error));
  const float alpha = static_cast<float>(operands.alpha), beta = static_cast<float>(operands.beta);
  const bool is_double = operands.product.dtype == HUSK_F64;
  Descriptor* layouts = description.layouts;
  status = cublas.cublasLtMatmul(cublas.handle, &description.desc, is_double ? static_cast<const void*>(&operands.alpha) : &alpha,
                                 operands.a, &layouts[0], operands.b, &layouts[1],
                                 is_double ? static_cast<const void*>(&operands.beta) : &beta, operands.c, &layouts[2], operands.d,
                                 &layouts[3], &plan.algo, operands.workspace, plan.workspace, as_stream(context->stream));
  if (status == CUBLAS_STATUS_SUCCESS) return check_work(device, context->stream, error, "%s", ProductText(args).text);
  return cublas_fail(cublas, error, status, "cublasLtMatmul", "%s", ProductText(args).text);
}

husk_status open_products(void* handle, Products** out, husk_error* error) {
  Device& device = as_device(handle);
  Current current(handle, error);
  HUSK_TRY(current.status);
  Products* products = static_cast<Products*>(allocate(device, sizeof(Products), "plans of matrix products", error));
  if (!products) return HUSK_OUT_OF_MEMORY;
  memset(products, 0, sizeof *products);
  const husk_status status = open_cublas(device.options.cublas, device.driver, &products->cublas, error);
  if (status != HUSK_OK) {
    release(device, products);
    return status;
  }
  pthread_mutex_init(&products->mutex, nullptr);
  *out = products;
  return HUSK_OK;
}

}  // namespace

husk_status find_op(void* handle, const char* name, husk_op* op, husk_error* error) {
  if (strcmp(name, "husk::matmul") != 0) return HUSK_NOT_FOUND;
  Device& device = as_device(handle);
  const Locked locked(&device.mutex);
  if (!device.products) HUSK_TRY(open_products(handle, &device.products, error));
  *op = {"husk::matmul", call, device.products, prepare};
  return HUSK_OK;
}

void close_products(const Device& device, Products* products) {
  if (!products) return;
  close_cublas(&products->cublas);
  pthread_mutex_destroy(&products->mutex);
  release(device, products);
}

}  // namespace husk::cuda
