/* Husk: loads an artifact that PyTorch's compiler made and runs it.
 *
 *   engine   a device and the operators it may call          thread-safe
 *   program  a loaded artifact: kernels, constants           thread-safe
 *   session  its state and memory; one concurrent user       one thread at a time
 *
 * Ownership: *_create, open and load return one reference, released by *_release; a child keeps its parent, so handles
 * may be released in any order; releasing NULL does nothing. Strings and arrays that a query returns live as long as
 * the handle that was asked.
 * Errors: a function that returns husk_status fills `error` (may be NULL) when it fails, and leaves every handle usable.
 * Structs of options begin with struct_size and have an _INIT macro; zero is every option's default.
 * C11 and C++17. */
#ifndef HUSK_HUSK_H
#define HUSK_HUSK_H

#include <dlpack/dlpack.h>
#include <husk/op.h>
#include <husk/port.h>
#include <husk/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* DLPack's type codes that older headers lack, as of DLPack 1.1; an element type is these and its width. */
enum { HUSK_DL_BOOL = 6, HUSK_DL_F8E4M3FN = 10, HUSK_DL_F8E4M3FNUZ = 11, HUSK_DL_F8E5M2 = 12, HUSK_DL_F8E5M2FNUZ = 13 };

typedef struct husk_engine husk_engine;
typedef struct husk_program husk_program;
typedef struct husk_session husk_session;

/* A version "major.minor.patch" of this library; the static string "0.1.0". */
HUSK_API const char* husk_version(void);
/* "invalid input" for HUSK_INVALID_INPUT; "unknown status" for what is none. */
HUSK_API const char* husk_status_name(husk_status status);
/* Bytes of one element, 8 for HUSK_POINTER, 0 for what has none. */
HUSK_API size_t husk_dtype_size(husk_dtype dtype);
HUSK_API const char* husk_dtype_name(husk_dtype dtype);
/* Between DLPack's types and ours; HUSK_DTYPE_NONE for what Husk does not have, lanes other than 1 among them. */
HUSK_API husk_dtype husk_dtype_from_dlpack(DLDataType type);
HUSK_API DLDataType husk_dtype_to_dlpack(husk_dtype dtype);

/* ---- engine ---- */

enum { HUSK_LOG_INFO = 0, HUSK_LOG_WARNING = 1 };

typedef struct husk_engine_options {
  uint32_t struct_size;
  int32_t device_index;             /* the port's device */
  const husk_port* port;            /* required; must outlive the engine */
  const husk_allocator* allocator;  /* NULL: mimalloc, or malloc in a build without it */
  void (*log)(void* user, int32_t level, const char* text);   /* may be NULL; called on the calling thread */
  void* log_user;
  /* Host images are native code that runs with the rights of this process: 0 refuses them. */
  int32_t allow_host_images;
  /* Asked before anything of a file is used, with its content hash (32 bytes): 0 refuses. NULL accepts. */
  int32_t (*accept)(void* user, const uint8_t* content_hash);
  void* accept_user;
  const husk_threads* threads;      /* for kernels and ops of the host; NULL: they run on the calling thread */
} husk_engine_options;
#define HUSK_ENGINE_OPTIONS_INIT { sizeof(husk_engine_options), 0, NULL, NULL, NULL, NULL, 0, NULL, NULL, NULL }

HUSK_API husk_status husk_engine_create(const husk_engine_options* options, husk_engine** engine, husk_error* error);
HUSK_API void husk_engine_release(husk_engine* engine);
/* Registers an extern op, before one of the port's; one with the same name replaces it for programs that are opened later. */
HUSK_API husk_status husk_engine_add_op(husk_engine* engine, const husk_op* op, husk_error* error);
HUSK_API void husk_engine_properties(const husk_engine* engine, husk_port_properties* out);

/* ---- program ---- */

