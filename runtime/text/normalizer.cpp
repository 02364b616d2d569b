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
  const utf8proc_ssize_t length = utf8proc_map(
      reinterpret_cast<const uint8_t*>(text.data), static_cast<utf8proc_ssize_t>(text.size),
      &result, static_cast<utf8proc_option_t>(form));
  if (length < 0) {
    return fail(error, HUSK_OUT_OF_MEMORY, "the text cannot be normalized: %s",
                utf8proc_errmsg(length));
  }
  const Status status =
      to.append(reinterpret_cast<char*>(result), static_cast<size_t>(length), error);
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
  if (equal(name, "Lowercase")) {
    step.kind = Kind::lowercase;
    return steps_.push(step, error);
  }
  return fail(error, HUSK_UNSUPPORTED,
              "the normalizer of the tokenizer is of the kind '%.*s', which Husk lacks",
              static_cast<int>(name.size), name.data);
}

Status Normalizer::run(const Step& step, Span text, List<char>& result, husk_error* error) const {
  switch (step.kind) {
    case Kind::form: return append_form(text, step.form, result, error);
    case Kind::lowercase: return append_lowercase(text, result, error);
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
