// One row of the op table, and the checks of the arguments of one call. The text of every failed
// check names the op and the argument.
#pragma once

#include <husk/detail/try.h>
#include <husk/op.h>

#include "core/activation.h"
#include "core/cancellation.h"
#include "cpu.h"

namespace husk::host {

constexpr int32_t kMaxRank = 16;  // highest rank of a tensor that any op takes
// The product of the sizes of a tensor, sizes of 0 counted as 1, is at most this number.
constexpr int64_t kMaxElements = int64_t{1} << 62;
// The product of size and stride of a dimension, in bytes, is at most this number, more than an
// address space has. So sums of such products over all dimensions fit an int64_t, also for a
// dimension of one element and for an empty tensor, whose strides say nothing about memory.
constexpr int64_t kMaxReach = int64_t{1} << 58;
// Tensors may broadcast to a shape that none of them has. An op that visits each element of such a
// shape refuses one with more elements than the tensors have, unless it has at most this number.
constexpr int64_t kMaxBroadcast = int64_t{1} << 36;

// The place of an argument in a call. ArgumentsOf (contracts.h) finds it by the argument's name. A
// plain number in the source does not compile as a place, so that the order of arguments stands in
// pack.def alone.
class ArgumentPlace {
 public:
  // Names of a contract become places without a cast. NOLINTBEGIN(google-explicit-constructor)
  constexpr ArgumentPlace(uint32_t place) : place_(place) {}
  ArgumentPlace(int) = delete;
  constexpr operator uint32_t() const { return place_; }
  // NOLINTEND(google-explicit-constructor)

 private:
  uint32_t place_;
};

// Stands for the place of an argument that an op does not have. Arguments::none() is true for it.
constexpr uint32_t kNoArgument = 0xffffffff;

class Arguments;

// The bytes of husk_op_context.scratch that a call needs: for the thread that calls the op, and for
// each other one. Both are multiples of 64.
struct ScratchBytes {
  int64_t caller = 0, other = 0;
};

// A row of pack.def. `contract` is husk_op.contract: the names of the arguments, with marks. `pack`
// is null, or lays out a constant (husk_op.pack): it leaves packing.bytes 0 for an argument that
// `run` does not want.
struct Op {
  const char* name;
  husk_status (*run)(const Arguments& args);
  const char* contract;
  husk_status (*pack)(const Arguments& args, husk_packing& packing) = nullptr;
  ScratchBytes scratch = {};
};

// The husk_op.call of every row. husk_op.user points to the Op.
husk_status op_enter(const husk_op_context* context, const husk_op_arg* args, uint32_t count,
                     husk_error* error);
// The husk_op.pack of every row that has one.
husk_status op_pack(const husk_op_context* context, const husk_op_arg* args, uint32_t count,
                    husk_packing* packing, husk_error* error);

// The arguments of one call. A check_ function returns HUSK_OK or an error. A get_ function also
// writes the value of the argument to `out`. Except for none(), check_count(), check_tensor() and
// the get_ functions, the caller must have checked that the arguments exist.
class Arguments {
 public:
  Arguments(const Op& row, const husk_op_context* op_context, Cancellation& calls_end,
            const husk_op_arg* op_args, uint32_t arg_count, husk_error* op_error)
      : op(row.name),
        context(op_context),
        cancellation(calls_end),
        count(arg_count),
        error(op_error),
        values(op_args),
        contract(row.contract),
        scratch_bytes(row.scratch) {}
  // Other arguments in the same call: tensors of a list, or arguments that the op makes for another
  // op.
  Arguments(const Op& row, const Arguments& call, const husk_op_arg* op_args, uint32_t arg_count)
      : Arguments(row, call.context, call.cancellation, op_args, arg_count, call.error) {}

  const husk_op_arg& operator[](ArgumentPlace index) const { return values[index]; }
  // True if the argument is left out or has kind NONE.
  bool none(ArgumentPlace index) const {
    return index >= count || values[index].kind == HUSK_ARG_NONE;
  }

  // The copy of the argument that the row's `pack` has made; null if there is none.
  const void* packed(ArgumentPlace index) const;

  // The scratch memory of a body of a region, body 0 being the calling thread, at a multiple of 64.
  // Null if the op's row asks for none.
  void* scratch(int64_t body = 0) const {
    if (scratch_bytes.caller == 0) return nullptr;
    char* const begin = static_cast<char*>(context->scratch);
    return body == 0 ? begin : begin + scratch_bytes.caller + (body - 1) * scratch_bytes.other;
  }