/* Checks bytes against every rule of FORMAT.md; touches no device. */
HUSK_API husk_status husk_program_verify(const void* data, size_t size, husk_error* error);
/* Maps the file, verifies it, loads the images that the device can use and uploads the constants, but not those that
 * another program of the engine has there already, as prefill and decode of one model do. The file must not change while the
 * program lives. */
HUSK_API husk_status husk_program_open(husk_engine* engine, const char* path, husk_program** program,
                                       husk_error* error);
/* The same from memory, aligned to 64 bytes, which is borrowed until `release` is called, on whichever thread drops
 * the last reference. If loading fails `release` is not called. `release` may be NULL. */
HUSK_API husk_status husk_program_load(husk_engine* engine, const void* data, size_t size,
                                       void (*release)(void* user, const void* data), void* user,
                                       husk_program** program, husk_error* error);
/* The same from an object file that `huskc --emit=obj` wrote and this process is linked with; `artifact` is its symbol:
 *   extern const unsigned char husk_model[];   husk_program_link(engine, husk_model, &program, &error); */
HUSK_API husk_status husk_program_link(husk_engine* engine, const void* artifact, husk_program** program,
                                       husk_error* error);
HUSK_API void husk_program_release(husk_program* program);

enum { HUSK_VALUE_NONE = 0, HUSK_VALUE_TENSOR = 1, HUSK_VALUE_INT = 2, HUSK_VALUE_FLOAT = 3, HUSK_VALUE_BOOL = 4 };

typedef struct husk_value_info {
  const char* name;
  int32_t kind;            /* HUSK_VALUE_* */
  husk_dtype dtype;        /* tensors */
  int32_t rank;            /* tensors */
  uint32_t alignment;      /* of a tensor's address, in bytes: what this device's kernels assume; 1 is nothing */
  const int64_t* ranges;   /* inputs: min, max of each dimension; NULL for outputs */
} husk_value_info;

HUSK_API uint32_t husk_program_function_count(const husk_program* program);
HUSK_API const char* husk_program_function_name(const husk_program* program, uint32_t function);
HUSK_API husk_status husk_program_find_function(const husk_program* program, const char* name, uint32_t* function,
                                                husk_error* error);
/* The target of the variant that was chosen for this device, as "cuda sm_90a". */
HUSK_API const char* husk_program_function_target(const husk_program* program, uint32_t function);
HUSK_API uint32_t husk_program_input_count(const husk_program* program, uint32_t function);
HUSK_API uint32_t husk_program_output_count(const husk_program* program, uint32_t function);
HUSK_API husk_status husk_program_input(const husk_program* program, uint32_t function, uint32_t index,
                                        husk_value_info* out, husk_error* error);
HUSK_API husk_status husk_program_output(const husk_program* program, uint32_t function, uint32_t index,
                                         husk_value_info* out, husk_error* error);

/* A weight or a state. */
typedef struct husk_storage_info {
  const char* name;
  husk_dtype dtype;
  int32_t rank;
  const int64_t* dims;
  uint64_t bytes;
} husk_storage_info;

HUSK_API uint32_t husk_program_state_count(const husk_program* program);
HUSK_API husk_status husk_program_state(const husk_program* program, uint32_t state, husk_storage_info* out,
                                        husk_error* error);
HUSK_API husk_status husk_program_find_state(const husk_program* program, const char* name, uint32_t* state,
                                             husk_error* error);
HUSK_API uint32_t husk_program_constant_count(const husk_program* program);
HUSK_API husk_status husk_program_constant(const husk_program* program, uint32_t constant, husk_storage_info* out,
                                           husk_error* error);
HUSK_API husk_status husk_program_find_constant(const husk_program* program, const char* name, uint32_t* constant,
                                                husk_error* error);

typedef struct husk_constant_update {
  uint32_t constant;
  uint32_t reserved;
  const void* bytes;       /* host memory of the constant's size, read during the call */
} husk_constant_update;
/* Replaces the values of constants for all sessions: all of them or, on failure, none (but where a device fails in the middle
 * of the exchange the named constants are undefined). Waits until no run of the program is
 * under way and keeps new ones waiting meanwhile; may be called from any thread, not from a callback. States that begin as such
 * a constant take the new value at their next reset. */
