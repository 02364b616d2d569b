// The file of constants that lie beside an artifact (FORMAT.md, "Weights beside the file").
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/blake2b.h"
#include "model/weights_row.h"
#include "write/blobs.h"
#include "write/output_file.h"

namespace husk::compiler {

// A safetensors file in the folder of an artifact. Tensors that are no constants fill the gaps
// between those that are, which begin at multiples of the size of a page. Functions throw a
// CompileError.
class WeightsFile {
 public:
  // Creates the file under a temporary name, with a header for the constants of `program`. Those
  // that are folded have no bytes and no tensor.
  WeightsFile(const Program& program, const std::vector<Content>& constants,
              const std::filesystem::path& artifact);

  // Writes the next constant, in the order of the program. The offset of the result counts from the
  // beginning of the file.
  fb::Blob add(const Content& content);
  // Ends writing after the last constant. Returns what the artifact says about the file.
  WeightsRow close();
  // Gives the file the name that its hash makes.
  void finish();

 private:
  void write(std::span<const uint8_t> bytes);

  std::filesystem::path folder_;
  OutputFile file_;
  WeightsRow row_ = {};
  Blake2b hash_;
  uint64_t at_ = 0;  // the bytes that are written
};

}  // namespace husk::compiler
