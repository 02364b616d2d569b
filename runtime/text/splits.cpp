#include "text/splits.h"

#include "text/pattern.h"
#include "text/utf8.h"

namespace husk::text {

namespace {

// The words of GPT-2, which the kind ByteLevel has by itself.
constexpr char kWords[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
constexpr char kPunctuation[] = "[!-/:-@\\[-`{-~\\p{P}]";

Status unsupported(const Json& json, const JsonValue* kind, husk_error* error) {
  const Span name = kind ? json.text(kind) : Span("");
  return fail(error, HUSK_UNSUPPORTED, "the tokenizer splits texts by '%.*s', which Husk lacks",
              static_cast<int>(name.size), name.data);
}

}  // namespace

Splits::~Splits() {
  for (const Step& step : steps_) pcre2_code_free_8(step.pattern);
}

Status Splits::add(Span pattern, bool is_literal, Matches matches, husk_error* error) {
  Step step = {};
  step.matches = matches;
  HUSK_TRY(is_literal ? compile_literal(pattern, &step.pattern, error)
                      : compile_pattern(pattern, &step.pattern, error));
  const Status pushed = steps_.push(step, error);
  if (failed(pushed)) pcre2_code_free_8(step.pattern);
  return pushed;
}

Status Splits::add_split(const Json& json, const JsonValue* value, husk_error* error) {
  const JsonValue* pattern = json.member(value, "pattern");
  const JsonValue *regex = json.member(pattern, "Regex"), *literal = json.member(pattern, "String");
  const JsonValue* found = regex ? regex : literal;
  if (!found || found->kind != JsonKind::string || !found->bytes) {
    return fail(error, HUSK_INVALID_FILE, "the tokenizer splits by no pattern");
  }
  if (json.has_true(value, "invert")) {
    return fail(error, HUSK_UNSUPPORTED, "the tokenizer splits by what is no match (invert)");
  }
  static constexpr struct {
    const char* name;
    Matches matches;
  } kBehaviors[] = {{"Isolated", Matches::isolated},
                    {"Removed", Matches::removed},
                    {"MergedWithPrevious", Matches::with_previous},
                    {"MergedWithNext", Matches::with_next}};
  for (const auto& behavior : kBehaviors) {
    if (json.has_text(value, "behavior", behavior.name)) {
      return add(json.text(found), !regex, behavior.matches, error);
    }
  }
  return fail(error, HUSK_UNSUPPORTED,
              "the tokenizer splits with another behavior than Isolated, Removed, "
              "MergedWithPrevious and MergedWithNext");
}

Status Splits::add_metaspace(const Json& json, const JsonValue* value, husk_error* error) {
  const JsonValue *replacement = json.member(value, "replacement"),
                  *scheme = json.member(value, "prepend_scheme"),
                  *split = json.member(value, "split");
  Step step = {};
  if (has_metaspace_) {
    return fail(error, HUSK_UNSUPPORTED, "the tokenizer has several Metaspace");
  }
  if (!replacement || replacement->kind != JsonKind::string || !replacement->bytes ||
      character(json.text(replacement)) != static_cast<int>(replacement->bytes)) {
    return fail(error, HUSK_INVALID_FILE, "the tokenizer replaces spaces by no character");
  }
  const Span text = json.text(replacement);
  memcpy(step.replacement, text.data, text.size);
  step.replacement_bytes = static_cast<uint32_t>(text.size);
  step.splits = !split || split->truth;
  const JsonValue* adds = json.member(value, "add_prefix_space");  // in older files
  if (scheme ? json.has_text(value, "prepend_scheme", "always") : !adds || adds->truth) {
    step.prefix = Prefix::always;
  } else if (json.has_text(value, "prepend_scheme", "first")) {
    step.prefix = Prefix::first;
  }
  has_metaspace_ = true;
  return steps_.push(step, error);
}

Status Splits::read(const Json& json, const JsonValue* value, husk_error* error) {
  const JsonValue* kind = json.member(value, "type");
  if (!kind || kind->kind != JsonKind::string) return unsupported(json, nullptr, error);
  const Span name = json.text(kind);
  if (equal(name, "Sequence")) {
    const JsonValue* parts = json.member(value, "pretokenizers");
    if (!parts || parts->kind != JsonKind::array) return unsupported(json, kind, error);
    for (const JsonValue* one = json.first(parts); one != json.end(parts); one = json.after(one)) {
      if (json.has_text(one, "type", "Sequence")) return unsupported(json, kind, error);
      HUSK_TRY(read(json, one, error));
    }
    return Status::ok;
  }
  if (has_bytes_) {  // what follows would see characters that stand for bytes
    return fail(error, HUSK_UNSUPPORTED, "the tokenizer splits texts after ByteLevel");
  }
  if (equal(name, "ByteLevel")) {
    if (json.has_true(value, "add_prefix_space")) {
      return fail(error, HUSK_UNSUPPORTED,
                  "the tokenizer adds a space to texts (add_prefix_space)");
    }
    has_bytes_ = true;
    const JsonValue* regex = json.member(value, "use_regex");
    return regex && !regex->truth ? Status::ok : add(Span(kWords), false, Matches::isolated, error);
  }
  if (equal(name, "Split")) return add_split(json, value, error);
  if (equal(name, "Metaspace")) return add_metaspace(json, value, error);
  if (equal(name, "WhitespaceSplit") || equal(name, "BertPreTokenizer")) {
    HUSK_TRY(add(Span("\\s"), false, Matches::removed, error));
    if (equal(name, "WhitespaceSplit")) return Status::ok;
  }
  if (equal(name, "BertPreTokenizer")) {
    return add(Span(kPunctuation), false, Matches::isolated, error);
  }
  if (equal(name, "Digits")) {
    return add(Span(json.has_true(value, "individual_digits") ? "\\p{N}" : "\\p{N}+"), false,
               Matches::isolated, error);
  }
  return unsupported(json, kind, error);
}

// Appends the parts of a word between matches, and the matches as the step says.
Status Splits::apply(const Step& step, Span word, List<Span>& to, husk_error* error) const {
  size_t done = 0;        // where the part begins that is not in the list yet
  bool is_after = false;  // a match is the last entry
  const auto found = [&](size_t begin, size_t end) {
    const bool follows = is_after && begin == done;
    is_after = true;
    switch (step.matches) {
      case Matches::isolated:
      case Matches::removed:
        if (begin > done) HUSK_TRY(to.push(word.slice(done, begin), error));
        done = end;
        return step.matches == Matches::removed ? Status::ok
                                                : to.push(word.slice(begin, end), error);
      case Matches::with_previous: {
        // The first of several matches in a row is joined, the others stay alone.
        const size_t from = follows ? begin : done;
        done = end;
        return to.push(word.slice(from, end), error);
      }
      case Matches::with_next:
        if (begin > done) HUSK_TRY(to.push(word.slice(done, begin), error));
        done = begin;  // the match goes with what follows
        return Status::ok;
    }
    return Status::ok;
  };
  HUSK_TRY(for_matches(step.pattern, word, error, found));
  return done < word.size ? to.push(word.from(done), error) : Status::ok;
}

// Puts the character of a Metaspace in place of spaces, and perhaps before the words.
Status Splits::add_spaces(const Step& step, Span text, bool at_begin, Words& words,
                          husk_error* error) const {
  const Span mark(step.replacement, step.replacement_bytes);
  size_t most = 0;
  for (const Span& word : words.found) most += (word.size + 1) * mark.size;
  words.spaced.clear();
  HUSK_TRY(words.spaced.reserve(most, error));  // so that it stays where it is
  words.scratch.clear();
  for (const Span& word : words.found) {
    size_t begin = words.spaced.size();
    const bool has_mark = word.size >= mark.size && memcmp(word.data, mark.data, mark.size) == 0;
    const bool has_prefix = word.size && (has_mark || word.data[0] == ' ')
                                ? false
                                : step.prefix == Prefix::always ||
                                      (step.prefix == Prefix::first && at_begin &&
                                       word.data == text.data);
    if (has_prefix) HUSK_TRY(words.spaced.append(mark.data, mark.size, error));
    for (size_t i = 0; i < word.size; ++i) {
      HUSK_TRY(word.data[i] == ' ' ? words.spaced.append(mark.data, mark.size, error)
                                   : words.spaced.push(word.data[i], error));
    }
    const Span all(words.spaced.data(), words.spaced.size());
    if (step.splits) {
      for (size_t at = begin + 1; at + mark.size <= all.size; ++at) {
        if (memcmp(all.data + at, mark.data, mark.size) != 0) continue;
        HUSK_TRY(words.scratch.push(all.slice(begin, at), error));
        begin = at;
      }
    }
    if (begin < all.size) HUSK_TRY(words.scratch.push(all.from(begin), error));
  }
  words.found.swap(words.scratch);
  return Status::ok;
}

Status Splits::split(Span text, bool at_begin, Words& words, husk_error* error) const {
  words.found.clear();
  HUSK_TRY(words.found.push(text, error));
  for (const Step& step : steps_) {
    if (!step.pattern) {
      HUSK_TRY(add_spaces(step, text, at_begin, words, error));
      continue;
    }
    words.scratch.clear();
    for (const Span& word : words.found) HUSK_TRY(apply(step, word, words.scratch, error));
    words.found.swap(words.scratch);
  }
  return Status::ok;
}

}  // namespace husk::text
