/* Continues a sequence of tokens with two functions that share one state: `prefill` takes all the
 * tokens of the prompt, `decode` takes one token. The keys and values of earlier tokens stay in the
 * session.
 *
 *   python -m husk examples/models.py:generate -o gpt.husk
 *   husk_example_generate gpt.husk COUNT TOKEN...
 *
 * Prints COUNT tokens; each is the most likely one. C11. */
#include <stdio.h>
#include <stdlib.h>

#include <husk/husk.h>
#include <husk/ops.h>
#include <husk/port_host.h>

enum { MAX_TOKENS = 4096 };

static husk_error error;

/* Ends the process with the text of the error if a call failed. */
static void check(husk_status status) {
  if (status == HUSK_OK) return;
  fprintf(stderr, "%s: %s\n", husk_status_name(status), error.text);
  exit(1);
}

static int64_t argmax(const float* numbers, int64_t count) {
  int64_t best = 0;
  for (int64_t i = 1; i < count; ++i)
    if (numbers[i] > numbers[best]) best = i;
  return best;
}

/* Runs a function on `count` tokens and returns the most likely next token. */
static int64_t next_token(husk_session* session, uint32_t function, int64_t* tokens,
                          int64_t count) {
  DLTensor sequence = {
      .data = tokens, .device = {kDLCPU, 0}, .ndim = 1, .dtype = {kDLInt, 64, 1}, .shape = &count};
  const husk_value input = {HUSK_VALUE_TENSOR, 0, {.tensor = &sequence}};
  /* For an output of kind NONE the session provides the memory, until its next run. */
  husk_value output = {HUSK_VALUE_NONE, 0, {NULL}};
  check(husk_session_run(session, function, NULL, &input, 1, &output, 1, &error));
  check(husk_session_wait(session, &error));
  const DLTensor* logits = output.as.tensor;
  return argmax(logits->data, logits->shape[0]);
}

static void generate(husk_session* session, const husk_program* program, int64_t* tokens,
                     int64_t prompt, int count) {
  uint32_t prefill, decode;
  check(husk_program_find_function(program, "prefill", &prefill, &error));
  check(husk_program_find_function(program, "decode", &decode, &error));
  for (int i = 0; i < count; ++i) {
    if (i == 0) {
      tokens[0] = next_token(session, prefill, tokens, prompt);
    } else {
      tokens[0] = next_token(session, decode, tokens, 1);
    }
    printf("%lld%s", (long long)tokens[0], i + 1 < count ? " " : "\n");
  }
}

int main(int argc, char** argv) {
  static _Alignas(64) int64_t tokens[MAX_TOKENS];
  const int64_t prompt = argc - 3; /* tokens of the prompt */
  if (prompt < 1 || prompt > MAX_TOKENS) {
    fprintf(stderr, "usage: husk_example_generate gpt.husk COUNT TOKEN...\n");
    return 2;
  }
  for (int64_t i = 0; i < prompt; ++i) tokens[i] = atoll(argv[i + 3]);

  husk_engine* engine;
  husk_engine_options options = HUSK_ENGINE_OPTIONS_INIT;
  options.port = husk_port_host();
  options.allow_host_images = 1; /* a host model is native code: open only files that you trust */
  options.require_op_contracts = 1; /* this program has no operators of its own */
  check(husk_engine_create(&options, &engine, &error));
  check(husk_ops_add_all(engine, &error));

  /* The program holds the weights once. Each session holds the cache of one sequence. */
  husk_program* program;
  husk_session* session;
  check(husk_program_open(engine, argv[1], &program, &error));
  check(husk_session_create(program, NULL, &session, &error));
  generate(session, program, tokens, prompt, atoi(argv[2]));

  husk_session_release(session);
  husk_program_release(program);
  husk_engine_release(engine);
  return 0;
}
