// A libnccl.so.2 for tests that runs on the fake driver. Ranks are processes, each with a fake
// driver of its own; the operators of the host, which communicate by shared memory, compute in the
// order of the stream. It aborts if the real library's behaviour is undefined: ranks that call
// different functions or sizes, memory that is not live, two callers of one communicator. If a rank
// does not come within FAKE_NCCL_TIMEOUT milliseconds, 5,000 by default, the communicator has an
// error. With FAKE_NCCL_STALL=1 queued
// work of a communicator never ends, and the communicator has no error, until ncclCommAbort, as
// when a rank of another machine is gone. ncclCommAbort returns when the graphs that have calls of
// the communicator are gone. Calls are counted and fail like the driver's (fake_calls,
// fake_fail_call), with a result of NCCL.
#include "ops/nccl.h"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <husk/detail/dtype.h>
#include <husk/ops.h>
#include <husk/port_host.h>

#include "fake.h"

using namespace husk::cuda;

namespace {

[[noreturn]] void violation(const char* text) {
  fprintf(stderr, "fake libnccl: %s\n", text);
  abort();
}

// The result for a fault, which is a code of the driver or a result of NCCL.
ncclResult_t result_of(int32_t code) {
  return code > ncclInProgress ? ncclUnhandledCudaError : static_cast<ncclResult_t>(code);
}

uint32_t timeout() {
  const char* text = getenv("FAKE_NCCL_TIMEOUT");
  return text ? static_cast<uint32_t>(atoi(text)) : 5000;
}

void* allocate(void*, size_t size, size_t) { return malloc(size); }
void release(void*, void* memory) { free(memory); }
constexpr husk_allocator kAllocator = {nullptr, allocate, release};

}  // namespace

struct husk::cuda::ncclComm {
  void* device = nullptr;  // of the host port, which has joined the group
  uint32_t rank = 0, world = 0;
  std::thread joining;
  std::atomic<int> error{ncclInProgress};
  std::atomic<bool> is_called{false};
  std::atomic<bool> is_gone{false};
};

