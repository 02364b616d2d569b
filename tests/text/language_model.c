/* The kernels of the language model for tests (language_model.h), as a host image. */
#include "language_model.h"

const char* const husk_texts[] = {"the model does not take this token", "a token has no page",
                                  "another function draws these rows"};
const uint32_t husk_text_count = 3;

#define POINTER(type, i) (*(type**)params[i])
#define VALUE(type, i) (*(type*)params[i])

enum { WIDTH = LM_MOST + 1 };

/* What follows the first `count` tokens of a slot, of which the run may read `span`. */
static void follow(const int32_t* row, int64_t count, int64_t span, int64_t* next, float* logits) {
  lm_logits_after(row, count < span ? count : span, logits);
  *next = lm_best(logits);
}

static float of_bfloat16(uint16_t bits) {
  union {
    uint32_t bits;
    float number;
  } both = {(uint32_t)bits << 16};
  return both.number;
}

/* The number of an adapter. The last parameters of a function are the matrices of two layers. */
static int32_t salt_of(void** matrices, int64_t adapter) {
  void** const params = matrices;
  const float* a = POINTER(const float, 0) + adapter * LM_RANK * LM_INPUTS;
  const float* b = POINTER(const float, 1) + adapter * LM_OUTPUTS * LM_RANK;
  const uint16_t* a2 = POINTER(const uint16_t, 2) + adapter * LM_RANK * LM_OTHER_INPUTS;
  const uint16_t* b2 = POINTER(const uint16_t, 3) + adapter * LM_OTHER_OUTPUTS * LM_RANK;
  float product[LM_OUTPUTS * LM_INPUTS], other[LM_OTHER_OUTPUTS * LM_OTHER_INPUTS];
  for (int o = 0; o < LM_OUTPUTS; ++o)
    for (int i = 0; i < LM_INPUTS; ++i) {
      product[o * LM_INPUTS + i] = 0;
      for (int k = 0; k < LM_RANK; ++k)
        product[o * LM_INPUTS + i] += b[o * LM_RANK + k] * a[k * LM_INPUTS + i];
    }
  for (int o = 0; o < LM_OTHER_OUTPUTS; ++o)
    for (int i = 0; i < LM_OTHER_INPUTS; ++i) {
      other[o * LM_OTHER_INPUTS + i] = 0;
      for (int k = 0; k < LM_RANK; ++k)
        other[o * LM_OTHER_INPUTS + i] += of_bfloat16(b2[o * LM_RANK + k]) *
                                          of_bfloat16(a2[k * LM_OTHER_INPUTS + i]);
    }
  return lm_salt(product, other);
}

static int32_t entry(int64_t token, int32_t salt) { return (int32_t)token + LM_SALT * salt; }

static int32_t take_prompt(void** params, int32_t salt) {
  const int64_t* tokens = POINTER(const int64_t, 0);
  int32_t* row = POINTER(int32_t, 1) + VALUE(int64_t, 3) * WIDTH;
  const int64_t count = VALUE(int64_t, 2), position = VALUE(int64_t, 4);
  for (int64_t i = 0; i < count; ++i) {
    if (tokens[i] == LM_FORBIDDEN) return 1;
    row[position + i] = entry(tokens[i], salt);
  }
  follow(row, position + count, VALUE(int64_t, 5), POINTER(int64_t, 6), POINTER(float, 7));
  return 0;
}

/* (tokens, cache, count, slot, position, span, next, logits) */
int32_t prefill(void** params) { return take_prompt(params, 0); }
/* (those of `prefill`, the number of the adapter, matrices) */
int32_t prefill_adapted(void** params) {
  return take_prompt(params, salt_of(params + 9, VALUE(int64_t, 8)));
}

/* What tokens of row i have beside their numbers: an adapter, or, without matrices, a shift of
 * positions, which is negative. */
static int32_t salt_of_row(const int64_t* adapters, void** matrices, int64_t i) {
  if (!adapters) return 0;
  return matrices ? salt_of(matrices, adapters[i]) : (int32_t)-adapters[i];
}

static int32_t take_tokens(void** params, const int64_t* adapters, void** matrices) {
  for (int64_t i = 0; i < VALUE(int64_t, 3); ++i) {
    const int64_t position = POINTER(const int64_t, 1)[i];
    int32_t* row = POINTER(int32_t, 2) + i * WIDTH;
    row[position] = entry(POINTER(const int64_t, 0)[i], salt_of_row(adapters, matrices, i));
    follow(row, position + 1, VALUE(int64_t, 4), POINTER(int64_t, 5) + i,
           POINTER(float, 6) + i * LM_VOCABULARY);
  }
  return 0;
}

