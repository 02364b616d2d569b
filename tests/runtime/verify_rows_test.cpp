// The rules about the rows of a variant. Each case breaks one rule, and no other rule refuses it
// for the same reason.

#include "edited_artifact.h"

namespace husk::test {
namespace {

constexpr uint8_t kRead = HUSK_ACCESS_READ, kWrite = HUSK_ACCESS_WRITE, kBoth = kRead | kWrite;

// Two segments; the second one begins after the read. Step 0 is a copy, 1 a fill with an int, 2 a
// fill with a float, 3 an op, 4 a launch, 5 the read, 6 a fill.
const char* const kRows = R"(
target gpu cuda "sm_90a"
image device gpu ptx "PTX"
kernel elsewhere device "k" (ptr, ptr, f32, i32)
function f {
  input x tensor f32 [1..16]
  input z tensor f32 [1..16]
  input n int 0..64
  input t float
  output y tensor f32 rank 1
  output w tensor f32 rank 1
  output k int
  output q float
  output nothing none
  variant cpu {
    let m = size(x, 0)
    check(n) "n is not 0"
    let u = fadd(t, 1.5)
    buffer x of input bytes mul(m, 4)
    buffer z of input bytes mul(m, 4)
    buffer y of output bytes mul(m, 4)
    buffer w of output bytes mul(m, 4)
    buffer a bytes mul(m, 4) align 64
    copy (write y, read x) at "a.py:1"
    fill i64 (write a[0, 8], n)
    fill f32 (write w, u)
    extern "test::op" (read tensor a f32 [m] [1], write tensor w f32 [m] [1],
                       [n, n, n, n, n, n, n, n, n, n, n, n, n, n, n, n, n, n,
                        n, n, n, n, n, n, n, n, n, n, n, n, n, n, n, n, n, n],
                       floats [u], n, u, "text", dtype f32, none)
    launch scale grid (1, 1, 1) (read x, write a, u, m)
    read i64 (read a[0, 8])
    let late = add(result(0), 1)
    fill i64 (write a[8, mul(late, 8)], 1)
    return (tensor y f32 [m] [1], tensor w f32 [m] [1], int late, float u, none)
  }
}
)";

std::string rows() {
  std::string text = kRows;
  return text.replace(text.find("PTX"), 3, HUSK_SOURCE "/tests/runtime/device.ptx");
}

// Registers: an int and a float of the first segment, and an int of the second.
uint32_t int_register(EditedArtifact& e) { return e.find(Scalar::op_size); }
uint32_t float_register(EditedArtifact& e) { return e.find(Scalar::op_fadd); }
uint32_t late_register(EditedArtifact& e) { return e.find(Scalar::op_add); }

template <class T>
T& element(EditedArtifact& e, const flatbuffers::Vector<T>* vector, uint32_t i) {
  return e.edit<T>(vector->Data() + i * sizeof(T));
}
uint32_t& operand(EditedArtifact& e, uint32_t i) { return element(e, e.variant()->operands(), i); }

// The view and the tensor that an argument of a step names.
View& view_of(EditedArtifact& e, uint32_t step, uint32_t argument) {
  return e.view(e.step(step).argument(argument).index);
}
TensorRow& tensor_of(EditedArtifact& e, uint32_t step, uint32_t argument) {
  return e.tensor(e.step(step).argument(argument).index);
}

TEST(VerifyRows, AcceptsWhatTheCompilerWrote) {
  EXPECT_EQ(verify_error(artifact(rows()), HUSK_OK), "");
}

TEST(VerifyRows, Segments) {
  const char* const order = "the segments are out of order";
  const char* const all = "the segments do not cover all ops and steps";
  expect_refused(rows(),
                 {{order, [](auto& e) { ++e.segment(1).scalar_begin; }},
                  {order, [](auto& e) { --e.segment(1).step_begin; }},
                  {order, [](auto& e) { e.segment(1).scalar_end = e.segment(1).scalar_begin - 1; }},
                  {order, [](auto& e) { e.segment(1).step_end = e.segment(1).step_begin - 1; }},
                  {all, [](auto& e) { --e.segment(1).scalar_end; }},
                  {all, [](auto& e) { --e.segment(1).step_end; }}});
  expect_refused("function f { variant cpu { return () } }",
                 {{all, [](auto& e) { e.length(e.variant()->segments()) = 0; }}});
}

TEST(VerifyRows, Scalars) {
  const char* const unused = "an unused field is set";
  const char* const first = "operand 0 is not of the kind that the op takes";
  const char* const second = "operand 1 is not of the kind that the op takes";
  const char* const third = "operand 2 is not of the kind that the op takes";
  expect_refused(
      rows(),
      {{unused, [](auto& e) { e.scalar(Scalar::op_mul).aux = 1; }},
       {unused, [](auto& e) { e.scalar(Scalar::op_const).a = 1; }},
       {third, [](auto& e) { e.scalar(Scalar::op_mul).c = 1; }},
       {first, [](auto& e) { e.scalar(Scalar::op_add).a = float_register(e); }},
       {second, [](auto& e) { e.scalar(Scalar::op_fadd).b = int_register(e); }},
       {second, [](auto& e) { e.scalar(Scalar::op_check).b = 1000; }},
       {second, [](auto& e) { e.scalar(Scalar::op_size).b = 1; }},
       {first, [](auto& e) { e.scalar(Scalar::op_input).a = 0; }},
       {first, [](auto& e) { e.scalar(Scalar::op_input).a = 9; }},
       {first, [](auto& e) { e.scalar(Scalar::op_finput).a = 2; }},
       {first,  // a result in the first segment
        [](auto& e) { e.scalar(Scalar::op_size) = {uint16_t(Scalar::op_result), 0, 0, 0, 0}; }},
       {first,  // the result is an int
        [](auto& e) {
          e.scalar(Scalar::op_add) = {};  // uses no result any more
          e.scalar(Scalar::op_result).op = uint16_t(Scalar::op_fresult);
        }},
       {first, [](auto& e) { e.scalar(Scalar::op_result).a = 1; }}});
}

TEST(VerifyRows, Buffers) {
  const char* const invalid =
      "buffer 0: unknown space, alignment over 4096, a reserved field is set, or its size is not "
      "an int register";
  expect_refused(
      rows(), {{invalid, [](auto& e) { e.buffer(0).align_log2 = 13; }},
               {invalid, [](auto& e) { e.buffer(0).size = float_register(e); }},
               {invalid, [](auto& e) { e.buffer(0).size = 1000; }},
               {"buffer 1: its value has a buffer already", [](auto& e) { e.buffer(1).index = 0; }},
               {"buffer 0: its value is not a tensor", [](auto& e) { e.buffer(0).index = 2; }},
               {"buffer 2: its value is not a tensor", [](auto& e) { e.buffer(2).index = 2; }}});
}

// A program of a device with a host beside it. Step 0 is a copy to the host, 1 an op there, 2 a
// copy back, 3 a launch, 4 a fill, 5 an op of the device, 6 a read of the host's memory.
std::string on_host() {
  std::string text = R"(
target gpu cuda "sm_90a"
image device gpu ptx "PTX"
kernel elsewhere device "k" (ptr, ptr, f32, i32)
state s f32 [1] fill 0
function f {
  input x tensor f32 [1..16]
  output k int
  variant gpu {
    let m = size(x, 0)
    buffer x of input bytes mul(m, 4)
    buffer d bytes mul(m, 4) align 64
    buffer h bytes mul(m, 4) align 64 on host
    buffer g bytes mul(m, 4) align 64 on host
    copy (write h, read x)
    extern "test::op" (tensors [none, read tensor h f32 [m] [1]], write tensor g f32 [m] [1])
    copy (write d, read g)
    launch elsewhere grid (1, 1, 1) (read x, write d, 1.0, m)
    fill f32 (write d, 0.0)
    extern "test::op" (read tensor x f32 [m] [1], both tensor d f32 [m] [1])
    read i32 (read g[0, 4])
    copy (write d[0, 4], read s)
    return (int result(0))
  }
}
)";
  return text.replace(text.find("PTX"), 3, HUSK_SOURCE "/tests/runtime/device.ptx");
}

