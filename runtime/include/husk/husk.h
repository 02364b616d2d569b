/** @file
 * The C interface of Husk: it loads an artifact that was exported from PyTorch and runs it.
 *
 * | handle         | what it is                                           | threads              |
 * |----------------|------------------------------------------------------|----------------------|
 * | husk_engine    | a device and the operators that programs may call    | thread-safe          |
 * | husk_program   | a loaded artifact: kernels and constants             | thread-safe          |
 * | husk_session   | the state and memory of one user of a program        | one thread at a time |
 *
 * Ownership: a function named create, open, load or link returns one reference, which the function
 * named release drops. A session keeps its program and a program its engine, so handles may be
 * released in any order. Releasing NULL does nothing. Strings and arrays that a query returns are
 * valid as long as the handle that was asked.
 *
 * Errors: a function that returns husk_status fills `error`, which may be NULL, if it fails. Every
 * handle stays usable after a failure.
 *
 * Callbacks: Husk calls `log`, `accept`, `progress`, `cancel`, `trace`, the allocator,
 * husk_threads.parallel and the functions of ops during calls of the application. Such a callback
 * may use other sessions and create and release handles. A call on the session that calls it fails
 * with HUSK_INVALID_ARGUMENT, and so does husk_program_update_constants for the program of that
 * session; releasing that session takes effect when its call has ended. A call on a session that
 * another thread is using fails in the same way. A callback must not wait for another thread that
 * calls a session of the same program or updates its constants: that thread may wait for an update,
 * which waits for the call that the callback is in.
 *
 * Structs that grow: a struct that later versions may extend begins with `uint32_t struct_size`.
 *
 * - Whoever provides the memory of the struct sets struct_size to the size of the struct in its own
 *   version of Husk, before anybody else sees the struct. The macro TYPE_INIT does so and sets
 * every other field to its default. Fields named `reserved` are 0.
 * - The other side reads and writes at most struct_size bytes. It treats a field that lies outside
 *   as zero, and zero means the default. It does not look at bytes that it does not know.
 * - A function that fills a struct sets struct_size to the number of bytes that it has written.
 * - A struct that ends before the field which its comment names under "Minimum size" is refused
 * with HUSK_INVALID_ARGUMENT.
 * - Fields are only appended. Code that reads a field which a later version appended asks
 *   HUSK_HAS_FIELD first.
 * - Structs that come in arrays (husk_value, husk_op_arg, husk_constant_update,
 *   husk_constant_part, husk_upload, husk_listed_launch, husk_graph_edge) have no struct_size and
 *   never change, since an array needs one stride on both sides. husk_op is the exception:
 * libraries export arrays of it, whose stride is the first entry's struct_size. husk_error,
 * husk_allocator and husk_threads are fixed too.
 *
 * The header is C11 and C++17. */
#ifndef HUSK_HUSK_H
#define HUSK_HUSK_H

/* The program's own dlpack.h comes first; an installation has a copy next to this header. */
#if defined(__has_include)
#if __has_include(<dlpack/dlpack.h>)
#include <dlpack/dlpack.h>
#else
#include <husk/dlpack.h>
#endif
#else
#include <dlpack/dlpack.h>
#endif

#include <husk/op.h>
#include <husk/port.h>
#include <husk/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Type codes of DLPack 1.1, which older versions of its header lack. A husk_dtype corresponds to a
 * code and a width in bits. */
enum {
  HUSK_DL_BOOL = 6,
  HUSK_DL_F8E4M3FN = 10,
  HUSK_DL_F8E4M3FNUZ = 11,
  HUSK_DL_F8E5M2 = 12,
  HUSK_DL_F8E5M2FNUZ = 13
};

/** A loaded artifact. */
typedef struct husk_program husk_program;
/** The state and memory of one user of a program. */
typedef struct husk_session husk_session;

/** Returns the version of the library as "major.minor.patch", a static string. */
HUSK_API const char* husk_version(void);
/** Returns the name of a status, such as "invalid input" for HUSK_INVALID_INPUT; "unknown status"
 * if `status` is not a husk_status. The string is static. */
HUSK_API const char* husk_status_name(husk_status status);
/** Returns the bytes of one element of `dtype`: 8 for HUSK_POINTER, 0 if `dtype` is not a
 * husk_dtype. */
HUSK_API size_t husk_dtype_size(husk_dtype dtype);
/** Returns the name of `dtype`, such as "f32"; the string is static. */
HUSK_API const char* husk_dtype_name(husk_dtype dtype);
/** Returns the husk_dtype of a DLPack type; HUSK_DTYPE_NONE if there is none, for instance if
 * `type` has more than one lane. */
HUSK_API husk_dtype husk_dtype_from_dlpack(DLDataType type);
/** Returns the DLPack type of `dtype`. */
HUSK_API DLDataType husk_dtype_to_dlpack(husk_dtype dtype);

/** @name Engine
 * @{ */

/** The levels of messages in the log. */
enum { HUSK_LOG_INFO = 0, HUSK_LOG_WARNING = 1 };

