// husk-bench: measures how fast a function of an artifact runs on this machine.
#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstdio>
#include <exception>
#include <fstream>
#include <memory>
#include <new>
#include <optional>
#include <thread>

#include <husk/husk.h>

#include "bench/inputs.h"
#include "bench/port_calls.h"
#include "bench/profile.h"
#include "bench/statistics.h"
#include "command_line.h"
#include "ir/printable.h"
#include "read/artifact.h"
#include "read/constant_bytes.h"
#include "run/call.h"
#include "run/handles.h"
#include "run/machine.h"
#include "run/run_error.h"

#include <nlohmann/json.hpp>

namespace husk::bench_tool {
namespace {

using run::Call;
using run::check;
using run::fail;
using run::Machine;
using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;

constexpr int kPointerSets = 8;  // --new-pointers: the sets of inputs and outputs
constexpr int kShapeSets = 8;    // --new-shapes without --shapes

struct Options {
  std::string file, function, device = "host", mode = "auto", edges = "auto", json, trace, picture,
                              cublas, cufft, cusolver;
  std::string input_file;
  std::vector<std::string> inputs, shapes;
  uint32_t threads = 1;
  int sessions = 1;
  double warmup_ms = 200, duration_s = 2;
  uint64_t seed = 0;
  bool new_pointers = false, new_shapes = false, profile = false;
};

constexpr const char* footer =
    "Inputs are random: floats in [-1, 1), ints 0 to 9. Ints that are no tensors are 1, floats "
    "0.5.\n"
    "Sizes that vary are as small as the artifact allows, but not 0; --shapes chooses others.\n"
    "  --shapes x=8x64,mask=8x8 names inputs or their positions (0=8x64). Each further --shapes "
    "is\n"
    "  measured on its own, or together with the others if there is --new-shapes.\n"
    "Times: a run is measured from the call until its results are there. On a device with "
    "streams,\n"
    "  'call' is the time until the call returned, and 'queued' the time of a run when the next "
    "one\n"
    "  is enqueued before it has ended.\n"
    "Security: an artifact contains native code, which runs with your rights. Measure only\n"
    "  artifacts that you trust.\n\n"
    "Examples:\n"
    "  husk-bench model.husk --threads 2\n"
    "  husk-bench model.husk --shapes x=1x64 --shapes x=32x64 --json times.json\n"
    "  husk-bench model.husk --device cuda --profile --picture profile.svg\n\n"
    "Exit codes: 0 success; 2 the command line is wrong; 3 the artifact or the device cannot be\n"
    "  used; 4 a run failed.";

std::optional<int> parse(int argc, char** argv, Options& options) {
  CLI::App app("Measures how fast a function of a Husk artifact (.husk) runs.", "husk-bench");
  app.add_option("FILE", options.file, "The artifact, model.husk")->required();
  app.add_option("--function", options.function,
                 "The function to run; needed if the artifact has several");
  app.add_option("--device", options.device, "The device: " + run::device_names())
      ->capture_default_str();
  app.add_option("--mode", options.mode,
                 "How steps are launched on a device: one by one (list), as a graph, or as a graph "
                 "if possible (auto)")
      ->check(tools::one_of({"auto", "list", "graph"}))
      ->capture_default_str();
  app.add_option("--edges", options.edges,
                 "The edges of graphs: programmatic before kernels that wait for their inputs "
                 "(auto), or always full")
      ->check(tools::one_of({"auto", "full"}))
      ->capture_default_str();
  app.add_option("--threads", options.threads,
                 "Number of threads for kernels and ops of the host; 0 means one for each CPU")
      ->capture_default_str();
  app.add_option("--inputs", options.input_file,
                 "A safetensors file with inputs, by name or position");
  app.add_option("--input", options.inputs,
                 "The next input as a SPEC of husk-run, such as 2x3xf32=zeros; may be repeated")
      ->allow_extra_args(false);
  app.add_option("--shapes", options.shapes, "Shapes of inputs, see below; may be repeated")
      ->allow_extra_args(false);
  app.add_option("--sessions", options.sessions,
                 "Number of sessions that run at the same time, each on a thread of its own")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--warmup-ms", options.warmup_ms, "Milliseconds of runs that do not count")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--duration-s", options.duration_s,
                 "Seconds to measure for; there is at least one run")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_flag(
      "--new-pointers", options.new_pointers,
      fmt::format("Give each run other memory than the run before, {} in turns", kPointerSets));
  app.add_flag("--new-shapes", options.new_shapes,
               fmt::format("Give each run another shape than the run before: those of --shapes, or "
                           "the {} smallest",
                           kShapeSets));
  app.add_option("--seed", options.seed, "The seed of random inputs")->capture_default_str();
  app.add_flag("--profile", options.profile,
               "Also print the times of steps, operators and modules, which are measured one by "
               "one");
  app.add_option("--trace", options.trace,
                 "A file for the profile as a trace for chrome://tracing or Perfetto (JSON)");
  app.add_option("--picture", options.picture, "A file for the profile as a picture (SVG)");
  app.add_option("--json", options.json, "A file for all numbers; times are in microseconds");
  app.add_option("--cublas", options.cublas,
                 "On CUDA: the libcublasLt library of artifacts that use it");
  app.add_option("--cufft", options.cufft, "On CUDA: the same for libcufft");
  app.add_option("--cusolver", options.cusolver, "On CUDA: the same for libcusolver");
  app.footer(footer);
  return tools::parse(app, argc, argv);
}

double microseconds(Clock::duration time) {
  return std::chrono::duration<double, std::micro>(time).count();
}

// A session with its own stream, and calls of different shapes or memory that take turns.
struct Lane {
  run::Session session;
  std::vector<std::unique_ptr<Call>> calls;
  // The call whose turn it is. The measured runs go on where those that warmed up stopped, so that
  // no call comes twice in a row: then its graph would need no patch.
  size_t next = 0;
  std::vector<run::RunTime> times;
  double queued = 0;  // microseconds a run
  PortCalls port_calls;
  uint64_t counted_runs = 0;
  std::exception_ptr failure;

