// The values of --input.
#include "run/inputs.h"

#include <gtest/gtest.h>

#include "run/run_error.h"

namespace husk::run_test {
namespace {

run::Tensor tensor(const std::string& spec, size_t position = 0) {
  return std::get<run::Tensor>(run::value_from_spec(spec, position));
}

TEST(RunInputs, Numbers) {
  EXPECT_EQ(std::get<int64_t>(run::value_from_spec("3", 0)), 3);
  EXPECT_EQ(std::get<int64_t>(run::value_from_spec("-9223372036854775808", 0)), INT64_MIN);
  EXPECT_EQ(std::get<int64_t>(run::value_from_spec("true", 0)), 1);
  EXPECT_EQ(std::get<int64_t>(run::value_from_spec("false", 0)), 0);
  EXPECT_EQ(std::get<double>(run::value_from_spec("-2.5", 0)), -2.5);
  EXPECT_EQ(std::get<double>(run::value_from_spec("1e3", 0)), 1000);
  EXPECT_TRUE(std::holds_alternative<std::monostate>(run::value_from_spec("none", 0)));
}

TEST(RunInputs, Tensors) {
  const run::Tensor iota = tensor("2x3xi32=iota");
  EXPECT_EQ(iota.sizes, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(iota.dtype, HUSK_I32);
  EXPECT_EQ(iota.number(5), 5);
  EXPECT_TRUE(tensor("f64=zeros").sizes.empty());
  EXPECT_EQ(tensor("0x4xf32=random").bytes.size(), 0u);
}

TEST(RunInputs, RandomStaysInRangeAndRepeats) {
  for (const char* dtype : {"f32", "f16", "f64", "bf16"}) {
    const run::Tensor t = tensor(std::string("1000x") + dtype + "=random");
    bool negative = false;
    for (int i = 0; i < 1000; i++) {
      EXPECT_LE(std::abs(t.number(i)), 1);
      negative |= t.number(i) < -0.5;
    }
    EXPECT_TRUE(negative);
    EXPECT_EQ(t.bytes, tensor(std::string("1000x") + dtype + "=random").bytes);
    EXPECT_NE(t.bytes, tensor(std::string("1000x") + dtype + "=random", 1).bytes);
  }
  const auto seeded = [](uint64_t seed) {
    return std::get<run::Tensor>(run::value_from_spec("9xf64=random", 0, seed)).bytes;
  };
  EXPECT_EQ(seeded(5), seeded(5));
  EXPECT_NE(seeded(5), seeded(6));
  EXPECT_EQ(seeded(0), tensor("9xf64=random").bytes);
  bool seen[10] = {}, bools[2] = {};
  const run::Tensor ints = tensor("1000xi64=random"), flags = tensor("100xbool=random");
  for (int i = 0; i < 1000; i++) seen[ints.integer(i)] = true;
  for (int i = 0; i < 100; i++) bools[flags.integer(i)] = true;
  for (bool was_seen : seen) EXPECT_TRUE(was_seen);
  EXPECT_TRUE(bools[0] && bools[1]);
}

TEST(RunInputs, Refuses) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "neither a number"},
      {"2x3xf32", "neither a number"},
      {"2x3xq7=zeros", "q7 is not a dtype"},
      {"axf32=zeros", "a is not a size"},
      {"2x-3xf32=zeros", "sizes must not be negative"},
      {"2xf32=ones", "ones is unknown"},
      {"@/absent.npy", "/absent.npy"},
      {"1.5.2", "neither a number"}};
  for (auto [spec, words] : cases) {
    try {
      run::value_from_spec(spec, 0);
      ADD_FAILURE() << spec;
    } catch (const run::RunError& failure) {
      EXPECT_EQ(failure.code, run::exit_usage);
      EXPECT_NE(failure.text.find(words), std::string::npos) << failure.text;
    }
  }
}

}  // namespace
}  // namespace husk::run_test
