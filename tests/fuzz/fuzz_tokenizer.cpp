// Fuzzes tokenizers, forms of chats and entries about sound. The input is the content of one of
// them, and after a zero byte a text. A file that is no tokenizer must give an error that names
// what is wrong. With a tokenizer, a text gives tokens that exist, the same number of them whatever
// memory there is, and tokens give a text in UTF-8, the same whether the special ones are asked for
// one by one or together. Features of sound are finite.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <husk/sound.h>
#include <husk/text.h>

#include "text/utf8.h"

namespace {

struct Release {
  void operator()(husk_tokenizer* tokenizer) const { husk_tokenizer_release(tokenizer); }
  void operator()(husk_text_decoder* decoder) const { husk_text_decoder_release(decoder); }
  void operator()(husk_chat* chat) const { husk_chat_release(chat); }
  void operator()(husk_sound* sound) const { husk_sound_release(sound); }
};
template <class T>
using Handle = std::unique_ptr<T, Release>;

[[noreturn]] void defect(const char* what, const char* why) {
  std::fprintf(stderr, "%s: %s\n", what, why);
  std::abort();
}

void expect_text(const char* text, size_t bytes) {
  if (husk::failed(husk::text::check_utf8({text, bytes}, nullptr)))
    defect("a decoder", "its text is no UTF-8");
}

void decode(const husk_tokenizer* tokenizer, const std::vector<int32_t>& tokens) {
  for (const uint32_t options : {0u, uint32_t{HUSK_TEXT_SKIP_SPECIAL}}) {
    husk_text_decoder* created = nullptr;
    if (husk_text_decoder_create(tokenizer, options, &created, nullptr) != HUSK_OK) return;
    const Handle<husk_text_decoder> decoder(created);
    const char* text = nullptr;
    size_t bytes = 0;
    for (const int32_t token : tokens) {
      if (husk_text_decoder_push(created, token, &text, &bytes, nullptr) != HUSK_OK)
        defect("a decoder", "it refuses a token of the tokenizer");
      expect_text(text, bytes);
    }
    if (husk_text_decoder_finish(created, &text, &bytes, nullptr) == HUSK_OK)
      expect_text(text, bytes);
  }
}

void encode(const husk_tokenizer* tokenizer, const char* text, size_t bytes) {
  std::vector<int32_t> tokens(2 * bytes + 64);
  for (uint32_t options = 0; options < 4; ++options) {
    husk_error error = {};
    size_t count = 0, again = 0;
    const husk_status status = husk_tokenizer_encode(tokenizer, text, bytes, options, tokens.data(),
                                                     tokens.size(), &count, &error);
    if (status != HUSK_OK) {
      if (!error.text[0]) defect("a text is refused", "without a reason");
      return;
    }
    if (husk_tokenizer_encode(tokenizer, text, bytes, options, nullptr, 0, &again, &error) !=
            HUSK_OK ||
        again != count) {
      defect("a text", "it has another number of tokens without memory for them");
    }
    std::vector<int32_t> found(
        tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(std::min(count, tokens.size())));
    for (const int32_t token : found) {
      size_t size = 0;
      if (token < 0 || static_cast<uint32_t>(token) >= husk_tokenizer_size(tokenizer) ||
          !husk_tokenizer_token(tokenizer, token, &size))
        defect("a text", "it has a token that does not exist");
    }
    decode(tokenizer, found);
  }
}

void chat(const char* json, size_t bytes) {
  husk_chat* created = nullptr;
  if (husk_chat_create(json, bytes, &created, nullptr) != HUSK_OK) return;
  const Handle<husk_chat> owner(created);
  for (const char* role : {"system", "user", "assistant", "user"})
    (void)husk_chat_add(created, role, " a ", 3, nullptr);
  const char* text = nullptr;
  size_t size = 0;
  (void)husk_chat_text(created, &text, &size, nullptr);
}

void sound(const char* json, size_t bytes) {
  husk_sound* created = nullptr;
  if (husk_sound_create(json, bytes, &created, nullptr) != HUSK_OK) return;
  const Handle<husk_sound> owner(created);
  husk_sound_format format = HUSK_SOUND_FORMAT_INIT;
  if (husk_sound_get(created, &format, nullptr) != HUSK_OK) defect("sound", "it has no format");
  constexpr size_t kColumns = 3;
  std::vector<float> samples(700), features(format.bins * kColumns);
  for (size_t i = 0; i < samples.size(); ++i) samples[i] = static_cast<float>(i % 17) / 16 - 0.5f;
  if (husk_sound_features(created, samples.data(), samples.size(), kColumns, features.data(),
                          nullptr) != HUSK_OK) {
    return;
  }
  for (const float one : features) {
    if (!std::isfinite(one)) defect("features", "one is not finite");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto* json = reinterpret_cast<const char*>(data);
  const void* zero = size ? std::memchr(json, 0, size) : nullptr;
  const size_t length = zero ? static_cast<size_t>(static_cast<const char*>(zero) - json) : size;
  // The library gets exactly these bytes, so that a sanitizer sees a read behind them.
  const std::vector<char> file(json, json + length);
  const std::vector<char> text(json + (zero ? length + 1 : length), json + size);
  chat(file.data(), file.size());
  sound(file.data(), file.size());
  husk_error error = {};
  husk_tokenizer* created = nullptr;
  if (husk_tokenizer_create(file.data(), file.size(), &created, &error) != HUSK_OK) {
    if (created || !error.text[0]) defect("a file is refused", "without a reason");
    return 0;
  }
  const Handle<husk_tokenizer> owner(created);
  encode(created, text.data(), text.size());
  encode(created, "a", 0);
  return 0;
}
