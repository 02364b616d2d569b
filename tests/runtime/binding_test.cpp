// The values that a caller passes: tensors that are too large, have no shape or memory, or are not
// where they must be; outputs whose shapes only the data decides; guards.
#include <cstring>

#include "edited_artifact.h"

namespace husk::test {
namespace {

constexpr int64_t kHuge = int64_t{1} << 62;

void expect_text(const husk_error& error, const std::string& text) {
  EXPECT_NE(std::string(error.text).find(text), std::string::npos)
      << "is: " << error.text << "\nexpected: " << text;
}

const char* const kMatrix = R"(
function f {
  input x tensor f32 [0..inf, 0..inf]
  output z tensor f32 rank 2
  variant cpu {
    buffer x of input bytes 16
    buffer z of output bytes 16 align 64
    copy (write z, read x)
    return (tensor z f32 [2, 2] [2, 1])
  }
}
)";

TEST(Binding, Inputs) {
  Machine m(kMatrix);
  ASSERT_NE(m.session, nullptr) << m.error.text;
  Tensor x(HUSK_F32, {2, 2}), z(HUSK_F32, {2, 2}), shapeless(HUSK_F32, {2, 2});
  shapeless.dl.shape = nullptr;
  husk_value nothing = x.value();
  nothing.as.tensor = nullptr;
  int64_t data = 0;
  Tensor huge(HUSK_F32, {0, 0}, &data), backwards(HUSK_F32, {2, 2}, nullptr, {2, 1});
  huge.shape = {kHuge, 4};
  backwards.strides = {-2, 1};
  struct Case {
    husk_value input;
    const char* text;
  };
  const Case cases[] = {{nothing, "input 'x' is a tensor, NULL was passed"},
                        {shapeless.value(), "input 'x' has no shape"},
                        {huge.value(), "input 'x' is too large or has a negative stride"},
                        {backwards.value(), "input 'x' is too large or has a negative stride"}};
  for (const Case& c : cases) {
    EXPECT_EQ(m.run({c.input}, {z.value()}), HUSK_INVALID_INPUT);
    expect_text(m.error, c.text);
    EXPECT_EQ(m.resize({c.input}), HUSK_INVALID_INPUT);
    expect_text(m.error, c.text);
    EXPECT_EQ(m.run({x.value()}, {z.value()}), HUSK_OK) << m.error.text;
  }
  EXPECT_EQ(husk_session_run(m.session, 0, nullptr, nullptr, 1, nullptr, 0, &m.error),
            HUSK_INVALID_INPUT);
  expect_text(m.error, "function 'f': takes 1 inputs, 1 were passed");
  const husk_value in = x.value();
  EXPECT_EQ(husk_session_run(m.session, 0, nullptr, &in, 1, nullptr, 1, &m.error),
            HUSK_INVALID_INPUT);
  expect_text(m.error, "function 'f': gives 1 outputs, 1 were passed");
  EXPECT_EQ(husk_session_run(m.session, 0, nullptr, &in, 1, nullptr, 0, &m.error),
            HUSK_INVALID_INPUT);
  expect_text(m.error, "function 'f': gives 1 outputs, 0 were passed");
}

// A buffer that is larger than the caller's tensor is refused before the arguments of steps.
TEST(Binding, AnInputHoldsItsBuffer) {
  Machine m(kMatrix);
  Tensor x(HUSK_F32, {1, 2}), z(HUSK_F32, {2, 2});
  EXPECT_EQ(m.run({x.value()}, {z.value()}), HUSK_INVALID_INPUT);
  expect_text(m.error, "buffer 'x' needs 16 bytes, there are 8");
  EXPECT_EQ(std::strstr(m.error.text, "step"), nullptr) << m.error.text;
}

TEST(Binding, Outputs) {
  Machine m(kMatrix);
  Tensor x(HUSK_F32, {2, 2}), z(HUSK_F32, {2, 2}), nowhere(HUSK_F32, {2, 2});
  nowhere.dl.data = nullptr;
  Tensor odd(HUSK_F32, {2, 2}, static_cast<char*>(z.dl.data) + 4);
  EXPECT_EQ(m.run({x.value()}, {nowhere.value()}), HUSK_INVALID_INPUT);
  expect_text(m.error, "output 'z' has no memory");
  EXPECT_EQ(m.run({x.value()}, {odd.value()}), HUSK_INVALID_INPUT);
  expect_text(m.error, "is not aligned to 64 bytes, which the kernels assume: give it aligned");
  Tensor spread(HUSK_F32, {2, 2}, nullptr, {3, 1});
  EXPECT_EQ(m.run({x.value()}, {spread.value()}), HUSK_INVALID_INPUT);
  expect_text(m.error, "stride 0 of output 'z' is 3, this run gives 2");
  EXPECT_EQ(m.run({x.value()}, {z.value()}), HUSK_OK) << m.error.text;
}

TEST(Binding, AStrideOfAnOutputWithOneElementDoesNotMatter) {
  Machine m(R"(
function f {
  output z tensor f32 rank 1
  variant cpu {
    buffer z of output bytes 4
    fill f32 (write z, 1.0)
    return (tensor z f32 [1] [1])
  }
}
)");
  Tensor z(HUSK_F32, {1}, nullptr, {77});
  EXPECT_EQ(m.run({}, {z.value()}), HUSK_OK) << m.error.text;
}

TEST(Binding, StridesOfAnOutputWithoutElementsDoNotMatter) {
  Machine m(R"(
function f {
  output z tensor f32 rank 2
  variant cpu {
    buffer z of output bytes 0
    return (tensor z f32 [5, 0] [0, 0])
  }
}
)");
  Tensor z(HUSK_F32, {5, 0}, nullptr, {1, 1}), wrong(HUSK_F32, {4, 0});
  EXPECT_EQ(m.run({}, {z.value()}), HUSK_OK) << m.error.text;
  EXPECT_EQ(m.run({}, {wrong.value()}), HUSK_INVALID_INPUT);
  expect_text(m.error, "size 0 of output 'z' is 4, this run gives 5");
}

// A size of 0 makes the tensor empty, so its extent fits though strides without gaps do not.
TEST(Binding, AnOutputWhoseStridesAreTooLarge) {
  Machine m(R"(
function f {
  input p tensor i64 []
  output y tensor u8 rank 3
  variant cpu {
    buffer p of input bytes 8
    read i64 (read p)
    let n = result(0)
    buffer y of output bytes 0
    return (tensor y u8 [0, n, n] [1, 1, 1])
  }
}
)");
  ASSERT_NE(m.session, nullptr) << m.error.text;
  Tensor p(HUSK_I64, {}), y(HUSK_U8, {1, 4, 4});
  *p.as<int64_t>() = int64_t{1} << 40;
  EXPECT_EQ(m.run({p.value()}, {y.value()}), HUSK_INVALID_INPUT);
  expect_text(m.error, "output 'y' is too large");
  EXPECT_EQ(y.shape, (std::vector<int64_t>{1, 4, 4}));  // A refused tensor is as before.
}

// The compiler computes the bytes of a tensor in a register, which would leave int64 first.
TEST(Binding, AnOutputThatIsTooLarge) {
  EditedArtifact edited(R"(
function f {
  input n int
  input m int 0..4
  output y tensor f32 rank 1
  output k int
  variant cpu {
    buffer y of output bytes 8
    return (tensor y f32 [m] [1], int n)
  }
}
)");
  const uint32_t *operands = edited.variant()->operands()->data(), *n = &edited.result(1).index;
  edited.edit<uint32_t>(operands + edited.tensor(0).first) = *n;
  write_hash(edited.file);
  Machine m(edited.file);
  ASSERT_NE(m.session, nullptr) << m.error.text;
  EXPECT_EQ(m.run({integer(kHuge), integer(2)}, {none(), integer(0)}), HUSK_INVALID_INPUT);
  expect_text(m.error, "output 'y' is too large");
}

// The shape is written to a caller's tensor that is large enough, and only then.
TEST(Binding, ATensorThatDoesNotFitKeepsItsShape) {
  Machine m(R"(
function f {
  input p tensor i64 []
  output y tensor f32 rank 2
  variant cpu {
    buffer p of input bytes 8
    read i64 (read p)
    let n = result(0)
    buffer y of output bytes mul(n, 8)
    fill f32 (write y, 1.0)
    return (tensor y f32 [2, n] [1, 2])
  }
}
)");
  ASSERT_NE(m.session, nullptr) << m.error.text;
  Tensor p(HUSK_I64, {});
  *p.as<int64_t>() = 3;
  // Without strides a tensor is contiguous, and this output is not.
  Tensor contiguous(HUSK_F32, {4, 4}), small(HUSK_F32, {1, 4}, nullptr, {4, 1});
  Tensor backwards(HUSK_F32, {4, 4}, nullptr, {4, 1}), fits(HUSK_F32, {4, 4}, nullptr, {4, 1});
  backwards.strides = {-4, 1};
  for (Tensor* t : {&contiguous, &small, &backwards}) {
    const std::vector<int64_t> shape = t->shape, strides = t->strides;
    EXPECT_EQ(m.run({p.value()}, {t->value()}), HUSK_INVALID_INPUT);
    EXPECT_EQ(t->shape, shape);
    EXPECT_EQ(t->strides, strides);
  }
  ASSERT_EQ(m.run({p.value()}, {fits.value()}), HUSK_OK) << m.error.text;
  EXPECT_EQ(fits.shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(fits.strides, (std::vector<int64_t>{1, 2}));
}

TEST(Binding, TheShapeOfANumberIsKnownAfterARun) {
  Machine m(R"(
function f {
  output y tensor f32 rank 0
  variant cpu {
    buffer y of output bytes 4
    fill f32 (write y, 1.0)
    return (tensor y f32 [] [])
  }
}
)");
  EXPECT_EQ(husk_session_output_shape(m.session, 0, 0, nullptr, nullptr, &m.error),
            HUSK_INVALID_ARGUMENT);
  EXPECT_EQ(m.run({}, {none()}), HUSK_OK);
  EXPECT_EQ(husk_session_output_shape(m.session, 0, 0, nullptr, nullptr, &m.error), HUSK_OK);
}

TEST(Binding, Guards) {
  Machine m(R"(
function f {
  input n int
  input m int
  input x tensor f32 [0..9, 0..9]
  output k int
  variant cpu {
    check(n) "n is not 0"
    check_le(n, m) "n and m are in order"
    check_stride(x, 1, 2)
    return (int range(m, 2, 9))
  }
}
)");
  ASSERT_NE(m.session, nullptr) << m.error.text;
  Tensor x(HUSK_F32, {2, 2}, nullptr, {4, 2}), wrong(HUSK_F32, {2, 2}, nullptr, {4, 1});
  Tensor empty(HUSK_F32, {0, 2}, nullptr, {4, 1});
  const auto run = [&](int64_t n, int64_t k, Tensor& t) {
    return m.run({integer(n), integer(k), t.value()}, {integer(0)});
  };
  EXPECT_EQ(run(0, 4, x), HUSK_INVALID_INPUT);
  expect_text(m.error, "n is not 0: check failed");
  EXPECT_EQ(run(5, 4, x), HUSK_INVALID_INPUT);
  expect_text(m.error, "n and m are in order: input 'n' (5) must be at most input 'm' (4)");
  EXPECT_EQ(run(1, 1, x), HUSK_INVALID_INPUT);
  expect_text(m.error, "input 'm' (1) is outside 2..9");
  EXPECT_EQ(run(1, 10, x), HUSK_INVALID_INPUT);
  expect_text(m.error, "input 'm' (10) is outside 2..9");
  EXPECT_EQ(run(1, 4, wrong), HUSK_INVALID_INPUT);
  expect_text(m.error, "stride 1 of input 'x' is 1, must be 2");
  EXPECT_EQ(run(1, 4, empty), HUSK_OK) << m.error.text;  // no element, no stride
  EXPECT_EQ(run(1, 4, x), HUSK_OK) << m.error.text;
}

TEST(Binding, Grids) {
  Machine m(R"(
function f {
  input n int
  variant cpu {
    buffer t bytes 8 align 64
    launch count grid (1, n, 1) (both t)
    return ()
  }
}
)");
  for (const int64_t n : {int64_t{-1}, int64_t{65536}}) {
    EXPECT_EQ(m.run({integer(n)}, {}), HUSK_INVALID_INPUT);
    expect_text(m.error, "grid dimension 1 is " + std::to_string(n) + ", outside 0..65535");
  }
  EXPECT_EQ(m.run({integer(0)}, {}), HUSK_OK) << m.error.text;
}

// A caller may pass no husk_error, also where a step fails.
TEST(Binding, ErrorsMayBeIgnored) {
  Machine m(R"(
function f {
  input n int
  variant cpu {
    buffer t bytes 8 align 64
    launch count grid (n, 1, 1) (both t)
    return ()
  }
}
)");
  const husk_value n = integer(-1);
  EXPECT_EQ(husk_session_run(m.session, 0, nullptr, &n, 1, nullptr, 0, nullptr),
            HUSK_INVALID_INPUT);
}

// A failure in a segment after the first one ends the run.
TEST(Binding, LaterSegments) {
  const std::string text = R"(
function f {
  input p tensor i64 []
  output y tensor u8 rank 1
  output z tensor u8 rank 1
  output k int
  variant cpu {
    buffer p of input bytes 8
    buffer t bytes 64 align 64
    read i64 (read p)
    let n = range(result(0), 0, 100)
    buffer y of output bytes n
    buffer z of output bytes n
    fill u8 (write y, 1)
    fill u8 (write z, 2)
    fill u8 (write t[0, n], 3)
    return (tensor y u8 [n] [1], tensor z u8 [n] [1], int n)
  }
}
)";
  Machine m(text);
  ASSERT_NE(m.session, nullptr) << m.error.text;
  Tensor p(HUSK_I64, {}), y(HUSK_U8, {64}), z(HUSK_U8, {64});
  Tensor inside(HUSK_U8, {64}, y.as<uint8_t>() + 32);
  const auto run = [&](int64_t n, Tensor& second) {
    y.shape = z.shape = inside.shape = {64};
    *p.as<int64_t>() = n;
    return m.run({p.value()}, {y.value(), second.value(), integer(0)});
  };
  EXPECT_EQ(run(-1, z), HUSK_INVALID_INPUT);
  expect_text(m.error, "is outside 0..100");
  EXPECT_EQ(run(64, inside), HUSK_INVALID_INPUT);
  expect_text(m.error, "output 'y' overlaps output 'z'");
  std::vector<uint8_t> room(200);
  Tensor large(HUSK_U8, {80}, room.data()), larger(HUSK_U8, {80}, room.data() + 100);
  *p.as<int64_t>() = 80;
  EXPECT_EQ(m.run({p.value()}, {large.value(), larger.value(), integer(0)}), HUSK_INVALID_INPUT);
  expect_text(m.error, "a view covers bytes 0 + 80 of the 64");
  EXPECT_EQ(run(10, z), HUSK_OK) << m.error.text;
  EXPECT_EQ(m.results[2].as.i, 10);
}

TEST(Binding, ABufferIsBelow2To48Bytes) {
  Machine m(R"(
function f {
  input x tensor f32 [0..inf]
  input p tensor i64 []
  variant cpu {
    let n = size(x, 0)
    buffer p of input bytes 8
    buffer t bytes mul(n, 4) align 64
    fill f32 (write t, 1.0)
    read i64 (read p)
    let k = result(0)
    buffer d bytes mul(k, 4) align 64
    fill f32 (write d, 1.0)
    return ()
  }
}
)");
  ASSERT_NE(m.session, nullptr) << m.error.text;
  Tensor x(HUSK_F32, {1}), p(HUSK_I64, {});
  const auto resize = [&](int64_t n) {
    x.shape[0] = n;
    return m.resize({x.value(), p.value()});
  };
  EXPECT_EQ(resize(int64_t{1} << 47), HUSK_OUT_OF_MEMORY);
  expect_text(m.error, "buffer 't' would take 562949953421312 bytes");
  EXPECT_EQ(resize(1), HUSK_OK) << m.error.text;
  *p.as<int64_t>() = int64_t{1} << 47;
  EXPECT_EQ(m.run({x.value(), p.value()}, {}), HUSK_OUT_OF_MEMORY);
  expect_text(m.error, "buffer 'd' would take 562949953421312 bytes");
  *p.as<int64_t>() = 3;
  EXPECT_EQ(m.run({x.value(), p.value()}, {}), HUSK_OK) << m.error.text;
}

// The range of a data-dependent size may be so large that its buffer is placed on demand. The
// others are planned once.
TEST(Binding, ALargeRangeOfTheDataIsNoBound) {
  husk_session_options options = HUSK_SESSION_OPTIONS_INIT;
  options.bound_limit = 1000;
  options.memory_limit = 2000;
  Machine m(R"(
function f {
  input p tensor i64 []
  variant cpu {
    buffer p of input bytes 8
    buffer t bytes 1000 align 64
    fill f32 (write t, 1.0)
    read i64 (read p)
    let k = range(result(0), 0, 100000)
    buffer d bytes mul(k, 8) align 64
    fill f32 (write d, 1.0)
    return ()
  }
}
)",
            Machine::defaults(), &options);
  ASSERT_NE(m.session, nullptr) << m.error.text;
  husk_session_stats stats = HUSK_SESSION_STATS_INIT;
  ASSERT_EQ(husk_session_stats_get(m.session, 0, &stats, &m.error), HUSK_OK);
  EXPECT_EQ(stats.bounded, 1u);
  Tensor p(HUSK_I64, {});
  *p.as<int64_t>() = 125;
  EXPECT_EQ(m.run({p.value()}, {}), HUSK_OK) << m.error.text;
  *p.as<int64_t>() = 200;  // 1600 bytes are below the limit, but the arena counts too
  EXPECT_EQ(m.run({p.value()}, {}), HUSK_LIMIT);
  expect_text(m.error, "would pass its memory_limit of 2000");
}

