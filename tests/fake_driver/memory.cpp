#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "schedule.h"

namespace fake {

namespace {

constexpr uint64_t kPage = 4096, kAlign = 256;
constexpr uint64_t kPoisoned = uint64_t{64} << 20;  // at most these bytes get the pattern kFresh
constexpr unsigned char kFresh = 0xCB, kSlack = 0x5A;

uint64_t round_up(uint64_t size, uint64_t unit) { return (size + unit - 1) / unit * unit; }

// Calls `visit` for the bytes between the memory and its guard pages, at its start and at its end.
void each_slack(const Allocation& allocation,
                void (*visit)(const Allocation&, char* from, uint64_t size)) {
  char* begin = allocation.region + kPage;
  char* end = allocation.region + allocation.region_size - kPage;
  char* memory = reinterpret_cast<char*>(allocation.address);
  visit(allocation, begin, static_cast<uint64_t>(memory - begin));
  visit(allocation, memory + allocation.size,
        static_cast<uint64_t>(end - memory) - allocation.size);
}

void poison_slack(const Allocation&, char* from, uint64_t size) { memset(from, kSlack, size); }

void check_slack(const Allocation& allocation, char* from, uint64_t size) {
  const char* wrong = std::find_if(from, from + size,
                                   [](char c) { return static_cast<unsigned char>(c) != kSlack; });
  if (wrong == from + size) return;
  violation("memory %p of %llu bytes: something was written %lld bytes from its start",
            (void*)allocation.address, (unsigned long long)allocation.size,
            (long long)(wrong - reinterpret_cast<char*>(allocation.address)));
}

// Maps memory that ends as close to its guard page as its alignment allows.
Allocation map(uint64_t size) {
  const uint64_t used = round_up(size, kAlign);
  Allocation allocation = {};
  allocation.size = size;
  allocation.region_size = round_up(used, kPage) + 2 * kPage;
  void* region = mmap(nullptr, allocation.region_size, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (region == MAP_FAILED) return allocation;
  allocation.region = static_cast<char*>(region);
  mprotect(allocation.region + kPage, allocation.region_size - 2 * kPage, PROT_READ | PROT_WRITE);
  allocation.address = reinterpret_cast<CUdeviceptr>(allocation.region) + allocation.region_size -
                       kPage - used;
  allocation.live = true;
  each_slack(allocation, poison_slack);
  memset(reinterpret_cast<void*>(allocation.address), kFresh, std::min(size, kPoisoned));
  return allocation;
}

void fill_bytes(char* to, const void* pattern, size_t width, size_t count) {
  const size_t bytes = width * count;
  if (bytes == 0) return;
  memcpy(to, pattern, width);
  for (size_t filled = width; filled < bytes; filled *= 2)
    memcpy(to + filled, to, std::min(filled, bytes - filled));
}

CUresult enqueue_fill(const Call& call, CUstream stream, CUdeviceptr to, unsigned int value,
                      size_t width, size_t pitch, size_t columns, size_t rows) {
  if (to % width != 0) return CUDA_ERROR_INVALID_VALUE;
  if (columns == 0 || rows == 0) return CUDA_SUCCESS;
  check_range(call, to, (rows - 1) * pitch + columns * width, "a fill");
  auto task = std::make_shared<Task>();
  task->what = call.name;
  task->memory = {to};
  task->work = [=] {
    char* first = reinterpret_cast<char*>(to);
    for (size_t row = 0; row < rows; ++row) fill_bytes(first + row * pitch, &value, width, columns);
  };
  enqueue(call, stream, task);
  return CUDA_SUCCESS;
}

// Host memory that cuMemAllocHost allocated or cuMemHostRegister registered.
struct HostMemory : Object {
  HostMemory(const Allocation& of, const char* what) : Object(what, true), allocation(of) {}
  Allocation allocation;
  char* begin = nullptr;
};
std::map<const void*, HostMemory*>& host_memory() {
  static auto* const all = new std::map<const void*, HostMemory*>;
  return *all;
}

void add_host_memory(HostMemory* memory, char* begin, size_t size) {
  memory->begin = begin;
  state().pinned[begin] = size;
  host_memory()[begin] = memory;
}

// Removes host memory from the state; a violation if it is unknown or if queued work uses it.
HostMemory& remove_host_memory(const Call& call, const void* memory, const char* kind) {
  const auto entry = host_memory().find(memory);
  if (entry == host_memory().end() || std::string(entry->second->kind) != kind)
    violation("%s: %p is not the start of %s", call.name, memory, kind);
  HostMemory& removed = *entry->second;
  const uint64_t size = state().pinned[removed.begin];
  if (const Task* user = user_of_host(removed.begin, size))
    violation("%s: queued work uses %p: %s", call.name, memory, user->what.c_str());
  state().pinned.erase(removed.begin);
  host_memory().erase(entry);
  removed.end();
  return removed;
}

struct PageUse {
  uint32_t reads = 0, writes = 0;  // of queued copies
};
// By the first byte of the page. Only pages of cuMemAllocHost are in it.
std::map<char*, PageUse>& used_pages() {
  static auto* const all = new std::map<char*, PageUse>;
  return *all;
}

char* page_of(char* byte) {
  return reinterpret_cast<char*>(reinterpret_cast<uintptr_t>(byte) / kPage * kPage);
}

// Lets a copy that runs touch the pages that it uses.
void open_pages(const HostUse& use) {
  for (char* page = page_of(use.begin); page < use.begin + use.size; page += kPage)
    if (used_pages().count(page)) mprotect(page, kPage, PROT_READ | PROT_WRITE);
}

// Forgets the uses of a region that is freed although a lost device has queued work.
void forget_uses(const Allocation& allocation) {
  char* end = allocation.region + allocation.region_size;
  std::erase_if(used_pages(), [&](const auto& page) {
    return page.first >= allocation.region && page.first < end;
  });
  mprotect(allocation.region + kPage, allocation.region_size - 2 * kPage, PROT_READ | PROT_WRITE);
}

// Checks that one side of a copy lies within an allocation if it lies in device memory or pinned
// memory, and adds its use to the task. Returns true for any other memory, which is pageable.
bool add_side(const Call& call, CUdeviceptr address, uint64_t size, bool written, Task* task) {
  char* begin = reinterpret_cast<char*>(address);
  const char* what = written ? "a copy's target" : "a copy's source";
  if (find_allocation(address)) {
    check_range(call, address, size, what);
    task->memory.push_back(address);
    return false;
  }
  if (!is_pinned(begin)) return true;
  const auto block = std::prev(state().pinned.upper_bound(begin));
  if (size > block->second - static_cast<uint64_t>(begin - block->first))
    violation("%s: %s of %llu bytes begins at byte %lld of %llu bytes of pinned memory", call.name,
              what, (unsigned long long)size, (long long)(begin - block->first),
              (unsigned long long)block->second);
  task->host_uses.push_back({begin, size, written});
  return false;
}

bool is_writable(const void* memory) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    unsigned long long begin = 0, end = 0;
    char write = '-';
    if (sscanf(line.c_str(), "%llx-%llx %*c%c", &begin, &end, &write) != 3) continue;
    const auto address = reinterpret_cast<uintptr_t>(memory);
    if (address >= begin && address < end) return write == 'w';
  }
  return false;
}

struct sigaction previous_action;

void report_fault(int, siginfo_t* info, void*) {
  const auto address = reinterpret_cast<CUdeviceptr>(info->si_addr);
  fprintf(stderr, "fake libcuda: a kernel or the host touched %p: %s\n", info->si_addr,
          explain_address(address).c_str());
  // The instruction runs again and has the effect that it has without this handler.
  sigaction(SIGSEGV, &previous_action, nullptr);
}

}  // namespace

