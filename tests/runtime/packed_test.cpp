// Copies of constants that ops lay out for themselves (husk_op.pack).
#include <cstdlib>
#include <cstring>

#include <husk/port_host.h>

#include "../values.h"
#include "edited_artifact.h"

namespace husk::test {
namespace {

// The weights are 1, 2, ... 12.
std::string weight_constant() {
  std::string text;
  char digits[9];
  for (int i = 1; i <= 12; ++i) {
    const auto value = static_cast<float>(i);
    const auto* bytes = reinterpret_cast<const unsigned char*>(&value);
    std::snprintf(digits, sizeof(digits), "%02x%02x%02x%02x", bytes[0], bytes[1], bytes[2],
                  bytes[3]);
    text += digits;
  }
  return "constant w f32 [3, 4] bytes \"" + text + "\"\n";
}

// A function that writes the sum of the weights' elements to y, once for each of `tensors`.
std::string functions_of_sums(const char* name, const std::vector<std::string>& tensors) {
  std::string text = std::string("function ") + name + R"( {
  input x tensor f32 [1..8]
  output y tensor f32 rank 1
  variant cpu {
    let n = size(x, 0)
    buffer x of input bytes mul(n, 4)
    buffer y of output bytes mul(n, 4)
)";
  for (const std::string& tensor : tensors)
    text += "    extern \"test::sum\" (read tensor x f32 [n] [1], read tensor " + tensor +
            ", 7, write tensor y f32 [n] [1]) at \"model.py:3\"\n";
  return text + R"(    return (tensor y f32 [n] [1])
  }
}
)";
}

constexpr char kAll[] = "w f32 [3, 4] [4, 1]", kTransposed[] = "w f32 [4, 3] [1, 4]";

// What the op was asked, and what it answers.
struct PackAsked {
  int sizes = 0, copies = 0, calls = 0, packed_calls = 0, unknown = 0;
  uint64_t layout = 0;
  husk_status size_answer = HUSK_OK, copy_answer = HUSK_OK;
  std::vector<int64_t> input_sizes;  // of the call's first argument, while packing
  uint64_t bytes = 0;                // 0: as many as the tensor has
  int questions = 0;                 // that the op asks while it packs
  uint32_t rank = 0, world = 0;      // of the last call, of either function
};

// Adds the weights. A packed copy has the doubles of the weights, so that the sum tells what was
// read: sums of copies are halved, and counted.
husk_status sum_weights(const husk_op_context* context, const husk_op_arg* args, uint32_t count,
                        husk_error*) {
  PackAsked& asked = *static_cast<PackAsked*>(context->user);
  asked.rank = context->rank;
  asked.world = context->world;
  if (count != 4) return HUSK_INVALID_ARGUMENT;
  ++asked.calls;
  const husk_op_arg& w = args[1];
  const auto* packed = context->packed ? static_cast<const float*>(context->packed[1]) : nullptr;
  if (context->packed && (context->packed[0] || context->packed[2] || context->packed[3]))
    return HUSK_KERNEL;
  asked.packed_calls += packed != nullptr;
  float total = 0;
  int64_t at = 0;
  for (int64_t i = 0; i < w.sizes[0]; ++i)
    for (int64_t j = 0; j < w.sizes[1]; ++j, ++at)
      total += packed ? packed[at] / 2
                      : static_cast<const float*>(w.data)[i * w.strides[0] + j * w.strides[1]];
  for (int64_t i = 0; i < args[3].sizes[0]; ++i) static_cast<float*>(args[3].data)[i] = total;
  return HUSK_OK;
}

