// husk-run: runs one function of an artifact, and prints its outputs and the time that it took.
#include <algorithm>
#include <new>
#include <optional>

#include <husk/husk.h>
#include <husk/ops.h>
#include <husk/port_host.h>
#include <husk/ports.h>

#include "command_line.h"
#include "ir/printable.h"
#include "run/call.h"
#include "run/handles.h"
#include "run/inputs.h"
#include "run/machine.h"
#include "run/ranks.h"
#include "run/report.h"
#include "run/run_error.h"
#include "run/trace.h"

namespace husk::run {
namespace {

struct Options {
  std::string file, function, device = "host", mode = "auto", edges = "auto", print = "summary";
  std::string inputs, outputs, expected;
  std::vector<std::string> specs;
  std::optional<double> relative, absolute;
  int repeat = 1, queue = 0;
  uint32_t threads = 1, ranks = 1, timeout = 0;
  std::optional<uint64_t> seed;
  bool stats = false, trace = false, check_launches = false, prefetch = false,
       poison_memory = false, verify_content = false;
  std::string nvtx, cublas, cufft, cusolver, nccl, weights;
};

constexpr const char* footer =
    "Inputs: SPEC is a number, true, false, none, @file.npy, or SHAPExDTYPE=CONTENT as in\n"
    "  2x3xf32=random. CONTENT is random (floats in [-1, 1), ints 0 to 9; the same numbers at\n"
    "  every start), zeros, iota (0, 1, 2, ...) or @file.npy. The SPECs are the values, in order,\n"
    "  of the inputs that are not in the file of --inputs.\n"
    "Files: a tensor has the name of its input or output, or its position: \"0\", \"1\", ...\n"
    "  --outputs writes positions.\n"
    "Runs: every run has the same inputs; state is kept from one run to the next. The outputs of\n"
    "  the last run are printed.\n"
    "Security: an artifact contains native code, which runs with your rights. Run only artifacts\n"
    "  that you trust.\n\n"
    "Examples:\n"
    "  husk-run model.husk --input 8x3xf32=random\n"
    "  husk-run model.husk --inputs in.safetensors --expected out.safetensors\n"
    "  husk-run model.husk --device cuda --input 8x3xf32=random --repeat 100 --stats\n\n"
    "Exit codes: 0 success; 1 an output is outside of the tolerance; 2 the command line or a\n"
    "  tensor file is wrong; 3 the artifact or the device cannot be used; 4 the run failed.";

// Fills in `options`. Returns an exit code if there is nothing more to do.
std::optional<int> parse(int argc, char** argv, Options& options) {
  CLI::App app("Runs a function of a Husk artifact (.husk).", "husk-run");
  app.add_option("FILE", options.file, "The artifact, model.husk")->required();
  app.add_option("--function", options.function,
                 "The function to run; needed if the artifact has several");
  app.add_option("--device", options.device, "The device: " + device_names())
      ->capture_default_str();
  app.add_option("--threads", options.threads,
                 "Number of threads for kernels and ops of the host; 0 means one for each CPU")
      ->capture_default_str();
  app.add_option("--ranks", options.ranks,
                 "Number of processes that run a program for several ranks together. If FILE "
                 "model.husk does not exist, it means model.rank0.husk and so on. The device cuda "
                 "is cuda:0 on "
                 "rank 0 and so on. Rank 0 prints its outputs; all ranks compare theirs")
      ->check(CLI::Range(1, 65536))
      ->capture_default_str();
  app.add_option("--timeout", options.timeout,
                 "How long a rank waits for another one, in milliseconds; 0 means 60000")
      ->capture_default_str();
  app.add_option(
         "--mode", options.mode,
         "How steps are launched on a device: one by one (list), as a graph, or as a graph if "
         "possible (auto)")
      ->check(tools::one_of({"auto", "list", "graph"}))
      ->capture_default_str();
  app.add_option(
         "--edges", options.edges,
         "The edges of graphs: programmatic before kernels that wait for their inputs (auto), "
         "or always full")
      ->check(tools::one_of({"auto", "full"}))
      ->capture_default_str();
  app.add_option("--inputs", options.inputs, "A safetensors file with inputs");
  app.add_option("--input", options.specs, "The next input, see SPEC below; may be repeated")
      ->allow_extra_args(false);
  app.add_option("--outputs", options.outputs, "A safetensors file to write the outputs to");
  app.add_option("--expected", options.expected, "A safetensors file to compare the outputs with");
  app.add_option("--rtol", options.relative,
                 "Relative tolerance of --expected (default: by dtype)");
  app.add_option("--atol", options.absolute,
                 "Absolute tolerance of --expected (default: by dtype)");
  app.add_option("--repeat", options.repeat, "Number of runs")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  CLI::Option* queue = app.add_option(
                              "--queue", options.queue,
                              "Number of additional runs that are enqueued without waiting, to "
                              "measure the throughput")
                           ->check(CLI::PositiveNumber);
  app.add_option(
         "--print", options.print,
         "What to print of each output: nothing (none), minimum, maximum and mean (summary), or "
         "every number (all)")
      ->check(tools::one_of({"none", "summary", "all"}))
      ->capture_default_str();
  app.add_option("--seed", options.seed,
                 "The seed of random inputs and of the generator that random ops use");
  app.add_flag("--stats", options.stats, "Print the statistics of the session");
  app.add_flag("--trace", options.trace,
               "Print the time of each step of the last run, which runs its steps one by one")
      ->excludes(queue);
  app.add_flag("--check-launches", options.check_launches,
               "On CUDA: wait after each launch, so that an error names the launch that failed");
  app.add_option(
      "--nvtx", options.nvtx,
      "On CUDA: the NVTX library, such as libnvtx3interop.so.1, that marks launches and loads "
      "as ranges");
  app.add_option(
      "--cublas", options.cublas,
      "On CUDA: the libcublasLt library of artifacts that use it (default: the newest one found)");
  app.add_option("--cufft", options.cufft, "On CUDA: the same for libcufft");
  app.add_option("--cusolver", options.cusolver, "On CUDA: the same for libcusolver");
  app.add_option("--nccl", options.nccl,
                 "On CUDA: the libnccl library of artifacts for several ranks (default: "
                 "libnccl.so.2)");
  app.add_flag(
      "--prefetch", options.prefetch,
      "On CUDA: load all kernels while the artifact is opened, instead of at the first launch");
  app.add_flag("--poison-memory", options.poison_memory,
               "Fill the arena before each run, and freed memory on CUDA, with 0xFF");
  app.add_flag(
      "--verify-content", options.verify_content,
      "Compare the constants with their hashes before the run, which reads the whole file");
  app.add_option("--weights", options.weights,
                 "The folder of weights that lie beside the artifact (default: that of the "
                 "artifact)")
      ->option_text("FOLDER");
  app.footer(footer);
  return tools::parse(app, argc, argv);
}

// Creates a session. If `trace` is not null, it records the time of every step.
Session session_make(husk_program* program, const Options& command, Trace* trace) {
  husk_session_options options = session_options(command.mode, command.edges);
  options.poison_memory = command.poison_memory;
  if (trace) trace->attach(options);
  return session_create(program, options);
}

// Seeds the state of the random generator, if the program has one.
void seed_generator(const husk_program* program, husk_session* session, uint64_t seed) {
  husk_error error;
  uint32_t state = 0;
  if (husk_program_find_state(program, "husk.generator", &state, &error) != HUSK_OK) return;
  husk_storage_info info = HUSK_STORAGE_INFO_INIT;
  check(husk_program_state(program, state, &info, &error), error, exit_load);
  if (info.bytes != HUSK_HOST_GENERATOR_BYTES) {
    fail(exit_usage, "--seed: state husk.generator has {} bytes, the ops of the host need {}",
         info.bytes, HUSK_HOST_GENERATOR_BYTES);
  }
  std::vector<uint8_t> bytes(HUSK_HOST_GENERATOR_BYTES);
  husk_host_generator_seed(seed, bytes.data());
  check(husk_session_state_set(session, state, bytes.data(), &error), error, exit_run);
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(values.size() / 2),
                   values.end());
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
    fmt::print(", median {:.1f} us ({:.1f} us until the call returned), {} runs", median(done),
               median(enqueue), runs.size());
  }
  fmt::print("\n");
}