// Views of several sizes: the offset of the first one leaves the buffer, a copy has two extents, a
// number does not lie in the view that it is read from.
TEST(Binding, Views) {
  const auto expect = [](const char* steps, const char* text) {
    Machine m(std::string("function f { input n int\n output k int\n variant cpu {\n"
                          "buffer t bytes 64 align 64\nbuffer u bytes 64 align 64\n") +
              steps + "\nreturn (int n) } }");
    ASSERT_NE(m.session, nullptr) << m.error.text;
    EXPECT_EQ(m.run({integer(8)}, {integer(0)}), HUSK_OK) << m.error.text;
    EXPECT_EQ(m.run({integer(4)}, {integer(0)}), HUSK_INVALID_INPUT) << steps;
    expect_text(m.error, text);
  };
  expect("copy (write t[0, n], read u[0, 8])", "a copy between views of different extents");
  expect("copy (write t[0, 8], read t[n, 8])", "a copy between views that overlap, in buffer");
  expect("copy (write t[n, 8], read t[0, 8])", "a copy between views that overlap, in buffer");
  expect("read i64 (read t[0, n])", "a read of 8 bytes from a view of 4");
  expect("copy (write t[sub(512, mul(n, 64)), 0], read u[0, 0])",
         "a view covers bytes 256 + 0 of the 64");
}

