// The C ABI apart from runs: ranges, external arenas, copies of inputs and states, updates of
// constants, lifetimes, husk.hpp.
#include <cstring>
#include <numeric>
#include <string>

#include <husk/husk.hpp>

#include "fixture.h"

extern "C" const unsigned char husk_linked[];  // linked.hir

namespace husk::test {
namespace {

// y = x + w, and a counter. If `twice` is true, x is doubled in place.
const char* const kModel = R"(
user "author" "a test"
constant w f32 [4] bytes "0000803f000000400000404000008040"
state ticks i64 [] fill 0
state memory f32 [4] constant w
function f {
  input x tensor f32 [4, 1..1000]
  output y tensor f32 rank 1
  variant cpu {
    let n = size(x, 1)
    buffer x of input bytes mul(n, 16) align 64
    buffer y of output bytes 16
    buffer t bytes mul(n, 16) align 64
    launch scale grid (1, 1, 1) (read x, write t, 1.0, mul(n, 4)) at "model.py:1 t"
    launch add grid (1, 1, 1) (read t, read w, write y, 4) at "model.py:2 y"
    launch count grid (1, 1, 1) (both ticks)
    launch add grid (1, 1, 1) (read memory, read memory, both memory, 4)
    return (tensor y f32 [4] [1])
  }
}
function in_place {
  input x tensor f32 [4]
  output nothing none
  variant cpu {
    buffer x of input bytes 16 align 64
    buffer t bytes 16 align 64
    launch scale grid (1, 1, 1) (read x, write t, 2.0, 4)
    launch scale grid (1, 1, 1) (read t, write x, 1.0, 4)
    return (none)
  }
}
)";

struct Floats {
  alignas(64) float data[4096] = {};
  Floats() { std::iota(data, data + 4096, 0.0f); }
};

TEST(Api, ASessionNarrowsBounds) {
  Machine m(kModel);
  ASSERT_NE(m.session, nullptr) << m.error.text;
  EXPECT_EQ(husk_session_arena_bytes(m.session), 16000u);
  Floats x;
  Tensor large(HUSK_F32, {4, 1000}, x.data), little(HUSK_F32, {4, 8}, x.data), y(HUSK_F32, {4});
  ASSERT_EQ(m.run({large.value()}, {y.value()}), HUSK_OK) << m.error.text;
  ASSERT_EQ(husk_session_set_range(m.session, 0, 0, 1, 2, 8, &m.error), HUSK_OK) << m.error.text;
  husk_session_stats stats = HUSK_SESSION_STATS_INIT;
  ASSERT_EQ(husk_session_stats_get(m.session, 0, &stats, nullptr), HUSK_OK);
  EXPECT_EQ(stats.arena_bytes, 128u);
  EXPECT_EQ(m.run({large.value()}, {y.value()}), HUSK_INVALID_INPUT);
  EXPECT_NE(std::strstr(m.error.text, "must be in 2..8: husk_session_set_range narrowed it"),
            nullptr)
      << m.error.text;
  EXPECT_EQ(m.run({little.value()}, {y.value()}), HUSK_OK) << m.error.text;
  EXPECT_EQ(husk_session_set_range(m.session, 0, 0, 1, 0, 8, &m.error), HUSK_INVALID_ARGUMENT);
  EXPECT_NE(std::strstr(m.error.text, "does not lie in the file's, 1..1000"), nullptr)
      << m.error.text;
  EXPECT_EQ(husk_session_set_range(m.session, 0, 0, 1, 1, 1001, &m.error), HUSK_INVALID_ARGUMENT);
  EXPECT_EQ(husk_session_set_range(m.session, 0, 0, 1, 8, 7, &m.error), HUSK_INVALID_ARGUMENT);
  EXPECT_EQ(husk_session_set_range(m.session, 0, 0, 2, 1, 8, &m.error), HUSK_INVALID_ARGUMENT);
  EXPECT_NE(std::strstr(m.error.text, "input 'x' has no dim 2 with a range"), nullptr)
      << m.error.text;
  EXPECT_EQ(husk_session_set_range(m.session, 0, 1, 0, 1, 8, &m.error), HUSK_INVALID_ARGUMENT);
  EXPECT_EQ(husk_session_set_range(m.session, 2, 0, 0, 1, 8, &m.error), HUSK_INVALID_ARGUMENT);
}

TEST(Api, TheArenaMayBeLent) {
  husk_session_options options = HUSK_SESSION_OPTIONS_INIT;
  options.external_arena = 1;
  Machine m(kModel, Machine::defaults(), &options);
  ASSERT_NE(m.session, nullptr) << m.error.text;
  Floats x;
  Tensor in(HUSK_F32, {4, 8}, x.data), y(HUSK_F32, {4});
  EXPECT_EQ(m.run({in.value()}, {y.value()}), HUSK_NEEDS_RESIZE);
  EXPECT_NE(std::strstr(m.error.text, "husk_session_set_arena with more first"), nullptr)
      << m.error.text;
  const uint64_t bytes = husk_session_arena_bytes(m.session);
  EXPECT_EQ(bytes, 16000u);
  alignas(256) static uint8_t memory[16384 + 256];
  EXPECT_EQ(husk_session_set_arena(m.session, memory + 8, bytes, &m.error), HUSK_INVALID_ARGUMENT);
  EXPECT_EQ(husk_session_set_arena(m.session, nullptr, bytes, &m.error), HUSK_INVALID_ARGUMENT);
  for (uint8_t* arena : {memory, memory + 256}) {
    ASSERT_EQ(husk_session_set_arena(m.session, arena, bytes, &m.error), HUSK_OK) << m.error.text;
    ASSERT_EQ(m.run({in.value()}, {y.value()}), HUSK_OK) << m.error.text;
    EXPECT_EQ(y.as<float>()[3], 3 + 4.0f);
    EXPECT_EQ(std::memcmp(arena, x.data, 128), 0) << "the buffer lies in the lent memory";
  }
  Machine own(kModel);
  EXPECT_EQ(husk_session_set_arena(own.session, memory, bytes, &own.error), HUSK_INVALID_ARGUMENT);
}

TEST(Api, MisalignedInputsAreCopied) {
  Machine strict(kModel);
  husk_session_options options = HUSK_SESSION_OPTIONS_INIT;
  options.copy_misaligned = 1;
  Machine m(kModel, Machine::defaults(), &options);
  ASSERT_NE(m.session, nullptr) << m.error.text;
  Floats x;
  Tensor odd(HUSK_F32, {4, 8}, x.data + 1), y(HUSK_F32, {4}), even(HUSK_F32, {4, 8}, x.data);
  EXPECT_EQ(strict.run({odd.value()}, {y.value()}), HUSK_INVALID_INPUT);
  EXPECT_NE(std::strstr(strict.error.text, "set husk_session_options.copy_misaligned"), nullptr)
      << strict.error.text;
  ASSERT_EQ(m.run({odd.value()}, {y.value()}), HUSK_OK) << m.error.text;
  EXPECT_EQ(y.as<float>()[0], 1 + 1.0f);
  ASSERT_EQ(m.run({even.value()}, {y.value()}), HUSK_OK) << m.error.text;
  EXPECT_EQ(y.as<float>()[0], 0 + 1.0f);
  Tensor written(HUSK_F32, {4}, x.data + 3);
  ASSERT_EQ(m.run({written.value()}, {none()}, 1), HUSK_OK) << m.error.text;
  for (int i = 0; i < 4; ++i)
    EXPECT_EQ(x.data[3 + i], 2.0f * static_cast<float>(3 + i)) << "what was written goes back";
  EXPECT_EQ(x.data[7], 7.0f);
}

TEST(Api, StatesAreCopiedBetweenSessions) {
  Machine m(kModel);
  ASSERT_NE(m.session, nullptr) << m.error.text;
  husk_session* other = nullptr;
  ASSERT_EQ(husk_session_create(m.program, nullptr, &other, &m.error), HUSK_OK) << m.error.text;
  Floats x;
  Tensor in(HUSK_F32, {4, 2}, x.data), y(HUSK_F32, {4});
  for (int i = 0; i < 3; ++i) ASSERT_EQ(m.run({in.value()}, {y.value()}), HUSK_OK);
  uint32_t ticks = 9;
  ASSERT_EQ(husk_program_find_state(m.program, "ticks", &ticks, &m.error), HUSK_OK);
  EXPECT_EQ(husk_program_find_state(m.program, "tocks", &ticks, &m.error), HUSK_NOT_FOUND);
  int64_t count = -1;
  ASSERT_EQ(husk_session_state_get(other, ticks, &count, nullptr), HUSK_OK);
  EXPECT_EQ(count, 0);
  ASSERT_EQ(husk_session_state_copy(other, ticks, m.session, &m.error), HUSK_OK) << m.error.text;
  ASSERT_EQ(husk_session_state_get(other, ticks, &count, nullptr), HUSK_OK);
  EXPECT_EQ(count, 3);
  Machine stranger(kModel);
  EXPECT_EQ(husk_session_state_copy(other, ticks, stranger.session, &m.error),
            HUSK_INVALID_ARGUMENT);
  EXPECT_EQ(husk_session_state_copy(other, 77, m.session, &m.error), HUSK_INVALID_ARGUMENT);
  husk_session_release(other);
}

TEST(Api, ConstantsAreUpdated) {
  Machine m(kModel);
  ASSERT_NE(m.session, nullptr) << m.error.text;
  Floats x;
  Tensor in(HUSK_F32, {4, 2}, x.data), y(HUSK_F32, {4});
  ASSERT_EQ(m.run({in.value()}, {y.value()}), HUSK_OK);
  EXPECT_EQ(y.as<float>()[1], 1 + 2.0f);
  husk_storage_info info = HUSK_STORAGE_INFO_INIT;
  ASSERT_EQ(husk_program_constant_count(m.program), 1u);
  ASSERT_EQ(husk_program_constant(m.program, 0, &info, nullptr), HUSK_OK);
  EXPECT_STREQ(info.name, "w");
  EXPECT_EQ(info.dtype, HUSK_F32);
  EXPECT_EQ(info.bytes, 16u);
  EXPECT_EQ(info.dims[0], 4);
  for (float base : {100.0f, 200.0f}) {
    const float values[4] = {base, base, base, base};
    const husk_constant_update update = {0, 0, values};
    ASSERT_EQ(husk_program_update_constants(m.program, &update, 1, &m.error), HUSK_OK)
        << m.error.text;
    ASSERT_EQ(m.run({in.value()}, {y.value()}), HUSK_OK) << m.error.text;
    EXPECT_EQ(y.as<float>()[1], 1 + base);
  }
  float memory[4];
  ASSERT_EQ(husk_session_state_get(m.session, 1, memory, nullptr), HUSK_OK);
  EXPECT_EQ(memory[0], 8.0f) << "three runs doubled 1";
  ASSERT_EQ(husk_session_state_reset(m.session, 1, nullptr), HUSK_OK);
  ASSERT_EQ(husk_session_state_get(m.session, 1, memory, nullptr), HUSK_OK);
  EXPECT_EQ(memory[0], 200.0f);
  const husk_constant_update wrong = {7, 0, memory}, empty = {0, 0, nullptr};
  EXPECT_EQ(husk_program_update_constants(m.program, &wrong, 1, &m.error), HUSK_INVALID_ARGUMENT);
  EXPECT_EQ(husk_program_update_constants(m.program, &empty, 1, &m.error), HUSK_INVALID_ARGUMENT);
  EXPECT_NE(std::strstr(m.error.text, "or its bytes are NULL"), nullptr) << m.error.text;
}

TEST(Api, PartsOfConstantsAreUpdated) {
  Machine m(kModel);
  ASSERT_NE(m.session, nullptr) << m.error.text;
  Floats x;
  Tensor in(HUSK_F32, {4, 2}, x.data), y(HUSK_F32, {4});
  const auto sums = [&] {
    EXPECT_EQ(m.run({in.value()}, {y.value()}), HUSK_OK) << m.error.text;
    return std::vector<float>(y.as<float>(), y.as<float>() + 4);
  };
  EXPECT_EQ(sums(), (std::vector<float>{1, 3, 5, 7}));
  const float values[4] = {10, 20, 30, 40};
  const husk_constant_part two = {0, 0, values + 1, 4, 8};
  ASSERT_EQ(husk_program_update_constant_parts(m.program, &two, 1, &m.error), HUSK_OK)
      << m.error.text;
  EXPECT_EQ(sums(), (std::vector<float>{1, 21, 32, 7}));
  // Several parts of one constant; the last one holds where they overlap.
  const husk_constant_part several[] = {{0, 0, values, 0, 4},
                                        {0, 0, values, 12, 4},
                                        {0, 0, values + 3, 12, 4},
                                        {0, 0, values, 16, 0}};
  ASSERT_EQ(husk_program_update_constant_parts(m.program, several, 4, &m.error), HUSK_OK)
      << m.error.text;
  EXPECT_EQ(sums(), (std::vector<float>{10, 21, 32, 43}));
  const husk_constant_part over[] = {{0, 0, values, 0, 16}, {0, 0, values, 4, 4}};
  ASSERT_EQ(husk_program_update_constant_parts(m.program, over, 2, &m.error), HUSK_OK);
  EXPECT_EQ(sums(), (std::vector<float>{10, 11, 32, 43}));
  const uint64_t huge = ~uint64_t{0};
  for (const auto& [offset, size] : {std::pair<uint64_t, uint64_t>{0, 17},
                                     {13, 4},
                                     {17, 0},
                                     {huge, 2},
                                     {2, huge},
                                     {4, huge - 3}}) {
    const husk_constant_part wrong[] = {{0, 0, values, 0, 16}, {0, 0, values, offset, size}};
    EXPECT_EQ(husk_program_update_constant_parts(m.program, wrong, 2, &m.error),
              HUSK_INVALID_ARGUMENT);
    EXPECT_NE(std::strstr(m.error.text, "no part of constant 'w', which has 16"), nullptr)
        << m.error.text;
  }
  EXPECT_EQ(husk_program_update_constant_parts(m.program, nullptr, 1, &m.error),
            HUSK_INVALID_ARGUMENT);
  EXPECT_EQ(husk_program_update_constant_parts(nullptr, &two, 1, &m.error), HUSK_INVALID_ARGUMENT);
  EXPECT_EQ(husk_program_update_constant_parts(m.program, nullptr, 0, &m.error), HUSK_OK);
  EXPECT_EQ(sums(), (std::vector<float>{10, 11, 32, 43}));
}

TEST(Api, TiedNamesAreFound) {
  Machine m(std::string("user \"husk.tied.head\" \"w\"\nuser \"husk.tied.lost\" \"v\"\n") + kModel);
  ASSERT_NE(m.session, nullptr) << m.error.text;
  uint32_t constant = 7;
  ASSERT_EQ(husk_program_find_constant(m.program, "head", &constant, &m.error), HUSK_OK);
  EXPECT_EQ(constant, 0u);
  for (const char* name : {"lost", "husk.tied.head", "hea", "heads"}) {
    EXPECT_EQ(husk_program_find_constant(m.program, name, &constant, &m.error), HUSK_NOT_FOUND);
    const std::string said = std::string("no constant '") + name + "'";
    EXPECT_NE(std::strstr(m.error.text, said.c_str()), nullptr) << m.error.text;
  }
}

TEST(Api, StepsAreTraced) {
  husk_session_options options = HUSK_SESSION_OPTIONS_INIT;
  std::string said;
  options.trace_user = &said;
  options.trace = [](void* user, const husk_trace_event* e) {
    *static_cast<std::string*>(user) += std::to_string(e->step) + " " + e->kind + " " + e->name +
                                        " " + e->origin + ";";
  };
  Machine m(kModel, Machine::defaults(), &options);
  ASSERT_NE(m.session, nullptr) << m.error.text;
  Floats x;
  Tensor in(HUSK_F32, {4, 2}, x.data), y(HUSK_F32, {4});
  ASSERT_EQ(m.run({in.value()}, {y.value()}), HUSK_OK) << m.error.text;
  EXPECT_EQ(said,
            "0 launch scale model.py:1 t;1 launch add model.py:2 y;2 launch count ;3 launch add ;");
}

TEST(Api, AnEngineAllocatesAndCopies) {
  Machine m(kModel);
  husk_error error = {};
  void* memory = nullptr;
  ASSERT_EQ(husk_engine_alloc(m.engine, 16, &memory, &error), HUSK_OK) << error.text;
  EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % 256, 0u);
  const float from[] = {1, 2, 3, 4};
  float to[4] = {};
  EXPECT_EQ(husk_engine_upload(m.engine, nullptr, memory, from, 16, &error), HUSK_OK);
  EXPECT_EQ(husk_engine_download(m.engine, nullptr, to, memory, 16, &error), HUSK_OK);
  EXPECT_EQ(std::memcmp(from, to, 16), 0);
  EXPECT_EQ(husk_engine_upload(m.engine, nullptr, nullptr, nullptr, 0, nullptr), HUSK_OK);
  EXPECT_EQ(husk_engine_alloc(m.engine, 16, nullptr, &error), HUSK_INVALID_ARGUMENT);
  EXPECT_EQ(husk_engine_alloc(nullptr, 16, &memory, nullptr), HUSK_INVALID_ARGUMENT);
  EXPECT_EQ(husk_engine_upload(m.engine, nullptr, nullptr, from, 16, &error),
            HUSK_INVALID_ARGUMENT);
  EXPECT_EQ(husk_engine_download(m.engine, nullptr, nullptr, memory, 16, &error),
            HUSK_INVALID_ARGUMENT);
  husk_engine_free(m.engine, memory);
  husk_engine_free(m.engine, nullptr);
  for (const uint64_t bytes : {UINT64_MAX, UINT64_MAX / 2, (uint64_t{1} << 48) + 1}) {
    memory = to;
    EXPECT_EQ(husk_engine_alloc(m.engine, bytes, &memory, &error), HUSK_OUT_OF_MEMORY);
    EXPECT_EQ(memory, nullptr);
  }
}