TEST(VerifyRows, Devices) {
  const char* const mixed = "some tensors of the op lie on the host, some on the device";
  const char* const reach = "lies on the host, where only copies, reads and ops reach it";
  EXPECT_EQ(verify_error(artifact(on_host()), HUSK_OK), "");
  expect_refused(
      on_host(),
      {{"buffer 1: unknown device", [](auto& e) { e.buffer(1).device = 2; }},
       {"buffer 4: constants and states lie on the device",
        [](auto& e) { e.buffer(4).device = 1; }},
       {mixed, [](auto& e) { e.buffer(2).device = 0; }},  // the item of a list
       {"step 1: argument 3: some tensors", [](auto& e) { e.buffer(3).device = 0; }},
       {mixed, [](auto& e) { tensor_of(e, 5, 0).view = tensor_of(e, 1, 1).view; }},
       {"step 3: argument 4: lies on the host", [](auto& e) { e.buffer(1).device = 1; }},
       {reach, [](auto& e) { e.step(4).argument(0).index = e.step(0).argument(0).index; }}});
  expect_refused(rows(), {{"buffer 4: a host target has no host beside its device",
                           [](auto& e) { e.buffer(4).device = 1; }}});
}

TEST(VerifyRows, ViewsAndTensors) {
  const char* const view =
      "view 0: its buffer does not exist, a reserved field is set, or its offset or extent is not "
      "an int register";
  const char* const tensor = "tensor 0: invalid view, dtype, rank, sizes, strides or reserved";
  expect_refused(rows(),
                 {{view, [](auto& e) { e.view(0).offset = float_register(e); }},
                  {view, [](auto& e) { e.view(0).extent = float_register(e); }},
                  {tensor, [](auto& e) { e.tensor(0).view = 1000; }},
                  {tensor, [](auto& e) { e.tensor(0).dtype = 200; }},
                  {tensor, [](auto& e) { e.tensor(0).first = 1000; }},
                  {tensor, [](auto& e) { operand(e, e.tensor(0).first) = float_register(e); }},
                  {tensor, [](auto& e) {  // the operands exist: a list of an op has enough ints
                     tensor_of(e, 3, 0).first = e.step(3).argument(2).index;
                     tensor_of(e, 3, 0).rank = 17;
                   }}});
}

