// Every scalar op against its meaning in ops.def, with numbers and with intervals.
#include <cmath>
#include <memory>
#include <random>
#include <stdexcept>

#include "fixture.h"
#include "model/interval.h"
#include "session/session.h"

namespace husk {
namespace {

// A program of one scalar op over two or three registers with given values.
class Ops {
 public:
  Register run(Scalar op, std::vector<Register> operands, husk_status* status = nullptr) {
    std::vector<fb::Instruction> scalars;
    for (size_t i = 0; i < operands.size(); ++i) {
      const uint64_t bits = static_cast<uint64_t>(operands[i].i);
      scalars.emplace_back(0, 0, 0, static_cast<uint32_t>(bits), static_cast<uint32_t>(bits >> 32));
    }
    scalars.emplace_back(static_cast<uint16_t>(op), 0, 0, operands.size() > 1 ? 1 : 0,
                         operands.size() > 2 ? 2 : 0);
    fb::Segment segment(0, static_cast<uint32_t>(scalars.size()), 0, 0, kNone, kNone);
    flatbuffers::FlatBufferBuilder builder;
    builder.Finish(fb::CreateFunctionDirect(builder, "f", nullptr, nullptr, &none_));
    Code code;
    code.function = flatbuffers::GetRoot<fb::Function>(builder.GetBufferPointer());
    code.program = nullptr;
    code.scalars = {scalars.data(), static_cast<uint32_t>(scalars.size())};
    code.segments = {&segment, 1};
    std::vector<Register> registers(scalars.size());
    husk_error error;
    const Status result = evaluate(code, 0, nullptr, nullptr, registers.data(), &error);
    if (status)
      *status = husk_status(result);
    else
      EXPECT_EQ(result, Status::ok) << error.text;
    return registers.back();
  }

  int64_t ints(Scalar op, int64_t a, int64_t b = 0) {
    return run(op, {Register{a}, Register{b}}).i;
  }
  husk_status status(Scalar op, int64_t a, int64_t b) {
    husk_status status;
    run(op, {Register{a}, Register{b}}, &status);
    return status;
  }
  static Register f(double value) {
    Register r;
    r.f = value;
    return r;
  }