// Memory that a step writes is no other input or output; inputs that are only read may be the same.
TEST(Binding, Overlaps) {
  Machine m(R"(
function f {
  input a tensor f32 [4]
  input b tensor f32 [4]
  input c tensor f32 [4]
  input n tensor i64 []
  output y tensor f32 rank 1
  output z tensor f32 rank 1
  variant cpu {
    buffer a of input bytes 16
    buffer b of input bytes 16
    buffer c of input bytes 16
    buffer n of input bytes 8
    buffer y of output bytes 16
    fill f32 (write c, 1.0)
    copy (write y, read a)
    read i64 (read n)
    let later = range(result(0), 1, 4)
    buffer z of output bytes mul(later, 4)
    copy (write z, read b[0, mul(later, 4)])
    return (tensor y f32 [4] [1], tensor z f32 [later] [1])
  }
}
)");
  ASSERT_NE(m.session, nullptr) << m.error.text;
  alignas(64) float memory[100] = {};
  int64_t later = 4;
  const auto run = [&](int a, int b, int c, int y, int z) -> std::string {
    Tensor ta(HUSK_F32, {4}, memory + a), tb(HUSK_F32, {4}, memory + b),
        tc(HUSK_F32, {4}, memory + c), ty(HUSK_F32, {4}, memory + y),
        tz(HUSK_F32, {later}, memory + z), n(HUSK_I64, {}, &later);
    const husk_status status = m.run({ta.value(), tb.value(), tc.value(), n.value()},
                                     {ty.value(), tz.value()});
    EXPECT_EQ(status, status == HUSK_OK ? HUSK_OK : HUSK_INVALID_INPUT);
    if (status == HUSK_OK) return "";
    const std::string text = m.error.text;
    EXPECT_NE(text.find(": give it memory of its own"), std::string::npos) << text;
    return text.substr(text.find(": ") + 2, text.rfind(": give") - text.find(": ") - 2);
  };
  EXPECT_EQ(run(0, 16, 32, 48, 64), "");
  EXPECT_EQ(run(0, 2, 32, 48, 64), "");  // a and b are only read
  EXPECT_EQ(run(0, 4, 8, 12, 16), "");   // side by side
  EXPECT_EQ(run(0, 16, 19, 48, 64), "input 'c' overlaps input 'b'");
  EXPECT_EQ(run(35, 16, 32, 48, 64), "input 'c' overlaps input 'a'");
  EXPECT_EQ(run(0, 16, 32, 29, 64), "output 'y' overlaps input 'c'");
  EXPECT_EQ(run(0, 16, 32, 1, 64), "output 'y' overlaps input 'a'");
  EXPECT_EQ(run(0, 16, 32, 48, 51), "output 'y' overlaps output 'z'");
  EXPECT_EQ(run(0, 16, 32, 48, 45), "output 'y' overlaps output 'z'");
  EXPECT_EQ(run(0, 16, 32, 48, 3), "output 'z' overlaps input 'a'");
  EXPECT_EQ(run(0, 16, 32, 48, 13), "output 'z' overlaps input 'b'");
  EXPECT_EQ(run(0, 16, 32, 48, 29), "input 'c' overlaps output 'z'");
  later = 1;  // the output ends before the next value begins
  EXPECT_EQ(run(0, 16, 32, 48, 31), "");
}

