#include <husk/text.h>

#include "text/tokenizer.h"
#include "text/utf8.h"

using husk::fail;
using husk::failed;
using husk::null_argument;
using husk::Status;
using namespace husk::text;  // NOLINT: the C functions below are those of this namespace

struct husk_text_decoder {
  const husk_tokenizer* tokenizer = nullptr;
  bool skips_special = false;
  bool is_first = true;   // no token has come
  bool has_text = false;  // text was given, or is in `rest`
  List<char> rest;        // bytes of a character that is not complete
  List<char> text;        // what the last call gave

  // Appends the bytes of a token to `rest`.
  Status append(Span token, husk_error* error) {
    const Rendering& rendering = tokenizer->rendering;
    if (rendering.is_bytes()) return rest.append(token.data, token.size, error);
    const size_t before = rest.size();
    HUSK_TRY(rendering.append(token, is_first, rest, error));
    is_first = false;
    if (has_text || rest.size() == before) return Status::ok;
    has_text = true;
    if (rendering.strips_space() && rest[0] == ' ') {
      memmove(rest.data(), rest.data() + 1, rest.size() - 1);
      rest.shrink(rest.size() - 1);
    }
    return Status::ok;
  }

  // Moves whole characters from `rest` to `text`; `at_end` an incomplete one too.
  Status move(bool at_end, husk_error* error) {
    static const char replacement[] = "\xEF\xBF\xBD";
    text.clear();
    size_t at = 0;
    while (at < rest.size()) {
      const Span left(rest.data() + at, rest.size() - at);
      const int length = character(left);
      if (length == 0 && !at_end) break;
      if (length > 0) {
        HUSK_TRY(text.append(left.data, static_cast<size_t>(length), error));
        at += static_cast<size_t>(length);
      } else {
        HUSK_TRY(text.append(replacement, 3, error));
        at = length < 0 ? at + static_cast<size_t>(-length) : rest.size();
      }
    }
    if (at) memmove(rest.data(), rest.data() + at, rest.size() - at);
    rest.shrink(rest.size() - at);
    return Status::ok;
  }

  husk_status give(bool at_end, const char** to, size_t* bytes, husk_error* error) {
    const Status status = move(at_end, error);
    if (failed(status)) return static_cast<husk_status>(status);
    *to = !text.empty() ? text.data() : "";
    *bytes = text.size();
    return HUSK_OK;
  }
};

husk_status husk_text_decoder_create(const husk_tokenizer* tokenizer, uint32_t options,
                                     husk_text_decoder** decoder, husk_error* error) {
  if (!decoder) return null_argument(error, "text_decoder_create", ": decoder");
  *decoder = nullptr;
  if (!tokenizer) return null_argument(error, "text_decoder_create", ": tokenizer");
  if (options & ~static_cast<uint32_t>(HUSK_TEXT_SKIP_SPECIAL)) {
    return static_cast<husk_status>(
        fail(error, HUSK_INVALID_ARGUMENT, "husk_text_decoder_create: options is 0x%x", options));
  }
  return make(decoder, error, [&](husk_text_decoder& created) {
    created.tokenizer = tokenizer;
    created.skips_special = options & HUSK_TEXT_SKIP_SPECIAL;
    // Tokens whose text is longer are rare, so a push seldom allocates.
    constexpr size_t token_bytes = 256;
    HUSK_TRY(created.rest.reserve(token_bytes, error));
    return created.text.reserve(token_bytes, error);
  });
}

void husk_text_decoder_release(husk_text_decoder* decoder) { destroy(decoder); }

husk_status husk_text_decoder_push(husk_text_decoder* decoder, int32_t token, const char** text,
                                   size_t* bytes, husk_error* error) {
  if (!decoder || !text || !bytes) return null_argument(error, "text_decoder_push");
  const Vocabulary& vocabulary = decoder->tokenizer->vocabulary;
  if (!vocabulary.has(token)) {
    return static_cast<husk_status>(
        fail(error, HUSK_INVALID_INPUT, "no token has the number %d", token));
  }
  if (!decoder->skips_special || !vocabulary.is_special(token)) {
    const Status status = decoder->append(vocabulary.bytes(token), error);
    if (failed(status)) return static_cast<husk_status>(status);
  }
  return decoder->give(false, text, bytes, error);
}

husk_status husk_text_decoder_finish(husk_text_decoder* decoder, const char** text, size_t* bytes,
                                     husk_error* error) {
  if (!decoder || !text || !bytes) return null_argument(error, "text_decoder_finish");
  decoder->is_first = true;
  decoder->has_text = false;
  return decoder->give(true, text, bytes, error);
}
