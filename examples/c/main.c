/* Runs the first function of a .husk file twice and shows what came out.
 *
 *   husk_example_c model.husk [--device cuda] [input.raw ...]
 *
 * Tensors come from the raw files in order, as they lie in memory; those without a file are 0, 1, 2, ... if f32 or i64,
 * else 0. Dimensions are as small as the model allows, but 2 if they can be. C11. */
#include <husk/husk.h>
#include <husk/port_cuda.h>
#include <husk/port_host.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_VALUES = 64, MAX_RANK = 16 };

static void stop(const char* name, const char* what) { fprintf(stderr, "%s: %s\n", name, what), exit(1); }

/* Every call gives a status, and says in its last argument what went wrong. */
static husk_error error;
static void check(husk_status status) { if (status != HUSK_OK) stop(husk_status_name(status), error.text); }

/* Where tensors live: a device of a port. The port takes its host memory from here. */
static const husk_port* port;
static void* device;
static DLDevice place = {kDLCPU, 0};   /* DLPack's name for it */
static void* allocate(void* user, size_t size, size_t align) {
  return (void)user, aligned_alloc(align, (size + align - 1) / align * align);
}
static void release(void* user, void* memory) { (void)user, free(memory); }
static const husk_allocator allocator = {NULL, allocate, release};

/* An input or output: as Husk takes it (DLPack), and a copy of its memory, from the first to the last element, here. */
typedef struct tensor {
  husk_value_info info;
  DLTensor dl;
  int64_t sizes[MAX_RANK], strides[MAX_RANK];
  size_t count, bytes;
  void* host;
} tensor;

/* Sizes and strides are set; this adds the memory. */
static void tensor_make(tensor* t) {
  t->count = 1;
  for (int32_t d = 0; d < t->info.rank && t->count > 0; d++) {
    t->count = t->sizes[d] > 0 ? t->count + (size_t)((t->sizes[d] - 1) * t->strides[d]) : 0;
  }
  t->bytes = t->count * husk_dtype_size(t->info.dtype);
  t->host = calloc(1, t->bytes + 1);
  if (!t->host) stop(t->info.name, "no memory");
  t->dl = (DLTensor){NULL, place, t->info.rank, husk_dtype_to_dlpack(t->info.dtype), t->sizes, t->strides, 0};
  check(port->alloc(device, t->bytes + 1, &t->dl.data, &error));   /* an empty tensor has an address too */
}

static void input_make(tensor* t, const char* path) {
  int64_t stride = 1;
  for (int32_t d = t->info.rank - 1; d >= 0; stride *= t->sizes[d--]) {
    const int64_t least = t->info.ranges[2 * d], most = t->info.ranges[2 * d + 1];
    t->sizes[d] = most < 2 ? most : least > 2 ? least : 2;
    t->strides[d] = stride;
  }
  tensor_make(t);
  FILE* file = path ? fopen(path, "rb") : NULL;
  if (path && (!file || fread(t->host, 1, t->bytes, file) != t->bytes)) stop(path, "cannot be read, or is too short");
  if (file) fclose(file);
  for (size_t i = 0; i < t->count && !path; i++) {
    if (t->info.dtype == HUSK_F32) ((float*)t->host)[i] = (float)i;
    if (t->info.dtype == HUSK_I64) ((int64_t*)t->host)[i] = (int64_t)i;
  }
  check(port->upload(device, NULL, t->dl.data, t->host, t->bytes, &error));
}

static double element(const tensor* t, size_t i) {
  return t->info.dtype == HUSK_F32 ? ((float*)t->host)[i] : t->info.dtype == HUSK_I64 ? (double)((int64_t*)t->host)[i] : 0;
}

