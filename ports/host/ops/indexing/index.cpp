// aten::index and aten::index_put: advanced indexing with tensors of ints and masks (tensors of
// bools) in any combination.
#include "contracts.h"
#include "core/arguments.h"
#include "core/arithmetic.h"
#include "core/loop.h"
#include "error.h"

namespace husk::host {

namespace {

// One tensor of the list of indices: ints for one dimension of self, or a mask for `dims`
// dimensions. A mask stands for the list of positions of its true elements.
struct Index {
  const husk_op_arg* tensor;
  bool mask;
  int32_t dim, dims;          // the first dimension of self, and how many
  int64_t true_count;         // of a mask
  int64_t strides[kMaxRank];  // of a tensor of ints, over the broadcast shape

  // The true element of a mask that seek() found last.
  int64_t number;  // its position among the true elements, -1 before the first call
  int64_t at[kMaxRank];

  bool test() const {
    int64_t offset = 0;
    for (int32_t d = 0; d < dims; ++d) offset += at[d] * tensor->strides[d];
    return data_of<uint8_t>(*tensor)[offset] != 0;
  }
  // Moves to true element `wanted`. Returns false if the call is to end, or if there is no such
  // element, because another thread changed the mask after it was counted.
  bool seek(Cancellation& cancellation, int64_t wanted) {
    if (number < 0 || number > wanted) {
      for (int32_t d = 0; d < dims; ++d) at[d] = 0;
      number = test() ? 0 : -1;
    }
    while (number < wanted) {
      if (cancellation.ends(1)) return false;
      int32_t d = dims - 1;
      for (; d >= 0; --d) {
        if (++at[d] < tensor->sizes[d]) break;
        at[d] = 0;
      }
      if (d < 0) return false;
      if (test()) ++number;
    }
    return true;
  }
};

// The elements that a list of indices selects: one slice over the kept dimensions for each position
// in the shape to which the indices broadcast.
struct Selection {
  Index indices[kMaxRank];
  int32_t count = 0;
  int64_t sizes[kMaxRank];  // the broadcast shape
  int32_t rank = 0;
  int32_t kept[kMaxRank];  // dimensions of self that no index takes
  int32_t kept_count = 0;
  int32_t kept_before = 0;  // number of kept dimensions before the broadcast shape in the result
};

int64_t count_true(const Arguments& args, const husk_op_arg& mask) {
  Loop<1> loop(args);
  loop.shape(mask);
  loop.merge();
  int64_t count = 0;
  each(loop, [&](const int64_t(&at)[1]) { count += data_of<uint8_t>(mask)[at[0]] != 0; });
  return count;
}

// Reads the list of indices and assigns the dimensions of self to its tensors.
husk_status read_list(const Arguments& args, ArgumentPlace list_at, const husk_op_arg& self,
                      Selection& s) {
  const husk_op_arg& list = args[list_at];
  if (list.kind != HUSK_ARG_TENSORS || (list.count > 0 && !list.tensors))
    return args.argument_error(list_at, HUSK_INVALID_ARGUMENT, "is not a list of tensors");
  bool gap = false, started = false, split = false;
  int32_t dim = 0;
  for (int64_t i = 0; i < list.count; ++i) {
    const husk_op_arg& tensor = list.tensors[i];
    if (tensor.kind == HUSK_ARG_NONE) {
      if (dim >= self.rank)
        return args.argument_error(list_at, HUSK_INVALID_ARGUMENT,
                                   "has more indices than self has dimensions");
      s.kept[s.kept_count++] = dim++;
      gap = started;
      continue;
    }
    if (s.count == kMaxRank)
      return args.argument_error(list_at, HUSK_UNSUPPORTED, "has too many tensors");
    const Op element{args.op, nullptr, "index"};
    HUSK_TRY(Arguments(element, args, &tensor, 1).check_tensor(0u));
    Index& index = s.indices[s.count++];
    index.tensor = &tensor;
    index.mask = tensor.dtype == HUSK_BOOL || tensor.dtype == HUSK_U8;
    if (!index.mask && tensor.dtype != HUSK_I64 && tensor.dtype != HUSK_I32) {
      return fail(args.error, HUSK_UNSUPPORTED,
                  "%s: an index has dtype %s; it takes i64, i32, bool and u8", args.op,
                  dtype_name(tensor.dtype));
    }
    index.dim = dim;
    index.dims = index.mask ? tensor.rank : 1;
    index.number = -1;
    if (dim + index.dims > self.rank) {
      return args.argument_error(list_at, HUSK_INVALID_ARGUMENT,
                                 "has more indices than self has dimensions");
    }
    for (int32_t d = 0; index.mask && d < index.dims; ++d) {
      if (tensor.sizes[d] == self.sizes[dim + d]) continue;
      return fail(args.error, HUSK_INVALID_ARGUMENT,
                  "%s: a mask has size %lld along %d, self has %lld along %d", args.op,
                  static_cast<long long>(tensor.sizes[d]), d,
                  static_cast<long long>(self.sizes[dim + d]), dim + d);
    }
    if (index.mask) index.true_count = count_true(args, tensor);
    if (!started) s.kept_before = s.kept_count;
    split |= gap;
    started = true;
    dim += index.dims;
  }
  if (s.count == 0) return args.argument_error(list_at, HUSK_INVALID_ARGUMENT, "has no tensor");
  for (; dim < self.rank; ++dim) s.kept[s.kept_count++] = dim;
  if (split) s.kept_before = 0;
  return HUSK_OK;
}

// Computes the shape to which the indices broadcast. A mask counts as a vector of its true
// elements.
husk_status broadcast_list(const Arguments& args, Selection& s) {
  for (int32_t i = 0; i < s.count; ++i) {
    const int32_t rank = s.indices[i].mask ? 1 : s.indices[i].tensor->rank;
    if (rank > s.rank) s.rank = rank;
  }
  for (int32_t d = 0; d < s.rank; ++d) s.sizes[d] = 1;
  for (int32_t i = 0; i < s.count; ++i) {
    const Index& index = s.indices[i];
    const int32_t rank = index.mask ? 1 : index.tensor->rank;
    for (int32_t d = 0; d < rank; ++d) {
      const int64_t size = index.mask ? index.true_count : index.tensor->sizes[d];
      int64_t& shared = s.sizes[s.rank - rank + d];
      if (size == 1 || size == shared) continue;
      if (shared != 1) {
        return fail(args.error, HUSK_INVALID_INPUT,
                    "%s: indices of sizes %lld and %lld do not broadcast", args.op,
                    static_cast<long long>(shared), static_cast<long long>(size));
      }
      shared = size;
    }
  }
  for (int32_t i = 0; i < s.count; ++i) {
    Index& index = s.indices[i];
    if (!index.mask) (void)broadcast(*index.tensor, s.sizes, s.rank, index.strides);
  }
  return HUSK_OK;
}

// Computes the shape of the result.
husk_status result_shape(const Arguments& args, const husk_op_arg& self, const Selection& s,
                         int64_t* sizes, int32_t& rank) {
  rank = s.kept_count + s.rank;
  if (rank > kMaxRank)
    return fail(args.error, HUSK_UNSUPPORTED, "%s: the result has rank %d", args.op, rank);
  int32_t to = 0;
  for (int32_t k = 0; k < s.kept_before; ++k) sizes[to++] = self.sizes[s.kept[k]];
  for (int32_t d = 0; d < s.rank; ++d) sizes[to++] = s.sizes[d];
  for (int32_t k = s.kept_before; k < s.kept_count; ++k) sizes[to++] = self.sizes[s.kept[k]];
  return HUSK_OK;
}

// Computes the offset in self for position `at` of the broadcast shape.
husk_status find_offset(const Arguments& args, const husk_op_arg& self, Selection& s,
                        const int64_t* at, int64_t& offset) {
  offset = 0;
  for (int32_t i = 0; i < s.count; ++i) {
    Index& index = s.indices[i];
    if (index.mask) {
      if (!index.seek(args.cancellation, index.true_count == 1 ? 0 : at[s.rank - 1]))
        return args.tensor_changed();
      for (int32_t d = 0; d < index.dims; ++d) offset += index.at[d] * self.strides[index.dim + d];
      continue;
    }
    int64_t index_offset = 0;
    for (int32_t d = 0; d < s.rank; ++d) index_offset += at[d] * index.strides[d];
    const int64_t value = get_index(index.tensor->dtype, index.tensor->data, index_offset),
                  size = self.sizes[index.dim];
    if (value < -size || value >= size) return args.index_out_of_range(value, index.dim, size);
    offset += (value < 0 ? value + size : value) * self.strides[index.dim];
  }
  return HUSK_OK;
}

// Calls run(offset in self, offset in other) for each position of the broadcast shape. `strides`
// are the strides of other, which has the shape of the result. The true elements of a mask lie
// along the last dimension. With a mask, this dimension is the slowest one, so that each mask is
// read only once. Positions that differ there never select the same element, so elements that are
// selected several times are still visited in the order of the result.
template <class Run>
husk_status each_position(const Arguments& args, const husk_op_arg& self, Selection& s,
                          const int64_t* strides, Run run) {
  for (int32_t d = 0; d < s.rank; ++d)
    if (s.sizes[d] == 0) return HUSK_OK;
  bool mask = false;
  for (int32_t i = 0; i < s.count; ++i) mask |= s.indices[i].mask && s.indices[i].true_count > 1;
  int32_t order[kMaxRank];  // the dimensions from the fastest to the slowest
  for (int32_t i = 0; i < s.rank; ++i) order[i] = s.rank - 1 - (mask ? (i + 1) % s.rank : i);
  int64_t at[kMaxRank] = {}, other = 0;
  for (;;) {
    int64_t offset = 0;
    if (args.cancellation.ends(1)) return HUSK_CANCELLED;
    HUSK_TRY(find_offset(args, self, s, at, offset));
    run(offset, other);
    int32_t i = 0;
    for (; i < s.rank; ++i) {
      const int32_t d = order[i];
      other += strides[s.kept_before + d];
      if (++at[d] < s.sizes[d]) break;
      other -= strides[s.kept_before + d] * s.sizes[d];
      at[d] = 0;
    }
    if (i == s.rank) return HUSK_OK;
  }
}

// A loop over the kept dimensions. Operands: self, other.
Loop<2> kept_loop(const Arguments& args, const husk_op_arg& self, const Selection& s,
                  const int64_t* strides) {
  Loop<2> loop(args);
  loop.rank = s.kept_count;
  for (int32_t k = 0; k < s.kept_count; ++k) {
    loop.sizes[k] = self.sizes[s.kept[k]];
    loop.strides[0][k] = self.strides[s.kept[k]];
    loop.strides[1][k] = strides[k < s.kept_before ? k : k + s.rank];
  }
  loop.merge();
  return loop;
}

husk_status select(const Arguments& args, ArgumentPlace list_at, const husk_op_arg& self,
                   Selection& s) {
  HUSK_TRY(read_list(args, list_at, self, s));
  return broadcast_list(args, s);
}

// Adds a slice. A tensor without elements may have no memory, so addresses are computed only for
// elements that exist.
template <class T>
void add_slice(const Loop<2>& loop, T* to, int64_t to_at, const T* from, int64_t from_at) {
  each(loop, [&](const int64_t(&at)[2]) {
    set(to + (to_at + at[0]), plus(get(to + (to_at + at[0])), get(from + (from_at + at[1]))));
  });
}

husk_status put(const Arguments& args, ArgumentPlace self_at) {
  constexpr ArgumentsOf named("index_put", "index_put_into");
  constexpr uint32_t kIndices = named["indices"], kValues = named["values"],
                     kAccumulate = named["accumulate"];
  const husk_op_arg &self = args[self_at], &values = args[kValues];
  HUSK_TRY(args.check_tensor(self_at));
  HUSK_TRY(args.check_tensor(kValues));
  HUSK_TRY(args.check_same_dtype(kValues, self_at));
  bool accumulate = false;
  HUSK_TRY(args.get_bool(kAccumulate, accumulate));
  Selection s;
  HUSK_TRY(select(args, kIndices, self, s));
  int64_t sizes[kMaxRank], strides[kMaxRank];
  int32_t rank = 0;
  HUSK_TRY(result_shape(args, self, s, sizes, rank));
  if (!broadcast(values, sizes, rank, strides)) {
    return args.argument_error(kValues, HUSK_INVALID_INPUT,
                               "does not broadcast to the shape that the indices pick");
  }
  if (!may_visit(sizes, rank, self, values)) {
    return args.argument_error(kIndices, HUSK_UNSUPPORTED, "selects more than 2^36 elements");
  }
  const Loop<2> loop = kept_loop(args, self, s, strides);
  if (!accumulate) {
    husk_status status = HUSK_OK;
    visit_bytes(dtype_bytes(self.dtype), [&](auto tag) {
      using T = typename decltype(tag)::type;
      status = each_position(args, self, s, strides, [&](int64_t to, int64_t from) {
        each(loop, [&](const int64_t(&at)[2]) {
          writable<T>(self)[to + at[0]] = data_of<T>(values)[from + at[1]];
        });
      });
    });
    return status;
  }
  husk_status status = HUSK_OK;
  const bool supported = visit<Everything>(self.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    status = each_position(args, self, s, strides, [&](int64_t to, int64_t from) {
      add_slice(loop, writable<T>(self), to, data_of<T>(values), from);
    });
  });
  return supported ? status : args.unsupported_dtype(self_at);
}

}  // namespace

