#include "text/stops.h"

namespace husk::text {

namespace {
constexpr size_t kTokenBytes = 256;  // longer tokens are rare
}

Status Stops::add(Span text, husk_error* error) {
  HUSK_TRY(texts_.append(text.data, text.size, error));
  if (text.size > longest_) longest_ = text.size;
  return ends_.push(texts_.size(), error);
}

size_t Stops::find(Span text) const {
  size_t first = text.size;
  for (size_t i = 0; i < count(); ++i) {
    const Span stop = at(i);
    for (size_t begin = 0; begin < first && begin + stop.size <= text.size; ++begin) {
      if (memcmp(text.data + begin, stop.data, stop.size) == 0) first = begin;
    }
  }
  return first;
}

size_t Stops::beginning(Span text) const {
  size_t most = 0;
  for (size_t i = 0; i < count(); ++i) {
    const Span stop = at(i);
    size_t length = stop.size - 1 < text.size ? stop.size - 1 : text.size;
    while (length > most && memcmp(text.data + text.size - length, stop.data, length) != 0) {
      --length;
    }
    if (length > most) most = length;
  }
  return most;
}

Status HeldText::reserve(const Stops& stops, husk_error* error) {
  return text_.reserve(stops.longest() + kTokenBytes, error);
}

Status HeldText::append(const Stops& stops, Span text, bool* stopped, husk_error* error) {
  *stopped = false;
  HUSK_TRY(text_.append(text.data, text.size, error));
  const Span all(text_.data(), text_.size());
  const size_t found = stops.find(all);
  if (found < all.size) {
    text_.shrink(found);
    certain_ = found;
    *stopped = true;
    return Status::ok;
  }
  certain_ = all.size - stops.beginning(all);
  return Status::ok;
}

void HeldText::drop(size_t bytes) {
  const size_t rest = text_.size() - bytes;
  if (rest && bytes) memmove(text_.data(), text_.data() + bytes, rest);
  text_.shrink(rest);
  certain_ = certain_ > bytes ? certain_ - bytes : 0;
}

}  // namespace husk::text
