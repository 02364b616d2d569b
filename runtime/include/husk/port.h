/** @file
 * The device interface: the functions that a port implements so that programs run on its devices. A
 * port includes this header and <husk/op.h>, may use the inline helpers of <husk/detail/>, and
 * calls nothing else of Husk; the runtime includes no port. The application passes a port to the
 * engine in husk_engine_options.
 *
 * Threads: every function may be called from any thread, on different devices or streams at the
 * same time; calls that name the same stream come from one thread at a time.
 *
 * Errors: a function that fails fills `error`, which is never NULL here, returns error->code and
 * keeps nothing that it created.
 *
 * Memory: only functions that create something allocate host memory; launch, copy, fill and the
 * exec_* functions never do.
 *
 * Structs: husk.h states the rules of structs that begin with struct_size. Here the runtime
 * provides every struct except husk_port and husk_port_graphs, so the runtime sets struct_size; a
 * port refuses a struct that is smaller than its minimum size with HUSK_INVALID_ARGUMENT. */
#ifndef HUSK_PORT_H
#define HUSK_PORT_H

#include <husk/op.h>

#ifdef __cplusplus
extern "C" {
#endif

/** The number of this interface. The runtime refuses a port with another number. It goes up if an
 * existing function or field changes; an appended one only raises a struct_size. */
#define HUSK_PORT_ABI 5

/** The formats of images. Files contain them, so they never change. */
enum { HUSK_IMAGE_ELF = 1, HUSK_IMAGE_CUBIN = 2, HUSK_IMAGE_PTX = 3 };

/** A description of a device. Minimum size: through `arch`. */
typedef struct husk_port_properties {
  uint32_t struct_size;   /**< Set by the caller that passes the struct to be filled. */
  int32_t dl_device_type; /**< DLPack's device type of tensors on the device. */
  int32_t device_index;   /**< DLPack's device index of tensors on the device. */
  int32_t host_memory;    /**< 1: device memory is host memory, so the host may load and store. */
  char name[128];         /**< "NVIDIA H200", "x86-64 host"; NUL-terminated. */
  char arch[32];          /**< "sm_90a", "avx512"; NUL-terminated. */
  uint64_t memory_bytes;  /**< Total memory of the device in bytes; 0 if unknown. */
} husk_port_properties;
/** The initial value of a husk_port_properties. */
#define HUSK_PORT_PROPERTIES_INIT {sizeof(husk_port_properties), 0, 0, 0, {0}, {0}, 0}

/** An id that names one group of ranks, all of which got it from the rank that created it
 * (husk_group_id_create). It has no meaning but to the port, and the layout is fixed. */
typedef struct husk_group_id {
  uint8_t bytes[128]; /**< What the port has written. */
} husk_group_id;

/** The group of ranks that a device joins. Minimum size: through `timeout_ms`. */
typedef struct husk_port_group {
  uint32_t struct_size;    /**< The size of this struct, set by whoever provides it. */
  uint32_t rank;           /**< The number of this device, less than `world`. */
  uint32_t world;          /**< The number of ranks, at least 2. */
  uint32_t timeout_ms;     /**< How long this rank waits for another one; never 0. */
  const husk_group_id* id; /**< Equal on all ranks. Valid during the call. */
  /** husk_engine_options.cancel; NULL if there is none. The port asks it while a wait for a run has
   * to do with other ranks, on the thread that waits. A value other than 0 ends the wait with
   * HUSK_CANCELLED, and the group, as a rank that fails does. */
  int32_t (*cancel)(void* user);
  void* cancel_user; /**< The argument of `cancel`. */
} husk_port_group;
/** The initial value of a husk_port_group. */
#define HUSK_PORT_GROUP_INIT {sizeof(husk_port_group), 0, 1, 1, NULL, NULL, NULL}

/** A binary with kernels. Minimum size: through `name`. */
typedef struct husk_port_image {
  uint32_t struct_size; /**< The size of this struct, set by whoever provides it. */
  int32_t format;       /**< HUSK_IMAGE_*. */
  const void* data;   /**< `size` bytes without a terminating NUL; unchanged until module_unload. */
  uint64_t size;      /**< Bytes. */
  const char* name;   /**< The name for messages. */
  const void* linked; /**< NULL; or the table of an object file of `huskc --emit=obj`, if the image
                         is code of the process. `size` is 0 then. */
} husk_port_image;
/** The initial value of a husk_port_image. */
#define HUSK_PORT_IMAGE_INIT {sizeof(husk_port_image), 0, NULL, 0, NULL, NULL}

/** A kernel of an image. Minimum size: through `threads`. */
typedef struct husk_port_kernel {
  uint32_t struct_size;  /**< The size of this struct, set by whoever provides it. */
  uint32_t param_count;  /**< The number of parameters. */
  const char* symbol;    /**< The kernel's name in the image. */
  const uint8_t* params; /**< The husk_dtype of each of `param_count` parameters, in order. */
  uint32_t shared_bytes; /**< Dynamic shared memory of a block, in bytes. */
  uint32_t cluster;      /**< Blocks of a cluster along x; 1: no clusters. */
  uint32_t threads;      /**< Threads of a block: block.x * block.y * block.z. */
  uint32_t reserved;     /**< 0. */
} husk_port_kernel;
/** The initial value of a husk_port_kernel. */
#define HUSK_PORT_KERNEL_INIT {sizeof(husk_port_kernel), 0, NULL, NULL, 0, 1, 1, 0}

/** The bits of husk_launch.flags. */
enum {
  HUSK_LAUNCH_COOPERATIVE = 1, /**< All blocks run at the same time. */
  /** Programmatic dependent launch: the kernel waits for its predecessor itself, so on a stream it
   * may start before the predecessor has ended. Graphs ignore the bit and use their edges. */
  HUSK_LAUNCH_PROGRAMMATIC = 2
};

/** One launch of a kernel. A launch whose grid has a zero dimension never reaches the port. Minimum
 * size: through `params`. */
typedef struct husk_launch {
  uint32_t struct_size;  /**< The size of this struct, set by whoever provides it. */
  uint32_t grid[3];      /**< Blocks along x, y and z. */
  uint32_t block[3];     /**< Threads of a block along x, y and z. */
  uint32_t shared_bytes; /**< Dynamic shared memory of a block, in bytes. */
  uint32_t cluster;      /**< Blocks of a cluster along x; 1: no clusters. */
  uint32_t flags;        /**< HUSK_LAUNCH_* bits. */
  void** params;         /**< params[i] is the address of the bytes of parameter i, as CUDA's
                            kernelParams; readable during the call only. */
} husk_launch;
/** The initial value of a husk_launch. */
#define HUSK_LAUNCH_INIT {sizeof(husk_launch), {1, 1, 1}, {1, 1, 1}, 0, 1, 0, NULL}

/** One launch of a launch_list. Entries come in arrays, so the layout is fixed. */
typedef struct husk_listed_launch {
  void* kernel;              /**< The kernel, from kernel_get. */
  const husk_launch* launch; /**< Its launch. */
} husk_listed_launch;

/** The code of an object file of `huskc --emit=obj` for launches that follow one another. It calls
 * their kernels with the arguments of each, which lie at fixed distances behind `params`, those of
 * the first launch. It returns 0; or what the first kernel that failed returned, and then calls no
 * further one and sets `*failed` to the index of its launch. */
typedef int32_t (*husk_linked_launches)(void** params, uint32_t* failed);

/** One copy of an upload_batch. Entries come in arrays, so the layout is fixed. */
typedef struct husk_upload {
  void* to;         /**< Device memory. */
  const void* from; /**< Host memory. */
  uint64_t size;    /**< Bytes. */
} husk_upload;

/** The mapping of a whole file. A port may read bytes in this range from the file instead of from
 * memory; that is faster for pages that were not touched yet, and does not touch them. Minimum
 * size: through `size`. */
typedef struct husk_mapping {
  uint32_t struct_size; /**< The size of this struct, set by whoever provides it. */
  int32_t file;         /**< The file's descriptor. */
  const void* begin;    /**< The address of the file's first byte. */
  uint64_t size;        /**< Bytes of the file. */
} husk_mapping;
/** The initial value of a husk_mapping. */
#define HUSK_MAPPING_INIT {sizeof(husk_mapping), -1, NULL, 0}

/** An edge from node `from` of a graph to the node that is being added. Edges come in arrays, so
 * the layout is fixed. */
typedef struct husk_graph_edge {
  uint32_t from;         /**< The node that runs first. */
  uint32_t programmatic; /**< 1: the new node may start early; its kernel waits for `from`. */
} husk_graph_edge;

/** Explicit graphs. Nodes are numbered 0, 1, 2… in the order in which they are added. After a
 * failed exec_set_* the exec is usable with the values that it had before. An exec may be launched
 * on any stream; a launch starts after the previous one of the same exec has ended. The functions
 * through exec_destroy are required. Minimum size: through `exec_destroy`. */
typedef struct husk_port_graphs {
  uint32_t struct_size; /**< The size of this struct, set by whoever provides it. */
  /** Creates an empty graph. */
  husk_status (*graph_create)(void* device, void** graph, husk_error* error);
  /** Adds a kernel node with `edge_count` incoming edges. */
  husk_status (*graph_add_kernel)(void* device, void* graph, void* kernel,
                                  const husk_launch* launch, const husk_graph_edge* edges,
                                  uint32_t edge_count, husk_error* error);
  /** Adds a node that copies `size` bytes. */
  husk_status (*graph_add_copy)(void* device, void* graph, void* to, const void* from,
                                uint64_t size, const husk_graph_edge* edges, uint32_t edge_count,
                                husk_error* error);
  /** Adds a node that fills memory; the arguments are those of husk_port.fill. */
  husk_status (*graph_add_fill)(void* device, void* graph, void* to, uint64_t pattern,
                                uint32_t width, uint64_t count, const husk_graph_edge* edges,
                                uint32_t edge_count, husk_error* error);
  /** Creates an exec, which can be launched, from a graph. */
  husk_status (*graph_instantiate)(void* device, void* graph, void** exec, husk_error* error);
  /** Frees a graph; execs that were created from it stay valid. */
  void (*graph_destroy)(void* device, void* graph);
  /** Changes the kernel and the launch of a kernel node. */
  husk_status (*exec_set_kernel)(void* device, void* exec, uint32_t node, void* kernel,
                                 const husk_launch* launch, husk_error* error);
  /** Changes the arguments of a copy node. */
  husk_status (*exec_set_copy)(void* device, void* exec, uint32_t node, void* to, const void* from,
                               uint64_t size, husk_error* error);
  /** Changes the arguments of a fill node. */
  husk_status (*exec_set_fill)(void* device, void* exec, uint32_t node, void* to, uint64_t pattern,
                               uint32_t width, uint64_t count, husk_error* error);
  /** Enqueues a launch of the exec on `stream`. */
  husk_status (*exec_launch)(void* device, void* exec, void* stream, husk_error* error);
  /** Waits for the last launch of the exec and frees it. */
  void (*exec_destroy)(void* device, void* exec);

  /* The functions from capture_begin to captured_destroy are optional: a port has all four, or sets
   * them to NULL. */

  /** Begins to capture work: until capture_end, what the calling thread enqueues on `stream` is
   * recorded in place of running. The stream is one of stream_create that has no work and that
   * nobody else uses. The calling thread meanwhile calls functions of the port that enqueue work,
   * and no others, on no other stream. */
  husk_status (*capture_begin)(void* device, void* stream, husk_error* error);
  /** Ends a capture, on the thread that began it. The stream captures no longer, whatever the
   * function returns. It fails if some call since capture_begin made the capture invalid, by
   * waiting for the stream for instance. Otherwise `*captured` is the work, in the order of the
   * stream. */
  husk_status (*capture_end)(void* device, void* stream, void** captured, husk_error* error);
  /** Adds a node that does the captured work, which the graph copies. No exec_set_* changes it. */
  husk_status (*graph_add_captured)(void* device, void* graph, void* captured,
                                    const husk_graph_edge* edges, uint32_t edge_count,
                                    husk_error* error);
  /** Frees captured work; graphs with such nodes stay valid. */
  void (*captured_destroy)(void* device, void* captured);
} husk_port_graphs;

/** A port: a table of functions. The table must outlive the engine. Minimum size: through
 * `free_host_flag`. */
typedef struct husk_port {
  uint32_t struct_size; /**< The size of this struct, set by whoever provides it. */
  uint32_t abi;         /**< HUSK_PORT_ABI. */
  const char* name;     /**< "host", "cuda": the port that targets in files name. */
  void* user;           /**< The first argument of `open`. */

  /** Opens the device with number `index`. `allocator` and `threads` outlive the device; if
   * `threads` is NULL, work of the host runs on the calling thread. */
  husk_status (*open)(void* user, int32_t index, const husk_allocator* allocator,
                      const husk_threads* threads, void** device, husk_error* error);
  /** Closes a device that `open` returned. */
  void (*close)(void* device);
  /** Describes the device. The caller has set out->struct_size; the function writes at most that
   * many bytes. */
  void (*properties)(void* device, husk_port_properties* out);

  /** Returns how well code for `arch` in `format` runs on the device: 0 if it does not run, and a
   * larger number for a better match. */
  int32_t (*arch_rank)(void* device, const char* arch, int32_t format);

  /** Allocates device memory at an address that is a multiple of 256. */
  husk_status (*alloc)(void* device, uint64_t size, void** memory, husk_error* error);
  /** Frees device memory that no work uses any more; NULL is allowed. */
  void (*free)(void* device, void* memory);

  /** Copies from host to device memory. The function has read `from` when it returns, but the bytes
   * may reach the device later, in the order of the stream. */
  husk_status (*upload)(void* device, void* stream, void* to, const void* from, uint64_t size,
                        husk_error* error);
  /** Copies from device to host memory. The bytes are in `to` when the function returns. */
  husk_status (*download)(void* device, void* stream, void* to, const void* from, uint64_t size,
                          husk_error* error);
  /** Enqueues a copy. Each side is device memory, memory of alloc_host, or, if the port has
   * alloc_host, other host memory. The function may wait for a copy of such other memory, and has
   * read or written it when it returns. */
  husk_status (*copy)(void* device, void* stream, void* to, const void* from, uint64_t size,
                      husk_error* error);
  /** Enqueues writing `count` elements of `width` bytes (1, 2, 4 or 8). Each element is the low
   * `width` bytes of `pattern`. */
  husk_status (*fill)(void* device, void* stream, void* to, uint64_t pattern, uint32_t width,
                      uint64_t count, husk_error* error);

  /** Creates a stream, for callers that have none. Other functions also take a stream of the caller
   * (a CUstream); NULL is the device's default stream. */
  husk_status (*stream_create)(void* device, void** stream, husk_error* error);
  /** Frees a stream that stream_create returned. */
  void (*stream_destroy)(void* device, void* stream);
  /** Returns after all work on the stream is done. */
  husk_status (*stream_wait)(void* device, void* stream, husk_error* error);

  /** Loads an image. */
  husk_status (*module_load)(void* device, const husk_port_image* image, void** module,
                             husk_error* error);
  /** Unloads an image, with its kernels. */
  void (*module_unload)(void* device, void* module);
  /** Finds a kernel of a module; it is valid until module_unload. The function compares the
   * parameters with those in the image if the driver can tell them. */
  husk_status (*kernel_get)(void* device, void* module, const husk_port_kernel* desc, void** kernel,
                            husk_error* error);

  /** Enqueues a launch of a kernel. */
  husk_status (*launch)(void* device, void* stream, void* kernel, const husk_launch* launch,
                        husk_error* error);

  /** The functions for graphs; NULL if the device has no graphs. */
  const husk_port_graphs* graphs;

  /* The functions from enter to find_op are optional; a port that lacks one sets it to NULL. */

  /** Makes the device current once for many calls: until `leave`, the calling thread passes
   * `*entered` to every function in place of `device`. The pairs do not nest. */
  husk_status (*enter)(void* device, void** entered, husk_error* error);
  /** Ends what `enter` began, on the same thread. */
  void (*leave)(void* entered);

  /** Copies many pieces from host to device memory, as fast as the device takes them. When the
   * function returns, all bytes have arrived, for every stream. No work uses the targets. The
   * function may start threads, which end before it returns. `mapping` is NULL, or a range in which
   * every `from` lies. */
  husk_status (*upload_batch)(void* device, const husk_upload* uploads, uint32_t count,
                              const husk_mapping* mapping, husk_error* error);

  /** Makes host memory readable by kernels, on devices that read host memory as fast as their own.
   * `*address` is where kernels read the bytes. The bytes stay unchanged until `unmap`. The
   * function returns HUSK_UNSUPPORTED if the bytes should be copied to device memory instead. */
  husk_status (*map)(void* device, const void* memory, uint64_t size, void** address,
                     husk_error* error);
  /** Ends `map` of the same bytes. */
  void (*unmap)(void* device, const void* memory, uint64_t size);

  /** Writes the port's own op with that name to `op`, whose struct_size the caller has set. The
   * runtime asks for ops that the application did not register. The function opens the library that
   * the op needs; the op can be called until the device is closed.
   * @return HUSK_OK, HUSK_NOT_FOUND if the port has no such op, or another failure */
  husk_status (*find_op)(void* device, const char* name, husk_op* op, husk_error* error);

  /** Allocates a u32 in host memory that kernels can write at the same address. It is 0 at first;
   * the host sees what a kernel stored after waiting for the kernel. `*flag` is NULL if the
   * function fails. Programs whose kernels have asserts use it; every port has the function. */
  husk_status (*alloc_host_flag)(void* device, volatile uint32_t** flag, husk_error* error);
  /** Frees a flag that no work uses any more; NULL is allowed. */
  void (*free_host_flag)(void* device, volatile uint32_t* flag);

  /* The functions below are optional; a port that lacks one sets it to NULL. */

  /** Allocates host memory, at an address that is a multiple of 256, which `copy` reads and writes
   * in the order of a stream. The address is the same for the host and for `copy`. Programs with
   * steps on the host (Buffer.device of FORMAT.md) use it; they are refused on a port without the
   * function. `*memory` is NULL if the function fails. */
  husk_status (*alloc_host)(void* device, uint64_t size, void** memory, husk_error* error);
  /** Frees memory that alloc_host allocated and no work uses any more; NULL is allowed. */
  void (*free_host)(void* device, void* memory);

  /** Tells whether the application captures the work of a stream in
   * place of running it: it sets `*capturing` to 1 or 0. While a stream captures, `launch`, `copy`
   * and `fill` on it are recorded; the functions that wait for it fail. A port without it has no
   * streams that capture. */
  husk_status (*stream_capturing)(void* device, void* stream, int32_t* capturing,
                                  husk_error* error);

  /** Enqueues `count` launches in their order, as `launch` does with each of them. A launch whose
   * grid has a zero dimension does nothing. If one fails, the function enqueues no further one and
   * sets `*failed` to its index. A port has the function if one call for many launches saves time
   * on its device. */
  husk_status (*launch_list)(void* device, void* stream, const husk_listed_launch* launches,
                             uint32_t count, uint32_t* failed, husk_error* error);

  /* The functions from event_create to event_elapsed measure steps with the clock of the device. A
   * port has all four, or sets them to NULL if all work is done when a call returns, so that the
   * clock of the host measures as well. event_wait, which was appended later, waits for one. */

  /** Creates an event, which takes the time of the device. `*event` is NULL if the function
   * fails. */
  husk_status (*event_create)(void* device, void** event, husk_error* error);
  /** Frees an event that no stream has any more; NULL is allowed. */
  void (*event_destroy)(void* device, void* event);
  /** Enqueues that the event takes the time when the work before it on the stream is done. An event
   * that was recorded before forgets its time. */
  husk_status (*event_record)(void* device, void* event, void* stream, husk_error* error);
  /** Writes the nanoseconds between the times of two events, which were recorded on one stream and
   * whose work is done. */
  husk_status (*event_elapsed)(void* device, void* begin, void* end, uint64_t* nanoseconds,
                               husk_error* error);

  /** Enqueues the same as launch_list by the code that an object file has for these launches, whose
   * kernels are code of the same object file. The grid of each launch is 1 1 1. A port with this
   * function has launch_list, too. A port that passes calls on to another one and has its own
   * `launch` sets it to NULL, or has its own. */
  husk_status (*launch_linked)(void* device, void* stream, husk_linked_launches code,
                               const husk_listed_launch* launches, uint32_t* failed,
                               husk_error* error);

  /** Returns what arch_rank returns on a device whose properties name the architecture
   * `device_arch`. No device is opened, and none need be there. The value is 0 if the port knows no
   * such architecture. Tools ask for it that say whether a file runs on another machine. */
  int32_t (*arch_rank_on)(const char* device_arch, const char* arch, int32_t format);

  /* The functions below are for programs of several ranks. A port has all three, or sets them to
   * NULL. Its ops, such as husk::all_reduce, work in the group that the device has joined. */

  /** Writes an id that no other call has written, on any machine. */
  husk_status (*group_id)(void* user, husk_group_id* id, husk_error* error);
  /** Joins a group, once for a device, and leaves it when the device is closed. The function
   * returns when all ranks have joined, or fails after group->timeout_ms. From then on no function
   * and no op waits longer than that for another rank. If a rank fails, leaves or calls something
   * else than the others, the calls of all ranks fail, and the group is of no more use. */
  husk_status (*join)(void* device, const husk_port_group* group, husk_error* error);
  /** Compares 32 bytes with those of the other ranks. Each rank calls it, and it fails on all of
   * them if the bytes of two ranks differ. */
  husk_status (*agree)(void* device, const uint8_t* bytes, husk_error* error);

  /** Returns when the work is done that the stream had at the last event_record of the event. Work
   * that was enqueued later may go on. The event was recorded on a stream that did not capture.
   * Optional: a port with this function has the functions from event_create to event_elapsed. */
  husk_status (*event_wait)(void* device, void* event, husk_error* error);
} husk_port;

#ifdef __cplusplus
}
#endif
#endif