// On a host the memory is like any other, a copy is done when the call returns, and a mark is the
// end of all work.
TEST(Api, AHostCopiesAndMarksAtOnce) {
  Machine m(kModel);
  husk_error error = {};
  void *memory = nullptr, *other = nullptr;
  ASSERT_EQ(husk_engine_alloc_host(m.engine, 16, &memory, &error), HUSK_OK) << error.text;
  ASSERT_EQ(husk_engine_alloc(m.engine, 16, &other, &error), HUSK_OK) << error.text;
  EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % 256, 0u);
  std::memcpy(memory, "0123456789abcde", 16);
  ASSERT_EQ(husk_engine_copy(m.engine, nullptr, other, memory, 16, &error), HUSK_OK);
  EXPECT_STREQ(static_cast<char*>(other), "0123456789abcde");
  for (uint32_t mark = 0; mark < HUSK_SESSION_MARKS; ++mark) {
    EXPECT_EQ(husk_session_mark(m.session, mark, &error), HUSK_OK) << error.text;
    EXPECT_EQ(husk_session_wait_mark(m.session, mark, &error), HUSK_OK) << error.text;
  }
  EXPECT_EQ(husk_session_mark(m.session, HUSK_SESSION_MARKS, &error), HUSK_INVALID_ARGUMENT);
  EXPECT_EQ(husk_session_mark(nullptr, 0, &error), HUSK_INVALID_ARGUMENT);
  EXPECT_NE(std::strstr(error.text, "session_mark"), nullptr) << error.text;
  EXPECT_EQ(husk_session_wait_mark(nullptr, 0, &error), HUSK_INVALID_ARGUMENT);
  EXPECT_EQ(husk_engine_copy(nullptr, nullptr, other, memory, 16, &error), HUSK_INVALID_ARGUMENT);
  husk_engine_free_host(m.engine, memory);
  EXPECT_EQ(husk_engine_alloc_host(m.engine, UINT64_MAX, &memory, &error), HUSK_OUT_OF_MEMORY);
  EXPECT_EQ(memory, nullptr);
  husk_engine_free_host(m.engine, nullptr);
  husk_engine_free_host(nullptr, nullptr);
  ASSERT_EQ(husk_engine_alloc_host(m.engine, 0, &memory, &error), HUSK_OK) << error.text;
  husk_engine_free_host(m.engine, memory);
  husk_engine_free(m.engine, other);
}

