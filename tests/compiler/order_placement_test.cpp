// The placement order that the compiler stores in a file, and the plans that sessions derive
// from it.
#include "passes/order_placement.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <stdexcept>

#include "../bench/families.h"
#include "program.h"
#include "read/artifact.h"
#include "read/bounded_plan.h"

namespace husk::test {
namespace {

using namespace husk::compiler;

// A program with buffers whose sizes grow with n and whose lives are `lives`. n is the size of an
// input and has a range.
std::string text_of(const bench::Lives& lives, const std::string& range) {
  std::vector<std::string> steps(lives.steps);
  std::string text = "hir 1\ntarget cpu host \"a\"\nfunction f { input x tensor u8 [" + range +
                     "]\nvariant cpu { let n = size(x, 0) buffer x of input bytes n\n";
  for (size_t i = 0; i < lives.blocks.size(); ++i) {
    const Block& block = lives.blocks[i];
    const std::string name = "b" + std::to_string(i);
    text += "buffer " + name + " bytes mul(n, " + std::to_string(block.size) + ") align 64\n";
    for (uint32_t s : std::set{block.first, block.last})
      steps[s] += "fill u8 (write " + name + "[0, 64], 1)\n";
  }
  for (const std::string& step : steps) text += step;
  return text + "return () } }";
}

class Placed {
 public:
  explicit Placed(const std::string& text) : bytes_(compiled(text)) {
    std::string error;
    artifact_ = Artifact::view(bytes_, error);
    if (!artifact_) throw std::runtime_error(error);
  }
  Code code() const {
    const fb::Function* f = artifact_->program().functions()->Get(0);
    return Code(&artifact_->program(), f, f->variants()->Get(0));
  }
  std::vector<uint32_t> order() const { return {code().order.begin(), code().order.end()}; }
  double ratio(const InputSizes& sizes = {}) const {
    const BoundedPlan bounded(code(), sizes);
    EXPECT_TRUE(bounded.is_planned);
    return static_cast<double>(bounded.planned[Device::target].peak) /
           static_cast<double>(bounded.planned[Device::target].lower_bound);
  }

 private:
  std::vector<uint8_t> bytes_;
  std::unique_ptr<Artifact> artifact_;
};

// The families of plans that tests/bench measures, at the bounds and at other shapes.
TEST(OrderPlacement, ASessionsPlanIsWithin5PercentOfTheLowerBound) {
  for (const bench::Family& family : bench::families()) {
    for (uint32_t buffers : {10u, 30u, 200u}) {
      SCOPED_TRACE(std::string(family.name) + ", " + std::to_string(buffers) + " buffers");
      const bench::Lives lives = family.make(buffers, buffers);
      for (const char* range : {"1..64", "1..inf"}) {
        const Placed placed(text_of(lives, range));
        std::vector<uint32_t> order = placed.order();
        std::sort(order.begin(), order.end());
        ASSERT_EQ(order.size(), lives.blocks.size()) << range;
        for (uint32_t i = 0; i < order.size(); ++i) EXPECT_EQ(order[i], i);
        for (int64_t n : {1, 7, 64})
          EXPECT_LE(placed.ratio({{"x.0", n}}), 1.05) << range << ", " << n;
      }
    }
  }
}

TEST(OrderPlacement, AnUnboundedRangeIsCappedAtATypicalSize) {
  // The larger buffer is placed at the bottom: b if n is kTypicalSize, a if n is 1.
  const std::string head = "hir 1\ntarget cpu host \"a\"\nfunction f { input x tensor u8 [";
  const std::string body =
      "]\nvariant cpu { let n = size(x, 0) buffer x of input bytes n\n"
      "buffer a bytes 4096 align 64 buffer b bytes mul(n, 64) align 64\n"
      "fill u8 (write a, 1) fill u8 (write b, 1) copy (write a[0, 1], read b[0, 1]) return () } }";
  EXPECT_EQ(Placed(head + "1..inf" + body).order(), (std::vector<uint32_t>{1, 0}));
  EXPECT_EQ(Placed(head + "1..1125899906842624" + body).order(), (std::vector<uint32_t>{1, 0}));
  EXPECT_EQ(Placed(head + "1..2" + body).order(), (std::vector<uint32_t>{0, 1}));
}

TEST(OrderPlacement, BuffersSizedByDataComeLast) {
  const Placed placed(
      "hir 1\ntarget cpu host \"a\"\nfunction f { input x tensor f32 [1..64]\nvariant cpu {\n"
      "buffer x of input bytes 256 buffer a bytes 8 align 64 fill u8 (write a, 1) read i64 (read "
      "a) let n = result(0)\n"
      "buffer b bytes max(n, 0) align 64 buffer c bytes 4096 align 64 fill u8 (write b, 1) fill u8 "
      "(write c, 1) return () } }");
  EXPECT_EQ(placed.order().back(), 1u);
}

// The sizes of buffers that depend on an int without a range are unknown, but their lives are
// known.
TEST(OrderPlacement, UnboundedBuffersHaveAnOrder) {
  const Placed placed(
      "hir 1\ntarget cpu host \"a\"\nfunction f { input n int\nvariant cpu {\n"
      "buffer a bytes max(n, 64) align 64 buffer b bytes max(n, 64) align 64 buffer c bytes "
      "1048577 align 64\n"
      "fill u8 (write a[0, 1], 1) fill u8 (write b[0, 1], 1) copy (write a[0, 1], read b[0, 1]) "
      "fill u8 (write c, 1)\n"
      "return () } }");
  EXPECT_EQ(placed.order(), (std::vector<uint32_t>{0, 2, 1}));
}

TEST(OrderPlacement, NoPlanNoOrder) {
  const Placed placed(
      "hir 1\ntarget cpu host \"a\"\nfunction f { variant cpu {\n"
      "buffer a bytes 4611686018427387904 buffer b bytes 4611686018427387904\n"
      "fill u8 (write a[0, 1], 1) fill u8 (write b[0, 1], 1) return () } }");
  EXPECT_TRUE(placed.order().empty());
}

}  // namespace
}  // namespace husk::test