  void run_for(double seconds, std::vector<run::RunTime>* into) {
    const auto end = Clock::now() + std::chrono::duration<double>(seconds);
    do {
      const run::RunTime time = calls[next]->run();
      if (into) into->push_back(time);
      next = next + 1 == calls.size() ? 0 : next + 1;
    } while (Clock::now() < end);
  }
};

// What was measured with one or more sets of shapes.
struct Result {
  std::string shapes;
  double session_us = 0, first_us = 0;  // preparing the first session, and its first run
  Distribution run, call;
  double runs_per_second = 0;
  std::optional<double> queued_us;
  PortCalls port_calls;
  uint64_t counted_runs = 0;
  double patched_nodes = 0;  // a run
  husk_session_stats stats = HUSK_SESSION_STATS_INIT;
};

class Bench {
 public:
  explicit Bench(const Options& options) : options_(options), machine_(machine_options(options)) {
    const auto start = Clock::now();
    program_.reset(machine_.program_open(options.file));
    open_us_ = microseconds(Clock::now() - start);
    function_ = run::function_choose(program_.get(), options.function);
    if (!options.input_file.empty()) file_ = run::safetensors_read(options.input_file);
  }

  void run();

 private:
  using Inputs = std::vector<run::Value>;

  static run::MachineOptions machine_options(const Options& options) {
    static husk_port_graphs graphs;  // lives as long as the port, until the program ends
    run::MachineOptions machine;
    machine.tool = "husk-bench";
    machine.device = options.device;
    machine.threads = options.threads;
    if (!options.cublas.empty()) machine.cuda.cublas = options.cublas.c_str();
    if (!options.cufft.empty()) machine.cuda.cufft = options.cufft.c_str();
    if (!options.cusolver.empty()) machine.cuda.cusolver = options.cusolver.c_str();
    machine.change_port = [](husk_port& port) { count_port_calls(port, graphs); };
    return machine;
  }

