// Operators that several ranks compute together, in the group of the device (src/group.h). Each
// works in rounds: all members write to their areas, meet, read the areas of the others, and part.
#include <algorithm>
#include <cstring>
#include <initializer_list>

#include "contracts.h"
#include "core/arguments.h"
#include "core/element.h"
#include "device.h"
#include "group.h"

namespace husk::host {

namespace {

enum class Reduction : uint32_t { sum, avg, product, min, max };
constexpr const char* kReductions[] = {"sum", "avg", "product", "min", "max"};

// GroupCall.kind.
enum Kind : uint32_t {
  kAllReduce = 1,
  kAllGather = 2,
  kReduceScatter = 3,
  kAllToAll = 4,
  kBroadcast = 5,
  kSend = 6
};

// A call in a group: who takes part, and where the own rank stands among them.
struct Together {
  Group* group = nullptr;
  Members members = {};
  uint32_t self = 0;  // the place of this rank among the members
  GroupCall call = {};
  const Arguments* args = nullptr;

  husk_status meet() const { return group->meet(members, call, args->context, args->error); }
  husk_status part() const { return group->part(members, call, args->context, args->error); }
  uint8_t* own_area() const { return group->area(members.ranks[self]); }
  const uint8_t* area(uint32_t member) const { return group->area(members.ranks[member]); }
};

husk_status find_group(const Arguments& args, Together& out) {
  const auto* device = static_cast<const Device*>(args.context->device);
  if (!device || !device->group)
    return args.argument_error(0u, HUSK_INVALID_ARGUMENT,
                               "belongs to a group of ranks, and the engine has joined none: "
                               "husk_engine_options.group");
  out.group = device->group;
  out.args = &args;
  return HUSK_OK;
}

// Reads the ranks that take part.
husk_status read_members(const Arguments& args, ArgumentPlace at, Together& out) {
  HUSK_TRY(args.check_int_list(at));
  const husk_op_arg& ranks = args[at];
  if (ranks.count < 1 || ranks.count > kMaxGroup)
    return args.argument_error(at, HUSK_UNSUPPORTED, "must name 1 to 64 ranks");
  HUSK_TRY(find_group(args, out));
  bool is_member = false;
  for (int64_t i = 0; i < ranks.count; ++i) {
    const int64_t rank = ranks.sizes[i];
    if (rank < 0 || rank >= out.group->world())
      return args.argument_error(at, HUSK_INVALID_ARGUMENT, "names a rank that does not exist");
    for (int64_t before = 0; before < i; ++before)
      if (ranks.sizes[before] == rank)
        return args.argument_error(at, HUSK_INVALID_ARGUMENT, "names a rank twice");
    const auto place = static_cast<uint32_t>(i);
    out.members.ranks[place] = static_cast<uint32_t>(rank);
    if (out.members.ranks[place] == out.group->rank()) {
      out.self = place;
      is_member = true;
    }
  }
  out.members.count = static_cast<uint32_t>(ranks.count);
  if (!is_member)
    return args.argument_error(at, HUSK_INVALID_ARGUMENT, "does not name the rank of this engine");
  return HUSK_OK;
}

husk_status check_dense(const Arguments& args, ArgumentPlace at) {
  HUSK_TRY(args.check_tensor(at));
  if (numel(args[at]) == 0 || contiguous(args[at])) return HUSK_OK;
  return args.argument_error(at, HUSK_INVALID_ARGUMENT, "is not contiguous");
}

husk_status get_reduction(const Arguments& args, ArgumentPlace at, Reduction& out) {
  if (!args.none(at) && args[at].kind == HUSK_ARG_STRING && args[at].string) {
    for (uint32_t i = 0; i < 5; ++i) {
      if (strcmp(args[at].string, kReductions[i]) != 0) continue;
      out = static_cast<Reduction>(i);
      return HUSK_OK;
    }
  }
  return args.argument_error(at, HUSK_UNSUPPORTED, "is not sum, avg, product, min or max");
}

template <class T>
Value<T> combine(Reduction how, Value<T> a, Value<T> b) {
  using V = Value<T>;
  if constexpr (is_complex<V>) {
    return {a.re + b.re, a.im + b.im};
  } else if constexpr (std::is_same_v<V, bool>) {
    return how == Reduction::product || how == Reduction::min ? a && b : a || b;
  } else if constexpr (std::is_integral_v<V>) {
    using U = std::make_unsigned_t<V>;  // sums and products wrap around
    switch (how) {
      case Reduction::product:
        return static_cast<V>(static_cast<uint64_t>(static_cast<U>(a)) * static_cast<U>(b));
      case Reduction::min: return std::min(a, b);
      case Reduction::max: return std::max(a, b);
      default: return static_cast<V>(static_cast<U>(static_cast<U>(a) + static_cast<U>(b)));
    }
  } else {
    switch (how) {
      case Reduction::product: return a * b;
      case Reduction::min: return is_nan(a) || a < b ? a : b;  // a NaN of either stays
      case Reduction::max: return is_nan(a) || a > b ? a : b;
      default: return a + b;
    }
  }
}

// Reduces `n` elements that the areas of all members begin with, in the order of the members. A
// residual is added to the result as `out` has it.
template <class T>
void reduce(const Together& all, Reduction how, int64_t n, T* out, const T* residual = nullptr) {
  for (int64_t i = 0; i < n; ++i) {
    Value<T> value = get(reinterpret_cast<const T*>(all.area(0)) + i);
    for (uint32_t m = 1; m < all.members.count; ++m)
      value = combine<T>(how, value, get(reinterpret_cast<const T*>(all.area(m)) + i));
    if (how == Reduction::avg) {
      if constexpr (is_complex<Value<T>>)
        value = {value.re / static_cast<decltype(value.re)>(all.members.count),
                 value.im / static_cast<decltype(value.im)>(all.members.count)};
      else if constexpr (!std::is_same_v<Value<T>, bool>)
        value = static_cast<Value<T>>(value / static_cast<Value<T>>(all.members.count));
    }
    set(out + i, value);
    if (residual) set(out + i, combine<T>(Reduction::sum, get(out + i), get(residual + i)));
  }
}

// Refuses what has no meaning: averages of bools, an order of complex numbers.
husk_status check_reduction(const Arguments& args, ArgumentPlace at, Reduction how) {
  const int32_t dtype = args[at].dtype;
  const bool is_complex_dtype = dtype == HUSK_C64 || dtype == HUSK_C128;
  const bool is_sum = how == Reduction::sum || how == Reduction::avg;
  if ((dtype == HUSK_BOOL && how == Reduction::avg) || (is_complex_dtype && !is_sum))
    return args.unsupported_dtype(at);
  return HUSK_OK;
}

char* bytes_of(const husk_op_arg& tensor) { return static_cast<char*>(tensor.data); }

void copy_bytes(void* to, const void* from, int64_t bytes) {
  if (bytes > 0) memcpy(to, from, static_cast<size_t>(bytes));
}

GroupCall call_of(const Arguments& args, Kind kind, ArgumentPlace tensor, uint32_t detail,
                  const Together& all) {
  return {args.op,
          kind,
          static_cast<uint32_t>(args[tensor].dtype),
          detail,
          all.members.count,
          numel(args[tensor])};
}

// A pair of ranks, of which one sends a tensor to the other.
husk_status transfer(const Arguments& args, ArgumentPlace tensor, ArgumentPlace peer,
                     bool is_sender) {
  HUSK_TRY(check_dense(args, tensor));
  int64_t other = 0;
  HUSK_TRY(args.get_int(peer, other));
  Together pair;
  HUSK_TRY(find_group(args, pair));
  const uint32_t self = pair.group->rank();
  if (other < 0 || other >= pair.group->world() || other == self)
    return args.argument_error(peer, HUSK_INVALID_ARGUMENT, "is not another rank of the group");
  pair.members = {2,
                  {is_sender ? self : static_cast<uint32_t>(other),
                   is_sender ? static_cast<uint32_t>(other) : self}};
  pair.self = is_sender ? 0 : 1;
  pair.call = call_of(args, kSend, tensor, pair.members.ranks[0], pair);
  const int64_t bytes = numel(args[tensor]) * dtype_bytes(args[tensor].dtype);
  int64_t at = 0;
  do {
    const int64_t n = std::min(bytes - at, kAreaBytes);
    if (is_sender) copy_bytes(pair.own_area(), bytes_of(args[tensor]) + at, n);
    HUSK_TRY(pair.meet());
    if (!is_sender) copy_bytes(bytes_of(args[tensor]) + at, pair.area(0), n);
    HUSK_TRY(pair.part());
    at += n;
  } while (at < bytes);
  return HUSK_OK;
}

}  // namespace

husk_status all_reduce(const Arguments& args) {
  constexpr ArgumentsOf named("all_reduce");
  constexpr uint32_t kSelf = named["self"], kOut = named["out"], kReduce = named["reduce"];
  constexpr uint32_t kRanks = named["ranks"], kResidual = named["residual"];
  for (const uint32_t at : {kSelf, kOut}) HUSK_TRY(check_dense(args, at));
  HUSK_TRY(args.check_same_dtype(kOut, kSelf));
  HUSK_TRY(args.check_same_shape(kOut, kSelf));
  const bool has_residual = !args.none(kResidual);
  if (has_residual) {
    HUSK_TRY(check_dense(args, kResidual));
    HUSK_TRY(args.check_same_dtype(kResidual, kOut));
    HUSK_TRY(args.check_same_shape(kResidual, kOut));
  }
  Reduction how{};
  HUSK_TRY(get_reduction(args, kReduce, how));
  HUSK_TRY(check_reduction(args, kSelf, how));
  Together all;
  HUSK_TRY(read_members(args, kRanks, all));
  all.call = call_of(args, kAllReduce, kSelf, static_cast<uint32_t>(how), all);
  husk_status status = HUSK_OK;
  HUSK_TRY(visit_argument<Everything>(args, kSelf, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const int64_t elements = numel(args[kSelf]), most = kAreaBytes / int64_t{sizeof(T)};
    int64_t at = 0;
    do {
      const int64_t n = std::min(elements - at, most), bytes = n * int64_t{sizeof(T)};
      copy_bytes(all.own_area(), bytes_of(args[kSelf]) + at * int64_t{sizeof(T)}, bytes);
      if ((status = all.meet()) != HUSK_OK) return;
      reduce(all, how, n, reinterpret_cast<T*>(args[kOut].data) + at,
             has_residual ? reinterpret_cast<const T*>(args[kResidual].data) + at : nullptr);
      if ((status = all.part()) != HUSK_OK) return;
      at += n;
    } while (at < elements);
  }));
  return status;
}

