#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <map>
#include <thread>

#include "adapter_files.h"
#include "base/halves.h"
#include "requests.h"

namespace {

using husk::test::Adapter;
using husk::test::Answer;
using husk::test::first_layer;
using husk::test::Generator;
using husk::test::LoadedModel;
using husk::test::right_text;
using husk::test::run;
using husk::test::safetensors;
using husk::test::second_layer;
using husk::test::submit;
using husk::test::Tensor;
using husk::test::Tensors;
using husk::test::Text;
using husk::test::Wanted;
using husk::test::with_header;
using Json = nlohmann::json;

const LoadedModel& model() {
  static const LoadedModel loaded({.has_adapters = true});
  return loaded;
}

husk_status set(const Generator& generator, uint32_t number, const std::string& weights,
                const std::string& config, husk_error* error) {
  return husk_generator_set_adapter(generator.get(), number, weights.data(), weights.size(),
                                    config.data(), config.size(), error);
}

void set(const Generator& generator, uint32_t number, const Adapter& adapter) {
  husk_error error = {};
  EXPECT_EQ(set(generator, number, adapter.weights(), adapter.config.dump(), &error), HUSK_OK)
      << error.text;
}

husk_status status_of(const Generator& generator, const Wanted& wanted, husk_error* error) {
  Answer answer;
  const husk_text_request request = husk::test::request_of(wanted, answer);
  return husk_generator_submit(generator.get(), &request, nullptr, error);
}

Wanted wanted_with(uint32_t adapter, int32_t salt, int32_t first = 5) {
  Wanted wanted;
  for (int32_t i = 0; i < 20; ++i) wanted.prompt.push_back(first + i);
  wanted.most = 12;
  wanted.adapter = adapter;
  wanted.salt = salt;
  return wanted;
}

// The text that the model gives with an adapter alone.
Text text_of(const Generator& generator, uint32_t adapter) {
  Answer answer;
  submit(generator, wanted_with(adapter, 0), answer);
  run(generator);
  return answer.texts[0];
}

class AdaptersInPages : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Pages, AdaptersInPages, testing::Values(0, +LM_COLUMNS, 40));

TEST_P(AdaptersInPages, each_request_has_its_own) {
  const LoadedModel model({.has_adapters = true, .pages = GetParam()});
  for (const uint32_t chunk : {0u, 7u, 1u}) {
    husk_generator_options options = HUSK_GENERATOR_OPTIONS_INIT;
    options.chunk = chunk;
    options.reuse_prefixes = GetParam() == 40;  // equal prompts with other adapters share no page
    const Generator generator = model.generator(options);
    EXPECT_EQ(husk_generator_adapter_count(generator.get()), +LM_ADAPTERS);
    const Adapter a(1), b(2);
    set(generator, 1, a);
    set(generator, 2, b);
    std::vector<Wanted> wanted;
    for (int32_t i = 0; i < 9; ++i) {
      const auto number = static_cast<uint32_t>(i % 3);
      wanted.push_back(wanted_with(number, number == 0 ? 0 : number == 1 ? a.salt() : b.salt(), i));
      if (i > 5) wanted.back().speculate = 4;  // prompts of multiples of 5 repeat themselves
      if (i == 4) wanted.back().prompt.resize(1);
      if (i == 5) wanted.back().temperature = 2;
      if (i == 8) wanted.back().prompt = wanted[0].prompt;
    }
    std::vector<Answer> answers(wanted.size());
    for (size_t i = 0; i < wanted.size(); ++i) {
      submit(generator, wanted[i], answers[i], i == 5 ? 3 : 1);
    }
    run(generator);
    for (size_t i = 0; i < wanted.size(); ++i) {
      for (const auto& [sample, text] : answers[i].texts) {
        EXPECT_EQ(text, right_text(wanted[i], sample)) << i;
      }
    }
    EXPECT_NE(answers[0].texts[0].tokens, right_text(wanted_with(1, a.salt(), 0)).tokens);
  }
}

