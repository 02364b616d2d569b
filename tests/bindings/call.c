/* Prints the nanoseconds that a run of the first function of an artifact takes, as the median of 21
 * rounds of ROUND runs: the measure of the bindings of other languages.
 *   call FILE.husk ROUND */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <husk/husk.h>
#include <husk/ops.h>
#include <husk/port_host.h>

enum { kInputs = 4, kRank = 16, kRounds = 21 };

static husk_error error;

static void check(husk_status status) {
  if (status == HUSK_OK) return;
  fprintf(stderr, "%s\n", error.text);
  exit(1);
}

static husk_status scale(const husk_op_context* context, const husk_op_arg* args, uint32_t count,
                         husk_error* failure) {
  (void)context, (void)args, (void)count, (void)failure;
  return HUSK_OK;
}

static int compare(const void* a, const void* b) {
  const double one = *(const double*)a, other = *(const double*)b;
  return (one > other) - (one < other);
}

int main(int count, char** arguments) {
  if (count != 3) {
    fprintf(stderr, "usage: call FILE.husk ROUND\n");
    return 2;
  }
  const int round = atoi(arguments[2]);
  husk_engine* engine;
  husk_program* program;
  husk_session* session;
  husk_engine_options options = HUSK_ENGINE_OPTIONS_INIT;
  options.port = husk_port_host();
  options.allow_host_images = 1; /* the file holds native code: open only files that you trust */
  options.require_op_contracts = 1;
  check(husk_engine_create(&options, &engine, &error));
  check(husk_ops_add_all(engine, &error));
  husk_op op = HUSK_OP_INIT;
  op.name = "test::scale";
  op.call = scale;
  op.contract = "x factor y:w";
  check(husk_engine_add_op(engine, &op, &error));
  check(husk_program_open(engine, arguments[1], &program, &error));
  check(husk_session_create(program, NULL, &session, &error));

  const uint32_t inputs = husk_program_input_count(program, 0),
                 outputs = husk_program_output_count(program, 0);
  if (inputs > kInputs || outputs > kInputs) return 2;
  static int64_t sizes[kInputs][kRank];
  static float* ones[kInputs];
  static int32_t ranks[kInputs];
  for (uint32_t i = 0; i < inputs; ++i) {
    husk_value_info info = HUSK_VALUE_INFO_INIT;
    check(husk_program_input(program, 0, i, &info, &error));
    size_t elements = 1;
    ranks[i] = info.rank;
    for (int32_t d = 0; d < info.rank; ++d) elements *= (size_t)(sizes[i][d] = info.ranges[2 * d]);
    ones[i] = malloc(elements * sizeof(float));
    for (size_t k = 0; k < elements; ++k) ones[i][k] = 1;
  }

  double times[kRounds];
  for (int k = 0; k < kRounds; ++k) {
    struct timespec start, end;
    clock_gettime(CLOCK_MONOTONIC, &start);
    for (int n = 0; n < round; ++n) {
      DLTensor tensors[kInputs] = {0};
      husk_value in[kInputs] = {0}, out[kInputs] = {0};
      for (uint32_t i = 0; i < inputs; ++i) {
        tensors[i].data = ones[i];
        tensors[i].device.device_type = kDLCPU;
        tensors[i].ndim = ranks[i];
        tensors[i].dtype = husk_dtype_to_dlpack(HUSK_F32);
        tensors[i].shape = sizes[i];
        in[i].kind = HUSK_VALUE_TENSOR;
        in[i].as.tensor = &tensors[i];
      }
      check(husk_session_run(session, 0, NULL, in, inputs, out, outputs, &error));
      check(husk_session_wait(session, &error));
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    times[k] = ((double)(end.tv_sec - start.tv_sec) * 1e9 + (double)(end.tv_nsec - start.tv_nsec)) /
               round;
  }
  qsort(times, kRounds, sizeof *times, compare);
  printf("%.0f\n", times[kRounds / 2]);
  for (uint32_t i = 0; i < inputs; ++i) free(ones[i]);
  husk_session_release(session);
  husk_program_release(program);
  husk_engine_release(engine);
  return 0;
}
