// The texts that husk-dump prints. An artifact gives the same text on every machine.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "read/artifact.h"
#include "read/bounded_plan.h"

namespace husk::compiler {

// Header, targets, images, kernels, constants, signatures.
std::string report_metadata(const Artifact& artifact);
// The disassembly of every variant.
std::string report_code(const Artifact& artifact);
// One line for each variant: the size of its arena for `sizes`, or for the largest sizes.
std::string report_plan_summary(const Artifact& artifact, const InputSizes& sizes = {});
// The summary, a table of the buffers and a drawing for each variant.
std::string report_plan(const Artifact& artifact, const InputSizes& sizes = {});
// The plans of all variants as one SVG picture.
std::string report_svg(const Artifact& artifact, const InputSizes& sizes = {});
// The edges between the steps of each variant.
std::string report_graph(const Artifact& artifact);
// The bytes of each part of the file.
std::string report_sizes(const Artifact& artifact);
// The metadata and the code as JSON. `image_ranks` says how well each image runs on some device,
// and is empty if nobody asked.
std::string report_json(const Artifact& artifact, const std::vector<int32_t>& image_ranks = {});

}  // namespace husk::compiler
