// Exchanges of tensors through memory that all ranks of a group can reach: kernels of the port's
// own in place of NCCL's, one for small tensors (exchange.ptx), and one for large tensors of two
// ranks (exchange_pair.ptx).
#pragma once

#include "device.h"

namespace husk::cuda {

constexpr uint32_t kMaxPeers = 8;  // so many addresses are parameters of the kernel

// One exchange, as a rank sees it. The values are those of the kernel's parameters.
struct Exchange {
  enum Kind : uint32_t { f32 = 0, f16 = 1, bf16 = 2 };
  enum How : uint32_t { sum = 0, product = 1, max = 2, min = 3 };
  CUdeviceptr in, out;
  CUdeviceptr residual;  // 0, or what is added to the rounded result of a reduction
  uint64_t in_step;      // bytes from the part for a rank to that for the next; 0: all get the same
  uint64_t out_step;     // bytes from the part of a rank to that of the next; 0: parts are reduced
  Kind kind;             // of the elements that are reduced
  How how;
  float scale;     // of what was reduced
  uint32_t world;  // 1: nothing is exchanged, and the residual is added to `in`

  // Whether all parts begin at multiples of so many bytes.
  bool is_at_multiples_of(uint32_t count) const {
    return (in | out | residual | in_step | out_step) % count == 0;
  }
};

// Null if the driver could not load it.
struct ExchangeKernel {
  CUkernel kernel;
  CUfunction function;  // of the device's context
};

// The memory of all ranks as one of them sees it.
struct Peers {
  uint32_t rank, world;  // no ranks if some memory cannot be reached; NCCL does everything then
  CUdeviceptr workspaces[kMaxPeers];  // of each rank; this rank's own is freed with it
  CUdeviceptr counters;               // in this rank's own
  uint32_t imported;                  // bit r: the workspace of rank r is of another process
  volatile uint32_t* stop;            // kernels end, with wrong results, if it is not 0
  CUdeviceptr stop_address;
  CUlibrary library;
  ExchangeKernel small, pair, sum;  // without peers they add residuals

  // Whether parts of so many bytes are faster so than by NCCL: each rank finds the same.
  bool take(size_t bytes) const;
  // Whether a launch is one of these kernels, which wait for the kernel before them by themselves.
  bool is_exchange(const CUDA_KERNEL_NODE_PARAMS_v2& launch) const {
    const auto is = [&launch](const ExchangeKernel& one) {
      return launch.func == one.function || launch.kern == one.kernel;
    };
    return world && (is(small) || is(pair) || is(sum));
  }
  // Enqueues a kernel for parts of so many bytes, each of which goes from one rank to another one.
  // More than two ranks exchange 1 MiB by a launch. `what` is changed.
  husk_status exchange(const Device& device, CUstream stream, Exchange* what, size_t bytes,
                       const char* thing, husk_error* error);

 private:
  // How a kernel is launched: its first counter, and its place in the workspaces.
  struct Launch {
    const ExchangeKernel* kernel;
    uint32_t blocks, threads, block_units;
    size_t space;
    uint32_t first_counter;
    uint32_t is_narrow;
  };
  Launch large(const Exchange& what, uint32_t bytes) const;
  Launch few(const Exchange& what, uint32_t bytes) const;
  husk_status enqueue(const Device& device, CUstream stream, Exchange what, Launch launch,
                      uint32_t bytes, const char* thing, husk_error* error);
};

// The size of a record that a rank gives to the others.
constexpr size_t kRankRecordBytes = 128;

// Brings a record of kRankRecordBytes bytes from each rank to each other one.
struct Gather {
  void* user;
  husk_status (*call)(void* user, const void* own, void* all, husk_error* error);
};

// Loads the kernels, makes the workspace of this rank and maps those of the others if it may. That
// a device or an operating system cannot do so is no error: the group has no peers then. Fails if
// `gather` fails.
husk_status open_peers(Device& device, uint32_t rank, uint32_t world, bool may_reach,
                       const Gather& gather, Peers* peers, husk_error* error);

// Gives back what open_peers made, in three steps: between the first two the ranks meet, if
// `imported` is not 0, since memory must outlive its mappings in other processes.
void unmap_peers(const Device& device, Peers* peers);
void close_peers(Device& device, Peers* peers);
void unload_exchange(const Device& device, const Peers& peers);

}  // namespace husk::cuda
