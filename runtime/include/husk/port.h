/* The device interface: what a place to run on must be able to do. A port includes this header and <husk/op.h> and
 * nothing else of Husk; the runtime never includes a port. The application hands one over in husk_engine_options.
 *
 * Threads: every function may be called from any thread, on different devices or streams at once; calls that name the
 * same stream come from one thread at a time. Errors: a function that fails fills `error` (never NULL here) and leaves
 * nothing behind. No function allocates host memory except those that create something; launch, copy, fill and the
 * exec_* functions never do. */
#ifndef HUSK_PORT_H
#define HUSK_PORT_H

#include <husk/op.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HUSK_PORT_ABI 4

/* Formats of images. Values are frozen: files hold them. */
enum { HUSK_IMAGE_ELF = 1, HUSK_IMAGE_CUBIN = 2, HUSK_IMAGE_PTX = 3 };

typedef struct husk_port_properties {
  char name[128];          /* "NVIDIA H200", "x86-64 host" */
  char arch[32];           /* "sm_90a", "avx512" */
  int32_t dl_device_type;  /* DLPack's device type of its tensors */
  int32_t device_index;
  int32_t host_memory;     /* 1 if device memory is host memory: copies may be plain loads and stores */
  uint64_t memory_bytes;
} husk_port_properties;

typedef struct husk_port_image {
  int32_t format;
  const void* data;        /* stays mapped and unchanged until module_unload; NOT NUL-terminated beyond size */
  uint64_t size;
  const char* name;        /* for messages */
} husk_port_image;

typedef struct husk_port_kernel {
  const char* symbol;
  const uint8_t* params;   /* husk_dtype of each parameter, in order */
  uint32_t param_count;
  uint32_t shared_bytes;   /* dynamic */
  uint32_t cluster;        /* blocks along x, 1 if none */
  uint32_t threads;        /* block.x * block.y * block.z */
} husk_port_kernel;

/* One launch. params[i] points at the bytes of parameter i (CUDA's kernelParams convention), readable during the call
 * only. A grid with a zero dimension never reaches the port. */
typedef struct husk_launch {
  uint32_t grid[3];
  uint32_t block[3];
  uint32_t shared_bytes;
  uint32_t cluster;
  uint32_t flags;          /* HUSK_LAUNCH_* */
  uint32_t reserved;
  void** params;
} husk_launch;
/* PROGRAMMATIC: the kernel waits first, so on a stream it may start before the kernel ahead of it has ended. Graphs do not look
 * at it: there the edges say so. */
enum { HUSK_LAUNCH_COOPERATIVE = 1, HUSK_LAUNCH_PROGRAMMATIC = 2 };

/* Host memory that goes to `to` on the device. */
typedef struct husk_load {
  void* to;
  const void* from;
  uint64_t size;
} husk_load;
/* The mapping of a file from its first byte on. What lies in it may be read from the file instead, which is faster where the
 * pages were not touched yet, and leaves them so. */
typedef struct husk_mapping {
  const void* begin;
  uint64_t size;
  int32_t file;            /* its descriptor */
  int32_t reserved;
} husk_mapping;

/* A node of a graph before node `to`; programmatic edges let `to` start early and wait inside its kernel. */
typedef struct husk_graph_edge {
  uint32_t from;
  uint32_t programmatic;
} husk_graph_edge;

/* Explicit graphs. Nodes are numbered 0, 1, 2… in the order in which they were added. A failed exec_set_* leaves the
 * exec usable with the values it had. An exec may be launched on any stream, one launch in flight after another. */
typedef struct husk_port_graphs {
  uint32_t struct_size;
  husk_status (*graph_create)(void* device, void** graph, husk_error* error);
  husk_status (*graph_add_kernel)(void* device, void* graph, void* kernel, const husk_launch* launch,
                                  const husk_graph_edge* edges, uint32_t edge_count, husk_error* error);
  husk_status (*graph_add_copy)(void* device, void* graph, void* to, const void* from, uint64_t size,
                                const husk_graph_edge* edges, uint32_t edge_count, husk_error* error);
  husk_status (*graph_add_fill)(void* device, void* graph, void* to, uint64_t pattern, uint32_t width, uint64_t count,
                                const husk_graph_edge* edges, uint32_t edge_count, husk_error* error);
  husk_status (*graph_instantiate)(void* device, void* graph, void** exec, husk_error* error);
  void (*graph_destroy)(void* device, void* graph);   /* the exec lives on */
  husk_status (*exec_set_kernel)(void* device, void* exec, uint32_t node, void* kernel, const husk_launch* launch,
                                 husk_error* error);
  husk_status (*exec_set_copy)(void* device, void* exec, uint32_t node, void* to, const void* from, uint64_t size,
                               husk_error* error);
  husk_status (*exec_set_fill)(void* device, void* exec, uint32_t node, void* to, uint64_t pattern, uint32_t width,
                               uint64_t count, husk_error* error);
  husk_status (*exec_launch)(void* device, void* exec, void* stream, husk_error* error);
  void (*exec_destroy)(void* device, void* exec);     /* waits for its last launch */
} husk_port_graphs;

