/* Extern ops: operators that a program calls instead of bringing a kernel. A port's op pack and an application register
 * them with husk_engine_add_op, by name and overload ("aten::addmm.out"). */
#ifndef HUSK_OP_H
#define HUSK_OP_H

#include <husk/types.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
  HUSK_ARG_NONE = 0, HUSK_ARG_TENSOR = 1, HUSK_ARG_INT = 2, HUSK_ARG_FLOAT = 3, HUSK_ARG_INTS = 4,
  HUSK_ARG_STRING = 5, HUSK_ARG_DTYPE = 6, HUSK_ARG_FLOATS = 7, HUSK_ARG_TENSORS = 8, HUSK_ARG_RESULT = 9
};
enum { HUSK_ACCESS_READ = 1, HUSK_ACCESS_WRITE = 2, HUSK_ACCESS_ATOMIC = 4 };

/* One argument, in the order of the operator's schema, outputs and results last. Pointers are valid during the call. A bool
 * argument is an int of 0 or 1; a missing optional one, a device, a layout and a memory format have kind NONE. */
typedef struct husk_op_arg {
  int32_t kind;             /* HUSK_ARG_* */
  int32_t access;           /* tensors: HUSK_ACCESS_* bits, as the file says */
  int32_t dtype;            /* tensors: husk_dtype; DTYPE: the value; RESULT: HUSK_I64 or HUSK_F64 */
  int32_t rank;             /* tensors */
  void* data;               /* tensors: device address of element 0; RESULT: where the op writes the number, on the host */
  const int64_t* sizes;     /* tensors: rank of them; INTS: count of them */
  const int64_t* strides;   /* tensors: in elements */
  int64_t count;            /* INTS, FLOATS, TENSORS */
  int64_t i;
  double f;
  const char* string;
  const double* floats;     /* FLOATS: count of them */
  const struct husk_op_arg* tensors;   /* TENSORS: count of them, each of kind TENSOR or NONE */
} husk_op_arg;

/* What an op may use besides its arguments. */
typedef struct husk_op_context {
  void* user;               /* husk_op.user */
  void* device;             /* the port's device */
  void* stream;             /* enqueue here and return */
  const husk_threads* threads;   /* the application's, or NULL: work on the calling thread only */
} husk_op_context;

/* Must not allocate host memory, nor wait for the stream unless it has a result to give. On failure fills `error` and returns its code; nothing may be
 * left enqueued that reads freed memory. Called from the thread that runs the session. */
typedef husk_status (*husk_op_fn)(const husk_op_context* context, const husk_op_arg* args, uint32_t arg_count,
                                  husk_error* error);

typedef struct husk_op {
  const char* name;         /* "aten::addmm.out"; copied */
  husk_op_fn call;
  void* user;               /* must outlive the engine */
  /* NULL, or called by husk_session_resize with the arguments of each call that a run of these shapes begins with, so that the
   * call finds what takes long to choose; it may allocate. Of memory that is not known yet `data` is the offset alone. Nothing is
   * enqueued. A run of other shapes calls the op all the same. */
  husk_op_fn prepare;
} husk_op;

#ifdef __cplusplus
}
#endif
#endif