TEST(VerifyRows, Texts) {
  const auto lose = [](auto& e, const auto* vector) { e.length(vector) = 1; };
  const auto bend = [](auto& e, const auto* vector) { element(e, vector, 0) = 1000; };
  expect_refused(
      rows(),
      {{"1 origins for 7 steps", [&](auto& e) { lose(e, e.variant()->origins()); }},
       {"an origin is not an index of a string", [&](auto& e) { bend(e, e.variant()->origins()); }},
       {"1 names for 5 buffers", [&](auto& e) { lose(e, e.variant()->names()); }},
       {"a buffer's name is not an index of a string",
        [&](auto& e) { bend(e, e.variant()->names()); }}});
}

// Rows that a step uses are computed before it.
TEST(VerifyRows, RegistersOfAStep) {
  const char* const copy =
      "step 0: argument 0: its register does not exist, has another type, or is computed later";
  const char* const first =
      "step 3: argument 0: its register does not exist, has another type, or is computed later";
  const char* const ints =
      "step 3: argument 2: its register does not exist, has another type, or is computed later";
  const char* const floats =
      "step 3: argument 3: its register does not exist, has another type, or is computed later";
  const char* const number =
      "step 3: argument 4: its register does not exist, has another type, or is computed later";
  const char* const real =
      "step 3: argument 5: its register does not exist, has another type, or is computed later";
  expect_refused(
      rows(), {{copy, [](auto& e) { view_of(e, 0, 0).offset = late_register(e); }},
               {copy, [](auto& e) { view_of(e, 0, 0).extent = late_register(e); }},
               {copy, [](auto& e) { e.buffer(view_of(e, 0, 0).buffer).size = late_register(e); }},
               {first, [](auto& e) { operand(e, tensor_of(e, 3, 0).first) = late_register(e); }},
               {first, [](auto& e) { e.view(tensor_of(e, 3, 0).view).extent = late_register(e); }},
               {ints, [](auto& e) { operand(e, e.step(3).argument(2).index) = float_register(e); }},
               {ints, [](auto& e) { e.step(3).argument(2).index = 0xFFFFFFFF; }},
               {floats, [](auto& e) { operand(e, e.step(3).argument(3).index) = int_register(e); }},
               {number, [](auto& e) { e.step(3).argument(4).index = late_register(e); }},
               {real, [](auto& e) { e.step(3).argument(5).index = int_register(e); }}});
}

