// Ends calls of operators, runs and opens at random moments, and measures how long they take to
// end.
//
//   husk_cancel_delays SECONDS [SEED [NAME]]
//
// A round calls an operator with random sizes, runs a program or opens one, and lets a random
// question (husk_engine_options.cancel, progress, husk_op_context.cancel) have the answer to end.
// The program measures processor time of the thread between questions, before the first one and
// after the last one, which other programs do not change. The longest one of each operator is
// printed, the worst first. Equal seeds try the same calls. NAME restricts the rounds to an
// operator or a program. Exits with 1 if one is longer than kLimit.
#include <signal.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>
#include <random>
#include <set>

#include <husk/husk.h>
#include <husk/ops.h>
#include <husk/port_host.h>

#include "compile.h"
#include "cpu_sets.h"
#include "device.h"
#include "grown.h"
#include "op_scratch.h"

namespace {

using husk::host_test::Call;
using husk::host_test::Grown;

constexpr double kLimit = 0.05;  // seconds of processor time
constexpr int kTensors = 60;     // of a call whose pairs are compared
constexpr int kSteps = 100'000;  // of a program that is opened
constexpr time_t kHang = 30;     // seconds of processor time without a question: the search ends

double now() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// The call that is under way, for the handler of the watchdog.
char current[400];

void set_watchdog(time_t seconds) {
  const itimerval limit{{0, 0}, {seconds, 0}};
  setitimer(ITIMER_PROF, &limit, nullptr);
}

// The questions of a call.
struct Questions {
  explicit Questions(int64_t number) : last(number) { set_watchdog(kHang); }
  // Counts the time until now. Returns whether the call is to end.
  int32_t ask() {
    const double time = now();
    longest = std::max(longest, time - before);
    set_watchdog(kHang);
    before = now();
    return ++asked >= last;
  }
  double end() {
    longest = std::max(longest, now() - before);
    set_watchdog(0);
    return longest;
  }
  static int32_t cancel(void* user) { return static_cast<Questions*>(user)->ask(); }
  static int32_t progress(void* user, uint64_t, uint64_t) { return cancel(user); }

  int64_t last, asked = 0;
  double before = now(), longest = 0;
};

class Search {
 public:
  Search(double seconds, uint64_t seed, const char* only)
      : end_(now() + seconds), random_(seed), only_(only) {
    husk::host_test::add_correct_calls(calls_);
    husk::host_test::add_large_calls(calls_);
    husk::host_test::add_long_calls(calls_);
    grown_ = calls_.size();
    husk::host_test::add_endless_calls(calls_);
    uint32_t count = 0;
    const husk_op* ops = husk_host_ops(&count);
    for (uint32_t i = 0; i < count; ++i) ops_[ops[i].name] = &ops[i];
  }

  static void name_watchdog() {
    signal(SIGPROF, [](int) {
      (void)!write(STDERR_FILENO, current, std::strlen(current));
      constexpr char kText[] = ": no question for 30 seconds of processor time\n";
      (void)!write(STDERR_FILENO, kText, sizeof(kText) - 1);
      _exit(1);
    });
  }

  int run() {
    const std::vector<void (Search::*)()> programs = {&Search::copies,  &Search::pairs,
                                                      &Search::loops,   &Search::steps,
                                                      &Search::uploads, &Search::packings};
    while (now() < end_)
      if (pick(20) == 0)
        (this->*programs[pick(programs.size())])();
      else
        call_operator();
    return report();
  }

 private:
  struct Worst {
    double delay = -1;
    int64_t rounds = 0, ended = 0;
    std::string call;
  };

  uint64_t pick(uint64_t count) { return random_() % count; }
  // A number of a random magnitude up to 2^most.
  int64_t magnitude(int most) {
    const auto bits = static_cast<int>(pick(static_cast<uint64_t>(most) + 1));
    return (int64_t{1} << bits) + static_cast<int64_t>(pick(uint64_t{1} << bits));
  }
  void record(const std::string& name, const Questions& questions, double delay) {
    Worst& worst = worst_[name];
    ++worst.rounds;
    worst.ended += questions.asked >= questions.last;
    if (delay <= worst.delay) return;
    worst.delay = delay;
    worst.call = current;
  }
  bool is_wanted(const std::string& name) const { return !only_ || name == only_; }

