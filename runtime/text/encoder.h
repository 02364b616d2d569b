// The encoder of a model: what it takes, and what a request gives it.
#pragma once

#include <husk/generate.h>

#include "text/json.h"

namespace husk::text {

// How a file takes the input of its encoder, according to its metadata.
struct EncoderKind {
  int64_t positions = 0;  // that the encoder gives at most; 0: the file has no encoder
  int64_t features = 0;   // numbers of features; 0: the encoder takes tokens
  List<int64_t> shape;    // of the features
  List<int32_t> start;    // the tokens with which the decoder begins

  bool exists() const { return positions != 0; }
  // Then as many positions as there are tokens count, up to `positions`.
  bool takes_tokens() const { return exists() && !features; }

  // Reads the entry `encoder` of husk.text.model, if there is one.
  Status read(const Json& json, husk_error* error);
};

// The input of the encoder for a request: tokens or features.
class Source {
 public:
  // Copies the features, or takes the tokens of the prompt. With an encoder, `prompt` becomes the
  // tokens with which the decoder begins.
  Status read(const EncoderKind& kind, const husk_text_request& from, List<int32_t>& prompt,
              husk_error* error);

  const List<int32_t>& tokens() const { return tokens_; }
  const float* features() const { return features_.data(); }

 private:
  Status read_tokens(const EncoderKind& kind, List<int32_t>& prompt, husk_error* error);
  Status read_features(const EncoderKind& kind, const husk_text_request& from, husk_error* error);

  List<int32_t> tokens_;
  List<float> features_;
};

}  // namespace husk::text
