/** @file
 * Text for language models: tokenizers, and the conversation of a chat as a text.
 *
 * @code
 * husk_tokenizer* tokenizer;
 * husk_tokenizer_create(json, strlen(json), &tokenizer, &error);
 * husk_tokenizer_encode(tokenizer, "Hello", 5, 0, ids, 64, &count, &error);
 * husk_text_decoder* decoder;
 * husk_text_decoder_create(tokenizer, 0, &decoder, &error);
 * husk_text_decoder_push(decoder, ids[0], &text, &bytes, &error);
 * @endcode
 *
 * The library libhusk_text has these functions; they need libpcre2-8 and libutf8proc, but no other
 * part of Husk. husk/generate.h generates texts. A file that `python -m husk llm` has exported
 * carries its tokenizer in the entry `husk.text.tokenizer` of its metadata, and the form of its
 * chat in `husk.text.roles`.
 *
 * Texts are UTF-8, with a length in bytes, and need no NUL. Errors: a function that returns
 * husk_status fills `error`, which may be NULL, if it fails. The handle stays usable and unchanged.
 * A tokenizer may be used by several threads at once, a decoder and a chat by one at a time. The
 * header is C11 and C++17. */
#ifndef HUSK_TEXT_H
#define HUSK_TEXT_H

#include <husk/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** How a text becomes tokens, and tokens a text. */
typedef struct husk_tokenizer husk_tokenizer;
/** Tokens of one sequence on their way to a text. */
typedef struct husk_text_decoder husk_text_decoder;
/** The form in which a model takes the messages of a chat. */
typedef struct husk_chat husk_chat;

/** Options of husk_tokenizer_encode and husk_text_decoder_create, which may be joined by |. */
enum {
  /** Encode: add the tokens that belong before and after each text, such as the beginning. */
  HUSK_TEXT_ADD_SPECIAL = 1,
  /** Encode: take special tokens in the text for plain text, as in the words of a user. */
  HUSK_TEXT_PLAIN = 2,
  /** Decode: leave out special tokens. */
  HUSK_TEXT_SKIP_SPECIAL = 4
};

/** Creates a tokenizer from the content of a tokenizer.json.
 * @param json UTF-8, not used after the call
 * @param bytes the length of `json`
 * @param tokenizer the result, NULL after a failure
 * @param error may be NULL
 * @return HUSK_OK; HUSK_INVALID_ARGUMENT; HUSK_INVALID_FILE if the text is no JSON or lacks a
 * field; HUSK_UNSUPPORTED, naming the part, if a part is of a kind that the library lacks; or
 * HUSK_OUT_OF_MEMORY. Models are BPE (of bytes, and of characters with or without tokens for
 * bytes), Unigram and WordPiece; normalizers NFC, NFD, NFKC, NFKD, Lowercase, Prepend, Replace,
 * Strip, StripAccents, Precompiled and BertNormalizer; pre_tokenizers ByteLevel, Split, Digits,
 * Metaspace, WhitespaceSplit and BertPreTokenizer; decoders ByteLevel, Metaspace, WordPiece, and
 * rows of Replace, ByteFallback, Fuse and Strip */
HUSK_API husk_status husk_tokenizer_create(const char* json, size_t bytes,
                                           husk_tokenizer** tokenizer, husk_error* error);
/** Releases the tokenizer, which no decoder may use any more. NULL does nothing. */
HUSK_API void husk_tokenizer_release(husk_tokenizer* tokenizer);

/** Returns how many numbers of tokens there are: one more than the largest. */
HUSK_API uint32_t husk_tokenizer_size(const husk_tokenizer* tokenizer);
/** Returns the bytes of a token, which may be a part of a character; NULL if no token has this
 * number. They live as long as the tokenizer, and have no NUL at the end. */
HUSK_API const char* husk_tokenizer_token(const husk_tokenizer* tokenizer, int32_t token,
                                          size_t* bytes);
