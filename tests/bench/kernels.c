/* A kernel that does nothing, to measure what surrounds it. */
#include <stdint.h>

const char* const husk_texts[] = {"none"};
const uint32_t husk_text_count = 1;

int32_t empty(void** params) {
  (void)params;
  return 0;
}
