// Calls from callbacks, and the order in which a file is looked at.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>

#include "edited_artifact.h"
#include "graph_port.h"
#include "large_program.h"

namespace husk::test {
namespace {

const char* const kAddOne = R"(
constant one f32 [4] bytes "0000803f0000803f0000803f0000803f"
state s f32 [4] fill 0
function f {
  input x tensor f32 [4]
  output y tensor f32 rank 1
  variant cpu {
    buffer x of input bytes 16
    buffer y of output bytes 16
    launch add grid (1, 1, 1) (read x, read one, write y, 4)
    launch add grid (1, 1, 1) (read x, read one, both s, 4)
    return (tensor y f32 [4] [1])
  }
}
)";

// A session whose trace callback calls `act`, once for each step.
struct Traced {
  husk_session* session = nullptr;
  husk_session* other = nullptr;
  husk_program* program = nullptr;
  std::vector<husk_status> statuses;
  std::string text;  // of the last failure
  void (*act)(Traced*) = nullptr;
  std::thread updater;  // joined after the run
  std::atomic<bool> updated{false};
  husk_session_options options = HUSK_SESSION_OPTIONS_INIT;

  void note(husk_status status, const husk_error& error) {
    statuses.push_back(status);
    if (status != HUSK_OK) text = error.text;
  }
  // Runs the session, and returns the status of the run.
  husk_status run(void (*callback)(Traced*)) {
    act = callback;
    options.trace_user = this;
    options.trace = [](void* user, const husk_trace_event*) {
      auto* traced = static_cast<Traced*>(user);
      traced->act(traced);
    };
    Machine m(kAddOne);
    program = m.program;
    husk_error error = {};
    EXPECT_EQ(husk_session_create(m.program, &options, &session, &error), HUSK_OK) << error.text;
    EXPECT_EQ(husk_session_create(m.program, nullptr, &other, &error), HUSK_OK) << error.text;
    Tensor x(HUSK_F32, {4}), y(HUSK_F32, {4});
    husk_value in = x.value(), out = y.value();
    const husk_status status = husk_session_run(session, 0, nullptr, &in, 1, &out, 1, &error);
    if (updater.joinable()) updater.join();
    if (status == HUSK_OK) {
      EXPECT_EQ(y.as<float>()[3], 1.0f);
    }
    if (session) husk_session_release(session);
    husk_session_release(other);
    return status;
  }
};

TEST(Callbacks, TheirOwnSessionIsBusy) {
  Traced traced;
  ASSERT_EQ(traced.run([](Traced* t) {
    husk_error error = {};
    t->note(husk_session_wait(t->session, &error), error);
    Tensor x(HUSK_F32, {4});
    husk_value in = x.value(), out = none();
    t->note(husk_session_run(t->session, 0, nullptr, &in, 1, &out, 1, &error), error);
    t->note(husk_session_resize(t->session, 0, &in, 1, &error), error);
    t->note(husk_session_set_range(t->session, 0, 0, 0, 4, 4, &error), error);
    float bytes[4];
    t->note(husk_session_state_get(t->session, 0, bytes, &error), error);
    t->note(husk_session_state_copy(t->other, 0, t->session, &error), error);
    t->note(husk_session_state_copy(t->session, 0, t->other, &error), error);
  }),
            HUSK_OK);
  ASSERT_EQ(traced.statuses.size(), 14u);  // after each of the two steps
  for (const husk_status status : traced.statuses) EXPECT_EQ(status, HUSK_INVALID_ARGUMENT);
  EXPECT_NE(traced.text.find("the session is in a call already"), std::string::npos) << traced.text;
}

TEST(Callbacks, AnotherSessionRuns) {
  Traced traced;
  ASSERT_EQ(traced.run([](Traced* t) {
    husk_error error = {};
    Tensor x(HUSK_F32, {4});
    husk_value in = x.value(), out = none();
    t->note(husk_session_run(t->other, 0, nullptr, &in, 1, &out, 1, &error), error);
    t->note(husk_session_wait(t->other, &error), error);
  }),
            HUSK_OK);
  EXPECT_EQ(traced.statuses, (std::vector<husk_status>(4, HUSK_OK))) << traced.text;
}

TEST(Callbacks, AnUpdateIsRefused) {
  Traced traced;
  ASSERT_EQ(traced.run([](Traced* t) {
    husk_error error = {};
    const float values[4] = {};
    const husk_constant_update update = {0, 0, values};
    t->note(husk_program_update_constants(t->program, &update, 1, &error), error);
  }),
            HUSK_OK);
  EXPECT_EQ(traced.statuses, (std::vector<husk_status>(2, HUSK_INVALID_ARGUMENT)));
  EXPECT_NE(traced.text.find("constants cannot be updated in a callback"), std::string::npos)
      << traced.text;
}

// The session lives until its run has ended.
TEST(Callbacks, AReleaseWaitsForTheRun) {
  Traced traced;
  EXPECT_EQ(traced.run([](Traced* t) {
    husk_session_release(t->session);
    t->session = nullptr;
  }),
            HUSK_OK);
}

// An update waits for a run whose callback runs another session: neither waits for ever.
TEST(Callbacks, AnUpdateMeanwhileEnds) {
  Traced traced;
  ASSERT_EQ(traced.run([](Traced* t) {
    if (!t->updater.joinable())
      t->updater = std::thread([t] {
        const float ones[4] = {1, 1, 1, 1};
        const husk_constant_update update = {0, 0, ones};
        husk_error error = {};
        EXPECT_EQ(husk_program_update_constants(t->program, &update, 1, &error), HUSK_OK)
            << error.text;
        t->updated = true;
      });
    husk_error error = {};
    Tensor x(HUSK_F32, {4});
    for (int i = 0; i < 200; ++i) {
      husk_value in = x.value(), out = none();
      t->note(husk_session_run(t->other, 0, nullptr, &in, 1, &out, 1, &error), error);
      std::this_thread::yield();
      EXPECT_FALSE(t->updated);  // the run of the callback's session is inside
    }
  }),
            HUSK_OK);
  EXPECT_TRUE(traced.updated);
  EXPECT_EQ(traced.statuses, (std::vector<husk_status>(400, HUSK_OK))) << traced.text;
}

TEST(OpenOrder, TheApplicationAcceptsBeforeTheParserRuns) {
  std::vector<uint8_t> file = artifact(kAddOne);
  std::memset(file.data() + 64, 0xff, 4);  // the offset of FlatBuffers' root
  husk_engine_options options = Machine::defaults();
  static int asked;
  asked = 0;
  options.accept = [](void*, const uint8_t*) { return asked++ < 0 ? 1 : 0; };
  Machine damaged(file, options);
  EXPECT_EQ(damaged.error.code, HUSK_INVALID_FILE);  // the hash is wrong
  EXPECT_EQ(asked, 0);
  write_hash(file);
  Machine refused(file, options);
  EXPECT_NE(std::strstr(refused.error.text, "did not accept"), nullptr) << refused.error.text;
  EXPECT_EQ(asked, 1);
  options.accept = [](void*, const uint8_t*) { return 1; };
  Machine accepted(file, options);
  EXPECT_NE(std::strstr(accepted.error.text, "not a well-formed FlatBuffer"), nullptr)
      << accepted.error.text;
}

TEST(OpenOrder, OnlyRegularFilesAreOpened) {
  Machine m(kAddOne);
  char folder[] = "/tmp/husk-fifo-XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  const std::string fifo = std::string(folder) + "/model.husk";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  const std::string paths[] = {fifo, folder, "/dev/zero"};
  for (const std::string& path : paths) {
    husk_program* program = nullptr;
    husk_error error = {};
    EXPECT_EQ(husk_program_open(m.engine, path.c_str(), &program, &error), HUSK_IO) << path;
    EXPECT_NE(std::strstr(error.text, "is not a regular file"), nullptr) << error.text;
  }
  unlink(fifo.c_str());
  rmdir(folder);
}

TEST(OpenOrder, AnEmptyFileIsNoArtifact) {
  Machine m(kAddOne);
  char path[] = "/tmp/husk-empty-XXXXXX";
  close(mkstemp(path));
  husk_program* program = nullptr;
  husk_error error = {};
  EXPECT_EQ(husk_program_open(m.engine, path, &program, &error), HUSK_INVALID_FILE);
  EXPECT_NE(std::strstr(error.text, "not a Husk artifact"), nullptr) << error.text;
  unlink(path);
}

TEST(Budgets, MetadataAndStates) {
  husk_engine_options options = Machine::defaults();
  options.max_metadata_bytes = 100;
  Machine metadata(kAddOne, options);
  EXPECT_EQ(metadata.error.code, HUSK_LIMIT) << metadata.error.text;
  EXPECT_NE(std::strstr(metadata.error.text, "max_metadata_bytes is 100"), nullptr);
  options = Machine::defaults();
  options.max_state_bytes = 255;
  Machine states(kAddOne, options);
  EXPECT_EQ(states.error.code, HUSK_LIMIT) << states.error.text;
  options.max_state_bytes = 256;
  Machine fits(kAddOne, options);
  EXPECT_NE(fits.session, nullptr) << fits.error.text;
}

const char* const kThreeFills = R"(
function f {
  output y tensor i64 rank 1
  variant cpu {
    buffer y of output bytes 32
    fill i64 (write y, 1)
    fill i64 (write y, 2)
    fill i64 (write y, 3)
    return (tensor y i64 [4] [1])
  }
}
)";

