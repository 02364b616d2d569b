// husk-dump: prints the contents of an artifact.
#include <fmt/format.h>

#include <charconv>

#include "ir/printable.h"
#include "read/artifact.h"
#include "read/report.h"
#include "tools/command_line.h"

#if HUSK_HAS_PORTS
#include <husk/ports.h>
#endif

namespace {

using namespace husk::compiler;

struct Arguments {
  std::string path, output = "meta";
  std::vector<std::string> at;  // NAME=N
  std::string on;               // PORT:ARCH
  uint32_t rank = 0;
  bool check = false;
};

constexpr const char* kFooter =
    "Examples:\n"
    "  husk-dump model.husk                          header, kernels, constants, signatures\n"
    "  husk-dump model.husk --output=code            the steps of every variant\n"
    "  husk-dump model.husk --output=plan --at x.0=8 the memory plan for a batch of 8\n"
    "  husk-dump model.husk --output=svg > plan.svg  the memory plan as a picture\n\n"
    "Exit codes: 0 success; 1 the artifact is refused; 2 the command line is wrong.";

// Reads the values of --at. Returns an error text, or an empty string.
std::string read_sizes(const std::vector<std::string>& at, InputSizes& sizes) {
  for (const std::string& text : at) {
    const size_t equals = text.rfind('=');
    const std::string number = equals == text.npos ? "" : text.substr(equals + 1);
    int64_t size = 0;
    const auto parsed = std::from_chars(number.data(), number.data() + number.size(), size);
    if (parsed.ec != std::errc() || parsed.ptr != number.data() + number.size())
      return fmt::format("--at={}: write NAME=N, as in x.0=64", text);
    sizes[text.substr(0, equals)] = size;
  }
  return "";
}

#if HUSK_HAS_PORTS
// Writes how well each image runs on a device, 0 if it does not; `on` is PORT:ARCH. Returns an
// error text, or an empty string.
std::string rank_images(const Artifact& artifact, const std::string& on,
                        std::vector<int32_t>& ranks) {
  const size_t colon = on.find(':');
  const husk_port* port = husk_port_find(on.c_str());
  if (!port || colon == on.npos) {
    std::vector<std::string> names;
    for (uint32_t i = 0; const husk_port* one = husk_port_at(i); ++i) names.push_back(one->name);
    return fmt::format("--on={}: write PORT:ARCH, with one of the ports {}", on,
                       fmt::join(names, ", "));
  }
  if (!HUSK_HAS_FIELD(port, arch_rank_on) || !port->arch_rank_on)
    return fmt::format("--on={}: the port {} knows no device that is not there", on, port->name);
  const std::string arch = on.substr(colon + 1);
  const auto& program = artifact.program();
  for (const auto* image : *program.images()) {
    const auto* target = program.targets()->Get(image->target());
    const bool is_of_port = target->port()->str() == port->name;
    ranks.push_back(is_of_port
                        ? port->arch_rank_on(arch.c_str(), target->arch()->c_str(), image->format())
                        : 0);
  }
  return "";
}
#else
std::string rank_images(const Artifact&, const std::string& on, std::vector<int32_t>&) {
  return fmt::format("--on={}: this husk-dump was built without ports", on);
}
#endif

int refuse(const std::string& path, const std::string& error) {
  fmt::print(stderr, "{}: {}\n", path, husk::printable_lines(error));
  return 1;
}

// Prints a report. Its texts are those of the file.
void show(const std::string& report) { fmt::print("{}", husk::printable_lines(report)); }

int run(const CLI::App& app, const Arguments& a) {
  InputSizes sizes;
  std::string error = read_sizes(a.at, sizes);
  if (!error.empty()) return husk::tools::usage_error(app, error);
  const auto artifact = Artifact::open(a.path, error, a.check, a.rank);
  if (!artifact) return refuse(a.path, error);
  if (a.rank && a.rank >= artifact->ranks())
    return refuse(a.path, fmt::format("it has no rank {}: it is an artifact for {}", a.rank,
                                      artifact->ranks() ? fmt::format("{} ranks", artifact->ranks())
                                                        : "one rank"));
  if (a.check) error = artifact->check_blobs();
  if (!error.empty()) return refuse(a.path, error);
  error = check_sizes(artifact->program(), sizes);
  if (!error.empty()) return husk::tools::usage_error(app, "--at: " + error);

  std::vector<int32_t> ranks;
  if (!a.on.empty()) error = rank_images(*artifact, a.on, ranks);
  if (!error.empty()) return husk::tools::usage_error(app, error);

  const bool all = a.output == "all";
  if (all || a.output == "meta") show(report_metadata(*artifact));
  if (all || a.output == "code") show(report_code(*artifact));
  if (all || a.output == "plan") show(report_plan(*artifact, sizes));
  if (all || a.output == "graph") show(report_graph(*artifact));
  if (all || a.output == "sizes") show(report_sizes(*artifact));
  if (a.output == "svg") show(report_svg(*artifact, sizes));
  if (a.output == "json") fmt::print("{}", report_json(*artifact, ranks));
  return 0;
}

int run_tool(int argc, char** argv) {
  Arguments a;
  CLI::App app{"Prints the contents of a Husk artifact (.husk) after verifying it.", "husk-dump"};
  app.add_option("file", a.path, "The artifact, model.husk")->required();
  app.add_option("--output", a.output,
                 "What to print: meta (header, kernels, constants, signatures), code (steps), plan "
                 "(memory plan), graph (dependences of the steps), sizes (bytes by part), all "
                 "(these five), json (for programs), svg (the memory plan as a picture)")
      ->check(husk::tools::one_of({"meta", "code", "plan", "graph", "sizes", "all", "json", "svg"}))
      ->capture_default_str();
  app.add_option("--at", a.at,
                 "NAME=N: print the memory plan for that size instead of the largest one; x.0 is "
                 "dimension 0 of tensor input x, n an int input; may be repeated")
      ->allow_extra_args(false);
  app.add_option(
      "--on", a.on,
      "PORT:ARCH: with --output=json, also print how well each image runs on a device of "
      "that architecture, as cuda:sm_87 or host:avx2; 0: not at all");
  app.add_option("--rank", a.rank, "The rank whose artifact to print, of a file of all ranks")
      ->capture_default_str();
  app.add_flag("--check", a.check, "Also compare images and constants with their hashes");
  app.footer(kFooter);
  if (const auto done = husk::tools::parse(app, argc, argv)) return *done;
  return run(app, a);
}

}  // namespace

int main(int argc, char** argv) {
  return husk::tools::guarded("husk-dump", 1, [&] { return run_tool(argc, argv); });
}
