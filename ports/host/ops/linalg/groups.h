// The rows of a product with a stack of matrices, one for each expert.
#pragma once

#include "core/arguments.h"
#include "core/element.h"
#include "core/loop.h"

namespace husk::host {

// Which rows belong to which expert.
struct Groups {
  int64_t experts, rows;
  husk_op_arg of;  // `ends` or `experts`
  bool are_ends;

  int64_t number(int64_t i) const {
    return of.dtype == HUSK_I32 ? data_of<int32_t>(of)[i * of.strides[0]]
                                : data_of<int64_t>(of)[i * of.strides[0]];
  }
  // The expert of a row, for `experts`. Not one of them if another thread has changed the tensor.
  int64_t expert(int64_t row) const {
    const int64_t e = number(row);
    return e < 0 ? e + experts : e;
  }
  // The end of the rows of an expert, for `ends`. One of the rows even if another thread has
  // changed the tensor.
  int64_t end(int64_t expert) const {
    const int64_t end = number(expert);
    return end < 0 ? 0 : end < rows ? end : rows;
  }
  // Where the rows of an expert begin, or, for the number of experts, those that belong to none.
  int64_t begin(int64_t expert) const { return expert == 0 ? 0 : end(expert - 1); }
  // `place` is that of `of` among the arguments.
  husk_status check(const Arguments& args, ArgumentPlace place) const {
    husk_status status = HUSK_OK;
    int64_t before = 0;
    each_index_while(args.cancellation, of.sizes[0], [&](int64_t i) {
      const int64_t one = number(i);
      if (!are_ends && (one < -experts || one >= experts))
        status = args.index_out_of_range(one, 0, experts);
      if (are_ends && (one < before || one > rows))
        status = args.argument_error(place, HUSK_INVALID_ARGUMENT,
                                     "has ends that descend, or lie behind the rows of the input");
      before = one;
      return status == HUSK_OK;
    });
    return status;
  }
};

// A part of such a product is the rows of an expert times some columns, so that the number of parts
// follows from the shapes.
constexpr int64_t kGroupColumns = 256;

}  // namespace husk::host
