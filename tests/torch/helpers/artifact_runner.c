/* Runs the functions of one .husk file for the tests that compare with PyTorch: C11, libhusk and
 * nothing else.
 *
 *   runner MODEL [--copy-misaligned]      requests on standard input, answers on standard output
 *
 *   session                               ok NUMBER
 *   run SESSION FUNCTION COUNT, INPUT…    ok COUNT, OUTPUT…, then for each tensor input its
 * storage's bytes get SESSION STATE                     ok BYTES, the bytes set SESSION STATE
 * BYTES, the bytes    ok reset SESSION STATE                   ok seed SESSION STATE SEED ok: the
 * state of the random ops' generator, freshly seeded update CONSTANT BYTES, the bytes      ok copy
 * SESSION STATE FROM               ok stats SESSION FUNCTION                ok SEGMENTS DYNAMIC
 *   release SESSION                       ok
 *
 * Each request and value is a line, behind which its bytes stand. A value is `none`, `int N`,
 * `float X` or `tensor DTYPE RANK OFFSET BYTES SIZE… STRIDE…` with the bytes of its storage: OFFSET
 * is where element 0 lies in it, from an address aligned to 256. What fails is answered by `error
 * CODE TEXT`. Behind and before each output stand bytes that must stay. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <husk/husk.h>
#include <husk/ops.h>
#include <husk/port_host.h>

enum { MAX_VALUES = 512, MAX_RANK = 32, MAX_SESSIONS = 1024, GUARD = 256, GUARD_BYTE = 0xA5 };

typedef struct tensor {
  DLTensor dl;
  int64_t sizes[MAX_RANK], strides[MAX_RANK];
  size_t bytes;          /* of the storage */
  unsigned char* memory; /* the storage with its guards; NULL: the session's */
} tensor;

static husk_program* program;
static husk_session* sessions[MAX_SESSIONS];
static int session_count;
static husk_session_options session_options = HUSK_SESSION_OPTIONS_INIT;
static unsigned char* undecided; /* for each function and output: whether only the data decides its
                                    shape */
static husk_value values[2 * MAX_VALUES];
static tensor tensors[2 * MAX_VALUES];
static husk_error error;

static void stop(const char* what) {
  fprintf(stderr, "runner: %s\n", what);
  exit(2);
}

static void read_bytes(void* to, size_t bytes) {
  if (bytes > 0 && fread(to, 1, bytes, stdin) != bytes) stop("the request ends early");
}

static long long number(void) {
  long long value;
  if (scanf("%lld", &value) != 1) stop("a number was expected");
  return value;
}

static void end_line(void) {
  if (getchar() != '\n') stop("the end of a line was expected");
}

static husk_dtype dtype_named(const char* name) {
  for (husk_dtype type = HUSK_BOOL; husk_dtype_size(type) != 0; type++)
    if (!strcmp(husk_dtype_name(type), name)) return type;
  stop("no dtype of that name");
  return HUSK_DTYPE_NONE;
}

/* Memory for `bytes` between guards; the storage begins at a multiple of 256. */
static void allocate(tensor* t, size_t bytes) {
  const size_t whole = (bytes + 2 * GUARD + 255) / 256 * 256;
  t->bytes = bytes;
  t->memory = aligned_alloc(256, whole);
  if (!t->memory) stop("no memory");
  memset(t->memory, GUARD_BYTE, whole);
}

static int guards_stand(const tensor* t) {
  for (size_t i = 0; i < GUARD; i++)
    if (t->memory[i] != GUARD_BYTE || t->memory[GUARD + t->bytes + i] != GUARD_BYTE) return 0;
  return 1;
}

