/* The kernels of random programs, which kernels.c defines. */
#ifndef HUSK_TEST_RANDOM_KERNELS_H
#define HUSK_TEST_RANDOM_KERNELS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
int32_t random_mix(void** params);
int32_t random_change(void** params);
int32_t random_absorb(void** params);
int32_t random_sum(void** params);
int32_t random_record(void** params);
int32_t random_refuse(void** params);
#ifdef __cplusplus
}
#endif
#endif
