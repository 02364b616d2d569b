// The parts of DLPack 1.3 that this module uses and that older versions of dlpack.h lack.
#ifndef HUSK_PYTHON_DLPACK_H
#define HUSK_PYTHON_DLPACK_H

#include <husk/husk.h>

namespace husk::python {

struct DlpackVersion {
  uint32_t major, minor;
};

// DLManagedTensorVersioned: a tensor, and the function that frees it.
struct ManagedTensor {
  DlpackVersion version;
  void* manager_ctx;
  void (*deleter)(ManagedTensor* self);
  uint64_t flags;
  DLTensor dl_tensor;
};
constexpr uint64_t kReadOnlyFlag = 1;

// DLPackExchangeAPI: functions of a library for its own tensors, which need no call of Python. The
// capsule `__dlpack_c_exchange_api__` of a tensor's type has them. Each returns 0, or -1 with a
// Python exception set.
struct ExchangeApi {
  DlpackVersion version;
  const ExchangeApi* previous;  // the table of an older version, or NULL
  int (*allocate)(DLTensor* prototype, ManagedTensor** out, void* context,
                  void (*set_error)(void* context, const char* kind, const char* message));
  int (*managed_from_object)(void* object, ManagedTensor** out);
  int (*object_from_managed)(ManagedTensor* tensor, void** object);
  int (*borrow)(void* object, DLTensor* out);
  int (*current_stream)(DLDeviceType type, int32_t index, void** stream);
};

}  // namespace husk::python

#endif
