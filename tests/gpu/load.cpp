// The speed of an upload of weights from a mapped file in the page cache: by the port's
// upload_batch with buffers of several sizes and without buffers, and by single uploads. The
// variants are interleaved. Prints medians in GB/s and the size of the file's pages that stay in
// the process.
//   husk_gpu_load FILE [repeats]          FILE: made by this program, 2 GiB, removed at the end
//   husk_gpu_load FILE [repeats] sweep    2 GiB with many numbers of threads and buffers and many
//   sizes of a buffer, and the time of each part of an upload by itself
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "gpu.h"

using namespace husk::gpu;

namespace {

constexpr uint64_t kMiB = 1 << 20, kMost = 2048 * kMiB;

struct Way {
  const char* name;
  uint64_t staging;  // bytes of a buffer; 0: single uploads
  int threads, buffers;
  std::vector<double> gigabytes;
  double resident = 0;
};

// MiB of the file's pages in this process.
double resident(const void* memory) {
  FILE* maps = std::fopen("/proc/self/smaps", "r");
  char line[512], wanted[32];
  std::snprintf(wanted, sizeof wanted, "%zx-", reinterpret_cast<size_t>(memory));
  bool here = false;
  double kib = 0;
  while (maps && std::fgets(line, sizeof line, maps)) {
    if (std::strncmp(line, wanted, std::strlen(wanted)) == 0) here = true;
    if (here && std::sscanf(line, "Rss: %lf", &kib) == 1) break;
  }
  if (maps) std::fclose(maps);
  return kib / 1024;
}

void measure(Way* way, int file, uint64_t size) {
  husk_error error;
  husk_cuda_options options = HUSK_CUDA_OPTIONS_INIT;
  options.staging_bytes = way->staging;
  options.load_threads = way->threads;
  options.load_buffers = way->buffers;
  husk_port port = *husk_port_cuda();
  port.user = &options;
  void *device, *to, *from = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0);
  if (from == MAP_FAILED) give_up("the file cannot be mapped");
  require(port.open(port.user, 0, &process_memory, nullptr, &device, &error), error);
  require(port.alloc(device, size, &to, &error), error);
  const husk_upload load = {to, from, size};
  const husk_mapping mapping = {sizeof(husk_mapping), file, from, size};
  const double begin = now();
  if (way->staging) {
    require(port.upload_batch(device, &load, 1, &mapping, &error), error);
  } else {
    require(port.upload(device, nullptr, to, from, size, &error), error);
    require(port.stream_wait(device, nullptr, &error), error);
  }
  way->gigabytes.push_back(static_cast<double>(size) / (now() - begin) / 1e3);
  way->resident = resident(from);
  uint64_t got = 0, end = size - sizeof got;  // The last word has arrived.
  require(port.download(device, nullptr, &got, static_cast<char*>(to) + end, sizeof got, &error),
          error);
  if (std::memcmp(&got, static_cast<char*>(from) + end, sizeof got) != 0)
    give_up("the bytes are not what the file has");
  port.free(device, to);
  port.close(device);
  munmap(from, size);
}

double milliseconds(double begin) { return (now() - begin) / 1e3; }