bool is_pinned(const void* memory) {
  const char* byte = static_cast<const char*>(memory);
  auto next = state().pinned.upper_bound(byte);
  return next != state().pinned.begin() && byte < std::prev(next)->first + std::prev(next)->second;
}

void begin_use(const HostUse& use) {
  const HostMemory* memory = host_memory()[std::prev(state().pinned.upper_bound(use.begin))->first];
  if (!memory->allocation.region) return;  // registered memory keeps its protection
  for (char* page = page_of(use.begin); page < use.begin + use.size; page += kPage) {
    PageUse& uses = used_pages()[page];
    ++(use.written ? uses.writes : uses.reads);
    mprotect(page, kPage, uses.writes ? PROT_NONE : PROT_READ);
  }
}

void end_use(const HostUse& use) {
  for (char* page = page_of(use.begin); page < use.begin + use.size; page += kPage) {
    const auto found = used_pages().find(page);
    if (found == used_pages().end()) continue;
    PageUse& uses = found->second;
    --(use.written ? uses.writes : uses.reads);
    const int free = PROT_READ | PROT_WRITE;
    mprotect(page, kPage, uses.writes ? PROT_NONE : uses.reads ? PROT_READ : free);
    if (!uses.reads && !uses.writes) used_pages().erase(found);
  }
}

void watch_faults() {
  static bool watching = false;
  if (watching) return;
  watching = true;
  struct sigaction action = {};
  action.sa_sigaction = report_fault;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &action, &previous_action);
}

