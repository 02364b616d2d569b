/* Runs the first function of a .husk file twice and prints its outputs.
 *
 *   husk_example_c model.husk [--device NAME] [input.raw ...]
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
#include <husk/port_host.h>
#include <husk/ports.h>

enum { MAX_VALUES = 64, MAX_RANK = 16, SHOWN = 8, ALIGNMENT = 256 };

static husk_error error;

static void stop(const char* subject, const char* text) {
  fprintf(stderr, "%s: %s\n", subject, text);
  exit(1);
}

/* Ends the process with the text of the error if a call failed. */
static void check(husk_status status) {
  if (status != HUSK_OK) stop(husk_status_name(status), error.text);
}

/* An input or output tensor: its description and its memory, which is the host's. */
typedef struct tensor {
  husk_value_info info;
  DLTensor dl;
  int64_t sizes[MAX_RANK], strides[MAX_RANK];
  size_t count; /* elements from the first to the last in memory */
  size_t bytes;
} tensor;

/* Allocates the memory of a tensor whose sizes and strides are set, and fills it with zeros. */
static void tensor_allocate(tensor* t) {
  t->count = 1;
  for (int32_t i = 0; i < t->info.rank; ++i) {
    if (t->sizes[i] == 0) t->count = 0;
    if (t->count > 0) t->count += (size_t)((t->sizes[i] - 1) * t->strides[i]);
  }
  t->bytes = t->count * husk_dtype_size(t->info.dtype);
  /* An address that is aligned for all kernels. An empty tensor has an address, too. */
  const size_t size = (t->bytes + ALIGNMENT) / ALIGNMENT * ALIGNMENT;
  t->dl.data = aligned_alloc(ALIGNMENT, size);
  if (!t->dl.data) stop(t->info.name, "no memory left");
  memset(t->dl.data, 0, size);
  t->dl.device.device_type = kDLCPU;
  t->dl.ndim = t->info.rank;
  t->dl.dtype = husk_dtype_to_dlpack(t->info.dtype);
  t->dl.shape = t->sizes;
  t->dl.strides = t->strides;
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
    if (t->info.dtype == HUSK_F32) ((float*)t->dl.data)[i] = (float)i;
    if (t->info.dtype == HUSK_I64) ((int64_t*)t->dl.data)[i] = (int64_t)i;
  }
}

static void input_make(tensor* t, const char* path) {
  input_shape(t);
  tensor_allocate(t);
  if (path) {
    read_file(path, t->dl.data, t->bytes);
  } else {
    count_up(t);
  }
}

static double element(const tensor* t, size_t i) {
  if (t->info.dtype == HUSK_F32) return ((const float*)t->dl.data)[i];
  if (t->info.dtype == HUSK_I64) return (double)((const int64_t*)t->dl.data)[i];
  return 0;
}

/* Prints the first elements of an output, and from the second run on the largest difference between
 * these elements and those of the run before, which are in `before`. */
static void output_show(const tensor* t, double* before, int run) {
  double difference = 0;
  printf("run %d, %s, %zu elements of %s:", run, t->info.name, t->count,
         husk_dtype_name(t->info.dtype));
  for (size_t i = 0; i < t->count && i < SHOWN; ++i) {
    printf(" %g", element(t, i));
    difference = fmax(difference, fabs(element(t, i) - before[i]));
    before[i] = element(t, i);
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

static void make_inputs(call* c, const husk_program* program, char** files) {
  for (uint32_t i = 0; i < c->inputs; ++i) {
    tensor* t = &c->tensors[i];
    t->info = (husk_value_info)HUSK_VALUE_INFO_INIT;
    check(husk_program_input(program, 0, i, &t->info, &error));
    if (t->info.kind == HUSK_VALUE_TENSOR) {
      input_make(t, *files);
      if (*files) ++files;
    }
    call_set(c, i);
  }
}

/* Makes the outputs as large as the session says after a resize. */
static void make_outputs(call* c, const husk_program* program, husk_session* session) {
  for (uint32_t i = 0; i < c->outputs; ++i) {
    tensor* t = &c->tensors[c->inputs + i];
    t->info = (husk_value_info)HUSK_VALUE_INFO_INIT;
    check(husk_program_output(program, 0, i, &t->info, &error));
    if (t->info.kind == HUSK_VALUE_TENSOR) {
      check(husk_session_output_shape(session, 0, i, t->sizes, t->strides, &error));
      tensor_allocate(t);
    }
    call_set(c, c->inputs + i);
  }
}

/* Runs function 0 twice. State, for instance a cache, is kept from one run to the next. */
static void run_twice(call* c, husk_session* session) {
  static double shown[MAX_VALUES][SHOWN];
  husk_value* outputs = c->values + c->inputs;
  for (int run = 1; run <= 2; ++run) {
    check(husk_session_run(session, 0, NULL, c->values, c->inputs, outputs, c->outputs, &error));
    check(husk_session_wait(session, &error)); /* a run may only enqueue its work */
    for (uint32_t i = 0; i < c->outputs; ++i)
      if (outputs[i].kind == HUSK_VALUE_TENSOR)
        output_show(&c->tensors[c->inputs + i], shown[i], run);
  }
}

/* `files` names the raw files; a NULL ends it. */
static void run_model(const char* path, const char* device, char** files) {
  /* An engine is one device of a port, and the operators that programs may call. */
  husk_engine* engine;
  husk_engine_options options = HUSK_ENGINE_OPTIONS_INIT;
  options.port = husk_port_find(device); /* the device is a port of the library, by its name */
  if (!options.port) stop(device, "the library has no such port");
  options.allow_host_images = 1; /* a host model is native code: open only files that you trust */
  options.require_op_contracts = 1; /* this program has no operators of its own */
  check(husk_engine_create(&options, &engine, &error));
  if (options.port == husk_port_host()) /* these operators compute on the CPU */
    check(husk_ops_add_all(engine, &error));

  /* A program is the loaded file; threads may share it. A session holds the memory and the state of
   * one user. */
  husk_program* program;
  husk_session* session;
  check(husk_program_open(engine, path, &program, &error));
  husk_session_options session_options = HUSK_SESSION_OPTIONS_INIT;
  session_options.stage_host_tensors = 1; /* the session copies tensors to the device and back */
  check(husk_session_create(program, &session_options, &session, &error));

  static call c;
  c.inputs = husk_program_input_count(program, 0);
  c.outputs = husk_program_output_count(program, 0);
  if (c.inputs + c.outputs > MAX_VALUES) stop(path, "too many values for this example");
  make_inputs(&c, program, files);
  check(husk_session_resize(session, 0, c.values, c.inputs, &error)); /* plans for these shapes */
  make_outputs(&c, program, session);
  run_twice(&c, session);

  for (uint32_t i = 0; i < c.inputs + c.outputs; ++i) free(c.tensors[i].dl.data);
  husk_session_release(session);
  husk_program_release(program);
  husk_engine_release(engine);
}

int main(int argc, char** argv) {
  if (argc < 2) stop("usage", "husk_example_c model.husk [--device NAME] [input.raw ...]");
  const int named = argc > 3 && !strcmp(argv[2], "--device");
  run_model(argv[1], named ? argv[3] : "host", argv + (named ? 4 : 2)); /* argv ends with a NULL */
  return 0;
}