TEST(VerifyRows, Arguments) {
  const auto kind = [](auto& e, uint32_t argument, ArgumentKind value) {
    e.step(3).argument(argument).kind = uint8_t(value);
  };
  const char* const access = "step 0: argument 0: access not allowed for this parameter";
  const char* const no_argument = "step 3: argument 4 has a kind that an op cannot take";
  expect_refused(
      rows(),
      {{access, [](auto& e) { e.step(0).argument(0).access = 0; }},
       {access, [](auto& e) { e.step(0).argument(0).access = 8 | kWrite; }},
       {access, [](auto& e) { e.step(0).argument(0).access = 4; }},
       {"step 0: argument 0: its view does not exist",
        [](auto& e) { e.step(0).argument(0).index = 1000; }},
       {"step 3: argument 0: its tensor does not exist",
        [](auto& e) { e.step(3).argument(0).index = 1000; }},
       {"step 3: argument 6: its string does not exist",
        [](auto& e) { e.step(3).argument(6).index = 1000; }},
       {"step 3: argument 7: unknown dtype", [](auto& e) { e.step(3).argument(7).type = 200; }},
       {"step 3: its op does not exist", [](auto& e) { e.step(3).row.a = 1; }},
       {no_argument,
        [&](auto& e) {
          e.step(3).argument(4) = e.step(0).argument(0);
          kind(e, 4, ArgumentKind::view);
        }},
       {no_argument, [&](auto& e) { e.step(3).argument(4) = {8, 0, 0, 0, 0, 0, 0}; }}});
}

TEST(VerifyRows, Launches) {
  const auto type = [](auto& e, uint32_t parameter) -> uint8_t& {
    const fb::Kernel* scale = e.program()->kernels()->Get(e.step(4).row.a);
    return e.template edit<uint8_t>(scale->params()->Data() + parameter);
  };
  const char* const wrong[] = {
      "step 4: argument 3 of kernel 'scale' does not have the type of its parameter",
      "step 4: argument 5 of kernel 'scale' does not have the type of its parameter"};
  expect_refused(rows(), {{"step 4: kernel 'elsewhere' is for another target",
                           [](auto& e) { e.step(4).row.a = e.program()->kernels()->size() - 1; }},
                          {wrong[0],  // an int for a pointer
                           [](auto& e) { e.step(4).argument(3) = e.step(4).argument(6); }},
                          {wrong[0],  // a pointer for a float
                           [&](auto& e) { type(e, 0) = HUSK_F32; }},
                          {wrong[1],  // a float for a complex number
                           [&](auto& e) { type(e, 2) = HUSK_C64; }}});
}

// Tensors are no views, although an op may take them.
void make_tensor(EditedArtifact& e, uint32_t step, uint32_t argument) {
  const uint8_t access = e.step(step).argument(argument).access;
  e.step(step).argument(argument) = {uint8_t(ArgumentKind::tensor), access, 0, 0, 0, 0, 0};
}

TEST(VerifyRows, Copies) {
  const char* const copy =
      "step 0: a copy takes a view with access write and a view with access read";
  expect_refused(rows(), {{copy, [](auto& e) { e.step(0).row.a = 1; }},
                          {copy, [](auto& e) { e.step(0).row.c = 1; }},
                          {copy, [](auto& e) { make_tensor(e, 0, 0); }},
                          {copy, [](auto& e) { make_tensor(e, 0, 1); }},
                          {copy, [](auto& e) { e.step(0).argument(0).access = kBoth; }},
                          {copy, [](auto& e) { e.step(0).argument(1).access = kBoth; }}});
}