/** The options of husk_engine_create. Minimum size: through `port`. */
typedef struct husk_engine_options {
  uint32_t struct_size;            /**< The size of this struct, set by whoever provides it. */
  int32_t device_index;            /**< The number of the device among those of the port. */
  const husk_port* port;           /**< Required; must outlive the engine. */
  const husk_allocator* allocator; /**< NULL: mimalloc, or malloc in a build without mimalloc. */
  /** Receives messages, on the thread that calls Husk; may be NULL. */
  void (*log)(void* user, int32_t level, const char* text);
  void* log_user; /**< The first argument of `log`. */
  /** 1 accepts host images. Host images are native code that runs with the rights of this process;
   * 0 refuses files with such images. */
  int32_t allow_host_images;
  int32_t reserved; /**< 0. */
  /** Decides whether a file may be used, given the hash of its content (32 bytes): 0 refuses it.
   * The engine has compared the metadata with the hash, and has parsed nothing of it. NULL accepts
   * every file. */
  int32_t (*accept)(void* user, const uint8_t* content_hash);
  void* accept_user; /**< The first argument of `accept`. */
  /** Threads for kernels and ops that run on the host; NULL: they run on the calling thread. */
  const husk_threads* threads;
  /** 1 refuses programs that call an op without a contract (husk_op.contract). Husk knows of such
   * an op only what the file says about it. */
  int32_t require_op_contracts;
  int32_t reserved2; /**< 0. */
  /** The largest metadata that a file may have, in bytes; 0: no limit. Verifying a file takes
   * memory and time in proportion to its metadata. */
  uint64_t max_metadata_bytes;
  /** The largest sum of the states of a program, which each session allocates, in bytes; 0: no
   * limit. */
  uint64_t max_state_bytes;
  /** 1 compares the constants of a file with their hashes before a device gets them; a constant
   * that differs fails the open with HUSK_INVALID_FILE and is named. This reads the whole file. 0
   * does not look at the bytes of constants. Images are compared before they are loaded, with 0
   * too. */
  int32_t verify_content;
  int32_t reserved3; /**< 0. */
  /** Called on the thread that opens a file, while its constants are compared (verify_content),
   * then while they are copied to a device that has memory of its own, and then while copies are
   * laid out for ops (husk_op.pack): `done` of the `total` bytes of that work are done, first 0,
   * then at least every 4 MiB, and finally all. A port that copies in batches
   * (husk_port.upload_batch) gets 1 GiB at a time, and an op that lays out a copy asks as it asks
   * husk_op_context.cancel. A value other than 0 ends the open with HUSK_CANCELLED. The check of
   * the metadata comes before all that and asks nothing: max_metadata_bytes limits its time. May
   * be NULL. */
  int32_t (*progress)(void* user, uint64_t done, uint64_t total);
  void* progress_user; /**< The first argument of `progress`. */
  /** The most steps that a function of a program may have; 0: no limit. A file with more is refused
   * when it is opened. */
  uint64_t max_steps;
  /** The most elements that the tensors of one call of an op may have together; 0: no limit. An
   * element that a stride of 0 repeats counts each time, and a size of 0 counts as 1. A run that
   * passes the limit fails before the first step of its segment. */
  uint64_t max_step_elements;
  /** Decides whether a run goes on: any other number than 0 ends it with HUSK_CANCELLED. The
   * outputs and the states that the run wrote are undefined then; the session stays usable. Husk
   * asks on the thread that calls husk_session_run, before each step of a launch list, after each
   * 16 MiB of a copy or a fill of host memory, and while it compares the tensors of calls that
   * have many in one buffer, a resize included; a step that has begun goes on to its end, unless
   * it is an op that asks itself (husk_op_context.cancel). A CUDA graph is one launch, so Husk
   * asks once, before it. A wait for a run asks, too, if the engine is one of several ranks, and
   * ends their group: the calls of all ranks fail from then on. Other threads may run sessions of
   * the engine, so several threads may ask at once. NULL lets every run go on. */
  int32_t (*cancel)(void* user);
  void* cancel_user; /**< The argument of `cancel`. */
  /** The most memory that the copies of a program's constants may take which ops have laid out for
   * themselves (husk_op.pack), in bytes; 0: no limit. Such copies make runs faster, and take about
   * as much memory as the constants of products and convolutions on a device that computes in the
   * host's memory. A constant whose copy would pass the limit is not copied; 1 allows none.
   * Copies that the file has are not counted. */
  uint64_t max_packed_bytes;
  /** The most memory that opening a program may take for images, which are native code, for
   * constants that it brings to a device, and for constants that functions of the file compute,
   * with the other memory of these functions, in bytes; 0: no limit. A file that needs more is
   * refused with HUSK_LIMIT before the memory is allocated, and the text says how much it needs.
   * What the program uses from the mapped file, or shares with another program of the engine, does
   * not count. */
  uint64_t max_program_bytes;
  /** This engine is number `rank` of the `world` engines that run a program together, each for a
   * device of its own, in processes of their own or on threads of one process. Ops read both
   * (husk_op_context). `rank` is less than `world`; 0 and 0, as 0 and 1, are an engine that runs
   * alone. A file for several ranks opens only with its own `rank` and `world`. */
  uint32_t rank;
  uint32_t world; /**< See `rank`. */
  /** NULL; or what husk_group_id_create has written on one of the ranks, and the application has
   * brought to the others. husk_engine_create then waits until all ranks have called it, and the
   * ops of the port communicate in their group. All ranks open the files for several ranks in one
   * order, and enqueue runs of them in one order. On one rank, such a run begins when the one
   * before has ended: both are on one stream, or the second one's stream waits for the first. NULL
   * leaves communication to ops of the application. */
  const husk_group_id* group;
  /** How long this rank waits for another one, in milliseconds; 0: 60,000. A call that waits longer
   * fails with HUSK_DEVICE, on the other ranks too. */
  uint32_t group_timeout_ms;
  uint32_t reserved4; /**< 0. */
} husk_engine_options;
/** The initial value of a husk_engine_options. */
#define HUSK_ENGINE_OPTIONS_INIT \
  {sizeof(husk_engine_options),  \
   0,                            \
   NULL,                         \
   NULL,                         \
   NULL,                         \
   NULL,                         \
   0,                            \
   0,                            \
   NULL,                         \
   NULL,                         \
   NULL,                         \
   0,                            \
   0,                            \
   0,                            \
   0,                            \
   0,                            \
   0,                            \
   NULL,                         \
   NULL,                         \
   0,                            \
   0,                            \
   NULL,                         \
   NULL,                         \
   0,                            \
   0,                            \
   0,                            \
   1,                            \
   NULL,                         \
   0,                            \
   0}

