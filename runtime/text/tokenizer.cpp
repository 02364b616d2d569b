#include "text/tokenizer.h"

#include <initializer_list>

#include <husk/text.h>

#include "text/utf8.h"

using namespace husk;        // NOLINT: the C functions below are those of this namespace
using namespace husk::text;  // NOLINT

namespace {

// Fails with HUSK_UNSUPPORTED: a part of the tokenizer is of a kind that the library lacks.
Status missing_kind(const Json& json, const JsonValue* value, const char* part, husk_error* error) {
  const JsonValue* kind = json.member(value, "type");
  const Span name = kind && kind->kind == JsonKind::string ? json.text(kind) : Span("without one");
  return fail(error, HUSK_UNSUPPORTED,
              "the %s of the tokenizer is of the kind '%.*s', which Husk "
              "lacks: it has BPE, Unigram and WordPiece",
              part, static_cast<int>(name.size), name.data);
}

Status lacks(const char* what, husk_error* error) {
  return fail(error, HUSK_INVALID_FILE, "the tokenizer lacks %s", what);
}

}  // namespace

// What a call of `encode` works with.
struct husk_tokenizer::Call {
  bool is_plain;
  List<int32_t>& tokens;
  List<char> normalized, scratch;
  List<Part> parts;
  Words words;
  Merges::Scratch symbols;
  Unigram::Scratch places;
};

Status husk_tokenizer::append_token(Span text, List<char>& to, husk_error* error) const {
  return splits_.has_bytes() ? append_bytes(text, to, error)
                             : to.append(text.data, text.size, error);
}

Status husk_tokenizer::read_merges(const Json& json, const JsonValue* merges, husk_error* error) {
  if (!merges || merges->kind != JsonKind::array) return lacks("the list of its rules", error);
  HUSK_TRY(merges_.allocate(static_cast<size_t>(merges->number), error));
  List<char> bytes;
  for (const JsonValue* one = json.first(merges); one != json.end(merges); one = json.after(one)) {
    Span left, right;
    if (one->kind == JsonKind::string) {
      const Span rule = json.text(one);
      const void* space = rule.size ? memchr(rule.data, ' ', rule.size) : nullptr;
      if (!space) return lacks("a space in a rule", error);
      const auto at = static_cast<size_t>(static_cast<const char*>(space) - rule.data);
      left = rule.slice(0, at);
      right = rule.from(at + 1);
    } else if (one->kind == JsonKind::array && one->number == 2 &&
               one[1].kind == JsonKind::string && one[2].kind == JsonKind::string) {
      left = json.text(one + 1);
      right = json.text(one + 2);
    } else {
      return lacks("the two parts of a rule", error);
    }
    bytes.clear();
    HUSK_TRY(append_token(left, bytes, error));
    const size_t middle = bytes.size();
    HUSK_TRY(append_token(right, bytes, error));
    const Span both(bytes.data(), bytes.size());
    const int32_t a = vocabulary.find(both.slice(0, middle)),
                  b = vocabulary.find(both.from(middle));
    const int32_t joined = vocabulary.find(both);
    if (a < 0 || b < 0 || joined < 0) {
      return fail(error, HUSK_INVALID_FILE,
                  "a rule of the tokenizer joins '%.*s' and '%.*s', which "
                  "are not in its vocabulary with what they make",
                  static_cast<int>(left.size), left.data, static_cast<int>(right.size), right.data);
    }
    merges_.add(a, b, joined);
  }
  return Status::ok;
}

Status husk_tokenizer::read_kind(const Json& json, const JsonValue* model, husk_error* error) {
  // Old files have a BPE without saying so.
  if (!json.member(model, "type") || json.has_text(model, "type", "BPE")) return Status::ok;
  kind_ = json.has_text(model, "type", "Unigram") ? Kind::unigram : Kind::wordpiece;
  if (kind_ == Kind::wordpiece && !json.has_text(model, "type", "WordPiece")) {
    return missing_kind(json, model, "model", error);
  }
  if (!splits_.has_bytes()) return Status::ok;
  return fail(error, HUSK_UNSUPPORTED, "the tokenizer has ByteLevel, but no BPE");
}

