/* Runs the model that is linked into this program: 4 rows of 32 numbers in, 4 rows of 10 out. All
 * memory comes from a static array. Nothing is loaded, opened or allocated elsewhere. */
#include <stdio.h>
#include <stdlib.h>

#include <husk/husk.h>
#include <husk/port_host.h>

#include "linear.h"

extern const unsigned char husk_mlp[]; /* of `huskc mlp.husk --emit=obj -o mlp.o` */

static husk_error error;

/* Ends the process with the text of the error if a call failed. */
static void check(husk_status status) {
  if (status == HUSK_OK) return;
  fprintf(stderr, "%s: %s\n", husk_status_name(status), error.text);
  exit(1);
}

/* An allocator that takes blocks from an array and never uses one again. */
static struct {
  _Alignas(64) unsigned char bytes[96 * 1024];
  size_t used;
  unsigned calls;
} arena;

static void* allocate(void* user, size_t size, size_t align) {
  (void)user;
  const size_t at = (arena.used + align - 1) / align * align;
  if (at > sizeof arena.bytes || size > sizeof arena.bytes - at) return NULL;
  arena.used = at + size;
  ++arena.calls;
  return arena.bytes + at;
}

static void release(void* user, void* pointer) {
  (void)user;
  (void)pointer;
}

int main(void) {
  static _Alignas(64) float numbers[4 * 32], result[4 * 10];
  for (int i = 0; i < 4 * 32; ++i) numbers[i] = 0.01f * (float)i;
  int64_t in_sizes[2] = {4, 32}, out_sizes[2] = {4, 10};
  DLTensor x = {numbers, {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, in_sizes, NULL, 0};
  DLTensor y = {result, {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, out_sizes, NULL, 0};
  const husk_value input = {HUSK_VALUE_TENSOR, 0, {.tensor = &x}};
  husk_value output = {HUSK_VALUE_TENSOR, 0, {.tensor = &y}};

  husk_engine* engine;
  husk_program* program;
  husk_session* session;
  const husk_allocator allocator = {NULL, allocate, release};
  husk_engine_options options = HUSK_ENGINE_OPTIONS_INIT;
  options.port = husk_port_host_linked();
  options.allocator = &allocator;
  check(husk_engine_create(&options, &engine, &error));
  check(husk_engine_add_op(engine, &linear_op, &error));
  check(husk_program_link(engine, husk_mlp, &program, &error));
  check(husk_session_create(program, NULL, &session, &error));
  check(husk_session_resize(session, 0, &input, 1, &error));

  const unsigned before = arena.calls;
  for (int run = 0; run < 100; ++run)
    check(husk_session_run(session, 0, NULL, &input, 1, &output, 1, &error));
  for (int row = 0; row < 4; ++row) {
    for (int i = 0; i < 10; ++i) printf(" %6.4f", (double)result[row * 10 + i]);
    printf("\n");
  }
  printf("%u allocations in 100 runs; %zu KiB of memory in use\n", arena.calls - before,
         (arena.used + 1023) / 1024);
  husk_session_release(session);
  husk_program_release(program);
  husk_engine_release(engine);
  return 0;
}
