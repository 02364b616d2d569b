/* Answers one message with a language model in a file that `python -m husk llm` has made:
 *
 *   husk_example_llm smollm2.husk "What is the capital of France?"
 *
 * Each token is the most likely one. C11. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <husk/husk.h>
#include <husk/ops.h>
#include <husk/port_host.h>
#include <husk/text.h>

enum { MAX_TOKENS = 1024, SPAN = 64 };

static husk_error error;
static _Alignas(64) int64_t tokens[MAX_TOKENS], position;

/* Ends the process with the text of the error if a call failed. */
static void check(husk_status status) {
  if (status == HUSK_OK) return;
  fprintf(stderr, "%s\n", error.text);
  exit(1);
}

/* An entry of the file's metadata. */
static const char* text_of(const husk_program* program, const char* key) {
  for (uint32_t i = 0; i < husk_program_metadata_count(program); ++i)
    if (!strcmp(husk_program_metadata_key(program, i), key))
      return husk_program_metadata_value(program, i);
  fprintf(stderr, "the file has no %s\n", key);
  exit(1);
}

/* How much of the cache a run reads that ends at `end`: a multiple of SPAN, so that few sizes
 * occur. */
static husk_value span(int64_t end, int64_t most) {
  const int64_t rounded = (end + SPAN - 1) / SPAN * SPAN;
  return (husk_value){HUSK_VALUE_INT, 0, {.i = rounded < most ? rounded : most}};
}

/* Runs a function, whose first output is the most likely next token. */
static int64_t run(husk_session* session, uint32_t function, const husk_value* inputs,
                   uint32_t count) {
  husk_value outputs[2] = {{HUSK_VALUE_NONE, 0, {NULL}}, {HUSK_VALUE_NONE, 0, {NULL}}};
  check(husk_session_run(session, function, NULL, inputs, count, outputs, 2, &error));
  check(husk_session_wait(session, &error));
  return *(const int64_t*)outputs[0].as.tensor->data;
}

int main(int argc, char** argv) {
  if (argc != 3) {
    fprintf(stderr, "usage: husk_example_llm FILE.husk MESSAGE\n");
    return 2;
  }
  husk_engine* engine;
  husk_program* program;
  husk_session* session;
  husk_engine_options options = HUSK_ENGINE_OPTIONS_INIT;
  options.port = husk_port_host();
  options.allow_host_images = 1;    /* the file holds native code: open only files that you trust */
  options.require_op_contracts = 1; /* this program has no operators of its own */
  check(husk_engine_create(&options, &engine, &error));
  check(husk_ops_add_all(engine, &error));
  check(husk_program_open(engine, argv[1], &program, &error));
  check(husk_session_create(program, NULL, &session, &error));
  uint32_t prefill, decode;
  check(husk_program_find_function(program, "prefill", &prefill, &error));
  check(husk_program_find_function(program, "decode", &decode, &error));

  /* The message, in the form that the model takes, as tokens. */
  husk_tokenizer* tokenizer;
  husk_text_decoder* decoder;
  husk_chat* chat;
  const char *json = text_of(program, "husk.text.tokenizer"),
             *roles = text_of(program, "husk.text.roles"), *text;
  check(husk_tokenizer_create(json, strlen(json), &tokenizer, &error));
  check(husk_text_decoder_create(tokenizer, HUSK_TEXT_SKIP_SPECIAL, &decoder, &error));
  check(husk_chat_create(roles, strlen(roles), &chat, &error));
  check(husk_chat_add(chat, "user", argv[2], strlen(argv[2]), &error));
  size_t bytes, count;
  static int32_t prompt[MAX_TOKENS];
  check(husk_chat_text(chat, &text, &bytes, &error));
  check(husk_tokenizer_encode(tokenizer, text, bytes, 0, prompt, MAX_TOKENS, &count, &error));
  /* How many tokens a sequence may have. */
  const char* most_text = strstr(text_of(program, "husk.text.model"), "\"max_tokens\":");
  const int64_t most = most_text ? strtoll(most_text + strlen("\"max_tokens\":"), NULL, 10) : 0;
  if (count > MAX_TOKENS || (int64_t)count > most) {
    fprintf(stderr, "the message has too many tokens: %zu\n", count);
    return 1;
  }
  for (size_t i = 0; i < count; ++i) tokens[i] = prompt[i];

  /* All tokens of the prompt at once, and then one after another. */
  int64_t length = (int64_t)count, one = 1;
  DLTensor sequence = {.data = tokens, .device = {kDLCPU, 0}, .ndim = 1, .dtype = {kDLInt, 64, 1}};
  DLTensor at = sequence;
  at.data = &position, at.shape = &one, sequence.shape = &length;
  husk_value inputs[4] = {{HUSK_VALUE_TENSOR, 0, {.tensor = &sequence}}};
  inputs[1] = inputs[2] = (husk_value){HUSK_VALUE_INT, 0, {.i = 0}}; /* slot and position */
  inputs[3] = span(length, most);
  tokens[0] = run(session, prefill, inputs, 4);
  position = length, length = 1;
  while (!husk_tokenizer_is_special(tokenizer, (int32_t)tokens[0])) {
    check(husk_text_decoder_push(decoder, (int32_t)tokens[0], &text, &bytes, &error));
    fwrite(text, 1, bytes, stdout);
    fflush(stdout);
    if (position == most) break;
    inputs[1] = (husk_value){HUSK_VALUE_TENSOR, 0, {.tensor = &at}};
    inputs[2] = span(position + 1, most);
    tokens[0] = run(session, decode, inputs, 3);
    ++position;
  }
  printf("\n");

  husk_chat_release(chat);
  husk_text_decoder_release(decoder);
  husk_tokenizer_release(tokenizer);
  husk_session_release(session);
  husk_program_release(program);
  husk_engine_release(engine);
  return 0;
}