TEST(Budgets, Steps) {
  husk_engine_options options = Machine::defaults();
  options.max_steps = 2;
  const Machine m(kThreeFills, options);
  EXPECT_EQ(m.error.code, HUSK_LIMIT) << m.error.text;
  EXPECT_NE(std::strstr(m.error.text, "'f' has 3 steps, husk_engine_options.max_steps is 2"),
            nullptr)
      << m.error.text;
  options.max_steps = 3;
  const Machine fits(kThreeFills, options);
  EXPECT_NE(fits.session, nullptr) << fits.error.text;
}

// The two tensors have 1000 elements each; all of `x` are one element in memory.
TEST(Budgets, ElementsOfAStep) {
  const char* const program = R"(
function f {
  input x tensor f32 [1]
  output y tensor f32 rank 1
  variant cpu {
    buffer x of input bytes 4
    buffer y of output bytes 4000
    extern "test::op" (read tensor x f32 [1000] [0], write tensor y f32 [1000] [1])
    return (tensor y f32 [1000] [1])
  }
}
)";
  static int calls;
  husk_op op = HUSK_OP_INIT;
  op.name = "test::op";
  op.call = [](const husk_op_context*, const husk_op_arg*, uint32_t, husk_error*) {
    ++calls;
    return husk_status{HUSK_OK};
  };
  op.contract = "x y:w";
  for (const uint64_t limit : {1999u, 2000u, 0u}) {
    calls = 0;
    husk_engine_options options = Machine::defaults();
    options.max_step_elements = limit;
    Machine m(program, options, nullptr, {op});
    ASSERT_NE(m.session, nullptr) << m.error.text;
    Tensor x(HUSK_F32, {1}), y(HUSK_F32, {1000});
    const bool fits = limit != 1999;
    EXPECT_EQ(m.run({x.value()}, {y.value()}), fits ? HUSK_OK : HUSK_LIMIT) << m.error.text;
    EXPECT_EQ(calls, fits ? 1 : 0);
    if (!fits) {
      EXPECT_NE(std::strstr(m.error.text, "husk_engine_options.max_step_elements"), nullptr);
    }
  }
}