husk_status pack_weights(const husk_op_context* context, const husk_op_arg* args, uint32_t count,
                         husk_packing* packing, husk_error* error) {
  PackAsked& asked = *static_cast<PackAsked*>(context->user);
  asked.rank = context->rank;
  asked.world = context->world;
  const husk_op_arg& w = args[1];
  if (args[2].kind == HUSK_ARG_NONE) {  // not known, so that no layout fits
    ++asked.unknown;
    packing->bytes = 0;
    return HUSK_OK;
  }
  if (count != 4 || !context->device || packing->argument != 1 || !w.data || args[0].data ||
      args[3].data || args[2].kind != HUSK_ARG_INT || args[2].i != 7)
    return HUSK_KERNEL;
  asked.input_sizes.push_back(args[0].sizes[0]);
  if (!packing->data) {
    ++asked.sizes;
    packing->bytes = asked.bytes ? asked.bytes
                                 : static_cast<uint64_t>(w.sizes[0] * w.sizes[1]) * sizeof(float);
    packing->layout = asked.layout;
    error->code = asked.size_answer;
    if (asked.size_answer != HUSK_OK) std::strcpy(error->text, "no size");
    return asked.size_answer;
  }
  ++asked.copies;
  for (int i = 0; i < asked.questions; ++i)
    if (context->cancel && context->cancel(context->cancel_user) != 0) {
      error->code = HUSK_CANCELLED;
      std::strcpy(error->text, "the op has ended");
      return HUSK_CANCELLED;
    }
  if (reinterpret_cast<uintptr_t>(packing->data) % 64) return HUSK_KERNEL;
  auto* to = static_cast<float*>(packing->data);
  for (int64_t i = 0; i < w.sizes[0]; ++i)
    for (int64_t j = 0; j < w.sizes[1]; ++j)
      *to++ = 2 * static_cast<const float*>(w.data)[i * w.strides[0] + j * w.strides[1]];
  error->code = asked.copy_answer;
  if (asked.copy_answer != HUSK_OK) std::strcpy(error->text, "no copy");
  return asked.copy_answer;
}

husk_op sum_op(PackAsked* asked) {
  return {sizeof(husk_op), 0, "test::sum", sum_weights, asked, nullptr, "x w n y:w",
          pack_weights,    0, 0,           0,           0};
}

// A program whose op is asked for copies.
struct PackedSums {
  explicit PackedSums(const std::string& functions,
                      husk_engine_options options = Machine::defaults())
      : machine(weight_constant() + functions, options, nullptr, {sum_op(&asked)}) {}
  explicit PackedSums(const std::vector<uint8_t>& file)
      : machine(file, Machine::defaults(), nullptr, {sum_op(&asked)}) {}

  // The sum that a run of a function gives.
  float run(uint32_t function = 0) {
    Tensor x(HUSK_F32, {2}), y(HUSK_F32, {2});
    EXPECT_EQ(machine.run({x.value()}, {y.value()}, function), HUSK_OK) << machine.error.text;
    EXPECT_EQ(y.as<float>()[0], y.as<float>()[1]);
    return y.as<float>()[0];
  }

  PackAsked asked;
  Machine machine;
};

TEST(PackedConstants, AreMadeOnceAndReadByEachRun) {
  PackedSums p(functions_of_sums("f", {kAll}));
  ASSERT_NE(p.machine.session, nullptr) << p.machine.error.text;
  EXPECT_EQ(p.asked.sizes, 1);
  EXPECT_EQ(p.asked.copies, 1);
  EXPECT_EQ(p.asked.input_sizes, (std::vector<int64_t>{HUSK_UNKNOWN_SIZE, HUSK_UNKNOWN_SIZE}));
  EXPECT_EQ(husk_program_packed_bytes(p.machine.program), 64u);  // 48, filled up to the alignment
  EXPECT_EQ(p.run(), 78);
  EXPECT_EQ(p.run(), 78);
  EXPECT_EQ(p.asked.packed_calls, 2);
  EXPECT_EQ(p.asked.copies, 1);
  EXPECT_EQ(husk_program_packed_bytes(nullptr), 0u);
}

TEST(PackedConstants, TheirOpKnowsTheNumberOfItsProcess) {
  husk_engine_options options = Machine::defaults();
  options.rank = 2;
  options.world = 4;
  PackedSums p(functions_of_sums("f", {kAll}), options);
  ASSERT_NE(p.machine.session, nullptr) << p.machine.error.text;
  EXPECT_EQ(p.asked.copies, 1);
  EXPECT_EQ(p.asked.rank, 2u);
  EXPECT_EQ(p.asked.world, 4u);
  p.asked.rank = p.asked.world = 0;
  EXPECT_EQ(p.run(), 78);
  EXPECT_EQ(p.asked.rank, 2u);
  EXPECT_EQ(p.asked.world, 4u);
}