/** Creates the id of a group of ranks. One rank calls it, and the application brings the bytes to
 * the others; each rank passes them to husk_engine_create, once.
 * @param port the port of the engines
 * @param id the result, zeros after a failure
 * @param error may be NULL
 * @return HUSK_OK; HUSK_INVALID_ARGUMENT if `port` or `id` is NULL; HUSK_UNSUPPORTED if the port
 * has no groups; or the failure of the port */
HUSK_API husk_status husk_group_id_create(const husk_port* port, husk_group_id* id,
                                          husk_error* error);
/** Opens a device, and joins the group of husk_engine_options.group.
 * @param options the options; copied
 * @param engine the result, NULL after a failure
 * @param error may be NULL
 * @return HUSK_OK; HUSK_INVALID_ARGUMENT if an argument or the port is NULL, a struct is too small
 * or `rank` is not less than `world`; HUSK_UNSUPPORTED if the port was built for another
 * HUSK_PORT_ABI, or has no groups; HUSK_OUT_OF_MEMORY; or the failure of the port's `open` or
 * `join` */
HUSK_API husk_status husk_engine_create(const husk_engine_options* options, husk_engine** engine,
                                        husk_error* error);
/** Drops a reference to the engine; the device is closed with the last one. */
HUSK_API void husk_engine_release(husk_engine* engine);
/** Describes the engine's device.
 * @param engine the engine
 * @param out HUSK_PORT_PROPERTIES_INIT on entry
 * @param error may be NULL
 * @return HUSK_OK or HUSK_INVALID_ARGUMENT */
HUSK_API husk_status husk_engine_properties(const husk_engine* engine, husk_port_properties* out,
                                            husk_error* error);
/** Allocates device memory, for inputs and outputs of runs.
 * @param engine the engine; any thread may call
 * @param bytes the size; 0 gives an address too
 * @param memory the result, at an address that is a multiple of 256; NULL after a failure. The
 * caller frees it with husk_engine_free before it releases the engine.
 * @param error may be NULL
 * @return HUSK_OK or the failure */
HUSK_API husk_status husk_engine_alloc(husk_engine* engine, uint64_t bytes, void** memory,
                                       husk_error* error);
/** Frees memory of husk_engine_alloc that no work uses any more; NULL is allowed. */
HUSK_API void husk_engine_free(husk_engine* engine, void* memory);
/** Creates a stream of the device, for callers that have none. Work of one stream runs in order,
 * and beside the work of other streams.
 * @param engine the engine; any thread may call
 * @param stream the result, NULL after a failure. The caller destroys it with
 * husk_engine_stream_destroy before it releases the engine. On a host every stream is alike, since
 * all work is done when a call returns.
 * @param error may be NULL
 * @return HUSK_OK or the failure */
HUSK_API husk_status husk_engine_stream_create(husk_engine* engine, void** stream,
                                               husk_error* error);
/** Destroys a stream of husk_engine_stream_create whose work is done; NULL is allowed. Sessions
 * that ran on it are released before. */
HUSK_API void husk_engine_stream_destroy(husk_engine* engine, void* stream);
/** Copies from host to device memory, after the work that the stream has. The function has read the
 * bytes when it returns, and work that is enqueued on the stream afterwards finds them.
 * @param engine the engine; any thread may call, one at a time for one stream
 * @param stream a stream of the port; NULL: the default stream of the device
 * @param to device memory
 * @param from host memory
 * @param bytes the size
 * @param error may be NULL
 * @return HUSK_OK or the failure */
HUSK_API husk_status husk_engine_upload(husk_engine* engine, void* stream, void* to,
                                        const void* from, uint64_t bytes, husk_error* error);
/** Copies from device to host memory, after the work that the stream has. The bytes have arrived
 * when the function returns. An assert that failed in a run is reported by husk_session_wait.
 * @param engine the engine; any thread may call, one at a time for one stream
 * @param stream a stream of the port; NULL: the default stream of the device
 * @param to host memory
 * @param from device memory
 * @param bytes the size
 * @param error may be NULL
 * @return HUSK_OK or the failure */
HUSK_API husk_status husk_engine_download(husk_engine* engine, void* stream, void* to,
                                          const void* from, uint64_t bytes, husk_error* error);
/** Allocates host memory that husk_engine_copy reads and writes in the order of a stream, while the
 * host goes on: pinned memory, where the device needs that.
 * @param engine the engine; any thread may call
 * @param bytes the size; 0 gives an address too
 * @param memory the result, at an address that is a multiple of 256; NULL after a failure. The
 * caller frees it with husk_engine_free_host before it releases the engine.
 * @param error may be NULL
 * @return HUSK_OK; HUSK_UNSUPPORTED if the port has no such memory (husk_port.alloc_host); or
 * another failure */
HUSK_API husk_status husk_engine_alloc_host(husk_engine* engine, uint64_t bytes, void** memory,
                                            husk_error* error);
/** Frees memory of husk_engine_alloc_host that no work uses any more; NULL is allowed. */
HUSK_API void husk_engine_free_host(husk_engine* engine, void* memory);
/** Enqueues a copy and returns. Until the copy is done, nobody else writes to either side or reads
 * what it writes; husk_session_wait_mark, husk_session_wait or the stream tells. If the application
 * captures the stream, the copy is recorded.
 * @param engine the engine; any thread may call, one at a time for one stream
 * @param stream a stream of the port; NULL: the default stream of the device
 * @param to device memory, or memory of husk_engine_alloc_host
 * @param from device memory, or memory of husk_engine_alloc_host, that does not overlap `to`
 * @param bytes the size
 * @param error may be NULL
 * @return HUSK_OK or the failure */
