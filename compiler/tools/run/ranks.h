// Processes that run the files of several ranks together.
#pragma once

#include <functional>
#include <string>

#include <husk/husk.h>

namespace husk::run {

// One process of several.
struct RankOptions {
  uint32_t rank = 0, world = 1;
  const husk_group_id* group = nullptr;  // null if there is one rank
};

// The file of a rank: `file` itself if it exists, which then has the artifacts of all ranks, or
// model.rank0.husk for model.husk.
std::string file_of_rank(const std::string& file, uint32_t rank);

// Runs `body` in a process for each rank, whose exit code it returns. Returns the code of the first
// rank that failed, or 0. The port is that of the ranks' engines. If `body` throws, or its process
// is killed, the code is exit_run.
int run_ranks(uint32_t ranks, const husk_port& port,
              const std::function<int(const RankOptions&)>& body);

}  // namespace husk::run
