// Requests of tests to a generator of husk/generate.h, and what they give.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "../runtime/counting_malloc.h"
#include "loaded_model.h"

namespace husk::test {

// Tokens of bytes.
inline std::vector<int32_t> tokens_of(const std::string& text) {
  std::vector<int32_t> tokens;
  for (const char one : text) tokens.push_back(static_cast<uint8_t>(one));
  return tokens;
}

inline std::vector<int32_t> random_prompt(std::mt19937& random, size_t count) {
  std::vector<int32_t> tokens(count);
  for (int32_t& token : tokens) token = static_cast<int32_t>(random() % 256);
  return tokens;
}

// A greedy request whose text begins with at least `characters` of ASCII, and is not cut.
inline Wanted plain_request(uint32_t seed, size_t characters) {
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

// A file with all that a decoder can have, and rows of slots.
inline const LoadedModel& model() {
  static const LoadedModel loaded;
  return loaded;
}

// The texts of one request as the callback gets them.
struct Answer {
  std::map<uint32_t, Text> texts;
  std::vector<std::string> parts;  // of all texts
  std::string failure;
  uint64_t reused = 0;
  uint32_t mask = 0;
  std::vector<std::vector<int32_t>> top;  // of the last token of each part
  int most_parts = 1 << 30;               // the callback cancels the request afterwards
  bool is_late = false;                   // a part came after the last one
  std::vector<husk_text_slice> stops;     // of the request, while it is submitted

  static int32_t part(void* user, const husk_text_part* part) {
    auto& answer = *static_cast<Answer*>(user);
    Text& text = answer.texts[part->sample];
    answer.is_late |= text.reason != HUSK_TEXT_GOES_ON;
    text.text.append(part->text, part->bytes);
    if (part->bytes) answer.parts.emplace_back(part->text, part->bytes);
    if (part->token >= 0) {
      text.tokens.push_back(part->token);
      text.logits.push_back(part->logprob);
      answer.top.emplace_back(part->top_tokens, part->top_tokens + part->top_count);
    }
    EXPECT_EQ(part->tokens, text.tokens.size());
    text.reason = part->reason;
    answer.reused = part->reused;
    if (part->why) answer.failure = part->why->text;
    return --answer.most_parts <= 0;
  }

  static int32_t allow(void* user, const husk_text_choice* choice) {
    auto& answer = *static_cast<Answer*>(user);
    const Text& text = answer.texts[choice->sample];
    EXPECT_EQ(text.tokens,
              std::vector<int32_t>(choice->tokens, choice->tokens + choice->token_count));
    EXPECT_EQ(choice->word_count, +LM_WORDS);
    for (int32_t t = 0; t < LM_VOCABULARY; ++t) {
      if (!is_allowed(answer.mask, choice->token_count, t)) {
        choice->allowed[t / 32] &= ~(1u << t % 32);
      }
    }
    return 0;
  }
};

// A request with what a test wants of it. `wanted` and `answer` stay where they are until it ends.
inline husk_text_request request_of(const Wanted& wanted, Answer& answer) {
  answer.stops.clear();
  for (const std::string& one : wanted.stops) answer.stops.push_back({one.data(), one.size()});
  answer.mask = wanted.mask;
  husk_text_request request = HUSK_TEXT_REQUEST_INIT;
  request.tokens = wanted.prompt.data();
  request.token_count = wanted.prompt.size();
  request.max_new_tokens = wanted.most;
  request.temperature = wanted.temperature;
  request.top_k = wanted.top_k;
  request.top_p = wanted.top_p;
  request.min_p = wanted.min_p;
  request.seed = wanted.seed;
  request.stops = answer.stops.data();
  request.stop_count = answer.stops.size();
  request.repetition_penalty = wanted.repetition;
  request.presence_penalty = wanted.presence;
  request.frequency_penalty = wanted.frequency;
  request.speculate = wanted.speculate;
  request.adapter = wanted.adapter;
  request.embeddings = wanted.embeddings.data();
  request.embedding_count = wanted.embeddings.size() / LM_WIDTH;
  if (wanted.mask) request.allow = Answer::allow;
  request.part = Answer::part;
  request.user = &answer;
  return request;
}

// Submits a request that is right, and returns its number.
inline uint64_t submit(const Generator& generator, const Wanted& wanted, Answer& answer,
                       uint32_t samples = 1, bool logprobs = false, uint32_t top = 0) {
  husk_text_request request = request_of(wanted, answer);
  request.samples = samples;
  request.logprobs = logprobs;
  request.top_logprobs = top;
  uint64_t number = 0;
  husk_error error;
  EXPECT_EQ(husk_generator_submit(generator.get(), &request, &number, &error), HUSK_OK)
      << error.text;
  return number;
}

// Whether there is more to do.
inline bool step(const Generator& generator) {
  int32_t more = 0;
  husk_error error;
  EXPECT_EQ(husk_generator_step(generator.get(), &more, &error), HUSK_OK) << error.text;
  return more;
}

inline void run(const Generator& generator) {
  while (step(generator)) {
  }
}

// That a generator of a file with a wrong entry `entry` is refused with a message.
inline void expect_refused(const ModelFile& file, const char* message, const char* entry) {
  const LoadedModel model(file);
  husk_generator* generator = nullptr;
  husk_error error;
  const husk_generator_options options = HUSK_GENERATOR_OPTIONS_INIT;
  EXPECT_NE(model.create(options, &generator, &error), HUSK_OK) << entry;
  EXPECT_NE(std::string(error.text).find(message), std::string::npos) << error.text;
}

inline husk_generator_stats stats(const Generator& generator) {
  husk_generator_stats out = HUSK_GENERATOR_STATS_INIT;
  EXPECT_EQ(husk_generator_stats_get(generator.get(), &out, nullptr), HUSK_OK);
  return out;
}

// The callback of a request that counts parts, and allocates nothing.
struct PartCount {
  uint64_t parts = 0;
  static int32_t part(void* user, const husk_text_part*) {
    ++static_cast<PartCount*>(user)->parts;
    return 0;
  }
};

// Files of all kinds that several runs have to work with: with and without the functions for one
// text and for few candidates, with states, and with pages.
inline std::vector<ModelFile> kinds_of_files() {
  return {{},
          {.has_single = false, .has_few = false},
          {.has_verify = false, .has_states = true},
          {.has_verify = false, .has_states = true, .pages = 30},
          {.pages = LM_COLUMNS + 3}};
}

inline husk_generator_options options_of(uint32_t runs, bool reuses = false) {
  husk_generator_options options = HUSK_GENERATOR_OPTIONS_INIT;
  options.runs = runs;
  options.reuse_prefixes = reuses;
  return options;
}

// A request of any kind. With `needs_host`, some ask for what the host decides with each token.
inline Wanted random_request(std::mt19937& random, bool needs_host) {
  Wanted wanted;
  wanted.prompt = random_prompt(random, 1 + random() % 30);
  wanted.most = random() % 3 ? 1 + random() % 40 : 0;
  if (random() % 2) {
    wanted.temperature = 1;
    wanted.top_k = static_cast<int64_t>(random() % 30);
    wanted.seed = static_cast<int64_t>(random());
  }
  if (needs_host && random() % 6 == 0) wanted.presence = 1;
  if (needs_host && random() % 6 == 0) wanted.mask = 1;
  if (random() % 6 == 0) wanted.stops = {std::string(1, static_cast<char>(' ' + random() % 90))};
  return wanted;
}

// How often the steps after the first one allocate memory, to the last one.
inline uint64_t allocations_of_steps(const Generator& generator) {
  step(generator);
  const uint64_t before = malloc_calls();
  run(generator);
  return malloc_calls() - before;
}

}  // namespace husk::test
