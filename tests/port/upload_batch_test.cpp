// husk_port.upload_batch: many pieces in one call, through pinned memory if the batch is large.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <random>
#include <thread>

#include "port_case.h"

namespace husk::port_test {

// Pieces of odd sizes, some of them empty, that together fill one allocation of the device.
class Pieces {
 public:
  Pieces(uint64_t total, uint32_t seed) {
    std::mt19937 random(seed);
    while (bytes.size() < total) {
      const size_t wanted = random() % 4 == 0 ? random() % 20000 : random() % 300;
      const size_t size = random() % 9 == 0 ? 0 : std::min<size_t>(wanted, total - bytes.size());
      sizes.push_back(size);
      for (size_t i = 0; i < size; ++i) bytes.push_back(static_cast<char>(random()));
    }
  }
  std::vector<husk_upload> to(char* device) const {
    std::vector<husk_upload> uploads;
    size_t at = 0;
    for (const size_t size : sizes) {
      uploads.push_back({device + at, bytes.data() + at, size});
      at += size;
    }
    return uploads;
  }
  std::vector<char> bytes;
  std::vector<size_t> sizes;
};

class CudaUploadBatch : public Cuda {
 protected:
  void upload_and_compare(uint64_t total, uint32_t seed) {
    const Pieces pieces(total, seed);
    char* target = static_cast<char*>(device_memory(total));
    const std::vector<husk_upload> uploads = pieces.to(target);
    ASSERT_EQ(port->upload_batch(device, uploads.data(), static_cast<uint32_t>(uploads.size()), 0,
                                 &error),
              HUSK_OK)
        << error.text;
    EXPECT_EQ(read(target, total), pieces.bytes) << total;
    free_memory();
  }
  static husk_cuda_options with_small_buffers(int32_t threads) {
    husk_cuda_options options = HUSK_CUDA_OPTIONS_INIT;
    options.staging_bytes = 4096;
    options.load_threads = threads;
    return options;
  }
};
class OverFakeUploadBatch : public CudaUploadBatch {
  void SetUp() override {
    NEEDS_FAKE;
    CudaUploadBatch::SetUp();
  }
};

TEST_F(CudaUploadBatch, UploadsEveryByte) {
  upload_and_compare(100000, 1);
  for (const int32_t threads : {1, 2, 3, 0}) {
    open_with(with_small_buffers(threads));
    for (const uint64_t total : {1, 4095, 262143, 262144, 262145, 500001})
      upload_and_compare(total, 2);
  }
  for (const int32_t buffers : {1, 3, 9}) {
    husk_cuda_options options = with_small_buffers(20);
    options.load_buffers = buffers;
    open_with(options);
    upload_and_compare(500001, 6);
  }
}

TEST_F(CudaUploadBatch, UsesTheApplicationsThreads) {
  static uint32_t asked;  // the number of threads that the port asked for
  asked = 0;
  const husk_threads two = {nullptr, 2,
                            [](void*, uint32_t n, void (*body)(void*, uint32_t), void* argument) {
                              asked = n;
                              std::thread second(body, argument, 1);
                              body(argument, 0);
                              second.join();
                            }};
  const husk_threads one = {nullptr, 1,
                            [](void*, uint32_t, void (*)(void*, uint32_t), void*) { asked = 99; }};
  for (const husk_threads* threads : {&two, &one}) {
    open_with(with_small_buffers(0));
    close();
    ASSERT_EQ(port->open(port->user, 0, &allocator, threads, &device, &error), HUSK_OK)
        << error.text;
    ASSERT_EQ(port->stream_create(device, &stream, &error), HUSK_OK) << error.text;
    upload_and_compare(300000, 3);
    EXPECT_EQ(asked, 2u);
  }
}

TEST_F(CudaUploadBatch, AnEmptyBatchDoesNothing) {
  EXPECT_EQ(port->upload_batch(device, nullptr, 0, 0, &error), HUSK_OK);
  const husk_upload empty[] = {{nullptr, nullptr, 0}, {nullptr, nullptr, 0}};
  EXPECT_EQ(port->upload_batch(device, empty, 2, nullptr, &error), HUSK_OK);
}

TEST_F(CudaUploadBatch, WorksFromSeveralThreadsAtOnce) {
  open_with(with_small_buffers(2));
  std::vector<std::string> wrong(4);
  std::vector<char*> targets;
  for (int i = 0; i < 4; ++i) targets.push_back(static_cast<char*>(device_memory(300000)));
  std::vector<std::thread> threads;
  for (uint32_t i = 0; i < 4; ++i) {
    threads.emplace_back([this, i, target = targets[i], out = &wrong[i]] {
      const Pieces pieces(300000, i);
      const std::vector<husk_upload> uploads = pieces.to(target);
      husk_error mine{};
      std::vector<char> content(300000);
      if (port->upload_batch(device, uploads.data(), static_cast<uint32_t>(uploads.size()), 0,
                             &mine) != HUSK_OK)
        *out = mine.text;
      else if (port->download(device, nullptr, content.data(), target, content.size(), &mine) !=
               HUSK_OK)
        *out = mine.text;
      else if (content != pieces.bytes)
        *out = "other bytes than were loaded";
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& text : wrong) EXPECT_EQ(text, "");
}

// Resident bytes of the mapping that begins at `memory`.
static uint64_t resident(const void* memory) {
  std::ifstream maps("/proc/self/smaps");
  char wanted[32];
  snprintf(wanted, sizeof wanted, "%lx-", reinterpret_cast<unsigned long>(memory));
  bool here = false;
  for (std::string line; std::getline(maps, line);) {
    if (line.rfind(wanted, 0) == 0) here = true;
    unsigned long kilobytes = 0;
    if (here && sscanf(line.c_str(), "Rss: %lu kB", &kilobytes) == 1) return kilobytes * 1024;
  }
  return ~uint64_t{0};
}

TEST_F(CudaUploadBatch, ReadsAFileWithoutTouchingItsMapping) {
  const size_t size = 1 << 20;
  char path[] = "/tmp/husk_load_XXXXXX";
  const int file = mkstemp(path);
  ASSERT_GE(file, 0);
  std::vector<char> content(size);
  for (size_t i = 0; i < size; ++i) content[i] = static_cast<char>(i * 7 + i / 4096);
  ASSERT_EQ(write(file, content.data(), size), static_cast<ssize_t>(size));
  char* mapping = static_cast<char*>(mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0));
  ASSERT_NE(mapping, MAP_FAILED);
  unlink(path);
  const husk_mapping whole = {sizeof(husk_mapping), file, mapping, size};
  for (const int32_t threads : {0 /* directly */, 1, 2}) {
    if (threads) open_with(with_small_buffers(threads));
    char* target = static_cast<char*>(device_memory(size));
    const husk_upload uploads[] = {{target, mapping, 300001},
                                   {target + 300001, mapping + 300001, size - 300001}};
    madvise(mapping, size, MADV_DONTNEED);
    ASSERT_EQ(port->upload_batch(device, uploads, 2, &whole, &error), HUSK_OK) << error.text;
    // The system may bring in neighbours of a page that is read.
    EXPECT_LE(resident(mapping), size / 4) << threads;
    EXPECT_EQ(read(target, size), content);
    ASSERT_EQ(port->upload_batch(device, uploads, 2, nullptr, &error), HUSK_OK) << error.text;
    EXPECT_EQ(resident(mapping), size);
    EXPECT_EQ(memcmp(mapping, content.data(), size), 0);
    if (threads) {
      ASSERT_EQ(ftruncate(file, 400000), 0);
      EXPECT_EQ(port->upload_batch(device, uploads, 2, &whole, &error), HUSK_IO);
      EXPECT_TRUE(error_says("1048576 bytes 400000 it became shorter"));
      ASSERT_EQ(pwrite(file, content.data(), size, 0), static_cast<ssize_t>(size));
    }
    free_memory();
  }
  munmap(mapping, size);
  ::close(file);
}

TEST_F(CudaUploadBatch, LargeUploadsKeepTheOrderOfTheirStream) {
  open_with(with_small_buffers(2));
  std::vector<int32_t> numbers(100000);
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<int32_t>(i);
  int32_t* target = static_cast<int32_t*>(device_memory(400000));
  for (int round = 0; round < 10; ++round) {
    ASSERT_EQ(port->fill(device, stream, target, 0xFFFFFFFF, 4, 100000, &error), HUSK_OK);
    ASSERT_EQ(port->upload(device, stream, target, numbers.data(), 400000, &error), HUSK_OK)
        << error.text;
    EXPECT_EQ(read(target, 100000), numbers);
  }
}

TEST_F(OverFakeUploadBatch, PinsNothingForSmallBatches) {
  upload_and_compare(100000, 4);
  EXPECT_EQ(fake().calls("cuMemAllocHost"), 0u);
  EXPECT_EQ(fake().calls("cuStreamSynchronize"), 2u);  // one for all pieces, one for the download
}

TEST_F(OverFakeUploadBatch, FreesPinnedMemory) {
  for (const int32_t threads : {1, 2}) {
    open_with(with_small_buffers(threads));
    const uint64_t live = fake().live_objects();
    const uint64_t pinned = fake().calls("cuMemAllocHost"), freed = fake().calls("cuMemFreeHost");
    upload_and_compare(500000, 5);
    EXPECT_EQ(fake().calls("cuMemAllocHost") - pinned, 1u);
    EXPECT_EQ(fake().calls("cuMemFreeHost") - freed, 1u);
    EXPECT_EQ(fake().live_objects(), live);
  }
}

// A buffer that is filled again before the device has read it leads to wrong bytes in some order of
// work.
TEST_F(OverFakeUploadBatch, FillsNoBufferThatTheDeviceStillReads) {
  open_with(with_small_buffers(2));
  for (uint64_t seed = 1; seed < 20; ++seed) {
    fake().schedule(seed, static_cast<uint32_t>(seed % 3) * 30);
    upload_and_compare(300000, static_cast<uint32_t>(seed));
  }
}

TEST_F(OverFakeUploadBatch, NamesTheFailedCall) {
  open_with(with_small_buffers(2));
  std::vector<char> bytes(300000, 1);
  char* target = static_cast<char*>(device_memory(bytes.size()));
  const husk_upload whole = {target, bytes.data(), bytes.size()};
  fake().fail_call("cuMemAllocHost", 1, 2);
  EXPECT_EQ(port->upload_batch(device, &whole, 1, 0, &error), HUSK_OUT_OF_MEMORY);
  EXPECT_TRUE(error_says("load 300000 bytes cuMemAllocHost CUDA_ERROR_OUT_OF_MEMORY (2)"));
  EXPECT_EQ(port->upload_batch(device, &whole, 1, 0, &error), HUSK_OK) << error.text;
}

}  // namespace husk::port_test
