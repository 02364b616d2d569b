/** @file
 * Texts of a language model: several requests are generated together, from a file that
 * `python -m husk llm` has exported.
 *
 * @code
 * static int32_t print(void* user, const husk_text_part* part) {
 *   fwrite(part->text, 1, part->bytes, stdout);
 *   return 0;
 * }
 * husk_generator* generator;
 * husk_generator_create(engine, program, NULL, &generator, &error);
 * husk_text_request request = HUSK_TEXT_REQUEST_INIT;
 * request.text = "The capital of France is", request.bytes = strlen(request.text);
 * request.part = print;
 * husk_generator_submit(generator, &request, NULL, &error);
 * int32_t more = 1;
 * while (more && husk_generator_step(generator, &more, &error) == HUSK_OK) {}
 * @endcode
 *
 * A request asks for one text or several (`samples`). Each text takes one of the slots of the file
 * while it is generated, and waits until one is free. A step runs the model once for all of them:
 * it takes up to one chunk of each prompt that the cache does not have yet, and then generates a
 * token of each other text, or several (`speculate`, `runs`). So requests may join and leave
 * between any two steps, and a step never takes longer than one chunk for each slot and `runs`
 * tokens; in a file with an encoder, the first chunk comes with a run of the encoder. The first
 * request that is submitted gets the first slot that is free.
 *
 * Threads: one thread at a time calls husk_generator_step; a second call meanwhile is refused. Any
 * thread may submit, cancel and ask for statistics at the same time. `part` is called by
 * husk_generator_step alone, on its thread, without a lock: it may submit and cancel, and must not
 * step or release. husk_generator_release comes after all other calls. A program whose steps have
 * no more to do waits by its own means until it has submitted a request.
 *
 * Pages: in a file whose caches are in pages, a text also waits until there are pages for its
 * prompt. If the pages do not suffice for all texts that are generated, the one that was submitted
 * last waits, and its tokens are taken again when there are pages; they suffice for one text of
 * max_tokens.
 *
 * Memory: husk_generator_submit allocates all that a request needs but for the text that is held
 * back or comes with one token, which grows as the tokens need. A step allocates nothing else; the
 * runs of the model follow husk_session_run.
 *
 * Errors: as in husk/text.h. The library libhusk_text has these functions, and calls libhusk. Later
 * versions append fields to the structs, by the rules of husk/husk.h. The header is C11 and
 * C++17. */
#ifndef HUSK_GENERATE_H
#define HUSK_GENERATE_H

#include <husk/husk.h>
#include <husk/text.h>