/** Returns 1 if a token is special, such as one that begins a message, else 0. */
HUSK_API int husk_tokenizer_is_special(const husk_tokenizer* tokenizer, int32_t token);

/** Makes tokens of a text.
 * @param tokenizer is not changed
 * @param text UTF-8
 * @param bytes the length of `text`
 * @param options HUSK_TEXT_ADD_SPECIAL, HUSK_TEXT_PLAIN, both or 0
 * @param tokens memory for the tokens; those that do not fit are counted, but not written
 * @param capacity how many tokens have memory
 * @param count the number of tokens of the text
 * @param error may be NULL
 * @return HUSK_OK; HUSK_INVALID_ARGUMENT; HUSK_INVALID_INPUT if the text is no UTF-8, with the
 * place; HUSK_LIMIT if a pattern needs too much memory for the text; or HUSK_OUT_OF_MEMORY */
HUSK_API husk_status husk_tokenizer_encode(const husk_tokenizer* tokenizer, const char* text,
                                           size_t bytes, uint32_t options, int32_t* tokens,
                                           size_t capacity, size_t* count, husk_error* error);

/** Creates a decoder for one sequence.
 * @param tokenizer the decoder keeps this pointer
 * @param options HUSK_TEXT_SKIP_SPECIAL or 0
 * @param decoder the result, NULL after a failure
 * @param error may be NULL
 * @return HUSK_OK, HUSK_INVALID_ARGUMENT or HUSK_OUT_OF_MEMORY */
HUSK_API husk_status husk_text_decoder_create(const husk_tokenizer* tokenizer, uint32_t options,
                                              husk_text_decoder** decoder, husk_error* error);
/** Releases the decoder. NULL does nothing. */
HUSK_API void husk_text_decoder_release(husk_text_decoder* decoder);
/** Takes the next token, and gives the text that is complete with it: whole characters, perhaps
 * none. Bytes that are no UTF-8 become U+FFFD.
 * @param decoder of this sequence
 * @param token its next token
 * @param text the text, until the next call for this decoder
 * @param bytes the length of `text`
 * @param error may be NULL
 * @return HUSK_OK; HUSK_INVALID_ARGUMENT; HUSK_INVALID_INPUT if no token has this number; or
 * HUSK_OUT_OF_MEMORY */
HUSK_API husk_status husk_text_decoder_push(husk_text_decoder* decoder, int32_t token,
                                            const char** text, size_t* bytes, husk_error* error);
/** Ends the sequence: gives U+FFFD if it ended inside of a character, else no text. The decoder is
 * then as a new one. */
HUSK_API husk_status husk_text_decoder_finish(husk_text_decoder* decoder, const char** text,
                                              size_t* bytes, husk_error* error);

/** Creates a chat from the entry `husk.text.roles` of a file. It is empty.
 * @return as husk_tokenizer_create */
HUSK_API husk_status husk_chat_create(const char* json, size_t bytes, husk_chat** chat,
                                      husk_error* error);
/** Releases the chat. NULL does nothing. */
HUSK_API void husk_chat_release(husk_chat* chat);
/** Adds a message.
 * @param chat gets a copy of the message
 * @param role "system", which only the first message may have, "user" or "assistant"
 * @param content UTF-8
 * @param bytes the length of `content`
 * @param error may be NULL
 * @return HUSK_OK; HUSK_INVALID_ARGUMENT; HUSK_UNSUPPORTED if the model has no such role; or
 * HUSK_OUT_OF_MEMORY */
HUSK_API husk_status husk_chat_add(husk_chat* chat, const char* role, const char* content,
                                   size_t bytes, husk_error* error);
/** Gives the text of all messages and of the beginning of an answer, until the next call for this
 * chat. It has special tokens, so encode it without HUSK_TEXT_PLAIN. */
HUSK_API husk_status husk_chat_text(husk_chat* chat, const char** text, size_t* bytes,
                                    husk_error* error);
/** Removes all messages. */
HUSK_API void husk_chat_clear(husk_chat* chat);

#ifdef __cplusplus
}
#endif

#endif
