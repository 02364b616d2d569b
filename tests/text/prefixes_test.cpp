// Prompts of which a slot has a part already, and the states of slots.
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "requests.h"

namespace {

using husk::test::Answer;
using husk::test::Generator;
using husk::test::LoadedModel;
using husk::test::model;
using husk::test::plain_request;
using husk::test::random_prompt;
using husk::test::right_text;
using husk::test::run;
using husk::test::stats;
using husk::test::step;
using husk::test::submit;
using husk::test::Text;
using husk::test::tokens_of;
using husk::test::Wanted;

TEST(Prefixes, a_prompt_that_the_cache_has_begins_later) {
  husk_generator_options options = HUSK_GENERATOR_OPTIONS_INIT;
  options.reuse_prefixes = 1;
  const Generator generator = model().generator(options);
  Wanted wanted;
  wanted.prompt = tokens_of("a prompt of more than one chunk, which others share");
  wanted.most = 5;
  Answer first, other, again, longer;
  submit(generator, wanted, first);
  run(generator);
  Wanted another = wanted;
  another.prompt = tokens_of("another one");
  submit(generator, another, other);  // it takes the slot whose cache begins with "a"
  submit(generator, wanted, again);
  run(generator);
  EXPECT_EQ(other.reused, 1u);
  EXPECT_EQ(again.reused, 0u);
  Wanted more = wanted;
  more.prompt.insert(more.prompt.end(), again.texts[0].tokens.begin(), again.texts[0].tokens.end());
  more.prompt.push_back(7);
  submit(generator, more, longer);
  run(generator);
  // The last token of a text is not in the cache.
  EXPECT_EQ(longer.reused, wanted.prompt.size() + 4);
  for (const auto& [answer, request] :
       {std::pair{&first, &wanted}, {&other, &another}, {&again, &wanted}, {&longer, &more}}) {
    EXPECT_EQ(answer->texts[0], right_text(*request));
  }
  EXPECT_EQ(stats(generator).reused_tokens, 1 + wanted.prompt.size() + 4);
}

TEST(Prefixes, prompts_that_begin_alike_are_taken_once) {
  const std::string system = "a system message of more than two chunks, so 40 tokens";
  std::vector<Wanted> wanted(3);
  for (size_t i = 0; i < wanted.size(); ++i) {
    wanted[i].prompt = tokens_of(system + " and question " + std::to_string(i));
    wanted[i].most = 5;
  }
  const auto run_all = [&](int32_t reuse_prefixes, bool has_copy) {
    const LoadedModel other({.has_copy = false});
    husk_generator_options options = HUSK_GENERATOR_OPTIONS_INIT;
    options.reuse_prefixes = reuse_prefixes;
    const Generator generator = (has_copy ? model() : other).generator(options);
    std::vector<Answer> answers(wanted.size());
    submit(generator, wanted[0], answers[0]);
    if (!reuse_prefixes) run(generator);
    for (size_t i = 1; i < wanted.size(); ++i) submit(generator, wanted[i], answers[i]);
    run(generator);
    for (size_t i = 0; i < wanted.size(); ++i) {
      EXPECT_EQ(answers[i].texts[0], right_text(wanted[i])) << i;
    }
    return stats(generator);
  };
  const uint64_t size = wanted[0].prompt.size(), chunks = (size + LM_CHUNK - 1) / LM_CHUNK;
  EXPECT_EQ(run_all(0, true).prompt_runs, 3 * chunks);
  EXPECT_EQ(run_all(1, false).copied_tokens, 0u);
  // All three are taken at the same time, and each chunk by one of them.
  const husk_generator_stats shared = run_all(1, true);
  EXPECT_EQ(shared.prompt_runs, chunks + 2);
  EXPECT_EQ(shared.prompt_tokens + shared.reused_tokens, 3 * size);
  EXPECT_EQ(shared.copied_tokens, shared.reused_tokens);
}

TEST(Prefixes, a_prompt_is_copied_from_a_slot_in_use) {
  husk_generator_options options = HUSK_GENERATOR_OPTIONS_INIT;
  options.reuse_prefixes = 1;
  const Generator generator = model().generator(options);
  Wanted wanted = plain_request(8, 12);
  Answer first, second;
  submit(generator, wanted, first);
  for (int i = 0; i < 8; ++i) step(generator);
  // A conversation that goes on while the answer before is not complete.
  Wanted longer = wanted;
  longer.prompt.insert(longer.prompt.end(), first.texts[0].tokens.begin(),
                       first.texts[0].tokens.begin() + 7);
  longer.prompt.push_back('?');
  submit(generator, longer, second);
  run(generator);
  EXPECT_EQ(second.reused, wanted.prompt.size() + 7);
  EXPECT_EQ(stats(generator).copied_tokens, wanted.prompt.size() + 7);
  EXPECT_EQ(first.texts[0], right_text(wanted));
  EXPECT_EQ(second.texts[0], right_text(longer));
}

// A model whose slots have states, without pages and with some.
class States : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Pages, States, testing::Values(0, 40));

