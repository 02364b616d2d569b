// Contracts of operators: what a file must say about them, and which memory a call may have.
#include "program/contract.h"

#include <husk/detail/argument_places.h>

#include "edited_artifact.h"

namespace husk::test {
namespace {

husk_status nothing(const husk_op_context*, const husk_op_arg*, uint32_t, husk_error*) {
  return HUSK_OK;
}

husk_op op_with(const char* contract) {
  husk_op op = HUSK_OP_INIT;
  op.name = "test::op";
  op.call = nothing;
  op.contract = contract;
  return op;
}

// A program that calls test::op with `arguments`, on tensors x of an input and t of the arena, with
// 16 elements each.
std::string call(const std::string& arguments) {
  return R"(
constant w f32 [2] bytes "0000000000000000"
function f {
  input x tensor f32 [16]
  input n int 0..4611686018427387904
  output y tensor f32 rank 1
  variant cpu {
    buffer x of input bytes 64
    buffer y of output bytes 64
    buffer t bytes 64 align 64
    fill f32 (write t, 0.0)
    extern "test::op" ()" +
         arguments + R"()
    copy (write y, read t)
    return (tensor y f32 [16] [1])
  }
}
)";
}

// The text of the failure to open the program, or to run it; "" if it ran.
std::string failure(const char* contract, const std::string& arguments, int64_t n = 3) {
  husk_engine_options options = Machine::defaults();
  options.require_op_contracts = contract != nullptr;
  Machine m(call(arguments), options, nullptr, {op_with(contract)});
  if (!m.session) return m.error.text;
  Tensor x(HUSK_F32, {16});
  return m.run({x.value(), integer(n)}, {none()}) == HUSK_OK ? "" : m.error.text;
}

void expect_text(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text << "\nlacks: " << part;
}

TEST(Contract, AnOpReadsItsArgumentsByTheNamesThere) {
  constexpr detail::ArgumentPlaces at("self mat1 mat2:rw alpha out:w=self scale? scales?");
  constexpr uint32_t kOut = at["out"];  // a name that the contract lacks does not compile
  static_assert(at["self"] == 0 && at["mat1"] == 1 && at["mat2"] == 2 && kOut == 4);
  static_assert(at["scale"] == 5 && at["scales"] == 6 && at.count() == 7);
  static_assert(detail::ArgumentPlaces("").count() == 0);
}

TEST(Contract, AccessBitsMaySayMoreAndNotLess) {
  EXPECT_EQ(failure("a out:w", "read tensor x f32 [16] [1], write tensor t f32 [16] [1]"), "");
  EXPECT_EQ(failure("a out:w", "both tensor x f32 [16] [1], both tensor t f32 [16] [1]"), "");
  expect_text(failure("a out:w", "read tensor x f32 [16] [1], read tensor t f32 [16] [1]"),
              "op 'test::op': the op writes argument 'out', the file says that it does not");
  expect_text(failure("a out:rw", "read tensor x f32 [16] [1], write tensor t f32 [16] [1]"),
              "the op reads argument 'out', the file says that it does not");
  expect_text(failure("a out:w", "write tensor x f32 [16] [1], write tensor t f32 [16] [1]"),
              "the op reads argument 'a'");
}

TEST(Contract, TheItemsOfAListHaveItsAccess) {
  const std::string items = "tensors [read tensor x f32 [16] [1]], write tensor t f32 [16] [1]";
  EXPECT_EQ(failure("list out:w", items), "");
  expect_text(failure("list:w out:w", items), "the op writes argument 'list'");
}

TEST(Contract, ANumberOfArguments) {
  EXPECT_EQ(failure("a out:w more?", "read tensor x f32 [16] [1], write tensor t f32 [16] [1]"),
            "");
  expect_text(failure("a b out:w", "read tensor x f32 [16] [1], write tensor t f32 [16] [1]"),
              "2 arguments, the op takes 3");
  expect_text(failure("a", "read tensor x f32 [16] [1], write tensor t f32 [16] [1]"),
              "2 arguments, the op takes 1");
}

TEST(Contract, WrittenElementsBelongToOneArgument) {
  const std::string even = "read tensor t f32 [8] [2], ";
  EXPECT_EQ(failure("a out:w", even + "write tensor t f32 [8] [2] offset 1"), "");
  expect_text(failure("a out:w", even + "write tensor t f32 [7] [2] offset 2"),
              "step 1 test::op: the op writes argument 1, which shares elements with argument 0");
}

TEST(Contract, OneTensorTwice) {
  const std::string twice = "read tensor t f32 [8] [1], both tensor t f32 [8] [1]";
  EXPECT_EQ(failure("a out:w=a", twice), "");
  EXPECT_EQ(failure("a out:rw=a", twice), "");
  expect_text(failure("a out:w", twice), "shares elements with argument 0");
  expect_text(failure("a out:w=a", "read tensor t f32 [8] [1], both tensor t f32 [4] [2]"),
              "shares elements with argument 0");
}

TEST(Contract, AWrittenTensorHasNoElementTwice) {
  const std::string a = "read tensor x f32 [16] [0], ";
  EXPECT_EQ(failure("a out:w", a + "write tensor t f32 [1, 16] [0, 1]"), "");
  EXPECT_EQ(failure("a out:w", a + "write tensor t f32 [0, 16] [0, 1]"), "");
  expect_text(failure("a out:w", a + "write tensor t f32 [4, 4] [0, 1]"), "whose strides overlap");
  expect_text(failure("a out:w", a + "write tensor t f32 [3, 4] [3, 1]"), "whose strides overlap");
}

TEST(Contract, ATensorHasAtMostTwoToThe62Elements) {
  const std::string out = ", write tensor t f32 [16] [1]";
  EXPECT_EQ(failure("a out:w", "read tensor x f32 [n, 2] [0, 0]" + out, int64_t{1} << 61), "");
  expect_text(failure("a out:w", "read tensor x f32 [n, 2, 0] [0, 0, 0]" + out, int64_t{1} << 62),
              "a tensor does not fit into its view");
}

// Checking a pair may take some time, so a run that checks many asks in between.
TEST(Contract, ARunIsCancelledWhilePairsAreChecked) {
  static int asked, last, calls;
  asked = calls = 0;
  last = -1;
  husk_op op = op_with("a:w b:w c:w d:w e:w f:w g:w h:w i:w j:w");
  op.call = [](const husk_op_context*, const husk_op_arg*, uint32_t, husk_error*) {
    ++calls;
    return husk_status{HUSK_OK};
  };
  husk_engine_options options = Machine::defaults();
  options.cancel = [](void*) -> int32_t { return ++asked == last; };
  std::string tensors;
  for (int i = 0; i < 10; ++i)
    tensors += (i ? ", " : "") + std::string("write tensor t f32 [1] [1] offset ") +
               std::to_string(i);
  Machine m(call(tensors), options, nullptr, {op});
  ASSERT_NE(m.session, nullptr) << m.error.text;
  Tensor x(HUSK_F32, {16});
  EXPECT_EQ(m.run({x.value(), integer(3)}, {none()}), HUSK_OK) << m.error.text;
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(asked, 4);  // once for 64 pairs, and before each step
  asked = calls = 0;
  last = 1;
  EXPECT_EQ(m.run({x.value(), integer(3)}, {none()}), HUSK_CANCELLED);
  EXPECT_EQ(calls, 0);
}

TEST(Contract, WithoutAContractTheFileDecides) {
  const std::string twice = "read tensor t f32 [8] [1], both tensor t f32 [8] [1]";
  EXPECT_EQ(failure(nullptr, twice), "");
  const husk_engine_options options = Machine::defaults();
  Machine strict(call(twice), options, nullptr, {op_with(nullptr)});
  EXPECT_EQ(strict.program, nullptr);
  EXPECT_EQ(strict.error.code, HUSK_UNSUPPORTED);
  expect_text(strict.error.text, "op 'test::op' has no contract");
  Machine fine(call(twice), options, nullptr, {op_with("a out:w=a")});
  EXPECT_NE(fine.session, nullptr) << fine.error.text;
}

TEST(Contract, TheFormOfTheText) {
  const char* const right[] = {"", "a", "a b:w", "a b:rw c?", "a out:w=a", "a:w? b:w?"};
  for (const char* text : right) {
    husk_error error = {};
    EXPECT_EQ(husk_status(runtime::check_contract("test::op", text, &error)), HUSK_OK) << text;
  }
  const char* const wrong[] = {"a:",   "a:x",  "a:wr",  "a:rww",   "a:ww",   ":w",     " a",
                               "a  b", "a? b", "a=b b", "out:w=b", "out:w=", "a:w=a?x"};
  for (const char* text : wrong) {
    husk_error error = {};
    EXPECT_EQ(husk_status(runtime::check_contract("test::op", text, &error)), HUSK_INVALID_ARGUMENT)
        << text;
  }
  husk_engine_options options = Machine::defaults();
  husk_engine* engine = nullptr;
  husk_error error = {};
  ASSERT_EQ(husk_engine_create(&options, &engine, &error), HUSK_OK) << error.text;
  const husk_op op = op_with("self out:z");
  EXPECT_EQ(husk_engine_add_op(engine, &op, &error), HUSK_INVALID_ARGUMENT);
  EXPECT_STREQ(error.text,
               "op 'test::op': its contract is wrong at 'out': husk/op.h has the rules");
  husk_engine_release(engine);
}

// The compiler computes the bytes of a tensor, which fails first. Another writer may not.
TEST(Contract, TheBytesOfATensorFitAnInt64) {
  EditedArtifact edited(call("read tensor x f32 [4] [4], n, write tensor t f32 [8] [2]"));
  const uint32_t n = edited.find(Scalar::op_input);
  for (uint32_t i = 0; i < 2; ++i)  // its size and its stride
    edited.edit<uint32_t>(edited.variant()->operands()->data() + edited.tensor(0).first + i) = n;
  write_hash(edited.file);
  Machine m(edited.file, Machine::defaults(), nullptr, {op_with("a n out:w")});
  ASSERT_NE(m.session, nullptr) << m.error.text;
  Tensor x(HUSK_F32, {16});
  EXPECT_EQ(m.run({x.value(), integer(3)}, {none()}), HUSK_OK) << m.error.text;
  EXPECT_EQ(m.run({x.value(), integer(int64_t{1} << 40)}, {none()}), HUSK_INVALID_INPUT);
  expect_text(m.error.text, "a tensor does not fit into its view of buffer 'x'");
}

}  // namespace
}  // namespace husk::test
