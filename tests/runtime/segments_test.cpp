// Branches, loops and values that only the data decides.
#include <numeric>

#include "edited_artifact.h"

namespace husk::test {
namespace {

// y = 2 x if the sum of flags is not zero, else x; `taken` is the branch that ran.
const char* const kBranch = R"(
function pick {
  input x tensor f32 [1..64]
  input flag tensor i64 []
  output y tensor f32 rank 1
  output taken int
  variant cpu {
    let n = size(x, 0)
    buffer x of input bytes mul(n, 4)
    buffer flag of input bytes 8
    buffer y of output bytes mul(n, 4)
    read i64 (read flag)
    let p = gt0
    when p {
      let one = add(n, 100)
      launch scale grid (1, 1, 1) (read x, write y, 2.0, n)
    } else {
      when lt(n, 3) {
        launch scale grid (1, 1, 1) (read x, write y, -1.0, n)
      } else {
        launch scale grid (1, 1, 1) (read x, write y, 1.0, n)
      }
    }
    return (tensor y f32 [n] [1], int one)
  }
}
)";

std::string branch() {
  std::string text = kBranch;
  text.replace(text.find("gt0"), 3, "lt(0, result(0))");
  return text;
}

TEST(Segments, ABranchIsTaken) {
  Machine m(branch());
  ASSERT_NE(m.session, nullptr) << m.error.text;
  int64_t flag = 0;
  Tensor f(HUSK_I64, {}, &flag);
  for (int64_t n : {5, 2, 5})
    for (int64_t way : {1, 0, 7, -1}) {
      flag = way;
      Tensor x(HUSK_F32, {n}), y(HUSK_F32, {n});
      std::iota(x.as<float>(), x.as<float>() + n, 1.0f);
      ASSERT_EQ(m.run({x.value(), f.value()}, {y.value(), integer(0)}), HUSK_OK) << m.error.text;
      const float factor = way > 0 ? 2.0f : n < 3 ? -1.0f : 1.0f;
      for (int64_t i = 0; i < n; ++i)
        EXPECT_EQ(y.as<float>()[i], factor * x.as<float>()[i]) << n << " " << way;
      EXPECT_EQ(m.results[1].as.i, way > 0 ? n + 100 : 0) << "a skipped segment leaves zeros";
    }
}

// Adds x to total `times` times; the counter is in memory.
const char* const kLoop = R"(
function sum {
  input x tensor f32 [4]
  input times int 0..1000
  output total tensor f32 rank 1
  output turns tensor i64 rank 0
  variant cpu {
    buffer x of input bytes 16
    buffer total of output bytes 16
    buffer turns of output bytes 8
    buffer before bytes 16 align 64
    buffer scratch bytes 16 align 64
    buffer next bytes 16 align 64
    launch scale grid (1, 1, 1) (read x, write before, 1.0, 4)
    fill f32 (write total, 0.0)
    fill i64 (write turns, 0)
    loop {
      read i64 (read turns)
      while lt(result(0), times)
      launch scale grid (1, 1, 1) (read before, write scratch, 1.0, 4)
      launch add grid (1, 1, 1) (read scratch, read total, write next, 4)
      copy (write total, read next)
      launch count grid (1, 1, 1) (both turns)
    }
    return (tensor total f32 [4] [1], tensor turns i64 [] [])
  }
}
)";

TEST(Segments, ALoopCarriesMemory) {
  husk_session_options options = HUSK_SESSION_OPTIONS_INIT;
  options.poison_memory = 1;
  Machine m(kLoop, Machine::defaults(), &options);
  ASSERT_NE(m.session, nullptr) << m.error.text;
  Tensor x(HUSK_F32, {4}), total(HUSK_F32, {4}), turns(HUSK_I64, {});
  std::iota(x.as<float>(), x.as<float>() + 4, 1.0f);
  for (int64_t times : {0, 1, 17, 1000}) {
    ASSERT_EQ(m.run({x.value(), integer(times)}, {total.value(), turns.value()}), HUSK_OK)
        << m.error.text;
    for (int i = 0; i < 4; ++i)
      EXPECT_EQ(total.as<float>()[i], static_cast<float>(times) * x.as<float>()[i]);
    EXPECT_EQ(*turns.as<int64_t>(), times);
  }
}

