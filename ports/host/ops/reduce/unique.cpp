// aten::_unique2, unique_consecutive and unique_dim. The distinct elements of a tensor are found in
// batches, in ascending order. Each pass over the tensor takes the next few thousand of them, so
// that no copy of the tensor is needed. With a workspace, _unique2 sorts the keys of all elements.
#include <algorithm>

#include "contracts.h"
#include "core/arguments.h"
#include "core/loop.h"
#include "core/radix_sort.h"
#include "core/sort_key.h"
#include "core/workspace.h"
#include "error.h"
#include "reduce/distinct.h"

namespace husk::host {

namespace {

// The outputs of _unique2: the distinct elements, the number of the distinct element for each
// element, and the number of occurrences of each distinct element.
struct Request {
  const Arguments& args;
  const husk_op_arg *self, *out, *inverse, *counts;  // all but `self` may be null
};

// Ascending distinct keys, and the numbers of their elements among the results.
struct FoundKeys {
  const uint64_t* keys;
  int64_t count, first;
  RecentKeys& recent;
};

// Writes the elements with these keys to the output, at most up to `capacity`. Returns false
// without a write if a key does not say all of its element: it may be that of 0 or of -0.
bool write_keys(const FoundKeys& found, const husk_op_arg& out, int64_t capacity) {
  const int64_t count = std::min(found.count, std::max<int64_t>(capacity - found.first, 0));
  bool complete = false;
  visit<AnyReal | WideUnsigned>(out.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    complete = !is_floating<T> ||
               !std::binary_search(found.keys, found.keys + found.count, key_of(Value<T>(0)));
    for (int64_t i = 0; complete && i < count; ++i) {
      set(writable<T>(out) + (found.first + i) * out.strides[0],
          value_of_key<Value<T>>(found.keys[i]));
    }
  });
  return complete;
}

// Records the distinct elements of a request in its outputs, up to `capacity` of them.
struct Recorder {
  const Request& r;
  const Keys& keys;
  const int64_t capacity;
  Loop<2> pairs;  // operands: self, inverse

