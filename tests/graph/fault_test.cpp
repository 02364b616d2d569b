// Each driver call and each host allocation between opening and releasing a program fails once: the
// error names what failed, nothing leaks, and the handles that exist stay usable.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <numeric>
#include <stdexcept>

#include <husk/detail/try.h>

#include "../compiler/random/ops.h"
#include "../compiler/random/program.h"
#include "../values.h"
#include "base/memory.h"
#include "loaded_program.h"
#include "programs.h"

namespace husk::test {
namespace {

constexpr int32_t kOutOfMemory = 2, kUnknown = 999;  // CUDA_ERROR_OUT_OF_MEMORY and _UNKNOWN
constexpr int64_t kRows = 200;

// Host memory that counts live allocations, and refuses the allocation with the number `refuse`.
struct HostMemory {
  int64_t live = 0, calls = 0, refuse = -1;
  husk_allocator allocator() {
    return {this,
            [](void* user, size_t size, size_t align) -> void* {
              auto* memory = static_cast<HostMemory*>(user);
              if (memory->calls++ == memory->refuse) return nullptr;
              ++memory->live;
              return std::aligned_alloc(align, (size + align - 1) / align * align);
            },
            [](void* user, void* pointer) {
              static_cast<HostMemory*>(user)->live -= pointer != nullptr;
              std::free(pointer);
            }};
  }
};

// A program of the table: its text, its inputs after the tensor x of kRows floats, and the result
// that a run must have.
struct ProgramCase {
  const char* name;
  std::string text;
  std::vector<husk_value> numbers;                                 // inputs after x
  std::function<std::vector<float>(const std::vector<float>&)> y;  // null: the output is an int
  bool has_index = false;                                          // input `index`, output `z`
  std::vector<float> constant = {};  // the value of constant 0, which updates write again
  int64_t rows = kRows;
  std::vector<husk_op> ops = {};
  int64_t now = 0;  // not 0: there is no input x, and a state and the output count to this number
};

husk_op square_on_host() {
  husk_op op = HUSK_OP_INIT;
  op.name = "test::square";
  op.call = [](const husk_op_context*, const husk_op_arg* args, uint32_t, husk_error*) {
    square_elements(args);
    return husk_status{HUSK_OK};
  };
  op.contract = "in out:w";
  op.place = HUSK_OP_ON_HOST;
  return op;
}

std::vector<ProgramCase> programs() {
  const auto branch = [](const std::vector<float>& x) { return branches_of(x, 0.5f, 3); };
  const auto pieces = [](std::vector<float> x) {
    for (float& value : x) value -= 0.25f + 3;
    return x;
  };
  const auto same = [](const std::vector<float>& x) { return x; };
  const auto square = [](const std::vector<float>& x) { return square_of(x, 3); };
  const auto affine_of = [](std::vector<float> x) {
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i + 1) - x[i] / 2 - 1;
    return x;
  };
  return {
      {"branches", branches("scale"), {floating(0.5), integer(3)}, branch},
      {"unbounded", branches("scale", "inf"), {floating(0.5), integer(3)}, branch},
      {"full edges", branches("late"), {floating(0.5), integer(3)}, branch},
      {"pieces", kPieces, {floating(0.5), integer(3)}, pieces},
      {"read", kRead, {}, nullptr},
      {"asserts", kPick, {}, same, true, {}, 10},
      {"constants", affine(kCount, kOnes), {}, affine_of, false, {1, 2, 3, 4}, 4},
      {"products",
       kProjections,
       {},
       projections_of,
       false,
       std::vector<float>(&kW[0][0], &kW[0][0] + 16)},
      {"convolutions",
       kConvolutions,
       {},
       convolutions_of,
       false,
       std::vector<float>(&kW[0][0], &kW[0][0] + 16)},
      {"host steps", kSquareOnHost, {integer(3)}, square, false, {}, kRows, {square_on_host()}},
      {"segments", segmented_projections(), {}, projections_of},
      {"eigenvalues", kEigenvalues, {}, eigenvalues_of, false, {}, 4},
      {"spectrum", kSpectrum, {}, spectrum_of, false, {}, 4},
      {"out of state", kOutOfState, {}, nullptr, false, {}, 2, {}, 43},
  };
}

// What one play of a program met.
struct Outcome {
  husk_status status = HUSK_OK;  // of the call that failed first
  std::string text;
};

// One run of everything: the calls of a program's life.
class Play {
 public:
  Play(const ProgramCase& program, const husk_session_options& options,
       const husk_allocator& allocator)
      : program_(program),
        x_(static_cast<size_t>(program.rows)),
        result_(x_.size()),
        order_(x_.size()),
        loaded_(program.text, &options, &allocator, program.ops) {
    for (size_t i = 0; i < x_.size(); ++i) x_[i] = static_cast<float>(i % 7) - 2.5f;
    std::iota(order_.begin(), order_.end(), 0);
  }