namespace {

enum class What : int { reduce, gather, scatter, broadcast, send };

// A call as it is queued.
struct Work {
  What what;
  ncclComm_t comm;
  const void* in;
  void* out;
  size_t count;
  ncclDataType_t type;
  ncclRedOp_t how;
  int peer;
  // Pairs of a group of sends: what goes to a rank, and what comes from it.
  uint32_t pairs;
};
struct Pair {
  int peer;
  const void* in;
  size_t in_bytes;
  void* out;
  size_t out_bytes;
};

int32_t dtype_of(ncclDataType_t type) {
  constexpr int32_t kTypes[] = {HUSK_I8,  HUSK_U8,   HUSK_I32,      HUSK_U32,
                                HUSK_I64, HUSK_U64,  HUSK_F16,      HUSK_F32,
                                HUSK_F64, HUSK_BF16, HUSK_F8E4M3FN, HUSK_F8E5M2};
  return kTypes[type];
}
size_t width_of(ncclDataType_t type) { return husk::detail::element_bytes(dtype_of(type)); }

husk_op_arg vector_arg(const void* data, const int64_t* size, int32_t dtype) {
  static constexpr int64_t kOne = 1;
  husk_op_arg arg{};
  arg.kind = HUSK_ARG_TENSOR;
  arg.access = HUSK_ACCESS_READ | HUSK_ACCESS_WRITE;
  arg.dtype = dtype;
  arg.rank = 1;
  arg.data = const_cast<void*>(data);
  arg.sizes = size;
  arg.strides = &kOne;
  return arg;
}
husk_op_arg int_arg(int64_t value) {
  husk_op_arg arg{};
  arg.kind = HUSK_ARG_INT;
  arg.i = value;
  return arg;
}

// Calls an operator of the host.
void run(ncclComm_t comm, const char* name, const std::vector<husk_op_arg>& args) {
  uint32_t count = 0;
  const husk_op* ops = husk_host_ops(&count);
  for (uint32_t i = 0; i < count; ++i) {
    if (strcmp(ops[i].name, name) != 0) continue;
    husk_op_context context = HUSK_OP_CONTEXT_INIT;
    context.user = ops[i].user;
    context.device = comm->device;
    husk_error error{};
    const husk_status status = ops[i].call(&context, args.data(),
                                           static_cast<uint32_t>(args.size()), &error);
    if (status == HUSK_OK) return;
    if (strstr(error.text, "makes another call")) violation(error.text);
    comm->error = ncclRemoteError;
    return;
  }
  violation("the host has no such operator");
}

void transfer(ncclComm_t comm, const Pair& pair) {
  const husk_op_arg token = int_arg(0);
  const auto other = static_cast<uint32_t>(pair.peer);
  if (other == comm->rank) {
    if (pair.in_bytes != pair.out_bytes) violation("a rank sends itself another size");
    memmove(pair.out, pair.in, pair.in_bytes);
    return;
  }
  // The lower rank sends first.
  for (const bool sends : {comm->rank<other, comm->rank> other}) {
    const auto size = static_cast<int64_t>(sends ? pair.in_bytes : pair.out_bytes);
    if (size == 0) continue;
    if (sends)
      run(comm, "husk::send", {vector_arg(pair.in, &size, HUSK_U8), int_arg(pair.peer), token});
    else
      run(comm, "husk::recv", {int_arg(pair.peer), vector_arg(pair.out, &size, HUSK_U8), token});
  }
}

void compute(const void* data) {
  Work w;
  memcpy(&w, data, sizeof w);
  ncclComm_t comm = w.comm;
  if (comm->is_gone || comm->error != ncclSuccess) return;
  std::vector<int64_t> all(comm->world);
  for (uint32_t i = 0; i < comm->world; ++i) all[i] = i;
  husk_op_arg ranks{}, reduce{};
  ranks.kind = HUSK_ARG_INTS;
  ranks.count = comm->world;
  ranks.sizes = all.data();
  reduce.kind = HUSK_ARG_STRING;
  constexpr const char* kHow[] = {"sum", "product", "max", "min", "avg"};
  reduce.string = kHow[w.how];
  const auto count = static_cast<int64_t>(w.count), whole = count * comm->world;
  const int32_t dtype = dtype_of(w.type);
  const husk_op_arg token = int_arg(0);
  if (comm->world == 1 && w.what != What::send) {  // whatever is computed, of one tensor
    memmove(w.out, w.in, w.count * width_of(w.type));
    return;
  }
  switch (w.what) {
    case What::reduce:
      return run(comm, "husk::all_reduce",
                 {vector_arg(w.in, &count, dtype), reduce, ranks, vector_arg(w.out, &count, dtype),
                  token});
    case What::gather:
      return run(comm, "husk::all_gather_into_tensor",
                 {vector_arg(w.in, &count, dtype), ranks, vector_arg(w.out, &whole, dtype), token});
    case What::scatter:
      return run(comm, "husk::reduce_scatter_tensor",
                 {vector_arg(w.in, &whole, dtype), reduce, ranks, vector_arg(w.out, &count, dtype),
                  token});
    case What::broadcast:
      return run(comm, "husk::broadcast",
                 {vector_arg(w.in, &count, dtype), int_arg(w.peer), ranks,
                  vector_arg(w.out, &count, dtype), token});
    case What::send:
      for (uint32_t i = 0; i < w.pairs; ++i) {
        Pair pair;
        memcpy(&pair, static_cast<const char*>(data) + sizeof w + i * sizeof pair, sizeof pair);
        transfer(comm, pair);
      }
  }
}

// The state of queued work, for fake_queue_endless.
int32_t state_of(const void* data) {
  Work w;
  memcpy(&w, data, sizeof w);
  if (w.comm->is_gone) return -1;
  const char* stalls = getenv("FAKE_NCCL_STALL");
  return stalls && atoi(stalls) ? 1 : 0;
}

int32_t is_of(const void* data, const void* comm) {
  Work w;
  memcpy(&w, data, sizeof w);
  return w.comm == comm;
}

// One caller of a communicator.
class Caller {
 public:
  explicit Caller(ncclComm_t comm) : comm_(comm) {
    if (comm->is_called.exchange(true)) violation("two threads call one communicator");
  }
  ~Caller() { comm_->is_called = false; }

