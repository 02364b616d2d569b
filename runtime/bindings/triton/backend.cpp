// The functions that the server calls. The state of a backend is a Backend, that of a model a
// Model, that of an instance an Instance. Several models may load at the same time.
#include <husk/ops.h>
#include <husk/port_host.h>

#include "api.h"
#include "config.h"
#include "error.h"
#include "instance.h"
#include "model.h"

namespace husk::triton {
namespace {

// A Backend holds what all models share: the engine, so that versions of a model share equal
// constants, and the threads of large kernels.
class Backend {
 public:
  Backend() = default;
  Backend(const Backend&) = delete;
  ~Backend() {
    husk_engine_release(engine_);
    husk_host_threads_release(&threads_);
  }
  Error create(TRITONBACKEND_Backend* handle);
  husk_engine* engine() const { return engine_; }

 private:
  husk_threads threads_ = {};
  husk_engine* engine_ = nullptr;
};

void log_husk(void*, int32_t level, const char* text) {
  log(level == HUSK_LOG_WARNING ? TRITONSERVER_LOG_WARN : TRITONSERVER_LOG_INFO, text);
}

Error Backend::create(TRITONBACKEND_Backend* handle) {
  uint32_t major, minor;
  HUSK_TRITON_TRY(Error(TRITONBACKEND_ApiVersion(&major, &minor)));
  // A server without a function that the backend calls does not load the library at all.
  if (major != 1)
    return fail(TRITONSERVER_ERROR_UNSUPPORTED,
                "the backend husk is for version 1 of the backend API, the server has %u.%u", major,
                minor);
  uint64_t threads = 1;
  HUSK_TRITON_TRY(read_command_line(handle, "threads", &threads));
  husk_error error;
  husk_engine_options options = HUSK_ENGINE_OPTIONS_INIT;
  if (threads != 1) {
    if (threads > HUSK_HOST_THREADS_MAX)
      return fail(TRITONSERVER_ERROR_INVALID_ARG, "--backend-config=husk,threads is at most %d",
                  HUSK_HOST_THREADS_MAX);
    if (husk_host_threads_create(uint32_t(threads), nullptr, &threads_, &error) != HUSK_OK)
      return fail(error);
    options.threads = &threads_;
  }
  options.port = husk_port_host();
  options.allow_host_images = 1;  // who writes to the model repository is trusted
  options.require_op_contracts = 1;
  options.log = log_husk;
  if (husk_engine_create(&options, &engine_, &error) != HUSK_OK ||
      husk_ops_add_all(engine_, &error) != HUSK_OK)
    return fail(error);
  return nullptr;
}

}  // namespace
}  // namespace husk::triton

using husk::triton::Backend;
using husk::triton::Error;
using husk::triton::Instance;
using husk::triton::Model;

// Returns the error of a call from a function of the server.
#define HUSK_TRITON_RETURN_IF(call)                             \
  do {                                                          \
    if (Error failure{call}; failure) return failure.release(); \
  } while (0)

TRITONSERVER_Error* TRITONBACKEND_Initialize(TRITONBACKEND_Backend* handle) {
  std::unique_ptr<Backend> backend(new Backend);
  HUSK_TRITON_RETURN_IF(backend->create(handle));
  HUSK_TRITON_RETURN_IF(TRITONBACKEND_BackendSetState(handle, backend.get()));
  backend.release();
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_Finalize(TRITONBACKEND_Backend* handle) {
  void* state;
  HUSK_TRITON_RETURN_IF(TRITONBACKEND_BackendState(handle, &state));
  delete static_cast<Backend*>(state);
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_GetBackendAttribute(TRITONBACKEND_Backend*,
                                                      TRITONBACKEND_BackendAttribute* attribute) {
  // Without this the server takes KIND_GPU where there is a GPU.
  return TRITONBACKEND_BackendAttributeAddPreferredInstanceGroup(
      attribute, TRITONSERVER_INSTANCEGROUPKIND_CPU, 1, nullptr, 0);
}

TRITONSERVER_Error* TRITONBACKEND_ModelInitialize(TRITONBACKEND_Model* handle) {
  TRITONBACKEND_Backend* backend;
  HUSK_TRITON_RETURN_IF(TRITONBACKEND_ModelBackend(handle, &backend));
  void* state;
  HUSK_TRITON_RETURN_IF(TRITONBACKEND_BackendState(backend, &state));
  std::unique_ptr<Model> model;
  HUSK_TRITON_RETURN_IF(Model::create(handle, static_cast<Backend*>(state)->engine(), &model));
  HUSK_TRITON_RETURN_IF(TRITONBACKEND_ModelSetState(handle, model.get()));
  model.release();
  return nullptr;
}

// Is also called after a ModelInitialize that failed; the state is null then.
TRITONSERVER_Error* TRITONBACKEND_ModelFinalize(TRITONBACKEND_Model* handle) {
  void* state;
  HUSK_TRITON_RETURN_IF(TRITONBACKEND_ModelState(handle, &state));
  delete static_cast<Model*>(state);
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceInitialize(TRITONBACKEND_ModelInstance* handle) {
  TRITONBACKEND_Model* model;
  HUSK_TRITON_RETURN_IF(TRITONBACKEND_ModelInstanceModel(handle, &model));
  void* state;
  HUSK_TRITON_RETURN_IF(TRITONBACKEND_ModelState(model, &state));
  std::unique_ptr<Instance> instance;
  HUSK_TRITON_RETURN_IF(Instance::create(handle, static_cast<Model*>(state), &instance));
  HUSK_TRITON_RETURN_IF(TRITONBACKEND_ModelInstanceSetState(handle, instance.get()));
  instance.release();
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceFinalize(TRITONBACKEND_ModelInstance* handle) {
  void* state;
  HUSK_TRITON_RETURN_IF(TRITONBACKEND_ModelInstanceState(handle, &state));
  delete static_cast<Instance*>(state);
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceExecute(TRITONBACKEND_ModelInstance* handle,
                                                       TRITONBACKEND_Request** requests,
                                                       uint32_t count) {
  void* state;
  HUSK_TRITON_RETURN_IF(TRITONBACKEND_ModelInstanceState(handle, &state));
  static_cast<Instance*>(state)->execute(requests, count);
  return nullptr;
}