  Inputs inputs(const std::string* shapes, int64_t more) const {
    return inputs_make(program_.get(), function_, file_, shapes ? shapes_parse(*shapes) : Shapes(),
                       options_.inputs, more, options_.seed);
  }
  std::vector<Inputs> input_sets() const;
  husk_session_options session_options() const {
    return run::session_options(options_.mode, options_.edges);
  }
  husk_session_stats stats(const run::Session& session) const;
  // Calls `body` for each lane, on a thread of its own if there are several, from the same moment
  // on. Returns the microseconds until all have ended.
  template <class F>
  double on_lanes(std::vector<Lane>& lanes, F body) const;
  Result measure(const std::vector<Inputs>& sets);
  std::vector<ProfileRow> profile(const Inputs& inputs);
  void add_constant_bytes(std::vector<ProfileRow>& steps) const;

  void print_head() const;
  void print(const Result& result) const;
  Json json(const Result& result) const;
  Json json_head() const;
  std::string title() const;

  const Options& options_;
  Machine machine_;
  run::Program program_;
  run::TensorMap file_;  // --inputs
  uint32_t function_ = 0;
  double open_us_ = 0;
};

// The sets of inputs, each of which is measured on its own, unless there is --new-shapes.
std::vector<Bench::Inputs> Bench::input_sets() const {
  std::vector<Inputs> sets;
  for (const std::string& shapes : options_.shapes) sets.push_back(inputs(&shapes, 0));
  if (sets.empty() && options_.new_shapes) {
    if (!sizes_vary(program_.get(), function_))
      fail(run::exit_usage, "--new-shapes: all sizes of the inputs are fixed");
    for (int64_t more = 0; more < kShapeSets; ++more) sets.push_back(inputs(nullptr, more));
  }
  if (sets.empty()) sets.push_back(inputs(nullptr, 0));
  if (options_.new_shapes && sets.size() < 2)
    fail(run::exit_usage, "--new-shapes: one --shapes is not enough, write several or none");
  return sets;
}

husk_session_stats Bench::stats(const run::Session& session) const {
  husk_session_stats stats = HUSK_SESSION_STATS_INIT;
  husk_error error;
  check(husk_session_stats_get(session.get(), function_, &stats, &error), error, run::exit_run);
  return stats;
}

template <class F>
double Bench::on_lanes(std::vector<Lane>& lanes, F body) const {
  Clock::time_point start = Clock::now();
  if (lanes.size() == 1) {
    body(lanes[0]);
    return microseconds(Clock::now() - start);
  }
  std::barrier begin(static_cast<std::ptrdiff_t>(lanes.size()) + 1);
  std::vector<std::thread> threads;
  for (Lane& lane : lanes) {
    threads.emplace_back([&] {
      begin.arrive_and_wait();
      try {
        body(lane);
      } catch (...) {
        lane.failure = std::current_exception();
      }
    });
  }
  start = Clock::now();
  begin.arrive_and_wait();
  for (std::thread& thread : threads) thread.join();
  const double time = microseconds(Clock::now() - start);
  for (const Lane& lane : lanes)
    if (lane.failure) std::rethrow_exception(lane.failure);
  return time;
}

Result Bench::measure(const std::vector<Inputs>& sets) {
  Result result;
  std::vector<std::string> texts;
  for (const Inputs& set : sets) texts.push_back(inputs_text(program_.get(), function_, set));
  result.shapes = fmt::format("{}", fmt::join(texts, " | "));

  std::vector<Lane> lanes(static_cast<size_t>(options_.sessions));
  for (Lane& lane : lanes) {
    const auto start = Clock::now();
    lane.session = run::session_create(program_.get(), session_options());
    void* stream = lanes.size() == 1 ? machine_.stream() : machine_.stream_create();
    for (int memory = 0; memory < (options_.new_pointers ? kPointerSets : 1); ++memory) {
      for (const Inputs& set : sets) {
        lane.calls.push_back(std::make_unique<Call>(machine_, program_.get(), function_,
                                                    lane.session.get(), stream, set));
      }
    }
    if (&lane == lanes.data()) {
      result.session_us = microseconds(Clock::now() - start);
      result.first_us = lane.calls.back()->run().until_done;
    }
  }

  on_lanes(lanes, [&](Lane& lane) { lane.run_for(options_.warmup_ms / 1000, nullptr); });
  const auto patched_nodes = [&] {
    uint64_t nodes = 0;
    for (const Lane& lane : lanes) nodes += stats(lane.session).nodes_patched;
    return nodes;
  };
  const uint64_t patched_before = patched_nodes();
  const double time = on_lanes(lanes, [&](Lane& lane) {
    const PortCalls before = port_calls_of_thread();
    lane.run_for(options_.duration_s, &lane.times);
    lane.port_calls = port_calls_of_thread() - before;
  });
  std::vector<double> done, returned;
  for (const Lane& lane : lanes) {
    for (const run::RunTime& run : lane.times) {
      done.push_back(run.until_done);
      returned.push_back(run.until_return);
    }
  }
  const double runs = static_cast<double>(done.size());
  result.run = distribution_of(std::move(done));
  result.call = distribution_of(std::move(returned));
  result.runs_per_second = runs / time * 1e6;
  result.port_calls = lanes[0].port_calls;
  result.counted_runs = lanes[0].times.size();
  result.patched_nodes = static_cast<double>(patched_nodes() - patched_before) / runs;
  result.stats = stats(lanes[0].session);

  // On the host a run ends before its call returns, so that no run can be queued.
  if (!machine_.is_host() && !options_.new_shapes) {
    const int queue = static_cast<int>(
        std::clamp(options_.duration_s / 2 * 1e6 / std::max(result.run.p50, 1.0), 1.0, 1e6));
    const double queued = on_lanes(
        lanes, [&](Lane& lane) { lane.queued = lane.calls[0]->run_queued(queue); });
    result.queued_us = queued / queue / static_cast<double>(lanes.size());
  }
  return result;
}

std::vector<ProfileRow> Bench::profile(const Inputs& inputs) {
  Profile profile;
  husk_session_options options = session_options();
  profile.attach(options);
  const run::Session session = run::session_create(program_.get(), options);
  Call call(machine_, program_.get(), function_, session.get(), machine_.stream(), inputs);
  const auto run_until = [&](Clock::time_point end) {
    do call.run();
    while (Clock::now() < end);
  };
  const auto after = [](double seconds) {
    return Clock::now() +
           std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  };
  run_until(after(options_.warmup_ms / 1000));
  profile.clear();
  run_until(after(options_.duration_s / 2));
  std::vector<ProfileRow> steps = profile.steps();
  add_constant_bytes(steps);
  return steps;
}

void Bench::add_constant_bytes(std::vector<ProfileRow>& steps) const {
  std::string error;
  const auto artifact = compiler::Artifact::open(options_.file, error);
  if (!artifact) return;  // the file has changed since
  std::vector<compiler::StepName> names;
  for (const ProfileRow& step : steps) names.push_back({step.step, step.kind, step.name});
  const std::vector<uint64_t> bytes = compiler::constant_bytes(
      artifact->program(), husk_program_function_name(program_.get(), function_), names);
  for (size_t i = 0; i < bytes.size(); ++i) steps[i].constant_bytes = bytes[i];
}

uint64_t storage_bytes(const husk_program* program, uint32_t count,
                       husk_status (*query)(const husk_program*, uint32_t, husk_storage_info*,
                                            husk_error*)) {
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < count; ++i) {
    husk_storage_info info = HUSK_STORAGE_INFO_INIT;
    husk_error error;
    check(query(program, i, &info, &error), error, run::exit_load);
    bytes += info.bytes;
  }
  return bytes;
}