// The run ends before the step at which the application says so, and the session stays usable.
TEST(Budgets, ARunIsCancelledBetweenSteps) {
  int steps = 100;
  husk_engine_options options = Machine::defaults();
  options.cancel = [](void* user) -> int32_t { return (*static_cast<int*>(user))-- <= 0; };
  options.cancel_user = &steps;
  Machine m(kThreeFills, options);
  ASSERT_NE(m.session, nullptr) << m.error.text;
  Tensor y(HUSK_I64, {4});
  for (const int allowed : {0, 1, 2, 100}) {
    y.as<int64_t>()[0] = 0;
    steps = allowed;
    EXPECT_EQ(m.run({}, {y.value()}), allowed < 3 ? HUSK_CANCELLED : HUSK_OK) << m.error.text;
    EXPECT_EQ(y.as<int64_t>()[0], std::min(allowed, 3));
  }
  EXPECT_STREQ(husk_status_name(HUSK_CANCELLED), "cancelled");
}

// The application is asked within a large copy and a large fill of host memory.
TEST(Budgets, ACopyOfManyBytesIsCancelled) {
  int questions = 0;
  husk_engine_options options = Machine::defaults();
  options.cancel = [](void* user) -> int32_t { return (*static_cast<int*>(user))-- <= 0; };
  options.cancel_user = &questions;
  Machine m(R"(
function f {
  input x tensor u8 [41943040]
  output y tensor u8 rank 1
  output z tensor i64 rank 1
  variant cpu {
    buffer x of input bytes 41943040
    buffer y of output bytes 41943040
    buffer z of output bytes 41943040
    copy (write y, read x)
    fill i64 (write z, 7)
    return (tensor y u8 [41943040] [1], tensor z i64 [5242880] [1])
  }
}
)",
            options);
  ASSERT_NE(m.session, nullptr) << m.error.text;
  constexpr size_t kBlock = 16 << 20, kBytes = 40 << 20;
  Tensor x(HUSK_U8, {kBytes}), y(HUSK_U8, {kBytes}), z(HUSK_I64, {kBytes / 8});
  std::fill_n(x.as<uint8_t>(), kBytes, uint8_t{1});
  const auto written = [](const auto* data, size_t count, auto value) {
    return std::find_if(data, data + count, [&](auto each) { return each != value; }) - data;
  };
  // One question before each step, and two within each.
  for (const int allowed : {0, 1, 2, 3, 4, 5, 6}) {
    std::fill_n(y.as<uint8_t>(), kBytes, uint8_t{0});
    std::fill_n(z.as<int64_t>(), kBytes / 8, 0);
    questions = allowed;
    EXPECT_EQ(m.run({x.value()}, {y.value(), z.value()}), allowed < 6 ? HUSK_CANCELLED : HUSK_OK);
    EXPECT_EQ(written(y.as<uint8_t>(), kBytes, 1), std::min(allowed * kBlock, kBytes));
    EXPECT_EQ(written(z.as<int64_t>(), kBytes / 8, 7),
              allowed < 4 ? 0 : std::min((allowed - 3) * kBlock, kBytes) / 8);
  }
}