TEST(Segments, ALoopHasALimit) {
  husk_session_options options = HUSK_SESSION_OPTIONS_INIT;
  options.loop_limit = 10;
  Machine m(kLoop, Machine::defaults(), &options);
  ASSERT_NE(m.session, nullptr) << m.error.text;
  Tensor x(HUSK_F32, {4}), total(HUSK_F32, {4}), turns(HUSK_I64, {});
  EXPECT_EQ(m.run({x.value(), integer(11)}, {total.value(), turns.value()}), HUSK_LIMIT);
  EXPECT_NE(std::string(m.error.text).find("loop_limit"), std::string::npos) << m.error.text;
  EXPECT_EQ(m.run({x.value(), integer(10)}, {total.value(), turns.value()}), HUSK_OK)
      << m.error.text;
}

TEST(Segments, LoopsNest) {
  Machine m(R"(
function nested {
  input n int 0..20
  input m int 0..20
  output turns tensor i64 rank 0
  variant cpu {
    buffer turns of output bytes 8
    buffer i bytes 8 align 64
    buffer j bytes 8 align 64
    fill i64 (write turns, 0)
    fill i64 (write i, 0)
    loop {
      read i64 (read i)
      let at = result(0)
      while lt(at, n)
      launch count grid (1, 1, 1) (both i)
      when ne(mod(at, 3), 0) {
        fill i64 (write j, 0)
        loop {
          read i64 (read j)
          while lt(result(0), m)
          launch count grid (1, 1, 1) (both j)
          launch count grid (1, 1, 1) (both turns)
        }
      }
    }
    return (tensor turns i64 [] [])
  }
}
)");
  ASSERT_NE(m.session, nullptr) << m.error.text;
  Tensor turns(HUSK_I64, {});
  for (int64_t n : {0, 1, 2, 7, 20})
    for (int64_t k : {0, 1, 5}) {
      ASSERT_EQ(m.run({integer(n), integer(k)}, {turns.value()}), HUSK_OK) << m.error.text;
      int64_t want = 0;
      for (int64_t i = 0; i < n; ++i) want += i % 3 != 0 ? k : 0;
      EXPECT_EQ(*turns.as<int64_t>(), want) << n << " " << k;
    }
}

// The positive elements of x, by two ops: one computes their number, one the elements.
husk_status positive_sizes(const husk_op_context*, const husk_op_arg* args, uint32_t count,
                           husk_error*) {
  if (count != 2 || args[1].kind != HUSK_ARG_RESULT || args[1].dtype != HUSK_I64)
    return HUSK_INVALID_ARGUMENT;
  int64_t found = 0;
  for (int64_t i = 0; i < args[0].sizes[0]; ++i)
    found += static_cast<const float*>(args[0].data)[i] > 0;
  *static_cast<int64_t*>(args[1].data) = found;
  return HUSK_OK;
}

husk_status positive(const husk_op_context*, const husk_op_arg* args, uint32_t, husk_error*) {
  float* out = static_cast<float*>(args[1].data);
  for (int64_t i = 0; i < args[0].sizes[0]; ++i)
    if (const float x = static_cast<const float*>(args[0].data)[i]; x > 0) *out++ = x;
  return HUSK_OK;
}

const std::vector<husk_op> kPositive = {{sizeof(husk_op), 0, "test::positive:sizes", positive_sizes,
                                         nullptr, nullptr, "x size", nullptr, 0, 0, 0, 0},
                                        {sizeof(husk_op), 0, "test::positive", positive, nullptr,
                                         nullptr, "x found:w", nullptr, 0, 0, 0, 0}};