husk_status index(const Arguments& args) {
  constexpr ArgumentsOf named("index");
  constexpr uint32_t kSelf = named["self"], kIndices = named["indices"], kOut = named["out"];
  HUSK_TRY(args.check_tensor(kSelf));
  HUSK_TRY(args.check_tensor(kOut));
  HUSK_TRY(args.check_same_dtype(kOut, kSelf));
  const husk_op_arg &self = args[kSelf], &out = args[kOut];
  Selection s;
  HUSK_TRY(select(args, kIndices, self, s));
  int64_t sizes[kMaxRank];
  int32_t rank = 0;
  HUSK_TRY(result_shape(args, self, s, sizes, rank));
  HUSK_TRY(args.check_tensor(kOut, rank, rank));
  for (int32_t d = 0; d < rank; ++d)
    HUSK_TRY(args.check_size(kOut, d, sizes[d], "what the indices pick"));
  const Loop<2> loop = kept_loop(args, self, s, out.strides);
  husk_status status = HUSK_OK;
  visit_bytes(dtype_bytes(self.dtype), [&](auto tag) {
    using T = typename decltype(tag)::type;
    status = each_position(args, self, s, out.strides, [&](int64_t from, int64_t to) {
      each(loop, [&](const int64_t(&at)[2]) {
        writable<T>(out)[to + at[1]] = data_of<T>(self)[from + at[0]];
      });
    });
  });
  return status;
}

husk_status index_sizes(const Arguments& args) {
  constexpr ArgumentsOf named("index_sizes");
  constexpr uint32_t kSelf = named["self"], kIndices = named["indices"], kSize = named["size"];
  HUSK_TRY(args.check_tensor(kSelf));
  HUSK_TRY(args.check_result(kSize));
  Selection s;
  HUSK_TRY(select(args, kIndices, args[kSelf], s));
  *static_cast<int64_t*>(args[kSize].data) = s.rank > 0 ? s.sizes[s.rank - 1] : 1;
  return HUSK_OK;
}

husk_status index_put_into(const Arguments& args) {
  constexpr ArgumentsOf named("index_put_into");
  constexpr uint32_t kSelf = named["self"];
  return put(args, kSelf);
}

husk_status index_put(const Arguments& args) {
  constexpr ArgumentsOf named("index_put");
  constexpr uint32_t kSelf = named["self"], kOut = named["out"];
  HUSK_TRY(copy_elements(args, kOut, kSelf));
  return put(args, kOut);
}

}  // namespace husk::host
