// Compiles random programs, runs them on the host, and compares the results with those of the
// evaluator. A failure names the seed; HUSK_RANDOM_SEED=N runs only that seed and prints its text.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>

#include <husk/port_host.h>

#include "compile.h"
#include "evaluator.h"
#include "ir/parser.h"
#include "ir/printer.h"
#include "ops.h"
#include "program.h"

namespace husk::test {
namespace {

using namespace husk::compiler;

constexpr uint32_t kShards = 10, kPrograms = HUSK_RANDOM_PROGRAMS;  // programs of a shard
constexpr int kRuns = 3, kFailures = 5;

struct Free {
  void operator()(void* memory) const { std::free(memory); }
};
using Memory = std::unique_ptr<uint8_t, Free>;

Memory aligned(const std::vector<uint8_t>& bytes) {
  Memory out(static_cast<uint8_t*>(std::aligned_alloc(64, (bytes.size() + 64) / 64 * 64)));
  if (!bytes.empty()) memcpy(out.get(), bytes.data(), bytes.size());
  return out;
}

// Random inputs. The signature allows most of them, but not all.
std::vector<PlainValue> random_inputs(const Function& f, std::mt19937& random) {
  std::vector<PlainValue> out;
  for (const Value& v : f.inputs) {
    PlainValue value;
    auto within = [&](const Range& r) {
      if (random() % 200 == 0) return r.min - 1;
      const int64_t most = r.max - r.min > 12 ? r.min + 12 : r.max;
      return r.min + static_cast<int64_t>(random() % static_cast<uint64_t>(most - r.min + 1));
    };
    if (v.kind == HUSK_VALUE_TENSOR) {
      for (const Range& r : v.ranges) value.tensor.sizes.push_back(std::max<int64_t>(within(r), 0));
      int64_t step = random() % 20 == 0 ? 2 : 1;
      value.tensor.strides.resize(v.ranges.size());
      for (size_t d = v.ranges.size(); d-- > 0;) {
        value.tensor.strides[d] = step;
        step *= std::max<int64_t>(value.tensor.sizes[d], 1);
      }
      int64_t last = 1;
      for (size_t d = 0; d < v.ranges.size(); ++d)
        last += (value.tensor.sizes[d] - 1) * value.tensor.strides[d];
      for (int64_t size : value.tensor.sizes)
        if (size == 0) last = 0;
      value.tensor.bytes.resize(static_cast<size_t>(last) * husk_dtype_size(v.dtype));
      for (uint8_t& b : value.tensor.bytes) b = static_cast<uint8_t>(random());
    } else if (v.kind == HUSK_VALUE_FLOAT) {
      const double some[] = {0, 1.5, -2.25, 7, 1e10, -0.0, std::nan("")};
      value.number.f = some[random() % std::size(some)];
    } else if (v.kind == HUSK_VALUE_BOOL) {
      value.number.i = random() % 2;
    } else if (v.kind == HUSK_VALUE_INT) {
      value.number.i = v.ranges.empty() ? static_cast<int64_t>(random() % 60) - 10
                                        : within(v.ranges[0]);
    }
    out.push_back(std::move(value));
  }
  return out;
}

struct Release {
  void operator()(husk_engine* h) const { husk_engine_release(h); }
  void operator()(husk_program* h) const { husk_program_release(h); }
  void operator()(husk_session* h) const { husk_session_release(h); }
};

std::unique_ptr<husk_engine, Release> make_engine() {
  husk_engine_options options = HUSK_ENGINE_OPTIONS_INIT;
  options.port = husk_port_host();
  options.allow_host_images = 1;
  // The random ops have no contracts, because they take any arguments.
  husk_engine* engine = nullptr;
  husk_error error = {};
  EXPECT_EQ(husk_engine_create(&options, &engine, &error), HUSK_OK) << error.text;
  for (const husk_op& op : random_ops())
    EXPECT_EQ(husk_engine_add_op(engine, &op, &error), HUSK_OK) << error.text;
  return std::unique_ptr<husk_engine, Release>(engine);
}

// A loaded program with a session. The seed chooses the options of the session.
class Loaded {
 public:
  Loaded(husk_engine* engine, const std::vector<uint8_t>& artifact, std::mt19937& random)
      : bytes_(aligned(artifact)) {
    husk_program* program = nullptr;
    EXPECT_EQ(husk_program_load(engine, bytes_.get(), artifact.size(), nullptr, nullptr, &program,
                                &error),
              HUSK_OK)
        << error.text;
    program_.reset(program);
    if (!program) return;
    husk_session_options options = HUSK_SESSION_OPTIONS_INIT;
    options.mode = HUSK_MODE_LIST;
    options.poison_memory = 1;
    options.parallel_memory_percent = static_cast<int32_t>(random() % 3) * 50 - 50;
    options.bound_limit = random() % 2;  // 1 prevents a plan at the bounds
    husk_session* session = nullptr;
    EXPECT_EQ(husk_session_create(program, &options, &session, &error), HUSK_OK) << error.text;
    session_.reset(session);
  }
  bool good() const { return session_ != nullptr; }