HUSK_API husk_status husk_engine_copy(husk_engine* engine, void* stream, void* to, const void* from,
                                      uint64_t bytes, husk_error* error);

/** @}
 * @name Program
 * @{ */

/** Checks an artifact against every rule of FORMAT.md. The function uses no device.
 * @param data the bytes of a file
 * @param size number of bytes
 * @param error may be NULL
 * @return HUSK_OK, or the failure, HUSK_INVALID_FILE for instance */
HUSK_API husk_status husk_program_verify(const void* data, size_t size, husk_error* error);
/** Opens an artifact: maps the file, verifies it, loads the images that the device can use and
 * uploads the constants. Programs of one engine share constants of equal content, so a constant
 * that another program has uploaded is not uploaded again.
 *
 * The file must not change while the program exists, because the program reads constants from the
 * mapped file, on some devices during runs. If somebody truncates the file, the next read of a
 * missing page ends the process with SIGBUS; if somebody writes to it, results change. To replace
 * a file, write the new one beside it and rename it, as huskc and husk.export do: open programs
 * keep the old content. Where others may write to the file, use husk_program_load with a copy in
 * memory.
 * @param engine the engine; the program keeps it
 * @param path the path of the file
 * @param program the result, NULL after a failure
 * @param error may be NULL
 * @return HUSK_OK or the failure */
HUSK_API husk_status husk_program_open(husk_engine* engine, const char* path,
                                       husk_program** program, husk_error* error);
/** Opens an artifact in memory, in the same way as husk_program_open.
 * @param engine the engine; the program keeps it
 * @param data the bytes of a file at an address that is a multiple of 64; the program borrows them
 * @param size number of bytes
 * @param release called when the program no longer needs the bytes, on the thread that drops the
 * last reference; not called if husk_program_load fails; may be NULL
 * @param user the first argument of `release`
 * @param program the result, NULL after a failure
 * @param error may be NULL
 * @return HUSK_OK or the failure */
HUSK_API husk_status husk_program_load(husk_engine* engine, const void* data, size_t size,
                                       void (*release)(void* user, const void* data), void* user,
                                       husk_program** program, husk_error* error);
/** Opens an artifact that is linked into this process, from an object file of `huskc --emit=obj`.
 *
 * @code
 * extern const unsigned char husk_model[];
 * status = husk_program_link(engine, husk_model, &program, &error);
 * @endcode
 *
 * @param engine the engine; the program keeps it
 * @param artifact the symbol of the object file
 * @param program the result, NULL after a failure
 * @param error may be NULL
 * @return HUSK_OK or the failure */
HUSK_API husk_status husk_program_link(husk_engine* engine, const void* artifact,
                                       husk_program** program, husk_error* error);
/** Drops a reference to the program. */
HUSK_API void husk_program_release(husk_program* program);

/** The kinds of values. */
enum {
  HUSK_VALUE_NONE = 0,
  HUSK_VALUE_TENSOR = 1,
  HUSK_VALUE_INT = 2,
  HUSK_VALUE_FLOAT = 3,
  HUSK_VALUE_BOOL = 4
};

/** A description of an input or output. Minimum size: through `name`. */
typedef struct husk_value_info {
  uint32_t struct_size;  /**< Set by the caller that passes the struct to be filled. */
  int32_t kind;          /**< HUSK_VALUE_*. */
  husk_dtype dtype;      /**< The element type of a tensor. */
  int32_t rank;          /**< The number of dimensions of a tensor. */
  const char* name;      /**< The name in the model. */
  const int64_t* ranges; /**< The smallest and the largest size of each dimension of an input; NULL
                            for outputs. */
  uint32_t alignment;    /**< The address of a tensor must be a multiple of this number of bytes for
                            the kernels of this device; 1 if any address will do. */
  uint32_t reserved;     /**< 0. */
  /** 1: the tensor lies in host memory (kDLCPU or kDLCUDAHost), although the program runs on
   * another device. The host may change such an input, and read such an output, after
   * husk_session_wait. */
  int32_t on_host;
  int32_t reserved2; /**< 0. */
  /** 1: a run writes to the memory of the tensor. That is so for an output, and for an input that
   * the program changes, as the model did. Such an input must be memory that may be written: Husk
   * cannot see whether it may, so whoever passes read-only memory refuses it or passes a copy. */
  int32_t is_written;
  int32_t reserved3; /**< 0. */
} husk_value_info;
/** The initial value of a husk_value_info. */
#define HUSK_VALUE_INFO_INIT {sizeof(husk_value_info), 0, 0, 0, NULL, NULL, 0, 0, 0, 0, 0, 0}

/** Returns the number of functions. Functions are numbered from 0. */
HUSK_API uint32_t husk_program_function_count(const husk_program* program);
/** Returns the name of a function, "" if there is no such function. */
HUSK_API const char* husk_program_function_name(const husk_program* program, uint32_t function);
/** Finds a function by its name; returns HUSK_NOT_FOUND if there is none. */
HUSK_API husk_status husk_program_find_function(const husk_program* program, const char* name,
                                                uint32_t* function, husk_error* error);
/** Returns the target of the variant that was chosen for this device, such as "cuda sm_90a"; "" if
 * there is no such function. */
HUSK_API const char* husk_program_function_target(const husk_program* program, uint32_t function);
/** Returns the number of steps of a function that run on the host beside the device: calls of ops
 * with husk_op.place HUSK_OP_ON_HOST; 0 if there is no such function. */
