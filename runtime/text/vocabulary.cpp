#include "text/vocabulary.h"

#include "text/utf8.h"

namespace husk::text {

namespace {

constexpr int32_t kMaxToken = 1 << 24;

// The bytes that a character of their own number stands for.
bool is_itself(uint32_t byte) {
  return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) ||
         (byte >= 174 && byte <= 255);
}

// The byte that a character stands for, or -1. All other bytes have, in their order, the characters
// from U+0100 on.
int byte_of(uint32_t point) {
  if (point < 256) return is_itself(point) ? static_cast<int>(point) : -1;
  uint32_t character = 256;
  for (uint32_t byte = 0; byte < 256 && character <= point; ++byte) {
    if (is_itself(byte)) continue;
    if (character == point) return static_cast<int>(byte);
    ++character;
  }
  return -1;
}

uint64_t hash_of(Span bytes) {
  uint64_t hash = 0xCBF29CE484222325u;
  for (size_t i = 0; i < bytes.size; ++i) {
    hash = (hash ^ static_cast<uint8_t>(bytes.data[i])) * 0x100000001B3u;
  }
  return hash ^ hash >> 32;
}

}  // namespace

Status append_bytes(Span characters, List<char>& to, husk_error* error) {
  const size_t begin = to.size();
  for (size_t at = 0; at < characters.size;) {
    const int length = character(characters.from(at));
    const int byte = length > 0 ? byte_of(code_point(characters.from(at))) : -1;
    if (byte < 0) {
      to.shrink(begin);
      return to.append(characters.data, characters.size, error);
    }
    HUSK_TRY(to.push(static_cast<char>(byte), error));
    at += static_cast<size_t>(length);
  }
  return Status::ok;
}

uint32_t* Vocabulary::place(Span wanted) const {
  for (size_t at = hash_of(wanted);; ++at) {
    uint32_t* slot = slots_ + (at & (slot_count_ - 1));
    if (!*slot || equal(bytes(static_cast<int32_t>(*slot - 1)), wanted)) return slot;
  }
}

int32_t Vocabulary::find(Span wanted) const {
  return slot_count_ ? static_cast<int32_t>(*place(wanted)) - 1 : -1;
}

void Vocabulary::find_byte_tokens(int32_t (&tokens)[256]) const {
  static const char digits[] = "0123456789ABCDEF";
  for (int byte = 0; byte < 256; ++byte) {
    const char name[] = {'<', '0', 'x', digits[byte >> 4], digits[byte & 15], '>'};
    tokens[byte] = find({name, sizeof name});
  }
}

Status Vocabulary::grow(husk_error* error) {
  if (2 * used_ < slot_count_) return Status::ok;
  const size_t before = slot_count_, count = before ? 2 * before : 1024;
  auto* larger = static_cast<uint32_t*>(calloc(count, sizeof(uint32_t)));
  if (!larger) return fail(error, HUSK_OUT_OF_MEMORY, "no memory for the vocabulary");
  uint32_t* old = slots_;
  slots_ = larger;
  slot_count_ = count;
  for (size_t i = 0; i < before; ++i) {
    if (old[i]) *place(bytes(static_cast<int32_t>(old[i] - 1))) = old[i];
  }
  free(old);
  return Status::ok;
}

Status Vocabulary::add(int32_t number, Span bytes, husk_error* error) {
  if (number < 0 || number > kMaxToken) {
    return fail(error, HUSK_INVALID_FILE, "the tokenizer has a token with the number %d", number);
  }
  if (has(number)) return Status::ok;
  const auto index = static_cast<size_t>(number);
  if (index >= tokens_.size()) HUSK_TRY(tokens_.resize(index + 1, error));
  HUSK_TRY(grow(error));
  const size_t begin = bytes_.size();
  HUSK_TRY(bytes_.append(bytes.data, bytes.size, error));
  tokens_[index] = {begin, static_cast<uint32_t>(bytes.size), true, false};
  uint32_t* slot = place(bytes);
  if (!*slot) {
    *slot = static_cast<uint32_t>(number) + 1;
    ++used_;
  }
  return Status::ok;
}

}  // namespace husk::text
