/* The kernels of the language model for tests (language_model.h), as a host image. */
#include "language_model.h"

const char* const husk_texts[] = {"the model does not take this token"};
const uint32_t husk_text_count = 1;

#define POINTER(type, i) (*(type**)params[i])
#define VALUE(type, i) (*(type*)params[i])

enum { WIDTH = LM_MOST + 1 };

/* What follows the first `count` tokens of a slot, of which the run may read `span`. */
static void follow(const int32_t* row, int64_t count, int64_t span, int64_t* next, float* logits) {
  lm_logits(lm_hash(row, count < span ? count : span), logits);
  *next = lm_best(logits);
}

/* (tokens, cache, count, slot, position, span, next, logits) */
int32_t prefill(void** params) {
  const int64_t* tokens = POINTER(const int64_t, 0);
  int32_t* row = POINTER(int32_t, 1) + VALUE(int64_t, 3) * WIDTH;
  const int64_t count = VALUE(int64_t, 2), position = VALUE(int64_t, 4);
  for (int64_t i = 0; i < count; ++i) {
    if (tokens[i] == LM_FORBIDDEN) return 1;
    row[position + i] = (int32_t)tokens[i];
  }
  follow(row, position + count, VALUE(int64_t, 5), POINTER(int64_t, 6), POINTER(float, 7));
  return 0;
}

/* (tokens, positions, cache, rows, span, next, logits) */
int32_t decode(void** params) {
  for (int64_t i = 0; i < VALUE(int64_t, 3); ++i) {
    const int64_t position = POINTER(const int64_t, 1)[i];
    int32_t* row = POINTER(int32_t, 2) + i * WIDTH;
    row[position] = (int32_t)POINTER(const int64_t, 0)[i];
    follow(row, position + 1, VALUE(int64_t, 4), POINTER(int64_t, 5) + i,
           POINTER(float, 6) + i * LM_VOCABULARY);
  }
  return 0;
}

/* (logits, temperature, top_k, top_p, seeds, positions, rows, tokens, logprobs). The "logarithm" is
 * the logit. */
int32_t sample(void** params) {
  for (int64_t i = 0; i < VALUE(int64_t, 6); ++i) {
    const float* logits = POINTER(const float, 0) + i * LM_VOCABULARY;
    const int32_t token = lm_drawn(logits, POINTER(const float, 1)[i], POINTER(const int64_t, 2)[i],
                                   POINTER(const float, 3)[i], POINTER(const int64_t, 4)[i],
                                   POINTER(const int64_t, 5)[i]);
    POINTER(int64_t, 7)[i] = token;
    POINTER(float, 8)[i] = logits[token];
  }
  return 0;
}