HUSK_API uint32_t husk_program_host_step_count(const husk_program* program, uint32_t function);
/** Returns the number of inputs of a function. */
HUSK_API uint32_t husk_program_input_count(const husk_program* program, uint32_t function);
/** Returns the number of outputs of a function. */
HUSK_API uint32_t husk_program_output_count(const husk_program* program, uint32_t function);
/** Describes input `index` of a function.
 * @param program the program
 * @param function the number of the function
 * @param index the number of the input
 * @param out HUSK_VALUE_INFO_INIT on entry
 * @param error may be NULL
 * @return HUSK_OK or HUSK_INVALID_ARGUMENT */
HUSK_API husk_status husk_program_input(const husk_program* program, uint32_t function,
                                        uint32_t index, husk_value_info* out, husk_error* error);
/** Describes output `index` of a function.
 * @param program the program
 * @param function the number of the function
 * @param index the number of the output
 * @param out HUSK_VALUE_INFO_INIT on entry
 * @param error may be NULL
 * @return HUSK_OK or HUSK_INVALID_ARGUMENT */
HUSK_API husk_status husk_program_output(const husk_program* program, uint32_t function,
                                         uint32_t index, husk_value_info* out, husk_error* error);

/** A description of a constant or a state. Minimum size: through `bytes`. */
typedef struct husk_storage_info {
  uint32_t struct_size; /**< Set by the caller that passes the struct to be filled. */
  husk_dtype dtype;     /**< The element type. */
  int32_t rank;         /**< The number of dimensions. */
  int32_t reserved;     /**< 0. */
  const char* name;     /**< The name in the model. */
  const int64_t* dims;  /**< `rank` sizes in elements; NULL if rank is 0. */
  uint64_t bytes;       /**< The size in bytes; the elements are contiguous. */
} husk_storage_info;
/** The initial value of a husk_storage_info. */
#define HUSK_STORAGE_INFO_INIT {sizeof(husk_storage_info), 0, 0, 0, NULL, NULL, 0}

/** Returns the number of states. States are numbered from 0. */
HUSK_API uint32_t husk_program_state_count(const husk_program* program);
/** Describes a state; out is HUSK_STORAGE_INFO_INIT on entry. Returns HUSK_OK or
 * HUSK_INVALID_ARGUMENT. */
HUSK_API husk_status husk_program_state(const husk_program* program, uint32_t state,
                                        husk_storage_info* out, husk_error* error);
/** Finds a state by its name; returns HUSK_NOT_FOUND if there is none. */
HUSK_API husk_status husk_program_find_state(const husk_program* program, const char* name,
                                             uint32_t* state, husk_error* error);
/** Returns the number of constants. Constants are numbered from 0. */
HUSK_API uint32_t husk_program_constant_count(const husk_program* program);
/** Describes a constant; out is HUSK_STORAGE_INFO_INIT on entry. Returns HUSK_OK or
 * HUSK_INVALID_ARGUMENT. */
HUSK_API husk_status husk_program_constant(const husk_program* program, uint32_t constant,
                                           husk_storage_info* out, husk_error* error);
/** Finds a constant by its name, or by another name that the model has for the same tensor
 * (metadata "husk.tied.NAME", FORMAT.md); returns HUSK_NOT_FOUND if there is none. */
HUSK_API husk_status husk_program_find_constant(const husk_program* program, const char* name,
                                                uint32_t* constant, husk_error* error);

/** A new value for a constant. Entries come in arrays, so the layout is fixed. */
typedef struct husk_constant_update {
  uint32_t constant; /**< The number of the constant. */
  uint32_t reserved; /**< 0. */
  const void* bytes; /**< Host memory of the constant's size; read during the call. */
} husk_constant_update;
/** Replaces the values of constants for all sessions of the program. If the call fails, all
 * constants keep their values; but if the device fails while values are exchanged, or if what the
 * file computes from constants when it is opened (FORMAT.md, "Folded constants") cannot be computed
 * again, the values of the named constants are undefined until a call succeeds. The call waits
 * until no run of the program is in progress, and runs that start meanwhile wait for the call. Any
 * thread may call it, but not from a callback of Husk. A state that is initialised from such a
 * constant takes the new value at its next reset.
 * @param program the program
 * @param updates `count` entries
 * @param count number of entries
 * @param error may be NULL
 * @return HUSK_OK or the failure */
HUSK_API husk_status husk_program_update_constants(husk_program* program,
                                                   const husk_constant_update* updates,
                                                   uint32_t count, husk_error* error);
/** A new value for a part of a constant. Entries come in arrays, so the layout is fixed. */
typedef struct husk_constant_part {
  uint32_t constant; /**< The number of the constant. */
  uint32_t reserved; /**< 0. */
  const void* bytes; /**< `size` bytes of host memory; read during the call. */
  uint64_t offset;   /**< The bytes of the constant before the part. */
  uint64_t size;     /**< The bytes of the part. */
} husk_constant_part;
/** Replaces parts of constants, all of them or none, in the way, on the threads and with the errors
 * of husk_program_update_constants. Several parts may be of one constant; where they overlap, the
 * last one holds. The device needs memory for each constant as a whole during the call. A part that
 * does not lie in its constant is refused with HUSK_INVALID_ARGUMENT.
 * @param program the program
 * @param parts `count` entries
 * @param count number of entries
 * @param error may be NULL
 * @return HUSK_OK or the failure */
HUSK_API husk_status husk_program_update_constant_parts(husk_program* program,
                                                        const husk_constant_part* parts,
                                                        uint32_t count, husk_error* error);
/** Returns the bytes of the copies of constants that ops have laid out for themselves
 * (husk_op.pack) when the file was opened, without the copies that the file has, and of what the
 * file computed from constants when it was opened (FORMAT.md, "Folded constants"). Programs of one
 * engine share equal copies; each program counts them. */
