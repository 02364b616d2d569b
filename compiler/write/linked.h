// Takes the kernels out of an artifact, for an object file in which they are code.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "write/object.h"

namespace husk::compiler {

struct LinkedArtifact {
  std::vector<uint8_t> bytes;         // the artifact; images that are not needed have no bytes
  std::vector<KernelObject> kernels;  // point into the bytes that were the argument
  std::vector<LaunchRow> launches;    // of these kernels
  std::vector<std::string> loaded;    // names of host images that still are loaded at run time
  bool foreign = false;               // all host images, at least one, are for other machines
};

// Takes the host images for `machine` out of a verified artifact, if the exporter has kept their
// code in a form that can be linked, and drops the host images of other machines. Constants, steps
// and shapes stay as they are. Without images to take out, the bytes are those of the argument.
LinkedArtifact take_kernels(std::span<const uint8_t> artifact, Machine machine);

}  // namespace husk::compiler
