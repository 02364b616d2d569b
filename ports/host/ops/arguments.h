// Checks of what an op is called with. Each failure names the op and the argument.
#ifndef HUSK_HOST_ARGUMENTS_H
#define HUSK_HOST_ARGUMENTS_H

#include <husk/op.h>

namespace husk::host {

// The arguments of one call.
struct Arguments {
  const char* op;
  const char* const* names;   // of the schema
  const husk_op_arg* values;
  husk_error* error;

  const husk_op_arg& operator[](uint32_t index) const { return values[index]; }

  [[nodiscard]] husk_status count(uint32_t given, uint32_t least, uint32_t most) const;
  // A tensor of a rank in [least, most], with sizes and strides, of no negative size, and with an aligned address
  // where it has elements.
  [[nodiscard]] husk_status tensor(uint32_t index, int32_t least, int32_t most) const;
  // The same dtype as another tensor.
  [[nodiscard]] husk_status same_dtype(uint32_t index, uint32_t other) const;
  // A size along `dim` that must be `expected`, which `reason` explains.
  [[nodiscard]] husk_status size(uint32_t index, int32_t dim, int64_t expected, const char* reason) const;
  // An int or a float.
  [[nodiscard]] husk_status number(uint32_t index, double& out) const;
};

// Bytes of an element of a tensor, 0 for what the host ops do not know.
int64_t dtype_bytes(int32_t dtype);

husk_status mm_out(const husk_op_context* context, const husk_op_arg* args, uint32_t arg_count, husk_error* error);
husk_status addmm_out(const husk_op_context* context, const husk_op_arg* args, uint32_t arg_count, husk_error* error);
husk_status bmm_out(const husk_op_context* context, const husk_op_arg* args, uint32_t arg_count, husk_error* error);
husk_status baddbmm_out(const husk_op_context* context, const husk_op_arg* args, uint32_t arg_count,
                        husk_error* error);
husk_status copy_into(const husk_op_context* context, const husk_op_arg* args, uint32_t arg_count, husk_error* error);

}  // namespace husk::host

#endif