  void call_operator() {
    const size_t index = pick(calls_.size());
    const Call& call = calls_[index];
    if (!is_wanted(call.name)) return;
    const husk_op& row = *ops_.at(call.name);
    const std::vector<husk::host_test::CpuSet> sets = husk::host_test::sets_of(
        husk::host::cpu_features());
    const husk::host_test::CpuSet& set = sets[pick(sets.size())];
    husk::host::Device device({}, set.features, nullptr);
    // Sizes that are equal stay equal, in most rounds, and one or two of them change.
    std::set<int64_t> sizes;
    std::set<std::pair<size_t, int32_t>> dims;
    const Grown same(call, [&](size_t argument, int32_t d, int64_t size) {
      if (d >= 0) dims.insert({argument, d});
      if (d >= 0 && size > 1) sizes.insert(size);
      return size;
    });
    const auto one_of = [&](const auto& all) { return *std::next(all.begin(), pick(all.size())); };
    std::vector<husk_op_arg> args = call.args;
    std::string change = "as it is";
    std::optional<Grown> grown;
    const int64_t large = magnitude(34);
    if (index < grown_ && !dims.empty() && pick(4) == 0) {
      const auto dim = one_of(dims);
      change = "argument " + std::to_string(dim.first) + ", dim " + std::to_string(dim.second) +
               ": " + std::to_string(large);
      grown.emplace(call, [&](size_t argument, int32_t d, int64_t size) {
        return dim == std::pair(argument, d) ? large : size;
      });
    } else if (index < grown_ && !sizes.empty() && pick(8) != 0) {
      const int64_t first = one_of(sizes), second = one_of(sizes), other = magnitude(34);
      change = "sizes " + std::to_string(first) + ": " + std::to_string(large) + ", " +
               std::to_string(second) + ": " + std::to_string(other);
      grown.emplace(call, [&](size_t, int32_t, int64_t size) {
        return size == first ? large : size == second ? other : size;
      });
    }
    if (grown) args = grown->args;
    std::snprintf(current, sizeof(current), "%s, call %zu, %s, %s", call.name.c_str(), index,
                  set.name, change.c_str());
    husk_op_context context = HUSK_OP_CONTEXT_INIT;
    husk_error error = {};
    context.user = row.user;
    context.device = &device;
    context.scratch = scratch_.of(row);
    context.cancel = Questions::cancel;
    Questions questions(magnitude(5));
    context.cancel_user = &questions;
    (void)row.call(&context, args.data(), static_cast<uint32_t>(args.size()), &error);
    record(call.name, questions, questions.end());
  }

  // ---- the core ----

  // Opens a program, and runs it with inputs of `sizes` bytes.
  void run_program(const char* name, const std::string& text, const std::vector<int64_t>& sizes,
                   const husk_port* port, bool runs) {
    if (!is_wanted(name)) return;
    std::snprintf(current, sizeof(current), "%s", name);
    Questions open(runs ? int64_t{1} << 60 : magnitude(6));
    Questions ask(magnitude(6));
    husk_engine_options options = HUSK_ENGINE_OPTIONS_INIT;
    options.port = port ? port : husk_port_host();
    options.cancel = Questions::cancel;
    options.cancel_user = &ask;
    options.progress = Questions::progress;
    options.progress_user = &open;
    options.verify_content = static_cast<int32_t>(pick(2));
    husk_error error = {};
    husk_engine* engine = nullptr;
    husk_program* program = nullptr;
    husk_session* session = nullptr;
    const File file = compiled(text);
    if (husk_engine_create(&options, &engine, &error) != HUSK_OK ||
        husk_ops_add_all(engine, &error) != HUSK_OK ||
        (op_.call && husk_engine_add_op(engine, &op_, &error) != HUSK_OK))
      fail(error);
    open = Questions(open.last);
    const husk_status status = husk_program_load(engine, file.data, file.size, nullptr, nullptr,
                                                 &program, &error);
    const double delay = open.end();
    if (!runs) record(name, open, delay);
    if (status == HUSK_OK && runs) {
      if (husk_session_create(program, nullptr, &session, &error) != HUSK_OK) fail(error);
      run_session(name, session, sizes, ask);
      husk_session_release(session);
    } else if (status != HUSK_OK && status != HUSK_CANCELLED) {
      fail(error);
    }
    husk_program_release(program);
    husk_engine_release(engine);
  }
  // The first size is that of the output.
  void run_session(const char* name, husk_session* session, const std::vector<int64_t>& sizes,
                   Questions& ask) {
    std::vector<husk_value> values(sizes.size());
    std::vector<DLTensor> tensors(sizes.size());
    for (size_t i = 0; i < sizes.size(); ++i) {
      if (memory_.size() <= i) memory_.emplace_back();
      if (memory_[i].size() < static_cast<size_t>(sizes[i])) memory_[i].resize(sizes[i]);
      values[i].kind = HUSK_VALUE_TENSOR;
      values[i].as.tensor = &tensors[i];
      DLTensor& tensor = tensors[i];
      tensor.data = memory_[i].data();
      tensor.device = {kDLCPU, 0};
      tensor.ndim = 1;
      tensor.dtype = {kDLUInt, 8, 1};
      tensor.shape = const_cast<int64_t*>(&sizes[i]);
    }
    husk_error error = {};
    ask = Questions(ask.last);
    const husk_status status = husk_session_run(session, 0, nullptr, values.data() + 1,
                                                static_cast<uint32_t>(sizes.size()) - 1,
                                                values.data(), 1, &error);
    const double delay = ask.end();
    if (status != HUSK_OK && status != HUSK_CANCELLED) fail(error);
    record(name, ask, delay);
  }
  struct File {
    const uint8_t* data;
    uint64_t size;
  };
  const File& compiled(const std::string& text) {
    auto [at, is_new] = files_.try_emplace(text);
    if (!is_new) return at->second;
    auto result = husk::compiler::compile_text(text, "/");
    if (const auto* error = std::get_if<husk::compiler::Error>(&result)) {
      std::fprintf(stderr, "%s\n%s\n", husk::compiler::describe(*error, current).c_str(),
                   text.c_str());
      std::exit(2);
    }
    // A program begins at a multiple of a page.
    const auto& bytes = std::get<std::vector<uint8_t>>(result);
    auto* memory = static_cast<uint8_t*>(std::aligned_alloc(4096, (bytes.size() | 4095) + 1));
    std::memcpy(memory, bytes.data(), bytes.size());
    return at->second = {memory, bytes.size()};
  }
  [[noreturn]] static void fail(const husk_error& error) {
    std::fprintf(stderr, "%s: %s\n", current, error.text);
    std::exit(2);
  }

