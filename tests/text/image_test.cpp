// Requests with images, by the generator of husk/generate.h.
#include <gtest/gtest.h>

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
using husk::test::submit;
using husk::test::Text;
using husk::test::Wanted;

constexpr size_t kRows = LM_IMAGE_ROWS, kNumbers = kRows * LM_WIDTH;

// The pixels of image number `which`.
std::vector<float> pixels_of(int which) {
  std::vector<float> pixels;
  for (size_t i = 0; i < kNumbers; ++i) {
    pixels.push_back(static_cast<float>((which * 7 + static_cast<int>(i) * 5) % 11));
  }
  return pixels;
}

// A prompt whose negative tokens are images: -1 is image number 1.
Wanted wanted_of(const std::vector<int32_t>& tokens, int kind) {
  Wanted wanted;
  wanted.most = 20;
  wanted.temperature = 0.25f;
  wanted.seed = 5;
  int64_t shift = 0;
  for (const int32_t token : tokens) {
    const auto begin = static_cast<int64_t>(wanted.prompt.size());
    if (token >= 0) {
      wanted.prompt.push_back(token);
      wanted.salts.push_back(static_cast<int32_t>(-shift));
      continue;
    }
    const std::vector<float> pixels = pixels_of(-token);
    for (size_t r = 0; r < kRows; ++r) {
      const float row[] = {pixels[r], pixels[kRows + r]};
      const auto at = static_cast<int64_t>(r);
      int64_t a = 0, b = 0, c = 0;
      if (kind == LM_TWO_WAY) a = LM_IMAGE_ROWS - 1 - at;
      if (kind == LM_GRID) {
        a = begin + shift;
        b = a + at / LM_GRID_COLUMNS;
        c = a + at % LM_GRID_COLUMNS;
      }
      wanted.prompt.push_back(LM_IMAGE);
      wanted.salts.push_back(lm_image_salt(row, a, b, c));
      wanted.embeddings.insert(wanted.embeddings.end(), row, row + LM_WIDTH);
    }
    if (kind == LM_GRID) shift += LM_GRID_COLUMNS - LM_IMAGE_ROWS;
  }
  wanted.salt = static_cast<int32_t>(-shift);
  return wanted;
}

const std::vector<std::vector<int32_t>> kPrompts = {
    {20, 21, -1, 22, 23, 24},
    {30, 31, 32},
    {-1, 40, 41, -2, 42, 43},
    {-3, -1, 44},
    {50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, -2, 62, 63, 64, 65, 66, 67, 68, 69, -4, 70},
    {80, 81, -2},
    {20, 21, -2, 22, 23, 24},
};

class Images : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Kinds, Images, testing::Values(+LM_PLAIN, +LM_TWO_WAY, +LM_GRID));

void expect_texts(int kind, int pages) {
  ModelFile file;
  file.images = kind;
  file.pages = pages;
  const LoadedModel model(file);
  for (const uint32_t chunk : {0u, 7u, 6u, 4u}) {
    for (const uint32_t speculate : {0u, 4u}) {
      husk_generator_options options = HUSK_GENERATOR_OPTIONS_INIT;
      options.chunk = chunk;
      const Generator generator = model.generator(options);
      std::vector<Answer> answers(kPrompts.size());
      for (size_t i = 0; i < kPrompts.size(); ++i) {
        Wanted wanted = wanted_of(kPrompts[i], kind);
        wanted.speculate = speculate;
        if (pages) wanted.most = 60;
        submit(generator, wanted, answers[i], 2);
      }
      run(generator);
      for (size_t i = 0; i < kPrompts.size(); ++i) {
        Wanted wanted = wanted_of(kPrompts[i], kind);
        if (pages) wanted.most = 60;
        for (const uint32_t sample : {0u, 1u}) {
          EXPECT_EQ(answers[i].texts[sample].tokens, right_text(wanted, sample).tokens)
              << i << " " << sample << " " << chunk << answers[i].failure;
        }
      }
      // Tokens of images and of the texts after them were taken again.
      if (pages == LM_COLUMNS && !speculate) {
        EXPECT_GT(husk::test::stats(generator).repeated_tokens, 0u);
      }
    }
  }
}

