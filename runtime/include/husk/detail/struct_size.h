/** @file
 * Reading and writing of structs that begin with struct_size, for the sources of the runtime and of
 * the ports. husk.h states the rules under "Structs that grow". The header is private: applications
 * do not include it. C++17. */
#ifndef HUSK_DETAIL_STRUCT_SIZE_H
#define HUSK_DETAIL_STRUCT_SIZE_H

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <husk/types.h>

/** The size in bytes of `type` from its begin to the end of `field`. */
#define HUSK_SIZE_THROUGH(type, field) \
  static_cast<uint32_t>(offsetof(type, field) + sizeof(type::field))

/** Checks that the struct which `pointer` points to reaches to the end of `field`. The value is
 * HUSK_OK, or HUSK_INVALID_ARGUMENT with a text in `error`, which may be NULL. */
#define HUSK_CHECK_STRUCT(type, pointer, field, error)               \
  (HUSK_HAS_FIELD(pointer, field)                                    \
       ? static_cast<husk_status>(HUSK_OK)                           \
       : ::husk::detail::small_struct(#type, (pointer)->struct_size, \
                                      HUSK_SIZE_THROUGH(type, field), error))

namespace husk::detail {

/** Fills `error`, which may be NULL, for a struct of `size` bytes that must have `minimum`. */
inline husk_status small_struct(const char* type, uint32_t size, uint32_t minimum,
                                husk_error* error) {
  if (error) {
    error->code = HUSK_INVALID_ARGUMENT;
    error->driver_code = 0;
    error->step = -1;
    snprintf(error->text, sizeof(error->text), "%s.struct_size is %u, must be at least %u", type,
             size, minimum);
  }
  return HUSK_INVALID_ARGUMENT;
}

/** Copies the fields that both sides know from `from` to `to`. Fields that are missing in `from`
 * keep their value in `to`; to->struct_size becomes the size of T. */
template <class T>
void read_struct(const T& from, T* to) {
  memcpy(static_cast<void*>(to), &from,
         from.struct_size < sizeof(T) ? from.struct_size : sizeof(T));
  to->struct_size = sizeof(T);
}

/** Copies the fields that both sides know from `from` to `to`, whose struct_size the caller has
 * set. After the copy to->struct_size is the number of bytes that were written. */
template <class T>
void write_struct(T from, T* to) {
  from.struct_size = to->struct_size < sizeof(T) ? to->struct_size
                                                 : static_cast<uint32_t>(sizeof(T));
  if (from.struct_size >= sizeof(from.struct_size))
    memcpy(static_cast<void*>(to), &from, from.struct_size);
}

}  // namespace husk::detail

#endif
