// The functions that the server calls. The state of a backend is a Devices, that of a model a
// Model, that of an instance an Instance. Several models may load at the same time.
#include "api.h"
#include "devices.h"
#include "error.h"
#include "instance.h"
#include "model.h"

using husk::triton::Devices;
using husk::triton::Error;
using husk::triton::Instance;
using husk::triton::Model;

// Returns the error of a call from a function of the server.
#define HUSK_TRITON_RETURN_IF(call)                             \
  do {                                                          \
    if (Error failure{call}; failure) return failure.release(); \
  } while (0)

TRITONSERVER_Error* TRITONBACKEND_Initialize(TRITONBACKEND_Backend* handle) {
  // A server without a function that the backend calls does not load the library at all.
  uint32_t major, minor;
  HUSK_TRITON_RETURN_IF(TRITONBACKEND_ApiVersion(&major, &minor));
  if (major != 1)
    return husk::triton::fail(TRITONSERVER_ERROR_UNSUPPORTED,
                              "the backend husk is for version 1 of the backend API, the server "
                              "has %u.%u",
                              major, minor)
        .release();
  std::unique_ptr<Devices> devices(new Devices);
  HUSK_TRITON_RETURN_IF(devices->create(handle));
  HUSK_TRITON_RETURN_IF(TRITONBACKEND_BackendSetState(handle, devices.get()));
  devices.release();
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_Finalize(TRITONBACKEND_Backend* handle) {
  void* state;
  HUSK_TRITON_RETURN_IF(TRITONBACKEND_BackendState(handle, &state));
  delete static_cast<Devices*>(state);
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_GetBackendAttribute(TRITONBACKEND_Backend*,
                                                      TRITONBACKEND_BackendAttribute* attribute) {
  // Without this the server takes KIND_GPU where there is a GPU, for files without kernels for it
  // too.
  return TRITONBACKEND_BackendAttributeAddPreferredInstanceGroup(
      attribute, TRITONSERVER_INSTANCEGROUPKIND_CPU, 1, nullptr, 0);
}

TRITONSERVER_Error* TRITONBACKEND_ModelInitialize(TRITONBACKEND_Model* handle) {
  TRITONBACKEND_Backend* backend;
  HUSK_TRITON_RETURN_IF(TRITONBACKEND_ModelBackend(handle, &backend));
  void* state;
  HUSK_TRITON_RETURN_IF(TRITONBACKEND_BackendState(backend, &state));
  std::unique_ptr<Model> model;
  HUSK_TRITON_RETURN_IF(Model::create(handle, static_cast<Devices*>(state), &model));
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