 private:
  std::vector<flatbuffers::Offset<fb::Variant>> none_;
};

int64_t python_floor(int64_t a, int64_t b) {
  return static_cast<int64_t>(std::floor(static_cast<double>(a) / static_cast<double>(b)));
}

TEST(Evaluate, DivisionRoundsAsPythonDoes) {
  Ops ops;
  for (int64_t a = -12; a <= 12; ++a)
    for (int64_t b = -5; b <= 5; ++b) {
      if (b == 0) {
        EXPECT_EQ(ops.status(Scalar::op_floordiv, a, b), HUSK_INVALID_INPUT);
        EXPECT_EQ(ops.status(Scalar::op_mod, a, b), HUSK_INVALID_INPUT);
        EXPECT_EQ(ops.status(Scalar::op_cdiv, a, b), HUSK_INVALID_INPUT);
        continue;
      }
      EXPECT_EQ(ops.ints(Scalar::op_floordiv, a, b), python_floor(a, b)) << a << " " << b;
      EXPECT_EQ(ops.ints(Scalar::op_mod, a, b), a - b * python_floor(a, b)) << a << " " << b;
      EXPECT_EQ(ops.ints(Scalar::op_cdiv, a, b), -python_floor(-a, b)) << a << " " << b;
    }
}

TEST(Evaluate, DivisionByTheLimits) {
  Ops ops;
  EXPECT_EQ(ops.ints(Scalar::op_mod, 5, INT64_MIN), 5 + INT64_MIN);
  EXPECT_EQ(ops.ints(Scalar::op_mod, -5, INT64_MIN), -5);
  EXPECT_EQ(ops.ints(Scalar::op_mod, -5, INT64_MAX), INT64_MAX - 5);
  EXPECT_EQ(ops.ints(Scalar::op_floordiv, 5, INT64_MIN), -1);
  EXPECT_EQ(ops.ints(Scalar::op_cdiv, INT64_MAX, 2), INT64_MAX / 2 + 1);
}

// A constant at a limit of int64 is a number and not "unbounded": results computed from it stay
// inside their intervals.
TEST(Interval, LimitsAreNumbers) {
  for (const char* text :
       {"sub(0, 9223372036854775807)", "floordiv(n, 9223372036854775807)",
        "floordiv(9223372036854775807, max(n, 22))", "min(n, -9223372036854775807)"}) {
    test::Machine machine(
        std::string("function f { input n int 1..50 output k int variant cpu { return (int ") +
        text + ") } }");
    ASSERT_NE(machine.session, nullptr) << machine.error.text;
    const runtime::Frame& frame = *machine.session->frames[0];
    for (int64_t n : {1, 22, 50}) {
      ASSERT_EQ(machine.run({test::integer(n)}, {test::integer(0)}), HUSK_OK) << machine.error.text;
      for (uint32_t r = 0; r < frame.code.scalars.size; ++r) {
        EXPECT_GE(frame.prologue.registers[r].i, frame.prologue.intervals[r].low) << text;
        EXPECT_LE(frame.prologue.registers[r].i, frame.prologue.intervals[r].high) << text;
      }
    }
  }
}

TEST(Evaluate, Ints) {
  Ops ops;
  EXPECT_EQ(ops.ints(Scalar::op_add, 2, 3), 5);
  EXPECT_EQ(ops.ints(Scalar::op_sub, 2, 3), -1);
  EXPECT_EQ(ops.ints(Scalar::op_mul, -2, 3), -6);
  EXPECT_EQ(ops.ints(Scalar::op_min, -2, 3), -2);
  EXPECT_EQ(ops.ints(Scalar::op_max, -2, 3), 3);
  EXPECT_EQ(ops.ints(Scalar::op_pow, 3, 4), 81);
  EXPECT_EQ(ops.ints(Scalar::op_pow, -2, 63), INT64_MIN);
  EXPECT_EQ(ops.ints(Scalar::op_pow, 0, 0), 1);
  EXPECT_EQ(ops.ints(Scalar::op_eq, 2, 2), 1);
  EXPECT_EQ(ops.ints(Scalar::op_ne, 2, 2), 0);
  EXPECT_EQ(ops.ints(Scalar::op_lt, 2, 3), 1);
  EXPECT_EQ(ops.ints(Scalar::op_le, 3, 3), 1);
  EXPECT_EQ(ops.ints(Scalar::op_and, 2, 0), 0);
  EXPECT_EQ(ops.ints(Scalar::op_and, 2, 4), 1);
  EXPECT_EQ(ops.ints(Scalar::op_or, 0, -1), 1);
  EXPECT_EQ(ops.run(Scalar::op_not, {Register{7}}).i, 0);
  EXPECT_EQ(ops.run(Scalar::op_select, {Register{1}, Register{5}, Register{6}}).i, 5);
  EXPECT_EQ(ops.run(Scalar::op_select, {Register{0}, Register{5}, Register{6}}).i, 6);
  EXPECT_EQ(ops.run(Scalar::op_range, {Register{4}, Register{1}, Register{4}}).i, 4);
}

TEST(Evaluate, WhatLeavesInt64Fails) {
  Ops ops;
  EXPECT_EQ(ops.status(Scalar::op_add, INT64_MAX, 1), HUSK_INVALID_INPUT);
  EXPECT_EQ(ops.status(Scalar::op_sub, INT64_MIN, 1), HUSK_INVALID_INPUT);
  EXPECT_EQ(ops.status(Scalar::op_mul, INT64_MAX, 2), HUSK_INVALID_INPUT);
  EXPECT_EQ(ops.status(Scalar::op_floordiv, INT64_MIN, -1), HUSK_INVALID_INPUT);
  EXPECT_EQ(ops.status(Scalar::op_mod, INT64_MIN, -1), HUSK_INVALID_INPUT);
  EXPECT_EQ(ops.status(Scalar::op_cdiv, INT64_MIN, -1), HUSK_INVALID_INPUT);
  EXPECT_EQ(ops.status(Scalar::op_pow, 2, 63), HUSK_INVALID_INPUT);
  EXPECT_EQ(ops.status(Scalar::op_pow, 2, -1), HUSK_INVALID_INPUT);
  husk_status status;
  ops.run(Scalar::op_range, {Register{5}, Register{1}, Register{4}}, &status);
  EXPECT_EQ(status, HUSK_INVALID_INPUT);
  for (double bad : {9.3e18, -9.4e18, std::nan("")})
    for (Scalar op : {Scalar::op_trunc, Scalar::op_floor, Scalar::op_ceil}) {
      ops.run(op, {Ops::f(bad)}, &status);
      EXPECT_EQ(status, HUSK_INVALID_INPUT);
    }
}

TEST(Evaluate, Floats) {
  Ops ops;
  auto f = Ops::f;
  EXPECT_EQ(ops.run(Scalar::op_fadd, {f(1.5), f(2)}).f, 3.5);
  EXPECT_EQ(ops.run(Scalar::op_fsub, {f(1.5), f(2)}).f, -0.5);
  EXPECT_EQ(ops.run(Scalar::op_fmul, {f(1.5), f(2)}).f, 3.0);
  EXPECT_EQ(ops.run(Scalar::op_fdiv, {f(3), f(2)}).f, 1.5);
  EXPECT_TRUE(std::isinf(ops.run(Scalar::op_fdiv, {f(3), f(0)}).f));
  EXPECT_EQ(ops.run(Scalar::op_fmin, {f(3), f(2)}).f, 2.0);
  EXPECT_EQ(ops.run(Scalar::op_fmax, {f(3), f(2)}).f, 3.0);
  EXPECT_EQ(ops.run(Scalar::op_feq, {f(3), f(3)}).i, 1);
  EXPECT_EQ(ops.run(Scalar::op_flt, {f(3), f(2)}).i, 0);
  EXPECT_EQ(ops.run(Scalar::op_fle, {f(2), f(2)}).i, 1);
  EXPECT_EQ(ops.run(Scalar::op_fselect, {Register{0}, f(3), f(2)}).f, 2.0);
  EXPECT_EQ(ops.run(Scalar::op_float, {Register{-3}}).f, -3.0);
  EXPECT_EQ(ops.run(Scalar::op_trunc, {f(-2.5)}).i, -2);
  EXPECT_EQ(ops.run(Scalar::op_floor, {f(-2.5)}).i, -3);
  EXPECT_EQ(ops.run(Scalar::op_ceil, {f(-2.5)}).i, -2);
  EXPECT_EQ(ops.run(Scalar::op_sqrt, {f(9)}).f, 3.0);
}

TEST(Evaluate, GuardsPassAndFail) {
  Ops ops;
  EXPECT_EQ(ops.status(Scalar::op_check_eq, 2, 2), HUSK_OK);
  EXPECT_EQ(ops.status(Scalar::op_check_le, 2, 2), HUSK_OK);
  husk_status status;
  ops.run(Scalar::op_check, {Register{1}}, &status);
  EXPECT_EQ(status, HUSK_OK);
}

// In random programs over one symbol, every number that a run computes lies in the interval of its
// register.
TEST(Interval, HoldsEveryNumber) {
  std::mt19937 random(3);
  const char* binary[] = {"add", "sub", "mul", "floordiv", "mod", "cdiv", "min",
                          "max", "eq",  "ne",  "lt",       "le",  "and",  "or"};
  for (int round = 0; round < 60; ++round) {
    std::string text =
        "function f { input x tensor f32 [2..9] input n int -4..7 output k int variant cpu {\n"
        "let v0 = size(x, 0)\nlet v1 = n\n";
    int values = 2;
    for (; values < 14; ++values) {
      auto operand = [&] {
        return random() % 4 ? "v" + std::to_string(random() % values)
                            : std::to_string(int(random() % 9) - 3);
      };
      const char* op = binary[random() % 14];
      text += "let v" + std::to_string(values) + " = " + op + "(" + operand() + ", " + operand() +
              ")\n";
    }
    std::string sum = "v2";
    for (int i = 3; i < values; ++i) sum = "add(" + sum + ", mul(v" + std::to_string(i) + ", 3))";
    text += "return (int " + sum + ") } }";
    std::unique_ptr<test::Machine> machine;
    try {
      machine = std::make_unique<test::Machine>(text);
    } catch (const std::runtime_error&) {
      continue;  // The compiler refuses a division by the constant 0.
    }
    ASSERT_NE(machine->session, nullptr) << machine->error.text;
    const runtime::Frame& frame = *machine->session->frames[0];
    for (int64_t size = 2; size <= 9; ++size)
      for (int64_t n = -4; n <= 7; ++n) {
        test::Tensor x(HUSK_F32, {size});
        if (machine->run({x.value(), test::integer(n)}, {test::integer(0)}) != HUSK_OK) continue;
        for (uint32_t r = 0; r < frame.code.scalars.size; ++r) {
          EXPECT_GE(frame.prologue.registers[r].i, frame.prologue.intervals[r].low) << text << r;
          EXPECT_LE(frame.prologue.registers[r].i, frame.prologue.intervals[r].high) << text << r;
        }
      }
  }
}

}  // namespace
}  // namespace husk
