// aten::sort and aten::topk. Neither allocates. Long rows are sorted digit by digit in the row of
// index results, if its elements are adjacent. In other rows 32-bit keys are sorted in the row of
// index results itself, with the key above the index in each number, and wider keys are sorted
// through the indices. The index breaks ties, so every sort is stable. Another thread may change
// the keys and the results meanwhile, so an index that is read from the results is checked before
// it is used.
#include <algorithm>
#include <functional>
#include <iterator>

#include "contracts.h"
#include "core/arguments.h"
#include "core/heap.h"
#include "core/loop.h"
#include "core/radix_sort.h"
#include "core/sort_key.h"
#include "core/sort_range.h"

namespace husk::host {

namespace {

// An iterator over elements that lie `stride` apart, for std::sort.
template <class T>
class Strided {
 public:
  using iterator_category = std::random_access_iterator_tag;
  using value_type = T;
  using difference_type = int64_t;
  using pointer = T*;
  using reference = T&;

  Strided(T* start, int64_t step) : at(start), stride(step) {}
  T& operator*() const { return *at; }
  T& operator[](int64_t i) const { return at[i * stride]; }
  Strided& operator++() { return *this += 1; }
  Strided& operator--() { return *this += -1; }
  Strided operator++(int) {
    const Strided old = *this;
    *this += 1;
    return old;
  }
  Strided operator--(int) {
    const Strided old = *this;
    *this += -1;
    return old;
  }
  Strided& operator+=(int64_t n) {
    at += n * stride;
    return *this;
  }
  Strided& operator-=(int64_t n) { return *this += -n; }
  friend Strided operator+(Strided a, int64_t n) { return a += n; }
  friend Strided operator-(Strided a, int64_t n) { return a += -n; }
  friend int64_t operator-(const Strided& a, const Strided& b) { return (a.at - b.at) / a.stride; }
  friend bool operator==(const Strided& a, const Strided& b) { return a.at == b.at; }
  friend bool operator!=(const Strided& a, const Strided& b) { return a.at != b.at; }
  friend bool operator<(const Strided& a, const Strided& b) { return b - a > 0; }

 private:
  T* at;
  int64_t stride;
};

// A row of keys. `flip` inverts the keys for a descending order.
struct SortRow {
  Cancellation& cancellation;
  Keys keys;
  const unsigned char* data;
  int64_t stride, count;
  uint64_t flip;

