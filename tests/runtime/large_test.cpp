// Large programs and files that share rows: the time of verification and of sessions is in
// proportion to the metadata. Each test takes a second or two, and minutes if a step is quadratic;
// the limit of ctest then ends it.
#include <cstdlib>
#include <memory>

#include "edited_artifact.h"
#include "graph_port.h"
#include "large_program.h"

namespace husk::test {
namespace {

// The results of a long segment are named many times by the next one.
TEST(Large, ManyOperandsThatAreResults) {
  LargeVariant v;
  const uint32_t size = v.number(8), zero = v.number(0);
  const uint32_t all = v.view(v.arena_buffer(size), zero, size);
  for (uint32_t i = 0; i < 150000; ++i) v.fill(all, zero);
  v.read(all);
  v.segment();
  for (uint32_t i = 0; i < 300000; ++i) v.scalar(Scalar::op_result, 0);
  v.segment();
  EXPECT_EQ(verify_error(large_file(v), HUSK_OK), "");
  v.scalar(Scalar::op_result, 1);
  v.segment();
  EXPECT_NE(verify_error(large_file(v)).find("operand 0 is not of the kind that the op takes"),
            std::string::npos);
}

// All loops begin at the same segment, so each is nested in the next one.
TEST(Large, ManyLoops) {
  LargeVariant v;
  const uint32_t one = v.number(1);
  for (uint32_t s = 0; s < 200000; ++s) v.segment();
  for (uint32_t s = 0; s < 200000; ++s) v.segment(one, 1);
  EXPECT_EQ(verify_error(large_file(v), HUSK_OK), "");
  v.segment(one, static_cast<uint32_t>(v.segments.size()));  // only this segment
  EXPECT_EQ(verify_error(large_file(v), HUSK_OK), "");
  v.segments[2] = {1, 1, 0, 0, one, 0};  // begins before the loops that it is in
  EXPECT_NE(verify_error(large_file(v)).find("loops of segments 2 and"), std::string::npos);
}

constexpr char kTooOften[] = "names its rows or texts too often";

// Few bytes for each function, whose rows are those of all others.
TEST(Large, FunctionsThatShareRows) {
  LargeVariant v;
  for (uint32_t i = 0; i < 100000; ++i) v.number(i);
  v.segment();
  LargeFile file;
  auto& b = file.builder;
  const auto scalars = b.CreateVectorOfStructs(v.scalars);
  const auto segments = b.CreateVectorOfStructs(v.segments);
  for (uint32_t f = 0; f < 20000; ++f)
    file.function("f" + std::to_string(f), {fb::CreateVariant(b, 0, scalars, 0, segments)});
  EXPECT_NE(verify_error(file.finish()).find(kTooOften), std::string::npos);
}

TEST(Large, FunctionsThatShareVariants) {
  LargeVariant v;
  for (uint32_t i = 0; i < 100000; ++i) v.number(i);
  v.segment();
  LargeFile file;
  const auto variant = file.variant(v);
  for (uint32_t f = 0; f < 20000; ++f) file.function("f" + std::to_string(f), {variant});
  EXPECT_NE(verify_error(file.finish()).find(kTooOften), std::string::npos);
}

TEST(Large, FunctionsThatShareTables) {
  LargeFile file;
  auto& b = file.builder;
  std::vector<flatbuffers::Offset<fb::Value>> values;
  for (uint32_t i = 0; i < 3000; ++i)
    values.push_back(fb::CreateValueDirect(b, ("v" + std::to_string(i)).c_str(), HUSK_VALUE_INT));
  const auto inputs = b.CreateVector(values);
  LargeVariant v;
  v.segment();
  for (uint32_t f = 0; f < 3000; ++f)
    file.function("f" + std::to_string(f), {file.variant(v)}, inputs);
  EXPECT_NE(verify_error(file.finish()).find("or names its tables too often"), std::string::npos);
}

TEST(Large, KernelsThatShareParameters) {
  LargeFile file;
  auto& b = file.builder;
  const fb::Blob blob(0, 0, fb::Hash());
  file.images.push_back(fb::CreateImageDirect(b, 0, HUSK_IMAGE_ELF, &blob, "image"));
  const auto params = b.CreateVector(std::vector<uint8_t>(1000000, HUSK_I32));
  const auto block = b.CreateVector(std::vector<uint32_t>{1, 1, 1});
  const auto name = b.CreateString("k");
  for (uint32_t k = 0; k < 50000; ++k)
    file.kernels.push_back(fb::CreateKernel(b, name, name, 0, params, block));
  LargeVariant v;
  v.segment();
  file.function("f", {file.variant(v)});
  EXPECT_NE(verify_error(file.finish()).find(kTooOften), std::string::npos);
}

// Two names that differ in their last byte only, and each function compares them.
TEST(Large, FunctionsThatShareNames) {
  LargeFile file;
  auto& b = file.builder;
  flatbuffers::Offset<flatbuffers::String> names[2];
  for (int i = 0; i < 2; ++i)
    names[i] = b.CreateString(std::string(4000000, 'a') + (i ? "b" : "c"));
  LargeVariant v;
  v.segment();
  for (uint32_t f = 0; f < 40000; ++f) {
    std::vector<flatbuffers::Offset<fb::Value>> values;
    for (const auto name : names) values.push_back(fb::CreateValue(b, name, HUSK_VALUE_INT));
    file.function("f" + std::to_string(f), {file.variant(v)}, b.CreateVector(values));
  }
  EXPECT_NE(verify_error(file.finish()).find(kTooOften), std::string::npos);
}

// Rows of each kind that has texts name one long text.
TEST(Large, RowsThatShareTexts) {
  using String = flatbuffers::Offset<flatbuffers::String>;
  const fb::Blob blob(0, 0, fb::Hash());
  const std::pair<const char*, std::function<void(LargeFile&, String, String)>> kinds[] = {
      {"ports", [](auto& f, String text,
                   String name) { f.targets.push_back(fb::CreateTarget(f.builder, text, name)); }},
      {"architectures",
       [](auto& f, String text, String name) {
         f.targets.push_back(fb::CreateTarget(f.builder, name, text));
       }},
      {"images",
       [&](auto& f, String text, String) {
         f.images.push_back(fb::CreateImage(f.builder, 0, HUSK_IMAGE_ELF, &blob, text));
       }},
      {"kernels",
       [&](auto& f, String text, String name) {
         const auto block = f.builder.CreateVector(std::vector<uint32_t>{1, 1, 1});
         if (f.images.empty())
           f.images.push_back(fb::CreateImage(f.builder, 0, HUSK_IMAGE_ELF, &blob, name));
         f.kernels.push_back(fb::CreateKernel(f.builder, text, name, 0, 0, block));
       }},
      {"symbols",
       [&](auto& f, String text, String name) {
         const auto block = f.builder.CreateVector(std::vector<uint32_t>{1, 1, 1});
         if (f.images.empty())
           f.images.push_back(fb::CreateImage(f.builder, 0, HUSK_IMAGE_ELF, &blob, name));
         f.kernels.push_back(fb::CreateKernel(f.builder, name, text, 0, 0, block));
       }},
      {"ops", [](auto& f, String text, String) { f.ops.push_back(text); }},
      {"strings", [](auto& f, String text, String) { f.strings.push_back(text); }},
      {"asserts", [](auto& f, String text, String) { f.asserts.push_back(text); }},
      {"keys", [](auto& f, String text,
                  String name) { f.entries.push_back(fb::CreateEntry(f.builder, text, name)); }},
      {"values", [](auto& f, String text, String name) {
         f.entries.push_back(fb::CreateEntry(f.builder, name, text));
       }}};
  for (const auto& [kind, add] : kinds)
    for (const uint32_t times : {4u, 12u}) {
      LargeFile file;
      const String name = file.builder.CreateString("name"),
                   text = file.builder.CreateString(std::string(100000, 'x'));
      for (uint32_t i = 0; i < times; ++i) add(file, text, name);
      LargeVariant v;
      v.segment();
      file.function("f", {file.variant(v)});
      const std::string error = verify_error(file.finish(),
                                             times < 8 ? HUSK_OK : HUSK_INVALID_FILE);
      EXPECT_EQ(error.find(kTooOften) != std::string::npos, times > 8) << kind << ": " << error;
    }
}

TEST(Large, ListsThatShareOperands) {
  LargeVariant v;
  const uint32_t one = v.number(1);
  v.operands.assign(1000000, one);
  for (uint32_t i = 0; i < 60000; ++i) {
    v.argument(ArgumentKind::integers, 0, 0, 0, 1000000);
    v.step(Step::op_extern, 0, 1, 1);
  }
  v.segment();
  LargeFile file;
  file.ops.push_back(file.builder.CreateString("test::op"));
  file.function("f", {file.variant(v)});
  EXPECT_NE(verify_error(file.finish()).find(kTooOften), std::string::npos);
}

TEST(Large, ManyVariants) {
  LargeFile file;
  LargeVariant v;
  v.segment();
  constexpr uint32_t kTargets = 100000;
  const auto segments = file.builder.CreateVectorOfStructs(v.segments);
  const auto text = file.builder.CreateString("a");
  std::vector<flatbuffers::Offset<fb::Variant>> variants;
  for (uint32_t t = 0; t < kTargets; ++t) {
    file.targets.push_back(fb::CreateTarget(file.builder, text, text));
    variants.push_back(fb::CreateVariant(file.builder, t, 0, 0, segments));
  }
  file.function("f", variants);
  EXPECT_EQ(verify_error(file.finish(), HUSK_OK), "");
}

// Each variant looks at all inputs of its function.
TEST(Large, VariantsThatShareInputs) {
  LargeVariant v;
  v.segment();
  for (const uint32_t targets : {4u, 4000u}) {
    LargeFile file;
    auto& b = file.builder;
    const auto segments = b.CreateVectorOfStructs(v.segments);
    const auto text = b.CreateString("a");
    std::vector<flatbuffers::Offset<fb::Value>> values;
    for (uint32_t i = 0; i < 4000; ++i)
      values.push_back(fb::CreateValueDirect(b, ("v" + std::to_string(i)).c_str(), HUSK_VALUE_INT));
    std::vector<flatbuffers::Offset<fb::Variant>> variants;
    for (uint32_t t = 0; t < targets; ++t) {
      file.targets.push_back(fb::CreateTarget(b, text, text));
      variants.push_back(fb::CreateVariant(b, t, 0, 0, segments));
    }
    file.function("f", variants, b.CreateVector(values));
    const std::string error = verify_error(file.finish(),
                                           targets < 8 ? HUSK_OK : HUSK_INVALID_FILE);
    EXPECT_EQ(error.find(kTooOften) != std::string::npos, targets > 8) << error;
  }
}

// To open a file asks for the rank of each image once, not once for each function.
TEST(Large, ManyFunctionsAndImages) {
  LargeFile file;
  auto& b = file.builder;
  const fb::Blob blob(0, 0, fb::Hash());
  const auto name = b.CreateString("image");
  LargeVariant v;
  v.segment();
  for (uint32_t f = 0; f < 40000; ++f) {
    file.images.push_back(fb::CreateImage(b, 0, HUSK_IMAGE_ELF, &blob, name));
    file.function("f" + std::to_string(f), {file.variant(v)});
  }
  const Machine machine(file.finish());
  EXPECT_NE(machine.program, nullptr) << machine.error.text;
}

// Creates and resizes a session of a program without inputs, on a port with graphs and on one
// without.
void expect_sessions(const std::vector<uint8_t>& file) {
  for (const husk_port* port : {graph_port(), husk_port_host()}) {
    husk_engine_options options = Machine::defaults();
    options.port = port;
    Machine machine(file, options);
    ASSERT_NE(machine.session, nullptr) << machine.error.text;
    EXPECT_EQ(machine.resize({}), HUSK_OK) << machine.error.text;
  }
}

constexpr uint32_t kSteps = 40000;

// Each step reads the buffer of the step before it.
TEST(Large, SessionOfAChain) {
  LargeVariant v;
  const uint32_t size = v.number(64), zero = v.number(0);
  uint32_t last = v.view(v.arena_buffer(size), zero, size);
  v.fill(last, zero);
  for (uint32_t i = 0; i < kSteps; ++i) {
    const uint32_t next = v.view(v.arena_buffer(size), zero, size);
    v.copy(next, last);
    last = next;
  }
  v.segment();
  expect_sessions(large_file(v));
}

// A graph of so many steps runs them one after the other.
TEST(Large, AChainAsAGraph) {
  LargeVariant v;
  const uint32_t size = v.number(64), zero = v.number(0), one = v.number(1), eight = v.number(8);
  const uint32_t x = v.view(v.outer_buffer(Space::input, 0, size), zero, size);
  const uint32_t y = v.view(v.outer_buffer(Space::output, 0, size), zero, size);
  uint32_t last = x;
  for (uint32_t i = 0; i < kSteps / 2; ++i) {
    const uint32_t next = v.view(v.arena_buffer(size), zero, size);
    v.fill(next, v.number(i));
    v.copy(next, last);
    last = next;
  }
  v.copy(y, last);
  v.result(y, eight, one);
  v.segment();
  LargeFile file;
  const std::vector<fb::Dim> dims = {fb::Dim(8, 8)};
  const auto inputs = file.vectors("x", 1, &dims), outputs = file.vectors("y", 1);
  file.function("f", {file.variant(v)}, inputs, outputs);
  husk_engine_options options = Machine::defaults();
  options.port = graph_port();
  Machine machine(file.finish(), options);
  ASSERT_NE(machine.session, nullptr) << machine.error.text;
  Tensor in(HUSK_I64, {8}), out(HUSK_I64, {8}), other(HUSK_I64, {8});
  ASSERT_EQ(machine.resize({in.value()}), HUSK_OK) << machine.error.text;
  for (Tensor* to : {&out, &other, &out}) {
    for (int i = 0; i < 8; ++i) in.as<int64_t>()[i] += 100 * i + 7;
    ASSERT_EQ(machine.run({in.value()}, {to->value()}), HUSK_OK) << machine.error.text;
    for (int i = 0; i < 8; ++i) ASSERT_EQ(to->as<int64_t>()[i], in.as<int64_t>()[i]);
  }
  husk_session_stats stats = HUSK_SESSION_STATS_INIT;
  ASSERT_EQ(husk_session_stats_get(machine.session, 0, &stats, nullptr), HUSK_OK);
  EXPECT_EQ(stats.runs_as_graph, 3u);
  EXPECT_EQ(stats.graph_edges, kSteps);
}

// Each allocation of a session and of its graph fails once, for more steps than are ordered.
TEST(Large, EveryAllocationOfAChain) {
  LargeVariant v;
  const uint32_t size = v.number(64), zero = v.number(0);
  const uint32_t all = v.view(v.arena_buffer(size), zero, size);
  for (uint32_t i = 0; i < 16400; ++i) v.fill(all, zero);
  v.segment();
  const Aligned file(large_file(v));
  struct Memory {
    int64_t calls = 0, refuse = -1, live = 0;
  } memory;
  const husk_allocator allocator = {&memory,
                                    [](void* user, size_t bytes, size_t align) -> void* {
                                      auto* m = static_cast<Memory*>(user);
                                      if (m->calls++ == m->refuse) return nullptr;
                                      ++m->live;
                                      return std::aligned_alloc(
                                          align, (bytes + align - 1) / align * align);
                                    },
                                    [](void* user, void* pointer) {
                                      static_cast<Memory*>(user)->live -= pointer != nullptr;
                                      std::free(pointer);
                                    }};
  husk_engine_options options = Machine::defaults();
  options.port = graph_port();
  options.allocator = &allocator;
  husk_error error = {};
  husk_engine* engine = nullptr;
  husk_program* program = nullptr;
  ASSERT_EQ(husk_engine_create(&options, &engine, &error), HUSK_OK) << error.text;
  ASSERT_EQ(husk_program_load(engine, file.data(), file.size(), nullptr, nullptr, &program, &error),
            HUSK_OK)
      << error.text;
  const int64_t live = memory.live;
  int64_t refused = 0;
  for (bool reached = true; reached; ++refused) {
    memory.calls = 0;
    memory.refuse = refused;
    husk_session* session = nullptr;
    husk_status status = husk_session_create(program, nullptr, &session, &error);
    if (status == HUSK_OK) status = husk_session_resize(session, 0, nullptr, 0, &error);
    reached = memory.calls > refused;
    EXPECT_EQ(status, reached ? HUSK_OUT_OF_MEMORY : HUSK_OK) << "allocation " << refused;
    husk_session_release(session);
    ASSERT_EQ(memory.live, live) << "allocation " << refused;
  }
  EXPECT_GT(refused, 30);
  husk_program_release(program);
  husk_engine_release(engine);
}

// A call that writes n tensors of one buffer has n^2 pairs, which a session limits to 2^20.
TEST(Large, PairsOfOneCall) {
  const husk_op op = {sizeof(husk_op),
                      0,
                      "test::write",
                      [](const husk_op_context*, const husk_op_arg*, uint32_t, husk_error*) {
                        return husk_status{HUSK_OK};
                      },
                      nullptr,
                      nullptr,
                      "items:w",
                      nullptr,
                      0,
                      0,
                      0,
                      0};
  for (const uint32_t n : {1024u, 1025u}) {
    LargeVariant v;
    const uint32_t one = v.number(1), eight = v.number(8);
    const uint32_t buffer = v.arena_buffer(v.number(8 * n));
    v.argument(ArgumentKind::tensors, 0, 0, 1, n);
    for (uint32_t i = 0; i < n; ++i) {
      const uint32_t view = v.view(buffer, v.number(8 * i), eight);
      v.argument(ArgumentKind::tensor, HUSK_ACCESS_WRITE, 0, v.tensor(view, one, one));
    }
    v.step(Step::op_extern, 0, n + 1, 1);
    v.segment();
    LargeFile file;
    file.ops.push_back(file.builder.CreateString("test::write"));
    file.function("f", {file.variant(v)});
    Machine machine(file.finish(), Machine::defaults(), nullptr, {op});
    ASSERT_NE(machine.program, nullptr) << machine.error.text;
    EXPECT_EQ(machine.session != nullptr, n == 1024) << machine.error.text;
    if (machine.session) {
      EXPECT_EQ(machine.run({}, {}), HUSK_OK) << machine.error.text;
      continue;
    }
    EXPECT_EQ(machine.error.code, HUSK_LIMIT);
    EXPECT_NE(std::string(machine.error.text).find("function 'f': its ops have more than 1048576"),
              std::string::npos)
        << machine.error.text;
  }
}

// All steps use one buffer.
TEST(Large, SessionWithOneBuffer) {
  LargeVariant v;
  const uint32_t size = v.number(64), zero = v.number(0);
  const uint32_t all = v.view(v.arena_buffer(size), zero, size);
  for (uint32_t i = 0; i < kSteps; ++i) v.fill(all, zero);
  v.segment();
  expect_sessions(large_file(v));
}

// All buffers are live at the same time, and no step depends on another one in the first half.
TEST(Large, SessionWithManyLiveBuffers) {
  LargeVariant v;
  const uint32_t size = v.number(64), zero = v.number(0);
  const uint32_t last = v.view(v.arena_buffer(size), zero, size);
  for (uint32_t i = 0; i < kSteps; ++i) v.fill(v.view(v.arena_buffer(size), zero, size), zero);
  for (uint32_t i = 1; i <= kSteps; ++i) v.copy(last, i);
  v.segment();
  expect_sessions(large_file(v));
}

// Buffers and loops in many segments.
TEST(Large, SessionWithManySegments) {
  LargeVariant v;
  const uint32_t zero = v.number(0), eight = v.number(8);
  v.segment();
  for (uint32_t i = 0; i < kSteps; ++i) {
    const uint32_t size = v.number(8);
    v.fill(v.view(v.arena_buffer(size), zero, size), eight);
    v.segment(zero, i % 2 ? 1 : i + 1);
  }
  expect_sessions(large_file(v));
}

// Buffers that are live from the first segment to the last one, with many loops between.
TEST(Large, SessionWithLongLiveRanges) {
  constexpr uint32_t kBuffers = 20000, kLoops = 400000;
  LargeVariant v;
  const uint32_t size = v.number(64), zero = v.number(0);
  for (uint32_t i = 0; i < kBuffers; ++i) v.fill(v.view(v.arena_buffer(size), zero, size), zero);
  v.segment();
  for (uint32_t i = 0; i < kLoops; ++i) v.segment(zero, i + 1);
  for (uint32_t i = 0; i < kBuffers; ++i) v.fill(i, zero);
  v.segment();
  const Machine machine(large_file(v));
  EXPECT_NE(machine.session, nullptr) << machine.error.text;
}

// Sizes of many inputs.
TEST(Large, SessionWithManyInputs) {
  LargeFile file;
  LargeVariant v;
  const std::vector<fb::Dim> dims = {fb::Dim(1, 16)};
  for (uint32_t i = 0; i < kSteps; ++i) v.scalar(Scalar::op_size, i, 0);
  v.segment();
  const auto inputs = file.vectors("v", kSteps, &dims);
  file.function("f", {file.variant(v)}, inputs);
  const Machine machine(file.finish());
  EXPECT_NE(machine.session, nullptr) << machine.error.text;
}

// Each segment computes a size that has no bound, and with it the sizes of an output, and of a
// buffer of the arena.
TEST(Large, RunWithManySegments) {
  constexpr uint32_t kOutputs = 100000;
  LargeVariant v;
  const uint32_t zero = v.number(0), one = v.number(1), eight = v.number(8);
  const uint32_t size = v.view(v.arena_buffer(eight), zero, eight);
  v.fill(size, eight);
  v.read(size);
  v.segment();
  for (uint32_t i = 0; i < kOutputs; ++i) {
    const uint32_t bytes = v.scalar(Scalar::op_result, 0),
                   n = v.scalar(Scalar::op_floordiv, bytes, eight);
    const uint32_t output = v.view(v.outer_buffer(Space::output, i, bytes), zero, bytes);
    const uint32_t other = v.view(v.arena_buffer(bytes), zero, bytes);
    v.fill(other, v.number(i));
    v.copy(output, other);
    v.read(size);
    v.result(output, n, one);
    v.segment();
  }
  v.segment();
  LargeFile file;
  const auto outputs = file.vectors("y", kOutputs);
  file.function("f", {file.variant(v)}, 0, outputs);
  Machine machine(file.finish());
  ASSERT_NE(machine.session, nullptr) << machine.error.text;
  const auto value = [&](uint32_t i) {
    return *static_cast<const int64_t*>(machine.results[i].as.tensor->data);
  };
  std::vector<husk_value> results(kOutputs, none());
  for (int run = 0; run < 2; ++run) {  // the second run is given the tensors of the first one
    ASSERT_EQ(machine.run({}, results), HUSK_OK) << machine.error.text;
    for (uint32_t i = 0; i < kOutputs; i += 999) ASSERT_EQ(value(i), i);
    results = machine.results;
  }
  std::vector<int64_t> memory(kOutputs);
  int64_t shape = 1;
  std::vector<DLTensor> tensors;
  for (uint32_t i = 0; i < kOutputs; ++i)
    tensors.push_back({&memory[uint64_t{i} * 7919 % kOutputs],
                       {kDLCPU, 0},
                       1,
                       {kDLInt, 64, 1},
                       &shape,
                       nullptr,
                       0});
  for (uint32_t i = 0; i < kOutputs; ++i) {
    results[i].kind = HUSK_VALUE_TENSOR;
    results[i].as.tensor = &tensors[i];
  }
  ASSERT_EQ(machine.run({}, results), HUSK_OK) << machine.error.text;
  for (uint32_t i = 0; i < kOutputs; i += 999) ASSERT_EQ(value(i), i);
  tensors[kOutputs - 5].data = tensors[17].data;
  EXPECT_EQ(machine.run({}, results), HUSK_INVALID_INPUT);
  const std::string other = std::to_string(kOutputs - 5);
  EXPECT_NE(std::string(machine.error.text).find("output 'y17' overlaps output 'y" + other + "'"),
            std::string::npos)
      << machine.error.text;
}

// One segment with many inputs and outputs, none of which overlap.
TEST(Large, RunWithManyValues) {
  constexpr uint32_t kValues = 100000;
  LargeVariant v;
  const uint32_t zero = v.number(0), one = v.number(1), eight = v.number(8);
  for (const Space space : {Space::input, Space::output})
    for (uint32_t i = 0; i < kValues; ++i) v.view(v.outer_buffer(space, i, eight), zero, eight);
  for (uint32_t i = 0; i < kValues; ++i) {
    v.copy(kValues + i, i);
    v.result(kValues + i, one, one);
  }
  v.segment();
  LargeFile file;
  const std::vector<fb::Dim> dims = {fb::Dim(1, 1)};
  const auto inputs = file.vectors("x", kValues, &dims), outputs = file.vectors("y", kValues);
  file.function("f", {file.variant(v)}, inputs, outputs);
  Machine machine(file.finish());
  ASSERT_NE(machine.session, nullptr) << machine.error.text;
  std::vector<int64_t> memory(2 * kValues);
  int64_t shape = 1;
  std::vector<DLTensor> tensors;
  for (uint32_t i = 0; i < 2 * kValues; ++i)
    tensors.push_back({&memory[uint64_t{i} * 7919 % (2 * kValues)],
                       {kDLCPU, 0},
                       1,
                       {kDLInt, 64, 1},
                       &shape,
                       nullptr,
                       0});
  std::vector<husk_value> values[2];
  for (uint32_t i = 0; i < 2 * kValues; ++i) {
    husk_value value = {HUSK_VALUE_TENSOR, 0, {}};
    value.as.tensor = &tensors[i];
    values[i / kValues].push_back(value);
  }
  const auto data = [&](uint32_t i) { return static_cast<int64_t*>(tensors[i].data); };
  for (uint32_t i = 0; i < kValues; ++i) *data(i) = i;
  ASSERT_EQ(machine.run(values[0], values[1]), HUSK_OK) << machine.error.text;
  for (uint32_t i = 0; i < kValues; i += 99) ASSERT_EQ(*data(kValues + i), i);
  tensors[kValues + 5].data = tensors[10].data;
  EXPECT_EQ(machine.run(values[0], values[1]), HUSK_INVALID_INPUT);
  EXPECT_NE(std::string(machine.error.text).find("output 'y5' overlaps input 'x10'"),
            std::string::npos)
      << machine.error.text;
}

// Two programs with the same constants in opposite orders: the second one finds those of the first.
TEST(Large, ProgramsThatShareConstants) {
  constexpr uint32_t kConstants = 60000;
  static const husk_port port = [] {
    husk_port p = *husk_port_host();
    p.properties = [](void* device, husk_port_properties* out) {
      husk_port_host()->properties(device, out);
      out->host_memory = 0;
    };
    p.map = nullptr;
    p.unmap = nullptr;
    return p;
  }();
  const auto program = [&](bool backward) {
    LargeFile file;
    auto& b = file.builder;
    const std::vector<int64_t> dims = {1};
    for (uint32_t c = 0; c < kConstants; ++c) {
      const uint32_t number = backward ? kConstants - 1 - c : c;
      std::array<uint8_t, 32> hash = {};  // the tests of content compare hashes with bytes
      std::memcpy(&hash[28], &number, 4);
      const fb::Blob blob(c * kBlobAlign, 8, fb::Hash(hash));
      file.constants.push_back(
          fb::CreateConstantDirect(b, ("c" + std::to_string(c)).c_str(), HUSK_I64, &dims, &blob));
    }
    LargeVariant v;
    v.segment();
    file.function("f", {file.variant(v)});
    return std::make_unique<Aligned>(file.finish(kConstants * kBlobAlign));
  };
  husk_engine_options options = Machine::defaults();
  options.port = &port;
  husk_error error = {};
  husk_engine* engine = nullptr;
  ASSERT_EQ(husk_engine_create(&options, &engine, &error), HUSK_OK) << error.text;
  std::vector<std::unique_ptr<Aligned>> files;
  std::vector<husk_program*> programs;
  for (const bool backward : {false, true}) {
    files.push_back(program(backward));
    husk_program* loaded = nullptr;
    ASSERT_EQ(husk_program_load(engine, files.back()->data(), files.back()->size(), nullptr,
                                nullptr, &loaded, &error),
              HUSK_OK)
        << error.text;
    programs.push_back(loaded);
  }
  for (husk_program* loaded : programs) husk_program_release(loaded);
  husk_engine_release(engine);
}

// A range that no value passes is an empty interval, which divides nothing.
TEST(Large, AnEmptyIntervalIsNoDivisor) {
  for (const Scalar division : {Scalar::op_floordiv, Scalar::op_cdiv, Scalar::op_mod}) {
    LargeFile file;
    LargeVariant v;
    const uint32_t n = v.scalar(Scalar::op_input, 0), five = v.number(5), zero = v.number(0);
    v.scalar(division, five, v.scalar(Scalar::op_range, n, five, zero));
    v.segment();
    file.function("f", {file.variant(v)},
                  file.builder.CreateVector(std::vector<flatbuffers::Offset<fb::Value>>{
                      fb::CreateValueDirect(file.builder, "n", HUSK_VALUE_INT)}));
    Machine machine(file.finish());
    ASSERT_NE(machine.session, nullptr) << machine.error.text;
    EXPECT_EQ(machine.run({integer(1)}, {}), HUSK_INVALID_INPUT);
  }
}

}  // namespace
}  // namespace husk::test
