// Runs on the host port: values, state, shapes, and the texts of errors.
#include <cstring>

#include "fixture.h"

namespace husk::test {
namespace {

const char* const kAdd = R"(
function add {
  input x tensor f32 [1..1024]
  input y tensor f32 [1..1024]
  output z tensor f32 rank 1
  variant cpu {
    let n = size(x, 0)
    check_eq(size(y, 0), n) "x and y have one length"
    check_stride(x, 0, 1)
    buffer x of input bytes mul(n, 4) align 16
    buffer y of input bytes mul(n, 4)
    buffer z of output bytes mul(n, 4)
    buffer t bytes mul(n, 4) align 64
    launch add grid (1, 1, 1) (read x, read y, write t, n) at "model.py:3 x + y"
    launch scale grid (1, 1, 1) (read t, write z, 2.0, n) at "model.py:3 2 *"
    return (tensor z f32 [n] [1])
  }
}
)";

void iota(Tensor& tensor) {
  for (int64_t i = 0; i < tensor.shape[0]; ++i) tensor.as<float>()[i] = static_cast<float>(i);
}

TEST(Session, RunsAtManyShapes) {
  Machine m(kAdd);
  ASSERT_NE(m.session, nullptr) << m.error.text;
  for (int64_t n : {5, 1, 1024, 7, 7}) {
    Tensor x(HUSK_F32, {n}), y(HUSK_F32, {n}), z(HUSK_F32, {n});
    iota(x);
    iota(y);
    ASSERT_EQ(m.run({x.value(), y.value()}, {z.value()}), HUSK_OK) << m.error.text;
    for (int64_t i = 0; i < n; ++i) EXPECT_EQ(z.as<float>()[i], static_cast<float>(4 * i));
  }
  EXPECT_STREQ(husk_program_function_target(m.program, 0), "host " HUSK_TEST_ARCH);
}

TEST(Session, TellsShapesOfOutputs) {
  Machine m(kAdd);
  int64_t size = 0, stride = 0;
  EXPECT_EQ(husk_session_output_shape(m.session, 0, 0, &size, &stride, &m.error),
            HUSK_INVALID_ARGUMENT);
  Tensor x(HUSK_F32, {17}), y(HUSK_F32, {17});
  x.dl.data = y.dl.data = nullptr;  // A resize needs only shapes.
  ASSERT_EQ(m.resize({x.value(), y.value()}), HUSK_OK) << m.error.text;
  ASSERT_EQ(husk_session_output_shape(m.session, 0, 0, &size, &stride, &m.error), HUSK_OK);
  EXPECT_EQ(size, 17);
  EXPECT_EQ(stride, 1);
}

// Each error names the value and the remedy; the session still runs after it.
TEST(Session, RefusesWrongValues) {
  Machine m(kAdd);
  Tensor x(HUSK_F32, {4}), y(HUSK_F32, {4}), z(HUSK_F32, {4});
  iota(x);
  iota(y);
  Tensor half(HUSK_F16, {4}), matrix(HUSK_F32, {2, 2}), empty(HUSK_F32, {0}),
      long_one(HUSK_F32, {1025}), five(HUSK_F32, {5});
  Tensor odd(HUSK_F32, {4}, reinterpret_cast<char*>(x.dl.data) + 4),
      spread(HUSK_F32, {4}, nullptr, {2});
  Tensor away(HUSK_F32, {4});
  away.dl.device = {kDLCUDA, 0};
  Tensor nowhere(HUSK_F32, {4});
  nowhere.dl.data = nullptr;
  struct Case {
    std::vector<husk_value> inputs;
    husk_value output;
    const char* text;
  };
  const Case cases[] = {
      {{x.value()}, z.value(), "function 'add': takes 2 inputs, 1 were passed"},
      {{integer(3), y.value()}, z.value(), "input 'x' is an int, must be a tensor"},
      {{half.value(), y.value()}, z.value(), "input 'x' has dtype f16, must be f32: convert it"},
      {{matrix.value(), y.value()}, z.value(), "input 'x' has 2 dims, must have 1"},
      {{empty.value(), empty.value()},
       z.value(),
       "size 0 of input 'x' is 0, must be in 1..1024: export with a wider range"},
      {{long_one.value(), y.value()}, z.value(), "size 0 of input 'x' is 1025, must be in 1..1024"},
      {{x.value(), five.value()},
       z.value(),
       "x and y have one length: size 0 of input 'y' (5) must equal size 0 of input 'x' (4)"},
      {{odd.value(), y.value()}, z.value(), "is not aligned to 16 bytes, which the kernels assume"},
      {{spread.value(), y.value()}, z.value(), "stride 0 of input 'x' is 2, must be 1"},
      {{away.value(), y.value()},
       z.value(),
       "input 'x' lies on DLPack device 2:0, the program runs on 1:0"},
      {{nowhere.value(), y.value()}, z.value(), "input 'x' has no memory"},
      {{x.value(), y.value()},
       five.value(),
       "size 0 of output 'z' is 5, this run gives 4: husk_session_output_shape"},
      {{x.value(), y.value()}, half.value(), "output 'z' has dtype f16, must be f32"},
      {{x.value(), y.value()}, integer(1), "output 'z' is a tensor: pass its memory"},
      {{x.value(), y.value()},
       x.value(),
       "output 'z' overlaps input 'x': give it memory of its own"},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(m.run(c.inputs, {c.output}), HUSK_INVALID_INPUT) << c.text;
    EXPECT_NE(std::strstr(m.error.text, c.text), nullptr)
        << m.error.text << "\nshould say: " << c.text;
    ASSERT_EQ(m.run({x.value(), y.value()}, {z.value()}), HUSK_OK) << m.error.text;
    EXPECT_EQ(z.as<float>()[3], 12.0f);
  }
  EXPECT_EQ(m.run({x.value(), y.value()}, {}), HUSK_INVALID_INPUT);
}

TEST(Session, StrideOfOneElementDoesNotMatter) {
  Machine m(kAdd);
  Tensor x(HUSK_F32, {1}, nullptr, {77}), y(HUSK_F32, {1}), z(HUSK_F32, {1});
  x.as<float>()[0] = y.as<float>()[0] = 2;
  ASSERT_EQ(m.run({x.value(), y.value()}, {z.value()}), HUSK_OK) << m.error.text;
  EXPECT_EQ(z.as<float>()[0], 8.0f);
}

const char* const kCounter = R"(
constant start i64 [] bytes "0700000000000000"
state ticks i64 [] fill 0
state from i64 [] constant start
function tick {
  output a tensor i64 rank 0
  output b tensor i64 rank 0
  variant cpu {
    buffer a of output bytes 8
    buffer b of output bytes 8
    launch count grid (1, 1, 1) (both ticks)
    launch count grid (1, 1, 1) (both from)
    copy (write a, read ticks)
    copy (write b, read from)
    return (tensor a i64 [] [], tensor b i64 [] [])
  }
}
function peek {
  output a tensor i64 rank 0
  variant cpu {
    buffer a of output bytes 8
    copy (write a, read ticks)
    return (tensor a i64 [] [])
  }
}
)";