/* Brings an output back; shows its first elements, and how far they are from those of the run before. */
static void output_show(tensor* t, int run) {
  double before[8], difference = 0;
  const size_t shown = t->count < 8 ? t->count : 8;
  for (size_t i = 0; i < shown; i++) before[i] = element(t, i);
  check(port->download(device, NULL, t->host, t->dl.data, t->bytes, &error));
  printf("run %d, %s, %zu elements of %s:", run, t->info.name, t->count, husk_dtype_name(t->info.dtype));
  for (size_t i = 0; i < shown; i++) {
    printf(" %g", element(t, i));
    difference = fmax(difference, fabs(element(t, i) - before[i]));
  }
  if (run > 1) printf("; changed by %g", difference);
  puts("");
}

int main(int argc, char** argv) {
  if (argc < 2) stop("usage", "husk_example_c model.husk [--device cuda] [input.raw ...]");
  const int cuda = argc > 3 && !strcmp(argv[2], "--device") && !strcmp(argv[3], "cuda");
  int file = 2;
  if (cuda) place.device_type = kDLCUDA, file = 4;

  /* A port is a kind of place to run on. An engine is one device of it, and the operators that programs may call. */
  port = cuda ? husk_port_cuda() : husk_port_host();
  husk_engine_options options = HUSK_ENGINE_OPTIONS_INIT;
  options.port = port;
  options.allow_host_images = 1;   /* a model for the host is native code: only for files that you trust */
  husk_engine* engine;
  check(husk_engine_create(&options, &engine, &error));
  uint32_t op_count = 0;
  const husk_op* ops = cuda ? NULL : husk_host_ops(&op_count);
  for (uint32_t i = 0; i < op_count; i++) check(husk_engine_add_op(engine, &ops[i], &error));

  /* A program is the loaded file, for everybody. A session is memory and state, for one user at a time. */
  husk_program* program;
  husk_session* session;
  const husk_session_options session_options = HUSK_SESSION_OPTIONS_INIT;
  check(husk_program_open(engine, argv[1], &program, &error));
  check(husk_session_create(program, &session_options, &session, &error));

  /* Inputs, then outputs. Their memory is the device's, which may be opened twice. */
  check(port->open(port->user, 0, &allocator, NULL, &device, &error));
  static tensor tensors[MAX_VALUES];
  static husk_value values[MAX_VALUES];   /* numbers stay 0 */
  const uint32_t inputs = husk_program_input_count(program, 0), all = inputs + husk_program_output_count(program, 0);
  if (all > MAX_VALUES) stop(argv[1], "too many values for this example");
  for (uint32_t i = 0; i < inputs; i++) {
    check(husk_program_input(program, 0, i, &tensors[i].info, &error));
    values[i].kind = tensors[i].info.kind;
    if (values[i].kind != HUSK_VALUE_TENSOR) continue;
    input_make(&tensors[i], file < argc ? argv[file++] : NULL);
    values[i].as.tensor = &tensors[i].dl;
  }
  /* resize does all that depends on the inputs' shapes, once; after it the outputs' shapes are known. */
  check(husk_session_resize(session, 0, values, inputs, &error));
  for (uint32_t i = inputs; i < all; i++) {
    check(husk_program_output(program, 0, i - inputs, &tensors[i].info, &error));
    values[i].kind = tensors[i].info.kind;
    if (values[i].kind != HUSK_VALUE_TENSOR) continue;
    check(husk_session_output_shape(session, 0, i - inputs, tensors[i].sizes, tensors[i].strides, &error));
    tensor_make(&tensors[i]);
    values[i].as.tensor = &tensors[i].dl;
  }

  /* run enqueues and returns, wait waits. State, a cache for instance, goes on from one run to the next. */
  for (int run = 1; run <= 2; run++) {
    check(husk_session_run(session, 0, NULL, values, inputs, values + inputs, all - inputs, &error));
    check(husk_session_wait(session, &error));
    for (uint32_t i = inputs; i < all; i++) if (values[i].kind == HUSK_VALUE_TENSOR) output_show(&tensors[i], run);
  }

  for (uint32_t i = 0; i < all; i++) port->free(device, tensors[i].dl.data), free(tensors[i].host);
  port->close(device);
  husk_session_release(session);
  husk_program_release(program);
  husk_engine_release(engine);
  return 0;
}
