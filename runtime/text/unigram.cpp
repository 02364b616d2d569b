#include "text/unigram.h"

#include <algorithm>

#include "text/utf8.h"

namespace husk::text {

namespace {

constexpr double kUnknownPenalty = 10;

bool is_less(Span a, Span b) {
  const size_t both = a.size < b.size ? a.size : b.size;
  const int order = both ? memcmp(a.data, b.data, both) : 0;
  return order ? order < 0 : a.size < b.size;
}

void improve(Unigram::Place& place, double score, size_t begin, int32_t token) {
  if (place.begin >= 0 && score <= place.score) return;
  place = {score, static_cast<int32_t>(begin), token};
}

}  // namespace

Status Unigram::finish(const Vocabulary& vocabulary, int32_t unknown, bool has_byte_tokens,
                       husk_error* error) {
  unknown_ = unknown;
  has_byte_tokens_ = has_byte_tokens;
  if (has_byte_tokens) vocabulary.find_byte_tokens(bytes_);
  for (size_t i = 0; i < scores_.size(); ++i) {
    if (i == 0 || scores_[i] < unknown_score_) unknown_score_ = scores_[i];
    // Of two tokens with equal bytes one is found.
    const auto token = static_cast<int32_t>(i);
    const Span bytes = vocabulary.bytes(token);
    if (bytes.size && vocabulary.find(bytes) == token) HUSK_TRY(order_.push(token, error));
  }
  unknown_score_ -= kUnknownPenalty;
  std::sort(order_.begin(), order_.end(), [&](int32_t a, int32_t b) {
    return is_less(vocabulary.bytes(a), vocabulary.bytes(b));
  });
  return Status::ok;
}

// Improves the places to which a token or an unknown character leads from `begin`.
void Unigram::visit(const Vocabulary& vocabulary, Span word, size_t begin,
                    List<Place>& places) const {
  const double score = places[begin].score;
  const auto length = static_cast<size_t>(character(word.from(begin)));
  bool has_character = false;
  // The tokens that begin with the bytes so far are neighbours, of which the shortest is the first.
  size_t low = 0, high = order_.size();
  for (size_t depth = 0; begin + depth < word.size && low < high; ++depth) {
    const auto wanted = static_cast<uint8_t>(word.data[begin + depth]);
    const auto byte_at = [&](size_t i) {
      return static_cast<uint8_t>(vocabulary.bytes(order_[i]).data[depth]);
    };
    const auto first_with = [&](unsigned least) {
      size_t from = low, to = high;
      while (from < to) {
        const size_t middle = from + (to - from) / 2;
        if (byte_at(middle) < least) {
          from = middle + 1;
        } else {
          to = middle;
        }
      }
      return from;
    };
    const size_t from = first_with(wanted);
    high = first_with(wanted + 1u);
    low = from;
    if (low == high) break;
    const int32_t token = order_[low];
    if (vocabulary.bytes(token).size != depth + 1) continue;
    improve(places[begin + depth + 1], scores_[static_cast<size_t>(token)] + score, begin, token);
    has_character |= depth + 1 == length;
    ++low;  // the others are longer
  }
  if (!has_character) improve(places[begin + length], unknown_score_ + score, begin, unknown_);
}

Status Unigram::append(const Vocabulary& vocabulary, Span piece, List<int32_t>& tokens,
                       husk_error* error) const {
  const int32_t token = vocabulary.find(piece);
  if (token >= 0) return tokens.push(token, error);
  bool has_all = has_byte_tokens_;
  for (size_t i = 0; i < piece.size; ++i) {
    has_all &= bytes_[static_cast<uint8_t>(piece.data[i])] >= 0;
  }
  if (!has_all) return unknown_ < 0 ? Status::ok : tokens.push(unknown_, error);
  for (size_t i = 0; i < piece.size; ++i) {
    HUSK_TRY(tokens.push(bytes_[static_cast<uint8_t>(piece.data[i])], error));
  }
  return Status::ok;
}

Status Unigram::encode(const Vocabulary& vocabulary, Span word, Scratch& scratch,
                       List<int32_t>& tokens, husk_error* error) const {
  if (word.size > INT32_MAX) return fail(error, HUSK_LIMIT, "the text is too long");
  List<Place>& places = scratch.places;
  places.clear();
  HUSK_TRY(places.resize(word.size + 1, error));
  for (Place& place : places) place.begin = -1;
  for (size_t at = 0; at < word.size; at += static_cast<size_t>(character(word.from(at)))) {
    visit(vocabulary, word, at, places);
  }
  // The pieces from the last one on. Unknown characters in a row are one.
  scratch.pieces.clear();
  bool was_unknown = false;
  for (size_t end = word.size; end > 0;) {
    const Place& place = places[end];
    const auto begin = static_cast<size_t>(place.begin);
    const bool is_unknown = place.token == unknown_;
    if (is_unknown && was_unknown) {
      Span& last = scratch.pieces[scratch.pieces.size() - 1];
      last = {word.data + begin, last.size + (end - begin)};
    } else {
      HUSK_TRY(scratch.pieces.push(word.slice(begin, end), error));
    }
    was_unknown = is_unknown;
    end = begin;
  }
  for (size_t i = scratch.pieces.size(); i-- > 0;) {
    HUSK_TRY(append(vocabulary, scratch.pieces[i], tokens, error));
  }
  return Status::ok;
}

}  // namespace husk::text
