// How fast weights reach the device: from a mapped file that the page cache holds, by the port's load with buffers of several
// sizes and without any, and by single uploads. Interleaved; medians in GB/s, and what of the file the process still holds.
//   husk_gpu_load FILE [repeats]      FILE: made here, 2 GiB, removed at the end
#include "gpu.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

using namespace husk::gpu;

namespace {

constexpr uint64_t kMiB = 1 << 20, kMost = 2048 * kMiB;

struct Way {
  const char* name;
  uint64_t staging;   // bytes of a buffer; 0: single uploads
  int threads;
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
  husk_cuda_options options = {};
  options.struct_size = sizeof options;
  options.staging_bytes = way->staging;
  options.load_threads = way->threads;
  husk_port port = *husk_port_cuda();
  port.user = &options;
  void *device, *to, *from = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0);
  if (from == MAP_FAILED) give_up("the file cannot be mapped");
  require(port.open(port.user, 0, &process_memory, nullptr, &device, &error), error);
  require(port.alloc(device, size, &to, &error), error);
  const husk_load load = {to, from, size};
  const husk_mapping mapping = {from, size, file, 0};
  const double begin = now();
  if (way->staging) {
    require(port.load(device, &load, 1, &mapping, &error), error);
  } else {
    require(port.upload(device, nullptr, to, from, size, &error), error);
    require(port.stream_wait(device, nullptr, &error), error);
  }
  way->gigabytes.push_back(static_cast<double>(size) / (now() - begin) / 1e3);
  way->resident = resident(from);
  uint64_t got = 0, end = size - sizeof got;   // the last word is there
  require(port.download(device, nullptr, &got, static_cast<char*>(to) + end, sizeof got, &error), error);
  if (std::memcmp(&got, static_cast<char*>(from) + end, sizeof got) != 0) give_up("the bytes are not what the file has");
  port.free(device, to);
  port.close(device);
  munmap(from, size);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) give_up("husk_gpu_load FILE [repeats]");
  const int repeats = argc > 2 ? std::atoi(argv[2]) : 5;
  const int file = open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0600);
  std::vector<uint64_t> piece(kMiB);
  for (uint64_t written = 0; written < kMost; written += piece.size() * 8) {
    for (size_t i = 0; i < piece.size(); ++i) piece[i] = (written + i) * 0x9E3779B97F4A7C15u;
    if (write(file, piece.data(), piece.size() * 8) != static_cast<ssize_t>(piece.size() * 8)) give_up("the file cannot be written");
  }
  std::printf("%-8s %-28s %8s %10s\n", "MiB", "way", "GB/s", "MiB held");
  for (const uint64_t size : {32 * kMiB, 64 * kMiB, 128 * kMiB, 256 * kMiB, kMost}) {
    Way ways[] = {{"upload", 0, 0, {}},
                  {"load, no buffers", 1ull << 40, 0, {}},
                  {"1 MiB buffers, 1 thread", kMiB, 1, {}},
                  {"1 MiB buffers, 2 threads", kMiB, 2, {}},
                  {"1 MiB buffers, 4 threads", kMiB, 4, {}},
                  {"2 MiB buffers, 4 threads", 2 * kMiB, 4, {}},
                  {"4 MiB buffers, 4 threads", 4 * kMiB, 4, {}}};
    for (int i = 0; i < repeats; ++i)
      for (Way& way : ways) measure(&way, file, size);
    for (Way& way : ways)
      std::printf("%-8llu %-28s %8.1f %10.0f\n", static_cast<unsigned long long>(size / kMiB), way.name, median(way.gigabytes),
                  way.resident);
  }
  close(file);
  std::remove(argv[1]);
  return 0;
}
