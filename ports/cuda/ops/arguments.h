// Ops that take tensors and a workspace read their arguments with these functions.
#pragma once

#include <husk/detail/argument_places.h>
#include <husk/detail/dtype.h>
#include <husk/op.h>

#include "device.h"
#include "error.h"

namespace husk::cuda {

using detail::ArgumentPlaces;

inline bool is_tensor(const husk_op_arg& arg, int32_t dtype, int32_t rank) {
  return arg.kind == HUSK_ARG_TENSOR && arg.dtype == dtype && arg.rank == rank;
}

// The largest power of two, at most `most`, of which the address is a multiple.
inline uint16_t align_of(const void* pointer, uint16_t most) {
  const auto low = reinterpret_cast<uintptr_t>(pointer) & (most - 1u);
  return static_cast<uint16_t>(low ? low & (~low + 1) : most);
}

// The first tensor whose address is not a multiple of its element's size; `count` if there is none.
// A kernel that reads an element at such an address makes the context useless, so every op asks
// this before it calls a library. An address is null while the op is prepared.
inline uint32_t misaligned_tensor(const husk_op_arg* args, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) {
    const uint8_t bytes = detail::element_bytes(args[i].dtype);
    if (args[i].kind == HUSK_ARG_TENSOR && bytes &&
        reinterpret_cast<uintptr_t>(args[i].data) % bytes)
      return i;
  }
  return count;
}

// Fails because of such a tensor. `text` names the call.
inline husk_status misaligned(const char* text, const husk_op_arg* args, uint32_t index,
                              husk_error* error) {
  return fail(error, HUSK_INVALID_ARGUMENT,
              "%s: argument %u is not aligned to its elements: its address must be a multiple of "
              "%d",
              text, index, detail::element_bytes(args[index].dtype));
}

// The part of a dense workspace of bytes that begins at an aligned address: its size, and its place
// in `memory`, null if there is no such part. CUDA aligns what it allocates like this, and
// libraries want no more.
inline uint64_t aligned_part(const husk_op_arg& workspace, void** memory) {
  constexpr uintptr_t kAlign = 256;
  const uintptr_t address = reinterpret_cast<uintptr_t>(workspace.data);
  const uint64_t size = static_cast<uint64_t>(workspace.sizes[0]), gap = -address & (kAlign - 1);
  *memory = reinterpret_cast<void*>(size > gap ? address + gap : 0);
  return size > gap ? size - gap : 0;
}

// Enqueues the filling of a result with zeros, if it has bytes. `thing` names the call in errors.
inline husk_status fill_zeros(const Device& device, void* stream, void* result, uint64_t bytes,
                              const char* thing, husk_error* error) {
  if (bytes == 0) return HUSK_OK;
  const CUresult status = device.driver.cuMemsetD8Async(
      as_address(result), 0, static_cast<size_t>(bytes), as_stream(stream));
  if (status == CUDA_SUCCESS) return HUSK_OK;
  return driver_fail(device.driver, error, status, "cuMemsetD8Async", "%s", thing);
}

}  // namespace husk::cuda