  // Runs the program, which may write its inputs. If `own`, the outputs are in memory of the
  // session.
  husk_status run(const Function& f, std::vector<PlainValue>& inputs, bool own,
                  std::vector<PlainValue>* outputs) {
    std::vector<Memory> memory;
    std::vector<DLTensor> tensors(inputs.size() + f.outputs.size());
    std::vector<husk_value> in(inputs.size()), out(f.outputs.size());
    auto fill_in = [&](DLTensor& t, husk_dtype dtype, PlainTensor& plain) {
      memory.push_back(aligned(plain.bytes));
      t = {memory.back().get(),
           {kDLCPU, 0},
           static_cast<int32_t>(plain.sizes.size()),
           husk_dtype_to_dlpack(dtype),
           plain.sizes.data(),
           plain.strides.data(),
           0};
    };
    for (size_t i = 0; i < inputs.size(); ++i) {
      in[i].kind = f.inputs[i].kind;
      if (in[i].kind == HUSK_VALUE_FLOAT) in[i].as.f = inputs[i].number.f;
      if (in[i].kind == HUSK_VALUE_INT || in[i].kind == HUSK_VALUE_BOOL)
        in[i].as.i = inputs[i].number.i;
      if (in[i].kind != HUSK_VALUE_TENSOR) continue;
      fill_in(tensors[i], f.inputs[i].dtype, inputs[i].tensor);
      in[i].as.tensor = &tensors[i];
    }
    const auto count = static_cast<uint32_t>(in.size());
    if (husk_status status = husk_session_resize(session_.get(), 0, in.data(), count, &error))
      return status;
    outputs->assign(f.outputs.size(), {});
    for (size_t o = 0; o < f.outputs.size(); ++o) {
      out[o].kind = HUSK_VALUE_NONE;
      if (f.outputs[o].kind != HUSK_VALUE_TENSOR || own) continue;
      PlainTensor& plain = (*outputs)[o].tensor;
      plain.sizes.resize(static_cast<size_t>(f.outputs[o].rank));
      plain.strides = plain.sizes;
      husk_error unknown;  // set if the shape depends on data
      if (husk_session_output_shape(session_.get(), 0, static_cast<uint32_t>(o), plain.sizes.data(),
                                    plain.strides.data(), &unknown) != HUSK_OK)
        continue;
      int64_t elements = 1;
      for (int64_t size : plain.sizes) elements *= size;
      if (elements < 0) continue;
      plain.bytes.assign(static_cast<size_t>(elements), 0xDD);
      DLTensor& t = tensors[inputs.size() + o];
      fill_in(t, f.outputs[o].dtype, plain);
      out[o].kind = HUSK_VALUE_TENSOR;
      out[o].as.tensor = &t;
    }
    const husk_status status = husk_session_run(session_.get(), 0, nullptr, in.data(), count,
                                                out.data(), static_cast<uint32_t>(out.size()),
                                                &error);
    if (status != HUSK_OK) return status;
    for (size_t i = 0; i < inputs.size(); ++i) {
      std::vector<uint8_t>& bytes = inputs[i].tensor.bytes;
      if (!bytes.empty()) memcpy(bytes.data(), tensors[i].data, bytes.size());
    }
    for (size_t o = 0; o < out.size(); ++o) take(out[o], f.outputs[o], &(*outputs)[o]);
    return HUSK_OK;
  }

