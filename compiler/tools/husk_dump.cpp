// husk-dump: what is in an artifact.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>

#include "read/artifact.h"
#include "read/report.h"

namespace {

// "NAME=N" each; what is wrong, or empty.
std::string read_sizes(const std::vector<std::string>& given, husk::compiler::GivenSizes& sizes) {
  for (const std::string& text : given) {
    const size_t equals = text.rfind('=');
    const std::string number = equals == text.npos ? "" : text.substr(equals + 1);
    int64_t size = 0;
    const auto got = std::from_chars(number.data(), number.data() + number.size(), size);
    if (got.ec != std::errc() || got.ptr != number.data() + number.size())
      return fmt::format("--at={}: write NAME=N, as in x.0=64", text);
    sizes[text.substr(0, equals)] = size;
  }
  return "";
}

}  // namespace

int main(int argc, char** argv) {
  std::string path, output = "meta";
  std::vector<std::string> at;
  bool check = false;
  CLI::App app{"Prints what is in a Husk artifact. One that breaks a rule of the format is refused.", "husk-dump"};
  app.set_version_flag("--version", "husk-dump " HUSK_VERSION);
  app.add_option("file", path, "The artifact, model.husk")->required();
  app.add_option("--output", output, "meta, code, plan, graph, sizes, json, svg (the plan as a picture), or all (all but json and svg)")
      ->check(CLI::IsMember({"meta", "code", "plan", "graph", "sizes", "json", "svg", "all"}))
      ->capture_default_str();
  app.add_option("--at", at, "NAME=N: plan for that size; x.0 is dim 0 of tensor input x, n an int; may be repeated")
      ->allow_extra_args(false);
  app.add_flag("--check", check, "Compare images and constants with their hashes as well");
  CLI11_PARSE(app, argc, argv);

  using namespace husk::compiler;
  std::string error;
  const auto artifact = Artifact::open(path, error);
  GivenSizes sizes;
  if (artifact && check) error = artifact->check_blobs();
  if (artifact && error.empty()) error = read_sizes(at, sizes);
  if (artifact && error.empty()) error = check_sizes(artifact->program(), sizes);
  if (!error.empty()) {
    fmt::print(stderr, "{}: {}\n", path, error);
    return 1;
  }
  const bool all = output == "all";
  if (all || output == "meta") fmt::print("{}", report_metadata(*artifact));
  if (all || output == "code") fmt::print("{}", report_code(*artifact));
  if (all || output == "plan") fmt::print("{}", report_plan(*artifact, sizes));
  if (all || output == "graph") fmt::print("{}", report_graph(*artifact));
  if (all || output == "sizes") fmt::print("{}", report_sizes(*artifact));
  if (output == "svg") fmt::print("{}", report_svg(*artifact, sizes));
  if (output == "json") fmt::print("{}", report_json(*artifact));
  return 0;
}
