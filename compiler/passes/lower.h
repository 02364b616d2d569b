// Lowers a checked tree to the rows of FORMAT.md. Reading and writing files is not its business.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ir/tree.h"
#include "model/rows.h"

namespace husk::compiler {

// Numbers strings; equal strings have one number.
class StringPool {
 public:
  uint32_t intern(const std::string& text) {
    auto [entry, inserted] = numbers_.try_emplace(text, static_cast<uint32_t>(all_.size()));
    if (inserted) all_.push_back(text);
    return entry->second;
  }
  const std::vector<std::string>& all() const { return all_; }

 private:
  std::vector<std::string> all_;
  std::map<std::string, uint32_t> numbers_;
};

// The rows of one variant. The fields have the names of fb::Variant's.
struct VariantRows {
  uint32_t target = 0;
  std::vector<fb::Instruction> scalars, steps;
  std::vector<fb::Segment> segments;
  std::vector<fb::Argument> arguments, results;
  std::vector<uint32_t> operands, origins, names;
  std::vector<fb::Buffer> buffers;
  std::vector<fb::View> views;
  std::vector<fb::Tensor> tensors;
  std::vector<uint32_t> order;  // placement order; empty until order_placement()
};

struct ProgramRows {
  StringPool strings, ops;
  std::vector<std::vector<VariantRows>> functions;  // by function, then by variant; in tree order
};

// Lowers `program`, which has passed check(). Throws CompileError for mistakes that only constant
// folding finds: a guard that never holds, an int that does not fit 64 bits, a view that never lies
// in its buffer.
ProgramRows lower(const Program& program);

}  // namespace husk::compiler