// A segment that does not run shapes its output too.
TEST(Binding, OutputsOfASegmentThatIsSkipped) {
  Machine m(R"(
function f {
  input p int 0..8
  input flag tensor i64 []
  output y tensor f32 rank 1
  output z tensor f32 rank 1
  variant cpu {
    buffer flag of input bytes 8
    read i64 (read flag)
    let chosen = lt(0, result(0))
    when chosen {
      let n = add(p, 1)
      buffer y of output bytes mul(n, 4)
      fill f32 (write y, 1.0)
    } else {
      let k = add(p, 2)
      buffer z of output bytes mul(k, 4)
      fill f32 (write z, 1.0)
    }
    return (tensor y f32 [n] [1], tensor z f32 [k] [1])
  }
}
)");
  ASSERT_NE(m.session, nullptr) << m.error.text;
  int64_t chosen = 1;
  Tensor flag(HUSK_I64, {}, &chosen);
  Tensor y(HUSK_F32, {3}), z(HUSK_F32, {4}), half(HUSK_F16, {4});
  ASSERT_EQ(m.run({integer(2), flag.value()}, {y.value(), z.value()}), HUSK_OK) << m.error.text;
  EXPECT_EQ(y.as<float>()[2], 1.0f);
  EXPECT_EQ(z.shape[0], 0);
  EXPECT_EQ(m.run({integer(2), flag.value()}, {y.value(), half.value()}), HUSK_INVALID_INPUT);
  expect_text(m.error, "output 'z' has dtype f16, must be f32");
}

