// An op of the application, as ports/host/ADD-AN-OPERATOR.md shows it, called by a program.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include <husk/husk.h>
#include <husk/port_host.h>

#include "compile.h"

namespace husk::host_test {
namespace {

// app::scale(Tensor x, float factor) -> Tensor: out = x * factor, for contiguous f32 tensors.
husk_status scale(const husk_op_context*, const husk_op_arg* args, uint32_t count,
                  husk_error* error) {
  const bool valid = count == 3 && args[0].kind == HUSK_ARG_TENSOR && args[0].dtype == HUSK_F32 &&
                     args[1].kind == HUSK_ARG_FLOAT && args[2].kind == HUSK_ARG_TENSOR;
  if (!valid) {
    error->code = HUSK_INVALID_ARGUMENT;
    error->driver_code = 0;
    error->step = -1;
    std::snprintf(error->text, sizeof error->text, "app::scale: takes an f32 tensor and a float");
    return error->code;
  }
  int64_t elements = 1;
  for (int32_t d = 0; d < args[0].rank; ++d) elements *= args[0].sizes[d];
  const auto* x = static_cast<const float*>(args[0].data);
  auto* out = static_cast<float*>(args[2].data);
  for (int64_t i = 0; i < elements; ++i) out[i] = x[i] * static_cast<float>(args[1].f);
  return HUSK_OK;
}

husk_status add_own_ops(husk_engine* engine, husk_error* error) {
  husk_op op = HUSK_OP_INIT;
  op.name = "app::scale";
  op.call = scale;
  op.contract = "x factor out:w";
  return husk_engine_add_op(engine, &op, error);
}

constexpr const char* kProgram = R"(
function forward {
  input x tensor f32 [1..100]
  output y tensor f32 rank 1
  variant cpu {
    let n = size(x, 0)
    buffer x of input bytes mul(n, 4)
    buffer y of output bytes mul(n, 4)
    extern "app::scale" (read tensor x f32 [n] [1], FACTOR, write tensor y f32 [n] [1])
    return (tensor y f32 [n] [1])
  }
}
)";

class OwnOp : public ::testing::Test {
 protected:
  void SetUp() override {
    husk_engine_options options = HUSK_ENGINE_OPTIONS_INIT;
    options.port = husk_port_host();
    options.require_op_contracts = 1;
    ASSERT_EQ(husk_engine_create(&options, &engine, &error), HUSK_OK) << error.text;
  }
  void TearDown() override {
    husk_session_release(session);
    husk_program_release(program);
    husk_engine_release(engine);
  }

  // Opens the program with this second argument of the op.
  husk_status open(const std::string& factor) {
    std::string text = "hir 1\ntarget cpu host \"" HUSK_TEST_ARCH "\"\n" + std::string(kProgram);
    text.replace(text.find("FACTOR"), 6, factor);
    auto compiled = compiler::compile_text(text, std::filesystem::temp_directory_path());
    if (auto* failure = std::get_if<compiler::Error>(&compiled))
      ADD_FAILURE() << compiler::describe(*failure, "own_op.hir");
    const std::vector<uint8_t>& file = std::get<0>(compiled);
    bytes.reset(static_cast<uint8_t*>(std::aligned_alloc(64, (file.size() + 63) / 64 * 64)));
    std::memcpy(bytes.get(), file.data(), file.size());
    return husk_program_load(engine, bytes.get(), file.size(), nullptr, nullptr, &program, &error);
  }
  husk_status run() {
    int64_t size = 3;
    DLTensor input = {x, {kDLCPU, 0}, 1, {kDLFloat, 32, 1}, &size, nullptr, 0}, output = input;
    output.data = y;
    husk_value in = {HUSK_VALUE_TENSOR, 0, {}}, out = in;
    in.as.tensor = &input;
    out.as.tensor = &output;
    return husk_session_run(session, 0, nullptr, &in, 1, &out, 1, &error);
  }

  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  husk_engine* engine = nullptr;
  husk_program* program = nullptr;
  husk_session* session = nullptr;
  husk_error error{};
  std::unique_ptr<uint8_t, Free> bytes;
  alignas(64) float x[3] = {1, 2, 3};
  alignas(64) float y[3] = {};
};

TEST_F(OwnOp, Runs) {
  ASSERT_EQ(add_own_ops(engine, &error), HUSK_OK) << error.text;
  ASSERT_EQ(open("2.5"), HUSK_OK) << error.text;
  ASSERT_EQ(husk_session_create(program, nullptr, &session, &error), HUSK_OK) << error.text;
  ASSERT_EQ(run(), HUSK_OK) << error.text;
  EXPECT_EQ(y[0], 2.5f);
  EXPECT_EQ(y[2], 7.5f);
}

TEST_F(OwnOp, ErrorNamesTheOpAndTheStep) {
  ASSERT_EQ(add_own_ops(engine, &error), HUSK_OK) << error.text;
  ASSERT_EQ(open("2"), HUSK_OK) << error.text;
  ASSERT_EQ(husk_session_create(program, nullptr, &session, &error), HUSK_OK) << error.text;
  EXPECT_EQ(run(), HUSK_INVALID_ARGUMENT);
  EXPECT_NE(std::string(error.text).find("app::scale: takes"), std::string::npos) << error.text;
  EXPECT_EQ(error.step, 0);
}

TEST_F(OwnOp, IsNeededToOpenTheProgram) {
  EXPECT_EQ(open("2.5"), HUSK_NOT_FOUND);
  EXPECT_NE(std::string(error.text).find("app::scale"), std::string::npos) << error.text;
}

}  // namespace
}  // namespace husk::host_test
