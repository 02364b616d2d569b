/* Prints the time from the start of Husk to the first result of an artifact, and the memory of the
 * process, which contains nothing but the C library, Husk and the artifact.
 *   husk_first_result FILE
 * The inputs are tensors of zeros, with the smallest sizes that the artifact allows, but not 0. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <husk/husk.h>
#include <husk/ops.h>
#include <husk/port_host.h>

enum { max_inputs = 16, max_rank = 8 };

static husk_error error;

static void check(husk_status status) {
  if (status == HUSK_OK) return;
  fprintf(stderr, "husk_first_result: %s\n", error.text);
  exit(1);
}

static double milliseconds(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec * 1e3 + (double)time.tv_nsec / 1e6;
}

/* The memory of the process in KiB, by the name of the line in /proc/self/status. */
static long memory(const char* name) {
  char line[256];
  long kib = -1;
  FILE* file = fopen("/proc/self/status", "r");
  if (!file) return kib;
  while (fgets(line, sizeof line, file))
    if (strncmp(line, name, strlen(name)) == 0) kib = strtol(line + strlen(name) + 1, NULL, 10);
  fclose(file);
  return kib;
}

/* Makes an input of zeros. `tensor` and `sizes` must live as long as the input. */
static husk_value zeros(const husk_program* program, uint32_t index, DLTensor* tensor,
                        int64_t* sizes) {
  husk_value_info info = HUSK_VALUE_INFO_INIT;
  husk_value value = {0, 0, {NULL}};
  check(husk_program_input(program, 0, index, &info, &error));
  value.kind = info.kind;
  if (info.kind != HUSK_VALUE_TENSOR) return value;
  if (info.rank > max_rank) {
    fprintf(stderr, "husk_first_result: input %s has too many dimensions\n", info.name);
    exit(1);
  }
  size_t bytes = husk_dtype_size(info.dtype);
  for (int32_t d = 0; d < info.rank; ++d) {
    sizes[d] = info.ranges[2 * d] > 0 ? info.ranges[2 * d] : 1;
    bytes *= (size_t)sizes[d];
  }
  *tensor = (DLTensor){aligned_alloc(64, (bytes + 63) / 64 * 64),
                       {kDLCPU, 0},
                       info.rank,
                       husk_dtype_to_dlpack(info.dtype),
                       sizes,
                       NULL,
                       0};
  memset(tensor->data, 0, bytes);
  value.as.tensor = tensor;
  return value;
}

int main(int argc, char** argv) {
  if (argc != 2) {
    fprintf(stderr, "husk_first_result: usage: husk_first_result FILE\n");
    return 2;
  }
  DLTensor tensors[max_inputs];
  int64_t sizes[max_inputs][max_rank];
  husk_value inputs[max_inputs], outputs[max_inputs];
  const long before = memory("VmRSS:");

  const double start = milliseconds();
  husk_engine* engine;
  husk_program* program;
  husk_session* session;
  husk_engine_options options = HUSK_ENGINE_OPTIONS_INIT;
  options.port = husk_port_host();
  options.allow_host_images = 1;
  options.require_op_contracts = 1;
  check(husk_engine_create(&options, &engine, &error));
  check(husk_ops_add_all(engine, &error));
  const double ready = milliseconds();
  check(husk_program_open(engine, argv[1], &program, &error));
  const double opened = milliseconds();

  const uint32_t input_count = husk_program_input_count(program, 0),
                 output_count = husk_program_output_count(program, 0);
  if (input_count > max_inputs || output_count > max_inputs) {
    fprintf(stderr, "husk_first_result: the function has too many inputs or outputs\n");
    return 1;
  }
  for (uint32_t i = 0; i < input_count; ++i) inputs[i] = zeros(program, i, &tensors[i], sizes[i]);
  /* The session provides the memory of tensors. */
  for (uint32_t i = 0; i < output_count; ++i) {
    husk_value_info info = HUSK_VALUE_INFO_INIT;
    check(husk_program_output(program, 0, i, &info, &error));
    outputs[i].kind = info.kind == HUSK_VALUE_TENSOR ? HUSK_VALUE_NONE : info.kind;
  }
  const double made = milliseconds();
  check(husk_session_create(program, NULL, &session, &error));
  check(husk_session_run(session, 0, NULL, inputs, input_count, outputs, output_count, &error));
  check(husk_session_wait(session, &error));
  const double done = milliseconds();

  printf("engine %.3f ms, open %.3f ms, first result %.3f ms after it\n", ready - start,
         opened - ready, done - made);
  printf("memory %ld KiB, at most %ld KiB, of which %ld KiB before the engine was made\n",
         memory("VmRSS:"), memory("VmHWM:"), before);

  husk_session_release(session);
  husk_program_release(program);
  husk_engine_release(engine);
  for (uint32_t i = 0; i < input_count; ++i)
    if (inputs[i].kind == HUSK_VALUE_TENSOR) free(tensors[i].data);
  return 0;
}