TEST(Api, AnEngineMakesStreams) {
  Machine m(kModel);
  husk_error error = {};
  int nothing = 0;
  void* stream = &nothing;
  EXPECT_EQ(husk_engine_stream_create(nullptr, &stream, &error), HUSK_INVALID_ARGUMENT);
  EXPECT_EQ(stream, nullptr);
  EXPECT_NE(std::strstr(error.text, "engine_stream_create"), nullptr) << error.text;
  EXPECT_EQ(husk_engine_stream_create(m.engine, nullptr, &error), HUSK_INVALID_ARGUMENT);
  ASSERT_EQ(husk_engine_stream_create(m.engine, &stream, &error), HUSK_OK) << error.text;
  husk_engine_stream_destroy(m.engine, stream);
  husk_engine_stream_destroy(m.engine, nullptr);
  husk_engine_stream_destroy(nullptr, nullptr);
}

TEST(Api, AnEngineHasAPort) {
  const husk_engine_options options = HUSK_ENGINE_OPTIONS_INIT;
  husk_engine* engine = nullptr;
  husk_error error = {};
  EXPECT_EQ(husk_engine_create(&options, &engine, &error), HUSK_INVALID_ARGUMENT);
  EXPECT_NE(std::strstr(error.text, "husk_engine_options.port is NULL"), nullptr) << error.text;
}