TEST_P(Images, TextsAreThoseOfTheModelInAllSlotsAndChunks) { expect_texts(GetParam(), 0); }

TEST_P(Images, TextsAreThoseOfTheModelInPages) {
  for (const int pages : {+LM_COLUMNS, 30}) expect_texts(GetParam(), pages);
}

TEST_P(Images, PrefixesAreReusedUpToTheFirstImage) {
  ModelFile file;
  file.images = GetParam();
  const LoadedModel model(file);
  husk_generator_options options = HUSK_GENERATOR_OPTIONS_INIT;
  options.reuse_prefixes = 1;
  const Generator generator = model.generator(options);
  const std::vector<int32_t> text = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  for (const int image : {-1, -2}) {
    std::vector<int32_t> prompt = text;
    prompt.insert(prompt.end(), {image, 11, 12});
    const Wanted wanted = wanted_of(prompt, GetParam());
    Answer answer;
    submit(generator, wanted, answer);
    run(generator);
    EXPECT_EQ(answer.texts[0].tokens, right_text(wanted).tokens);
    EXPECT_EQ(answer.reused, image == -1 ? 0 : text.size());
  }
  const Wanted alone = wanted_of({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 13}, GetParam());
  Answer answer;
  submit(generator, alone, answer);
  run(generator);
  EXPECT_EQ(answer.texts[0].tokens, right_text(alone).tokens);
  EXPECT_EQ(answer.reused, text.size());
}

TEST_P(Images, AnImageTokenForEachImageBecomesItsRows) {
  ModelFile file;
  file.images = GetParam();
  const LoadedModel model(file);
  const Generator generator = model.generator();
  const Wanted wanted = wanted_of({20, -1, 21, -2, 22}, GetParam());
  Wanted shorter = wanted;
  shorter.prompt = {20, LM_IMAGE, 21, LM_IMAGE, 22};
  Answer answer;
  submit(generator, shorter, answer);
  run(generator);
  EXPECT_EQ(answer.texts[0].tokens, right_text(wanted).tokens);
}

TEST(Images, AreComputedByTheFile) {
  ModelFile file;
  file.images = LM_PLAIN;
  const LoadedModel model(file);
  const Generator generator = model.generator();
  husk_error error;
  husk_text_images images = HUSK_TEXT_IMAGES_INIT;
  ASSERT_EQ(husk_generator_images_get(generator.get(), &images, &error), HUSK_OK);
  EXPECT_EQ(images.token, +LM_IMAGE);
  EXPECT_EQ(images.pixels, kNumbers);
  EXPECT_EQ(images.rows, kRows);
  EXPECT_EQ(images.width, uint64_t{LM_WIDTH});
  const std::vector<float> pixels = pixels_of(3);
  std::vector<float> rows(kNumbers + 1, -1);
  ASSERT_EQ(husk_generator_image(generator.get(), pixels.data(), pixels.size(), rows.data(),
                                 rows.size(), &error),
            HUSK_OK)
      << error.text;
  EXPECT_EQ(rows.back(), -1);
  rows.pop_back();
  EXPECT_EQ(rows, wanted_of({-3}, LM_PLAIN).embeddings);
  EXPECT_EQ(husk_generator_image(generator.get(), pixels.data(), pixels.size() - 1, rows.data(),
                                 rows.size(), &error),
            HUSK_INVALID_INPUT);
  EXPECT_EQ(husk_generator_image(generator.get(), pixels.data(), pixels.size(), rows.data(),
                                 rows.size() - 1, &error),
            HUSK_INVALID_ARGUMENT);
  EXPECT_EQ(husk_generator_image(generator.get(), nullptr, 0, rows.data(), 0, &error),
            HUSK_INVALID_ARGUMENT);
}