 private:
  ncclComm_t comm_;
};

ncclResult_t queue(const char* name, Work work, size_t in_bytes, size_t out_bytes,
                   CUstream stream) {
  const Caller caller(work.comm);
  if (work.comm->error != ncclSuccess) return static_cast<ncclResult_t>(work.comm->error.load());
  const fake_range ranges[] = {{work.in, in_bytes}, {work.out, out_bytes}};
  return result_of(
      fake_queue_endless(name, stream, compute, state_of, &work, sizeof work, ranges, 2));
}

// The sends and receives of a group, of one thread.
struct Group {
  bool is_open = false;
  ncclComm_t comm = nullptr;
  CUstream stream = nullptr;
  std::vector<Pair> pairs;
};
Group& group() {
  thread_local auto* const one = new Group;
  return *one;
}

ncclResult_t queue_pairs(Group& sends) {
  if (!sends.comm) return ncclSuccess;
  const Caller caller(sends.comm);
  if (sends.comm->error != ncclSuccess) return static_cast<ncclResult_t>(sends.comm->error.load());
  Work work = {};
  work.what = What::send;
  work.comm = sends.comm;
  work.pairs = static_cast<uint32_t>(sends.pairs.size());
  std::vector<char> data(sizeof work + sends.pairs.size() * sizeof(Pair));
  memcpy(data.data(), &work, sizeof work);
  memcpy(data.data() + sizeof work, sends.pairs.data(), sends.pairs.size() * sizeof(Pair));
  std::vector<fake_range> ranges;
  for (const Pair& pair : sends.pairs) {
    if (pair.in_bytes) ranges.push_back({pair.in, pair.in_bytes});
    if (pair.out_bytes) ranges.push_back({pair.out, pair.out_bytes});
  }
  return result_of(fake_queue_endless("ncclGroupEnd", sends.stream, compute, state_of, data.data(),
                                      data.size(), ranges.data(),
                                      static_cast<uint32_t>(ranges.size())));
}

ncclResult_t add(const char* name, bool is_send, const void* memory, size_t bytes, int peer,
                 ncclComm_t comm, CUstream stream) {
  if (const int32_t fault = fake_enter(name, 1)) return result_of(fault);
  if (peer < 0 || static_cast<uint32_t>(peer) >= comm->world) return ncclInvalidArgument;
  Group& sends = group();
  sends.comm = comm;
  sends.stream = stream;
  Pair* pair = nullptr;
  for (Pair& one : sends.pairs)
    if (one.peer == peer) pair = &one;
  if (!pair) pair = &sends.pairs.emplace_back(Pair{peer, nullptr, 0, nullptr, 0});
  (is_send ? pair->in_bytes : pair->out_bytes) = bytes;
  if (is_send)
    pair->in = memory;
  else
    pair->out = const_cast<void*>(memory);
  if (sends.is_open) return ncclSuccess;
  const ncclResult_t result = queue_pairs(sends);
  sends = {};
  return result;
}

// The communicator stays, so that queued and captured work finds out that it is gone.
void leave(ncclComm_t comm) {
  static auto* const gone = new std::vector<ncclComm_t>;
  if (comm->is_gone.exchange(true)) violation("a communicator is destroyed twice");
  if (comm->joining.joinable()) comm->joining.join();
  husk_port_host()->close(comm->device);
  fake_hold(-1);
  gone->push_back(comm);
}

}  // namespace

extern "C" {

FAKE_API ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  if (const int32_t fault = fake_enter("ncclGetUniqueId", 0)) return result_of(fault);
  husk_group_id made;
  husk_error error;
  if (husk_port_host()->group_id(nullptr, &made, &error) != HUSK_OK) return ncclSystemError;
  memcpy(id, &made, sizeof made);
  return ncclSuccess;
}

FAKE_API const char* ncclGetErrorString(ncclResult_t result) {
  constexpr const char* kNames[] = {"no error",       "unhandled cuda error", "system error",
                                    "internal error", "invalid argument",     "invalid usage",
                                    "remote error",   "in progress"};
  return result >= 0 && result <= ncclInProgress ? kNames[result] : "unknown result code";
}

// A communicator that does not block is ready some time later.
FAKE_API ncclResult_t ncclCommInitRankConfig(ncclComm_t* out, int ranks, ncclUniqueId id, int rank,
                                             ncclConfig_t* config) {
  *out = nullptr;
  if (const int32_t fault = fake_enter("ncclCommInitRankConfig", 1)) return result_of(fault);
  if (config->size != sizeof *config || config->magic != 0xcafebeef || config->blocking != 0)
    return ncclInvalidArgument;
  auto* comm = new ncclComm;
  comm->rank = static_cast<uint32_t>(rank);
  comm->world = static_cast<uint32_t>(ranks);
  husk_error error;
  if (husk_port_host()->open(nullptr, 0, &kAllocator, nullptr, &comm->device, &error) != HUSK_OK)
    violation(error.text);
  fake_hold(1);
  comm->joining = std::thread([comm, id] {
    husk_group_id bytes;
    memcpy(&bytes, &id, sizeof id);
    const husk_port_group request = {sizeof request, comm->rank, comm->world, timeout(),
                                     &bytes,         nullptr,    nullptr};
    husk_error failure{};
    husk_status status = HUSK_OK;
    if (comm->world > 1) status = husk_port_host()->join(comm->device, &request, &failure);
    comm->error = status == HUSK_OK                 ? ncclSuccess
                  : status == HUSK_INVALID_ARGUMENT ? ncclInvalidUsage
                                                    : ncclRemoteError;
  });
  *out = comm;
  return ncclInProgress;
}

