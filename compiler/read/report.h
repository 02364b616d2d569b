// What husk-dump prints. Deterministic: the same bytes give the same text, whatever the machine.
#pragma once

#include <string>

#include "read/artifact.h"
#include "read/bounded.h"

namespace husk::compiler {

std::string report_metadata(const Artifact& artifact);   // header, targets, images, kernels, constants, signatures
std::string report_code(const Artifact& artifact);       // every variant, disassembled
// A line for each variant: its arena at the bounds, or at sizes that were given.
std::string report_plan_summary(const Artifact& artifact, const GivenSizes& sizes = {});
std::string report_plan(const Artifact& artifact, const GivenSizes& sizes = {});   // and where each buffer lies, drawn
std::string report_svg(const Artifact& artifact, const GivenSizes& sizes = {});    // the plans as one picture
std::string report_graph(const Artifact& artifact);      // which steps wait for which
std::string report_sizes(const Artifact& artifact);      // where the bytes are
std::string report_json(const Artifact& artifact);       // the metadata, for other tools

}  // namespace husk::compiler