  Outcome outcome() {
    if (!loaded_.session) return {loaded_.error.code, loaded_.error.text};
    const husk_status status = pass();
    const Outcome first = {status, status == HUSK_OK ? "" : loaded_.error.text};
    // The handles are usable after a failure, so the next pass must succeed.
    if (status != HUSK_OK) {
      EXPECT_EQ(pass(), HUSK_OK) << "after '" << first.text << "': " << loaded_.error.text;
    }
    return first;
  }

 private:
  husk_status pass() {
    const size_t bytes = x_.size() * 4;
    const auto n = program_.rows;
    void *in = loaded_.alloc(bytes), *index = loaded_.alloc(2 * bytes), *out[2] = {};
    for (void*& memory : out) memory = loaded_.alloc(bytes);
    if (!in || !index || !out[0] || !out[1]) return HUSK_OUT_OF_MEMORY;
    HUSK_TRY(loaded_.upload(in, x_.data(), bytes));
    HUSK_TRY(loaded_.upload(index, order_.data(), 2 * bytes));
    DeviceTensor x = device_vector(in, n), indices = device_vector(index, n),
                 y = device_vector(out[0], n), z = device_vector(out[1], n);
    indices.dl.dtype = {kDLInt, 64, 1};
    std::vector<husk_value> inputs, outputs;
    if (program_.now) {
      y.dl.ndim = 0;
      y.dl.dtype = indices.dl.dtype;
    } else {
      inputs.push_back(x.value());
    }
    if (program_.has_index) inputs.push_back(indices.value());
    inputs.insert(inputs.end(), program_.numbers.begin(), program_.numbers.end());
    outputs.push_back(program_.y || program_.now ? y.value() : integer(0));
    if (program_.has_index) outputs.push_back(z.value());
    const auto count = static_cast<uint32_t>(inputs.size());
    husk_error* error = &loaded_.error;
    husk_session* session = loaded_.session;
    const uint32_t states = husk_program_state_count(loaded_.program);
    for (uint32_t s = 0; s < states; ++s) HUSK_TRY(husk_session_state_reset(session, s, error));
    HUSK_TRY(husk_session_resize(session, 0, inputs.data(), count, error));
    for (int run = 0; run < 2; ++run)
      HUSK_TRY(husk_session_run(session, 0, loaded_.stream, inputs.data(), count, outputs.data(),
                                static_cast<uint32_t>(outputs.size()), error));
    HUSK_TRY(husk_session_wait(session, error));
    if (program_.now) {
      HUSK_TRY(loaded_.download(&ticks_, out[0], sizeof ticks_));
      EXPECT_EQ(ticks_, program_.now);
    } else if (!program_.y) {
      EXPECT_EQ(outputs[0].as.i,
                std::count_if(x_.begin(), x_.end(), [](float value) { return value > 0; }));
    } else {
      HUSK_TRY(loaded_.download(result_.data(), out[0], bytes));
      EXPECT_EQ(result_, program_.y(x_));
    }
    for (uint32_t s = 0; s < states; ++s) {
      HUSK_TRY(husk_session_state_get(session, s, &ticks_, error));
      HUSK_TRY(husk_session_state_set(session, s, &ticks_, error));
    }
    if (program_.constant.empty()) return HUSK_OK;
    const husk_constant_update update = {0, 0, program_.constant.data()};
    return husk_program_update_constants(loaded_.program, &update, 1, error);
  }

