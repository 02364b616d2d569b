/* Runs the first function of a .husk file twice and prints its outputs.
 *
 *   husk_example_c model.husk [--device cuda] [input.raw ...]
 *
 * A raw file holds the bytes of one input tensor; the files are taken in the order of the inputs. A
 * tensor without a file gets the numbers 0, 1, 2, ... if it is f32 or i64, else zeros. Each size of
 * an input is 2, or the value nearest to 2 that the model allows. C11. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <husk/husk.h>
#include <husk/ops.h>
#include <husk/port_cuda.h>
#include <husk/port_host.h>

enum { MAX_VALUES = 64, MAX_RANK = 16, SHOWN = 8 };

static husk_error error;

static void stop(const char* subject, const char* text) {
  fprintf(stderr, "%s: %s\n", subject, text);
  exit(1);
}

/* Ends the process with the text of the error if a call failed. */
static void check(husk_status status) {
  if (status != HUSK_OK) stop(husk_status_name(status), error.text);
}

/* The device that holds the tensors. The engine opens the device too; a port allows that. */
typedef struct device {
  const husk_port* port;
  void* handle;
  DLDevice name; /* as DLPack calls the device */
} device;

static void* host_allocate(void* user, size_t size, size_t align) {
  (void)user;
  return aligned_alloc(align, (size + align - 1) / align * align);
}

static void host_release(void* user, void* memory) {
  (void)user;
  free(memory);
}

/* The port takes the host memory of its own objects from here. */
static const husk_allocator host_memory = {NULL, host_allocate, host_release};

static void device_open(device* d, int cuda) {
  d->port = cuda ? husk_port_cuda() : husk_port_host();
  d->name.device_type = cuda ? kDLCUDA : kDLCPU;
  d->name.device_id = 0;
  check(d->port->open(d->port->user, 0, &host_memory, NULL, &d->handle, &error));
}

/* An input or output tensor: its description, its memory on the device, and a copy on the host. */
typedef struct tensor {
  husk_value_info info;
  DLTensor dl;
  int64_t sizes[MAX_RANK], strides[MAX_RANK];
  size_t count; /* elements from the first to the last in memory */
  size_t bytes;
  void* host;
} tensor;

/* Allocates both memories of a tensor whose sizes and strides are set. */
static void tensor_allocate(tensor* t, const device* d) {
  t->count = 1;
  for (int32_t i = 0; i < t->info.rank; ++i) {
    if (t->sizes[i] == 0) t->count = 0;
    if (t->count > 0) t->count += (size_t)((t->sizes[i] - 1) * t->strides[i]);
  }
  t->bytes = t->count * husk_dtype_size(t->info.dtype);
  t->host = calloc(1, t->bytes + 1); /* one byte more, so that an empty tensor has an address */
  if (!t->host) stop(t->info.name, "no host memory left");
  t->dl.device = d->name;
  t->dl.ndim = t->info.rank;
  t->dl.dtype = husk_dtype_to_dlpack(t->info.dtype);
  t->dl.shape = t->sizes;
  t->dl.strides = t->strides;
  check(d->port->alloc(d->handle, t->bytes + 1, &t->dl.data, &error));
}

/* Chooses the sizes of an input and the strides of a contiguous tensor. */
static void input_shape(tensor* t) {
  int64_t stride = 1;
  for (int32_t i = t->info.rank - 1; i >= 0; --i) {
    const int64_t min = t->info.ranges[2 * i];
    const int64_t max = t->info.ranges[2 * i + 1];
    t->sizes[i] = 2;
    if (min > 2) t->sizes[i] = min;
    if (max < 2) t->sizes[i] = max;
    t->strides[i] = stride;
    stride *= t->sizes[i];
  }
}

static void read_file(const char* path, void* memory, size_t bytes) {
  FILE* file = fopen(path, "rb");
  if (!file) stop(path, "cannot be opened");
  if (fread(memory, 1, bytes, file) != bytes) stop(path, "is shorter than the input tensor");
  fclose(file);
}

static void count_up(tensor* t) {
  for (size_t i = 0; i < t->count; ++i) {
    if (t->info.dtype == HUSK_F32) ((float*)t->host)[i] = (float)i;
    if (t->info.dtype == HUSK_I64) ((int64_t*)t->host)[i] = (int64_t)i;
  }
}

static void input_make(tensor* t, const device* d, const char* path) {
  input_shape(t);
  tensor_allocate(t, d);
  if (path) {
    read_file(path, t->host, t->bytes);
  } else {
    count_up(t);
  }
  check(d->port->upload(d->handle, NULL, t->dl.data, t->host, t->bytes, &error));
}

static double element(const tensor* t, size_t i) {
  if (t->info.dtype == HUSK_F32) return ((const float*)t->host)[i];
  if (t->info.dtype == HUSK_I64) return (double)((const int64_t*)t->host)[i];
  return 0;
}

/* Copies an output to the host and prints its first elements, and from the second run on the
 * largest difference between these elements and those of the run before. */
