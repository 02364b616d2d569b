// husk-dump: what is in an artifact.
#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "read/artifact.h"
#include "read/report.h"

int main(int argc, char** argv) {
  std::string path, output = "meta";
  bool check = false;
  CLI::App app{"Prints what is in a Husk artifact. One that breaks a rule of the format is refused.", "husk-dump"};
  app.set_version_flag("--version", "husk-dump " HUSK_VERSION);
  app.add_option("file", path, "The artifact, model.husk")->required();
  app.add_option("--output", output, "meta, code, plan, graph, sizes, json, or all (all but json)")
      ->check(CLI::IsMember({"meta", "code", "plan", "graph", "sizes", "json", "all"}))
      ->capture_default_str();
  app.add_flag("--check", check, "Compare images and constants with their hashes as well");
  CLI11_PARSE(app, argc, argv);

  using namespace husk::compiler;
  std::string error;
  const auto artifact = Artifact::open(path, error);
  if (artifact && check) error = artifact->check_blobs();
  if (!error.empty()) {
    fmt::print(stderr, "{}: {}\n", path, error);
    return 1;
  }
  const bool all = output == "all";
  if (all || output == "meta") fmt::print("{}", report_metadata(*artifact));
  if (all || output == "code") fmt::print("{}", report_code(*artifact));
  if (all || output == "plan") fmt::print("{}", report_plan(*artifact));
  if (all || output == "graph") fmt::print("{}", report_graph(*artifact));
  if (all || output == "sizes") fmt::print("{}", report_sizes(*artifact));
  if (output == "json") fmt::print("{}", report_json(*artifact));
  return 0;
}
