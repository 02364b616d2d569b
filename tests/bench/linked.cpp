// Compares a program of 100 launches as code of the process (`huskc --emit=obj`) with the same
// program as a file: the time of a run, the time to open it, memory and size. `husk_linked_bench
// --smoke` measures for a moment, as a test.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <husk/husk.h>
#include <husk/port_host.h>

extern "C" const unsigned char husk_launches[];  // of launches.hir

namespace husk::bench {
namespace {

constexpr char kFile[] = HUSK_BENCH_LINKED "/launches.husk";

// The ways to run the program. The second one has the same kernels as the third, at the same
// places.
enum class Way { file, object_interpreted, object };
constexpr Way kWays[] = {Way::file, Way::object_interpreted, Way::object};

void check(husk_status status, const husk_error& error) {
  if (status == HUSK_OK) return;
  std::fprintf(stderr, "husk_linked_bench: %s\n", error.text);
  std::exit(1);
}

// Counts the bytes that the engine has. The size is kept before each piece.
constexpr size_t kPrefix = 64;
void* allocate(void* used, size_t bytes, size_t) {
  void* memory = std::aligned_alloc(64, (bytes + kPrefix + 63) / 64 * 64);
  std::memcpy(memory, &bytes, sizeof(bytes));
  *static_cast<size_t*>(used) += bytes;
  return static_cast<char*>(memory) + kPrefix;
}
void release(void* used, void* memory) {
  if (!memory) return;
  size_t bytes;
  memory = static_cast<char*>(memory) - kPrefix;
  std::memcpy(&bytes, memory, sizeof(bytes));
  *static_cast<size_t*>(used) -= bytes;
  std::free(memory);
}

class Opened {
 public:
  explicit Opened(Way way) {
    port_ = *husk_port_host();
    if (way == Way::object_interpreted) port_.launch_linked = nullptr;
    const husk_allocator allocator = {&bytes, allocate, release};
    husk_engine_options options = HUSK_ENGINE_OPTIONS_INIT;
    options.port = &port_;
    options.allocator = &allocator;
    options.allow_host_images = 1;
    check(husk_engine_create(&options, &engine_, &error_), error_);
    check(way == Way::file ? husk_program_open(engine_, kFile, &program_, &error_)
                           : husk_program_link(engine_, husk_launches, &program_, &error_),
          error_);
    check(husk_session_create(program_, nullptr, &session_, &error_), error_);
  }
  ~Opened() {
    husk_session_release(session_);
    husk_program_release(program_);
    husk_engine_release(engine_);
  }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;

  // Runs a function with its input and output at these floats.
  void run(const char* name, float* x, float* y) {
    uint32_t function;
    check(husk_program_find_function(program_, name, &function, &error_), error_);
    run(function, x, y);
  }
  void run(uint32_t function, float* x, float* y) {
    int64_t size = 4;
    DLTensor tensors[2] = {};
    husk_value values[2] = {};
    for (int i = 0; i < 2; ++i) {
      tensors[i].data = i ? y : x;
      tensors[i].device = {kDLCPU, 0};
      tensors[i].ndim = 1;
      tensors[i].dtype = {kDLFloat, 32, 1};
      tensors[i].shape = &size;
      values[i].kind = HUSK_VALUE_TENSOR;
      values[i].as.tensor = &tensors[i];
    }
    check(husk_session_run(session_, function, nullptr, values, 1, values + 1, 1, &error_), error_);
  }
  uint32_t function(const char* name) {
    uint32_t out;
    check(husk_program_find_function(program_, name, &out, &error_), error_);
    return out;
  }
  size_t bytes = 0;

