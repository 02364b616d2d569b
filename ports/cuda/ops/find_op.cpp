#include "ops/find_op.h"

#include <iterator>

#include <husk/detail/struct_size.h>

#include "device.h"
#include "ops/collective.h"
#include "ops/convolution.h"
#include "ops/fft.h"
#include "ops/linalg.h"
#include "ops/matmul.h"

namespace husk::cuda {

namespace {

// The ops that one library computes.
struct OpFamily {
  // Writes the op, whose `user` is `state`, the OpLibrary.state of the library; HUSK_NOT_FOUND if
  // the family has no op of this name.
  husk_status (*find)(const char* name, void* state, husk_op* op);
  // Opens the library. The mutex of the device is held.
  husk_status (*open)(void* device, OpLibrary* out, husk_error* error);
};
constexpr OpFamily kFamilies[] = {{find_matmul, open_matmul},
                                  {find_convolution, open_convolution},
                                  {find_linalg, open_linalg},
                                  {find_fft, open_fft},
                                  {find_collective, open_collective}};
static_assert(std::size(kFamilies) == kOpLibraries);

}  // namespace

husk_status find_op(void* handle, const char* name, husk_op* op, husk_error* error) {
  Device& device = as_device(handle);
  for (size_t i = 0; i < std::size(kFamilies); ++i) {
    husk_op found = HUSK_OP_INIT;
    if (kFamilies[i].find(name, nullptr, &found) != HUSK_OK) continue;
    const Lock lock(&device.mutex);
    OpLibrary& library = device.libraries[i];
    if (!library.state) HUSK_TRY(kFamilies[i].open(handle, &library, error));
    HUSK_TRY(kFamilies[i].find(name, library.state, &found));
    detail::write_struct(found, op);
    return HUSK_OK;
  }
  return HUSK_NOT_FOUND;
}

}  // namespace husk::cuda