Allocation* find_allocation(CUdeviceptr address) {
  auto& all = state().allocations;
  auto next = all.upper_bound(address);
  if (next == all.begin()) return nullptr;
  Allocation& allocation = std::prev(next)->second;
  const auto region = reinterpret_cast<CUdeviceptr>(allocation.region);
  if (address >= region + allocation.region_size) return nullptr;
  return address == allocation.address + allocation.size && allocation.live ? nullptr : &allocation;
}

std::string explain_address(CUdeviceptr address) {
  char text[160] = "it is not device memory";
  char* byte = reinterpret_cast<char*>(address);
  if (used_pages().count(page_of(byte))) return "a queued copy uses this pinned memory";
  const auto& all = state().allocations;
  const auto next = all.upper_bound(address);
  if (next == all.begin()) return text;
  const Allocation& allocation = std::prev(next)->second;
  if (address >= reinterpret_cast<CUdeviceptr>(allocation.region) + allocation.region_size)
    return text;
  snprintf(text, sizeof text, "byte %lld of %s memory %p of %llu bytes",
           (long long)(address - allocation.address), allocation.live ? "live" : "freed",
           (void*)allocation.address, (unsigned long long)allocation.size);
  return text;
}

void check_range(const Call& call, CUdeviceptr address, uint64_t size, const char* what) {
  const Allocation* allocation = find_allocation(address);
  const bool inside = allocation && allocation->live && !allocation->freed_later &&
                      address >= allocation->address && size <= allocation->size &&
                      address - allocation->address <= allocation->size - size;
  if (inside) return;
  violation("%s: %s of %llu bytes begins at %s", call.name, what, (unsigned long long)size,
            explain_address(address).c_str());
}

static CUresult allocate(CUdeviceptr* out, size_t size) {
  State& s = state();
  if (size == 0) return CUDA_ERROR_INVALID_VALUE;
  if (size > s.memory || s.allocated > s.memory - size) return CUDA_ERROR_OUT_OF_MEMORY;
  const Allocation allocation = map(size);
  if (!allocation.region) return CUDA_ERROR_OUT_OF_MEMORY;
  s.allocated += size;
  s.allocations[reinterpret_cast<CUdeviceptr>(allocation.region)] = allocation;
  ++s.live_allocations;
  *out = allocation.address;
  return CUDA_SUCCESS;
}

// The live allocation that begins at the address.
static Allocation& allocation_at(const char* call, CUdeviceptr address) {
  Allocation* allocation = find_allocation(address);
  if (!allocation || allocation->address != address)
    violation("%s: %p is not the start of an allocation", call, (void*)address);
  if (!allocation->live || allocation->freed_later)
    violation("%s: %p was freed before", call, (void*)address);
  return *allocation;
}

