// Memory that processes share (cuIpcGetMemHandle), and the port's kernels that exchange tensors
// through it. Without FAKE_PEERS=1 no device can reach the memory of another one, and the kernels
// add residuals only.
#include "peers.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>

#include "numbers.h"
#include "schedule.h"

namespace fake {

namespace {

constexpr uint64_t kSharedPage = 4096;

bool number_of_environment(const char* name) {
  const char* text = getenv(name);
  return text && atoi(text);
}

// What is in a handle: where another process finds the memory.
struct Shared {
  int32_t process, file;
  uint64_t offset, size;
};
static_assert(sizeof(Shared) <= sizeof(CUipcMemHandle));

// Memory of another process.
struct Imported : Object {
  Imported() : Object("memory of another process", true) {}
  void* begin = nullptr;
  uint64_t size = 0;
};
std::map<CUdeviceptr, Imported*>& imported() {
  static auto* const all = new std::map<CUdeviceptr, Imported*>;
  return *all;
}

// Files of shared memory, by the first byte of the region. They stay until the process ends.
std::map<char*, int>& files() {
  static auto* const all = new std::map<char*, int>;
  return *all;
}

// Puts a file behind the memory, with the bytes that it has.
int share(const Allocation& allocation) {
  if (const auto known = files().find(allocation.region); known != files().end())
    return known->second;
  const int file = static_cast<int>(syscall(SYS_memfd_create, "fake_memory", 0));
  const uint64_t size = allocation.region_size - 2 * kSharedPage;
  char* begin = allocation.region + kSharedPage;
  if (file < 0 || write(file, begin, size) != static_cast<ssize_t>(size) ||
      mmap(begin, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) == MAP_FAILED)
    violation("cuIpcGetMemHandle: no shared memory can be made");
  files()[allocation.region] = file;
  return file;
}

// The parameters of a kernel.
struct Exchange {
  uint64_t in, out, residual, workspaces[8], counters, stop, in_step, out_step;
  uint32_t bytes, block_units, rank, world, kind, how;
  float scale;
  uint32_t narrow, blocks;
  bool is_pair;  // the kernel is husk_exchange_pair
};

Exchange read_launch(const Launch& launch) {
  Exchange e = {};
  const std::string& name = launch.function->kernel.name;
  e.is_pair = name == "husk_exchange_pair";
  void* const fields[] = {&e.in,       &e.out,         &e.residual, &e.workspaces,
                          &e.counters, &e.stop,        &e.in_step,  &e.out_step,
                          &e.bytes,    &e.block_units, &e.rank,     &e.world,
                          &e.kind,     &e.how,         &e.scale,    &e.narrow};
  for (size_t i = 0; i < std::size(fields); ++i)
    memcpy(fields[i], launch.bytes.data() + launch.offsets[i], kExchangeParams[i]);
  e.blocks = launch.grid[0];
  const uint64_t most = uint64_t{e.blocks} * e.block_units * 8;
  if (e.world == 1) e.rank = 0;
  bool fits = e.is_pair
                  ? e.world <= 2 && e.blocks <= 256 && e.block_units == launch.block[0]
                  : e.world <= 8 && e.blocks <= 64 && e.block_units <= 2048 && e.bytes <= most;
  if (name == "husk_exchange_sum")
    fits = fits && e.world == 2 && !e.in_step && !e.out_step && e.how == 0 && !e.narrow &&
           e.bytes % 8 == 0 && e.block_units == launch.block[0];
  if (!fits)
    violation("%s: %u bytes of %u ranks, %u blocks of %u units", name.c_str(), e.bytes, e.world,
              e.blocks, e.block_units);
  const uint32_t unit = e.is_pair ? 16 : 8;
  if (!e.narrow && (e.in | e.out | e.residual | e.in_step | e.out_step) % unit)
    violation("%s: an address is no multiple of %u", name.c_str(), unit);
  return e;
}

struct Place {
  uint64_t halves[2];  // each a word, and the number of the exchange above it
};

uint32_t* counter(const Exchange& e, uint32_t block) {
  return reinterpret_cast<uint32_t*>(e.counters) + block;
}

// Where `writer` writes a unit of a block in the workspace of `reader`.
Place* place(const Exchange& e, uint32_t reader, uint32_t writer, uint32_t block, uint32_t unit) {
  const uint32_t parity = (*counter(e, block) + 1) & 1;
  const uint64_t at = ((uint64_t{parity} * 64 + block) * e.world + writer) * 2048 + unit;
  return reinterpret_cast<Place*>(e.workspaces[reader]) + at;
}

// Calls visit(block, unit of the block, first byte, count of bytes) for each unit of a part, until
// that returns false.
template <class Visit>
bool each_unit(const Exchange& e, const Visit& visit) {
  for (uint32_t at = 0; at < e.bytes; at += 8) {
    const uint32_t unit = at / 8;
    if (!visit(unit / e.block_units, unit % e.block_units, at, std::min(8u, e.bytes - at)))
      return false;
  }
  return true;
}

void write_parts(const Exchange& e) {
  for (uint32_t other = 0; other < e.world; ++other) {
    if (other == e.rank) continue;
    const char* part = reinterpret_cast<const char*>(e.in + other * e.in_step);
    each_unit(e, [&](uint32_t block, uint32_t unit, uint32_t at, uint32_t size) {
      uint32_t words[2] = {};
      memcpy(words, part + at, size);
      const uint64_t number = *counter(e, block) + 1;
      Place* to = place(e, other, e.rank, block, unit);
      for (int i = 0; i < 2; ++i)
        __atomic_store_n(&to->halves[i], number << 32 | words[i], __ATOMIC_RELEASE);
      return true;
    });
  }
}

bool have_all_come(const Exchange& e) {
  return each_unit(e, [&](uint32_t block, uint32_t unit, uint32_t, uint32_t) {
    for (uint32_t other = 0; other < e.world; ++other)
      for (int i = 0; i < 2 && other != e.rank; ++i)
        if (__atomic_load_n(&place(e, e.rank, other, block, unit)->halves[i], __ATOMIC_ACQUIRE) >>
                32 !=
            *counter(e, block) + 1)
          return false;
    return true;
  });
}

bool is_stopped(const Exchange& e) {
  return e.stop && *reinterpret_cast<volatile const uint32_t*>(e.stop) != 0;
}

using Time = std::chrono::steady_clock::time_point;

// As fake_queue_endless wants it: 1 if the parts of another rank do not come. `since` is when it
// was asked first, and have_all_come() says whether they have come.
template <class Come>
int32_t state_of(const Exchange& e, Time* since, const Come& have_all_come) {
  if (is_stopped(e)) return 0;
  if (number_of_environment("FAKE_NCCL_STALL")) return 1;
  const char* timeout = getenv("FAKE_NCCL_TIMEOUT");
  const auto now = std::chrono::steady_clock::now();
  const auto longest = std::chrono::milliseconds(timeout ? atoi(timeout) : 5000);
  const auto until = now + longest;
  if (*since == Time()) *since = now;
  // A rank of this process needs the lock of the driver.
  for (uint32_t other = 0; other < e.world; ++other)
    if (other != e.rank && find_allocation(e.workspaces[other]))
      return have_all_come() ? 0 : now < *since + longest ? 2 : 1;
  while (!have_all_come() && !is_stopped(e)) {
    if (std::chrono::steady_clock::now() > until) return 1;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  return 0;
}

float combine(uint32_t how, float a, float b) {
  switch (how) {
    case 0: return a + b;
    case 1: return a * b;
    case 2: return std::fmax(a, b);
    default: return std::fmin(a, b);
  }
}

// Reduces a unit, of which each rank has `words`, and adds what the residual has at byte `at`.
void reduce(const Exchange& e, const uint32_t (*words)[2], uint32_t at, uint32_t size) {
  constexpr Number kKinds[] = {Number::f32, Number::f16, Number::bf16};
  const Number type = kKinds[e.kind];
  uint32_t result[2] = {}, residual[2] = {};
  if (e.residual) memcpy(residual, reinterpret_cast<const char*>(e.residual) + at, size);
  for (uint32_t i = 0; i < 8 / width(type); ++i) {
    float all = 0;
    for (uint32_t rank = 0; rank < e.world; ++rank) {
      const auto one = static_cast<float>(load(type, words[rank], i));
      all = rank == 0 ? one : combine(e.how, all, one);
    }
    store(type, result, i, all * e.scale);
    if (e.residual)
      store(
          type, result, i,
          static_cast<float>(load(type, result, i)) + static_cast<float>(load(type, residual, i)));
  }
  memcpy(reinterpret_cast<char*>(e.out) + at, result, size);
}

void read_parts(const Exchange& e) {
  if (is_stopped(e)) return;
  each_unit(e, [&](uint32_t block, uint32_t unit, uint32_t at, uint32_t size) {
    uint32_t words[8][2] = {};
    for (uint32_t rank = 0; rank < e.world; ++rank) {
      if (rank == e.rank) {
        memcpy(words[rank], reinterpret_cast<const char*>(e.in + rank * e.in_step) + at, size);
      } else {
        const Place* from = place(e, e.rank, rank, block, unit);
        for (int i = 0; i < 2; ++i) words[rank][i] = static_cast<uint32_t>(from->halves[i]);
      }
      if (e.out_step)
        memcpy(reinterpret_cast<char*>(e.out + rank * e.out_step) + at, words[rank], size);
    }
    if (!e.out_step) reduce(e, words, at, size);
    return true;
  });
  for (uint32_t block = 0; block < e.blocks && e.world > 1; ++block) ++*counter(e, block);
}

// The numbers of chunks that a block of husk_exchange_pair has written and read.
struct Chunks {
  uint32_t written, read;
};
using Progress = std::vector<Chunks>;

uint32_t chunks_of(const Exchange& e, uint32_t block) {
  const uint32_t size = e.block_units * 16, all = (e.bytes + size - 1) / size;
  return (all + e.blocks - 1 - block) / e.blocks;
}

// Calls visit(flag, slot, number, first byte, count of bytes) for chunk `k` of a block, with the
// places in the workspace of a rank.
template <class Visit>
void visit_chunk(const Exchange& e, uint32_t rank, uint32_t block, uint32_t k, const Visit& visit) {
  constexpr uint64_t kHead = 32768;
  const uint32_t before = e.world == 2 ? *counter(e, block) : 0;
  const uint32_t number = before + k + 1, size = e.block_units * 16;
  const uint64_t slot = block * 4 + number % 4;
  const CUdeviceptr space = e.workspaces[rank];  // 0 in a world of one rank
  const uint32_t at = (block + k * e.blocks) * size;
  visit(reinterpret_cast<uint32_t*>(space + slot * 4),
        reinterpret_cast<char*>(space + kHead + slot * size), number, at,
        std::min(size, e.bytes - at));
}

// Both parts of a chunk go to the result.
void finish_chunk(const Exchange& e, const char* other, uint32_t at, uint32_t size) {
  const char* own = reinterpret_cast<const char*>(e.in + e.rank * e.in_step) + at;
  if (e.out_step && e.world == 2) {
    char* out = reinterpret_cast<char*>(e.out) + at;
    memcpy(out + (1 - e.rank) * e.out_step, other, size);
    memcpy(out + e.rank * e.out_step, own, size);
    return;
  }
  for (uint32_t unit = 0; unit < size; unit += 8) {
    const uint32_t left = std::min(8u, size - unit);
    uint32_t words[8][2] = {};
    memcpy(words[e.rank], own + unit, left);
    if (e.world == 2) memcpy(words[1 - e.rank], other + unit, left);
    reduce(e, words, at + unit, left);
  }
}

// Does what can be done, as the kernel would: a chunk is written when the one two before it was
// read. True at the end.
bool advance(const Exchange& e, Progress* progress) {
  bool is_done = true;
  for (uint32_t block = 0; block < e.blocks; ++block) {
    Chunks& done = (*progress)[block];
    const uint32_t all = chunks_of(e, block);
    for (bool moved = true; moved;) {
      moved = false;
      if (done.written < all && done.written <= done.read + 1) {
        if (e.world == 2)
          visit_chunk(e, 1 - e.rank, block, done.written,
                      [&](uint32_t* flag, char* slot, uint32_t number, uint32_t at, uint32_t size) {
                        memcpy(slot,
                               reinterpret_cast<const char*>(e.in + (1 - e.rank) * e.in_step) + at,
                               size);
                        __atomic_store_n(flag, number, __ATOMIC_RELEASE);
                      });
        ++done.written;
        moved = true;
      }
      if (done.read == done.written) continue;
      visit_chunk(e, e.world == 2 ? e.rank : 0, block, done.read,
                  [&](uint32_t* flag, char* slot, uint32_t number, uint32_t at, uint32_t size) {
                    if (e.world == 2 && __atomic_load_n(flag, __ATOMIC_ACQUIRE) != number) return;
                    finish_chunk(e, slot, at, size);
                    ++done.read;
                    moved = true;
                  });
    }
    is_done = is_done && done.read == all;
  }
  return is_done;
}

void fill_pair(const Exchange& e, Task* task) {
  const auto progress = std::make_shared<Progress>(e.blocks);
  task->begin = [e, progress] { advance(e, progress.get()); };
  task->work = [e] {
    for (uint32_t block = 0; block < e.blocks && e.world == 2 && !is_stopped(e); ++block)
      *counter(e, block) += chunks_of(e, block);
  };
  task->state = [e, progress, since = std::make_shared<Time>()] {
    return state_of(e, since.get(), [&] { return advance(e, progress.get()); });
  };
}

}  // namespace

bool has_peers() { return number_of_environment("FAKE_PEERS"); }

void fill_exchange(const Call& call, const Launch& launch, Task* task) {
  const Exchange e = read_launch(launch);
  const uint64_t in_bytes = e.in_step ? e.in_step * e.world : e.bytes;
  const uint64_t out_bytes = e.out_step ? e.out_step * e.world : e.bytes;
  check_range(call, e.in, in_bytes, "what an exchange reads");
  check_range(call, e.out, out_bytes, "what an exchange writes");
  if (e.residual) check_range(call, e.residual, e.bytes, "the residual of an exchange");
  if (e.world > 1) task->memory.push_back(e.workspaces[e.rank]);
  if (e.is_pair) return fill_pair(e, task);
  task->begin = [e] { write_parts(e); };
  task->work = [e] { read_parts(e); };
  task->state = [e, since = std::make_shared<Time>()] {
    return state_of(e, since.get(), [&] { return have_all_come(e); });
  };
}

CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags) {
  Call call("cuCtxEnablePeerAccess");
  if (call.fault) return call.fault;
  if (flags != 0 || !peer) return CUDA_ERROR_INVALID_VALUE;
  return has_peers() ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr memory) {
  Call call("cuIpcGetMemHandle");
  if (call.fault) return call.fault;
  if (!has_peers()) return CUDA_ERROR_NOT_SUPPORTED;
  const Allocation* allocation = find_allocation(memory);
  if (!allocation || allocation->address != memory || !allocation->live)
    violation("cuIpcGetMemHandle: %s", explain_address(memory).c_str());
  const char* begin = allocation->region + kSharedPage;
  const Shared shared = {getpid(), share(*allocation),
                         static_cast<uint64_t>(reinterpret_cast<const char*>(memory) - begin),
                         allocation->region_size - 2 * kSharedPage};
  *handle = {};
  memcpy(handle, &shared, sizeof shared);
  return CUDA_SUCCESS;
}

CUresult cuIpcOpenMemHandle(CUdeviceptr* memory, CUipcMemHandle handle, unsigned int flags) {
  Call call("cuIpcOpenMemHandle");
  if (call.fault) return call.fault;
  if (flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) return CUDA_ERROR_INVALID_VALUE;
  Shared shared;
  memcpy(&shared, &handle, sizeof shared);
  if (shared.process == getpid()) return CUDA_ERROR_INVALID_CONTEXT;
  const std::string path = "/proc/" + std::to_string(shared.process) + "/fd/" +
                           std::to_string(shared.file);
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return CUDA_ERROR_INVALID_VALUE;
  Imported* one = make<Imported>();
  one->size = shared.size;
  one->begin = mmap(nullptr, shared.size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  *memory = reinterpret_cast<CUdeviceptr>(one->begin) + shared.offset;
  imported()[*memory] = one;
  return CUDA_SUCCESS;
}

CUresult cuIpcCloseMemHandle(CUdeviceptr memory) {
  Call call("cuIpcCloseMemHandle");
  const auto entry = imported().find(memory);
  if (entry == imported().end()) violation("cuIpcCloseMemHandle: this memory is not imported");
  munmap(entry->second->begin, entry->second->size);
  entry->second->end();
  imported().erase(entry);
  return call.fault;
}

}  // namespace fake