static void input_read(husk_value* value, tensor* t) {
  char kind[16], dtype[32];
  if (scanf("%15s", kind) != 1) stop("a value was expected");
  memset(value, 0, sizeof *value);
  if (!strcmp(kind, "int")) {
    value->kind = HUSK_VALUE_INT;
    value->as.i = number();
  } else if (!strcmp(kind, "bool")) {
    value->kind = HUSK_VALUE_BOOL;
    value->as.i = number();
  } else if (!strcmp(kind, "float")) {
    value->kind = HUSK_VALUE_FLOAT;
    if (scanf("%lf", &value->as.f) != 1) stop("a number was expected");
  } else if (!strcmp(kind, "tensor")) {
    if (scanf("%31s", dtype) != 1) stop("a dtype was expected");
    const long long rank = number(), offset = number(), bytes = number();
    if (rank > MAX_RANK) stop("too many dimensions");
    for (int d = 0; d < rank; d++) t->sizes[d] = number();
    for (int d = 0; d < rank; d++) t->strides[d] = number();
    allocate(t, (size_t)bytes);
    t->dl = (DLTensor){
        t->memory + GUARD, {kDLCPU, 0}, (int32_t)rank,   husk_dtype_to_dlpack(dtype_named(dtype)),
        t->sizes,          t->strides,  (uint64_t)offset};
    value->kind = HUSK_VALUE_TENSOR;
    value->as.tensor = &t->dl;
  } else if (strcmp(kind, "none")) {
    stop("no such value");
  }
  end_line();
  if (t->memory) read_bytes(t->memory + GUARD, t->bytes);
}

static size_t span(const DLTensor* t) {
  size_t count = 1;
  for (int32_t d = 0; d < t->ndim; d++) {
    if (t->shape[d] == 0) return 0;
    count += (size_t)((t->shape[d] - 1) * t->strides[d]);
  }
  return count * t->dtype.bits / 8;
}

/* Memory of the shape that the session says; of none if only the data decides it. */
static husk_status output_make(husk_session* session, uint32_t function, uint32_t index,
                               husk_value* value, tensor* t) {
  husk_value_info info = HUSK_VALUE_INFO_INIT;
  husk_status status = husk_program_output(program, function, index, &info, &error);
  if (status != HUSK_OK) return status;
  memset(value, 0, sizeof *value);
  if (info.kind != HUSK_VALUE_TENSOR) {
    value->kind = info.kind;
    return HUSK_OK;
  }
  if (husk_session_output_shape(session, function, index, t->sizes, t->strides, &error) != HUSK_OK)
    undecided[function * MAX_VALUES + index] = 1;
  if (undecided[function * MAX_VALUES + index]) return HUSK_OK;
  t->dl = (DLTensor){NULL,     {kDLCPU, 0}, info.rank, husk_dtype_to_dlpack(info.dtype),
                     t->sizes, t->strides,  0};
  allocate(t, span(&t->dl));
  t->dl.data = t->memory + GUARD;
  value->kind = HUSK_VALUE_TENSOR;
  value->as.tensor = &t->dl;
  return HUSK_OK;
}

static void output_write(const husk_value* value) {
  if (value->kind == HUSK_VALUE_INT || value->kind == HUSK_VALUE_BOOL) {
    printf("%s %" PRId64 "\n", value->kind == HUSK_VALUE_INT ? "int" : "bool", value->as.i);
  } else if (value->kind == HUSK_VALUE_FLOAT) {
    printf("float %.17g\n", value->as.f);
  } else if (value->kind == HUSK_VALUE_NONE) {
    puts("none");
  } else {
    const DLTensor* t = value->as.tensor;
    printf("tensor %s %d 0 %zu", husk_dtype_name(husk_dtype_from_dlpack(t->dtype)), t->ndim,
           span(t));
    for (int32_t d = 0; d < t->ndim; d++) printf(" %" PRId64, t->shape[d]);
    for (int32_t d = 0; d < t->ndim; d++) printf(" %" PRId64, t->strides[d]);
    puts("");
    if (span(t) > 0) fwrite((const char*)t->data + t->byte_offset, 1, span(t), stdout);
  }
}

