#include "text/normalizer.h"

#include <utf8proc.h>

#include "text/pattern.h"
#include "text/utf8.h"

namespace husk::text {

namespace {

constexpr int32_t kComposed = UTF8PROC_STABLE | UTF8PROC_COMPOSE,
                  kDecomposed = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE;

// Whether a text has only characters before U+0300, which are composed already.
bool is_composed(Span text) {
  for (size_t i = 0; i < text.size; ++i) {
    if (static_cast<uint8_t>(text.data[i]) >= 0xCC) return false;
  }
  return true;
}

Status append_form(Span text, int32_t form, List<char>& to, husk_error* error) {
  uint8_t* result = nullptr;
  const utf8proc_ssize_t length = utf8proc_map(reinterpret_cast<const uint8_t*>(text.data),
                                               static_cast<utf8proc_ssize_t>(text.size), &result,
                                               static_cast<utf8proc_option_t>(form));
  if (length < 0) {
    return fail(error, HUSK_OUT_OF_MEMORY, "the text cannot be normalized: %s",
                utf8proc_errmsg(length));
  }
  const Status status = to.append(reinterpret_cast<char*>(result), static_cast<size_t>(length),
                                  error);
  free(result);
  return status;
}

Status append_lowercase(Span text, List<char>& to, husk_error* error) {
  for (size_t at = 0; at < text.size;) {
    const uint32_t point = code_point(text.from(at));
    char encoded[4];
    int length = write_code_point(
        static_cast<uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(point))), encoded);
    HUSK_TRY(to.append(encoded, static_cast<size_t>(length), error));
    // The only character whose small form is two: a small i, and the dot above.
    if (point == 0x130) HUSK_TRY(to.append("\xCC\x87", 2, error));
    at += static_cast<size_t>(character(text.from(at)));
  }
  return Status::ok;
}

Status append_character(Span text, size_t at, List<char>& to, husk_error* error) {
  return to.append(text.data + at, static_cast<size_t>(character(text.from(at))), error);
}

// Calls `body(at, code point)` for each character; stops at a failure.
template <class F>
Status for_characters(Span text, F body) {
  for (size_t at = 0; at < text.size; at += static_cast<size_t>(character(text.from(at)))) {
    HUSK_TRY(body(at, code_point(text.from(at))));
  }
  return Status::ok;
}

utf8proc_category_t category(uint32_t point) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(point));
}

bool is_control(uint32_t point) {
  switch (category(point)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CO: return true;
    default: return false;
  }
}

bool is_chinese(uint32_t point) {
  static constexpr uint32_t kRanges[][2] = {
      {0x4E00, 0x9FFF},   {0x3400, 0x4DBF},   {0x20000, 0x2A6DF}, {0x2A700, 0x2B73F},
      {0x2B740, 0x2B81F}, {0x2B920, 0x2CEAF}, {0xF900, 0xFAFF},   {0x2F800, 0x2FA1F}};
  for (const auto& range : kRanges) {
    if (point >= range[0] && point <= range[1]) return true;
  }
  return false;
}

Status append_clean(Span text, List<char>& to, husk_error* error) {
  return for_characters(text, [&](size_t at, uint32_t point) {
    if (point == '\t' || point == '\n' || point == '\r') return to.push(' ', error);
    if (point == 0 || point == 0xFFFD || is_control(point)) return Status::ok;
    return is_space(point) ? to.push(' ', error) : append_character(text, at, to, error);
  });
}

Status append_spread(Span text, List<char>& to, husk_error* error) {
  return for_characters(text, [&](size_t at, uint32_t point) {
    if (!is_chinese(point)) return append_character(text, at, to, error);
    HUSK_TRY(to.push(' ', error));
    HUSK_TRY(append_character(text, at, to, error));
    return to.push(' ', error);
  });
}

Status append_without_accents(Span text, List<char>& to, husk_error* error) {
  return for_characters(text, [&](size_t at, uint32_t point) {
    return category(point) == UTF8PROC_CATEGORY_MN ? Status::ok
                                                   : append_character(text, at, to, error);
  });
}

}  // namespace