Status husk_tokenizer::read_vocabulary(const Json& json, const JsonValue* model,
                                       husk_error* error) {
  const JsonValue* vocab = json.member(model, "vocab");
  if (!vocab || vocab->kind != JsonKind::object) return lacks("its vocabulary", error);
  List<char> bytes;
  for (const JsonValue* one = json.first(vocab); one != json.end(vocab);
       one = json.after(one + 1)) {
    if (one[1].kind != JsonKind::number) return lacks("the number of a token", error);
    if (!(one[1].number >= 0 && one[1].number < 1 << 24)) return lacks("a small number", error);
    bytes.clear();
    HUSK_TRY(append_token(json.text(one), bytes, error));
    HUSK_TRY(
        vocabulary.add(static_cast<int32_t>(one[1].number), {bytes.data(), bytes.size()}, error));
  }
  return Status::ok;
}

// The token that the model names for characters without one; -1 if there is none.
int32_t husk_tokenizer::unknown_of(const Json& json, const JsonValue* model) const {
  const JsonValue* name = json.member(model, "unk_token");
  return name && name->kind == JsonKind::string ? vocabulary.find(json.text(name)) : -1;
}

Status husk_tokenizer::read_bpe(const Json& json, const JsonValue* model, husk_error* error) {
  const bool has_byte_tokens = json.has_true(model, "byte_fallback");
  if (has_byte_tokens && splits_.has_bytes()) {
    return fail(error, HUSK_UNSUPPORTED,
                "the tokenizer has both tokens for bytes (byte_fallback) and ByteLevel");
  }
  for (const char* name : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const JsonValue* found = json.member(model, name);
    if (found && found->bytes > 0) {
      return fail(error, HUSK_UNSUPPORTED, "the tokenizer has a %s, which Husk lacks", name);
    }
  }
  HUSK_TRY(read_vocabulary(json, model, error));
  if (splits_.has_bytes()) {
    merges_.find_bytes(vocabulary);
  } else {
    merges_.find_characters(vocabulary, unknown_of(json, model), json.has_true(model, "fuse_unk"),
                            has_byte_tokens);
  }
  merges_.prefer_words(json.has_true(model, "ignore_merges"));
  return read_merges(json, json.member(model, "merges"), error);
}

Status husk_tokenizer::read_unigram(const Json& json, const JsonValue* model, husk_error* error) {
  const JsonValue* vocab = json.member(model, "vocab");
  if (!vocab || vocab->kind != JsonKind::array) return lacks("its vocabulary", error);
  int32_t number = 0;
  for (const JsonValue* one = json.first(vocab); one != json.end(vocab); one = json.after(one)) {
    if (one->kind != JsonKind::array || one->number != 2 || one[1].kind != JsonKind::string ||
        one[2].kind != JsonKind::number) {
      return lacks("the text or the score of a token", error);
    }
    HUSK_TRY(vocabulary.add(number++, json.text(one + 1), error));
    HUSK_TRY(unigram_.add(one[2].number, error));
  }
  const JsonValue* unknown = json.member(model, "unk_id");
  const bool has_unknown = unknown && unknown->kind == JsonKind::number && unknown->number >= 0 &&
                           unknown->number < number;
  return unigram_.finish(vocabulary, has_unknown ? static_cast<int32_t>(unknown->number) : -1,
                         json.has_true(model, "byte_fallback"), error);
}

Status husk_tokenizer::read_wordpiece(const Json& json, const JsonValue* model, husk_error* error) {
  HUSK_TRY(read_vocabulary(json, model, error));
  const JsonValue *mark = json.member(model, "continuing_subword_prefix"),
                  *most = json.member(model, "max_input_chars_per_word");
  const int32_t unknown = unknown_of(json, model);
  if (!mark || mark->kind != JsonKind::string || !most || !(most->number >= 0) || unknown < 0) {
    return lacks("the prefix, the longest word or the unknown token of its WordPiece", error);
  }
  const double limit = most->number < 1e9 ? most->number : 1e9;
  return wordpiece_.set(json.text(mark), static_cast<size_t>(limit), unknown, error);
}

// A token before each text, and one after it.
Status husk_tokenizer::read_ends(const Json& json, const JsonValue* value, husk_error* error) {
  List<int32_t>* to = &before_;
  for (const char* name : {"cls", "sep"}) {
    const JsonValue* pair = json.member(value, name);
    const bool is_pair = pair && pair->kind == JsonKind::array && pair->number == 2;
    const auto number = is_pair ? static_cast<int32_t>(whole(pair[2], INT32_MAX)) : -1;
    if (!vocabulary.has(number)) return lacks("a token of its post_processor", error);
    HUSK_TRY(to->push(number, error));
    to = &after_;
  }
  return Status::ok;
}