static husk_status run(husk_session* session) {
  char name[128];
  if (scanf("%127s", name) != 1) stop("a function was expected");
  const uint32_t inputs = (uint32_t)number();
  end_line();
  if (inputs > MAX_VALUES) stop("too many inputs");
  for (uint32_t i = 0; i < inputs; i++) input_read(&values[i], &tensors[i]);

  uint32_t function;
  husk_status status = husk_program_find_function(program, name, &function, &error);
  if (status == HUSK_OK) status = husk_session_resize(session, function, values, inputs, &error);
  if (status != HUSK_OK) return status;
  const uint32_t outputs = husk_program_output_count(program, function);
  if (outputs > MAX_VALUES) stop("too many outputs");
  for (uint32_t i = 0; i < outputs && status == HUSK_OK; i++)
    status = output_make(session, function, i, &values[inputs + i], &tensors[inputs + i]);
  if (status == HUSK_OK) {
    status = husk_session_run(session, function, NULL, values, inputs, values + inputs, outputs,
                              &error);
  }
  if (status == HUSK_OK) status = husk_session_wait(session, &error);
  if (status != HUSK_OK) return status;
  for (uint32_t i = 0; i < inputs + outputs; i++)
    if (tensors[i].memory && !guards_stand(&tensors[i])) stop("memory beside a tensor was written");
  printf("ok %u\n", outputs);
  for (uint32_t i = 0; i < outputs; i++) output_write(&values[inputs + i]);
  for (uint32_t i = 0; i < inputs; i++)
    if (tensors[i].memory) fwrite(tensors[i].memory + GUARD, 1, tensors[i].bytes, stdout);
  return HUSK_OK;
}

static husk_status state_of(husk_session* session, const char* request) {
  char name[256];
  if (scanf("%255s", name) != 1) stop("a state was expected");
  const long long rest = !strcmp(request, "set") || !strcmp(request, "copy") ? number() : 0;
  end_line();
  unsigned char* given = NULL;
  if (!strcmp(request, "set")) {
    if (!(given = malloc((size_t)rest + 1))) stop("no memory");
    read_bytes(given, (size_t)rest);
  }
  uint32_t state;
  husk_storage_info info = HUSK_STORAGE_INFO_INIT;
  husk_status status = husk_program_find_state(program, name, &state, &error);
  if (status == HUSK_OK) status = husk_program_state(program, state, &info, &error);
  if (status == HUSK_OK && given && info.bytes != (uint64_t)rest) stop("a state has another size");
  if (status != HUSK_OK) {
    free(given);
    return status;
  }
  if (!strcmp(request, "reset")) status = husk_session_state_reset(session, state, &error);
  if (given) status = husk_session_state_set(session, state, given, &error);
  if (!strcmp(request, "copy")) {
    if (rest < 0 || rest >= session_count) stop("no such session");
    status = husk_session_state_copy(session, state, sessions[rest], &error);
  }
  free(given);
  if (strcmp(request, "get")) {
    if (status == HUSK_OK) puts("ok");
    return status;
  }
  unsigned char* bytes = malloc(info.bytes + 1);
  if (!bytes) stop("no memory");
  status = husk_session_state_get(session, state, bytes, &error);
  if (status == HUSK_OK) {
    printf("ok %" PRIu64 "\n", info.bytes);
    fwrite(bytes, 1, info.bytes, stdout);
  }
  free(bytes);
  return status;
}

static husk_status seed(husk_session* session) {
  char name[256];
  static unsigned char generator[HUSK_HOST_GENERATOR_BYTES];
  if (scanf("%255s", name) != 1) stop("a state was expected");
  husk_host_generator_seed((uint64_t)number(), generator);
  end_line();
  uint32_t state;
  husk_status status = husk_program_find_state(program, name, &state, &error);
  if (status == HUSK_OK) status = husk_session_state_set(session, state, generator, &error);
  if (status == HUSK_OK) puts("ok");
  return status;
}

