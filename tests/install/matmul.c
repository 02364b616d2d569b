/* Runs matmul.husk on [[1, 2], [3, 4]] and prints the result: what a C program needs of Husk's
 * headers and libraries. */
#include <stdio.h>

#include <husk/husk.h>
#include <husk/ops.h>
#include <husk/port_cuda.h>
#include <husk/port_host.h>

static husk_error error;
static int failed(husk_status status) {
  if (status != HUSK_OK) fprintf(stderr, "%s: %s\n", husk_status_name(status), error.text);
  return status != HUSK_OK;
}

int main(int argc, char** argv) {
  if (argc != 2 || !husk_port_cuda()) return 2;
  husk_engine_options options = HUSK_ENGINE_OPTIONS_INIT;
  options.port = husk_port_host();
  options.require_op_contracts = 1;
  husk_engine* engine = NULL;
  if (failed(husk_engine_create(&options, &engine, &error))) return 1;
  if (failed(husk_ops_add_all(engine, &error))) return 1;
  husk_program* program = NULL;
  if (failed(husk_program_open(engine, argv[1], &program, &error))) return 1;
  husk_session* session = NULL;
  if (failed(husk_session_create(program, NULL, &session, &error))) return 1;

  _Alignas(64) float x[4] = {1, 2, 3, 4};
  int64_t shape[2] = {2, 2};
  DLTensor tensor = {
      .data = x, .device = {kDLCPU, 0}, .ndim = 2, .dtype = {kDLFloat, 32, 1}, .shape = shape};
  husk_value input = {0}, output = {0}; /* the session allocates the output */
  input.kind = HUSK_VALUE_TENSOR;
  input.as.tensor = &tensor;
  output.kind = HUSK_VALUE_NONE;
  if (failed(husk_session_run(session, 0, NULL, &input, 1, &output, 1, &error))) return 1;
  const float* y = output.as.tensor->data;
  printf("husk %s: %g %g %g %g\n", husk_version(), y[0], y[1], y[2], y[3]);
  husk_session_release(session);
  husk_program_release(program);
  husk_engine_release(engine);
  return 0;
}