husk_status all_gather_into_tensor(const Arguments& args) {
  constexpr ArgumentsOf named("all_gather_into_tensor");
  constexpr uint32_t kSelf = named["self"], kOut = named["out"], kRanks = named["ranks"];
  for (const uint32_t at : {kSelf, kOut}) HUSK_TRY(check_dense(args, at));
  HUSK_TRY(args.check_same_dtype(kOut, kSelf));
  Together all;
  HUSK_TRY(read_members(args, kRanks, all));
  if (numel(args[kOut]) / all.members.count != numel(args[kSelf]) ||
      numel(args[kOut]) % all.members.count != 0)
    return args.argument_error(kOut, HUSK_INVALID_ARGUMENT,
                               "does not have as many elements as `self` on all ranks");
  all.call = call_of(args, kAllGather, kSelf, 0, all);
  const int64_t bytes = numel(args[kSelf]) * dtype_bytes(args[kSelf].dtype);
  int64_t at = 0;
  do {
    const int64_t n = std::min(bytes - at, kAreaBytes);
    copy_bytes(all.own_area(), bytes_of(args[kSelf]) + at, n);
    HUSK_TRY(all.meet());
    for (uint32_t m = 0; m < all.members.count; ++m)
      copy_bytes(bytes_of(args[kOut]) + m * bytes + at, all.area(m), n);
    HUSK_TRY(all.part());
    at += n;
  } while (at < bytes);
  return HUSK_OK;
}

