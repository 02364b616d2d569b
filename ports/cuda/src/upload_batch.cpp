// Batches of uploads, such as a program's constants. The driver copies pageable memory at a sixth
// of the bus's rate (9 of 55 GB/s), and waits for each page of a mapping. Large batches therefore
// go through pinned buffers that several threads fill, by reading the file if the memory is a
// file's mapping: a thread fills one of its buffers while the device reads another. Small batches
// are copied directly, because pinning takes longer than it saves. The rates were
// measured by
// tests/gpu/load.cpp on an H200.
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include <husk/detail/struct_size.h>

#include "device.h"

namespace husk::cuda {

namespace {

constexpr uint64_t kBufferBytes = uint64_t{2} << 20;
constexpr uint64_t kMinBuffers = 64;  // a batch of fewer buffers' bytes is copied directly
constexpr uint32_t kThreads = 6, kMaxThreads = 16;
constexpr uint32_t kBuffers = 2, kMaxBuffers = 4;  // for each thread

uint32_t option_or_default(int32_t wanted, uint32_t usual, uint32_t most) {
  const uint32_t count = wanted > 0 ? static_cast<uint32_t>(wanted) : usual;
  return count < most ? count : most;
}

uint64_t buffer_bytes(const Device& device) {
  return device.options.staging_bytes ? device.options.staging_bytes : kBufferBytes;
}

// The state that the threads share. The bytes of all uploads, one after another, form a sequence of
// `total` bytes; each thread takes the next piece of `buffer` bytes of the sequence.
struct UploadBatch {
  Device& device;
  const husk_upload* uploads;
  uint32_t count;
  const husk_mapping* mapping;
  uint64_t total, buffer;      // bytes
  uint32_t threads, buffers;   // buffers for each thread
  char* memory;                // the pinned buffers; one allocation, as each one locks the driver
  std::atomic<uint64_t> next;  // the byte at which the next piece begins
  std::atomic<bool> failed;
};

struct Buffer {
  char* memory;
  CUevent copied;  // the device has read the buffer
  bool recorded;   // true once `copied` stands for a copy
};

struct Worker {
  UploadBatch* batch;
  husk_status status;
  husk_error error;
  CUstream stream;
  Buffer buffers[kMaxBuffers];
  uint32_t index;   // the upload in which the thread's last piece ended
  uint64_t before;  // bytes of the sequence before that upload
};

husk_status upload_fail(const Device& device, husk_error* error, CUresult result, const char* call,
                        uint64_t total) {
  return driver_fail(device.driver, error, result, call, "load of %llu bytes to device %d",
                     static_cast<unsigned long long>(total), device.index);
}

// Gives the pages of a mapping back to the system, which reads them from the file again when they
// are used. Pages that madvise leaves in memory do no harm.
void drop_pages(const void* from, uint64_t size) {
  const uintptr_t page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t begin = reinterpret_cast<uintptr_t>(from) & ~(page - 1);
  const uintptr_t end = (reinterpret_cast<uintptr_t>(from) + size + page - 1) & ~(page - 1);
  madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

// Copies bytes to a buffer. If the bytes lie in a file's mapping they are read from the file, which
// is faster than bringing in each page of the mapping.
husk_status read_source(const UploadBatch& batch, char* to, const char* from, uint64_t size,
                        husk_error* error) {
  if (!batch.mapping) {
    memcpy(to, from, size);
    return HUSK_OK;
  }
  off_t at = from - static_cast<const char*>(batch.mapping->begin);
  while (size > 0) {
    const ssize_t bytes_read = pread(batch.mapping->file, to, size, at);
    if (bytes_read < 0 && errno == EINTR) continue;
    if (bytes_read < 0)
      return fail(error, HUSK_IO, "a load of %llu bytes: the file cannot be read at byte %lld: %s",
                  static_cast<unsigned long long>(batch.total), static_cast<long long>(at),
                  strerror(errno));
    if (bytes_read == 0) {
      // The error names the file's end: other threads may have met it at other positions.
      struct stat info;
      return fail(
          error, HUSK_IO, "a load of %llu bytes: the file ends at byte %lld: it became shorter",
          static_cast<unsigned long long>(batch.total),
          static_cast<long long>(fstat(batch.mapping->file, &info) == 0 ? info.st_size : at));
    }
    to += bytes_read;
    at += bytes_read;
    size -= static_cast<uint64_t>(bytes_read);
  }
  return HUSK_OK;
}

husk_status wait_for_buffer(Worker* worker, Buffer* buffer) {
  const UploadBatch& batch = *worker->batch;
  const Driver& driver = batch.device.driver;
  if (buffer->recorded) {
    const CUresult result = driver.cuEventSynchronize(buffer->copied);
    if (result == CUDA_SUCCESS) return HUSK_OK;
    return upload_fail(batch.device, &worker->error, result, "cuEventSynchronize", batch.total);
  }
  const CUresult result = driver.cuEventCreate(&buffer->copied, CU_EVENT_DISABLE_TIMING);
  if (result == CUDA_SUCCESS) return HUSK_OK;
  buffer->copied = nullptr;
  return upload_fail(batch.device, &worker->error, result, "cuEventCreate", batch.total);
}

// Copies the bytes [begin, begin + size) of the sequence, which may be parts of several uploads.
husk_status send_piece(Worker* worker, Buffer* buffer, uint64_t begin, uint64_t size) {
  const UploadBatch& batch = *worker->batch;
  const Driver& driver = batch.device.driver;
  HUSK_TRY(wait_for_buffer(worker, buffer));
  char* free = buffer->memory;
  for (const uint64_t end = begin + size; begin < end;) {
    while (begin - worker->before >= batch.uploads[worker->index].size)
      worker->before += batch.uploads[worker->index++].size;
    const husk_upload& upload = batch.uploads[worker->index];
    const uint64_t offset = begin - worker->before, rest = upload.size - offset;
    const uint64_t part = rest < end - begin ? rest : end - begin;
    const char* from = static_cast<const char*>(upload.from) + offset;
    HUSK_TRY(read_source(batch, free, from, part, &worker->error));
    const CUresult result = driver.cuMemcpyHtoDAsync(as_address(upload.to) + offset, free, part,
                                                     worker->stream);
    if (result != CUDA_SUCCESS)
      return upload_fail(batch.device, &worker->error, result, "cuMemcpyHtoDAsync", batch.total);
    free += part;
    begin += part;
  }
  const CUresult result = driver.cuEventRecord(buffer->copied, worker->stream);
  buffer->recorded = result == CUDA_SUCCESS;
  if (buffer->recorded) return HUSK_OK;
  return upload_fail(batch.device, &worker->error, result, "cuEventRecord", batch.total);
}

husk_status send_pieces(Worker* worker) {
  UploadBatch& batch = *worker->batch;
  const CUresult result = batch.device.driver.cuStreamCreate(&worker->stream,
                                                             CU_STREAM_NON_BLOCKING);
  if (result != CUDA_SUCCESS) {
    worker->stream = nullptr;
    return upload_fail(batch.device, &worker->error, result, "cuStreamCreate", batch.total);
  }
  for (uint32_t turn = 0; !batch.failed.load(std::memory_order_relaxed);
       turn = (turn + 1) % batch.buffers) {
    const uint64_t begin = batch.next.fetch_add(batch.buffer, std::memory_order_relaxed);
    if (begin >= batch.total) break;
    const uint64_t rest = batch.total - begin;
    HUSK_TRY(send_piece(worker, &worker->buffers[turn], begin,
                        rest < batch.buffer ? rest : batch.buffer));
  }
  return HUSK_OK;
}

void work(void* argument, uint32_t index) {
  Worker* worker = static_cast<Worker*>(argument) + index;
  UploadBatch& batch = *worker->batch;
  const Driver& driver = batch.device.driver;
  Current current(&batch.device.plain, &worker->error);
  worker->status = current.status;
  if (worker->status == HUSK_OK) worker->status = send_pieces(worker);
  if (worker->status != HUSK_OK) batch.failed.store(true, std::memory_order_relaxed);
  if (!worker->stream) return;
  // The device may still read the buffers, after a failure too. A wait that fails may return before
  // the work has ended, so it is repeated once.
  const CUresult result = driver.cuStreamSynchronize(worker->stream);
  if (result != CUDA_SUCCESS) driver.cuStreamSynchronize(worker->stream);
  if (result != CUDA_SUCCESS && worker->status == HUSK_OK) {
    worker->status = upload_fail(batch.device, &worker->error, result, "cuStreamSynchronize",
                                 batch.total);
  }
  for (const Buffer& buffer : worker->buffers)
    if (buffer.copied) driver.cuEventDestroy(buffer.copied);
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

// Runs the workers on the application's threads if it gave any, otherwise on this thread and new
// ones. If no thread can be started, fewer workers do all the work.
void work_together(Worker* workers, const Device& device) {
  const uint32_t threads = workers->batch->threads;
  if (device.threads && device.threads->count > 1) {
    const uint32_t count = device.threads->count;
    device.threads->parallel(device.threads->user, threads < count ? threads : count, work,
                             workers);
    return;
  }
  Helper helpers[kMaxThreads];
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

husk_status upload_staged(UploadBatch* batch, husk_error* error) {
  Worker workers[kMaxThreads];
  memset(workers, 0, sizeof workers);
  char* memory = batch->memory;
  for (uint32_t w = 0; w < batch->threads; ++w) {
    workers[w].batch = batch;
    for (uint32_t b = 0; b < batch->buffers; ++b, memory += batch->buffer)
      workers[w].buffers[b].memory = memory;
  }
  work_together(workers, batch->device);
  for (const Worker& worker : workers) {
    if (worker.status == HUSK_OK) continue;
    *error = worker.error;
    return worker.status;
  }
  return HUSK_OK;
}

husk_status upload_directly(const UploadBatch& batch, husk_error* error) {
  const Device& device = batch.device;
  const char* call = "cuMemcpyHtoDAsync";
  CUresult result = CUDA_SUCCESS;
  for (uint32_t i = 0; i < batch.count && result == CUDA_SUCCESS; ++i) {
    const husk_upload& upload = batch.uploads[i];
    if (upload.size == 0) continue;
    result = device.driver.cuMemcpyHtoDAsync(as_address(upload.to), upload.from, upload.size,
                                             device.private_stream);
  }
  // A wait that fails may return before the work has ended, so it is repeated once.
  const CUresult waited = device.driver.cuStreamSynchronize(device.private_stream);
  if (waited != CUDA_SUCCESS) device.driver.cuStreamSynchronize(device.private_stream);
  if (result == CUDA_SUCCESS) {
    call = "cuStreamSynchronize";
    result = waited;
  }
  if (result != CUDA_SUCCESS) return upload_fail(device, error, result, call, batch.total);
  for (uint32_t i = 0; i < batch.count && batch.mapping; ++i)
    if (batch.uploads[i].size) drop_pages(batch.uploads[i].from, batch.uploads[i].size);
  return HUSK_OK;
}

}  // namespace

bool is_large(const Device& device, uint64_t bytes) {
  return bytes / kMinBuffers >= buffer_bytes(device);
}

husk_status upload_batch(void* handle, const husk_upload* uploads, uint32_t count,
                         const husk_mapping* mapping, husk_error* error) {
  if (mapping) HUSK_TRY(HUSK_CHECK_STRUCT(husk_mapping, mapping, size, error));
  Device& device = as_device(handle);
  const uint32_t threads = option_or_default(device.options.load_threads, kThreads, kMaxThreads);
  const uint32_t buffers = option_or_default(device.options.load_buffers, kBuffers, kMaxBuffers);
  UploadBatch batch = {device,  uploads, count,   mapping, 0,      buffer_bytes(device),
                       threads, buffers, nullptr, {0},     {false}};
  for (uint32_t i = 0; i < count; ++i) batch.total += uploads[i].size;
  if (batch.total == 0) return HUSK_OK;
  const NvtxRange range(device.nvtx, "husk load");
  Current current(handle, error);
  HUSK_TRY(current.status);
  if (!is_large(device, batch.total)) return upload_directly(batch, error);
  void* memory = nullptr;
  const CUresult result = device.driver.cuMemAllocHost(&memory, threads * buffers * batch.buffer);
  if (result != CUDA_SUCCESS)
    return upload_fail(device, error, result, "cuMemAllocHost", batch.total);
  batch.memory = static_cast<char*>(memory);
  const husk_status status = upload_staged(&batch, error);
  device.driver.cuMemFreeHost(memory);
  return status;
}

}  // namespace husk::cuda
