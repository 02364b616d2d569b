// Measures the time that the runtime adds to the kernels. `husk_overhead` prints all measurements;
// `husk_overhead --smoke` executes each measurement once, as a test; `husk_overhead --planner`
// prints the planner's table from ten times as many plans, which takes minutes;
// `husk_overhead --write-model N FILE` writes a program of N launches for the compiler.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>

#include <husk/husk.h>
#include <husk/port_host.h>

#include "compile.h"
#include "empty_port.h"
#include "families.h"
#include "hostile.h"
#include "measure.h"
#include "passes/search.h"
#include "texts.h"

namespace husk::bench {
namespace {

bool smoke = false;
double seconds() { return smoke ? 0 : 0.5; }

[[noreturn]] void give_up(const char* what, const char* why) {
  std::fprintf(stderr, "husk_overhead: %s: %s\n", what, why);
  std::exit(1);
}

std::vector<uint8_t> compile(const std::string& text) {
  auto result = compiler::compile_text(text,
                                       std::filesystem::path(HUSK_BENCH_KERNELS).parent_path());
  if (auto* error = std::get_if<compiler::Error>(&result))
    give_up("compile", compiler::describe(*error, "bench.hir").c_str());
  return std::move(std::get<0>(result));
}

// An artifact in memory that is aligned as husk_program_load requires.
class Artifact {
 public:
  explicit Artifact(const std::string& text) : Artifact(compile(text)) {}
  explicit Artifact(const std::vector<uint8_t>& bytes)
      : size(bytes.size()), data_(std::aligned_alloc(4096, (size + 4095) / 4096 * 4096)) {
    std::memcpy(data_, bytes.data(), size);
  }
  ~Artifact() { std::free(data_); }
  Artifact(const Artifact&) = delete;
  Artifact& operator=(const Artifact&) = delete;
  const void* data() const { return data_; }
  const size_t size;