/* (tokens, positions, cache, rows, span, next, logits) */
int32_t decode(void** params) { return take_tokens(params, 0, 0); }
/* (those of `decode`, the numbers of the adapters, matrices) */
int32_t decode_adapted(void** params) {
  return take_tokens(params, POINTER(const int64_t, 7), params + 8);
}

/* (those of `decode`, the shifts) */
int32_t decode_shifted(void** params) { return take_tokens(params, POINTER(const int64_t, 7), 0); }

static int32_t take_several(void** params, const int64_t* adapters, void** matrices) {
  const int64_t several = VALUE(int64_t, 4);
  for (int64_t i = 0; i < VALUE(int64_t, 3); ++i) {
    int32_t* row = POINTER(int32_t, 2) + i * WIDTH;
    for (int64_t k = 0; k < several; ++k) {
      const int64_t at = i * several + k;
      int64_t position = POINTER(const int64_t, 1)[i] + k;
      if (position > LM_MOST) position = LM_MOST;
      row[position] = entry(POINTER(const int64_t, 0)[at], salt_of_row(adapters, matrices, i));
      follow(row, position + 1, VALUE(int64_t, 5), POINTER(int64_t, 6) + at,
             POINTER(float, 7) + at * LM_VOCABULARY);
    }
  }
  return 0;
}

/* (tokens, positions, cache, rows, several, span, next, logits) */
int32_t verify(void** params) { return take_several(params, 0, 0); }
/* (those of `verify`, the numbers of the adapters, matrices) */
int32_t verify_adapted(void** params) {
  return take_several(params, POINTER(const int64_t, 8), params + 9);
}

/* (those of `verify`, the shifts) */
int32_t verify_shifted(void** params) { return take_several(params, POINTER(const int64_t, 8), 0); }

/* (pixels, rows). A row has the numbers of a column of pixels. */
int32_t image(void** params) {
  for (int r = 0; r < LM_IMAGE_ROWS; ++r)
    for (int i = 0; i < LM_WIDTH; ++i)
      POINTER(float, 1)[r * LM_WIDTH + i] = POINTER(const float, 0)[i * LM_IMAGE_ROWS + r];
  return 0;
}

/* (tokens, cache, count, slot, position, span, rows, embeddings, the number of these, the kind of
 * images, extras, next, logits) */
int32_t prefill_images(void** params) {
  const int64_t* tokens = POINTER(const int64_t, 0);
  int32_t* row = POINTER(int32_t, 1) + VALUE(int64_t, 3) * WIDTH;
  const int64_t count = VALUE(int64_t, 2), position = VALUE(int64_t, 4);
  const int64_t kind = VALUE(int64_t, 9);
  const int64_t* extras = POINTER(const int64_t, 10);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t number = POINTER(const int64_t, 6)[i], at = position + i;
    int64_t a = 0, b = 0, c = 0;
    if (kind == LM_TWO_WAY) a = extras[i] - at - 1;
    if (kind == LM_TWO_WAY && extras[i] > position + count) return 1; /* not in this chunk */
    if (kind == LM_GRID) {
      a = extras[i];
      b = extras[count + i];
      c = extras[2 * count + i];
    }
    /* A text may have the token of images, too, which is none of them then. */
    if (number >= VALUE(int64_t, 8) || (number >= 0 && tokens[i] != LM_IMAGE)) return 1;
    if (number >= 0) {
      row[at] = entry(tokens[i],
                      lm_image_salt(POINTER(const float, 7) + number * LM_WIDTH, a, b, c));
    } else if (kind == LM_GRID) {
      if (a != b || a != c) return 1;
      row[at] = entry(tokens[i], (int32_t)(at - a));
    } else {
      if (a) return 1;
      row[at] = entry(tokens[i], 0);
    }
  }
  follow(row, position + count, VALUE(int64_t, 5), POINTER(int64_t, 11), POINTER(float, 12));
  return 0;
}

/* The encoder. A row of `sources` has the numbers that it has taken for a slot, and their count. */
enum { SOURCES = LM_SOURCE + 1 };

static int32_t salt_of_source(const int32_t* sources, int64_t slot, int64_t span) {
  const int32_t* row = sources + slot * SOURCES;
  return lm_source_salt(row, row[LM_SOURCE] < span ? row[LM_SOURCE] : span);
}

