// aten::multinomial of long rows, compared with the definition, and the work that it reports.
#include <algorithm>
#include <cmath>

#include "core/cancellation.h"
#include "host_device.h"
#include "random/generator.h"
#include "tensor.h"

namespace husk::host_test {
namespace {

class Multinomial : public HostDevice {
 protected:
  // Draws categories with the generator of seed 7.
  std::vector<int64_t> draw(std::vector<double>& weights, int64_t count, bool replacement) {
    host::Generator generator;
    generator.start(7);
    const int64_t n = static_cast<int64_t>(weights.size()), state_bytes = sizeof generator;
    std::vector<int64_t> out(static_cast<size_t>(count), -1);
    const std::vector<husk_op_arg> args{vector_arg(HUSK_F64, n, weights.data()),
                                        int_arg(count),
                                        int_arg(replacement),
                                        {},
                                        vector_arg(HUSK_I64, count, out.data()),
                                        vector_arg(HUSK_U8, state_bytes, &generator)};
    const husk_op& row = op("aten::multinomial");
    asked = 0;
    const auto ask = [](void* user) -> int32_t { return ++*static_cast<int64_t*>(user) < 0; };
    husk_op_context context = context_of(row);
    context.cancel = ask;
    context.cancel_user = &asked;
    EXPECT_EQ(row.call(&context, args.data(), static_cast<uint32_t>(args.size()), &error), HUSK_OK)
        << error.text;
    return out;
  }
  static std::vector<double> weights_of(int64_t n) {
    std::vector<double> weights(static_cast<size_t>(n));
    for (int64_t i = 0; i < n; ++i) weights[i] = static_cast<double>(i * 7919 % 101);
    return weights;
  }

  int64_t asked = 0;
};

// Some rows have fewer categories than one block of sums, some have several blocks with a rest.
TEST_F(Multinomial, FirstCategoryWhoseSumReachesTheNumber) {
  for (const int64_t n : {2, 15, 16, 17, 33, 4096 * 16, 4096 * 16 + 1, 200003}) {
    std::vector<double> weights = weights_of(n);
    const std::vector<int64_t> drawn = draw(weights, 300, true);
    double sum = 0;
    for (const double weight : weights) sum += weight;
    host::Generator generator;
    generator.start(7);
    for (const int64_t category : drawn) {
      const double u = generator.uniform_double();
      double passed = 0;
      int64_t expected = 0;
      for (; expected < n - 1; ++expected) {
        passed += weights[expected];
        if (passed / sum >= u) break;
      }
      ASSERT_EQ(category, expected) << n;
    }
  }
}

// More categories than one pass takes.
TEST_F(Multinomial, LargestQuotientsWithoutReplacement) {
  constexpr int64_t kCount = 9001;
  std::vector<double> weights = weights_of(kCount);
  std::vector<std::pair<double, int64_t>> quotients;
  host::Generator generator;
  generator.start(7);
  for (int64_t i = 0; i < kCount; ++i)
    quotients.emplace_back(weights[i] / -std::log1p(-generator.uniform_double()), i);
  std::stable_sort(quotients.begin(), quotients.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  for (const int64_t k : {int64_t{1}, int64_t{4096}, int64_t{4097}, kCount}) {
    const std::vector<int64_t> drawn = draw(weights, k, false);
    for (int64_t j = 0; j < k; ++j) ASSERT_EQ(drawn[j], quotients[j].second) << k << " " << j;
  }
}

// A draw adds up the weights of a block, and not those of all categories before it: 2^18 weights
// are added up three times, and 2^16 draws look at 2^6 weights each.
TEST_F(Multinomial, LooksAtFewWeightsForADraw) {
  std::vector<double> weights(1 << 18, 1.0);
  draw(weights, 1 << 16, true);
  EXPECT_GE(asked, 4);
  EXPECT_LE(asked, 4 + ((1 << 22) + 3 * (1 << 18)) / host::kWorkBetweenQuestions);
}

// 2^12 categories are taken in one pass over 2^18 weights.
TEST_F(Multinomial, TakesThousandsOfCategoriesInOnePass) {
  std::vector<double> weights(1 << 18, 1.0);
  draw(weights, 1 << 12, false);
  EXPECT_GE(asked, 1);
  EXPECT_LE(asked, 3 + (1 << 18) / host::kWorkBetweenQuestions);
}

}  // namespace
}  // namespace husk::host_test