// A loop shapes an output in each turn, each time in other memory of the session.
TEST(Binding, AnOutputThatALoopShapes) {
  Machine m(R"(
function f {
  input x tensor f32 [1000]
  input turns int 1..50
  output y tensor f32 rank 1
  output z tensor f32 rank 1
  variant cpu {
    buffer x of input bytes 4000
    buffer left bytes 8 align 64
    fill i64 (write left, turns)
    loop {
      read i64 (read left)
      let now = result(0)
      let n = mul(sub(turns, now), 20)
      buffer y of output bytes mul(n, 4)
      buffer z of output bytes mul(n, 4)
      copy (write y, read x[0, mul(n, 4)])
      copy (write z, read x[0, mul(n, 4)])
      while lt(0, now)
      fill i64 (write left, sub(now, 1))
    }
    return (tensor y f32 [n] [1], tensor z f32 [n] [1])
  }
}
)");
  ASSERT_NE(m.session, nullptr) << m.error.text;
  Tensor x(HUSK_F32, {1000});
  for (int i = 0; i < 1000; ++i) x.as<float>()[i] = static_cast<float>(i);
  for (const int64_t turns : {1, 7, 50, 3}) {
    ASSERT_EQ(m.run({x.value(), integer(turns)}, {none(), none()}), HUSK_OK) << m.error.text;
    for (int o = 0; o < 2; ++o) {
      const DLTensor* y = m.results[static_cast<size_t>(o)].as.tensor;
      ASSERT_EQ(y->shape[0], turns * 20);
      for (int i = 0; i < turns * 20; ++i)
        ASSERT_EQ(static_cast<const float*>(y->data)[i], static_cast<float>(i));
    }
  }
}

}  // namespace
}  // namespace husk::test
