/* Answers one message with a language model in a file that `python -m husk llm` has made:
 *
 *   husk_example_llm smollm2.husk "What is the capital of France?"
 *
 * Each token is the most likely one. C11. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <husk/generate.h>
#include <husk/ops.h>
#include <husk/port_host.h>

static husk_error error;

/* Ends the process with the text of the error if a call failed. */
static void check(husk_status status) {
  if (status == HUSK_OK) return;
  fprintf(stderr, "%s\n", error.text);
  exit(1);
}

/* Gets each part of the answer. */
static int32_t print(void* user, const husk_text_part* part) {
  (void)user;
  fwrite(part->text, 1, part->bytes, stdout);
  fflush(stdout);
  return 0;
}

int main(int argc, char** argv) {
  if (argc != 3) return fputs("usage: husk_example_llm FILE.husk MESSAGE\n", stderr), 2;
  husk_engine* engine;
  husk_program* program;
  husk_generator* generator;
  husk_engine_options options = HUSK_ENGINE_OPTIONS_INIT;
  options.port = husk_port_host();
  options.allow_host_images = 1;    /* the file holds native code: open only files that you trust */
  options.require_op_contracts = 1; /* this program has no operators of its own */
  check(husk_engine_create(&options, &engine, &error));
  check(husk_ops_add_all(engine, &error));
  check(husk_program_open(engine, argv[1], &program, &error));
  check(husk_generator_create(engine, program, NULL, &generator, &error));

  /* The message, in the form that the model takes. */
  husk_chat* chat;
  husk_text_request request = HUSK_TEXT_REQUEST_INIT;
  check(husk_generator_chat(generator, &chat, &error));
  check(husk_chat_add(chat, "user", argv[2], strlen(argv[2]), &error));
  check(husk_chat_text(chat, &request.text, &request.bytes, &error));
  request.part = print;
  check(husk_generator_submit(generator, &request, NULL, &error));
  for (int32_t more = 1; more;) check(husk_generator_step(generator, &more, &error));
  printf("\n");

  husk_chat_release(chat);
  husk_generator_release(generator);
  husk_program_release(program);
  husk_engine_release(engine);
  return 0;
}
