// Weights to the device. The driver copies pageable memory at a sixth of what the bus takes (9 of 55 GB/s), and in a mapping it
// waits for each page. So large loads go through pinned buffers that several threads fill, from the file where there is one: a
// thread fills one of its buffers while the device reads another. Small loads do without, as pinning takes longer than
// it saves them. All numbers are what tests/gpu/load.cpp measured on an H200.
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>

#include "device.h"

namespace husk::cuda {

namespace {

constexpr uint64_t kBuffer = uint64_t{2} << 20;
constexpr uint64_t kWorthIt = 64;                 // buffers' bytes; there the two ways meet
constexpr uint32_t kThreads = 6, kMostThreads = 16;
constexpr uint32_t kBuffers = 2, kMostBuffers = 4;   // of a thread

uint32_t choose(int32_t wanted, uint32_t usual, uint32_t most) {
  const uint32_t count = wanted > 0 ? static_cast<uint32_t>(wanted) : usual;
  return count < most ? count : most;
}

uint64_t buffer_bytes(const Device& device) {
  return device.options.staging_bytes ? device.options.staging_bytes : kBuffer;
}

// What the threads share. The bytes of all loads are one row, of which each takes the next piece.
struct Loading {
  Device& device;
  const husk_load* loads;
  uint32_t count;
  const husk_mapping* mapping;
  uint64_t total, buffer;
  uint32_t threads, buffers;   // buffers of a thread
  char* memory;                // pinned, all the buffers': one piece, as each is a call that stops the others
  std::atomic<uint64_t> next;
  std::atomic<bool> failed;
};

struct Buffer {
  char* memory;
  CUevent read;    // by the device
  bool recorded;
};

struct Worker {
  Loading* loading;
  husk_status status;
  husk_error error;
  CUstream stream;
  Buffer buffers[kMostBuffers];
  uint32_t index;    // the load that the last piece began in, and the row's bytes before it
  uint64_t before;
};

husk_status load_fail(const Device& device, husk_error* error, CUresult result, const char* call, uint64_t total) {
  return driver_fail(device.driver, error, result, call, "load of %llu bytes to device %d",
                     static_cast<unsigned long long>(total), device.index);
}

// The pages come back from the file when somebody reads them again.
void drop_pages(const void* from, uint64_t size) {
  const uintptr_t page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t begin = reinterpret_cast<uintptr_t>(from) & ~(page - 1);
  const uintptr_t end = (reinterpret_cast<uintptr_t>(from) + size + page - 1) & ~(page - 1);
  madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);   // what it does not do costs memory, no more
}

// From the file where there is one: the pages of its mapping would each have to be brought in first.
husk_status fetch(const Loading& loading, char* to, const char* from, uint64_t size, husk_error* error) {
  if (!loading.mapping) {
    memcpy(to, from, size);
    return HUSK_OK;
  }
  off_t at = from - static_cast<const char*>(loading.mapping->begin);
  while (size > 0) {
    const ssize_t got = pread(loading.mapping->file, to, size, at);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0)
      return fail(error, HUSK_IO, "a load of %llu bytes: the file has none at byte %lld: %s",
                  static_cast<unsigned long long>(loading.total), static_cast<long long>(at), strerror(errno));
    if (got == 0) {   // where it ends, not where this thread saw it: threads read side by side
      struct stat info;
      return fail(error, HUSK_IO, "a load of %llu bytes: the file ends at byte %lld: it became shorter",
                  static_cast<unsigned long long>(loading.total),
                  static_cast<long long>(fstat(loading.mapping->file, &info) == 0 ? info.st_size : at));
    }
    to += got;
    at += got;
    size -= static_cast<uint64_t>(got);
  }
  return HUSK_OK;
}

