// The generator with caches in pages, whose kernels fail if a token has no page.
#include "text/pages.h"

#include <gtest/gtest.h>

#include <random>

#include "requests.h"

namespace {

using namespace husk::test;

Generator reusing(const LoadedModel& model) {
  husk_generator_options options = HUSK_GENERATOR_OPTIONS_INIT;
  options.reuse_prefixes = 1;
  return model.generator(options);
}

// A request whose text has so many tokens.
Wanted request_with(std::vector<int32_t> prompt, size_t tokens) {
  Wanted wanted;
  wanted.prompt = std::move(prompt);
  wanted.most = tokens;
  for (wanted.seed = 1, wanted.temperature = 4; right_text(wanted).tokens.size() < tokens;) {
    ++wanted.seed;
  }
  return wanted;
}

TEST(Pages, are_shared_and_given_back) {
  husk::text::Pages pages;
  husk_error error;
  ASSERT_EQ(pages.open(5, 4, 3, 4, &error), husk::Status::ok);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(pages.add(0));
  EXPECT_EQ(pages.room(0), 12);
  pages.share(0, 1, 2);
  EXPECT_EQ(pages.used_count(), 3);
  EXPECT_EQ(pages.of(1)[1], pages.of(0)[1]);
  EXPECT_TRUE(pages.is_shared(0, 7));
  EXPECT_FALSE(pages.is_shared(0, 8));
  EXPECT_TRUE(pages.add(1));
  EXPECT_TRUE(pages.add(2));
  EXPECT_FALSE(pages.add(2));
  pages.begin_count();
  EXPECT_EQ(pages.count_first(0, 3), 3);
  EXPECT_EQ(pages.count_first(1, 9), 1);
  pages.share(0, 2, 1);  // in place of its own page
  EXPECT_EQ(pages.used_count(), 4);
  pages.keep(0, 5);
  EXPECT_EQ(pages.count_of(0), 2);
  EXPECT_EQ(pages.used_count(), 3);
  for (size_t slot = 0; slot < 3; ++slot) pages.keep(slot, 0);
  EXPECT_EQ(pages.used_count(), 0);
}

// Random requests, of which many begin alike, in few pages and in many, some with states beside
// them.
TEST(Pages, texts_are_those_of_slots) {
  uint64_t shared = 0, copied = 0, repeated = 0, accepted = 0;
  for (uint32_t seed = 0; seed < 72; ++seed) {
    ModelFile file;
    const int pools[] = {LM_COLUMNS, LM_COLUMNS + 3, 20, 3 * LM_COLUMNS};
    file.pages = pools[seed % 4];
    file.has_copy = seed % 3 != 0;
    file.has_states = seed >= 48;
    file.has_verify = !file.has_states && seed % 5 != 0;
    const LoadedModel model(file);
    husk_generator_options options = HUSK_GENERATOR_OPTIONS_INIT;
    options.chunk = seed % 7 == 0 ? 3 : 0;
    options.reuse_prefixes = seed % 2;
    options.runs = seed % 4;
    const Generator generator = model.generator(options);
    std::mt19937 random(seed);
    std::vector<Wanted> wanted(30);
    const std::vector<int32_t> beginning = random_prompt(random, LM_MOST);
    for (Wanted& one : wanted) {
      one.prompt = random_prompt(random, 1 + random() % (random() % 4 ? 30 : LM_MOST));
      if (random() % 2) {
        const size_t equal = random() % one.prompt.size();
        std::copy_n(beginning.begin(), equal, one.prompt.begin());
      }
      if (random() % 3 == 0) one.prompt[0] = LM_REPEATS;
      one.most = random() % 3 ? random() % 40 : 0;
      one.speculate = file.has_verify && random() % 2 ? random() % 6 : 0;
      if (random() % 2) {
        one.temperature = 0.5f * static_cast<float>(random() % 5);
        one.seed = static_cast<int64_t>(random());
      }
      if (random() % 6 == 0) one.presence = 1;
    }
    std::vector<Answer> answers(wanted.size());
    std::vector<uint32_t> samples(wanted.size());
    uint64_t texts = 0;
    for (size_t i = 0; i < wanted.size(); ++i) {
      samples[i] = random() % 4 ? 1 : 1 + random() % 4;
      texts += samples[i];
      if (i % 11 == 10) answers[i].most_parts = 2;
      submit(generator, wanted[i], answers[i], samples[i]);
      if (random() % 2) step(generator);
      EXPECT_LE(stats(generator).used_pages, static_cast<uint64_t>(file.pages));
    }
    run(generator);
    for (size_t i = 0; i < wanted.size(); ++i) {
      EXPECT_FALSE(answers[i].is_late);
      EXPECT_EQ(answers[i].failure, "");
      if (i % 11 == 10) continue;
      EXPECT_EQ(answers[i].texts.size(), samples[i]);
      for (const auto& [sample, text] : answers[i].texts) {
        EXPECT_EQ(text, right_text(wanted[i], sample)) << seed << ' ' << i;
      }
    }
    const husk_generator_stats counts = stats(generator);
    EXPECT_EQ(counts.ended, texts);
    EXPECT_EQ(counts.pages, static_cast<uint64_t>(file.pages));
    if (!options.reuse_prefixes) {
      EXPECT_EQ(counts.used_pages, 0u);
    }
    shared += counts.shared_tokens;
    copied += counts.copied_tokens;
    repeated += counts.repeated_tokens;
    accepted += counts.accepted_tokens;
  }
  // All of it has happened.
  EXPECT_GT(shared, 500u);
  EXPECT_GT(copied, 100u);
  EXPECT_GT(repeated, 500u);
  EXPECT_GT(accepted, 100u);
}

TEST(Pages, follow_use) {
  const LoadedModel model({.pages = 30});
  const Generator generator = model.generator();
  std::mt19937 random(1);
  const Wanted wanted = request_with(random_prompt(random, 5), 20);
  Answer answer;
  submit(generator, wanted, answer);
  for (uint64_t tokens = 1; step(generator); ++tokens) {
    // The prompt has a page for the next token.
    const uint64_t positions = 5 + (tokens == 1 ? 1 : tokens);
    EXPECT_EQ(stats(generator).used_pages, (positions + LM_PAGE - 1) / LM_PAGE) << tokens;
  }
  EXPECT_EQ(stats(generator).used_pages, 0u);
  EXPECT_EQ(answer.texts[0], right_text(wanted));
}

TEST(Pages, prompts_that_begin_alike_share_them) {
  for (const bool copies : {true, false}) {
    const LoadedModel model({.has_copy = copies, .pages = 30});
    const Generator generator = reusing(model);
    std::mt19937 random(2);
    const std::vector<int32_t> prompt = random_prompt(random, 60);
    std::vector<Wanted> wanted;
    std::vector<Answer> answers(LM_SLOTS);
    for (int i = 0; i < LM_SLOTS; ++i) {
      std::vector<int32_t> tokens(prompt.begin(), prompt.begin() + 48 + 12 * (i == 0));
      tokens.push_back(i);
      wanted.push_back(request_with(tokens, 16));
    }
    for (size_t i = 0; i < wanted.size(); ++i) {
      submit(generator, wanted[i], answers[i]);
      for (int k = 0; k < 6; ++k) step(generator);
    }
    // 48 tokens are in 6 pages, which all have, and 13 and 6 tokens and more in others.
    EXPECT_EQ(stats(generator).shared_tokens, 96u);
    EXPECT_LE(stats(generator).used_pages, 6u + 3 * 3);
    run(generator);
    for (size_t i = 0; i < wanted.size(); ++i) {
      EXPECT_EQ(answers[i].texts[0], right_text(wanted[i]));
      EXPECT_EQ(answers[i].reused, i ? 48u : 0u);
    }
    EXPECT_EQ(stats(generator).prompt_tokens, 61u + 1 + 1);
  }
}

TEST(Pages, samples_share_those_of_their_prompt) {
  const LoadedModel model({.pages = 30});
  const Generator generator = model.generator();
  std::mt19937 random(3);
  Wanted wanted;
  wanted.prompt = random_prompt(random, 45);
  wanted.temperature = 2;
  wanted.most = 9;
  Answer answer;
  submit(generator, wanted, answer, LM_SLOTS);
  for (int i = 0; i < 3; ++i) step(generator);
  const husk_generator_stats counts = stats(generator);
  EXPECT_EQ(counts.prompt_tokens, 45u);
  EXPECT_EQ(counts.shared_tokens, 2 * 40u);
  EXPECT_EQ(counts.copied_tokens, 2 * 5u);
  EXPECT_EQ(counts.used_pages, 5u + LM_SLOTS);
  run(generator);
  for (const auto& [sample, text] : answer.texts) EXPECT_EQ(text, right_text(wanted, sample));
}

TEST(Pages, samples_get_the_states_after_their_prompt) {
  for (const size_t size : {45, 48}) {  // a part of a page, and none
    const LoadedModel model({.has_verify = false, .has_states = true, .pages = 30});
    const Generator generator = model.generator();
    std::mt19937 random(3);
    Wanted wanted;
    wanted.prompt = random_prompt(random, size);
    wanted.temperature = 2;
    wanted.most = 9;
    Answer answer;
    submit(generator, wanted, answer, LM_SLOTS);
    run(generator);
    EXPECT_EQ(stats(generator).prompt_tokens, size);
    EXPECT_EQ(stats(generator).shared_tokens, 2 * (size / LM_PAGE) * LM_PAGE);
    for (const auto& [sample, text] : answer.texts) EXPECT_EQ(text, right_text(wanted, sample));
  }
}

TEST(Pages, a_prompt_waits_for_them) {
  const LoadedModel model({.pages = LM_COLUMNS});
  const Generator generator = model.generator();
  std::mt19937 random(4);
  std::vector<Wanted> wanted;
  for (const size_t size : {60, 60, 4}) {
    wanted.push_back(request_with(random_prompt(random, size), 8));
  }
  std::vector<Answer> answers(wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) submit(generator, wanted[i], answers[i]);
  step(generator);
  EXPECT_EQ(stats(generator).active, 1u);
  EXPECT_EQ(stats(generator).waiting, 2u);  // the last one does not overtake
  run(generator);
  for (size_t i = 0; i < wanted.size(); ++i) EXPECT_EQ(answers[i].texts[0], right_text(wanted[i]));
  EXPECT_EQ(stats(generator).repeated_tokens, 0u);
}

TEST(Pages, the_youngest_text_gives_its_own_away) {
  const LoadedModel model({.has_copy = false, .pages = LM_COLUMNS});
  const Generator generator = model.generator();
  std::mt19937 random(5);
  std::vector<Wanted> wanted;
  for (int i = 0; i < LM_SLOTS; ++i) {
    wanted.push_back(request_with(random_prompt(random, 20), 60));
  }
  std::vector<Answer> answers(wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) submit(generator, wanted[i], answers[i]);
  // The first request goes on with each step.
  for (size_t tokens = 0; answers[0].texts[0].reason == HUSK_TEXT_GOES_ON;) {
    step(generator);
    EXPECT_EQ(answers[0].texts[0].tokens.size() - tokens,
              answers[0].texts[0].tokens.empty() ? 0 : 1 + (tokens == 0));
    tokens = answers[0].texts[0].tokens.size();
  }
  EXPECT_LT(answers[2].texts[0].tokens.size(), 60u);
  run(generator);
  for (size_t i = 0; i < wanted.size(); ++i) EXPECT_EQ(answers[i].texts[0], right_text(wanted[i]));
  EXPECT_GT(stats(generator).repeated_tokens, 40u);
  EXPECT_EQ(stats(generator).prompt_tokens, 60u);
}

TEST(Pages, a_failed_run_gives_them_back) {
  const LoadedModel model({.pages = LM_COLUMNS});
  const Generator generator = reusing(model);
  Wanted wrong, right;
  wrong.prompt = std::vector<int32_t>(70, 5);
  for (size_t i = 52; i < 60; ++i) wrong.prompt[i] = LM_FORBIDDEN;
  right.prompt = std::vector<int32_t>(70, 5);
  Answer failed, answer;
  submit(generator, wrong, failed);
  int32_t more = 1;
  husk_status status = HUSK_OK;
  while (more && status == HUSK_OK) status = husk_generator_step(generator.get(), &more, nullptr);
  EXPECT_EQ(failed.texts[0].reason, HUSK_TEXT_FAILED);
  EXPECT_EQ(stats(generator).used_pages, 0u);
  submit(generator, right, answer);
  run(generator);
  EXPECT_EQ(answer.texts[0], right_text(right));
}

TEST(Pages, a_step_allocates_nothing) {
  const LoadedModel model({.pages = LM_COLUMNS});
  const Generator generator = reusing(model);
  PartCount count;
  husk_text_request request = HUSK_TEXT_REQUEST_INIT;
  request.text = "some words that have pages", request.bytes = 26, request.samples = 30;
  request.temperature = 1, request.max_new_tokens = 40;
  request.part = PartCount::part, request.user = &count;
  ASSERT_EQ(husk_generator_submit(generator.get(), &request, nullptr, nullptr), HUSK_OK);
  EXPECT_EQ(allocations_of_steps(generator), 0u);
  EXPECT_GT(count.parts, 300u);
  EXPECT_GT(stats(generator).repeated_tokens + stats(generator).shared_tokens, 0u);
}

TEST(Pages, a_file_has_those_of_one_sequence) {
  husk_error error;
  husk_generator* none = nullptr;
  EXPECT_EQ(
      LoadedModel({.pages = LM_COLUMNS - 1}).create(HUSK_GENERATOR_OPTIONS_INIT, &none, &error),
      HUSK_INVALID_FILE);
  EXPECT_STREQ(error.text,
               "the file is no language model, since it lacks pages for a sequence of max_tokens: "
               "`python -m husk llm` exports one");
  EXPECT_EQ(
      LoadedModel({.pages = 40, .page = 0}).create(HUSK_GENERATOR_OPTIONS_INIT, &none, &error),
      HUSK_INVALID_FILE);
}

}  // namespace
