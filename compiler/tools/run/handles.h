// Handles of the library that release themselves, and how the options of the tools choose them.
#pragma once

#include <memory>
#include <string>

#include <husk/husk.h>

namespace husk::run {

struct Release {
  void operator()(husk_program* program) const { husk_program_release(program); }
  void operator()(husk_session* session) const { husk_session_release(session); }
};
using Program = std::unique_ptr<husk_program, Release>;
using Session = std::unique_ptr<husk_session, Release>;

// The function of --function; the only one if the name is empty. Throws exit_usage.
uint32_t function_choose(const husk_program* program, const std::string& name);

// The options of --mode (auto, list, graph) and --edges (auto, full).
husk_session_options session_options(const std::string& mode, const std::string& edges);

// Throws exit_run.
Session session_create(husk_program* program, const husk_session_options& options);

}  // namespace husk::run
