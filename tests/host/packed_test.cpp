// Products and convolutions with packed constants give the same bits as without.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <map>
#include <thread>

#include <husk/detail/struct_size.h>

#include "correct_calls.h"
#include "host_device.h"
#include "tensor.h"

namespace husk::host_test {
namespace {

class Packed : public HostDevice {
 protected:
  // Packs an argument, of which the file fixes all but what `forget` changes. The memory of the
  // copy has the exact size, so that the sanitizer finds a write behind it. Empty if the op wants
  // none.
  template <class Forget>
  std::vector<unsigned char> pack(const husk_op& row, std::vector<husk_op_arg> args,
                                  uint32_t argument, const Forget& forget) {
    for (uint32_t i = 0; i < args.size(); ++i)
      if (i != argument) args[i].data = nullptr;
    forget(args);
    const husk_op_context context = context_of(row);
    const auto count = static_cast<uint32_t>(args.size());
    husk_packing packing = HUSK_PACKING_INIT;
    packing.argument = argument;
    EXPECT_EQ(row.pack(&context, args.data(), count, &packing, &error), HUSK_OK) << error.text;
    std::vector<unsigned char> copy(packing.bytes);
    if (copy.empty()) return copy;
    packing.data = copy.data();
    const uint64_t bytes = packing.bytes, layout = packing.layout;
    EXPECT_EQ(row.pack(&context, args.data(), count, &packing, &error), HUSK_OK) << error.text;
    EXPECT_EQ(packing.bytes, bytes);
    EXPECT_EQ(packing.layout, layout);
    EXPECT_NE(packing.name, nullptr);
    // Files have copies: each byte is written, and the op accepts its own copies.
    std::vector<unsigned char> again(copy.size(), 0xa5);
    packing.data = again.data();
    EXPECT_EQ(row.pack(&context, args.data(), count, &packing, &error), HUSK_OK) << error.text;
    EXPECT_EQ(copy, again) << row.name;
    packing.data = nullptr;
    packing.stored = copy.data();
    EXPECT_EQ(row.pack(&context, args.data(), count, &packing, &error), HUSK_OK) << error.text;
    name = packing.name;
    return copy;
  }
  std::vector<unsigned char> pack(const husk_op& row, const std::vector<husk_op_arg>& args,
                                  uint32_t argument) {
    return pack(row, args, argument, [](std::vector<husk_op_arg>&) {});
  }

  // Calls an op and returns the bytes of its last argument.
  std::vector<unsigned char> run(const husk_op& row, const std::vector<husk_op_arg>& args,
                                 const void* const* packed = nullptr,
                                 const husk_threads* threads = nullptr) {
    const husk_op_arg& out = args.back();
    const size_t bytes = static_cast<size_t>(host::numel(out) * host::dtype_bytes(out.dtype));
    std::memset(out.data, 0x5a, bytes);
    husk_op_context context = context_of(row, threads);
    context.packed = packed;
    EXPECT_EQ(row.call(&context, args.data(), static_cast<uint32_t>(args.size()), &error), HUSK_OK)
        << error.text;
    const auto* begin = static_cast<const unsigned char*>(out.data);
    return {begin, begin + bytes};
  }

  // Compares the results without and with the packed argument `operand`, whose own elements nobody
  // may read then. Returns whether the op wanted a copy.
  bool expect_same(const husk_op& row, const std::vector<husk_op_arg>& args, uint32_t operand) {
    const std::vector<unsigned char> copy = pack(row, args, operand);
    if (copy.empty()) return false;
    const auto expected = run(row, args);
    std::vector<const void*> packed(args.size());
    packed[operand] = copy.data();
    const husk_op_arg& b = args[operand];
    const size_t bytes = static_cast<size_t>(host::numel(b) * host::dtype_bytes(b.dtype));
    std::vector<unsigned char> kept(bytes);
    std::memcpy(kept.data(), b.data, bytes);
    std::memset(b.data, 0xff, bytes);  // NaN
    for (const uint32_t threads : {0u, 3u}) {
      const husk_threads pool{nullptr, threads, parallel};
      EXPECT_EQ(run(row, args, packed.data(), threads ? &pool : nullptr), expected)
          << row.name << " with " << threads << " threads";
    }
    std::memcpy(b.data, kept.data(), bytes);
    return true;
  }

