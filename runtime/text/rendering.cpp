#include "text/rendering.h"

namespace husk::text {

namespace {

int hexadecimal(char digit) {
  if (digit >= '0' && digit <= '9') return digit - '0';
  if (digit >= 'A' && digit <= 'F') return digit - 'A' + 10;
  if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
  return -1;
}

// The byte of a token such as <0x0A>, or -1.
int byte_of_token(Span token) {
  if (token.size != 6 || memcmp(token.data, "<0x", 3) != 0 || token.data[5] != '>') return -1;
  const int high = hexadecimal(token.data[3]), low = hexadecimal(token.data[4]);
  return high < 0 || low < 0 ? -1 : 16 * high + low;
}

}  // namespace

Status Rendering::read_replace(const Json& json, const JsonValue* value, husk_error* error) {
  const JsonValue* pattern = json.member(json.member(value, "pattern"), "String");
  const JsonValue* content = json.member(value, "content");
  if (!pattern || pattern->kind != JsonKind::string || !pattern->bytes || !content ||
      content->kind != JsonKind::string || from_bytes_) {
    return fail(error, HUSK_UNSUPPORTED,
                "the decoder of the tokenizer replaces several texts, or a pattern");
  }
  const Span text = json.text(pattern), replacement = json.text(content);
  from_bytes_ = text.size;
  HUSK_TRY(texts_.append(text.data, text.size, error));
  return texts_.append(replacement.data, replacement.size, error);
}

Status Rendering::read_step(const Json& json, const JsonValue* value, husk_error* error) {
  if (json.has_text(value, "type", "Replace") && !is_fused_)
    return read_replace(json, value, error);
  if (json.has_text(value, "type", "ByteFallback") && !is_fused_) {
    has_byte_tokens_ = true;
    return Status::ok;
  }
  if (json.has_text(value, "type", "Fuse")) {
    is_fused_ = true;
    return Status::ok;
  }
  if (json.has_text(value, "type", "Strip") && is_fused_ && json.has_text(value, "content", " ")) {
    const JsonValue *start = json.member(value, "start"), *stop = json.member(value, "stop");
    if (start && stop && start->number == 1 && stop->number == 0) {
      strips_space_ = true;
      return Status::ok;
    }
  }
  const JsonValue* kind = json.member(value, "type");
  const Span name = kind && kind->kind == JsonKind::string ? json.text(kind) : Span("without one");
  return fail(error, HUSK_UNSUPPORTED,
              "the decoder of the tokenizer has a step of the kind '%.*s' that Husk lacks",
              static_cast<int>(name.size), name.data);
}

Status Rendering::read(const Json& json, const JsonValue* value, husk_error* error) {
  if (!value) {
    return fail(error, HUSK_UNSUPPORTED,
                "the tokenizer has no decoder, which Husk needs to make texts of tokens");
  }
  if (json.has_text(value, "type", "ByteLevel")) {
    is_bytes_ = true;
    return Status::ok;
  }
  if (json.has_text(value, "type", "Sequence")) {
    const JsonValue* parts = json.member(value, "decoders");
    if (!parts || parts->kind != JsonKind::array) {
      return fail(error, HUSK_INVALID_FILE, "the tokenizer lacks its decoders");
    }
    for (const JsonValue* one = json.first(parts); one != json.end(parts); one = json.after(one)) {
      HUSK_TRY(read_step(json, one, error));
    }
    return Status::ok;
  }
  if (json.has_text(value, "type", "Metaspace")) {
    const JsonValue* replacement = json.member(value, "replacement");
    if (!replacement || replacement->kind != JsonKind::string || !replacement->bytes) {
      return fail(error, HUSK_INVALID_FILE, "the tokenizer replaces spaces by no character");
    }
    const Span text = json.text(replacement);
    from_bytes_ = text.size;
    drops_first_ = !json.has_text(value, "prepend_scheme", "never");
    HUSK_TRY(texts_.append(text.data, text.size, error));
    return texts_.push(' ', error);
  }
  if (json.has_text(value, "type", "WordPiece")) {
    const JsonValue* prefix_text = json.member(value, "prefix");
    if (!prefix_text || prefix_text->kind != JsonKind::string) {
      return fail(error, HUSK_INVALID_FILE, "the decoder of the tokenizer lacks its prefix");
    }
    is_wordpiece_ = true;
    cleans_ = json.has_true(value, "cleanup");
    const Span text = json.text(prefix_text);
    return texts_.append(text.data, text.size, error);
  }
  return read_step(json, value, error);
}

// A token inside of a word has a prefix, and each other one has a space before it, unless English
// has none there.
Status Rendering::append_wordpiece(Span token, bool is_first, List<char>& result,
                                   husk_error* error) const {
  const Span mark(texts_.data(), texts_.size());
  if (is_first) return result.append(token.data, token.size, error);
  if (token.size >= mark.size && equal(token.slice(0, mark.size), mark)) {
    return result.append(token.data + mark.size, token.size - mark.size, error);
  }
  static const char* const kWithoutSpace[] = {".", "?", "!", ",", "n't", "'m", "'s", "'ve", "'re"};
  bool has_space = true;
  for (const char* one : kWithoutSpace) {
    const Span begin(one);
    if (cleans_ && token.size >= begin.size && equal(token.slice(0, begin.size), begin)) {
      has_space = false;
    }
  }
  if (has_space) HUSK_TRY(result.push(' ', error));
  return result.append(token.data, token.size, error);
}

Status Rendering::append(Span token, bool is_first, List<char>& result, husk_error* error) const {
  if (has_byte_tokens_) {
    const int byte = byte_of_token(token);
    if (byte >= 0) return result.push(static_cast<char>(byte), error);
  }
  if (is_wordpiece_) return append_wordpiece(token, is_first, result, error);
  size_t done = 0;
  for (size_t at = 0; from_bytes_ && at + from_bytes_ <= token.size;) {
    if (memcmp(token.data + at, from().data, from_bytes_) != 0) {
      ++at;
      continue;
    }
    HUSK_TRY(result.append(token.data + done, at - done, error));
    if (!is_first || !drops_first_) HUSK_TRY(result.append(to().data, to().size, error));
    done = at = at + from_bytes_;
  }
  return result.append(token.data + done, token.size - done, error);
}

}  // namespace husk::text