// A graph is launched as a whole, after the callback was asked.
TEST(Budgets, ARunIsCancelledBeforeAGraph) {
  struct Questions {
    int32_t asked = 0, answer = 0;
  } questions;
  husk_engine_options options = Machine::defaults();
  options.port = graph_port();
  options.cancel = [](void* user) {
    auto* q = static_cast<Questions*>(user);
    ++q->asked;
    return q->answer;
  };
  options.cancel_user = &questions;
  Machine m(R"(
function f {
  input x tensor f32 [4]
  output y tensor f32 rank 1
  variant cpu {
    buffer x of input bytes 16
    buffer y of output bytes 16
    buffer z bytes 16 align 64
    copy (write z, read x)
    copy (write y, read z)
    return (tensor y f32 [4] [1])
  }
}
)",
            options);
  ASSERT_NE(m.session, nullptr) << m.error.text;
  float ones[4] = {1, 1, 1, 1}, zeros[4] = {};
  Tensor x(HUSK_F32, {4}, ones), y(HUSK_F32, {4}, zeros);
  ASSERT_EQ(m.resize({x.value()}), HUSK_OK) << m.error.text;
  questions = {0, 1};
  EXPECT_EQ(m.run({x.value()}, {y.value()}), HUSK_CANCELLED);
  EXPECT_EQ(questions.asked, 1);
  EXPECT_EQ(zeros[0], 0.0f);
  questions = {0, 0};
  ASSERT_EQ(m.run({x.value()}, {y.value()}), HUSK_OK) << m.error.text;
  EXPECT_EQ(questions.asked, 1);
  EXPECT_EQ(zeros[3], 1.0f);
  husk_session_stats stats = HUSK_SESSION_STATS_INIT;
  ASSERT_EQ(husk_session_stats_get(m.session, 0, &stats, nullptr), HUSK_OK);
  EXPECT_EQ(stats.runs_as_graph, 1u);
  EXPECT_EQ(stats.runs_as_list, 0u);
}

