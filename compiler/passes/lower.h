// From a checked tree to rows, as FORMAT.md numbers them. Knows nothing of the file.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ir/tree.h"
#include "rows.h"

namespace husk::compiler {

// Strings by index, each once.
class Pool {
 public:
  uint32_t intern(const std::string& text) {
    auto [place, made] = known_.try_emplace(text, static_cast<uint32_t>(all_.size()));
    if (made) all_.push_back(text);
    return place->second;
  }
  const std::vector<std::string>& all() const { return all_; }

 private:
  std::vector<std::string> all_;
  std::map<std::string, uint32_t> known_;
};

// One variant; its fields are those of fb::Variant.
struct VariantRows {
  uint32_t target = 0;
  std::vector<fb::Instruction> scalars, steps;
  std::vector<fb::Segment> segments;
  std::vector<fb::Argument> arguments, results;
  std::vector<uint32_t> operands, origins, names;
  std::vector<fb::Buffer> buffers;
  std::vector<fb::View> views;
  std::vector<fb::Tensor> tensors;
  std::vector<uint32_t> order;   // of placement: place() fills it in
};

struct ProgramRows {
  Pool strings, ops;
  std::vector<std::vector<VariantRows>> functions;   // in the order of the tree: functions, variants
};

// `program` has passed check(). Throws Failure for what only folding shows: a guard that never holds, an int that
// leaves 64 bits, a view that never lies in its buffer.
ProgramRows lower(const Program& program);

}  // namespace husk::compiler
