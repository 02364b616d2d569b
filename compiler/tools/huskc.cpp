// huskc: the text form in, the artifact out.
#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "compile.h"
#include "read/artifact.h"
#include "read/report.h"

namespace {

using namespace husk::compiler;

struct Arguments {
  std::string input, output, root;
  bool print = false, print_lowered = false;
};

int refuse(const Error& error, const std::string& name) {
  fmt::print(stderr, "{}\n", describe(error, name));
  return 1;
}

int print_text(const std::string& path) {
  const auto text = format_file(path);
  if (const Error* error = std::get_if<Error>(&text)) return refuse(*error, path);
  fmt::print("{}", std::get<std::string>(text));
  return 0;
}

int print_code(const std::string& path) {
  std::string error;
  const auto artifact = Artifact::open(path, error);
  if (!artifact) return refuse({0, 0, error}, path);
  fmt::print("{}", report_code(*artifact));
  return 0;
}

// What memory each variant will take: the runtime's planner, asked now.
int print_plan(const std::string& path) {
  std::string error;
  const auto artifact = Artifact::open(path, error);
  if (!artifact) return refuse({0, 0, error}, path);
  fmt::print("{}", report_plan_summary(*artifact));
  return 0;
}

int run(const Arguments& a) {
  if (a.print)
    if (const int status = print_text(a.input)) return status;
  if (a.output.empty()) return 0;
  const auto made = compile_file(a.input, a.output, a.root);
  if (const Error* error = std::get_if<Error>(&made)) return refuse(*error, a.input);
  const Summary& s = std::get<Summary>(made);
  if (a.print_lowered)
    if (const int status = print_code(a.output)) return status;
  fmt::print("{}: {} functions, {} steps, {} registers, metadata {} bytes, images {} bytes, constants {} bytes\n",
             a.output, s.functions, s.steps, s.registers, s.metadata_bytes, s.image_bytes, s.constant_bytes);
  return print_plan(a.output);
}

}  // namespace

int main(int argc, char** argv) {
  Arguments a;
  CLI::App app{"Compiles a Husk program from its text form (.hir) to an artifact (.husk).", "huskc"};
  app.set_version_flag("--version", "huskc " HUSK_VERSION);
  app.add_option("input", a.input, "The program, model.hir")->required();
  app.add_option("-o,--output", a.output, "The artifact to write, model.husk; may be left out with --print");
  app.add_option("--root", a.root, "The folder that paths in the text are relative to (default: that of the input)");
  app.add_flag("--print", a.print, "Print the program as the printer writes it");
  app.add_flag("--print-lowered", a.print_lowered, "Print the code that was made");
  CLI11_PARSE(app, argc, argv);
  if (a.output.empty() && (!a.print || a.print_lowered)) {
    fmt::print(stderr, "huskc: say where to write with -o model.husk, or what to print with --print\n");
    return 1;
  }
  return run(a);
}