husk_status reduce_scatter_tensor(const Arguments& args) {
  constexpr ArgumentsOf named("reduce_scatter_tensor");
  constexpr uint32_t kSelf = named["self"], kOut = named["out"], kReduce = named["reduce"];
  constexpr uint32_t kRanks = named["ranks"];
  for (const uint32_t at : {kSelf, kOut}) HUSK_TRY(check_dense(args, at));
  HUSK_TRY(args.check_same_dtype(kOut, kSelf));
  Reduction how{};
  HUSK_TRY(get_reduction(args, kReduce, how));
  HUSK_TRY(check_reduction(args, kSelf, how));
  Together all;
  HUSK_TRY(read_members(args, kRanks, all));
  if (numel(args[kSelf]) / all.members.count != numel(args[kOut]) ||
      numel(args[kSelf]) % all.members.count != 0)
    return args.argument_error(kOut, HUSK_INVALID_ARGUMENT,
                               "does not have the elements of `self` divided by the ranks");
  all.call = call_of(args, kReduceScatter, kSelf, static_cast<uint32_t>(how), all);
  husk_status status = HUSK_OK;
  HUSK_TRY(visit_argument<Everything>(args, kSelf, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const int64_t part = numel(args[kOut]), most = kAreaBytes / int64_t{sizeof(T)};
    for (uint32_t m = 0; m < all.members.count; ++m) {
      int64_t at = 0;
      do {
        const int64_t n = std::min(part - at, most), bytes = n * int64_t{sizeof(T)};
        copy_bytes(all.own_area(), bytes_of(args[kSelf]) + (m * part + at) * int64_t{sizeof(T)},
                   bytes);
        if ((status = all.meet()) != HUSK_OK) return;
        if (m == all.self) reduce(all, how, n, reinterpret_cast<T*>(args[kOut].data) + at);
        if ((status = all.part()) != HUSK_OK) return;
        at += n;
      } while (at < part);
    }
  }));
  return status;
}

