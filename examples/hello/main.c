/* Runs mlp.husk (export_mlp.py writes it) on the CPU: 4 rows of 32 numbers in, 4 rows of 10 out. */
#include <stdio.h>
#include <stdlib.h>

#include <husk/husk.h>
#include <husk/ops.h>
#include <husk/port_host.h>

static husk_error error;

/* Ends the process with the text of the error if a call failed. */
static void check(husk_status status) {
  if (status == HUSK_OK) return;
  fprintf(stderr, "%s: %s\n", husk_status_name(status), error.text);
  exit(1);
}

int main(int argc, char** argv) {
  const char* path = argc > 1 ? argv[1] : "mlp.husk";
  static _Alignas(64) float numbers[4 * 32];
  for (int i = 0; i < 4 * 32; ++i) numbers[i] = 0.01f * (float)i;
  int64_t sizes[2] = {4, 32};
  DLTensor x = {numbers, {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, sizes, NULL, 0};

  husk_engine* engine;
  husk_program* program;
  husk_session* session;
  husk_engine_options options = HUSK_ENGINE_OPTIONS_INIT;
  options.port = husk_port_host();
  options.allow_host_images = 1;    /* the file holds native code: open only files that you trust */
  options.require_op_contracts = 1; /* this program has no operators of its own */
  check(husk_engine_create(&options, &engine, &error));
  check(husk_ops_add_all(engine, &error));
  check(husk_program_open(engine, path, &program, &error));
  check(husk_session_create(program, NULL, &session, &error));

  husk_value input = {HUSK_VALUE_TENSOR, 0, {.tensor = &x}};
  husk_value output = {HUSK_VALUE_NONE, 0, {NULL}}; /* the session provides memory for the result */
  check(husk_session_run(session, 0, NULL, &input, 1, &output, 1, &error));
  check(husk_session_wait(session, &error));

  const DLTensor* y = output.as.tensor;
  const float* logits = y->data;
  for (int64_t row = 0; row < y->shape[0]; ++row) {
    for (int64_t i = 0; i < y->shape[1]; ++i) printf(" %7.4f", logits[row * y->shape[1] + i]);
    printf("\n");
  }

  husk_session_release(session);
  husk_program_release(program);
  husk_engine_release(engine);
  return 0;
}