HUSK_API uint64_t husk_program_packed_bytes(const husk_program* program);
/** Returns how inputs and outputs nest in the model, as JSON; "" if the file does not say. */
HUSK_API const char* husk_program_pytree(const husk_program* program);

/** Returns the number of metadata entries that the author of the file added. */
HUSK_API uint32_t husk_program_metadata_count(const husk_program* program);
/** Returns the key of a metadata entry; "" if there is no such entry. */
HUSK_API const char* husk_program_metadata_key(const husk_program* program, uint32_t entry);
/** Returns the value of a metadata entry; "" if there is no such entry. */
HUSK_API const char* husk_program_metadata_value(const husk_program* program, uint32_t entry);

/** @}
 * @name Session
 * @{ */

/** An input or output of a run. Values come in arrays, so the layout is fixed.
 *
 * Tensors are DLPack's: strides are in elements, NULL strides mean a contiguous tensor, byte_offset
 * counts. A run reads its input tensors on its stream, and not afterwards.
 *
 * An output of kind INT, FLOAT or BOOL is written into the value. An output of kind TENSOR is
 * memory of the caller with the shape and strides that husk_session_output_shape returns. If only
 * the data decides the shape, the caller passes memory for the largest shape that it expects, and
 * the run writes the actual sizes, and the strides if the tensor has any, into the DLTensor. An
 * output of kind NONE asks for memory of the session: the run turns the value into a tensor of the
 * session, which is valid until the session's next run of this function or its release. */
typedef struct husk_value {
  int32_t kind;     /**< HUSK_VALUE_*. */
  int32_t reserved; /**< 0. */
  /** The value, according to `kind`. */
  union {
    DLTensor* tensor; /**< TENSOR. */
    int64_t i;        /**< INT and BOOL. */
    double f;         /**< FLOAT. */
  } as;
} husk_value;

/** How a session runs functions. */
enum {
  HUSK_MODE_AUTO = 0, /**< As a graph if the device and the function allow it, else as a list. */
  HUSK_MODE_LIST = 1, /**< As a launch list. */
  HUSK_MODE_GRAPH = 2 /**< As a graph. */
};

/** The clocks that measure steps. */
enum {
  /** The host: from before the step was enqueued, or computed by the host, until it was done. */
  HUSK_CLOCK_HOST = 0,
  /** The device: from the end of the step before until the end of the step. Before the first step,
   * and if the device is faster than the host enqueues steps, this contains the time in which the
   * device waits for the step. */
  HUSK_CLOCK_DEVICE = 1
};

/** The end of a step, for the `trace` callback. The library fills the struct; it is valid during
 * the callback. */
typedef struct husk_trace_event {
  uint32_t struct_size; /**< The size of the struct in the library's version. */
  uint32_t step;        /**< The index of the step. */
  uint32_t grid[3];     /**< The grid of a launch; 0 for other kinds. */
  uint32_t reserved;    /**< 0. */
  const char* function; /**< The name of the function. */
  const char* kind;     /**< "launch", "extern", "copy", "fill" or "read". */
  const char* name;     /**< The name of the kernel or op; "" for other kinds. */
  const char* origin;   /**< The place in the model; "" if the file does not say. */
  uint64_t nanoseconds; /**< The time of the step, which `clock` has measured. */
  int32_t clock;        /**< HUSK_CLOCK_*. */
  int32_t reserved2;    /**< 0. */
} husk_trace_event;

/** The options of husk_session_create. Minimum size: through `mode`. */
typedef struct husk_session_options {
  uint32_t struct_size;  /**< The size of this struct, set by whoever provides it. */
  int32_t mode;          /**< HUSK_MODE_*. */
  int32_t full_edges;    /**< 1: no programmatic dependent launch, in graphs and on streams. */
  int32_t poison_memory; /**< 1: for debugging, the arena is filled with 0xFF before each run. */
  /** The memory that running independent work in parallel may cost, in percent more than the
   * smallest plan: 0 is the default, 25; -1 is none. */
  int32_t parallel_memory_percent;
  /** 1: a misaligned input is copied to memory of the session; 0: it is refused. */
  int32_t copy_misaligned;
  uint64_t bound_limit;  /**< Plan for the largest shapes if that takes at most this many bytes; 0:
                            256 MiB. */
  uint64_t memory_limit; /**< Bytes of memory, on the device and for steps on the host, that the
                            session may use besides its state; 0: no limit. */
  uint64_t loop_limit;   /**< The number of times that one run may return to the start of a loop; 0:
                            2^32. */
  int32_t external_arena; /**< 1: the session does not allocate its arena; the caller calls
                             husk_session_set_arena before the first run. */
  int32_t reserved;       /**< 0. */
  /** Called for each step, in order, when the work of the step is done; may be NULL. It is for
   * profiles and debugging: runs become launch lists. A device that has a clock
   * (husk_port.event_record) gets up to 64 steps before the session waits for them and calls
   * `trace` for each, so that one step follows another as it does in other runs; an error of the
   * device then names all of these steps. Otherwise, and for steps on the host, the session waits
   * for each step. All calls come before husk_session_run returns. */
  void (*trace)(void* user, const husk_trace_event* event);
  void* trace_user; /**< The first argument of `trace`. */
  /** 1: tensors of a program for a device may lie in host memory (kDLCPU or kDLCUDAHost), all of
   * them or some. The session has memory of the device for each such tensor: a run copies inputs
   * there before its steps, and outputs, and inputs that it writes to, back after them. When
   * husk_session_run returns, it has read the inputs; if it copies something back, it has waited
   * until all work of the run is done, and reports an assert that failed. The bytes between the
   * elements of an output that is not contiguous are undefined. An output of kind HUSK_VALUE_NONE
   * is memory of the device. 0: tensors in host memory are refused, unless husk_value_info.on_host
   * says that they belong there. */
  int32_t stage_host_tensors;
  int32_t reserved2; /**< 0. */
} husk_session_options;
/** The initial value of a husk_session_options. */
#define HUSK_SESSION_OPTIONS_INIT \
  {sizeof(husk_session_options), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, NULL, NULL, 0, 0}