TEST(PackedConstants, CallsWithTheSameTensorAndLayoutShareACopy) {
  PackedSums p(functions_of_sums("f", {kAll, kTransposed, kAll}) +
               functions_of_sums("g", {kTransposed}));
  ASSERT_NE(p.machine.session, nullptr) << p.machine.error.text;
  EXPECT_EQ(p.asked.sizes, 4);
  EXPECT_EQ(p.asked.copies, 2);
  EXPECT_EQ(husk_program_packed_bytes(p.machine.program), 128u);
  EXPECT_EQ(p.run(0), 78);
  EXPECT_EQ(p.run(1), 78);
  EXPECT_EQ(p.asked.packed_calls, 4);
}

TEST(PackedConstants, ViewsOfAConstantAreDifferentTensors) {
  // The first function reads rows 0 and 1, the second rows 1 and 2, the third column 0 as a row.
  PackedSums p(functions_of_sums("f", {"w f32 [2, 4] [4, 1]"}) +
               functions_of_sums("g", {"w f32 [2, 4] [4, 1] offset 4"}) +
               functions_of_sums("h", {"w f32 [1, 3] [12, 4]"}));
  ASSERT_NE(p.machine.session, nullptr) << p.machine.error.text;
  EXPECT_EQ(p.asked.copies, 3);
  EXPECT_EQ(p.run(0), 36);
  EXPECT_EQ(p.run(1), 68);
  EXPECT_EQ(p.run(2), 15);
  EXPECT_EQ(p.asked.packed_calls, 3);
}

TEST(PackedConstants, TheFifthLayoutReadsTheConstantInPlace) {
  PackedSums p(functions_of_sums(
      "f", {"w f32 [1, 12] [12, 1]", "w f32 [2, 6] [6, 1]", "w f32 [3, 4] [4, 1]",
            "w f32 [4, 3] [3, 1]", "w f32 [6, 2] [2, 1]", "w f32 [4, 3] [3, 1]"}));
  ASSERT_NE(p.machine.session, nullptr) << p.machine.error.text;
  EXPECT_EQ(p.asked.copies, 4);
  EXPECT_EQ(p.run(), 78);
  EXPECT_EQ(p.asked.calls, 6);
  EXPECT_EQ(p.asked.packed_calls, 5);
}

TEST(PackedConstants, RepeatedElementsAndSizesOfInputsAreNotPacked) {
  PackedSums p(functions_of_sums("f", {"w f32 [3, 4] [0, 1]", "w f32 [n, 2] [2, 1]",
                                       "w f32 [0, 4] [4, 1]", "w f32 [3, 4] [3, 1]"}));
  ASSERT_NE(p.machine.session, nullptr) << p.machine.error.text;
  // The last one reads elements twice, which its sizes do not say.
  EXPECT_EQ(p.asked.sizes, 0);
  EXPECT_EQ(husk_program_packed_bytes(p.machine.program), 0u);
  Tensor x(HUSK_F32, {2}), y(HUSK_F32, {2});
  EXPECT_EQ(p.machine.run({x.value()}, {y.value()}), HUSK_OK) << p.machine.error.text;
  EXPECT_EQ(p.asked.packed_calls, 0);
}

// huskc keeps constants in the first segment; another producer may put them elsewhere.
TEST(PackedConstants, ConstantsOfASkippedSegmentDecideNoLayout) {
  EditedArtifact edited(weight_constant() + R"(
function f {
  input x tensor f32 [1..8]
  output y tensor f32 rank 1
  variant cpu {
    let n = size(x, 0)
    buffer x of input bytes mul(n, 4)
    buffer y of output bytes mul(n, 4)
    fill f32 (write y, 1.0)
    when lt(n, 2) {
      let number = min(n, 3)
    }
    extern "test::sum" (read tensor x f32 [n] [1], read tensor w f32 [3, 4] [4, 1], number,
                        write tensor y f32 [n] [1])
    return (tensor y f32 [n] [1])
  }
}
)");
  uint32_t conditional = 0;
  while (edited.segment(conditional).when == kNone) ++conditional;
  edited.scalar(edited.find(Scalar::op_min, edited.segment(conditional).scalar_begin)) = {
      static_cast<uint16_t>(Scalar::op_const), 0, 0, 7, 0};
  write_hash(edited.file);
  PackedSums p(edited.file);
  ASSERT_NE(p.machine.session, nullptr) << p.machine.error.text;
  EXPECT_EQ(p.run(), 78.0f);
  EXPECT_EQ(p.asked.unknown, 1) << "the number is 0 if the segment is skipped";
  EXPECT_EQ(p.asked.copies, 0);
}

