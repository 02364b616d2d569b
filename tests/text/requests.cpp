// Generates the requests of a JSON list on the standard input with a language model, for
// tests/python/test_text_programs.py:
//
//   husk_text_requests FILE.husk [CHUNK [reuse]] < requests.json
//
// A request has `tokens` or `text`, the settings of husk.text and `join`, the number of the step
// before which it is submitted; `images` has the pixels of each image of its prompt, and `features`
// and `decoder_tokens` are those of husk_text_request. Another entry sets an adapter, `set_adapter`
// with the folder `adapter_folder`, or removes one, `remove_adapter`.
//
// With `reuse`, prompts reuse what caches have. Prints a list of what each gives, and counts of the
// generator on the standard error.
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <span>

#include <husk/generate.h>

#include "run/handles.h"
#include "run/machine.h"
#include "run/run_error.h"

#include <nlohmann/json.hpp>

namespace {

using namespace husk::run;
using Json = nlohmann::json;

constexpr const char* reasons[] = {"", "end", "stop", "length", "cancelled", "failed"};

int32_t part(void* user, const husk_text_part* part) {
  Json& text = (*static_cast<Json*>(user))[part->sample];
  if (text.is_null()) text = {{"tokens", Json::array()}, {"logprobs", Json::array()}, {"text", ""}};
  if (part->token >= 0) {
    text["tokens"].push_back(part->token);
    text["logprobs"].push_back(part->logprob);
    const std::span<const int32_t> top(part->top_tokens, part->top_count);
    text["top"].push_back(std::vector<int32_t>(top.begin(), top.end()));
  }
  text["text"] = text["text"].get<std::string>() + std::string(part->text, part->bytes);
  text["reason"] = reasons[part->reason];
  return 0;
}

// Gives the embedding of a text instead of its continuation.
void embed(husk_generator* generator, const Json& json, Json& result) {
  auto tokens = json.value("tokens", std::vector<int32_t>());
  const auto text = json.value("text", std::string());
  husk_error error;
  size_t count = 0;
  if (tokens.empty()) {
    tokens.resize(text.size());
    check(
        husk_tokenizer_encode(husk_generator_tokenizer(generator), text.data(), text.size(),
                              HUSK_TEXT_ADD_SPECIAL, tokens.data(), tokens.size(), &count, &error),
        error, exit_run);
    tokens.resize(count);
  }
  const int32_t pooling = json["embed"] == "last" ? HUSK_TEXT_LAST : HUSK_TEXT_MEAN;
  std::vector<float> numbers(1 << 16);
  if (husk_generator_embed(generator, tokens.data(), tokens.size(), pooling, numbers.data(),
                           numbers.size(), &count, &error) != HUSK_OK) {
    result = {{{"error", error.text}}};
    return;
  }
  numbers.resize(count);
  result = {{{"embedding", numbers}}};
}

std::string content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void change_adapter(husk_generator* generator, const Json& json, Json& result) {
  husk_error error;
  husk_status status;
  if (json.contains("set_adapter")) {
    const auto folder = json.value("adapter_folder", std::string());
    const std::string weights = content(folder + "/adapter_model.safetensors");
    const std::string config = content(folder + "/adapter_config.json");
    status = husk_generator_set_adapter(generator, json.value("set_adapter", 0u), weights.data(),
                                        weights.size(), config.data(), config.size(), &error);
  } else {
    status = husk_generator_remove_adapter(generator, json.value("remove_adapter", 0u), &error);
  }
  if (status != HUSK_OK) result = {{{"error", error.text}}};
}

// The rows of the images of a request. After a failure, the result says why.
bool read_images(husk_generator* generator, const Json& json, std::vector<float>& rows,
                 Json& result) {
  husk_text_images images = HUSK_TEXT_IMAGES_INIT;
  husk_error error;
  check(husk_generator_images_get(generator, &images, &error), error, exit_run);
  for (const Json& one : json.value("images", Json::array())) {
    const auto pixels = one.get<std::vector<float>>();
    std::vector<float> found(static_cast<size_t>(images.rows * images.width) + 1);
    if (husk_generator_image(generator, pixels.data(), pixels.size(), found.data(), found.size(),
                             &error) != HUSK_OK) {
      result = {{{"error", error.text}}};
      return false;
    }
    rows.insert(rows.end(), found.begin(), found.end() - 1);
  }
  return true;
}

void submit(husk_generator* generator, const Json& json, Json& result) {
  const auto tokens = json.value("tokens", std::vector<int32_t>());
  const auto text = json.value("text", std::string());
  const auto stops = json.value("stop", std::vector<std::string>());
  std::vector<husk_text_slice> slices;
  for (const std::string& one : stops) slices.push_back({one.data(), one.size()});
  husk_text_request request = HUSK_TEXT_REQUEST_INIT;
  request.options = HUSK_TEXT_ADD_SPECIAL;
  if (json.contains("text")) request.text = text.data();
  request.bytes = text.size();
  request.tokens = tokens.data();
  request.token_count = tokens.size();
  request.max_new_tokens = json.value("max_new_tokens", uint64_t{0});
  request.samples = json.value("samples", 1u);
  request.temperature = json.value("temperature", 0.0f);
  request.top_k = json.value("top_k", int64_t{0});
  request.top_p = json.value("top_p", 1.0f);
  request.min_p = json.value("min_p", 0.0f);
  request.seed = json.value("seed", int64_t{0});
  request.logprobs = json.value("logprobs", false);
  request.speculate = json.value("speculate", 0u);
  request.repetition_penalty = json.value("repetition_penalty", 0.0f);
  request.presence_penalty = json.value("presence_penalty", 0.0f);
  request.frequency_penalty = json.value("frequency_penalty", 0.0f);
  request.adapter = json.value("adapter", 0u);
  request.top_logprobs = json.value("top_logprobs", 0u);
  std::vector<float> rows;
  if (!read_images(generator, json, rows, result)) return;
  husk_text_images images = HUSK_TEXT_IMAGES_INIT;
  check(husk_generator_images_get(generator, &images, nullptr), {}, exit_run);
  request.embeddings = rows.data();
  request.embedding_count = rows.empty() ? 0 : rows.size() / images.width;
  const auto features = json.value("features", std::vector<float>());
  request.features = features.data();
  request.feature_count = features.size();
  const auto decoder_tokens = json.value("decoder_tokens", std::vector<int32_t>());
  request.decoder_tokens = decoder_tokens.data();
  request.decoder_token_count = decoder_tokens.size();
  request.stops = slices.data();
  request.stop_count = slices.size();
  request.part = part;
  request.user = &result;
  husk_error error;
  if (husk_generator_submit(generator, &request, nullptr, &error) != HUSK_OK) {
    result = {{{"error", error.text}}};
  }
}

int run(const char* file, uint32_t chunk, bool reuses) {
  Machine machine(MachineOptions{});
  const Program program(machine.program_open(file));
  husk_generator_options options = HUSK_GENERATOR_OPTIONS_INIT;
  options.chunk = chunk;
  options.reuse_prefixes = reuses;
  husk_generator* generator = nullptr;
  husk_error error;
  check(husk_generator_create(machine.engine(), program.get(), &options, &generator, &error), error,
        exit_load);
  const std::unique_ptr<husk_generator, void (*)(husk_generator*)> owner(generator,
                                                                         husk_generator_release);
  const Json requests = Json::parse(std::cin);
  std::vector<Json> results(requests.size());
  size_t submitted = 0;
  int32_t more = 1;
  for (int64_t step = 0; more || submitted < requests.size(); ++step) {
    for (size_t i = 0; i < requests.size(); ++i) {
      if (requests[i].value("join", int64_t{0}) != step) continue;
      const bool changes = requests[i].contains("set_adapter") ||
                           requests[i].contains("remove_adapter");
      (changes                         ? change_adapter
       : requests[i].contains("embed") ? embed
                                       : submit)(generator, requests[i], results[i]);
      ++submitted;
    }
    check(husk_generator_step(generator, &more, &error), error, exit_run);
  }
  husk_generator_stats stats = HUSK_GENERATOR_STATS_INIT;
  check(husk_generator_stats_get(generator, &stats, &error), error, exit_run);
  std::cerr << Json{{"drafted", stats.drafted_tokens},   {"accepted", stats.accepted_tokens},
                    {"shared", stats.shared_tokens},     {"copied", stats.copied_tokens},
                    {"repeated", stats.repeated_tokens}, {"used_pages", stats.used_pages}}
            << "\n";
  std::cout << Json(results).dump(-1, ' ', true) << "\n";
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argv[1], argc > 2 ? static_cast<uint32_t>(std::stoul(argv[2])) : 0, argc > 3);
  } catch (const RunError& error) {
    std::cerr << error.text << "\n";
    return error.code;
  }
}
