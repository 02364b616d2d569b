// The model reads its sizes from the metadata of a file, and finds its functions there.
#include "text/model.h"

namespace husk::text {

namespace {

double number_of(const Json& json, const char* name, double otherwise) {
  const JsonValue* found = json.member(json.root(), name);
  return found && found->kind == JsonKind::number ? found->number : otherwise;
}

// A whole number of the description, from 1 to `most`.
Status read_size(const Json& json, const char* name, double most, int64_t& to, husk_error* error) {
  const double number = number_of(json, name, 0);
  if (!(number >= 1 && number <= most)) return no_model(error, name);
  to = static_cast<int64_t>(number);
  return Status::ok;
}

}  // namespace

Status no_model(husk_error* error, const char* lack) {
  return fail(error, HUSK_INVALID_FILE,
              "the file is no language model, since it lacks %s: `python -m husk llm` exports one",
              lack);
}

const char* metadata(const husk_program* program, const char* name) {
  const uint32_t count = husk_program_metadata_count(program);
  for (uint32_t i = 0; i < count; ++i) {
    if (strcmp(husk_program_metadata_key(program, i), name) == 0) {
      return husk_program_metadata_value(program, i);
    }
  }
  return nullptr;
}

Status Model::describe(const husk_program* program, husk_error* error) {
  const char* described = metadata(program, "husk.text.model");
  if (!described) return no_model(error, "the metadata husk.text.model");
  Json json;
  HUSK_TRY(json.parse(Span(described), error));
  constexpr double kMost = 1 << 30;
  HUSK_TRY(read_size(json, "max_tokens", kMost, max_tokens, error));
  HUSK_TRY(read_size(json, "slots", 1 << 16, slots, error));
  HUSK_TRY(read_size(json, "chunk", kMost, chunk, error));
  HUSK_TRY(read_size(json, "vocabulary", kMost, vocabulary, error));
  const JsonValue* several = json.member(json.root(), "verify");
  verified = several ? whole(*several, kMost) : 0;
  if (verified < 0 || verified == 1 || verified > max_tokens) return no_model(error, "verify");
  has_states = json.has_true(json.root(), "states");
  if (has_states && verified) return no_model(error, "a way to take back tokens (states, verify)");
  const JsonValue* likely = json.member(json.root(), "ranked");
  ranked = likely ? whole(*likely, kMost) : 0;
  if (ranked < 0 || ranked > vocabulary) return no_model(error, "ranked");
  const JsonValue* few = json.member(json.root(), "candidates");
  candidates = few ? whole(*few, kMost) : 0;
  if (candidates < 0 || candidates > vocabulary) return no_model(error, "candidates");
  const JsonValue* adapters = json.member(json.root(), "adapters");
  constexpr double kMostAdapters = 1 << 20;
  if (adapters) {
    HUSK_TRY(read_size(json, "adapters", kMostAdapters, adapter_count, error));
    HUSK_TRY(read_size(json, "adapter_rank", kMostAdapters, adapter_rank, error));
  }
  HUSK_TRY(images.read(json, error));
  if (images.exists() && adapter_count) {
    return no_model(error, "a choice of adapters or images");
  }
  if (images.two_way && images.rows > chunk) return no_model(error, "room for an image in a chunk");
  HUSK_TRY(encoder.read(json, error));
  if (encoder.exists() && (adapter_count || images.exists() || verified)) {
    return no_model(error, "a choice of an encoder or adapters, images and verify");
  }
  HUSK_TRY(check_tokens(encoder.start.data(), encoder.start.size(), error));
  if (json.member(json.root(), "pages")) {
    HUSK_TRY(read_size(json, "pages", kMost, pages, error));
    HUSK_TRY(read_size(json, "page", kMost, page, error));
    if (pages < columns()) return no_model(error, "pages for a sequence of max_tokens");
  }
  const char* settings = metadata(program, "husk.text.generation");
  if (!settings) return Status::ok;
  HUSK_TRY(json.parse(Span(settings), error));
  if (const JsonValue* list = json.member(json.root(), "end")) {
    if (list->kind != JsonKind::array)
      return no_model(error, "a list of the tokens that end texts");
    for (const JsonValue* one = json.first(list); one != json.end(list); one = json.after(one)) {
      const double number = one->kind == JsonKind::number ? one->number : -1;
      if (!(number >= 0 && number < kMost)) return no_model(error, "numbers of tokens");
      HUSK_TRY(ends.push(static_cast<int32_t>(number), error));
    }
  }
  if (json.has_true(json.root(), "do_sample")) {
    recommended.temperature = static_cast<float>(number_of(json, "temperature", 1));
    const JsonValue* top_k = json.member(json.root(), "top_k");
    recommended.top_k = top_k ? whole(*top_k, kMost) : 0;
    if (recommended.top_k < 0) return no_model(error, "a number of tokens to draw from");
    recommended.top_p = static_cast<float>(number_of(json, "top_p", 1));
  }
  return Status::ok;
}

Status Model::find_functions(const husk_program* program, husk_error* error) {
  const struct {
    const char* name;
    uint32_t inputs, outputs;
    uint32_t* number;
    bool is_optional;
  } functions[] = {
      {"prefill", 4 + prefill_inputs(), 2, &prefill_, false},
      {"decode", 3 + row_inputs(), 2, &decode_, false},
      {"sample", 7, 2, &sample_, false},
      {"copy", pages && !has_rows() ? 2u : 4u, 1, &copy_, true},
      {"adjust", 8, 1, &adjust_, true},
      {"rank", 2, 3, &rank_, true},
      {"verify", 3 + row_inputs(), 2, &verify_, true},
      {"single", 4 + row_inputs(), 2, &single_, true},
      {"sample_few", 7, 2, &sample_few_, !candidates},
      {"image", 1, 1, &image_, !images.exists()},
      {"prefill_images", images.extras() ? 7u : 6u, 2, &prefill_images_, !images.exists()},
      {"encode", 2, 1, &encode_, !encoder.exists()},
      {"embed", 1, 2, &embed_, true}};
  for (const auto& function : functions) {
    const husk_status status = husk_program_find_function(program, function.name, function.number,
                                                          error);
    if (status == HUSK_NOT_FOUND && function.is_optional) {
      *function.number = kNoFunction;
      continue;
    }
    if (status == HUSK_NOT_FOUND) return no_model(error, function.name);
    HUSK_TRY(to_status(status));
    if (husk_program_input_count(program, *function.number) != function.inputs ||
        husk_program_output_count(program, *function.number) != function.outputs) {
      return fail(error, HUSK_INVALID_FILE,
                  "the function %s of the file is not that of a language model", function.name);
    }
  }
  return verified && verify_ == kNoFunction ? no_model(error, "verify") : Status::ok;
}

}  // namespace husk::text