TEST(Images, AFileWithoutThemRefusesThem) {
  const LoadedModel model;
  const Generator generator = model.generator();
  husk_error error;
  husk_text_images images = HUSK_TEXT_IMAGES_INIT;
  ASSERT_EQ(husk_generator_images_get(generator.get(), &images, &error), HUSK_OK);
  EXPECT_EQ(images.pixels, 0u);
  Answer answer;
  const Wanted wanted = wanted_of({1, -1, 2}, LM_PLAIN);
  const husk_text_request request = request_of(wanted, answer);
  EXPECT_EQ(husk_generator_submit(generator.get(), &request, nullptr, &error), HUSK_UNSUPPORTED);
  EXPECT_NE(std::string(error.text).find("takes no images"), std::string::npos) << error.text;
  float rows[1];
  EXPECT_EQ(husk_generator_image(generator.get(), rows, 1, rows, 1, &error), HUSK_UNSUPPORTED);
}

TEST(Images, WrongNumbersAreRefusedAndOtherRequestsGoOn) {
  ModelFile file;
  file.images = LM_PLAIN;
  const LoadedModel model(file);
  const Generator generator = model.generator();
  const Wanted right = wanted_of({1, -1, 2}, LM_PLAIN);
  Answer answer;
  submit(generator, right, answer);
  int32_t more = 0;
  ASSERT_EQ(husk_generator_step(generator.get(), &more, nullptr), HUSK_OK);
  const auto refused = [&](const Wanted& wanted, const char* message) {
    Answer other;
    const husk_text_request request = request_of(wanted, other);
    husk_error error;
    EXPECT_EQ(husk_generator_submit(generator.get(), &request, nullptr, &error),
              HUSK_INVALID_INPUT);
    EXPECT_NE(std::string(error.text).find(message), std::string::npos) << error.text;
  };
  Wanted wanted = right;
  wanted.prompt.pop_back();
  wanted.prompt.pop_back();
  refused(wanted, "5 image tokens");
  wanted = right;
  wanted.embeddings.clear();
  refused(wanted, "embedding_count is 0");
  wanted = right;
  wanted.embeddings.resize(wanted.embeddings.size() - LM_WIDTH);
  refused(wanted, "embedding_count is 5");
  wanted = right;
  wanted.embeddings.resize(2 * wanted.embeddings.size());
  refused(wanted, "embedding_count is 12");
  wanted = right;
  std::swap(wanted.prompt[3], wanted.prompt.back());
  refused(wanted, "not one after the other");
  wanted = wanted_of(std::vector<int32_t>(17, -1), LM_PLAIN);
  refused(wanted, "102 tokens");
  husk_text_request request = request_of(right, answer);
  request.embeddings = nullptr;
  husk_error error;
  EXPECT_EQ(husk_generator_submit(generator.get(), &request, nullptr, &error),
            HUSK_INVALID_ARGUMENT);
  EXPECT_NE(std::string(error.text).find("embeddings is NULL"), std::string::npos) << error.text;
  run(generator);
  EXPECT_EQ(answer.texts[0].tokens, right_text(right).tokens);
}

TEST(Images, WrongMetadataAreRefused) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"rows": 6, "width": 2, "shape": [3]})", "images with a wrong `token`"},
      {R"({"token": 258, "rows": 1, "width": 2, "shape": [3]})", "a wrong `rows`"},
      {R"({"token": 258, "rows": 6, "width": 0, "shape": [3]})", "a wrong `width`"},
      {R"({"token": 258, "rows": 6, "width": 2})", "a wrong `shape`"},
      {R"({"token": 258, "rows": 6, "width": 2, "shape": []})", "a wrong `shape`"},
      {R"({"token": 258, "rows": 6, "width": 2, "shape": [3, -1]})", "a wrong `shape`"},
      {R"({"token": 258, "rows": 6, "width": 2, "shape": [3], "grid": [6]})", "a wrong `grid`"},
      {R"({"token": 258, "rows": 6, "width": 2, "shape": [3], "grid": [2, 2]})", "a wrong `grid`"},
      {R"({"token": 258, "rows": 6, "width": 2, "shape": [3], "grid": [2, 3], "two_way": true})",
       "a wrong `grid`"}};
  for (const auto& [entry, message] : cases) {
    ModelFile file;
    file.images = LM_PLAIN;
    file.image_entry = entry;
    expect_refused(file, message, entry);
  }
}

}  // namespace
