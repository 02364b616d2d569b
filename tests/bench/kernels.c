/* Kernels that do nothing, or little, to measure what surrounds them. */
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))

extern EXPORT const char* const husk_texts[];
extern EXPORT const uint32_t husk_text_count;
const char* const husk_texts[] = {"none"};
const uint32_t husk_text_count = 1;

EXPORT int32_t empty(void** params) {
  (void)params;
  return 0;
}

/* Adds two vectors of four numbers. */
EXPORT int32_t add(void** params) {
  const float *a = *(const float**)params[0], *b = *(const float**)params[1];
  float* sum = *(float**)params[2];
  for (int i = 0; i < 4; i++) sum[i] = a[i] + b[i];
  return 0;
}
