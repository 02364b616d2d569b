// Copies of constants that ops lay out for themselves (husk_op.pack).
#include "write/packed.h"

#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include <husk/port_host.h>
#include <husk/weights.h>

#include "../values.h"
#include "compile.h"
#include "edited_artifact.h"
#include "program/program.h"

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
  const char* name = nullptr;    // of the layout
  const void* stored = nullptr;  // the last copy of a file that was asked about
  husk_status size_answer = HUSK_OK, copy_answer = HUSK_OK, stored_answer = HUSK_OK;
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
    packing->name = asked.name;
    if (packing->stored) {
      asked.stored = packing->stored;
      error->code = asked.stored_answer;
      std::strcpy(error->text, "no copy of these weights");
      return asked.stored_answer;
    }
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
  explicit PackedSums(const std::vector<uint8_t>& file, const PackAsked& answers = {},
                      husk_engine_options options = Machine::defaults())
      : asked(answers), machine(file, options, nullptr, {sum_op(&asked)}) {}

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

// Artifacts with copies of constants.
class CopiesInFile : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/husk-packed-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // The file `in` with the copies that a program has. A copy of no name cannot be written.
  void add_copies(const husk_program* program, const char* in, const char* out) const {
    const runtime::PackedConstants& packed = program->packed;
    std::vector<compiler::PackedContent> copies(packed.count());
    for (size_t i = 0; i < copies.size(); ++i) {
      ASSERT_TRUE(packed.write_key(i, copies[i].key.data()));
      copies[i].bytes = {packed.data(i), packed.bytes(i)};
    }
    compiler::OutputFile file(folder_ / out);
    compiler::write_packed(folder_ / in, copies, file);
    file.finish();
  }
  std::vector<uint8_t> read(const char* name) const {
    std::ifstream file(folder_ / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }
  void write(const char* name, const std::vector<uint8_t>& bytes) const {
    std::ofstream(folder_ / name, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
  }
  // The artifact of these functions with the copies of their op.
  std::vector<uint8_t> packed_file(const std::string& functions, const char* name = "a") const {
    PackAsked asked;
    asked.name = name;
    const std::vector<uint8_t> plain = artifact(weight_constant() + functions);
    write("plain", plain);
    const Machine m(plain, Machine::defaults(), nullptr, {sum_op(&asked)});
    EXPECT_NE(m.program, nullptr) << m.error.text;
    add_copies(m.program, "plain", "packed");
    return read("packed");
  }

  std::filesystem::path folder_;
};

PackAsked named(const char* name) {
  PackAsked asked;
  asked.name = name;
  return asked;
}

TEST_F(CopiesInFile, AreUsedWhereTheyLie) {
  husk_engine_options options = Machine::defaults();
  options.max_packed_bytes = 1;  // they take no memory
  const std::vector<uint8_t> file = packed_file(functions_of_sums("f", {kAll, kTransposed, kAll}));
  PackedSums p(file, named("a"), options);
  ASSERT_NE(p.machine.session, nullptr) << p.machine.error.text;
  EXPECT_EQ(p.asked.copies, 0);
  EXPECT_NE(p.asked.stored, nullptr);
  EXPECT_EQ(husk_program_packed_bytes(p.machine.program), 0u);
  EXPECT_EQ(p.run(), 78);
  EXPECT_EQ(p.asked.packed_calls, 3);
  // The same file again, and a program of the engine that has no copies in its file.
  const SecondProgram second(p, functions_of_sums("f", {kTransposed}));
  EXPECT_EQ(p.asked.copies, 0) << "max_packed_bytes allows none";
}

TEST_F(CopiesInFile, AreMadeAtOpenIfTheOpHasAnotherLayout) {
  const std::vector<uint8_t> file = packed_file(functions_of_sums("f", {kAll}));
  PackAsked other_layout = named("a"), other_size = named("a");
  other_layout.layout = 1;
  other_size.bytes = 96;
  for (const PackAsked& answers : {named("b"), named(nullptr), other_layout, other_size}) {
    PackedSums p(file, answers);
    ASSERT_NE(p.machine.session, nullptr) << p.machine.error.text;
    EXPECT_EQ(p.asked.copies, 1);
    EXPECT_EQ(p.asked.stored, nullptr);
    EXPECT_GE(husk_program_packed_bytes(p.machine.program), 64u);
    EXPECT_EQ(p.run(), 78);
  }
}

TEST_F(CopiesInFile, AreFewerThanThoseThatTheProgramWants) {
  packed_file(functions_of_sums("f", {kAll}));
  const std::vector<uint8_t> both = artifact(weight_constant() +
                                             functions_of_sums("f", {kAll, kTransposed}));
  write("both", both);
  PackedSums first(packed_file(functions_of_sums("f", {kAll})), named("a"));
  ASSERT_NE(first.machine.program, nullptr) << first.machine.error.text;
  add_copies(first.machine.program, "both", "half");
  PackedSums p(read("half"), named("a"));
  ASSERT_NE(p.machine.session, nullptr) << p.machine.error.text;
  EXPECT_EQ(p.asked.copies, 1);
  EXPECT_EQ(husk_program_packed_bytes(p.machine.program), 64u);
  EXPECT_EQ(p.run(), 78);
  EXPECT_EQ(p.asked.packed_calls, 2);
  const float values[12] = {1};
  const husk_constant_update update = {0, 0, values};
  uint8_t before[48];
  std::memcpy(before, p.asked.stored, sizeof(before));
  ASSERT_EQ(husk_program_update_constants(p.machine.program, &update, 1, &p.machine.error), HUSK_OK)
      << p.machine.error.text;
  EXPECT_EQ(p.run(), 1);
  EXPECT_EQ(std::memcmp(before, p.asked.stored, sizeof(before)), 0) << "the file is read-only";
}

TEST_F(CopiesInFile, OfSeveralCpusStandSideBySide) {
  packed_file(functions_of_sums("f", {kAll}), "a");
  PackedSums other(read("plain"), named("b"));
  ASSERT_NE(other.machine.program, nullptr) << other.machine.error.text;
  add_copies(other.machine.program, "packed", "two");
  add_copies(other.machine.program, "two", "again");
  const std::vector<uint8_t> again = read("again");
  for (const char* name : {"a", "b"}) {
    PackedSums p(again, named(name));
    ASSERT_NE(p.machine.session, nullptr) << p.machine.error.text;
    EXPECT_EQ(p.asked.copies, 0);
    EXPECT_EQ(p.run(), 78);
  }
}

TEST_F(CopiesInFile, AreReplacedByUpdates) {
  const std::vector<uint8_t> file = packed_file(functions_of_sums("f", {kAll, kTransposed}));
  PackedSums p(file, named("a"));
  ASSERT_NE(p.machine.session, nullptr) << p.machine.error.text;
  for (int round = 1; round < 3; ++round) {
    const std::vector<float> values(12, static_cast<float>(round));
    const husk_constant_update update = {0, 0, values.data()};
    ASSERT_EQ(husk_program_update_constants(p.machine.program, &update, 1, &p.machine.error),
              HUSK_OK)
        << p.machine.error.text;
    EXPECT_EQ(p.run(), 12 * round);
    EXPECT_EQ(p.asked.copies, 2 * round);
    EXPECT_EQ(p.asked.packed_calls, p.asked.calls);
  }
  PackedSums fresh(file, named("a"));
  EXPECT_EQ(fresh.run(), 78);
}

TEST_F(CopiesInFile, ThatTheOpRefusesFailTheOpen) {
  PackAsked answers = named("a");
  answers.stored_answer = HUSK_INVALID_FILE;
  const PackedSums p(packed_file(functions_of_sums("f", {kAll})), answers);
  EXPECT_EQ(p.machine.program, nullptr);
  EXPECT_EQ(p.machine.error.code, HUSK_INVALID_FILE);
  EXPECT_STREQ(p.machine.error.text,
               "function 'f', step 0, the copy of argument 1: no copy of these weights");
}

TEST_F(CopiesInFile, AreComparedWithTheirHashesOnRequest) {
  std::vector<uint8_t> file = packed_file(functions_of_sums("f", {kAll}));
  file.back() ^= 1;  // the last copy ends the file
  husk_engine_options options = Machine::defaults();
  PackedSums unchecked(file, named("a"), options);
  ASSERT_NE(unchecked.machine.session, nullptr) << unchecked.machine.error.text;
  options.verify_content = 1;
  const PackedSums p(file, named("a"), options);
  EXPECT_EQ(p.machine.program, nullptr);
  EXPECT_STREQ(p.machine.error.text,
               "packed copy 'of a constant' does not match its hash: the file was changed or "
               "damaged");
}

// golden/packed_0_6.husk was written when copies were new: their keys stay the same.
TEST_F(CopiesInFile, AreFoundInOlderFiles) {
  std::ifstream file(HUSK_SOURCE "/tests/runtime/golden/packed_0_6.husk", std::ios::binary);
  PackAsked answers = named("a");
  answers.layout = 5;
  PackedSums p({std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()}, answers);
  ASSERT_NE(p.machine.session, nullptr) << p.machine.error.text;
  EXPECT_EQ(p.asked.copies, 0);
  EXPECT_EQ(p.run(), 78);
  EXPECT_EQ(p.asked.packed_calls, 2);
}

TEST_F(CopiesInFile, AreVerified) {
  const std::vector<uint8_t> file = packed_file(functions_of_sums("f", {kAll, kTransposed}));
  const auto refusal = [&](auto change) {
    std::vector<uint8_t> changed = file;
    const fb::Program* program = fb::GetProgram(changed.data() + 64);
    auto* rows = const_cast<uint8_t*>(program->packed()->Data());
    change(rows);
    write_hash(changed);
    return verify_error(changed);
  };
  constexpr size_t kRow = sizeof(fb::PackedCopy), kOffset = sizeof(fb::Hash), kSize = kOffset + 8;
  const std::string order = "packed copies are empty, or not in the order of their keys",
                    place =
                        "packed copy 'of a constant' lies outside the file, or not at a "
                        "multiple of 64";
  EXPECT_EQ(refusal([](uint8_t* rows) { std::memset(rows, 0xff, 32); }), order);
  EXPECT_EQ(refusal([](uint8_t* rows) { std::memcpy(rows, rows + kRow, 32); }), order);
  EXPECT_EQ(refusal([](uint8_t* rows) { std::memset(rows + kSize, 0, 8); }), order);
  EXPECT_EQ(refusal([](uint8_t* rows) { rows[kOffset] ^= 1; }), place);
  EXPECT_EQ(refusal([](uint8_t* rows) { rows[kSize + 6] = 1; }), place);
  EXPECT_NE(refusal([](uint8_t* rows) {
              std::memcpy(rows + kOffset, rows + kRow + kOffset, 8);
            }).find("overlap"),
            std::string::npos);
}

TEST_F(CopiesInFile, OfWeightsBesideIt) {
  std::ofstream(folder_ / "model.hir") << "hir 1\ntarget cpu host \"" HUSK_TEST_ARCH "\"\n" +
                                              weight_constant() + functions_of_sums("f", {kAll});
  const auto compiled = compiler::compile_file(folder_ / "model.hir", folder_ / "plain", {}, {},
                                               compiler::Weights::beside);
  ASSERT_TRUE(std::holds_alternative<compiler::Summary>(compiled))
      << std::get<compiler::Error>(compiled).text;
  PackedSums engine(functions_of_sums("f", {kTransposed}));
  engine.asked = named("a");
  for (const char* name : {"plain", "packed", "packed"}) {
    husk_error error = {};
    husk_program* program = nullptr;
    const int copies = engine.asked.copies;
    ASSERT_EQ(husk_weights_open(engine.machine.engine, (folder_ / name).c_str(), nullptr, &program,
                                &error),
              HUSK_OK)
        << error.text;
    EXPECT_EQ(engine.asked.copies - copies, name == std::string("plain"));
    husk_session* session = nullptr;
    ASSERT_EQ(husk_session_create(program, nullptr, &session, &error), HUSK_OK) << error.text;
    Tensor x(HUSK_F32, {2}), y(HUSK_F32, {2});
    husk_value in = x.value(), out = y.value();
    ASSERT_EQ(husk_session_run(session, 0, nullptr, &in, 1, &out, 1, &error), HUSK_OK)
        << error.text;
    EXPECT_EQ(y.as<float>()[0], 78);
    husk_session_release(session);
    if (name == std::string("plain")) add_copies(program, "plain", "packed");
    husk_program_release(program);
  }
}

}  // namespace
}  // namespace husk::test
