#include "text/json.h"

#include "text/utf8.h"

namespace husk::text {

namespace {
constexpr int kMaxDepth = 32;
constexpr size_t kMaxBytes = size_t{1} << 30;  // indices of values have 32 bits

int hex_digit(char digit) {
  if (digit >= '0' && digit <= '9') return digit - '0';
  if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
  if (digit >= 'A' && digit <= 'F') return digit - 'A' + 10;
  return -1;
}
}  // namespace

Status Json::parse(Span source, husk_error* error) {
  source_ = source;
  error_ = error;
  if (source.size > kMaxBytes) {
    return fail(error, HUSK_INVALID_FILE, "the JSON has %zu bytes, which are too many",
                source.size);
  }
  // JSON is UTF-8 (RFC 8259, section 8.1), and what reads its texts does not look again: PCRE2
  // reads beyond a pattern that is none.
  at_ = find_no_utf8(source);
  if (at_ < source.size) return wrong("UTF-8");
  at_ = 0;
  values_.clear();
  texts_.clear();
  HUSK_TRY(values_.reserve(source.size / 12 + 16, error));
  HUSK_TRY(texts_.reserve(source.size / 2 + 16, error));
  HUSK_TRY(value(0));
  skip_space();
  return at_ == source_.size ? Status::ok : wrong("the end");
}

const JsonValue* Json::member(const JsonValue* object, const char* name) const {
  if (!object || object->kind != JsonKind::object) return nullptr;
  const Span wanted(name);
  for (const JsonValue* one = first(object); one != end(object); one = after(one + 1)) {
    if (equal(text(one), wanted)) return one[1].kind == JsonKind::null ? nullptr : one + 1;
  }
  return nullptr;
}

bool Json::has_text(const JsonValue* object, const char* name, const char* literal) const {
  const JsonValue* found = member(object, name);
  return found && found->kind == JsonKind::string && equal(text(found), literal);
}

bool Json::has_true(const JsonValue* object, const char* name) const {
  const JsonValue* found = member(object, name);
  return found && found->kind == JsonKind::boolean && found->truth;
}

Status Json::wrong(const char* expected) {
  return fail(error_, HUSK_INVALID_FILE, "the JSON is wrong at byte %zu: expected %s", at_,
              expected);
}

Status Json::add(JsonKind kind) {
  JsonValue added = {};
  added.kind = kind;
  added.next = static_cast<uint32_t>(values_.size() + 1);
  return values_.push(added, error_);
}

void Json::skip_space() {
  while (peek() == ' ' || peek() == '\n' || peek() == '\r' || peek() == '\t') ++at_;
}

Status Json::value(int depth) {
  skip_space();
  switch (peek()) {
    case '{': return inside(JsonKind::object, depth);
    case '[': return inside(JsonKind::array, depth);
    case '"': return string();
    case 't': return word("true", JsonKind::boolean, true);
    case 'f': return word("false", JsonKind::boolean, false);
    case 'n': return word("null", JsonKind::null, false);
    default: return number();
  }
}

Status Json::word(const char* word, JsonKind kind, bool truth) {
  const size_t length = strlen(word);
  if (source_.size - at_ < length || memcmp(source_.data + at_, word, length) != 0) {
    return wrong("a value");
  }
  at_ += length;
  HUSK_TRY(add(kind));
  values_[values_.size() - 1].truth = truth;
  return Status::ok;
}

Status Json::inside(JsonKind kind, int depth) {
  const bool is_object = kind == JsonKind::object;
  const char close = is_object ? '}' : ']';
  if (depth == kMaxDepth) return wrong("fewer values inside of each other");
  const size_t index = values_.size();
  HUSK_TRY(add(kind));
  ++at_;
  skip_space();
  if (peek() == close) {
    ++at_;
    return Status::ok;
  }
  for (double members = 1;; ++members) {
    if (is_object) {
      skip_space();
      if (peek() != '"') return wrong("a name in quotes");
      HUSK_TRY(string());
      skip_space();
      if (peek() != ':') return wrong("':'");
      ++at_;
    }
    HUSK_TRY(value(depth + 1));
    skip_space();
    const char next = peek();
    ++at_;
    values_[index].number = members;
    if (next == close) break;
    if (next != ',') {
      --at_;
      return wrong(is_object ? "',' or '}'" : "',' or ']'");
    }
  }
  values_[index].next = static_cast<uint32_t>(values_.size());
  return Status::ok;
}

Status Json::string() {
  HUSK_TRY(add(JsonKind::string));
  const size_t index = values_.size() - 1, begin = texts_.size();
  ++at_;
  while (true) {
    const size_t from = at_;
    while (at_ < source_.size && source_.data[at_] != '"' && source_.data[at_] != '\\') ++at_;
    HUSK_TRY(texts_.append(source_.data + from, at_ - from, error_));
    if (at_ == source_.size) return wrong("the end of a text");
    if (source_.data[at_++] == '"') break;
    HUSK_TRY(escape());
  }
  values_[index].text = begin;
  values_[index].bytes = texts_.size() - begin;
  return Status::ok;
}

// After the backslash.
Status Json::escape() {
  static const char names[] = "\"\\/bfnrt", bytes[] = "\"\\/\b\f\n\r\t";
  const char name = peek();
  if (name != 'u') {
    const char* found = name ? strchr(names, name) : nullptr;
    if (!found) return wrong("a character that may follow a backslash");
    ++at_;
    return texts_.push(bytes[found - names], error_);
  }
  uint32_t point = 0;
  for (int half = 0;; ++half) {
    if (source_.size - at_ < 5) return wrong("four digits");
    uint32_t unit = 0;
    for (int i = 1; i <= 4; ++i) {
      const int digit = hex_digit(source_.data[at_ + static_cast<size_t>(i)]);
      if (digit < 0) return wrong("four hexadecimal digits");
      unit = unit << 4 | static_cast<uint32_t>(digit);
    }
    const bool is_low = unit >= 0xDC00 && unit <= 0xDFFF;
    if (half == 1) {
      if (!is_low) return wrong("the second half of a surrogate pair");
      point = 0x10000 + ((point - 0xD800) << 10) + (unit - 0xDC00);
      at_ += 5;
      break;
    }
    if (is_low) return wrong("the first half of a surrogate pair");
    point = unit;
    at_ += 5;
    if (unit < 0xD800 || unit > 0xDFFF) break;
    if (source_.size - at_ < 6 || source_.data[at_] != '\\' || source_.data[at_ + 1] != 'u') {
      return wrong("the second half of a surrogate pair");
    }
    ++at_;
  }
  char encoded[4];
  const int length = write_code_point(point, encoded);
  return texts_.append(encoded, static_cast<size_t>(length), error_);
}

// Reads a number as the package `tokenizers` does, to the last bit: scores of tokens are added, and
// equal sums must stay equal. So digits beyond 64 bits are left out, and the power of ten is one
// factor. (strtod, besides, depends on the locale.)
Status Json::number() {
  const size_t begin = at_;
  const bool is_negative = peek() == '-';
  if (is_negative) ++at_;
  uint64_t digits = 0;
  int scale = 0;
  bool has_digits = false, is_fraction = false, is_full = false;
  for (;; ++at_) {
    const char digit = peek();
    if (digit >= '0' && digit <= '9') {
      uint64_t more;
      is_full |= __builtin_mul_overflow(digits, uint64_t{10}, &more) ||
                 __builtin_add_overflow(more, static_cast<uint64_t>(digit - '0'), &more);
      if (!is_full) digits = more;
      if (is_full != is_fraction) scale += is_full ? 1 : -1;
      has_digits = true;
    } else if (digit == '.' && !is_fraction) {
      is_fraction = true;
    } else {
      break;
    }
  }
  if (has_digits && (peek() == 'e' || peek() == 'E')) {
    ++at_;
    const bool is_small = peek() == '-';
    if (is_small || peek() == '+') ++at_;
    int exponent = 0;
    for (; peek() >= '0' && peek() <= '9'; ++at_) {
      if (exponent < 1000) exponent = exponent * 10 + (peek() - '0');
    }
    scale += is_small ? -exponent : exponent;
  }
  if (!has_digits) {
    at_ = begin;
    return wrong("a value");
  }
  auto number = static_cast<double>(digits);
  double power = 1;  // exact up to 10^22
  for (int i = 0; i < (scale < 0 ? -scale : scale) && i < 308; ++i) power *= 10;
  number = scale < 0 ? number / power : number * power;
  if (scale < -308) number = 0;
  if (scale > 308 && digits) return wrong("a smaller number");
  HUSK_TRY(add(JsonKind::number));
  values_[values_.size() - 1].number = is_negative ? -number : number;
  return Status::ok;
}

}  // namespace husk::text
