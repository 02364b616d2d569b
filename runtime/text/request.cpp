#include "text/request.h"

#include <math.h>

#include "text/utf8.h"

namespace husk::text {

namespace {

constexpr uint32_t kMaxSamples = 1 << 16;

Status wrong_setting(husk_error* error, const char* name, double value, const char* remedy) {
  return fail(error, HUSK_INVALID_ARGUMENT, "%s is %g: give %s", name, value, remedy);
}

}  // namespace

int64_t Sequence::length() const { return static_cast<int64_t>(request->prompt.size()) + count; }

Status Sequence::append(const char* text, size_t bytes, int32_t* reason, husk_error* error) {
  bool stopped;
  HUSK_TRY(held.append(request->stops, {text, bytes}, &stopped, error));
  if (stopped) *reason = HUSK_TEXT_STOP;
  return Status::ok;
}

Status Sequence::finish(int32_t* reason, husk_error* error) {
  const char* text;
  size_t bytes;
  if (!decoder || *reason == HUSK_TEXT_STOP) return Status::ok;
  HUSK_TRY(to_status(husk_text_decoder_finish(decoder, &text, &bytes, error)));
  return append(text, bytes, reason, error);
}

Status Sequence::add(const Model& model, int32_t next_token, int32_t* reason, husk_error* error) {
  *reason = HUSK_TEXT_GOES_ON;
  token = next_token;
  ++count;
  for (const int32_t end : model.ends) {
    if (token == end && !request->ignores_end) *reason = HUSK_TEXT_END;
  }
  if (*reason == HUSK_TEXT_GOES_ON && decoder) {
    const char* text;
    size_t bytes;
    const husk_status status = husk_text_decoder_push(decoder, token, &text, &bytes, error);
    // A model may have more numbers of tokens than its tokenizer. They have no text.
    if (status != HUSK_INVALID_INPUT) {
      HUSK_TRY(to_status(status));
      HUSK_TRY(append(text, bytes, reason, error));
    }
  }
  // The last token of a sequence needs no position of the cache.
  const bool has_room = length() <= model.max_tokens;
  if (*reason == HUSK_TEXT_GOES_ON &&
      (!has_room || static_cast<uint64_t>(count) == request->most)) {
    *reason = HUSK_TEXT_LENGTH;
  }
  return *reason == HUSK_TEXT_GOES_ON ? Status::ok : finish(reason, error);
}

bool Sequence::give(const Chosen& chosen, int32_t reason, const husk_error* why) {
  const Span text = held.certain(reason != HUSK_TEXT_GOES_ON);
  husk_text_part part = {};
  part.struct_size = sizeof part;
  part.sample = sample;
  part.request = request->number;
  part.text = text.size ? text.data : "";
  part.bytes = text.size;
  part.token = chosen.token;
  part.logprob = request->gives_logprobs ? chosen.logprob : 0;
  part.top_tokens = chosen.top_tokens;
  part.top_logprobs = chosen.top_logprobs;
  part.top_count = chosen.top_count;
  part.reason = reason;
  part.tokens = static_cast<uint64_t>(count);
  part.prompt = request->prompt.size();
  part.reused = static_cast<uint64_t>(reused);
  part.why = why;
  const bool goes_on = request->part_(request->user_, &part) == 0;
  held.drop(text.size);
  return goes_on;
}

Request::~Request() {
  for (uint32_t i = 0; i < count; ++i) sequences[i].~Sequence();
  free(sequences);
}

Sampling Request::sampling_of(const Sequence& sequence) const {
  Sampling result = sampling;
  result.seed = static_cast<int64_t>(static_cast<uint64_t>(sampling.seed) +
                                     uint64_t{sequence.sample});
  return result;
}

Status Request::read_prompt(const husk_text_request& from, const Model& model,
                            const husk_tokenizer* tokenizer, husk_error* error) {
  if (from.text) {
    if (!tokenizer) {
      return fail(error, HUSK_UNSUPPORTED, "the file has no tokenizer: give the prompt as tokens");
    }
    size_t size = 0;
    // Few texts have more tokens than bytes.
    HUSK_TRY(prompt.resize(from.bytes + 16, error));
    HUSK_TRY(to_status(husk_tokenizer_encode(tokenizer, from.text, from.bytes, from.options,
                                             prompt.data(), prompt.size(), &size, error)));
    if (size > prompt.size()) {
      HUSK_TRY(prompt.resize(size, error));
      HUSK_TRY(to_status(husk_tokenizer_encode(tokenizer, from.text, from.bytes, from.options,
                                               prompt.data(), prompt.size(), &size, error)));
    }
    prompt.shrink(size);
  } else {
    HUSK_TRY(prompt.append(from.tokens, from.token_count, error));
  }
  HUSK_TRY(source.read(model.encoder, from, prompt, error));
  if (prompt.empty()) return fail(error, HUSK_INVALID_INPUT, "the prompt has no tokens");
  HUSK_TRY(images.read(model.images, prompt, from.embeddings, from.embedding_count, error));
  if (prompt.size() > static_cast<size_t>(model.max_tokens)) {
    return fail(error, HUSK_INVALID_INPUT,
                "the prompt has %zu tokens, but a sequence of this file has up to %lld: shorten "
                "it, or export the model with a larger max_tokens",
                prompt.size(), static_cast<long long>(model.max_tokens));
  }
  const List<int32_t>& of_encoder = source.tokens();
  HUSK_TRY(model.check_tokens(of_encoder.data(), of_encoder.size(), error));
  return model.check_tokens(prompt.data(), prompt.size(), error);
}

Status Request::read_sampling(const husk_text_request& from, husk_error* error) {
  if (!(from.temperature >= 0 && isfinite(from.temperature))) {
    return wrong_setting(error, "temperature", static_cast<double>(from.temperature), "0 or more");
  }
  if (from.top_k < 0) {
    return wrong_setting(error, "top_k", static_cast<double>(from.top_k),
                         "0 for no limit, or more");
  }
  if (!(from.top_p >= 0 && from.top_p <= 1)) {
    return wrong_setting(error, "top_p", static_cast<double>(from.top_p), "a number from 0 to 1");
  }
  if (!(from.min_p >= 0 && from.min_p <= 1)) {
    return wrong_setting(error, "min_p", static_cast<double>(from.min_p), "a number from 0 to 1");
  }
  sampling.temperature = from.temperature;
  sampling.top_k = from.top_k;
  sampling.top_p = from.top_p > 0 ? from.top_p : 1;
  sampling.min_p = from.min_p;
  sampling.seed = from.seed;
  gives_logprobs = from.logprobs != 0;
  ignores_end = from.ignore_end != 0;
  most = from.max_new_tokens;
  return Status::ok;
}

Status Request::read_controls(const husk_text_request& from, const Model& model,
                              husk_error* error) {
  if (from.repetition_penalty < 0 || !isfinite(from.repetition_penalty)) {
    return wrong_setting(error, "repetition_penalty", static_cast<double>(from.repetition_penalty),
                         "a number above 0, or 0 for none");
  }
  if (!isfinite(from.presence_penalty)) {
    return wrong_setting(error, "presence_penalty", static_cast<double>(from.presence_penalty),
                         "a finite number");
  }
  if (!isfinite(from.frequency_penalty)) {
    return wrong_setting(error, "frequency_penalty", static_cast<double>(from.frequency_penalty),
                         "a finite number");
  }
  controls.repetition = from.repetition_penalty > 0 ? from.repetition_penalty : 1;
  controls.presence = from.presence_penalty;
  controls.frequency = from.frequency_penalty;
  allow_ = from.allow;
  if (from.speculate && !model.verified) {
    return fail(error, HUSK_UNSUPPORTED,
                "the file cannot speculate: export it with --features verify, or set speculate "
                "to 0");
  }
  const int64_t most_tried = model.verified ? model.verified - 1 : 0;
  speculated = from.speculate < most_tried ? from.speculate : most_tried;
  top = from.top_logprobs;
  if ((adjusts() || top) && !model.controls()) {
    return fail(error, HUSK_UNSUPPORTED,
                "the file has no penalties, masks of tokens and most likely tokens: export it with "
                "--features controls");
  }
  if (int64_t{top} > model.ranked) {
    return fail(error, HUSK_INVALID_ARGUMENT, "top_logprobs is %u: give %lld at most", top,
                static_cast<long long>(model.ranked));
  }
  return Status::ok;
}

Status Request::read_adapter(const husk_text_request& from, const Model& model, husk_error* error) {
  if (from.adapter && !model.adapter_count) {
    return fail(error, HUSK_UNSUPPORTED,
                "the file has no room for adapters: export it with --adapters N, or set adapter "
                "to 0");
  }
  if (int64_t{from.adapter} > model.adapter_count) {
    return fail(error, HUSK_INVALID_ARGUMENT, "adapter is %u: the file has room for %lld",
                from.adapter, static_cast<long long>(model.adapter_count));
  }
  adapter = from.adapter;
  return Status::ok;
}

bool Request::ask(const Sequence& sequence, const int32_t* tokens, uint32_t* allowed,
                  size_t words) const {
  husk_text_choice choice = {};
  choice.struct_size = sizeof choice;
  choice.sample = sequence.sample;
  choice.request = number;
  choice.tokens = tokens;
  choice.token_count = static_cast<size_t>(sequence.count);
  choice.allowed = allowed;
  choice.word_count = words;
  return allow_(user_, &choice) == 0;
}

Status Request::make_sequences(uint32_t wanted, const husk_tokenizer* tokenizer,
                               husk_error* error) {
  if (wanted > kMaxSamples) {
    return wrong_setting(error, "samples", wanted, "65536 at most");
  }
  sequences = static_cast<Sequence*>(calloc(wanted, sizeof(Sequence)));
  if (!sequences) return fail(error, HUSK_OUT_OF_MEMORY, "no memory for %u texts", wanted);
  for (; count < wanted; ++count) {
    Sequence& sequence = *::new (static_cast<void*>(sequences + count)) Sequence();
    sequence.request = this;
    sequence.sample = count;
    sequence.most_drafted = speculated;
  }
  left = count;
  for (uint32_t i = 0; tokenizer && i < count; ++i) {
    HUSK_TRY(to_status(
        husk_text_decoder_create(tokenizer, HUSK_TEXT_SKIP_SPECIAL, &sequences[i].decoder, error)));
    HUSK_TRY(sequences[i].held.reserve(stops, error));
  }
  return Status::ok;
}

Status Request::read(const husk_text_request& from, const Model& model,
                     const husk_tokenizer* tokenizer, husk_error* error) {
  const bool takes_features = from.features || model.encoder.features;
  const char* missing = !from.part                                         ? "part"
                        : from.stop_count && !from.stops                   ? "stops"
                        : from.embedding_count && !from.embeddings         ? "embeddings"
                        : from.feature_count && !from.features             ? "features"
                        : from.decoder_token_count && !from.decoder_tokens ? "decoder_tokens"
                        : !from.text && !from.tokens && !takes_features    ? "text and tokens"
                                                                           : nullptr;
  if (missing) return fail(error, HUSK_INVALID_ARGUMENT, "husk_text_request: %s is NULL", missing);
  part_ = from.part;
  user_ = from.user;
  HUSK_TRY(read_sampling(from, error));
  HUSK_TRY(read_controls(from, model, error));
  HUSK_TRY(read_adapter(from, model, error));
  for (size_t i = 0; i < from.stop_count; ++i) {
    const Span stop(from.stops[i].text, from.stops[i].bytes);
    if (!tokenizer) {
      return fail(error, HUSK_UNSUPPORTED, "stop texts need a tokenizer, which the file lacks");
    }
    if (!stop.data || !stop.size) {
      return fail(error, HUSK_INVALID_ARGUMENT, "an empty stop text would end each generation");
    }
    Status status = check_utf8(stop, error);
    if (!failed(status)) status = stops.add(stop, error);
    if (failed(status)) {
      prefix(error, "stop text %zu: ", i);
      return status;
    }
  }
  HUSK_TRY(read_prompt(from, model, tokenizer, error));
  return make_sequences(from.samples ? from.samples : 1, tokenizer, error);
}

}  // namespace husk::text
