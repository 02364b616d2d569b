#include "text/added.h"

#include "text/utf8.h"

namespace husk::text {

Status AddedTokens::read(const Json& json, const JsonValue* value, const Normalizer& normalizer,
                         Vocabulary& vocabulary, husk_error* error) {
  if (!value) return Status::ok;
  List<char> normalized, scratch;
  if (value->kind != JsonKind::array) {
    return fail(error, HUSK_INVALID_FILE, "the tokenizer's added_tokens are no list");
  }
  for (const JsonValue* one = json.first(value); one != json.end(value); one = json.after(one)) {
    const JsonValue *content = json.member(one, "content"), *id = json.member(one, "id");
    if (!content || content->kind != JsonKind::string || !id || id->kind != JsonKind::number) {
      return fail(error, HUSK_INVALID_FILE, "an added token lacks its number or its text");
    }
    const Span text = json.text(content);
    if (json.has_true(one, "single_word")) {
      return fail(error, HUSK_UNSUPPORTED, "the added token '%.*s' is for single words",
                  static_cast<int>(text.size), text.data);
    }
    if (!(id->number >= 0 && id->number < 1 << 24)) {
      return fail(error, HUSK_INVALID_FILE, "an added token has the number %g", id->number);
    }
    AddedToken token = {};
    token.number = static_cast<int32_t>(id->number);
    token.is_special = json.has_true(one, "special");
    token.takes_left = json.has_true(one, "lstrip");
    token.takes_right = json.has_true(one, "rstrip");
    token.is_normalized = json.has_true(one, "normalized");
    HUSK_TRY(vocabulary.add(token.number, text, error));
    if (token.is_special) vocabulary.set_special(token.number);
    // A token that is found in a normalized text is normalized, too.
    normalized.clear();
    HUSK_TRY(normalized.append(text.data, text.size, error));
    if (token.is_normalized) HUSK_TRY(normalizer.apply(normalized, scratch, error));
    if (normalized.empty()) continue;
    has_normalized_ |= token.is_normalized;
    token.begin = texts_.size();
    token.bytes = normalized.size();
    HUSK_TRY(texts_.append(normalized.data(), normalized.size(), error));
    HUSK_TRY(tokens_.push(token, error));
  }
  // Indices in the order of first bytes, by counting.
  HUSK_TRY(order_.resize(tokens_.size(), error));
  const auto first_byte = [&](size_t i) { return static_cast<uint8_t>(texts_[tokens_[i].begin]); };
  for (size_t i = 0; i < tokens_.size(); ++i) ++first_[first_byte(i) + 1];
  for (int byte = 0; byte < 256; ++byte) first_[byte + 1] += first_[byte];
  for (size_t i = tokens_.size(); i-- > 0;) {
    // The places of a byte are filled from their end, which first_[byte + 1] counts down.
    order_[--first_[first_byte(i) + 1]] = static_cast<uint32_t>(i);
  }
  // first_[byte + 1] now is where the tokens of `byte` begin.
  for (int byte = 0; byte < 256; ++byte) first_[byte] = first_[byte + 1];
  first_[256] = static_cast<uint32_t>(tokens_.size());
  return Status::ok;
}

const AddedToken* AddedTokens::longest(Span text, bool normalized, bool plain) const {
  const auto byte = static_cast<uint8_t>(text.data[0]);
  const AddedToken* best = nullptr;
  for (uint32_t i = first_[byte]; i < first_[byte + 1]; ++i) {
    const AddedToken& token = tokens_[order_[i]];
    if (token.is_normalized != normalized || (plain && token.is_special)) continue;
    if (token.bytes > text.size || (best && best->bytes >= token.bytes)) continue;
    if (memcmp(texts_.data() + token.begin, text.data, token.bytes) == 0) best = &token;
  }
  return best;
}

Status AddedTokens::split(Span text, bool normalized, bool plain, List<Part>& parts,
                          husk_error* error) const {
  size_t done = 0;
  for (size_t at = 0; at < text.size;) {
    const AddedToken* token = longest(text.from(at), normalized, plain);
    if (!token) {
      ++at;
      continue;
    }
    size_t begin = at, end = at + token->bytes;
    if (token->takes_left) begin = space_before(text, done, begin);
    if (token->takes_right) end = space_after(text, end);
    if (begin > done) HUSK_TRY(parts.push({text.slice(done, begin), -1}, error));
    HUSK_TRY(parts.push({text.slice(begin, end), token->number}, error));
    done = at = end;
  }
  if (done < text.size) HUSK_TRY(parts.push({text.from(done), -1}, error));
  return Status::ok;
}

}  // namespace husk::text