  Recorder(const Request& request, const Keys& all_keys, int64_t most)
      : r(request), keys(all_keys), capacity(most), pairs(request.args) {
    pairs.shape(*r.self);
    pairs.add(1, r.inverse ? *r.inverse : *r.self);
  }
  bool writes() const { return r.out || r.inverse || r.counts; }
  void record(int64_t number, const int64_t (&at)[2]) const {
    if (number >= capacity) return;
    if (r.out) {
      const int64_t bytes = dtype_bytes(r.self->dtype);
      __builtin_memcpy(writable<unsigned char>(*r.out) + number * r.out->strides[0] * bytes,
                       data_of<unsigned char>(*r.self) + at[0] * bytes, static_cast<size_t>(bytes));
    }
    if (r.counts) writable<int64_t>(*r.counts)[number * r.counts->strides[0]]++;
    if (r.inverse) writable<int64_t>(*r.inverse)[at[1]] = number;
  }
  // Records the elements whose keys lie between those of `found`.
  void record(const FoundKeys& found) const {
    if (!writes() || found.count == 0) return;
    if (!r.inverse && !r.counts && write_keys(found, *r.out, capacity)) return;
    const bool floats = floating(r.self->dtype);
    const uint64_t least = found.keys[0], most = found.keys[found.count - 1];
    each(pairs, [&](const int64_t(&at)[2]) {
      const uint64_t key = keys.read(r.self->data, at[0]);
      if (key < least || key > most || (floats && key == keys.mask)) return;
      record(found.first + found.recent.index_of(key, found.keys, found.count), at);
    });
  }
  // Records each NaN as an element that equals no other. Returns the number of all elements.
  int64_t record_nans(int64_t total) const {
    if (!floating(r.self->dtype)) return total;
    each(pairs, [&](const int64_t(&at)[2]) {
      if (keys.read(r.self->data, at[0]) != keys.mask) return;
      if (writes()) record(total, at);
      ++total;
    });
    return total;
  }
};

// Writes the outputs of the request for at most `capacity` distinct elements. Returns the number of
// distinct elements. Goes through all batches.
int64_t find_unique(const Request& r, const Keys& keys, int64_t capacity) {
  Batch& batch = *static_cast<Batch*>(r.args.scratch());
  const husk_op_arg& self = *r.self;
  const Recorder recorder(r, keys, capacity);
  Loop<1> elements(r.args);
  elements.shape(self);
  const auto each_key = [&](auto f) {
    each(elements, [&](const int64_t(&at)[1]) { f(keys.read(self.data, at[0])); });
  };
  int64_t total = 0;
  uint64_t last = 0;
  // There are at most as many as there are elements, unless another thread changes self.
  for (bool first = true; total <= numel(self); first = false) {
    batch.find(each_key, first, last, keys.mask, floating(self.dtype));
    if (batch.count == 0) break;
    recorder.record({batch.keys, batch.count, total, batch.recent});
    total += batch.count;
    last = batch.keys[batch.count - 1];
    if (batch.count < kBatchSize) break;
  }
  return recorder.record_nans(total);
}

// Does what find_unique does. The workspace has room for two keys of each element.
int64_t sort_unique(const Request& r, const Keys& keys, int64_t capacity, uint64_t* workspace) {
  RecentKeys& recent = static_cast<Batch*>(r.args.scratch())->recent;
  const husk_op_arg& self = *r.self;
  const bool floats = floating(self.dtype);
  Loop<1> elements(r.args);
  elements.shape(self);
  int64_t count = 0;
  recent.forget();
  each(elements, [&](const int64_t(&at)[1]) {
    const uint64_t key = keys.read(self.data, at[0]);
    if (recent.meets(key) && !(floats && key == keys.mask)) workspace[count++] = key;
  });
  uint64_t* const sorted = radix_sort_keys(r.args.cancellation, count, workspace,
                                           workspace + numel(self));
  int64_t distinct = 0;
  each_index(r.args.cancellation, count, [&](int64_t i) {
    if (i == 0 || sorted[i] != sorted[i - 1]) sorted[distinct++] = sorted[i];
  });
  recent.forget();
  const Recorder recorder(r, keys, capacity);
  recorder.record({sorted, distinct, 0, recent});
  return recorder.record_nans(distinct);
}

// Calls the one of both that the arguments allow, and writes the number of distinct elements.
husk_status run_unique(const Request& r, const Keys& keys, int64_t capacity,
                       ArgumentPlace workspace_at, int64_t& total) {
  if (r.args.none(workspace_at)) {
    total = find_unique(r, keys, capacity);
    return HUSK_OK;
  }
  Need need;
  need.add(2, numel(*r.self));
  HUSK_TRY(check_workspace(r.args, workspace_at, need));
  WorkspaceMemory memory(r.args, workspace_at);
  total = sort_unique(r, keys, capacity, memory.vector<uint64_t>(need.total));
  return HUSK_OK;
}

// Reads an optional output. `out` becomes null if the output is not wanted.
husk_status get_optional_output(const Arguments& args, ArgumentPlace at, bool wanted,
                                const husk_op_arg*& out) {
  out = nullptr;
  if (!wanted) return HUSK_OK;
  HUSK_TRY(args.check_tensor(at));
  HUSK_TRY(args.check_dtype(at, HUSK_I64));
  out = &args[at];
  return HUSK_OK;
}

// Sets all counts to 0, if the output exists.
void clear_counts(const Arguments& args, const husk_op_arg* counts) {
  each_index(args.cancellation, counts ? counts->sizes[0] : 0,
             [&](int64_t i) { writable<int64_t>(*counts)[i * counts->strides[0]] = 0; });
}

// ---- slices: unique_dim and unique_consecutive ----

// The offset of element `number`, counted in the order of the dimensions.
int64_t offset_at(const husk_op_arg& tensor, int64_t number) {
  int64_t offset = 0;
  for (int32_t d = tensor.rank - 1; d >= 0; --d) {
    offset += number % tensor.sizes[d] * tensor.strides[d];
    number /= tensor.sizes[d];
  }
  return offset;
}

// The slices across one dimension, or the single elements of the flattened tensor.
struct Slices {
  const Arguments& args;
  const husk_op_arg& self;
  Keys keys;
  Loop<1> inside;  // over the elements of a slice
  int64_t count, stride;
  bool flat;
  bool floats;

