/* Runs a model that calls the operator app::scale of this program on a GPU.
 *
 *   husk_custom_op scale.husk scale.fatbin
 *
 * Prints the rows of the model's output for four rows of the numbers 0, 1, 2, ... */
#include <stdio.h>
#include <stdlib.h>

#include <husk/husk.h>
#include <husk/port_cuda.h>

#include "scale.h"

enum { ROWS = 4, COLUMNS = 8, COUNT = ROWS * COLUMNS };

static husk_error last_error;

static void check(husk_status status) {
  if (status == HUSK_OK) return;
  fprintf(stderr, "%s: %s\n", husk_status_name(status), last_error.text);
  exit(1);
}

int main(int argc, char** argv) {
  if (argc != 3) {
    fprintf(stderr, "usage: husk_custom_op scale.husk scale.fatbin\n");
    return 2;
  }
  husk_engine* engine;
  husk_engine_options options = HUSK_ENGINE_OPTIONS_INIT;
  options.port = husk_port_cuda();
  check(husk_engine_create(&options, &engine, &last_error));
  scale_op* scale;
  check(scale_register(engine, argv[2], &scale, &last_error));
  husk_program* program;
  husk_session* session;
  check(husk_program_open(engine, argv[1], &program, &last_error));
  check(husk_session_create(program, NULL, &session, &last_error));

  /* Tensors on the device. */
  void* memory;
  float numbers[COUNT];
  for (int i = 0; i < COUNT; ++i) numbers[i] = (float)i;
  check(husk_engine_alloc(engine, sizeof numbers, &memory, &last_error));
  check(husk_engine_upload(engine, NULL, memory, numbers, sizeof numbers, &last_error));

  int64_t sizes[] = {ROWS, COLUMNS};
  DLTensor x = {memory, {kDLCUDA, 0}, 2, husk_dtype_to_dlpack(HUSK_F32), sizes, NULL, 0};
  husk_value input = {HUSK_VALUE_TENSOR, 0, {&x}};
  husk_value output = {HUSK_VALUE_NONE, 0, {NULL}};
  check(husk_session_resize(session, 0, &input, 1, &last_error)); /* makes a graph */
  check(husk_session_run(session, 0, NULL, &input, 1, &output, 1, &last_error));
  check(husk_session_wait(session, &last_error));
  check(husk_engine_download(engine, NULL, numbers, output.as.tensor->data, sizeof numbers,
                             &last_error));
  for (int i = 0; i < COUNT; ++i)
    printf("%s%g", i % COLUMNS ? " " : i ? "\n" : "", (double)numbers[i]);
  husk_session_stats stats = HUSK_SESSION_STATS_INIT;
  check(husk_session_stats_get(session, 0, &stats, &last_error));
  printf("\nrun as a %s\n", stats.runs_as_graph ? "graph" : "list");

  husk_engine_free(engine, memory);
  husk_session_release(session);
  husk_program_release(program);
  husk_engine_release(engine);
  scale_release(scale);
  return 0;
}