HUSK_API husk_status husk_program_update_constants(husk_program* program, const husk_constant_update* updates,
                                                   uint32_t count, husk_error* error);
/* How inputs and outputs nest, as JSON; "" if the file does not say. */
HUSK_API const char* husk_program_tree(const husk_program* program);

/* The author's own metadata. */
HUSK_API uint32_t husk_program_user_count(const husk_program* program);
HUSK_API const char* husk_program_user_key(const husk_program* program, uint32_t entry);
HUSK_API const char* husk_program_user_value(const husk_program* program, uint32_t entry);

/* ---- session ---- */

/* What goes in or out. Tensors are DLPack's: strides in elements (NULL: contiguous), byte_offset honoured. Input
 * tensors are read during the run only, on its stream. Output ints and floats are written here.
 * An output tensor is the caller's memory, of the shape and strides that husk_session_output_shape gives. Where only the data
 * decides the shape, it is memory for at most the shape that is passed, and run writes the sizes (and strides, if given)
 * that came out into it. An output of kind NONE asks for memory of the session: run makes it a tensor of the session's,
 * valid until the session's next run of this function or its release. */
typedef struct husk_value {
  int32_t kind;            /* HUSK_VALUE_* */
  int32_t reserved;
  union {
    DLTensor* tensor;
    int64_t i;             /* int, bool */
    double f;
  } as;
} husk_value;

enum { HUSK_MODE_AUTO = 0, HUSK_MODE_LIST = 1, HUSK_MODE_GRAPH = 2 };

typedef struct husk_trace_event {
  const char* function;
  uint32_t step;
  const char* kind;                /* "launch", "extern", "copy", "fill", "read" */
  const char* name;                /* of the kernel or op, "" if none */
  const char* origin;              /* where in the model, "" if the file does not say */
  uint32_t grid[3];                /* of a launch */
  uint64_t nanoseconds;            /* from before the step was enqueued until its work was done */
} husk_trace_event;

typedef struct husk_session_options {
  uint32_t struct_size;
  int32_t mode;                    /* auto: a graph where the device and the function allow it, else the list */
  int32_t full_edges;              /* 1: no programmatic edges, nor early starts on a stream */
  int32_t fill_freed;              /* 1: debug; the arena is filled with 0xFF before each run */
  /* Memory that independent work may cost more than the tightest plan, in percent; 0 is the default, 25; -1 none. */
  int32_t parallel_percent;
  /* 1: an input that is not aligned as its kernels assume is copied to memory of the session, 0: it is refused. */
  int32_t copy_misaligned;
  uint64_t bound_limit;            /* plan at the bounds if that takes at most this many bytes; 0: 256 MiB */
  uint64_t memory_limit;           /* most bytes of device memory that the session may take, state aside; 0: no limit */
  uint64_t loop_limit;             /* most times that one run may go back to the start of a loop; 0: 2^32 */
  int32_t lent_arena;              /* 1: nothing is allocated for the arena: husk_session_lend_arena before the first run */
  int32_t reserved;
  /* Called behind each step of a launch list, when its work is done: for profiles and debugging; it makes runs slow. */
  void (*trace)(void* user, const husk_trace_event* event);
  void* trace_user;
} husk_session_options;
#define HUSK_SESSION_OPTIONS_INIT { sizeof(husk_session_options), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, NULL, NULL }

HUSK_API husk_status husk_session_create(husk_program* program, const husk_session_options* options,
                                         husk_session** session, husk_error* error);
/* Waits for the session's last run. */
HUSK_API void husk_session_release(husk_session* session);

/* Narrows the range of a dimension of an input tensor, or of an int (dim 0), for this session: it then plans for that range
 * and refuses what is outside. The range must lie in the one of the file. */