  const ProgramCase& program_;
  // Host memory outlives the device, since a copy may be under way after a wait has failed.
  std::vector<float> x_, result_;
  std::vector<int64_t> order_;
  int64_t ticks_ = 0;
  LoadedProgram loaded_;
};

// Parameters: the mode of the session, and the index of the program. Each pair is a process under
// CTest, since the fake driver becomes slower with each object that it ever had.
class Faults : public FakeTest, public testing::WithParamInterface<std::tuple<int32_t, size_t>> {
 protected:
  Faults() { options_.mode = std::get<0>(GetParam()); }
  Outcome play() {
    const husk_allocator allocator = host_.allocator();
    return Play(program_, options_, allocator).outcome();
  }
  void expect_no_leak() {
    fake.fake_reset();
    ASSERT_EQ(fake.fake_live_objects(), 0u);
    ASSERT_EQ(host_.live, 0);
  }

  const ProgramCase program_ = programs()[std::get<1>(GetParam())];
  husk_session_options options_ = HUSK_SESSION_OPTIONS_INIT;
  HostMemory host_;
};

// The functions of the driver and of libraries.
const char* const kFunctions[] = {
#define HUSK_DRIVER(name, version, need, parameters) #name,
#include <driver.def>
#undef HUSK_DRIVER
#define HUSK_CUBLAS(result, name, parameters) #name,
#include <blas.def>
#undef HUSK_CUBLAS
#define HUSK_CUDNN(result, name, parameters) #name,
#include <dnn.def>
#undef HUSK_CUDNN
#define HUSK_CUSOLVER(name, parameters) #name,
#include <solver.def>
#undef HUSK_CUSOLVER
#define HUSK_CUFFT(name, parameters) #name,
#include <fourier.def>
#undef HUSK_CUFFT
};

// What fail_every_call() has counted.
struct FaultCounts {
  uint64_t faults = 0, refused = 0, kinds = 0;
};

// Lets each driver call of `play` fail once, those of the release too. `expect_no_leak` resets the
// driver.
template <class Play, class ExpectNoLeak>
void fail_every_call(const Fake& fake, const char* name, const Play& play,
                     const ExpectNoLeak& expect_no_leak, FaultCounts* counts) {
  for (const char* function : kFunctions) {
    SCOPED_TRACE(std::string(name) + ": " + function);
    fake.fake_reset();
    const Outcome good = play();
    ASSERT_EQ(good.status, HUSK_OK) << good.text;
    const uint64_t calls = fake.fake_calls(function);
    counts->kinds += calls > 0;
    for (uint64_t n = 1; n <= calls; ++n) {
      SCOPED_TRACE("call " + std::to_string(n));
      fake.fake_reset();
      fake.fake_fail_call(function, n, n % 2 ? kUnknown : kOutOfMemory);
      const Outcome outcome = play();
      counts->faults += fake.fake_failed() != 0;
      counts->refused += outcome.status != HUSK_OK;
      if (outcome.status != HUSK_OK) {
        EXPECT_TRUE(outcome.text.find("cu") != std::string::npos ||
                    outcome.text.find("CUBLAS_STATUS") != std::string::npos ||
                    outcome.text.find("CUDNN_STATUS") != std::string::npos)
            << outcome.text;
      }
      ASSERT_NO_FATAL_FAILURE(expect_no_leak()) << outcome.text;
      ASSERT_FALSE(testing::Test::HasFailure()) << outcome.text;
    }
  }
  printf("%s: %llu driver calls of %llu functions failed, %llu of them made a call of Husk fail\n",
         name, static_cast<unsigned long long>(counts->faults),
         static_cast<unsigned long long>(counts->kinds),
         static_cast<unsigned long long>(counts->refused));
}

TEST_P(Faults, EveryDriverCall) {
  FaultCounts counts;
  fail_every_call(fake, program_.name, [&] { return play(); }, [&] { expect_no_leak(); }, &counts);
  EXPECT_GT(counts.refused, counts.faults / 4);
  EXPECT_GT(counts.kinds, 20u);
}

TEST_P(Faults, EveryHostAllocation) {
  int64_t refused = 0;
  ASSERT_EQ(play().status, HUSK_OK);
  const int64_t calls = host_.calls;
  for (int64_t n = 0; n < calls; ++n) {
    SCOPED_TRACE("allocation " + std::to_string(n));
    host_ = {};
    host_.refuse = n;
    const Outcome outcome = play();
    refused += outcome.status == HUSK_OUT_OF_MEMORY;
    if (outcome.status != HUSK_OK) {
      EXPECT_EQ(outcome.status, HUSK_OUT_OF_MEMORY) << outcome.text;
      EXPECT_NE(outcome.text.find("memory"), std::string::npos) << outcome.text;
    }
    ASSERT_NO_FATAL_FAILURE(expect_no_leak()) << outcome.text;
    ASSERT_FALSE(HasFailure()) << outcome.text;
  }
  EXPECT_GT(refused, 20);
  printf("%s: %lld host allocations failed\n", program_.name, static_cast<long long>(refused));
}

INSTANTIATE_TEST_SUITE_P(Modes, Faults,
                         testing::Combine(testing::Values(HUSK_MODE_LIST, HUSK_MODE_GRAPH),
                                          testing::Range(size_t{0}, programs().size())));

// A program of tests/compiler/random for the fake driver, whose ops wait for the stream first.
std::string random_text(uint32_t seed) {
  std::string text = random_program(seed);
  const auto replace = [&](const std::string& from, const std::string& to) {
    for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
      text.replace(at, from.size(), to);
  };
  replace("\ntarget cpu host \"x86-64\"", "\ntarget gpu cuda \"sm_90a\"");
  replace("image k cpu elf ", "image k gpu cubin ");
  replace("\"random_", "\"fake_random_");
  replace("variant cpu {", "variant gpu {");
  return text;
}

std::vector<husk_op> waiting_ops() {
  std::vector<husk_op> ops;
  for (const husk_op& op : random_ops()) {
    ops.push_back(op);
    ops.back().user = const_cast<husk_op*>(&op);
    ops.back().call = [](const husk_op_context* context, const husk_op_arg* args, uint32_t count,
                         husk_error* error) {
      HUSK_TRY(husk_port_cuda()->stream_wait(context->device, context->stream, error));
      return static_cast<const husk_op*>(context->user)->call(context, args, count, error);
    };
  }
  return ops;
}

// One run of a random program, with the outputs in memory of the session.
class RandomPlay {
 public:
  RandomPlay(const std::string& text, const husk_session_options& options,
             const husk_allocator& allocator)
      : loaded_(text, &options, &allocator, waiting_ops()) {}

