// Speculative decoding, by what followed earlier.
#include "text/drafts.h"

#include <gtest/gtest.h>

#include <random>

#include "requests.h"

namespace {

using husk::test::Answer;
using husk::test::Generator;
using husk::test::model;
using husk::test::random_prompt;
using husk::test::right_text;
using husk::test::run;
using husk::test::stats;
using husk::test::step;
using husk::test::submit;
using husk::test::Text;
using husk::test::tokens_of;
using husk::test::Wanted;

TEST(Drafts, drafts_are_what_followed_earlier) {
  const auto drafted = [](std::vector<int32_t> tokens, int64_t most) {
    const auto count = static_cast<int64_t>(tokens.size());
    tokens.resize(tokens.size() + 8, -1);
    const int64_t found = husk::text::draft(tokens.data(), count, most);
    return std::vector<int32_t>(tokens.begin() + count, tokens.begin() + count + found);
  };
  using Tokens = std::vector<int32_t>;
  EXPECT_EQ(drafted({1, 2, 3, 4, 5, 1, 2, 3}, 3), (Tokens{4, 5, 1}));
  EXPECT_EQ(drafted({1, 2, 3, 4, 9, 2, 3, 5, 1, 2, 3}, 2), (Tokens{4, 9}));  // three before two
  EXPECT_EQ(drafted({7, 2, 3, 4, 9, 2, 3, 5, 1, 2, 3}, 2), (Tokens{5, 1}));  // the latest
  EXPECT_EQ(drafted({1, 2, 1, 2}, 5), (Tokens{1, 2, 1, 2, 1}));
  EXPECT_EQ(drafted({5, 5, 5, 5}, 3), (Tokens{5, 5, 5}));
  EXPECT_EQ(drafted({1, 2, 3}, 3), Tokens());
  EXPECT_EQ(drafted({1}, 3), Tokens());
  EXPECT_EQ(drafted({1, 1, 1}, 0), Tokens());
}

TEST(Drafts, speculation_changes_no_text) {
  const Generator generator = model().generator();
  std::mt19937 random(9);
  std::vector<Wanted> wanted(60);
  for (size_t i = 0; i < wanted.size(); ++i) {
    wanted[i].prompt = random_prompt(random, 1 + static_cast<int64_t>(random() % 40));
    if (i % 4) wanted[i].prompt[0] = LM_REPEATS;  // a text that repeats itself
    if (i % 3 == 0) wanted[i].most = 1 + random() % 40;
    if (i % 3) wanted[i].speculate = 1 + random() % 8;
    if (i % 2) {
      wanted[i].temperature = 0.25f * static_cast<float>(random() % 8);
      wanted[i].seed = static_cast<int64_t>(random());
    }
    if (i % 9 == 8) wanted[i].stops = {" "};
    if (i % 20 == 19) wanted[i].presence = 1;  // no step with it speculates
  }
  std::vector<Answer> answers(wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (i == 30) answers[i].most_parts = 4;
    submit(generator, wanted[i], answers[i], 1 + (i % 7 == 0), i % 5 == 0);
  }
  run(generator);
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (i == 30) {
      EXPECT_EQ(answers[i].texts[0].tokens.size(), 4u);
      continue;
    }
    for (const auto& [sample, text] : answers[i].texts) {
      const Text right = right_text(wanted[i], sample);
      EXPECT_EQ(text, right) << i;
      if (i % 5 == 0) {
        EXPECT_EQ(text.logits, right.logits) << i;
      }
    }
  }
  const husk_generator_stats counts = stats(generator);
  EXPECT_GT(counts.drafted_tokens, counts.accepted_tokens);
  EXPECT_GT(counts.accepted_tokens, 200u);
}

TEST(Drafts, speculation_takes_fewer_steps) {
  Wanted wanted;
  wanted.prompt = tokens_of("\x05 a text that repeats");
  uint64_t steps[2];
  for (const uint32_t speculate : {0u, 4u}) {
    const Generator generator = model().generator();
    wanted.speculate = speculate;
    Answer answer;
    submit(generator, wanted, answer);
    run(generator);
    EXPECT_EQ(answer.texts[0], right_text(wanted));
    EXPECT_GT(answer.texts[0].tokens.size(), 40u);
    steps[speculate ? 1 : 0] = stats(generator).steps;
  }
  EXPECT_LT(2 * steps[1], steps[0]);
}

}  // namespace