  uint64_t operator[](int64_t i) const { return keys.read(data, i * stride) ^ flip; }
  uint64_t operator()(int64_t i) const { return (*this)[i]; }
};

constexpr int64_t kMaxPairs = 2048;  // pairs that are sorted on the stack

// Sorts 32-bit keys in the memory of the indices.
template <class Iterator>
void sort_packed(const SortRow& row, Iterator begin) {
  each_index(row.cancellation, row.count,
             [&](int64_t i) { begin[i] = row[i] << 32 | static_cast<uint64_t>(i); });
  sort_range(row.cancellation, begin, row.count, std::less<uint64_t>());
  each_index(row.cancellation, row.count, [&](int64_t i) { begin[i] &= 0xffffffff; });
}

// An index that was in the results; 0 if it is not one of the row.
int64_t index_in(uint64_t stored, int64_t count) {
  const auto index = static_cast<int64_t>(stored);
  return is_within(index, count) ? index : 0;
}

// Sorts at most kMaxPairs indices by the keys that they point to.
[[gnu::noinline]] void sort_pairs(const SortRow& row, const Strided<uint64_t>& begin,
                                  int64_t count) {
  Pair pairs[kMaxPairs];
  for (int64_t i = 0; i < count; ++i) {
    const int64_t index = index_in(read_once(&begin[i]), row.count);
    pairs[i] = {row[index], index};
  }
  std::sort(pairs, pairs + count);
  for (int64_t i = 0; i < count; ++i) begin[i] = static_cast<uint64_t>(pairs[i].index);
}

// Sorts the indices by the keys that they point to.
void sort_indirect(const SortRow& row, uint64_t* indices, int64_t stride) {
  const Strided<uint64_t> begin(indices, stride);
  each_index(row.cancellation, row.count, [&](int64_t i) { begin[i] = static_cast<uint64_t>(i); });
  const auto less = [&](uint64_t a, uint64_t b) {
    const uint64_t left = row[index_in(a, row.count)], right = row[index_in(b, row.count)];
    return left != right ? left < right : a < b;
  };
  sort_range(row.cancellation, begin, row.count, less, kMaxPairs,
             [&](const Strided<uint64_t>& first, int64_t count) { sort_pairs(row, first, count); });
}

// From so many elements on it is faster than sorting on the stack.
constexpr int64_t kLeastDigits = 512;

// Sorts a row of elements of type T digit by digit. The type is known here, so that each key is a
// few instructions.
template <class T>
[[gnu::noinline]] void sort_digits(const SortRow& row, uint64_t* indices) {
  const T* const data = reinterpret_cast<const T*>(row.data);
  const auto key = [&](int64_t i) {
    return key_of<Value<T>>(get(data + i * row.stride)) ^ row.flip;
  };
  radix_sort(row.cancellation, row.count, row.keys.wide() ? 64 : 32, key, indices);
}

void sort_row(const SortRow& row, int32_t dtype, uint64_t* indices, int64_t stride) {
  if (row.count < 2) {
    if (row.count == 1) *indices = 0;
    return;
  }
  if (stride == 1 && row.count >= kLeastDigits && row.count >> 32 == 0) {
    visit<AnyReal | WideUnsigned>(
        dtype, [&](auto tag) { sort_digits<typename decltype(tag)::type>(row, indices); });
    return;
  }
  if (!row.keys.wide() && row.count >> 32 == 0) {
    return stride == 1 ? sort_packed(row, indices)
                       : sort_packed(row, Strided<uint64_t>(indices, stride));
  }
  sort_indirect(row, indices, stride);
}

// ---- the first k ----

// A row of 32-bit keys must have fewer than 2^32 elements, so that the heap lies in the indices. A
// heap of 64-bit keys takes the values, too, which have 64 bits each.
void first_k_row(const SortRow& row, uint64_t* indices, int64_t stride, void* values,
                 int64_t values_stride, int64_t k) {
  if (row.keys.wide()) {
    return first_k(row.cancellation, row.count, row,
                   WideHeap{indices, stride, static_cast<uint64_t*>(values), values_stride}, k);
  }
  const PackedHeap heap{indices, stride};
  first_k(row.cancellation, row.count, row, heap, k);
  each_index(row.cancellation, k,
             [&](int64_t i) { indices[i * stride] = static_cast<uint64_t>(heap.get(i).index); });
}

// ---- rows ----

// values[i] = row[indices[i]].
void gather_values(const SortRow& row, const uint64_t* indices, int64_t indices_stride,
                   void* values, int64_t values_stride, int64_t count, int64_t bytes) {
  visit_bytes(bytes, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* const from = reinterpret_cast<const T*>(row.data);
    each_index(row.cancellation, count, [&](int64_t i) {
      const int64_t index = index_in(read_once(indices + i * indices_stride), row.count);
      static_cast<T*>(values)[i * values_stride] = from[index * row.stride];
    });
  });
}

// The positions of the operands among the arguments.
struct Operands {
  ArgumentPlace self, values, indices;
  int32_t dim;
};

// Checks the outputs, which have `length` elements along the dimension.
husk_status check_outputs(const Arguments& args, const Operands& at, int64_t length) {
  HUSK_TRY(args.check_tensor(at.values, args[at.self].rank, args[at.self].rank));
  HUSK_TRY(args.check_tensor(at.indices, args[at.self].rank, args[at.self].rank));
  HUSK_TRY(args.check_same_dtype(at.values, at.self));
  HUSK_TRY(args.check_dtype(at.indices, HUSK_I64));
  for (int32_t d = 0; d < args[at.self].rank; ++d) {
    const int64_t expected = d == at.dim ? length : args[at.self].sizes[d];
    HUSK_TRY(args.check_size(at.values, d, expected, "the result's size"));
    HUSK_TRY(args.check_size(at.indices, d, expected, "the result's size"));
  }
  return HUSK_OK;
}

// Calls run(row, indices, stride of indices, values, stride of values) for each row along the
// dimension. run() writes the row's indices; then the values are gathered at these indices.
template <class Run>
husk_status each_sorted(const Arguments& args, const Operands& at, int64_t length, bool descending,
                        Run run) {
  const husk_op_arg &self = args[at.self], &values = args[at.values], &indices = args[at.indices];
  SortRow row{args.cancellation, {}, nullptr, 0, 0, 0};
  if (!keys_of(self.dtype, row.keys)) return args.unsupported_dtype(at.self);
  row.flip = descending ? row.keys.mask : 0;
  row.count = self.rank > 0 ? self.sizes[at.dim] : 1;
  row.stride = self.rank > 0 ? self.strides[at.dim] : 1;
  const int64_t values_stride = self.rank > 0 ? values.strides[at.dim] : 1;
  const int64_t indices_stride = self.rank > 0 ? indices.strides[at.dim] : 1;
  const int64_t bytes = dtype_bytes(self.dtype);
  if (length == 0) return HUSK_OK;
  Loop<3> loop(args);
  loop.shape(self);
  loop.add(1, values);
  loop.add(2, indices);
  if (self.rank > 0) loop.drop(at.dim);
  each(loop, [&](const int64_t(&element)[3]) {
    row.data = data_of<unsigned char>(self) + element[0] * bytes;
    auto* index_row = writable<uint64_t>(indices) + element[2];
    void* value_row = writable<unsigned char>(values) + element[1] * bytes;
    run(row, index_row, indices_stride, value_row, values_stride);
    gather_values(row, index_row, indices_stride, value_row, values_stride, length, bytes);
  });
  return HUSK_OK;
}

// `at` has the places of the tensors.
husk_status sort_along(const Arguments& args, Operands at, ArgumentPlace dim_at,
                       ArgumentPlace descending_at) {
  HUSK_TRY(args.check_tensor(at.self));
  bool descending = false;
  HUSK_TRY(args.get_dim(dim_at, args[at.self].rank, at.dim));
  HUSK_TRY(args.get_bool(descending_at, descending));
  const int64_t length = args[at.self].rank > 0 ? args[at.self].sizes[at.dim] : 1;
  HUSK_TRY(check_outputs(args, at, length));
  const int32_t dtype = args[at.self].dtype;
  return each_sorted(args, at, length, descending,
                     [=](const SortRow& row, uint64_t* indices, int64_t stride, void*, int64_t) {
                       sort_row(row, dtype, indices, stride);
                     });
}

}  // namespace

