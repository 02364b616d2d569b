/** @file
 * Types that every header of Husk uses: status codes, the error record, element types, the host
 * allocator, threads, and the rules of structs that grow. The header is C11 and C++17. It declares
 * no function, so it has no rule about threads. */
#ifndef HUSK_TYPES_H
#define HUSK_TYPES_H

#include <stddef.h>
#include <stdint.h>

#include <husk/dtype.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Marks the functions that the shared libraries export. */
#if defined(_WIN32)
#define HUSK_API __declspec(dllexport)
#else
#define HUSK_API __attribute__((visibility("default")))
#endif

/** Whether the struct that `pointer` points to has `field`, according to its struct_size. A reader
 * asks this before it reads a field that a later version of Husk appended; the rules are in husk.h
 * under "Structs that grow". */
#define HUSK_HAS_FIELD(pointer, field)                                                             \
  ((size_t)((const char*)&(pointer)->field - (const char*)(pointer)) + sizeof((pointer)->field) <= \
   (pointer)->struct_size)

/** The result of a call: HUSK_OK or one of the codes below. Later versions append codes. */
typedef int32_t husk_status;
/** The values of husk_status. */
enum {
  HUSK_OK = 0,               /**< The call succeeded. */
  HUSK_INVALID_ARGUMENT = 1, /**< The call is wrong: a null handle, an index out of range, a struct
                                that is too small. */
  HUSK_INVALID_FILE = 2,     /**< The artifact breaks a rule of FORMAT.md. */
  HUSK_UNSUPPORTED = 3,      /**< This build or device lacks a version, feature, target or op. */
  HUSK_INVALID_INPUT = 4, /**< A value of this run is wrong: dtype, rank, size, stride, alignment or
                             range. */
  HUSK_OUT_OF_MEMORY = 5, /**< Host or device memory is exhausted. */
  HUSK_IO = 6,            /**< The operating system failed to open, map or read a file. */
  HUSK_DEVICE = 7,        /**< The driver failed; husk_error.driver_code is its error number. */
  HUSK_NOT_FOUND = 8,     /**< No function, constant, state, op or image has that name. */
  HUSK_KERNEL = 9,        /**< A check inside a kernel failed. */
  HUSK_NEEDS_RESIZE = 10, /**< The shapes need more memory than the session has: call
                             husk_session_resize first. */
  HUSK_LIMIT = 11,    /**< A limit of the engine's or the session's options is reached: memory, or
                         iterations of a loop. */
  HUSK_CANCELLED = 12 /**< A callback of the application ended the call. */
};

/** Describes a failure. The caller owns the record; a call writes it only if the call fails, and
 * allocates nothing for it. The layout is fixed. */
typedef struct husk_error {
  husk_status code;    /**< The status that the call returned. */
  int32_t driver_code; /**< The error number of the driver; 0 if no driver call failed. */
  int32_t step;        /**< The index of the failed step in its body; -1 if no step failed. */
  char text[240];      /**< Printable UTF-8, NUL-terminated: what failed and the remedy, if any. */
} husk_error;

/** Host memory for handles and tables. Every thread that calls Husk may call the two functions, at
 * the same time. The allocator must outlive the engine. The layout is fixed. */
typedef struct husk_allocator {
  void* user; /**< The first argument of both functions. */
  /** Returns `size` bytes at an address that is a multiple of `align` (a power of two, at most 64),
   * or NULL if there is no memory. */
  void* (*allocate)(void* user, size_t size, size_t align);
  /** Frees memory that `allocate` returned. */
  void (*release)(void* user, void* pointer);
} husk_allocator;

/** Threads for kernels and ops that run on the host. The table must outlive the engine. Host images
 * in files contain code that reads this struct, so its layout is fixed. */
typedef struct husk_threads {
  void* user;     /**< The first argument of `parallel`. */
  uint32_t count; /**< Number of threads, the calling thread included. */
  /** Calls body(argument, i) for i = 0 … n-1 and returns after all calls have returned. `n` is at
   * most `count`. All bodies run at the same time, so they may wait for one another; i = 0 runs on
   * the calling thread. Several threads may call `parallel` at once, but a body must not call it.
   */
  void (*parallel)(void* user, uint32_t n, void (*body)(void* argument, uint32_t index),
                   void* argument);
} husk_threads;

#ifdef __cplusplus
}
#endif
#endif