  int64_t start(int64_t slice) const { return flat ? offset_at(self, slice) : slice * stride; }
  // Negative, 0 or positive for the order of slices a and b. Keys of NaN are equal here, so that
  // the order is total.
  int compare(int64_t a, int64_t b) const {
    int order = 0;
    const int64_t left = start(a), right = start(b);
    each_while(inside, [&](const int64_t(&at)[1]) {
      const uint64_t x = keys.read(self.data, left + at[0]),
                     y = keys.read(self.data, right + at[0]);
      order = x < y ? -1 : x > y ? 1 : 0;
      return order == 0;
    });
    return order;
  }
  // True if the slices are equal. A slice with NaN equals no slice.
  bool same(int64_t a, int64_t b) const {
    const int64_t left = start(a), right = start(b);
    return each_while(inside, [&](const int64_t(&at)[1]) {
      const uint64_t x = keys.read(self.data, left + at[0]),
                     y = keys.read(self.data, right + at[0]);
      return x == y && !(floats && x == keys.mask);
    });
  }
};

husk_status slices_of(const Arguments& args, ArgumentPlace dim_at, Slices& s) {
  constexpr ArgumentsOf named("unique_consecutive", "unique_consecutive_sizes", "unique_dim",
                              "unique_dim_sizes");
  constexpr uint32_t kSelf = named["self"];
  if (!keys_of(s.self.dtype, s.keys)) return args.unsupported_dtype(kSelf);
  s.floats = floating(s.self.dtype);
  s.flat = args.none(dim_at);
  s.count = numel(s.self);
  s.stride = 0;
  if (s.flat) return HUSK_OK;
  int32_t dim = 0;
  HUSK_TRY(args.get_dim(dim_at, s.self.rank, dim));
  s.inside.shape(s.self);
  if (s.self.rank > 0) {
    s.count = s.self.sizes[dim];
    s.stride = s.self.strides[dim];
    s.inside.drop(dim);
  }
  for (int32_t d = 0; d < s.inside.rank; ++d)  // as in PyTorch
    if (s.inside.sizes[d] == 0 && s.count > 0)
      return args.argument_error(kSelf, HUSK_INVALID_INPUT, "has no elements in a slice");
  return HUSK_OK;
}

// Copies slice `from` to position `to` of the output.
void copy_slice(const Slices& s, int64_t from, const husk_op_arg& out, int32_t dim, int64_t to) {
  Loop<2> loop(s.args);
  if (!s.flat && s.self.rank > 0) {
    loop.shape(s.self);
    loop.add(1, out);
    loop.drop(dim);
  }
  const int64_t bytes = dtype_bytes(out.dtype), step = out.rank > 0 ? out.strides[dim] : 0,
                start = s.start(from);
  each(loop, [&](const int64_t(&at)[2]) {
    __builtin_memcpy(writable<unsigned char>(out) + (to * step + at[1]) * bytes,
                     data_of<unsigned char>(s.self) + (start + at[0]) * bytes,
                     static_cast<size_t>(bytes));
  });
}

// Indices of the arguments: the dimension, the flags for the optional outputs, and the outputs.
struct ArgumentIndices {
  ArgumentPlace dim, wants_inverse, wants_counts, out, inverse, counts;

  constexpr explicit ArgumentIndices(const ArgumentsOf& named)
      : dim(named["dim"]),
        wants_inverse(named["return_inverse"]),
        wants_counts(named["return_counts"]),
        out(named["out"]),
        inverse(named["inverse"]),
        counts(named["counts"]) {}
};

// The slices in ascending order. Equal slices keep their order. If the call is to end, the order is
// undefined. std::sort may leave its memory then, because the answers of `compare` contradict one
// another; a merge sort does not.
struct Order {
  uint32_t slices[kMaxSlices], merged[kMaxSlices];

  void sort(const Slices& s) {
    for (int64_t i = 0; i < s.count; ++i) slices[i] = static_cast<uint32_t>(i);
    for (int64_t width = 1; width < s.count; width *= 2) {
      for (int64_t first = 0; first < s.count; first += 2 * width) merge(s, first, width);
      std::copy(merged, merged + s.count, slices);
    }
  }