 private:
  husk_port port_;
  husk_engine* engine_ = nullptr;
  husk_program* program_ = nullptr;
  husk_session* session_ = nullptr;
  husk_error error_ = {};
};

alignas(64) float x[2][16] = {{1, 2, 3, 4}, {5, 6, 7, 8}};
alignas(64) float y[2][16];

void print(const char* what, const double* values, const char* unit) {
  std::printf("%-46s %9.1f %12.1f %9.1f %-6s %6.2f %8.2f\n", what, values[0], values[1], values[2],
              unit, values[2] / values[0], values[2] / values[1]);
}

// Nanoseconds of one call of `body(way)`: the least of many rounds in which the ways take turns.
template <class Body>
void measure(const char* what, double seconds, uint32_t calls, const Body& body) {
  using Clock = std::chrono::steady_clock;
  double least[3] = {1e18, 1e18, 1e18};
  const auto begin = Clock::now();
  do {
    for (int way = 0; way < 3; ++way) {
      const auto start = Clock::now();
      for (uint32_t i = 0; i < calls; ++i) body(way, i);
      const std::chrono::duration<double, std::nano> time = Clock::now() - start;
      least[way] = std::min(least[way], time.count() / calls);
    }
  } while (std::chrono::duration<double>(Clock::now() - begin).count() < seconds);
  print(what, least, "ns");
}

// Kilobytes by which the resident memory of a new process grows when it opens the program and runs
// it once. The engine's own memory is returned in `bytes`.
double resident_growth(Way way, double* bytes) {
  int ends[2];
  if (pipe(ends) != 0) std::exit(1);
  if (fork() == 0) {
    const auto resident = [] {
      long pages = 0;
      std::ifstream("/proc/self/statm") >> pages >> pages;
      return static_cast<double>(pages * sysconf(_SC_PAGESIZE)) / 1024;
    };
    const double before = resident();
    Opened opened(way);
    opened.run("add", x[0], y[0]);
    const double results[2] = {resident() - before, static_cast<double>(opened.bytes)};
    const bool whole = write(ends[1], results, sizeof(results)) == sizeof(results);
    _exit(whole ? 0 : 1);
  }
  close(ends[1]);
  double results[2] = {};
  const bool whole = read(ends[0], results, sizeof(results)) == sizeof(results);
  int status = 0;
  wait(&status);
  close(ends[0]);
  if (!whole || status != 0) std::exit(1);
  *bytes = results[1];
  return results[0];
}

int main(bool smoke) {
  std::printf("%-46s %9s %12s %9s %-6s %6s %8s\n", "", "file", "object,", "object", "", "object",
              "object ÷");
  std::printf("%-46s %9s %12s %9s %-6s %6s %8s\n", "", "", "interpreted", "", "", "÷ file",
              "interp.");
  double bytes[3], resident[3];
  for (int way = 0; way < 3; ++way) resident[way] = resident_growth(kWays[way], &bytes[way]);

  Opened ways[3] = {Opened(kWays[0]), Opened(kWays[1]), Opened(kWays[2])};
  for (const char* name : {"empty", "add", "chain"}) {
    for (Opened& way : ways) {
      std::memset(y[0], 0, sizeof(y[0]));
      way.run(name, x[0], y[0]);
      static float first[16];
      if (&way == ways) std::memcpy(first, y[0], sizeof(first));
      if (std::memcmp(first, y[0], sizeof(first)) != 0) {
        std::fprintf(stderr, "husk_linked_bench: the values of '%s' differ\n", name);
        return 1;
      }
    }
    const uint32_t function = ways[0].function(name);
    for (const bool changed : {false, true}) {
      const std::string what = std::string("a run of 100 steps, ") +
                               (name[0] == 'e'   ? "empty kernels"
                                : name[0] == 'a' ? "4 additions"
                                                 : "4 additions, a chain") +
                               (changed ? ", new pointers" : "");
      measure(what.c_str(), smoke ? 0 : 1, 100, [&](int way, uint32_t i) {
        ways[way].run(function, x[changed ? i % 2 : 0], y[changed ? i % 2 : 0]);
      });
    }
  }
  measure("open, session and release", smoke ? 0 : 1, 1,
          [](int way, uint32_t) { Opened again(kWays[way]); });
  print("memory of the engine", bytes, "bytes");
  print("growth of resident memory", resident, "KiB");
  double sizes[3];
  for (int way = 0; way < 3; ++way)
    sizes[way] = static_cast<double>(std::filesystem::file_size(
        way == 0 ? std::string(kFile) : HUSK_BENCH_LINKED "/launches.o"));
  print("size of the file, or of the object file", sizes, "bytes");
  return 0;
}

}  // namespace
}  // namespace husk::bench

int main(int argc, char** argv) {
  return husk::bench::main(argc == 2 && std::strcmp(argv[1], "--smoke") == 0);
}
