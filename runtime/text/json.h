// JSON as a list of values, each followed by those inside of it.
#pragma once

#include "text/list.h"

namespace husk::text {

enum class JsonKind : uint8_t { null, boolean, number, string, array, object };

struct JsonValue {
  JsonKind kind;
  bool truth;     // of a boolean
  uint32_t next;  // the index of the value after this one and all that is inside
  double number;  // of a number; how many members an array or an object has
  size_t text;    // of a string: where it begins in the texts
  size_t bytes;   // and its length
};

// The number of a value without its fraction, if it is one from 0 to `most`; else -1.
inline int64_t whole(const JsonValue& value, double most) {
  const bool fits = value.kind == JsonKind::number && value.number >= 0 && value.number <= most;
  return fits ? static_cast<int64_t>(value.number) : -1;
}

// A parsed text. A member of an object is two values: its name, and its value.
class Json {
 public:
  // Fails with HUSK_INVALID_FILE, with the place.
  Status parse(Span source, husk_error* error);

  const JsonValue* root() const { return values_.data(); }
  Span text(const JsonValue* value) const { return {texts_.data() + value->text, value->bytes}; }
  // The member of an object; null if there is none, if it is `null`, or if `object` is null or no
  // object.
  const JsonValue* member(const JsonValue* object, const char* name) const;
  // Whether the member is a string that is equal.
  bool has_text(const JsonValue* object, const char* name, const char* text) const;
  // Whether the member is `true`.
  bool has_true(const JsonValue* object, const char* name) const;
  // The first value inside of an array or an object, and the value after the last one.
  const JsonValue* first(const JsonValue* value) const { return value + 1; }
  const JsonValue* end(const JsonValue* value) const { return values_.data() + value->next; }
  // The value after `value` and all that is inside.
  const JsonValue* after(const JsonValue* value) const { return values_.data() + value->next; }

 private:
  Status value(int depth);
  Status string();
  Status escape();
  Status number();
  Status inside(JsonKind kind, int depth);
  Status word(const char* word, JsonKind kind, bool truth);
  Status wrong(const char* expected);
  Status add(JsonKind kind);
  void skip_space();
  char peek() const { return at_ < source_.size ? source_.data[at_] : '\0'; }

  Span source_;
  size_t at_ = 0;
  husk_error* error_ = nullptr;
  List<JsonValue> values_;
  List<char> texts_;
};

}  // namespace husk::text
