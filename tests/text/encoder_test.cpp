// Requests to files with an encoder, by the generator of husk/generate.h.
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "requests.h"

namespace {

using husk::test::Answer;
using husk::test::expect_refused;
using husk::test::Generator;
using husk::test::LoadedModel;
using husk::test::ModelFile;
using husk::test::request_of;
using husk::test::right_text;
using husk::test::run;
using husk::test::step;
using husk::test::Wanted;

constexpr size_t kFeatures = LM_BINS * LM_FRAMES;
const std::vector<int32_t> kStart = {9, 10};

LoadedModel model_of(int encoder, bool has_copy = true, int pages = 0) {
  ModelFile file;
  file.has_verify = false;
  file.has_copy = has_copy;
  file.encoder = encoder;
  file.pages = pages;
  return LoadedModel(file);
}

// `count` numbers of a source.
std::vector<int32_t> numbers_of(size_t count, int32_t first) {
  std::vector<int32_t> numbers;
  for (size_t i = 0; i < count; ++i) {
    numbers.push_back((first * 17 + static_cast<int32_t>(i) * 5) % 250);
  }
  return numbers;
}

// A request to an encoder, and the text that it must give.
struct Case {
  Case(int encoder, size_t count, int32_t first, std::vector<int32_t> decoder = {})
      : source(numbers_of(encoder == LM_OF_TOKENS ? count : kFeatures, first)),
        features(source.begin(), source.end()),
        decoder_tokens(std::move(decoder)),
        takes_tokens(encoder == LM_OF_TOKENS) {
    wanted.prompt = decoder_tokens.empty() ? kStart : decoder_tokens;
    wanted.most = 20;
    wanted.temperature = 0.25f;
    wanted.seed = first;
    wanted.salt = lm_source_salt(source.data(), static_cast<int64_t>(source.size()));
  }

  husk_text_request request(Answer& answer) const {
    husk_text_request request = request_of(wanted, answer);
    request.tokens = takes_tokens ? source.data() : nullptr;
    request.token_count = takes_tokens ? source.size() : 0;
    request.features = takes_tokens ? nullptr : features.data();
    request.feature_count = takes_tokens ? 0 : features.size();
    request.decoder_tokens = decoder_tokens.data();
    request.decoder_token_count = decoder_tokens.size();
    return request;
  }

  std::vector<int32_t> source;
  std::vector<float> features;
  std::vector<int32_t> decoder_tokens;
  bool takes_tokens;
  Wanted wanted;
};

void submit(const Generator& generator, const Case& one, Answer& answer, uint32_t samples = 1) {
  husk_text_request request = one.request(answer);
  request.samples = samples;
  husk_error error;
  ASSERT_EQ(husk_generator_submit(generator.get(), &request, nullptr, &error), HUSK_OK)
      << error.text;
}

class Encoders : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Kinds, Encoders, testing::Values(+LM_OF_TOKENS, +LM_OF_FEATURES));

// Sources of 1 token up to the most, with prompts of a decoder of one token and of several chunks,
// which join and leave the slots; the samples of a request have its source.
void expect_texts(int encoder, int pages) {
  for (const bool has_copy : {true, false}) {
    const LoadedModel model = model_of(encoder, has_copy, pages);
    for (const uint32_t chunk : {0u, 3u}) {
      husk_generator_options options = HUSK_GENERATOR_OPTIONS_INIT;
      options.chunk = chunk;
      options.reuse_prefixes = 1;  // tokens of a decoder belong to a source: none is reused
      const Generator generator = model.generator(options);
      std::vector<Case> cases;
      for (const int count : {7, 1, +LM_SOURCE, 64, 65, 2, 7}) {
        const auto first = static_cast<int32_t>(cases.size());
        cases.emplace_back(encoder, static_cast<size_t>(count), first);
      }
      cases.emplace_back(encoder, 9, 7, std::vector<int32_t>{5});
      cases.emplace_back(encoder, 9, 8, numbers_of(20, 3));
      std::vector<Answer> answers(cases.size());
      for (size_t i = 0; i < cases.size(); ++i) submit(generator, cases[i], answers[i], 1 + i % 3);
      run(generator);
      for (size_t i = 0; i < cases.size(); ++i) {
        for (uint32_t sample = 0; sample < 1 + i % 3; ++sample) {
          EXPECT_EQ(answers[i].texts[sample].tokens, right_text(cases[i].wanted, sample).tokens)
              << i << " " << sample << " " << chunk << answers[i].failure;
        }
        EXPECT_TRUE(has_copy || answers[i].reused == 0);
      }
    }
  }
}