husk_status make_ready(Worker* worker, Buffer* buffer) {
  const Loading& loading = *worker->loading;
  const Driver& driver = loading.device.driver;
  if (buffer->recorded) {
    const CUresult result = driver.cuEventSynchronize(buffer->read);
    if (result == CUDA_SUCCESS) return HUSK_OK;
    return load_fail(loading.device, &worker->error, result, "cuEventSynchronize", loading.total);
  }
  const CUresult result = driver.cuEventCreate(&buffer->read, CU_EVENT_DISABLE_TIMING);
  if (result == CUDA_SUCCESS) return HUSK_OK;
  buffer->read = nullptr;
  return load_fail(loading.device, &worker->error, result, "cuEventCreate", loading.total);
}

// Bytes [begin, begin + size) of the row, which may be parts of several loads.
husk_status send(Worker* worker, Buffer* buffer, uint64_t begin, uint64_t size) {
  const Loading& loading = *worker->loading;
  const Driver& driver = loading.device.driver;
  HUSK_TRY(make_ready(worker, buffer));
  char* free = buffer->memory;
  for (const uint64_t end = begin + size; begin < end;) {
    while (begin - worker->before >= loading.loads[worker->index].size) {
      worker->before += loading.loads[worker->index++].size;
    }
    const husk_load& load = loading.loads[worker->index];
    const uint64_t offset = begin - worker->before, rest = load.size - offset;
    const uint64_t part = rest < end - begin ? rest : end - begin;
    const char* from = static_cast<const char*>(load.from) + offset;
    HUSK_TRY(fetch(loading, free, from, part, &worker->error));
    const CUresult result = driver.cuMemcpyHtoDAsync(as_address(load.to) + offset, free, part, worker->stream);
    if (result != CUDA_SUCCESS) {
      return load_fail(loading.device, &worker->error, result, "cuMemcpyHtoDAsync", loading.total);
    }
    free += part;
    begin += part;
  }
  const CUresult result = driver.cuEventRecord(buffer->read, worker->stream);
  buffer->recorded = result == CUDA_SUCCESS;
  if (buffer->recorded) return HUSK_OK;
  return load_fail(loading.device, &worker->error, result, "cuEventRecord", loading.total);
}

husk_status send_all(Worker* worker) {
  Loading& loading = *worker->loading;
  const CUresult result = loading.device.driver.cuStreamCreate(&worker->stream, CU_STREAM_NON_BLOCKING);
  if (result != CUDA_SUCCESS) {
    worker->stream = nullptr;
    return load_fail(loading.device, &worker->error, result, "cuStreamCreate", loading.total);
  }
  for (uint32_t turn = 0; !loading.failed.load(std::memory_order_relaxed); turn = (turn + 1) % loading.buffers) {
    const uint64_t begin = loading.next.fetch_add(loading.buffer, std::memory_order_relaxed);
    if (begin >= loading.total) break;
    const uint64_t rest = loading.total - begin;
    HUSK_TRY(send(worker, &worker->buffers[turn], begin, rest < loading.buffer ? rest : loading.buffer));
  }
  return HUSK_OK;
}

void work(void* argument, uint32_t index) {
  Worker* worker = static_cast<Worker*>(argument) + index;
  Loading& loading = *worker->loading;
  const Driver& driver = loading.device.driver;
  Current current(&loading.device.plain, &worker->error);
  worker->status = current.status;
  if (worker->status == HUSK_OK) worker->status = send_all(worker);
  if (worker->status != HUSK_OK) loading.failed.store(true, std::memory_order_relaxed);
  if (!worker->stream) return;
  // The device reads the buffers until here, also after a failure.
  const CUresult result = driver.cuStreamSynchronize(worker->stream);
  if (result != CUDA_SUCCESS) driver.cuStreamSynchronize(worker->stream);   // one that failed has not waited
  if (result != CUDA_SUCCESS && worker->status == HUSK_OK) {
    worker->status = load_fail(loading.device, &worker->error, result, "cuStreamSynchronize", loading.total);
  }
  for (const Buffer& buffer : worker->buffers) {
    if (buffer.read) driver.cuEventDestroy(buffer.read);
  }
  driver.cuStreamDestroy(worker->stream);
}

struct Helper {
  Worker* workers;
  uint32_t index;
  pthread_t thread;
};

void* help(void* argument) {
  const Helper* helper = static_cast<Helper*>(argument);
  work(helper->workers, helper->index);
  return nullptr;
}