// Twice the positive elements: the size of a buffer and of an output depends on the data.
std::string twice(const char* range) {
  return std::string(R"(
function twice {
  input x tensor f32 [0..inf]
  output y tensor f32 rank 1
  output k int
  variant cpu {
    let n = size(x, 0)
    buffer x of input bytes mul(n, 4) align 4
    extern "test::positive:sizes" (read tensor x f32 [n] [1], result int)
    let u = range(result(0), 0, )") +
         range + R"()
    buffer found bytes mul(u, 4) align 64
    buffer y of output bytes mul(u, 4)
    extern "test::positive" (read tensor x f32 [n] [1], write tensor found f32 [u] [1])
    launch scale grid (1, 1, 1) (read found, write y, 2.0, u)
    return (tensor y f32 [u] [1], int u)
  }
}
)";
}

TEST(Segments, OnlyTheDataDecidesASize) {
  Machine m(twice("n"), Machine::defaults(), nullptr, kPositive);
  ASSERT_NE(m.session, nullptr) << m.error.text;
  husk_session_stats stats = HUSK_SESSION_STATS_INIT;
  ASSERT_EQ(husk_session_stats_get(m.session, 0, &stats, nullptr), HUSK_OK);
  EXPECT_EQ(stats.dynamic, 1u);
  EXPECT_EQ(stats.segments, 2u);
  EXPECT_NE(husk_session_output_shape(m.session, 0, 0, nullptr, nullptr, &m.error), HUSK_OK);
  for (int64_t n : {6, 1000, 3, 0, 5000}) {
    Tensor x(HUSK_F32, {n});
    for (int64_t i = 0; i < n; ++i) x.as<float>()[i] = i % 3 == 0 ? -1.0f : static_cast<float>(i);
    ASSERT_EQ(m.run({x.value()}, {none(), integer(0)}), HUSK_OK) << m.error.text;
    ASSERT_EQ(m.results[0].kind, HUSK_VALUE_TENSOR);
    const DLTensor* y = m.results[0].as.tensor;
    const int64_t want = n - (n + 2) / 3;
    ASSERT_EQ(y->ndim, 1);
    EXPECT_EQ(y->shape[0], want);
    EXPECT_EQ(m.results[1].as.i, want);
    int64_t size = -1;
    EXPECT_EQ(husk_session_output_shape(m.session, 0, 0, &size, nullptr, &m.error), HUSK_OK)
        << m.error.text;
    EXPECT_EQ(size, want);
    for (int64_t i = 0, at = 0; i < n; ++i)
      if (i % 3) {
        EXPECT_EQ(static_cast<const float*>(y->data)[at++], 2.0f * static_cast<float>(i));
      }
  }
  ASSERT_EQ(husk_session_stats_get(m.session, 0, &stats, nullptr), HUSK_OK);
  EXPECT_GT(stats.dynamic_bytes, 0u);
}

TEST(Segments, TheCallerIsToldTheShape) {
  Machine m(twice("16"), Machine::defaults(), nullptr, kPositive);
  ASSERT_NE(m.session, nullptr) << m.error.text;
  float values[] = {1, -1, 2, 3, -5};
  Tensor x(HUSK_F32, {5}, values);
  Tensor roomy(HUSK_F32, {16}), exact(HUSK_F32, {3}), small(HUSK_F32, {2}),
      strided(HUSK_F32, {8}, nullptr, {1});
  for (Tensor* y : {&roomy, &exact, &strided}) {
    ASSERT_EQ(m.run({x.value()}, {y->value(), integer(0)}), HUSK_OK) << m.error.text;
    EXPECT_EQ(y->shape[0], 3);
    EXPECT_EQ(y->as<float>()[2], 6.0f);
  }
  EXPECT_EQ(m.run({x.value()}, {small.value(), integer(0)}), HUSK_INVALID_INPUT);
  EXPECT_NE(std::string(m.error.text).find("size 0 of output 'y' is 2, this run gives 3"),
            std::string::npos)
      << m.error.text;
  ASSERT_EQ(m.run({x.value()}, {exact.value(), integer(0)}), HUSK_OK) << m.error.text;
}