TEST_P(Encoders, TextsAreThoseOfTheModelInAllSlots) { expect_texts(GetParam(), 0); }

TEST_P(Encoders, TextsAreThoseOfTheModelInPages) {
  for (const int pages : {+LM_COLUMNS, 30}) expect_texts(GetParam(), pages);
}

TEST_P(Encoders, SayWhatTheyTake) {
  const LoadedModel model = model_of(GetParam());
  const Generator generator = model.generator();
  husk_text_encoder encoder = HUSK_TEXT_ENCODER_INIT;
  husk_error error;
  ASSERT_EQ(husk_generator_encoder_get(generator.get(), &encoder, &error), HUSK_OK);
  const bool takes_tokens = GetParam() == LM_OF_TOKENS;
  EXPECT_EQ(encoder.positions, takes_tokens ? uint64_t{LM_SOURCE} : uint64_t{LM_FRAMES / 2});
  EXPECT_EQ(encoder.features, takes_tokens ? 0u : kFeatures);
  EXPECT_EQ(husk_generator_encoder_get(nullptr, &encoder, &error), HUSK_INVALID_ARGUMENT);
  encoder.struct_size = 8;
  EXPECT_EQ(husk_generator_encoder_get(generator.get(), &encoder, &error), HUSK_INVALID_ARGUMENT);
}

TEST_P(Encoders, WrongSourcesAreRefusedAndOtherRequestsGoOn) {
  const LoadedModel model = model_of(GetParam());
  const Generator generator = model.generator();
  const Case right(GetParam(), 5, 1);
  Answer answer;
  submit(generator, right, answer);
  ASSERT_TRUE(step(generator));
  Answer other;
  const auto refused = [&](const husk_text_request& request, const char* message,
                           husk_status status = HUSK_INVALID_INPUT) {
    husk_error error;
    EXPECT_EQ(husk_generator_submit(generator.get(), &request, nullptr, &error), status) << message;
    EXPECT_NE(std::string(error.text).find(message), std::string::npos) << error.text;
  };
  husk_text_request request = right.request(other);
  const std::vector<int32_t> long_prompt = numbers_of(LM_MOST + 1, 1), strange = {LM_VOCABULARY};
  const float number = 1;
  request.decoder_tokens = long_prompt.data();
  request.decoder_token_count = long_prompt.size();
  refused(request, "97 tokens, but a sequence");
  request.decoder_tokens = strange.data();
  request.decoder_token_count = 1;
  refused(request, "no token has the number 260");
  request.decoder_tokens = nullptr;
  refused(request, "decoder_tokens is NULL", HUSK_INVALID_ARGUMENT);
  request = right.request(other);
  request.features = nullptr;
  request.feature_count = 3;
  refused(request, "features is NULL", HUSK_INVALID_ARGUMENT);
  request = right.request(other);
  if (GetParam() == LM_OF_TOKENS) {
    request.token_count = 0;
    refused(request, "the encoder takes at least one");
    request.tokens = strange.data();
    request.token_count = 1;
    refused(request, "no token has the number 260");
    request.tokens = nullptr;
    request.token_count = 0;
    refused(request, "text and tokens is NULL", HUSK_INVALID_ARGUMENT);
    const std::vector<int32_t> longer = numbers_of(LM_SOURCE + 1, 1);
    request.tokens = longer.data();
    request.token_count = longer.size();
    refused(request, "71 tokens, but the encoder of this file takes up to 70");
    request = right.request(other);
    request.features = &number;
    request.feature_count = 1;
    refused(request, "takes tokens: set feature_count to 0");
  } else {
    request.tokens = long_prompt.data();
    request.token_count = 1;
    refused(request, "takes features");
    request = right.request(other);
    request.feature_count = kFeatures - 1;
    refused(request, "feature_count is 11, but the encoder of this file takes 12 numbers");
    std::vector<float> features = right.features;
    features[7] = std::numeric_limits<float>::infinity();
    request = right.request(other);
    request.features = features.data();
    refused(request, "number 7 of the features is not finite");
    request.features = nullptr;
    request.feature_count = 0;
    refused(request, "feature_count is 0");
  }
  run(generator);
  EXPECT_EQ(answer.texts[0].tokens, right_text(right.wanted).tokens);
}

