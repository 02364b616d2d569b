// aten::kthvalue, median, nanmedian and mode. An element of a certain rank is found by counting
// digits of the keys, which needs no memory. mode sorts short rows on the stack.
#include <algorithm>
#include <initializer_list>

#include "contracts.h"
#include "core/arguments.h"
#include "core/loop.h"
#include "core/sort_key.h"
#include "core/sort_range.h"
#include "error.h"
#include "reduce/distinct.h"

namespace husk::host {

namespace {

struct Row {
  Cancellation& cancellation;
  void* scratch;
  Keys keys;
  const void* data;
  int64_t stride, count;

  uint64_t operator[](int64_t i) const { return keys.read(data, i * stride); }
  template <class F>
  void operator()(F f) const {
    each_index(cancellation, count, [&](int64_t i) { f((*this)[i]); });
  }
  // The first and the last place of a key, which the row has.
  int64_t find(uint64_t key) const {
    int64_t place = 0;
    each_index_while(cancellation, count, [&](int64_t i) {
      place = i;
      return (*this)[i] != key;
    });
    return place;
  }
  int64_t find_last(uint64_t key) const {
    int64_t place = 0;
    each_index_while(cancellation, count, [&](int64_t after) {
      place = count - 1 - after;
      return (*this)[place] != key;
    });
    return place;
  }
};

// The key of NaN, the largest key of a floating dtype.
uint64_t nan_key(const Keys& keys) { return keys.mask; }

// Calls pick(row), which returns an index, for each row along dim, and writes that index and the
// element there.
template <class Pick>
husk_status pick_each_row(const Arguments& args, int32_t dim, ArgumentPlace keep_at,
                          ArgumentPlace values_at, ArgumentPlace indices_at, Pick pick) {
  constexpr ArgumentsOf named("kthvalue", "median_dim", "mode", "nanmedian_dim");
  constexpr uint32_t kSelf = named["self"];
  bool keep = false;
  HUSK_TRY(args.get_bool(keep_at, keep));
  const husk_op_arg &self = args[kSelf], &values = args[values_at], &indices = args[indices_at];
  const int32_t rank = self.rank == 0 || keep ? self.rank : self.rank - 1;
  HUSK_TRY(args.check_tensor(values_at, rank, rank));
  HUSK_TRY(args.check_tensor(indices_at, rank, rank));
  HUSK_TRY(args.check_same_dtype(values_at, kSelf));
  HUSK_TRY(args.check_dtype(indices_at, HUSK_I64));
  Loop<3> loop(args);
  loop.shape(self);
  for (int32_t d = 0, to = 0; d < self.rank; ++d) {
    if (d == dim && !keep) {
      loop.strides[1][d] = loop.strides[2][d] = 0;
      continue;
    }
    for (uint32_t at : {values_at, indices_at})
      HUSK_TRY(args.check_size(at, to, d == dim ? 1 : self.sizes[d], "what is left of self"));
    loop.strides[1][d] = values.strides[to];
    loop.strides[2][d] = indices.strides[to++];
  }
  Row row{args.cancellation, args.scratch(), {}, nullptr, 0, 0};
  if (!keys_of(self.dtype, row.keys)) return args.unsupported_dtype(kSelf);
  row.count = self.rank > 0 ? self.sizes[dim] : 1;
  row.stride = self.rank > 0 ? self.strides[dim] : 1;
  if (self.rank > 0) loop.drop(dim);
  if (row.count == 0) {
    if (numel(values) == 0) return HUSK_OK;
    return args.argument_error(kSelf, HUSK_INVALID_INPUT, "has no elements along the dimension");
  }
  const int64_t bytes = dtype_bytes(self.dtype);
  each(loop, [&](const int64_t(&at)[3]) {
    row.data = data_of<unsigned char>(self) + at[0] * bytes;
    const int64_t index = pick(row);
    __builtin_memcpy(writable<unsigned char>(values) + at[1] * bytes,
                     data_of<unsigned char>(self) + (at[0] + index * row.stride) * bytes,
                     static_cast<size_t>(bytes));
    writable<int64_t>(indices)[at[2]] = index;
  });
  return HUSK_OK;
}

// The index of the median of a row. If the row has a NaN, that is the median, unless NaNs are
// ignored.
int64_t median_of(const Row& row, bool floats, bool ignore) {
  const uint64_t nan = nan_key(row.keys);
  int64_t nans = 0, first = -1;
  each_index(row.cancellation, floats ? row.count : 0, [&](int64_t i) {
    if (row[i] == nan && nans++ == 0) first = i;
  });
  if (nans > 0 && (!ignore || nans == row.count)) return first;
  const int64_t rank = (row.count - nans - 1) / 2;
  return row.find(select_key(row, row.keys.mask, rank));
}

husk_status median_along(const Arguments& args, bool ignore) {
  constexpr ArgumentsOf named("median_dim", "nanmedian_dim");
  constexpr uint32_t kSelf = named["self"], kDim = named["dim"], kKeepdim = named["keepdim"],
                     kValues = named["values"], kIndices = named["indices"];
  HUSK_TRY(args.check_tensor(kSelf));
  int32_t dim = 0;
  HUSK_TRY(args.get_dim(kDim, args[kSelf].rank, dim));
  return pick_each_row(args, dim, kKeepdim, kValues, kIndices, [&](const Row& row) {
    return median_of(row, floating(args[kSelf].dtype), ignore);
  });
}

// The median of all elements.
husk_status median_all(const Arguments& args, bool ignore) {
  constexpr ArgumentsOf named("median", "nanmedian");
  constexpr uint32_t kSelf = named["self"], kOut = named["out"];
  HUSK_TRY(args.check_tensor(kSelf));
  HUSK_TRY(args.check_tensor(kOut, 0, 0));
  HUSK_TRY(args.check_same_dtype(kOut, kSelf));
  const husk_op_arg &self = args[kSelf], &out = args[kOut];
  Keys keys;
  if (!keys_of(self.dtype, keys)) return args.unsupported_dtype(kSelf);
  Loop<1> loop(args);
  loop.shape(self);
  loop.merge();
  const int64_t count = numel(self), bytes = dtype_bytes(self.dtype);
  const uint64_t nan = nan_key(keys);
  int64_t nans = 0;
  if (floating(self.dtype))
    each(loop, [&](const int64_t(&at)[1]) { nans += keys.read(self.data, at[0]) == nan; });
  if (count == 0) {
    if (!floating(self.dtype))
      return args.argument_error(kSelf, HUSK_INVALID_INPUT, "has no elements");
    visit<Floats | Halves>(self.dtype, [&](auto tag) {
      set(writable<typename decltype(tag)::type>(out), __builtin_nanf(""));
    });
    return HUSK_OK;
  }
  uint64_t key = nan;
  if (nans == 0 || (ignore && nans < count)) {
    key = select_key(
        [&](auto f) { each(loop, [&](const int64_t(&at)[1]) { f(keys.read(self.data, at[0])); }); },
        keys.mask, (count - nans - 1) / 2);
  }
  each_while(loop, [&](const int64_t(&at)[1]) {
    if (keys.read(self.data, at[0]) != key) return true;
    __builtin_memcpy(out.data, data_of<unsigned char>(self) + at[0] * bytes,
                     static_cast<size_t>(bytes));
    return false;
  });
  return HUSK_OK;
}

constexpr int64_t kMaxSortedKeys = kBatchScratch / int64_t{sizeof(uint64_t)};
static_assert(kMaxSortedKeys >= 16384);

// The most frequent key of a row; the smallest one if several are equally frequent.
uint64_t short_mode_key(const Row& row) {
  uint64_t best = 0;
  int64_t best_count = 0;
  if (row.cancellation.ends(kSortWork * row.count)) return 0;
  auto* const sorted = static_cast<uint64_t*>(row.scratch);
  for (int64_t i = 0; i < row.count; ++i) sorted[i] = row[i];
  std::sort(sorted, sorted + row.count);
  for (int64_t i = 0, start = 0; i < row.count; ++i) {
    if (sorted[i] != sorted[start]) start = i;
    if (i - start + 1 <= best_count) continue;
    best_count = i - start + 1;
    best = sorted[i];
  }
  return best;
}

// The most frequent key of a row whose keys do not fit into scratch memory. Two passes over the row
// find and count the next few thousand distinct keys.
uint64_t long_mode_key(const Row& row) {
  Batch& batch = *static_cast<Batch*>(row.scratch);
  auto* const counts = reinterpret_cast<int64_t*>(static_cast<char*>(row.scratch) + kBatchScratch);
  uint64_t best = 0, last = 0;
  int64_t best_count = 0;
  for (bool first = true;; first = false) {
    batch.find(row, first, last, 0, false);
    if (batch.count == 0) return best;
    const uint64_t highest = batch.keys[batch.count - 1];
    std::fill(counts, counts + kBatchSize, 0);
    row([&](uint64_t key) {
      if ((first || key > last) && key <= highest) ++counts[batch.index_of(key)];
    });
    for (int64_t i = 0; i < batch.count; ++i) {
      if (counts[i] <= best_count) continue;
      best_count = counts[i];
      best = batch.keys[i];
    }
    if (batch.count < kBatchSize) return best;
    last = highest;
  }
}

}  // namespace

husk_status kthvalue(const Arguments& args) {
  constexpr ArgumentsOf named("kthvalue");
  constexpr uint32_t kSelf = named["self"], kK = named["k"], kDim = named["dim"],
                     kKeepdim = named["keepdim"], kValues = named["values"],
                     kIndices = named["indices"];
  HUSK_TRY(args.check_tensor(kSelf));
  int64_t k = 0;
  int32_t dim = 0;
  HUSK_TRY(args.get_int(kK, k));
  HUSK_TRY(args.get_dim(kDim, args[kSelf].rank, dim));
  const int64_t length = args[kSelf].rank > 0 ? args[kSelf].sizes[dim] : 1;
  if (k < 1 || k > length)
    return args.argument_error(kK, HUSK_INVALID_INPUT,
                               "is not between 1 and the size of the dimension");
  return pick_each_row(args, dim, kKeepdim, kValues, kIndices, [&](const Row& row) {
    return row.find(select_key(row, row.keys.mask, k - 1));
  });
}

husk_status median(const Arguments& args) { return median_all(args, false); }
husk_status nanmedian(const Arguments& args) { return median_all(args, true); }
husk_status median_dim(const Arguments& args) { return median_along(args, false); }
husk_status nanmedian_dim(const Arguments& args) { return median_along(args, true); }

husk_status mode(const Arguments& args) {
  constexpr ArgumentsOf named("mode");
  constexpr uint32_t kSelf = named["self"], kDim = named["dim"], kKeepdim = named["keepdim"],
                     kValues = named["values"], kIndices = named["indices"];
  HUSK_TRY(args.check_tensor(kSelf));
  int32_t dim = 0;
  HUSK_TRY(args.get_dim(kDim, args[kSelf].rank, dim));
  return pick_each_row(args, dim, kKeepdim, kValues, kIndices, [&](const Row& row) {
    const uint64_t key = row.count <= kMaxSortedKeys ? short_mode_key(row) : long_mode_key(row);
    return row.find_last(key);  // as in PyTorch, the last of equal elements
  });
}

}  // namespace husk::host