/** Creates a session: allocates and initialises its state, and plans memory if the ranges of the
 * inputs allow it.
 * @param program the program; the session keeps it
 * @param options copied; NULL: the defaults
 * @param session the result, NULL after a failure
 * @param error may be NULL
 * @return HUSK_OK or the failure */
HUSK_API husk_status husk_session_create(husk_program* program, const husk_session_options* options,
                                         husk_session** session, husk_error* error);
/** Waits for the session's last run and frees the session. */
HUSK_API void husk_session_release(husk_session* session);

/** Narrows the range of an input for this session. The session then plans for the narrower range
 * and refuses inputs outside of it.
 * @param session the session
 * @param function the number of the function
 * @param input the number of the input, a tensor or an int
 * @param dim the dimension of a tensor; 0 for an int
 * @param min the smallest size or value
 * @param max the largest size or value; the range must lie within the range of the file
 * @param error may be NULL
 * @return HUSK_OK or the failure */
HUSK_API husk_status husk_session_set_range(husk_session* session, uint32_t function,
                                            uint32_t input, uint32_t dim, int64_t min, int64_t max,
                                            husk_error* error);
/** Prepares the session for inputs of these shapes: plans and allocates memory and instantiates
 * graphs. A graph that has captured calls of ops is for these shapes only; runs with other shapes
 * use the launch list. With stage_host_tensors it allocates memory for the inputs whose
 * DLTensor.device is the host, and, if there are any, for the outputs of a known shape. Besides
 * husk_session_create and husk_session_set_range this is the only call that allocates device
 * memory, or memory for steps on the host, except that husk_session_run allocates if
 *
 * - a size that only the data decides has no bound,
 * - an output was passed as HUSK_VALUE_NONE,
 * - copy_misaligned is set and an input is misaligned, or
 * - stage_host_tensors is set and a tensor lies in host memory for which no earlier call has
 *   allocated enough.
 *
 * The memory and the shapes of outputs that it has found hold for every run whose tensors have the
 * same sizes and strides, and whose ints, floats and bools are equal, until the next resize or run
 * of the function with others. A caller compares these with those of its last resize.
 *
 * @param session the session
 * @param function the number of the function
 * @param inputs the inputs; tensors need a shape, their data may be NULL
 * @param input_count number of inputs
 * @param error may be NULL
 * @return HUSK_OK or the failure */
HUSK_API husk_status husk_session_resize(husk_session* session, uint32_t function,
                                         const husk_value* inputs, uint32_t input_count,
                                         husk_error* error);
/** Returns the size in bytes of the arena that all plans so far need. The session has allocated
 * that many bytes unless external_arena is set. */
HUSK_API uint64_t husk_session_arena_bytes(const husk_session* session);
/** Makes memory of the caller the session's arena from its next run on, until the next call or the
 * session's release. The call waits for the session's last run. A run or resize that needs more
 * than `bytes` fails with HUSK_NEEDS_RESIZE. A resize makes a graph only if the arena is large
 * enough, so call husk_session_resize again afterwards.
 * @param session the session
 * @param memory device memory at an address that is a multiple of 256
 * @param bytes size of the memory
 * @param error may be NULL
 * @return HUSK_OK or the failure */
HUSK_API husk_status husk_session_set_arena(husk_session* session, void* memory, uint64_t bytes,
                                            husk_error* error);
/** Returns the shape of an output for the inputs of the last resize or run. The call fails if only
 * the data decides the shape and no run has ended yet.
 * @param session the session
 * @param function the number of the function
 * @param index the number of the output, a tensor
 * @param sizes one size in elements for each dimension is written here
 * @param strides one stride in elements for each dimension is written here
 * @param error may be NULL
 * @return HUSK_OK or HUSK_INVALID_ARGUMENT */
HUSK_API husk_status husk_session_output_shape(husk_session* session, uint32_t function,
                                               uint32_t index, int64_t* sizes, int64_t* strides,
                                               husk_error* error);
/** Enqueues one run and returns. The call allocates nothing, with the exceptions that
 * husk_session_resize names, and waits only if a step must read a value from the device or runs on
 * the host (husk_program_host_step_count), or to copy a tensor (stage_host_tensors). Before such a
 * step the call waits for the stream, if it has enqueued work there since it last waited; then it
 * computes the step on the calling thread and on husk_engine_options.threads. If a run fails, its
 * outputs and the state that it wrote are undefined; the session stays usable.
 *
 * Nobody writes to an input, or reads or writes an output, until the run has ended:
 * husk_session_wait or the stream tells. If another thread or process does so, the results are
 * undefined; operators of libhusk_ops then still touch no memory but that of their tensors,
 * whatever the numbers in them become. The arena is the session's alone until then, also if the
 * application lent it. A byte of a bool is 0 or 1: compiled kernels may rely on it, in addresses
 * too.
 *
 * The application may capture the stream's work in a graph of its own, by cuStreamBeginCapture for
 * instance. Then the call records the launch list of the run: it runs nothing, waits for nothing
 * and allocates nothing, and `trace` is not called. It fails with HUSK_UNSUPPORTED, before it
 * records anything, if the function has several segments or steps on the host, calls an op without
 * HUSK_OP_CAPTURABLE, needs more memory than the session has, or would have to copy a tensor
 * (stage_host_tensors); the capture stays valid. A launch
 * of that graph is no run that the session knows. It has the memory of the session, of the inputs
 * and of the outputs as they were during the capture, and it must not be in progress together with
 * a run of the session. It is not launched again after a husk_session_resize,
 * husk_session_set_range or husk_session_set_arena of the session, an update of constants, or the
 * release of the session. The next call that waits reports an assert that failed in it.
 * @param session the session
 * @param function the number of the function
 * @param stream a stream of the port; NULL: the default stream of the device
 * @param inputs the inputs
 * @param input_count number of inputs
 * @param outputs the outputs; husk_value says what the call writes to them
 * @param output_count number of outputs
 * @param error may be NULL
 * @return HUSK_OK or the failure */