TEST(PackedConstants, TheLimitOfTheEngineHolds) {
  for (const auto& [limit, copies] :
       {std::pair<uint64_t, int>{1, 0}, {63, 0}, {64, 1}, {127, 1}, {128, 2}}) {
    husk_engine_options options = Machine::defaults();
    options.max_packed_bytes = limit;
    PackedSums p(functions_of_sums("f", {kAll, kTransposed}), options);
    ASSERT_NE(p.machine.session, nullptr) << p.machine.error.text;
    EXPECT_EQ(p.asked.copies, copies) << limit;
    EXPECT_EQ(husk_program_packed_bytes(p.machine.program), 64u * static_cast<uint64_t>(copies));
    EXPECT_EQ(p.run(), 78);
    EXPECT_EQ(p.asked.packed_calls, copies);
  }
}

TEST(PackedConstants, AnUpdateChangesTheCopies) {
  PackedSums p(functions_of_sums("f", {kAll, kTransposed}));
  ASSERT_NE(p.machine.session, nullptr) << p.machine.error.text;
  EXPECT_EQ(p.run(), 78);
  for (int round = 1; round < 3; ++round) {
    std::vector<float> first(12, -1), last(12, static_cast<float>(round));
    const husk_constant_update updates[] = {{0, 0, first.data()}, {0, 0, last.data()}};
    ASSERT_EQ(husk_program_update_constants(p.machine.program, updates, 2, &p.machine.error),
              HUSK_OK)
        << p.machine.error.text;
    EXPECT_EQ(p.run(), 12 * round);
    EXPECT_EQ(p.asked.copies, 2 + 2 * round);  // each layout once, of the last value
    EXPECT_EQ(p.asked.packed_calls, p.asked.calls);
  }
}

TEST(PackedConstants, AnUpdateOfPartsChangesTheCopies) {
  PackedSums p(functions_of_sums("f", {kAll, kTransposed}));
  ASSERT_NE(p.machine.session, nullptr) << p.machine.error.text;
  EXPECT_EQ(p.run(), 78);  // 1 to 12
  const float values[] = {100, 200};
  const husk_constant_part parts[] = {{0, 0, values, 0, 4}, {0, 0, values + 1, 44, 4}};
  ASSERT_EQ(husk_program_update_constant_parts(p.machine.program, parts, 2, &p.machine.error),
            HUSK_OK)
      << p.machine.error.text;
  EXPECT_EQ(p.run(), 78 - 1 - 12 + 300);
  EXPECT_EQ(p.asked.copies, 4);
  EXPECT_EQ(p.asked.packed_calls, p.asked.calls);
}

// A second program of the engine that is opened from the same file.
struct SecondProgram {
  SecondProgram(const PackedSums& first, const std::string& functions)
      : file(artifact(weight_constant() + functions)) {
    const husk_status opened = husk_program_load(first.machine.engine, file.data(), file.size(),
                                                 nullptr, nullptr, &program, &error);
    EXPECT_EQ(opened, HUSK_OK) << error.text;
    const husk_session_options options = HUSK_SESSION_OPTIONS_INIT;
    EXPECT_EQ(husk_session_create(program, &options, &session, &error), HUSK_OK) << error.text;
  }
  SecondProgram(const SecondProgram&) = delete;
  ~SecondProgram() {
    husk_session_release(session);
    husk_program_release(program);
  }
  float run() {
    Tensor x(HUSK_F32, {2}), y(HUSK_F32, {2});
    husk_value in = x.value(), out = y.value();
    EXPECT_EQ(husk_session_run(session, 0, nullptr, &in, 1, &out, 1, &error), HUSK_OK)
        << error.text;
    return y.as<float>()[0];
  }
  void update(float value) {
    const std::vector<float> values(12, value);
    const husk_constant_update update = {0, 0, values.data()};
    EXPECT_EQ(husk_program_update_constants(program, &update, 1, &error), HUSK_OK) << error.text;
  }
  Aligned file;
  husk_program* program = nullptr;
  husk_session* session = nullptr;
  husk_error error = {};
};