// The memory of this process, in bytes, by the name of the line in /proc/self/status.
uint64_t process_memory(const char* name) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind(name, 0) == 0)
      return std::strtoull(line.c_str() + line.find(':') + 1, nullptr, 10) * 1024;
  }
  return 0;
}

std::string Bench::title() const {
  return fmt::format("{}: {} for {} on {}", options_.file,
                     printable(husk_program_function_name(program_.get(), function_)),
                     printable(husk_program_function_target(program_.get(), function_)),
                     machine_.properties().name);
}

void Bench::print_head() const {
  fmt::print("{}, {} thread{}, {} session{}\n", title(), options_.threads,
             options_.threads == 1 ? "" : "s", options_.sessions,
             options_.sessions == 1 ? "" : "s");
  fmt::print(
      "opened in {:.2f} ms; constants {} bytes, packed copies {} bytes, state of a session {} "
      "bytes\n",
      open_us_ / 1000,
      storage_bytes(program_.get(), husk_program_constant_count(program_.get()),
                    husk_program_constant),
      husk_program_packed_bytes(program_.get()),
      storage_bytes(program_.get(), husk_program_state_count(program_.get()), husk_program_state));
}

void Bench::print(const Result& result) const {
  fmt::print("\ninputs: {}\n", result.shapes.empty() ? "none" : printable(result.shapes));
  fmt::print("{:<7} {:>11} {:>11} {:>11} {:>11} {:>11} {:>11} {:>8}\n", "us", "median", "least",
             "p10", "p90", "p99", "most", "spread");
  const auto row = [](const char* name, const Distribution& d) {
    fmt::print("{:<7} {:>11.2f} {:>11.2f} {:>11.2f} {:>11.2f} {:>11.2f} {:>11.2f} {:>7.1f}%\n",
               name, d.p50, d.least, d.p10, d.p90, d.p99, d.most, 100 * d.spread);
  };
  row("run", result.run);
  if (!machine_.is_host()) row("call", result.call);
  if (result.queued_us) fmt::print("{:<7} {:>11.2f}\n", "queued", *result.queued_us);
  fmt::print("{} runs, {:.1f} runs/s; session made in {:.2f} ms, first run {:.2f} us\n",
             result.run.count, result.runs_per_second, result.session_us / 1000, result.first_us);
  const double runs = static_cast<double>(std::max<uint64_t>(result.counted_runs, 1));
  const auto a_run = [&](uint64_t calls) { return static_cast<double>(calls) / runs; };
  fmt::print(
      "a run: {} steps; calls of the port {:g}: launches {:g}, copies and fills {:g}, graphs {:g}, "
      "patches {:g}, waits {:g}\n",
      result.stats.steps, a_run(result.port_calls.total()), a_run(result.port_calls.launches),
      a_run(result.port_calls.copies), a_run(result.port_calls.graphs),
      a_run(result.port_calls.patches), a_run(result.port_calls.waits));
  const uint64_t on_host = result.stats.host_arena_bytes;
  fmt::print(
      "memory: arena {} bytes{}, outside of it {} bytes; process {} MiB, at most {} MiB\n",
      result.stats.arena_bytes, on_host ? fmt::format(" and {} bytes on the host", on_host) : "",
      result.stats.dynamic_bytes, process_memory("VmRSS") >> 20, process_memory("VmHWM") >> 20);
}

