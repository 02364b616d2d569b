// The rules about tables: targets, images, kernels, constants, states, values, functions. Each case
// breaks one rule, and no other rule refuses it for the same reason.

#include <random>

#include "edited_artifact.h"
#include "large_program.h"

namespace husk::test {
namespace {

using fb::Constant, fb::Image, fb::Kernel, fb::State, fb::Value, fb::Variant;
using flatbuffers::uoffset_t;

// Target 1, images 1 and 2 and the last kernel are of another device.
std::string tables() {
  return R"(
target gpu cuda "sm_90a"
image text gpu ptx ")" HUSK_SOURCE R"(/tests/runtime/device.ptx"
kernel wide text "wide" (ptr, i32) block 32 4 2 cluster 2 pdl_wait_first
constant one f32 [2] bytes "0000803f0000803f"
constant two f32 [2] bytes "0000004000000040"
state set f32 [2] constant two
state sum i64 [] fill 3
function f {
  input x tensor f32 [1..16, 1..4]
  input n int 2..9
  input t float
  output y tensor f32 rank 2
  output k int
  variant cpu {
    buffer y of output bytes 8
    fill f32 (write y, 1.0)
    return (tensor y f32 [1, 2] [2, 1], int n)
  }
  variant gpu {
    buffer y of output bytes 8
    launch wide grid (1, 1, 1) (write y, 1)
    return (tensor y f32 [1, 2] [2, 1], int n)
  }
}
function g {
  variant cpu { return () }
  variant gpu { return () }
}
)";
}

const Image* image(EditedArtifact& edited, uint32_t i) {
  return edited.program()->images()->Get(i);
}
const Kernel* last_kernel(EditedArtifact& edited) {
  return edited.program()->kernels()->Get(edited.program()->kernels()->size() - 1);
}
const Constant* constant(EditedArtifact& edited, uint32_t i) {
  return edited.program()->constants()->Get(i);
}
const State* state(EditedArtifact& edited, uint32_t i) {
  return edited.program()->states()->Get(i);
}
const Value* input(EditedArtifact& edited, uint32_t i) {
  return edited.function()->inputs()->Get(i);
}
const Value* output(EditedArtifact& edited, uint32_t i) {
  return edited.function()->outputs()->Get(i);
}

TEST(VerifyTables, AcceptsWhatTheCompilerWrote) {
  EXPECT_EQ(verify_error(artifact(tables()), HUSK_OK), "");
}

TEST(VerifyTables, Targets) {
  expect_refused(tables(), {{"target 1 has no port or architecture",
                             [](auto& e) { e.rename(e.program()->targets()->Get(1)->port(), ""); }},
                            {"target 1 has no port or architecture", [](auto& e) {
                               e.rename(e.program()->targets()->Get(1)->arch(), "");
                             }}});
}

TEST(VerifyTables, Images) {
  const auto format = [](auto& e, uint8_t value) {
    e.template field<uint8_t>(image(e, 1), Image::VT_FORMAT) = value;
  };
  const auto blob = [](auto& e) -> BlobRow& { return e.blob(image(e, 1)->blob()); };
  const char* const outside = "image 'text' lies outside the file, or not at a multiple of 64";
  const char* const unterminated = "image 'text' is PTX without a terminating NUL";
  expect_refused(tables(),
                 {{"image 'text': unknown target or format",
                   [](auto& e) { e.template field<uint32_t>(image(e, 1), Image::VT_TARGET) = 2; }},
                  {"image 'text': unknown target or format", [&](auto& e) { format(e, 0); }},
                  {"image 'text': unknown target or format", [&](auto& e) { format(e, 4); }},
                  {outside, [&](auto& e) { ++blob(e).offset; }},
                  {outside, [&](auto& e) { blob(e).size = e.file.size(); }},
                  {outside,  // the sum leaves 64 bits
                   [&](auto& e) { blob(e) = {uint64_t(0) - 64, 65, {}}; }},
                  {unterminated, [&](auto& e) { --blob(e).size; }},
                  // The byte before the image is 0.
                  {unterminated, [&](auto& e) { blob(e).size = 0; }}});
}

TEST(VerifyTables, Kernels) {
  const auto block = [](auto& e, std::array<uint32_t, 3> sizes) {
    e.template edit<std::array<uint32_t, 3>>(last_kernel(e)->block()->data()) = sizes;
  };
  const char* const no_block = "kernel 'wide': its block is not of 1..1024 threads";
  const char* const flag = "kernel 'wide': unknown flag, or a cluster outside 1..16";
  expect_refused(
      tables(),
      {{"kernel 'wide': its image does not exist",
        [](auto& e) { e.template field<uint32_t>(last_kernel(e), Kernel::VT_IMAGE) = 2; }},
       {no_block, [](auto& e) { e.length(last_kernel(e)->block()) = 2; }},
       {no_block, [&](auto& e) { block(e, {32, 0, 1}); }},
       {no_block, [&](auto& e) { block(e, {1u << 31, 1u << 31, 4}); }},  // 2^64 threads
       {no_block, [&](auto& e) { block(e, {1024, 2, 1}); }},
       {flag, [](auto& e) { e.template field<uint32_t>(last_kernel(e), Kernel::VT_FLAGS) = 16; }},
       {flag, [](auto& e) { e.template field<uint32_t>(last_kernel(e), Kernel::VT_FLAGS) = 9; }},
       {flag, [](auto& e) { e.template field<uint32_t>(last_kernel(e), Kernel::VT_CLUSTER) = 0; }},
       {flag, [](auto& e) { e.template field<uint32_t>(last_kernel(e), Kernel::VT_CLUSTER) = 17; }},
       {"kernel 'wide': unknown type of parameter 1",
        [](auto& e) { e.template edit<uint8_t>(last_kernel(e)->params()->Data() + 1) = 200; }}});
}

TEST(VerifyTables, World) {
  const std::string program = "world 3 rank 2 set \"" + std::string(64, 'a') + "\"\n" + tables();
  EXPECT_EQ(verify_error(artifact(program), HUSK_OK), "");
  using fb::World;
  expect_refused(
      program,
      {{"it is for rank 2 of 2 ranks, which does not exist",
        [](auto& e) { e.template field<uint32_t>(e.program()->world(), World::VT_SIZE) = 2; }},
       {"it is for rank 2 of 65537 ranks, which does not exist",
        [](auto& e) { e.template field<uint32_t>(e.program()->world(), World::VT_SIZE) = 65537; }},
       {"it is for rank 3 of 3 ranks, which does not exist",
        [](auto& e) { e.template field<uint32_t>(e.program()->world(), World::VT_RANK) = 3; }}});
}

TEST(VerifyTables, Constants) {
  const char* const size = "constant 'two': its size is not that of its dtype and dims";
  const char* const outside = "constant 'two' lies outside the file, or not at a multiple of 4096";
  expect_refused(
      tables(),
      {// The constant before this one has the same size.
       {size, [](auto& e) { e.template field<uint8_t>(constant(e, 1), Constant::VT_DTYPE) = 200; }},
       {size,
        [](auto& e) {
          e.template field<uint8_t>(constant(e, 1), Constant::VT_DTYPE) = HUSK_POINTER;
        }},
       {size, [](auto& e) { e.template edit<int64_t>(constant(e, 1)->dims()->Data()) = 3; }},
       {size, [](auto& e) { e.template edit<int64_t>(constant(e, 1)->dims()->Data()) = -2; }},
       // 2^62 + 2 elements of 4 bytes
       {size,
        [](auto& e) {
          e.template edit<int64_t>(constant(e, 1)->dims()->Data()) = (int64_t{1} << 62) + 2;
        }},
       {outside, [](auto& e) { ++e.blob(constant(e, 1)->blob()).offset; }},
       {outside, [](auto& e) { e.blob(constant(e, 1)->blob()).offset += 4096; }},
       {"constant 0 has no name", [](auto& e) { e.rename(constant(e, 0)->name(), ""); }},
       {"two constants are named 'two'",
        [](auto& e) { e.rename(constant(e, 0)->name(), "two"); }}});
}

TEST(VerifyTables, States) {
  const char* const other = "state 'set': its constant does not exist or has another size";
  expect_refused(
      tables(),
      {{"state 'set': unknown dtype or invalid dims",
        [](auto& e) { e.template edit<int64_t>(state(e, 0)->dims()->Data()) = -1; }},
       {other, [](auto& e) { e.template field<uint32_t>(state(e, 0), State::VT_INIT) = 2; }},
       {other, [](auto& e) { e.template edit<int64_t>(state(e, 0)->dims()->Data()) = 1; }},
       {"state 'sum': an element of more than 8 bytes is filled with 0 only",
        [](auto& e) { e.template field<uint8_t>(state(e, 1), State::VT_DTYPE) = HUSK_C128; }},
       {"two states are named 'sum'", [](auto& e) { e.rename(state(e, 0)->name(), "sum"); }}});
}

TEST(VerifyTables, Values) {
  const auto kind = [](auto& e, const Value* value) -> uint8_t& {
    return e.template field<uint8_t>(value, Value::VT_KIND);
  };
  const auto dtype = [](auto& e, const Value* value) -> uint8_t& {
    return e.template field<uint8_t>(value, Value::VT_DTYPE);
  };
  const auto rank = [](auto& e, const Value* value) -> uint8_t& {
    return e.template field<uint8_t>(value, Value::VT_RANK);
  };
  const auto range = [](auto& e, const Value* value) -> Range& {
    return e.template edit<Range>(value->dims()->Data());
  };
  const char* const wrong[] = {
      "function 'f': invalid kind, dtype, rank or range of 'x'",
      "function 'f': invalid kind, dtype, rank or range of 'n'",
      "function 'f': invalid kind, dtype, rank or range of 't'",
      "function 'f': invalid kind, dtype, rank or range of 'y'",
  };
  expect_refused(
      tables(),
      {{wrong[2], [&](auto& e) { kind(e, input(e, 2)) = HUSK_VALUE_BOOL + 1; }},
       {wrong[3], [&](auto& e) { rank(e, output(e, 0)) = 17; }},
       {wrong[0], [&](auto& e) { dtype(e, input(e, 0)) = 200; }},
       {wrong[0], [&](auto& e) { dtype(e, input(e, 0)) = HUSK_POINTER; }},
       {wrong[0], [&](auto& e) { rank(e, input(e, 0)) = 1; }},
       {wrong[3],
        [&](auto& e) {
          kind(e, output(e, 0)) = HUSK_VALUE_INT;
          dtype(e, output(e, 0)) = 0;
        }},
       {wrong[3],
        [&](auto& e) {
          kind(e, output(e, 0)) = HUSK_VALUE_INT;
          rank(e, output(e, 0)) = 0;
        }},
       {wrong[1], [&](auto& e) { kind(e, input(e, 1)) = HUSK_VALUE_FLOAT; }},
       {wrong[0], [&](auto& e) { range(e, input(e, 0)) = {5, 4}; }},
       {wrong[0], [&](auto& e) { range(e, input(e, 0)) = {-1, 4}; }},
       {wrong[1], [&](auto& e) { range(e, input(e, 1)) = {9, 2}; }},
       {"two inputs are named 'n'", [](auto& e) { e.rename(input(e, 0)->name(), "n"); }},
       {"two outputs are named 'k'", [](auto& e) { e.rename(output(e, 0)->name(), "k"); }}});
}

TEST(VerifyTables, Functions) {
  const auto targets = [](auto& e, uint32_t variant) -> uint32_t& {
    return e.template field<uint32_t>(e.function(1)->variants()->Get(variant), Variant::VT_TARGET);
  };
  expect_refused(
      tables(),
      {{"the artifact has no function", [](auto& e) { e.length(e.program()->functions()) = 0; }},
       {"two functions are named 'g'", [](auto& e) { e.rename(e.function(0)->name(), "g"); }},
       {"function 'g': 0 variants for 2 targets",
        [](auto& e) { e.length(e.function(1)->variants()) = 0; }},
       {"function 'g': variant 1 names no target, or that of another variant",
        [&](auto& e) { targets(e, 1) = 2; }},
       {"function 'g': variant 1 names no target, or that of another variant",
        [&](auto& e) { targets(e, 1) = 0; }}});
  expect_refused(R"(
target gpu cuda "sm_90a"
function g {
  variant cpu { return () }
  variant gpu { return () }
}
)",
                 {{"function 'g': 2 variants for 1 targets",
                   [](auto& e) { e.length(e.program()->targets()) = 1; }}});
}

