// Constant folding and simplification of a prologue. scalars_of() also verifies every program.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include <husk/husk.h>

#include "ir/compile_error.h"
#include "ir/op_table.h"
#include "model/interval.h"
#include "passes/registers.h"
#include "program.h"

namespace husk::test {
namespace {

using namespace husk::compiler;

// A function with an int of unknown range, one of 1..64, one of 0..100, and a float.
Function signature() {
  Function f;
  auto add = [&](uint8_t kind, std::vector<Range> ranges) {
    Value v;
    v.kind = kind;
    v.ranges = std::move(ranges);
    f.inputs.push_back(v);
  };
  add(HUSK_VALUE_INT, {});
  add(HUSK_VALUE_INT, {{{}, 1, 64}});
  add(HUSK_VALUE_INT, {{{}, 0, 100}});
  add(HUSK_VALUE_FLOAT, {});
  return f;
}

class Fold : public ::testing::Test {
 protected:
  const Function f = signature();
  Registers r{f};
  const uint32_t x = r.op(Scalar::op_input, {}, 0), m = r.op(Scalar::op_input, {}, 1),
                 z = r.op(Scalar::op_input, {}, 2), t = r.op(Scalar::op_finput, {}, 3);

  uint32_t op(Scalar kind, uint32_t a, uint32_t b = 0, uint32_t c = 0) {
    return r.op(kind, {}, a, b, c);
  }
  uint32_t n(int64_t value) { return r.integer(value); }
  uint32_t d(double value) { return r.floating(value); }
  std::string failure(Scalar kind, uint32_t a, uint32_t b = 0, uint32_t c = 0) {
    try {
      op(kind, a, b, c);
    } catch (const CompileError& failure) {
      return failure.text;
    }
    return "";
  }
};

TEST_F(Fold, EqualOpsAreOne) {
  EXPECT_EQ(op(Scalar::op_add, x, m), op(Scalar::op_add, m, x));
  EXPECT_EQ(op(Scalar::op_floordiv, x, m), op(Scalar::op_floordiv, x, m));
  EXPECT_NE(op(Scalar::op_floordiv, x, m), op(Scalar::op_floordiv, m, x));
  EXPECT_EQ(op(Scalar::op_sub, x, n(3)), op(Scalar::op_add, n(-3), x));
}

TEST_F(Fold, ConstantsAreComputed) {
  EXPECT_EQ(op(Scalar::op_floordiv, n(-7), n(2)), n(-4));
  EXPECT_EQ(op(Scalar::op_mod, n(-7), n(2)), n(1));
  EXPECT_EQ(op(Scalar::op_mod, n(7), n(-2)), n(-1));
  EXPECT_EQ(op(Scalar::op_cdiv, n(-7), n(2)), n(-3));
  EXPECT_EQ(op(Scalar::op_cdiv, n(7), n(2)), n(4));
  EXPECT_EQ(op(Scalar::op_pow, n(0), n(0)), n(1));
  EXPECT_EQ(op(Scalar::op_trunc, d(-2.5)), n(-2));
  EXPECT_EQ(op(Scalar::op_floor, d(-2.5)), n(-3));
  EXPECT_EQ(op(Scalar::op_ceil, d(-2.5)), n(-2));
  EXPECT_EQ(op(Scalar::op_fdiv, d(1.0), d(4.0)), d(0.25));
  EXPECT_EQ(op(Scalar::op_and, n(2), n(4)), n(1));
}

TEST_F(Fold, AnOpThatAlwaysFailsIsAnError) {
  EXPECT_EQ(failure(Scalar::op_floordiv, n(1), n(0)), "floordiv divides by zero");
  EXPECT_EQ(failure(Scalar::op_mod, n(1), n(0)), "mod divides by zero");
  EXPECT_EQ(failure(Scalar::op_cdiv, n(INT64_MIN), n(-1)),
            "the result of cdiv does not fit 64 bits");
  EXPECT_EQ(failure(Scalar::op_add, n(INT64_MAX), n(1)), "the result of add does not fit 64 bits");
  EXPECT_EQ(failure(Scalar::op_pow, n(2), n(63)), "the result of pow does not fit 64 bits");
  EXPECT_EQ(failure(Scalar::op_pow, n(2), n(-1)), "the result of pow does not fit 64 bits");
  EXPECT_EQ(failure(Scalar::op_trunc, d(1e19)), "the result of trunc does not fit 64 bits");
  EXPECT_EQ(failure(Scalar::op_range, m, n(65), n(70)),
            "this range can never hold: the value lies in 1..64");
  EXPECT_EQ(
      failure(Scalar::op_range, x, n(5), n(4)),
      "this range can never hold: the value lies in -9223372036854775808..9223372036854775807");
}

TEST_F(Fold, Identities) {
  EXPECT_EQ(op(Scalar::op_add, x, n(0)), x);
  EXPECT_EQ(op(Scalar::op_sub, x, n(0)), x);
  EXPECT_EQ(op(Scalar::op_sub, x, x), n(0));
  EXPECT_EQ(op(Scalar::op_mul, n(1), x), x);
  EXPECT_EQ(op(Scalar::op_mul, x, n(0)), n(0));
  EXPECT_EQ(op(Scalar::op_add, op(Scalar::op_add, x, n(3)), n(4)), op(Scalar::op_add, x, n(7)));
  EXPECT_EQ(op(Scalar::op_mul, op(Scalar::op_mul, x, n(3)), n(4)), op(Scalar::op_mul, x, n(12)));
  EXPECT_EQ(op(Scalar::op_sub, op(Scalar::op_add, x, m), m), x);
  EXPECT_EQ(op(Scalar::op_floordiv, x, n(1)), x);
  EXPECT_EQ(op(Scalar::op_mod, x, n(1)), n(0));
  EXPECT_EQ(op(Scalar::op_floordiv, op(Scalar::op_mul, x, n(12)), n(4)),
            op(Scalar::op_mul, x, n(3)));
  EXPECT_EQ(op(Scalar::op_mod, op(Scalar::op_mul, x, n(12)), n(4)), n(0));
  EXPECT_EQ(op(Scalar::op_pow, x, n(1)), x);
  EXPECT_EQ(op(Scalar::op_pow, x, n(0)), n(1));
  EXPECT_EQ(op(Scalar::op_eq, x, x), n(1));
  EXPECT_EQ(op(Scalar::op_lt, x, x), n(0));
  EXPECT_EQ(op(Scalar::op_select, x, m, m), m);
  const uint32_t less = op(Scalar::op_lt, x, m);
  EXPECT_EQ(op(Scalar::op_not, op(Scalar::op_not, less)), less);
  EXPECT_EQ(op(Scalar::op_not, less), op(Scalar::op_le, m, x));
  EXPECT_EQ(op(Scalar::op_and, less, n(1)), less);
  EXPECT_EQ(op(Scalar::op_or, less, n(INT64_MIN)), n(1));
  EXPECT_EQ(op(Scalar::op_or, less, n(0)), less);
  EXPECT_EQ(op(Scalar::op_select, less, n(1), n(0)), less);
  EXPECT_EQ(op(Scalar::op_select, op(Scalar::op_not, x), m, z), op(Scalar::op_select, x, z, m));
}

TEST_F(Fold, TruthIsNotTheNumberItself) {
  EXPECT_NE(op(Scalar::op_not, op(Scalar::op_not, x)), x);
  EXPECT_NE(op(Scalar::op_and, x, n(1)), x);
  EXPECT_NE(op(Scalar::op_and, x, x), x);
}

TEST_F(Fold, RangesDecide) {
  EXPECT_EQ(op(Scalar::op_le, n(1), m), n(1));
  EXPECT_EQ(op(Scalar::op_lt, m, n(1)), n(0));
  EXPECT_EQ(op(Scalar::op_min, m, n(64)), m);
  EXPECT_EQ(op(Scalar::op_max, m, n(64)), n(64));
  EXPECT_EQ(op(Scalar::op_mod, m, n(65)), m);
  EXPECT_EQ(op(Scalar::op_floordiv, m, n(65)), n(0));
  EXPECT_EQ(op(Scalar::op_range, m, n(0), n(64)), m);
  EXPECT_EQ(op(Scalar::op_select, m, x, z), x);
  EXPECT_NE(op(Scalar::op_select, z, x, m), x);
  EXPECT_NE(op(Scalar::op_range, m, n(2), n(64)), m);
  EXPECT_EQ(op(Scalar::op_le, n(2), op(Scalar::op_range, m, n(2), n(64))), n(1));
}

TEST_F(Fold, FloatsKeepSignedZerosAndNaN) {
  EXPECT_EQ(op(Scalar::op_fmul, t, d(1.0)), t);
  EXPECT_EQ(op(Scalar::op_fdiv, t, d(1.0)), t);
  EXPECT_EQ(op(Scalar::op_fmin, t, t), t);
  EXPECT_NE(op(Scalar::op_fadd, t, d(0.0)), t);
  EXPECT_NE(op(Scalar::op_feq, t, t), n(1));
  EXPECT_NE(op(Scalar::op_fsub, t, t), d(0.0));
}

TEST_F(Fold, SumsThatWouldLeaveInt64AreNotJoined) {
  const uint32_t big = op(Scalar::op_add, x, n(INT64_MAX));
  EXPECT_TRUE(r.is(op(Scalar::op_add, big, n(1)), Scalar::op_add));
  const uint32_t least = op(Scalar::op_sub, x, n(INT64_MIN));
  EXPECT_TRUE(r.is(least, Scalar::op_sub));
}

TEST_F(Fold, GuardsThatHoldAreLeftOut) {
  const uint32_t before = r.size();
  r.guard(Scalar::op_check, {}, m, kNone, 0);
  r.guard(Scalar::op_check_eq, {}, x, x, kNone);
  r.guard(Scalar::op_check_le, {}, z, n(100), kNone);
  EXPECT_EQ(r.size(), before + 1);  // the constant
  r.guard(Scalar::op_check_le, {}, z, m, 0);
  r.guard(Scalar::op_check_le, {}, z, m, 1);  // another text
  EXPECT_EQ(r.size(), before + 2);
  EXPECT_EQ(r.at(before + 1).c(), 0u);
}

TEST_F(Fold, GuardsOfComparisonsNameBothSides) {
  const uint32_t equal = op(Scalar::op_eq, x, z), least = op(Scalar::op_le, z, m);
  const uint32_t both = op(Scalar::op_and, equal, least);
  r.guard(Scalar::op_check, {}, both, 7, 0);
  const uint32_t last = r.size() - 1;
  EXPECT_TRUE(r.is(last - 1, Scalar::op_check_eq));
  EXPECT_TRUE(r.is(last, Scalar::op_check_le));
  EXPECT_EQ(r.at(last).c(), 7u);
}

TEST_F(Fold, GuardsThatNeverHoldAreErrors) {
  EXPECT_THROW(r.guard(Scalar::op_check, {}, n(0), kNone, 0), CompileError);
  EXPECT_THROW(r.guard(Scalar::op_check_eq, {}, m, n(65), kNone), CompileError);
  EXPECT_THROW(r.guard(Scalar::op_check_le, {}, n(65), m, kNone), CompileError);
}

TEST_F(Fold, Bits) {
  EXPECT_EQ(op(Scalar::op_bit_and, x, n(0)), n(0));
  EXPECT_EQ(op(Scalar::op_bit_and, x, n(-1)), x);
  EXPECT_EQ(op(Scalar::op_bit_and, x, x), x);
  EXPECT_EQ(op(Scalar::op_bit_or, x, x), x);
  EXPECT_EQ(op(Scalar::op_bit_or, n(0), x), x);
  EXPECT_EQ(op(Scalar::op_bit_xor, x, x), n(0));
  EXPECT_EQ(op(Scalar::op_bit_xor, x, n(0)), x);
  EXPECT_EQ(op(Scalar::op_bit_and, x, m), op(Scalar::op_bit_and, m, x));
  EXPECT_EQ(op(Scalar::op_bit_or, n(12), n(3)), n(15));
  EXPECT_EQ(op(Scalar::op_bit_xor, n(12), n(4)), n(8));
}

TEST_F(Fold, ShiftsAreProductsAndQuotients) {
  EXPECT_EQ(op(Scalar::op_shl, x, n(3)), op(Scalar::op_mul, x, n(8)));
  EXPECT_EQ(op(Scalar::op_shr, x, n(2)), op(Scalar::op_floordiv, x, n(4)));
  EXPECT_EQ(op(Scalar::op_shl, x, n(0)), x);
  EXPECT_EQ(op(Scalar::op_shr, x, n(0)), x);
  EXPECT_EQ(op(Scalar::op_shl, n(-3), n(2)), n(-12));
  EXPECT_EQ(op(Scalar::op_shr, n(-5), n(1)), n(-3));
  EXPECT_EQ(op(Scalar::op_shr, n(-5), n(100)), n(-1));
  EXPECT_TRUE(r.is(op(Scalar::op_shr, x, n(63)), Scalar::op_shr));
  EXPECT_EQ(r.range(op(Scalar::op_shl, m, n(1))).high, 128);
  EXPECT_EQ(failure(Scalar::op_shl, n(1), n(63)), "the result of shl does not fit 64 bits");
  EXPECT_EQ(failure(Scalar::op_shl, n(1), n(-1)), "the result of shl does not fit 64 bits");
  EXPECT_EQ(failure(Scalar::op_shr, n(1), n(-1)), "shr by a negative number of bits");
}

TEST_F(Fold, RoundingAndPowers) {
  EXPECT_EQ(op(Scalar::op_round, d(2.5)), n(2));
  EXPECT_EQ(op(Scalar::op_round, d(-3.5)), n(-4));
  EXPECT_EQ(op(Scalar::op_fpow, d(2.0), d(0.5)), d(std::sqrt(2.0)));
  EXPECT_EQ(failure(Scalar::op_round, d(1e19)), "the result of round does not fit 64 bits");
}

TEST_F(Fold, ConstantsOfProductsMeet) {
  const uint32_t product = op(Scalar::op_mul, op(Scalar::op_mul, x, m), n(12));
  EXPECT_EQ(op(Scalar::op_mul, op(Scalar::op_mul, x, n(12)), m), product);
  EXPECT_EQ(op(Scalar::op_mul, op(Scalar::op_mul, x, n(3)), op(Scalar::op_mul, m, n(4))), product);
  EXPECT_EQ(op(Scalar::op_mul, op(Scalar::op_mul, op(Scalar::op_mul, n(3), m), x), n(4)), product);
}

TEST_F(Fold, RegistersOfABlockBelongToIt) {
  const uint32_t before = op(Scalar::op_add, x, m);
  const Registers::Block block = r.open_block();
  EXPECT_TRUE(r.in_block());
  EXPECT_EQ(op(Scalar::op_add, x, m), before);
  const uint32_t sum = op(Scalar::op_add, x, n(7)), one = op(Scalar::op_max, m, n(5)), seven = n(7);
  EXPECT_EQ(r.range(one).low, 5);
  EXPECT_EQ(op(Scalar::op_sub, sum, x), seven);
  EXPECT_TRUE(r.is_in_block(sum, block));
  EXPECT_FALSE(r.is_in_block(before, block) || r.is_in_block(seven, block) ||
               r.is_in_block(x, block));
  EXPECT_EQ(failure(Scalar::op_floordiv, x, n(0)), "");
  EXPECT_EQ(failure(Scalar::op_mul, n(INT64_MAX), n(2)), "");
  EXPECT_EQ(failure(Scalar::op_range, m, n(65), n(70)), "");
  EXPECT_NO_THROW(r.guard(Scalar::op_check, {}, n(0), kNone, 0));
  EXPECT_NO_THROW(r.guard(Scalar::op_check_le, {}, n(65), m, kNone));
  r.close_block(block);
  EXPECT_FALSE(r.in_block());
  EXPECT_EQ(n(7), seven);                       // constants are shared by all segments
  EXPECT_NE(op(Scalar::op_add, x, n(7)), sum);  // sums are not
  EXPECT_EQ(r.range(one).low, 0);               // its block may not have run
  EXPECT_EQ(r.range(one).high, 64);
  EXPECT_NE(op(Scalar::op_sub, sum, x), seven);  // sum may be 0 instead of x + 7
  EXPECT_FALSE(r.is(sum, Scalar::op_add));
}

TEST_F(Fold, ResultsOfTwoReadsAreTwoNumbers) {
  r.end_segment();
  const uint32_t first = op(Scalar::op_result, 0);
  r.end_segment();
  EXPECT_NE(op(Scalar::op_result, 0), first);
}

bool compute(Scalar kind, int64_t a, int64_t b, int64_t c, int64_t* out) {
  fb::Instruction ops[4] = {};
  ops[3] = fb::Instruction(static_cast<uint16_t>(kind), 0, 0, 1, 2);
  const fb::Segment segment(3, 4, 0, 0, kNone, kNone);
  flatbuffers::FlatBufferBuilder builder;
  const auto name = builder.CreateString("f");
  builder.Finish(fb::CreateFunction(
      builder, name, 0, 0, builder.CreateVector(std::vector<flatbuffers::Offset<fb::Variant>>{})));
  Code code{};
  code.function = flatbuffers::GetRoot<fb::Function>(builder.GetBufferPointer());
  code.scalars = {ops, 4};
  code.segments = {&segment, 1};
  Register registers[4] = {{a}, {b}, {c}, {0}};
  husk_error error = {};
  if (evaluate(code, 0, nullptr, nullptr, registers, &error) != Status::ok) return false;
  *out = registers[3].i;
  return true;
}

constexpr Scalar kInts[] = {
    Scalar::op_add,  Scalar::op_sub,    Scalar::op_mul,     Scalar::op_floordiv, Scalar::op_mod,
    Scalar::op_cdiv, Scalar::op_min,    Scalar::op_max,     Scalar::op_pow,      Scalar::op_eq,
    Scalar::op_ne,   Scalar::op_lt,     Scalar::op_le,      Scalar::op_and,      Scalar::op_or,
    Scalar::op_not,  Scalar::op_select, Scalar::op_bit_and, Scalar::op_bit_or,   Scalar::op_bit_xor,
    Scalar::op_shl,  Scalar::op_shr};

// Computes the value of register `id` for these inputs; false if an op fails.
bool value_of(const Registers& r, uint32_t id, const int64_t* inputs, int64_t* out) {
  const fb::Instruction& op = r.at(id);
  const auto kind = static_cast<Scalar>(op.op());
  if (kind == Scalar::op_const) return *out = immediate(op), true;
  if (kind == Scalar::op_input) return *out = inputs[op.a()], true;
  const uint32_t fields[3] = {op.a(), op.b(), op.c()};
  int64_t operands[3] = {};
  for (int i = 0; i < 3; ++i)
    if (scalar_op(op.op())->slots[i] == Slot::integer &&
        !value_of(r, fields[i], inputs, &operands[i]))
      return false;
  return compute(kind, operands[0], operands[1], operands[2], out);
}

// A folded and simplified expression has the value that is computed op by op, if that succeeds.
TEST(FoldRandom, MeansTheSame) {
  std::mt19937 random(7);
  const Function f = signature();
  const int64_t interesting[] = {-3, -1, 0, 1, 2, 4, 7, 64, INT64_MAX, INT64_MIN};
  int compared = 0;
  for (int round = 0; round < 2000; ++round) {
    Registers r(f);
    const int64_t inputs[3] = {interesting[random() % 10], int64_t(1 + random() % 64),
                               int64_t(random() % 101)};
    struct Node {
      uint32_t id;
      int64_t value;
      bool good;
    };
    std::vector<Node> nodes;
    for (uint32_t i = 0; i < 3; ++i)
      nodes.push_back({r.op(Scalar::op_input, {}, i), inputs[i], true});
    for (int64_t value : interesting) nodes.push_back({r.integer(value), value, true});
    for (int i = 0; i < 40; ++i) {
      const Scalar kind = kInts[random() % std::size(kInts)];
      const Node a = nodes[random() % nodes.size()], b = nodes[random() % nodes.size()],
                 c = nodes[random() % nodes.size()];
      const Slot* slots = scalar_op(static_cast<uint16_t>(kind))->slots;
      Node node = {
          0, 0,
          a.good && (slots[1] == Slot::unused || b.good) && (slots[2] == Slot::unused || c.good)};
      node.good = node.good && compute(kind, a.value, b.value, c.value, &node.value);
      try {
        node.id = r.op(kind, {}, a.id, slots[1] == Slot::unused ? 0 : b.id,
                       slots[2] == Slot::unused ? 0 : c.id);
      } catch (const CompileError&) {
        EXPECT_FALSE(node.good);
        continue;
      }
      nodes.push_back(node);
      if (!node.good) continue;
      int64_t got = 0;
      ASSERT_TRUE(value_of(r, node.id, inputs, &got));
      ASSERT_EQ(got, node.value) << scalar_op(static_cast<uint16_t>(kind))->name;
      EXPECT_LE(r.range(node.id).low, got);
      EXPECT_GE(r.range(node.id).high, got);
      ++compared;
    }
  }
  EXPECT_GT(compared, 20000);
}

}  // namespace
}  // namespace husk::test