Status husk_tokenizer::read_template(const Json& json, const JsonValue* value, husk_error* error) {
  if (!value || json.has_text(value, "type", "ByteLevel")) return Status::ok;
  if (json.has_text(value, "type", "BertProcessing") ||
      json.has_text(value, "type", "RobertaProcessing")) {
    return read_ends(json, value, error);
  }
  if (json.has_text(value, "type", "Sequence")) {
    const JsonValue* parts = json.member(value, "processors");
    if (!parts || parts->kind != JsonKind::array) return lacks("its processors", error);
    for (const JsonValue* one = json.first(parts); one != json.end(parts); one = json.after(one)) {
      if (json.has_text(one, "type", "Sequence")) {
        return missing_kind(json, one, "post_processor", error);
      }
      HUSK_TRY(read_template(json, one, error));
    }
    return Status::ok;
  }
  if (!json.has_text(value, "type", "TemplateProcessing")) {
    return missing_kind(json, value, "post_processor", error);
  }
  const JsonValue *parts = json.member(value, "single"),
                  *tokens = json.member(value, "special_tokens");
  if (!parts || parts->kind != JsonKind::array) return lacks("the template of a text", error);
  List<int32_t>* to = &before_;
  for (const JsonValue* one = json.first(parts); one != json.end(parts); one = json.after(one)) {
    if (json.member(one, "Sequence")) {
      to = &after_;
      continue;
    }
    const JsonValue* name = json.member(json.member(one, "SpecialToken"), "id");
    if (!name || name->kind != JsonKind::string || !tokens || tokens->kind != JsonKind::object) {
      return lacks("a token of its template", error);
    }
    const JsonValue* ids = nullptr;
    for (const JsonValue* token = json.first(tokens); token != json.end(tokens);
         token = json.after(token + 1)) {
      if (equal(json.text(token), json.text(name))) ids = json.member(token + 1, "ids");
    }
    if (!ids || ids->kind != JsonKind::array) return lacks("a token of its template", error);
    for (const JsonValue* id = json.first(ids); id != json.end(ids); id = json.after(id)) {
      const auto number = static_cast<int32_t>(whole(*id, INT32_MAX));
      if (!vocabulary.has(number)) return lacks("a token of its template", error);
      HUSK_TRY(to->push(number, error));
    }
  }
  return Status::ok;
}

Status husk_tokenizer::read(Span source, husk_error* error) {
  Json json;
  HUSK_TRY(json.parse(source, error));
  const JsonValue* root = json.root();
  const JsonValue* model = json.member(root, "model");
  if (!model || model->kind != JsonKind::object) return lacks("a model", error);
  // First what refuses a tokenizer, and then what takes time.
  if (const JsonValue* words = json.member(root, "pre_tokenizer")) {
    HUSK_TRY(splits_.read(json, words, error));
  }
  HUSK_TRY(read_kind(json, model, error));
  HUSK_TRY(rendering.read(json, json.member(root, "decoder"), error));
  if (splits_.has_bytes() != rendering.is_bytes()) {
    return fail(error, HUSK_UNSUPPORTED,
                "only one of the pre_tokenizer and the decoder of the tokenizer is ByteLevel");
  }
  HUSK_TRY(normalizer_.read(json, json.member(root, "normalizer"), error));
  switch (kind_) {
    case Kind::bpe: HUSK_TRY(read_bpe(json, model, error)); break;
    case Kind::unigram: HUSK_TRY(read_unigram(json, model, error)); break;
    case Kind::wordpiece: HUSK_TRY(read_wordpiece(json, model, error)); break;
  }
  HUSK_TRY(added_.read(json, json.member(root, "added_tokens"), normalizer_, vocabulary, error));
  return read_template(json, json.member(root, "post_processor"), error);
}

Status husk_tokenizer::encode_word(Span word, Call& call, husk_error* error) const {
  switch (kind_) {
    case Kind::bpe: return merges_.encode(vocabulary, word, call.symbols, call.tokens, error);
    case Kind::unigram: return unigram_.encode(vocabulary, word, call.places, call.tokens, error);
    case Kind::wordpiece:
      return wordpiece_.encode(vocabulary, word, call.scratch, call.tokens, error);
  }
  return Status::ok;
}