husk_status all_to_all_single(const Arguments& args) {
  constexpr ArgumentsOf named("all_to_all_single");
  constexpr uint32_t kSelf = named["self"], kOut = named["out"], kRanks = named["ranks"];
  constexpr uint32_t kReceived = named["output_sizes"], kSent = named["input_sizes"];
  for (const uint32_t at : {kSelf, kOut}) HUSK_TRY(check_dense(args, at));
  HUSK_TRY(args.check_same_dtype(kOut, kSelf));
  Together all;
  HUSK_TRY(read_members(args, kRanks, all));
  const uint32_t count = all.members.count;
  // The sizes count rows along the first dimension; without sizes all ranks have equal parts.
  const int64_t bytes = dtype_bytes(args[kSelf].dtype);
  int64_t sizes[2][kMaxGroup];  // in bytes: what each member sends to this rank, and gets from it
  uint32_t which = 0;
  for (const auto& [list, tensor] : {std::pair{kReceived, kOut}, {kSent, kSelf}}) {
    HUSK_TRY(args.check_int_list(list));
    const husk_op_arg& of = args[tensor];
    const int64_t rows = of.rank > 0 ? of.sizes[0] : 0;
    const int64_t row = rows > 0 ? numel(of) / rows * bytes : 0;
    int64_t left = rows;
    if (args[list].count != 0 && args[list].count != count)
      return args.argument_error(list, HUSK_INVALID_ARGUMENT, "has no size for each rank");
    for (uint32_t m = 0; m < count; ++m) {
      const int64_t n = args[list].count ? args[list].sizes[m] : rows / count;
      if (n < 0 || n > left)
        return args.argument_error(list, HUSK_INVALID_ARGUMENT, "does not add up to the tensor");
      sizes[which][m] = n * row;
      left -= n;
    }
    if (left != 0)
      return args.argument_error(list, HUSK_INVALID_ARGUMENT, "does not add up to the tensor");
    ++which;
  }
  const auto& received = sizes[0];
  const auto& sent = sizes[1];
  // All ranks tell what they send. The largest part says how many rounds there are.
  all.call = call_of(args, kAllToAll, kSelf, 0, all);
  all.call.elements = 0;  // which may differ from rank to rank
  copy_bytes(all.own_area(), sent, count * int64_t{sizeof(int64_t)});
  HUSK_TRY(all.meet());
  int64_t largest = 0;
  bool fits = true;
  for (uint32_t m = 0; m < count; ++m) {
    int64_t theirs[kMaxGroup];
    copy_bytes(theirs, all.area(m), count * int64_t{sizeof(int64_t)});
    for (uint32_t to = 0; to < count; ++to) largest = std::max(largest, theirs[to]);
    fits = fits && theirs[all.self] == received[m];
  }
  if (!fits)
    return all.group->refuse(all.call, "another rank sends a part that differs from output_sizes",
                             args.error);
  HUSK_TRY(all.part());
  const int64_t most = kAreaBytes / count / 64 * 64;
  for (int64_t at = 0; at < largest; at += most) {
    const auto piece = [&](int64_t whole) { return std::clamp<int64_t>(whole - at, 0, most); };
    int64_t begin = 0;
    for (uint32_t m = 0; m < count; begin += sent[m++])
      copy_bytes(all.own_area() + m * most, bytes_of(args[kSelf]) + begin + at, piece(sent[m]));
    HUSK_TRY(all.meet());
    begin = 0;
    for (uint32_t m = 0; m < count; begin += received[m++])
      copy_bytes(bytes_of(args[kOut]) + begin + at, all.area(m) + all.self * most,
                 piece(received[m]));
    HUSK_TRY(all.part());
  }
  return HUSK_OK;
}

