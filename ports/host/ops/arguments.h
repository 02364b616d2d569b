// An op of the pack as data, and the checks of what it is called with. Each failure names the op and the argument.
#ifndef HUSK_HOST_ARGUMENTS_H
#define HUSK_HOST_ARGUMENTS_H

#include <husk/op.h>

#define HUSK_TRY(expression)                              \
  do {                                                    \
    if (husk_status status_ = (expression)) return status_; \
  } while (0)

namespace husk::host {

constexpr int32_t most_dims = 16;   // of a tensor that any op takes

class Arguments;

// A row of pack.def. `names` are the schema's names of the arguments in order, one space between them; those that may
// be left out at the end have a '?' behind them.
struct Op {
  const char* name;
  husk_status (*run)(const Arguments& args);
  const char* names;
};

// husk_op.call of every row; husk_op.user is its Op.
husk_status op_enter(const husk_op_context* context, const husk_op_arg* args, uint32_t count, husk_error* error);

// The arguments of one call.
class Arguments {
 public:
  Arguments(const Op& what, const husk_op_context* where, const husk_op_arg* given, uint32_t number, husk_error* why)
      : op(what.name), context(where), count(number), error(why), values(given), names(what.names) {}

  const husk_op_arg& operator[](uint32_t index) const { return values[index]; }
  // Not given, or given as none.
  bool none(uint32_t index) const { return index >= count || values[index].kind == HUSK_ARG_NONE; }

  // As many as the op takes.
  [[nodiscard]] husk_status counted() const;
  // A tensor of a rank in [least, most], with sizes and strides, of no negative size, and with an aligned address
  // where it has elements. A rank is never above most_dims.
  [[nodiscard]] husk_status tensor(uint32_t index, int32_t least = 0, int32_t most = most_dims) const;
  [[nodiscard]] husk_status dtype(uint32_t index, int32_t expected) const;
  [[nodiscard]] husk_status same_dtype(uint32_t index, uint32_t other) const;
  // A size along `dim` that must be `expected`, which `reason` explains.
  [[nodiscard]] husk_status size(uint32_t index, int32_t dim, int64_t expected, const char* reason) const;
  [[nodiscard]] husk_status same_shape(uint32_t index, uint32_t other) const;
  // A tensor, and two outputs of its shape: one of its dtype at `out`, and behind it a mask.
  [[nodiscard]] husk_status masked(uint32_t index, uint32_t out) const;
  // A tensor of rank 1 and this many elements.
  [[nodiscard]] husk_status vector(uint32_t index, int64_t length, const char* reason) const;
  // An int or a float.
  [[nodiscard]] husk_status number(uint32_t index, double& out) const;
  [[nodiscard]] husk_status integer(uint32_t index, int64_t& out) const;
  [[nodiscard]] husk_status boolean(uint32_t index, bool& out) const;
  // Ints, `count` of them.
  [[nodiscard]] husk_status integers(uint32_t index, int64_t expected) const;
  // A dimension of a tensor of this rank, counted from either end; 0 and -1 for rank 0.
  [[nodiscard]] husk_status dimension(uint32_t index, int32_t rank, int32_t& out) const;
  // Where the op writes a number.
  [[nodiscard]] husk_status result(uint32_t index) const;

  husk_status unsupported_dtype(uint32_t index) const;
  // "op: argument name: reason".
  husk_status refuse(uint32_t index, husk_status status, const char* reason) const;

  const char* const op;
  const husk_op_context* const context;
  const uint32_t count;
  husk_error* const error;

 private:
  // The name of an argument, for "%.*s".
  struct Name { int length; const char* text; };
  Name name(uint32_t index) const;

  const husk_op_arg* const values;
  const char* const names;
};

// Bytes of an element of a tensor, 0 for what the host ops do not know.
int64_t dtype_bytes(int32_t dtype);
const char* dtype_name(int32_t dtype);
int64_t numel(const husk_op_arg& tensor);
// Whether elements lie one after the other in the order of the dimensions.
bool contiguous(const husk_op_arg& tensor);

// Writes the elements of tensor argument `from`, broadcast and converted, to tensor argument `to`.
[[nodiscard]] husk_status copy_elements(const Arguments& args, uint32_t to, uint32_t from);
// The same for checked tensors that stand for those arguments.
[[nodiscard]] husk_status copy_between(const Arguments& args, uint32_t to_at, const husk_op_arg& to, uint32_t from_at,
                                       const husk_op_arg& from);

#define HUSK_HOST_OP(name, run, names) husk_status run(const Arguments& args);
#include "pack.def"
#undef HUSK_HOST_OP

}  // namespace husk::host

#endif
