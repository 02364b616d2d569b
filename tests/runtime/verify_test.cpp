// What is refused when a file is opened. Rules over rows are tried with rows that were bent after the compiler wrote them.
#include "verify.h"

#include "bent.h"

#include <array>
#include <cstring>
#include <functional>

namespace husk::test {
namespace {

const char* const kProgram = R"(
target gpu cuda "sm_90a"
constant w f32 [4] bytes "00000000000000000000000000000000"
state ticks i64 [] fill 0
function f {
  input x tensor f32 [1..16]
  input n int
  output y tensor f32 rank 1
  output k int
  variant cpu {
    let m = size(x, 0)
    check_eq(mod(m, 2), 0) "even"
    buffer x of input bytes mul(m, 4)
    buffer y of output bytes mul(m, 4)
    buffer t bytes mul(m, 4) align 64
    launch count grid (1, 1, 1) (both ticks) at "a"
    launch scale grid (1, 1, 1) (read x, write t, 2.0, m) at "b"
    launch add grid (1, 1, 1) (read t, read w, write y, min(m, 4)) at "c"
    read i64 (read ticks)
    return (tensor y f32 [m] [1], int add(result(0), n))
  }
}
)";

TEST(Verify, AcceptsWhatTheCompilerWrote) {
  const std::vector<uint8_t> file = artifact(kProgram);
  EXPECT_EQ(refusal(file, HUSK_OK), "");
}

TEST(Verify, HeaderRules) {
  const std::vector<uint8_t> good = artifact(kProgram);
  auto bent = [&](size_t at, uint8_t value) {
    std::vector<uint8_t> file = good;
    file[at] = value;
    return file;
  };
  EXPECT_NE(refusal(bent(0, 'X')).find("not a Husk artifact"), std::string::npos);
  EXPECT_NE(refusal(bent(8, 9), HUSK_UNSUPPORTED).find("format 9.2, this library reads 0.2: update libhusk"),
            std::string::npos);
  EXPECT_NE(refusal(bent(10, 200), HUSK_UNSUPPORTED).find("format 0.200"), std::string::npos);
  EXPECT_NE(refusal(bent(24, 4), HUSK_UNSUPPORTED).find("needs features 0x4"), std::string::npos);
  EXPECT_NE(refusal(bent(40, static_cast<uint8_t>(good[40] + 1))).find("does not match its hash"), std::string::npos);
  EXPECT_NE(refusal(bent(100, static_cast<uint8_t>(good[100] + 1))).find("does not match its hash"), std::string::npos);
  std::vector<uint8_t> file = good;
  file.resize(file.size() - 1);
  EXPECT_NE(refusal(file).find("the artifact is truncated: its header says"), std::string::npos);
  file.resize(file.size() + 2);
  EXPECT_NE(refusal(file).find("the artifact is too long"), std::string::npos);
  for (size_t size : {0u, 1u, 63u, 64u, 65u, 1000u}) {
    file.assign(good.begin(), good.begin() + static_cast<long>(size));
    refusal(file);
  }
  file = good;
  file[12] = file[13] = file[14] = file[15] = 0;  // metadata of no bytes
  write_hash(file);
  EXPECT_NE(refusal(file).find("not a well-formed FlatBuffer"), std::string::npos);
}

TEST(Verify, NoByteOfTheMetadataCanCrashIt) {
  const std::vector<uint8_t> good = artifact(kProgram);
  uint32_t metadata;
  std::memcpy(&metadata, good.data() + 12, 4);
  size_t refused = 0;
  for (uint32_t at = 0; at < metadata; ++at)
    for (uint8_t flip : {0x01, 0x80, 0xFF}) {
      std::vector<uint8_t> file = good;
      file[64 + at] ^= flip;
      write_hash(file);
      const Aligned bytes(file);
      husk_error error = {};
      const husk_status status = husk_program_verify(bytes.data(), file.size(), &error);
      if (status != HUSK_OK) {
        ++refused;
        EXPECT_GT(std::strlen(error.text), 10u);
      }
    }
  EXPECT_GT(refused, metadata);
}

TEST(Verify, AnOrderOfPlacementNamesEachBufferOnce) {
  Bent bent(R"(
target gpu cuda "sm_90a"
function f {
  variant cpu {
    buffer a bytes 16
    buffer b bytes 32
    buffer c bytes 64
    fill u8 (write a, 1)
    fill u8 (write b, 1)
    fill u8 (write c, 1)
    return ()
  }
}
)");
  ASSERT_EQ(bent.variant()->order()->size(), 3u);
  uint32_t* const order = const_cast<uint32_t*>(bent.variant()->order()->data());
  for (const auto& [a, b, c] : {std::array{0u, 1u, 2u}, {2u, 0u, 1u}}) {
    order[0] = a, order[1] = b, order[2] = c;
    write_hash(bent.file);
    EXPECT_EQ(refusal(bent.file, HUSK_OK), "");
  }
  for (uint32_t wrong : {0u, 3u, 0xFFFFFFFFu}) {
    order[1] = wrong, order[0] = 0, order[2] = 2;
    EXPECT_NE(bent.refused().find("the order is no permutation of the arena's buffers"), std::string::npos) << wrong;
  }
  uint32_t* const size = order - 1;   // a vector's length stands before it
  for (uint32_t wrong : {1u, 2u}) {
    *size = wrong;
    EXPECT_NE(bent.refused().find("the order is no permutation of the arena's buffers"), std::string::npos) << wrong;
  }
  *size = 0;   // the planner finds an order of its own
  write_hash(bent.file);
  EXPECT_EQ(refusal(bent.file, HUSK_OK), "");
}

TEST(Verify, RowRules) {
  struct Case {
    const char* text;
    std::function<void(Bent&)> bend;
  };
  const Case cases[] = {
      {"unknown code 95", [](Bent& b) { b.scalars()[0] = fb::Instruction(95, 0, 0, 0, 0); }},
      {"an unused field is set",
       [](Bent& b) { b.scalars()[0] = fb::Instruction(b.scalars()[0].op(), 1, b.scalars()[0].a(), b.scalars()[0].b(), 0); }},
      {"operand 0 is of another kind",
       [](Bent& b) {
         const uint32_t i = b.find_scalar(Scalar::op_mul);
         b.scalars()[i] = with_a(b.scalars()[i], i);  // itself
       }},
      {"operand 1 is of another kind",
       [](Bent& b) {
         const uint32_t i = b.find_scalar(Scalar::op_size);
         b.scalars()[i] = with_b(b.scalars()[i], 1);  // a dim that x does not have
       }},
      {"operand 0 is of another kind",
       [](Bent& b) {
         const uint32_t i = b.find_scalar(Scalar::op_size);
         b.scalars()[i] = with_a(b.scalars()[i], 1);  // n is no tensor
       }},
      {"operand 0 is of another kind",
       [](Bent& b) {
         const uint32_t i = b.find_scalar(Scalar::op_result);
         b.scalars()[i] = with_a(b.scalars()[i], 1);  // a read gives one value
       }},
      {"segments out of order",
       [](Bent& b) {
         fb::Segment& s = b.segments()[1];
         s = fb::Segment(s.scalar_begin() + 1, s.scalar_end(), s.step_begin(), s.step_end(), kNone, kNone);
       }},
      {"segments leave out ops or steps",
       [](Bent& b) {
         fb::Segment& s = b.segments()[1];
         s = fb::Segment(s.scalar_begin(), s.scalar_end() - 1, s.step_begin(), s.step_end(), kNone, kNone);
       }},
      {"bad space, alignment or size",
       [](Bent& b) { b.buffers()[0] = fb::Buffer(9, 0, 0, 0, 0, b.buffers()[0].size(), 0); }},
      {"only device 0 is supported",
       [](Bent& b) {
         const fb::Buffer& o = b.buffers()[0];
         b.buffers()[0] = fb::Buffer(o.space(), 1, o.align_log2(), 0, o.index(), o.size(), 0);
       }},
      {"in the arena, but names a value",
       [](Bent& b) {
         fb::Buffer& o = b.buffers()[b.find_buffer(Space::arena)];
         o = fb::Buffer(o.space(), 0, 0, 0, 0, o.size(), 0);
       }},
      {"no such value",
       [](Bent& b) {
         fb::Buffer& o = b.buffers()[b.find_buffer(Space::state)];
         o = fb::Buffer(o.space(), 0, 0, 0, 1, o.size(), 0);
       }},
      {"its value is no tensor",
       [](Bent& b) {
         fb::Buffer& o = b.buffers()[b.find_buffer(Space::input)];
         o = fb::Buffer(o.space(), 0, 0, 0, 1, o.size(), 0);
       }},
      {"bad buffer or registers",
       [](Bent& b) { b.views()[0] = fb::View(99, b.views()[0].offset(), b.views()[0].extent(), 0); }},
      {"bad view, dtype, rank or registers",
       [](Bent& b) { b.tensors()[0] = fb::Tensor(0, 0, HUSK_F32, 15, 0, 0); }},
      {"bad view, dtype, rank or registers",
       [](Bent& b) { b.tensors()[0] = fb::Tensor(0, 0, HUSK_POINTER, 1, 0, 0); }},
      {"step 1: arguments are none, or another step's",
       [](Bent& b) { b.steps()[1] = with_b(b.steps()[1], 0); }},
      {"step 0: unknown code 77",
       [](Bent& b) { b.steps()[0] = fb::Instruction(77, 0, b.steps()[0].a(), b.steps()[0].b(), b.steps()[0].c()); }},
      {"step 0: no such kernel", [](Bent& b) { b.steps()[0] = with_a(b.steps()[0], 1000); }},
      {"step 0: kernel 'add' takes 4 arguments", [](Bent& b) { b.steps()[0] = with_a(b.steps()[0], 0); }},
      {"step 2: argument 4 is nothing that it may use",  // the constant, written
       [](Bent& b) {
         fb::Argument& w = b.arguments()[b.steps()[2].b() + 4];
         w = with_access(w, HUSK_ACCESS_WRITE);
       }},
      {"step 0: argument 3 is nothing that it may use",
       [](Bent& b) {
         fb::Argument& w = b.arguments()[b.steps()[0].b() + 3];
         w = with_access(w, 0);
       }},
      {"step 1: argument 3 is nothing that it may use",
       [](Bent& b) {
         fb::Argument& x = b.arguments()[b.steps()[1].b() + 3];
         x = with_index(x, 500);
       }},
      {"argument 5 of kernel 'scale' has another type",
       [](Bent& b) {
         fb::Argument& f = b.arguments()[b.steps()[1].b() + 5];
         f = b.arguments()[b.steps()[1].b() + 6];
       }},
      {"step 3: a read takes a view to read, of a type",
       [](Bent& b) {
         fb::Argument& r = b.arguments()[b.steps()[3].b()];
         r = fb::Argument(r.kind(), r.access(), HUSK_C64, 0, r.index(), 0, 0);
       }},
      {"is not what output 'k' is", [](Bent& b) { b.results()[1] = fb::Argument(0, 0, 0, 0, 0, 0, 0); }},
      {"is not what output 'y' is", [](Bent& b) { b.results()[0] = with_index(b.results()[0], 9); }},
  };
  for (const Case& c : cases) {
    Bent bent(kProgram);
    c.bend(bent);
    const std::string text = bent.refused();
    EXPECT_NE(text.find(c.text), std::string::npos) << "said: " << text << "\nshould say: " << c.text;
  }
}

}  // namespace
}  // namespace husk::test
