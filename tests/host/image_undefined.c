/* An image that no loader accepts: it needs a function that does not exist. */
#include <stdint.h>

extern int32_t husk_test_nowhere(void);

__attribute__((visibility("default"))) int32_t call_nowhere(void** params) {
  (void)params;
  return husk_test_nowhere();
}
