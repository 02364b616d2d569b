// husk-pack: adds copies of constants to an artifact, in the layouts that operators of a CPU read.
// The program opens the artifact as an application does, so that the operators themselves make the
// copies, and writes what they have made.
#include <fmt/format.h>

#include "ir/compile_error.h"
#include "ir/printable.h"
#include "packing/packing.h"
#include "read/artifact.h"
#include "tools/command_line.h"
#include "write/packed.h"

namespace {

using namespace husk::compiler;

struct Arguments {
  std::string input, output, cpu;
};

constexpr const char* kFooter =
    "Examples:\n"
    "  husk-pack model.husk -o packed.husk               for the CPU of this machine\n"
    "  husk-pack model.husk -o packed.husk --cpu avx2    for CPUs with AVX2\n\n"
    "Exit codes: 0 success; 1 the file is wrong; 2 the command line is wrong.";

int refuse(const std::string& path, const std::string& error) {
  fmt::print(stderr, "{}: {}\n", path, husk::printable_lines(error));
  return 1;
}

int pack(const Arguments& a) {
  std::string text;
  const auto artifact = Artifact::open(a.input, text, true);
  if (artifact) text = artifact->check_blobs();
  if (artifact && artifact->ranks())
    text = "it holds the artifacts of all ranks: pack that of each rank, and join them then";
  if (!text.empty()) return refuse(a.input, text);
  std::error_code none;
  if (std::filesystem::equivalent(a.input, a.output, none))
    return refuse(a.input, "the output would overwrite the input");
  if (is_stream(a.output)) return refuse(a.output, "it is no regular file");

  husk::packing::Opened opened;
  husk_error error = {};
  const husk::fb::World* world = artifact->program().world();
  if (opened.open(a.input.c_str(), a.cpu, world ? world->rank() : 0, world ? world->size() : 1,
                  &error) != HUSK_OK)
    return refuse(a.input, error.text);
  std::vector<PackedContent> copies;
  uint64_t bytes = 0;
  for (const husk::packing::Copy& copy : opened.copies()) {
    copies.push_back({copy.key, copy.bytes});
    bytes += copy.bytes.size();
  }
  try {
    OutputFile out(a.output);
    write_packed(a.input, copies, out);
    const auto written = Artifact::open(out.close(), text, artifact->weights().empty());
    if (!written)
      return refuse(a.output, fmt::format("the verifier refuses the packed artifact ({}): this is "
                                          "a defect of husk-pack",
                                          text));
    out.finish();
  } catch (const CompileError& failure) {
    return refuse(a.output, failure.text);
  }
  fmt::print("{}: {} packed copies of constants for this CPU, {} bytes\n", a.output, copies.size(),
             bytes);
  return 0;
}

int run_tool(int argc, char** argv) {
  Arguments a;
  CLI::App app{
      "Adds copies of constants to a Husk artifact, in the layouts that operators of a CPU "
      "read, so that an open need not make them.",
      "husk-pack"};
  app.add_option("input", a.input, "The artifact, model.husk")->required();
  app.add_option("-o,--output", a.output, "The artifact to write")->required();
  app.add_option("--cpu", a.cpu,
                 "The instructions of the CPUs that the copies are for, which this machine must "
                 "have (default: all that it has)")
      ->check(husk::tools::one_of(husk::packing::set_names()));
  app.footer(kFooter);
  if (const auto done = husk::tools::parse(app, argc, argv)) return *done;
  if (!a.cpu.empty() && !husk::packing::has_set(a.cpu))
    return husk::tools::usage_error(
        app, fmt::format("--cpu={}: the CPU of this machine has other instructions; run husk-pack "
                         "on a machine that has these",
                         a.cpu));
  remove_output_on_signals();
  return pack(a);
}

}  // namespace

int main(int argc, char** argv) {
  return husk::tools::guarded("husk-pack", 1, [&] { return run_tool(argc, argv); });
}