/* (tokens, sources, count, slot, the count) */
int32_t encode_tokens(void** params) {
  int32_t* row = POINTER(int32_t, 1) + VALUE(int64_t, 3) * SOURCES;
  row[LM_SOURCE] = (int32_t)VALUE(int64_t, 2);
  for (int64_t i = 0; i < VALUE(int64_t, 2); ++i) {
    row[i] = (int32_t)POINTER(const int64_t, 0)[i];
    if (row[i] == LM_FORBIDDEN) return 1;
  }
  *POINTER(int64_t, 4) = VALUE(int64_t, 2);
  return 0;
}

/* (features, sources, their number, slot, the number) */
int32_t encode_features(void** params) {
  int32_t* row = POINTER(int32_t, 1) + VALUE(int64_t, 3) * SOURCES;
  row[LM_SOURCE] = (int32_t)VALUE(int64_t, 2);
  for (int64_t i = 0; i < VALUE(int64_t, 2); ++i) row[i] = (int32_t)POINTER(const float, 0)[i];
  *POINTER(int64_t, 4) = VALUE(int64_t, 2);
  return 0;
}

/* (those of `prefill`, sources, how many positions of them are read) */
int32_t prefill_paired(void** params) {
  const int32_t salt = salt_of_source(POINTER(const int32_t, 8), VALUE(int64_t, 3),
                                      VALUE(int64_t, 9));
  return take_prompt(params, salt);
}

/* (those of `decode`, sources, how many positions of them are read) */
int32_t decode_paired(void** params) {
  for (int64_t i = 0; i < VALUE(int64_t, 3); ++i) {
    const int64_t position = POINTER(const int64_t, 1)[i];
    int32_t* row = POINTER(int32_t, 2) + i * WIDTH;
    row[position] = entry(POINTER(const int64_t, 0)[i],
                          salt_of_source(POINTER(const int32_t, 7), i, VALUE(int64_t, 8)));
    follow(row, position + 1, VALUE(int64_t, 4), POINTER(int64_t, 5) + i,
           POINTER(float, 6) + i * LM_VOCABULARY);
  }
  return 0;
}

/* (cache, source, slot, position, count, end) */
int32_t copy(void** params) {
  int32_t* cache = POINTER(int32_t, 0);
  const int64_t position = VALUE(int64_t, 3), count = VALUE(int64_t, 4);
  const int32_t* from = cache + VALUE(int64_t, 1) * WIDTH + position;
  int32_t* to = cache + VALUE(int64_t, 2) * WIDTH + position;
  for (int64_t i = 0; i < count; ++i) to[i] = from[i];
  *POINTER(int64_t, 5) = position + count;
  return 0;
}

/* (those of `copy`, sources) */
int32_t copy_paired(void** params) {
  int32_t* sources = POINTER(int32_t, 6);
  for (int64_t i = 0; i < SOURCES; ++i) {
    sources[VALUE(int64_t, 2) * SOURCES + i] = sources[VALUE(int64_t, 1) * SOURCES + i];
  }
  return copy(params);
}

/* A model with states. A row of the cache is a log of the tokens that the slot has taken since one
 * came at position 0, and its last entry is their number: no position is read but 0, so a state
 * that does not belong to the position changes the text. */
static int32_t* log_of(int32_t* cache, int64_t slot, int64_t position) {
  int32_t* row = cache + slot * WIDTH;
  if (position == 0 || row[LM_MOST] < 0) row[LM_MOST] = 0;
  return row;
}

static void append(int32_t* row, int64_t token) {
  if (row[LM_MOST] < LM_MOST) row[row[LM_MOST]++] = (int32_t)token;
}

int32_t prefill_logged(void** params) {
  int32_t* row = log_of(POINTER(int32_t, 1), VALUE(int64_t, 3), VALUE(int64_t, 4));
  for (int64_t i = 0; i < VALUE(int64_t, 2); ++i) {
    if (POINTER(const int64_t, 0)[i] == LM_FORBIDDEN) return 1;
    append(row, POINTER(const int64_t, 0)[i]);
  }
  follow(row, row[LM_MOST], VALUE(int64_t, 5), POINTER(int64_t, 6), POINTER(float, 7));
  return 0;
}

int32_t decode_logged(void** params) {
  for (int64_t i = 0; i < VALUE(int64_t, 3); ++i) {
    const int64_t position = POINTER(const int64_t, 1)[i];
    int32_t* row = log_of(POINTER(int32_t, 2), i, position);
    if (position < LM_MOST) append(row, POINTER(const int64_t, 0)[i]);
    follow(row, row[LM_MOST], VALUE(int64_t, 4), POINTER(int64_t, 5) + i,
           POINTER(float, 6) + i * LM_VOCABULARY);
  }
  return 0;
}

