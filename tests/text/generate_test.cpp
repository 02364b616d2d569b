#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <random>
#include <thread>

#include "../runtime/graph_port.h"
#include "requests.h"

namespace {

using husk::test::allocations_of_steps;
using husk::test::Answer;
using husk::test::Generator;
using husk::test::LoadedModel;
using husk::test::model;
using husk::test::PartCount;
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

// The port of the host with graphs, which counts their launches.
int graph_launches = 0;

const husk_port* counting_port() {
  static const husk_port_graphs graphs = [] {
    husk_port_graphs g = *husk::test::graph_port()->graphs;
    g.exec_launch = [](void* device, void* exec, void* stream, husk_error* error) {
      ++graph_launches;
      return husk::test::graph_port()->graphs->exec_launch(device, exec, stream, error);
    };
    return g;
  }();
  static const husk_port port = [] {
    husk_port p = *husk::test::graph_port();
    p.graphs = &graphs;
    return p;
  }();
  return &port;
}

TEST(Generate, runs_are_launches_of_graphs) {
  const LoadedModel loaded({}, counting_port());
  const Generator generator = loaded.generator();
  std::vector<Wanted> wanted(4);
  std::vector<Answer> answers(wanted.size());
  graph_launches = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    std::mt19937 random(static_cast<uint32_t>(i));
    wanted[i].prompt = random_prompt(random, 5 + 3 * i);
    wanted[i].most = 9 + 7 * i;
    submit(generator, wanted[i], answers[i]);
  }
  int steps = 0;
  for (bool more = true; more; ++steps) more = step(generator);
  for (size_t i = 0; i < wanted.size(); ++i) EXPECT_EQ(answers[i].texts[0], right_text(wanted[i]));
  EXPECT_GE(graph_launches, steps);
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
        one.min_p = random() % 2 ? 0.25f : 0;
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

TEST(Generate, penalties_and_masks_belong_to_a_request) {
  const Generator generator = model().generator();
  std::mt19937 random(6);
  std::vector<Wanted> wanted(40);
  for (size_t i = 0; i < wanted.size(); ++i) {
    wanted[i].prompt = random_prompt(random, 1 + static_cast<int64_t>(random() % 40));
    wanted[i].most = 25;
    wanted[i].temperature = i % 3 ? 0 : 1;
    if (i % 2) wanted[i].repetition = 1.0f + static_cast<float>(random() % 8) / 4;
    if (i % 4 == 2) wanted[i].presence = 1.5f;
    if (i % 5 == 2) wanted[i].frequency = 0.75f;
    if (i % 3 == 1) wanted[i].mask = 1 + random() % 100;
  }
  std::vector<Answer> answers(wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) {
    const uint32_t samples = 1 + static_cast<uint32_t>(i % 7 == 0);
    submit(generator, wanted[i], answers[i], samples, true, static_cast<uint32_t>(i % 5));
  }
  run(generator);
  for (size_t i = 0; i < wanted.size(); ++i) {
    for (const auto& [sample, text] : answers[i].texts) {
      const Text right = right_text(wanted[i], sample);
      EXPECT_EQ(text, right) << i;
      EXPECT_EQ(text.logits, right.logits) << i;  // those of the model
    }
    std::vector<int32_t> all = wanted[i].prompt;
    for (size_t k = 0; k < answers[i].top.size() && answers[i].texts.size() == 1; ++k) {
      float logits[LM_VOCABULARY];
      lm_logits_after(all.data(), static_cast<int64_t>(all.size()), logits);
      ASSERT_EQ(answers[i].top[k].size(), i % 5);
      for (size_t j = 0; j < i % 5; ++j) {
        EXPECT_EQ(answers[i].top[k][j], lm_ranked(logits, static_cast<int32_t>(j)));
      }
      all.push_back(answers[i].texts[0].tokens[k]);
    }
  }
}

TEST(Generate, a_mask_that_allows_nothing_ends_its_text) {
  const Generator generator = model().generator();
  struct Masked {
    Answer answer;
    uint64_t last;
    int32_t result;
    static int32_t allow(void* user, const husk_text_choice* choice) {
      const auto& masked = *static_cast<Masked*>(user);
      if (choice->token_count < masked.last) return 0;
      // Bits without a token do not count.
      for (size_t i = 0; i < choice->word_count; ++i) choice->allowed[i] = 0;
      choice->allowed[choice->word_count - 1] = ~0u << LM_VOCABULARY % 32;
      return masked.result;
    }
    static int32_t part(void* user, const husk_text_part* part) {
      return Answer::part(&static_cast<Masked*>(user)->answer, part);
    }
  } masked[] = {{{}, 0, 0}, {{}, 4, 0}, {{}, 2, 1}};
  const Wanted wanted = plain_request(7, 12);
  husk_text_request request = HUSK_TEXT_REQUEST_INIT;
  request.tokens = wanted.prompt.data(), request.token_count = wanted.prompt.size();
  request.allow = Masked::allow, request.part = Masked::part;
  for (Masked& one : masked) {
    request.user = &one;
    ASSERT_EQ(husk_generator_submit(generator.get(), &request, nullptr, nullptr), HUSK_OK);
  }
  Answer other;
  submit(generator, wanted, other);
  run(generator);
  EXPECT_EQ(masked[0].answer.failure,
            "the mask of request 1 allows no token after 0: let it allow the end of the text");
  EXPECT_EQ(masked[1].answer.failure,
            "the mask of request 2 allows no token after 4: let it allow the end of the text");
  EXPECT_EQ(masked[1].answer.texts[0].tokens.size(), 4u);
  EXPECT_EQ(masked[2].answer.texts[0].reason, HUSK_TEXT_CANCELLED);
  EXPECT_EQ(masked[2].answer.texts[0].tokens.size(), 2u);
  EXPECT_EQ(other.texts[0], right_text(wanted));
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
  wrong = request, wrong.min_p = -1;
  EXPECT_EQ(refused(wrong, HUSK_INVALID_ARGUMENT), "min_p is -1: give a number from 0 to 1");
  wrong = request, wrong.repetition_penalty = -1;
  EXPECT_EQ(refused(wrong, HUSK_INVALID_ARGUMENT),
            "repetition_penalty is -1: give a number above 0, or 0 for none");
  wrong = request, wrong.presence_penalty = INFINITY;
  EXPECT_EQ(refused(wrong, HUSK_INVALID_ARGUMENT), "presence_penalty is inf: give a finite number");
  wrong = request, wrong.frequency_penalty = NAN;
  EXPECT_EQ(refused(wrong, HUSK_INVALID_ARGUMENT),
            "frequency_penalty is nan: give a finite number");
  wrong = request, wrong.top_logprobs = 5;
  EXPECT_EQ(refused(wrong, HUSK_INVALID_ARGUMENT), "top_logprobs is 5: give 4 at most");
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
                std::to_string(offsetof(husk_text_request, min_p)));
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