HUSK_API husk_status husk_session_run(husk_session* session, uint32_t function, void* stream,
                                      const husk_value* inputs, uint32_t input_count,
                                      husk_value* outputs, uint32_t output_count,
                                      husk_error* error);
/** Waits until the session's last run is done, and reports a failure on the device. If an assert in
 * a device kernel failed, an index out of range for instance, the status is HUSK_KERNEL and the
 * text is that of the assert. Such a failure is reported once: by the next call that waits, or by
 * the next run, which then does nothing. The outputs and states of the failed run are undefined. */
HUSK_API husk_status husk_session_wait(husk_session* session, husk_error* error);
/** The number of marks of a session. */
enum { HUSK_SESSION_MARKS = 4 };
/** Marks the end of the work that the stream of the session's last run has now: the runs, and what
 * the caller has enqueued there, husk_engine_copy for instance. husk_session_wait_mark waits for
 * that work and for none that comes later. The first call for a mark allocates.
 * @param session the session
 * @param mark the number of the mark, less than HUSK_SESSION_MARKS. A mark that was set before
 * moves to the new place.
 * @param error may be NULL
 * @return HUSK_OK; HUSK_INVALID_ARGUMENT if there is no such mark; HUSK_UNSUPPORTED if the
 * application captures the stream, or if the device has memory of its own and the port cannot wait
 * for a part of the work (husk_port.event_wait); or another failure */
HUSK_API husk_status husk_session_mark(husk_session* session, uint32_t mark, husk_error* error);
/** Waits for the work before a mark, and reports a failure as husk_session_wait does, also one of a
 * later run that the device has come to. A mark that was never set is the end of all work.
 * @param session the session
 * @param mark the number of the mark
 * @param error may be NULL
 * @return HUSK_OK or the failure */
HUSK_API husk_status husk_session_wait_mark(husk_session* session, uint32_t mark,
                                            husk_error* error);

/** Copies a state to host memory of its size, after waiting for the session's last run. */
HUSK_API husk_status husk_session_state_get(husk_session* session, uint32_t state, void* bytes,
                                            husk_error* error);
/** Copies host memory of its size to a state, after waiting for the session's last run. */
HUSK_API husk_status husk_session_state_set(husk_session* session, uint32_t state,
                                            const void* bytes, husk_error* error);
/** Sets a state to its initial value, after waiting for the session's last run. */
HUSK_API husk_status husk_session_state_reset(husk_session* session, uint32_t state,
                                              husk_error* error);
/** Copies a state from another session of the same program, after waiting for the last runs of
 * both. No other thread may use the session `from` during the call. */
HUSK_API husk_status husk_session_state_copy(husk_session* session, uint32_t state,
                                             husk_session* from, husk_error* error);

/** Counts of a session and a function. Minimum size: through `steps`. */
typedef struct husk_session_stats {
  uint32_t struct_size;        /**< Set by the caller that passes the struct to be filled. */
  uint32_t steps;              /**< Steps of the function. */
  uint32_t graph_nodes;        /**< Nodes of the graphs of all segments; 0: the function runs as a
                                  list. */
  uint32_t graph_edges;        /**< Edges of the graphs. */
  uint32_t programmatic_edges; /**< Edges that are programmatic dependent launches. */
  uint32_t bounded;            /**< 1: the plan is for the largest shapes. */
  uint64_t arena_bytes;        /**< Bytes that the plan takes. */
  uint64_t arena_lower_bound;  /**< The largest sum of the bytes of buffers that are live at once,
                                  alignment included. */
  uint64_t runs_as_graph;      /**< Runs since the session was created in which all segments, or
                                  some, were graphs. */
  uint64_t runs_as_list;       /**< The other runs since the session was created. */
  uint64_t nodes_patched;      /**< Graph nodes changed since the session was created. */
  uint64_t dynamic_bytes;      /**< Memory of the session outside of the arena: buffers whose size
                                  only the data decides, outputs, copied inputs and outputs,
                                  operands of captured calls. */
  uint32_t segments;           /**< Segments of the function. */
  uint32_t dynamic;            /**< 1: a run may allocate, since only the data decides some size and
                                  nothing bounds it. */
  uint64_t host_arena_bytes;   /**< Bytes that the plan takes in host memory beside the device, for
                                  steps on the host. */
} husk_session_stats;
/** The initial value of a husk_session_stats. */
#define HUSK_SESSION_STATS_INIT \
  {sizeof(husk_session_stats), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}

/** Writes the counts of a function to `out`.
 * @param session the session
 * @param function the number of the function
 * @param out HUSK_SESSION_STATS_INIT on entry
 * @param error may be NULL
 * @return HUSK_OK or HUSK_INVALID_ARGUMENT */
HUSK_API husk_status husk_session_stats_get(const husk_session* session, uint32_t function,
                                            husk_session_stats* out, husk_error* error);

/** @} */

#ifdef __cplusplus
}
#endif
#endif