TEST(Adapters, speculation_has_the_adapters_of_the_slots) {
  const Generator generator = model().generator();
  const Adapter a(3);
  set(generator, 2, a);
  std::vector<Wanted> wanted = {wanted_with(2, a.salt()), wanted_with(0, 0),
                                wanted_with(2, a.salt(), 10)};
  for (Wanted& one : wanted) one.most = 60, one.speculate = 4;
  std::vector<Answer> answers(wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) submit(generator, wanted[i], answers[i]);
  run(generator);
  for (size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_EQ(answers[i].texts[0], right_text(wanted[i])) << i;
  }
  husk_generator_stats stats = HUSK_GENERATOR_STATS_INIT;
  EXPECT_EQ(husk_generator_stats_get(generator.get(), &stats, nullptr), HUSK_OK);
  EXPECT_GT(stats.drafted_tokens, 0u);
}

TEST(Adapters, scales_ranks_and_types) {
  const Generator generator = model().generator();
  const auto expect = [&](const Adapter& adapter, int32_t salt) {
    // The matrices of an adapter with the largest rank must be gone.
    set(generator, 1, Adapter(9));
    set(generator, 1, adapter);
    EXPECT_EQ(text_of(generator, 1), right_text(wanted_with(1, salt)));
    EXPECT_NE(text_of(generator, 1).tokens, text_of(generator, 0).tokens);
  };
  for (const char* type : {"F32", "F16", "BF16"}) {
    for (const int64_t rank : {1, 2}) {
      const Adapter adapter(4, rank, type);
      expect(adapter, adapter.salt());
    }
  }
  Adapter stable(5, 1);
  stable.config["use_rslora"] = true;
  expect(stable, stable.salt(4, 4));
  stable = Adapter(5, 2);
  stable.config["use_rslora"] = true;
  stable.config["lora_alpha"] = std::sqrt(2.0) * 8;
  expect(stable, stable.salt(8, 8));
  Adapter patterns(6);
  patterns.config["alpha_pattern"] = {{"her", 100}, {"other", 16}, {"layer", 1}};
  expect(patterns, patterns.salt(0.5f, 8));
  Adapter ranks(7, 1);
  ranks.tensors[second_layer + ".lora_A.weight"] = {{2, 2}, {1, 2, 3, 4}};
  ranks.tensors[second_layer + ".lora_B.weight"] = {{1, 2}, {5, 6}};
  ranks.config["rank_pattern"] = {{"other", 2}};
  expect(ranks, ranks.salt(4, 2));
  Adapter one_layer(8);
  one_layer.tensors.erase(second_layer + ".lora_A.weight");
  one_layer.tensors.erase(second_layer + ".lora_B.weight");
  expect(one_layer, one_layer.salt(2, 2));
}

TEST(Adapters, half_floats_are_rounded) {
  using namespace husk;
  for (uint32_t bits = 0; bits < 1 << 16; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    if ((half & 0x7C00) == 0x7C00 && (half & 0x3FF)) continue;  // NaN
    const float number = from_half(half);
    EXPECT_EQ(to_half(number), half);
    const float magnitude = std::ldexp(half & 0x7C00 ? 1024.0f + (half & 0x3FF) : half & 0x3FF,
                                       (half & 0x7C00 ? (half >> 10 & 31) : 1) - 25);
    if ((half & 0x7C00) != 0x7C00) {
      EXPECT_EQ(number, half & 0x8000 ? -magnitude : magnitude);
    }
  }
  EXPECT_EQ(to_half(1 + 0x1p-11f), 0x3C00);  // between two: the even one
  EXPECT_EQ(to_half(1 + 3 * 0x1p-11f), 0x3C02);
  EXPECT_EQ(to_half(1 + 0x1p-11f + 0x1p-20f), 0x3C01);
  EXPECT_EQ(to_half(65519), 0x7BFF);
  EXPECT_EQ(to_half(65520), 0x7C00);
  EXPECT_EQ(to_half(0x1p-25f), 0);
  EXPECT_EQ(to_half(0x1.8p-25f), 1);
  EXPECT_EQ(to_half(-INFINITY), 0xFC00);
  EXPECT_EQ(to_half(NAN) & 0x7FFF, 0x7E00);
  EXPECT_EQ(to_bfloat16(1 + 0x1p-8f), 0x3F80);
  EXPECT_EQ(to_bfloat16(1 + 3 * 0x1p-8f), 0x3F82);
  EXPECT_EQ(to_bfloat16(NAN) & 0x7FC0, 0x7FC0);
  EXPECT_EQ(to_bfloat16(INFINITY), 0x7F80);
}