TEST(Api, HandlesAreReleasedInAnyOrder) {
  const Aligned bytes(artifact(kModel));
  for (int order = 0; order < 6; ++order) {
    husk_engine_options options = Machine::defaults();
    husk_engine* engine = nullptr;
    husk_program* program = nullptr;
    husk_session* session = nullptr;
    husk_error error = {};
    int released = 0;
    ASSERT_EQ(husk_engine_create(&options, &engine, &error), HUSK_OK);
    ASSERT_EQ(husk_program_load(
                  engine, bytes.data(), bytes.size(),
                  [](void* user, const void*) { ++*static_cast<int*>(user); }, &released, &program,
                  &error),
              HUSK_OK)
        << error.text;
    ASSERT_EQ(husk_session_create(program, nullptr, &session, &error), HUSK_OK);
    const int orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    bool lives[3] = {true, true, true};
    for (int which : orders[order]) {
      EXPECT_EQ(released, lives[1] || lives[2] ? 0 : 1)
          << "the memory is borrowed while a program or session lives";
      lives[which] = false;
      if (which == 0) husk_engine_release(engine);
      if (which == 1) husk_program_release(program);
      if (which == 2) husk_session_release(session);
    }
    EXPECT_EQ(released, 1);
  }
  husk_engine_release(nullptr);
  husk_program_release(nullptr);
  husk_session_release(nullptr);
}