TEST(Session, StateStaysBetweenRunsAndFunctions) {
  Machine m(kCounter);
  ASSERT_NE(m.session, nullptr) << m.error.text;
  Tensor a(HUSK_I64, {}), b(HUSK_I64, {});
  for (int64_t run = 1; run <= 3; ++run) {
    ASSERT_EQ(m.run({}, {a.value(), b.value()}), HUSK_OK) << m.error.text;
    EXPECT_EQ(*a.as<int64_t>(), run);
    EXPECT_EQ(*b.as<int64_t>(), 7 + run);
  }
  ASSERT_EQ(m.run({}, {a.value()}, 1), HUSK_OK) << m.error.text;
  EXPECT_EQ(*a.as<int64_t>(), 3);

  ASSERT_EQ(husk_program_state_count(m.program), 2u);
  husk_storage_info ticks = HUSK_STORAGE_INFO_INIT;
  ASSERT_EQ(husk_program_state(m.program, 0, &ticks, nullptr), HUSK_OK);
  EXPECT_STREQ(ticks.name, "ticks");
  EXPECT_EQ(ticks.bytes, 8u);
  int64_t value = 0;
  ASSERT_EQ(husk_session_state_get(m.session, 1, &value, &m.error), HUSK_OK);
  EXPECT_EQ(value, 10);
  value = 100;
  ASSERT_EQ(husk_session_state_set(m.session, 0, &value, &m.error), HUSK_OK);
  ASSERT_EQ(husk_session_state_reset(m.session, 1, &m.error), HUSK_OK);
  ASSERT_EQ(m.run({}, {a.value(), b.value()}), HUSK_OK);
  EXPECT_EQ(*a.as<int64_t>(), 101);
  EXPECT_EQ(*b.as<int64_t>(), 8);
  EXPECT_EQ(husk_session_state_get(m.session, 2, &value, &m.error), HUSK_INVALID_ARGUMENT);

  husk_session* other = nullptr;  // Each session has a state of its own.
  ASSERT_EQ(husk_session_create(m.program, nullptr, &other, &m.error), HUSK_OK);
  ASSERT_EQ(husk_session_state_get(other, 0, &value, &m.error), HUSK_OK);
  EXPECT_EQ(value, 0);
  husk_session_release(other);
}

