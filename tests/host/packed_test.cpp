// Products and convolutions with packed constants give the same bits as without.
#include <atomic>
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
  packing.struct_size -= 8;
  EXPECT_EQ(row.pack(&context, args.data(), count, &packing, &error), HUSK_INVALID_ARGUMENT);
  packing.struct_size += 8;
  context.user = nullptr;
  EXPECT_EQ(row.pack(&context, args.data(), count, &packing, &error), HUSK_INVALID_ARGUMENT);
  context.user = row.user;
  EXPECT_EQ(row.pack(&context, args.data(), 2, &packing, &error), HUSK_INVALID_ARGUMENT);
  context.struct_size = HUSK_SIZE_THROUGH(husk_op_context, device);
  EXPECT_EQ(row.pack(&context, args.data(), count, &packing, &error), HUSK_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace husk::host_test