  // A copy and a fill of 400 MB.
  void copies() {
    constexpr int64_t kBytes = 400'000'000;
    const std::string bytes = std::to_string(kBytes);
    run_program(
        "copy and fill",
        "hir 1\nproducer \"test\"\ntarget cpu host \"x86-64\"\nfunction f {\n  input x tensor u8 "
        "[" +
            bytes +
            "]\n  output y tensor u8 rank 1\n  variant cpu {\n    buffer x of input bytes " +
            bytes + "\n    buffer y of output bytes " + bytes +
            "\n    copy (write y, read x)\n    fill u8 (write y, 3)\n"
            "    return (tensor y u8 [" +
            bytes + "] [1])\n  }\n}\n",
        {kBytes, kBytes}, nullptr, true);
  }

  // Many tensors of one buffer that an op writes, whose pairs are compared before the run.
  void pairs() {
    static const std::string contract = [] {
      std::string text;
      for (int i = 0; i < kTensors; ++i) text += (i ? " a" : "a") + std::to_string(i) + ":w";
      return text;
    }();
    std::string tensors;
    for (int i = 0; i < kTensors; ++i)
      tensors += std::string(i ? ", " : "") + "write tensor t u8 [5, 7, 11, 13] " +
                 "[17517500, 2502500, 227500, 17500] offset " + std::to_string(i);
    op_ = HUSK_OP_INIT;
    op_.name = "test::op";
    op_.call = [](const husk_op_context*, const husk_op_arg*, uint32_t, husk_error*) {
      return husk_status{HUSK_OK};
    };
    op_.contract = contract.c_str();
    run_program("pairs of tensors",
                "hir 1\nproducer \"test\"\ntarget cpu host \"x86-64\"\nfunction f {\n  input x "
                "tensor u8 [8]\n  output y tensor u8 rank 1\n"
                "  variant cpu {\n    buffer x of input bytes 8\n"
                "    buffer y of output bytes 8\n    buffer t bytes 100000000 align 64\n"
                "    copy (write y, read x)\n    extern \"test::op\" (" +
                    tensors + ")\n    return (tensor y u8 [8] [1])\n  }\n}\n",
                {8, 8}, nullptr, true);
  }
  // A loop that ends at the loop limit only.
  void loops() {
    run_program("loop",
                "hir 1\nproducer \"test\"\ntarget cpu host \"x86-64\"\nfunction f {\n  input x "
                "tensor u8 [8]\n  output y tensor u8 rank 1\n"
                "  variant cpu {\n    buffer x of input bytes 8\n"
                "    buffer y of output bytes 8\n    copy (write y, read x)\n    loop {\n"
                "      read u8 (read y[0, 1])\n      while lt(result(0), 7)\n"
                "      fill u8 (write y, 3)\n    }\n"
                "    return (tensor y u8 [8] [1])\n  }\n}\n",
                {8, 8}, nullptr, true);
  }
  // An open that verifies and plans many steps, which asks nothing meanwhile: its time grows with
  // the number of steps alone.
  void steps() {
    static const std::string text = [] {
      std::string all =
          "hir 1\nproducer \"test\"\ntarget cpu host \"x86-64\"\nfunction f {\n  input x "
          "tensor u8 [8]\n  output y tensor u8 rank 1\n  variant cpu {\n"
          "    buffer x of input bytes 8\n    buffer y of output bytes 8\n"
          "    buffer t bytes 8 align 64\n";
      for (int i = 0; i < kSteps; ++i)
        all += i % 2 ? "    copy (write y, read t)\n" : "    copy (write t, read x)\n";
      return all + "    return (tensor y u8 [8] [1])\n  }\n}\n";
    }();
    run_program("open of many steps", text, {}, nullptr, false);
  }
  // A device with memory of its own, to which constants are copied.
  void uploads() {
    static husk_port port;
    port = *husk_port_host();
    port.map = nullptr;
    port.properties = [](void* device, husk_port_properties* out) {
      husk_port_host()->properties(device, out);
      out->host_memory = 0;
    };
    run_program("upload of constants", with_constant(false), {}, &port, false);
  }
  // An op lays out its constants.
  void packings() { run_program("copies for ops", with_constant(true), {}, nullptr, false); }