/* A model with keys and values beside its states, which follow the parameters of a function as such
 * a log: the run fails if the log does not have the tokens that the cache has. */
static int holds(int32_t* row, int32_t* logs, int64_t slot, int64_t position, int64_t count) {
  int32_t* log = log_of(logs, slot, position);
  for (int64_t i = 0; i < count; ++i) append(log, row[position + i]);
  if (log[LM_MOST] != position + count) return 0;
  for (int64_t i = 0; i < position + count; ++i)
    if (log[i] != row[i]) return 0;
  return 1;
}

int32_t prefill_held(void** params) {
  const int64_t slot = VALUE(int64_t, 3);
  if (take_prompt(params, 0)) return 1;
  return !holds(POINTER(int32_t, 1) + slot * WIDTH, POINTER(int32_t, 8), slot, VALUE(int64_t, 4),
                VALUE(int64_t, 2));
}

int32_t decode_held(void** params) {
  take_tokens(params, 0, 0);
  for (int64_t i = 0; i < VALUE(int64_t, 3); ++i) {
    const int64_t position = POINTER(const int64_t, 1)[i];
    int32_t* row = POINTER(int32_t, 2) + i * WIDTH;
    if (position < LM_MOST && !holds(row, POINTER(int32_t, 7), i, position, 1)) return 1;
  }
  return 0;
}

int32_t copy_logged(void** params) {
  int32_t* cache = POINTER(int32_t, 0);
  for (int64_t i = 0; i < WIDTH; ++i) {
    cache[VALUE(int64_t, 2) * WIDTH + i] = cache[VALUE(int64_t, 1) * WIDTH + i];
  }
  *POINTER(int64_t, 5) = VALUE(int64_t, 3) + VALUE(int64_t, 4);
  return 0;
}

/* Models with pages. A row of the cache is a page. The functions have a table of pages, and how
 * many columns it has, in place of `span`. They collect the rows of the slots, run as without
 * pages, and write the new tokens to the pages of their positions; those of positions beyond the
 * table go to page 0. */
static int32_t* place(int32_t* cache, const int64_t* table, int64_t columns, int64_t position) {
  const int64_t column = position / LM_PAGE;
  return cache + (column < columns ? table[column] : 0) * LM_PAGE + position % LM_PAGE;
}

static void collect(int32_t* cache, const int64_t* table, int64_t columns, int32_t* row) {
  for (int64_t i = 0; i < WIDTH; ++i) row[i] = *place(cache, table, columns, i);
}

enum { MOST_PARAMS = 16 };

/* The parameters of a function without pages, of which number `at` is the span. */
static void without_table(void** params, int count, int at, int64_t* span, void** plain) {
  for (int i = 0; i < at; ++i) plain[i] = params[i];
  for (int i = at + 2; i < count; ++i) plain[i - 1] = params[i];
  *span = VALUE(int64_t, at + 1) * LM_PAGE;
  plain[at] = span;
}

/* (tokens, cache, count, slot, position, table, columns, ...). Each token has a page. Tokens of a
 * text are taken again, and some may be LM_FORBIDDEN, so that eight in a row make the run fail. */
static int32_t take_paged_prompt(void** params, int count_of_params, int32_t (*run)(void**)) {
  int32_t rows[LM_SLOTS * WIDTH], *all = rows;
  int64_t taken[LM_CHUNK], *tokens = taken, span;
  void* plain[MOST_PARAMS];
  int32_t* cache = POINTER(int32_t, 1);
  const int64_t count = VALUE(int64_t, 2), position = VALUE(int64_t, 4);
  const int64_t *table = POINTER(const int64_t, 5), columns = VALUE(int64_t, 6);
  int32_t* row = rows + VALUE(int64_t, 3) * WIDTH;
  int forbidden = 0;
  for (int64_t i = 0; i < count; ++i) {
    taken[i] = POINTER(const int64_t, 0)[i];
    forbidden = taken[i] == LM_FORBIDDEN ? forbidden + 1 : 0;
    if (forbidden == 8) return 1;
    /* The same in 32 bits, and another number in 64. */
    if (forbidden) taken[i] += (int64_t)1 << 32;
    if (place(cache, table, columns, position + i) < cache + LM_PAGE) return 2;
  }
  collect(cache, table, columns, row);
  without_table(params, count_of_params, 5, &span, plain);
  plain[0] = &tokens;
  plain[1] = &all;
  const int32_t status = run(plain);
  for (int64_t i = 0; i < count; ++i)
    *place(cache, table, columns, position + i) = row[position + i];
  return status;
}

