// husk.hpp with tests/bindings/program.hir, which the tests of the other languages run too.
#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <optional>
#include <thread>

#include <husk/husk.hpp>
#include <husk/ops.h>
#include <husk/port_host.h>

namespace husk {
namespace {

using Floats = std::vector<float>;

Engine engine_with_ops() {
  husk_engine_options options = HUSK_ENGINE_OPTIONS_INIT;
  options.port = husk_port_host();
  options.require_op_contracts = 1;
  Engine engine(options);
  engine.add_ops(husk_ops_add_all);
  return engine;
}

void scale(const OpArgs& args) {
  const float* x = args.data<const float>(0);
  float* y = args.data<float>(2);
  for (int64_t i = 0; i < args.elements(0); ++i) y[i] = x[i] * static_cast<float>(args[1].f);
}

Program program(std::function<void(const OpArgs&)> op = scale) {
  Engine engine = engine_with_ops();
  engine.add_op("test::scale", "x factor y:w", std::move(op));
  return {engine, HUSK_TEST_PROGRAM};
}

template <class Call>
void expect_failure(husk_status status, const char* part, Call call) {
  try {
    call();
    ADD_FAILURE() << "nothing failed, expected: " << part;
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), status);
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

TEST(Cpp, Description) {
  const Program p = program();
  EXPECT_EQ(p.functions(), (std::vector<std::string>{"linear", "scale", "accumulate"}));
  EXPECT_EQ(p.function("scale"), 1u);
  EXPECT_EQ(p.target().substr(0, 5), "host ");
  EXPECT_EQ(p.inputs(1), 2u);
  EXPECT_EQ(p.outputs(), 2u);
  EXPECT_STREQ(p.input(0).name, "x");
  EXPECT_EQ(p.input(0).ranges[1], 8);
  EXPECT_EQ(p.output(1).kind, HUSK_VALUE_INT);
  EXPECT_EQ(p.states(), 1u);
  EXPECT_STREQ(p.state_info(0).name, "total");
  EXPECT_EQ(p.constants(), 2u);
  EXPECT_EQ(p.constant_info(p.constant("weight")).bytes, 24u);
  EXPECT_EQ(p.pytree(), "");
  EXPECT_TRUE(p.metadata().empty());
}

TEST(Cpp, DeviceMemory) {
  Engine engine = engine_with_ops();
  const Floats from = {1, 2, 3};
  Floats to(3);
  void* memory = engine.alloc(12);
  void* stream = engine.create_stream();
  engine.upload(memory, from.data(), 12, stream);
  engine.download(to.data(), memory, 12, stream);
  engine.destroy_stream(stream);
  engine.free(memory);
  EXPECT_EQ(to, from);
  expect_failure(HUSK_INVALID_ARGUMENT, "engine_upload",
                 [&] { engine.upload(nullptr, from.data(), 12); });
}

TEST(Cpp, Shapes) {
  const Program p = program();
  Session session(p);
  for (const int64_t rows : {1, 8, 2}) {
    Floats x(static_cast<size_t>(rows * 3)), expected;
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i);
    for (size_t i = 0; i < x.size(); i += 3) {
      expected.push_back(x[i] + 3 * x[i + 2] + 0.5f);
      expected.push_back(2 * x[i + 1] + x[i + 2] - 0.5f);
    }
    Tensor input(x.data(), {rows, 3});
    const std::vector<Value> outputs = session.run({input});
    EXPECT_EQ(outputs[0].elements<float>(), expected);
    EXPECT_EQ(outputs[1].integer(), rows);
    expect_failure(HUSK_INVALID_ARGUMENT, "another type", [&] { outputs[0].elements<int32_t>(); });
    expect_failure(HUSK_INVALID_ARGUMENT, "no tensor", [&] { outputs[1].elements<float>(); });
  }
}

TEST(Cpp, ReadOnlyMemoryIsNotWritten) {
  const Program p(engine_with_ops(), HUSK_TEST_WRITTEN);
  EXPECT_EQ(p.input(0).is_written, 1);
  EXPECT_EQ(p.input(1).is_written, 0);
  EXPECT_EQ(p.output(0).is_written, 0);
  Session session(p);
  Floats x{1, 2};
  const Floats y{3, 4};
  Tensor written(x.data(), {2}), read(y.data(), {2});
  EXPECT_TRUE(read.is_read_only() && !written.is_read_only());
  expect_failure(HUSK_INVALID_INPUT, "input 'x' is read-only, and the program writes to it",
                 [&] { session.run({read, written}); });
  EXPECT_EQ(x, (Floats{1, 2}));
  session.resize({written, read});
  EXPECT_EQ(session.run({written, read})[0].integer(), 2);
  EXPECT_EQ(x, y);
  const Program copies = program();
  std::vector<Value> outputs{read};
  expect_failure(HUSK_INVALID_INPUT, "an output is read-only",
                 [&] { Session(copies).run({written, Value(1.0)}, outputs, 1); });
}

TEST(Cpp, ElementsOfTensorsWithStrides) {
  const Floats memory{0, 1, 2, 3, 4, 5};
  Tensor transposed(const_cast<float*>(memory.data()), HUSK_F32, {3, 2}, {1, 3});
  EXPECT_EQ(Value(transposed).elements<float>(), (Floats{0, 3, 1, 4, 2, 5}));
  Tensor empty(static_cast<float*>(nullptr), {2, 0});
  EXPECT_TRUE(Value(empty).elements<float>().empty());
  const bool flags[] = {true, false};
  Tensor mask(flags, {2});
  EXPECT_EQ(Value(mask).elements<uint8_t>(), (std::vector<uint8_t>{1, 0}));
  Tensor elsewhere(nullptr, HUSK_F32, {1}, {}, {kDLCUDA, 0});
  expect_failure(HUSK_INVALID_ARGUMENT, "another device",
                 [&] { Value(elsewhere).elements<float>(); });
}

TEST(Cpp, OperatorsOutliveTheirEngine) {
  std::optional<Program> p(program());
  Session session(*p);
  p.reset();
  Floats x{1, -2, 3};
  Tensor input(x.data(), {3});
  EXPECT_EQ(session.run({input, 2.5}, 1)[0].elements<float>(), (Floats{2.5, -5, 7.5}));
}

TEST(Cpp, OperatorsThatThrow) {
  int calls = 0;
  const Program p = program([&](const OpArgs& args) {
    switch (++calls) {
      case 1: throw Error(HUSK_LIMIT, std::string(300, 'x'));
      case 2: throw std::runtime_error("a reason");
      case 3: args.data<int64_t>(0); break;
      case 4: args.data<float>(1); break;
      case 5: args.data<float>(7); break;
      default: throw 1;
    }
  });
  Session session(p);
  Floats x{1};
  Tensor input(x.data(), {1});
  const auto run = [&] { session.run({input, 1.0}, 1); };
  expect_failure(HUSK_LIMIT, "xxx", run);
  expect_failure(HUSK_KERNEL, "a reason", run);
  expect_failure(HUSK_INVALID_ARGUMENT, "argument 0 is no tensor of the type", run);
  expect_failure(HUSK_INVALID_ARGUMENT, "argument 1 is no tensor", run);
  expect_failure(HUSK_INVALID_ARGUMENT, "has 3 arguments", run);
  expect_failure(HUSK_KERNEL, "no std::exception", run);
}

TEST(Cpp, ArgumentsOfOps) {
  const int64_t sizes[] = {2, 3}, apart[] = {6, 2}, dense[] = {3, 1};
  float elements[6] = {};
  husk_op_arg arg = {};
  arg.kind = HUSK_ARG_TENSOR;
  arg.dtype = HUSK_F32;
  arg.rank = 2;
  arg.data = elements;
  arg.sizes = sizes;
  arg.strides = dense;
  const husk_op_context context = {};
  const OpArgs args(context, &arg, 1);
  EXPECT_EQ(args.data<float>(0), elements);
  EXPECT_EQ(args.elements(0), 6);
  EXPECT_EQ(args.size(), 1u);
  EXPECT_EQ(&args.context(), &context);
  arg.strides = apart;
  expect_failure(HUSK_UNSUPPORTED, "argument 0 is not contiguous", [&] { args.data<float>(0); });
}

TEST(Cpp, States) {
  const Program p = program();
  Session one(p), two(p);
  std::vector<int64_t> rows{1, 3, 1};
  Floats x{2, 5};
  Tensor places(rows.data(), {3}), values(x.data(), {1, 2});
  EXPECT_EQ(one.run({places, values}, 2)[0].integer(), 3);
  const Floats sums{0, 0, 4, 10, 0, 0, 2, 5};
  EXPECT_EQ(one.state<float>("total"), sums);
  EXPECT_EQ(two.state<float>("total"), Floats(8));
  two.state_copy(0, one);
  EXPECT_EQ(two.state<float>("total"), sums);
  two.set_state("total", Floats(8, 1));
  two.run({places, values}, 2);
  EXPECT_EQ(two.state<float>("total"), (Floats{1, 1, 5, 11, 1, 1, 3, 6}));
  two.state_reset(0);
  EXPECT_EQ(two.state<float>("total"), Floats(8));
  expect_failure(HUSK_NOT_FOUND, "other", [&] { one.state<float>("other"); });
  expect_failure(HUSK_INVALID_ARGUMENT, "'total' has 32 bytes of f32; given are 4 elements of f64",
                 [&] { one.set_state("total", std::vector<double>(4)); });
}

TEST(Cpp, Constants) {
  Program p = program();
  Session session(p);
  p.update_constant("bias", Floats{10, 20});
  Floats x(3);
  Tensor input(x.data(), {1, 3});
  EXPECT_EQ(session.run({input})[0].elements<float>(), (Floats{10, 20}));
  expect_failure(HUSK_NOT_FOUND, "none", [&] { p.update_constant("none", x); });
  expect_failure(HUSK_INVALID_ARGUMENT, "'bias'", [&] { p.update_constant("bias", x); });
}

TEST(Cpp, WrongInputs) {
  const Program p = program();
  Session session(p);
  Floats x(27);
  std::vector<int64_t> integers(3);
  Tensor good(x.data(), {1, 3}), long_one(x.data(), {9, 3}), wide(x.data(), {2, 4}),
      other(integers.data(), {1, 3});
  for (const std::vector<Value>& inputs : std::vector<std::vector<Value>>{
           {}, {3}, {true}, {2.5}, {long_one}, {wide}, {other}, {good, good}}) {
    EXPECT_THROW(session.run(inputs), Error);
    session.run({good});
  }
  EXPECT_THROW(session.run({good}, 7), Error);
  session.set_range(0, 0, 1, 2);
  Tensor three(x.data(), {3, 3});
  expect_failure(HUSK_INVALID_INPUT, "x", [&] { session.run({three}); });
  session.resize({good});
  session.run({good});
}

TEST(Cpp, BadFiles) {
  const Engine engine = engine_with_ops();
  expect_failure(HUSK_IO, "nowhere", [&] { Program(engine, "/nowhere.husk"); });
  expect_failure(HUSK_NOT_FOUND, "test::scale", [&] { Program(engine, HUSK_TEST_PROGRAM); });
  alignas(64) const char nothing[64] = {};
  expect_failure(HUSK_INVALID_FILE, "", [&] { Program(engine, nothing, sizeof nothing); });
  Engine again = engine_with_ops();
  expect_failure(HUSK_INVALID_ARGUMENT, "",
                 [&] { again.add_op("test::scale", "x factor x:w:w", scale); });
}

TEST(Cpp, Threads) {
  const Program p = program();
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int number = 0; number < 3; ++number)
    threads.emplace_back([&, number] {
      Session session(p);
      for (int i = 0; i < 500; ++i) {
        const float x = static_cast<float>(number * 500 + i);
        Floats row{x, x, x};
        Tensor input(row.data(), {1, 3});
        wrong += session.run({input})[0].elements<float>() != Floats{4 * x + 0.5f, 3 * x - 0.5f};
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace husk