 private:
  void* data_;
};

class Session {
 public:
  Session(const Artifact& artifact, const husk_port* port,
          const husk_session_options* options = nullptr) {
    husk_engine_options engine_options = HUSK_ENGINE_OPTIONS_INIT;
    engine_options.port = port;
    engine_options.allow_host_images = 1;
    engine_options.require_op_contracts = 1;
    check("engine", husk_engine_create(&engine_options, &engine_, &error_));
    check("load", husk_program_load(engine_, artifact.data(), artifact.size, nullptr, nullptr,
                                    &program_, &error_));
    check("session", husk_session_create(program_, options, &session_, &error_));
  }
  ~Session() {
    husk_session_release(session_);
    husk_program_release(program_);
    husk_engine_release(engine_);
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  void check(const char* what, husk_status status) {
    if (status != HUSK_OK) give_up(what, error_.text);
  }
  void resize(husk_value* in, uint32_t count) {
    check("resize", husk_session_resize(session_, 0, in, count, &error_));
  }
  void run(husk_value* in, uint32_t ins, husk_value* out, uint32_t outs) {
    check("run", husk_session_run(session_, 0, nullptr, in, ins, out, outs, &error_));
  }
  husk_session_stats stats() {
    husk_session_stats stats = HUSK_SESSION_STATS_INIT;
    check("stats", husk_session_stats_get(session_, 0, &stats, &error_));
    return stats;
  }

 private:
  husk_engine* engine_ = nullptr;
  husk_program* program_ = nullptr;
  husk_session* session_ = nullptr;
  husk_error error_ = {};
};

// A tensor of floats in memory of the caller.
struct Tensor {
  std::vector<int64_t> shape;
  std::vector<float, std::allocator<float>> data;
  DLTensor dl = {};
  explicit Tensor(std::vector<int64_t> sizes) : shape(std::move(sizes)) {
    int64_t elements = 1;
    for (int64_t size : shape) elements *= size;
    data.resize(static_cast<size_t>(elements) + 16);
    dl.data = data.data() + (64 - reinterpret_cast<uintptr_t>(data.data()) % 64) % 64 / 4;
    dl.device = {kDLCPU, 0};
    dl.ndim = static_cast<int32_t>(shape.size());
    dl.dtype = {kDLFloat, 32, 1};
    dl.shape = shape.data();
  }
  husk_value value() {
    husk_value v = {HUSK_VALUE_TENSOR, 0, {}};
    v.as.tensor = &dl;
    return v;
  }
};

// The number of scalar ops and steps of a program text, as the compiler counts them.
uint64_t instructions(const std::string& text) {
  const auto folder = std::filesystem::temp_directory_path() /
                      ("husk_overhead." + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "count.hir") << text;
  auto result = compiler::compile_file(folder / "count.hir", folder / "count.husk",
                                       std::filesystem::path(HUSK_BENCH_KERNELS).parent_path());
  std::filesystem::remove_all(folder);
  if (auto* error = std::get_if<compiler::Error>(&result))
    give_up("compile", compiler::describe(*error, "bench.hir").c_str());
  const auto& summary = std::get<0>(result);
  return summary.steps + summary.registers;
}

void measure_interpreter() {
  husk_port one_by_one = *husk_port_host();
  one_by_one.launch_list = nullptr;
  struct {
    const husk_port* port;
    const char* name;
  } const ports[] = {{empty_port(), "empty port"},
                     {husk_port_host(), "host port, empty kernels"},
                     {&one_by_one, "host port, empty kernels, a call for each launch"}};
  Tensor small({8, 16}), large({16, 16}), out_small({8, 16}), out_large({16, 16});
  husk_value in[2] = {small.value(), large.value()},
             out[2] = {out_small.value(), out_large.value()};
  for (bool dynamic : {false, true}) {
    const std::string text = launch_text(dynamic ? 2000 : 4000, dynamic);
    const Artifact artifact(text);
    const double count = static_cast<double>(instructions(text));
    for (const auto& each : ports) {
      Session session(artifact, each.port);
      session.resize(in, 1);
      auto row = [&](const char* what, const Times& times) {
        print_row(std::to_string(static_cast<int>(count)) + " instructions, " +
                      (dynamic ? "half scalar ops, " : "launches, ") + what + ", " + each.name,
                  times.median * 1000 / count, times.least * 1000 / count, "ns", 15);
      };
      row("nothing changes", measure(seconds(), [&] { session.run(in, 1, out, 1); }));
      int turn = 0;
      row("a new shape each run", measure(seconds(), [&] {
            turn ^= 1;
            session.run(in + turn, 1, out + turn, 1);
          }));
    }
  }
}

void measure_open() {
  const Artifact artifact(model_text(100));
  const std::string path = (std::filesystem::temp_directory_path() /
                            ("husk_overhead." + std::to_string(getpid()) + ".husk"))
                               .string();
  std::ofstream(path, std::ios::binary)
      .write(static_cast<const char*>(artifact.data()),
             static_cast<std::streamsize>(artifact.size));
  husk_error error;
  Times times = measure(seconds(), [&] {
    if (husk_program_verify(artifact.data(), artifact.size, &error) != HUSK_OK)
      give_up("verify", error.text);
  });
  print_row("verify, 100 launches", times.median / 1000, times.least / 1000, "ms", 0.5);
  for (const husk_port* port : {empty_port(), husk_port_host()}) {
    husk_engine_options options = HUSK_ENGINE_OPTIONS_INIT;
    options.port = port;
    options.allow_host_images = 1;
    options.require_op_contracts = 1;
    husk_engine* engine = nullptr;
    if (husk_engine_create(&options, &engine, &error) != HUSK_OK) give_up("engine", error.text);
    husk_program* program = nullptr;
    times = measure(seconds(), [&] {
      if (husk_program_open(engine, path.c_str(), &program, &error) != HUSK_OK)
        give_up("open", error.text);
      husk_program_release(program);
    });
    print_row(std::string("open, verify and release, 100 launches, ") +
                  (port == empty_port() ? "empty port" : "host port (its dlopen included)"),
              times.median / 1000, times.least / 1000, "ms", 0.5);
    if (husk_program_open(engine, path.c_str(), &program, &error) != HUSK_OK)
      give_up("open", error.text);
    times = measure(seconds(), [&] {
      husk_session* session = nullptr;
      if (husk_session_create(program, nullptr, &session, &error) != HUSK_OK)
        give_up("session", error.text);
      husk_session_release(session);
    });
    print_row(std::string("session, 100 launches, ") +
                  (port == empty_port() ? "empty port" : "host port"),
              times.median / 1000, times.least / 1000, "ms", 0);
    husk_program_release(program);
    husk_engine_release(engine);
  }
  std::filesystem::remove(path);
}

// The time to verify files that were made to take long. A second is the limit for 10 MB.
void measure_hostile() {
  for (const HostileFile& file : hostile_files(smoke ? 100000 : 10000000)) {
    const Artifact artifact(file.bytes);
    uint32_t metadata;
    std::memcpy(&metadata, file.bytes.data() + 12, sizeof(metadata));
    husk_error error;
    const Times times = measure(seconds(), [&] {
      const husk_status status = husk_program_verify(artifact.data(), artifact.size, &error);
      if (status != (file.valid ? HUSK_OK : HUSK_INVALID_FILE))
        give_up(file.name.c_str(), error.text);
    });
    char size[32];
    std::snprintf(size, sizeof size, "%.1f MB", metadata / 1e6);
    print_row("verify " + std::string(size) + " of metadata, " + file.name, times.median / 1000,
              times.least / 1000, "ms", 1000);
  }
}

void measure_resize() {
  for (const Family& family : families()) {
    if (!family.program) continue;
    Lives lives = family.make(1, 2000);
    for (bool bounded : {false, true}) {
      const Artifact artifact(lives_text(lives, bounded));
      husk_session_options options = HUSK_SESSION_OPTIONS_INIT;
      options.bound_limit = 1ull << 40;
      Session session(artifact, empty_port(), &options);
      Tensor small({7}), large({8});
      husk_value in[2] = {small.value(), large.value()};
      session.resize(in + 1, 1);
      if (session.stats().bounded != bounded)
        give_up("resize", "the plan is not of the kind that was to be measured");
      int turn = 0;
      const Times times = measure(seconds(), [&] { session.resize(in + (turn ^= 1), 1); });
      print_row("resize, " + std::to_string(lives.blocks.size()) + " buffers, " + family.name +
                    (bounded ? ", bounded" : ", unbounded"),
                times.median / 1000, times.least / 1000, "ms", bounded ? 0.1 : 2);
    }
  }
}

// One row of the planner's table: the ratios to the lower bound and the times of each way to make a
// plan.
struct Column {
  std::vector<double> ratios, times;
  void add(const Planned& planned, double time) {
    ratios.push_back(static_cast<double>(planned.peak) / static_cast<double>(planned.lower_bound));
    times.push_back(time);
  }
  void print() {
    std::sort(ratios.begin(), ratios.end());
    std::sort(times.begin(), times.end());
    auto at = [](const std::vector<double>& values, size_t percent) {
      return values[(values.size() - 1) * percent / 100];
    };
    std::printf(" | %.3f %.4f %.4f %7.0f %7.0f", at(ratios, 50), at(ratios, 99), ratios.back(),
                at(times, 50), times.back());
  }
};

// The ways: without an order, by the compiler's search, in the order that the search finds, and in
// that order at other shapes.
void measure_plans(const Family& family, uint32_t buffers, size_t plans) {
  Column none, search, order, others;
  for (size_t seed = 0; seed < plans; ++seed) {
    Lives lives = family.make(seed * 7919 + buffers, buffers);
    const size_t count = lives.blocks.size();
    Planner planner;
    compiler::Search searcher;
    if (failed(planner.reserve(*default_allocator(), count, nullptr)) ||
        failed(searcher.reserve(count)))
      give_up("planner", "out of memory");
    Planned planned;
    auto place = [&](Lives& at, const uint32_t* in_order, Column& column) {
      const Times times = measure(
          0, [&] { planned = planner.place(at.blocks.data(), count, nullptr, in_order); });
      column.add(planned, times.least);
    };
    place(lives, nullptr, none);
    const Times times = measure(smoke ? kOnce : 0,
                                [&] { planned = searcher.place(lives.blocks.data(), count); });
    search.add(planned, times.least);
    const std::vector<uint32_t> found = by_offset(lives);
    place(lives, found.data(), order);
    for (uint32_t sixteenths : {1u, 4u, 11u, 40u}) {
      Lives other = other_shape(lives, seed, sixteenths);
      place(other, found.data(), others);
    }
  }
  std::printf("%-14s %5u %4zu", family.name, buffers, plans);
  for (Column* column : {&none, &search, &order, &others}) column->print();
  std::printf("\n");
  std::fflush(stdout);
}

void measure_planner(bool thorough) {
  std::printf("\narena / lower bound: median, 99 %%, worst; us: median, worst\n%-14s %5s %4s", "",
              "", "");
  for (const char* head :
       {"without an order", "search for an order", "in that order", "in that order, other shapes"})
    std::printf(" | %-36s", head);
  std::printf("\n");
  for (const Family& family : families())
    for (uint32_t buffers : {10u, 30u, 100u, 300u, 1000u, 2000u}) {
      if (smoke && buffers > 300) continue;  // a search among them takes most of the time
      const size_t plans = buffers > 500 ? 40 : buffers > 100 ? 100 : 300;
      measure_plans(family, buffers, smoke ? 1 : thorough ? plans : plans / 10);
    }
}

int main(int argc, char** argv) {
  if (argc == 4 && std::strcmp(argv[1], "--write-model") == 0) {
    std::ofstream(argv[3]) << model_text(static_cast<uint32_t>(std::atoi(argv[2])));
    return 0;
  }
  smoke = argc == 2 && std::strcmp(argv[1], "--smoke") == 0;
  const bool planner = argc == 2 && std::strcmp(argv[1], "--planner") == 0;
  if (argc > 1 && !smoke && !planner)
    give_up(argv[1], "usage: husk_overhead [--smoke | --planner | --write-model LAUNCHES FILE]");
  if (planner) {
    measure_planner(true);
    return 0;
  }
  print_head();
  measure_interpreter();
  measure_open();
  measure_hostile();
  measure_resize();
  measure_planner(false);
  return 0;
}

}  // namespace
}  // namespace husk::bench

int main(int argc, char** argv) { return husk::bench::main(argc, argv); }
