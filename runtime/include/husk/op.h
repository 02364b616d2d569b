/** @file
 * Extern ops: operators that a program calls instead of launching a kernel of its own. An
 * application registers ops by name and overload ("aten::addmm.out") with husk_engine_add_op;
 * <husk/ops.h> declares the function that registers all ops of libhusk_ops. husk.h states the rules
 * of structs that begin with struct_size. */
#ifndef HUSK_OP_H
#define HUSK_OP_H

#include <husk/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** The values of husk_op_arg.kind. */
enum {
  HUSK_ARG_NONE = 0,    /**< A missing optional argument, a device, a layout or a memory format. */
  HUSK_ARG_TENSOR = 1,  /**< access, dtype, rank, data, sizes and strides are set. */
  HUSK_ARG_INT = 2,     /**< i is set; a bool is 0 or 1. */
  HUSK_ARG_FLOAT = 3,   /**< f is set. */
  HUSK_ARG_INTS = 4,    /**< count and sizes are set. */
  HUSK_ARG_STRING = 5,  /**< string is set. */
  HUSK_ARG_DTYPE = 6,   /**< dtype is the value of the argument. */
  HUSK_ARG_FLOATS = 7,  /**< count and floats are set. */
  HUSK_ARG_TENSORS = 8, /**< count and tensors are set. */
  HUSK_ARG_RESULT = 9   /**< dtype and data are set; the op writes one number to data. */
};
/** The bits of husk_op_arg.access: how the op uses the elements of a tensor. */
enum { HUSK_ACCESS_READ = 1, HUSK_ACCESS_WRITE = 2, HUSK_ACCESS_ATOMIC = 4 };
/** The values of husk_op.place: where the tensors of a call lie. */
enum {
  HUSK_OP_ON_DEVICE = 0, /**< In memory of the engine's device. */
  HUSK_OP_ON_HOST = 1    /**< In host memory. The op has computed when it returns. */
};

/** One argument of a call. The arguments come in the order of the operator's schema, followed by
 * outputs and then results. Pointers are valid during the call. Arguments come in arrays, so the
 * layout is fixed: a new sort of argument gets a new kind. */
typedef struct husk_op_arg {
  int32_t kind;   /**< HUSK_ARG_*. */
  int32_t access; /**< TENSOR: HUSK_ACCESS_* bits, as the file declares them. */
  int32_t dtype;  /**< TENSOR: husk_dtype; DTYPE: the value; RESULT: HUSK_I64 or HUSK_F64. */
  int32_t rank;   /**< TENSOR: number of dimensions. */
  void* data;     /**< TENSOR: address of element 0, as husk_op.place says; RESULT: host address of
                     the number. */
  const int64_t* sizes;              /**< TENSOR: `rank` sizes in elements; INTS: `count` ints. */
  const int64_t* strides;            /**< TENSOR: `rank` strides in elements. */
  int64_t count;                     /**< INTS, FLOATS, TENSORS: number of entries. */
  int64_t i;                         /**< INT: the value. */
  double f;                          /**< FLOAT: the value. */
  const char* string;                /**< STRING: the text, NUL-terminated. */
  const double* floats;              /**< FLOATS: `count` floats. */
  const struct husk_op_arg* tensors; /**< TENSORS: `count` entries of kind TENSOR or NONE. */
} husk_op_arg;

/** The environment of one call of an op: its device, stream and threads. The runtime fills the
 * struct; it is valid during the call. Minimum size: through `threads`. */
typedef struct husk_op_context {
  uint32_t struct_size; /**< Size of the struct in the runtime's version. */
  uint32_t reserved;    /**< 0. */
  void* user;           /**< husk_op.user. */
  /** The port's handle of the device; NULL for an op of HUSK_OP_ON_HOST beside a device that does
   * not compute in the host's memory. */
  void* device;
  void* stream;                /**< The stream on which the op enqueues its work; NULL in a step
                                  whose tensors lie in host memory beside the device. */
  const husk_threads* threads; /**< The application's threads; NULL: the calling thread only. */
  /** husk_engine_options.cancel; NULL if there is none. An op that computes for long on the host
   * asks it from time to time, on the thread that called the op. If the answer is not 0, the op
   * returns HUSK_CANCELLED and may leave its outputs undefined. */
  int32_t (*cancel)(void* user);
  void* cancel_user; /**< The argument of `cancel`. */
  /** NULL, or for each argument the copy that husk_op.pack made of it, NULL if there is none. */
  const void* const* packed;
  /** NULL if husk_op.scratch_bytes is 0. Otherwise host memory at a multiple of 64, which nothing
   * else uses during the call: husk_op.scratch_bytes for the thread that called the op, followed by
   * husk_op.thread_scratch_bytes for each other body of `threads`, of which there are count - 1.
   * Its content is undefined at first. In a call of husk_op.pack it is NULL. */
  void* scratch;
  uint32_t rank;  /**< husk_engine_options.rank: the number of this process among `world`. */
  uint32_t world; /**< husk_engine_options.world, at least 1: the processes that run the program
                     together. */
} husk_op_context;
/** The initial value of a husk_op_context, for callers that call an op themselves. */
#define HUSK_OP_CONTEXT_INIT \
  {sizeof(husk_op_context), 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 1}

