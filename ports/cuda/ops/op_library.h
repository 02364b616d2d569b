// How the state of the library behind ops of the port is made and given back.
#pragma once

#include <cstring>

#include "device.h"

namespace husk::cuda {

// The OpLibrary.close of a State.
template <class State>
void close_op_library(const Device& device, void* memory) {
  State* state = static_cast<State*>(memory);
  state->close(device);
  release(device, state);
}

// The OpFamily.open of a library whose state is a State: a struct of zeros with
//
//   static constexpr const char* kTitle;  // names the memory in errors
//   husk_status open(const Device& device, husk_error* error);  // after a failure nothing is left
//   void close(const Device& device);
//
// The context is current in both functions.
template <class State>
husk_status open_op_library(void* handle, OpLibrary* out, husk_error* error) {
  Device& device = as_device(handle);
  Current current(handle, error);
  HUSK_TRY(current.status);
  State* state = static_cast<State*>(allocate(device, sizeof(State), State::kTitle, error));
  if (!state) return HUSK_OUT_OF_MEMORY;
  memset(static_cast<void*>(state), 0, sizeof *state);
  const husk_status status = state->open(device, error);
  if (status != HUSK_OK) {
    release(device, state);
    return status;
  }
  *out = {state, close_op_library<State>};
  return HUSK_OK;
}

}  // namespace husk::cuda