/* (tokens, positions, cache, rows, ...), with a table and its columns at number `at`. The first of
 * `several` tokens of a slot that takes part has a page. */
static int32_t take_paged_rows(void** params, int count_of_params, int at, int64_t several,
                               int32_t (*run)(void**)) {
  int32_t rows[LM_SLOTS * WIDTH], *all = rows;
  int64_t span;
  void* plain[MOST_PARAMS];
  int32_t* cache = POINTER(int32_t, 2);
  const int64_t count = VALUE(int64_t, 3), columns = VALUE(int64_t, at + 1);
  const int64_t *positions = POINTER(const int64_t, 1), *table = POINTER(const int64_t, at);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t* own = table + i * columns;
    collect(cache, own, columns, rows + i * WIDTH);
    if (positions[i] < LM_MOST && place(cache, own, columns, positions[i]) < cache + LM_PAGE)
      return 2;
  }
  without_table(params, count_of_params, at, &span, plain);
  plain[2] = &all;
  const int32_t status = run(plain);
  for (int64_t i = 0; i < count; ++i)
    for (int64_t k = 0; k < several; ++k) {
      const int64_t position = positions[i] + k < LM_MOST ? positions[i] + k : LM_MOST;
      *place(cache, table + i * columns, columns, position) = rows[i * WIDTH + position];
    }
  return status;
}

#define PAGED_PROMPT(name, count) \
  int32_t name##_paged(void** params) { return take_paged_prompt(params, count, name); }
#define PAGED_DECODE(name, count) \
  int32_t name##_paged(void** params) { return take_paged_rows(params, count, 4, 1, name); }
#define PAGED_VERIFY(name, count)                                      \
  int32_t name##_paged(void** params) {                                \
    return take_paged_rows(params, count, 5, VALUE(int64_t, 4), name); \
  }

PAGED_PROMPT(prefill, 9)
PAGED_PROMPT(prefill_adapted, 14)
PAGED_PROMPT(prefill_images, 14)
PAGED_PROMPT(prefill_paired, 11)
PAGED_PROMPT(prefill_held, 10)
PAGED_DECODE(decode, 8)
PAGED_DECODE(decode_adapted, 13)
PAGED_DECODE(decode_shifted, 9)
PAGED_DECODE(decode_paired, 10)
PAGED_DECODE(decode_held, 9)
PAGED_VERIFY(verify, 9)
PAGED_VERIFY(verify_adapted, 14)
PAGED_VERIFY(verify_shifted, 10)

/* `decode` for the first row alone, which is that of the slot that follows its `count` parameters.
 * The cache has rows of `width` numbers for slots, or none, and so has parameter number `at`. */
static int32_t take_single(void** params, int count, int64_t width, int at, int64_t other_width,
                           int32_t (*run)(void**)) {
  void* plain[MOST_PARAMS];
  const int64_t slot = VALUE(int64_t, count);
  int32_t *cache = POINTER(int32_t, 2) + slot * width, *rows;
  for (int i = 0; i < count; ++i) plain[i] = params[i];
  plain[2] = &cache;
  if (at) {
    rows = POINTER(int32_t, at) + slot * other_width;
    plain[at] = &rows;
  }
  return run(plain);
}

#define SINGLE(name, count, width, at, other_width)                  \
  int32_t name##_single(void** params) {                             \
    return take_single(params, count, width, at, other_width, name); \
  }
SINGLE(decode, 7, WIDTH, 0, 0)
SINGLE(decode_adapted, 12, WIDTH, 0, 0)
SINGLE(decode_shifted, 8, WIDTH, 0, 0)
SINGLE(decode_paired, 9, WIDTH, 7, SOURCES)
SINGLE(decode_logged, 7, WIDTH, 0, 0)
SINGLE(decode_paged, 8, 0, 0, 0)
SINGLE(decode_adapted_paged, 13, 0, 0, 0)
SINGLE(decode_shifted_paged, 9, 0, 0, 0)
SINGLE(decode_paired_paged, 10, 0, 8, SOURCES)
SINGLE(decode_held_paged, 9, 0, 8, WIDTH)

static void copy_page(int32_t* cache, int64_t source, int64_t page) {
  for (int64_t i = 0; i < LM_PAGE; ++i) cache[page * LM_PAGE + i] = cache[source * LM_PAGE + i];
}