Json json_of(const Distribution& d) {
  return {{"count", d.count}, {"median", d.p50}, {"least", d.least},
          {"p10", d.p10},     {"p90", d.p90},    {"p99", d.p99},
          {"most", d.most},   {"mean", d.mean},  {"spread", d.spread}};
}

Json Bench::json_head() const {
  return {
      {"file", options_.file},
      {"function", husk_program_function_name(program_.get(), function_)},
      {"target", husk_program_function_target(program_.get(), function_)},
      {"device", machine_.properties().name},
      {"threads", options_.threads},
      {"sessions", options_.sessions},
      {"mode", options_.mode},
      {"edges", options_.edges},
      {"version", husk_version()},
      {"open_us", open_us_},
      {"constant_bytes", storage_bytes(program_.get(), husk_program_constant_count(program_.get()),
                                       husk_program_constant)},
      {"packed_bytes", husk_program_packed_bytes(program_.get())},
      {"state_bytes", storage_bytes(program_.get(), husk_program_state_count(program_.get()),
                                    husk_program_state)}};
}

Json Bench::json(const Result& result) const {
  const double runs = static_cast<double>(std::max<uint64_t>(result.counted_runs, 1));
  const auto a_run = [&](uint64_t calls) { return static_cast<double>(calls) / runs; };
  Json out = {{"inputs", result.shapes},
              {"session_us", result.session_us},
              {"first_us", result.first_us},
              {"run_us", json_of(result.run)},
              {"call_us", json_of(result.call)},
              {"runs_per_second", result.runs_per_second},
              {"steps", result.stats.steps},
              {"graph_nodes", result.stats.graph_nodes},
              {"calls_a_run",
               {{"launches", a_run(result.port_calls.launches)},
                {"copies", a_run(result.port_calls.copies)},
                {"graphs", a_run(result.port_calls.graphs)},
                {"patches", a_run(result.port_calls.patches)},
                {"waits", a_run(result.port_calls.waits)}}},
              {"nodes_patched_a_run", result.patched_nodes},
              {"arena_bytes", result.stats.arena_bytes},
              {"arena_lower_bound", result.stats.arena_lower_bound},
              {"host_arena_bytes", result.stats.host_arena_bytes},
              {"dynamic_bytes", result.stats.dynamic_bytes}};
  if (result.queued_us) out["queued_us"] = *result.queued_us;
  return out;
}

