// Texts that end a generation, and what is held back as long as it may be the beginning of one.
#pragma once

#include "text/list.h"

namespace husk::text {

// The stop texts of a request.
class Stops {
 public:
  Status add(Span text, husk_error* error);
  size_t longest() const { return longest_; }
  // Where the first of them begins in `text`; text.size if none is there.
  size_t find(Span text) const;
  // How many bytes at the end of `text` may be the beginning of one.
  size_t beginning(Span text) const;

 private:
  size_t count() const { return ends_.size(); }
  Span at(size_t i) const {
    const size_t begin = i ? ends_[i - 1] : 0;
    return {texts_.data() + begin, ends_[i] - begin};
  }

  List<char> texts_;
  List<size_t> ends_;  // where each ends in `texts_`
  size_t longest_ = 0;
};

// The text of a sequence that nobody has got yet.
class HeldText {
 public:
  Status reserve(const Stops& stops, husk_error* error);
  // Appends a text. Returns true in `stopped` if a stop text is there now; what comes before it is
  // all that is left.
  Status append(const Stops& stops, Span text, bool* stopped, husk_error* error);
  // The text that is certain; with `whole`, all of it. `drop` forgets it.
  Span certain(bool whole) const { return {text_.data(), whole ? text_.size() : certain_}; }
  void drop(size_t bytes);

 private:
  List<char> text_;
  size_t certain_ = 0;
};

}  // namespace husk::text