/** The function of an op. The thread that runs the session calls it. The function enqueues its work
 * on the stream and returns; it must not allocate host memory, and it waits for the stream only if
 * it has a HUSK_ARG_RESULT to write, or if its work may fail and the call is to say so.
 * @param context what the op may use besides its arguments
 * @param args `arg_count` arguments
 * @param arg_count number of arguments
 * @param error never NULL; the function fills it if it fails
 * @return HUSK_OK, or the code in `error`; after a failure no enqueued work may read freed memory
 */
typedef husk_status (*husk_op_fn)(const husk_op_context* context, const husk_op_arg* args,
                                  uint32_t arg_count, husk_error* error);

/** What husk_op.pack stands for in place of a size, a stride or another number of a list that the
 * file does not fix. */
#define HUSK_UNKNOWN_SIZE (-1)

/** A copy of a constant in the layout that an op reads fastest. Minimum size: through `data`. */
typedef struct husk_packing {
  uint32_t struct_size; /**< Size of the struct in the runtime's version. */
  uint32_t argument;    /**< The number of the argument that is to be copied. */
  uint64_t bytes;       /**< The size of the copy. The op sets it as long as `data` is NULL. */
  uint64_t layout;      /**< What the copy depends on besides the tensor, if that varies from call
                           to call. The op sets it as long as `data` is NULL. */
  void* data;           /**< NULL, or host memory of `bytes` bytes at a multiple of 64. */
  /** The name of the way in which the op lays out the copy, for files that have copies (FORMAT.md,
   * "Packed copies"). The op sets it as long as `data` is NULL, to a text that outlives the engine,
   * or leaves it NULL if no file may have the copy. An op of the same name that sets the same name
   * and `layout` for the same argument and tensor reads copies of the same bytes, in every process,
   * on every machine and in every version: another layout needs another name. */
  const char* name;
  /** NULL, or a copy that a file has, of `bytes` bytes at a multiple of 64, while `data` is NULL.
   * Its content may be anything. An op that finds addresses by numbers in its copies checks these
   * numbers here, and returns HUSK_INVALID_FILE if they are wrong. */
  const void* stored;
} husk_packing;
/** The initial value of a husk_packing, for callers that call an op themselves. */
#define HUSK_PACKING_INIT {sizeof(husk_packing), 0, 0, 0, NULL, NULL, NULL}

/** The function that copies a constant for an op. It may be called on any thread, and it must not
 * keep a pointer.
 * @param context as for a call; it has no stream, and nothing is packed
 * @param args the arguments of a call as far as the file fixes them: an unknown number of a list is
 * HUSK_UNKNOWN_SIZE, an unknown int or float has kind NONE, and `data` is NULL except in the
 * argument that is to be copied
 * @param arg_count number of arguments
 * @param packing what is asked for. If `data` is NULL, the function writes the size of the copy to
 * `bytes`, 0 if the op reads this argument where it lies, and sets `layout`. Otherwise it fills
 * `data`.
 * @param error never NULL; the function fills it if it fails
 * @return HUSK_OK, or the code in `error`, which fails the open or the update */
typedef husk_status (*husk_op_pack_fn)(const husk_op_context* context, const husk_op_arg* args,
                                       uint32_t arg_count, husk_packing* packing,
                                       husk_error* error);

/** The bits of husk_op.flags. */
enum {
  /** A call does nothing but enqueue work on the stream, and this work depends on the arguments
   * alone: on numbers, shapes and addresses. The call waits for nothing, allocates no device
   * memory, has no HUSK_ARG_RESULT, and keeps no pointer to host memory that the work reads when it
   * runs. So the runtime may capture the work of one call and repeat it in place of calling the op:
   * as a part of a graph, or because the application captures the stream. */
  HUSK_OP_CAPTURABLE = 1,
  /** With HUSK_OP_CAPTURABLE: what a call enqueues may be one kernel that waits for the work before
   * it by itself (programmatic dependent launch). Edges of a graph between it and other kernels are
   * programmatic then. For ops of a port, which finds out for each call whether it is so. */
  HUSK_OP_WAITS_FIRST = 2
};

