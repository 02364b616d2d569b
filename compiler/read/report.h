// What husk-dump prints. Deterministic: the same bytes give the same text, whatever the machine.
#pragma once

#include <string>

#include "read/artifact.h"

namespace husk::compiler {

std::string report_metadata(const Artifact& artifact);   // header, targets, images, kernels, constants, signatures
std::string report_code(const Artifact& artifact);       // every variant, disassembled
std::string report_plan_summary(const Artifact& artifact);   // a line for each variant: its arena at the bounds
std::string report_plan(const Artifact& artifact);       // the same, and where each buffer lies
std::string report_graph(const Artifact& artifact);      // which steps wait for which
std::string report_sizes(const Artifact& artifact);      // where the bytes are
std::string report_json(const Artifact& artifact);       // the metadata, for other tools

}  // namespace husk::compiler
