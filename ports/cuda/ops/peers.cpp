#include "ops/peers.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "exchange_ptx.h"

namespace husk::cuda {

namespace {

// The kernel for small parts has these numbers, too.
constexpr uint32_t kBlocks = 64, kBlockUnits = 2048;
constexpr uint32_t kUnitBytes = 8;
constexpr size_t kPlaceBytes = 16;
constexpr uint32_t kThreads = 512;
// Blocks of sums of two ranks, as long as there are few: the kernel for them takes 0.99 of the
// time.
constexpr uint32_t kSumThreads = 256;

constexpr size_t kMostBytes = size_t{kBlocks} * kBlockUnits * kUnitBytes;

// The kernel of pairs has these. Other chunks (8 and 32 KiB, 64 to 512 blocks, 256 to 1,024 threads
// for them) took 0.98 to 1.5 times as long on two H200.
constexpr uint32_t kPairBlocks = 256, kPairThreads = 1024, kPairSlots = 4;
constexpr uint32_t kPairUnitBytes = 16, kChunkBytes = kPairThreads * kPairUnitBytes;
constexpr size_t kPairHeadBytes = 32768;
// From here on the kernel of pairs takes less time than the other one.
constexpr size_t kSmallBytes = 512 << 10;
// A piece, so that the place of a byte has 32 bits.
constexpr size_t kMostPairBytes = size_t{1} << 30;

// A workspace has the places of small parts, what belongs to the kernel of pairs, and counters.
constexpr size_t places_bytes(uint32_t world) {
  return size_t{2} * kBlocks * world * kBlockUnits * kPlaceBytes;
}
constexpr size_t pair_bytes(uint32_t world) {
  return world == 2 ? kPairHeadBytes + size_t{kPairBlocks} * kPairSlots * kChunkBytes : 0;
}
constexpr size_t counters_at(uint32_t world) { return places_bytes(world) + pair_bytes(world); }
constexpr size_t workspace_bytes(uint32_t world) {
  return counters_at(world) + (kBlocks + kPairBlocks) * sizeof(uint32_t);
}

// A record that a rank gives to the others, by which they map its workspace.
struct Record {
  uint64_t machine, process_namespace, process;
  uint64_t workspace, context;  // in that process
  CUipcMemHandle handle;
  uint32_t is_ready;
};
static_assert(sizeof(Record) <= kRankRecordBytes);
struct AllRecords {
  alignas(Record) uint8_t bytes[kMaxPeers * kRankRecordBytes];
  const Record& of(uint32_t rank) const {
    return *reinterpret_cast<const Record*>(bytes + rank * kRankRecordBytes);
  }
};

// A number of the machine since it was started; 0 if it cannot be read.
uint64_t this_machine() {
  char text[40] = "";
  const int file = ::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  const ssize_t size = read(file, text, sizeof text);
  ::close(file);
  uint64_t hash = 14695981039346656037u;  // FNV-1a
  for (ssize_t i = 0; i < size; ++i) hash = (hash ^ static_cast<uint8_t>(text[i])) * 1099511628211u;
  return hash;
}

// Process numbers of different namespaces mean different processes.
uint64_t process_namespace() {
  struct stat status {};
  return stat("/proc/self/ns/pid", &status) == 0 ? static_cast<uint64_t>(status.st_ino) : 0;
}

husk_status gather_records(const Gather& gather, const Record& own, AllRecords* all,
                           husk_error* error) {
  uint8_t bytes[kRankRecordBytes] = {};
  memcpy(bytes, &own, sizeof own);
  return gather.call(gather.user, bytes, all->bytes, error);
}

bool all_are_ready(const AllRecords& all, uint32_t world) {
  bool ready = true;
  for (uint32_t rank = 0; rank < world; ++rank) {
    const Record& record = all.of(rank);
    ready = ready && record.is_ready && record.machine && record.machine == all.of(0).machine;
  }
  return ready;
}

// The beginnings of the text of the kernel, which exchange.ptx follows.
constexpr char kPlainHead[] =
    ".version 7.0\n.target sm_80\n.address_size 64\n"
    ".func begin() {\nret;\n}\n.func trigger() {\nret;\n}\n.func wait() {\nret;\n}\n";
constexpr char kHeadOfSm90[] =
    ".version 7.8\n.target sm_90\n.address_size 64\n"
    ".func begin() {\ngriddepcontrol.launch_dependents;\ngriddepcontrol.wait;\nret;\n}\n"
    ".func trigger() {\ngriddepcontrol.launch_dependents;\nret;\n}\n"
    ".func wait() {\ngriddepcontrol.wait;\nret;\n}\n";

CUresult load_kernel(const Driver& driver, CUlibrary library, const char* name,
                     ExchangeKernel* out) {
  CUresult result = driver.cuLibraryGetKernel(&out->kernel, library, name);
  if (result == CUDA_SUCCESS) result = driver.cuKernelGetFunction(&out->function, out->kernel);
  // The first launch would load the kernel, which a stream that captures does not allow.
  if (result == CUDA_SUCCESS && driver.cuFuncLoad) result = driver.cuFuncLoad(out->function);
  return result;
}

// Leaves the functions null if the driver cannot load them.
void load_kernels(const Device& device, Peers* peers) {
  const Driver& driver = device.driver;
  char text[sizeof kHeadOfSm90 + sizeof kExchangePtx];
  strcpy(text, device.major >= 9 ? kHeadOfSm90 : kPlainHead);
  strcat(text, kExchangePtx);
  CUresult result = driver.cuLibraryLoadData(&peers->library, text, nullptr, nullptr, 0, nullptr,
                                             nullptr, 0);
  if (result != CUDA_SUCCESS) return;
  const struct {
    const char* name;
    ExchangeKernel* kernel;
  } rows[] = {{"husk_exchange", &peers->small},
              {"husk_exchange_pair", &peers->pair},
              {"husk_exchange_sum", &peers->sum}};
  for (const auto& row : rows)
    if (result == CUDA_SUCCESS) result = load_kernel(driver, peers->library, row.name, row.kernel);
  if (result != CUDA_SUCCESS) peers->small = peers->pair = peers->sum = {};
}

// The number 0 stands beside no word that is sent, until 2^32 exchanges have gone by.
CUresult make_workspace(const Device& device, Peers* peers) {
  const Driver& driver = device.driver;
  const size_t bytes = workspace_bytes(peers->world);
  CUdeviceptr* own = &peers->workspaces[peers->rank];
  CUresult result = driver.cuMemAlloc(own, bytes);
  if (result != CUDA_SUCCESS) return result;
  peers->counters = *own + counters_at(peers->world);
  result = driver.cuMemsetD8Async(*own, 0, bytes, device.private_stream);
  return result == CUDA_SUCCESS ? driver.cuStreamSynchronize(device.private_stream) : result;
}

bool make_stop(Device& device, Peers* peers) {
  husk_error ignored;
  return alloc_host_flag(&device.entered, &peers->stop, &ignored) == HUSK_OK &&
         device.driver.cuMemHostGetDevicePointer(
             &peers->stop_address, const_cast<uint32_t*>(peers->stop), 0) == CUDA_SUCCESS;
}

// True if this rank can take part.
bool prepare(Device& device, Peers* peers, Record* own) {
  const Driver& driver = device.driver;
  if (!driver.cuIpcGetMemHandle || !driver.cuIpcOpenMemHandle || !driver.cuIpcCloseMemHandle ||
      !driver.cuCtxEnablePeerAccess)
    return false;
  if (!peers->small.function || make_workspace(device, peers) != CUDA_SUCCESS ||
      !make_stop(device, peers))
    return false;
  own->workspace = peers->workspaces[peers->rank];
  return driver.cuIpcGetMemHandle(&own->handle, own->workspace) == CUDA_SUCCESS;
}

// Lets this device write to the workspace of another rank.
bool map_one(const Device& device, const Record& own, const Record& theirs, uint32_t rank,
             Peers* peers) {
  const Driver& driver = device.driver;
  CUdeviceptr* address = &peers->workspaces[rank];
  if (theirs.process == own.process && theirs.process_namespace == own.process_namespace) {
    *address = theirs.workspace;
    if (theirs.context == own.context) return true;
    const CUresult result = driver.cuCtxEnablePeerAccess(
        reinterpret_cast<CUcontext>(theirs.context), 0);
    return result == CUDA_SUCCESS || result == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
  }
  if (driver.cuIpcOpenMemHandle(address, theirs.handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) !=
      CUDA_SUCCESS)
    return false;
  peers->imported |= 1u << rank;
  return true;
}

}  // namespace

husk_status open_peers(Device& device, uint32_t rank, uint32_t world, bool may_reach,
                       const Gather& gather, Peers* peers, husk_error* error) {
  load_kernels(device, peers);
  if (!may_reach || world > kMaxPeers) return HUSK_OK;
  peers->rank = rank;
  peers->world = world;
  Record own = {};
  own.machine = this_machine();
  own.process_namespace = process_namespace();
  own.process = static_cast<uint64_t>(getpid());
  own.context = reinterpret_cast<uintptr_t>(device.context);
  own.is_ready = prepare(device, peers, &own);
  AllRecords all;
  husk_status status = gather_records(gather, own, &all, error);
  if (status == HUSK_OK) {
    // All ranks use the workspaces, or none: an exchange needs all of them.
    bool is_mapped = all_are_ready(all, world);
    for (uint32_t other = 0; is_mapped && other < world; ++other)
      if (other != rank) is_mapped = map_one(device, own, all.of(other), other, peers);
    own.is_ready = is_mapped;
    status = gather_records(gather, own, &all, error);
  }
  if (status == HUSK_OK && all_are_ready(all, world)) return HUSK_OK;
  unmap_peers(device, peers);
  close_peers(device, peers);
  return status;
}

void unmap_peers(const Device& device, Peers* peers) {
  for (uint32_t rank = 0; rank < peers->world; ++rank)
    if (peers->imported >> rank & 1) device.driver.cuIpcCloseMemHandle(peers->workspaces[rank]);
}

void close_peers(Device& device, Peers* peers) {
  free_host_flag(&device.entered, peers->stop);
  peers->stop = nullptr;
  if (peers->world && peers->workspaces[peers->rank])
    device.driver.cuMemFree(peers->workspaces[peers->rank]);
  peers->world = peers->imported = 0;
  peers->counters = peers->stop_address = 0;
}

void unload_exchange(const Device& device, const Peers& peers) {
  if (peers.library) device.driver.cuLibraryUnload(peers.library);
}

// In a group of more than two ranks, each rank sends its part to every other one, one link after
// another, where NCCL's rings would send it once.
bool Peers::take(size_t bytes) const {
  return world && (world == 2 || bytes * (world - 1) <= kMostBytes);
}

husk_status Peers::exchange(const Device& device, CUstream stream, Exchange* what, size_t bytes,
                            const char* thing, husk_error* error) {
  const bool is_large = what->world <= 2 && bytes > kSmallBytes;
  const size_t most = is_large ? kMostPairBytes : kMostBytes;
  for (size_t left = bytes; left > 0;) {
    const auto part = static_cast<uint32_t>(std::min(left, most));
    const Launch launch = is_large ? large(*what, part) : few(*what, part);
    HUSK_TRY(enqueue(device, stream, *what, launch, part, thing, error));
    left -= part;
    what->in += part;
    what->out += part;
    if (what->residual) what->residual += part;
  }
  return HUSK_OK;
}

Peers::Launch Peers::large(const Exchange& what, uint32_t bytes) const {
  const uint32_t chunks = (bytes + kChunkBytes - 1) / kChunkBytes;
  return {&pair,
          std::min(chunks, kPairBlocks),
          kPairThreads,
          kPairThreads,
          places_bytes(world),
          kBlocks,
          !what.is_at_multiples_of(kPairUnitBytes)};
}

Peers::Launch Peers::few(const Exchange& what, uint32_t bytes) const {
  const uint32_t units = (bytes + kUnitBytes - 1) / kUnitBytes;
  // Addresses may differ between ranks, so they choose the kernel, but never the blocks.
  const bool is_sum = what.world == 2 && what.how == Exchange::sum && !what.in_step &&
                      !what.out_step && bytes % kUnitBytes == 0 && units <= kBlocks * kThreads;
  const bool is_narrow = !what.is_at_multiples_of(kUnitBytes);
  const uint32_t threads = is_sum && units <= kBlocks * kSumThreads ? kSumThreads : kThreads;
  const uint32_t of_block = std::max(threads, (units + kBlocks - 1) / kBlocks);
  const ExchangeKernel& kernel = is_sum && !is_narrow ? sum : small;
  return {&kernel, (units + of_block - 1) / of_block, threads, of_block, 0, 0, is_narrow};
}

husk_status Peers::enqueue(const Device& device, CUstream stream, Exchange what, Launch launch,
                           uint32_t bytes, const char* thing, husk_error* error) {
  CUdeviceptr spaces[kMaxPeers] = {};
  for (uint32_t i = 0; i < world; ++i) spaces[i] = workspaces[i] + launch.space;
  CUdeviceptr counted = counters + launch.first_counter * sizeof(uint32_t);
  void* params[] = {&what.in,   &what.out,           &what.residual, spaces,
                    &counted,   &stop_address,       &what.in_step,  &what.out_step,
                    &bytes,     &launch.block_units, &rank,          &what.world,
                    &what.kind, &what.how,           &what.scale,    &launch.is_narrow};
  const CUresult result = device.driver.cuLaunchKernel(launch.kernel->function, launch.blocks, 1, 1,
                                                       launch.threads, 1, 1, 0, stream, params,
                                                       nullptr);
  if (result == CUDA_SUCCESS) return HUSK_OK;
  return driver_fail(device.driver, error, result, "cuLaunchKernel", "%s", thing);
}

}  // namespace husk::cuda