// FlatBuffers' verifier does not look at the alignment of 8-byte elements. The length of the moved
// vector is the low half of the first element.
TEST(VerifyTables, RowsAreAligned) {
  const auto move = [](auto& e, const auto* table, flatbuffers::voffset_t slot) {
    e.template field<uoffset_t>(table, slot) += 4;
  };
  const char* const malformed = "the metadata is not a well-formed FlatBuffer";
  expect_refused(
      tables(), {{malformed, [&](auto& e) { move(e, constant(e, 1), Constant::VT_DIMS); }},
                 {malformed, [&](auto& e) { move(e, state(e, 0), State::VT_DIMS); }},
                 {malformed, [&](auto& e) { move(e, input(e, 0), Value::VT_DIMS); }},
                 {malformed, [&](auto& e) {  // the inputs become the outputs, and the outputs the
                                             // inputs
                    move(e, input(e, 0), Value::VT_DIMS);
                    auto& in = e.template field<uoffset_t>(e.function(), fb::Function::VT_INPUTS);
                    auto& out = e.template field<uoffset_t>(e.function(), fb::Function::VT_OUTPUTS);
                    const auto apart = static_cast<uoffset_t>(reinterpret_cast<uint8_t*>(&out) -
                                                              reinterpret_cast<uint8_t*>(&in));
                    std::swap(in, out);
                    in += apart;
                    out -= apart;
                  }}});
}