  std::vector<uint8_t> state(uint32_t index) {
    husk_storage_info info = HUSK_STORAGE_INFO_INIT;
    EXPECT_EQ(husk_program_state(program_.get(), index, &info, &error), HUSK_OK);
    std::vector<uint8_t> bytes(info.bytes);
    EXPECT_EQ(husk_session_state_get(session_.get(), index, bytes.data(), &error), HUSK_OK);
    return bytes;
  }
  void reset(uint32_t states) {
    for (uint32_t s = 0; s < states; ++s)
      EXPECT_EQ(husk_session_state_reset(session_.get(), s, &error), HUSK_OK);
  }

  husk_error error = {};

 private:
  static void take(const husk_value& value, const Value& output, PlainValue* to) {
    if (output.kind == HUSK_VALUE_FLOAT) to->number.f = value.as.f;
    if (output.kind == HUSK_VALUE_INT || output.kind == HUSK_VALUE_BOOL) to->number.i = value.as.i;
    if (output.kind != HUSK_VALUE_TENSOR) return;
    const DLTensor& t = *value.as.tensor;
    to->tensor.sizes.assign(t.shape, t.shape + t.ndim);
    int64_t elements = 1;  // these outputs are dense tensors of bytes
    for (int64_t size : to->tensor.sizes) elements *= size;
    const auto* data = static_cast<const uint8_t*>(t.data) + t.byte_offset;
    to->tensor.bytes.assign(data, data + elements);
  }

  Memory bytes_;
  std::unique_ptr<husk_program, Release> program_;
  std::unique_ptr<husk_session, Release> session_;
};

bool same(double a, double b) {
  return std::isnan(a) ? std::isnan(b) : std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b);
}

struct Counts {
  int good = 0, failed = 0, arithmetic = 0, refused = 0;
};

class RandomPrograms : public ::testing::TestWithParam<uint32_t> {
 protected:
  void one(uint32_t seed);
  void text_forms(const std::string& text, const Program& tree);
  void run(const Program& tree, const std::vector<uint8_t>& artifact, std::mt19937& random);
  void compare(const Program& tree, const std::vector<PlainValue>& want,
               const std::vector<PlainValue>& got);
  void expect_refused(const Program& tree, const Error& error, std::mt19937& random);

