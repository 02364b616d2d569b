/* Continues a sequence of tokens, by two functions over one state: `prefill` takes all the tokens that there are, `decode`
 * the one that came last, and the keys and values of those before stay in the session.
 *
 *   python -m husk examples/models.py:generate -o gpt.husk
 *   husk_example_generate gpt.husk COUNT TOKEN...
 *
 * Prints COUNT tokens, each the likeliest. C11. */
#include <husk/husk.h>
#include <husk/port_host.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX_TOKENS = 4096 };

/* Every call gives a status, and says in its last argument what went wrong. */
static husk_error error;
static void check(husk_status status) {
  if (status == HUSK_OK) return;
  fprintf(stderr, "%s: %s\n", husk_status_name(status), error.text);
  exit(1);
}

/* Runs a function on `count` tokens, and chooses the next. */
static int64_t next_token(husk_session* session, uint32_t function, int64_t* tokens, int64_t count) {
  DLTensor given = {.data = tokens, .device = {kDLCPU, 0}, .ndim = 1, .dtype = {kDLInt, 64, 1}, .shape = &count};
  const husk_value input = {HUSK_VALUE_TENSOR, 0, {.tensor = &given}};
  husk_value output = {HUSK_VALUE_NONE, 0, {NULL}};   /* becomes a tensor of the session's, until its next run */
  check(husk_session_run(session, function, NULL, &input, 1, &output, 1, &error));
  check(husk_session_wait(session, &error));
  const float* logits = output.as.tensor->data;
  int64_t best = 0;
  for (int64_t i = 1; i < output.as.tensor->shape[0]; i++) if (logits[i] > logits[best]) best = i;
  return best;
}

int main(int argc, char** argv) {
  static _Alignas(64) int64_t tokens[MAX_TOKENS];
  const int64_t given = argc - 3;
  if (given < 1 || given > MAX_TOKENS) {
    fprintf(stderr, "usage: husk_example_generate gpt.husk COUNT TOKEN...\n");
    return 2;
  }
  const int count = atoi(argv[2]);
  for (int64_t i = 0; i < given; i++) tokens[i] = atoll(argv[i + 3]);

  husk_engine_options options = HUSK_ENGINE_OPTIONS_INIT;
  options.port = husk_port_host();
  options.allow_host_images = 1;   /* a model for the host is native code: only for files that you trust */
  husk_engine* engine;
  check(husk_engine_create(&options, &engine, &error));
  uint32_t op_count = 0;
  const husk_op* ops = husk_host_ops(&op_count);
  for (uint32_t i = 0; i < op_count; i++) check(husk_engine_add_op(engine, &ops[i], &error));

  /* The weights are the program's, there once; the cache is the session's: one for each sequence that goes on. */
  husk_program* program;
  husk_session* session;
  uint32_t prefill, decode;
  check(husk_program_open(engine, argv[1], &program, &error));
  check(husk_program_find_function(program, "prefill", &prefill, &error));
  check(husk_program_find_function(program, "decode", &decode, &error));
  check(husk_session_create(program, NULL, &session, &error));

  for (int made = 0; made < count; made++) {
    tokens[0] = made == 0 ? next_token(session, prefill, tokens, given) : next_token(session, decode, tokens, 1);
    printf("%lld%s", (long long)tokens[0], made + 1 < count ? " " : "\n");
  }

  husk_session_release(session);
  husk_program_release(program);
  husk_engine_release(engine);
  return 0;
}