/** An op. Minimum size: through `user`. Arrays of ops have a stride of the first entry's
 * struct_size, since the library that defines an array may be newer than its reader. */
typedef struct husk_op {
  uint32_t struct_size; /**< sizeof(husk_op), set by whoever fills the struct. */
  uint32_t reserved;    /**< 0. */
  const char* name;     /**< Name and overload, "aten::addmm.out"; the engine copies the text. */
  husk_op_fn call;      /**< Required. */
  void* user;           /**< husk_op_context.user of every call; must outlive the engine. */
  /** NULL, or a function that husk_session_resize calls with the arguments of each call whose
   * arguments follow from the shapes of that resize. An op makes a choice there that
   * takes long, so that `call` finds it; `prepare` may allocate, and it enqueues nothing. `data` of
   * a tensor whose memory is not known yet is only the offset. A run with other shapes calls the op
   * without this preparation. */
  husk_op_fn prepare;
  /** NULL, or the text that says what the op does with the memory of its arguments; it must outlive
   * the engine. The text names each argument, in the order of the call, after one space:
   *
   *     "self mat1 mat2 beta alpha out:w=self"
   *
   * - `name` is read if it is a tensor, and so are the tensors of a list.
   * - `name:w` is written, and not read before; `name:rw` is read and written.
   * - `name:w=other` may be the same tensor as the argument `other`: the same address, sizes and
   *   strides.
   * - A '?' at the end, `name?`, marks an argument that a call may leave out. No argument without
   *   the mark follows.
   *
   * Scratch memory is an argument too, `workspace:w`, since an op may not allocate. The file gives
   * its size as a formula of the other arguments. The op compares its size and strides with what
   * the op needs, and fails if they do not fit.
   *
   * Husk refuses a file whose access bits say less than the contract when the file is opened. It
   * refuses a run before its first step if an element that the op writes belongs to another
   * argument too, or lies at two places of one tensor, or if the number of elements of a tensor,
   * sizes of 0 counted as 1, passes 2^62. If there is no contract, Husk relies on the file;
   * husk_engine_options.require_op_contracts refuses such ops. */
  const char* contract;
  /** NULL, or a function that copies a constant to the layout that `call` reads fastest, so that no
   * run has to do it. On a device that computes in the host's memory, Husk calls it when a program
   * is opened, for each argument that is a constant whose place, sizes and strides the file fixes,
   * and again when husk_program_update_constants changes the constant. Calls find the copy in
   * husk_op_context.packed. Calls of this function with the same `user`, tensor and `layout` share
   * a copy. A copy that the file has under husk_packing.name is used where it lies.
   * husk_engine_options.max_packed_bytes limits the memory of the other copies; where it is used
   * up, and for the fifth layout of a constant, an op reads the constant where it lies. */
  husk_op_pack_fn pack;
  /** HUSK_OP_ON_DEVICE, or HUSK_OP_ON_HOST for an op that reads and writes host memory and knows no
   * stream. A step whose tensors lie in memory of the device calls only ops of the first kind, a
   * step whose tensors lie in host memory beside it only ops of the second kind; a program that
   * would need another one is refused when it is opened. On a device that computes in the host's
   * memory both kinds are the same. */
  int32_t place;
  uint32_t flags; /**< HUSK_OP_* bits. */
  /** Host memory that a call works in, besides some KB of stack (husk_op_context.scratch): bytes
   * for the thread that calls the op, and bytes for each other thread that the op lets take part. A
   * session keeps as much as the op of its program that needs most. */
  uint64_t scratch_bytes;
  uint64_t thread_scratch_bytes; /**< See scratch_bytes; 0 if that is 0. */
} husk_op;
/** The initial value of a husk_op. */
#define HUSK_OP_INIT {sizeof(husk_op), 0, NULL, NULL, NULL, NULL, NULL, NULL, 0, 0, 0, 0}

/** A device and the operators that programs on it may call; husk.h says more. */
typedef struct husk_engine husk_engine;

/** Registers an extern op. An op of the application precedes an op of the port with the same name;
 * an op that is registered later replaces an earlier one of the same name for programs that are
 * opened afterwards. An op of one place neither precedes nor replaces an op of the other place,
 * except on a device that computes in the host's memory.
 * @param engine the engine; any thread may call
 * @param op copied, its name included
 * @param error may be NULL
 * @return HUSK_OK; HUSK_INVALID_ARGUMENT if an argument, the name or `call` is NULL, the struct is
 * too small or `place` is unknown; HUSK_OUT_OF_MEMORY */
HUSK_API husk_status husk_engine_add_op(husk_engine* engine, const husk_op* op, husk_error* error);

#ifdef __cplusplus
}
#endif
#endif