Status husk_tokenizer::encode_words(Span text, bool at_begin, Call& call, husk_error* error) const {
  HUSK_TRY(splits_.split(text, at_begin, call.words, error));
  for (const Span& word : call.words.found) {
    HUSK_TRY(encode_word(word, call, error));
  }
  return Status::ok;
}

// Encodes a part of a text between tokens that are found before the text is normalized.
Status husk_tokenizer::encode_part(Span text, bool at_begin, Call& call, husk_error* error) const {
  if (!normalizer_.is_empty()) {
    call.normalized.clear();
    HUSK_TRY(call.normalized.append(text.data, text.size, error));
    HUSK_TRY(normalizer_.apply(call.normalized, call.scratch, error));
    text = {call.normalized.data(), call.normalized.size()};
  }
  if (!added_.has_normalized()) {
    return text.size ? encode_words(text, at_begin, call, error) : Status::ok;
  }
  List<Part> parts;
  HUSK_TRY(added_.split(text, true, call.is_plain, parts, error));
  for (const Part& part : parts) {
    const bool is_first = at_begin && part.text.data == text.data;
    HUSK_TRY(part.token < 0 ? encode_words(part.text, is_first, call, error)
                            : call.tokens.push(part.token, error));
  }
  return Status::ok;
}

Status husk_tokenizer::encode(Span text, uint32_t options, List<int32_t>& tokens,
                              husk_error* error) const {
  HUSK_TRY(check_utf8(text, error));
  const bool adds = options & HUSK_TEXT_ADD_SPECIAL;
  if (adds) HUSK_TRY(tokens.append(before_.data(), before_.size(), error));
  Call call = {(options & HUSK_TEXT_PLAIN) != 0, tokens, {}, {}, {}, {}, {}, {}};
  HUSK_TRY(added_.split(text, false, call.is_plain, call.parts, error));
  for (const Part& part : call.parts) {
    HUSK_TRY(part.token < 0 ? encode_part(part.text, part.text.data == text.data, call, error)
                            : tokens.push(part.token, error));
  }
  return adds ? tokens.append(after_.data(), after_.size(), error) : Status::ok;
}

husk_status husk_tokenizer_create(const char* json, size_t bytes, husk_tokenizer** tokenizer,
                                  husk_error* error) {
  if (!tokenizer) return null_argument(error, "tokenizer_create", ": tokenizer");
  *tokenizer = nullptr;
  if (!json) return null_argument(error, "tokenizer_create", ": json");
  return make(tokenizer, error,
              [&](husk_tokenizer& created) { return created.read({json, bytes}, error); });
}

void husk_tokenizer_release(husk_tokenizer* tokenizer) { destroy(tokenizer); }

uint32_t husk_tokenizer_size(const husk_tokenizer* tokenizer) {
  return tokenizer ? static_cast<uint32_t>(tokenizer->vocabulary.size()) : 0;
}

const char* husk_tokenizer_token(const husk_tokenizer* tokenizer, int32_t token, size_t* bytes) {
  if (!tokenizer || !bytes || !tokenizer->vocabulary.has(token)) return nullptr;
  const Span found = tokenizer->vocabulary.bytes(token);
  *bytes = found.size;
  return found.data;
}

int husk_tokenizer_is_special(const husk_tokenizer* tokenizer, int32_t token) {
  return tokenizer && tokenizer->vocabulary.is_special(token);
}

husk_status husk_tokenizer_encode(const husk_tokenizer* tokenizer, const char* text, size_t bytes,
                                  uint32_t options, int32_t* tokens, size_t capacity, size_t* count,
                                  husk_error* error) {
  if (!tokenizer || !count || (!text && bytes) || (!tokens && capacity)) {
    return null_argument(error, "tokenizer_encode");
  }
  if (options & ~static_cast<uint32_t>(HUSK_TEXT_ADD_SPECIAL | HUSK_TEXT_PLAIN)) {
    return static_cast<husk_status>(
        fail(error, HUSK_INVALID_ARGUMENT, "husk_tokenizer_encode: options is 0x%x", options));
  }
  List<int32_t> found;
  const Status status = tokenizer->encode({text, bytes}, options, found, error);
  if (failed(status)) return static_cast<husk_status>(status);
  *count = found.size();
  const size_t written = found.size() < capacity ? found.size() : capacity;
  if (written) memcpy(tokens, found.data(), written * sizeof(int32_t));
  return HUSK_OK;
}
