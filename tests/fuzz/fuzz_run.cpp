// Fuzzes runs of artifacts whose changed metadata still verifies: on the checking ports, which look
// at every address, and on the port of the host with its ops.
#include "run_artifact.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace husk::fuzz;
  const Artifact artifact(data, size);
  if (!artifact.data || run_artifact(artifact, PortKind::checking).stage == Stage::verify) return 0;
  run_artifact(artifact, PortKind::host);
  run_artifact(artifact, PortKind::beside_host);
  return 0;
}