HUSK_API husk_status husk_session_bound(husk_session* session, uint32_t function, uint32_t input, uint32_t dim,
                                        int64_t min, int64_t max, husk_error* error);
/* Makes the session ready for these inputs: plans and allocates memory, instantiates the graph. Tensors need a shape,
 * their data may be NULL. The only call, besides create and bound, that allocates; but a run does where a size that only the data
 * decides has no bound, where an output asks for memory of the session, and where a misaligned input is copied. */
HUSK_API husk_status husk_session_resize(husk_session* session, uint32_t function, const husk_value* inputs,
                                         uint32_t input_count, husk_error* error);
/* Bytes of the arena that all plans so far need; the session has them unless lent_arena is set. */
HUSK_API uint64_t husk_session_arena_bytes(const husk_session* session);
/* Lends the session device memory, aligned to 256 bytes, to be its arena from its next run on, until another is lent or the
 * session released. Waits for the session's last run. A run or resize that needs more fails with HUSK_NEEDS_RESIZE. */
HUSK_API husk_status husk_session_lend_arena(husk_session* session, void* memory, uint64_t bytes, husk_error* error);
/* Shape of output `index` for the inputs of the last resize or run: rank sizes and rank strides, in elements. Fails where only
 * the data decides it and no run has. */
HUSK_API husk_status husk_session_output_shape(husk_session* session, uint32_t function, uint32_t index,
                                               int64_t* sizes, int64_t* strides, husk_error* error);
/* Enqueues one run on `stream` (the port's; NULL its default stream) and returns. Allocates nothing; waits only where a
 * step must read a value. After a failed run outputs and state that it wrote are undefined; the session stays usable. */
HUSK_API husk_status husk_session_run(husk_session* session, uint32_t function, void* stream, const husk_value* inputs,
                                      uint32_t input_count, husk_value* outputs, uint32_t output_count,
                                      husk_error* error);
/* Waits until the session's last run is done, and says whether it went wrong on the device. An assert of a device's kernel that
 * failed, as for an index out of range, is HUSK_KERNEL with its text, told once, by the next call that waits or by the next run,
 * which then does nothing; the outputs and states of the run that failed are undefined. */
HUSK_API husk_status husk_session_wait(husk_session* session, husk_error* error);

/* A state's bytes, to and from host memory of its size; waits for the session's last run. */
HUSK_API husk_status husk_session_state_get(husk_session* session, uint32_t state, void* bytes, husk_error* error);
HUSK_API husk_status husk_session_state_set(husk_session* session, uint32_t state, const void* bytes,
                                            husk_error* error);
HUSK_API husk_status husk_session_state_reset(husk_session* session, uint32_t state, husk_error* error);
/* Takes over the value that another session of the same program has; waits for the last runs of both. The other session must
 * not be in use meanwhile. */
HUSK_API husk_status husk_session_state_copy(husk_session* session, uint32_t state, husk_session* from,
                                             husk_error* error);

typedef struct husk_session_stats {
  uint32_t struct_size;
  uint32_t steps;                  /* of the function */
  uint32_t graph_nodes;            /* 0: the function runs as a list */
  uint32_t graph_edges;
  uint32_t programmatic_edges;
  uint32_t bounded;                /* 1: planned at the bounds */
  uint64_t arena_bytes;
  uint64_t arena_lower_bound;      /* largest sum of live, aligned bytes */
  uint64_t runs_as_graph;
  uint64_t runs_as_list;
  uint64_t nodes_patched;
  uint64_t data_bytes;             /* memory outside the arena: sizes that only the data decides, outputs, copied inputs */
  uint32_t segments;               /* of the function */
  uint32_t dynamic;                /* 1: a run may allocate, since only the data decides some size and nothing bounds it */
} husk_session_stats;
/* Set out->struct_size first. Counts since the session was created. */
HUSK_API husk_status husk_session_stats_get(const husk_session* session, uint32_t function, husk_session_stats* out,
                                            husk_error* error);

#ifdef __cplusplus
}
#endif
#endif