 private:
  // Merges the `width` slices from `first` on with the `width` slices after them.
  void merge(const Slices& s, int64_t first, int64_t width) {
    const int64_t middle = std::min(first + width, s.count),
                  end = std::min(middle + width, s.count);
    int64_t left = first, right = middle;
    for (int64_t to = first; to < end; ++to) {
      const bool takes_left = right == end ||
                              (left < middle && s.compare(slices[left], slices[right]) <= 0);
      merged[to] = slices[takes_left ? left++ : right++];
    }
  }
};

static_assert(sizeof(Order) <= kSlicesScratch, "core/scratch.h");

// Calls f(slice, group, whether the slice is the first one of its group) for each slice. Adjacent
// equal slices form a group.
template <class F>
void each_group(const Slices& s, const Order* order, F f) {
  int64_t group = -1, previous = 0;
  each_index_while(s.args.cancellation, s.count, [&](int64_t i) {
    const int64_t slice = order ? order->slices[i] : i;
    const bool starts = i == 0 || !s.same(previous, slice);
    if (starts && s.args.cancellation.ended()) return false;  // the slices may be the same
    group += starts;
    f(slice, group, starts);
    previous = slice;
    return true;
  });
}

// Calls f as each_group does, for slices that are first sorted if `sorted` is true.
template <class F>
husk_status each_sorted(const Arguments& args, const Slices& s, bool sorted, F f) {
  if (!sorted) {
    each_group(s, nullptr, f);
    return HUSK_OK;
  }
  if (s.count > kMaxSlices) {
    return fail(args.error, HUSK_UNSUPPORTED, "%s: self has %lld slices; it takes up to %lld",
                args.op, static_cast<long long>(s.count), static_cast<long long>(kMaxSlices));
  }
  Order& order = *static_cast<Order*>(args.scratch());
  order.sort(s);
  each_group(s, &order, f);
  return HUSK_OK;
}

// Counts the groups of equal slices.
husk_status count_slices(const Arguments& args, const Slices& s, bool sorted, int64_t& count) {
  count = 0;
  return each_sorted(args, s, sorted, [&](int64_t, int64_t, bool starts) { count += starts; });
}

// If `sorted`, all slices are compared, not only adjacent ones.
husk_status run_slices(const Arguments& args, const ArgumentIndices& p, bool sorted) {
  constexpr ArgumentsOf named("unique_consecutive", "unique_dim");
  constexpr uint32_t kSelf = named["self"];
  HUSK_TRY(args.check_tensor(kSelf));
  Slices s{args, args[kSelf], {}, Loop<1>(args), 0, 0, false, false};
  HUSK_TRY(slices_of(args, p.dim, s));
  bool wants_inverse = false, wants_counts = false;
  HUSK_TRY(args.get_bool(p.wants_inverse, wants_inverse));
  HUSK_TRY(args.get_bool(p.wants_counts, wants_counts));
  int32_t dim = 0;
  if (!s.flat) HUSK_TRY(args.get_dim(p.dim, args[kSelf].rank, dim));
  const husk_op_arg *inverse = nullptr, *counts = nullptr;
  HUSK_TRY(args.check_tensor(p.out, s.flat ? 1 : args[kSelf].rank, s.flat ? 1 : args[kSelf].rank));
  HUSK_TRY(args.check_same_dtype(p.out, kSelf));
  for (int32_t d = 0; !s.flat && d < args[kSelf].rank; ++d)
    if (d != dim) HUSK_TRY(args.check_size(p.out, d, args[kSelf].sizes[d], "a slice of self"));
  int64_t count = 0;
  const int64_t capacity = args[p.out].rank > 0 ? args[p.out].sizes[dim] : 1;
  HUSK_TRY(count_slices(args, s, sorted, count));
  if (count != capacity) return args.wrong_result_size(capacity, count);
  HUSK_TRY(get_optional_output(args, p.inverse, wants_inverse, inverse));
  HUSK_TRY(get_optional_output(args, p.counts, wants_counts, counts));
  if (inverse && numel(*inverse) != s.count)
    return args.argument_error(p.inverse, HUSK_INVALID_ARGUMENT, "is not as large as self");
  if (counts) HUSK_TRY(args.check_vector(p.counts, count, "one for each different one"));
  clear_counts(args, counts);
  bool complete = true;
  HUSK_TRY(each_sorted(args, s, sorted, [&](int64_t slice, int64_t group, bool starts) {
    if (group >= count) {  // another thread has changed self since the groups were counted
      complete = false;
      return;
    }
    if (starts) copy_slice(s, slice, args[p.out], dim, group);
    if (inverse) writable<int64_t>(*inverse)[offset_at(*inverse, slice)] = group;
    if (counts) writable<int64_t>(*counts)[group * counts->strides[0]]++;
  }));
  return complete ? husk_status{HUSK_OK} : args.tensor_changed();
}

husk_status count_result(const Arguments& args, ArgumentPlace dim_at, ArgumentPlace size_at,
                         bool sorted) {
  constexpr ArgumentsOf named("unique_consecutive_sizes", "unique_dim_sizes");
  constexpr uint32_t kSelf = named["self"];
  HUSK_TRY(args.check_tensor(kSelf));
  HUSK_TRY(args.check_result(size_at));
  Slices s{args, args[kSelf], {}, Loop<1>(args), 0, 0, false, false};
  HUSK_TRY(slices_of(args, dim_at, s));
  return count_slices(args, s, sorted, *static_cast<int64_t*>(args[size_at].data));
}

}  // namespace