TEST(Api, TheAuthorsWordsAreRead) {
  Machine m(kModel);
  ASSERT_EQ(husk_program_metadata_count(m.program), 1u);
  EXPECT_STREQ(husk_program_metadata_key(m.program, 0), "author");
  EXPECT_STREQ(husk_program_metadata_value(m.program, 0), "a test");
  EXPECT_STREQ(husk_program_metadata_value(m.program, 1), "");
}

TEST(Api, AnArtifactIsLinkedIn) {
  husk_engine_options options = Machine::defaults();
  husk_engine* engine = nullptr;
  husk_program* program = nullptr;
  husk_session* session = nullptr;
  husk_error error = {};
  ASSERT_EQ(husk_engine_create(&options, &engine, &error), HUSK_OK);
  ASSERT_EQ(husk_program_link(engine, husk_linked, &program, &error), HUSK_OK) << error.text;
  husk_program* const kept = program;
  ASSERT_EQ(husk_session_create(program, nullptr, &session, &error), HUSK_OK) << error.text;
  const husk_value in = integer(41);
  husk_value out = integer(0);
  ASSERT_EQ(husk_session_run(session, 0, nullptr, &in, 1, &out, 1, &error), HUSK_OK) << error.text;
  EXPECT_EQ(out.as.i, 42);
  EXPECT_EQ(husk_program_link(engine, nullptr, &program, &error), HUSK_INVALID_ARGUMENT);
  husk_session_release(session);
  husk_program_release(kept);
  husk_engine_release(engine);
}