TEST(Adapters, the_cache_of_another_adapter_is_not_reused) {
  husk_generator_options options = HUSK_GENERATOR_OPTIONS_INIT;
  options.reuse_prefixes = 1;
  const Generator generator = model().generator(options);
  const Adapter a(11), b(12);
  set(generator, 1, a);
  set(generator, 2, b);
  const auto reused = [&](const Wanted& wanted) {
    Answer answer;
    submit(generator, wanted, answer);
    run(generator);
    EXPECT_EQ(answer.texts[0], right_text(wanted));
    return answer.reused;
  };
  EXPECT_EQ(reused(wanted_with(1, a.salt())), 0u);
  EXPECT_EQ(reused(wanted_with(0, 0)), 0u);
  EXPECT_EQ(reused(wanted_with(2, b.salt())), 0u);
  EXPECT_EQ(reused(wanted_with(2, b.salt())), 19u);
  EXPECT_EQ(reused(wanted_with(2, b.salt())), 19u);
  set(generator, 2, a);  // the same number, another adapter
  EXPECT_EQ(reused(wanted_with(2, a.salt())), 0u);
  EXPECT_EQ(reused(wanted_with(2, a.salt())), 19u);
  EXPECT_EQ(husk_generator_remove_adapter(generator.get(), 2, nullptr), HUSK_OK);
  set(generator, 2, a);
  EXPECT_EQ(reused(wanted_with(2, a.salt())), 0u);
  // Slots in use copy from those of the same adapter alone.
  std::vector<Wanted> wanted = {wanted_with(1, a.salt(), 30), wanted_with(0, 0, 30),
                                wanted_with(1, a.salt(), 30)};
  std::vector<Answer> answers(3);
  for (size_t i = 0; i < 3; ++i) submit(generator, wanted[i], answers[i]);
  run(generator);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(answers[i].texts[0], right_text(wanted[i])) << i;
  EXPECT_EQ(answers[1].reused, 0u);
  EXPECT_GT(answers[2].reused, 0u);
  // A slot that gets another adapter has nothing for others, before its own prompt is taken.
  for (const uint32_t number : {1u, 2u}) {
    if (number == 2) set(generator, 2, b);
    const int32_t salt = number == 1 ? a.salt() : b.salt();
    const int32_t firsts[] = {number == 1 ? 60 : 80, number == 1 ? 80 : 100};
    Answer both[2];
    for (int i = 0; i < 2; ++i) submit(generator, wanted_with(number, salt, firsts[i]), both[i]);
    run(generator);
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(both[i].texts[0], right_text(wanted_with(number, salt, firsts[i]))) << number << i;
    }
  }
}

TEST(Adapters, one_in_use_stays) {
  const Generator generator = model().generator();
  const Adapter a(13), b(14);
  const Wanted wanted = wanted_with(1, a.salt());
  husk_error error = {};
  Answer answers[5];
  EXPECT_EQ(status_of(generator, wanted, &error), HUSK_NOT_FOUND);
  EXPECT_STREQ(error.text, "adapter 1 is not set: call husk_generator_set_adapter");
  EXPECT_EQ(husk_generator_remove_adapter(generator.get(), 1, &error), HUSK_NOT_FOUND);
  EXPECT_STREQ(error.text, "adapter 1 is not set");
  set(generator, 1, a);
  for (Answer& answer : answers) submit(generator, wanted, answer);  // two of them wait
  int32_t more = 0;
  EXPECT_EQ(husk_generator_step(generator.get(), &more, nullptr), HUSK_OK);
  for (const bool is_removal : {false, true}) {
    EXPECT_EQ(is_removal ? husk_generator_remove_adapter(generator.get(), 1, &error)
                         : set(generator, 1, b.weights(), b.config.dump(), &error),
              HUSK_INVALID_ARGUMENT);
    EXPECT_STREQ(error.text,
                 "adapter 1 is in use by 5 requests: wait for their ends, or cancel them");
  }
  set(generator, 2, b);  // another one
  run(generator);
  for (Answer& answer : answers) EXPECT_EQ(answer.texts[0], right_text(wanted));
  EXPECT_EQ(text_of(generator, 2), right_text(wanted_with(2, b.salt())));
  EXPECT_EQ(husk_generator_remove_adapter(generator.get(), 1, nullptr), HUSK_OK);
  EXPECT_EQ(status_of(generator, wanted, &error), HUSK_NOT_FOUND);
  // Requests that end in another way give the adapter back, too.
  set(generator, 1, b);
  Answer cancelled;
  submit(generator, wanted_with(1, b.salt()), cancelled);
  uint64_t number = 0;
  husk_generator_stats stats = HUSK_GENERATOR_STATS_INIT;
  EXPECT_EQ(husk_generator_stats_get(generator.get(), &stats, nullptr), HUSK_OK);
  number = stats.requests;
  EXPECT_EQ(husk_generator_cancel(generator.get(), number, nullptr), HUSK_OK);
  run(generator);
  EXPECT_EQ(cancelled.texts[0].reason, HUSK_TEXT_CANCELLED);
  set(generator, 1, a);
}

