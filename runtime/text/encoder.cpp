#include "text/encoder.h"

#include <math.h>

#include "text/entry.h"

namespace husk::text {

Status EncoderKind::read(const Json& json, husk_error* error) {
  const Entry encoder(json, "encoder", "an encoder", error);
  if (!encoder.exists()) return Status::ok;
  HUSK_TRY(encoder.number("positions", 1, positions));
  const JsonValue* tokens = encoder.member("start");
  if (!tokens || tokens->kind != JsonKind::array) return encoder.wrong("start");
  for (const JsonValue* one = json.first(tokens); one != json.end(tokens); one = json.after(one)) {
    const int64_t token = whole(*one, Entry::kMost);
    if (token < 0) return encoder.wrong("start");
    HUSK_TRY(start.push(static_cast<int32_t>(token), error));
  }
  if (start.empty()) return encoder.wrong("start");
  return encoder.member("shape") ? encoder.sizes("shape", shape, features) : Status::ok;
}

Status Source::read_tokens(const EncoderKind& kind, List<int32_t>& prompt, husk_error* error) {
  if (prompt.empty()) {
    return fail(error, HUSK_INVALID_INPUT,
                "the prompt has no tokens, and the encoder takes at least one");
  }
  if (prompt.size() > static_cast<size_t>(kind.positions)) {
    return fail(error, HUSK_INVALID_INPUT,
                "the prompt has %zu tokens, but the encoder of this file takes up to %lld: shorten "
                "it, or export the model with a larger max_encoder_tokens",
                prompt.size(), static_cast<long long>(kind.positions));
  }
  tokens_.swap(prompt);
  return Status::ok;
}

Status Source::read_features(const EncoderKind& kind, const husk_text_request& from,
                             husk_error* error) {
  if (from.feature_count != static_cast<size_t>(kind.features)) {
    return fail(error, HUSK_INVALID_INPUT,
                "feature_count is %zu, but the encoder of this file takes %lld numbers: pad or cut "
                "the sound, as the feature extractor of the model does",
                from.feature_count, static_cast<long long>(kind.features));
  }
  for (size_t i = 0; i < from.feature_count; ++i) {
    if (isfinite(from.features[i])) continue;
    return fail(error, HUSK_INVALID_INPUT, "number %zu of the features is not finite", i);
  }
  return features_.append(from.features, from.feature_count, error);
}

Status Source::read(const EncoderKind& kind, const husk_text_request& from, List<int32_t>& prompt,
                    husk_error* error) {
  if (!kind.exists()) {
    if (!from.feature_count && !from.decoder_token_count) return Status::ok;
    return fail(error, HUSK_UNSUPPORTED,
                "the file has no encoder: give a prompt, and set feature_count and "
                "decoder_token_count to 0");
  }
  if (kind.takes_tokens()) {
    if (from.feature_count) {
      return fail(error, HUSK_INVALID_INPUT,
                  "the encoder of this file takes tokens: set feature_count to 0");
    }
    HUSK_TRY(read_tokens(kind, prompt, error));
  } else {
    if (!prompt.empty()) {
      return fail(error, HUSK_INVALID_INPUT,
                  "the prompt has %zu tokens, but the encoder of this file takes features: give "
                  "the tokens with which the decoder begins as decoder_tokens",
                  prompt.size());
    }
    HUSK_TRY(read_features(kind, from, error));
  }
  prompt.clear();
  if (from.decoder_token_count) {
    return prompt.append(from.decoder_tokens, from.decoder_token_count, error);
  }
  return prompt.append(kind.start.data(), kind.start.size(), error);
}

}  // namespace husk::text