TEST(PackedConstants, ProgramsOfAnEngineShareThem) {
  const std::string functions = functions_of_sums("f", {kAll, kTransposed});
  PackedSums p(functions);
  ASSERT_NE(p.machine.session, nullptr) << p.machine.error.text;
  EXPECT_EQ(p.asked.copies, 2);
  auto second = std::make_unique<SecondProgram>(p, functions);
  EXPECT_EQ(p.asked.copies, 2);
  EXPECT_EQ(husk_program_packed_bytes(second->program), 128u);
  EXPECT_EQ(second->run(), 78);
  EXPECT_EQ(p.asked.packed_calls, p.asked.calls);

  // An update changes one program only, and what is opened later has the file's values.
  second->update(1);
  EXPECT_EQ(second->run(), 12);
  EXPECT_EQ(p.run(), 78);
  second->update(2);
  EXPECT_EQ(second->run(), 24);
  EXPECT_EQ(p.run(), 78);
  const int copies = p.asked.copies;
  auto third = std::make_unique<SecondProgram>(p, functions);
  EXPECT_EQ(p.asked.copies, copies);
  EXPECT_EQ(third->run(), 78);
  second.reset();
  EXPECT_EQ(third->run(), 78);

  // A program whose copies nobody shares any more changes them in place and stops to lend them.
  third.reset();
  std::vector<float> values(12, 3);
  const husk_constant_update update = {0, 0, values.data()};
  ASSERT_EQ(husk_program_update_constants(p.machine.program, &update, 1, &p.machine.error), HUSK_OK)
      << p.machine.error.text;
  EXPECT_EQ(p.run(), 36);
  SecondProgram late(p, functions);
  EXPECT_EQ(late.run(), 78);
  EXPECT_EQ(p.run(), 36);
  EXPECT_EQ(p.asked.packed_calls, p.asked.calls);
}

// Copies differ if the tensor, the layout or the bytes of the constant do.
TEST(PackedConstants, ProgramsShareOnlyTheSameCopies) {
  PackedSums p(functions_of_sums("f", {kAll}));
  ASSERT_NE(p.machine.session, nullptr) << p.machine.error.text;
  EXPECT_EQ(p.asked.copies, 1);
  const SecondProgram transposed(p, functions_of_sums("f", {kTransposed}));
  EXPECT_EQ(p.asked.copies, 2);
  const SecondProgram part(p, functions_of_sums("f", {"w f32 [2, 4] [4, 1]"}));
  EXPECT_EQ(p.asked.copies, 3);
  const SecondProgram later(p, functions_of_sums("f", {"w f32 [2, 4] [4, 1] offset 4"}));
  EXPECT_EQ(p.asked.copies, 4);
  p.asked.layout = 1;
  const SecondProgram other_layout(p, functions_of_sums("f", {kAll}));
  EXPECT_EQ(p.asked.copies, 5);
  p.asked.layout = 0;
  const SecondProgram same(p, functions_of_sums("f", {kAll}));
  EXPECT_EQ(p.asked.copies, 5);
}

// Two rows name the same bytes: one copy is made, and an update changes one of the rows.
TEST(PackedConstants, ConstantsThatShareBytesShareACopy) {
  std::string second = weight_constant();
  second.replace(second.find(" w "), 3, " v ");
  const std::string v_all = "v" + std::string(kAll).substr(1);
  PackedSums p(second + functions_of_sums("f", {kAll}) + functions_of_sums("g", {v_all}));
  ASSERT_NE(p.machine.session, nullptr) << p.machine.error.text;
  EXPECT_EQ(p.asked.copies, 1);
  std::vector<float> values(12, 1);
  const husk_constant_update update = {0, 0, values.data()};
  ASSERT_EQ(husk_program_update_constants(p.machine.program, &update, 1, &p.machine.error), HUSK_OK)
      << p.machine.error.text;
  EXPECT_EQ(p.run(0), 12);
  EXPECT_EQ(p.run(1), 78);
  EXPECT_EQ(p.asked.packed_calls, 2);
}

TEST(PackedConstants, AFailedUpdateChangesNothing) {
  PackedSums p(functions_of_sums("f", {kAll, kTransposed}));
  ASSERT_NE(p.machine.session, nullptr) << p.machine.error.text;
  std::vector<float> values(12, 1);
  const husk_constant_update update = {0, 0, values.data()};
  p.asked.copy_answer = HUSK_UNSUPPORTED;
  EXPECT_EQ(husk_program_update_constants(p.machine.program, &update, 1, &p.machine.error),
            HUSK_UNSUPPORTED);
  EXPECT_STREQ(p.machine.error.text, "function 'f', step 1, the copy of argument 1: no copy");
  EXPECT_EQ(p.run(), 78);
  p.asked.copy_answer = HUSK_OK;
  EXPECT_EQ(husk_program_update_constants(p.machine.program, &update, 1, &p.machine.error),
            HUSK_OK);
  EXPECT_EQ(p.run(), 12);
}

