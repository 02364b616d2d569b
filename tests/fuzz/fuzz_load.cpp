// Fuzzes verifying and loading of arbitrary bytes, as they are and with a corrected header. Nothing
// may crash or leak, and each refusal must have a reason.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <husk/husk.h>

#include "checking_port.h"
#include "mutate.h"

namespace {

void expect_reason(husk_status status, const husk_error& error) {
  if (status == HUSK_OK || std::strlen(error.text) > 8) return;
  std::fprintf(stderr, "refused with status %d and no reason\n", status);
  std::abort();
}

void load(const void* data, size_t size) {
  husk_error error = {};
  expect_reason(husk_program_verify(data, size, &error), error);
  husk_engine_options options = HUSK_ENGINE_OPTIONS_INIT;
  options.port = husk::fuzz::checking_port();
  options.allow_host_images = 1;
  options.require_op_contracts = 1;
  husk_engine* engine = nullptr;
  if (husk_engine_create(&options, &engine, &error) != HUSK_OK) std::abort();
  husk_program* program = nullptr;
  const husk_status status = husk_program_load(engine, data, size, nullptr, nullptr, &program,
                                               &error);
  expect_reason(status, error);
  husk_program_release(program);
  husk_engine_release(engine);
  if (husk::fuzz::live() != 0) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const husk::fuzz::Artifact artifact(data, size);
  if (!artifact.data) return 0;
  load(artifact.data, artifact.size);
  std::memcpy(artifact.data, data, 64);
  load(artifact.data, artifact.size);
  return 0;
}