TEST(Budgets, ALoopWithoutStepsIsCancelled) {
  int turns = 1000;
  husk_engine_options options = Machine::defaults();
  options.cancel = [](void* user) -> int32_t { return (*static_cast<int*>(user))-- <= 0; };
  options.cancel_user = &turns;
  LargeVariant v;
  const uint32_t one = v.number(1);
  v.segment();
  v.segment(one, 1);
  Machine m(large_file(v), options);
  ASSERT_NE(m.session, nullptr) << m.error.text;
  EXPECT_EQ(m.run({}, {}), HUSK_CANCELLED) << m.error.text;
}

// An op gets the callback, so that it can end early.
TEST(Budgets, OpsGetTheCallback) {
  husk_op op = HUSK_OP_INIT;
  op.name = "test::op";
  op.call = [](const husk_op_context* context, const husk_op_arg*, uint32_t, husk_error* error) {
    error->code = HUSK_CANCELLED;
    return HUSK_HAS_FIELD(context, cancel_user) && context->cancel(context->cancel_user)
               ? husk_status{HUSK_CANCELLED}
               : husk_status{HUSK_OK};
  };
  op.contract = "";
  int asked = 0;
  husk_engine_options options = Machine::defaults();
  options.cancel = [](void* user) -> int32_t { return ++*static_cast<int*>(user) == 2; };
  options.cancel_user = &asked;
  Machine m("function f { variant cpu { extern \"test::op\" () return () } }", options, nullptr,
            {op});
  ASSERT_NE(m.session, nullptr) << m.error.text;
  EXPECT_EQ(m.run({}, {}), HUSK_CANCELLED);
  EXPECT_EQ(asked, 2);
}

// Before the call of an op that writes many tensors of one buffer, Husk compares each pair of them,
// and asks meanwhile.
TEST(Budgets, ComparisonsOfTensorsHearTheCallback) {
  static int called;
  called = 0;
  husk_op op = HUSK_OP_INIT;
  op.name = "test::op";
  op.call = [](const husk_op_context*, const husk_op_arg*, uint32_t, husk_error*) {
    ++called;
    return husk_status{HUSK_OK};
  };
  op.contract = "out:w";
  std::string items;
  for (int i = 0; i < 40; ++i)
    items += (i ? ", write tensor t f32 [4] [1] offset " : "write tensor t f32 [4] [1] offset ") +
             std::to_string(4 * i);
  const std::string text =
      "function f { variant cpu { buffer t bytes 640 align 64\n"
      "extern \"test::op\" (tensors [" +
      items + "])\nreturn () } }";
  struct Answers {
    int asked, last;
  } answers = {0, 0};
  husk_engine_options options = Machine::defaults();
  options.cancel = [](void* user) -> int32_t {
    auto* a = static_cast<Answers*>(user);
    return ++a->asked == a->last;
  };
  options.cancel_user = &answers;
  Machine m(text, options, nullptr, {op});
  ASSERT_NE(m.session, nullptr) << m.error.text;
  EXPECT_EQ(m.run({}, {}), HUSK_OK) << m.error.text;
  EXPECT_GE(answers.asked, 40 * 40 / 64);
  EXPECT_EQ(called, 1);
  answers = {0, 10};
  Machine other(text, options, nullptr, {op});
  EXPECT_EQ(other.run({}, {}), HUSK_CANCELLED);
  EXPECT_EQ(answers.asked, 10);
  EXPECT_EQ(called, 1);
  answers = {0, 10};
  EXPECT_EQ(other.resize({}), HUSK_CANCELLED);
  answers = {0, 0};
  EXPECT_EQ(other.run({}, {}), HUSK_OK) << other.error.text;
  EXPECT_EQ(called, 2);
}

// The sum of these sizes, each aligned, is 256 in 64 bits.
TEST(Budgets, ASumOfStatesThatWraps) {
  Machine m(R"(
state a u8 [9223372036854775807] fill 0
state b u8 [9223372036854775807] fill 0
state c u8 [1] fill 0
function f { variant cpu { return () } }
)");
  EXPECT_EQ(m.error.code, HUSK_LIMIT) << m.error.text;
  EXPECT_EQ(m.session, nullptr);
}

}  // namespace
}  // namespace husk::test