static void free_allocation(const char* call, Allocation& allocation) {
  if (const Task* user = user_of(allocation))
    violation("%s: queued work uses %p: %s", call, (void*)allocation.address, user->what.c_str());
  each_slack(allocation, check_slack);
  allocation.live = false;
  --state().live_allocations;
  state().allocated -= allocation.size;
  // The addresses stay reserved, so that a later access to them is a fault.
  mmap(allocation.region, allocation.region_size, PROT_NONE,
       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

CUresult cuMemAlloc(CUdeviceptr* out, size_t size) {
  Call call("cuMemAlloc");
  if (call.fault) return call.fault;
  if (const CUresult refused = refuse_while_capturing()) return refused;
  call.context();
  return allocate(out, size);
}

CUresult cuMemFree(CUdeviceptr address) {
  Call call("cuMemFree");
  if (const CUresult refused = refuse_while_capturing()) return refused;
  call.context();
  refuse_endless(call);
  free_allocation(call.name, allocation_at(call.name, address));
  return call.fault;
}

// The memory exists at once, so an allocation that is too early for its stream is not found.
CUresult cuMemAllocAsync(CUdeviceptr* out, size_t size, CUstream stream) {
  Call call("cuMemAllocAsync");
  if (call.fault) return call.fault;
  if (is_capturing(call, stream)) violation("cuMemAllocAsync: the stream captures");
  return allocate(out, size);
}

// Work that is queued later must not use the memory, whatever its stream.
CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream) {
  Call call("cuMemFreeAsync");
  if (is_capturing(call, stream)) violation("cuMemFreeAsync: the stream captures");
  Allocation& allocation = allocation_at(call.name, address);
  if (state().broken) {  // queued work never runs
    free_allocation(call.name, allocation);
    return call.fault;
  }
  allocation.freed_later = true;
  auto task = std::make_shared<Task>();
  task->what = call.name;
  task->frees = address;
  enqueue(call, stream, task);
  return call.fault;
}

void free_in_order(CUdeviceptr address) {
  free_allocation("cuMemFreeAsync", *find_allocation(address));
}

CUresult cuMemGetAddressRange(CUdeviceptr* begin, size_t* size, CUdeviceptr memory) {
  Call call("cuMemGetAddressRange");
  if (call.fault) return call.fault;
  call.context();
  const Allocation* allocation = find_allocation(memory);
  if (!allocation || !allocation->live) return CUDA_ERROR_NOT_FOUND;
  *begin = allocation->address;
  *size = allocation->size;
  return CUDA_SUCCESS;
}

CUresult cuMemGetInfo(size_t* unused, size_t* total) {
  Call call("cuMemGetInfo");
  if (call.fault) return call.fault;
  call.context();
  *total = state().memory;
  *unused = state().memory - std::min(state().memory, state().allocated);
  return CUDA_SUCCESS;
}

// Pinned memory lies between guard pages, as device memory does.
CUresult cuMemAllocHost(void** out, size_t size) {
  Call call("cuMemAllocHost");
  if (call.fault) return call.fault;
  if (const CUresult refused = refuse_while_capturing()) return refused;
  call.context();
  if (size == 0) return CUDA_ERROR_INVALID_VALUE;
  const Allocation allocation = map(size);
  if (!allocation.region) return CUDA_ERROR_OUT_OF_MEMORY;
  add_host_memory(make<HostMemory>(allocation, "pinned memory"),
                  reinterpret_cast<char*>(allocation.address), size);
  *out = reinterpret_cast<void*>(allocation.address);
  return CUDA_SUCCESS;
}

CUresult cuMemFreeHost(void* memory) {
  Call call("cuMemFreeHost");
  if (const CUresult refused = refuse_while_capturing()) return refused;
  call.context();
  refuse_endless(call);
  HostMemory& freed = remove_host_memory(call, memory, "pinned memory");
  forget_uses(freed.allocation);
  each_slack(freed.allocation, check_slack);
  munmap(freed.allocation.region, freed.allocation.region_size);
  return call.fault;
}

// Read-only pages can be registered only with CU_MEMHOSTREGISTER_READ_ONLY, and only if the device
// supports it.
CUresult cuMemHostRegister(void* memory, size_t size, unsigned int flags) {
  Call call("cuMemHostRegister");
  if (call.fault) return call.fault;
  if (const CUresult refused = refuse_while_capturing()) return refused;
  call.context();
  if (size == 0 || reinterpret_cast<uintptr_t>(memory) % kPage || size % kPage)
    return CUDA_ERROR_INVALID_VALUE;
  if (!(flags & CU_MEMHOSTREGISTER_DEVICEMAP)) violation("cuMemHostRegister: flags %u", flags);
  if (flags & CU_MEMHOSTREGISTER_READ_ONLY ? !state().registers_read_only : !is_writable(memory))
    return CUDA_ERROR_INVALID_VALUE;
  if (is_pinned(memory)) return CUDA_ERROR_INVALID_VALUE;
  add_host_memory(make<HostMemory>(Allocation{}, "registered memory"), static_cast<char*>(memory),
                  size);
  return CUDA_SUCCESS;
}

CUresult cuMemHostUnregister(void* memory) {
  Call call("cuMemHostUnregister");
  if (const CUresult refused = refuse_while_capturing()) return refused;
  call.context();
  remove_host_memory(call, memory, "registered memory");
  return call.fault;
}

CUresult cuMemHostGetDevicePointer(CUdeviceptr* address, void* memory, unsigned int flags) {
  Call call("cuMemHostGetDevicePointer");
  if (call.fault) return call.fault;
  call.context();
  if (flags != 0 || !is_pinned(memory)) return CUDA_ERROR_INVALID_VALUE;
  *address = reinterpret_cast<CUdeviceptr>(memory);
  return CUDA_SUCCESS;
}

CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void* from, size_t size, CUstream stream) {
  Call call("cuMemcpyHtoDAsync");
  if (call.fault) return call.fault;
  if (const CUresult refused = refuse_captured(call, stream)) return refused;
  check_range(call, to, size, "an upload");
  auto task = std::make_shared<Task>();
  task->what = "cuMemcpyHtoDAsync";
  task->memory = {to};
  if (is_pinned(from)) {
    task->host = from;
    task->work = [=] { memcpy(reinterpret_cast<void*>(to), from, size); };
  } else {  // pageable memory is read during the call, which may wait for the stream
    refuse_endless(call, stream);
    std::vector<char> staged(static_cast<const char*>(from), static_cast<const char*>(from) + size);
    task->work = [to, staged = std::move(staged)] {
      memcpy(reinterpret_cast<void*>(to), staged.data(), staged.size());
    };
  }
  enqueue(call, stream, task);
  return CUDA_SUCCESS;
}

