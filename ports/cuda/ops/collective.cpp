#include "ops/collective.h"

#include <cstdio>
#include <cstring>
#include <iterator>

#include <husk/detail/struct_size.h>

#include "device.h"
#include "ops/arguments.h"
#include "ops/group.h"

namespace husk::cuda {

namespace {

// The type in which NCCL computes elements of a dtype: `width` of its numbers are one element.
struct NumberType {
  int32_t dtype;
  ncclDataType_t type;
  int32_t width;
};
constexpr NumberType kNumbers[] = {
    {HUSK_BOOL, ncclUint8, 1},        {HUSK_U8, ncclUint8, 1},
    {HUSK_I8, ncclInt8, 1},           {HUSK_U32, ncclUint32, 1},
    {HUSK_I32, ncclInt32, 1},         {HUSK_U64, ncclUint64, 1},
    {HUSK_I64, ncclInt64, 1},         {HUSK_F16, ncclFloat16, 1},
    {HUSK_BF16, ncclBfloat16, 1},     {HUSK_F32, ncclFloat32, 1},
    {HUSK_F64, ncclFloat64, 1},       {HUSK_C64, ncclFloat32, 2},
    {HUSK_C128, ncclFloat64, 2},      {HUSK_F8E4M3FN, ncclFloat8e4m3, 1},
    {HUSK_F8E5M2, ncclFloat8e5m2, 1},
};

// A reduction as NCCL does it: of `count` numbers of a type. The kernel of the port adds the
// residual if that is not 0; if NCCL has reduced to `out`, it does nothing else.
struct Reduced {
  ncclDataType_t type;
  ncclRedOp_t how;
  size_t count;
  CUdeviceptr residual;
  bool is_done;
};

struct ReductionName {
  const char* name;
  ncclRedOp_t how;
};
constexpr ReductionName kReductions[] = {
    {"sum", ncclSum}, {"avg", ncclAvg}, {"product", ncclProd}, {"min", ncclMin}, {"max", ncclMax}};

// The arguments of all ops, by name.
enum Name : uint32_t {
  kSelf,
  kOut,
  kReduce,
  kRanks,
  kSource,
  kTo,
  kFrom,
  kInputSizes,
  kOutputSizes,
  kResidual
};
constexpr const char* kNames[] = {"self", "out",  "reduce",      "ranks",        "source",
                                  "to",   "from", "input_sizes", "output_sizes", "residual"};

// The places of the arguments of one op.
struct Places {
  uint8_t at[std::size(kNames)];
};
constexpr Places places_of(const char* contract) {
  const detail::ArgumentPlaces places(contract);
  Places out{};
  for (size_t i = 0; i < std::size(kNames); ++i)
    out.at[i] = places.has(kNames[i]) ? static_cast<uint8_t>(places[kNames[i]]) : 0;
  return out;
}

// One call of an op.
class Call {
 public:
  Call(bool only_checks, const char* op, const Places& places, const husk_op_context* context,
       const husk_op_arg* args, uint32_t count, husk_error* error)
      : only_checks_(only_checks),
        op_(op),
        places_(places),
        context_(context),
        args_(args),
        count_(count),
        group_(as_device(context->device).group),
        error_(error) {}

  const husk_op_arg& arg(Name name) const { return args_[places_.at[name]]; }
  // The group of the ranks of the call, after open_group, which opens it if the call is the first.
  DeviceGroup& group() const { return *group_; }
  husk_status open_group();
  CUstream stream() const { return as_stream(context_->stream); }
  husk_status check_count(uint32_t wanted) const {
    if (count_ == wanted || (count_ == wanted + 1 && places_.at[kResidual] > 0)) return HUSK_OK;
    return fail(error_, HUSK_INVALID_ARGUMENT, "%s: %u arguments; it takes %u", op_, count_,
                wanted);
  }
  [[gnu::noinline]] husk_status refuse(Name name, husk_status status, const char* why) const {
    return fail(error_, status, "%s: argument %s %s", op_, kNames[name], why);
  }
  // The tensor is contiguous; writes its elements.
  husk_status read_tensor(Name name, uint64_t* elements) const;
  // The bytes of so many elements of a tensor.
  husk_status read_moved(Name name, uint64_t elements, size_t* bytes) const;
  husk_status read_reduced(uint64_t elements, Reduced* out) const;
  husk_status check_ranks() const;
  husk_status read_rank(Name name, int* rank) const;
  husk_status check_same(Name name, Name other) const;
  // Reads the residual of a reduction, if there is one, which the kernel of the port can add.
  husk_status read_residual(Reduced* reduced) const;

