/* Host kernels for tests. Parameters come as in cuLaunchKernel: params[i] points at parameter i. */
#include <stdint.h>

const char* const husk_texts[] = {"index out of bounds: 0 <= index < 10"};
const uint32_t husk_text_count = 1;

#define POINTER(type, i) (*(type**)params[i])
#define VALUE(type, i) (*(type*)params[i])

/* out[i] = a[i] + b[i], i < n: (ptr, ptr, ptr, i64) */
int32_t add(void** params) {
  const float *a = POINTER(float, 0), *b = POINTER(float, 1);
  float* out = POINTER(float, 2);
  for (int64_t i = 0; i < VALUE(int64_t, 3); ++i) out[i] = a[i] + b[i];
  return 0;
}

/* out[i] = a[i] * factor: (ptr, ptr, f32, i32) */
int32_t scale(void** params) {
  const float* a = POINTER(float, 0);
  float* out = POINTER(float, 1);
  for (int32_t i = 0; i < VALUE(int32_t, 3); ++i) out[i] = a[i] * VALUE(float, 2);
  return 0;
}

/* *counter += 1: (ptr) */
int32_t count(void** params) {
  ++*POINTER(int64_t, 0);
  return 0;
}

/* *out = the number of positive elements of a: (ptr, ptr, i64) */
int32_t positive(void** params) {
  const float* a = POINTER(float, 0);
  int64_t found = 0;
  for (int64_t i = 0; i < VALUE(int64_t, 2); ++i) found += a[i] > 0;
  *POINTER(int64_t, 1) = found;
  return 0;
}

/* Fails its check where index is outside 0..9: (i64) */
int32_t check_index(void** params) {
  const int64_t index = VALUE(int64_t, 0);
  return index >= 0 && index < 10 ? 0 : 1;
}

/* Stores the number of a failed assert, as a kernel of a device does; 0 is no assert: (i64, ptr) */
int32_t fail_assert(void** params) {
  if (VALUE(int64_t, 0)) *POINTER(uint32_t, 1) = (uint32_t)VALUE(int64_t, 0);
  return 0;
}

/* Writes every scalar type that a kernel can take: (ptr, bool, i8, u16, i32, u64, f16, bf16, f32,
 * f64), as bytes. */
int32_t record(void** params) {
  static const uint8_t widths[] = {1, 1, 2, 4, 8, 2, 2, 4, 8};
  uint8_t* out = POINTER(uint8_t, 0);
  for (int i = 0; i < 9; ++i)
    for (int b = 0; b < widths[i]; ++b) *out++ = ((uint8_t*)params[i + 1])[b];
  return 0;
}