// Microseconds of each part by itself: pinning, reading the file into pinned memory, copying from
// there.
void parts(const char* path, int repeats) {
  Driver driver;
  const CUdeviceptr device = driver.alloc(kMost);
  const int file = open(path, O_RDONLY);
  std::printf(
      "\npinning, ms: allocated and freed by the driver; mapped as huge pages, registered, taken "
      "back\n");
  for (const uint64_t size : {kMiB, 4 * kMiB, 8 * kMiB, 16 * kMiB, 64 * kMiB}) {
    std::vector<double> took[5];
    for (int i = 0; i < repeats; ++i) {
      void* memory = nullptr;
      double begin = now();
      require(driver.cuMemAllocHost_v2_(&memory, size), "cuMemAllocHost");
      took[0].push_back(milliseconds(begin));
      begin = now();
      require(driver.cuMemFreeHost_(memory), "cuMemFreeHost");
      took[1].push_back(milliseconds(begin));
      begin = now();
      char* region = static_cast<char*>(mmap(nullptr, size + 2 * kMiB, PROT_READ | PROT_WRITE,
                                             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
      char* aligned = region + (2 * kMiB - reinterpret_cast<uintptr_t>(region) % (2 * kMiB));
      madvise(aligned, size, MADV_HUGEPAGE);
      for (uint64_t at = 0; at < size; at += 4096) aligned[at] = 1;
      took[2].push_back(milliseconds(begin));
      begin = now();
      require(driver.cuMemHostRegister_v2_(aligned, size, 0), "cuMemHostRegister");
      took[3].push_back(milliseconds(begin));
      begin = now();
      require(driver.cuMemHostUnregister_(aligned), "cuMemHostUnregister");
      munmap(region, size + 2 * kMiB);
      took[4].push_back(milliseconds(begin));
    }
    std::printf("%4llu MiB: %.2f + %.2f;  %.2f + %.2f + %.2f\n",
                static_cast<unsigned long long>(size / kMiB), median(took[0]), median(took[1]),
                median(took[2]), median(took[3]), median(took[4]));
  }
  constexpr int kThreads = 16;
  void* memory = nullptr;
  require(driver.cuMemAllocHost_v2_(&memory, kThreads * 4 * kMiB), "cuMemAllocHost");
  char* pinned = static_cast<char*>(memory);
  std::printf("\nthe file into pinned memory, GB/s\n");
  for (const int threads : {1, 2, 4, 6, 8, 12, 16})
    for (const uint64_t piece : {kMiB, 4 * kMiB}) {
      std::vector<double> rates;
      for (int i = 0; i < repeats; ++i) {
        std::atomic<uint64_t> next{0};
        std::vector<std::thread> workers;
        const double begin = now();
        for (int t = 0; t < threads; ++t)
          workers.emplace_back([&, t] {
            for (uint64_t at; (at = next.fetch_add(piece)) < kMost;)
              if (pread(file, pinned + static_cast<uint64_t>(t) * 4 * kMiB, piece,
                        static_cast<off_t>(at)) < 0)
                give_up("pread");
          });
        for (std::thread& worker : workers) worker.join();
        rates.push_back(static_cast<double>(kMost) / (now() - begin) / 1e3);
      }
      std::printf("%2d threads, %llu MiB pieces: %.1f\n", threads,
                  static_cast<unsigned long long>(piece / kMiB), median(rates));
    }
  std::printf("\npinned memory to the device, GB/s\n");
  CUstream streams[4];
  for (CUstream& stream : streams)
    require(driver.cuStreamCreate_(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  for (const uint64_t count : {1, 2, 4})
    for (const uint64_t piece : {kMiB / 4, kMiB, 4 * kMiB, 64 * kMiB}) {
      std::vector<double> rates;
      for (int i = 0; i < repeats; ++i) {
        const double begin = now();
        for (uint64_t at = 0, turn = 0; at < kMost; at += piece, ++turn)
          require(driver.cuMemcpyHtoDAsync_v2_(device + at,
                                               pinned + turn * piece % (kThreads * 4 * kMiB), piece,
                                               streams[turn % count]),
                  "copy");
        for (CUstream stream : streams) require(driver.cuStreamSynchronize_(stream), "synchronize");
        rates.push_back(static_cast<double>(kMost) / (now() - begin) / 1e3);
      }
      std::printf("%d streams, pieces of %llu KiB: %.1f\n", static_cast<int>(count),
                  static_cast<unsigned long long>(piece / 1024), median(rates));
    }
  driver.cuMemFreeHost_(pinned);
  driver.cuMemFree_v2_(device);
  close(file);
}

void sweep(const char* path, int file, int repeats) {
  std::vector<Way> ways;
  for (const int threads : {2, 4, 6, 8, 12, 16})
    for (const uint64_t staging : {kMiB / 2, kMiB, 2 * kMiB, 4 * kMiB})
      for (const int buffers : {2, 3, 4}) ways.push_back({"", staging, threads, buffers, {}});
  for (int i = 0; i < repeats; ++i)
    for (Way& way : ways) measure(&way, file, kMost);
  std::sort(ways.begin(), ways.end(),
            [](const Way& a, const Way& b) { return median(a.gigabytes) > median(b.gigabytes); });
  std::printf("2 GiB by the port's upload_batch, GB/s, the fastest first\n");
  for (const Way& way : ways)
    std::printf("%2d threads, %d buffers each of %4llu KiB: %.1f\n", way.threads, way.buffers,
                static_cast<unsigned long long>(way.staging / 1024), median(way.gigabytes));
  std::fflush(stdout);
  parts(path, repeats);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) give_up("husk_gpu_load FILE [repeats [sweep]]");
  const int repeats = argc > 2 ? std::atoi(argv[2]) : 5;
  const int file = open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0600);
  std::vector<uint64_t> piece(kMiB);
  for (uint64_t written = 0; written < kMost; written += piece.size() * 8) {
    for (size_t i = 0; i < piece.size(); ++i) piece[i] = (written + i) * 0x9E3779B97F4A7C15u;
    if (write(file, piece.data(), piece.size() * 8) != static_cast<ssize_t>(piece.size() * 8))
      give_up("the file cannot be written");
  }
  const bool sweeping = argc > 3;
  if (sweeping) {
    const Place held(0);  // The context stays.
    sweep(argv[1], file, repeats);
  }
  if (!sweeping) std::printf("%-8s %-28s %8s %10s\n", "MiB", "way", "GB/s", "MiB held");
  for (const uint64_t size : {32 * kMiB, 64 * kMiB, 128 * kMiB, 256 * kMiB, kMost}) {
    if (sweeping) break;
    Way ways[] = {{"upload", 0, 0, 0, {}},
                  {"load, no buffers", 1ull << 40, 0, 0, {}},
                  {"load, as it is", kMiB, 0, 0, {}},
                  {"1 MiB buffers, 1 thread", kMiB, 1, 0, {}},
                  {"1 MiB buffers, 2 threads", kMiB, 2, 0, {}},
                  {"1 MiB buffers, 4 threads", kMiB, 4, 0, {}},
                  {"1 MiB buffers, 8 threads", kMiB, 8, 0, {}},
                  {"4 MiB buffers, 4 threads", 4 * kMiB, 4, 0, {}}};
    for (int i = 0; i < repeats; ++i)
      for (Way& way : ways) measure(&way, file, size);
    for (Way& way : ways)
      std::printf("%-8llu %-28s %8.1f %10.0f\n", static_cast<unsigned long long>(size / kMiB),
                  way.name, median(way.gigabytes), way.resident);
  }
  close(file);
  std::remove(argv[1]);
  return 0;
}