TEST(Segments, MemoryHasALimit) {
  husk_session_options options = HUSK_SESSION_OPTIONS_INIT;
  options.memory_limit = 4096;
  Machine m(twice("n"), Machine::defaults(), &options, kPositive);
  ASSERT_NE(m.session, nullptr) << m.error.text;
  Tensor large(HUSK_F32, {5000}), little(HUSK_F32, {10});
  std::fill_n(large.as<float>(), 5000, 1.0f);
  std::fill_n(little.as<float>(), 10, 1.0f);
  EXPECT_EQ(m.run({large.value()}, {none(), integer(0)}), HUSK_LIMIT);
  EXPECT_NE(std::string(m.error.text).find("memory_limit"), std::string::npos) << m.error.text;
  ASSERT_EQ(m.run({little.value()}, {none(), integer(0)}), HUSK_OK) << m.error.text;
  EXPECT_EQ(m.results[0].as.tensor->shape[0], 10);
}

// The arguments that an op receives, as text.
husk_status describe(const husk_op_context* context, const husk_op_arg* args, uint32_t count,
                     husk_error*) {
  std::string& out = *static_cast<std::string*>(context->user);
  out.clear();
  auto tensor = [&](const husk_op_arg& a) {
    out += a.kind == HUSK_ARG_NONE
               ? "none "
               : "t" + std::to_string(a.sizes[0]) + "/" + std::to_string(a.access) + " ";
  };
  for (uint32_t i = 0; i < count; ++i) {
    const husk_op_arg& a = args[i];
    switch (a.kind) {
      case HUSK_ARG_TENSOR:
      case HUSK_ARG_NONE: tensor(a); break;
      case HUSK_ARG_INT: out += std::to_string(a.i) + " "; break;
      case HUSK_ARG_FLOAT: out += std::to_string(a.f) + " "; break;
      case HUSK_ARG_STRING: out += std::string(a.string) + " "; break;
      case HUSK_ARG_DTYPE: out += std::string(husk_dtype_name(a.dtype)) + " "; break;
      case HUSK_ARG_INTS:
        for (int64_t n = 0; n < a.count; ++n) out += std::to_string(a.sizes[n]) + ",";
        out += " ";
        break;
      case HUSK_ARG_FLOATS:
        for (int64_t n = 0; n < a.count; ++n) out += std::to_string(a.floats[n]) + ",";
        out += " ";
        break;
      case HUSK_ARG_TENSORS:
        out += "( ";
        for (int64_t n = 0; n < a.count; ++n) tensor(a.tensors[n]);
        out += ") ";
        break;
      case HUSK_ARG_RESULT:
        if (a.dtype == HUSK_I64)
          *static_cast<int64_t*>(a.data) = 41;
        else
          *static_cast<double*>(a.data) = 0.5;
        break;
    }
  }
  return HUSK_OK;
}

TEST(Segments, AnOpTakesEveryKindOfArgument) {
  std::string said;
  // A contract has one mark for all tensors of a list; this list has both kinds.
  husk_engine_options options = Machine::defaults();
  options.require_op_contracts = 0;
  Machine m(
      R"(
function f {
  input x tensor f32 [2..8]
  input t float
  output a int
  output b float
  variant cpu {
    let n = size(x, 0)
    buffer x of input bytes mul(n, 4)
    buffer y bytes mul(n, 8) align 64
    extern "test::describe" (read tensor x f32 [n] [1], none, tensors [read tensor x f32 [n] [1], none, write tensor y f32 [2] [1]],
      add(n, 1), t, true, [1, n], floats [0.5, t], "word", dtype bf16, tensors [], tensors [read tensor y f32 [1] [1]],
      result int, result float)
    return (int add(result(0), 1), float fadd(fresult(1), 1.0))
  }
}
)",
      options, nullptr,
      {{sizeof(husk_op), 0, "test::describe", describe, &said, nullptr, nullptr, nullptr, 0, 0, 0,
        0}});
  ASSERT_NE(m.session, nullptr) << m.error.text;
  Tensor x(HUSK_F32, {3});
  ASSERT_EQ(m.run({x.value(), floating(1.5)}, {integer(0), floating(0)}), HUSK_OK) << m.error.text;
  EXPECT_EQ(
      said,
      "t3/1 none ( t3/1 none t2/2 ) 4 1.500000 1 1,3, 0.500000,1.500000, word bf16 ( ) ( t1/1 ) ");
  EXPECT_EQ(m.results[0].as.i, 42);
  EXPECT_EQ(m.results[1].as.f, 1.5);
}