FAKE_API ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  if (const int32_t fault = fake_enter("ncclCommGetAsyncError", 0)) return result_of(fault);
  *error = static_cast<ncclResult_t>(comm->error.load());
  return ncclSuccess;
}

FAKE_API ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  (void)comm;
  return result_of(fake_enter("ncclCommFinalize", 1));
}
FAKE_API ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  const int32_t fault = fake_enter("ncclCommDestroy", 1);
  leave(comm);
  return result_of(fault);
}
// The kernels end at once. NCCL returns when no graph has calls of the communicator.
FAKE_API ncclResult_t ncclCommAbort(ncclComm_t comm) {
  const int32_t fault = fake_enter("ncclCommAbort", 0);
  leave(comm);
  for (uint32_t turn = 0; fake_captured_work(is_of, comm) > 0; ++turn) {
    if (turn > 5000) violation("ncclCommAbort waits for ever for a graph");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return result_of(fault);
}

FAKE_API ncclResult_t ncclCommCount(ncclComm_t comm, int* count) {
  *count = static_cast<int>(comm->world);
  return result_of(fake_enter("ncclCommCount", 0));
}
FAKE_API ncclResult_t ncclCommUserRank(ncclComm_t comm, int* rank) {
  *rank = static_cast<int>(comm->rank);
  return result_of(fake_enter("ncclCommUserRank", 0));
}

FAKE_API ncclResult_t ncclAllReduce(const void* in, void* out, size_t count, ncclDataType_t type,
                                    ncclRedOp_t how, ncclComm_t comm, CUstream stream) {
  const size_t bytes = count * width_of(type);
  return queue("ncclAllReduce", {What::reduce, comm, in, out, count, type, how, 0, 0}, bytes, bytes,
               stream);
}
FAKE_API ncclResult_t ncclAllGather(const void* in, void* out, size_t count, ncclDataType_t type,
                                    ncclComm_t comm, CUstream stream) {
  const size_t bytes = count * width_of(type);
  return queue("ncclAllGather", {What::gather, comm, in, out, count, type, ncclSum, 0, 0}, bytes,
               bytes * comm->world, stream);
}
FAKE_API ncclResult_t ncclReduceScatter(const void* in, void* out, size_t count,
                                        ncclDataType_t type, ncclRedOp_t how, ncclComm_t comm,
                                        CUstream stream) {
  const size_t bytes = count * width_of(type);
  return queue("ncclReduceScatter", {What::scatter, comm, in, out, count, type, how, 0, 0},
               bytes * comm->world, bytes, stream);
}
FAKE_API ncclResult_t ncclBroadcast(const void* in, void* out, size_t count, ncclDataType_t type,
                                    int root, ncclComm_t comm, CUstream stream) {
  const size_t bytes = count * width_of(type);
  return queue("ncclBroadcast", {What::broadcast, comm, in, out, count, type, ncclSum, root, 0},
               bytes, bytes, stream);
}
FAKE_API ncclResult_t ncclSend(const void* in, size_t count, ncclDataType_t type, int peer,
                               ncclComm_t comm, CUstream stream) {
  return add("ncclSend", true, in, count * width_of(type), peer, comm, stream);
}
FAKE_API ncclResult_t ncclRecv(void* out, size_t count, ncclDataType_t type, int peer,
                               ncclComm_t comm, CUstream stream) {
  return add("ncclRecv", false, out, count * width_of(type), peer, comm, stream);
}

FAKE_API ncclResult_t ncclGroupStart() {
  if (const int32_t fault = fake_enter("ncclGroupStart", 0)) return result_of(fault);
  group() = {};
  group().is_open = true;
  return ncclSuccess;
}
FAKE_API ncclResult_t ncclGroupEnd() {
  // Every rank goes through its pairs in the order of the other ranks.
  Group sends = std::exchange(group(), {});
  std::vector<Pair> ordered;
  for (uint32_t rank = 0; sends.comm && rank < sends.comm->world; ++rank)
    for (const Pair& pair : sends.pairs)
      if (static_cast<uint32_t>(pair.peer) == rank) ordered.push_back(pair);
  sends.pairs = std::move(ordered);
  return queue_pairs(sends);
}

}  // extern "C"
