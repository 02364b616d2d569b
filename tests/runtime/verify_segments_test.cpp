// The rules about segments, their results, and tensor lists of extern ops.
#include <functional>

#include "edited_artifact.h"

namespace husk::test {
namespace {

// Segment 1 is the head of the loop, 2 its condition, 3 its body, and 4 the end of the body, which
// goes back.
const char* const kLoops = R"(
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
    extern "test::op" (tensors [read tensor x f32 [4] [1], none], floats [1.5, 2.5],
                       tensors [write tensor y f32 [4] [1]], result int, result float)
    return (tensor y f32 [4] [1], int result(0), float fresult(1))
  }
}
)";

TEST(Verify, AcceptsLoopsListsAndResults) {
  EXPECT_EQ(verify_error(artifact(kLoops), HUSK_OK), "");
}

TEST(Verify, SegmentRules) {
  EditedArtifact unedited(kLoops);
  uint32_t loop = 0;  // the segment that goes back
  for (uint32_t s = 0; s < unedited.variant()->segments()->size(); ++s)
    if (unedited.segment(s).back != kNone) loop = s;
  ASSERT_GT(loop, 1u);
  struct Case {
    const char* text;
    std::function<void(EditedArtifact&)> edit;
  };
  const Case cases[] = {
      {"'when' is not an int register of an earlier segment",
       [&](auto& edited) { edited.segment(loop).when = 500; }},
      {"'when' is not an int register of an earlier segment",
       [&](auto& edited) { edited.segment(1).when = edited.segment(2).scalar_begin; }},
      {"'back' names a later segment, or the segment has no 'when'",
       [&](auto& edited) { edited.segment(loop).back = loop + 1; }},
      {"'back' names a later segment, or the segment has no 'when'",
       [&](auto& edited) { edited.segment(loop).when = kNone; }},
      {"loops of segments",
       [&](auto& edited) {
         edited.last_segment().when = edited.segment(loop).when;
         edited.last_segment().back = loop;
         edited.segment(loop).back = loop - 1;
       }},
      {"an unused field is set", [](auto& edited) { edited.step(0).row.aux = 1; }},
      {"an unused field is set",  // more arguments than the step has
       [](auto& edited) {
         Instruction& row = edited.last_step().row;
         row.aux = static_cast<uint16_t>(row.c + 1);
       }},
      {"some items belong to no list",
       [](auto& edited) { edited.last_step().argument(2).count = 0; }},
      {"list 2 does not begin after the items of the list before",
       [](auto& edited) { --edited.last_step().argument(2).index; }},
      {"has a kind that an op cannot take",
       [](auto& edited) {
         const auto extern_op = edited.last_step();
         extern_op.argument(extern_op.row.aux) = {
             uint8_t(ArgumentKind::dtype), 0, HUSK_F32, 0, 0, 0, 0};
       }},
      {"argument 1: its register does not exist, has another type, or is computed later",
       [](auto& edited) { edited.last_step().argument(1).count = 5000; }},
      {"argument 4: a result is i64 or f64",
       [](auto& edited) { edited.last_step().argument(4).type = HUSK_F32; }},
      {"it has a result, but there is no next segment to use it",
       [&](auto& edited) {  // moves the op to the last segment, which uses no result any more
         const uint32_t last = edited.variant()->segments()->size() - 1;
         edited.scalar(edited.find(Scalar::op_result, edited.segment(last).scalar_begin)) = {};
         edited.scalar(Scalar::op_fresult) = {1, 0, 0, 0, 0};
         --edited.segment(last - 1).step_end;
         --edited.segment(last).step_begin;
       }},
  };
  for (const Case& c : cases) {
    EditedArtifact edited(kLoops);
    c.edit(edited);
    const std::string text = edited.verify_error();
    EXPECT_NE(text.find(c.text), std::string::npos) << "is: " << text << "\nexpected: " << c.text;
  }
}

TEST(Verify, NoByteOfALoopCanCrashIt) {
  const std::vector<uint8_t> good = artifact(kLoops);
  uint32_t metadata;
  std::memcpy(&metadata, good.data() + 12, 4);
  for (uint32_t at = 0; at < metadata; ++at)
    for (uint8_t flip : {0x01, 0x02, 0x80, 0xFF}) {
      std::vector<uint8_t> file = good;
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
