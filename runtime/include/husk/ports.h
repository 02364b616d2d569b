/** @file
 * The ports that a library was built with, by their names. <husk/port.h> says what a port is. C11
 * and C++17. */
#ifndef HUSK_PORTS_H
#define HUSK_PORTS_H

#include <husk/port.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Returns the port with the number `index`, NULL if there are not so many. The order is that of
 * the build; libhusk.so and libhusk.a have "host" and "cuda". A port whose driver is not installed
 * is among them: opening its device fails. The library owns the table. Any thread may call. */
HUSK_API const husk_port* husk_port_at(uint32_t index);

/** Returns the port with the name `name`, which targets in files have, too; NULL if there is none.
 * `name` ends with NUL or with a colon, so that "cuda:1" names the port "cuda". The library owns
 * the table. Any thread may call. */
HUSK_API const husk_port* husk_port_find(const char* name);

#ifdef __cplusplus
}
#endif
#endif
