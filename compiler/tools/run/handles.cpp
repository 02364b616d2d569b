#include "run/handles.h"

#include <vector>

#include "run/run_error.h"

namespace husk::run {

uint32_t function_choose(const husk_program* program, const std::string& name) {
  uint32_t function = 0;
  husk_error error;
  if (!name.empty()) {
    check(husk_program_find_function(program, name.c_str(), &function, &error), error, exit_usage);
    return function;
  }
  const uint32_t count = husk_program_function_count(program);
  if (count == 1) return 0;
  std::vector<std::string> names;
  for (uint32_t i = 0; i < count; i++) names.emplace_back(husk_program_function_name(program, i));
  fail(exit_usage, "the artifact has {} functions: choose one with --function: {}", count,
       fmt::join(names, ", "));
}

husk_session_options session_options(const std::string& mode, const std::string& edges) {
  husk_session_options options = HUSK_SESSION_OPTIONS_INIT;
  options.mode = mode == "list"    ? HUSK_MODE_LIST
                 : mode == "graph" ? HUSK_MODE_GRAPH
                                   : HUSK_MODE_AUTO;
  options.full_edges = edges == "full";
  return options;
}

Session session_create(husk_program* program, const husk_session_options& options) {
  husk_session* session = nullptr;
  husk_error error;
  check(husk_session_create(program, &options, &session, &error), error, exit_run);
  return Session(session);
}

}  // namespace husk::run
