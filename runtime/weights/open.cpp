#include <husk/husk.h>
#include <husk/weights.h>

#include "weights/joined_file.h"

using namespace husk;

namespace {

// Unmaps the bytes that a program has borrowed.
void release(void* size, const void* data) {
  weights::unmap(data, reinterpret_cast<uintptr_t>(size));
}

}  // namespace

husk_status husk_weights_open(husk_engine* engine, const char* path, const char* folder,
                              husk_program** program, husk_error* error) {
  if (!engine || !path || !program) return null_argument(error, "weights_open");
  if (!weights::lie_beside(path)) return husk_program_open(engine, path, program, error);
  *program = nullptr;
  ErrorScratch scratch;
  error = scratch.of(error);
  weights::JoinedFile file;
  Status status = weights::join(path, folder, false, &file, error);
  if (failed(status)) return husk_status(status);
  status = to_status(husk_program_load(engine, file.data, file.size, release,
                                       reinterpret_cast<void*>(file.size), program, error));
  if (!failed(status)) return HUSK_OK;
  weights::unmap(file.data, file.size);
  if (status == Status(HUSK_INVALID_FILE)) prefix(error, "with the weights %s: ", file.name);
  return husk_status(status);
}