// Requests whose prompts go on from one another.
TEST_P(States, belong_to_all_tokens_of_a_slot) {
  const LoadedModel stateful({.has_verify = false, .has_states = true, .pages = GetParam()});
  husk_generator_options options = HUSK_GENERATOR_OPTIONS_INIT;
  options.reuse_prefixes = 1;
  const Generator generator = stateful.generator(options);
  Wanted wanted;
  wanted.prompt = tokens_of("a prompt of more than one chunk, which others share");
  wanted.most = 5;
  const auto reused_by = [&](const Wanted& request) {
    Answer answer;
    submit(generator, request, answer);
    run(generator);
    EXPECT_EQ(answer.texts[0], right_text(request));
    return answer.reused;
  };
  EXPECT_EQ(reused_by(wanted), 0u);
  EXPECT_EQ(reused_by(wanted), 0u);  // the slot has tokens of the text too
  Wanted longer = wanted;
  const std::vector<int32_t> text = right_text(wanted).tokens;
  longer.prompt.insert(longer.prompt.end(), text.begin(), text.end());
  longer.prompt.push_back('?');
  EXPECT_EQ(reused_by(longer), wanted.prompt.size() + 4);
  Wanted shorter = wanted;
  shorter.prompt.resize(20);
  EXPECT_EQ(reused_by(shorter), 0u);
  Wanted other = wanted;
  other.prompt.back() = '!';
  EXPECT_EQ(reused_by(other), 0u);
  for (const int64_t size : {1, 2, 16, 17, 33}) {
    std::mt19937 random(static_cast<uint32_t>(size));
    Wanted one;
    one.prompt = random_prompt(random, size);
    one.most = 9;
    EXPECT_EQ(reused_by(one), 0u) << size;
  }
}

TEST_P(States, are_copied_where_they_belong) {
  const LoadedModel stateful({.has_verify = false, .has_states = true, .pages = GetParam()});
  husk_generator_options options = HUSK_GENERATOR_OPTIONS_INIT;
  options.reuse_prefixes = 1;
  const Generator generator = stateful.generator(options);
  // Three prompts that begin alike are taken at the same time: whole chunks of one are copied.
  const std::string shared = "a system message of more than two chunks, and question ";
  std::vector<Wanted> wanted(3);
  std::vector<Answer> answers(wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) {
    wanted[i].prompt = tokens_of(shared + std::to_string(i));
    wanted[i].most = 5 + i;
    submit(generator, wanted[i], answers[i]);
  }
  run(generator);
  for (size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_EQ(answers[i].texts[0], right_text(wanted[i])) << i;
  }
  EXPECT_EQ(stats(generator).copied_tokens + stats(generator).shared_tokens,
            2 * (shared.size() / LM_CHUNK) * LM_CHUNK);
  // Samples get the state after their prompt, whatever their slots had.
  Wanted sampled = wanted[1];
  sampled.temperature = 2;
  Answer samples;
  submit(generator, sampled, samples, 3);
  run(generator);
  EXPECT_EQ(samples.texts.size(), 3u);
  for (const auto& [sample, text] : samples.texts) EXPECT_EQ(text, right_text(sampled, sample));
}

TEST_P(States, are_those_after_a_step_that_ends_a_text) {
  const LoadedModel stateful({.has_verify = false, .has_states = true, .pages = GetParam()});
  husk_generator_options options = HUSK_GENERATOR_OPTIONS_INIT;
  options.reuse_prefixes = 1;
  const Generator generator = stateful.generator(options);
  // The mask of the third token ends the text, after the run that has taken the second one.
  Wanted wanted = plain_request(8, 12);
  Text text;
  struct Masked {
    Text* text;
    static int32_t part(void* user, const husk_text_part* part) {
      if (part->token >= 0) static_cast<Masked*>(user)->text->tokens.push_back(part->token);
      return 0;
    }
    static int32_t allow(void*, const husk_text_choice* choice) { return choice->token_count == 2; }
  } masked{&text};
  husk_text_request request = HUSK_TEXT_REQUEST_INIT;
  request.tokens = wanted.prompt.data();
  request.token_count = wanted.prompt.size();
  request.part = Masked::part;
  request.allow = Masked::allow;
  request.user = &masked;
  husk_error error;
  ASSERT_EQ(husk_generator_submit(generator.get(), &request, nullptr, &error), HUSK_OK)
      << error.text;
  run(generator);
  ASSERT_EQ(text.tokens.size(), 2u);
  for (const size_t kept : {size_t{1}, size_t{2}}) {
    Wanted longer = wanted;
    longer.most = 6;
    longer.prompt.insert(longer.prompt.end(), text.tokens.begin(),
                         text.tokens.begin() + static_cast<std::ptrdiff_t>(kept));
    longer.prompt.push_back('?');
    Answer answer;
    submit(generator, longer, answer);
    run(generator);
    EXPECT_EQ(answer.texts[0], right_text(longer)) << kept;
  }
}

TEST(Prefixes, samples_take_their_prompt_once) {
  for (const int64_t size : {1, 7, 17, 40}) {
    const Generator generator = model().generator();
    std::mt19937 random(static_cast<uint32_t>(size));
    Wanted wanted;
    wanted.prompt = random_prompt(random, size);
    wanted.temperature = 2;
    wanted.most = 9;
    Answer answer;
    submit(generator, wanted, answer, 3);
    run(generator);
    for (const auto& [sample, text] : answer.texts) EXPECT_EQ(text, right_text(wanted, sample));
    EXPECT_EQ(answer.texts.size(), 3u);
    const husk_generator_stats counts = stats(generator);
    EXPECT_EQ(counts.prompt_runs, (static_cast<uint64_t>(size) + LM_CHUNK - 1) / LM_CHUNK);
    EXPECT_EQ(counts.copied_tokens, 2 * wanted.prompt.size());
  }
}

}  // namespace
