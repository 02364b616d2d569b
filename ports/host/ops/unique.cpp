// aten::_unique2, unique_consecutive and unique_dim. The different elements of a tensor are found in batches on the
// stack, from the smallest on: each pass over the tensor takes the next few thousand of them, so that no copy of the
// tensor is needed.
#include <algorithm>

#include "arguments.h"
#include "error.h"
#include "key.h"
#include "loop.h"

namespace husk::host {

namespace {

constexpr int64_t batch_size = 8192;

// The next different keys after `last` in ascending order, at most batch_size of them. NaN is left out: it equals
// nothing.
struct Batch {
  uint64_t keys[2 * batch_size];
  int64_t count = 0;

  // each_key(f) calls f(key) for every key.
  template <class Each>
  void find(const Each& each_key, bool first, uint64_t last, uint64_t nan, bool floats) {
    count = 0;
    uint64_t cut = ~uint64_t{0};
    each_key([&](uint64_t key) {
      if ((!first && key <= last) || key > cut || (floats && key == nan)) return;
      keys[count++] = key;
      if (count == 2 * batch_size) cut = shrink();
    });
    (void)shrink();
  }
  int64_t place(uint64_t key) const { return std::lower_bound(keys, keys + count, key) - keys; }

 private:
  // Sorts, drops doubles and what is too much; returns the largest key that may still come in.
  uint64_t shrink() {
    std::sort(keys, keys + count);
    count = std::unique(keys, keys + count) - keys;
    if (count < batch_size) return ~uint64_t{0};
    count = batch_size;
    return keys[count - 1];
  }
};

// What is asked for: the different elements, for each element which one it is, for each of them how often it is there.
struct Request {
  const husk_op_arg *self, *out, *inverse, *counts;   // all but self: or null
};

template <class F>
void each_element(const husk_op_arg& self, F f) {
  Loop<1> loop;
  loop.shape(self);
  each(loop, [&](const int64_t(&at)[1]) { f(at[0]); });
}

// Runs through all batches and writes what is asked for, if anything; at most `most` elements. Returns how many there
// are.
int64_t run(const Request& r, const Keys& keys, int64_t most) {
  Batch batch;
  const husk_op_arg& self = *r.self;
  const bool floats = floating(self.dtype);
  const uint64_t nan = keys.mask;
  const int64_t bytes = dtype_bytes(self.dtype);
  const bool writes = r.out || r.inverse || r.counts;
  const auto each_key = [&](auto f) { each_element(self, [&](int64_t at) { f(keys.read(self.data, at)); }); };
  Loop<2> pairs;
  pairs.shape(self);
  if (r.inverse) pairs.add(1, *r.inverse);
  else pairs.add(1, self);
  const auto note = [&](int64_t found, const int64_t(&at)[2]) {
    if (found >= most) return;
    if (r.out) {
      __builtin_memcpy(writable<unsigned char>(*r.out) + found * r.out->strides[0] * bytes,
                       data_of<unsigned char>(self) + at[0] * bytes, static_cast<size_t>(bytes));
    }
    if (r.counts) writable<int64_t>(*r.counts)[found * r.counts->strides[0]]++;
    if (r.inverse) writable<int64_t>(*r.inverse)[at[1]] = found;
  };
  int64_t total = 0;
  uint64_t last = 0;
  for (bool first = true;; first = false) {
    batch.find(each_key, first, last, nan, floats);
    if (batch.count == 0) break;
    if (writes) {
      each(pairs, [&](const int64_t(&at)[2]) {
        const uint64_t key = keys.read(self.data, at[0]);
        if ((!first && key <= last) || key > batch.keys[batch.count - 1] || (floats && key == nan)) return;
        note(total + batch.place(key), at);
      });
    }
    total += batch.count;
    last = batch.keys[batch.count - 1];
    if (batch.count < batch_size) break;
  }
  if (floats) {
    each(pairs, [&](const int64_t(&at)[2]) {
      if (keys.read(self.data, at[0]) != nan) return;
      if (writes) note(total, at);
      total++;
    });
  }
  return total;
}

// An output that may be none, or empty where it is not asked for.
husk_status extra(const Arguments& args, uint32_t at, bool asked, const husk_op_arg*& out) {
  out = nullptr;
  if (!asked) return HUSK_OK;
  HUSK_TRY(args.tensor(at));
  HUSK_TRY(args.dtype(at, HUSK_I64));
  out = &args[at];
  return HUSK_OK;
}

void clear(const husk_op_arg* counts) {
  for (int64_t i = 0; counts && i < counts->sizes[0]; i++) writable<int64_t>(*counts)[i * counts->strides[0]] = 0;
}

husk_status wrong_count(const Arguments& args, int64_t given, int64_t found) {
  return fail(args.error, HUSK_INVALID_INPUT, "%s: the result has room for %lld elements, the data has %lld", args.op,
              static_cast<long long>(given), static_cast<long long>(found));
}

// ---- slices: unique_dim and unique_consecutive ----

// Slices across one dimension, or single elements of the flattened tensor.
struct Slices {
  const husk_op_arg& self;
  Keys keys;
  Loop<1> inside;      // of a slice
  int64_t count, stride;
  bool flat;
  bool floats;

