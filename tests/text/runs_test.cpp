// Runs whose tokens are read together, texts that are alone, and draws from few candidates.
#include <gtest/gtest.h>

#include <random>

#include "../runtime/graph_port.h"
#include "requests.h"

namespace {

using namespace husk::test;

// A greedy request whose text ends by itself after `tokens` tokens.
Wanted ending_request(size_t tokens) {
  for (uint32_t seed = 0;; ++seed) {
    Wanted wanted;
    std::mt19937 random(seed);
    wanted.prompt = random_prompt(random, 5);
    const Text text = right_text(wanted);
    if (text.reason == HUSK_TEXT_END && text.tokens.size() == tokens) return wanted;
  }
}

TEST(Runs, give_the_texts_of_single_runs) {
  for (const ModelFile& file : kinds_of_files()) {
    const LoadedModel model(file);
    for (const uint32_t runs : {2u, 3u, 16u, 99u}) {
      const Generator generator = model.generator(options_of(runs, runs % 2));
      std::mt19937 random(runs);
      const bool needs_host = runs == 3;  // some steps have one run
      std::vector<Wanted> wanted(20);
      for (Wanted& one : wanted) one = random_request(random, needs_host);
      std::vector<Answer> answers(wanted.size());
      for (size_t i = 0; i < wanted.size(); ++i) {
        submit(generator, wanted[i], answers[i], 1 + i % 2, i % 3 == 0,
               needs_host && i % 5 == 0 ? 2 : 0);
        if (i % 3 == 0) step(generator);
      }
      run(generator);
      for (size_t i = 0; i < wanted.size(); ++i) {
        EXPECT_EQ(answers[i].texts.size(), 1 + i % 2);
        for (const auto& [sample, text] : answers[i].texts) {
          const Text right = right_text(wanted[i], sample);
          EXPECT_EQ(text, right) << i;
          if (i % 3 == 0) {
            EXPECT_EQ(text.logits, right.logits) << i;
          }
        }
        EXPECT_FALSE(answers[i].is_late);
      }
      if (!needs_host) {
        EXPECT_GT(stats(generator).runs_ahead, 50u);
      }
      EXPECT_EQ(stats(generator).single_runs > 0, file.has_single);
    }
  }
}

// The first of 9 tokens comes with the prompt, and the others with one step for so many runs. Only
// the first of these runs begins after the host has read the token before.
TEST(Runs, are_read_together) {
  for (const auto& [runs, steps] : {std::pair(1u, 8), {2u, 4}, {4u, 2}, {16u, 1}, {0u, 8}}) {
    const Generator generator = model().generator(options_of(runs));
    Wanted wanted = plain_request(1, 20);
    wanted.most = 9;
    Answer answer;
    submit(generator, wanted, answer);
    int taken = 1;
    while (step(generator)) ++taken;
    EXPECT_EQ(taken, steps) << runs;
    EXPECT_EQ(answer.texts[0], right_text(wanted));
    EXPECT_EQ(stats(generator).runs_ahead, steps == 8 ? 0u : 7u);
    EXPECT_EQ(stats(generator).new_tokens, 9u);
  }
}

// Devices whose memory is not the host's have several runs by themselves.
TEST(Runs, are_several_on_devices_with_memory_of_their_own) {
  static const husk_port port = [] {
    husk_port p = *graph_port();
    p.properties = [](void* device, husk_port_properties* out) {
      graph_port()->properties(device, out);
      out->host_memory = 0;
    };
    return p;
  }();
  const LoadedModel loaded({}, &port);
  const Generator generator = loaded.generator();
  const Wanted wanted = plain_request(1, 20);
  Answer answer;
  submit(generator, wanted, answer);
  run(generator);
  EXPECT_EQ(answer.texts[0], right_text(wanted));
  EXPECT_GT(stats(generator).runs_ahead, 0u);
}

// The host sees each token where it decides about the next one, and where another text may join.
TEST(Runs, are_one_where_the_host_needs_the_token) {
  const auto runs_ahead = [](const Wanted& wanted, uint32_t top = 0) {
    const Generator generator = model().generator(options_of(4));
    Answer answer;
    submit(generator, wanted, answer, 1, false, top);
    run(generator);
    EXPECT_EQ(answer.texts[0], right_text(wanted));
    return stats(generator).runs_ahead;
  };
  const Wanted plain = plain_request(1, 20);
  EXPECT_GT(runs_ahead(plain), 0u);
  EXPECT_EQ(runs_ahead(plain, 2), 0u);
  Wanted penalized = plain, masked = plain, speculating = plain;
  penalized.frequency = 0.5;
  masked.mask = 2;
  speculating.speculate = 3;
  for (const Wanted& one : {penalized, masked, speculating}) EXPECT_EQ(runs_ahead(one), 0u);
}

// A text that waits gets the slot of one that reaches its limit in the next step.
TEST(Runs, end_with_a_limit) {
  const Generator generator = model().generator(options_of(16));
  Wanted wanted = plain_request(1, 20), last = wanted;
  wanted.most = 6;
  std::vector<Answer> answers(LM_SLOTS);
  for (Answer& answer : answers) submit(generator, wanted, answer);
  Answer waiting;
  submit(generator, last, waiting);
  step(generator);
  for (Answer& answer : answers) EXPECT_EQ(answer.texts[0], right_text(wanted));
  EXPECT_TRUE(waiting.texts.empty());
  step(generator);
  EXPECT_EQ(waiting.texts.size(), 1u);
  run(generator);
  EXPECT_EQ(waiting.texts[0], right_text(last));
}

// Tokens after the end of a text are dropped, and its cache is of use for a prompt that goes on.
TEST(Runs, after_the_end_of_a_text_are_dropped) {
  for (const ModelFile& file : kinds_of_files()) {
    const LoadedModel model(file);
    for (const size_t count : {6u, 7u, 8u, 9u}) {
      const Generator generator = model.generator(options_of(4, true));
      const Wanted wanted = ending_request(count);
      const Text right = right_text(wanted);
      Answer answer;
      submit(generator, wanted, answer);
      run(generator);
      EXPECT_EQ(answer.texts[0], right);
      Wanted next = wanted;
      next.prompt.insert(next.prompt.end(), right.tokens.begin(), right.tokens.end());
      next.prompt.push_back('!');
      Answer other;
      submit(generator, next, other);
      run(generator);
      EXPECT_EQ(other.texts[0], right_text(next)) << count;
      // One run more than the text has tokens makes the end itself a token of the cache.
      if (!file.has_states) {
        EXPECT_GE(other.reused + 2, next.prompt.size()) << count;
      }
    }
  }
}

TEST(Runs, end_with_a_stop_text_and_a_cancellation) {
  const Wanted plain = plain_request(1, 20);
  const std::string all = right_text(plain).text;
  for (size_t at = 3; at < 12; ++at) {
    const Generator generator = model().generator(options_of(4));
    Wanted stopping = plain;
    stopping.stops = {all.substr(at, 3)};
    Answer stopped, cancelled, both[2];
    cancelled.most_parts = static_cast<int>(at);
    submit(generator, stopping, stopped);
    submit(generator, plain, cancelled);
    run(generator);
    EXPECT_EQ(stopped.texts[0], right_text(stopping));
    EXPECT_EQ(cancelled.texts[0].reason, HUSK_TEXT_CANCELLED);
    EXPECT_EQ(cancelled.texts[0].tokens.size(), at);
    EXPECT_FALSE(stopped.is_late || cancelled.is_late);
    // Another thread, or another callback, cancels between two steps.
    const uint64_t number = submit(generator, plain, both[0]);
    submit(generator, plain, both[1]);
    step(generator);
    EXPECT_EQ(husk_generator_cancel(generator.get(), number, nullptr), HUSK_OK);
    run(generator);
    EXPECT_EQ(both[0].texts[0].reason, HUSK_TEXT_CANCELLED);
    EXPECT_EQ(both[0].texts[0].tokens.size(), 5u);
    EXPECT_EQ(both[1].texts[0], right_text(plain));
  }
}

// A callback that cancels another request ends it before its next token.
struct Cancelling {
  husk_generator* generator = nullptr;
  uint64_t other = 0;
  uint64_t at = 0;
  static int32_t part(void* user, const husk_text_part* part) {
    auto& self = *static_cast<Cancelling*>(user);
    if (part->tokens == self.at) husk_generator_cancel(self.generator, self.other, nullptr);
    return 0;
  }
};

TEST(Runs, end_by_the_callback_of_another_text) {
  for (uint64_t at = 2; at < 8; ++at) {
    const Generator generator = model().generator(options_of(4));
    const Wanted plain = plain_request(1, 20);
    Cancelling first{generator.get(), 2, at};
    Answer unused, second;
    husk_text_request request = request_of(plain, unused);
    request.part = Cancelling::part;
    request.user = &first;
    ASSERT_EQ(husk_generator_submit(generator.get(), &request, nullptr, nullptr), HUSK_OK);
    submit(generator, plain, second);
    run(generator);
    EXPECT_EQ(second.texts[0].reason, HUSK_TEXT_CANCELLED);
    EXPECT_EQ(second.texts[0].tokens.size(), at);
    EXPECT_FALSE(second.is_late);
  }
}

// A text may fill the cache to its last position, and one that has no page ahead has one run.
TEST(Runs, fill_the_cache) {
  for (const int pages : {0, +LM_COLUMNS, LM_COLUMNS + 2}) {
    ModelFile file;
    file.pages = pages;
    const LoadedModel model(file);
    const Generator generator = model.generator(options_of(5));
    std::vector<Wanted> wanted(4);
    std::vector<Answer> answers(wanted.size());
    for (size_t i = 0; i < wanted.size(); ++i) {
      // The text is drawn until it does not end by itself.
      std::mt19937 random(static_cast<uint32_t>(i));
      wanted[i].prompt = random_prompt(random, 30 + i);
      wanted[i].temperature = 4;
      while (right_text(wanted[i]).reason != HUSK_TEXT_LENGTH) ++wanted[i].seed;
      submit(generator, wanted[i], answers[i]);
    }
    run(generator);
    for (size_t i = 0; i < wanted.size(); ++i) {
      EXPECT_EQ(answers[i].texts[0], right_text(wanted[i])) << pages << ' ' << i;
      EXPECT_EQ(answers[i].texts[0].tokens.size(), LM_MOST + 1 - wanted[i].prompt.size());
    }
  }
}

TEST(Runs, that_fail_end_the_texts_of_all_slots) {
  const Generator generator = model().generator(options_of(4));
  const Wanted plain = plain_request(3, 30);
  Wanted bad = plain;
  bad.prompt[1] = LM_FORBIDDEN;
  Answer failing, beside, after;
  submit(generator, plain, beside);
  step(generator);
  submit(generator, bad, failing);
  submit(generator, plain, after);
  husk_error error;
  EXPECT_NE(husk_generator_step(generator.get(), nullptr, &error), HUSK_OK);
  EXPECT_EQ(beside.texts[0].reason, HUSK_TEXT_FAILED);
  EXPECT_EQ(beside.texts[0].tokens.size(), 9u);  // those of the runs before the one that fails
  EXPECT_EQ(failing.texts[0].reason, HUSK_TEXT_FAILED);
  submit(generator, plain, after);
  run(generator);
}

TEST(Runs, allocate_nothing) {
  const Generator generator = model().generator(options_of(4));
  const Wanted plain = plain_request(1, 20);
  PartCount counts[2];
  for (PartCount& one : counts) {
    Answer unused;
    husk_text_request request = request_of(plain, unused);
    request.part = PartCount::part;
    request.user = &one;
    ASSERT_EQ(husk_generator_submit(generator.get(), &request, nullptr, nullptr), HUSK_OK);
  }
  step(generator);
  EXPECT_EQ(allocations_of_steps(generator), 0u);
}

}  // namespace