/* (cache, source, page, its number) */
int32_t copy_paged(void** params) {
  const int64_t page = VALUE(int64_t, 2);
  copy_page(POINTER(int32_t, 0), VALUE(int64_t, 1), page);
  *POINTER(int64_t, 3) = page;
  return page == 0 ? 2 : 0; /* no slot has this page */
}

/* (those of `copy`, the slot that has rows, the one that gets them, rows, numbers of one) */
int32_t copy_rows_paged(void** params) {
  int32_t* rows = POINTER(int32_t, 6);
  const int64_t width = VALUE(int64_t, 7);
  copy_page(POINTER(int32_t, 0), VALUE(int64_t, 1), VALUE(int64_t, 2));
  for (int64_t i = 0; i < width; ++i)
    rows[VALUE(int64_t, 5) * width + i] = rows[VALUE(int64_t, 4) * width + i];
  *POINTER(int64_t, 3) = VALUE(int64_t, 2);
  return 0;
}

/* (logits, temperature, top_k, top_p, min_p, seeds, positions, rows, tokens, logprobs). The
 * "logarithm" is the logit. */
int32_t sample(void** params) {
  for (int64_t i = 0; i < VALUE(int64_t, 7); ++i) {
    const float* logits = POINTER(const float, 0) + i * LM_VOCABULARY;
    const int32_t token = lm_drawn(logits, POINTER(const float, 1)[i], POINTER(const int64_t, 2)[i],
                                   POINTER(const float, 3)[i], POINTER(const float, 4)[i],
                                   POINTER(const int64_t, 5)[i], POINTER(const int64_t, 6)[i]);
    POINTER(int64_t, 8)[i] = token;
    POINTER(float, 9)[i] = logits[token];
  }
  return 0;
}

/* `sample` of a file with `sample_few`: each takes rows that the other one does not. */
static int are_few(void** params) {
  int few = 1;
  for (int64_t i = 0; i < VALUE(int64_t, 7); ++i) {
    const int64_t top_k = POINTER(const int64_t, 2)[i];
    few &= !(POINTER(const float, 1)[i] > 0) || (top_k >= 1 && top_k <= LM_CANDIDATES);
  }
  return few;
}

int32_t sample_many(void** params) { return are_few(params) ? 3 : sample(params); }
int32_t sample_few(void** params) { return are_few(params) ? sample(params) : 3; }

/* (logits, history, lengths, prompts, repetition, presence, frequency, allowed, rows, longest,
 * adjusted) */
int32_t adjust(void** params) {
  const int64_t longest = VALUE(int64_t, 9);
  for (int64_t i = 0; i < VALUE(int64_t, 8); ++i) {
    const float* logits = POINTER(const float, 0) + i * LM_VOCABULARY;
    float* to = POINTER(float, 10) + i * LM_VOCABULARY;
    const int64_t* history = POINTER(const int64_t, 1) + i * longest;
    const int64_t length = POINTER(const int64_t, 2)[i], prompt = POINTER(const int64_t, 3)[i];
    const int32_t* allowed = POINTER(const int32_t, 7) + i * LM_WORDS;
    for (int64_t t = 0; t < LM_VOCABULARY; ++t) {
      int64_t all = 0, after = 0;
      for (int64_t j = 0; j < length && j < longest; ++j) {
        all += history[j] == t;
        after += history[j] == t && j >= prompt;
      }
      to[t] = lm_adjusted(logits[t], all, after, POINTER(const float, 4)[i],
                          POINTER(const float, 5)[i], POINTER(const float, 6)[i]);
      if (!((uint32_t)allowed[t / 32] >> t % 32 & 1)) to[t] = -1e9f;
    }
  }
  return 0;
}

/* (logits, tokens, rows, logprobs, top, top_logprobs). The "logarithms" are the logits. */
int32_t rank(void** params) {
  for (int64_t i = 0; i < VALUE(int64_t, 2); ++i) {
    const float* logits = POINTER(const float, 0) + i * LM_VOCABULARY;
    POINTER(float, 3)[i] = logits[POINTER(const int64_t, 1)[i]];
    for (int64_t k = 0; k < LM_RANKED; ++k) {
      const int32_t token = lm_ranked(logits, (int32_t)k);
      POINTER(int64_t, 4)[i * LM_RANKED + k] = token;
      POINTER(float, 5)[i * LM_RANKED + k] = logits[token];
    }
  }
  return 0;
}