  // Enqueues an exchange of the port's own if this one can be one, and says so. All ranks find the
  // same: it depends on dtype, size and reduction alone. The arguments are those of an Exchange;
  // `reduced` is null if nothing is reduced. Parts without bytes are done, and all are if the call
  // only checks, which opens NCCL if it is needed.
  husk_status exchange(size_t bytes, size_t in_step, size_t out_step, const Reduced* reduced,
                       bool* is_done) const;

  bool only_checks() const { return only_checks_; }
  husk_error* error() const { return error_; }
  const char* op() const { return op_; }
  bool has_nccl() const { return group().nccl.library; }
  // Waits until NCCL has enqueued the work that `*result` is the state of.
  husk_status settle(ncclResult_t* result) const {
    HUSK_TRY(group().settle(*result, "NCCL", op_, error_));
    *result = ncclSuccess;
    return HUSK_OK;
  }
  // Opens NCCL, if it is not open and may be.
  husk_status open_nccl() const;
  // Fails if there is no NCCL, for what the port does not do itself.
  husk_status need_nccl() const;

 private:
  bool only_checks_;
  const char* op_;
  const Places& places_;
  const husk_op_context* context_;
  const husk_op_arg* args_;
  uint32_t count_;
  DeviceGroup* group_;
  husk_error* error_;
};

husk_status Call::read_tensor(Name name, uint64_t* elements) const {
  const husk_op_arg& tensor = arg(name);
  if (tensor.kind != HUSK_ARG_TENSOR) return refuse(name, HUSK_INVALID_ARGUMENT, "is not a tensor");
  *elements = 1;
  int64_t stride = 1;
  bool is_contiguous = true;
  for (int32_t d = tensor.rank; d-- > 0;) {
    is_contiguous = is_contiguous && (tensor.sizes[d] == 1 || tensor.strides[d] == stride);
    stride *= tensor.sizes[d];
    *elements *= static_cast<uint64_t>(tensor.sizes[d]);
  }
  if (*elements && !is_contiguous) return refuse(name, HUSK_INVALID_ARGUMENT, "is not contiguous");
  return HUSK_OK;
}

husk_status Call::read_moved(Name name, uint64_t elements, size_t* bytes) const {
  const uint8_t width = detail::element_bytes(arg(name).dtype);
  if (width == 0) return refuse(name, HUSK_UNSUPPORTED, "has an unknown dtype");
  *bytes = elements * width;
  return HUSK_OK;
}

// The same reduction in the kernel of the port. False if it has none.
bool read_own(const Reduced& reduced, uint32_t world, Exchange* out) {
  switch (reduced.type) {
    case ncclFloat32: out->kind = Exchange::f32; break;
    case ncclFloat16: out->kind = Exchange::f16; break;
    case ncclBfloat16: out->kind = Exchange::bf16; break;
    default: return false;
  }
  switch (reduced.how) {
    case ncclSum: out->how = Exchange::sum; break;
    case ncclProd: out->how = Exchange::product; break;
    case ncclMax: out->how = Exchange::max; break;
    case ncclMin: out->how = Exchange::min; break;
    case ncclAvg:
      out->how = Exchange::sum;
      out->scale = 1.0f / static_cast<float>(world);
      break;
  }
  return true;
}

husk_status Call::read_reduced(uint64_t elements, Reduced* out) const {
  const husk_op_arg& reduce = arg(kReduce);
  const ReductionName* found = nullptr;
  for (const ReductionName& row : kReductions)
    if (reduce.kind == HUSK_ARG_STRING && strcmp(reduce.string, row.name) == 0) found = &row;
  if (!found) return refuse(kReduce, HUSK_UNSUPPORTED, "is not sum, avg, product, min or max");
  const int32_t dtype = arg(kSelf).dtype;
  for (const NumberType& row : kNumbers) {
    if (row.dtype != dtype) continue;
    // The sum of bools is their union. Complex numbers have no order, and pairs no product.
    out->how = dtype == HUSK_BOOL && found->how == ncclSum ? ncclMax : found->how;
    if ((dtype == HUSK_BOOL && found->how == ncclAvg) ||
        (row.width == 2 && found->how != ncclSum && found->how != ncclAvg))
      break;
    out->type = row.type;
    out->count = elements * static_cast<uint64_t>(row.width);
    Exchange own;
    return read_own(*out, group().world, &own) ? HUSK_OK : need_nccl();
  }
  return fail(error_, HUSK_UNSUPPORTED, "%s: argument self has dtype %s, of which NCCL has no %s",
              op_, detail::element_name(dtype), found->name);
}

husk_status Call::open_nccl() const {
  if (group().has_chosen) return HUSK_OK;
  Current current(context_->device, error_);
  HUSK_TRY(current.status);
  return want_nccl(as_device(context_->device), group(), error_);
}

husk_status Call::need_nccl() const {
  HUSK_TRY(open_nccl());
  if (has_nccl()) return HUSK_OK;
  return fail(error_, HUSK_UNSUPPORTED,
              "%s of %s: ranks without NCCL reduce f32, f16 and bf16, gather, and exchange equal "
              "parts, nothing else: install NVIDIA's NCCL 2",
              op_, detail::element_name(args_[0].dtype));
}

husk_status Call::exchange(size_t bytes, size_t in_step, size_t out_step, const Reduced* reduced,
                           bool* is_done) const {
  *is_done = true;
  if (only_checks_) return group().peers.take(bytes) ? HUSK_OK : open_nccl();
  if (bytes == 0) return HUSK_OK;
  const bool is_alone = reduced && reduced->is_done;
  Exchange what = {as_address(arg(is_alone ? kOut : kSelf).data),
                   as_address(arg(kOut).data),
                   reduced ? reduced->residual : 0,
                   in_step,
                   out_step,
                   Exchange::f32,
                   Exchange::sum,
                   1,
                   is_alone ? 1 : group().world};
  const bool is_reducible = !reduced || read_own(*reduced, what.world, &what);
  *is_done = is_reducible && (is_alone || !has_nccl() || group().peers.take(bytes));
  if (!*is_done) return need_nccl();
  return group().peers.exchange(as_device(context_->device), stream(), &what, bytes, op_, error_);
}

husk_status Call::open_group() {
  const husk_op_arg& ranks = arg(kRanks);
  if (places_.at[kRanks] == 0 || ranks.kind != HUSK_ARG_INTS) return HUSK_OK;
  return group_of(context_->device, ranks.sizes, ranks.count, &group_, error_);
}

husk_status Call::check_ranks() const {
  const husk_op_arg& ranks = arg(kRanks);
  if (ranks.kind == HUSK_ARG_INTS && group().has(ranks.sizes, ranks.count)) return HUSK_OK;
  return refuse(kRanks, HUSK_INVALID_ARGUMENT,
                "must be different ranks of the group, with this one among them");
}

husk_status Call::read_rank(Name name, int* rank) const {
  const husk_op_arg& value = arg(name);
  *rank = value.kind == HUSK_ARG_INT ? group().place_of(value.i) : -1;
  return *rank >= 0 ? HUSK_OK : refuse(name, HUSK_INVALID_ARGUMENT, "is not a rank of the group");
}

husk_status Call::check_same(Name name, Name other) const {
  uint64_t elements = 0, others = 0;
  HUSK_TRY(read_tensor(name, &elements));
  HUSK_TRY(read_tensor(other, &others));
  if (elements == others && arg(name).dtype == arg(other).dtype) return HUSK_OK;
  return refuse(name, HUSK_INVALID_ARGUMENT, "has another dtype or size than the result");
}

husk_status Call::read_residual(Reduced* reduced) const {
  if (count_ <= places_.at[kResidual] || arg(kResidual).kind == HUSK_ARG_NONE) return HUSK_OK;
  HUSK_TRY(check_same(kResidual, kOut));
  reduced->residual = as_address(arg(kResidual).data);
  Exchange own;
  if (group().peers.small.function && read_own(*reduced, 1, &own)) return HUSK_OK;
  return refuse(kResidual, HUSK_UNSUPPORTED,
                "is not f32, f16 or bf16, or the driver compiles no PTX");
}

// A collective, which enqueues its work, or only checks its arguments.
using Enqueue = husk_status (*)(const Call& call, ncclResult_t* result);

// Reduces to `out`, a tensor of so many elements: those of `self`, or the part of this rank.
husk_status reduce(const Call& call, uint64_t elements, bool scatters, ncclResult_t* result) {
  size_t bytes = 0;
  HUSK_TRY(call.read_moved(kSelf, elements, &bytes));
  Reduced reduced{};
  HUSK_TRY(call.read_reduced(elements, &reduced));
  HUSK_TRY(call.check_ranks());
  if (!scatters) HUSK_TRY(call.read_residual(&reduced));
  bool is_done = false;
  HUSK_TRY(call.exchange(bytes, scatters ? bytes : 0, 0, &reduced, &is_done));
  if (is_done) return HUSK_OK;
  const Nccl& nccl = call.group().nccl;
  const auto enqueue = scatters ? nccl.ncclReduceScatter : nccl.ncclAllReduce;
  *result = enqueue(call.arg(kSelf).data, call.arg(kOut).data, reduced.count, reduced.type,
                    reduced.how, call.group().comm, call.stream());
  if (!reduced.residual) return HUSK_OK;
  HUSK_TRY(call.settle(result));
  reduced.is_done = true;
  return call.exchange(bytes, 0, 0, &reduced, &is_done);
}

husk_status all_reduce(const Call& call, ncclResult_t* result) {
  uint64_t elements = 0;
  HUSK_TRY(call.check_same(kSelf, kOut));
  HUSK_TRY(call.read_tensor(kSelf, &elements));
  return reduce(call, elements, false, result);
}

// One of two tensors has the elements of the other one for each rank.
husk_status check_parts(const Call& call, Name part, Name whole, uint64_t* elements) {
  uint64_t all = 0;
  HUSK_TRY(call.read_tensor(part, elements));
  HUSK_TRY(call.read_tensor(whole, &all));
  if (all == *elements * call.group().world && call.arg(part).dtype == call.arg(whole).dtype)
    return HUSK_OK;
  return call.refuse(whole, HUSK_INVALID_ARGUMENT, "is not as large as the parts of all ranks");
}

husk_status all_gather(const Call& call, ncclResult_t* result) {
  uint64_t elements = 0;
  size_t bytes = 0;
  HUSK_TRY(check_parts(call, kSelf, kOut, &elements));
  HUSK_TRY(call.read_moved(kSelf, elements, &bytes));
  HUSK_TRY(call.check_ranks());
  bool is_done = false;
  HUSK_TRY(call.exchange(bytes, 0, bytes, nullptr, &is_done));
  if (is_done) return HUSK_OK;
  *result = call.group().nccl.ncclAllGather(call.arg(kSelf).data, call.arg(kOut).data, bytes,
                                            ncclUint8, call.group().comm, call.stream());
  return HUSK_OK;
}

husk_status reduce_scatter(const Call& call, ncclResult_t* result) {
  uint64_t elements = 0;
  HUSK_TRY(check_parts(call, kOut, kSelf, &elements));
  return reduce(call, elements, true, result);
}

// Reads a tensor, and the rank that it comes from or goes to. `bytes` is 0 if nothing is moved.
husk_status read_transfer(const Call& call, Name tensor, Name rank, size_t* bytes, int* peer) {
  uint64_t elements = 0;
  HUSK_TRY(call.read_tensor(tensor, &elements));
  HUSK_TRY(call.read_moved(tensor, elements, bytes));
  HUSK_TRY(call.read_rank(rank, peer));
  HUSK_TRY(call.need_nccl());
  if (call.only_checks()) *bytes = 0;
  return HUSK_OK;
}

husk_status broadcast(const Call& call, ncclResult_t* result) {
  size_t bytes = 0;
  int source = 0;
  HUSK_TRY(call.check_same(kSelf, kOut));
  HUSK_TRY(call.check_ranks());
  HUSK_TRY(read_transfer(call, kSelf, kSource, &bytes, &source));
  if (bytes > 0)
    *result = call.group().nccl.ncclBroadcast(call.arg(kSelf).data, call.arg(kOut).data, bytes,
                                              ncclUint8, source, call.group().comm, call.stream());
  return HUSK_OK;
}

// The bytes of each rank's part of a tensor: the rows of `list`, or equal parts.
husk_status check_rows(const Call& call, Name list, Name tensor, uint64_t* row) {
  uint64_t elements = 0;
  size_t bytes = 0;
  HUSK_TRY(call.read_tensor(tensor, &elements));
  HUSK_TRY(call.read_moved(tensor, elements, &bytes));
  const husk_op_arg &rows = call.arg(list), &whole = call.arg(tensor);
  const int64_t all = whole.rank > 0 ? whole.sizes[0] : 0;
  const auto world = static_cast<int64_t>(call.group().world);
  *row = all > 0 ? bytes / static_cast<uint64_t>(all) : 0;
  if (rows.kind != HUSK_ARG_INTS || (rows.count != 0 && rows.count != world))
    return call.refuse(list, HUSK_INVALID_ARGUMENT, "has no size for each rank");
  int64_t left = all;
  for (int64_t i = 0; i < world; ++i) {
    const int64_t part = rows.count ? rows.sizes[i] : all / world;
    if (part < 0 || part > left) break;
    left -= part;
  }
  if (left == 0) return HUSK_OK;
  return call.refuse(list, HUSK_INVALID_ARGUMENT, "does not add up to the tensor");
}

husk_status all_to_all(const Call& call, ncclResult_t* result) {
  uint64_t sent_row = 0, received_row = 0;
  HUSK_TRY(check_rows(call, kInputSizes, kSelf, &sent_row));
  HUSK_TRY(check_rows(call, kOutputSizes, kOut, &received_row));
  HUSK_TRY(call.check_ranks());
  const DeviceGroup& group = call.group();
  const husk_op_arg &in = call.arg(kSelf), &out = call.arg(kOut);
  const husk_op_arg &sent = call.arg(kInputSizes), &received = call.arg(kOutputSizes);
  // Without sizes, each rank has equal parts for all others, and all ranks have parts of that size.
  const bool are_equal = sent.count == 0 && received.count == 0;
  if (!are_equal) HUSK_TRY(call.need_nccl());
  const size_t part = in.rank > 0 ? sent_row * static_cast<uint64_t>(in.sizes[0]) / group.world : 0;
  bool is_done = call.only_checks();
  if (are_equal) HUSK_TRY(call.exchange(part, part, part, nullptr, &is_done));
  if (is_done) return HUSK_OK;
  const auto bytes_of = [&](const husk_op_arg& list, const husk_op_arg& tensor, uint64_t row,
                            uint32_t rank) {
    return row * static_cast<uint64_t>(list.count        ? list.sizes[rank]
                                       : tensor.rank > 0 ? tensor.sizes[0] / group.world
                                                         : 0);
  };
  const auto* from = static_cast<const char*>(in.data);
  auto* to = static_cast<char*>(out.data);
  ncclResult_t first = group.nccl.ncclGroupStart();
  const auto note = [&first](ncclResult_t one) {
    if (first == ncclSuccess && one != ncclInProgress) first = one;
  };
  for (uint32_t rank = 0; rank < group.world; ++rank) {
    const size_t send = bytes_of(sent, in, sent_row, rank);
    const size_t receive = bytes_of(received, out, received_row, rank);
    const int peer = static_cast<int>(rank);
    if (send) note(group.nccl.ncclSend(from, send, ncclUint8, peer, group.comm, call.stream()));
    if (receive) note(group.nccl.ncclRecv(to, receive, ncclUint8, peer, group.comm, call.stream()));
    from += send;
    to += receive;
  }
  *result = group.nccl.ncclGroupEnd();
  if (first != ncclSuccess) *result = first;
  return HUSK_OK;
}

husk_status send(const Call& call, ncclResult_t* result) {
  size_t bytes = 0;
  int peer = 0;
  HUSK_TRY(read_transfer(call, kSelf, kTo, &bytes, &peer));
  if (bytes > 0)
    *result = call.group().nccl.ncclSend(call.arg(kSelf).data, bytes, ncclUint8, peer,
                                         call.group().comm, call.stream());
  return HUSK_OK;
}

husk_status receive(const Call& call, ncclResult_t* result) {
  size_t bytes = 0;
  int peer = 0;
  HUSK_TRY(read_transfer(call, kOut, kFrom, &bytes, &peer));
  if (bytes > 0)
    *result = call.group().nccl.ncclRecv(call.arg(kOut).data, bytes, ncclUint8, peer,
                                         call.group().comm, call.stream());
  return HUSK_OK;
}

// The contracts are those of the host's operators (ports/host/ops/library/pack.def).
struct Collective {
  constexpr Collective(const char* op, const char* text, uint32_t least, Enqueue function)
      : name(op), contract(text), arguments(least), enqueue(function), places(places_of(text)) {}
  const char* name;
  const char* contract;
  uint32_t arguments;  // without the residual
  Enqueue enqueue;
  Places places;
};
constexpr Collective kCollectives[] = {
    {"husk::all_gather_into_tensor", "self ranks out:w token:w", 4, all_gather},
    {"husk::all_reduce", "self reduce ranks out:w=self token:w residual?", 5, all_reduce},
    {"husk::all_to_all_single", "self output_sizes input_sizes ranks out:w token:w", 6, all_to_all},
    {"husk::broadcast", "self source ranks out:w=self token:w", 5, broadcast},
    {"husk::recv", "from out:w token:w", 3, receive},
    {"husk::reduce_scatter_tensor", "self reduce ranks out:w token:w", 5, reduce_scatter},
    {"husk::send", "self to token:w", 3, send},
};

const Collective& row_of(const husk_op_context* context) {
  return *static_cast<const Collective*>(context->user);
}

husk_status enqueue(const Call& one, const Collective& row) {
  ncclResult_t result = ncclSuccess;
  HUSK_TRY(row.enqueue(one, &result));
  return one.settle(&result);
}

husk_status prepare(const husk_op_context* context, const husk_op_arg* args, uint32_t count,
                    husk_error* error) {
  HUSK_TRY(HUSK_CHECK_STRUCT(husk_op_context, context, threads, error));
  const Collective& row = row_of(context);
  Call one(true, row.name, row.places, context, args, count, error);
  HUSK_TRY(one.check_count(row.arguments));
  HUSK_TRY(one.open_group());
  return enqueue(one, row);
}

husk_status call(const husk_op_context* context, const husk_op_arg* args, uint32_t count,
                 husk_error* error) {
  HUSK_TRY(prepare(context, args, count, error));
  const Collective& row = row_of(context);
  Device& device = as_device(context->device);
  if (const uint32_t at = misaligned_tensor(args, count); at < count)
    return misaligned(row.name, args, at, error);
  Current current(context->device, error);
  HUSK_TRY(current.status);
  const NvtxRange range(device.nvtx, row.name);
  {
    Call one(false, row.name, row.places, context, args, count, error);
    HUSK_TRY(one.open_group());
    const Lock lock(&one.group().whole->mutex);
    HUSK_TRY(one.group().check(row.name, error));
    HUSK_TRY(enqueue(one, row));
  }
  return check_work(device, context->stream, error, "%s", row.name);
}

}  // namespace

husk_status open_collective(void* handle, OpLibrary* out, husk_error* error) {
  DeviceGroup* group = as_device(handle).group;
  if (!group)
    return fail(error, HUSK_INVALID_ARGUMENT,
                "the program is for several ranks, and the engine has joined no group: "
                "husk_engine_options.rank, world and group");
  *out = {group, [](const Device&, void*) {}};  // group_close gives it back
  return HUSK_OK;
}

// An exchange of the port's own waits by itself, and is the only node with programmatic edges.
constexpr uint32_t kFlags = HUSK_OP_CAPTURABLE | HUSK_OP_WAITS_FIRST;

husk_status find_collective(const char* name, void*, husk_op* op) {
  for (size_t i = 0; i < std::size(kCollectives); ++i) {
    if (strcmp(name, kCollectives[i].name) != 0) continue;
    *op = {sizeof(husk_op),
           0,
           kCollectives[i].name,
           call,
           const_cast<Collective*>(&kCollectives[i]),
           prepare,
           kCollectives[i].contract,
           nullptr,
           HUSK_OP_ON_DEVICE,
           kFlags,
           0,
           0};
    return HUSK_OK;
  }
  return HUSK_NOT_FOUND;
}

}  // namespace husk::cuda