CUresult cuMemcpyDtoHAsync(void* to, CUdeviceptr from, size_t size, CUstream stream) {
  Call call("cuMemcpyDtoHAsync");
  if (call.fault) return call.fault;
  if (const CUresult refused = refuse_captured(call, stream)) return refused;
  check_range(call, from, size, "a download");
  auto task = std::make_shared<Task>();
  task->what = "cuMemcpyDtoHAsync";
  task->memory = {from};
  task->work = [=] { memcpy(to, reinterpret_cast<const void*>(from), size); };
  enqueue(call, stream, task);
  // Pageable memory is written during the call (CUDA Driver API, "API synchronization behavior").
  if (!is_pinned(to)) finish(task);
  return CUDA_SUCCESS;
}

// A side may be pageable memory, which is read or written during the call (CUDA Driver API, "API
// synchronization behavior").
CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream) {
  Call call("cuMemcpyAsync");
  if (call.fault) return call.fault;
  auto task = std::make_shared<Task>();
  task->what = "cuMemcpyAsync";
  const bool to_pageable = add_side(call, to, size, true, task.get());
  const bool pageable = add_side(call, from, size, false, task.get()) || to_pageable;
  if (to < from + size && from < to + size) violation("%s: target and source overlap", call.name);
  task->work = [=, uses = task->host_uses] {
    for (const HostUse& use : uses) open_pages(use);
    memcpy(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), size);
  };
  for (const HostUse& use : task->host_uses) begin_use(use);
  enqueue(call, stream, task);
  if (pageable) finish(task);
  return CUDA_SUCCESS;
}

CUresult cuMemcpy2DAsync(const CUDA_MEMCPY2D_v2* params, CUstream stream) {
  Call call("cuMemcpy2DAsync");
  if (call.fault) return call.fault;
  const CUDA_MEMCPY2D_v2 p = *params;
  if (p.srcMemoryType != CU_MEMORYTYPE_DEVICE || p.dstMemoryType != CU_MEMORYTYPE_DEVICE ||
      p.srcXInBytes || p.srcY || p.dstXInBytes || p.dstY)
    violation("cuMemcpy2DAsync: only whole copies within the device are known");
  if (p.srcPitch < p.WidthInBytes || p.dstPitch < p.WidthInBytes) return CUDA_ERROR_INVALID_VALUE;
  if (p.WidthInBytes == 0 || p.Height == 0) return CUDA_SUCCESS;
  check_range(call, p.srcDevice, (p.Height - 1) * p.srcPitch + p.WidthInBytes, "a copy's source");
  check_range(call, p.dstDevice, (p.Height - 1) * p.dstPitch + p.WidthInBytes, "a copy's target");
  auto task = std::make_shared<Task>();
  task->what = call.name;
  task->memory = {p.srcDevice, p.dstDevice};
  task->work = [=] {
    for (size_t row = 0; row < p.Height; ++row)
      memcpy(reinterpret_cast<void*>(p.dstDevice + row * p.dstPitch),
             reinterpret_cast<const void*>(p.srcDevice + row * p.srcPitch), p.WidthInBytes);
  };
  enqueue(call, stream, task);
  return CUDA_SUCCESS;
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream stream) {
  Call call("cuMemsetD8Async");
  return call.fault ? call.fault : enqueue_fill(call, stream, to, value, 1, count, count, 1);
}

CUresult cuMemsetD16Async(CUdeviceptr to, unsigned short value, size_t count, CUstream stream) {
  Call call("cuMemsetD16Async");
  return call.fault ? call.fault : enqueue_fill(call, stream, to, value, 2, count * 2, count, 1);
}

CUresult cuMemsetD32Async(CUdeviceptr to, unsigned int value, size_t count, CUstream stream) {
  Call call("cuMemsetD32Async");
  return call.fault ? call.fault : enqueue_fill(call, stream, to, value, 4, count * 4, count, 1);
}

CUresult cuMemsetD2D32Async(CUdeviceptr to, size_t pitch, unsigned int value, size_t width,
                            size_t height, CUstream stream) {
  Call call("cuMemsetD2D32Async");
  if (call.fault) return call.fault;
  if (pitch % 4 != 0 || pitch < width * 4) return CUDA_ERROR_INVALID_VALUE;
  return enqueue_fill(call, stream, to, value, 4, pitch, width, height);
}

}  // namespace fake
