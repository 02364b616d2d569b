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

static void* host_allocate(void* user, size_t size, size_t align) {
  (void)user;
  return aligned_alloc(align, (size + align - 1) / align * align);
}

static void host_release(void* user, void* memory) {
  (void)user;
  free(memory);
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

  /* Tensors on the device: the port allocates and copies. */
  const husk_allocator host_memory = {NULL, host_allocate, host_release};
  const husk_port* port = options.port;
  void *device, *memory;
  check(port->open(port->user, 0, &host_memory, NULL, &device, &last_error));
  float numbers[COUNT];
  for (int i = 0; i < COUNT; ++i) numbers[i] = (float)i;
  check(port->alloc(device, sizeof numbers, &memory, &last_error));
  check(port->upload(device, NULL, memory, numbers, sizeof numbers, &last_error));

  int64_t sizes[] = {ROWS, COLUMNS};
  DLTensor x = {memory, {kDLCUDA, 0}, 2, husk_dtype_to_dlpack(HUSK_F32), sizes, NULL, 0};
  husk_value input = {HUSK_VALUE_TENSOR, 0, {&x}};
  husk_value output = {HUSK_VALUE_NONE, 0, {NULL}};
  check(husk_session_run(session, 0, NULL, &input, 1, &output, 1, &last_error));
  check(husk_session_wait(session, &last_error));
  check(port->download(device, NULL, numbers, output.as.tensor->data, sizeof numbers, &last_error));
  for (int i = 0; i < COUNT; ++i)
    printf("%s%g", i % COLUMNS ? " " : i ? "\n" : "", (double)numbers[i]);
  printf("\n");

  port->free(device, memory);
  port->close(device);
  husk_session_release(session);
  husk_program_release(program);
  husk_engine_release(engine);
  scale_release(scale);
  return 0;
}