const char* const kSegments = R"(
function f {
  input x tensor f32 [1..100]
  output count int
  output doubled tensor f32 rank 1
  variant cpu {
    let n = size(x, 0)
    buffer x of input bytes mul(n, 4)
    buffer found bytes 8 align 8
    launch positive grid (1, 1, 1) (read x, write found, n)
    read i64 (read found)
    let u0 = range(result(0), 0, 100)
    buffer doubled of output bytes mul(u0, 4)
    check_le(u0, n)
    launch scale grid (1, 1, 1) (read x, write doubled, 2.0, u0)
    return (int u0, tensor doubled f32 [u0] [1])
  }
}
)";

TEST(Session, ReadsAValueAndGoesOn) {
  Machine m(kSegments);
  ASSERT_NE(m.session, nullptr) << m.error.text;
  Tensor x(HUSK_F32, {5}), out(HUSK_F32, {3}), wrong(HUSK_F32, {2});
  const float values[] = {1, -1, 2, -2, 3};
  std::memcpy(x.dl.data, values, sizeof(values));
  ASSERT_EQ(m.run({x.value()}, {integer(0), out.value()}), HUSK_OK) << m.error.text;
  EXPECT_EQ(m.results[0].as.i, 3);
  EXPECT_EQ(out.as<float>()[2], 4.0f);
  EXPECT_EQ(m.run({x.value()}, {integer(0), wrong.value()}), HUSK_INVALID_INPUT);
  EXPECT_NE(std::strstr(m.error.text, "size 0 of output 'doubled' is 2, this run gives 3"), nullptr)
      << m.error.text;
  int64_t size;
  ASSERT_EQ(husk_session_output_shape(m.session, 0, 1, &size, nullptr, &m.error), HUSK_OK);
  EXPECT_EQ(size, 3);
}

TEST(Session, KernelsReceiveEveryScalarType) {
  Machine m(R"(
function f {
  input n int -100..100
  input t float
  output bytes tensor u8 rank 1
  variant cpu {
    buffer bytes of output bytes 32
    launch record grid (1, 1, 1) (write bytes, 3, n, 65535, -5, 12, t, t, t, t)
    return (tensor bytes u8 [32] [1])
  }
})");
  ASSERT_NE(m.session, nullptr) << m.error.text;
  Tensor out(HUSK_U8, {32});
  ASSERT_EQ(m.run({integer(-7), floating(1.5)}, {out.value()}), HUSK_OK) << m.error.text;
  const uint8_t expected[] = {1,    0xF9, 0xFF, 0xFF, 0xFB, 0xFF, 0xFF, 0xFF, 12,   0,   0,
                              0,    0,    0,    0,    0,    0x00, 0x3E, 0xC0, 0x3F, 0,   0,
                              0xC0, 0x3F, 0,    0,    0,    0,    0,    0,    0xF8, 0x3F};
  EXPECT_EQ(std::memcmp(out.dl.data, expected, sizeof(expected)), 0);
}

