// Runs of an artifact of any content, with the inputs that its signature allows.
#pragma once

#include <string>

#include <husk/husk.h>

#include "mutate.h"

namespace husk::fuzz {

// Whether the engine limits steps and elements and ends runs early: never, or for one content hash
// in four.
enum class Budgets { never, by_hash };

enum class PortKind {
  checking,     // checks every address and runs no kernel; ops touch what their contract says
  host,         // the port for the CPU with the ops of the host; it refuses images
  beside_host,  // as `checking`, for a device with a host beside it
};

// How far an artifact came on a port.
enum class Stage { verify, open, session, run };

struct Outcome {
  Stage stage = Stage::verify;  // the last stage that was entered
  uint32_t finished = 0;        // runs
  // The reason of the last refusal; empty if there was none. Only `stage`, or runs of some shapes,
  // were refused.
  std::string reason;
};

// Verifies, opens and runs every function, for some shapes, twice each. The process ends if memory
// is not freed, or if something is refused without a reason.
Outcome run_artifact(const Artifact& artifact, PortKind port, Budgets budgets = Budgets::by_hash);

}  // namespace husk::fuzz