  // Compares the results with `want`, which the first run fills.
  Outcome outcome(std::vector<uint8_t>* want) {
    if (!loaded_.session) return {loaded_.error.code, loaded_.error.text};
    const husk_status status = pass();
    const Outcome first = {status, status == HUSK_OK ? "" : loaded_.error.text};
    if (status != HUSK_OK && !want->empty()) {
      EXPECT_EQ(pass(), HUSK_OK) << "after '" << first.text << "': " << loaded_.error.text;
    }
    if (want->empty()) *want = results_;
    EXPECT_EQ(results_, *want) << first.text;
    return first;
  }

  uint64_t runs_as_graph() {
    return loaded_.session ? loaded_.stats(loaded_.session).runs_as_graph : 0;
  }

 private:
  husk_status pass() {
    results_.clear();
    husk_error* error = &loaded_.error;
    husk_session* session = loaded_.session;
    const uint32_t inputs = husk_program_input_count(loaded_.program, 0),
                   outputs = husk_program_output_count(loaded_.program, 0);
    std::vector<std::vector<int64_t>> shapes(inputs);
    std::vector<DLTensor> tensors(inputs);
    std::vector<husk_value> in(inputs), out(outputs);
    for (uint32_t i = 0; i < inputs; ++i) {
      husk_value_info info = HUSK_VALUE_INFO_INIT;
      HUSK_TRY(husk_program_input(loaded_.program, 0, i, &info, error));
      in[i].kind = info.kind;
      const auto within = [&](int32_t d) {
        const int64_t low = info.ranges[2 * d], high = info.ranges[2 * d + 1];
        return low + 3 < high ? low + 3 : high;
      };
      if (info.kind == HUSK_VALUE_INT) in[i].as.i = info.ranges ? within(0) : 7;
      if (info.kind == HUSK_VALUE_BOOL) in[i].as.i = 1;
      if (info.kind == HUSK_VALUE_FLOAT) in[i].as.f = 1.5;
      if (info.kind != HUSK_VALUE_TENSOR) continue;
      size_t bytes = husk_dtype_size(info.dtype);
      for (int32_t d = 0; d < info.rank; ++d) {
        shapes[i].push_back(within(d));
        bytes *= static_cast<size_t>(shapes[i].back());
      }
      std::vector<uint8_t>& data = data_.emplace_back(bytes);
      for (size_t b = 0; b < bytes; ++b) data[b] = static_cast<uint8_t>(b * 37 + i);
      void* memory = loaded_.alloc(bytes + 1);
      if (!memory) return HUSK_OUT_OF_MEMORY;
      if (bytes) HUSK_TRY(loaded_.upload(memory, data.data(), bytes));
      tensors[i] = {memory,           {kDLCUDA, 0}, info.rank, husk_dtype_to_dlpack(info.dtype),
                    shapes[i].data(), nullptr,      0};
      in[i].as.tensor = &tensors[i];
    }
    for (uint32_t s = 0; s < husk_program_state_count(loaded_.program); ++s)
      HUSK_TRY(husk_session_state_reset(session, s, error));
    HUSK_TRY(husk_session_resize(session, 0, in.data(), inputs, error));
    HUSK_TRY(husk_session_run(session, 0, loaded_.stream, in.data(), inputs, out.data(), outputs,
                              error));
    HUSK_TRY(husk_session_wait(session, error));
    for (const husk_value& value : out) {
      if (value.kind != HUSK_VALUE_TENSOR) {
        const auto* bytes = reinterpret_cast<const uint8_t*>(&value.as);
        results_.insert(results_.end(), bytes, bytes + (value.kind ? sizeof(value.as) : 0));
        continue;
      }
      size_t bytes = 1;  // the outputs are dense tensors of bytes
      for (int32_t d = 0; d < value.as.tensor->ndim; ++d)
        bytes *= static_cast<size_t>(value.as.tensor->shape[d]);
      const size_t at = results_.size();
      results_.resize(at + bytes);
      if (bytes) HUSK_TRY(loaded_.download(&results_[at], value.as.tensor->data, bytes));
    }
    return HUSK_OK;
  }