TEST(Session, RefusesAnIntThatAParameterDoesNotHold) {
  Machine m(R"(
function f {
  input n int
  output y tensor f32 rank 1
  variant cpu {
    buffer y of output bytes 4
    buffer t bytes 4
    launch scale grid (1, 1, 1) (read t, write y, 1.0, n) at "model.py:9"
    return (tensor y f32 [1] [1])
  }
})");
  Tensor y(HUSK_F32, {1});
  EXPECT_EQ(m.run({integer(1ll << 31)}, {y.value()}), HUSK_INVALID_INPUT);
  EXPECT_NE(
      std::strstr(m.error.text,
                  "step 0 scale (model.py:9): argument 6 is 2147483648, which i32 does not hold"),
      nullptr)
      << m.error.text;
  EXPECT_EQ(m.error.step, 0);
  EXPECT_EQ(m.run({integer(1)}, {y.value()}), HUSK_OK) << m.error.text;
}

TEST(Session, AFailedCheckInAKernelIsAStatus) {
  Machine m(R"(
function f {
  input i int
  variant cpu {
    launch check_index grid (1, 1, 1) (i) at "model.py:4 table[i]"
    return ()
  }
})");
  EXPECT_EQ(m.run({integer(9)}, {}), HUSK_OK);
  EXPECT_EQ(m.run({integer(10)}, {}), HUSK_KERNEL);
  EXPECT_NE(std::strstr(m.error.text, "index out of bounds: 0 <= index < 10"), nullptr)
      << m.error.text;
  EXPECT_NE(std::strstr(m.error.text, "model.py:4 table[i]"), nullptr) << m.error.text;
  EXPECT_EQ(m.run({integer(0)}, {}), HUSK_OK);
}

TEST(Session, FillsAndExternOps) {
  Machine m(R"(
constant w f32 [2, 3] bytes "0000803f0000004000004040000080400000a0400000c040"
function f {
  input x tensor f32 [0..8, 2]
  output y tensor f32 rank 2
  variant cpu {
    let n = size(x, 0)
    buffer x of input bytes mul(n, 8)
    buffer y of output bytes mul(n, 12)
    fill f32 (write y, -1.0)
    extern "aten::mm.out" (read tensor x f32 [n, 2] [2, 1], read tensor w f32 [2, 3] [3, 1],
                           write tensor y f32 [n, 3] [3, 1])
    return (tensor y f32 [n, 3] [3, 1])
  }
})");
  ASSERT_NE(m.session, nullptr) << m.error.text;
  Tensor x(HUSK_F32, {2, 2}), y(HUSK_F32, {2, 3});
  const float values[] = {1, 0, 1, 1};
  std::memcpy(x.dl.data, values, sizeof(values));
  ASSERT_EQ(m.run({x.value()}, {y.value()}), HUSK_OK) << m.error.text;
  const float expected[] = {1, 2, 3, 5, 7, 9};
  EXPECT_EQ(std::memcmp(y.dl.data, expected, sizeof(expected)), 0);
  Tensor none(HUSK_F32, {0, 2}), nothing(HUSK_F32, {0, 3});
  EXPECT_EQ(m.run({none.value()}, {nothing.value()}), HUSK_OK) << m.error.text;
}