TEST(Adapters, what_is_wrong_is_named_and_requests_go_on) {
  const Generator generator = model().generator();
  const Adapter good(15);
  set(generator, 1, good);
  Answer going;
  const Wanted plain = wanted_with(0, 0);
  submit(generator, plain, going);
  EXPECT_EQ(husk_generator_step(generator.get(), nullptr, nullptr), HUSK_OK);
  const auto refused = [&](const std::string& weights, const Json& config, husk_status status) {
    husk_error error = {};
    EXPECT_EQ(set(generator, 1, weights, config.is_string() ? std::string(config) : config.dump(),
                  &error),
              status)
        << error.text;
    return std::string(error.text);
  };
  const auto changed = [&](const auto& change, husk_status status) {
    Adapter adapter(16);
    change(adapter.tensors, adapter.config);
    return refused(adapter.weights(), adapter.config, status);
  };
  const std::string a = first_layer + ".lora_A.weight", b = first_layer + ".lora_B.weight";
  EXPECT_EQ(changed([&](Tensors& t, Json&) { t[a] = {{2, 4}, std::vector<float>(8)}; },
                    HUSK_INVALID_INPUT),
            "the adapter is of another shape: layer has lora_A [2, 4] and lora_B [4, 2], but the "
            "model needs [r, 3] and [4, r]");
  EXPECT_EQ(changed([&](Tensors& t, Json&) { t[b] = {{3, 2}, std::vector<float>(6)}; },
                    HUSK_INVALID_INPUT),
            "the adapter is of another shape: layer has lora_A [2, 3] and lora_B [3, 2], but the "
            "model needs [r, 3] and [4, r]");
  EXPECT_EQ(changed([&](Tensors& t, Json&) { t[b] = {{4, 1}, std::vector<float>(4)}; },
                    HUSK_INVALID_INPUT),
            "the adapter is of another shape: layer has lora_A [2, 3] and lora_B [4, 1], but the "
            "model needs [r, 3] and [4, r]");
  EXPECT_EQ(
      changed([&](Tensors& t, Json&) { t[a] = {{6}, std::vector<float>(6)}; }, HUSK_INVALID_INPUT),
      "base_model.model.layer.lora_A.weight is no matrix");
  EXPECT_EQ(changed([&](Tensors&, Json& config) { config["r"] = 1; }, HUSK_INVALID_INPUT),
            "the adapter is of another shape: layer has rank 2, but adapter_config.json says r = "
            "1");
  EXPECT_EQ(refused(Adapter(1, 3).weights(), Adapter(1, 3).config, HUSK_INVALID_INPUT),
            "the adapter has rank 3 for layer, but the file of the model has room for 2: export "
            "the model with --rank 3");
  EXPECT_EQ(changed([&](Tensors& t, Json&) { t.erase(b); }, HUSK_INVALID_INPUT),
            "the adapter has no lora_B of layer");
  EXPECT_EQ(changed([&](Tensors& t, Json&) { t.erase(a); }, HUSK_INVALID_INPUT),
            "the adapter has no lora_A of layer");
  EXPECT_EQ(changed([&](Tensors& t, Json&) { t["base_model.model.up.lora_A.weight"] = t[a]; },
                    HUSK_INVALID_INPUT),
            "the file of the model has no room for an adapter of up: export the model with this "
            "layer among --adapter-targets");
  EXPECT_EQ(changed([&](Tensors& t, Json&) { t["layer.lora_A.weight"] = t[a]; }, HUSK_UNSUPPORTED),
            "the adapter has the tensor layer.lora_A.weight: Husk takes "
            "base_model.model.LAYER.lora_A.weight and lora_B.weight of PEFT");
  EXPECT_EQ(changed([&](Tensors& t,
                        Json&) { t[first_layer + ".lora_\n" + std::string(200, 'x')] = t[a]; },
                    HUSK_UNSUPPORTED),
            "the adapter has the tensor base_model.model.layer.lora_?" + std::string(63, 'x') +
                "...: Husk takes base_model.model.LAYER.lora_A.weight and lora_B.weight of PEFT");
  EXPECT_EQ(changed([&](Tensors& t, Json&) { t[first_layer + ".lora_magnitude_vector"] = t[a]; },
                    HUSK_UNSUPPORTED),
            "the adapter has DoRA, which Husk does not compute");
  EXPECT_EQ(changed([&](Tensors& t, Json&) { t["base_model.model.e.lora_embedding_A"] = t[a]; },
                    HUSK_UNSUPPORTED),
            "the adapter has matrices of an embedding, which Husk does not compute");
  EXPECT_EQ(
      changed([&](Tensors& t, Json&) { t[first_layer + ".lora_B.bias"] = t[a]; }, HUSK_UNSUPPORTED),
      "the adapter has biases (lora_bias), which Husk does not compute");
  EXPECT_EQ(changed([](Tensors& t, Json&) { t.clear(); }, HUSK_INVALID_INPUT),
            "the adapter has no matrices");
  const std::pair<const char*, Json> settings[] = {{"use_dora", true},
                                                   {"modules_to_save", {"lm_head"}},
                                                   {"lora_bias", true},
                                                   {"bias", "lora_only"},
                                                   {"layer_replication", {{0, 1}}},
                                                   {"target_parameters", {"experts.w"}},
                                                   {"trainable_token_indices", {1}},
                                                   {"alora_invocation_tokens", {1}},
                                                   {"use_qalora", true},
                                                   {"kasa_config", {{"x", 1}}}};
  for (const auto& [name, value] : settings) {
    const std::string text = changed(
        [&, name = name, value = value](Tensors&, Json& config) { config[name] = value; },
        HUSK_UNSUPPORTED);
    EXPECT_NE(text.find(name), std::string::npos) << text;
    EXPECT_NE(text.find(", which Husk does not compute"), std::string::npos) << text;
  }
  EXPECT_EQ(changed([](Tensors&, Json& config) { config["init_lora_weights"] = "pissa_niter_4"; },
                    HUSK_UNSUPPORTED),
            "the adapter belongs to a model whose weights pissa has changed (init_lora_weights): "
            "save it with path_initial_model_for_weight_conversion");
  EXPECT_EQ(changed([](Tensors&, Json& config) { config["peft_type"] = "LOHA"; }, HUSK_UNSUPPORTED),
            "the adapter is of the kind LOHA: Husk takes LORA");
  EXPECT_EQ(changed([](Tensors&, Json& config) { config["alpha_pattern"] = {{"l.*r", 2}}; },
                    HUSK_UNSUPPORTED),
            "alpha_pattern of adapter_config.json has l.*r: give names of layers, and numbers");
  EXPECT_EQ(changed([](Tensors&, Json& config) { config["alpha_pattern"] = Json::array({1}); },
                    HUSK_INVALID_INPUT),
            "alpha_pattern of adapter_config.json is no object");
  EXPECT_EQ(changed([](Tensors&, Json& config) { config.erase("lora_alpha"); }, HUSK_INVALID_INPUT),
            "adapter_config.json has no number lora_alpha");
  EXPECT_EQ(changed([](Tensors&, Json& config) { config["r"] = "2"; }, HUSK_INVALID_INPUT),
            "adapter_config.json has no number r");
  EXPECT_EQ(refused(good.weights(), "{", HUSK_INVALID_FILE),
            "adapter_config.json: the JSON is wrong at byte 1: expected a name in quotes");
  // Damaged files.
  const std::string whole = good.weights();
  EXPECT_EQ(refused(whole.substr(0, 5), good.config, HUSK_INVALID_INPUT),
            "the adapter's safetensors are damaged: it has no header. Copy the file again");
  EXPECT_EQ(refused(whole.substr(0, 50), good.config, HUSK_INVALID_INPUT),
            "the adapter's safetensors are damaged: it ends in its header. Copy the file again");
  EXPECT_EQ(refused(whole.substr(0, whole.size() - 1), good.config, HUSK_INVALID_INPUT),
            "the adapter's safetensors are damaged: it ends before its last tensor. Copy the file "
            "again");
  const auto entry = [&](const Json& value) {
    return refused(with_header(Json{{a, value}}.dump(), std::string(24, '\0')), good.config,
                   HUSK_INVALID_INPUT);
  };
  const std::string no_fields =
      "the adapter's safetensors are damaged: a tensor has no dtype, shape and data_offsets. Copy "
      "the file again";
  EXPECT_EQ(entry(Json{{"dtype", "F32"}, {"shape", {2, 3}}}), no_fields);
  EXPECT_EQ(entry(7), no_fields);
  EXPECT_EQ(entry(Json{{"dtype", "F32"}, {"shape", {2, 3}}, {"data_offsets", {0}}}), no_fields);
  EXPECT_EQ(
      entry(Json{{"dtype", "F32"}, {"shape", {2, 3}}, {"data_offsets", {0, 20}}}),
      "the adapter's safetensors are damaged: a tensor has more or fewer bytes than its shape "
      "says. Copy the file again");
  EXPECT_EQ(
      entry(Json{{"dtype", "F32"}, {"shape", {1 << 30, 1 << 30}}, {"data_offsets", {0, 24}}}),
      "the adapter's safetensors are damaged: a tensor has more or fewer bytes than its shape "
      "says. Copy the file again");
  EXPECT_EQ(entry(Json{{"dtype", "F32"}, {"shape", {0, 3}}, {"data_offsets", {0, 0}}}),
            a + " is no matrix");
  EXPECT_EQ(
      refused(with_header(
                  Json{{a, {{"dtype", "I8"}, {"shape", {2, 3}}, {"data_offsets", {0, 6}}}}}.dump(),
                  std::string(6, '\0')),
              good.config, HUSK_UNSUPPORTED),
      a + " has the type I8: Husk takes F32, F16 and BF16");
  EXPECT_EQ(refused(with_header("[]", ""), good.config, HUSK_INVALID_INPUT),
            "the adapter's safetensors are damaged: its header is no object. Copy the file again");
  const std::string field = R"(":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]})";
  EXPECT_EQ(refused(with_header("{\"" + a + field + ",\"" + a + field + "}", std::string(24, '\0')),
                    good.config, HUSK_INVALID_INPUT),
            "the adapter has " + a + " twice");
  for (size_t size = 0; size < whole.size(); ++size) {
    husk_error error = {};
    EXPECT_NE(set(generator, 1, whole.substr(0, size), good.config.dump(), &error), HUSK_OK);
    std::string bent = whole;
    bent[size] = static_cast<char>(bent[size] ^ (1 << size % 8));
    (void)set(generator, 2, bent, good.config.dump(), &error);
  }
  // Numbers that no adapter has.
  for (const uint32_t number : {0u, LM_ADAPTERS + 1u}) {
    husk_error error = {};
    EXPECT_EQ(set(generator, number, whole, good.config.dump(), &error), HUSK_INVALID_ARGUMENT);
    EXPECT_EQ(error.text, "there is no adapter " + std::to_string(number) +
                              ": the file has room for those from 1 to 2");
    EXPECT_EQ(husk_generator_remove_adapter(generator.get(), number, &error),
              HUSK_INVALID_ARGUMENT);
  }
  husk_error error = {};
  Answer answer;
  EXPECT_EQ(status_of(generator, wanted_with(3, 0), &error), HUSK_INVALID_ARGUMENT);
  EXPECT_STREQ(error.text, "adapter is 3: the file has room for 2");
  EXPECT_EQ(husk_generator_set_adapter(generator.get(), 1, nullptr, 0, "", 0, &error),
            HUSK_INVALID_ARGUMENT);
  EXPECT_EQ(husk_generator_set_adapter(generator.get(), 1, "", 0, nullptr, 0, &error),
            HUSK_INVALID_ARGUMENT);
  EXPECT_EQ(husk_generator_set_adapter(nullptr, 1, "", 0, "", 0, &error), HUSK_INVALID_ARGUMENT);
  EXPECT_EQ(husk_generator_remove_adapter(nullptr, 1, &error), HUSK_INVALID_ARGUMENT);
  EXPECT_EQ(husk_generator_adapter_count(nullptr), 0u);
  // The adapter that was set before is still there.
  run(generator);
  EXPECT_EQ(going.texts[0], right_text(plain));
  EXPECT_EQ(text_of(generator, 1), right_text(wanted_with(1, good.salt())));
}

