/* Opens an artifact only if it is signed with a key that this application trusts.
 *
 *   husk_signed MODEL.husk KEY.pub     reads the signature MODEL.husk.sig, which husk-sign writes
 */
#include <stdio.h>
#include <stdlib.h>

#include <husk/husk.h>
#include <husk/ops.h>
#include <husk/port_host.h>
#include <husk/signature.h>

static husk_error error;

static void check(husk_status status) {
  if (status == HUSK_OK) return;
  fprintf(stderr, "%s: %s\n", husk_status_name(status), error.text);
  exit(1);
}

int main(int argc, char** argv) {
  char signature_path[4096];
  husk_signature* trusted = NULL;
  husk_engine* engine = NULL;
  husk_program* program = NULL;
  if (argc != 3) {
    fprintf(stderr, "usage: husk_signed MODEL.husk KEY.pub\n");
    return 2;
  }
  snprintf(signature_path, sizeof(signature_path), "%s.sig", argv[1]);
  check(husk_signature_create(&trusted, &error));
  check(husk_signature_add_key_file(trusted, argv[2], &error));
  check(husk_signature_add_file(trusted, signature_path, &error));

  husk_engine_options options = HUSK_ENGINE_OPTIONS_INIT;
  options.port = husk_port_host();
  options.allow_host_images = 1; /* the signature says who made the native code in the file */
  options.accept = husk_signature_accept;
  options.accept_user = trusted;
  options.verify_content = 1;       /* the signature covers constants only by their hashes */
  options.require_op_contracts = 1; /* this program has no operators of its own */
  check(husk_engine_create(&options, &engine, &error));
  check(husk_ops_add_all(engine, &error));
  check(husk_program_open(engine, argv[1], &program, &error));
  printf("%s is signed and has %u function(s)\n", argv[1], husk_program_function_count(program));

  husk_program_release(program);
  husk_engine_release(engine);
  husk_signature_release(trusted); /* the engine used it */
  return 0;
}