  // Expects that the op asks while it packs an argument, and ends.
  void expect_end(const Call& call, uint32_t argument) {
    const husk_op& row = op(call.name);
    husk_op_context context = context_of(row);
    int64_t asked = 0;
    context.cancel = [](void* user) -> int32_t { return ++*static_cast<int64_t*>(user) == 1; };
    context.cancel_user = &asked;
    husk_packing packing = HUSK_PACKING_INIT;
    packing.argument = argument;
    const auto count = static_cast<uint32_t>(call.args.size());
    ASSERT_EQ(row.pack(&context, call.args.data(), count, &packing, &error), HUSK_OK) << error.text;
    ASSERT_GT(packing.bytes, 0u) << call.name;
    EXPECT_EQ(asked, 0);
    std::vector<unsigned char> copy(packing.bytes);
    packing.data = copy.data();
    EXPECT_EQ(row.pack(&context, call.args.data(), count, &packing, &error), HUSK_CANCELLED);
    EXPECT_EQ(asked, 1);
    EXPECT_EQ(error.text, call.name + ": husk_op_context.cancel ended the call");
  }

  static void parallel(void*, uint32_t n, void (*body)(void* argument, uint32_t index),
                       void* argument) {
    std::vector<std::thread> others;
    for (uint32_t i = 1; i < n; ++i) others.emplace_back(body, argument, i);
    body(argument, 0);
    for (std::thread& other : others) other.join();
  }