TEST(Session, UnboundedShapesWantAResize) {
  Machine m(R"(
function f {
  input x tensor f32 [0..inf]
  output z tensor f32 rank 1
  variant cpu {
    let n = size(x, 0)
    buffer x of input bytes mul(n, 4)
    buffer z of output bytes mul(n, 4)
    buffer t bytes mul(n, 4) align 64
    launch scale grid (1, 1, 1) (read x, write t, 3.0, n)
    launch scale grid (1, 1, 1) (read t, write z, 2.0, n)
    return (tensor z f32 [n] [1])
  }
})");
  ASSERT_NE(m.session, nullptr) << m.error.text;
  auto run = [&](int64_t n) {
    Tensor x(HUSK_F32, {n}), z(HUSK_F32, {n});
    iota(x);
    const husk_status status = m.run({x.value()}, {z.value()});
    if (status == HUSK_OK) {
      EXPECT_EQ(z.as<float>()[n - 1], static_cast<float>(6 * (n - 1)));
    }
    return status;
  };
  EXPECT_EQ(run(100), HUSK_NEEDS_RESIZE);
  EXPECT_NE(std::strstr(m.error.text, "call husk_session_resize with them first"), nullptr)
      << m.error.text;
  Tensor x(HUSK_F32, {1000});
  ASSERT_EQ(m.resize({x.value()}), HUSK_OK) << m.error.text;
  EXPECT_EQ(run(1000), HUSK_OK) << m.error.text;
  EXPECT_EQ(run(10), HUSK_OK) << m.error.text;  // Smaller shapes fit.
  EXPECT_EQ(run(5000), HUSK_NEEDS_RESIZE);
  EXPECT_EQ(run(1000), HUSK_OK) << m.error.text;
  husk_session_stats stats = HUSK_SESSION_STATS_INIT;
  ASSERT_EQ(husk_session_stats_get(m.session, 0, &stats, &m.error), HUSK_OK);
  EXPECT_EQ(stats.bounded, 0u);
  EXPECT_EQ(stats.arena_bytes, 4000u);
  EXPECT_EQ(stats.runs_as_list, 3u);
}

TEST(Program, NamesWhatIsMissing) {
  husk_engine_options options = Machine::defaults();
  options.allow_host_images = 0;
  Machine forbidden(kAdd, options);
  EXPECT_EQ(forbidden.program, nullptr);
  EXPECT_NE(std::strstr(forbidden.error.text, "husk_engine_options.allow_host_images"), nullptr)
      << forbidden.error.text;

  Machine unknown(
      R"(function f { variant cpu { extern "my::op" (3) at "model.py:1" return () } })");
  EXPECT_EQ(unknown.error.code, HUSK_NOT_FOUND);
  EXPECT_NE(
      std::strstr(unknown.error.text, "calls op 'my::op' (model.py:1), which is not registered"),
      nullptr)
      << unknown.error.text;

  options.accept = [](void*, const uint8_t*) { return 0; };
  Machine refused(kAdd, options);
  EXPECT_NE(std::strstr(refused.error.text, "did not accept the artifact's content hash"), nullptr)
      << refused.error.text;

  Machine elsewhere("target gpu cuda \"sm_90a\"\nfunction f { variant gpu { return () } }");
  EXPECT_EQ(elsewhere.error.code, HUSK_UNSUPPORTED);
  EXPECT_NE(std::strstr(elsewhere.error.text, "the file holds cuda sm_90a; export for this target"),
            nullptr)
      << elsewhere.error.text;

  Machine good(kAdd);
  uint32_t index = 7;
  EXPECT_EQ(husk_program_find_function(good.program, "add", &index, nullptr), HUSK_OK);
  EXPECT_EQ(index, 0u);
  EXPECT_EQ(husk_program_find_function(good.program, "sub", &index, &good.error), HUSK_NOT_FOUND);
  EXPECT_NE(std::strstr(good.error.text, "no function 'sub'; its first is 'add'"), nullptr)
      << good.error.text;
  husk_value_info info = HUSK_VALUE_INFO_INIT;
  ASSERT_EQ(husk_program_input(good.program, 0, 0, &info, nullptr), HUSK_OK);
  EXPECT_STREQ(info.name, "x");
  EXPECT_EQ(info.dtype, HUSK_F32);
  EXPECT_EQ(info.alignment, 16u);
  EXPECT_EQ(info.ranges[1], 1024);
  EXPECT_EQ(husk_program_input(good.program, 0, 2, &info, nullptr), HUSK_INVALID_ARGUMENT);
  ASSERT_EQ(husk_program_output(good.program, 0, 0, &info, nullptr), HUSK_OK);
  EXPECT_STREQ(info.name, "z");
}

}  // namespace
}  // namespace husk::test