TEST(Hpp, RunsAProgram) {
  const Aligned bytes(artifact(kModel));
  Engine engine(Machine::defaults());
  Program program(engine, bytes.data(), bytes.size());
  Session session(program), other(program);
  Floats x;
  husk::Tensor in(x.data, {4, 2});
  std::vector<Value> outputs = session.run({in});
  ASSERT_EQ(outputs.size(), 1u);
  EXPECT_EQ(static_cast<float*>(outputs[0].tensor()->data)[2], 2 + 3.0f);
  float mine[4];
  husk::Tensor out(mine, {4});
  outputs = {out};
  session.run({in}, outputs);
  session.wait();
  EXPECT_EQ(mine[3], 3 + 4.0f);
  int64_t ticks = 0;
  other.state_copy(program.state("ticks"), session);
  other.state_get(program.state("ticks"), &ticks);
  EXPECT_EQ(ticks, 2);
  EXPECT_EQ(session.stats().steps, 4u);
  EXPECT_EQ(program.input(0).alignment, 64u);
  try {
    session.run({Value(3)});
    FAIL() << "an int is no tensor";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), HUSK_INVALID_INPUT);
    EXPECT_NE(std::strstr(error.what(), "must be a tensor"), nullptr) << error.what();
  }
  EXPECT_THROW(Program(engine, "no such file"), Error);
  Session moved = std::move(session);
  EXPECT_EQ(moved.run({in}).size(), 1u);
}

}  // namespace
}  // namespace husk::test