// Random images and constants, compared pair by pair: they are apart, or one and the same.
TEST(VerifyTables, BlobsDoNotOverlap) {
  std::mt19937 random(7);
  int accepted = 0, refused = 0;
  for (int round = 0; round < 3000; ++round) {
    LargeFile file;
    auto& b = file.builder;
    std::vector<BlobRow> blobs;
    const uint32_t n = 1 + random() % 5;
    for (uint32_t i = 0; i < n; ++i) {
      const bool image = random() % 2;
      BlobRow row = {(image ? 64 : 4096) * (random() % (image ? 400 : 6)), random() % 3 * 4096, {}};
      if (image) row.size = random() % 3 * 100;
      row.hash[31] = random() % 8 == 0;
      if (!blobs.empty() && random() % 3 == 0) row = blobs[random() % blobs.size()];
      if (random() % 20 == 0) ++row.size;
      blobs.push_back(row);
      fb::Blob blob;
      static_assert(sizeof(blob) == sizeof(row));
      std::memcpy(static_cast<void*>(&blob), &row, sizeof(row));
      const std::string name = "b" + std::to_string(i);
      const std::vector<int64_t> dims = {static_cast<int64_t>(row.size)};
      if (image || row.offset % 4096)
        file.images.push_back(fb::CreateImageDirect(b, 0, HUSK_IMAGE_ELF, &blob, name.c_str()));
      else
        file.constants.push_back(fb::CreateConstantDirect(b, name.c_str(), HUSK_U8, &dims, &blob));
    }
    LargeVariant v;
    v.segment();
    file.function("f", {file.variant(v)});
    bool good = true;
    for (const BlobRow& x : blobs)
      for (const BlobRow& y : blobs)
        good = good && (!x.size || !y.size || x.offset + x.size <= y.offset ||
                        y.offset + y.size <= x.offset || std::memcmp(&x, &y, sizeof(x)) == 0);
    const std::string error = verify_error(file.finish(65536), good ? HUSK_OK : HUSK_INVALID_FILE);
    if (!good) {
      EXPECT_NE(error.find("different images or constants overlap at byte "), std::string::npos)
          << error;
    }
    ++(good ? accepted : refused);
  }
  EXPECT_GT(accepted, 500);
  EXPECT_GT(refused, 500);
}

}  // namespace
}  // namespace husk::test