  const LoadedModel bare({.has_tokenizer = false,
                          .has_roles = false,
                          .has_copy = false,
                          .has_controls = false,
                          .has_verify = false});
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
  request = HUSK_TEXT_REQUEST_INIT;
  request.tokens = wanted.prompt.data(), request.token_count = 2, request.part = Answer::part;
  request.presence_penalty = 1;
  EXPECT_EQ(husk_generator_submit(generator.get(), &request, nullptr, &error), HUSK_UNSUPPORTED);
  EXPECT_STREQ(error.text,
               "the file has no penalties, masks of tokens and most likely tokens: export it with "
               "--features controls");
  request.presence_penalty = 0, request.speculate = 2;
  EXPECT_EQ(husk_generator_submit(generator.get(), &request, nullptr, &error), HUSK_UNSUPPORTED);
  EXPECT_STREQ(error.text,
               "the file cannot speculate: export it with --features verify, or set speculate to "
               "0");
  EXPECT_EQ(husk_generator_embed(generator.get(), wanted.prompt.data(), 2, HUSK_TEXT_MEAN, nullptr,
                                 0, nullptr, &error),
            HUSK_UNSUPPORTED);
  EXPECT_STREQ(error.text, "the file has no function embed: export it with --features embed");
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
  PartCount count;
  const husk_text_slice stop = {"never in a text", 15};
  husk_text_request request = HUSK_TEXT_REQUEST_INIT;
  request.text = "some words", request.bytes = 10, request.samples = 30;
  request.temperature = 1, request.max_new_tokens = 12;
  request.stops = &stop, request.stop_count = 1;
  request.part = PartCount::part, request.user = &count;
  ASSERT_EQ(husk_generator_submit(generator.get(), &request, nullptr, nullptr), HUSK_OK);
  EXPECT_EQ(allocations_of_steps(generator), 0u);
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
  EXPECT_EQ(husk_generator_embed(nullptr, nullptr, 0, 0, nullptr, 0, nullptr, &error),
            HUSK_INVALID_ARGUMENT);
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