Normalizer::~Normalizer() {
  for (const Step& step : steps_) pcre2_code_free_8(step.pattern);
}

Status Normalizer::keep(Span text, size_t* place, size_t* bytes, husk_error* error) {
  *place = texts_.size();
  *bytes = text.size;
  return texts_.append(text.data, text.size, error);
}

Status Normalizer::read_replace(const Json& json, const JsonValue* value, husk_error* error) {
  const JsonValue* pattern = json.member(value, "pattern");
  const JsonValue *literal = json.member(pattern, "String"), *regex = json.member(pattern, "Regex");
  const JsonValue* content = json.member(value, "content");
  const JsonValue* found = literal ? literal : regex;
  if (!found || found->kind != JsonKind::string || !found->bytes || !content ||
      content->kind != JsonKind::string) {
    return fail(error, HUSK_INVALID_FILE, "the tokenizer replaces nothing");
  }
  Step step = {};
  step.kind = literal ? Kind::replace : Kind::replace_pattern;
  if (regex) HUSK_TRY(compile_pattern(json.text(regex), &step.pattern, error));
  Status status = keep(json.text(found), &step.from, &step.from_bytes, error);
  if (!failed(status)) status = keep(json.text(content), &step.to, &step.to_bytes, error);
  if (!failed(status)) status = steps_.push(step, error);
  if (failed(status)) pcre2_code_free_8(step.pattern);
  return status;
}

Status Normalizer::add(Kind kind, husk_error* error) {
  Step step = {};
  step.kind = kind;
  return steps_.push(step, error);
}

Status Normalizer::read_bert(const Json& json, const JsonValue* value, husk_error* error) {
  const auto is_on = [&](const char* name, bool otherwise) {
    const JsonValue* found = json.member(value, name);
    return found ? found->truth : otherwise;
  };
  const bool is_lower = is_on("lowercase", true);
  if (is_on("clean_text", true)) HUSK_TRY(add(Kind::clean, error));
  if (is_on("handle_chinese_chars", true)) HUSK_TRY(add(Kind::spread, error));
  if (is_on("strip_accents", is_lower)) {
    Step step = {};
    step.kind = Kind::form;
    step.form = kDecomposed;
    HUSK_TRY(steps_.push(step, error));
    HUSK_TRY(add(Kind::strip_accents, error));
  }
  return is_lower ? add(Kind::lowercase, error) : Status::ok;
}