TEST(Encoders, AFileWithoutOneRefusesTheirInput) {
  const LoadedModel model;
  const Generator generator = model.generator();
  husk_text_encoder encoder = HUSK_TEXT_ENCODER_INIT;
  husk_error error;
  ASSERT_EQ(husk_generator_encoder_get(generator.get(), &encoder, &error), HUSK_OK);
  EXPECT_EQ(encoder.positions, 0u);
  Answer answer;
  for (const int kind : {+LM_OF_TOKENS, +LM_OF_FEATURES}) {
    Case one(kind, 5, 1, {3, 4});
    const husk_text_request request = one.request(answer);
    EXPECT_EQ(husk_generator_submit(generator.get(), &request, nullptr, &error), HUSK_UNSUPPORTED);
    EXPECT_NE(std::string(error.text).find("has no encoder"), std::string::npos) << error.text;
  }
}

TEST(Encoders, WrongMetadataAreRefused) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"positions": 0, "start": [1]})", "a wrong `positions`"},
      {R"({"positions": 70})", "a wrong `start`"},
      {R"({"positions": 70, "start": []})", "a wrong `start`"},
      {R"({"positions": 70, "start": [-1]})", "a wrong `start`"},
      {R"({"positions": 70, "start": [260]})", "no token has the number 260"},
      {R"({"positions": 70, "start": [1], "shape": []})", "a wrong `shape`"},
      {R"({"positions": 70, "start": [1], "shape": [3, 0]})", "a wrong `shape`"},
      {R"({"positions": 70, "start": [1], "shape": [1000000, 1000000, 1000000]})",
       "a wrong `shape`"},
      {R"({"positions": 70, "start": [1], "shape": [3]})",
       "the function prefill of the file is not that of a language model"}};
  for (const auto& [entry, message] : cases) {
    ModelFile file;
    file.has_verify = false;
    file.encoder = LM_OF_TOKENS;
    file.encoder_entry = entry;
    expect_refused(file, message, entry);
  }
}

// A run that fails may have damaged the rows of others, so all texts end, and those after them go
// on.
TEST(Encoders, AFailureEndsTheTextsThatHaveASlot) {
  const LoadedModel model = model_of(LM_OF_TOKENS);
  const Generator generator = model.generator();
  Case wrong(LM_OF_TOKENS, 5, 1);
  wrong.source[3] = LM_FORBIDDEN;
  Answer failed, later;
  submit(generator, wrong, failed);
  int32_t more = 0;
  husk_error error;
  EXPECT_NE(husk_generator_step(generator.get(), &more, &error), HUSK_OK);
  EXPECT_EQ(failed.texts[0].reason, HUSK_TEXT_FAILED);
  EXPECT_NE(failed.failure.find("does not take this token"), std::string::npos) << failed.failure;
  const Case right(LM_OF_TOKENS, 5, 2);
  submit(generator, right, later);
  run(generator);
  EXPECT_EQ(later.texts[0].tokens, right_text(right.wanted).tokens);
}

}  // namespace