  std::mt19937 random{11};
  std::string name;  // of the layout of the last copy
};

TEST_F(Packed, OperatorsAskWhileTheyPack) {
  const auto convolution = [](std::vector<int64_t> image, std::vector<int64_t> weight,
                              int64_t groups) {
    Call call("aten::convolution");
    const std::vector<int64_t> out = {image[0], weight[0], image[2] - weight[2] + 1,
                                      image[3] - weight[3] + 1};
    call.f32(image).channels_last().f32(weight).none().list({1, 1}).list({0, 0}).list({1, 1});
    call.number(0).list({0, 0}).number(groups).f32(out);
    return call;
  };
  std::deque<Call> calls;
  calls.emplace_back("aten::mm").f32({4, 1024}).f32({1024, 1024}).f32({4, 1024});
  calls.push_back(convolution({1, 512, 2, 2}, {1024, 512, 1, 1}, 1));       // general
  calls.push_back(convolution({1, 256, 34, 34}, {256, 256, 3, 3}, 1));      // Winograd
  calls.push_back(convolution({1, 70000, 9, 9}, {70000, 1, 3, 3}, 70000));  // depthwise
  for (const CpuSet& set : sets()) {
    use(set);
    for (const Call& call : calls) expect_end(call, 1);
  }
}

// The elements are small multiples of a power of two, so that every order of the sums gives the
// same bits.
TEST_F(Packed, Products) {
  const int64_t shapes[][3] = {{1, 7, 40},    {1, 300, 700},  {2, 257, 33},  {3, 256, 64},
                               {4, 600, 65},  {5, 1, 100},    {8, 2, 31},    {11, 513, 95},
                               {12, 64, 256}, {13, 300, 257}, {25, 40, 300}, {217, 30, 128},
                               {250, 70, 90}, {1, 5000, 24},  {3, 5000, 32}, {12, 5000, 33}};
  for (const CpuSet& set : sets()) {
    use(set);
    for (const int32_t dtype : {HUSK_F32, HUSK_F64, HUSK_BF16, HUSK_F16}) {
      const bool packs = dtype == HUSK_F32 || dtype == HUSK_F64 ||
                         (dtype == HUSK_BF16 && set.multiplies_bf16());
      for (auto& [m, k, n] : shapes) {
        Tensor a(dtype, {m, k}), weight(dtype, {n, k}), mat(dtype, {k, n}), bias(dtype, {n}),
            out(dtype, {m, n}), column(dtype, {m, n}, {1, 0});
        for (Tensor* tensor : {&a, &weight, &mat, &bias}) tensor->randomize(random);
        husk_op_arg none{}, relu{};
        relu.kind = HUSK_ARG_STRING;
        relu.string = "relu";
        EXPECT_EQ(expect_same(op("husk::linear"),
                              {a.arg(), weight.arg(), bias.arg(), none, relu, out.arg()}, 1),
                  packs)
            << m << " x " << k << " x " << n;
        EXPECT_EQ(expect_same(op("aten::mm.out"), {a.arg(), mat.arg(), out.arg()}, 1), packs);
        EXPECT_EQ(expect_same(op("aten::mm"), {a.arg(), mat.arg(), column.arg()}, 1), packs);
        EXPECT_EQ(
            expect_same(op("aten::addmm"),
                        {bias.arg(), a.arg(), mat.arg(), int_arg(2), int_arg(3), out.arg()}, 2),
            packs);
        EXPECT_EQ(
            expect_same(
                op("aten::_addmm_activation"),
                {bias.arg(), a.arg(), mat.arg(), int_arg(1), int_arg(1), int_arg(0), out.arg()}, 2),
            packs);
      }
    }
  }
}

TEST_F(Packed, ProductsOfOtherOperandsAndFewColumnsAreNot) {
  Tensor a(HUSK_F32, {4, 8}), narrow(HUSK_F32, {1, 8}), out(HUSK_F32, {4, 1});
  husk_op_arg none{}, relu{};
  relu.kind = HUSK_ARG_STRING;
  relu.string = "relu";
  const std::vector<husk_op_arg> args = {a.arg(), narrow.arg(), none, none, relu, out.arg()};
  EXPECT_TRUE(pack(op("husk::linear"), args, 0).empty());
  EXPECT_TRUE(pack(op("husk::linear"), args, 1).empty());
  EXPECT_EQ(op("aten::bmm").pack, nullptr);
}

// After one step, since the state of a second one is rounded.
TEST_F(Packed, WeightsOfAnLstm) {
  for (const CpuSet& set : sets()) {
    use(set);
    for (const int64_t sequences : {1, 3, 40}) {
      const int64_t width = 70, hidden = 48;
      Tensor input(HUSK_F32, {1, sequences, width}), input_weight(HUSK_F32, {4 * hidden, width}),
          state_weight(HUSK_F32, {4 * hidden, hidden}), bias(HUSK_F32, {4 * hidden}),
          state(HUSK_F32, {1, sequences, hidden}), out(HUSK_F32, {1, sequences, hidden}),
          last(HUSK_F32, {1, sequences, hidden}), cell(HUSK_F32, {1, sequences, hidden});
      for (Tensor* tensor : {&input, &input_weight, &state_weight, &bias, &state})
        tensor->randomize(random);
      husk_op_arg none{};
      none.kind = HUSK_ARG_INTS;
      const std::vector<husk_op_arg> args = {
          input.arg(),     input_weight.arg(), state_weight.arg(), bias.arg(), bias.arg(),
          state.arg(),     state.arg(),        int_arg(0),         none,       int_arg(2),
          int_arg(hidden), int_arg(1),         int_arg(1),         int_arg(0), int_arg(0),
          int_arg(0),      out.arg(),          last.arg(),         cell.arg()};
      for (const uint32_t weight : {1u, 2u})
        EXPECT_TRUE(expect_same(op("aten::mkldnn_rnn_layer"), args, weight));
      EXPECT_TRUE(pack(op("aten::mkldnn_rnn_layer"), args, 3).empty());
    }
  }
}

TEST_F(Packed, WeightOfAGru) {
  for (const CpuSet& set : sets()) {
    use(set);
    for (const int64_t sequences : {1, 3, 40}) {
      const int64_t size = 48;
      Tensor gates(HUSK_F32, {1, sequences, 3 * size}), hidden(HUSK_F32, {sequences, size}),
          weight(HUSK_F32, {3 * size, size}), bias(HUSK_F32, {3 * size}),
          states(HUSK_F32, {2, sequences, size});
      for (Tensor* tensor : {&gates, &hidden, &weight, &bias}) tensor->randomize(random);
      husk_op_arg kind{};
      kind.kind = HUSK_ARG_STRING;
      kind.string = "gru";
      const std::vector<husk_op_arg> args = {kind,         gates.arg(), hidden.arg(), {},
                                             weight.arg(), bias.arg(),  int_arg(0),   states.arg()};
      EXPECT_TRUE(expect_same(op("husk::recurrent_layer"), args, 4));
      EXPECT_TRUE(pack(op("husk::recurrent_layer"), args, 5).empty());
    }
  }
}

// Every method of a convolution, for the sizes of the calls, and for sizes that the file leaves
// open: then a copy may be one that the call does not use.
TEST_F(Packed, Convolutions) {
  std::deque<Call> calls;
  add_large_calls(calls);
  for (const CpuSet& set : sets()) {
    use(set);
    int convolutions = 0, copies = 0;
    for (Call& call : calls) {
      if (call.name != "husk::convolution" && call.name != "aten::convolution") continue;
      ++convolutions;
      const husk_op& row = op(call.name);
      SCOPED_TRACE(convolutions);
      if (!expect_same(row, call.args, 1)) continue;
      ++copies;
      const auto expected = run(row, call.args);
      std::vector<int64_t> open(call.args[0].sizes, call.args[0].sizes + call.args[0].rank);
      for (size_t d = 0; d < open.size(); ++d)
        if (d != 1) open[d] = HUSK_UNKNOWN_SIZE;
      const auto copy = pack(row, call.args, 1, [&](std::vector<husk_op_arg>& args) {
        args[0].sizes = open.data();
        args.back().sizes = open.data();
      });
      std::vector<const void*> packed(call.args.size());
      packed[1] = copy.empty() ? nullptr : copy.data();
      EXPECT_EQ(run(row, call.args, packed.data()), expected);
    }
    EXPECT_EQ(convolutions, 37);
    // All but four with several phases and, where vectors have 16 elements, one with so few
    // channels that most of its copy would be zeros.
    EXPECT_TRUE(copies == 32 || copies == 33) << copies;
  }
}

TEST_F(Packed, PairsOfConvolutions) {
  std::deque<Call> calls;
  add_large_calls(calls);
  for (const CpuSet& set : sets()) {
    use(set);
    int pairs = 0;
    for (Call& call : calls) {
      if (call.name != "husk::convolution_depthwise") continue;
      ++pairs;
      for (const uint32_t weight : {1u, 8u})
        EXPECT_TRUE(expect_same(op(call.name), call.args, weight)) << pairs;
      EXPECT_TRUE(pack(op(call.name), call.args, 2).empty());
    }
    EXPECT_EQ(pairs, 2);
  }
}

TEST_F(Packed, WhatIsUnknownOrWrongIsLeftToTheCall) {
  std::deque<Call> calls;
  add_large_calls(calls);
  const Call& call = calls.front();
  const husk_op& row = op(call.name);
  const int64_t wrong[] = {-7, 1}, unknown[] = {HUSK_UNKNOWN_SIZE, HUSK_UNKNOWN_SIZE};
  using Args = std::vector<husk_op_arg>;
  EXPECT_FALSE(pack(row, call.args, 1).empty());
  EXPECT_TRUE(pack(row, call.args, 0).empty());
  EXPECT_TRUE(pack(row, call.args, 1, [&](Args& args) { args[3].sizes = wrong; }).empty());
  EXPECT_TRUE(pack(row, call.args, 1, [&](Args& args) { args[4].sizes = unknown; }).empty());
  EXPECT_TRUE(pack(row, call.args, 1, [&](Args& args) { args[8] = {}; }).empty());
  EXPECT_TRUE(pack(row, call.args, 1, [&](Args& args) { args[8].i = 5; }).empty());
  EXPECT_TRUE(pack(row, call.args, 1, [&](Args& args) { args[8].i = 0; }).empty());
  EXPECT_TRUE(pack(row, call.args, 1, [&](Args& args) { args[0].rank = 3; }).empty());
}

TEST_F(Packed, CopiesOfOtherGroupsAreNotUsed) {
  Tensor input(HUSK_F32, {1, 32, 6, 6}, {0, 2, 3, 1}), weight(HUSK_F32, {32, 16, 1, 1}),
      out(HUSK_F32, {1, 32, 6, 6}, {0, 2, 3, 1});
  input.randomize(random);
  weight.randomize(random);
  const int64_t one[] = {1, 1}, zero[] = {0, 0};
  husk_op_arg ones{}, zeros{};
  ones.kind = zeros.kind = HUSK_ARG_INTS;
  ones.count = zeros.count = 2;
  ones.sizes = one;
  zeros.sizes = zero;
  const husk_op& row = op("aten::convolution");
  const std::vector<husk_op_arg> args = {input.arg(), weight.arg(), husk_op_arg{}, ones,
                                         zeros,       ones,         int_arg(0),    zeros,
                                         int_arg(2),  out.arg()};
  const auto copy = pack(row, args, 1, [](std::vector<husk_op_arg>& open) { open[8].i = 1; });
  ASSERT_FALSE(copy.empty());
  std::vector<const void*> packed(args.size());
  packed[1] = copy.data();
  EXPECT_EQ(run(row, args, packed.data()), run(row, args));
}

TEST_F(Packed, StructsThatAreTooSmallAreRefused) {
  std::deque<Call> calls;
  add_large_calls(calls);
  const husk_op& row = op(calls.front().name);
  const std::vector<husk_op_arg>& args = calls.front().args;
  const auto count = static_cast<uint32_t>(args.size());
  husk_op_context context = context_of(row);
  husk_packing packing = HUSK_PACKING_INIT;
  packing.argument = 1;
  packing.struct_size = HUSK_SIZE_THROUGH(husk_packing, layout);
  EXPECT_EQ(row.pack(&context, args.data(), count, &packing, &error), HUSK_INVALID_ARGUMENT);
  // That of a runtime which knows no copies in files.
  packing.struct_size = HUSK_SIZE_THROUGH(husk_packing, data);
  EXPECT_EQ(row.pack(&context, args.data(), count, &packing, &error), HUSK_OK) << error.text;
  EXPECT_EQ(packing.name, nullptr);
  packing.struct_size = sizeof(packing);
  context.user = nullptr;
  EXPECT_EQ(row.pack(&context, args.data(), count, &packing, &error), HUSK_INVALID_ARGUMENT);
  context.user = row.user;
  EXPECT_EQ(row.pack(&context, args.data(), 2, &packing, &error), HUSK_INVALID_ARGUMENT);
  context.struct_size = HUSK_SIZE_THROUGH(husk_op_context, device);
  EXPECT_EQ(row.pack(&context, args.data(), count, &packing, &error), HUSK_INVALID_ARGUMENT);
}

// Calls that have each sort of copy, with one argument that is packed.
void add_calls_of_each_layout(std::deque<std::pair<Call, uint32_t>>& calls) {
  const auto add = [&](const char* op, uint32_t argument) -> Call& {
    return calls.emplace_back(Call(op), argument).first;
  };
  for (const int32_t dtype : {HUSK_F32, HUSK_F64, HUSK_BF16})
    add("aten::mm", 1).tensor(dtype, {2, 35}).tensor(dtype, {35, 70}).tensor(dtype, {2, 70});
  add("aten::_int_mm", 1)
      .tensor(HUSK_I8, {2, 35})
      .tensor(HUSK_I8, {35, 40})
      .tensor(HUSK_I32, {2, 40});
  const auto convolution = [&](int32_t dtype, std::vector<int64_t> image,
                               std::vector<int64_t> weight, int64_t groups) {
    const std::vector<int64_t> out = {image[0], weight[0], image[2] - weight[2] + 1,
                                      image[3] - weight[3] + 1};
    Call& call = add("aten::convolution", 1).tensor(dtype, image).channels_last();
    call.tensor(dtype, weight).none().list({1, 1}).list({0, 0}).list({1, 1});
    call.number(0).list({0, 0}).number(groups).tensor(dtype, out);
  };
  convolution(HUSK_F32, {1, 70, 6, 6}, {40, 70, 1, 1}, 1);    // general
  convolution(HUSK_F32, {1, 64, 34, 34}, {64, 64, 3, 3}, 1);  // Winograd
  convolution(HUSK_F32, {1, 40, 9, 9}, {40, 1, 3, 3}, 40);    // depthwise
  convolution(HUSK_F64, {1, 70, 6, 6}, {40, 70, 3, 3}, 1);
  for (const uint32_t argument : {1, 8})
    add("husk::convolution_depthwise", argument)
        .f32({2, 24, 6, 6})
        .channels_last()
        .f32({40, 24, 1, 1})
        .f32({40})
        .list({1, 1})
        .list({0, 0})
        .list({1, 1})
        .f32({40})
        .text("relu")
        .f32({40, 1, 3, 3})
        .f32({40})
        .list({1, 1})
        .list({1, 1})
        .list({1, 1})
        .f32({40})
        .text("relu")
        .f32({2, 40, 6, 6})
        .channels_last();
  for (const auto& [dtype, bits] : {std::pair{HUSK_U8, 4}, {HUSK_I8, 8}})
    for (const uint32_t argument : {1, 2, 3})
      add("husk::linear_quantized", argument)
          .f32({2, 64})
          .tensor(dtype, {20, 64 * bits / 8})
          .f32({20, 2})
          .tensor(HUSK_I8, {20, 2})
          .none(3)
          .text("none")
          .number(bits)
          .number(32)
          .f32({2, 20});
  struct Shape {
    int64_t height, width;
    std::vector<int64_t> weight;
    int64_t groups;
  };
  // A convolution of all channels, and a depthwise one, whose weights have other layouts.
  for (const Shape& of : {Shape{5, 6, {20, 20, 3, 2}, 1}, Shape{7, 7, {20, 1, 5, 3}, 20}}) {
    add("husk::convolution_int8", 1)
        .tensor(HUSK_U8, {2, 20, of.height, of.width}, 7)
        .channels_last()
        .tensor(HUSK_I8, of.weight)
        .f32({20})
        .f32({20})
        .list({1, 1})
        .list({0, 0})
        .list({1, 1})
        .number(of.groups)
        .real(0.5)
        .number(3)
        .none(2)
        .none()
        .real(1)
        .number(0)
        .text("none")
        .real(1)
        .number(0)
        .number(0)
        .number(0)
        .number(HUSK_F32)
        .f32({2, 20, 3, 5})
        .channels_last();
  }
}

// The name of a layout stands for the same bytes in all versions, since files have copies. A change
// of a layout needs another name, and a new row here.
TEST_F(Packed, NamesStandForLayouts) {
  const std::map<std::string, uint64_t> known = {
      {"0 aten::mm, Avx2 1", 0x7fe2a3a4ebc99ad3},
      {"0 aten::mm, Avx512 1", 0x727ff0974c19abeb},
      {"0 aten::mm, Baseline 1", 0xca5ebf7005a1064b},
      {"1 aten::mm, Avx2 1", 0x2f22259585b4f993},
      {"1 aten::mm, Avx512 1", 0x82836c22b658e88f},
      {"1 aten::mm, Baseline 1", 0x2d3e021d3952b827},
      {"2 aten::mm, Avx512Bf16 1", 0xea2339ca8ae849cb},
      {"3 aten::_int_mm, codes 1", 0x754e35b5057e6eba},
      {"4 aten::convolution, Avx2 1", 0xc3cf19436482812e},
      {"4 aten::convolution, Avx512 1", 0xd7861b69f461ddbe},
      {"4 aten::convolution, Baseline 1", 0x64b8de1311c7a3b6},
      {"5 aten::convolution, Avx2 1", 0x5075231c2eca973a},
      {"5 aten::convolution, Avx512 1", 0xa40e70755ea8a18e},
      {"5 aten::convolution, Baseline 1", 0xc3e8a480c26faf4a},
      {"6 aten::convolution, Avx2 1", 0xb8246d0083bf11cd},
      {"6 aten::convolution, Avx512 1", 0x6ad688e3e539132e},
      {"6 aten::convolution, Baseline 1", 0xcb7514b09b588625},
      {"7 aten::convolution, Avx2 1", 0xd90a938f4b6193e0},
      {"7 aten::convolution, Avx512 1", 0x25e3bcaee2c38134},
      {"7 aten::convolution, Baseline 1", 0x3bd96006691f11c},
      {"8 husk::convolution_depthwise, Avx2 1", 0x144c8cf621c39702},
      {"8 husk::convolution_depthwise, Avx512 1", 0x8dad00a40fd2d462},
      {"8 husk::convolution_depthwise, Baseline 1", 0x460183c5a559dc2a},
      {"9 husk::convolution_depthwise, Avx2 1", 0x5b5b6de5d129fe0d},
      {"9 husk::convolution_depthwise, Avx512 1", 0x19ff789e76292abd},
      {"9 husk::convolution_depthwise, Baseline 1", 0x7895fff59710d635},
      {"10 husk::linear_quantized, codes 1", 0x88a505f541ceab1},
      {"11 husk::linear_quantized, numbers 1", 0xdb58892eb37c6d99},
      {"12 husk::linear_quantized, numbers 1", 0x727ee8cc7b582fd9},
      {"13 husk::linear_quantized, codes 1", 0x13765b3c16fc1283},
      {"14 husk::linear_quantized, numbers 1", 0xdb58892eb37c6d99},
      {"15 husk::linear_quantized, numbers 1", 0x727ee8cc7b582fd9},
      {"16 husk::convolution_int8, panels and sums 2", 0xd05dc19399f3437c},
      {"17 husk::convolution_int8, panels and sums 2", 0x65444186ce62b113},
  };
  std::deque<std::pair<Call, uint32_t>> calls;
  add_calls_of_each_layout(calls);
  std::map<std::string, uint64_t> found;
  for (const CpuSet& set : sets()) {
    use(set);
    for (size_t number = 0; number < calls.size(); ++number) {
      const auto& [call, argument] = calls[number];
      const husk_op_arg& weight = call.args[argument];
      auto* bytes = static_cast<unsigned char*>(weight.data);
      const int64_t width = host::dtype_bytes(weight.dtype);
      for (int64_t i = 0; i < host::numel(weight); ++i) {
        // Numbers that each dtype of floats has, and with which Winograd's sums are exact.
        const auto value = static_cast<float>(i * 37 % 101 - 50) / 16;
        const auto wide = static_cast<double>(value);
        uint32_t bits;
        std::memcpy(&bits, &value, sizeof bits);
        const auto half = static_cast<uint16_t>(bits >> 16);
        const auto code = static_cast<unsigned char>(i * 37 % 251);
        const void* from = weight.dtype == HUSK_F32    ? static_cast<const void*>(&value)
                           : weight.dtype == HUSK_F64  ? static_cast<const void*>(&wide)
                           : weight.dtype == HUSK_BF16 ? static_cast<const void*>(&half)
                                                       : &code;
        std::memcpy(bytes + i * width, from, static_cast<size_t>(width));
      }
      const auto copy = pack(op(call.name), call.args, argument);
      if (copy.empty()) continue;
      uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
      for (const unsigned char byte : copy) hash = (hash ^ byte) * 0x100000001b3;
      const std::string key = std::to_string(number) + " " + call.name + ", " + name;
      EXPECT_EQ(found.emplace(key, hash).first->second, hash) << key << " for " << set.name;
    }
  }
  for (const auto& [key, hash] : found) {
    if (key.find(", Arm") != key.npos) continue;  // no row was written for these yet
    const auto row = known.find(key);
    EXPECT_TRUE(row != known.end() && row->second == hash)
        << "{\"" << key << "\", 0x" << std::hex << hash << "},";
  }
}

TEST_F(Packed, CopiesThatBeginAsOthersAreRefused) {
  std::deque<Call> calls;
  add_large_calls(calls);
  for (const char* name_of_op : {"husk::convolution", "husk::convolution_depthwise"}) {
    const auto call = std::find_if(calls.begin(), calls.end(),
                                   [&](const Call& each) { return each.name == name_of_op; });
    ASSERT_NE(call, calls.end());
    const husk_op& row = op(call->name);
    auto copy = pack(row, call->args, 1);
    ASSERT_FALSE(copy.empty());
    const husk_op_context context = context_of(row);
    husk_packing packing = HUSK_PACKING_INIT;
    packing.argument = 1;
    packing.stored = copy.data();
    const auto count = static_cast<uint32_t>(call->args.size());
    for (const size_t byte : {0, 8, 16, 24, 32, 40}) {  // each number of the header
      copy[byte] ^= 1;
      EXPECT_EQ(row.pack(&context, call->args.data(), count, &packing, &error), HUSK_INVALID_FILE)
          << byte;
      EXPECT_NE(std::strstr(error.text, "packed copy in the file"), nullptr) << error.text;
      copy[byte] ^= 1;
    }
    EXPECT_EQ(row.pack(&context, call->args.data(), count, &packing, &error), HUSK_OK);
  }
}

}  // namespace
}  // namespace husk::host_test
