// The rules about segments, values that steps bring, and the lists of extern ops.
#include "bent.h"

#include <functional>

namespace husk::test {
namespace {

// Segments: 0; 1 the loop's head; 2 its condition; 3 its body; 4 the end of the body, which goes back; 5.
const char* const kLoop = R"(
function f {
  input x tensor f32 [4]
  output y tensor f32 rank 1
  output k int
  output q float
  variant cpu {
    buffer x of input bytes 16
    buffer y of output bytes 16
    buffer turns bytes 8 align 64
    fill i64 (write turns, 0)
    loop {
      read i64 (read turns)
      while lt(result(0), 3)
      launch count grid (1, 1, 1) (both turns)
    }
    launch scale grid (1, 1, 1) (read x, write y, 2.0, 4)
    extern "test::op" (tensors [read tensor x f32 [4] [1], none], floats [1.5, 2.5], tensors [write tensor y f32 [4] [1]], result int,
                       result float)
    return (tensor y f32 [4] [1], int result(0), float fresult(1))
  }
}
)";

fb::Segment segment(const fb::Segment& s, uint32_t when, uint32_t back) {
  return {s.scalar_begin(), s.scalar_end(), s.step_begin(), s.step_end(), when, back};
}

// The step that calls the op.
fb::Instruction& external(Bent& b) { return b.steps()[b.variant()->steps()->size() - 1]; }

TEST(Verify, AcceptsLoopsListsAndResults) {
  const Bent b(kLoop);
  EXPECT_EQ(refusal(b.file, HUSK_OK), "");
}

TEST(Verify, SegmentRules) {
  Bent whole(kLoop);
  uint32_t last = 0, loop = 0;  // the last segment; the one that goes back
  for (uint32_t s = 0; s < whole.variant()->segments()->size(); ++s) {
    last = s;
    if (whole.segments()[s].back() != kNone) loop = s;
  }
  ASSERT_GT(loop, 1u);
  struct Case {
    const char* text;
    std::function<void(Bent&)> bend;
  };
  const Case cases[] = {
      {"'when' is not known by then",
       [&](Bent& b) { b.segments()[loop] = segment(b.segments()[loop], 500, 1); }},
      {"'when' is not known by then",
       [&](Bent& b) { b.segments()[1] = segment(b.segments()[1], b.segments()[2].scalar_begin(), kNone); }},
      {"'back' is behind it or has no 'when'",
       [&](Bent& b) { b.segments()[loop] = segment(b.segments()[loop], b.segments()[loop].when(), loop + 1); }},
      {"'back' is behind it or has no 'when'",
       [&](Bent& b) { b.segments()[loop] = segment(b.segments()[loop], kNone, 1); }},
      {"loops of segments",
       [&](Bent& b) {
         b.segments()[last] = segment(b.segments()[last], b.segments()[loop].when(), loop);
         b.segments()[loop] = segment(b.segments()[loop], b.segments()[loop].when(), loop - 1);
       }},
      {"an unused field is set", [](Bent& b) { b.steps()[0] = fb::Instruction(b.steps()[0].op(), 1, 0, 0, 2); }},
      {"an unused field is set",
       [](Bent& b) {
         const fb::Instruction op = external(b);
         external(b) = fb::Instruction(op.op(), static_cast<uint16_t>(op.c() + 1), op.a(), op.b(), op.c());
       }},
      {"items in no list",
       [](Bent& b) {
         fb::Argument& list = b.arguments()[external(b).b() + 2];
         list = fb::Argument(list.kind(), 0, 0, 0, list.index(), 0, 0);
       }},
      {"list 2 has the items of another",
       [](Bent& b) {
         fb::Argument& list = b.arguments()[external(b).b() + 2];
         list = fb::Argument(list.kind(), 0, 0, 0, list.index() - 1, list.count(), 0);
       }},
      {"is of a kind that no op takes",
       [](Bent& b) {
         const fb::Instruction op = external(b);
         b.arguments()[op.b() + op.aux()] = fb::Argument(uint8_t(ArgumentKind::dtype), 0, HUSK_F32, 0, 0, 0, 0);
       }},
      {"argument 1 is nothing that it may use",
       [](Bent& b) {
         fb::Argument& floats = b.arguments()[external(b).b() + 1];
         floats = fb::Argument(floats.kind(), 0, 0, 0, floats.index(), 5000, 0);
       }},
      {"argument 4 is nothing that it may use",
       [](Bent& b) {
         fb::Argument& result = b.arguments()[external(b).b() + 4];
         result = fb::Argument(result.kind(), 0, HUSK_F32, 0, 0, 0, 0);
       }},
      {"its value goes nowhere, or is one too many",
       [&](Bent& b) {  // the op in the last segment, which takes no result now
         b.scalars()[b.find_scalar(Scalar::op_result, b.segments()[last].scalar_begin())] = fb::Instruction(0, 0, 0, 0, 0);
         b.scalars()[b.find_scalar(Scalar::op_fresult, 0)] = fb::Instruction(1, 0, 0, 0, 0);
         const fb::Segment s = b.segments()[last - 1];
         b.segments()[last - 1] = fb::Segment(s.scalar_begin(), s.scalar_end(), s.step_begin(), s.step_end() - 1, s.when(), s.back());
         const fb::Segment t = b.segments()[last];
         b.segments()[last] = fb::Segment(t.scalar_begin(), t.scalar_end(), t.step_begin() - 1, t.step_end(), t.when(), t.back());
       }},
  };
  for (const Case& c : cases) {
    Bent bent(kLoop);
    c.bend(bent);
    const std::string text = bent.refused();
    EXPECT_NE(text.find(c.text), std::string::npos) << "said: " << text << "\nshould say: " << c.text;
  }
}

TEST(Verify, NoByteOfALoopCanCrashIt) {
  const Bent good(kLoop);
  uint32_t metadata;
  std::memcpy(&metadata, good.file.data() + 12, 4);
  for (uint32_t at = 0; at < metadata; ++at)
    for (uint8_t flip : {0x01, 0x02, 0x80, 0xFF}) {
      std::vector<uint8_t> file = good.file;
      file[64 + at] ^= flip;
      write_hash(file);
      const Aligned bytes(file);
      husk_error error = {};
      if (husk_program_verify(bytes.data(), file.size(), &error) == HUSK_OK) continue;
      EXPECT_GT(std::strlen(error.text), 10u);
    }
}

}  // namespace
}  // namespace husk::test