Status Normalizer::read(const Json& json, const JsonValue* value, husk_error* error) {
  if (!value) return Status::ok;
  const JsonValue* kind = json.member(value, "type");
  const Span name = kind && kind->kind == JsonKind::string ? json.text(kind) : Span("without one");
  static constexpr struct {
    const char* name;
    int32_t form;
  } kForms[] = {{"NFC", kComposed},
                {"NFD", kDecomposed},
                {"NFKC", kComposed | UTF8PROC_COMPAT},
                {"NFKD", kDecomposed | UTF8PROC_COMPAT}};
  Step step = {};
  for (const auto& form : kForms) {
    if (!equal(name, form.name)) continue;
    step.kind = Kind::form;
    step.form = form.form;
    return steps_.push(step, error);
  }
  if (equal(name, "Sequence")) {
    const JsonValue* parts = json.member(value, "normalizers");
    if (!parts || parts->kind != JsonKind::array) {
      return fail(error, HUSK_INVALID_FILE, "the tokenizer lacks its normalizers");
    }
    for (const JsonValue* one = json.first(parts); one != json.end(parts); one = json.after(one)) {
      if (json.has_text(one, "type", "Sequence")) {
        return fail(error, HUSK_UNSUPPORTED, "the tokenizer has normalizers inside of each other");
      }
      HUSK_TRY(read(json, one, error));
    }
    return Status::ok;
  }
  if (equal(name, "Prepend")) {
    const JsonValue* prefix_text = json.member(value, "prepend");
    if (!prefix_text || prefix_text->kind != JsonKind::string) {
      return fail(error, HUSK_INVALID_FILE, "the tokenizer lacks what it prepends");
    }
    step.kind = Kind::prepend;
    HUSK_TRY(keep(json.text(prefix_text), &step.to, &step.to_bytes, error));
    return steps_.push(step, error);
  }
  if (equal(name, "Replace")) return read_replace(json, value, error);
  if (equal(name, "Lowercase")) return add(Kind::lowercase, error);
  if (equal(name, "StripAccents")) return add(Kind::strip_accents, error);
  if (equal(name, "BertNormalizer")) return read_bert(json, value, error);
  if (equal(name, "Strip")) {
    step.kind = Kind::strip;
    step.left = json.has_true(value, "strip_left");
    step.right = json.has_true(value, "strip_right");
    return steps_.push(step, error);
  }
  if (equal(name, "Precompiled")) {
    const JsonValue* map = json.member(value, "precompiled_charsmap");
    if (!map || map->kind != JsonKind::string) {
      return fail(error, HUSK_INVALID_FILE, "the tokenizer lacks its map of characters");
    }
    for (const Step& other : steps_) {
      if (other.kind == Kind::charsmap) {
        return fail(error, HUSK_UNSUPPORTED, "the tokenizer has several maps of characters");
      }
    }
    HUSK_TRY(charsmap_.read(json.text(map), error));
    return add(Kind::charsmap, error);
  }
  return fail(error, HUSK_UNSUPPORTED,
              "the normalizer of the tokenizer is of the kind '%.*s', which Husk lacks",
              static_cast<int>(name.size), name.data);
}

Status Normalizer::run(const Step& step, Span text, List<char>& result, husk_error* error) const {
  switch (step.kind) {
    case Kind::form: return append_form(text, step.form, result, error);
    case Kind::lowercase: return append_lowercase(text, result, error);
    case Kind::strip_accents: return append_without_accents(text, result, error);
    case Kind::charsmap: return charsmap_.append(text, result, error);
    case Kind::clean: return append_clean(text, result, error);
    case Kind::spread: return append_spread(text, result, error);
    case Kind::strip: {
      const size_t end = step.right ? space_before(text, 0, text.size) : text.size;
      const Span left = text.slice(0, end);
      const size_t begin = step.left ? space_after(left, 0) : 0;
      return result.append(text.data + begin, end - begin, error);
    }
    case Kind::prepend:
      HUSK_TRY(result.append(to(step).data, to(step).size, error));
      return result.append(text.data, text.size, error);
    case Kind::replace:
    case Kind::replace_pattern: break;
  }
  size_t done = 0;
  const auto replace = [&](size_t begin, size_t end) {
    HUSK_TRY(result.append(text.data + done, begin - done, error));
    done = end;
    return result.append(to(step).data, to(step).size, error);
  };
  if (step.kind == Kind::replace_pattern) {
    HUSK_TRY(for_matches(step.pattern, text, error, replace));
  } else {
    const Span wanted = from(step);
    for (size_t at = 0; at + wanted.size <= text.size;) {
      if (memcmp(text.data + at, wanted.data, wanted.size) != 0) {
        ++at;
        continue;
      }
      HUSK_TRY(replace(at, at + wanted.size));
      at = done;
    }
  }
  return result.append(text.data + done, text.size - done, error);
}

Status Normalizer::apply(List<char>& text, List<char>& scratch, husk_error* error) const {
  for (const Step& step : steps_) {
    if (text.empty()) return Status::ok;
    const Span before(text.data(), text.size());
    if (step.kind == Kind::form && step.form == kComposed && is_composed(before)) continue;
    scratch.clear();
    HUSK_TRY(run(step, before, scratch, error));
    text.swap(scratch);
  }
  return Status::ok;
}

}  // namespace husk::text
