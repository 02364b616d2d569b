// Wrong arguments: the ops fail with texts that name the op and the argument.
#include "core/arguments.h"

#include <cstddef>
#include <functional>
#include <set>
#include <type_traits>

#include "../struct_size.h"
#include "contracts.h"
#include "host_device.h"
#include "tensor.h"

namespace husk::host_test {
namespace {

class Arguments : public HostDevice {
 protected:
  // The call must fail with this status and a text that contains the op's name and `text`.
  void refuses(const char* op, const std::vector<husk_op_arg>& args, husk_status status,
               const std::string& text) {
    error = {};
    EXPECT_EQ(call(op, args), status) << text;
    EXPECT_EQ(error.code, status);
    EXPECT_NE(std::string(error.text).find(op), std::string::npos) << error.text;
    EXPECT_NE(std::string(error.text).find(text), std::string::npos) << error.text;
  }
  void refuses_mm(const std::string& text,
                  const std::function<void(std::vector<husk_op_arg>&)>& change,
                  husk_status status = HUSK_INVALID_ARGUMENT) {
    std::vector<husk_op_arg> args{a.arg(), b.arg(), out.arg(HUSK_ACCESS_WRITE)};
    change(args);
    refuses("aten::mm.out", args, status, text);
  }

  Tensor a{HUSK_F32, {3, 4}}, b{HUSK_F32, {4, 5}}, out{HUSK_F32, {3, 5}};
};

TEST(ArgumentsOf, HasThePlacesOfTheContracts) {
  constexpr host::ArgumentsOf gcd("gcd");
  constexpr uint32_t kOut = gcd["out"];  // a name that no row has does not compile
  static_assert(gcd["self"] == 0 && gcd["other"] == 1 && kOut == 2);
  // Rows of one function may have other names.
  constexpr host::ArgumentsOf reverse("view_reverse");
  static_assert(reverse["a"] == 0 && reverse["self"] == 0 && reverse["dims"] == 1);
}

TEST(ArgumentPlace, IsNoNumberOfTheSource) {
  static_assert(!std::is_constructible_v<host::ArgumentPlace, int>);
  static_assert(std::is_constructible_v<host::ArgumentPlace, uint32_t>);
  static_assert(sizeof(host::ArgumentPlace) == sizeof(uint32_t));
}

TEST_F(Arguments, EveryNameIsUnique) {
  uint32_t count = 0;
  const husk_op* ops = husk_host_ops(&count);
  std::set<std::string> names;
  for (uint32_t i = 0; i < count; ++i) {
    EXPECT_TRUE(names.insert(ops[i].name).second) << ops[i].name << " is listed twice";
    EXPECT_NE(ops[i].call, nullptr);
    EXPECT_NE(ops[i].user, nullptr);
  }
  for (const char* name :
       {"aten::mm.out", "aten::copy_", "aten::topk", "aten::nonzero:sizes", "aten::convolution"}) {
    EXPECT_EQ(names.count(name), 1u) << name;
  }
}

// Every op fails with a text that names the op if it gets no arguments, arguments of a wrong kind,
// or too many of them.
TEST_F(Arguments, EveryOpRefusesNonsense) {
  uint32_t count = 0;
  const husk_op* ops = husk_host_ops(&count);
  Tensor tensor(HUSK_F32, {2, 3});
  husk_op_arg tensors{}, broken = tensor.arg(), ints{}, result{};
  tensors.kind = HUSK_ARG_TENSORS;
  tensors.count = 3;
  broken.rank = 200;
  ints.kind = HUSK_ARG_INTS;
  ints.count = 5;
  result.kind = HUSK_ARG_RESULT;
  for (uint32_t i = 0; i < count; ++i) {
    const husk_op_context context = context_of(ops[i]);
    for (const husk_op_arg& arg :
         {husk_op_arg{}, tensors, broken, ints, result, int_arg(-1), float_arg(0.5)}) {
      for (uint32_t arg_count = 0; arg_count < 20; ++arg_count) {
        const std::vector<husk_op_arg> args(arg_count, arg);
        error = {};
        const husk_status status = ops[i].call(&context, args.data(), arg_count, &error);
        ASSERT_NE(status, HUSK_OK)
            << ops[i].name << " with " << arg_count << " of kind " << arg.kind;
        ASSERT_EQ(status, error.code) << ops[i].name;
        ASSERT_NE(std::string(error.text).find(ops[i].name), std::string::npos) << error.text;
      }
    }
  }
}

TEST_F(Arguments, CountIsChecked) {
  refuses("aten::mm.out", {}, HUSK_INVALID_ARGUMENT, "0 arguments");
  refuses("aten::mm.out", {a.arg(), b.arg()}, HUSK_INVALID_ARGUMENT, "2 arguments");
  refuses("aten::bmm.out", {a.arg(), b.arg(), out.arg(), out.arg()}, HUSK_INVALID_ARGUMENT,
          "4 arguments");
  refuses("aten::addmm.out", {a.arg()}, HUSK_INVALID_ARGUMENT, "1 arguments");
  refuses("aten::baddbmm.out", {a.arg()}, HUSK_INVALID_ARGUMENT, "1 arguments");
  refuses("aten::copy_", {a.arg()}, HUSK_INVALID_ARGUMENT, "1 arguments; it takes 2 or more");
}

TEST_F(Arguments, EveryTensorIsChecked) {
  const char* names[] = {"self", "mat2", "out"};
  for (uint32_t i = 0; i < 3; ++i) {
    const std::string name = std::string("argument ") + names[i];
    refuses_mm(name + " is not a tensor", [&](auto& args) { args[i] = int_arg(1); });
    refuses_mm(name + " has rank 3", [&](auto& args) { args[i].rank = 3; });
    refuses_mm(name + " has no sizes", [&](auto& args) { args[i].sizes = nullptr; });
    refuses_mm(name + " has no strides", [&](auto& args) { args[i].strides = nullptr; });
    refuses_mm(name + " is null", [&](auto& args) { args[i].data = nullptr; });
    refuses_mm(name + " is not aligned",
               [&](auto& args) { args[i].data = static_cast<char*>(args[i].data) + 1; });
    refuses_mm(
        name + " has dtype none", [&](auto& args) { args[i].dtype = HUSK_DTYPE_NONE; },
        HUSK_UNSUPPORTED);
    const int64_t negative[] = {-1, 4};
    refuses_mm(name + " has size -1", [&](auto& args) { args[i].sizes = negative; });
  }
}

TEST_F(Arguments, DtypesAreChecked) {
  refuses_mm("argument mat2 has dtype f64", [](auto& args) { args[1].dtype = HUSK_F64; });
  refuses_mm(
      "has dtype bool",
      [](auto& args) {
        for (auto& arg : args) arg.dtype = HUSK_BOOL;
      },
      HUSK_UNSUPPORTED);
}

TEST_F(Arguments, SizesAreChecked) {
  Tensor wrong_b(HUSK_F32, {5, 5}), tall(HUSK_F32, {4, 5}), wide(HUSK_F32, {3, 6});
  refuses_mm("argument mat2 has size 5 along 0, not 4",
             [&](auto& args) { args[1] = wrong_b.arg(); });
  refuses_mm("argument out has size 4 along 0, not 3", [&](auto& args) { args[2] = tall.arg(); });
  refuses_mm("argument out has size 6 along 1, not 5", [&](auto& args) { args[2] = wide.arg(); });
  Tensor a3(HUSK_F32, {2, 3, 4}), b3(HUSK_F32, {3, 4, 5}), b2(HUSK_F32, {2, 4, 5}),
      out3(HUSK_F32, {1, 3, 5});
  refuses("aten::bmm.out", {a3.arg(), b3.arg(), out3.arg()}, HUSK_INVALID_ARGUMENT,
          "mat2 has size 3 along 0, not 2");
  refuses("aten::bmm.out", {a3.arg(), b2.arg(), out3.arg()}, HUSK_INVALID_ARGUMENT,
          "out has size 1 along 0, not 2");
}

TEST_F(Arguments, AddmmChecksSelfAndScalars) {
  Tensor bias(HUSK_F32, {5}), wrong(HUSK_F32, {4}), doubles(HUSK_F64, {5}),
      deep(HUSK_F32, {1, 1, 5});
  const auto addmm = [&](husk_op_arg self, husk_op_arg beta, husk_op_arg alpha) {
    return std::vector<husk_op_arg>{self, a.arg(), b.arg(),
                                    beta, alpha,   out.arg(HUSK_ACCESS_WRITE)};
  };
  const char* op = "aten::addmm.out";
  const husk_op_arg one = int_arg(1);
  refuses(op, addmm(wrong.arg(), one, one), HUSK_INVALID_ARGUMENT,
          "argument self has size 4 along 0, not 5");
  refuses(op, addmm(doubles.arg(), one, one), HUSK_INVALID_ARGUMENT, "argument self has dtype f64");
  refuses(op, addmm(deep.arg(), one, one), HUSK_INVALID_ARGUMENT, "argument self has rank 3");
  refuses(op, addmm(one, one, one), HUSK_INVALID_ARGUMENT, "argument self is not a tensor");
  refuses(op, addmm(bias.arg(), bias.arg(), one), HUSK_INVALID_ARGUMENT,
          "argument beta is not a number");
  refuses(op, addmm(bias.arg(), one, husk_op_arg{}), HUSK_INVALID_ARGUMENT,
          "argument alpha is not a number");
  refuses(op, {bias.arg(), one, b.arg(), one, one, out.arg()}, HUSK_INVALID_ARGUMENT,
          "argument mat1 is not a tensor");
}

TEST_F(Arguments, ContextsOfOtherVersions) {
  const husk_op& mm = op("aten::mm.out");
  EXPECT_EQ(mm.struct_size, sizeof(husk_op));
  const husk_op_arg args[] = {a.arg(), b.arg(), out.arg(HUSK_ACCESS_WRITE)};
  const husk_op_context context = context_of(mm);
  const test::Newer<husk_op_context> newer(context);
  EXPECT_EQ(mm.call(&newer.known, args, 3, &error), HUSK_OK) << error.text;
  const auto small = test::older(context, offsetof(husk_op_context, threads));
  test::expect_too_small(mm.call(&small, args, 3, &error), error, "husk_op_context");
}

// An op beside a device of another port has no device of this one.
TEST_F(Arguments, ProductsWithoutADeviceUseThisCpu) {
  const husk_op& mm = op("aten::mm.out");
  const husk_op_arg args[] = {a.arg(), b.arg(), out.arg(HUSK_ACCESS_WRITE)};
  ASSERT_EQ(call("aten::mm.out", {args[0], args[1], args[2]}), HUSK_OK) << error.text;
  const size_t bytes = static_cast<size_t>(host::numel(args[2])) * sizeof(float);
  std::vector<unsigned char> expected(bytes);
  std::memcpy(expected.data(), args[2].data, bytes);
  std::memset(args[2].data, 0x5a, bytes);
  const husk_op_context context = context_for(mm, nullptr, op_scratch);
  EXPECT_EQ(mm.call(&context, args, 3, &error), HUSK_OK) << error.text;
  EXPECT_EQ(std::memcmp(args[2].data, expected.data(), bytes), 0);
}

}  // namespace
}  // namespace husk::host_test