husk_status sort_stable(const Arguments& args) {
  constexpr ArgumentsOf named("sort_stable");
  constexpr uint32_t kSelf = named["self"], kDim = named["dim"], kDescending = named["descending"],
                     kValues = named["values"], kIndices = named["indices"];
  return sort_along(args, {kSelf, kValues, kIndices, 0}, kDim, kDescending);
}

husk_status sort(const Arguments& args) {
  constexpr ArgumentsOf named("sort");
  constexpr uint32_t kSelf = named["self"], kDim = named["dim"], kDescending = named["descending"],
                     kValues = named["values"], kIndices = named["indices"];
  return sort_along(args, {kSelf, kValues, kIndices, 0}, kDim, kDescending);
}

husk_status topk(const Arguments& args) {
  constexpr ArgumentsOf named("topk");
  constexpr uint32_t kSelf = named["self"], kK = named["k"], kDim = named["dim"],
                     kLargest = named["largest"], kValues = named["values"],
                     kIndices = named["indices"];
  HUSK_TRY(args.check_tensor(kSelf));
  Operands at{kSelf, kValues, kIndices, 0};
  int64_t k = 0;
  bool largest = false;
  HUSK_TRY(args.get_int(kK, k));
  HUSK_TRY(args.get_dim(kDim, args[kSelf].rank, at.dim));
  HUSK_TRY(args.get_bool(kLargest, largest));
  const int64_t length = args[kSelf].rank > 0 ? args[kSelf].sizes[at.dim] : 1;
  if (k < 0 || k > length)
    return args.argument_error(kK, HUSK_INVALID_INPUT,
                               "is not between 0 and the size of the dimension");
  if (args[kSelf].rank == 0) k = 1;  // the result of a scalar has one element for every k
  HUSK_TRY(check_outputs(args, at, k));
  if (length >> 32 != 0 && dtype_bytes(args[kSelf].dtype) < 8) {
    return args.argument_error(kSelf, HUSK_UNSUPPORTED,
                               "has 2^32 or more elements along the dimension");
  }
  return each_sorted(
      args, at, k, largest,
      [&](const SortRow& row, uint64_t* indices, int64_t stride, void* values,
          int64_t values_stride) { first_k_row(row, indices, stride, values, values_stride, k); });
}

}  // namespace husk::host
