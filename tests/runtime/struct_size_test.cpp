// Structs that begin with struct_size, between a program and a runtime of different versions: the
// runtime reads and writes no more than struct_size bytes, and refuses a struct without the fields
// that it needs.
#include "../struct_size.h"

#include <cstddef>
#include <cstring>
#include <string>
#include <utility>

#include <husk/ops.h>

#include "fixture.h"

namespace husk::test {
namespace {

const char* const kVersionModel = R"(
constant w f32 [4] bytes "0000803f000000400000404000008040"
state ticks i64 [] fill 0
function f {
  input x tensor f32 [4]
  output y tensor f32 rank 1
  variant cpu {
    buffer x of input bytes 16 align 64
    buffer y of output bytes 16
    launch add grid (1, 1, 1) (read x, read w, write y, 4) at "model.py:2 y"
    extern "test::seen" ()
    return (tensor y f32 [4] [1])
  }
}
)";

// The arguments that an op received.
struct Seen {
  husk_op_context context = HUSK_OP_CONTEXT_INIT;
  int prepared = 0;
};

husk_status see(const husk_op_context* context, const husk_op_arg*, uint32_t, husk_error*) {
  if (context->user) static_cast<Seen*>(context->user)->context = *context;
  return HUSK_OK;
}

husk_status prepare(const husk_op_context* context, const husk_op_arg*, uint32_t, husk_error*) {
  if (context->user) ++static_cast<Seen*>(context->user)->prepared;
  return HUSK_OK;
}

// The model with its op, ready to run.
struct Ready {
  explicit Ready(const husk_session_options* options = nullptr)
      : machine(
            kVersionModel, Machine::defaults(), options,
            {{sizeof(husk_op), 0, "test::seen", see, &seen, prepare, "", nullptr, 0, 0, 0, 0}}) {}
  husk_status run() { return machine.run({x.value()}, {y.value()}); }