void write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  if (!file.flush()) fail(run::exit_usage, "{}: cannot be written", path);
}

void Bench::run() {
  const std::vector<Inputs> sets = input_sets();
  print_head();
  Json results = Json::array();
  const auto report = [&](const std::vector<Inputs>& measured) {
    const Result result = measure(measured);
    print(result);
    results.push_back(json(result));
  };
  if (options_.new_shapes) {
    report(sets);
  } else {
    for (const Inputs& set : sets) report({set});
  }
  Json out = json_head();
  out["results"] = std::move(results);
  if (options_.profile || !options_.trace.empty() || !options_.picture.empty()) {
    const std::vector<ProfileRow> steps = profile(sets[0]);
    if (options_.profile) fmt::print("\n{}", printable_lines(profile_tables(steps)));
    if (!options_.trace.empty()) write_file(options_.trace, profile_trace(steps, title()));
    if (!options_.picture.empty()) write_file(options_.picture, profile_picture(steps, title()));
    for (const ProfileRow& step : steps) {
      out["profile"].push_back({{"kind", step.kind},
                                {"name", step.name},
                                {"grid", step.grid},
                                {"origin", step.origin},
                                {"us", step.microseconds},
                                {"constant_bytes", step.constant_bytes},
                                {"clock", clock_name({step})}});
    }
  }
  out["process_bytes"] = process_memory("VmRSS");
  out["process_peak_bytes"] = process_memory("VmHWM");
  if (!options_.json.empty())
    write_file(options_.json, out.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
}

}  // namespace
}  // namespace husk::bench_tool

int main(int argc, char** argv) {
  return husk::tools::guarded("husk-bench", husk::run::exit_run, [&]() -> int {
    husk::bench_tool::Options options;
    try {
      if (const auto done = husk::bench_tool::parse(argc, argv, options)) return *done;
      husk::bench_tool::Bench(options).run();
      return 0;
    } catch (const husk::run::RunError& error) {
      fmt::print(stderr, "husk-bench: {}\n", husk::printable_lines(error.text));
      return error.code;
    }
  });
}
