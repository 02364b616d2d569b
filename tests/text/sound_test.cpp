#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <husk/sound.h>

namespace {

struct Release {
  void operator()(husk_sound* sound) const { husk_sound_release(sound); }
};
using Sound = std::unique_ptr<husk_sound, Release>;
using Rows = std::vector<std::vector<double>>;

constexpr size_t kRate = 1000, kSamples = 90;

// Bands of two neighbors each, and one without any.
Rows bands_of(size_t window) {
  Rows rows;
  for (size_t first = 0; first + 2 <= window / 2 + 1; ++first) {
    rows.push_back({static_cast<double>(first), 0.25, 1.5});
  }
  rows.push_back({0});
  return rows;
}

std::string json_of(size_t window, size_t hop, const Rows& bands) {
  std::string filters;
  for (const std::vector<double>& band : bands) {
    std::string row;
    for (const double one : band) row += (row.empty() ? "" : ",") + std::to_string(one);
    filters += (filters.empty() ? "[" : ",[") + row + "]";
  }
  return "{\"rate\":" + std::to_string(kRate) + ",\"samples\":" + std::to_string(kSamples) +
         ",\"window\":" + std::to_string(window) + ",\"hop\":" + std::to_string(hop) +
         ",\"filters\":[" + filters + "]}";
}

Sound make(const std::string& json) {
  husk_sound* sound = nullptr;
  husk_error error;
  EXPECT_EQ(husk_sound_create(json.data(), json.size(), &sound, &error), HUSK_OK) << error.text;
  return Sound(sound);
}

std::vector<float> noise(size_t count) {
  std::mt19937 random(3);
  std::vector<float> result(count);
  for (float& one : result) one = static_cast<float>(random() % 2001) / 1000 - 1;
  return result;
}

// The features by their definition: a sum for each frequency of each window.
std::vector<float> right_features(const std::vector<float>& sound, size_t columns, size_t window,
                                  size_t hop, const Rows& bands) {
  const auto length = static_cast<int64_t>(std::max(sound.size(), columns * hop));
  std::vector<double> result;
  for (const std::vector<double>& band : bands) {
    for (size_t column = 0; column < columns; ++column) {
      double energy = 0;
      for (size_t i = 1; i < band.size(); ++i) {
        std::complex<double> sum = 0;
        for (size_t n = 0; n < window; ++n) {
          int64_t at = static_cast<int64_t>(column * hop + n) - static_cast<int64_t>(window / 2);
          at = std::abs(at);
          if (at >= length) at = 2 * (length - 1) - at;
          if (at < 0 || at >= static_cast<int64_t>(sound.size())) continue;
          const double part = static_cast<double>(n) / static_cast<double>(window);
          const double hann = std::pow(std::sin(M_PI * part), 2);
          const double frequency = band[0] + static_cast<double>(i) - 1;
          sum += std::polar(hann * static_cast<double>(sound[static_cast<size_t>(at)]),
                            -2 * M_PI * frequency * part);
        }
        energy += band[i] * std::norm(sum);
      }
      result.push_back(std::log10(std::max(energy, 1e-10)));
    }
  }
  const double most = *std::max_element(result.begin(), result.end());
  std::vector<float> features;
  for (const double one : result) {
    features.push_back(static_cast<float>((std::max(one, most - 8) + 4) / 4));
  }
  return features;
}

std::vector<float> features_of(const Sound& sound, const std::vector<float>& samples,
                               size_t columns) {
  husk_sound_format format = HUSK_SOUND_FORMAT_INIT;
  EXPECT_EQ(husk_sound_get(sound.get(), &format, nullptr), HUSK_OK);
  std::vector<float> result(format.bins * columns);
  husk_error error;
  EXPECT_EQ(husk_sound_features(sound.get(), samples.data(), samples.size(), columns, result.data(),
                                &error),
            HUSK_OK)
      << error.text;
  return result;
}

// Windows of several factors, of a prime and of one sample; sounds that are shorter than a window,
// fill the columns, leave some empty and reach beyond them.
TEST(Sound, features_are_those_of_the_definition) {
  for (const size_t window : {1u, 2u, 7u, 16u, 30u, 50u}) {
    const Rows bands = bands_of(window);
    const size_t hop = window > 8 ? 6 : 3;
    const Sound sound = make(json_of(window, hop, bands));
    for (const size_t count : {0u, 1u, 5u, 90u, 100u}) {
      for (const size_t columns : {1u, 4u, 15u}) {
        const std::vector<float> samples = noise(count);
        const auto found = features_of(sound, samples, columns);
        const auto right = right_features(samples, columns, window, hop, bands);
        ASSERT_EQ(found.size(), right.size());
        for (size_t i = 0; i < right.size(); ++i) {
          ASSERT_NEAR(found[i], right[i], 2e-6)
              << "number " << i << " of " << columns << " columns of " << count
              << " samples, window " << window;
        }
      }
    }
  }
}

TEST(Sound, the_format_is_that_of_the_file) {
  const Sound sound = make(json_of(50, 6, bands_of(50)));
  husk_sound_format format = HUSK_SOUND_FORMAT_INIT;
  ASSERT_EQ(husk_sound_get(sound.get(), &format, nullptr), HUSK_OK);
  EXPECT_EQ(format.rate, kRate);
  EXPECT_EQ(format.samples, kSamples);
  EXPECT_EQ(format.hop, 6u);
  EXPECT_EQ(format.bins, 26u);
}

TEST(Sound, wrong_entries_are_refused_by_name) {
  const std::string right = json_of(50, 6, {{0, 1}});
  const struct {
    const char *from, *to, *text;
  } cases[] = {
      {"\"rate\":1000", "\"rate\":0", "`rate`"},
      {"\"samples\":90", "\"samples\":-1", "`samples`"},
      {"\"hop\":6,", "", "`hop`"},
      {"\"window\":50", "\"window\":8193", "`window`"},
      {"[[0.000000,1.000000]]", "[]", "`filters`"},
      {"[[0.000000,1.000000]]", "7", "`filters`"},
      {"[[0.000000,1.000000]]", "[7]", "`filters`"},
      {"[[0.000000,1.000000]]", "[[]]", "`filters`"},
      {"[[0.000000,1.000000]]", "[[-1,1]]", "`filters`"},
      {"[[0.000000,1.000000]]", "[[25,1,1]]", "`filters`"},
      {"[[0.000000,1.000000]]", "[[0,\"1\"]]", "`filters`"},
      {"[[0.000000,1.000000]]", "[[0,-1]]", "`filters`"},
      {"[[0.000000,1.000000]]", "[[0,1e10]]", "`filters`"},
      {"{", "", "JSON"},
  };
  make(right);
  for (const auto& one : cases) {
    std::string json = right;
    json.replace(json.find(one.from), std::strlen(one.from), one.to);
    husk_sound* sound = nullptr;
    husk_error error = {};
    EXPECT_EQ(husk_sound_create(json.data(), json.size(), &sound, &error), HUSK_INVALID_FILE)
        << json;
    EXPECT_EQ(sound, nullptr);
    EXPECT_NE(std::string(error.text).find(one.text), std::string::npos) << error.text;
  }
}

TEST(Sound, wrong_calls_are_refused) {
  const Sound sound = make(json_of(50, 6, bands_of(50)));
  std::vector<float> samples = noise(10), features(26);
  husk_error error = {};
  samples[7] = NAN;
  EXPECT_EQ(husk_sound_features(sound.get(), samples.data(), 10, 1, features.data(), &error),
            HUSK_INVALID_INPUT);
  EXPECT_NE(std::string(error.text).find("sample 7"), std::string::npos) << error.text;
  EXPECT_EQ(husk_sound_features(sound.get(), nullptr, 0, SIZE_MAX / 20, features.data(), &error),
            HUSK_INVALID_ARGUMENT);
  EXPECT_NE(std::string(error.text).find("columns"), std::string::npos) << error.text;
  EXPECT_EQ(husk_sound_features(nullptr, nullptr, 0, 0, nullptr, nullptr), HUSK_INVALID_ARGUMENT);
  EXPECT_EQ(husk_sound_features(sound.get(), nullptr, 1, 1, features.data(), nullptr),
            HUSK_INVALID_ARGUMENT);
  EXPECT_EQ(husk_sound_features(sound.get(), samples.data(), 1, 1, nullptr, nullptr),
            HUSK_INVALID_ARGUMENT);
  EXPECT_EQ(husk_sound_features(sound.get(), nullptr, 0, 0, nullptr, nullptr), HUSK_OK);
  husk_sound* other = nullptr;
  EXPECT_EQ(husk_sound_create(nullptr, 0, &other, nullptr), HUSK_INVALID_ARGUMENT);
  EXPECT_EQ(husk_sound_create("{}", 2, nullptr, nullptr), HUSK_INVALID_ARGUMENT);
  husk_sound_format format = HUSK_SOUND_FORMAT_INIT;
  format.struct_size = 8;
  EXPECT_EQ(husk_sound_get(sound.get(), &format, nullptr), HUSK_INVALID_ARGUMENT);
  EXPECT_EQ(husk_sound_get(nullptr, &format, nullptr), HUSK_INVALID_ARGUMENT);
  husk_sound_release(nullptr);
}

}  // namespace