husk_status broadcast_from(const Arguments& args) {
  constexpr ArgumentsOf named("broadcast_from");
  constexpr uint32_t kSelf = named["self"], kOut = named["out"], kSource = named["source"];
  constexpr uint32_t kRanks = named["ranks"];
  for (const uint32_t at : {kSelf, kOut}) HUSK_TRY(check_dense(args, at));
  HUSK_TRY(args.check_same_dtype(kOut, kSelf));
  HUSK_TRY(args.check_same_shape(kOut, kSelf));
  int64_t source = 0;
  HUSK_TRY(args.get_int(kSource, source));
  Together all;
  HUSK_TRY(read_members(args, kRanks, all));
  uint32_t from = 0;
  while (from < all.members.count && all.members.ranks[from] != source) ++from;
  if (from == all.members.count)
    return args.argument_error(kSource, HUSK_INVALID_ARGUMENT, "is none of the ranks");
  all.call = call_of(args, kBroadcast, kSelf, static_cast<uint32_t>(source), all);
  const int64_t bytes = numel(args[kSelf]) * dtype_bytes(args[kSelf].dtype);
  int64_t at = 0;
  do {
    const int64_t n = std::min(bytes - at, kAreaBytes);
    if (from == all.self) copy_bytes(all.own_area(), bytes_of(args[kSelf]) + at, n);
    HUSK_TRY(all.meet());
    copy_bytes(bytes_of(args[kOut]) + at, all.area(from), n);
    HUSK_TRY(all.part());
    at += n;
  } while (at < bytes);
  return HUSK_OK;
}

husk_status send(const Arguments& args) {
  constexpr ArgumentsOf named("send");
  constexpr uint32_t kSelf = named["self"], kTo = named["to"];
  return transfer(args, kSelf, kTo, true);
}

husk_status recv(const Arguments& args) {
  constexpr ArgumentsOf named("recv");
  constexpr uint32_t kOut = named["out"], kFrom = named["from"];
  return transfer(args, kOut, kFrom, false);
}

}  // namespace husk::host
