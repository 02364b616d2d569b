// husk-run: runs one function of an artifact on given inputs, and says what came out and how long it took.
#include <husk/husk.h>
#include <husk/port_host.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <new>
#include <optional>

#include "run/call.h"
#include "run/failure.h"
#include "run/inputs.h"
#include "run/machine.h"
#include "run/report.h"
#include "run/trace.h"

namespace husk::run {
namespace {

struct Options {
  std::string file, function, device = "host", mode = "auto", edges = "auto", print = "summary";
  std::string inputs, outputs, expected;
  std::vector<std::string> specs;
  std::optional<double> relative, absolute;
  int repeat = 1, queue = 0;
  uint32_t threads = 1;
  std::optional<uint64_t> seed;
  bool stats = false, trace = false, check_launches = false, prefetch = false, fill_freed = false;
  std::string nvtx, cublas;
};

constexpr const char* footer =
    "SPEC is a number, true or false; none; @file.npy; or SHAPExDTYPE=CONTENT, as in 2x3xf32=random, where CONTENT is\n"
    "  random (floats in [-1, 1), ints 0 to 9, the same at each start), zeros, iota, or @file.npy.\n"
    "SPECs are for the inputs that the file of --inputs does not name, in order. Tensors in files are named as the\n"
    "  input or output is, or by its position: \"0\", \"1\", ...; --outputs writes positions.\n"
    "All runs see the same inputs; state goes on from one to the next. The last run's outputs are reported.\n"
    "A host file is native code and runs with your rights: run only what you trust.\n\n"
    "Exit codes: 0 done; 1 an output is outside the tolerance; 2 the command line or a tensor file is wrong;\n"
    "  3 the artifact or the device cannot be used; 4 the run failed.";

// Fills `options`; returns an exit code if that is all there is to do.
std::optional<int> parse(int argc, char** argv, Options& options) {
  CLI::App app("Runs a function of a .husk file.", "husk-run");
  app.add_option("FILE", options.file, "the artifact")->required();
  app.add_option("--function", options.function, "which function; needed if there are several");
  app.add_option("--device", options.device, "host, cuda or cuda:N")->capture_default_str();
  app.add_option("--threads", options.threads, "for kernels and ops of the host; 0: one for each CPU")
      ->capture_default_str();
  app.add_option("--mode", options.mode, "how the device is driven")
      ->check(CLI::IsMember({"auto", "list", "graph"}))->capture_default_str();
  app.add_option("--edges", options.edges, "of graphs: auto, programmatic where kernels wait first; or full")
      ->check(CLI::IsMember({"auto", "full"}))->capture_default_str();
  app.add_option("--inputs", options.inputs, "safetensors file with inputs");
  app.add_option("--input", options.specs, "SPEC of the next input; may be repeated")->allow_extra_args(false);
  app.add_option("--outputs", options.outputs, "safetensors file to write the outputs to");
  app.add_option("--expected", options.expected, "safetensors file to compare the outputs with");
  app.add_option("--rtol", options.relative, "relative tolerance; by default that of the dtype");
  app.add_option("--atol", options.absolute, "absolute tolerance; by default that of the dtype");
  app.add_option("--repeat", options.repeat, "runs")->check(CLI::PositiveNumber)->capture_default_str();
  CLI::Option* queue = app.add_option("--queue", options.queue, "so many more runs, enqueued without waiting: what one takes the "
                                      "device where that is slower than enqueuing")->check(CLI::PositiveNumber);
  app.add_option("--print", options.print, "what to print of each output")
      ->check(CLI::IsMember({"none", "summary", "all"}))->capture_default_str();
  app.add_option("--seed", options.seed, "of random inputs, and of the state husk.generator, which random ops draw from");
  app.add_flag("--stats", options.stats, "print what the session counts");
  app.add_flag("--trace", options.trace, "print how long each step of the last run took, one after the other")->excludes(queue);
  app.add_flag("--check-launches", options.check_launches, "on CUDA: wait for each launch, and name the one that failed");
  app.add_option("--nvtx", options.nvtx, "on CUDA: a library of NVTX, as libnvtx3interop.so.1; launches and loads are its ranges");
  app.add_option("--cublas", options.cublas, "on CUDA: the libcublasLt for files exported with libraries; by default the newest found");
  app.add_flag("--prefetch", options.prefetch, "on CUDA: all that a kernel's first launch needs is done while the file is opened");
  app.add_flag("--fill-freed", options.fill_freed, "fill the arena before each run, and on CUDA freed memory, with 0xFF");
  app.footer(footer);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& asked) {   // --help
    return app.exit(asked);
  } catch (const CLI::ParseError& error) {
    fail(exit_usage, "{}; see --help", error.what());
  }
  return std::nullopt;
}

struct Release {
  void operator()(husk_program* program) const { husk_program_release(program); }
  void operator()(husk_session* session) const { husk_session_release(session); }
};
using Program = std::unique_ptr<husk_program, Release>;
using Session = std::unique_ptr<husk_session, Release>;

Program program_open(const Machine& machine, const std::string& path) {
  husk_program* program = nullptr;
  husk_error error;
  check(husk_program_open(machine.engine(), path.c_str(), &program, &error), error, exit_load);
  return Program(program);
}

uint32_t function_choose(const husk_program* program, const std::string& name) {
  uint32_t function = 0;
  husk_error error;
  if (!name.empty()) {
    check(husk_program_find_function(program, name.c_str(), &function, &error), error, exit_usage);
    return function;
  }
  const uint32_t count = husk_program_function_count(program);
  if (count == 1) return 0;
  std::vector<std::string> names;
  for (uint32_t i = 0; i < count; i++) names.emplace_back(husk_program_function_name(program, i));
  fail(exit_usage, "the file has {} functions; give one by --function: {}", count, fmt::join(names, ", "));
}

// With a trace every step of a run is timed.
Session session_create(husk_program* program, const Options& given, Trace* trace) {
  husk_session_options options = HUSK_SESSION_OPTIONS_INIT;
  options.mode = given.mode == "list" ? HUSK_MODE_LIST : given.mode == "graph" ? HUSK_MODE_GRAPH : HUSK_MODE_AUTO;
  options.full_edges = given.edges == "full";
  options.fill_freed = given.fill_freed;
  if (trace) trace->attach(options);
  husk_session* session = nullptr;
  husk_error error;
  check(husk_session_create(program, &options, &session, &error), error, exit_run);
  return Session(session);
}

// The generator's state, if the program has one.
void seed_generator(const husk_program* program, husk_session* session, uint64_t seed) {
  husk_error error;
  uint32_t state = 0;
  if (husk_program_find_state(program, "husk.generator", &state, &error) != HUSK_OK) return;
  husk_storage_info info;
  check(husk_program_state(program, state, &info, &error), error, exit_load);
  if (info.bytes != HUSK_HOST_GENERATOR_BYTES) {
    fail(exit_usage, "--seed: state husk.generator has {} bytes, the ops of the host want {}", info.bytes,
         HUSK_HOST_GENERATOR_BYTES);
  }
  std::vector<uint8_t> bytes(HUSK_HOST_GENERATOR_BYTES);
  husk_host_generator_seed(seed, bytes.data());
  check(husk_session_state_set(session, state, bytes.data(), &error), error, exit_run);
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

void print_times(const std::vector<RunTime>& runs) {
  std::vector<double> enqueue, done;
  for (const RunTime& run : runs) {
    enqueue.push_back(run.until_return);
    done.push_back(run.until_done);
  }
  fmt::print("time: first {:.1f} us", done[0]);
  if (runs.size() > 1) {
    fmt::print(", median {:.1f} us ({:.1f} us until the call returned), {} runs", median(done), median(enqueue),
               runs.size());
  }
  fmt::print("\n");
}

void print_stats(const husk_session* session, uint32_t function) {
  husk_session_stats stats{};
  stats.struct_size = sizeof stats;
  husk_error error;
  check(husk_session_stats_get(session, function, &stats, &error), error, exit_run);
  fmt::print("steps {}, graph nodes {}, edges {}, programmatic {}\n", stats.steps, stats.graph_nodes, stats.graph_edges,
             stats.programmatic_edges);
  fmt::print("arena {} bytes, lower bound {} bytes, planned at {}\n", stats.arena_bytes, stats.arena_lower_bound,
             stats.bounded ? "the bounds" : "the shapes");
  fmt::print("runs as graph {}, as list {}, nodes patched {}\n", stats.runs_as_graph, stats.runs_as_list,
             stats.nodes_patched);
  fmt::print("segments {}, memory outside the arena {} bytes{}\n", stats.segments, stats.data_bytes,
             stats.dynamic ? ", dynamic: runs may allocate" : "");
}

// True if every output is within the tolerance of the file's tensor by its name or position.
bool compare(const std::vector<Output>& outputs, const Options& options) {
  const TensorMap expected = safetensors_read(options.expected);
  bool good = true;
  for (const Output& output : outputs) {
    auto found = expected.find(output.name);
    if (found == expected.end()) found = expected.find(output.position);
    if (found == expected.end()) {
      fail(exit_usage, "{}: no tensor is named {} or {}", options.expected, output.name, output.position);
    }
    const Tolerance tolerance = tolerance_for(output.tensor.dtype, options.relative, options.absolute);
    good &= print_comparison(output, found->second, tolerance);
  }
  return good;
}

int run(const Options& options) {
  husk_cuda_options cuda = {};
  cuda.struct_size = sizeof cuda;
  cuda.check_each = options.check_launches;
  cuda.prefetch = options.prefetch;
  cuda.fill_freed = options.fill_freed;
  if (!options.nvtx.empty()) cuda.nvtx = options.nvtx.c_str();
  if (!options.cublas.empty()) cuda.cublas = options.cublas.c_str();
  Machine machine(options.device, options.threads, cuda);
  const Program program = program_open(machine, options.file);
  const uint32_t function = function_choose(program.get(), options.function);
  const TensorMap file = options.inputs.empty() ? TensorMap() : safetensors_read(options.inputs);
  const std::vector<Value> inputs = inputs_collect(program.get(), function, file, options.specs, options.seed.value_or(0));
  Trace trace;
  const Session session = session_create(program.get(), options, options.trace ? &trace : nullptr);
  if (options.seed) seed_generator(program.get(), session.get(), *options.seed);
  Call call(machine, program.get(), function, session.get(), inputs);
  std::vector<RunTime> times;
  for (int i = 0; i < options.repeat; i++) {
    trace.clear();
    times.push_back(call.run());
  }

  const double queued = options.queue > 0 ? call.run_queued(options.queue) : 0;

  const std::vector<Output> outputs = call.results();
  if (options.print != "none") {
    fmt::print("{}: {} for {} on {}\n", options.file, husk_program_function_name(program.get(), function),
               husk_program_function_target(program.get(), function), machine.properties().name);
    for (const Output& output : outputs) {
      print_summary(output);
      if (options.print == "all") print_numbers(output);
    }
    print_times(times);
    if (options.queue > 0) fmt::print("queued: {:.2f} us a run, {} runs\n", queued, options.queue);
  }
  if (options.trace) fmt::print("{}", trace.table());
  if (options.stats) print_stats(session.get(), function);
  if (!options.outputs.empty()) {
    std::vector<std::pair<std::string, Tensor>> tensors;
    for (const Output& output : outputs) tensors.emplace_back(output.position, output.tensor);
    safetensors_write(options.outputs, tensors);
  }
  return options.expected.empty() || compare(outputs, options) ? exit_ok : exit_different;
}

}  // namespace
}  // namespace husk::run

int main(int argc, char** argv) {
  husk::run::Options options;
  try {
    if (const auto done = parse(argc, argv, options)) return *done;
    return husk::run::run(options);
  } catch (const husk::run::Failure& failure) {
    fmt::print(stderr, "husk-run: {}\n", failure.text);
    return failure.code;
  } catch (const std::bad_alloc&) {
    fmt::print(stderr, "husk-run: no memory\n");
    return husk::run::exit_run;
  }
}