  int64_t start(int64_t slice) const {
    if (!flat) return slice * stride;
    int64_t at = 0;
    for (int32_t d = self.rank - 1; d >= 0; d--) {
      at += slice % self.sizes[d] * self.strides[d];
      slice /= self.sizes[d];
    }
    return at;
  }
  // <0, 0, >0; NaN is after all others and equal to none, so that no two slices with one are the same.
  int compare(int64_t a, int64_t b) const {
    int order = 0;
    const int64_t left = start(a), right = start(b);
    each_while(inside, [&](const int64_t(&at)[1]) {
      const uint64_t x = keys.read(self.data, left + at[0]), y = keys.read(self.data, right + at[0]);
      order = x < y ? -1 : x > y ? 1 : 0;
      return order == 0;
    });
    return order;
  }
  bool same(int64_t a, int64_t b) const {
    const int64_t left = start(a), right = start(b);
    return each_while(inside, [&](const int64_t(&at)[1]) {
      const uint64_t x = keys.read(self.data, left + at[0]), y = keys.read(self.data, right + at[0]);
      return x == y && !(floats && x == keys.mask);
    });
  }
};

husk_status slices_of(const Arguments& args, uint32_t dim_at, Slices& s) {
  if (!keys_of(s.self.dtype, s.keys)) return args.unsupported_dtype(0);
  s.floats = floating(s.self.dtype);
  s.flat = args.none(dim_at);
  s.count = numel(s.self);
  s.stride = 0;
  if (s.flat) return HUSK_OK;
  int32_t dim = 0;
  HUSK_TRY(args.dimension(dim_at, s.self.rank, dim));
  s.inside.shape(s.self);
  if (s.self.rank > 0) {
    s.count = s.self.sizes[dim];
    s.stride = s.self.strides[dim];
    s.inside.drop(dim);
  }
  return HUSK_OK;
}

// Copies slice `from` to place `to` of the output.
void copy_slice(const Slices& s, int64_t from, const husk_op_arg& out, int32_t dim, int64_t to) {
  Loop<2> loop;
  if (!s.flat && s.self.rank > 0) {
    loop.shape(s.self);
    loop.add(1, out);
    loop.drop(dim);
  }
  const int64_t bytes = dtype_bytes(out.dtype), step = out.rank > 0 ? out.strides[dim] : 0, start = s.start(from);
  each(loop, [&](const int64_t(&at)[2]) {
    __builtin_memcpy(writable<unsigned char>(out) + (to * step + at[1]) * bytes,
                     data_of<unsigned char>(s.self) + (start + at[0]) * bytes, static_cast<size_t>(bytes));
  });
}

struct Places {
  uint32_t dim, inverse, counts, out;   // of the arguments; `inverse` and `counts` the flags, `out` the first output
  bool sorted;                          // unique_dim: all slices, not only neighbours, are compared
};

constexpr int64_t most_slices = 65536;

// The slices in order, equal ones in the order that they are in self.
struct Order {
  uint32_t slices[most_slices];