typedef struct husk_port {
  uint32_t struct_size;
  uint32_t abi;            /* HUSK_PORT_ABI */
  const char* name;        /* "host", "cuda": what targets of a file name */
  void* user;

  /* Opens device `index`. `allocator` and `threads` outlive the device; `threads` may be NULL: the calling thread only. */
  husk_status (*open)(void* user, int32_t index, const husk_allocator* allocator, const husk_threads* threads,
                      void** device, husk_error* error);
  void (*close)(void* device);
  void (*properties)(void* device, husk_port_properties* out);

  /* How well code for `arch` in `format` runs here: 0 not at all, larger is better. Never fails. */
  int32_t (*fit)(void* device, const char* arch, int32_t format);

  /* Device memory, aligned to 256 bytes at least. free accepts NULL and memory whose last use is finished. */
  husk_status (*alloc)(void* device, uint64_t size, void** memory, husk_error* error);
  void (*free)(void* device, void* memory);

  /* upload may return before the bytes arrive, but has read `from`; download returns when they are there. */
  husk_status (*upload)(void* device, void* stream, void* to, const void* from, uint64_t size, husk_error* error);
  husk_status (*download)(void* device, void* stream, void* to, const void* from, uint64_t size, husk_error* error);
  husk_status (*copy)(void* device, void* stream, void* to, const void* from, uint64_t size, husk_error* error);
  /* Writes `count` elements of `width` bytes (1, 2, 4, 8): the low bytes of `pattern`. */
  husk_status (*fill)(void* device, void* stream, void* to, uint64_t pattern, uint32_t width, uint64_t count,
                      husk_error* error);

  /* A stream of the port's own, for callers without one; `stream` elsewhere may also be the caller's (CUstream).
   * NULL is the device's default stream. wait returns when all work given to the stream is done. */
  husk_status (*stream_create)(void* device, void** stream, husk_error* error);
  void (*stream_destroy)(void* device, void* stream);
  husk_status (*stream_wait)(void* device, void* stream, husk_error* error);

  husk_status (*module_load)(void* device, const husk_port_image* image, void** module, husk_error* error);
  void (*module_unload)(void* device, void* module);
  /* The kernel lives as long as its module. Checks the parameters against the image where the driver can tell. */
  husk_status (*kernel_get)(void* device, void* module, const husk_port_kernel* desc, void** kernel,
                            husk_error* error);

  husk_status (*launch)(void* device, void* stream, void* kernel, const husk_launch* launch, husk_error* error);

  const husk_port_graphs* graphs;   /* NULL if the device has none */

  /* The rest are shortcuts, NULL where a port has none. */

  /* `entered` stands for `device` in every function, on this thread, until leave: the port then need not make the device
   * current each time. Pairs do not nest. */
  husk_status (*enter)(void* device, void** entered, husk_error* error);
  void (*leave)(void* entered);

  /* Many uploads at once, as fast as the device takes them: all is there, for every stream, when this returns. The targets
   * are memory that no work uses. May start threads, which have ended then. `mapping` is NULL, or what all of them lie in. */
  husk_status (*load)(void* device, const husk_load* loads, uint32_t count, const husk_mapping* mapping, husk_error* error);

  /* Where the device reads host memory as fast as its own: the address at which kernels read these bytes, which stay
   * unchanged until unmap of the same bytes. HUSK_UNSUPPORTED means: load them. */
  husk_status (*map)(void* device, const void* memory, uint64_t size, void** address, husk_error* error);
  void (*unmap)(void* device, const void* memory, uint64_t size);

  /* The port's own op of that name, for programs that call one which the application did not register. It can be called until
   * the device is closed: the library that it needs is opened here. HUSK_NOT_FOUND where there is none by that name. */
  husk_status (*find_op)(void* device, const char* name, husk_op* op, husk_error* error);

  /* A number in host memory, 0 at first, that kernels write at the same address: what they stored is there once their work was
   * waited for. Not NULL. *word is NULL where it fails; unshare accepts that, and a word whose last use is finished. */
  husk_status (*share)(void* device, volatile uint32_t** word, husk_error* error);
  void (*unshare)(void* device, volatile uint32_t* word);
} husk_port;

#ifdef __cplusplus
}
#endif
#endif