// On the caller's threads where it gave any, else on some of our own beside this one; on fewer where there are none.
void work_together(Worker* workers, const Device& device) {
  const uint32_t threads = workers->loading->threads;
  if (device.threads && device.threads->count > 1) {
    const uint32_t count = device.threads->count;
    device.threads->parallel(device.threads->user, threads < count ? threads : count, work, workers);
    return;
  }
  Helper helpers[kMostThreads];
  uint32_t started = 0;
  for (uint32_t i = 1; i < threads && !device.threads; ++i) {
    Helper& helper = helpers[started];
    helper.workers = workers;
    helper.index = i;
    if (pthread_create(&helper.thread, nullptr, help, &helper) == 0) ++started;
  }
  work(workers, 0);
  for (uint32_t i = 0; i < started; ++i) pthread_join(helpers[i].thread, nullptr);
}

husk_status load_staged(Loading* loading, husk_error* error) {
  Worker workers[kMostThreads];
  memset(workers, 0, sizeof workers);
  char* memory = loading->memory;
  for (uint32_t w = 0; w < loading->threads; ++w) {
    workers[w].loading = loading;
    for (uint32_t b = 0; b < loading->buffers; ++b, memory += loading->buffer) workers[w].buffers[b].memory = memory;
  }
  work_together(workers, loading->device);
  for (const Worker& worker : workers) {
    if (worker.status == HUSK_OK) continue;
    *error = worker.error;
    return worker.status;
  }
  return HUSK_OK;
}

husk_status load_directly(const Loading& loading, husk_error* error) {
  const Device& device = loading.device;
  const char* call = "cuMemcpyHtoDAsync";
  CUresult result = CUDA_SUCCESS;
  for (uint32_t i = 0; i < loading.count && result == CUDA_SUCCESS; ++i) {
    const husk_load& one = loading.loads[i];
    if (one.size == 0) continue;
    result = device.driver.cuMemcpyHtoDAsync(as_address(one.to), one.from, one.size, device.private_stream);
  }
  const CUresult waited = device.driver.cuStreamSynchronize(device.private_stream);
  if (waited != CUDA_SUCCESS) device.driver.cuStreamSynchronize(device.private_stream);   // one that failed has not waited
  if (result == CUDA_SUCCESS) {
    call = "cuStreamSynchronize";
    result = waited;
  }
  if (result != CUDA_SUCCESS) return load_fail(device, error, result, call, loading.total);
  for (uint32_t i = 0; i < loading.count && loading.mapping; ++i) {
    if (loading.loads[i].size) drop_pages(loading.loads[i].from, loading.loads[i].size);
  }
  return HUSK_OK;
}

}  // namespace

bool is_large(const Device& device, uint64_t bytes) { return bytes / kWorthIt >= buffer_bytes(device); }

husk_status load(void* handle, const husk_load* loads, uint32_t count, const husk_mapping* mapping, husk_error* error) {
  Device& device = as_device(handle);
  const uint32_t threads = choose(device.options.load_threads, kThreads, kMostThreads);
  const uint32_t buffers = choose(device.options.load_buffers, kBuffers, kMostBuffers);
  Loading loading = {device, loads, count, mapping, 0, buffer_bytes(device), threads, buffers, nullptr, {0}, {false}};
  for (uint32_t i = 0; i < count; ++i) loading.total += loads[i].size;
  if (loading.total == 0) return HUSK_OK;
  const Range range(device, "husk load");
  Current current(handle, error);
  HUSK_TRY(current.status);
  if (!is_large(device, loading.total)) return load_directly(loading, error);
  void* memory = nullptr;
  const CUresult result = device.driver.cuMemAllocHost(&memory, threads * buffers * loading.buffer);
  if (result != CUDA_SUCCESS) return load_fail(device, error, result, "cuMemAllocHost", loading.total);
  loading.memory = static_cast<char*>(memory);
  const husk_status status = load_staged(&loading, error);
  device.driver.cuMemFreeHost(memory);
  return status;
}

}  // namespace husk::cuda