void print_stats(const husk_session* session, uint32_t function) {
  husk_session_stats stats = HUSK_SESSION_STATS_INIT;
  husk_error error;
  check(husk_session_stats_get(session, function, &stats, &error), error, exit_run);
  fmt::print("steps {}, graph nodes {}, edges {}, programmatic {}\n", stats.steps,
             stats.graph_nodes, stats.graph_edges, stats.programmatic_edges);
  fmt::print("arena {} bytes, lower bound {} bytes, planned at {}\n", stats.arena_bytes,
             stats.arena_lower_bound, stats.bounded ? "the bounds" : "the shapes");
  if (stats.host_arena_bytes > 0)
    fmt::print("arena on the host {} bytes\n", stats.host_arena_bytes);
  fmt::print("runs as graph {}, as list {}, nodes patched {}\n", stats.runs_as_graph,
             stats.runs_as_list, stats.nodes_patched);
  fmt::print("segments {}, memory outside the arena {} bytes{}\n", stats.segments,
             stats.dynamic_bytes, stats.dynamic ? ", dynamic: runs may allocate" : "");
}

// Compares the outputs with the tensors of the file --expected, which are found by name or
// position. Returns true if every output is within the tolerance.
bool compare(const std::vector<Output>& outputs, const Options& options) {
  const TensorMap expected = safetensors_read(options.expected);
  bool good = true;
  for (const Output& output : outputs) {
    auto tensor = expected.find(output.name);
    if (tensor == expected.end()) tensor = expected.find(output.position);
    if (tensor == expected.end()) {
      fail(exit_usage, "{}: no tensor is named {} or {}", options.expected, output.name,
           output.position);
    }
    const Tolerance tolerance = tolerance_for(output.tensor.dtype, options.relative,
                                              options.absolute);
    good &= print_comparison(output, tensor->second, tolerance);
  }
  return good;
}

