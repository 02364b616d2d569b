/* A language model for tests, in C: the logits of a token are a hash of all tokens before it. So
 * any wrong token, position or slot of the cache changes what is generated. */
#ifndef HUSK_TESTS_LANGUAGE_MODEL_H
#define HUSK_TESTS_LANGUAGE_MODEL_H

#include <stdint.h>

enum {
  LM_VOCABULARY = 260, /* bytes, the end, and three tokens without a text */
  LM_END = 256,
  LM_FORBIDDEN = 259, /* in a prompt, it makes the run fail */
  LM_SLOTS = 3,
  LM_MOST = 96, /* tokens of a sequence */
  LM_CHUNK = 16,
  LM_VERIFIED = 5,
  LM_REPEATS = 5,
  LM_PERIOD = 7,
  LM_WORDS = (LM_VOCABULARY + 31) / 32,
  LM_RANKED = 4,
  LM_CANDIDATES = 20, /* the largest top_k of `sample_few` */
  /* Adapters: matrices of two layers, of f32 and of bf16. */
  LM_ADAPTERS = 2,
  LM_RANK = 2,
  LM_INPUTS = 3,
  LM_OUTPUTS = 4,
  LM_OTHER_INPUTS = 2,
  LM_OTHER_OUTPUTS = 1,
  LM_SALT = 1024, /* an entry of the cache is a token and so many times a number of the adapter */
  /* Images: their token, rows, in a grid or not, and numbers of a row. */
  LM_IMAGE = 258,
  LM_GRID_ROWS = 2,
  LM_GRID_COLUMNS = 3,
  LM_IMAGE_ROWS = LM_GRID_ROWS * LM_GRID_COLUMNS,
  LM_WIDTH = 2,
  LM_PLAIN = 1,
  LM_TWO_WAY = 2,
  LM_GRID = 3,
  /* Pages of the cache: tokens of one, and how many the longest sequence has. */
  LM_PAGE = 8,
  LM_COLUMNS = (LM_MOST + LM_PAGE - 1) / LM_PAGE,
  /* An encoder: the tokens, or features of a shape, that it takes. */
  LM_SOURCE = 70,
  LM_BINS = 3,
  LM_FRAMES = 4,
  LM_OF_TOKENS = 1,
  LM_OF_FEATURES = 2
};

static inline uint64_t lm_mixed(uint64_t a, uint64_t b) {
  uint64_t hash = (a ^ b * 0x9E3779B97F4A7C15u) * 0xBF58476D1CE4E5B9u;
  hash = (hash ^ hash >> 29) * 0x94D049BB133111EBu;
  return hash ^ hash >> 32;
}

static inline uint64_t lm_hash(const int32_t* tokens, int64_t count) {
  uint64_t hash = 7;
  for (int64_t i = 0; i < count; ++i) hash = lm_mixed(hash, (uint64_t)(uint32_t)tokens[i]);
  return hash;
}

static inline void lm_logits(uint64_t hash, float* logits) {
  for (uint64_t i = 0; i < LM_VOCABULARY; ++i) {
    logits[i] = (float)(lm_mixed(hash, i + 1) & 0xFFFF) / 8192;
    /* Most texts have whole characters, and many end. */
    if ((i >= 32 && i < 127) || i >= LM_END) logits[i] += 1;
  }
}

/* The number of an adapter: each number of the products B A counts in another way. It is 0 if all
 * are 0. */
static inline int32_t lm_salt(const float* product, const float* other_product) {
  float sum = 0;
  for (int i = 0; i < LM_OUTPUTS * LM_INPUTS; ++i) sum += product[i] * (float)(3 + i);
  for (int i = 0; i < LM_OTHER_OUTPUTS * LM_OTHER_INPUTS; ++i)
    sum += other_product[i] * (float)(71 + i);
  return (int32_t)((uint32_t)(int32_t)(sum * 8) % 100003);
}

/* The number of a row of an image, which counts as that of an adapter. What the token has beside
 * the row is one number, or a place in a grid. */
static inline int32_t lm_image_salt(const float* row, int64_t a, int64_t b, int64_t c) {
  return (int32_t)(row[0] * 10 + row[1]) + (int32_t)(a * 3 + b * 5 + c * 7);
}

/* What tokens of a decoder have beside their numbers, for the first `count` numbers of its encoder.
 */
static inline int32_t lm_source_salt(const int32_t* source, int64_t count) {
  return (int32_t)(lm_hash(source, count) % 100003);
}

/* The token of an entry of the cache. */
static inline int32_t lm_token(int32_t entry) { return entry < 0 ? entry : entry % LM_SALT; }

/* What follows some tokens. A text whose first token is a multiple of LM_REPEATS repeats itself,
 * but for some tokens, so that drafts are right and wrong. */
static inline void lm_logits_after(const int32_t* tokens, int64_t count, float* logits) {
  const uint64_t hash = lm_hash(tokens, count);
  lm_logits(hash, logits);
  /* A slot that takes no part has positions without a token. */
  if (count > LM_PERIOD && lm_token(tokens[0]) % LM_REPEATS == 0 &&
      tokens[count - LM_PERIOD] >= 0 && hash % 8)
    logits[lm_token(tokens[count - LM_PERIOD])] += 8;
}

static inline int32_t lm_best(const float* logits) {
  int32_t best = 0;
  for (int32_t i = 1; i < LM_VOCABULARY; ++i)
    if (logits[i] > logits[best]) best = i;
  return best;
}

/* A token that depends on all settings; they mean something else than in real models. */
static inline int32_t lm_drawn(const float* logits, float temperature, int64_t top_k, float top_p,
                               float min_p, int64_t seed, int64_t position) {
  if (temperature <= 0) return lm_best(logits);
  uint64_t hash = lm_mixed((uint64_t)seed, (uint64_t)position);
  hash = lm_mixed(
      hash, (uint64_t)top_k * 1000 + (uint64_t)(top_p * 100) + (uint64_t)(min_p * 10000) * 1000000);
  float noisy[LM_VOCABULARY];
  for (uint64_t i = 0; i < LM_VOCABULARY; ++i)
    noisy[i] = logits[i] + temperature * (float)(lm_mixed(hash, i) & 0xFFFF) / 8192;
  return lm_best(noisy);
}

/* A logit after penalties, of a token that a text has `all` times, `after` of these after its
 * prompt. */
static inline float lm_adjusted(float logit, int64_t all, int64_t after, float repetition,
                                float presence, float frequency) {
  if (all > 0) logit = logit < 0 ? logit * repetition : logit / repetition;
  if (after > 0) logit -= presence;
  return logit - frequency * (float)after;
}

/* The token number k of the most likely ones. */
static inline int32_t lm_ranked(const float* logits, int32_t k) {
  for (int32_t t = 0; t < LM_VOCABULARY; ++t) {
    int32_t before = 0;
    for (int32_t i = 0; i < LM_VOCABULARY; ++i)
      before += logits[i] > logits[t] || (logits[i] == logits[t] && i < t);
    if (before == k) return t;
  }
  return -1;
}

#endif