static husk_status update(void) {
  char name[256];
  if (scanf("%255s", name) != 1) stop("a constant was expected");
  const long long bytes = number();
  end_line();
  unsigned char* given = malloc((size_t)bytes + 1);
  if (!given) stop("no memory");
  read_bytes(given, (size_t)bytes);
  husk_constant_update one = {0, 0, given};
  husk_storage_info info = HUSK_STORAGE_INFO_INIT;
  husk_status status = husk_program_find_constant(program, name, &one.constant, &error);
  if (status == HUSK_OK) status = husk_program_constant(program, one.constant, &info, &error);
  if (status == HUSK_OK && info.bytes != (uint64_t)bytes) stop("a constant has another size");
  if (status == HUSK_OK) status = husk_program_update_constants(program, &one, 1, &error);
  if (status == HUSK_OK) puts("ok");
  free(given);
  return status;
}

static husk_status stats(husk_session* session) {
  char name[128];
  if (scanf("%127s", name) != 1) stop("a function was expected");
  end_line();
  uint32_t function;
  husk_session_stats counted = HUSK_SESSION_STATS_INIT;
  husk_status status = husk_program_find_function(program, name, &function, &error);
  if (status == HUSK_OK) status = husk_session_stats_get(session, function, &counted, &error);
  if (status == HUSK_OK) printf("ok %u %u\n", counted.segments, counted.dynamic);
  return status;
}

static husk_status answer(const char* request) {
  if (!strcmp(request, "session")) {
    end_line();
    if (session_count == MAX_SESSIONS) stop("too many sessions");
    const husk_status status = husk_session_create(program, &session_options,
                                                   &sessions[session_count], &error);
    if (status == HUSK_OK) printf("ok %d\n", session_count++);
    return status;
  }
  if (!strcmp(request, "update")) return update();
  const long long session = number();
  if (session < 0 || session >= session_count || !sessions[session]) stop("no such session");
  if (!strcmp(request, "release")) {
    end_line();
    husk_session_release(sessions[session]);
    sessions[session] = NULL;
    puts("ok");
    return HUSK_OK;
  }
  if (!strcmp(request, "run")) return run(sessions[session]);
  if (!strcmp(request, "seed")) return seed(sessions[session]);
  if (!strcmp(request, "stats")) return stats(sessions[session]);
  return state_of(sessions[session], request);
}

int main(int argc, char** argv) {
  if (argc < 2) stop("runner MODEL [--copy-misaligned]");
  session_options.copy_misaligned = argc > 2 && !strcmp(argv[2], "--copy-misaligned");
  husk_engine_options options = HUSK_ENGINE_OPTIONS_INIT;
  options.port = husk_port_host();
  options.allow_host_images = 1;
  options.require_op_contracts = 1;
  husk_engine* engine = NULL;
  husk_status status = husk_engine_create(&options, &engine, &error);
  if (status == HUSK_OK) status = husk_ops_add_all(engine, &error);
  if (status == HUSK_OK) status = husk_program_open(engine, argv[1], &program, &error);
  if (status == HUSK_OK) undecided = calloc(husk_program_function_count(program) + 1, MAX_VALUES);
  if (status != HUSK_OK || !undecided) {
    printf("error %d %s\n", status, error.text);
    husk_engine_release(engine);
    return 1;
  }
  puts("ok");
  fflush(stdout);
  for (char request[16]; scanf("%15s", request) == 1;) {
    status = answer(request);
    if (status != HUSK_OK) printf("error %d %s\n", status, error.text);
    fflush(stdout);
    for (int i = 0; i < 2 * MAX_VALUES; i++) {
      free(tensors[i].memory);
      tensors[i].memory = NULL;
    }
  }
  for (int i = 0; i < session_count; i++) husk_session_release(sessions[i]);
  free(undecided);
  husk_program_release(program);
  husk_engine_release(engine);
  return 0;
}