  // A program with a constant of 8192 x 4096 floats.
  std::string with_constant(bool multiplies) {
    if (constant_path_.empty()) {
      char name[] = "/tmp/husk-cancel-XXXXXX";
      const int file = mkstemp(name);
      std::string header = R"({"w":{"dtype":"F32","shape":[8192,4096],)"
                           R"("data_offsets":[0,134217728]}})";
      header.resize((header.size() + 7) / 8 * 8, ' ');
      const uint64_t size = header.size();
      const std::string zeros(134217728, '\0');
      const std::string all = std::string(reinterpret_cast<const char*>(&size), 8) + header + zeros;
      if (file < 0 || write(file, all.data(), all.size()) != static_cast<ssize_t>(all.size()))
        std::exit(2);
      close(file);
      constant_path_ = name;
    }
    const std::string head =
        "hir 1\nproducer \"test\"\ntarget cpu host \"x86-64\"\n"
        "constant w f32 [8192, 4096] file \"" +
        constant_path_ +
        "\" tensor \"w\"\nfunction f {\n  input x tensor f32 [4, 8192]\n"
        "  output y tensor f32 rank 2\n  variant cpu {\n"
        "    buffer x of input bytes 131072\n";
    return head +
           (multiplies
                ? "    buffer y of output bytes 65536\n    extern \"aten::mm.out\" (read "
                  "tensor x f32 [4, 8192] [8192, 1], read tensor w f32 [8192, 4096] [4096, "
                  "1], write tensor y f32 [4, 4096] [4096, 1])\n    return (tensor y f32 [4, "
                  "4096] [4096, 1])\n  }\n}\n"
                : "    buffer y of output bytes 134217728\n    copy (write y, read w)\n"
                  "    return (tensor y f32 [8192, 4096] [4096, 1])\n  }\n}\n");
  }

  int report() const {
    if (!constant_path_.empty()) unlink(constant_path_.c_str());
    std::vector<std::pair<std::string, Worst>> rows(worst_.begin(), worst_.end());
    std::sort(rows.begin(), rows.end(),
              [](const auto& a, const auto& b) { return a.second.delay > b.second.delay; });
    int64_t rounds = 0, ended = 0, slow = 0;
    std::printf("%10s %8s %8s  %s\n", "worst ms", "rounds", "ended", "call");
    for (const auto& [name, worst] : rows) {
      std::printf("%10.3f %8lld %8lld  %s\n", worst.delay * 1e3,
                  static_cast<long long>(worst.rounds), static_cast<long long>(worst.ended),
                  worst.call.c_str());
      rounds += worst.rounds;
      ended += worst.ended;
      slow += worst.delay > kLimit;
    }
    std::printf("%lld rounds of %zu names, %lld ended; %lld names took more than %.0f ms\n",
                static_cast<long long>(rounds), rows.size(), static_cast<long long>(ended),
                static_cast<long long>(slow), kLimit * 1e3);
    return slow > 0;
  }

  const double end_;
  std::mt19937_64 random_;
  const char* const only_;
  std::deque<Call> calls_;
  size_t grown_ = 0;  // calls before this one are grown; the others are large already
  std::map<std::string, const husk_op*> ops_;
  std::map<std::string, Worst> worst_;
  std::map<std::string, File> files_;
  std::deque<std::vector<uint8_t>> memory_;
  husk::host_test::OpScratch scratch_;
  husk_op op_ = HUSK_OP_INIT;
  std::string constant_path_;  // of a safetensors file
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2 || argc > 4) {
    std::fprintf(stderr, "husk_cancel_delays SECONDS [SEED [NAME]]\n");
    return 2;
  }
  Search::name_watchdog();
  return Search(std::atof(argv[1]), argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1,
                argc > 3 ? argv[3] : nullptr)
      .run();
}
