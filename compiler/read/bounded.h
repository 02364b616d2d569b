// What follows from the ranges of a variant's inputs alone: how large its buffers can get, and the plan for that.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "planner.h"

namespace husk::compiler {

// Sizes that a person asks about: "x.0" is dimension 0 of input x, "n" the int n.
using GivenSizes = std::map<std::string, int64_t>;

// Empty if every name is one of a function of the program and its number in range there; else what is wrong.
std::string check_sizes(const fb::Program& program, const GivenSizes& sizes);

struct Bounded {
  // Planned as a session plans. `sizes` narrow the inputs' ranges; those of other functions are passed over.
  Bounded(const Code& code, const GivenSizes& sizes);
  // Not planned. `dims` are the ranges of all inputs' dimensions, one input after the other.
  Bounded(const Code& code, const std::vector<Interval>& dims);

  struct Room {
    uint32_t buffer;
    bool on_demand;     // only the data decides its size: allocated when a run has come that far
    bool unbounded;     // the shapes decide it, without a bound: planned at each resize
  };

  const Code& code;
  std::vector<Interval> intervals;   // by register
  Array<Access> accesses;
  std::vector<Room> rooms;           // buffers of the arena
  std::vector<Block> blocks;         // by room
  Planned planned;
  bool is_planned = false, out_of_memory = false;

  bool used(size_t room) const { return blocks[room].first <= blocks[room].last; }
  const Room* unbounded() const;
  uint32_t on_demand() const;        // how many there are
};

}  // namespace husk::compiler
