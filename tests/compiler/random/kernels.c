/* Kernels of random programs, on bytes. They are built twice: as the image that programs load, and
 * into the test, where the plain evaluator calls them. Parameters come as in cuLaunchKernel:
 * params[i] points at parameter i. */
#include "kernels.h"

#include <string.h>

const char* const husk_texts[] = {"k is no multiple of 7"};
const uint32_t husk_text_count = 1;

#define BYTES(i) (*(uint8_t**)params[i])
#define INT(i) (*(int64_t*)params[i])

/* out[i] depends on i, k and in[i modulo m]: (ptr out, ptr in, i64 n, i64 m, i64 k) */
int32_t random_mix(void** params) {
  uint8_t* out = BYTES(0);
  const uint8_t* in = BYTES(1);
  const int64_t n = INT(2), m = INT(3);
  for (int64_t i = 0; i < n; ++i)
    out[i] = (uint8_t)((m > 0 ? in[i % m] : 7u) * 31 + (uint64_t)i + (uint64_t)INT(4));
  return 0;
}

/* data[i] = 3 data[i] + i + k: (ptr data, i64 n, i64 k) */
int32_t random_change(void** params) {
  uint8_t* data = BYTES(0);
  for (int64_t i = 0; i < INT(1); ++i)
    data[i] = (uint8_t)(data[i] * 3u + (uint64_t)i + (uint64_t)INT(2));
  return 0;
}

/* Every byte of out depends on all bytes of in: (ptr out, ptr in, i64 n, i64 m) */
int32_t random_absorb(void** params) {
  uint8_t* out = BYTES(0);
  const uint8_t* in = BYTES(1);
  const int64_t n = INT(2), m = INT(3);
  for (int64_t i = 0; n > 0 && i < m; ++i) out[i % n] = (uint8_t)(out[i % n] * 31 + in[i] + 1);
  return 0;
}

/* The sum of bytes, as an i64: (ptr sum, ptr in, i64 m) */
int32_t random_sum(void** params) {
  int64_t sum = 0;
  for (int64_t i = 0; i < INT(2); ++i) sum += BYTES(1)[i];
  memcpy(BYTES(0), &sum, sizeof(sum));
  return 0;
}

/* Writes the bytes of numbers one after the other: (ptr out, bool, i8, u16, i32, u64, f32, f64) */
int32_t random_record(void** params) {
  static const uint8_t widths[] = {1, 1, 2, 4, 8, 4, 8};
  uint8_t* out = BYTES(0);
  for (int i = 0; i < 7; ++i) {
    memcpy(out, params[i + 1], widths[i]);
    out += widths[i];
  }
  return 0;
}

/* Fails its check unless k is a multiple of 7: (i64 k) */
int32_t random_refuse(void** params) { return INT(0) % 7 == 0 ? 0 : 1; }