#ifdef __cplusplus
extern "C" {
#endif

/** The requests for texts of one program, with a session of it. */
typedef struct husk_generator husk_generator;

/** The options of husk_generator_create. Minimum size: through `reuse_prefixes`. */
typedef struct husk_generator_options {
  uint32_t struct_size; /**< The size of this struct, set by whoever provides it. */
  /** The most tokens of a prompt that one step takes; 0: as many as the file allows. With a smaller
   * number, texts that are generated wait less for new prompts, which take longer. */
  uint32_t chunk;
  /** 1: a prompt whose first tokens are in the cache of a free slot already, because an earlier
   * request had them, begins after them; if the cache of another slot has more of them, they are
   * copied from there, also while both prompts are taken. The logits may then differ by rounding
   * from those of a prompt that is taken as a whole. The samples of one request that get their
   * slots together take the prompt once in any case, and have equal logits. Copies need a file
   * with the function `copy`, which `python -m husk llm` gives a file with several slots. */
  int32_t reuse_prefixes;
  int32_t reserved; /**< 0. */
  /** The options of the session; NULL: the defaults. Read during the call. */
  const husk_session_options* session;
  /** How many runs of the model a step enqueues at most before it reads their tokens, each of which
   * takes those of the run before on the device, so that the device does not wait for the host in
   * between. A step then gives a text up to so many parts, and drops the tokens after its end. A
   * step has one run alone if a request has penalties, a mask, top_logprobs or drafts, if it also
   * takes tokens of a prompt, or if a text reaches its limit with it. Otherwise, with 2 and more,
   * the device gets the runs of the next step before the tokens of this one are read, if the port
   * has husk_port.event_wait and alloc_host; not in a file with states if reuse_prefixes is set. At
   * most 16; 0: 2, or 1 where the memory of the device is that of the host. */
  uint32_t runs;
  uint32_t reserved2; /**< 0. */
} husk_generator_options;
/** The initial value of a husk_generator_options. */
#define HUSK_GENERATOR_OPTIONS_INIT {sizeof(husk_generator_options), 0, 0, 0, NULL, 0, 0}

/** Creates a generator. It has a stream of its own, and a session with the caches of all slots.
 * @param engine the engine of the program; must outlive the generator
 * @param program a language model; the generator keeps it
 * @param options copied; NULL: the defaults
 * @param generator the result, NULL after a failure
 * @param error may be NULL
 * @return HUSK_OK; HUSK_INVALID_FILE if the program is no language model; HUSK_UNSUPPORTED if the
 * library lacks the kind of its tokenizer; HUSK_OUT_OF_MEMORY; or the failure of the device */
HUSK_API husk_status husk_generator_create(husk_engine* engine, husk_program* program,
                                           const husk_generator_options* options,
                                           husk_generator** generator, husk_error* error);
/** Releases the generator, with the requests that are not done: their `part` is not called any
 * more. NULL does nothing. */
HUSK_API void husk_generator_release(husk_generator* generator);

/** Returns the tokenizer of the file, which lives as long as the generator; NULL if there is none.
 */
HUSK_API const husk_tokenizer* husk_generator_tokenizer(const husk_generator* generator);
/** Creates an empty chat in the form that the model takes. The caller releases it.
 * @return HUSK_OK; HUSK_UNSUPPORTED if the file has no chat template, or one that only Jinja fills
 * in, as husk.text does in Python; or the failure of husk_chat_create */
HUSK_API husk_status husk_generator_chat(const husk_generator* generator, husk_chat** chat,
                                         husk_error* error);

/** Why a text has ended, or that it has not. Later versions append reasons. */
enum {
  HUSK_TEXT_GOES_ON = 0,   /**< More parts will come. */
  HUSK_TEXT_END = 1,       /**< The model ended the text; the token says so and has no text. */
  HUSK_TEXT_STOP = 2,      /**< One of the stop texts came. */
  HUSK_TEXT_LENGTH = 3,    /**< It has max_new_tokens, or the sequence has no room for more. */
  HUSK_TEXT_CANCELLED = 4, /**< The application cancelled the request. */
  HUSK_TEXT_FAILED = 5     /**< A run of the model failed, or there is no memory for the text. */
};

/** What a step has added to a text. The library fills the struct, which is valid during the
 * callback. Each text has one part with a reason other than HUSK_TEXT_GOES_ON, the last one. */
typedef struct husk_text_part {
  uint32_t struct_size; /**< The size of the struct in the library's version. */
  uint32_t sample;      /**< The number of the text among those of the request, from 0. */
  uint64_t request;     /**< The number of the request. */
  /** UTF-8, whole characters, perhaps none: what became certain with this part. The beginning of a
   * stop text is held back until it is another text. */
  const char* text;
  size_t bytes;          /**< The length of `text`. */
  int32_t token;         /**< The token; -1 if there is none, as in a request that was cancelled. */
  float logprob;         /**< The logarithm of its probability in the model, if asked for. */
  int32_t reason;        /**< HUSK_TEXT_GOES_ON, or why the text has ended. */
  int32_t reserved;      /**< 0. */
  uint64_t tokens;       /**< How many tokens the text has, this one included. */
  uint64_t prompt;       /**< How many tokens the prompt has. */
  uint64_t reused;       /**< How many of them were in the caches already. */
  const husk_error* why; /**< The failure if `reason` is HUSK_TEXT_FAILED, else NULL. */
  /** With top_logprobs: the most likely tokens in the model, the first one first. */
  const int32_t* top_tokens;
  const float* top_logprobs; /**< The logarithms of their probabilities. */
  uint32_t top_count;        /**< How many there are; 0 without a token. */
  uint32_t reserved2;        /**< 0. */
} husk_text_part;

/** The next token of a text, of which the application says what it may be. The library fills the
 * struct, which is valid during the callback. */
typedef struct husk_text_choice {
  uint32_t struct_size;  /**< The size of the struct in the library's version. */
  uint32_t sample;       /**< The number of the text among those of the request, from 0. */
  uint64_t request;      /**< The number of the request. */
  const int32_t* tokens; /**< The tokens that the text has so far, without the prompt. */
  size_t token_count;    /**< How many they are. */
  /** Token number t may come if bit t % 32 of word t / 32 is set. All bits are set on entry. */
  uint32_t* allowed;
  size_t word_count; /**< How many words there are. */
} husk_text_choice;

/** A text that is not a string of C. Entries come in arrays, so the layout is fixed. */
typedef struct husk_text_slice {
  const char* text; /**< UTF-8. */
  size_t bytes;     /**< Its length. */
} husk_text_slice;

/** A request. Minimum size: through `user`. */
typedef struct husk_text_request {
  uint32_t struct_size;    /**< The size of this struct, set by whoever provides it. */
  uint32_t options;        /**< For a text: HUSK_TEXT_ADD_SPECIAL and HUSK_TEXT_PLAIN, as in
                              husk_tokenizer_encode. */
  const char* text;        /**< The prompt as a text, or NULL. */
  size_t bytes;            /**< The length of `text`. */
  const int32_t* tokens;   /**< The prompt as tokens, if `text` is NULL. */
  size_t token_count;      /**< How many tokens there are. */
  uint64_t max_new_tokens; /**< The most tokens of a text; 0: as many as the sequence has room for.
                            */
  uint32_t samples;        /**< How many texts; 0: one. Text number i has the seed `seed` + i. */
  /** 0 takes the most likely token each time; larger numbers draw tokens, the more evenly the
   * larger they are. */
  float temperature;
  int64_t top_k; /**< Draw from so many of the most likely tokens; 0: no limit. */
  float top_p;   /**< Draw from the most likely tokens that have this probability together; 0: 1. */
  /** 1: parts have the log-probabilities of their tokens, by the logits of the model: before
   * penalties, masks, temperature and what else draws tokens. */
  int32_t logprobs;
  /** 1: the tokens that end a text are tokens like others, as for a measurement. */
  int32_t ignore_end;
  int32_t reserved; /**< 0. */
  /** Equal seeds give equal texts, whatever else is generated at the same time. */
  int64_t seed;
  const husk_text_slice* stops; /**< Texts that end the generation, and are no part of it. */
  size_t stop_count;            /**< How many there are. */
  /** Called for each part of each text. Another result than 0 cancels the request. Must not be
   * NULL. */
  int32_t (*part)(void* user, const husk_text_part* part);
  void* user; /**< The first argument of `part`. */
  /** Draw from the tokens whose probability is at least this part of the largest one; 0: all. It
   * applies after temperature, top_k and top_p, in this order. */
  float min_p;
  /** The logits of all tokens that a text or its prompt has are divided by this number if they are
   * positive, else multiplied; 0: 1, which changes nothing. It comes first of all, and is that of
   * transformers. Like the fields that follow, it needs a file with the functions `adjust` and
   * `rank`: `python -m husk llm --features controls`. */
  float repetition_penalty;
  /** This is taken from the logits of all tokens that the text has after its prompt. */
  float presence_penalty;
  float frequency_penalty; /**< This is taken so many times as the text has the token. */
  uint32_t top_logprobs;   /**< Parts have so many of the most likely tokens; at most 20. */
  /** Speculative decoding, if the file has the function `verify` (--features verify): up to so many
   * tokens that followed the last two or three tokens earlier in the text or its prompt are tried
   * together with the next one, and those that the text gets anyway are taken in one step. A step
   * may then give a text several parts. Tokens are those without it, but for rounding: each is
   * drawn from the same probabilities with the same random number. Steps with a request that has
   * penalties, a mask or top_logprobs do not speculate. 0: never. */
  uint32_t speculate;
  /** Called before each token of each text, while the model may still compute, as `part` is; clears
   * the bits of tokens that must not come. Another result than 0 cancels the request. A text
   * without an allowed token ends with HUSK_TEXT_FAILED. NULL: all may come. */
  int32_t (*allow)(void* user, const husk_text_choice* choice);
  /** The adapter of husk_generator_set_adapter that the texts use; 0: none. */
  uint32_t adapter;
  uint32_t reserved2; /**< 0. */
  /** The rows of the images of the prompt, one image after the other, as husk_generator_image
   * writes them; NULL without images. Each row takes the place of an image token of the prompt
   * (husk_text_images). The prompt has an image token for each row, or one for each image, which
   * becomes as many as an image has rows. Tokens of images do not count for reuse_prefixes. */
  const float* embeddings;
  size_t embedding_count; /**< How many rows there are. */
  /** What the encoder takes instead of a prompt, if the file has one for sound (husk_text_encoder):
   * the numbers that the feature extractor of the model makes. `text` and `tokens` are NULL then.
   */
  const float* features;
  size_t feature_count; /**< How many numbers there are. */
  /** The tokens with which the decoder begins, if the file has an encoder, which takes the prompt
   * or the features; NULL: those of the file. They are what `prompt` of a part counts. */
  const int32_t* decoder_tokens;
  size_t decoder_token_count; /**< How many tokens there are. */
} husk_text_request;
/** The initial value of a husk_text_request. */
#define HUSK_TEXT_REQUEST_INIT \
  {sizeof(husk_text_request),  \
   0,                          \
   NULL,                       \
   0,                          \
   NULL,                       \
   0,                          \
   0,                          \
   0,                          \
   0,                          \
   0,                          \
   0,                          \
   0,                          \
   0,                          \
   0,                          \
   0,                          \
   NULL,                       \
   0,                          \
   NULL,                       \
   NULL,                       \
   0,                          \
   0,                          \
   0,                          \
   0,                          \
   0,                          \
   0,                          \
   NULL,                       \
   0,                          \
   0,                          \
   NULL,                       \
   0,                          \
   NULL,                       \
   0,                          \
   NULL,                       \
   0}

/** Sets temperature, top_k and top_p to what the model's author recommends: zeros, if nothing. */
HUSK_API void husk_generator_recommend(const husk_generator* generator, husk_text_request* request);

/** Adds a request. The generator copies all of it.
 * @param generator any thread may call
 * @param request the request
 * @param number its number, from 1 on, which parts and husk_generator_cancel have; may be NULL
 * @param error may be NULL
 * @return HUSK_OK; HUSK_INVALID_ARGUMENT, naming a setting that is wrong; HUSK_INVALID_INPUT if the
 * prompt is no UTF-8, has no tokens or a token that does not exist, or is longer than a sequence
 * or than the encoder takes, if its image tokens are not as many as the rows of its images, or if
 * the features are of another number, or not finite; HUSK_NOT_FOUND if its adapter
 * is not set; HUSK_UNSUPPORTED if there is a text and no tokenizer, or a setting whose functions
 * the file lacks; or HUSK_OUT_OF_MEMORY. Other requests go on. */
HUSK_API husk_status husk_generator_submit(husk_generator* generator,
                                           const husk_text_request* request, uint64_t* number,
                                           husk_error* error);
/** Cancels a request: the next step calls `part` with HUSK_TEXT_CANCELLED for each of its texts
 * that has not ended, and with the text that was held back, if any; or the step in progress does,
 * if it has several runs. A part that the step in progress has may come before.
 * @param generator any thread may call
 * @param number the request
 * @param error may be NULL
 * @return HUSK_OK; or HUSK_NOT_FOUND if there is no such request, since it is done for instance */
HUSK_API husk_status husk_generator_cancel(husk_generator* generator, uint64_t number,
                                           husk_error* error);
/** Runs the model for all texts that have a slot. If a run fails, all of these end with
 * HUSK_TEXT_FAILED, since the caches are undefined, and those that wait go on. A prompt that fails
 * before its run has begun, such as one for which there is no memory, ends alone, and the call
 * succeeds.
 * @param generator one thread at a time
 * @param more 1 if there are texts that have not ended, else 0; may be NULL
 * @param error may be NULL
 * @return HUSK_OK; HUSK_INVALID_ARGUMENT if a step is in progress; or the failure of the run */
HUSK_API husk_status husk_generator_step(husk_generator* generator, int32_t* more,
                                         husk_error* error);

/** Returns how many adapters the file has room for, which have the numbers from 1 on; 0 if it has
 * none, or `generator` is NULL: `python -m husk llm --adapters N` exports a file with N. */
HUSK_API uint32_t husk_generator_adapter_count(const husk_generator* generator);
/** Sets an adapter (LoRA), which requests that are submitted later may use; one that was set before
 * is replaced. The adapter belongs to the program: of several generators of one program, one sets
 * the adapters. The call has the memory for the adapter, and the device for all constants of
 * adapters, until it returns; runs of the program wait for the exchange alone.
 *
 * `weights` are the content of adapter_model.safetensors of PEFT, and `config` that of
 * adapter_config.json. Matrices of f32, f16 and bf16 are converted to the type of the model. Their
 * rank may be smaller than that of the file; layers without matrices stay as they are. The scale is
 * lora_alpha / r, or lora_alpha / sqrt(r) with use_rslora; a name in alpha_pattern is the end of
 * names of layers. husk_generator_embed uses no adapter.
 * @param generator any thread may call
 * @param adapter its number, from 1 to husk_generator_adapter_count
 * @param weights read during the call
 * @param weight_bytes the length of `weights`
 * @param config UTF-8, read during the call
 * @param config_bytes the length of `config`
 * @param error may be NULL
 * @return HUSK_OK; HUSK_INVALID_ARGUMENT if there is no such number, or if a request that is not
 * done uses the adapter; HUSK_INVALID_FILE or HUSK_INVALID_INPUT if a file is damaged, or has
 * matrices of another shape, a larger rank or layers for which there is no room; HUSK_UNSUPPORTED
 * if the file of the model has no adapters, or the adapter is more than matrices: DoRA, biases,
 * modules_to_save; HUSK_OUT_OF_MEMORY; or the failure of the device. After a failure of the device
 * the adapter is not set any more, and after others what was set before stays. Requests go on. */
HUSK_API husk_status husk_generator_set_adapter(husk_generator* generator, uint32_t adapter,
                                                const void* weights, size_t weight_bytes,
                                                const char* config, size_t config_bytes,
                                                husk_error* error);
/** Removes an adapter, whose number may be set again.
 * @param generator any thread may call
 * @param adapter the number
 * @param error may be NULL
 * @return HUSK_OK; HUSK_INVALID_ARGUMENT if there is no such number, or if a request that is not
 * done uses the adapter; or HUSK_NOT_FOUND if it is not set */
HUSK_API husk_status husk_generator_remove_adapter(husk_generator* generator, uint32_t adapter,
                                                   husk_error* error);

/** Which hidden states husk_generator_embed gives. */
enum {
  HUSK_TEXT_MEAN = 0, /**< The mean of those of all tokens. */
  HUSK_TEXT_LAST = 1  /**< Those of the last token. */
};
/** Computes the hidden states of the model's last layer for a text, without a slot. The caches are
 * not used. The file needs the function `embed`: `python -m husk llm --features embed`.
 * @param generator one thread at a time, and none that steps
 * @param tokens the text
 * @param token_count how many tokens there are
 * @param pooling HUSK_TEXT_MEAN or HUSK_TEXT_LAST
 * @param embedding memory for the numbers; those that do not fit are counted, but not written
 * @param capacity how many numbers have memory
 * @param count how many numbers the model has; may be NULL
 * @param error may be NULL
 * @return HUSK_OK; HUSK_INVALID_ARGUMENT, also if a step is in progress; HUSK_INVALID_INPUT if the
 * text has no tokens, one that does not exist, or too many; HUSK_UNSUPPORTED if the file has no
 * such function; or the failure of the run */
HUSK_API husk_status husk_generator_embed(husk_generator* generator, const int32_t* tokens,
                                          size_t token_count, int32_t pooling, float* embedding,
                                          size_t capacity, size_t* count, husk_error* error);

/** How a file takes images. Minimum size: through `width`. */
typedef struct husk_text_images {
  uint32_t struct_size; /**< Set by the caller that passes the struct to be filled. */
  int32_t token;        /**< The token that stands for each row of an image in a prompt. */
  uint64_t pixels;      /**< How many numbers an image has; 0: the file takes no images. */
  uint64_t rows;        /**< How many rows of embeddings, and tokens, an image has. */
  uint64_t width;       /**< How many numbers a row has. */
} husk_text_images;
/** The initial value of a husk_text_images. */
#define HUSK_TEXT_IMAGES_INIT {sizeof(husk_text_images), 0, 0, 0, 0}

/** Writes to `out`, which is HUSK_TEXT_IMAGES_INIT on entry, how the file takes images. Any thread
 * may call. Returns HUSK_OK or HUSK_INVALID_ARGUMENT. */
HUSK_API husk_status husk_generator_images_get(const husk_generator* generator,
                                               husk_text_images* out, husk_error* error);
/** Computes the rows of embeddings of an image, which requests take. The caches are not used. The
 * file needs the functions `image` and `prefill_images`, which `python -m husk llm` gives the file
 * of a model that takes images.
 * @param generator one thread at a time, and none that steps
 * @param pixels what the model's processor of images makes of an image, on the host
 * @param pixel_count how many numbers these are: `pixels` of husk_text_images
 * @param rows memory for `rows` times `width` numbers
 * @param capacity how many numbers have memory
 * @param error may be NULL
 * @return HUSK_OK; HUSK_INVALID_ARGUMENT, also if a step is in progress or there is too little
 * memory; HUSK_INVALID_INPUT if the image has another size; HUSK_UNSUPPORTED if the file takes no
 * images; HUSK_OUT_OF_MEMORY; or the failure of the run */
HUSK_API husk_status husk_generator_image(husk_generator* generator, const float* pixels,
                                          size_t pixel_count, float* rows, size_t capacity,
                                          husk_error* error);

/** How a file takes the input of its encoder. Minimum size: through `features`. */
typedef struct husk_text_encoder {
  uint32_t struct_size; /**< Set by the caller that passes the struct to be filled. */
  int32_t reserved;     /**< 0. */
  uint64_t positions;   /**< How many tokens the encoder takes; 0: the file has no encoder. */
  uint64_t features;    /**< How many numbers it takes instead of tokens; 0: it takes tokens. */
} husk_text_encoder;
/** The initial value of a husk_text_encoder. */
#define HUSK_TEXT_ENCODER_INIT {sizeof(husk_text_encoder), 0, 0, 0}

/** Writes to `out`, which is HUSK_TEXT_ENCODER_INIT on entry, how the file takes the input of its
 * encoder, which each request gives: its prompt, or `features`. Any thread may call. Returns
 * HUSK_OK or HUSK_INVALID_ARGUMENT. */
HUSK_API husk_status husk_generator_encoder_get(const husk_generator* generator,
                                                husk_text_encoder* out, husk_error* error);

/** Counts of a generator. Minimum size: through `step_nanoseconds`. */
typedef struct husk_generator_stats {
  uint32_t struct_size;       /**< Set by the caller that passes the struct to be filled. */
  uint32_t slots;             /**< How many texts can be generated at the same time. */
  uint64_t max_tokens;        /**< How many tokens a sequence may have. */
  uint64_t vocabulary;        /**< How many numbers of tokens the model has. */
  uint32_t active;            /**< Texts that have a slot. */
  uint32_t waiting;           /**< Texts that wait for one. */
  uint64_t requests;          /**< Requests that were submitted. */
  uint64_t ended;             /**< Texts that have ended, for whatever reason. */
  uint64_t steps;             /**< Steps that ran the model. */
  uint64_t prompt_tokens;     /**< Tokens of prompts that the model has taken. */
  uint64_t reused_tokens;     /**< Tokens of prompts that were in the cache already. */
  uint64_t new_tokens;        /**< Tokens of texts. */
  uint64_t model_nanoseconds; /**< Time of the runs, with copies from and to the device. */
  uint64_t step_nanoseconds;  /**< Time of the steps, with the callbacks. */
  uint64_t prompt_runs;       /**< Runs of the model that took tokens of prompts. */
  uint64_t copied_tokens;     /**< The part of `reused_tokens` that another slot had. */
  uint64_t drafted_tokens;    /**< Tokens that were tried by speculative decoding. */
  uint64_t accepted_tokens;   /**< Those of them that the texts got. */
  uint64_t pages;             /**< Pages of the caches of the file; 0 if it has none. */
  uint64_t used_pages;        /**< Those that slots have, also for prompts that may come again. */
  uint64_t shared_tokens;     /**< Tokens whose pages a slot got from another one, not copied. */
  uint64_t repeated_tokens;   /**< Tokens that were taken again after others needed their pages. */
  /** Runs that were enqueued before the tokens of the run before were read. */
  uint64_t runs_ahead;
  uint64_t single_runs; /**< Runs of the function `single`, for a text without others. */
} husk_generator_stats;
/** The initial value of a husk_generator_stats. */
#define HUSK_GENERATOR_STATS_INIT \
  {sizeof(husk_generator_stats),  \
   0,                             \
   0,                             \
   0,                             \
   0,                             \
   0,                             \
   0,                             \
   0,                             \
   0,                             \
   0,                             \
   0,                             \
   0,                             \
   0,                             \
   0,                             \
   0,                             \
   0,                             \
   0,                             \
   0,                             \
   0,                             \
   0,                             \
   0,                             \
   0,                             \
   0,                             \
   0}

/** Writes the counts to `out`, which is HUSK_GENERATOR_STATS_INIT on entry. Any thread may call; a
 * step in progress is not in the counts. Returns HUSK_OK or HUSK_INVALID_ARGUMENT. */
HUSK_API husk_status husk_generator_stats_get(husk_generator* generator, husk_generator_stats* out,
                                              husk_error* error);

#ifdef __cplusplus
}
#endif

#endif