husk_status unique(const Arguments& args) {
  constexpr ArgumentsOf named("unique");
  constexpr uint32_t kSelf = named["self"], kReturnInverse = named["return_inverse"],
                     kReturnCounts = named["return_counts"], kOut = named["out"],
                     kInverse = named["inverse"], kCounts = named["counts"],
                     kWorkspace = named["workspace"];
  HUSK_TRY(args.check_tensor(kSelf));
  HUSK_TRY(args.check_tensor(kOut, 1, 1));
  HUSK_TRY(args.check_same_dtype(kOut, kSelf));
  Keys keys;
  if (!keys_of(args[kSelf].dtype, keys)) return args.unsupported_dtype(kSelf);
  bool wants_inverse = false, wants_counts = false;
  HUSK_TRY(args.get_bool(kReturnInverse, wants_inverse));
  HUSK_TRY(args.get_bool(kReturnCounts, wants_counts));
  Request r{args, &args[kSelf], &args[kOut], nullptr, nullptr};
  HUSK_TRY(get_optional_output(args, kInverse, wants_inverse, r.inverse));
  HUSK_TRY(get_optional_output(args, kCounts, wants_counts, r.counts));
  if (r.inverse) HUSK_TRY(args.check_same_shape(kInverse, kSelf));
  const int64_t capacity = args[kOut].sizes[0];
  if (r.counts) HUSK_TRY(args.check_vector(kCounts, capacity, "one for each different element"));
  clear_counts(args, r.counts);
  int64_t count = 0;
  HUSK_TRY(run_unique(r, keys, capacity, kWorkspace, count));
  return count == capacity ? husk_status{HUSK_OK} : args.wrong_result_size(capacity, count);
}

husk_status unique_sizes(const Arguments& args) {
  constexpr ArgumentsOf named("unique_sizes");
  constexpr uint32_t kSelf = named["self"], kSize = named["size"], kWorkspace = named["workspace"];
  HUSK_TRY(args.check_tensor(kSelf));
  HUSK_TRY(args.check_result(kSize));
  Keys keys;
  if (!keys_of(args[kSelf].dtype, keys)) return args.unsupported_dtype(kSelf);
  return run_unique({args, &args[kSelf], nullptr, nullptr, nullptr}, keys, 0, kWorkspace,
                    *static_cast<int64_t*>(args[kSize].data));
}

husk_status unique_consecutive(const Arguments& args) {
  constexpr ArgumentIndices kAt{ArgumentsOf("unique_consecutive")};
  return run_slices(args, kAt, false);
}
husk_status unique_consecutive_sizes(const Arguments& args) {
  constexpr ArgumentsOf named("unique_consecutive_sizes");
  constexpr uint32_t kDim = named["dim"], kSize = named["size"];
  return count_result(args, kDim, kSize, false);
}
husk_status unique_dim(const Arguments& args) {
  constexpr ArgumentIndices kAt{ArgumentsOf("unique_dim")};
  return run_slices(args, kAt, true);
}
husk_status unique_dim_sizes(const Arguments& args) {
  constexpr ArgumentsOf named("unique_dim_sizes");
  constexpr uint32_t kDim = named["dim"], kSize = named["size"];
  return count_result(args, kDim, kSize, true);
}

}  // namespace husk::host