static void output_show(tensor* t, const device* d, int run) {
  double before[SHOWN], difference = 0;
  const size_t shown = t->count < SHOWN ? t->count : SHOWN;
  for (size_t i = 0; i < shown; ++i) before[i] = element(t, i);
  check(d->port->download(d->handle, NULL, t->host, t->dl.data, t->bytes, &error));
  printf("run %d, %s, %zu elements of %s:", run, t->info.name, t->count,
         husk_dtype_name(t->info.dtype));
  for (size_t i = 0; i < shown; ++i) {
    printf(" %g", element(t, i));
    difference = fmax(difference, fabs(element(t, i) - before[i]));
  }
  if (run > 1) printf("; changed by %g", difference);
  printf("\n");
}

/* The inputs of the function, followed by its outputs. Numbers stay 0. */
typedef struct call {
  uint32_t inputs, outputs;
  husk_value values[MAX_VALUES];
  tensor tensors[MAX_VALUES];
} call;

static void call_set(call* c, uint32_t i) {
  c->values[i].kind = c->tensors[i].info.kind;
  if (c->values[i].kind == HUSK_VALUE_TENSOR) c->values[i].as.tensor = &c->tensors[i].dl;
}

static void make_inputs(call* c, const husk_program* program, const device* d, char** files) {
  for (uint32_t i = 0; i < c->inputs; ++i) {
    tensor* t = &c->tensors[i];
    t->info = (husk_value_info)HUSK_VALUE_INFO_INIT;
    check(husk_program_input(program, 0, i, &t->info, &error));
    if (t->info.kind == HUSK_VALUE_TENSOR) {
      input_make(t, d, *files);
      if (*files) ++files;
    }
    call_set(c, i);
  }
}

/* Makes the outputs as large as the session says after a resize. */
static void make_outputs(call* c, const husk_program* program, husk_session* session,
                         const device* d) {
  for (uint32_t i = 0; i < c->outputs; ++i) {
    tensor* t = &c->tensors[c->inputs + i];
    t->info = (husk_value_info)HUSK_VALUE_INFO_INIT;
    check(husk_program_output(program, 0, i, &t->info, &error));
    if (t->info.kind == HUSK_VALUE_TENSOR) {
      check(husk_session_output_shape(session, 0, i, t->sizes, t->strides, &error));
      tensor_allocate(t, d);
    }
    call_set(c, c->inputs + i);
  }
}

/* Runs function 0 twice. State, for instance a cache, is kept from one run to the next. */
static void run_twice(call* c, husk_session* session, const device* d) {
  husk_value* outputs = c->values + c->inputs;
  for (int run = 1; run <= 2; ++run) {
    check(husk_session_run(session, 0, NULL, c->values, c->inputs, outputs, c->outputs, &error));
    check(husk_session_wait(session, &error)); /* run only enqueues the work */
    for (uint32_t i = 0; i < c->outputs; ++i)
      if (outputs[i].kind == HUSK_VALUE_TENSOR) output_show(&c->tensors[c->inputs + i], d, run);
  }
}

/* `files` names the raw files; a NULL ends it. */
static void run_model(const char* path, int cuda, char** files) {
  device d;
  device_open(&d, cuda);

  /* An engine is one device of a port, and the operators that programs may call. */
  husk_engine* engine;
  husk_engine_options options = HUSK_ENGINE_OPTIONS_INIT;
  options.port = d.port;
  options.allow_host_images = 1; /* a host model is native code: open only files that you trust */
  options.require_op_contracts = 1; /* this program has no operators of its own */
  check(husk_engine_create(&options, &engine, &error));
  if (!cuda) check(husk_ops_add_all(engine, &error)); /* these operators compute on the CPU */

  /* A program is the loaded file; threads may share it. A session holds the memory and the state of
   * one user. */
  husk_program* program;
  husk_session* session;
  check(husk_program_open(engine, path, &program, &error));
  check(husk_session_create(program, NULL, &session, &error));

  static call c;
  c.inputs = husk_program_input_count(program, 0);
  c.outputs = husk_program_output_count(program, 0);
  if (c.inputs + c.outputs > MAX_VALUES) stop(path, "too many values for this example");
  make_inputs(&c, program, &d, files);
  check(husk_session_resize(session, 0, c.values, c.inputs, &error)); /* plans for these shapes */
  make_outputs(&c, program, session, &d);
  run_twice(&c, session, &d);

  for (uint32_t i = 0; i < c.inputs + c.outputs; ++i) {
    d.port->free(d.handle, c.tensors[i].dl.data);
    free(c.tensors[i].host);
  }
  d.port->close(d.handle);
  husk_session_release(session);
  husk_program_release(program);
  husk_engine_release(engine);
}

int main(int argc, char** argv) {
  if (argc < 2) stop("usage", "husk_example_c model.husk [--device cuda] [input.raw ...]");
  const int cuda = argc > 3 && !strcmp(argv[2], "--device") && !strcmp(argv[3], "cuda");
  run_model(argv[1], cuda, argv + (cuda ? 4 : 2)); /* argv ends with a NULL */
  return 0;
}
