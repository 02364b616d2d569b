// Runs a program on the empty port, for tests/bench/instructions.sh to count the instructions of
// the runs: `husk_instructions FILE.husk RUNS same` passes one shape to all runs, `... changed`
// passes another shape to each run than to the run before.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include <husk/husk.h>

#include "empty_port.h"

namespace {

void check(husk_status status, const husk_error& error) {
  if (status == HUSK_OK) return;
  std::fprintf(stderr, "husk_instructions: %s\n", error.text);
  std::exit(1);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const int runs = std::atoi(argv[2]);
  const bool changed = std::strcmp(argv[3], "changed") == 0;
  husk_error error = {};
  husk_engine_options options = HUSK_ENGINE_OPTIONS_INIT;
  options.port = husk::bench::empty_port();
  options.allow_host_images = 1;
  options.require_op_contracts = 1;
  husk_engine* engine = nullptr;
  husk_program* program = nullptr;
  husk_session* session = nullptr;
  check(husk_engine_create(&options, &engine, &error), error);
  check(husk_program_open(engine, argv[1], &program, &error), error);
  check(husk_session_create(program, nullptr, &session, &error), error);

  std::vector<float> memory(2 * 1024 * 256 + 64);
  int64_t shape[2] = {64, 256};
  DLTensor x = {}, y = {};
  x.ndim = y.ndim = 2;
  x.dtype = y.dtype = {kDLFloat, 32, 1};
  x.device = y.device = {kDLCPU, 0};
  x.shape = y.shape = shape;
  x.data = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64) % 64 / 4;
  y.data = static_cast<float*>(x.data) + 1024 * 256;
  husk_value in = {HUSK_VALUE_TENSOR, 0, {}}, out = in;
  in.as.tensor = &x;
  out.as.tensor = &y;
  check(husk_session_resize(session, 0, &in, 1, &error), error);
  for (int i = 0; i < runs; ++i) {
    if (changed) shape[0] = 64 - (i + 1) % 2;
    check(husk_session_run(session, 0, nullptr, &in, 1, &out, 1, &error), error);
  }
  husk_session_release(session);
  husk_program_release(program);
  husk_engine_release(engine);
  return 0;
}