  // Host memory outlives the device, since a copy may be under way after a wait has failed.
  std::deque<std::vector<uint8_t>> data_;
  std::vector<uint8_t> results_;
  LoadedProgram loaded_;
};

class RandomFaults : public FakeTest,
                     public testing::WithParamInterface<std::tuple<int32_t, uint32_t>> {};

// The seeds are those of programs that run to their end with the inputs of RandomPlay; in graph
// mode they have a graph too, so they have one segment and no ops.
TEST_P(RandomFaults, EveryDriverCall) {
  husk_session_options options = HUSK_SESSION_OPTIONS_INIT;
  options.mode = std::get<0>(GetParam());
  HostMemory host;
  std::vector<uint8_t> want;
  std::string text, name;
  uint64_t graphs = 0;  // runs as a graph
  const auto play = [&] {
    const husk_allocator allocator = host.allocator();
    RandomPlay run(text, options, allocator);
    const Outcome outcome = run.outcome(&want);
    graphs += run.runs_as_graph();
    return outcome;
  };
  for (uint32_t seed = std::get<1>(GetParam()) * 10000; want.empty(); ++seed) {
    text = random_text(seed);
    name = "random " + std::to_string(seed);
    if (options.mode == HUSK_MODE_GRAPH &&
        (text.find("extern") != std::string::npos || text.find("read i64") != std::string::npos))
      continue;
    try {
      (void)artifact(text);
    } catch (const std::runtime_error&) {  // the compiler refuses some programs
      continue;
    }
    graphs = 0;
    if (play().status != HUSK_OK || (options.mode == HUSK_MODE_GRAPH && graphs == 0)) want.clear();
    fake.fake_reset();
  }
  FaultCounts counts;
  fail_every_call(
      fake, name.c_str(), play,
      [&] {
        fake.fake_reset();
        ASSERT_EQ(fake.fake_live_objects(), 0u);
        ASSERT_EQ(host.live, 0);
      },
      &counts);
  EXPECT_GT(counts.refused, counts.faults / 4);
}

INSTANTIATE_TEST_SUITE_P(Modes, RandomFaults,
                         testing::Combine(testing::Values(HUSK_MODE_LIST, HUSK_MODE_GRAPH),
                                          testing::Range(0u, 12u)));

// Refuses one allocation of host memory.
struct Refusal {
  int64_t refuse = -1, calls = 0, live = 0;
  husk_allocator allocator() {
    return {this,
            [](void* user, size_t size, size_t align) -> void* {
              auto* self = static_cast<Refusal*>(user);
              if (self->calls++ == self->refuse) return nullptr;
              ++self->live;
              return default_allocator()->allocate(nullptr, size, align);
            },
            [](void* user, void* memory) {
              if (!memory) return;
              --static_cast<Refusal*>(user)->live;
              default_allocator()->release(nullptr, memory);
            }};
  }
};

// Each allocation of host memory fails once: the call says so, and succeeds when it is repeated.
TEST(Faults, EveryAllocationOfAGraph) {
  Fake fake;
  fake.fake_reset();
  const std::string text = affine(kCount, kOnes) + branches("scale");
  const std::vector<float> x(200, 1.5f);
  int64_t refused = 0;
  for (int64_t n = 0, calls = 1; n < calls; ++n) {
    Refusal refusal;
    refusal.refuse = n;
    const husk_allocator allocator = refusal.allocator();
    {
      LoadedProgram m(text, nullptr, &allocator);
      const auto expect = [&](const char* what, const auto& call) {
        const int64_t before = refusal.calls;
        const husk_status status = call();
        if (before > n || refusal.calls <= n) {
          ASSERT_EQ(status, HUSK_OK) << what << ": " << m.error.text;
          return;
        }
        ++refused;
        EXPECT_EQ(status, HUSK_OUT_OF_MEMORY) << what << ", allocation " << n;
        if (status == HUSK_OK) return;
        ASSERT_EQ(call(), HUSK_OK) << what << ", again: " << m.error.text;
      };
      if (refusal.calls > n) {
        ++refused;
        EXPECT_EQ(m.session, nullptr) << "allocation " << n;
        EXPECT_EQ(m.error.code, HUSK_OUT_OF_MEMORY) << "allocation " << n << m.error.text;
      }
      if (!m.session) {
        calls = refusal.calls + 1;
        continue;
      }
      void *in = m.alloc(800), *out = m.alloc(800);
      ASSERT_EQ(m.upload(in, x.data(), 800), HUSK_OK);
      DeviceTensor from = device_vector(in, 200), to = device_vector(out, 200);
      const husk_value inputs[] = {from.value(), floating(0.5), integer(3)};
      husk_value output = to.value();
      const auto resize = [&] { return husk_session_resize(m.session, 1, inputs, 3, &m.error); };
      expect("resize", resize);
      expect("range", [&] { return husk_session_set_range(m.session, 1, 0, 0, 1, 300, &m.error); });
      expect("resize", resize);
      expect("run", [&] {
        return husk_session_run(m.session, 1, m.stream, inputs, 3, &output, 1, &m.error);
      });
      const husk_constant_update update = {0, 0, x.data()};
      expect("update",
             [&] { return husk_program_update_constants(m.program, &update, 1, &m.error); });
      std::vector<float> y(200);
      ASSERT_EQ(m.download(y.data(), out, 800), HUSK_OK);
      EXPECT_EQ(y, branches_of(x, 0.5f, 3));
      EXPECT_EQ(m.stats(m.session, 1).runs_as_graph, 1u) << "allocation " << n;
      calls = refusal.calls;
    }
    EXPECT_EQ(refusal.live, 0) << "allocation " << n;
    ASSERT_FALSE(testing::Test::HasFailure()) << "allocation " << n;
  }
  EXPECT_GT(refused, 50);
}

}  // namespace
}  // namespace husk::test
