#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <map>
#include <random>
#include <thread>

#include "../runtime/counting_malloc.h"
#include "loaded_model.h"

namespace {

using husk::test::Generator;
using husk::test::LoadedModel;
using husk::test::right_text;
using husk::test::Text;
using husk::test::Wanted;

// The texts of one request as the callback gets them.
struct Answer {
  std::map<uint32_t, Text> texts;
  std::vector<std::string> parts;  // of all texts
  std::string failure;
  uint64_t reused = 0;
  int most_parts = 1 << 30;  // the callback cancels the request afterwards
  bool is_late = false;      // a part came after the last one

  static int32_t part(void* user, const husk_text_part* part) {
    auto& answer = *static_cast<Answer*>(user);
    Text& text = answer.texts[part->sample];
    answer.is_late |= text.reason != HUSK_TEXT_GOES_ON;
    text.text.append(part->text, part->bytes);
    if (part->bytes) answer.parts.emplace_back(part->text, part->bytes);
    if (part->token >= 0) {
      text.tokens.push_back(part->token);
      text.logits.push_back(part->logprob);
    }
    EXPECT_EQ(part->tokens, text.tokens.size());
    text.reason = part->reason;
    answer.reused = part->reused;
    if (part->why) answer.failure = part->why->text;
    return --answer.most_parts <= 0;
  }
};

uint64_t submit(const Generator& generator, const Wanted& wanted, Answer& answer,
                uint32_t samples = 1, bool logprobs = false) {
  std::vector<husk_text_slice> stops;
  for (const std::string& one : wanted.stops) stops.push_back({one.data(), one.size()});
  husk_text_request request = HUSK_TEXT_REQUEST_INIT;
  request.tokens = wanted.prompt.data();
  request.token_count = wanted.prompt.size();
  request.max_new_tokens = wanted.most;
  request.samples = samples;
  request.temperature = wanted.temperature;
  request.top_k = wanted.top_k;
  request.top_p = wanted.top_p;
  request.seed = wanted.seed;
  request.logprobs = logprobs;
  request.stops = stops.data();
  request.stop_count = stops.size();
  request.part = Answer::part;
  request.user = &answer;
  uint64_t number = 0;
  husk_error error;
  EXPECT_EQ(husk_generator_submit(generator.get(), &request, &number, &error), HUSK_OK)
      << error.text;
  return number;
}

bool step(const Generator& generator) {
  int32_t more = 0;
  husk_error error;
  EXPECT_EQ(husk_generator_step(generator.get(), &more, &error), HUSK_OK) << error.text;
  return more;
}

void run(const Generator& generator) {
  while (step(generator)) {
  }
}

husk_generator_stats stats(const Generator& generator) {
  husk_generator_stats out = HUSK_GENERATOR_STATS_INIT;
  EXPECT_EQ(husk_generator_stats_get(generator.get(), &out, nullptr), HUSK_OK);
  return out;
}

std::vector<int32_t> tokens_of(const std::string& text) {
  std::vector<int32_t> tokens;
  for (const char one : text) tokens.push_back(static_cast<uint8_t>(one));
  return tokens;
}

std::vector<int32_t> random_prompt(std::mt19937& random, int64_t count) {
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  for (int32_t& token : tokens) token = static_cast<int32_t>(random() % 256);
  return tokens;
}

// A greedy request whose text begins with at least `characters` of ASCII, and is not cut.
Wanted plain_request(uint32_t seed, size_t characters) {
  for (std::mt19937 random(seed);;) {
    Wanted wanted;
    wanted.prompt = random_prompt(random, 4);
    const std::string text = right_text(wanted).text.substr(0, characters);
    const auto is_plain = [](char one) { return one >= ' ' && one <= '~'; };
    if (text.size() == characters && std::all_of(text.begin(), text.end(), is_plain)) {
      return wanted;
    }
  }
}

const LoadedModel& model() {
  static const LoadedModel loaded;
  return loaded;
}

TEST(Generate, texts_of_requests_that_join_and_leave) {
  for (const uint32_t chunk : {0u, 5u, 1u}) {
    husk_generator_options options = HUSK_GENERATOR_OPTIONS_INIT;
    options.chunk = chunk;
    const Generator generator = model().generator(options);
    std::mt19937 random(chunk);
    std::vector<Wanted> wanted;
    for (const int64_t count : {1, 2, 15, 16, 17, 33, 63, 64, 65, LM_MOST - 1, +LM_MOST, 3, 7, 1}) {
      Wanted one;
      one.prompt = random_prompt(random, count);
      one.most = random() % 3 ? random() % 40 : 0;
      if (random() % 2) {
        one.temperature = 0.5f + static_cast<float>(random() % 4);
        one.top_k = static_cast<int64_t>(random() % 50);
        one.top_p = random() % 2 ? 0.9f : 0;
        one.seed = static_cast<int64_t>(random()) << 20;
      }
      wanted.push_back(one);
    }
    std::vector<Answer> answers(wanted.size());
    for (size_t i = 0; i < wanted.size(); ++i) {
      submit(generator, wanted[i], answers[i], 1 + (i == 3), i % 4 == 0);
      if (i >= 4) step(generator);
    }
    run(generator);
    for (size_t i = 0; i < wanted.size(); ++i) {
      for (uint32_t sample = 0; sample < 1u + (i == 3); ++sample) {
        const Text right = right_text(wanted[i], sample);
        EXPECT_EQ(answers[i].texts[sample], right) << i;
        if (i % 4 == 0) {
          EXPECT_EQ(answers[i].texts[sample].logits, right.logits) << i;
        }
      }
      EXPECT_FALSE(answers[i].is_late);
    }
    const husk_generator_stats counts = stats(generator);
    EXPECT_EQ(counts.requests, wanted.size());
    EXPECT_EQ(counts.ended, wanted.size() + 1);
    EXPECT_EQ(counts.active + counts.waiting, 0u);
    EXPECT_LE(counts.model_nanoseconds, counts.step_nanoseconds);
  }
}

TEST(Generate, samples_have_seeds_of_their_own) {
  const Generator generator = model().generator();
  Wanted wanted;
  wanted.prompt = {1, 2, 3};
  wanted.temperature = 2;
  wanted.most = 9;
  wanted.seed = INT64_MAX - 3;
  Answer answer;
  submit(generator, wanted, answer, 4);  // more than there are slots
  run(generator);
  ASSERT_EQ(answer.texts.size(), 4u);
  for (const auto& [sample, text] : answer.texts) EXPECT_EQ(text, right_text(wanted, sample));
  EXPECT_NE(answer.texts[0].tokens, answer.texts[1].tokens);
}

TEST(Generate, a_stop_text_is_never_shown_in_part) {
  const Generator generator = model().generator();
  const Wanted plain = plain_request(1, 20);
  const std::string all = right_text(plain).text;
  // The stop text lies across tokens, which are bytes; others begin like the text and go on in
  // another way, or begin inside of the stop text.
  for (const std::vector<std::string>& stops :
       std::vector<std::vector<std::string>>{{all.substr(7, 6)},
                                             {all.substr(2, 4) + "\x01", all.substr(7, 6)},
                                             {all.substr(7, 6), all.substr(9, 2)},
                                             {all.substr(0, 1)},
                                             {all.substr(3, 17)}}) {
    Wanted wanted = plain;
    wanted.stops = stops;
    const Text right = right_text(wanted);
    ASSERT_EQ(right.reason, HUSK_TEXT_STOP);
    Answer answer;
    submit(generator, wanted, answer);
    run(generator);
    EXPECT_EQ(answer.texts[0], right);
  }
  // What is held back comes when the generation ends in another way.
  Wanted wanted = plain;
  wanted.stops = {all.substr(7, 6)};
  wanted.most = 10;
  Answer answer;
  submit(generator, wanted, answer);
  run(generator);
  EXPECT_EQ(answer.texts[0].text, all.substr(0, 10));
  EXPECT_EQ(answer.texts[0].reason, HUSK_TEXT_LENGTH);
  EXPECT_EQ(answer.parts.back(), all.substr(7, 3));
}

TEST(Generate, requests_are_cancelled) {
  const Generator generator = model().generator();
  const Wanted wanted = plain_request(2, 30);
  const std::string all = right_text(wanted).text;
  Answer active, held, waiting, by_result, others[2];
  Wanted holding = wanted;
  holding.stops = {all.substr(2, 20)};
  const uint64_t first = submit(generator, wanted, active);
  const uint64_t second = submit(generator, holding, held);
  by_result.most_parts = 3;
  submit(generator, wanted, by_result);
  submit(generator, wanted, others[0]);
  const uint64_t last = submit(generator, wanted, waiting, 2);
  submit(generator, wanted, others[1]);
  for (int i = 0; i < 5; ++i) step(generator);
  for (const uint64_t number : {first, second, last}) {
    EXPECT_EQ(husk_generator_cancel(generator.get(), number, nullptr), HUSK_OK);
  }
  run(generator);
  for (const Answer* answer : {&active, &held, &waiting, &by_result}) {
    for (const auto& [sample, text] : answer->texts) EXPECT_EQ(text.reason, HUSK_TEXT_CANCELLED);
    EXPECT_FALSE(answer->is_late);
  }
  EXPECT_EQ(active.texts[0].tokens.size(), 6u);
  EXPECT_EQ(active.texts[0].text, all.substr(0, 6));
  EXPECT_EQ(held.texts[0].text, all.substr(0, 6));
  EXPECT_EQ(held.parts,
            (std::vector<std::string>{all.substr(0, 1), all.substr(1, 1), all.substr(2, 4)}));
  EXPECT_EQ(waiting.texts.size(), 2u);
  EXPECT_TRUE(waiting.texts[0].tokens.empty());
  EXPECT_EQ(by_result.texts[0].tokens.size(), 3u);
  for (const Answer& other : others) EXPECT_EQ(other.texts.at(0), right_text(wanted));
  husk_error error;
  EXPECT_EQ(husk_generator_cancel(generator.get(), first, &error), HUSK_NOT_FOUND);
  EXPECT_STREQ(error.text, "no request has the number 1, or it is done");
}

TEST(Generate, a_failed_run_ends_what_has_a_slot) {
  const Generator generator = model().generator();
  const Wanted wanted = plain_request(3, 30);
  Wanted bad = wanted;
  bad.prompt = {5, LM_FORBIDDEN, 5};
  Answer active, failing, third, waiting;
  submit(generator, wanted, active);
  step(generator);
  submit(generator, bad, failing);
  submit(generator, bad, third);
  submit(generator, wanted, waiting);
  int32_t more = 0;
  husk_error error;
  EXPECT_EQ(husk_generator_step(generator.get(), &more, &error), HUSK_KERNEL);
  EXPECT_EQ(more, 1);
  for (const Answer* answer : {&active, &failing, &third}) {
    EXPECT_EQ(answer->texts.at(0).reason, HUSK_TEXT_FAILED);
    EXPECT_NE(answer->failure.find("the model does not take this token"), std::string::npos);
  }
  run(generator);
  EXPECT_EQ(waiting.texts[0], right_text(wanted));
}

TEST(Generate, a_prompt_that_the_cache_has_begins_later) {
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

TEST(Generate, a_request_that_is_wrong_is_refused_alone) {
  const Generator generator = model().generator();
  const Wanted good = plain_request(4, 10);
  Answer answer;
  submit(generator, good, answer);
  step(generator);
  const std::vector<int32_t> token = {5}, unknown = {5, LM_VOCABULARY}, long_prompt(LM_MOST + 1, 5);
  const auto refused = [&](const husk_text_request& request, husk_status status) -> std::string {
    husk_error error = {};
    uint64_t number = 77;
    EXPECT_EQ(husk_generator_submit(generator.get(), &request, &number, &error), status);
    EXPECT_EQ(number, 77u);
    return error.text;
  };
  husk_text_request request = HUSK_TEXT_REQUEST_INIT;
  request.tokens = token.data(), request.token_count = 1;
  EXPECT_EQ(refused(request, HUSK_INVALID_ARGUMENT), "husk_text_request: part is NULL");
  request.part = Answer::part;
  husk_text_request wrong = request;
  wrong.tokens = nullptr;
  EXPECT_EQ(refused(wrong, HUSK_INVALID_ARGUMENT), "husk_text_request: text and tokens is NULL");
  wrong = request, wrong.token_count = 0;
  EXPECT_EQ(refused(wrong, HUSK_INVALID_INPUT), "the prompt has no tokens");
  wrong = request, wrong.tokens = unknown.data(), wrong.token_count = 2;
  EXPECT_EQ(refused(wrong, HUSK_INVALID_INPUT), "no token has the number 260: there are 260");
  wrong = request, wrong.tokens = long_prompt.data(), wrong.token_count = long_prompt.size();
  EXPECT_EQ(refused(wrong, HUSK_INVALID_INPUT),
            "the prompt has 97 tokens, but a sequence of this file has up to 96: shorten it, or "
            "export the model with a larger max_tokens");
  wrong = request, wrong.text = "a\xFF", wrong.bytes = 2;
  EXPECT_EQ(refused(wrong, HUSK_INVALID_INPUT), "the text is no UTF-8: byte 1 is 0xFF");
  wrong = request, wrong.temperature = NAN;
  EXPECT_EQ(refused(wrong, HUSK_INVALID_ARGUMENT), "temperature is nan: give 0 or more");
  wrong = request, wrong.top_k = -1;
  EXPECT_EQ(refused(wrong, HUSK_INVALID_ARGUMENT), "top_k is -1: give 0 for no limit, or more");
  wrong = request, wrong.top_p = 1.5;
  EXPECT_EQ(refused(wrong, HUSK_INVALID_ARGUMENT), "top_p is 1.5: give a number from 0 to 1");
  wrong = request, wrong.samples = 1 << 17;
  EXPECT_EQ(refused(wrong, HUSK_INVALID_ARGUMENT), "samples is 131072: give 65536 at most");
  const husk_text_slice stops[] = {{"a", 1}, {"\xC3", 1}, {"", 0}};
  wrong = request, wrong.stops = stops, wrong.stop_count = 2;
  EXPECT_EQ(refused(wrong, HUSK_INVALID_INPUT),
            "stop text 1: the text is no UTF-8: byte 0 is 0xC3");
  wrong = request, wrong.stops = stops + 2, wrong.stop_count = 1;
  EXPECT_EQ(refused(wrong, HUSK_INVALID_ARGUMENT), "an empty stop text would end each generation");
  wrong = request, wrong.struct_size = 20;
  EXPECT_EQ(refused(wrong, HUSK_INVALID_ARGUMENT),
            "husk_text_request.struct_size is 20, must be at least " +
                std::to_string(sizeof(husk_text_request)));
  run(generator);
  EXPECT_EQ(answer.texts[0], right_text(good));
  EXPECT_EQ(stats(generator).requests, 1u);
}

TEST(Generate, files_that_lack_a_part) {
  husk_error error;
  husk_generator* none = nullptr;
  EXPECT_EQ(LoadedModel({.is_model = false}).create(HUSK_GENERATOR_OPTIONS_INIT, &none, &error),
            HUSK_INVALID_FILE);
  EXPECT_STREQ(error.text,
               "the file is no language model, since it lacks the metadata husk.text.model: "
               "`python -m husk llm` exports one");
  EXPECT_EQ(none, nullptr);

  const LoadedModel bare({.has_tokenizer = false, .has_roles = false});
  const Generator generator = bare.generator();
  EXPECT_EQ(husk_generator_tokenizer(generator.get()), nullptr);
  Answer answer;
  Wanted wanted;
  wanted.prompt = {1, 2};
  wanted.most = 4;
  submit(generator, wanted, answer);
  run(generator);
  EXPECT_EQ(answer.texts[0].tokens, right_text(wanted).tokens);
  EXPECT_EQ(answer.texts[0].text, "");
  husk_text_request request = HUSK_TEXT_REQUEST_INIT;
  request.text = "a", request.bytes = 1, request.part = Answer::part;
  EXPECT_EQ(husk_generator_submit(generator.get(), &request, nullptr, &error), HUSK_UNSUPPORTED);
  EXPECT_STREQ(error.text, "the file has no tokenizer: give the prompt as tokens");
  husk_chat* chat = nullptr;
  EXPECT_EQ(husk_generator_chat(generator.get(), &chat, &error), HUSK_UNSUPPORTED);
  EXPECT_STREQ(error.text,
               "the file has a chat template of a form that only Jinja fills in: husk.text.load "
               "does it in Python");
}

TEST(Generate, a_chat_and_the_settings_of_the_author) {
  const Generator generator = model().generator();
  husk_chat* created = nullptr;
  ASSERT_EQ(husk_generator_chat(generator.get(), &created, nullptr), HUSK_OK);
  const std::unique_ptr<husk_chat, husk::test::Release> chat(created);
  ASSERT_EQ(husk_chat_add(chat.get(), "user", "hi", 2, nullptr), HUSK_OK);
  husk_text_request request = HUSK_TEXT_REQUEST_INIT;
  ASSERT_EQ(husk_chat_text(chat.get(), &request.text, &request.bytes, nullptr), HUSK_OK);
  husk_generator_recommend(generator.get(), &request);
  EXPECT_EQ(request.temperature, 0.5f);
  EXPECT_EQ(request.top_k, 9);
  EXPECT_EQ(request.top_p, 1);
  Answer answer;
  request.part = Answer::part;
  request.user = &answer;
  request.max_new_tokens = 6;
  ASSERT_EQ(husk_generator_submit(generator.get(), &request, nullptr, nullptr), HUSK_OK);
  run(generator);
  Wanted wanted;
  wanted.prompt = tokens_of("U:hi.A:");
  wanted.most = 6;
  wanted.temperature = 0.5f;
  wanted.top_k = 9;
  EXPECT_EQ(answer.texts[0], right_text(wanted));
}

TEST(Generate, a_text_may_go_on_after_its_end) {
  const Generator generator = model().generator();
  Wanted wanted;
  std::mt19937 random(5);
  do {
    wanted.prompt = random_prompt(random, 4);
  } while (right_text(wanted).reason != HUSK_TEXT_END);
  const size_t end = right_text(wanted).tokens.size();
  Answer answer;
  husk_text_request request = HUSK_TEXT_REQUEST_INIT;
  request.tokens = wanted.prompt.data(), request.token_count = 4, request.ignore_end = 1;
  request.part = Answer::part, request.user = &answer;
  ASSERT_EQ(husk_generator_submit(generator.get(), &request, nullptr, nullptr), HUSK_OK);
  run(generator);
  EXPECT_EQ(answer.texts[0].reason, HUSK_TEXT_LENGTH);
  EXPECT_EQ(answer.texts[0].tokens.size(), LM_MOST + 1u - 4);
  EXPECT_EQ(answer.texts[0].tokens[end - 1], LM_END);
}

TEST(Generate, a_step_in_a_callback_is_refused) {
  struct Caller {
    husk_generator* generator;
    husk_error error;
    int parts = 0;
    Answer answer;
  };
  const Generator generator = model().generator();
  Caller caller = {generator.get(), {}, 0, {}};
  const int32_t token = 5;
  husk_text_request request = HUSK_TEXT_REQUEST_INIT;
  request.tokens = &token, request.token_count = 1, request.max_new_tokens = 3;
  request.user = &caller;
  request.part = [](void* user, const husk_text_part*) -> int32_t {
    auto& own = *static_cast<Caller*>(user);
    EXPECT_EQ(husk_generator_step(own.generator, nullptr, &own.error), HUSK_INVALID_ARGUMENT);
    if (++own.parts == 1) {  // a callback may submit, and cancel
      husk_text_request other = HUSK_TEXT_REQUEST_INIT;
      const int32_t prompt[] = {7, 8};
      other.tokens = prompt, other.token_count = 2, other.max_new_tokens = 4;
      other.part = Answer::part, other.user = &own.answer;
      uint64_t number = 0;
      for (int i = 0; i < 2; ++i) {
        EXPECT_EQ(husk_generator_submit(own.generator, &other, &number, nullptr), HUSK_OK);
      }
      EXPECT_EQ(husk_generator_cancel(own.generator, number, nullptr), HUSK_OK);
    }
    return 0;
  };
  ASSERT_EQ(husk_generator_submit(generator.get(), &request, nullptr, nullptr), HUSK_OK);
  run(generator);
  EXPECT_STREQ(caller.error.text, "a step of this generator is in progress");
  EXPECT_GT(caller.parts, 0);
  EXPECT_EQ(stats(generator).ended, 3u);
}

TEST(Generate, a_step_allocates_nothing) {
  const Generator generator = model().generator();
  struct Count {
    uint64_t parts = 0;
    static int32_t part(void* user, const husk_text_part*) {
      ++static_cast<Count*>(user)->parts;
      return 0;
    }
  } count;
  const husk_text_slice stop = {"never in a text", 15};
  husk_text_request request = HUSK_TEXT_REQUEST_INIT;
  request.text = "some words", request.bytes = 10, request.samples = 30;
  request.temperature = 1, request.max_new_tokens = 12;
  request.stops = &stop, request.stop_count = 1;
  request.part = Count::part, request.user = &count;
  ASSERT_EQ(husk_generator_submit(generator.get(), &request, nullptr, nullptr), HUSK_OK);
  step(generator);
  const uint64_t before = husk::test::malloc_calls();
  while (step(generator)) {
  }
  EXPECT_EQ(husk::test::malloc_calls() - before, 0u);
  EXPECT_GT(count.parts, 100u);
}

TEST(Generate, other_threads_submit_and_cancel) {
  const Generator generator = model().generator();
  struct Shared {
    std::atomic<uint64_t> ended{0};
    static int32_t part(void* user, const husk_text_part* part) {
      if (part->reason != HUSK_TEXT_GOES_ON) ++static_cast<Shared*>(user)->ended;
      return 0;
    }
  } shared;
  constexpr int kThreads = 2, kRequests = 60;
  std::vector<std::thread> threads;
  std::atomic<int> open{kThreads};
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      for (int i = 0; i < kRequests; ++i) {
        const int32_t prompt[] = {thread, i};
        husk_text_request request = HUSK_TEXT_REQUEST_INIT;
        request.tokens = prompt, request.token_count = 2, request.max_new_tokens = 9;
        request.samples = 2, request.part = Shared::part, request.user = &shared;
        uint64_t number = 0;
        EXPECT_EQ(husk_generator_submit(generator.get(), &request, &number, nullptr), HUSK_OK);
        if (i % 3 == 0) (void)husk_generator_cancel(generator.get(), number, nullptr);
        (void)stats(generator);
      }
      --open;
    });
  }
  while (true) {
    const bool is_last = open == 0;
    if (!step(generator) && is_last) break;
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(shared.ended, 2u * kThreads * kRequests);
}

TEST(Generate, null_arguments) {
  husk_error error;
  EXPECT_EQ(husk_generator_create(nullptr, nullptr, nullptr, nullptr, &error),
            HUSK_INVALID_ARGUMENT);
  EXPECT_EQ(husk_generator_submit(nullptr, nullptr, nullptr, &error), HUSK_INVALID_ARGUMENT);
  EXPECT_EQ(husk_generator_cancel(nullptr, 1, &error), HUSK_INVALID_ARGUMENT);
  EXPECT_EQ(husk_generator_step(nullptr, nullptr, &error), HUSK_INVALID_ARGUMENT);
  EXPECT_EQ(husk_generator_stats_get(nullptr, nullptr, &error), HUSK_INVALID_ARGUMENT);
  EXPECT_EQ(husk_generator_chat(nullptr, nullptr, &error), HUSK_INVALID_ARGUMENT);
  EXPECT_EQ(husk_generator_tokenizer(nullptr), nullptr);
  husk_generator_release(nullptr);
  // Requests that are not done go with the generator.
  const Generator generator = model().generator();
  Answer answer;
  Wanted wanted;
  wanted.prompt = {1};
  submit(generator, wanted, answer, 5);
  step(generator);
}

}  // namespace