TEST(Adapters, a_file_without_room_for_them) {
  const LoadedModel plain;
  const Generator generator = plain.generator();
  EXPECT_EQ(husk_generator_adapter_count(generator.get()), 0u);
  husk_error error = {};
  const Adapter adapter(1);
  const char* const text = "the file has no room for adapters: export it with --adapters N";
  EXPECT_EQ(set(generator, 1, adapter.weights(), adapter.config.dump(), &error), HUSK_UNSUPPORTED);
  EXPECT_STREQ(error.text, text);
  EXPECT_EQ(husk_generator_remove_adapter(generator.get(), 1, &error), HUSK_UNSUPPORTED);
  Answer answer;
  EXPECT_EQ(status_of(generator, wanted_with(1, 0), &error), HUSK_UNSUPPORTED);
  EXPECT_EQ(error.text, std::string(text) + ", or set adapter to 0");
  // The requests of applications that were built before adapters have none.
  husk_text_request request = HUSK_TEXT_REQUEST_INIT;
  const Wanted wanted = wanted_with(0, 0);
  request.struct_size = offsetof(husk_text_request, adapter);
  request.adapter = 7;
  request.tokens = wanted.prompt.data(), request.token_count = wanted.prompt.size();
  request.max_new_tokens = wanted.most;
  request.part = Answer::part, request.user = &answer;
  EXPECT_EQ(husk_generator_submit(generator.get(), &request, nullptr, &error), HUSK_OK);
  run(generator);
  EXPECT_EQ(answer.texts[0], right_text(wanted));
}