  std::unique_ptr<husk_engine, Release> engine_ = make_engine();
  Counts counts_;
};

void RandomPrograms::text_forms(const std::string& text, const Program& tree) {
  const std::string printed = print(tree);
  ASSERT_TRUE(parse(printed) == tree);
  ASSERT_EQ(print(parse(printed)), printed);
  const auto once = compile_text(text, HUSK_RANDOM_KERNELS),
             again = compile_text(printed, HUSK_RANDOM_KERNELS);
  ASSERT_EQ(once.index(), again.index());
  if (once.index() != 0) return;
  const auto& bytes = std::get<0>(once);
  ASSERT_TRUE(bytes == std::get<0>(again));
  const Memory copy = aligned(bytes);
  husk_error error = {};
  ASSERT_EQ(husk_program_verify(copy.get(), bytes.size(), &error), HUSK_OK) << error.text;
}

void RandomPrograms::compare(const Program& tree, const std::vector<PlainValue>& want,
                             const std::vector<PlainValue>& got) {
  const Function& f = tree.functions[0];
  for (size_t o = 0; o < want.size(); ++o) {
    SCOPED_TRACE(f.outputs[o].name.text);
    if (f.outputs[o].kind == HUSK_VALUE_BOOL) {
      ASSERT_EQ(got[o].number.i, want[o].number.i != 0);
    } else
      ASSERT_EQ(got[o].number.i, want[o].number.i);
    ASSERT_TRUE(same(got[o].number.f, want[o].number.f))
        << got[o].number.f << " is not " << want[o].number.f;
    ASSERT_EQ(got[o].tensor.sizes, want[o].tensor.sizes);
    ASSERT_EQ(got[o].tensor.bytes, want[o].tensor.bytes);
  }
}

void RandomPrograms::run(const Program& tree, const std::vector<uint8_t>& artifact,
                         std::mt19937& random) {
  const Function& f = tree.functions[0];
  Loaded loaded(engine_.get(), artifact, random);
  ASSERT_TRUE(loaded.good());
  PlainEvaluator plain(tree);
  for (int turn = 0; turn < kRuns; ++turn) {
    SCOPED_TRACE("run " + std::to_string(turn));
    std::vector<PlainValue> inputs = random_inputs(f, random), theirs = inputs, want, got;
    const husk_status status = loaded.run(f, theirs, random() % 2, &got);
    std::string failed;
    bool perhaps = false;
    try {
      want = plain.run(inputs);
      perhaps = plain.doubtful() && status != HUSK_OK;
    } catch (const PlainFailure& failure) {
      failed = failure.why;
      perhaps = failure.arithmetic;
    }
    if (perhaps || !failed.empty()) {
      ++(perhaps ? counts_.arithmetic : counts_.failed);
      // An expression that the compiler simplified may succeed. There is nothing to compare then.
      ASSERT_TRUE(perhaps || status != HUSK_OK) << "must fail: " << failed;
      plain.reset();
      loaded.reset(static_cast<uint32_t>(tree.states.size()));
      continue;
    }
    ASSERT_EQ(status, HUSK_OK) << loaded.error.text;
    ++counts_.good;
    ASSERT_NO_FATAL_FAILURE(compare(tree, want, got));
    for (size_t i = 0; i < inputs.size(); ++i)
      ASSERT_EQ(theirs[i].tensor.bytes, inputs[i].tensor.bytes) << "input " << i;
    for (uint32_t s = 0; s < tree.states.size(); ++s)
      ASSERT_EQ(loaded.state(s), plain.state(tree.states[s].name.text));
  }
}

// If the compiler refuses a program because it always fails, then it fails in the evaluator.
void RandomPrograms::expect_refused(const Program& tree, const Error& error, std::mt19937& random) {
  ++counts_.refused;
  if (error.text.find("divides by zero") != std::string::npos ||
      error.text.find("64 bits") != std::string::npos ||
      error.text.find("shr by a negative") != std::string::npos)
    return;  // the failing number may not be needed in this run
  ASSERT_NE(error.text.find("never"), std::string::npos) << describe(error, "text");
  PlainEvaluator plain(tree);
  for (int turn = 0; turn < kRuns; ++turn) {
    std::vector<PlainValue> inputs = random_inputs(tree.functions[0], random);
    EXPECT_THROW(plain.run(inputs), PlainFailure) << describe(error, "text");
  }
}

void RandomPrograms::one(uint32_t seed) {
  const std::string text = random_program(seed);
  if (std::getenv("HUSK_RANDOM_SEED")) printf("%s", text.c_str());
  std::mt19937 random(seed);
  const Program tree = parse(text);
  ASSERT_NO_FATAL_FAILURE(text_forms(text, tree));
  const auto artifact_or_error = compile_text(text, HUSK_RANDOM_KERNELS);
  if (const Error* error = std::get_if<Error>(&artifact_or_error))
    return expect_refused(tree, *error, random);
  run(tree, std::get<0>(artifact_or_error), random);
}

TEST_P(RandomPrograms, MeanWhatTheirTextSays) {
  const char* only = std::getenv("HUSK_RANDOM_SEED");
  const uint32_t first = only ? static_cast<uint32_t>(std::atoi(only)) : GetParam() * kPrograms;
  const uint32_t end = only ? first + 1 : first + kPrograms;
  int wrong = 0;
  for (uint32_t seed = first; seed < end && wrong < kFailures; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const auto* result = ::testing::UnitTest::GetInstance()->current_test_info()->result();
    const int before = result->total_part_count();
    one(seed);
    wrong += result->total_part_count() > before;
  }
  printf("%d runs compared, %d failed as they must, %d may have failed, %d programs refused\n",
         counts_.good, counts_.failed, counts_.arithmetic, counts_.refused);
  if (!only) {
    EXPECT_GT(counts_.good, kRuns * int(kPrograms) / 2);
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomPrograms, ::testing::Range(0u, kShards));

}  // namespace
}  // namespace husk::test