  Seen seen;
  alignas(64) float data[4] = {};
  Tensor x{HUSK_F32, {4}, data}, y{HUSK_F32, {4}};
  Machine machine;
};

// Calls `query` with structs of every size: it fills a larger struct without touching the unknown
// bytes, a smaller one to its end, and refuses one that ends before the `needed` bytes.
template <class T, class Query>
void expect_fills(const char* type, const T& init, size_t needed, Query query) {
  husk_error error = {};
  Newer<T> newer(init);
  ASSERT_EQ(query(&newer.known, &error), HUSK_OK) << error.text;
  EXPECT_EQ(newer.known.struct_size, sizeof(T));
  EXPECT_TRUE(newer.is_untouched()) << type;
  for (size_t size = needed; size < sizeof(T); size += 4) {
    T out = older(init, size);
    ASSERT_EQ(query(&out, &error), HUSK_OK) << type << " of " << size << " bytes: " << error.text;
    EXPECT_EQ(out.struct_size, size);
    EXPECT_TRUE(ends_at(out, size)) << type << " of " << size << " bytes";
    EXPECT_EQ(std::memcmp(reinterpret_cast<const char*>(&out) + 4,
                          reinterpret_cast<const char*>(&newer.known) + 4, size - 4),
              0);
  }
  for (size_t size = 0; size < needed; size += 4) {
    T out = older(init, size < 4 ? 4 : size);
    out.struct_size = static_cast<uint32_t>(size);
    expect_too_small(query(&out, &error), error, type);
    EXPECT_TRUE(ends_at(out, size < 4 ? 4 : size));
  }
}

TEST(StructSize, QueriesFillWhatTheCallerHas) {
  Ready ready;
  const Machine& m = ready.machine;
  ASSERT_NE(m.session, nullptr) << m.error.text;
  expect_fills("husk_value_info", husk_value_info HUSK_VALUE_INFO_INIT,
               offsetof(husk_value_info, ranges), [&](husk_value_info* out, husk_error* error) {
                 return husk_program_input(m.program, 0, 0, out, error);
               });
  expect_fills("husk_value_info", husk_value_info HUSK_VALUE_INFO_INIT,
               offsetof(husk_value_info, ranges), [&](husk_value_info* out, husk_error* error) {
                 return husk_program_output(m.program, 0, 0, out, error);
               });
  expect_fills("husk_storage_info", husk_storage_info HUSK_STORAGE_INFO_INIT,
               sizeof(husk_storage_info), [&](husk_storage_info* out, husk_error* error) {
                 return husk_program_constant(m.program, 0, out, error);
               });
  expect_fills("husk_storage_info", husk_storage_info HUSK_STORAGE_INFO_INIT,
               sizeof(husk_storage_info), [&](husk_storage_info* out, husk_error* error) {
                 return husk_program_state(m.program, 0, out, error);
               });
  expect_fills("husk_port_properties", husk_port_properties HUSK_PORT_PROPERTIES_INIT,
               offsetof(husk_port_properties, memory_bytes),
               [&](husk_port_properties* out, husk_error* error) {
                 return husk_engine_properties(m.engine, out, error);
               });
  expect_fills("husk_session_stats", husk_session_stats HUSK_SESSION_STATS_INIT,
               offsetof(husk_session_stats, graph_nodes),
               [&](husk_session_stats* out, husk_error* error) {
                 return husk_session_stats_get(m.session, 0, out, error);
               });
}

TEST(StructSize, EngineOptions) {
  husk_error error = {};
  husk_engine* engine = nullptr;
  Newer<husk_engine_options> newer(Machine::defaults());
  ASSERT_EQ(husk_engine_create(&newer.known, &engine, &error), HUSK_OK) << error.text;
  husk_engine_release(engine);

  const size_t needed = offsetof(husk_engine_options, allocator);
  const husk_engine_options old = older(Machine::defaults(), needed);
  ASSERT_EQ(husk_engine_create(&old, &engine, &error), HUSK_OK) << error.text;
  husk_engine_release(engine);

  const husk_engine_options small = older(Machine::defaults(), needed - 4);
  expect_too_small(husk_engine_create(&small, &engine, &error), error, "husk_engine_options");
  EXPECT_EQ(engine, nullptr);
}

// A process that says nothing about others is number 0 of 1, and a number that does not exist is
// refused.
TEST(StructSize, ARankIsLessThanTheWorld) {
  husk_error error = {};
  husk_engine* engine = nullptr;
  husk_engine_options options = Machine::defaults();
  for (const auto& [rank, world] : {std::pair{0u, 0u}, {0u, 1u}, {3u, 4u}}) {
    options.rank = rank;
    options.world = world;
    EXPECT_EQ(husk_engine_create(&options, &engine, &error), HUSK_OK) << error.text;
    husk_engine_release(engine);
  }
  options.rank = 4;
  EXPECT_EQ(husk_engine_create(&options, &engine, &error), HUSK_INVALID_ARGUMENT);
  EXPECT_STREQ(error.text,
               "husk_engine_options.rank is 4, world is 4: number the processes from 0");
  options.rank = 1;
  options.world = 0;
  EXPECT_EQ(husk_engine_create(&options, &engine, &error), HUSK_INVALID_ARGUMENT);
  EXPECT_EQ(engine, nullptr);
}

TEST(StructSize, SessionOptions) {
  Ready ready;
  const Machine& m = ready.machine;
  ASSERT_NE(m.session, nullptr) << m.error.text;
  husk_error error = {};
  husk_session* session = nullptr;
  const husk_session_options init = HUSK_SESSION_OPTIONS_INIT;
  const Newer<husk_session_options> newer(init);
  ASSERT_EQ(husk_session_create(m.program, &newer.known, &session, &error), HUSK_OK) << error.text;
  husk_session_release(session);

  const size_t needed = offsetof(husk_session_options, full_edges);
  const husk_session_options old = older(init, needed);
  ASSERT_EQ(husk_session_create(m.program, &old, &session, &error), HUSK_OK) << error.text;
  husk_session_release(session);

  const husk_session_options small = older(init, needed - 4);
  expect_too_small(husk_session_create(m.program, &small, &session, &error), error,
                   "husk_session_options");
  EXPECT_EQ(session, nullptr);
}

// A table of a later port, and one that lacks functions.
TEST(StructSize, Ports) {
  husk_error error = {};
  husk_engine* engine = nullptr;
  husk_engine_options options = Machine::defaults();
  Newer<husk_port> newer(*husk_port_host());
  options.port = &newer.known;
  ASSERT_EQ(husk_engine_create(&options, &engine, &error), HUSK_OK) << error.text;
  husk_engine_release(engine);

  husk_port small = *husk_port_host();
  small.struct_size = offsetof(husk_port, free_host_flag);
  options.port = &small;
  expect_too_small(husk_engine_create(&options, &engine, &error), error, "husk_port");

  husk_port_graphs graphs = {};
  graphs.struct_size = offsetof(husk_port_graphs, exec_destroy);
  husk_port port = *husk_port_host();
  port.graphs = &graphs;
  options.port = &port;
  expect_too_small(husk_engine_create(&options, &engine, &error), error, "husk_port_graphs");
  graphs.struct_size = sizeof(graphs) + 64;
  ASSERT_EQ(husk_engine_create(&options, &engine, &error), HUSK_OK) << error.text;
  husk_engine_release(engine);

  small = *husk_port_host();
  small.abi = HUSK_PORT_ABI - 1;
  options.port = &small;
  EXPECT_EQ(husk_engine_create(&options, &engine, &error), HUSK_UNSUPPORTED);
}

// An op of a later version, one from before `prepare`, and one without `user`.
TEST(StructSize, Ops) {
  const Aligned bytes(artifact(kVersionModel));
  husk_engine_options options = Machine::defaults();
  options.require_op_contracts = 0;  // earlier versions had none
  Seen seen;
  const husk_op op = {
      sizeof(husk_op), 0, "test::seen", see, &seen, prepare, "", nullptr, 0, 0, 0, 0};
  const Newer<husk_op> newer(op);
  const husk_op old = older(op, offsetof(husk_op, prepare));
  for (const husk_op* registered : {&newer.known, &old}) {
    seen = {};
    husk_error error = {};
    husk_engine* engine = nullptr;
    husk_program* program = nullptr;
    husk_session* session = nullptr;
    ASSERT_EQ(husk_engine_create(&options, &engine, &error), HUSK_OK) << error.text;
    ASSERT_EQ(husk_engine_add_op(engine, registered, &error), HUSK_OK) << error.text;
    ASSERT_EQ(
        husk_program_load(engine, bytes.data(), bytes.size(), nullptr, nullptr, &program, &error),
        HUSK_OK)
        << error.text;
    ASSERT_EQ(husk_session_create(program, nullptr, &session, &error), HUSK_OK) << error.text;
    alignas(64) float data[4] = {};
    Tensor x(HUSK_F32, {4}, data);
    const husk_value input = x.value();
    ASSERT_EQ(husk_session_resize(session, 0, &input, 1, &error), HUSK_OK) << error.text;
    EXPECT_EQ(seen.prepared, registered == &old ? 0 : 1);

    const husk_op small = older(op, offsetof(husk_op, user));
    expect_too_small(husk_engine_add_op(engine, &small, &error), error, "husk_op");
    husk_session_release(session);
    husk_program_release(program);
    husk_engine_release(engine);
  }
}

// Structs that the runtime fills name the runtime's own size.
TEST(StructSize, WhatTheRuntimePasses) {
  husk_session_options options = HUSK_SESSION_OPTIONS_INIT;
  uint32_t event_size = 0;
  options.trace_user = &event_size;
  options.trace = [](void* user, const husk_trace_event* event) {
    *static_cast<uint32_t*>(user) = event->struct_size;
    EXPECT_TRUE(HUSK_HAS_FIELD(event, nanoseconds));
  };
  Ready ready(&options);
  ASSERT_NE(ready.machine.session, nullptr) << ready.machine.error.text;
  ASSERT_EQ(ready.run(), HUSK_OK) << ready.machine.error.text;
  EXPECT_EQ(event_size, sizeof(husk_trace_event));
  EXPECT_EQ(ready.seen.context.struct_size, sizeof(husk_op_context));
  EXPECT_EQ(ready.seen.context.user, &ready.seen);
  EXPECT_EQ(ready.seen.context.rank, 0u);
  EXPECT_EQ(ready.seen.context.world, 1u);
}

TEST(StructSize, AFieldIsThereOrNot) {
  husk_op op = HUSK_OP_INIT;
  EXPECT_TRUE(HUSK_HAS_FIELD(&op, prepare));
  op.struct_size = offsetof(husk_op, prepare);
  EXPECT_TRUE(HUSK_HAS_FIELD(&op, user));
  EXPECT_FALSE(HUSK_HAS_FIELD(&op, prepare));
}

TEST(Ops, AreAddedAtOnce) {
  const std::string model = R"(
function f {
  input x tensor f32 [4]
  output y tensor f32 rank 1
  variant cpu {
    buffer x of input bytes 16 align 64
    buffer y of output bytes 16
    extern "aten::mm.out" (read tensor x f32 [2, 2] [2, 1], read tensor x f32 [2, 2] [2, 1],
                           write tensor y f32 [2, 2] [2, 1]) at "model.py:1 y"
    return (tensor y f32 [4] [1])
  }
}
)";
  const Aligned bytes(artifact(model));
  const husk_engine_options options = Machine::defaults();
  husk_error error = {};
  husk_engine* engine = nullptr;
  husk_program* program = nullptr;
  ASSERT_EQ(husk_engine_create(&options, &engine, &error), HUSK_OK) << error.text;
  EXPECT_EQ(
      husk_program_load(engine, bytes.data(), bytes.size(), nullptr, nullptr, &program, &error),
      HUSK_NOT_FOUND);
  EXPECT_STREQ(error.text,
               "function 'f' calls op 'aten::mm.out' (model.py:1 y), which is not registered: "
               "husk_ops_add_all (libhusk_ops) registers the host's operators, "
               "husk_engine_add_op one of your own");
  ASSERT_EQ(husk_ops_add_all(engine, &error), HUSK_OK) << error.text;
  ASSERT_EQ(
      husk_program_load(engine, bytes.data(), bytes.size(), nullptr, nullptr, &program, &error),
      HUSK_OK)
      << error.text;
  husk_program_release(program);
  husk_engine_release(engine);
  EXPECT_EQ(husk_ops_add_all(nullptr, &error), HUSK_INVALID_ARGUMENT);
}

// The remedy is not cut off, however long the names are.
TEST(Ops, ALongNameLeavesRoomForTheRemedy) {
  const std::string name(200, 'n');
  const Aligned bytes(artifact("function " + name + R"( {
  input x tensor f32 [4]
  output y none
  variant cpu {
    buffer x of input bytes 16
    extern ")" + name + R"(" (read tensor x f32 [4] [1]) at ")" +
                               name + R"("
    return (none)
  }
}
)"));
  const husk_engine_options options = Machine::defaults();
  husk_error error = {};
  husk_engine* engine = nullptr;
  husk_program* program = nullptr;
  ASSERT_EQ(husk_engine_create(&options, &engine, &error), HUSK_OK) << error.text;
  EXPECT_EQ(
      husk_program_load(engine, bytes.data(), bytes.size(), nullptr, nullptr, &program, &error),
      HUSK_NOT_FOUND);
  const std::string text = error.text;
  const std::string end = "husk_engine_add_op one of your own";
  ASSERT_GE(text.size(), end.size());
  EXPECT_EQ(text.substr(text.size() - end.size()), end);
  husk_engine_release(engine);
}

}  // namespace
}  // namespace husk::test
