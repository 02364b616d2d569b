// Large programs and files that share rows: the time of verification and of sessions is in
// proportion to the metadata. Each test takes a second or two, and minutes if a step is quadratic;
// the limit of ctest then ends it.
#include "large_program.h"

namespace husk::test {
namespace {

#ifdef HUSK_SANITIZED
constexpr uint32_t kScale = 4;
#else
constexpr uint32_t kScale = 1;
#endif

// The results of a long segment are named many times by the next one.
TEST(Large, ManyOperandsThatAreResults) {
  LargeVariant v;
  const uint32_t size = v.number(8), zero = v.number(0);
  const uint32_t all = v.view(v.arena_buffer(size), zero, size);
  for (uint32_t i = 0; i < 150000 / kScale; ++i) v.fill(all, zero);
  v.argument(ArgumentKind::view, HUSK_ACCESS_READ, HUSK_I64, all);
  v.step(Step::op_read, 0, 1);
  v.segment();
  for (uint32_t i = 0; i < 300000 / kScale; ++i) v.scalar(Scalar::op_result, 0);
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
  for (uint32_t s = 0; s < 200000 / kScale; ++s) v.segment();
  for (uint32_t s = 0; s < 200000 / kScale; ++s) v.segment(one, 1);
  EXPECT_EQ(verify_error(large_file(v), HUSK_OK), "");
  v.segment(one, static_cast<uint32_t>(v.segments.size()));  // only this segment
  EXPECT_EQ(verify_error(large_file(v), HUSK_OK), "");
  v.segments[2] = {1, 1, 0, 0, one, 0};  // begins before the loops that it is in
  EXPECT_NE(verify_error(large_file(v)).find("loops of segments 2 and"), std::string::npos);
}

constexpr char kTooOften[] = "names its rows too often";

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

// A port with graphs that nobody can launch: only their creation matters.
const husk_port* graph_port() {
  static const husk_port_graphs graphs = [] {
    husk_port_graphs g = {};
    g.struct_size = sizeof(g);
    g.graph_create = [](void*, void** graph, husk_error*) {
      *graph = new int(0);
      return husk_status{HUSK_OK};
    };
    g.graph_add_copy = [](void*, void*, void*, const void*, uint64_t, const husk_graph_edge*,
                          uint32_t, husk_error*) { return husk_status{HUSK_OK}; };
    g.graph_add_fill = [](void*, void*, void*, uint64_t, uint32_t, uint64_t, const husk_graph_edge*,
                          uint32_t, husk_error*) { return husk_status{HUSK_OK}; };
    g.graph_instantiate = [](void*, void*, void** exec, husk_error*) {
      *exec = new int(0);
      return husk_status{HUSK_OK};
    };
    g.graph_destroy = [](void*, void* graph) { delete static_cast<int*>(graph); };
    g.exec_destroy = [](void*, void* exec) { delete static_cast<int*>(exec); };
    return g;
  }();
  static const husk_port port = [] {
    husk_port p = *husk_port_host();
    p.graphs = &graphs;
    return p;
  }();
  return &port;
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

// Sizes of many inputs.
TEST(Large, SessionWithManyInputs) {
  LargeFile file;
  auto& b = file.builder;
  LargeVariant v;
  std::vector<flatbuffers::Offset<fb::Value>> values;
  const std::vector<fb::Dim> dims = {fb::Dim(1, 16)};
  for (uint32_t i = 0; i < kSteps; ++i) {
    values.push_back(fb::CreateValueDirect(b, ("v" + std::to_string(i)).c_str(), HUSK_VALUE_TENSOR,
                                           HUSK_F32, 1, &dims));
    v.scalar(Scalar::op_size, i, 0);
  }
  v.segment();
  file.function("f", {file.variant(v)}, b.CreateVector(values));
  const Machine machine(file.finish());
  EXPECT_NE(machine.session, nullptr) << machine.error.text;
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