TEST(Segments, SeveralValuesAreRead) {
  Machine m(R"(
function f {
  input x tensor i64 [3]
  output sum int
  output half float
  variant cpu {
    buffer x of input bytes 24
    buffer one bytes 4 align 64
    fill f32 (write one, 0.25)
    read i64 (read x[0, 8])
    read i64 (read x[16, 8])
    read f32 (read one)
    return (int add(result(0), result(1)), float fmul(fresult(2), 2.0))
  }
}
)");
  ASSERT_NE(m.session, nullptr) << m.error.text;
  int64_t values[] = {5, 100, 7};
  Tensor x(HUSK_I64, {3}, values);
  ASSERT_EQ(m.run({x.value()}, {integer(0), floating(0)}), HUSK_OK) << m.error.text;
  EXPECT_EQ(m.results[0].as.i, 12);
  EXPECT_EQ(m.results[1].as.f, 0.5);
}

// huskc keeps constants in the first segment; another producer may put them into one that is
// skipped, where they are 0 like all registers.
TEST(Segments, ConstantsOfASkippedSegmentAreZero) {
  EditedArtifact edited(R"(
function f {
  input c int 0..1
  output y tensor f32 rank 1
  output k tensor i64 rank 1
  output s tensor f32 rank 1
  output v int
  output w float
  variant cpu {
    buffer y of output bytes 4
    buffer k of output bytes 8
    buffer s of output bytes 4
    buffer one bytes 4 align 64
    fill f32 (write one, 1.0)
    when c {
      let z = float(mul(c, 5))
      let i = mul(c, 3)
    }
    fill f32 (write y, z)
    fill i64 (write k, i)
    launch scale grid (1, 1, 1) (read one, write s, z, 1)
    return (tensor y f32 [1] [1], tensor k i64 [1] [1], tensor s f32 [1] [1], int i, float z)
  }
}
)");
  uint32_t conditional = 0;
  while (edited.segment(conditional).when == kNone) ++conditional;
  const uint32_t first = edited.segment(conditional).scalar_begin;
  const double z = 3.5;
  uint64_t bits = 0;
  std::memcpy(&bits, &z, sizeof(bits));
  edited.scalar(edited.find(Scalar::op_float, first)) = {static_cast<uint16_t>(Scalar::op_fconst),
                                                         0, 0, static_cast<uint32_t>(bits),
                                                         static_cast<uint32_t>(bits >> 32)};
  uint32_t i = first;  // the product by 3 is the last one
  for (uint32_t r = first; r < edited.segment(conditional).scalar_end; ++r)
    if (edited.scalar(r).op == static_cast<uint16_t>(Scalar::op_mul)) i = r;
  edited.scalar(i) = {static_cast<uint16_t>(Scalar::op_const), 0, 0, 7, 0};
  write_hash(edited.file);

  Machine m(edited.file);
  ASSERT_NE(m.session, nullptr) << m.error.text;
  Tensor y(HUSK_F32, {1}), k(HUSK_I64, {1}), s(HUSK_F32, {1});
  for (int64_t c : {1, 0, 0, 1, 0}) {
    ASSERT_EQ(m.run({integer(c)}, {y.value(), k.value(), s.value(), integer(0), floating(0)}),
              HUSK_OK)
        << m.error.text;
    EXPECT_EQ(*y.as<float>(), c ? 3.5f : 0.0f);
    EXPECT_EQ(*k.as<int64_t>(), c ? 7 : 0);
    EXPECT_EQ(*s.as<float>(), c ? 3.5f : 0.0f);
    EXPECT_EQ(m.results[3].as.i, c ? 7 : 0);
    EXPECT_EQ(m.results[4].as.f, c ? 3.5 : 0.0);
  }
}

}  // namespace
}  // namespace husk::test