  explicit Order(const Slices& s) {
    for (int64_t i = 0; i < s.count; i++) slices[i] = static_cast<uint32_t>(i);
    std::sort(slices, slices + s.count, [&](uint32_t a, uint32_t b) {
      const int order = s.compare(a, b);
      return order != 0 ? order < 0 : a < b;
    });
  }
};

// Calls f(slice, place, whether it is the first one of its place) for each slice: neighbours that are the same share a
// place.
template <class F>
void each_place(const Slices& s, const Order* order, F f) {
  int64_t place = -1, before = 0;
  for (int64_t i = 0; i < s.count; i++) {
    const int64_t slice = order ? order->slices[i] : i;
    const bool starts = i == 0 || !s.same(before, slice);
    place += starts;
    f(slice, place, starts);
    before = slice;
  }
}

// Under an order on the stack where one is asked for.
template <class F>
husk_status each_sorted(const Arguments& args, const Slices& s, bool sorted, F f) {
  if (!sorted) {
    each_place(s, nullptr, f);
    return HUSK_OK;
  }
  if (s.count > most_slices) {
    return fail(args.error, HUSK_UNSUPPORTED, "%s: self has %lld slices; it takes up to %lld", args.op,
                static_cast<long long>(s.count), static_cast<long long>(most_slices));
  }
  const Order order(s);
  each_place(s, &order, f);
  return HUSK_OK;
}

husk_status count_slices(const Arguments& args, const Slices& s, bool sorted, int64_t& found) {
  found = 0;
  return each_sorted(args, s, sorted, [&](int64_t, int64_t, bool starts) { found += starts; });
}

int64_t& inverse_at(const husk_op_arg& inverse, int64_t slice) {
  int64_t at = 0;
  for (int32_t d = inverse.rank - 1; d >= 0; d--) {
    at += slice % inverse.sizes[d] * inverse.strides[d];
    slice /= inverse.sizes[d];
  }
  return writable<int64_t>(inverse)[at];
}

husk_status run_slices(const Arguments& args, const Places& p) {
  HUSK_TRY(args.tensor(0));
  Slices s{args[0], {}, {}, 0, 0, false, false};
  HUSK_TRY(slices_of(args, p.dim, s));
  bool wants_inverse = false, wants_counts = false;
  HUSK_TRY(args.boolean(p.inverse, wants_inverse));
  HUSK_TRY(args.boolean(p.counts, wants_counts));
  int32_t dim = 0;
  if (!s.flat) HUSK_TRY(args.dimension(p.dim, args[0].rank, dim));
  const husk_op_arg *inverse = nullptr, *counts = nullptr;
  HUSK_TRY(args.tensor(p.out, s.flat ? 1 : args[0].rank, s.flat ? 1 : args[0].rank));
  HUSK_TRY(args.same_dtype(p.out, 0));
  for (int32_t d = 0; !s.flat && d < args[0].rank; d++) {
    if (d != dim) HUSK_TRY(args.size(p.out, d, args[0].sizes[d], "a slice of self"));
  }
  int64_t found = 0;
  const int64_t room = args[p.out].rank > 0 ? args[p.out].sizes[dim] : 1;
  HUSK_TRY(count_slices(args, s, p.sorted, found));
  if (found != room) return wrong_count(args, room, found);
  HUSK_TRY(extra(args, p.out + 1, wants_inverse, inverse));
  HUSK_TRY(extra(args, p.out + 2, wants_counts, counts));
  if (inverse && numel(*inverse) != s.count)
    return args.refuse(p.out + 1, HUSK_INVALID_ARGUMENT, "is not as large as self");
  if (counts) HUSK_TRY(args.vector(p.out + 2, found, "one for each different one"));
  clear(counts);
  return each_sorted(args, s, p.sorted, [&](int64_t slice, int64_t place, bool starts) {
    if (starts) copy_slice(s, slice, args[p.out], dim, place);
    if (inverse) inverse_at(*inverse, slice) = place;
    if (counts) writable<int64_t>(*counts)[place * counts->strides[0]]++;
  });
}

husk_status count_result(const Arguments& args, const Places& p) {
  HUSK_TRY(args.tensor(0));
  HUSK_TRY(args.result(p.out));
  Slices s{args[0], {}, {}, 0, 0, false, false};
  HUSK_TRY(slices_of(args, p.dim, s));
  return count_slices(args, s, p.sorted, *static_cast<int64_t*>(args[p.out].data));
}

constexpr Places consecutive{3, 1, 2, 4, false};
constexpr Places across{1, 3, 4, 5, true};

}  // namespace

husk_status unique(const Arguments& args) {
  HUSK_TRY(args.tensor(0));
  HUSK_TRY(args.tensor(4, 1, 1));
  HUSK_TRY(args.same_dtype(4, 0));
  Keys keys;
  if (!keys_of(args[0].dtype, keys)) return args.unsupported_dtype(0);
  bool wants_inverse = false, wants_counts = false;
  HUSK_TRY(args.boolean(2, wants_inverse));
  HUSK_TRY(args.boolean(3, wants_counts));
  Request r{&args[0], &args[4], nullptr, nullptr};
  HUSK_TRY(extra(args, 5, wants_inverse, r.inverse));
  HUSK_TRY(extra(args, 6, wants_counts, r.counts));
  if (r.inverse) HUSK_TRY(args.same_shape(5, 0));
  const int64_t room = args[4].sizes[0];
  if (r.counts) HUSK_TRY(args.vector(6, room, "one for each different element"));
  clear(r.counts);
  const int64_t found = run(r, keys, room);
  return found == room ? husk_status{HUSK_OK} : wrong_count(args, room, found);
}

husk_status unique_sizes(const Arguments& args) {
  HUSK_TRY(args.tensor(0));
  HUSK_TRY(args.result(4));
  Keys keys;
  if (!keys_of(args[0].dtype, keys)) return args.unsupported_dtype(0);
  *static_cast<int64_t*>(args[4].data) = run({&args[0], nullptr, nullptr, nullptr}, keys, 0);
  return HUSK_OK;
}

husk_status unique_consecutive(const Arguments& args) { return run_slices(args, consecutive); }
husk_status unique_consecutive_sizes(const Arguments& args) { return count_result(args, consecutive); }
husk_status unique_dim(const Arguments& args) { return run_slices(args, across); }
husk_status unique_dim_sizes(const Arguments& args) { return count_result(args, across); }

}  // namespace husk::host
