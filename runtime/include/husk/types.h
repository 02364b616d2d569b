/* What every header of Husk shares: status codes, the error record, element types, the host allocator.
 * C11 and C++17. Nothing here has state, so nothing here has a thread rule. */
#ifndef HUSK_TYPES_H
#define HUSK_TYPES_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(_WIN32)
#define HUSK_API __declspec(dllexport)
#else
#define HUSK_API __attribute__((visibility("default")))
#endif

/* What a call came to. HUSK_OK is 0; new codes are appended. */
typedef int32_t husk_status;
enum {
  HUSK_OK = 0,
  HUSK_INVALID_ARGUMENT = 1,   /* the call itself: a null handle, an index that names nothing */
  HUSK_INVALID_FILE = 2,       /* the artifact breaks a rule of FORMAT.md */
  HUSK_UNSUPPORTED = 3,        /* a version, feature, target or op that this build or device does not have */
  HUSK_INVALID_INPUT = 4,      /* a value of this run: dtype, rank, size, stride, alignment, range */
  HUSK_OUT_OF_MEMORY = 5,      /* host or device */
  HUSK_IO = 6,                 /* the operating system: open, map, read */
  HUSK_DEVICE = 7,             /* the driver; driver_code says which of its errors */
  HUSK_NOT_FOUND = 8,          /* a function, constant, state, op or image by that name */
  HUSK_KERNEL = 9,             /* a kernel reported a failed check of its own */
  HUSK_NEEDS_RESIZE = 10,      /* the shapes want more memory than the session has: husk_session_resize first */
  HUSK_LIMIT = 11              /* a limit of the session: memory, turns of a loop */
};

/* Says what went wrong. Owned by the caller, written only when a call fails, never allocated. */
typedef struct husk_error {
  husk_status code;
  int32_t driver_code;   /* the driver's own number, 0 if it was not asked */
  int32_t step;          /* step of the body, -1 if none */
  char text[240];        /* UTF-8, NUL-terminated: the thing, and the remedy where there is one */
} husk_error;

/* Element types, and the types of kernel parameters. Values are frozen: files hold them. */
typedef int32_t husk_dtype;   /* an int, not an enum: a value from a file may be none of these */
enum {
  HUSK_DTYPE_NONE = 0,
  HUSK_BOOL = 1,
  HUSK_U8 = 2, HUSK_I8 = 3, HUSK_U16 = 4, HUSK_I16 = 5, HUSK_U32 = 6, HUSK_I32 = 7, HUSK_U64 = 8, HUSK_I64 = 9,
  HUSK_F16 = 10, HUSK_BF16 = 11, HUSK_F32 = 12, HUSK_F64 = 13,
  HUSK_C64 = 14, HUSK_C128 = 15,
  HUSK_F8E4M3FN = 16, HUSK_F8E5M2 = 17, HUSK_F8E4M3FNUZ = 18, HUSK_F8E5M2FNUZ = 19,
  HUSK_POINTER = 32      /* kernel parameters only */
};

/* Host memory for handles and tables. `align` is a power of two, at most 64. May be called from any thread that calls
 * Husk; must outlive the engine. allocate returns NULL when there is no memory. */
typedef struct husk_allocator {
  void* user;
  void* (*allocate)(void* user, size_t size, size_t align);
  void (*release)(void* user, void* pointer);
} husk_allocator;

/* Threads for kernels and ops of the host. `parallel` calls body(argument, i) for i = 0 … n-1, n at most `count`, all at the
 * same time (bodies may wait for one another), and returns when all have returned; i = 0 runs on the calling thread. It
 * may be called from several threads at once, never from inside a body. Must outlive the engine. */
typedef struct husk_threads {
  void* user;
  uint32_t count;        /* the calling thread included */
  void (*parallel)(void* user, uint32_t n, void (*body)(void* argument, uint32_t index), void* argument);
} husk_threads;

#ifdef __cplusplus
}
#endif
#endif