TEST(VerifyRows, Fills) {
  const auto number = [](auto& e, husk_dtype type, ArgumentKind kind, uint32_t index) {
    e.step(1).argument(1) = {uint8_t(kind), 0, uint8_t(type), 0, index, 0, 0};
  };
  const char* const fill = "step 1: a fill takes a view with access write and an int or float";
  expect_refused(
      rows(),
      {{fill, [](auto& e) { e.step(1).row.a = 1; }},
       {fill, [](auto& e) { e.step(1).row.c = 1; }},
       {fill, [](auto& e) { make_tensor(e, 1, 0); }},
       {fill, [](auto& e) { e.step(1).argument(0).access = kBoth; }},
       {fill, [&](auto& e) { number(e, HUSK_DTYPE_NONE, ArgumentKind::integer, int_register(e)); }},
       {fill, [&](auto& e) { number(e, HUSK_F32, ArgumentKind::integer, int_register(e)); }},
       {fill, [&](auto& e) { number(e, HUSK_I64, ArgumentKind::floating, float_register(e)); }}});
}

TEST(VerifyRows, Reads) {
  const char* const read =
      "step 5: a read takes one view with access read and an int or float type";
  expect_refused(rows(), {{read, [](auto& e) { e.step(5).row.a = 1; }},
                          {read,  // the first argument of the next step becomes its second one
                           [](auto& e) {
                             e.step(5).row.c = 2;
                             e.step(6).row.b += 1;
                             e.step(6).row.c = 1;
                             View& view = e.view(e.step(6).arguments[e.step(6).row.b - 1].index);
                             view.extent = view.offset;
                           }},
                          {read, [](auto& e) { make_tensor(e, 5, 0); }},
                          {read, [](auto& e) { e.step(5).argument(0).access = kBoth; }}});
}

TEST(VerifyRows, Results) {
  const char* const wrong[] = {
      "result 0 does not have the kind, dtype and rank of output 'y'",
      "result 2 does not have the kind, dtype and rank of output 'k'",
      "result 3 does not have the kind, dtype and rank of output 'q'",
      "result 4 does not have the kind, dtype and rank of output 'nothing'"};
  expect_refused(
      rows(),
      {{wrong[0], [](auto& e) { e.result(0).kind = uint8_t(ArgumentKind::view); }},
       {wrong[0], [](auto& e) { e.result(0).index = 1000; }},
       {wrong[0], [](auto& e) { e.tensor(e.result(0).index).dtype = HUSK_I32; }},
       {wrong[0], [](auto& e) { e.tensor(e.result(0).index).rank = 0; }},
       {wrong[0],  // in the arena
        [](auto& e) { e.result(0).index = e.step(3).argument(0).index; }},
       {wrong[0],  // in input 0
        [](auto& e) { e.view(e.tensor(e.result(0).index).view).buffer = view_of(e, 0, 1).buffer; }},
       {wrong[0], [](auto& e) { e.result(0).index = e.result(1).index; }},
       {wrong[1], [](auto& e) { e.result(2).kind = uint8_t(ArgumentKind::floating); }},
       {wrong[1], [](auto& e) { e.result(2).index = float_register(e); }},
       {wrong[2], [](auto& e) { e.result(3).kind = uint8_t(ArgumentKind::integer); }},
       {wrong[2], [](auto& e) { e.result(3).index = int_register(e); }},
       {wrong[3], [](auto& e) { e.result(4).kind = uint8_t(ArgumentKind::null); }}});
}

TEST(VerifyRows, ASegmentHasAtMost64Results) {
  std::string text = "function f {\n  output k int\n  variant cpu {\n    extern \"test::op\" (";
  for (int i = 0; i < 64; ++i) text += "result int, ";
  text += "5)\n    return (int result(63))\n  }\n}\n";
  EXPECT_EQ(verify_error(artifact(text), HUSK_OK), "");
  expect_refused(text, {{"step 0: its segment has more than 64 results",
                         [](auto& e) { e.step(0).argument(64) = e.step(0).argument(63); }}});
}

}  // namespace
}  // namespace husk::test
