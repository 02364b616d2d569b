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
} husk_engine_options;
#define HUSK_ENGINE_OPTIONS_INIT { sizeof(husk_engine_options), 0, NULL, NULL, NULL, NULL, 0, NULL, NULL }

HUSK_API husk_status husk_engine_create(const husk_engine_options* options, husk_engine** engine, husk_error* error);
HUSK_API void husk_engine_release(husk_engine* engine);
/* Registers an extern op; one with the same name replaces it for programs that are opened later. */
HUSK_API husk_status husk_engine_add_op(husk_engine* engine, const husk_op* op, husk_error* error);
HUSK_API void husk_engine_properties(const husk_engine* engine, husk_port_properties* out);

/* ---- program ---- */

/* Checks bytes against every rule of FORMAT.md; touches no device. */
HUSK_API husk_status husk_program_verify(const void* data, size_t size, husk_error* error);
/* Maps the file, verifies it, loads the images that the device can use and uploads the constants. The file must not
 * change while the program lives. */
HUSK_API husk_status husk_program_open(husk_engine* engine, const char* path, husk_program** program,
                                       husk_error* error);
/* The same from memory, aligned to 64 bytes, which is borrowed until `release` is called, on whichever thread drops
 * the last reference. If loading fails `release` is not called. `release` may be NULL. */
HUSK_API husk_status husk_program_load(husk_engine* engine, const void* data, size_t size,
                                       void (*release)(void* user, const void* data), void* user,
                                       husk_program** program, husk_error* error);
HUSK_API void husk_program_release(husk_program* program);

enum { HUSK_VALUE_NONE = 0, HUSK_VALUE_TENSOR = 1, HUSK_VALUE_INT = 2, HUSK_VALUE_FLOAT = 3, HUSK_VALUE_BOOL = 4 };

typedef struct husk_value_info {
  const char* name;
  int32_t kind;            /* HUSK_VALUE_* */
  husk_dtype dtype;        /* tensors */
  int32_t rank;            /* tensors */
  uint32_t alignment;      /* bytes, tensors */
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
HUSK_API uint32_t husk_program_state_count(const husk_program* program);
HUSK_API const char* husk_program_state_name(const husk_program* program, uint32_t state);
HUSK_API uint64_t husk_program_state_size(const husk_program* program, uint32_t state);   /* bytes */
/* How inputs and outputs nest, as JSON; "" if the file does not say. */
HUSK_API const char* husk_program_tree(const husk_program* program);

/* ---- session ---- */

/* What goes in or out. Tensors are DLPack's: strides in elements (NULL: contiguous), byte_offset honoured. Input
 * tensors are read during the run only, on its stream. Output tensors are the caller's memory of at least the shape
 * that husk_session_output_shape gives; shape and strides must match it. Output ints and floats are written here. */
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

typedef struct husk_session_options {
  uint32_t struct_size;
  int32_t mode;                    /* auto: a graph where the device and the function allow it, else the list */
  int32_t full_edges;              /* 1: no programmatic edges */
  int32_t fill_freed;              /* 1: debug; the arena is filled with 0xFF before each run */
  /* Memory that independent work may cost more than the tightest plan, in percent; 0 is the default, 25; -1 none. */
  int32_t parallel_percent;
  int32_t reserved;
  uint64_t bound_limit;            /* plan at the bounds if that takes at most this many bytes; 0: 256 MiB */
} husk_session_options;
#define HUSK_SESSION_OPTIONS_INIT { sizeof(husk_session_options), 0, 0, 0, 0, 0, 0 }

HUSK_API husk_status husk_session_create(husk_program* program, const husk_session_options* options,
                                         husk_session** session, husk_error* error);
/* Waits for the session's last run. */
HUSK_API void husk_session_release(husk_session* session);

/* Makes the session ready for these inputs: plans and allocates memory, instantiates the graph. Tensors need a shape,
 * their data may be NULL. The only call, besides create, that allocates. */
HUSK_API husk_status husk_session_resize(husk_session* session, uint32_t function, const husk_value* inputs,
                                         uint32_t input_count, husk_error* error);
/* Shape of output `index` for the inputs of the last resize or run: rank sizes and rank strides, in elements. */
HUSK_API husk_status husk_session_output_shape(husk_session* session, uint32_t function, uint32_t index,
                                               int64_t* sizes, int64_t* strides, husk_error* error);
/* Enqueues one run on `stream` (the port's; NULL its default stream) and returns. Allocates nothing; waits only where a
 * step must read a value. After a failed run outputs and state that it wrote are undefined; the session stays usable. */
HUSK_API husk_status husk_session_run(husk_session* session, uint32_t function, void* stream, const husk_value* inputs,
                                      uint32_t input_count, husk_value* outputs, uint32_t output_count,
                                      husk_error* error);
/* Waits until the session's last run is done, and says whether it went wrong on the device. */
HUSK_API husk_status husk_session_wait(husk_session* session, husk_error* error);

/* A state's bytes, to and from host memory of husk_program_state_size bytes; waits for the session's last run. */
HUSK_API husk_status husk_session_state_get(husk_session* session, uint32_t state, void* bytes, husk_error* error);
HUSK_API husk_status husk_session_state_set(husk_session* session, uint32_t state, const void* bytes,
                                            husk_error* error);
HUSK_API husk_status husk_session_state_reset(husk_session* session, uint32_t state, husk_error* error);

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
} husk_session_stats;
/* Set out->struct_size first. Counts since the session was created. */
HUSK_API husk_status husk_session_stats_get(const husk_session* session, uint32_t function, husk_session_stats* out,
                                            husk_error* error);

#ifdef __cplusplus
}
#endif
#endif