// The device of a rank: the device of its number, unless the command line has one.
std::string device_of(const Options& options, const RankOptions& rank) {
  const bool is_alone = rank.world == 1 || options.device == "host" ||
                        options.device.find(':') != std::string::npos;
  return is_alone ? options.device : options.device + ":" + std::to_string(rank.rank);
}

int run(const Options& options, const RankOptions& rank) {
  MachineOptions machine_options;
  machine_options.device = device_of(options, rank);
  machine_options.rank = rank;
  machine_options.timeout = options.timeout;
  machine_options.threads = options.threads;
  machine_options.verify_content = options.verify_content;
  machine_options.weights = options.weights;
  husk_cuda_options& cuda = machine_options.cuda;
  cuda.check_each = options.check_launches;
  cuda.prefetch = options.prefetch;
  cuda.poison_memory = options.poison_memory;
  if (!options.nvtx.empty()) cuda.nvtx = options.nvtx.c_str();
  if (!options.cublas.empty()) cuda.cublas = options.cublas.c_str();
  if (!options.cufft.empty()) cuda.cufft = options.cufft.c_str();
  if (!options.cusolver.empty()) cuda.cusolver = options.cusolver.c_str();
  if (!options.nccl.empty()) cuda.nccl = options.nccl.c_str();
  Machine machine(machine_options);
  const Program program(machine.program_open(options.file));
  const uint32_t function = function_choose(program.get(), options.function);
  const TensorMap file = options.inputs.empty() ? TensorMap() : safetensors_read(options.inputs);
  const std::vector<Value> inputs = inputs_collect(program.get(), function, file, options.specs,
                                                   options.seed.value_or(0));
  Trace trace;
  const Session session = session_make(program.get(), options, options.trace ? &trace : nullptr);
  if (options.seed) seed_generator(program.get(), session.get(), *options.seed);
  Call call(machine, program.get(), function, session.get(), machine.stream(), inputs);
  std::vector<RunTime> times;
  for (int i = 0; i < options.repeat; i++) {
    trace.clear();
    times.push_back(call.run());
  }

  const double queued = options.queue > 0 ? call.run_queued(options.queue) : 0;

  const std::vector<Output> outputs = call.results();
  if (options.print != "none") {
    fmt::print("{}: {} for {} on {}\n", options.file,
               husk::printable(husk_program_function_name(program.get(), function)),
               husk::printable(husk_program_function_target(program.get(), function)),
               machine.properties().name);
    for (const Output& output : outputs) {
      print_summary(output);
      if (options.print == "all") print_numbers(output);
    }
  }
  // A measurement needs no outputs. The times of a trace are those of its steps.
  if (options.print != "none" || (options.repeat > 1 && !options.trace)) print_times(times);
  if (options.queue > 0) fmt::print("queued: {:.2f} us a run, {} runs\n", queued, options.queue);
  if (options.trace) fmt::print("{}", husk::printable_lines(trace.table()));
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

namespace husk::run {
namespace {

// Runs a process for each rank.
int run_all(const Options& options) {
  const husk_port* found = husk_port_find(options.device.c_str());
  if (!found)
    fail(exit_usage, "--device={}: unknown device: write {}", options.device, device_names());
  husk_cuda_options cuda = HUSK_CUDA_OPTIONS_INIT;
  if (!options.nccl.empty()) cuda.nccl = options.nccl.c_str();
  husk_port port = *found;
  if (found == husk_port_cuda()) port.user = &cuda;
  return run_ranks(options.ranks, port, [&](const RankOptions& rank) {
    Options own = options;
    own.file = file_of_rank(options.file, rank.rank);
    if (rank.rank > 0) {
      own.print = "none";
      own.outputs.clear();
      own.stats = own.trace = false;
    }
    return run(own, rank);
  });
}

}  // namespace
}  // namespace husk::run

int main(int argc, char** argv) {
  return husk::tools::guarded("husk-run", husk::run::exit_run, [&]() -> int {
    husk::run::Options options;
    try {
      if (const auto done = husk::run::parse(argc, argv, options)) return *done;
      return options.ranks > 1 ? husk::run::run_all(options) : husk::run::run(options, {});
    } catch (const husk::run::RunError& error) {
      fmt::print(stderr, "husk-run: {}\n", husk::printable_lines(error.text));
      return error.code;
    }
  });
}