  // The number of arguments is one that the op takes.
  [[nodiscard]] husk_status check_count() const;
  // The argument is a tensor of a rank in [min_rank, max_rank] with sizes and strides, without a
  // negative size, and, if it has elements, with an aligned address. No rank exceeds kMaxRank, and
  // sizes and strides keep to kMaxElements and kMaxReach.
  [[nodiscard]] husk_status check_tensor(ArgumentPlace index, int32_t min_rank = 0,
                                         int32_t max_rank = kMaxRank) const;
  [[nodiscard]] husk_status check_dtype(ArgumentPlace index, int32_t expected) const;
  [[nodiscard]] husk_status check_same_dtype(ArgumentPlace index, ArgumentPlace other) const;
  // The dtype is i64 or i32.
  [[nodiscard]] husk_status check_index_dtype(ArgumentPlace index) const;
  // The dtype is bool or u8.
  [[nodiscard]] husk_status check_mask_dtype(ArgumentPlace index) const;
  // The size along `dim` is `expected`. `reason` tells the reader where that number comes from.
  [[nodiscard]] husk_status check_size(ArgumentPlace index, int32_t dim, int64_t expected,
                                       const char* reason) const;
  [[nodiscard]] husk_status check_same_shape(ArgumentPlace index, ArgumentPlace other) const;
  // Argument `index` is a tensor, `out` an output of its shape and dtype, and `mask` a bool output
  // of its shape.
  [[nodiscard]] husk_status check_masked(ArgumentPlace index, ArgumentPlace out,
                                         ArgumentPlace mask) const;
  // The argument is a tensor of rank 1 with `length` elements.
  [[nodiscard]] husk_status check_vector(ArgumentPlace index, int64_t length,
                                         const char* reason) const;
  // The argument is a list of ints of any length.
  [[nodiscard]] husk_status check_int_list(ArgumentPlace index) const;
  // The argument is a list of `expected` ints.
  [[nodiscard]] husk_status check_ints(ArgumentPlace index, int64_t expected) const;
  // The argument is a number that the op writes (HUSK_ARG_RESULT).
  [[nodiscard]] husk_status check_result(ArgumentPlace index) const;

  // Reads an int or a float.
  [[nodiscard]] husk_status get_number(ArgumentPlace index, double& out) const;
  [[nodiscard]] husk_status get_int(ArgumentPlace index, int64_t& out) const;
  [[nodiscard]] husk_status get_bool(ArgumentPlace index, bool& out) const;
  // Reads an activation, which is a string such as "relu" or "none".
  [[nodiscard]] husk_status get_activation(ArgumentPlace index, Activation& out) const;
  // Reads a dimension of a tensor of this rank. A negative one counts from the end. Rank 0 takes 0
  // and -1. `out` is never negative.
  [[nodiscard]] husk_status get_dim(ArgumentPlace index, int32_t rank, int32_t& out) const;
  // Reads the features of the CPU that the op may use: those of the context's device. An op that
  // runs beside another device has none, and gets those of this CPU.
  [[nodiscard]] husk_status get_features(Features& out) const;

  // The following functions fill `error` and return its code.
  husk_status unsupported_dtype(ArgumentPlace index) const;
  // "op: argument name: reason".
  husk_status argument_error(ArgumentPlace index, husk_status status, const char* reason) const;
  // An element `index` of an index tensor does not exist along `dim`.
  husk_status index_out_of_range(int64_t index, int32_t dim, int64_t size) const;
  // A tensor has other elements in a later pass over it: another thread changed it.
  husk_status tensor_changed() const;
  // A result whose size depends on the data has room for another number of elements.
  husk_status wrong_result_size(int64_t capacity, int64_t elements) const;

  const char* const op;
  const husk_op_context* const context;
  Cancellation& cancellation;  // of the calling thread
  const uint32_t count;
  husk_error* const error;

 private:
  // The name of an argument, for "%.*s".
  struct Name {
    int length;
    const char* text;
  };
  Name name(ArgumentPlace index) const;

  const husk_op_arg* const values;
  const char* const contract;
  const ScratchBytes scratch_bytes;
};

// Bytes of one element; 0 for a dtype that the host ops do not know.
int64_t dtype_bytes(int32_t dtype);
const char* dtype_name(int32_t dtype);
// The number of elements of a checked tensor.
int64_t numel(const husk_op_arg& tensor);
// The tensor, with strides of 0 if it has no elements. The strides of such a tensor say nothing,
// and its address may be null, but an op that loops over another tensor computes addresses from
// them.
husk_op_arg with_safe_strides(const husk_op_arg& tensor);
// True if an op may visit each element of a shape that comes from `a` and `b` (kMaxBroadcast). The
// shape has no negative size.
bool may_visit(const int64_t* sizes, int32_t rank, const husk_op_arg& a, const husk_op_arg& b);
// True if the elements are adjacent in memory, in the order of the dimensions.
bool contiguous(const husk_op_arg& tensor);

// Copies tensor argument `from` to tensor argument `to`, with broadcasting and conversion.
[[nodiscard]] husk_status copy_elements(const Arguments& args, ArgumentPlace to,
                                        ArgumentPlace from);
// Copies `from` to `to` likewise. Both are checked tensors, made from the arguments `from_at` and
// `to_at`, which error texts name.
[[nodiscard]] husk_status copy_between(const Arguments& args, ArgumentPlace to_at,
                                       const husk_op_arg& to, ArgumentPlace from_at,
                                       const husk_op_arg& from);

}  // namespace husk::host