TEST(Adapters, a_callback_and_other_threads_set_them) {
  const Generator generator = model().generator();
  const Adapter a(21), b(22);
  set(generator, 1, a);
  std::atomic<bool> is_done = false;
  std::thread setter([&] {
    while (!is_done) {
      set(generator, 2, b);
      EXPECT_EQ(husk_generator_remove_adapter(generator.get(), 2, nullptr), HUSK_OK);
    }
  });
  for (int i = 0; i < 30; ++i) {
    std::vector<Wanted> wanted = {wanted_with(1, a.salt(), i), wanted_with(0, 0, i)};
    std::vector<Answer> answers(2);
    for (size_t k = 0; k < 2; ++k) submit(generator, wanted[k], answers[k]);
    run(generator);
    for (size_t k = 0; k < 2; ++k) EXPECT_EQ(answers[k].texts[0], right_text(wanted[k]));
  }
  is_done = true;
  setter.join();
  // Within a step, where no run is in progress.
  struct Setting {
    const Generator& generator;
    const Adapter& adapter;
    int32_t status = -1;
  } setting{generator, b};
  husk_text_request request = HUSK_TEXT_REQUEST_INIT;
  const Wanted wanted = wanted_with(1, a.salt());
  request.tokens = wanted.prompt.data(), request.token_count = wanted.prompt.size();
  request.max_new_tokens = 2;
  request.adapter = 1;
  request.user = &setting;
  request.part = [](void* user, const husk_text_part*) -> int32_t {
    auto& one = *static_cast<Setting*>(user);
    one.status = set(one.generator, 2, one.adapter.weights(), one.adapter.config.dump(), nullptr);
    return 0;
  };
  EXPECT_EQ(husk_generator_submit(generator.get(), &request, nullptr, nullptr), HUSK_OK);
  run(generator);
  EXPECT_EQ(setting.status, HUSK_OK);
  EXPECT_EQ(text_of(generator, 2), right_text(wanted_with(2, b.salt())));
}

}  // namespace