TEST(PackedConstants, AFailureOfTheOpFailsTheOpen) {
  for (const bool at_size : {true, false}) {
    PackAsked asked;
    (at_size ? asked.size_answer : asked.copy_answer) = HUSK_UNSUPPORTED;
    Machine m(weight_constant() + functions_of_sums("f", {kAll}), Machine::defaults(), nullptr,
              {sum_op(&asked)});
    EXPECT_EQ(m.program, nullptr);
    EXPECT_EQ(m.error.code, HUSK_UNSUPPORTED);
    EXPECT_STREQ(m.error.text, at_size ? "function 'f', step 0, the copy of argument 1: no size"
                                       : "function 'f', step 0, the copy of argument 1: no copy");
  }
}

TEST(PackedConstants, NoMemoryIsAnErrorWithARemedy) {
  const husk_allocator small = {
      nullptr,
      [](void*, size_t size, size_t align) -> void* {
        return size < 1 << 20 ? std::aligned_alloc(align, (size + align - 1) / align * align)
                              : nullptr;
      },
      [](void*, void* memory) { std::free(memory); }};
  husk_engine_options options = Machine::defaults();
  options.allocator = &small;
  PackAsked asked;
  asked.bytes = 1 << 20;
  Machine m(weight_constant() + functions_of_sums("f", {kAll}), options, nullptr, {sum_op(&asked)});
  EXPECT_EQ(m.program, nullptr);
  EXPECT_EQ(m.error.code, HUSK_OUT_OF_MEMORY);
  EXPECT_NE(std::strstr(m.error.text, "max_packed_bytes"), nullptr) << m.error.text;
}

// The application hears of copies, and ends the open before one, while the op makes it, and after
// it.
TEST(PackedConstants, ReportTheirProgress) {
  struct Reports {
    std::vector<uint64_t> done;
    size_t last;
    static int32_t report(void* user, uint64_t done, uint64_t total) {
      auto* reports = static_cast<Reports*>(user);
      EXPECT_EQ(total, 128u);
      reports->done.push_back(done);
      return reports->done.size() == reports->last;
    }
  };
  const std::string text = weight_constant() + functions_of_sums("f", {kAll, kTransposed});
  for (size_t last = 1; last <= 8; ++last) {
    Reports reports = {{}, last};
    PackAsked asked;
    asked.questions = 2;
    husk_engine_options options = Machine::defaults();
    options.progress = Reports::report;
    options.progress_user = &reports;
    Machine m(text, options, nullptr, {sum_op(&asked)});
    const std::vector<uint64_t> all = {0, 0, 0, 64, 64, 64, 128};
    if (last <= all.size()) {
      EXPECT_EQ(m.program, nullptr);
      EXPECT_EQ(m.error.code, HUSK_CANCELLED);
      EXPECT_NE(std::strstr(m.error.text, "husk_engine_options.progress ended the open after"),
                nullptr)
          << m.error.text;
      EXPECT_EQ(reports.done, std::vector<uint64_t>(all.begin(), all.begin() + last));
    } else {
      EXPECT_NE(m.session, nullptr) << m.error.text;
      EXPECT_EQ(reports.done, all);
    }
  }
}

TEST(PackedConstants, OnlyDevicesThatComputeInHostMemoryHaveThem) {
  static husk_port port;
  port = *husk_port_host();
  port.properties = [](void* device, husk_port_properties* out) {
    husk_port_host()->properties(device, out);
    out->host_memory = 0;
  };
  husk_engine_options options = Machine::defaults();
  options.port = &port;
  PackedSums p(functions_of_sums("f", {kAll}), options);
  ASSERT_NE(p.machine.session, nullptr) << p.machine.error.text;
  EXPECT_EQ(p.asked.sizes, 0);
  EXPECT_EQ(p.run(), 78);
  EXPECT_EQ(p.asked.packed_calls, 0);
}

}  // namespace
}  // namespace husk::test
