/* Kernels for the tests of the host port. FORMAT.md, "Images", describes what they export. */
#include <stdint.h>
#include <stdlib.h>

#define EXPORT __attribute__((visibility("default")))

extern EXPORT const char* const husk_texts[];
extern EXPORT const uint32_t husk_text_count;
const char* const husk_texts[] = {"the first check", "index out of range"};
const uint32_t husk_text_count = 2;

static int32_t calls;

/* y[i] = x[i] + add for i < n */
EXPORT int32_t add_scalar(void** params) {
  const float* x = *(const float**)params[0];
  float* y = *(float**)params[1];
  const int64_t n = *(const int64_t*)params[2];
  const float add = *(const float*)params[3];
  for (int64_t i = 0; i < n; i++) y[i] = x[i] + add;
  return 0;
}

/* Fails with the number in its parameter. */
EXPORT int32_t fail_with(void** params) {
  const int32_t number = *(const int32_t*)params[0];
  if (number == 123456789) abort(); /* links the image to libc */
  return number;
}

/* Writes the number of calls so far. Two loads of the image must not share this state. */
EXPORT int32_t count_calls(void** params) {
  **(int32_t**)params[0] = ++calls;
  return 0;
}
