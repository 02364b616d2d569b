// A tokenizer, as tokenizer.json describes it.
#pragma once

#include "text/added.h"
#include "text/merges.h"
#include "text/normalizer.h"
#include "text/rendering.h"
#include "text/splits.h"
#include "text/unigram.h"
#include "text/wordpiece.h"

struct husk_tokenizer {
 public:
  husk::Status read(husk::text::Span json, husk_error* error);
  husk::Status encode(husk::text::Span text, uint32_t options, husk::text::List<int32_t>& tokens,
                      husk_error* error) const;

  husk::text::Vocabulary vocabulary;
  husk::text::Rendering rendering;

 private:
  enum class Kind : uint8_t { bpe, unigram, wordpiece };

  husk::Status read_kind(const husk::text::Json& json, const husk::text::JsonValue* model,
                         husk_error* error);
  husk::Status read_bpe(const husk::text::Json& json, const husk::text::JsonValue* model,
                        husk_error* error);
  husk::Status read_unigram(const husk::text::Json& json, const husk::text::JsonValue* model,
                            husk_error* error);
  husk::Status read_wordpiece(const husk::text::Json& json, const husk::text::JsonValue* model,
                              husk_error* error);
  husk::Status read_vocabulary(const husk::text::Json& json, const husk::text::JsonValue* model,
                               husk_error* error);
  int32_t unknown_of(const husk::text::Json& json, const husk::text::JsonValue* model) const;
  husk::Status read_merges(const husk::text::Json& json, const husk::text::JsonValue* merges,
                           husk_error* error);
  husk::Status read_ends(const husk::text::Json& json, const husk::text::JsonValue* value,
                         husk_error* error);
  husk::Status read_template(const husk::text::Json& json, const husk::text::JsonValue* value,
                             husk_error* error);
  // The text of a vocabulary or of a rule, as bytes.
  husk::Status append_token(husk::text::Span text, husk::text::List<char>& to,
                            husk_error* error) const;
  struct Call;
  husk::Status encode_word(husk::text::Span word, Call& call, husk_error* error) const;
  husk::Status encode_part(husk::text::Span text, bool at_begin, Call& call,
                           husk_error* error) const;
  husk::Status encode_words(husk::text::Span text, bool at_begin, Call& call,
                            husk_error* error) const;

  husk::text::AddedTokens added_;
  Kind kind_ = Kind::bpe;
  husk::text::Merges merges_;
  husk::text::Unigram unigram_;
  husk::text::WordPiece wordpiece_;
  husk::text::Splits splits_;
  husk::text::List<int32_t> before_, after_;  // tokens that belong around each text
  husk::text::Normalizer normalizer_;
};
